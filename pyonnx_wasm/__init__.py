"""A runtime for ONNX models: compiled in Python, run natively and in the browser.

Nothing is imported before it is asked for: a session over a compiled model needs no compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiler import compile
    from .program import Compiled
    from .program.file import load, save
    from .session import InferenceSession, NodeArg, SessionOptions

    __version__: str

__all__ = ["Compiled", "InferenceSession", "NodeArg", "SessionOptions", "compile", "get_available_providers", "load", "save"]
_HOMES = {
    "Compiled": "program",
    "InferenceSession": "session",
    "NodeArg": "session",
    "SessionOptions": "session",
    "compile": "compiler",
    "load": "program.file",
    "save": "program.file",
}


def get_available_providers() -> list[str]:
    """The backends that this installation can run, best first."""
    from .session import available

    return available()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyonnx-wasm")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        found: Any = _version()
    elif name in _HOMES:
        found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_HOMES, "__version__"]
