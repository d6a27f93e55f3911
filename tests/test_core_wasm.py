"""The executor as WebAssembly, in wasmtime: one Program, with and without workers."""

from __future__ import annotations

import ctypes
import gzip
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assembler import Asm, chain, floats
from wasmtime import Config, Engine, Instance, Limits, Linker, MemoryType, Module, SharedMemory, Store
from wasmtime import _ffi as ffi

from pyonnx_wasm.toolchain import LIB

STACK = 1 << 18
FILES = ["core.wasm", "core-relaxed.wasm"]
WIDE = ["core64.wasm", "core64-relaxed.wasm"]


@cache
def compiled(file: Path) -> tuple[Engine, Module]:
    config = Config()
    config.wasm_threads = config.shared_memory = config.wasm_relaxed_simd = config.wasm_memory64 = True
    engine = Engine(config)
    return engine, Module.from_file(engine, str(file))


class Memory(SharedMemory):
    """wasmtime 50 passes a pointer to the pointer here and fails on every import of a shared memory."""

    def _as_extern(self) -> ffi.wasmtime_extern_t:
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, ffi.wasmtime_extern_union(sharedmemory=self.ptr()))


class Machine:
    """A module on a shared memory, and any number of workers on the same one."""

    def __init__(self, file: Path) -> None:
        self.engine, self.module = compiled(file)
        imported = self.module.imports[0].type
        assert isinstance(imported, MemoryType)
        self.memory = Memory(self.engine, MemoryType(Limits(imported.limits.min, imported.limits.max), shared=True))
        self.store, self.instance = self.instantiate()

    def instantiate(self) -> tuple[Store, Instance]:
        store = Store(self.engine)
        linker = Linker(self.engine)
        linker.define(store, "env", "memory", self.memory)
        return store, linker.instantiate(store, self.module)

    def call(self, name: str, *arguments: int) -> Any:
        function: Any = self.instance.exports(self.store)[name]
        return function(self.store, *arguments)

    def worker(self, pool: int, index: int) -> threading.Thread:
        """Starts a thread in the pool, on a stack and thread-local memory of its own, as a page's worker does."""
        store, instance = self.instantiate()
        exports: Any = instance.exports(store)
        stack, tls = self.call("pwx_alloc", STACK), self.call("pwx_alloc", exports["__tls_size"].value(store) + 64)

        def run() -> None:
            exports["__stack_pointer"].set_value(store, stack + STACK)
            exports["__wasm_init_tls"](store, tls)
            exports["pwx_worker"](store, pool, index)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def view(self, at: int, size: int) -> np.ndarray:
        address = ctypes.addressof(self.memory.data_ptr().contents) + at
        return np.frombuffer((ctypes.c_ubyte * size).from_address(address), np.uint8)

    def put(self, array: np.ndarray) -> int:
        at: int = self.call("pwx_alloc", array.nbytes)
        assert at % 64 == 0
        self.view(at, array.nbytes)[:] = array.reshape(-1).view(np.uint8)
        return at

    def text(self, error: int) -> str:
        return bytes(self.view(error + 16, 240)).split(b"\0")[0].decode()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("workers", [True, False])
def test_runs_a_program(file: str, threads: int, workers: bool) -> None:
    m = Machine(LIB / file)
    assert m.call("pwx_version") == 3
    pool = m.call("pwx_pool_create", threads)
    crew = [m.worker(pool, i) for i in range(1, threads)] if workers else []
    words = chain().pack()
    error = m.put(np.zeros(256, np.uint8))
    session = m.call("pwx_create", m.put(words), len(words), 0, 0, 0, pool, error)
    assert session, m.text(error)
    for n in (1, 0, 17, 300_007):
        x, y = m.put(floats(n)), m.put(np.zeros(n + 1, np.float32))
        ins, outs = m.put(np.array([x], np.uint32)), m.put(np.array([y], np.uint32))
        assert m.call("pwx_bind", session, m.put(np.array([n])), 0, error) == 0, m.text(error)
        assert m.view(m.call("pwx_output_dims", session), 8).view(np.int64).tolist() == [n]
        for _ in range(3):
            assert m.call("pwx_run", session, ins, outs, error) == 0, m.text(error)
        np.testing.assert_array_equal(m.view(y, 4 * n + 4).view(np.float32), np.append(floats(n), np.float32(0)))
    for n, code, text in ((1 << 33, 4, "step 0 (copy): a buffer of 34359738368 bytes"), (536_870_000, 5, "no memory for 4294")):
        assert m.call("pwx_bind", session, m.put(np.array([n])), 0, error) == code
        assert m.text(error).startswith(text)
    m.call("pwx_destroy", session)
    m.call("pwx_pool_destroy", pool)
    for thread in crew:
        thread.join(20)
        assert not thread.is_alive()


def test_an_unknown_kernel_is_named() -> None:
    m = Machine(LIB / FILES[0])
    a = Asm()
    a.kernels.append("nonsense")
    words, error = a.pack(), m.put(np.zeros(256, np.uint8))
    assert not m.call("pwx_create", m.put(words), len(words), 0, 0, 0, 0, error)
    assert "nonsense" in m.text(error)


@pytest.mark.parametrize("file", FILES + WIDE)
def test_what_a_page_downloads(file: str) -> None:
    assert [(i.module, i.name) for i in compiled(LIB / file)[1].imports] == [("env", "memory")]
    data = (LIB / file).read_bytes()
    size = len(gzip.compress(data, 9))
    print(f"{file}: {len(data):,} bytes, {size:,} compressed")
    assert size <= {"core.wasm": 231_000, "core-relaxed.wasm": 260_500, "core64.wasm": 229_000, "core64-relaxed.wasm": 258_500}[file]
