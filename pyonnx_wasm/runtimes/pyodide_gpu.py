"""WebGPU from Pyodide: the player's engine beside Python, one promise per run."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..program import Compiled, ProgramView
from ..program import file as ponnx
from . import UNLIMITED, Allocate, Limits
from .profile import StepTime
from .pyodide import _answered, _glue, _told, plain
from .pyodide_onward import address
from .state import Held, Shape

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


class PageRoom:
    """A tensor on the GPU, all of it rows of one; freed when nobody holds it."""

    def __init__(self, session: Any, number: int, shape: Shape, dtype: DType, owner: object) -> None:
        self.session, self.memory, self.shape, self.dtype, self.axis, self.rows = session, number, shape, dtype, 0, shape[0]
        self.owner = owner
        weakref.finalize(self, session.dispose, number).atexit = False

    async def read(self) -> np.ndarray:
        """A copy of the elements."""
        with _told():
            data = await self.session.read(self.memory)
        array = np.empty(self.shape, to_numpy(self.dtype))
        if array.nbytes:
            data.assign_to(array.reshape(-1).view(np.uint8))
        return array

    def array(self, rows: int) -> np.ndarray:
        found: np.ndarray = waited(self.read())
        return found

    def take(self, held: Held) -> int:
        raise NotImplementedError("rooms of a page are made by its runs")


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

    reads = True  # reading an output costs

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
        self._results: list[Any] = []
        program = ProgramView(compiled.gpu.program.code)
        self._outputs, self._states = program.outputs, {state.output for state in program.states}

    async def open(self) -> Any:
        """The session on the GPU."""
        if self._js is None:
            with _told():
                self._js = await asyncio.shield(self._opening)  # who gives up a run does not give up the model
        return self._js

    async def start(
        self, shapes: Sequence[Sequence[int]], inputs: Sequence[Any], wanted: Sequence[int], keep: Collection[int] = ()
    ) -> list[Any]:
        """Runs; what JavaScript gives of each output that is wanted."""
        from pyodide.code import run_js

        session, controller = await self.open(), run_js("new AbortController()")
        here = [x for x in inputs if isinstance(x, Held) and not (isinstance(x.room, PageRoom) and x.room.session is session)]
        arrays = {id(x): await read(x) for x in here}
        frame, kept = _frame(shapes, [arrays.get(id(x), x) for x in inputs]), json.dumps(sorted(keep))
        self._failed.clear()
        try:
            with _told(self._failed):
                return list(await _glue().runGpu(session, frame, json.dumps(list(wanted)), kept, controller.signal))
        except BaseException:  # the task was cancelled, or Ctrl-C; a run that failed has ended already
            controller.abort()
            raise

    async def run_held_async(
        self,
        shapes: Sequence[Sequence[int]],
        inputs: Sequence[Any],
        keep: Collection[int],
        wanted: Collection[int],
        empty: Allocate,
        away: Collection[int] = (),
    ) -> list[Any]:
        """As :meth:`run_held`."""
        stay = {i for i in (*self._states.intersection(keep), *away) if self._outputs[i].rank}
        some = sorted({*wanted, *stay})
        outputs: list[Any] = [None] * len(self._outputs)
        for i, result in zip(some, await self.start(shapes, inputs, some, stay), strict=True):
            shape = tuple(result.dims.to_py())
            if i in stay:
                room = PageRoom(self._js, result.gpu, shape, DType(self._outputs[i].dtype), self if i in self._states else None)
                outputs[i] = Held(room, room.rows)
            else:
                outputs[i] = empty(i, shape)
                _copied(result, outputs[i])
        return outputs

    def run_held(
        self,
        shapes: Sequence[Sequence[int]],
        inputs: Sequence[Any],
        keep: Collection[int],
        wanted: Collection[int],
        empty: Allocate,
        away: Collection[int] = (),
    ) -> list[Any]:
        """Binds and runs, on arrays and on what is held. Of ``keep`` those that a run goes on from come as :class:`Held`, and all of
        ``away``; of the rest what is wanted is read, together, and no more."""
        found: list[Any] = waited(self.run_held_async(shapes, inputs, keep, wanted, empty, away))
        return found

    def bind(self, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
        """Runs: sizes and results come together."""
        self._results = waited(self.start(shapes, inputs, range(len(self._outputs))))
        return [tuple(result.dims.to_py()) for result in self._results]

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], more: Allocate | None = None) -> None:
        """Copies the outputs of the run that ``bind`` made."""
        for result, array in zip(self._results, outputs, strict=True):
            _copied(result, array)

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


async def read(held: Held) -> np.ndarray:
    """The elements of what is held, wherever that is."""
    return await held.room.read() if isinstance(held.room, PageRoom) else held.array()


def _copied(result: Any, array: np.ndarray) -> None:
    if array.nbytes:
        result.data.assign_to(array.reshape(-1).view(np.uint8))


def _frame(shapes: Sequence[Sequence[int]], inputs: Sequence[Any]) -> np.ndarray:
    """Addresses, bytes and dims of the inputs, as JavaScript reads them; of what is on the GPU its number and -1."""
    words: list[float] = []
    for given, shape in zip(inputs, shapes, strict=True):
        words += (given.room.memory, -1, *shape) if isinstance(given, Held) else (address(given), given.nbytes, *shape)
    return np.array(words or [0], np.float64)
