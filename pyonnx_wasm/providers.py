"""The backends that there are, and which of them a session is to run on."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from .elsewhere import SESSIONS

WASM = sys.platform == "emscripten"  # Pyodide: the core is WebAssembly beside it
PROVIDERS = ("wasm", "webgpu") if WASM else ("cpu", "gpu", "wasmtime")
ALIASES = {"CPUExecutionProvider": PROVIDERS[0], "WebGpuExecutionProvider": PROVIDERS[1], "WasmExecutionProvider": PROVIDERS[0]}
Given = Sequence[str | tuple[str, Any]] | None
_EXTRAS = {"gpu": "wgpu", "wasmtime": "wasmtime"}  # backends that an extra of the same name brings, and the module that shows it


def available() -> list[str]:
    """The backends that this process can run, best first."""
    if not WASM:
        return [p for p in PROVIDERS if p not in _EXTRAS or find_spec(_EXTRAS[p])]
    from .runtimes import pyodide_gpu

    return [p for p in PROVIDERS if p != "webgpu" or pyodide_gpu.available()]


def choose(providers: Given) -> str:
    """The first that is available.

    Raises:
        ValueError: none is.
    """
    if not providers:
        return PROVIDERS[0]
    names = [p if isinstance(p, str) else p[0] for p in providers]
    have = available()
    for name in names:
        if ALIASES.get(name, name) in (*have, *SESSIONS):
            return ALIASES.get(name, name)
    hint = "; this browser has no WebGPU" if WASM and "webgpu" in names else ""
    if not WASM and (extra := next((n for n in names if n in _EXTRAS), None)):
        hint = f"; for {extra}: pip install 'pyonnx-wasm[{extra}]'"
    raise ValueError(f"no backend of {names} is available here; available: {', '.join(have)}{hint}")


def settings_of(providers: Given, chosen: str) -> dict[str, Any]:
    """The options that were given with the backend that is used."""
    pairs = [p for p in providers or () if not isinstance(p, str)]
    return next((dict(p[1] or {}) for p in pairs if ALIASES.get(p[0], p[0]) == chosen), {})


def names_of(providers: Given) -> list[str]:
    return [p if isinstance(p, str) else p[0] for p in providers or ()]


def paired(providers: Given, options: Sequence[Mapping[str, Any]] | None) -> list[str | tuple[str, Any]] | None:
    """Providers with the options that were given beside them."""
    if options is None:
        return None if providers is None else list(providers)
    names = list(providers or ())
    if len(names) != len(options) or not all(isinstance(n, str) for n in names):
        raise ValueError("provider_options must hold one mapping per provider, and providers their names alone")
    return [(str(n), dict(o)) for n, o in zip(names, options, strict=True)]
