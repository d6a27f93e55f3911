"""Products of 8- and 16-bit integers, scaled to floats or quantised again (com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value
from ...registry import op
from ...tensor import cast, constant, map_, reduce, reshape, swap
from ..convert import DequantizeLinear, QuantizeLinear
from ..dynamic_quantize import DynamicQuantizeLinear
from ..matmul import matmul
from ..quantized import MatMulInteger
from . import MICROSOFT
from .qlinear import requantised


@op("QuantizeLinear", domain=MICROSOFT)
def QuantizeLinear_ms(x: Value, y_scale: Value, y_zero_point: Value | None = None, *, axis: int = 1) -> Value:
    """The standard's of opset 21 without blocks: also to 16 and 4 bits."""
    return QuantizeLinear(x, y_scale, y_zero_point, axis=axis)  # type: ignore[no-any-return]


@op("DequantizeLinear", domain=MICROSOFT)
def DequantizeLinear_ms(x: Value, x_scale: Value, x_zero_point: Value | None = None, *, axis: int = 1) -> Value:
    """The standard's of opset 21 without blocks: also from 16 and 4 bits."""
    return DequantizeLinear(x, x_scale, x_zero_point, axis=axis)  # type: ignore[no-any-return]


@op(domain=MICROSOFT)
def MatMulIntegerToFloat(
    A: Value, B: Value, a_scale: Value, b_scale: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Value:  # fmt: skip
    product = cast(MatMulInteger(A, B, a_zero_point, b_zero_point), a_scale.dtype)
    y = map_("mul", product, map_("mul", a_scale, b_scale))
    return y if bias is None else map_("add", y, bias)


@op(domain=MICROSOFT)
def DynamicQuantizeMatMul(A: Value, B: Value, b_scale: Value, b_zero_point: Value | None = None, bias: Value | None = None) -> Value:
    a, scale, point = DynamicQuantizeLinear(A)
    return MatMulIntegerToFloat(a, B, scale, b_scale, point, b_zero_point, bias)  # type: ignore[no-any-return]


@op(domain=MICROSOFT)
def MatMulInteger16(A: Value, B: Value) -> Value:
    """numpy.matmul of 16-bit integers in int32, in uint32 where both are unsigned."""
    product = matmul(cast(A, DType.int32), cast(B, DType.int32))
    return cast(product, DType.uint32) if not A.dtype.is_signed and not B.dtype.is_signed else product


@op(domain=MICROSOFT)
def MulInteger(A: Value, A_zero_point: Value | None, B: Value, B_zero_point: Value | None = None) -> Value:
    def centred(x: Value, zero: Value | None) -> Value:
        wide = cast(x, DType.int32)
        return wide if zero is None else map_("sub", wide, cast(reshape(zero, ()), DType.int32))

    return map_("mul", centred(A, A_zero_point), centred(B, B_zero_point))


@op(domain=MICROSOFT)
def ReduceSumInteger(data: Value, *, axes: Sequence[int], keepdims: int) -> Value:
    total = reduce("sum", cast(data, DType.int32), list(axes) or list(range(data.rank)), bool(keepdims))
    return total if data.dtype.is_signed else cast(total, DType.uint32)


@op(domain=MICROSOFT)
def QGemm(
    A: Value, a_scale: Value, a_zero_point: Value, B: Value, b_scale: Value, b_zero_point: Value | None = None, C: Value | None = None,
    y_scale: Value | None = None, y_zero_point: Value | None = None, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Value:  # fmt: skip
    """alpha * A B with C, which is int32 in units of the product, added before the sum is scaled; float32 without ``y_scale``."""
    if A.rank != 2 or B.rank != 2:
        raise IRError(f"A and B must be matrices, they have {A.rank} and {B.rank} axes")
    a, b = swap(A, 0, 1) if transA else A, swap(B, 0, 1) if transB else B
    total = MatMulInteger(a, b, reshape(a_zero_point, ()), b_zero_point)
    total = total if C is None else map_("add", total, C)
    scale = map_(
        "mul", map_("mul", constant(np.float32(alpha)), reshape(a_scale, ())), b_scale if b_scale.size != 1 else reshape(b_scale, ())
    )
    if y_scale is None:
        return map_("mul", cast(total, DType.float32), scale)
    scale = map_("div", scale, reshape(y_scale, ()))
    target = A.dtype if y_zero_point is None else y_zero_point.dtype
    return requantised(map_("mul", cast(total, DType.float32), scale), y_zero_point, target)
