"""Quantised operators of com.microsoft that stand for Dequantize, an operator, Quantize."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dtypes import DType
from ...ir import IRError, Value, dims
from ...registry import op
from ...tensor import axis_of, cast, concat, like, literal, map_, reduce, reshape, transpose
from ..convert import DequantizeLinear, QuantizeLinear
from ..elementwise import LeakyRelu
from ..normalization import Softmax, Softmax_1
from ..pool import AveragePool
from ..quantized import QLinearConv
from . import MICROSOFT


def quantised(x: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    """Rounded to the 8-bit dtype with one scale and zero point, 0 where none is given."""
    y: Value = QuantizeLinear(x, reshape(scale, ()), _scalar(zero), output_dtype=int(dtype))
    return y


def dequantised(x: Value, scale: Value, zero: Value | None) -> Value:
    """float32 of 8-bit codes with one scale and zero point."""
    y: Value = DequantizeLinear(x, reshape(scale, ()), _scalar(zero))
    return y


def _scalar(zero: Value | None) -> Value | None:
    return None if zero is None else reshape(zero, ())


def nchw(x: Value) -> Value:
    """[n, ..., c] as [n, c, ...]."""
    return transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def nhwc(x: Value) -> Value:
    """[n, c, ...] as [n, ..., c]."""
    return transpose(x, [0, *range(2, x.rank), 1])


@op(domain=MICROSOFT)
def QLinearAdd(
    A: Value, A_scale: Value, A_zero_point: Value | None, B: Value, B_scale: Value, B_zero_point: Value | None, C_scale: Value,
    C_zero_point: Value | None = None,
) -> Value:  # fmt: skip
    total = map_("add", dequantised(A, A_scale, A_zero_point), dequantised(B, B_scale, B_zero_point))
    return quantised(total, C_scale, C_zero_point, A.dtype)


@op(domain=MICROSOFT)
def QLinearMul(
    A: Value, A_scale: Value, A_zero_point: Value | None, B: Value, B_scale: Value, B_zero_point: Value | None, C_scale: Value,
    C_zero_point: Value | None = None,
) -> Value:  # fmt: skip
    product = map_("mul", dequantised(A, A_scale, A_zero_point), dequantised(B, B_scale, B_zero_point))
    return quantised(product, C_scale, C_zero_point, A.dtype)


def _unary(X: Value, scale: Value, zero: Value | None, y_scale: Value, y_zero: Value | None, fn: Callable[[Value], Value]) -> Value:
    return quantised(fn(dequantised(X, scale, zero)), y_scale, y_zero, X.dtype)


@op(domain=MICROSOFT)
def QLinearLeakyRelu(
    X: Value, X_scale: Value, X_zero_point: Value | None, Y_scale: Value, Y_zero_point: Value | None = None, *, alpha: float = 0.01
) -> Value:
    return _unary(X, X_scale, X_zero_point, Y_scale, Y_zero_point, lambda x: LeakyRelu(x, alpha=alpha))


@op(domain=MICROSOFT)
def QLinearSigmoid(X: Value, X_scale: Value, X_zero_point: Value | None, Y_scale: Value, Y_zero_point: Value | None = None) -> Value:
    return _unary(X, X_scale, X_zero_point, Y_scale, Y_zero_point, lambda x: map_("sigmoid", x))


@op(domain=MICROSOFT)
def QLinearSoftmax(
    X: Value, X_scale: Value, x_zero_point: Value | None, y_scale: Value, y_zero_point: Value | None = None, *,
    axis: int = -1, opset: int,
) -> Value:  # fmt: skip
    """``opset`` is that of the Softmax that was quantised: before 13 the axes from ``axis`` on are one."""
    if opset < 13:
        return _unary(X, X_scale, x_zero_point, y_scale, y_zero_point, lambda x: Softmax_1(x, axis=axis))
    return _unary(X, X_scale, x_zero_point, y_scale, y_zero_point, lambda x: Softmax(x, axis=axis))


@op(domain=MICROSOFT)
def QLinearReduceMean(
    data: Value, data_scale: Value, data_zero_point: Value | None, reduced_scale: Value, reduced_zero_point: Value | None = None, *,
    axes: Sequence[int], keepdims: int,
) -> Value:  # fmt: skip
    over = list(axes) or list(range(data.rank))
    return _unary(data, data_scale, data_zero_point, reduced_scale, reduced_zero_point, lambda x: reduce("mean", x, over, bool(keepdims)))


@op(domain=MICROSOFT)
def QLinearWhere(
    condition: Value, X: Value, x_scale: Value, x_zero_point: Value, Y: Value, y_scale: Value, y_zero_point: Value, z_scale: Value,
    z_zero_point: Value,
) -> Value:  # fmt: skip
    chosen = map_("where", condition, dequantised(X, x_scale, x_zero_point), dequantised(Y, y_scale, y_zero_point))
    return quantised(chosen, z_scale, z_zero_point, X.dtype)


@op(domain=MICROSOFT)
def QLinearConcat(Y_scale: Value, Y_zero_point: Value, *inputs: Value, axis: int) -> Value:
    """``inputs``: tensors, each followed by its scale and zero point."""
    if not inputs or len(inputs) % 3:
        raise IRError(f"tensors, scales and zero points must come in threes, there are {len(inputs)} inputs behind Y_zero_point")
    parts = [inputs[i : i + 3] for i in range(0, len(inputs), 3)]
    codes = [quantised(dequantised(*part), Y_scale, Y_zero_point, Y_zero_point.dtype) for part in parts]
    return concat(codes, axis_of(axis, codes[0].rank))


@op(domain=MICROSOFT)
def QLinearAveragePool(
    X: Value, x_scale: Value, x_zero_point: Value | None, y_scale: Value, y_zero_point: Value | None = None, *,
    auto_pad: str = "NOTSET", ceil_mode: int = 0, channels_last: int = 0, count_include_pad: int = 0, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    x = dequantised(X, x_scale, x_zero_point)
    y = AveragePool(
        nchw(x) if channels_last else x, auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return quantised(nhwc(y) if channels_last else y, y_scale, y_zero_point, X.dtype)


@op(domain=MICROSOFT)
def QLinearGlobalAveragePool(
    X: Value, x_scale: Value, x_zero_point: Value | None, y_scale: Value, y_zero_point: Value | None = None, *, channels_last: int = 0
) -> Value:
    """The sum of the codes in int32, scaled once."""
    axes = list(range(1, X.rank - 1)) if channels_last else list(range(2, X.rank))
    count = reshape(literal([dims.product([X.shape[a] for a in axes])]), ())
    total = reduce("sum", cast(X, DType.int32), axes, True)
    if x_zero_point is not None:
        total = map_("sub", total, map_("mul", cast(reshape(x_zero_point, ()), DType.int32), cast(count, DType.int32)))
    scale = map_("div", reshape(x_scale, ()), map_("mul", reshape(y_scale, ()), cast(count, DType.float32)))
    return requantised(map_("mul", cast(total, DType.float32), scale), y_zero_point, X.dtype)


def requantised(x: Value, zero: Value | None, dtype: DType) -> Value:
    """Numbers in units of the output's scale, rounded half to even, moved to the zero point and saturated."""
    q = map_("round", x)
    if zero is not None:
        q = map_("add", q, cast(reshape(zero, ()), q.dtype))
    low = -128 if dtype is DType.int8 else 0
    return cast(map_("clamp", q, like(q, low), like(q, low + 255)), dtype)


@op("QLinearConv", domain=MICROSOFT)
def QLinearConv_ms(
    x: Value, x_scale: Value, x_zero_point: Value, w: Value, w_scale: Value, w_zero_point: Value, y_scale: Value, y_zero_point: Value,
    B: Value | None = None, *, auto_pad: str = "NOTSET", channels_last: int = 0, dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """The standard's, also over channels that come last; the weights lie as ever."""
    y = QLinearConv(
        nchw(x) if channels_last else x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B,
        auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return nhwc(y) if channels_last else y
