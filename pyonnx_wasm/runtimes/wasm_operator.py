"""Operators in WebAssembly beside the core, in wasmtime (``PROGRAM.md`` section 10). Extra: ``wasmtime``."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..callbacks import Asked, Callback, CallbackError, Wasm, arguments, missing, unfit
from ..dtypes import DType, from_numpy, to_numpy
from . import UNLIMITED, Limits
from .interrupt import interruptible

PAGE, ALIGN = 1 << 16, 16
MOST_BYTES = (1 << 16) * PAGE
RECORD = 16  # bytes: data, dims, rank, dtype
UNKNOWN = (1 << 32) - 1
CALLER = '(module (import "" "" (func (param i32 i32 i32 i32) (result i32))))'
#: What a call may take where max_operations says nothing, about two seconds, and for each byte that it takes and gives.
MOST_OPERATIONS, OPERATIONS_PER_BYTE = 1 << 31, 1 << 12


def _engine() -> Any:
    """One per operator, as whoever cancels ends what an engine runs."""
    from wasmtime import Config, Engine

    config = Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.signals_based_traps = False  # a handler of SIGSEGV that another library takes away would end the process
    return Engine(config)


@lru_cache(32)
def _compiled(module: bytes) -> Any:
    from wasmtime import Module

    return Module(_engine(), module).serialize()


class WasmOperator:
    """One operator's module with a memory of its own, into which inputs are copied and from which outputs are.

    Raises:
        CallbackError: wasmtime is not installed, the module is none, or does not fit; names the node.
    """

    def __init__(self, callback: Callback, wasm: Wasm, limits: Limits) -> None:
        try:
            import wasmtime
        except ImportError:
            raise CallbackError(missing(callback)) from None
        self.callback, self.wasm, self.limits = callback, wasm, limits
        try:
            self._engine = _engine()
            self._module = wasmtime.Module.deserialize(self._engine, _compiled(wasm.module))
        except wasmtime.WasmtimeError as error:
            raise self._error(f"its WebAssembly module does not compile: {_line(error)}") from None
        if given := self._module.imports:
            raise self._error(f"its WebAssembly module imports {given[0].module}.{given[0].name}; it must import nothing")
        self._cancelled = False
        self._store: Any = None
        self._memory: Any = None
        self._function: Any = None

    def _error(self, text: str) -> CallbackError:
        return CallbackError(f"{self.callback}: {text}")

    def _start(self) -> None:
        """An instance: with the first call, and after one that failed."""
        import wasmtime

        self._store = store = wasmtime.Store(self._engine)
        store.set_limits(memory_size=min(self.limits.max_memory, MOST_BYTES), table_elements=1 << 20, instances=2, memories=1)
        self._allow(MOST_OPERATIONS)
        try:
            exports = wasmtime.Instance(store, self._module, []).exports(store)
        except (wasmtime.WasmtimeError, wasmtime.Trap) as error:
            raise self._failed(error) from None
        memory, function = exports.get("memory"), exports.get(self.wasm.function)
        if not isinstance(memory, wasmtime.Memory) or memory.type(store).is_64:
            self._store = None
            raise self._error("its WebAssembly module exports no memory named memory")
        if not isinstance(function, wasmtime.Func) or not self._callable(function):
            self._store = None
            raise self._error(f"its WebAssembly module exports no function {self.wasm.function}(i32, i32, i32, i32) -> i32")
        self._memory, self._function = memory, function
        self._room, self._size = memory.data_len(store), 0

    def _callable(self, function: Any) -> bool:
        """Whether it has the type; a module that imports it tells, as wasmtime's Python ends the process where a type has vectors."""
        import wasmtime

        try:
            wasmtime.Instance(self._store, wasmtime.Module(self._engine, CALLER), [function])
        except wasmtime.WasmtimeError:
            return False
        return True

    def _failed(self, error: Exception) -> CallbackError:
        fuel = self._store.get_fuel()
        self._store = None  # its memory is in an unknown state
        if self._cancelled:
            return self._error("the run was cancelled")
        if not fuel:
            return self._error(f"takes more than {self._most} operations, the limit (max_operations sets another)")
        return self._error(f"its function {self.wasm.function} in WebAssembly failed: {_line(error)}")

    def _allow(self, usual: int) -> None:
        """What what runs next may take."""
        given = self.limits.max_operations
        self._most = usual if given == UNLIMITED.max_operations else given
        self._store.set_fuel(self._most)
        self._cancelled = False
        self._store.set_epoch_deadline(1)

    def cancel(self) -> None:
        """From any thread: the call in progress ends."""
        self._cancelled = True
        self._engine.increment_epoch()

    def run(self, asked: Asked) -> list[np.ndarray | None]:
        """Calls it; the outputs, None for those that nobody wants."""
        import wasmtime

        given = arguments(self.callback, asked)
        tensors = [*given.inputs, *(_tensor(given.attributes.get(name)) for name in self.wasm.attributes)]
        dtypes = {id(array): dtype for array, dtype in zip(asked.inputs, asked.dtypes, strict=True)}
        if self._store is None:
            self._start()
        told: Sequence[tuple[DType, int] | None] = self.callback.outputs or [None] * len(asked.outputs)
        kinds = [want or known for want, known in zip(asked.outputs, told, strict=True)]
        plan = _Plan(tensors, dtypes, kinds, given.shapes)
        base = self._reserve(plan.nbytes)
        plan.write(self._bytes, base)
        self._allow(MOST_OPERATIONS + OPERATIONS_PER_BYTE * plan.nbytes)
        outputs = base + RECORD * len(tensors)
        try:
            code = self._called(*map(_signed, (base, len(tensors), outputs, len(kinds))))
        except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
            raise self._failed(error) from None
        if code:
            raise self._error(f"its function {self.wasm.function} in WebAssembly returned {code}")
        return [self._output(plan, base, k, want, given.shapes[k]) for k, want in enumerate(asked.outputs)]

    def _called(self, *words: int) -> Any:
        """Ctrl-C ends what may take longer than usual; it waits for what may not."""
        if self._most <= 4 * MOST_OPERATIONS:
            return self._function(self._store, *words)
        return interruptible(lambda: self._function(self._store, *words), self.cancel)

    def _output(self, plan: _Plan, base: int, k: int, want: tuple[DType, int] | None, told: Sequence[int] | None) -> np.ndarray | None:
        if want is None:
            return None
        dtype, rank = want
        if told is not None and -1 not in told:
            shape, at = tuple(told), base + plan.data_of(k)
        else:
            at = int(self._bytes(base + plan.record(k), 4).view("<u4")[0])
            shape = tuple(self._bytes(base + plan.dims_of(k), 4 * rank).view("<u4").tolist())
            if misfit := unfit(told, shape):
                raise self._error(f"output {k} of its function {misfit}")
        count = 1
        for n in shape:
            count *= n
        size = dtype.nbytes(count)
        if UNKNOWN in shape or at + size > self._memory.data_len(self._store):
            raise self._error(f"output {k} of its function, {list(shape)} at {at}, leaves its memory")
        return self._bytes(at, size).copy().view(to_numpy(dtype)).reshape(shape)

    def _reserve(self, nbytes: int) -> int:
        """Room behind what the module has for itself; it may have grown its memory since the last call, over which nothing is laid."""
        have = self._memory.data_len(self._store)
        if nbytes > self._size:
            if self._room + self._size != have:
                self._room, self._size = have, 0
            pages = -(-(nbytes - self._size) // PAGE)
            try:
                self._memory.grow(self._store, pages)
            except Exception:  # wasmtime's, which is an optional dependency
                raise MemoryError(f"{self.callback}: {nbytes} bytes for its inputs and outputs are more than its memory may have") from None
            self._size += pages * PAGE
        return int(self._room)

    def _bytes(self, at: int, nbytes: int) -> np.ndarray:
        if at + nbytes > self._memory.data_len(self._store):
            raise self._error(f"its function gave the address {at}, which leaves its memory")
        address = ctypes.addressof(self._memory.data_ptr(self._store).contents) + at
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)) if nbytes else np.empty(0, np.uint8)


class _Plan:
    """Where what a call takes lies: records of the inputs, the attributes and the outputs, then their dims, then their data."""

    def __init__(
        self,
        tensors: Sequence[np.ndarray | None],
        dtypes: Mapping[int, DType],
        outputs: Sequence[tuple[DType, int] | None],
        shapes: Sequence[Sequence[int] | None],
    ) -> None:
        self.tensors, self.dtypes, self.outputs, self.shapes = tensors, dtypes, outputs, shapes
        ranks = [0 if t is None else t.ndim for t in tensors] + [0 if o is None else o[1] for o in outputs]
        at = RECORD * len(ranks)
        self.dims: list[int] = []
        for rank in ranks:
            self.dims.append(at)
            at += 4 * rank
        self.data: list[int] = []
        for size in [*(0 if t is None else t.nbytes for t in tensors), *map(self._size, range(len(outputs)))]:
            at = -(-at // ALIGN) * ALIGN
            self.data.append(at)
            at += size
        self.nbytes = at

    def _size(self, k: int) -> int:
        kind, shape = self.outputs[k], self.shapes[k]
        if kind is None or shape is None or -1 in shape:
            return 0
        return kind[0].nbytes(int(np.prod(shape, dtype=object)))

    def record(self, k: int) -> int:
        """Of an output."""
        return RECORD * (len(self.tensors) + k)

    def dims_of(self, k: int) -> int:
        return self.dims[len(self.tensors) + k]

    def data_of(self, k: int) -> int:
        return self.data[len(self.tensors) + k]

    def write(self, view: Any, base: int) -> None:
        for k, tensor in enumerate(self.tensors):
            if tensor is None:
                view(base + RECORD * k, RECORD)[:] = 0
                continue
            dtype = self.dtypes.get(id(tensor)) or from_numpy(tensor.dtype)
            self._record(view, base, k, tensor.shape, dtype, True)
            view(base + self.data[k], tensor.nbytes)[:] = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
        for o, (kind, shape) in enumerate(zip(self.outputs, self.shapes, strict=True)):
            k = len(self.tensors) + o
            if kind is None:
                view(base + RECORD * k, RECORD)[:] = 0
                continue
            self._record(view, base, k, shape or (-1,) * kind[1], kind[0], shape is not None and -1 not in shape)

    def _record(self, view: Any, base: int, k: int, shape: Sequence[int], dtype: DType, placed: bool) -> None:
        words = [base + self.data[k] if placed else 0, base + self.dims[k], len(shape), int(dtype)]
        view(base + RECORD * k, RECORD)[:] = np.array(words, "<u4").view(np.uint8)
        view(base + self.dims[k], 4 * len(shape))[:] = np.array([n & UNKNOWN for n in shape], "<u4").view(np.uint8)


def _tensor(value: Any) -> np.ndarray | None:
    """An attribute as an operator in WebAssembly gets it: float64 of rank 0 or 1, text as its bytes."""
    if value is None or isinstance(value, np.ndarray):
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(v, str) for v in value):
        value = "\0".join(value)
    if isinstance(value, str):
        return np.frombuffer(value.encode(), np.uint8)
    return np.array(value, np.float64)


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
