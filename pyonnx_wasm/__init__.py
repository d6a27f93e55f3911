"""A runtime for ONNX models: compiled in Python, run natively and in the browser."""

from __future__ import annotations

from .compiler import Compiled, compile
from .ponnx import load, save
from .session import InferenceSession, NodeArg, SessionOptions

__version__ = "0.1.0"
__all__ = ["Compiled", "InferenceSession", "NodeArg", "SessionOptions", "compile", "get_available_providers", "load", "save"]


def get_available_providers() -> list[str]:
    """The backends that this installation can run, best first."""
    from .session import PROVIDERS

    return list(PROVIDERS)
