"""Attention over projected or unprojected inputs with one head of keys per head of queries (com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value, dims
from ...ir.dims import DimLike
from ...registry import Context, op
from ...tensor import cast, concat, constant, index, like, map_, reshape, slice_, split, unsqueeze
from ..gather import Gather
from ..matmul import matmul
from ..quantized import MatMulInteger
from ..rotary import rotated
from ..transformer import heads_first, heads_last
from . import MICROSOFT
from .attend import added, allowed, attend, banded, extended, factor_of, length_of, padding, scalar, scores_of, size_of

MASK = -10000.0
LOWEST = float(np.finfo(np.float32).min)  # of what no query sees, where scores are given


def _causal_past(queries: DimLike, keys: DimLike, past: DimLike) -> DimLike:
    """How many keys a first query sees beside its own; all of them where it is the only one, which no operator masks."""
    return dims.select(dims.eq(queries, 1), dims.dmax(keys - 1, 0), past)


def _result(
    q: Value, k: Value, v: Value, mask: Value | None, scale: float, causal: bool, past: DimLike, dtype: DType, scores: bool = False
) -> tuple[Value, Value | None]:
    """The output [batch, length, heads * size] and, if wanted, the masked scores."""
    factor, reach = factor_of(scale, q), _causal_past(q.shape[2], k.shape[2], past)
    y = cast(heads_last(attend(q, k, v, mask, factor, causal=causal, past=reach)), dtype)
    if not scores:
        return y, None
    full = added(mask, banded(q.shape[2], k.shape[2], scalar(reach), 0, causal, LOWEST))
    return y, cast(scores_of(q, k, full, factor), dtype)


def _turned(x: Value, past: DimLike, dim: int) -> Value:
    """Keys or queries behind ``past`` others, their first ``dim`` features turned by position, base 10000, in halves."""
    size = dim or size_of(x.shape[3], "the head size")
    frequencies = constant((10000.0 ** (-np.arange(0, size, 2) / size)).astype(np.float32))
    places = map_("add", index(1, [1, x.shape[2], 1]), scalar(past))
    angles = map_("mul", cast(places, DType.float32), frequencies)
    return cast(rotated(cast(x, DType.float32), map_("cos", angles), map_("sin", angles), False), x.dtype)


def _packed_past(past: Value | None) -> list[Value | None]:
    """Keys and values of a cache [2, batch, heads, length, size]."""
    return [None, None] if past is None else [reshape(slice_(past, 0, k, 1), past.shape[1:]) for k in (0, 1)]


def _self_attention(
    projected: Value, sizes: Sequence[DimLike], num_heads: int, mask_index: Value | None, past: Value | None,
    attention_bias: Value | None, length: DimLike | None, *,
    filler: float, scale: float, unidirectional: int, rotary: int | None, ctx: Context,
) -> tuple[Value, Value | None]:  # fmt: skip
    """Attention over projections [batch, length, q + k + v] and a cache in one tensor; ``rotary``: features to turn, 0 for all."""
    q, k, v = (heads_first(x, num_heads, "the input") for x in split(projected, 2, sizes))
    past_key, past_value = _packed_past(past)
    before = (0 if past_key is None else past_key.shape[2]) if length is None else length
    if rotary is not None:
        q, k = _turned(q, before, rotary), _turned(k, before, rotary)
    (keys, cached_k), (values, cached_v) = extended(past_key, k, length), extended(past_value, v, length)
    mask = None if attention_bias is None else cast(attention_bias, DType.float32)
    if mask_index is not None:
        mask = added(mask, padding(mask_index, q.shape[0], q.shape[2], keys.shape[2], filler))
    y, _ = _result(q, keys, values, mask, scale, bool(unidirectional), before, projected.dtype)
    return y, concat([unsqueeze(cached_k, [0]), unsqueeze(cached_v, [0])], 0) if ctx.wants(1) else None


def _sizes(total: DimLike, given: Sequence[int] | None) -> list[DimLike]:
    return list(given) if given else [total // 3] * 3


@op(domain=MICROSOFT)
def Attention(
    input: Value, weights: Value, bias: Value | None = None, mask_index: Value | None = None, past: Value | None = None,
    attention_bias: Value | None = None, past_sequence_length: Value | None = None, *,
    do_rotary: int = 0, mask_filter_value: float = MASK, num_heads: int, past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None, rotary_embedding_dim: int = 0, scale: float = 0.0, unidirectional: int = 0, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """Self attention with the projection of queries, keys and values inside; the cache is one tensor."""
    projected = matmul(input, weights)
    projected = projected if bias is None else map_("add", projected, bias)
    length = None
    if past_present_share_buffer:
        if past_sequence_length is None:
            raise IRError("past_present_share_buffer needs the input past_sequence_length")
        length = length_of(past_sequence_length, "past_sequence_length")
    return _self_attention(
        projected, _sizes(weights.shape[1], qkv_hidden_sizes), num_heads, mask_index, past, attention_bias, length,
        filler=mask_filter_value, scale=scale, unidirectional=unidirectional, rotary=rotary_embedding_dim if do_rotary else None, ctx=ctx,
    )  # fmt: skip


@op(domain=MICROSOFT)
def QAttention(
    input: Value, weight: Value, bias: Value, input_scale: Value, weight_scale: Value, mask_index: Value | None = None,
    input_zero_point: Value | None = None, weight_zero_point: Value | None = None, past: Value | None = None, *,
    do_rotary: int = 0, mask_filter_value: float = MASK, num_heads: int, past_present_share_buffer: int = 0, scale: float = 0.0,
    unidirectional: int = 0, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """The same with an 8-bit input and 8-bit weights, whose product is exact before it is scaled."""
    if past_present_share_buffer:
        raise IRError("past_present_share_buffer has no length to go with it here; export the model with a cache that grows")
    product = cast(MatMulInteger(input, weight, input_zero_point, weight_zero_point), DType.float32)
    factor = map_("mul", cast(reshape(input_scale, ()), DType.float32), cast(weight_scale, DType.float32))
    projected = cast(map_("add", map_("mul", product, factor), cast(bias, DType.float32)), bias.dtype)
    return _self_attention(
        projected, _sizes(weight.shape[1], None), num_heads, mask_index, past, None, None,
        filler=mask_filter_value, scale=scale, unidirectional=unidirectional, rotary=0 if do_rotary else None, ctx=ctx,
    )  # fmt: skip


def _unpacked(query: Value, key: Value | None, value: Value | None) -> list[Value]:
    """Queries, keys and values as [batch, length, heads * size], where they came packed [batch, length, heads, 2 or 3, size]."""
    packed = query if key is None else key
    if value is not None and key is not None:
        return [query, key, value]
    if packed.rank != 5:
        raise IRError(f"a packed input must have rank 5, it has {packed.rank}")
    count = size_of(packed.shape[3], "how much is packed")
    batch, length, heads, _, size = packed.shape
    parts = [reshape(slice_(packed, 3, k, 1), [batch, length, heads * size]) for k in range(count)]
    return parts if key is None else [query, *parts]


def _biased(given: list[Value], bias: Value | None) -> list[Value]:
    """With their part of a bias, but for keys and values that come as a cache does."""
    if bias is None:
        return given
    hidden = given[0].shape[2]
    parts = split(bias, 0, [hidden, hidden, bias.shape[0] - hidden * 2])
    return [x if x.rank == 4 else map_("add", x, b) for x, b in zip(given, parts, strict=True)]


@op(domain=MICROSOFT)
def MultiHeadAttention(
    query: Value, key: Value | None = None, value: Value | None = None, bias: Value | None = None, key_padding_mask: Value | None = None,
    attention_bias: Value | None = None, past_key: Value | None = None, past_value: Value | None = None,
    past_sequence_length: Value | None = None, cache_indirection: Value | None = None, *,
    mask_filter_value: float = MASK, num_heads: int, scale: float = 0.0, unidirectional: int = 0, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """Attention over projected [batch, length, heads * size], packed or apart; keys that a padding mask marks 0 weigh little."""
    given = _biased(_unpacked(query, key, value), bias)
    q, k, v = (heads_first(x, num_heads, "an input") for x in given)
    length = None if past_sequence_length is None or past_key is None else length_of(past_sequence_length, "past_sequence_length")
    before = (0 if past_key is None else past_key.shape[2]) if length is None else length
    (keys, cached_k), (values, cached_v) = extended(past_key, k, length), extended(past_value, v, length)
    if cache_indirection is not None:
        keys, values = (_beams(x, cache_indirection) for x in (keys, values))
    mask = None if attention_bias is None else cast(attention_bias, DType.float32)
    if key_padding_mask is not None:
        mask = added(mask, padding(key_padding_mask, q.shape[0], q.shape[2], keys.shape[2], mask_filter_value))
    y, scores = _result(q, keys, values, mask, scale, bool(unidirectional), before, query.dtype, ctx.wants(3))
    return y, cached_k, cached_v, scores


def _beams(x: Value, origin: Value) -> Value:
    """Keys or values [batch * beams, heads, length, size] of the beams that ``origin`` [batch, beams, >= length] names for each token."""
    rows, heads, length, size = x.shape
    batch, beams = origin.shape[:2]
    beam = cast(slice_(origin, 2, 0, length), DType.int64)
    row = map_("add", map_("mul", index(0, [batch, 1, 1]), scalar(beams)), beam)
    row = reshape(row, [rows, 1, length])
    place = map_("add", map_("mul", row, scalar(heads)), index(1, [1, heads, 1]))
    place = map_("add", map_("mul", place, scalar(length)), index(2, [1, 1, length]))
    return Gather(reshape(x, [rows * heads * length, size]), place)  # type: ignore[no-any-return]


@op(domain=MICROSOFT)
def DecoderMaskedMultiHeadAttention(
    query: Value, key: Value | None = None, value: Value | None = None, mask_index: Value | None = None,
    attention_bias: Value | None = None, past_key: Value | None = None, past_value: Value | None = None,
    past_sequence_length: Value | None = None, beam_width: Value | None = None, cache_indirection: Value | None = None,
    bias: Value | None = None, *, mask_filter_value: float = MASK, num_heads: int, output_qk: int = 0,
    past_present_share_buffer: int = 0, scale: float = 0.0, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """One query per row; keys and values are new, packed with it, or a cache of their own (cross attention)."""
    if key is None:
        hidden = query.shape[2] // 3
        query, key, value = split(query, 2, [hidden, hidden, query.shape[2] - hidden * 2])
    length = past_sequence_length if past_present_share_buffer else None
    return MultiHeadAttention(  # type: ignore[no-any-return]
        query, key, value, bias, mask_index, attention_bias, past_key, past_value, length,
        cache_indirection if beam_width is not None or cache_indirection is not None else None,
        mask_filter_value=mask_filter_value, num_heads=num_heads, scale=scale, ctx=ctx,
    )  # fmt: skip


@op(domain=MICROSOFT)
def DecoderMaskedSelfAttention(
    input: Value, weights: Value, bias: Value, mask_index: Value | None = None, past: Value | None = None,
    attention_bias: Value | None = None, past_sequence_length: Value | None = None, beam_width: Value | None = None,
    cache_indirection: Value | None = None, *, do_rotary: int = 0, mask_filter_value: float = MASK, num_heads: int,
    past_present_share_buffer: int = 0, scale: float = 0.0, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """Attention for one query per row; its beams are refused, which reorder the cache in a layout of CUDA's own."""
    if cache_indirection is not None:
        raise IRError("cache_indirection is not supported; export the decoder for greedy search, or without beam search inside")
    return Attention(  # type: ignore[no-any-return]
        input, weights, bias, mask_index, past, attention_bias, past_sequence_length, do_rotary=do_rotary,
        mask_filter_value=mask_filter_value, num_heads=num_heads, past_present_share_buffer=past_present_share_buffer, scale=scale, ctx=ctx,
    )  # fmt: skip


def _offsets(token_offset: Value) -> Value:
    return cast(reshape(token_offset, [token_offset.size]), DType.int64)


def _tokens(cumulative: Value, batch: DimLike) -> Value:
    """int64 [batch, 1, 1, 1]: how many tokens each row has."""
    wide = cast(cumulative, DType.int64)
    lengths = map_("sub", slice_(wide, 0, 1, batch), slice_(wide, 0, 0, batch))
    return reshape(lengths, [batch, 1, 1, 1])


def _spread(packed: Value, token_offset: Value) -> Value:
    """[tokens, hidden] as [batch, length, hidden] with zeros in padding: row i of it goes where the i-th offset says."""
    from ..gather import ScatterElements

    batch, length = token_offset.shape
    count, offsets = packed.shape[0], _offsets(token_offset)
    origin = ScatterElements(map_("mul", index(0, [batch * length]), constant(np.int64(0))), offsets, index(0, [batch * length]))
    rows = Gather(packed, map_("min", origin, map_("max", scalar(count - 1), constant(np.int64(0)))))
    full = map_("where", unsqueeze(map_("lt", origin, scalar(count)), [1]), rows, like(rows, 0))
    return reshape(full, [batch, length, packed.shape[1]])


def _gathered(full: Value, token_offset: Value, count: DimLike) -> Value:
    """The tokens of [batch, length, hidden] without padding."""
    rows = reshape(full, [full.shape[0] * full.shape[1], full.shape[2]])
    return Gather(rows, slice_(_offsets(token_offset), 0, 0, count))  # type: ignore[no-any-return]


def _packed(
    given: list[Value], token_offset: Value, cumulative: Value, attention_bias: Value | None, num_heads: int, scale: float
) -> Value:
    """Attention of tokens [count, hidden] within the rows that they come from."""
    count, dtype = given[0].shape[0], given[0].dtype
    batch, length = token_offset.shape
    q, k, v = (heads_first(_spread(x, token_offset), num_heads, "an input") for x in given)
    mask = allowed(map_("lt", index(3, [1, 1, 1, length]), _tokens(cumulative, batch)))
    mask = mask if attention_bias is None else map_("add", mask, cast(attention_bias, DType.float32))
    y = heads_last(attend(q, k, v, mask, factor_of(scale, q)))
    return cast(_gathered(y, token_offset, count), dtype)


@op(domain=MICROSOFT)
def PackedAttention(
    input: Value, weights: Value, bias: Value, token_offset: Value, cumulative_sequence_length: Value,
    attention_bias: Value | None = None, *, num_heads: int, qkv_hidden_sizes: Sequence[int] | None = None, scale: float = 0.0,
) -> Value:  # fmt: skip
    """Attention over tokens [count, hidden] without padding; ``token_offset`` says where each lies in [batch, length]."""
    projected = map_("add", matmul(input, weights), bias)
    parts = split(projected, 1, _sizes(weights.shape[1], qkv_hidden_sizes))
    return _packed(parts, token_offset, cumulative_sequence_length, attention_bias, num_heads, scale)


@op(domain=MICROSOFT)
def PackedMultiHeadAttention(
    query: Value, key: Value | None, value: Value | None, bias: Value | None, token_offset: Value, cumulative_sequence_length: Value,
    attention_bias: Value | None = None, *, mask_filter_value: float = MASK, num_heads: int, scale: float = 0.0,
) -> Value:  # fmt: skip
    """The same over projected tokens, apart or packed [count, heads, 3, size]."""
    given = [query, key, value]
    if key is None or value is None:
        count, heads, _, size = query.shape
        given = [reshape(slice_(query, 2, k, 1), [count, heads * size]) for k in range(3)]
    parts = [x for x in given if x is not None]
    if bias is not None:
        hidden = parts[0].shape[1]
        pieces = split(bias, 0, [hidden, hidden, bias.shape[0] - hidden * 2])
        parts = [map_("add", x, b) for x, b in zip(parts, pieces, strict=True)]
    return _packed(parts, token_offset, cumulative_sequence_length, attention_bias, num_heads, scale)


@op(domain=MICROSOFT)
def RestorePadding(input: Value, token_offset: Value) -> Value:
    """[tokens, hidden] back in [batch, length, hidden], zeros in padding."""
    return _spread(input, token_offset)
