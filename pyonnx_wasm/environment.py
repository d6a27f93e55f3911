"""What onnxruntime says of, and lets one set for, the whole process."""

from __future__ import annotations

from .elsewhere import SESSIONS
from .providers import PROVIDERS, available
from .runtimes.chance import set_seed as set_seed


def get_available_providers() -> list[str]:
    """The backends that this installation can run, best first."""
    return available()


def get_all_providers() -> list[str]:
    """The backends that there are for this kind of Python, installed or not."""
    return [*PROVIDERS, *SESSIONS]


def get_device() -> str:
    """Where values live: in memory, whatever backend runs."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Accepted for programs that set it: nothing is logged; faults are exceptions and warnings."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """As :func:`set_default_logger_severity`."""


def disable_telemetry_events() -> None:
    """Accepted for programs that ask for it: nothing is ever sent."""


def get_version_string() -> str:
    """The version of this package."""
    from . import __version__

    return __version__


def get_build_info() -> str:
    """What this package and its core are, in words."""
    return f"pyonnx-wasm {get_version_string()}, backends: {', '.join(available())}"


def has_collective_ops() -> bool:
    """Whether operators between machines are built in: they are not."""
    return False
