"""The WebAssembly core in wasmtime, within this process: a player written from ``PROGRAM.md`` alone.

What a Program does stays within the module's memory, whose most is set by ``max_memory``. Runs take one thread. Extra: ``wasmtime``.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from ..callbacks import WAIT, parse
from ..dtypes import DType, to_numpy
from ..program import WEIGHT, Program, ProgramView, Weight, homes
from ..program.file import weight_bytes
from . import UNLIMITED, Allocate, Limits
from .cpu import Stepwise
from .errors import CANCELLED, MORE, PAUSE, core_error
from .host import Host
from .state import HostRoom, Keeper

LIB = Path(__file__).resolve().parents[1] / "lib"
FILE = "core-relaxed.wasm"
API_VERSION = 3
PAGE = 1 << 16
MOST_BYTES = 65535 * PAGE  # what the module declares as the most of its memory
OPTIONS = ("max_memory",)
SLICE = 1 << 26  # operations until a run looks whether it was given up, and Python for signals; a tenth of a second or less


class CoreLost(RuntimeError):
    """The module trapped; its memory is in an unknown state and no call is possible any more."""


@cache
def _compiled() -> tuple[Any, Any]:
    """The engine and the compiled core, once per process.

    With the environment variable ``PYONNX_WASM_RELAXED=deterministic`` relaxed instructions give what the deterministic profile of the
    standard says: products of bytes then are those of Arm, both signed, wherever this runs.
    """
    try:
        from wasmtime import Config, Engine, Module
    except ImportError:
        raise ImportError("the backend wasmtime needs wasmtime: pip install 'pyonnx-wasm[wasmtime]'") from None
    file = next((f for f in (LIB / FILE, LIB / "player" / FILE) if f.exists()), None)
    if file is None:
        raise ImportError(f"{LIB / FILE} is missing: run `make build` in a checkout, or install a wheel")
    config = Config()
    config.wasm_threads = config.shared_memory = config.wasm_relaxed_simd = True
    config.wasm_relaxed_simd_deterministic = os.environ.get("PYONNX_WASM_RELAXED") == "deterministic"
    config.signals_based_traps = False  # a handler of SIGSEGV that another library takes away would end the process
    engine = Engine(config)
    atexit.register(_compiled.cache_clear)  # while wasmtime's own modules are still there
    return engine, Module.from_file(engine, str(file))


class Module:
    """One instance of the core. Addresses are unsigned here, and signed 32-bit integers to the module.

    Args:
        max_memory: bytes that it may take, code and stack (4 MB) included; at most 4 GB.
    """

    def __init__(self, max_memory: int | None = None) -> None:
        import wasmtime
        from wasmtime import _ffi as ffi

        class Memory(wasmtime.SharedMemory):
            """wasmtime 50 passes a pointer to the pointer here and fails on every import of a shared memory."""

            def _as_extern(self) -> Any:
                return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, ffi.wasmtime_extern_union(sharedmemory=self.ptr()))

        engine, module = _compiled()
        least = module.imports[0].type.limits.min
        most = (MOST_BYTES if max_memory is None else min(max_memory, MOST_BYTES)) // PAGE
        if most < least:
            raise ValueError(f"max_memory must be at least {least * PAGE} bytes, not {max_memory}")
        self.most = most * PAGE
        self.memory = Memory(engine, wasmtime.MemoryType(wasmtime.Limits(least, most), shared=True))
        self.store = wasmtime.Store(engine)
        linker = wasmtime.Linker(engine)
        linker.define(self.store, "env", "memory", self.memory)
        self.exports: Any = linker.instantiate(self.store, module).exports(self.store)
        self.traps = (wasmtime.Trap, wasmtime.WasmtimeError)
        self.lost: CoreLost | None = None
        self.built: int = self.call("pwx_build") if self.exports.get("pwx_build") is not None else -1
        if self.call("pwx_version") != API_VERSION:
            raise ImportError(f"{FILE} has API version {self.call('pwx_version')}, not {API_VERSION}: run `make build`")

    def call(self, name: str, *arguments: int) -> Any:
        """Calls an export; an address that it returns is a signed integer."""
        if self.lost:
            raise self.lost
        try:
            return self.exports[name](self.store, *arguments)
        except self.traps as error:
            text = " ".join(str(error).split())
            self.lost = CoreLost(f"the core stopped by an internal error: {text[:300]}; create the session again")
            raise self.lost from None

    def alloc(self, nbytes: int, what: str) -> int:
        """Memory of at least one byte, 64-byte aligned.

        Raises:
            MemoryError: naming ``what`` it was for.
        """
        at: int = 0 if nbytes > self.most else self.call("pwx_alloc", _signed(max(nbytes, 1))) & 0xFFFFFFFF
        if not at:
            raise MemoryError(f"out of memory: {what} needs {nbytes} bytes; the core has {self.memory.data_len()} of at most {self.most}")
        return at

    def free(self, at: int) -> None:
        if at and not self.lost:
            self.call("pwx_free", _signed(at))

    def view(self, at: int, nbytes: int) -> np.ndarray:
        """Bytes of the memory, which never moves."""
        if at + nbytes > self.memory.data_len():
            raise CoreLost("the core gave an address outside its memory; create the session again")
        address = ctypes.addressof(self.memory.data_ptr().contents) + at
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

    def within(self, array: np.ndarray | None) -> int:
        """Where an array lies in the memory; 0: elsewhere."""
        if array is None:
            return 0
        at = int(array.__array_interface__["data"][0]) - ctypes.addressof(self.memory.data_ptr().contents)
        return at if 0 < at < self.memory.data_len() else 0

    def write(self, at: int, data: np.ndarray) -> None:
        self.view(at, data.nbytes)[:] = data.reshape(-1).view(np.uint8)

    def put(self, data: np.ndarray, what: str) -> int:
        """New memory with this content."""
        at = self.alloc(data.nbytes, what)
        self.write(at, data)
        return at


class Space:
    """Memory of the module that is kept from run to run and grows with what it has to hold."""

    def __init__(self, module: Module, what: str) -> None:
        self.module, self.what, self.at, self.capacity = module, what, 0, -1

    def hold(self, nbytes: int) -> int:
        if nbytes > self.capacity:
            self.module.free(self.at)
            self.at, self.capacity = 0, -1
            self.at = self.module.alloc(nbytes, self.what)
            self.capacity = nbytes
        return self.at


class Core:
    """A Program in an instance of the core; its methods are those of the native one (:class:`pyonnx_wasm.runtimes.core.Core`).

    Args:
        weights: address and bytes of each, bytes negative where the Program may not write it.
        limits: what a run may take.
    Raises:
        CoreError: the Program is malformed, or names a kernel that this core lacks.
    """

    def __init__(self, module: Module, program: Program, weights: Sequence[tuple[int, int]], limits: Limits = UNLIMITED) -> None:
        self.module, self.messages, self.origins = module, program.messages, program.origins
        self.host = Host(program.callbacks, limits)
        words = np.ascontiguousarray(program.code, np.int32)
        self.view = ProgramView(words)
        self._error = module.alloc(256, "the error")
        code = module.put(words, "the Program")
        addresses = module.put(np.array([at for at, _ in weights], np.uint32), "the weights' addresses")
        sizes = module.put(np.array([nbytes for _, nbytes in weights], np.int64), "the weights' sizes")
        arguments = map(_signed, (code, words.size, addresses, sizes, len(weights)))
        self._session: int = module.call("pwx_create", *arguments, 0, _signed(self._error))  # no pool: one thread
        for at in (code, addresses, sizes):
            module.free(at)
        if not self._session:
            self._check(int(module.view(self._error, 4).view(np.int32)[0]))
        module.call("pwx_limit", self._session, *limits)
        module.call("pwx_slice", self._session, SLICE)
        self._given_up = False
        self._dims = module.alloc(8 * sum(row.rank for row in self.view.inputs), "the sizes")
        self.states = self.view.states
        self._told = [0] * 2 * len(self.states)
        self._inputs = [Space(module, f"input {i}") for i in range(len(self.view.inputs) - len(self.states))]
        self._outputs = [Space(module, f"output {i}") for i in range(len(self.view.outputs))]
        self._pointers = [module.alloc(4 * len(rows), "addresses") for rows in (self.view.inputs, self.view.outputs)]
        self._shapes: list[tuple[int, ...] | None] = []

    def bind(
        self, dims: Sequence[int], inputs: Sequence[np.ndarray | None], told: Sequence[int] | None = None
    ) -> list[tuple[int, ...] | None]:
        """Fixes the sizes of all inputs; returns the shapes of the outputs, None for those that are known only in a run."""
        self._told = [0] * len(self._told) if told is None else list(told)
        self._check(self._call("pwx_bind", *self._sizes(dims, inputs), self._error))
        self._read_shapes()
        return self._shapes

    def _read_shapes(self) -> None:
        at = self.module.call("pwx_output_dims", self._session) & 0xFFFFFFFF
        self._shapes = []
        for row in self.view.outputs:
            shape = tuple(self.module.view(at, 8 * row.rank).view(np.int64).tolist())
            self._shapes.append(None if min(shape, default=0) < 0 else shape)
            at += 8 * row.rank

    def evaluate(self, dims: Sequence[int], inputs: Sequence[np.ndarray], count: int) -> np.ndarray:
        """All registers for these sizes; leaves nothing bound."""
        self._told = [0] * len(self._told)
        registers = self.module.alloc(8 * count, "the registers")
        self._check(self._call("pwx_evaluate", *self._sizes(dims, inputs), registers, count, self._error))
        found = self.module.view(registers, 8 * count).view(np.int64).copy()
        self.module.free(registers)
        return found

    def run(self, inputs: Sequence[np.ndarray], outputs: Any, more: Allocate | None = None) -> None:
        """Runs the bound Program from contiguous inputs into contiguous, writeable outputs; ``more`` makes those that had no shape."""
        self._whole("pwx_run", (), inputs, outputs, more)

    def run_steps(self, inputs: Sequence[np.ndarray], outputs: Any, first: int, last: int, more: Allocate | None = None) -> float:
        """Runs the steps from ``first`` up to ``last`` of the bound Program; the seconds of these alone."""
        return self._whole("pwx_run_steps", (first, last), inputs, outputs, more)

    def _whole(self, name: str, steps: tuple[int, ...], inputs: Sequence[np.ndarray], outputs: Any, more: Allocate | None) -> float:
        """Repeats a call for as long as it stops for outputs whose shapes have become known.

        Returns:
            The seconds of the calls, the host's answers included.
        """
        try:
            return self._repeated(name, steps, inputs, outputs, more)
        finally:
            self._given_up = False

    def _repeated(self, name: str, steps: tuple[int, ...], inputs: Sequence[np.ndarray], outputs: Any, more: Allocate | None) -> float:
        ins, code, took = self._place(inputs), PAUSE, 0.0
        while code in (MORE, PAUSE):
            if self._given_up:
                raise core_error(CANCELLED, -1, -1, "the run was cancelled", self.view, self.messages, self.origins)
            spaces = [self.module.within(outputs[i]) or space.hold(self._bytes(i)) for i, space in enumerate(self._outputs)]
            self.module.write(self._pointers[1], np.array(spaces, np.uint32))
            begin = time.perf_counter()
            code = self._call(name, self._session, ins, self._pointers[1], *steps, self._error)
            if code == MORE:
                self._read_shapes()
            elif code == WAIT:
                self._answer()
                code = PAUSE
            took += time.perf_counter() - begin
        self._check(code)
        for i, (at, shape) in enumerate(zip(spaces, self._shapes, strict=True)):
            if self.module.within(outputs[i]):
                continue
            if shape is not None and (outputs[i] is None or outputs[i].nbytes != self._bytes(i)):
                if more is None:
                    raise ValueError(f"output {i} has a shape that is data: give `more`, which makes its array")
                outputs[i] = more(i, shape)
            if shape is not None:
                outputs[i].reshape(-1).view(np.uint8)[:] = self.module.view(at, self._bytes(i))
        return took

    def _answer(self) -> None:
        """Does what the run waits for."""
        module = self.module
        at = module.call("pwx_asked", self._session) & 0xFFFFFFFF

        def read(address: int, nbytes: int) -> np.ndarray:
            array = module.view(address, nbytes)
            array.flags.writeable = False
            return array

        asked = parse(lambda first, last: module.view(at + 8 * first, 8 * (last - first)).view(np.int64).tolist(), read)
        for k, array in enumerate(self.host.answer(asked)):
            if array is not None:
                dims = module.put(np.array(array.shape or [0], np.int64), "the sizes")
                to = self._call("pwx_answer", self._session, k, dims, self._error) & 0xFFFFFFFF
                module.free(dims)
                if not to:
                    self._check(int(module.view(self._error, 4).view(np.int32)[0]))
                module.write(to, array)

    def _bytes(self, i: int) -> int:
        shape = self._shapes[i]
        return 0 if shape is None else DType(self.view.outputs[i].dtype).nbytes(math.prod(shape))

    def seed(self, seed: int) -> None:
        """Where the random numbers of later runs begin."""
        self.module.call("pwx_seed", self._session, seed)

    def cancel(self, on: bool = True) -> None:
        """From any thread: the run in progress, or else the next one, ends with :class:`CoreError` ``CANCELLED``."""
        self._given_up = on
        if on:
            self.host.cancel()

    def close(self) -> None:
        """Frees the session and what it had for its inputs and outputs; the weights stay."""
        self.module.call("pwx_destroy", self._session)
        for at in (self._error, self._dims, *self._pointers, *(space.at for space in (*self._inputs, *self._outputs))):
            self.module.free(at)

    def _sizes(self, dims: Sequence[int], inputs: Sequence[np.ndarray | None]) -> tuple[int, int, int]:
        self.module.write(self._dims, np.array([*dims, *self._told], np.int64))
        return self._session, self._dims, self._place(inputs) if self.view.reads_contents else 0

    def room(self, shape: tuple[int, ...], output: int, axis: int) -> HostRoom:
        """Zeros in the module, as long as the room lives."""
        dtype = DType(self.view.outputs[output].dtype)
        nbytes = dtype.nbytes(math.prod(shape))
        at = self.module.alloc(nbytes, f"the state of output {output}")
        memory = self.module.view(at, nbytes)
        memory[:] = 0
        room = HostRoom(memory.view(to_numpy(dtype)).reshape(shape), dtype, axis)
        finalize(room, self.module.free, at).atexit = False
        return room

    def _place(self, inputs: Sequence[np.ndarray | None]) -> int:
        """Copies the inputs into the module where they are not there; the address of their addresses."""
        spaces = []
        for space, array in zip(self._inputs, inputs, strict=True):
            at = self.module.within(array)
            if array is not None and not at:
                at = space.hold(array.nbytes)
                self.module.write(at, array)
            spaces.append(at)
        self.module.write(self._pointers[0], np.array([*spaces, *[0] * len(self.states)], np.uint32))
        return self._pointers[0]

    def _call(self, name: str, *arguments: int) -> int:
        return int(self.module.call(name, *map(_signed, arguments)))

    def _check(self, code: int) -> None:
        if code:
            _, step, message, _ = self.module.view(self._error, 16).view(np.int32).tolist()
            text = bytes(self.module.view(self._error + 16, 240)).split(b"\0")[0].decode("ascii", "replace")
            raise core_error(code, step, message, text, self.view, self.messages, self.origins, self.module.built)


class Executor(Stepwise):
    """A model ready to run in wasmtime. Not re-entrant: its owner serialises calls.

    Args:
        options: ``max_memory``, the bytes that the module may take for weights and runs together; the default is 4 GB.
    Raises:
        CoreError: the Program is malformed.
        ImportError: wasmtime or the core is missing; says how to get it.
        MemoryError: the weights do not fit.
        ValueError: there is no such option, or it is too small.
    """

    backend = "wasmtime"

    def __init__(
        self,
        main: Program,
        init: Program | None,
        weights: Sequence[Weight],
        options: Mapping[str, Any] | None = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        given = dict(options or {})
        if unknown := set(given) - set(OPTIONS):
            raise ValueError(f"the backend wasmtime has no option {sorted(unknown)[0]!r}; it has {', '.join(OPTIONS)}")
        module = Module(**given)
        home = homes(weights)
        memory, fixed = _load(module, weights, home)
        if init is not None:
            writable = [(memory[h], -w.nbytes if h in fixed else w.nbytes) for h, w in zip(home, weights, strict=True)]
            first = Core(module, init, writable, limits)
            first.bind([], [])
            first.run([], [])
            first.close()
        self.core: Core = Core(module, main, [(memory[h], -w.nbytes) for h, w in zip(home, weights, strict=True)], limits)
        self.keeper = Keeper(self.core.states, self.core.room)
        kept = {home[row.slot] for row in self.core.view.storages if row.kind == WEIGHT}
        for h in set(home) - kept:  # what init alone needed
            module.free(memory[h])


def _load(module: Module, weights: Sequence[Weight], home: Sequence[int]) -> tuple[list[int], set[int]]:
    """Addresses of the weights that have memory of their own (others: 0), and those of them that nothing may write."""
    overwritten = {home[k] for k, w in enumerate(weights) if w.over is not None}
    memory, fixed = [0] * len(weights), set()
    for k in sorted(set(home)):
        memory[k] = module.alloc(weights[k].nbytes, f'weight "{weights[k].name}"')
        data = weight_bytes(weights[k])
        if data is None:
            continue
        if data.size != weights[k].nbytes:
            raise ValueError(f"weight {weights[k].name!r} has {data.size} bytes, not {weights[k].nbytes}")
        module.write(memory[k], data)
        if k not in overwritten:
            fixed.add(k)
    return memory, fixed


def _signed(number: int) -> int:
    """An unsigned 32-bit address as the module takes it."""
    return number - (1 << 32) if 1 << 31 <= number < 1 << 32 else number
