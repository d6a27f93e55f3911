"""Operators of the ``com.microsoft`` domain, which onnxruntime's optimisers and quantizers write.

Semantics: docs/ContribOperators.md of onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...dtypes import DType
from ...ir import IRError, Value
from ...ir.dims import DimLike
from ...op import Context, op
from ...tensor import HALVES, broadcast_to, cast, concat, contiguous, fill, like, map_, slice_, split, swap, unsqueeze
from ..attention import attention
from ..conv import Conv
from ..convert import DynamicQuantizeLinear
from ..elementwise import HardSigmoid, LeakyRelu
from ..matmul import Gemm, matmul
from ..normalization import LayerNormalization, rms_norm
from ..quantized import MatMulInteger
from ..transformer import heads_first, heads_last

MICROSOFT = "com.microsoft"
ACTIVATIONS = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}


def _activated(y: Value, activation: str, params: Sequence[float]) -> Value:
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
        from ...tensor import transpose

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
    return _activated(y, activation, (activation_alpha, activation_beta)) if activation else y


@op(domain=MICROSOFT)
def FusedConv(
    X: Value, W: Value, B: Value | None = None, Z: Value | None = None, *, activation: str = "",
    activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    y = Conv(X, W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides)
    y = y if Z is None else map_("add", y, Z)
    return _activated(y, activation, activation_params or ()) if activation else y


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
def SkipLayerNormalization(
    input: Value, skip: Value, gamma: Value, beta: Value | None = None, bias: Value | None = None, *, epsilon: float = 1e-12, ctx: Context
) -> tuple[Value | None, ...]:
    """Layer normalisation of a sum, which is an output as well."""
    total = map_("add", input, skip)
    total = total if bias is None else map_("add", total, bias)
    y = LayerNormalization(total, gamma, beta, epsilon=epsilon, ctx=ctx)
    return (*y, total) if isinstance(y, tuple) else (y, None, None, total)


@op(domain=MICROSOFT)
def SkipSimplifiedLayerNormalization(
    input: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: float = 1e-12, ctx: Context
) -> tuple[Value | None, ...]:
    """The same with the root mean square."""
    if ctx.wants(1) or ctx.wants(2):
        raise IRError("the outputs mean and inv_std_var are not supported")
    total = map_("add", input, skip)
    total = total if bias is None else map_("add", total, bias)
    wide = cast(total, DType.float32) if total.dtype in HALVES else total
    return cast(rms_norm(wide, total.rank - 1, epsilon, cast(gamma, wide.dtype)), total.dtype), None, None, total


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
def MultiHeadAttention(
    query: Value, key: Value | None = None, value: Value | None = None, bias: Value | None = None, key_padding_mask: Value | None = None,
    attention_bias: Value | None = None, past_key: Value | None = None, past_value: Value | None = None, *,
    mask_filter_value: float = -10000.0, num_heads: int, scale: float = 0.0, unidirectional: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    """Attention over projected [batch, length, heads * size]; keys that a padding mask [batch, keys] marks 0 weigh little."""
    if key is None or value is None:
        raise IRError("packed queries, keys and values are not supported")
    wide = DType.float32
    given = [query, key, value]
    if bias is not None:
        parts = split(bias, 0, [query.shape[2], query.shape[2], bias.shape[0] - query.shape[2] * 2])
        given = [x if x.rank == 4 else map_("add", x, b) for x, b in zip(given, parts, strict=True)]
    q, k, v = (heads_first(x, num_heads, "an input") for x in given)
    past: DimLike = 0
    if past_key is not None and past_value is not None:
        past, k, v = past_key.shape[2], concat([past_key, k], 2), concat([past_value, v], 2)
    mask = None if attention_bias is None else cast(attention_bias, wide)
    if key_padding_mask is not None:
        if key_padding_mask.rank != 2:
            raise IRError(f"a key_padding_mask of rank {key_padding_mask.rank} is not supported (rank 2 is)")
        kept = cast(key_padding_mask, DType.bool)
        padding = unsqueeze(map_("where", kept, fill((), 0, wide), fill((), mask_filter_value, wide)), [1, 2])
        mask = padding if mask is None else map_("add", mask, padding)
    size = q.shape[3]
    if not isinstance(size, int):
        raise IRError(f"the head size must be known when the model is compiled, it is {size}")
    factor = scale or 1 / math.sqrt(size)
    present = (k, v)
    q, k, v = (cast(x, wide) for x in (q, k, v))
    q, v = (x if x.strides[3] == 1 else contiguous(x) for x in (q, v))
    spread = None if mask is None else broadcast_to(mask, [*q.shape[:3], k.shape[2]])
    y = attention(q, k, v, spread, factor, causal=bool(unidirectional), past=past)
    return (cast(heads_last(y), query.dtype), *present)
