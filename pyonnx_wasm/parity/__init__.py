"""One model on several backends, compared number by number: ``pyonnx-wasm parity``, and a pytest fixture of that name.

It imports ``session`` and what lies below, ``server`` and ``testing.chromium``; nothing imports it but the command line and pytest. A
backend is added in ``backends``: a subclass of ``Backend`` and its name.
"""

from __future__ import annotations

from .backends import Unavailable
from .compare import Difference, Tolerance
from .run import Report, run

__all__ = ["Difference", "Report", "Tolerance", "Unavailable", "run"]
