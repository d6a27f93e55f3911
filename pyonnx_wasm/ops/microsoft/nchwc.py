"""com.microsoft.nchwc: what onnxruntime saves at optimisation level "all", with channels in blocks as wide as the machine's vectors.

Here images lie as the standard has them, and what reorders them is nothing; the weights of convolutions are put back in their order.
How wide the blocks are no attribute says: it is told from channels that one width would have padded, or the model is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import IRError, Value, dims
from ...registry import Context, op
from ...tensor import constant, map_, reshape, slice_, transpose
from ..conv import Conv
from ..pool import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from ..resize import Resize
from ..shape import pad
from .attend import size_of
from .fused import activated
from .qlinear import nchw, nhwc

NCHWC = "com.microsoft.nchwc"
Ints = Sequence[int] | None


def _block(ctx: Context) -> int:
    """8 or 16 channels, whichever the sizes of the whole graph allow alone."""
    graph = ctx.tracer.model.graph
    nodes = [n for n in graph.nodes if n.domain == NCHWC]
    for node in nodes:
        stored = graph.initializers.get(node.inputs[1]) if node.op_type == "Conv" else None
        if stored is not None and (stored.shape[0] % 16 or (stored.shape[1] % 16 and stored.shape[1] > 8)):
            return 8
    for node in nodes:
        channels = node.attrs.get("channels", 0) if node.op_type == "ReorderOutput" else 0
        if 0 < channels % 16 <= 8:
            return 16
    raise IRError(
        "onnxruntime saved this model at optimisation level 'all', with weights in the layout of the machine that saved it, and no size in"
        " it tells that layout; save it at level 'extended', or take the model that it was made of"
    )


def _plain(w: Value, block: int, by_input: bool) -> Value:
    """Weights [m, c, ...] that lie as [m / block, c / block, ..., block of c, block of m], or without blocks of c."""
    m, c, *kernel = (size_of(s, "the sizes of the weights") for s in w.shape)
    n = len(kernel)
    if by_input:
        lying = reshape(w, [m // block, c // block, *kernel, block, block])
        order = [0, n + 3, 1, n + 2, *range(2, n + 2)]
    else:
        lying = reshape(w, [m // block, c, *kernel, block])
        order = [0, n + 2, 1, *range(2, n + 2)]
    return reshape(transpose(lying, order), w.shape)


def _widened(x: Value, channels: Any) -> Value:
    """With channels of zeros behind its own."""
    more = channels - x.shape[1]
    if dims.same(more, 0):
        return x
    return pad(x, [0] * x.rank, [0, more, *[0] * (x.rank - 2)])


@op("ReorderInput", domain=NCHWC)
def ReorderInput(X: Value, *, channels_last: int = 0, ctx: Context) -> Value:
    x = nchw(X) if channels_last else X
    channels = size_of(x.shape[1], "the number of channels")
    if channels % 16 == 0:
        return x
    block = _block(ctx)
    return _widened(x, -(-channels // block) * block)


@op("ReorderOutput", domain=NCHWC)
def ReorderOutput(X: Value, *, channels: int = 0, channels_last: int = 0) -> Value:
    x = slice_(X, 1, 0, channels) if channels else X
    return nhwc(x) if channels_last else x


@op("Conv", domain=NCHWC)
def Conv_nchwc(
    X: Value, W: Value, B: Value | None = None, Sum: Value | None = None, *, activation: str = "",
    activation_params: Sequence[float] | None = None, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1,
    kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None, ctx: Context,
) -> Value:  # fmt: skip
    """Weights lie in blocks by input channel too, but for those of a depthwise convolution and of images with few channels."""
    block = _block(ctx)
    inside = size_of(W.shape[1], "the sizes of the weights")
    weights = _plain(W, block, inside >= block)
    x = _widened(X, inside * group)
    y: Value = Conv(
        x, weights, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides
    )
    y = y if Sum is None else map_("add", y, Sum)
    return activated(y, activation, activation_params or ()) if activation else y


@op("MaxPool", domain=NCHWC)
def MaxPool_nchwc(
    X: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None, kernel_shape: Sequence[int], pads: Ints = None,
    storage_order: int = 0, strides: Ints = None, ctx: Context,
) -> Value:  # fmt: skip
    y: Value = MaxPool(
        X, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, kernel_shape=kernel_shape, pads=pads, strides=strides, ctx=ctx
    )
    return y


@op("AveragePool", domain=NCHWC)
def AveragePool_nchwc(
    X: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0, dilations: Ints = None,
    kernel_shape: Sequence[int], pads: Ints = None, strides: Ints = None,
) -> Value:  # fmt: skip
    y: Value = AveragePool(
        X, auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad, dilations=dilations, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    return y


@op("GlobalAveragePool", domain=NCHWC)
def GlobalAveragePool_nchwc(X: Value) -> Value:
    return GlobalAveragePool(X)  # type: ignore[no-any-return]


@op("GlobalMaxPool", domain=NCHWC)
def GlobalMaxPool_nchwc(X: Value) -> Value:
    return GlobalMaxPool(X)  # type: ignore[no-any-return]


@op("Upsample", domain=NCHWC)
def Upsample_nchwc(
    X: Value, *, coordinate_transformation_mode: str = "asymmetric", mode: str = "nearest", scales: Sequence[int] | None = None
) -> Value:
    factors = constant(np.array(scales or [1] * X.rank, np.float32))
    y: Value = Resize(X, None, factors, coordinate_transformation_mode=coordinate_transformation_mode, mode=mode, nearest_mode="floor")
    return y
