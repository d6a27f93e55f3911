"""The WebAssembly core beside Pyodide's own, through one JavaScript call per run.

Nothing here awaits: browsers compile a module of this size at once, also in a page.
"""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..callbacks import Asked, Callback, perform
from ..dtypes import DType, to_numpy
from ..program import Program, ProgramView, Weight, homes
from ..program.file import weight_bytes
from ..program.view import StateRow
from . import UNLIMITED, Allocate, Limits, call
from .adapter import GpuError
from .errors import CoreError
from .profile import StepTime
from .pyodide_onward import HELD, InLeft, address
from .state import Held, Shape

LIB = Path(__file__).resolve().parents[1] / "lib"
CACHED_SHAPES = 64
MOST_BYTES = (1 << 31) - 1  # of an array in Pyodide
MOST_EXACT = (1 << 53) - 1
OUTPUTS = 1 << 16  # the number of what stays of an output is that of its run times this, and the output's


@cache
def _glue() -> Any:
    """The JavaScript side (``js/pyodide/glue.ts``), with the core compiled."""
    from pyodide.code import run_js
    from pyodide.ffi import JsException

    script = LIB / "pyodide" / "glue.js"
    if not script.exists():
        raise ImportError(f"{script} is missing: this wheel is not the one that `make wheel` builds")
    try:
        glue = run_js(script.read_text())
    except JsException as error:
        if error.name != "EvalError":
            raise
        raise ImportError("the page's Content-Security-Policy forbids to start the core: add 'unsafe-eval' to its script-src") from None
    with _told():
        glue.compile(np.frombuffer((LIB / "player" / glue.coreFile()).read_bytes(), np.uint8))
    return glue


def plain(limits: Limits) -> dict[str, int]:
    """As the player takes them: JavaScript's numbers are exact up to 2^53."""
    memory, operations = (min(limit, MOST_EXACT) for limit in limits)
    return {"maxMemory": memory, "maxOperations": operations}


def memory_bytes() -> int:
    """WebAssembly memory of the cores, beside Pyodide's own."""
    return int(_glue().memoryBytes())


class Left:
    """What one run left in the core; freed when nobody holds any of it."""

    def __init__(self, js: Any, run: int) -> None:
        self.js, self.run = js, run
        weakref.finalize(self, js.dispose, run).atexit = False


class CoreRoom:
    """One tensor of that, all of it rows that are filled."""

    def __init__(self, left: Left, output: int, shape: Shape, dtype: DType, axis: int, owner: object) -> None:
        self.left, self.shape, self.dtype, self.axis, self.owner = left, shape, dtype, axis, owner
        self.memory, self.rows = left.run * OUTPUTS + output, shape[axis]

    def array(self, rows: int) -> np.ndarray:
        array = np.empty(self.shape, to_numpy(self.dtype))
        with _told():
            self.left.js.copyHeld(self.memory, address(array))
        return array

    def take(self, held: Held) -> int:
        raise NotImplementedError("rooms of a page are made by its runs")


class Executor:
    """A model ready to run in the WebAssembly core. Not re-entrant: its owner serialises calls.

    Args:
        threads: 0: half the cores, at most 4; more than one only in a cross-origin isolated page.
        limits: what a run may take.
    Raises:
        CoreError: the Program is malformed.
        MemoryError: the weights do not fit into WebAssembly memory.
    """

    _js: Any = None
    _proxy: Any = None
    _asked: Any = None

    def __init__(
        self, main: Program, init: Program | None, weights: Sequence[Weight], threads: int = 0, limits: Limits = UNLIMITED
    ) -> None:
        from pyodide.ffi import create_proxy
        from pyodide_js import checkInterrupt  # type: ignore[import-not-found]

        modules: list[bytes] = []
        spec = {
            "weights": [{"name": w.name, "bytes": w.nbytes, "home": home} for w, home in zip(weights, homes(weights), strict=True)],
            "main": _texts(main, modules),
            "init": None if init is None else _texts(init, modules),
            "limits": plain(limits),
            "modules": len(modules),
        }
        with _told():
            self._js = _glue().Executor.new(json.dumps(spec), threads)
            for k, weight in enumerate(weights):
                data = weight_bytes(weight)
                if data is not None and data.size != weight.nbytes:
                    raise ValueError(f"weight {weight.name!r} has {data.size} bytes, not {weight.nbytes}")
                if data is not None and data.size:
                    self._js.write(k, data)
            for module in modules:
                self._js.module(np.frombuffer(module, np.uint8))
            self._failed: list[Exception] = []
            self._asked = create_proxy(partial(_answered, main.callbacks, self._failed))
            self._js.answerWith(self._asked)
            self._js.pauseWith(checkInterrupt)
            self._js.start(_words(main).view(np.uint8), None if init is None else _words(init).view(np.uint8))
            # The core has verified the words by now.
            view = self._view = ProgramView(_words(main))
            self._inputs = [(DType(row.dtype), row.rank) for row in view.inputs[: len(view.inputs) - len(view.states)]]
            self._outputs = [(DType(row.dtype), row.rank) for row in view.outputs]
            self._axes = {state.output: state.axis for state in view.states}
            self._outputs_at = sum(2 + rank for _, rank in self._inputs)
            self._shapes: dict[tuple[int, ...], list[tuple[int, ...] | None]] = {}
            self._frame = np.zeros(max(sum(2 + rank for _, rank in (*self._inputs, *self._outputs)), 1))
            self._proxy = create_proxy(self._frame)
            self._js.share(self._proxy)

    @property
    def threads(self) -> int:
        """Threads of a run, the caller included."""
        return int(self._js.threads)

    def bind(self, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> list[tuple[int, ...] | None]:
        """Fixes the input shapes; returns the output shapes, as far as they are known. Shapes met before cost no call."""
        key = tuple(d for shape in shapes for d in shape)
        if not self._view.reads_contents and key in self._shapes:
            found = self._shapes[key]
        else:
            self._place(shapes, inputs)
            with _told():
                self._js.bind()
            found = self._output_shapes()
            for i, shape in enumerate(found):
                self._fits(i, shape)
            if len(self._shapes) >= CACHED_SHAPES:
                self._shapes.clear()
            self._shapes[key] = found
        self._bound = shapes
        return found

    def _fits(self, i: int, shape: tuple[int, ...] | None) -> None:
        dtype = self._outputs[i][0]
        if shape is not None and dtype.nbytes(math.prod(shape)) > MOST_BYTES:
            raise MemoryError(f"an output of {list(shape)} {dtype.name} does not fit into Pyodide's memory")

    def run(self, inputs: Sequence[np.ndarray], outputs: list[Any], more: Allocate | None = None) -> None:
        """Runs the bound Program; inputs and outputs are contiguous and of the bound shapes."""
        at = self._place(self._bound, inputs)
        whole = not any(array is None for array in outputs)
        if not whole:
            with _told(self._failed):
                self._js.run(False)
            for i, shape in enumerate(self._output_shapes()):
                if outputs[i] is None and shape is not None and more is not None:
                    self._fits(i, shape)
                    outputs[i] = more(i, shape)
        for array, (_, rank) in zip(outputs, self._outputs, strict=True):
            self._frame[at : at + 2] = address(array), array.nbytes
            at += 2 + rank
        with _told(self._failed):
            if whole:
                self._js.run(True)
            else:
                self._js.fetch()

    def run_held(
        self, shapes: Sequence[Sequence[int]], inputs: Sequence[Any], keep: Collection[int], wanted: Collection[int], empty: Allocate
    ) -> list[Any]:
        """Binds and runs, on arrays and on what is held. Of ``keep`` those that a run goes on from come as :class:`Held`; of the rest what
        is wanted is copied out of the core, and no more."""
        if not self._axes:
            return call(self, shapes, [x.array() if isinstance(x, Held) else x for x in inputs], empty)
        stay = sorted(self._axes.keys() & set(keep))
        self._place(shapes, [x.array() if isinstance(x, Held) and not self._has(x) else x for x in inputs])
        return self.run_placed(stay, json.dumps(stay), wanted, empty)

    def run_placed(self, stay: Collection[int], text: str, wanted: Collection[int], empty: Allocate) -> list[Any]:
        """Runs on what the frame tells of the inputs, for outputs of which some stay; ``text`` says which, as JSON."""
        with _told(self._failed):
            left = Left(self._js, self._js.runHeld(text))
        found: list[Any] = []
        at = self._outputs_at
        for i, shape in enumerate(self._output_shapes()):
            dtype, rank = self._outputs[i]
            if shape is None:
                raise RuntimeError(f"output {i} has no shape after the run")
            if i in stay:
                found.append(Held(CoreRoom(left, i, shape, dtype, self._axes[i], self), shape[self._axes[i]], shape))
            elif i in wanted:
                self._fits(i, shape)
                found.append(empty(i, shape))
            else:
                found.append(None)
            self._frame[at : at + 2] = (address(found[i]), found[i].nbytes) if isinstance(found[i], np.ndarray) else (0, HELD)
            at += 2 + rank
        with _told():
            self._js.fetch()
        return found

    @property
    def states(self) -> Sequence[StateRow]:
        """What of a run the next one can go on from."""
        return self._view.states

    def onward(self, held: Sequence[Held], alike: Iterable[Sequence[tuple[int, int]]]) -> InLeft:
        """Runs that all go on from what the last one left: see :class:`.onward.InRooms`."""
        return InLeft(self, held, alike)

    @property
    def ranks(self) -> list[int]:
        """Of the inputs."""
        return [rank for _, rank in self._inputs]

    def place(self, words: np.ndarray) -> None:
        """Writes what is told of the inputs into the frame."""
        self._frame[: len(words)] = words

    def _has(self, held: Held) -> bool:
        return isinstance(held.room, CoreRoom) and held.room.owner is self

    def seed(self, seed: int) -> None:
        """Where the random numbers of later runs begin."""
        self._js.seed(str(seed))

    def profile(self, inputs: Sequence[np.ndarray], outputs: list[Any], more: Allocate | None = None) -> list[StepTime]:
        """Like ``run``, one step after the other, and what each took; ``outputs`` are left alone."""
        self._place(self._bound, inputs)
        with _told(self._failed):
            found = json.loads(self._js.profile(self._view.count("registers")))
        times: list[StepTime] = []
        start = 0.0
        for step, nbytes in zip(found["steps"], self._view.step_bytes(found["registers"]), strict=True):
            times.append(StepTime(step["name"], step["kernel"], "wasm", start, step["ms"], nbytes))
            start += step["ms"]
        return times

    def close(self) -> None:
        """Frees the model's memory; closing twice is fine."""
        if self._js is not None:
            self._js.free()
            self._js = None
        for proxy in (self._proxy, self._asked):
            if proxy is not None:
                proxy.destroy()
        self._proxy = self._asked = None

    def __del__(self) -> None:
        self.close()

    def _place(self, shapes: Sequence[Sequence[int]], inputs: Sequence[Any]) -> int:
        words: list[int] = []
        for given, shape in zip(inputs, shapes, strict=True):
            words += (given.room.memory, HELD, *shape) if isinstance(given, Held) else (address(given), given.nbytes, *shape)
        self._frame[: len(words)] = words
        return len(words)

    def _output_shapes(self) -> list[tuple[int, ...] | None]:
        at, shapes = 0, list[tuple[int, ...] | None]()
        words = self._frame[self._outputs_at :].astype(np.int64).tolist()
        for _, rank in self._outputs:
            shape = tuple(words[at + 2 : at + 2 + rank])
            shapes.append(None if min(shape, default=0) < 0 else shape)
            at += 2 + rank
        return shapes


@contextmanager
def _told(failed: list[Exception] | None = None) -> Iterator[None]:
    """JavaScript's errors as Python's; ``failed`` has what ended the run in Python meanwhile."""
    from pyodide.ffi import JsException

    try:
        yield
    except JsException as error:
        if failed:
            raised = failed.pop()
            raise raised from raised.__cause__
        if error.name == "ProgramError":
            raise CoreError(error.code, error.step, error.origin, error.text) from None
        raise _kind(error.name, error.message)(error.message) from None


def _kind(name: str, message: str) -> type[Exception]:
    """The class of an error of JavaScript's, by its name there."""
    if name in ("GpuError", "OperationError") or name.startswith("GPU"):
        return GpuError
    return MemoryError if message.startswith("out of memory") else RuntimeError


def _words(program: Program) -> np.ndarray:
    return np.ascontiguousarray(program.code, np.int32)


def _texts(program: Program, modules: list[bytes]) -> dict[str, Any]:
    callbacks = [c.json(modules) for c in program.callbacks]
    return {"name": program.name, "messages": program.messages, "origins": program.origins, "callbacks": callbacks}


def _answered(callbacks: Sequence[Callback], failed: list[Exception], text: str, inputs: Any) -> Any:
    """``_answer``; None where it fails: JupyterLite takes an exception that goes through JavaScript as the cell's, caught or not."""
    try:
        return _answer(callbacks, text, inputs)
    except Exception as error:
        failed.append(error)
        return None


def _answer(callbacks: Sequence[Callback], text: str, inputs: Any) -> Any:
    """Does what a run asks of the host."""
    from pyodide.code import run_js
    from pyodide.ffi import to_js

    row = json.loads(text)
    dtypes = [DType[given["type"]] for given in row["inputs"]]
    arrays = []
    for data, dtype, given in zip(inputs, dtypes, row["inputs"], strict=True):
        arrays.append(np.frombuffer(data.to_bytes(), to_numpy(dtype)).reshape(given["dims"]))
    wanted = [None if o is None else (DType[o["type"]], int(o["rank"])) for o in row["outputs"]]
    answers = perform(callbacks[row["number"]], Asked(row["number"], arrays, wanted, dtypes))
    plain = [None if a is None else {"data": a.tobytes(), "dims": list(a.shape)} for a in answers]
    return to_js(plain, dict_converter=run_js("Object.fromEntries"))
