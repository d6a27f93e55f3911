"""The native C++ core, through ctypes. Calls release the interpreter lock."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_int64, c_void_p
from itertools import accumulate, compress
from typing import Any, NamedTuple

import numpy as np

from ..callbacks import WAIT, parse
from ..dtypes import DType
from ..program.view import ProgramView
from . import UNLIMITED, Allocate, Limits
from .addresses import Addresses, demand, pointers
from .errors import BAD_BIND as BAD_BIND
from .errors import BAD_DATA as BAD_DATA
from .errors import CANCELLED as CANCELLED
from .errors import CHECK_FAILED as CHECK_FAILED
from .errors import LIMIT as LIMIT
from .errors import MALFORMED as MALFORMED
from .errors import MISUSE as MISUSE
from .errors import MORE as MORE
from .errors import NO_MEMORY as NO_MEMORY
from .errors import PAUSE as PAUSE
from .errors import UNKNOWN_KERNEL as UNKNOWN_KERNEL
from .errors import CoreError as CoreError
from .errors import core_error, origin_of
from .host import Host
from .interrupt import interruptible
from .library import Error, load

MOST = (1 << 63) - 1
LONG = 1 << 28  # operations of a run that may take longer than a user waits for Ctrl-C, unless a run has shown otherwise
BRIEF = 0.1  # seconds that a user waits for Ctrl-C


class _Span(NamedTuple):
    """Where among the dims of all tensors those of one are, and the bits of its elements."""

    begin: int
    end: int
    bits: int


def _spans(rows: Sequence[Any]) -> list[_Span]:
    ends = list(accumulate(row.rank for row in rows))
    return [_Span(end - row.rank, end, DType(row.dtype).bits) for end, row in zip(ends, rows, strict=True)]


def _bytes_of(dims: Sequence[int], spans: Sequence[_Span]) -> list[int]:
    """Those of each tensor."""
    return [(math.prod(dims[begin:end]) * bits + 7) // 8 for begin, end, bits in spans]


class _Sizes(NamedTuple):
    """What follows from the dims of the last binding, where it hangs on nothing else."""

    sizes: tuple[int, ...]
    input_bytes: list[int]
    shapes: list[tuple[int, ...] | None]
    output_bytes: list[int]


class Core:
    """A Program in the native core. Not re-entrant: the owner serialises calls.

    Args:
        code: the Program's i32 words.
        weights: one contiguous array or buffer per weight, kept alive; None where the Program does not use it. Those
            that numpy says are read-only cannot be written by the Program.
        messages, origins: the texts that the Program's numbers refer to.
        threads: the caller included.
        library: a build of the core; the best one by default.
        limits: what a run may take.
        outer: the Program that this one lies in, and its number there: it shares weights, limits, threads and random numbers.
    Raises:
        CoreError: the Program is malformed, or names a kernel that this core lacks.
    """

    def __init__(
        self,
        code: np.ndarray | bytes,
        weights: Sequence[np.ndarray | memoryview | None],
        messages: Sequence[str] = (),
        origins: Sequence[str] = (),
        threads: int = 1,
        library: ctypes.CDLL | None = None,
        limits: Limits = UNLIMITED,
        outer: tuple[Core, int] | None = None,
    ) -> None:
        self._session: int | None = None
        self._pool: int | None = None
        self._lib = library or load()
        self._error = Error()
        self.messages, self.origins = messages, origins
        self.host = Host()
        words = np.frombuffer(code, "<i4") if isinstance(code, bytes) else np.ascontiguousarray(code, np.int32)
        self.view = ProgramView(words)
        self._weights = [None if w is None else np.asarray(w) for w in weights]
        for k, weight in enumerate(self._weights):
            if weight is not None and not weight.flags.c_contiguous:
                raise ValueError(f"weight {k} is not contiguous")
        self._outer = outer[0] if outer else None
        if outer:
            self._session = self._lib.pwx_part(outer[0]._handle, outer[1])
        else:
            self._create(words, threads)
            self.limit(*limits)
        self._endless = self.view.count("programs") > 0  # a loop's rounds show in each run anew
        # Operations that take less than BRIEF, as far as runs have shown; what later stages take shows in the first.
        self._brief = LONG - 1 if self.view.count("stages") == 1 else -1
        self.states = self.view.states
        self._inputs = _spans(self.view.inputs[: self.view.count("inputs") - len(self.states)])
        self._outputs = _spans(self.view.outputs)
        self._growing = [(self._outputs[state.output].begin + state.axis, 2 * k) for k, state in enumerate(self.states)]
        self._read_from, self._written_to = Addresses("input"), Addresses("output", written=True)
        self._told = [0] * 2 * len(self.states)
        self._in_rooms: list[bool] = []  # of the states, which have room
        self._pasts: set[int] = set()  # and their inputs and outputs
        self._presents: set[int] = set()
        self._dims = (c_int64 * (sum(span.end - span.begin for span in self._inputs) + len(self._told)))()
        self._input_bytes: list[int] = []
        self._output_bytes: list[int] = []
        self._shapes: list[tuple[int, ...] | None] = []
        self._known: _Sizes | None = None

    def _create(self, words: np.ndarray, threads: int) -> None:
        n = len(self._weights)
        sizes = (c_int64 * n)(*(0 if w is None else w.nbytes if w.flags.writeable else -w.nbytes for w in self._weights))
        self._pool = self._lib.pwx_pool_create(threads)
        if not self._pool:
            raise ValueError(f"a core on {threads} threads: from 1 to 1024 are possible")
        addresses = pointers([w if w is not None and w.nbytes else None for w in self._weights])
        self._session = self._lib.pwx_create(words.ctypes.data, words.size, addresses, sizes, n, self._pool, byref(self._error))
        if not self._session:
            self._check(self._error.code)

    def bind(
        self, dims: Sequence[int], inputs: Sequence[np.ndarray | None], told: Sequence[int] | None = None
    ) -> list[tuple[int, ...] | None]:
        """Fixes the sizes of all inputs; returns the shapes of the outputs, None for those that are known while the Program runs.

        Args:
            dims: the dims of all inputs, one after the other.
            inputs: contiguous arrays of these shapes; may be empty when the Program's shapes depend on no content.
            told: per state the rows that its output has room for, and those of its past that are in place there already; then the arrays
                of both, the same one, are as large as that.
        """
        if len(dims) + len(self._told) != len(self._dims):
            raise ValueError(f"{len(dims)} dims were given, the inputs have {len(self._dims) - len(self._told)}")
        self._told = [0] * len(self._told) if told is None else list(told)
        sizes = (*dims, *self._told)
        self._dims[:] = list(sizes)
        known = self._known if self._known is not None and self._known.sizes == sizes else None
        input_bytes = known.input_bytes if known else _bytes_of(dims, self._inputs)
        if inputs:
            demand("input", inputs, input_bytes)
        self._input_bytes, self._output_bytes = [], []
        addresses = pointers(inputs) if inputs and self.view.reads_contents else None
        self._check(self._lib.pwx_bind(self._handle, self._dims, addresses, byref(self._error)))
        self._input_bytes = input_bytes
        if known:
            self._shapes, self._output_bytes = known.shapes, known.output_bytes
            return self._shapes
        self._read_shapes()
        if not self.view.reads_contents:
            self._known = _Sizes(sizes, input_bytes, self._shapes, self._output_bytes)
        return self._shapes

    @property
    def spans(self) -> tuple[list[_Span], list[_Span]]:
        """Where among the dims of all inputs, and of all outputs, those of each are."""
        return self._inputs, self._outputs

    def bind_at(self, sizes: Any, contents: Any) -> np.ndarray:
        """As :meth:`bind`, of sizes and what is told of rooms in memory, int64; the dims of all outputs, a copy."""
        self._input_bytes, self._output_bytes = [], []
        self._check(self._lib.pwx_bind(self._handle, sizes, contents if self.view.reads_contents else None, byref(self._error)))
        count = self._outputs[-1].end if self._outputs else 0
        return np.array(self._lib.pwx_output_dims(self._handle)[:count], np.int64)

    def run_at(self, ins: Any, outs: Any) -> None:
        """As :meth:`run`, of addresses, where all shapes are known."""
        self._learn(self._whole(self._run, lambda: (ins, outs), None))

    @property
    def brief(self) -> bool:
        """Whether a run under the current binding ends sooner than somebody waits for Ctrl-C, as far as runs have shown."""
        return self.operations <= self._brief and not self._endless

    @property
    def plain(self) -> bool:
        """Whether sizes of inputs alone decide those of outputs, and nothing is asked of the host."""
        return not (self.view.reads_contents or self.states or self.host.callbacks) and self.view.count("stages") == 1

    def again(self, sizes: Any, ins: Any, outs: Any) -> bool:
        """:meth:`bind_at` and :meth:`run_at` in one, of a core that is ``plain``, for brief runs; whether this was one."""
        self._input_bytes = self._output_bytes = []
        lib, handle, error = self._lib, self._handle, byref(self._error)
        try:
            code = lib.pwx_bind(handle, sizes, None, error)
            begin = time.perf_counter()
            code = code or lib.pwx_run(handle, ins, outs, error)
            took = time.perf_counter() - begin
            if code:
                self._check(code)
        finally:
            lib.pwx_cancel(handle, 0)
        if took >= BRIEF:
            self._learn(took)
        return took < BRIEF

    def _read_shapes(self) -> None:
        count = self._outputs[-1].end if self._outputs else 0
        out = tuple(self._lib.pwx_output_dims(self._handle)[:count])
        whole = list(out)  # with the rows that there is room for
        for at, k in self._growing:
            if self._told[k] > whole[at]:
                whole[at] = self._told[k]
        shapes: list[tuple[int, ...] | None] = [out[begin:end] for begin, end, _ in self._outputs]
        if min(out, default=0) < 0:
            shapes = [None if shape and min(shape) < 0 else shape for shape in shapes]
        self._shapes, self._output_bytes = shapes, _bytes_of(whole, self._outputs)

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] | list[np.ndarray | None], more: Allocate | None = None
    ) -> None:
        """Runs the bound Program from contiguous inputs into contiguous, writeable outputs of the bound shapes.

        Args:
            outputs: a list with None for each output that has no shape yet; filled in.
            more: makes the array for output number ``i`` of a shape.
        """
        self._learn(self._whole(self._run, lambda: self._arguments(inputs, outputs), lambda: self._grown(outputs, more)))

    def _run(self, ins: Any, outs: Any) -> int:
        return int(self._lib.pwx_run(self._handle, ins, outs, byref(self._error)))

    def _whole(self, call: Callable[[Any, Any], int], arguments: Callable[[], tuple[Any, Any]], grown: Callable[[], None] | None) -> float:
        """Repeats a call for as long as it stops, as for outputs whose shapes have become known: ``grown`` makes them.

        Returns:
            The seconds of the calls, and of what the host did for them.
        """
        took = 0.0
        try:
            ins, outs = arguments()
            while True:
                begin = time.perf_counter()
                code = self._interruptible(call, ins, outs)
                if code == WAIT:
                    self._answer()
                took += time.perf_counter() - begin
                if code not in (MORE, WAIT, PAUSE) or (code == MORE and grown is None):
                    break
                if code == MORE and grown is not None:
                    grown()
                    ins, outs = arguments()
            self._check(code)
        finally:
            self._lib.pwx_cancel(self._handle, 0)
        return took

    def _grown(self, outputs: Sequence[np.ndarray] | list[np.ndarray | None], more: Allocate | None) -> None:
        """Makes the outputs whose shapes have become known."""
        before = self._shapes
        self._read_shapes()
        for i, (shape, known) in enumerate(zip(self._shapes, before, strict=True)):
            if shape is not None and shape != known:
                if more is None:
                    raise ValueError(f"output {i} has a shape that is data: give `more`, which makes its array")
                outputs[i] = more(i, shape)  # type: ignore[index]

    def _answer(self) -> None:
        """Does what the run waits for."""
        words = self._lib.pwx_asked(self._handle)

        def read(address: int, nbytes: int) -> np.ndarray:
            array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)) if nbytes else np.empty(0, np.uint8)
            array.flags.writeable = False
            return array

        asked = parse(lambda first, last: words[first:last], read)
        for k, array in enumerate(self.host.answer(asked)):
            if array is not None:
                at = self._lib.pwx_answer(self._handle, k, (c_int64 * array.ndim)(*array.shape), byref(self._error))
                if not at:
                    self._check(self._error.code)
                ctypes.memmove(at, array.ctypes.data, array.nbytes)

    def _interruptible(self, call: Callable[[Any, Any], int], ins: Any, outs: Any) -> int:
        """Calls what may take long; Ctrl-C ends it. Python hears of signals in the main thread only, not while that is inside the core.

        A thread of its own costs each run 0.1 ms and warm caches (5 % of MobileNetV2), so runs that proved brief go without.
        """
        if self.brief or threading.current_thread() is not threading.main_thread():
            return call(ins, outs)
        return interruptible(lambda: call(ins, outs), self.cancel)

    def _learn(self, seconds: float) -> None:
        """What a whole run took: whether the next of so many operations may go without a thread of its own."""
        self._brief = max(self._brief, self.operations) if seconds < BRIEF else min(self._brief, self.operations - 1)

    def evaluate(
        self, dims: Sequence[int], inputs: Sequence[np.ndarray | None], count: int, told: Sequence[int] | None = None
    ) -> np.ndarray:
        """Proves these sizes like ``bind`` and returns all ``count`` registers, int64. Takes no memory and leaves nothing bound."""
        registers = np.empty(count, np.int64)
        self._dims[:] = [*dims, *(told or [0] * len(self._told))]
        into = registers.ctypes.data_as(POINTER(c_int64))
        addresses = pointers(inputs) if inputs else None
        self._check(self._lib.pwx_evaluate(self._handle, self._dims, addresses, into, count, byref(self._error)))
        return registers

    def run_steps(
        self,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray] | list[np.ndarray | None],
        first: int,
        last: int,
        more: Allocate | None = None,
    ) -> float:
        """Runs the steps from ``first`` up to ``last`` of the bound Program; ``outputs`` and ``more`` as for ``run``.

        Returns:
            The seconds of the steps alone.
        """

        def call(ins: Any, outs: Any) -> int:
            return int(self._lib.pwx_run_steps(self._handle, ins, outs, first, last, byref(self._error)))

        return self._whole(call, lambda: self._arguments(inputs, outputs), lambda: self._grown(outputs, more))

    def evaluate_stage(self, stage: int, values: Sequence[int], slot_bytes: Sequence[int], count: int) -> np.ndarray:
        """All ``count`` registers, when those of a later stage read ``values``; ``slot_bytes``: of what control steps gave so far."""
        registers = np.empty(count, np.int64)
        into = registers.ctypes.data_as(POINTER(c_int64))
        read, slots = (c_int64 * len(values))(*values), (c_int64 * len(slot_bytes))(*slot_bytes)
        self._check(self._lib.pwx_evaluate_stage(self._handle, stage, read, slots, into, count, byref(self._error)))
        return registers

    def run_step(self, step: int, storages: Sequence[np.ndarray | None]) -> None:
        """Runs one step of what was evaluated; ``storages`` hold the bytes of each, those of weights aside."""
        self._check(self._lib.pwx_run_step(self._handle, step, pointers(storages), byref(self._error)))

    def time_steps(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[tuple[str, int]]:
        """Runs step by step; returns each step's ``(origin, nanoseconds)``."""
        names = [origin_of(i, self.view, self.origins) for i in range(self.steps)]
        return [(name, round(self.run_steps(inputs, outputs, i, i + 1) * 1e9)) for i, name in enumerate(names)]

    @property
    def arena_bytes(self) -> int:
        """Memory for intermediate tensors and scratch under the current binding; 0 without one."""
        return int(self._lib.pwx_arena_bytes(self._handle))

    @property
    def operations(self) -> int:
        """An estimate of the elementary operations of a run under the current binding; 0 without one."""
        return int(self._lib.pwx_operations(self._handle))

    def limit(self, max_memory: int = UNLIMITED.max_memory, max_operations: int = UNLIMITED.max_operations) -> None:
        """Bounds what later bindings may take, as :class:`Limits` says; there is no binding afterwards."""
        self._lib.pwx_limit(self._handle, min(max_memory, MOST), min(max_operations, MOST))
        self._input_bytes, self._output_bytes = [], []

    def seed(self, seed: int) -> None:
        """Where the random numbers of later runs begin; signed, of 64 bits."""
        self._lib.pwx_seed(self._handle, seed)

    def cancel(self, on: bool = True) -> None:
        """From any thread: the run in progress, or else the next one, ends before its next step, with :class:`CoreError` ``CANCELLED``."""
        self._lib.pwx_cancel(self._handle, int(on))
        if on:
            self.host.cancel()

    @property
    def steps(self) -> int:
        return int(self._lib.pwx_step_count(self._handle))

    def close(self) -> None:
        """Frees the session and ends its threads; closing twice is fine."""
        if self._session and self._outer is None:
            self._lib.pwx_destroy(self._session)
        self._session = None
        if self._pool:
            self._lib.pwx_pool_destroy(self._pool)
            self._pool = None

    def __del__(self) -> None:
        if hasattr(self, "_pool"):
            self.close()

    @property
    def _handle(self) -> int:
        if self._session is None:
            raise ValueError("this core is closed")
        return self._session

    def _arguments(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray | None]
    ) -> tuple[ctypes.Array[c_void_p], ctypes.Array[c_void_p]]:
        in_rooms = [room > 0 for room in self._told[::2]]
        if in_rooms != self._in_rooms:
            self._in_rooms = in_rooms
            self._pasts = {state.past for state in compress(self.states, in_rooms)}
            self._presents = {state.output for state in compress(self.states, in_rooms)}
        ins = self._read_from.of(inputs, self._input_bytes, self._pasts)
        outs = self._written_to.of(outputs, self._output_bytes, self._presents)
        return (c_void_p * (len(ins) + len(self.states)))(*ins), (c_void_p * len(outs))(*outs)

    def _check(self, code: int) -> None:
        if code:
            error = self._error
            text = error.text.decode("ascii", "replace")
            raise core_error(code, error.step, error.message, text, self.view, self.messages, self.origins, self._lib.pwx_build())
