"""Products, convolutions and activations that optimisers fused (com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value, dims
from ...registry import Context, op
from ...tensor import (
    HALVES,
    axis_of,
    broadcast_to,
    cast,
    constant,
    dims_of,
    fill,
    like,
    map_,
    reduce,
    reshape,
    slice_,
    swap,
    transpose,
    unsqueeze,
)
from ..conv import Conv
from ..elementwise import HardSigmoid, IsInf, LeakyRelu
from ..matmul import Gemm, matmul
from ..normalization import softmax
from . import MICROSOFT

ACTIVATIONS = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "HardSwish": "hardswish"}


def activated(y: Value, activation: str, params: Sequence[float]) -> Value:
    if activation in ACTIVATIONS:
        return map_(ACTIVATIONS[activation], y)
    if activation == "LeakyRelu":
        return LeakyRelu(y, alpha=params[0] if params else 0.01)  # type: ignore[no-any-return]
    if activation == "Clip":
        return map_("clamp", y, like(y, params[0]), like(y, params[1]))
    if activation == "HardSigmoid":
        return HardSigmoid(y, alpha=params[0], beta=params[1])  # type: ignore[no-any-return]
    raise IRError(f"activation {activation!r} is not one of {', '.join(ACTIVATIONS)}, LeakyRelu, Clip, HardSigmoid")


@op(domain=MICROSOFT)
def FusedMatMul(
    A: Value, B: Value, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0
) -> Value:
    """``transBatch`` moves the first axis behind the other batch axes, before ``trans`` swaps the last two."""

    def placed(x: Value, batch: int, last: int) -> Value:
        if batch and x.rank > 2:
            x = transpose(x, [*range(1, x.rank - 1), 0, x.rank - 1])
        return swap(x, x.rank - 2, x.rank - 1) if last and x.rank > 1 else x

    return matmul(placed(A, transBatchA, transA), placed(B, transBatchB, transB), alpha)


@op(domain=MICROSOFT)
def FusedGemm(
    A: Value, B: Value, C: Value | None = None, *, activation: str = "", activation_alpha: float = 0.0, activation_beta: float = 0.0,
    activation_gamma: float = 0.0, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> Value:  # fmt: skip
    y = Gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return activated(y, activation, (activation_alpha, activation_beta)) if activation else y


@op(domain=MICROSOFT)
def FusedConv(
    X: Value, W: Value, B: Value | None = None, Z: Value | None = None, *, activation: str = "",
    activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    y = Conv(X, W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides)
    y = y if Z is None else map_("add", y, Z)
    return activated(y, activation, activation_params or ()) if activation else y


@op(domain=MICROSOFT)
def Gelu(X: Value) -> Value:
    return map_("gelu", X)


@op(domain=MICROSOFT)
def BiasGelu(A: Value, B: Value) -> Value:
    return map_("gelu", map_("add", A, B))


@op(domain=MICROSOFT)
def FastGelu(X: Value, bias: Value | None = None) -> Value:
    return map_("gelu_tanh", X if bias is None else map_("add", X, bias))


@op(domain=MICROSOFT)
def QuickGelu(X: Value, *, alpha: float = 1.702) -> Value:
    return map_("mul", X, map_("sigmoid", map_("mul", X, like(X, alpha))))


@op(domain=MICROSOFT)
def BiasSplitGelu(X: Value, bias: Value) -> Value:
    x = map_("add", X, bias)
    half = x.shape[-1] // 2
    left, right = (slice_(x, x.rank - 1, start, half) for start in (0, half))
    return map_("mul", left, map_("gelu", right))


@op(domain=MICROSOFT)
def BiasAdd(X: Value, bias: Value, skip: Value) -> Value:
    return map_("add", map_("add", X, bias), skip)


@op(domain=MICROSOFT)
def TransposeMatMul(A: Value, B: Value, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> Value:
    return FusedMatMul(A, B, alpha=alpha, transA=transA, transB=transB)  # type: ignore[no-any-return]


@op(domain=MICROSOFT)
def FusedMatMulActivation(
    A: Value, B: Value, *, activation: str, activation_alpha: float = 0.0, activation_axis: int = -1, activation_beta: float = 0.0,
    activation_gamma: float = 0.0, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0,
) -> Value:  # fmt: skip
    y = FusedMatMul(A, B, alpha=alpha, transA=transA, transB=transB, transBatchA=transBatchA, transBatchB=transBatchB)
    if activation == "Softmax":
        return softmax(y, axis_of(activation_axis, y.rank))
    return activated(y, activation, (activation_alpha, activation_beta))


@op(domain=MICROSOFT)
def GemmFastGelu(X: Value, W: Value, bias: Value | None = None) -> Value:
    return FastGelu(matmul(X, W), bias)  # type: ignore[no-any-return]


@op(domain=MICROSOFT)
def BiasSoftmax(data: Value, bias: Value, *, axis: int = 1, is_inner_broadcast: int) -> Value:
    """Softmax over the axes from ``axis`` on, which are one; the shape of the bias says where it repeats."""
    at = axis_of(axis, data.rank)
    total = map_("add", data, bias)
    flat = reshape(total, [dims.product(data.shape[:at]), dims.product(data.shape[at:])])
    return reshape(softmax(flat, 1), data.shape)


def _inference(training_mode: Value | None, ratio: Value | None) -> None:
    if training_mode is not None and dims_of(training_mode, "training_mode") != [0]:
        raise IRError("training_mode must be false; export the model for inference")


@op(domain=MICROSOFT)
def BiasDropout(
    data: Value, bias: Value, residual: Value | None = None, ratio: Value | None = None, training_mode: Value | None = None, *,
    seed: int = 0,
) -> tuple[Value, Value]:  # fmt: skip
    """As inference has it: nothing is dropped."""
    _inference(training_mode, ratio)
    y = map_("add", data, bias)
    return y if residual is None else map_("add", y, residual), fill(data.shape, 1, DType.bool)


@op(domain=MICROSOFT)
def BitmaskDropout(
    data: Value, ratio: Value | None = None, training_mode: Value | None = None, *, seed: int = 0, ctx: Context
) -> tuple[Value, None]:
    """As inference has it: nothing is dropped."""
    _inference(training_mode, ratio)
    if ctx.wants(1):
        raise IRError("the output mask is not supported; remove it, training alone reads it")
    return data, None


@op(domain=MICROSOFT)
def BitmaskBiasDropout(
    data: Value, bias: Value, residual: Value | None = None, ratio: Value | None = None, training_mode: Value | None = None, *,
    seed: int = 0, ctx: Context,
) -> tuple[Value, None]:  # fmt: skip
    """As inference has it: nothing is dropped."""
    y, _ = BiasDropout(data, bias, residual, ratio, training_mode)
    return BitmaskDropout(y, ctx=ctx)[0], None


@op(domain=MICROSOFT)
def ScaledSiLU(X: Value, scale: Value | None = None, *, alpha: float = 1.0) -> Value:
    """z * sigmoid(z) with z = scale * x, each step rounded to the dtype."""
    factor = like(X, alpha) if scale is None else cast(reshape(scale, ()), DType.float32 if X.dtype in HALVES else X.dtype)
    z = cast(map_("mul", cast(X, factor.dtype), factor), X.dtype)
    return map_("mul", z, map_("sigmoid", z))


@op(domain=MICROSOFT)
def GatedAdd(X: Value, Y: Value, gate: Value) -> Value:
    return map_("add", X, map_("mul", Y, gate))


def _branches(x: Value, count: int) -> Value:
    return reshape(x, [*x.shape[:-1], count, x.shape[-1] // count]) if count else x


@op(domain=MICROSOFT)
def HyperConnectionPreMix(streams: Value, pre_mix: Value, *, num_branches: int = 0, reduction_scale: float = 1.0) -> Value:
    """The streams [..., c, h], weighted and summed over c."""
    x = cast(_branches(streams, num_branches), DType.float32)
    y = reduce("sum", map_("mul", x, cast(_weights(pre_mix, x, num_branches > 0), DType.float32)), [-2])
    return cast(map_("mul", y, constant(np.float32(reduction_scale))), streams.dtype)


def _weights(mix: Value, x: Value, flat: bool) -> Value:
    """[..., c], [..., c, 1], [..., c, h], or [..., c * h] where the streams are ``flat``, as what broadcasts to x [..., c, h]."""
    if mix.rank == x.rank:
        return mix
    whole = flat and not dims.same(mix.shape[-1], x.shape[-2])
    return reshape(mix, [*mix.shape[:-1], x.shape[-2], x.shape[-1]]) if whole else unsqueeze(mix, [-1])


@op(domain=MICROSOFT)
def HyperConnectionPostMix(
    streams: Value, block_output: Value, post_mix: Value, stream_mix: Value | None = None, *, num_branches: int = 0
) -> Value:
    """The streams [..., c, h] mixed by [..., c, c], and a weighted output [..., h] added to each."""
    wide = DType.float32
    x = cast(_branches(streams, num_branches), wide)
    y = x if stream_mix is None else matmul(swap(cast(stream_mix, wide), stream_mix.rank - 2, stream_mix.rank - 1), x)
    block = reshape(cast(block_output, wide), [*block_output.shape[:-1], 1, block_output.shape[-1]])
    y = map_("add", y, map_("mul", broadcast_to(block, x.shape), cast(_weights(post_mix, x, num_branches > 0), wide)))
    return cast(reshape(y, streams.shape), streams.dtype)


@op(domain=MICROSOFT)
def IsAllFinite(*input: Value, isinf_only: int = 0, isnan_only: int = 0) -> Value:
    """Whether no element of any input is infinite or NaN."""
    bad = None
    for x in input:
        wide = cast(x, DType.float32) if x.dtype in HALVES else x
        marks = [] if isinf_only else [map_("isnan", wide)]
        marks += [] if isnan_only else [IsInf(wide)]
        here = marks[0] if len(marks) == 1 else map_("or", *marks)
        found = reduce("max", cast(here, DType.int32), list(range(x.rank)))
        bad = found if bad is None else map_("max", bad, found)
    if bad is None:
        raise IRError("at least one input is needed")
    return map_("eq", bad, like(bad, 0))


@op(domain=MICROSOFT)
def LinearAttentionGate(a: Value, dt_bias: Value, decay_scale: Value, b: Value | None = None) -> tuple[Value, Value | None]:
    """The decay ``decay_scale * softplus(a + dt_bias)``, computed in float32, and the rate ``sigmoid(b)``."""
    wide = DType.float32
    decay = map_("mul", map_("softplus", map_("add", cast(a, wide), cast(dt_bias, wide))), cast(decay_scale, wide))
    return cast(decay, a.dtype), None if b is None else map_("sigmoid", b)
