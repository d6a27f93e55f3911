"""A runtime for ONNX models: compiled in Python, run natively and in the browser."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from .compiler import compile
from .program import Compiled
from .program.file import load, save
from .session import InferenceSession, NodeArg, SessionOptions

try:
    __version__ = version("pyonnx-wasm")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"
__all__ = ["Compiled", "InferenceSession", "NodeArg", "SessionOptions", "compile", "get_available_providers", "load", "save"]


def get_available_providers() -> list[str]:
    """The backends that this installation can run, best first."""
    from .session import available

    return available()
