"""The native core's libraries: which there are, which one fits this processor, and the types of their functions."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from ctypes import POINTER, c_char, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path

LIB = Path(__file__).resolve().parents[1] / "lib"
API_VERSION = 3
ISAS = {"x86_64": ("sse4", "avx2", "avx512"), "aarch64": ("neon",)}  # by what pwx_isa returns, from 1
SUFFIX = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")


class Error(ctypes.Structure):
    """What a call found wrong: its code, and where."""

    _fields_ = [("code", c_int32), ("step", c_int32), ("message", c_int32), ("detail", c_int32), ("text", c_char * 240)]


def machine() -> str:
    """The processor's family, by the name that its instruction sets are listed under."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def available() -> list[str]:
    """The instruction sets that a library was built for, worst first."""
    return [isa for isa in ISAS.get(machine(), ()) if (LIB / f"core-{isa}.{SUFFIX}").exists()]


@cache
def load(isa: str | None = None) -> ctypes.CDLL:
    """Loads the core for an instruction set (``sse4``, ``avx2``, ``avx512``, ``neon``).

    Without one the environment variable ``PYONNX_WASM_ISA`` decides, else the best that was built and that this processor runs.

    Raises:
        ImportError: there is no such library, or none at all; says how to get one.
    """
    built = available()
    if not built:
        raise ImportError(
            f"pyonnx_wasm has no native core for {machine()} here ({LIB}): run `make build` in a checkout, or install a wheel"
        )
    isa = isa or os.environ.get("PYONNX_WASM_ISA") or None
    if isa is None:
        level = _open(built[0]).pwx_isa()
        runs = [i for i in ISAS[machine()][:level] if i in built]
        if not runs:
            raise ImportError(f"this processor runs none of the native cores ({', '.join(built)})")
        isa = runs[-1]
    if isa not in built:
        raise ImportError(f"there is no native core for {isa}, only for {', '.join(built)}")
    return _open(isa)


@cache
def _open(isa: str) -> ctypes.CDLL:
    return open_library(LIB / f"core-{isa}.{SUFFIX}")


def open_library(path: Path) -> ctypes.CDLL:
    """Opens one build of the core and types its functions."""
    lib = ctypes.CDLL(str(path))
    error, pointers, i64s = POINTER(Error), POINTER(c_void_p), POINTER(c_int64)
    signatures = {
        "pwx_version": (c_int32, []),
        "pwx_build": (c_int32, []),
        "pwx_isa": (c_int32, []),
        "pwx_alloc": (c_void_p, [c_size_t]),
        "pwx_free": (None, [c_void_p]),
        "pwx_pool_create": (c_void_p, [c_int32]),
        "pwx_pool_destroy": (None, [c_void_p]),
        "pwx_create": (c_void_p, [c_void_p, c_int64, pointers, i64s, c_int64, c_void_p, error]),
        "pwx_bind": (c_int32, [c_void_p, i64s, pointers, error]),
        "pwx_evaluate": (c_int32, [c_void_p, i64s, pointers, i64s, c_int64, error]),
        "pwx_evaluate_stage": (c_int32, [c_void_p, c_int32, i64s, i64s, i64s, c_int64, error]),
        "pwx_part": (c_void_p, [c_void_p, c_int32]),
        "pwx_run_step": (c_int32, [c_void_p, c_int32, pointers, error]),
        "pwx_output_dims": (i64s, [c_void_p]),
        "pwx_arena_bytes": (c_int64, [c_void_p]),
        "pwx_operations": (c_int64, [c_void_p]),
        "pwx_seed": (None, [c_void_p, c_int64]),
        "pwx_limit": (None, [c_void_p, c_int64, c_int64]),
        "pwx_cancel": (None, [c_void_p, c_int32]),
        "pwx_slice": (None, [c_void_p, c_int64]),
        "pwx_run": (c_int32, [c_void_p, pointers, pointers, error]),
        "pwx_run_steps": (c_int32, [c_void_p, pointers, pointers, c_int32, c_int32, error]),
        "pwx_asked": (i64s, [c_void_p]),
        "pwx_answer": (c_void_p, [c_void_p, c_int32, i64s, error]),
        "pwx_step_count": (c_int32, [c_void_p]),
        "pwx_destroy": (None, [c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name, None)
        if function is None:
            raise ImportError(f"{path} has no {name}, it is of another build: run `make build`")
        function.restype, function.argtypes = result, arguments
    if lib.pwx_version() != API_VERSION:
        raise ImportError(f"{path} has API version {lib.pwx_version()}, not {API_VERSION}: run `make build`")
    return lib
