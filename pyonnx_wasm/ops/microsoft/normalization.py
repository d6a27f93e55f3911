"""Normalisations with what optimisers fuse into them: sums, embeddings, activations and gates (com.microsoft)."""

from __future__ import annotations

import numpy as np

from ...dtypes import DType
from ...ir import Graph, IRError, Value, dims
from ...registry import Context, op
from ...tensor import HALVES, cast, constant, contiguous, fill, index, like, literal, map_, reduce, reshape, unsqueeze
from ..gather import Gather
from ..normalization import GroupNormalization, LayerNormalization, rms_norm
from . import MICROSOFT
from .qlinear import dequantised, nchw, nhwc


def wide_of(x: Value) -> DType:
    """The dtype to compute in: float32 for the halves, else that of the value."""
    return DType.float32 if x.dtype in HALVES else x.dtype


def _total(*xs: Value | None) -> Value:
    """A sum in the wide dtype, rounded nowhere."""
    given = [cast(x, wide_of(x)) for x in xs if x is not None]
    total = given[0]
    for x in given[1:]:
        total = map_("add", total, x)
    return total


def _layer_norm(x: Value, gamma: Value, beta: Value | None, epsilon: float, ctx: Context, dtype: DType) -> tuple[Value | None, ...]:
    scale, bias = (None if p is None else cast(p, x.dtype) for p in (gamma, beta))
    y = LayerNormalization(x, scale, bias, epsilon=epsilon, stash_type=int(x.dtype), ctx=ctx)
    y, *stats = y if isinstance(y, tuple) else (y, None, None)
    return (cast(y, dtype), *(None if s is None else cast(s, DType.float32) for s in stats))


@op(domain=MICROSOFT)
def SkipLayerNormalization(
    input: Value, skip: Value, gamma: Value, beta: Value | None = None, bias: Value | None = None, *, epsilon: float = 1e-12, ctx: Context
) -> tuple[Value | None, ...]:
    """Layer normalisation of a sum, which is an output as well."""
    total = _total(input, skip, bias)
    return (*_layer_norm(total, gamma, beta, epsilon, ctx, input.dtype), cast(total, input.dtype))


@op(domain=MICROSOFT)
def SkipSimplifiedLayerNormalization(
    input: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: float = 1e-12, ctx: Context
) -> tuple[Value | None, ...]:
    """The same with the root mean square, which has no mean."""
    if ctx.wants(1):
        raise IRError("the output mean is not computed: a root mean square has none; remove it, training alone reads it")
    total = _total(input, skip, bias)
    inverse = None
    if ctx.wants(2):
        square = reduce("mean", map_("mul", total, total), [-1], True)
        inverse = cast(map_("recip", map_("sqrt", map_("add", square, like(square, epsilon)))), DType.float32)
    y = rms_norm(total, total.rank - 1, epsilon, cast(gamma, total.dtype))
    return cast(y, input.dtype), None, inverse, cast(total, input.dtype)


@op(domain=MICROSOFT)
def EmbedLayerNormalization(
    input_ids: Value, segment_ids: Value | None, word_embedding: Value, position_embedding: Value, segment_embedding: Value | None,
    gamma: Value, beta: Value, mask: Value | None = None, position_ids: Value | None = None, *,
    epsilon: float = 1e-12, mask_index_type: int = 1, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """The embeddings of BERT, summed and normalised; also how many tokens of each row the mask keeps."""
    places = position_ids if position_ids is not None else index(1, [1, input_ids.shape[1]])
    segments = None if segment_ids is None or segment_embedding is None else Gather(segment_embedding, segment_ids)
    total = _total(Gather(word_embedding, input_ids), Gather(position_embedding, places), segments)
    y, *_ = _layer_norm(total, gamma, beta, epsilon, Context(1, (), ctx.node), word_embedding.dtype)
    return y, _kept(input_ids, mask) if ctx.wants(1) else None, cast(total, word_embedding.dtype)


def _kept(ids: Value, mask: Value | None) -> Value:
    """int32 [batch]: the ones of each row of a mask; zeros without one."""
    if mask is None:
        return fill([ids.shape[0]], 0, DType.int32)
    return reduce("sum", cast(map_("eq", mask, like(mask, 1)), DType.int32), [1])


@op(domain=MICROSOFT)
def QEmbedLayerNormalization(
    input_ids: Value, segment_ids: Value | None, word_embedding_quant: Value, position_embedding_quant: Value,
    segment_embedding: Value | None, gamma_quant: Value, beta_quant: Value, mask: Value | None, word_embedding_scale: Value,
    position_embedding_scale: Value, segment_embedding_scale: Value | None, gamma_scale: Value, beta_scale: Value,
    word_embedding_zero_point: Value, position_embedding_zero_point: Value, segment_embedding_zero_point: Value | None,
    gamma_zero_point: Value, beta_zero_point: Value, *, epsilon: float = 1e-12, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """The same over 8-bit tables, whose rows alone become float32."""
    places = index(1, [1, input_ids.shape[1]])
    words = dequantised(Gather(word_embedding_quant, input_ids), word_embedding_scale, word_embedding_zero_point)
    rows = dequantised(Gather(position_embedding_quant, places), position_embedding_scale, position_embedding_zero_point)
    segments = None
    if segment_ids is not None and segment_embedding is not None and segment_embedding_scale is not None:
        segments = dequantised(Gather(segment_embedding, segment_ids), segment_embedding_scale, segment_embedding_zero_point)
    gamma, beta = dequantised(gamma_quant, gamma_scale, gamma_zero_point), dequantised(beta_quant, beta_scale, beta_zero_point)
    y, *_ = _layer_norm(_total(words, rows, segments), gamma, beta, epsilon, Context(1, (), ctx.node), DType.float32)
    return y, _kept(input_ids, mask) if ctx.wants(1) else None


def _group_norm(x: Value, gamma: Value, beta: Value, activation: int, channels_last: int, epsilon: float, groups: int) -> Value:
    if activation not in (0, 1):
        raise IRError(f"activation {activation} is not 0 (none) or 1 (SiLU)")
    scale, bias = cast(gamma, x.dtype), cast(beta, x.dtype)
    y: Value = GroupNormalization(nchw(x) if channels_last else x, scale, bias, num_groups=groups, epsilon=epsilon)
    y = map_("silu", y) if activation else y
    return nhwc(y) if channels_last else y


@op(domain=MICROSOFT)
def GroupNorm(X: Value, gamma: Value, beta: Value, *, activation: int, channels_last: int = 1, epsilon: float = 1e-5, groups: int) -> Value:
    return cast(_group_norm(cast(X, wide_of(X)), gamma, beta, activation, channels_last, epsilon, groups), X.dtype)


@op(domain=MICROSOFT)
def SkipGroupNorm(
    X: Value, gamma: Value, beta: Value, skip: Value, bias: Value | None = None, *,
    activation: int, channels_last: int = 1, epsilon: float = 1e-5, groups: int,
) -> tuple[Value, Value]:  # fmt: skip
    """``skip`` is as large as X, or one row of channels per image."""
    if skip.rank == 2:
        skip = unsqueeze(skip, [1, 2] if channels_last else [2, 3])
    total = _total(X, skip, bias if bias is None or channels_last else unsqueeze(bias, [1, 2]))
    y = _group_norm(total, gamma, beta, activation, channels_last, epsilon, groups)
    return cast(y, X.dtype), cast(total, X.dtype)


GATES = {"silu": "silu", "swish": "silu", "sigmoid": "sigmoid"}


@op(domain=MICROSOFT)
def GatedRMSNorm(X: Value, scale: Value, gate: Value, *, activation: str = "silu", epsilon: float = 1e-5) -> Value:
    """Groups of as many neighbours as ``scale`` has, by their root mean square, times an activated gate; float32 throughout."""
    if activation not in GATES:
        raise IRError(f"activation {activation!r} is not one of {', '.join(GATES)}")
    size = scale.shape[0]
    rows = reshape(cast(X, DType.float32), [*X.shape[:-1], X.shape[-1] // size, size])
    y = reshape(rms_norm(rows, rows.rank - 1, epsilon, cast(scale, DType.float32)), X.shape)
    return cast(map_("mul", y, map_(GATES[activation], cast(gate, DType.float32))), X.dtype)


@op(domain=MICROSOFT)
def BranchwiseRMSNorm(X: Value, scale: Value | None = None, *, epsilon: float = 1e-5, num_branches: int = 0) -> Value:
    """Each of the branches, an axis of its own or ``num_branches`` parts of the last, by its root mean square."""
    x = cast(X, DType.float32)
    x = reshape(x, [*X.shape[:-1], num_branches, X.shape[-1] // num_branches]) if num_branches else x
    branches, size = x.shape[-2:]
    y = rms_norm(x, x.rank - 1, epsilon, fill([size], 1, DType.float32))
    if scale is not None:
        wide = cast(scale, DType.float32)
        if scale.rank == 1 and branches != 1:  # of the whole axis, or one for all branches: which of them a size may say
            length, wide = wide.shape[0], contiguous(wide)
            parts = dims.eq(length, branches * size)
            fits = dims.ne(dims.eq(length, size) + dims.eq(length, 1) + parts, 0)
            Graph.current().check(fits, f"scale has {length} elements, a branch has {size}")
            wide = wide.view([branches, size], wide.offset, [dims.select(parts, size, 0), dims.select(dims.eq(length, 1), 0, 1)])
        y = map_("mul", y, wide)
    return cast(reshape(y, X.shape), X.dtype)


@op(domain=MICROSOFT)
def EngramGate(
    key: Value, query: Value, value: Value, key_norm_scale: Value, query_norm_scale: Value, conv_norm_scale: Value | None = None, *,
    epsilon: float = 1e-5, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """A value, for each of the connections times a gate from the product of normalised keys and queries [batch, length, m, size]."""
    wide = DType.float32

    def normed(x: Value, scale: Value) -> Value:
        unscaled = rms_norm(x, x.rank - 1, epsilon, fill([x.shape[-1]], 1, wide))
        return map_("mul", unscaled, cast(scale, wide))

    k, q = normed(cast(key, wide), key_norm_scale), normed(cast(query, wide), query_norm_scale)
    size = cast(reshape(literal([key.shape[-1]]), ()), wide)
    dot = map_("div", reduce("sum", map_("mul", k, q), [-1], True), map_("sqrt", size))
    root = map_("sqrt", map_("max", map_("abs", dot), constant(np.float32(1e-6))))
    gated = map_("mul", map_("sigmoid", map_("mul", map_("sign", dot), root)), unsqueeze(cast(value, wide), [2]))
    if ctx.wants(1) and conv_norm_scale is None:
        raise IRError("gated_value_normed needs the input conv_norm_scale")
    after = None if conv_norm_scale is None else cast(normed(gated, conv_norm_scale), key.dtype)
    return cast(gated, key.dtype), after
