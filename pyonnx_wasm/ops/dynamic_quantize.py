"""Quantisation over the range that the data have: one step that finds the scale and the zero point and codes with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..ir import IRError, Value
from ..registry import Kernel, op
from ..tensor import contiguous

DYNAMIC_QUANTIZE = Kernel("dynamic_quantize", ">y? >scale >zero x", "n")


@op()
def DynamicQuantizeLinear(x: Value) -> tuple[Value, Value, Value]:
    """uint8 over the range of the data, stretched to hold 0; one scale and zero point for the tensor."""
    if x.dtype is not DType.float32:
        raise IRError(f"only float32 is quantised over its range, not {x.dtype.name}")
    outs: dict[str, tuple[DType, Sequence[Any]]] = {"y": (DType.uint8, x.shape), "scale": (DType.float32, ()), "zero": (DType.uint8, ())}
    return DYNAMIC_QUANTIZE(outs, {"x": contiguous(x)}, n=x.size)  # type: ignore[no-any-return]
