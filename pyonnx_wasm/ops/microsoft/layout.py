"""Convolutions and pools whose channels come last, or lie in blocks (com.microsoft, com.ms.internal.nhwc)."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import IRError, Value
from ...registry import Context, op
from ...tensor import dims_of, map_
from ..conv import Conv, ConvTranspose
from ..pool import AveragePool, MaxPool, pool
from . import MICROSOFT
from .fused import activated
from .qlinear import nchw, nhwc

INTERNAL = "com.ms.internal.nhwc"
Ints = Sequence[int] | None


def _weights_last(x: Value, w: Value, b: Value | None, group: int, auto_pad: str, dilations: Ints, pads: Ints, strides: Ints) -> Value:
    """Images and weights with channels last, [n, ..., c] and [m, ..., c / group]."""
    y: Value = Conv(nchw(x), nchw(w), b, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides)
    return nhwc(y)


@op(domain=MICROSOFT)
def NhwcConv(
    X: Value, W: Value, B: Value | None = None, *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1,
    kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Value:  # fmt: skip
    return _weights_last(X, W, B, group, auto_pad, dilations, pads, strides)


@op(domain=MICROSOFT)
def NhwcFusedConv(
    X: Value, W: Value, B: Value | None = None, Z: Value | None = None, *, activation: str = "",
    activation_params: Sequence[float] | None = None, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1,
    kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Value:  # fmt: skip
    """Images with channels last, weights as the standard has them; the result takes Z, then the activation."""
    y: Value = Conv(
        nchw(X), W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides
    )
    y = nhwc(y)
    y = y if Z is None else map_("add", y, Z)
    return activated(y, activation, activation_params or ()) if activation else y


@op(domain=MICROSOFT)
def NhwcMaxPool(
    x: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None, kernel_shape: Sequence[int], pads: Ints = None,
    strides: Ints = None,
) -> Value:  # fmt: skip
    return nhwc(pool("max", nchw(x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode))


@op("Conv", domain=INTERNAL)
def Conv_nhwc(
    X: Value, W: Value, B: Value | None = None, *, activation: str = "", activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Value:  # fmt: skip
    """The standard's over channels that come last; the weights lie as ever."""
    attributes = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "kernel_shape": kernel_shape, "pads": pads}
    y = nhwc(Conv(nchw(X), W, B, strides=strides, **attributes))
    return activated(y, activation, activation_params or ()) if activation else y


@op("MaxPool", domain=INTERNAL)
def MaxPool_nhwc(
    X: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None, kernel_shape: Sequence[int], pads: Ints = None,
    storage_order: int = 0, strides: Ints = None, ctx: Context,
) -> Value:  # fmt: skip
    if ctx.wants(1):
        raise IRError("the output Indices is not supported with channels last; save the model without the layout of one machine")
    y: Value = MaxPool(
        nchw(X), auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, kernel_shape=kernel_shape, pads=pads, strides=strides, ctx=ctx
    )
    return nhwc(y)


@op("AveragePool", domain=INTERNAL)
def AveragePool_nhwc(
    X: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0, dilations: Ints = None,
    kernel_shape: Sequence[int], pads: Ints = None, strides: Ints = None,
) -> Value:  # fmt: skip
    y: Value = AveragePool(
        nchw(X), auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad, dilations=dilations,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return nhwc(y)


def _everywhere(kind: str, x: Value) -> Value:
    from ...tensor import reduce

    return reduce(kind, x, list(range(1, x.rank - 1)), True)


@op("GlobalAveragePool", domain=INTERNAL)
def GlobalAveragePool_nhwc(X: Value) -> Value:
    return _everywhere("mean", X)


@op("GlobalMaxPool", domain=INTERNAL)
def GlobalMaxPool_nhwc(X: Value) -> Value:
    return _everywhere("max", X)


@op(domain=MICROSOFT)
def ConvTransposeWithDynamicPads(
    X: Value, W: Value, Pads: Value | None = None, B: Value | None = None, *, auto_pad: str = "NOTSET", dilations: Ints = None,
    group: int = 1, kernel_shape: Ints = None, output_padding: Ints = None, strides: Ints = None,
) -> Value:  # fmt: skip
    """The standard's with pads as an input, which must be known when the model is compiled."""
    pads = None if Pads is None else dims_of(Pads, "Pads")
    if pads is not None and any(not isinstance(p, int) for p in pads):
        raise IRError("Pads must be known when the model is compiled; make it a constant")
    y: Value = ConvTranspose(
        X, W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, output_padding=output_padding,
        pads=pads, strides=strides,
    )  # fmt: skip
    return y
