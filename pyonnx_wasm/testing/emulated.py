"""The native core for Arm on this machine: built for it, in a process that QEMU emulates, in the place of the WebAssembly core.

``python -m pyonnx_wasm.testing.emulated`` makes sure that QEMU is there.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest import mock
from weakref import finalize

import numpy as np

from .. import toolchain
from ..runtimes import wasmtime
from ..runtimes.wasmtime import CoreLost, Module
from . import system

PACKAGES = ("qemu-user", "libc6-arm64-cross")
TRIPLE = "aarch64-linux"
LIBRARIES = Path("/usr/aarch64-linux-gnu")  # of C, for programs of that machine
CALLS = (
    "pwx_version", "pwx_build", "pwx_alloc", "pwx_free", "pwx_create", "pwx_bind", "pwx_output_dims", "pwx_run", "pwx_limit", "pwx_slice",
    "pwx_seed", "pwx_destroy",
)  # fmt: skip
BASE = 0x20000000  # where the process has the memory
MOST = 0x60000000  # bytes of it
ARGUMENTS = 7


def qemu() -> str | None:
    """The emulator's path; None where it is missing, or what programs for Arm need beside it."""
    return (shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")) if LIBRARIES.exists() else None


@cache
def serve() -> Path:
    """The core for Arm as a program, built where something changed.

    Raises:
        ToolchainError: it does not compile.
    """
    [target] = toolchain.native_targets(TRIPLE, toolchain.BUILD / "emulated")
    with toolchain.alone():
        builder = toolchain.Builder(toolchain.declared())
        builder.sources.append(toolchain.SOURCES / "emulated" / "serve.cpp")
        program = toolchain.Target("serve", target.triple, target.cpu, target.out, target.flags, ("-lpthread", "-lm"), target.core_flags)
        builder.build([program])
    return program.path


class Emulated(Module):
    """One model's core in a process of its own, with the surface of the module in wasmtime."""

    def __init__(self, cpu: str, options: tuple[str, ...] = ()) -> None:
        emulator = qemu()
        if emulator is None:
            raise ImportError(f"an emulator of Arm is missing: run `make build/.qemu`, or install {' and '.join(PACKAGES)}")
        self._file = tempfile.NamedTemporaryFile(prefix="pyonnx-wasm-emulated-")  # noqa: SIM115
        self._file.truncate(MOST)
        self._map = mmap.mmap(self._file.fileno(), MOST)
        self._process = subprocess.Popen(
            [emulator, "-L", str(LIBRARIES), "-cpu", cpu, *options, str(serve()), self._file.name, str(MOST)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        finalize(self, _end, self._process, self._file)
        self.most, self.lost = MOST, None
        self.memory: Any = SimpleNamespace(data_len=lambda: MOST)
        self.built = self.call("pwx_build")

    def call(self, name: str, *arguments: int) -> int:
        if self.lost:
            raise self.lost
        if name not in CALLS:
            raise NotImplementedError(f"an emulated core has no {name}")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answer = b""
        try:
            self._process.stdin.write(struct.pack("<8q", CALLS.index(name), *arguments, *[0] * (ARGUMENTS - len(arguments))))
            answer = self._process.stdout.read(8)
        except BrokenPipeError:
            pass
        if len(answer) < 8:
            self.lost = CoreLost(f"the emulated core ended with {self._process.wait()} in {name}")
            raise self.lost
        found: int = struct.unpack("<q", answer)[0]
        return found

    def view(self, at: int, nbytes: int) -> np.ndarray:
        if not BASE <= at <= at + nbytes <= BASE + MOST:
            raise CoreLost("the core gave an address outside its memory")
        return np.frombuffer(self._map, np.uint8, nbytes, at - BASE)

    def within(self, array: np.ndarray | None) -> int:
        return 0


def _end(process: subprocess.Popen[bytes], file: IO[bytes]) -> None:
    process.kill()
    process.communicate()
    file.close()


@contextmanager
def arm(cpu: str, *options: str) -> Iterator[None]:
    """Within it, the backend ``wasmtime`` runs on the core for Arm.

    Args:
        cpu: as QEMU calls it: ``max`` has all that QEMU knows, ``cortex-a53`` nothing beyond the first version.
        options: of QEMU.
    """
    serve()
    with mock.patch.object(wasmtime, "Module", partial(Emulated, cpu, options)):
        yield


if __name__ == "__main__":
    found = qemu() or (system.apt(PACKAGES, "an emulator of Arm") and qemu())
    print(f"Arm: {found}" if found else "No emulator of Arm: its core is not tested", flush=True)
