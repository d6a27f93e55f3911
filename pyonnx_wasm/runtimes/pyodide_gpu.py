"""WebGPU from Pyodide: the player's engine beside Python, one promise per run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..program import Compiled
from ..program import file as ponnx
from . import UNLIMITED, Allocate, Limits
from .profile import StepTime
from .pyodide import _address, _answered, _glue, _told, plain

CANNOT_WAIT = (
    "this Python cannot wait for the GPU (the browser lacks JSPI, or the call did not come through runPythonAsync): "
    "use `await session.run_async(...)`"
)


def available() -> bool:
    """True where the browser has a GPU adapter; where Python cannot wait for the answer, where it offers WebGPU at all."""
    from pyodide.code import run_js
    from pyodide.ffi import can_run_sync, run_sync

    gpu: Any = run_js("globalThis.navigator?.gpu")
    return bool(gpu) and (not can_run_sync() or bool(run_sync(gpu.requestAdapter())))


class GpuExecutor:
    """A model on WebGPU. Not re-entrant: its owner serialises calls.

    Opening begins at once and is waited for at the first use.

    Args:
        seed: where random numbers begin.
        limits: what a run may take on the core.

    Raises:
        ponnx.FileError: the compiled model has no part for GPUs.
        GpuError, when it is used: there is no device, it was lost, or finds a shader or a buffer invalid.
    """

    def __init__(self, compiled: Compiled, seed: int, limits: Limits = UNLIMITED) -> None:
        if compiled.gpu is None:
            raise ponnx.FileError("this compiled model has no part for GPUs: compile it again, with --gpu")
        from pyodide.ffi import create_proxy

        layout = ponnx.layout(compiled)
        with _told():
            glue = _glue()
            room = glue.room(layout.nbytes)
            at = 0
            for piece in layout.read(0, layout.nbytes):
                view = memoryview(piece).cast("B")
                if len(view):
                    room.subarray(at, at + len(view)).assign(view)
                at += len(view)
            self._failed: list[Exception] = []
            self._asked = create_proxy(partial(_answered, compiled.gpu.program.callbacks, self._failed))
            self._opening = glue.openGpu(room, str(seed), json.dumps(plain(limits)), self._asked)
        self._js: Any = None
        self._results: Any = []

    async def open(self) -> Any:
        """The session on the GPU."""
        if self._js is None:
            with _told():
                self._js = await asyncio.shield(self._opening)  # who gives up a run does not give up the model
        return self._js

    async def start(self, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
        """Runs; returns the output shapes. ``fetch`` gives the outputs."""
        from pyodide.code import run_js

        session, controller = await self.open(), run_js("new AbortController()")
        self._failed.clear()
        try:
            with _told(self._failed):
                self._results = await _glue().runGpu(session, _frame(shapes, inputs), controller.signal)
        except BaseException:  # the task was cancelled, or Ctrl-C; a run that failed has ended already
            controller.abort()
            raise
        return [tuple(result.dims.to_py()) for result in self._results]

    def fetch(self, outputs: Sequence[np.ndarray]) -> None:
        """Copies the outputs of the latest run."""
        for result, array in zip(self._results, outputs, strict=True):
            if array.nbytes:
                result.data.assign_to(array.reshape(-1).view(np.uint8))

    def bind(self, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
        """Runs: sizes and results come together."""
        found: list[tuple[int, ...]] = waited(self.start(shapes, inputs))
        return found

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], more: Allocate | None = None) -> None:
        """Copies the outputs of the run that ``bind`` made."""
        self.fetch(outputs)

    def profile(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], more: Allocate | None = None) -> list[StepTime]:
        """What each step took."""

        async def measured() -> str:
            session = await self.open()
            self._failed.clear()
            with _told(self._failed):
                text: str = await _glue().profileGpu(session, _frame([x.shape for x in inputs], inputs))
            return text

        steps = json.loads(waited(measured()))
        return [StepTime(s["name"], s["kernel"], s["backend"], s["start"], s["ms"], s["bytes"]) for s in steps]


def waited(awaitable: Any) -> Any:
    """The result of an awaitable, blocking; RuntimeError where this Python cannot block."""
    from pyodide.ffi import can_run_sync, run_sync

    if not can_run_sync():
        awaitable.close()
        raise RuntimeError(CANNOT_WAIT)
    return run_sync(awaitable)


def _frame(shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Addresses, bytes and dims of the inputs, as JavaScript reads them."""
    words: list[float] = []
    for array, shape in zip(inputs, shapes, strict=True):
        words += (_address(array), array.nbytes, *shape)
    return np.array(words or [0], np.float64)
