"""onnxruntime, as something to compare numbers with."""

from __future__ import annotations

from typing import Any


def exact(options: Any) -> Any:
    """An ``onnxruntime.SessionOptions``, returned with products of bytes that are exact on every chip.

    On x86-64 without VNNI onnxruntime adds products of uint8 by int8 in pairs that saturate at 16 bits, unless this entry of its
    ``onnxruntime_session_options_config_keys.h`` is set. Optimisations from the level EXTENDED on heed it, for constant weights.
    """
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options
