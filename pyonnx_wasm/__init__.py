"""A runtime for ONNX models: compiled in Python, run natively and in the browser.

Nothing is imported before it is asked for: a session over a compiled model needs no compiler.
A public name is added to ``__all__``, ``_HOMES`` and the imports for types. What each folder is, its own docstring says; their order
is in ``tests/test_structure.py``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import elsewhere

if TYPE_CHECKING:
    from .callbacks import CallbackError
    from .compiler import compile
    from .custom import apply, callback
    from .environment import (
        disable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_build_info,
        get_device,
        get_version_string,
        has_collective_ops,
        set_default_logger_severity,
        set_default_logger_verbosity,
        set_seed,
    )
    from .options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, ModelMetadata, RunOptions, SessionOptions
    from .program import Compiled
    from .program.file import load, save
    from .registry import op
    from .session import InferenceSession, NodeArg
    from .values import IOBinding, OrtSparseFormat, OrtValue, SparseTensor

    __version__: str

__all__ = [
    "CallbackError",
    "Compiled",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtSparseFormat",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "SparseTensor",
    "apply",
    "callback",
    "compile",
    "disable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "load",
    "op",
    "save",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]
_HOMES = {
    "CallbackError": "callbacks",
    "Compiled": "program",
    "ExecutionMode": "options",
    "ExecutionOrder": "options",
    "GraphOptimizationLevel": "options",
    "IOBinding": "values",
    "InferenceSession": "session",
    "ModelMetadata": "options",
    "NodeArg": "session",
    "OrtSparseFormat": "values",
    "OrtValue": "values",
    "RunOptions": "options",
    "SessionOptions": "options",
    "SparseTensor": "values",
    "apply": "custom",
    "callback": "custom",
    "compile": "compiler",
    "disable_telemetry_events": "environment",
    "get_all_providers": "environment",
    "get_available_providers": "environment",
    "get_build_info": "environment",
    "get_device": "environment",
    "get_version_string": "environment",
    "has_collective_ops": "environment",
    "load": "program.file",
    "op": "registry",
    "save": "program.file",
    "set_default_logger_severity": "environment",
    "set_default_logger_verbosity": "environment",
    "set_seed": "environment",
}


def _browser() -> type[Any]:
    """Sessions in the browser of the user who displays the notebook."""
    from .jupyter.session import BrowserSession

    return BrowserSession


if sys.platform != "emscripten":
    elsewhere.SESSIONS["browser"] = _browser


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
