"""One model on several backends, compared number by number: ``pyonnx-wasm parity``, and a pytest fixture of that name."""

from __future__ import annotations

from .backends import Unavailable
from .compare import Difference, Tolerance
from .run import Report, run

__all__ = ["Difference", "Report", "Tolerance", "Unavailable", "run"]
