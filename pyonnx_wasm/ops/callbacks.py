"""Calls of what the host does."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..callbacks import Callback
from ..dtypes import DType
from ..ir import IRError, Value
from ..registry import Notation
from ..tensor import contiguous
from .bodies import emit

NOTATION: dict[str, Notation] = {
    "callback": (lambda callback, _: json.dumps(callback.json()), lambda text, _: Callback.read(json.loads(text)))
}


def call(callback: Callback, inputs: Sequence[Value | None], outputs: Sequence[tuple[DType, int]]) -> tuple[Value, ...]:
    """A step that the host does; sizes of what it gives are known behind it."""
    present = [contiguous(i) for i in inputs if i is not None]
    for dtype in [*(i.dtype for i in present), *(d for d, _ in outputs)]:
        if dtype.bits < 8:
            raise IRError(f"a callback takes and gives elements of 8 bits and more, not {dtype.name}; insert a Cast")
    return tuple(emit("host", [], present, [(dtype, [None] * rank) for dtype, rank in outputs], NOTATION, callback=callback))
