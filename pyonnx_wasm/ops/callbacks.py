"""Calls of what the host does."""

from __future__ import annotations

from collections.abc import Sequence

from ..callbacks import Callback
from ..dtypes import DType
from ..ir import IRError, Value
from ..tensor import contiguous
from .bodies import emit


def call(callback: Callback, inputs: Sequence[Value | None], outputs: Sequence[tuple[DType, int]]) -> tuple[Value, ...]:
    """A step that the host does; sizes of what it gives are known behind it."""
    present = [contiguous(i) for i in inputs if i is not None]
    for dtype in [*(i.dtype for i in present), *(d for d, _ in outputs)]:
        if dtype.bits < 8:
            raise IRError(f"a callback takes and gives elements of 8 bits and more, not {dtype.name}; insert a Cast")
    return tuple(emit("host", [], present, [(dtype, [None] * rank) for dtype, rank in outputs], callback=callback))
