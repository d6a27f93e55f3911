"""Attention of decoders, where several heads of queries share one of keys, over a cache of a row's own length (com.microsoft)."""

from __future__ import annotations

import numpy as np

from ...dtypes import DType
from ...ir import Graph, IRError, Value, dims
from ...ir.dims import DimLike
from ...registry import Context, op
from ...tensor import broadcast_to, cast, concat, constant, fill, index, like, map_, reshape, slice_, transpose, unsqueeze
from ..gather import Gather
from ..normalization import rms_norm
from ..rotary import rotated
from ..transformer import heads_last
from . import MICROSOFT
from .attend import added, attend, banded, factor_of, length_of, scalar, scores_of, size_of, weights_of

WIDE = DType.float32


def _heads(x: Value, heads: int) -> Value:
    return transpose(reshape(x, [x.shape[0], x.shape[1], heads, x.shape[2] // heads]), [0, 2, 1, 3])


def projected(query: Value, key: Value | None, value: Value | None, heads: int, kv_heads: int) -> list[Value]:
    """Queries, keys and values [batch, heads, length, size]; without key and value they lie in ``query``, one behind the other."""
    if key is not None and value is not None:
        return [_heads(query, heads), _heads(key, kv_heads), _heads(value, kv_heads)]
    together = _heads(query, heads + 2 * kv_heads)
    starts = ((0, heads), (heads, kv_heads), (heads + kv_heads, kv_heads))
    return [slice_(together, 1, start, count) for start, count in starts]


class Cache:
    """How the rows of a batch lie in a cache whose lengths are data.

    Attributes:
        total: keys of the longest row, new ones included.
        before: int64 [batch, 1, 1, 1]: keys of each row before the new ones.
        past: the same as one size where the batch is known to be a single row, else None.
        capacity: of the cache that is given back.
    """

    def __init__(self, past: Value | None, lengths: Value, total: Value, batch: DimLike, queries: DimLike) -> None:
        self.queries, self.held = queries, 0 if past is None else past.shape[2]
        self.total = length_of(total, "total_sequence_length")
        self.capacity = dims.dmax(self.held, self.total)
        first = dims.eq(self.total, queries)  # a prompt: rows begin at 0, however long they are
        ends = map_("add", reshape(cast(lengths, DType.int64), [batch, 1, 1, 1]), constant(np.int64(1)))
        before = map_("mul", map_("sub", ends, scalar(queries)), scalar(1 - first))
        self.before = map_("clamp", before, constant(np.int64(0)), scalar(dims.dmax(self.total - queries, 0)))
        self.past: DimLike | None = self.total - queries if batch == 1 else None
        fits = dims.ge(self.total, queries)
        if fits != 1:
            Graph.current().check(fits, f"total_sequence_length {self.total} is less than the {queries} new tokens")
        enough = dims.ge(self.held + queries, self.total)
        if enough != 1:
            Graph.current().check(enough, f"the cache holds {self.held} keys, {self.total - queries} are needed")

    def joined(self, past: Value | None, new: Value) -> Value:
        """The cache with the new keys behind each row's own, zeros beyond: [batch, heads, capacity, size]."""
        batch, heads, _, size = new.shape
        if self.past is not None:
            parts = [new] if past is None else [slice_(past, 2, 0, self.past), new]
            return concat([*parts, fill([batch, heads, self.capacity - self.total, size], 0, new.dtype)], 2)
        parts = ([] if past is None else [past]) + [new, fill([batch, heads, 1, size], 0, new.dtype)]
        both, none = concat(parts, 2), scalar(self.held + self.queries)
        at, end = index(2, [1, 1, self.capacity]), reshape(self.before, [batch, 1, 1])
        step = map_("sub", at, end)
        fresh = map_("where", map_("lt", step, scalar(self.queries)), map_("add", step, scalar(self.held)), none)
        row = map_("where", map_("lt", at, end), at, fresh)
        head = map_("add", map_("mul", index(0, [batch, heads, 1]), constant(np.int64(heads))), index(1, [batch, heads, 1]))
        place = map_("add", map_("mul", head, scalar(both.shape[2])), row)
        flat = reshape(both, [batch * heads * both.shape[2], size])
        return reshape(Gather(flat, place), [batch, heads, self.capacity, size])

    def mask(self, window: int, causal: bool) -> Value | None:
        return banded(self.queries, self.total, self.before, window, causal)


def _normed(x: Value, weight: Value, epsilon: float) -> Value:
    return cast(rms_norm(cast(x, WIDE), 3, epsilon, cast(weight, WIDE)), x.dtype)


def turned(x: Value, cos: Value | None, sin: Value | None, at: Value, interleaved: bool) -> Value:
    if cos is None or sin is None:
        raise IRError("do_rotary needs the inputs cos_cache and sin_cache")
    angles = [cast(Gather(c, at), WIDE) for c in (cos, sin)]
    return cast(rotated(cast(x, WIDE), angles[0], angles[1], interleaved), x.dtype)


def _sink(head_sink: Value | None, smooth: int, heads: int) -> Value | None:
    if head_sink is not None:
        return cast(reshape(head_sink, [heads]), WIDE)
    return fill([heads], 0, WIDE) if smooth == 1 else None


def shared_by(heads: int, kv_heads: int) -> int:
    if kv_heads < 1 or heads % kv_heads:
        raise IRError(f"num_heads {heads} must be a multiple of kv_num_heads {kv_heads}")
    return heads // kv_heads


@op(domain=MICROSOFT)
def GroupQueryAttention(
    query: Value, key: Value | None = None, value: Value | None = None, past_key: Value | None = None, past_value: Value | None = None,
    seqlens_k: Value | None = None, total_sequence_length: Value | None = None, cos_cache: Value | None = None,
    sin_cache: Value | None = None, position_ids: Value | None = None, attention_bias: Value | None = None,
    head_sink: Value | None = None, k_scale: Value | None = None, v_scale: Value | None = None, q_norm_weight: Value | None = None,
    k_norm_weight: Value | None = None, *,
    causal: int = 1, do_rotary: int = 0, k_quant_type: str = "NONE", kv_cache_bit_width: int = 0, kv_num_heads: int,
    local_window_size: int = -1, num_heads: int, qk_norm_epsilon: float = 1e-6, qk_output: int = 0, rotary_interleaved: int = 0,
    scale: float = 0.0, sliding_window_cache: int = 0, smooth_softmax: int = -1, softcap: float = 0.0, v_quant_type: str = "NONE",
    ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """Causal attention; ``seqlens_k`` holds the last position of each row, the cache keys up to it and room behind.

    The given cache may be as long as what it holds, or a buffer: what comes back is as long as the longer of it and the longest row.
    """
    if seqlens_k is None or total_sequence_length is None:
        raise IRError("the inputs seqlens_k and total_sequence_length are needed")
    if sliding_window_cache:
        raise IRError("sliding_window_cache is not supported; export the model with a cache of the whole sequence")
    rep = shared_by(num_heads, kv_num_heads)
    q, k, v = projected(query, key, value, num_heads, kv_num_heads)
    batch, _, length, _ = q.shape
    if q_norm_weight is not None and k_norm_weight is not None:
        q, k = _normed(q, q_norm_weight, qk_norm_epsilon), _normed(k, k_norm_weight, qk_norm_epsilon)
    cache = Cache(past_key, seqlens_k, total_sequence_length, batch, length)
    if do_rotary:
        at = position_ids
        if at is None:
            at = map_("add", index(1, [1, length]), reshape(cache.before, [batch, 1]))
        q, k = (turned(x, cos_cache, sin_cache, at, bool(rotary_interleaved)) for x in (q, k))
    quantised = past_key is not None and past_key.dtype.bits == 8
    stores = [
        Store(past_key, k_scale, k_quant_type, kv_cache_bit_width, k), Store(past_value, v_scale, v_quant_type, kv_cache_bit_width, v)
    ] if quantised else []  # fmt: skip
    if stores:
        present_key, present_value = (cache.joined(s.past, s.packed()) for s in stores)
        keys, values = (s.opened(slice_(p, 2, 0, cache.total)) for s, p in zip(stores, (present_key, present_value), strict=True))
    else:
        present_key, present_value = cache.joined(past_key, k), cache.joined(past_value, v)
        keys, values = (slice_(p, 2, 0, cache.total) for p in (present_key, present_value))
    bias = None if attention_bias is None else cast(attention_bias, WIDE)
    bias = None if bias is None else slice_(bias, 3, 0, cache.total)
    sink, factor = _sink(head_sink, smooth_softmax, num_heads), factor_of(scale, q)
    inside = cache.past is not None and bool(causal)
    mask = added(bias, cache.mask(local_window_size, bool(causal) and not inside))
    y = attend(
        q, keys, values, mask, factor, rep=rep, causal=inside, past=0 if cache.past is None else cache.past, softcap=softcap, sink=sink
    )
    scores = None
    if ctx.wants(3) and qk_output:
        scores = scores_of(q, keys, added(bias, cache.mask(local_window_size, bool(causal))), factor, rep=rep, softcap=softcap)
        scores = cast(weights_of(scores, sink) if qk_output == 2 else scores, query.dtype)
    return cast(heads_last(y), query.dtype), present_key, present_value, scores


class Store:
    """A cache of 8 or 4 bits per element, with a scale for all or one per head and feature."""

    def __init__(self, past: Value | None, scale: Value | None, kind: str, bits: int, new: Value) -> None:
        assert past is not None
        if kind == "NONE" or scale is None or past.dtype.is_float:
            raise IRError(f"a cache of {past.dtype.name} needs k_scale and v_scale, k_quant_type and v_quant_type, and integers")
        self.past, self.new, self.four = past, new, bits == 4 and past.dtype is DType.uint8
        self.size = size_of(new.shape[3], "the head size")
        wide = cast(scale, WIDE)
        self.scale = reshape(wide, ()) if kind == "PER_TENSOR" else reshape(wide, [1, new.shape[1], 1, self.size])

    def packed(self) -> Value:
        """The new keys as the cache holds them."""
        q = map_("round", map_("div", cast(self.new, WIDE), self.scale))
        if not self.four:
            low = -128 if self.past.dtype is DType.int8 else 0
            q = q if low else map_("add", q, like(q, 128))
            return cast(map_("clamp", q, like(q, low), like(q, low + 255)), self.past.dtype)
        codes = cast(map_("add", map_("clamp", q, like(q, -8), like(q, 7)), like(q, 8)), DType.uint8)
        low_half, high_half = (slice_(codes, 3, start, (self.size + 1 - start) // 2, 2) for start in (0, 1))
        if self.size % 2:
            high_half = concat([high_half, fill([*codes.shape[:3], 1], 8, DType.uint8)], 3)
        return map_("bitor", low_half, map_("shl", high_half, constant(np.uint8(4))))

    def opened(self, cached: Value) -> Value:
        """Keys of the cache as float32."""
        if not self.four:
            codes = cast(cached, WIDE)
            codes = codes if self.past.dtype is DType.int8 else map_("sub", codes, like(codes, 128))
            return map_("mul", codes, self.scale)
        shape = [*cached.shape, 2]
        shift = cast(map_("mul", index(4, shape), constant(np.int64(4))), DType.uint8)
        both = map_("bitand", map_("shr", broadcast_to(unsqueeze(cached, [4]), shape), shift), constant(np.uint8(15)))
        codes = slice_(reshape(both, [*cached.shape[:3], cached.shape[3] * 2]), 3, 0, self.size)
        return map_("mul", map_("sub", cast(codes, WIDE), constant(np.float32(8))), self.scale)
