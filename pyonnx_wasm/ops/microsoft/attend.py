"""What the attention operators of com.microsoft share: masks of all kinds, caches, sinks, scores as an output."""

from __future__ import annotations

import math

import numpy as np

from ...dtypes import DType
from ...ir import Graph, IRError, Value, dims
from ...ir.dims import DimLike
from ...tensor import (
    broadcast_to,
    cast,
    concat,
    constant,
    contiguous,
    dims_of,
    fill,
    index,
    like,
    literal,
    map_,
    reshape,
    slice_,
    swap,
    unsqueeze,
)
from ..attention import attention
from ..matmul import matmul
from ..normalization import softmax

WIDE = DType.float32


def size_of(size: DimLike, what: str) -> int:
    """A size that must be a number when the model is compiled."""
    if not isinstance(size, int):
        raise IRError(f"{what} must be known when the model is compiled, it is {size}; give the input's shape, or the sizes as attributes")
    return size


def factor_of(scale: float, q: Value) -> float:
    """The scale of the scores: as given, else one over the root of the head size."""
    return scale or 1 / math.sqrt(size_of(q.shape[3], "the head size"))


def added(a: Value | None, b: Value | None) -> Value | None:
    """The sum of what is given."""
    return b if a is None else a if b is None else map_("add", a, b)


def allowed(keep: Value, filler: float = -math.inf) -> Value:
    """float32: 0 where a key is seen, else the filler."""
    return map_("where", keep, fill((), 0, WIDE), fill((), filler, WIDE))


def scalar(size: DimLike) -> Value:
    """int64 scalar of a size."""
    return reshape(literal([size]), ())


def length_of(x: Value, what: str) -> DimLike:
    """The single number of an integer tensor, as a size."""
    found = dims_of(x, what)
    if len(found) != 1:
        raise IRError(f"{what} must hold one number, it holds {len(found)}")
    if dims.ge(found[0], 0) != 1:
        Graph.current().check(dims.ge(found[0], 0), f"{what} is negative")
    return found[0]


def padding(mask: Value, batch: DimLike, queries: DimLike, keys: DimLike, filler: float) -> Value:
    """What a key padding mask adds to scores: float32, broadcast to [batch, heads, queries, keys].

    Args:
        mask: integers: [batch, keys] or [batch, queries, keys], 0 for what is hidden; [batch, 1, m, m], whose last rows and first
            columns hold; [batch], where the keys of each row end; [2 * batch], where they end and then where they begin;
            [3 * batch + 2], lengths of the keys and then sums of lengths.
        filler: what is added where a key is hidden.
    """
    if mask.rank == 1:
        each = reshape(slice_(mask, 0, 0, batch), [batch, 1, 1, 1])
        both = dims.eq(mask.shape[0], batch * 2)
        first = slice_(mask, 0, dims.select(both, batch, 0), batch)
        begin = map_("mul", reshape(cast(first, DType.int64), [batch, 1, 1, 1]), scalar(both))
        at = index(3, [1, 1, 1, keys])
        return allowed(map_("and", map_("le", begin, at), map_("lt", at, cast(each, DType.int64))), filler)
    if mask.rank == 4:
        rows = slice_(mask, 2, dims.dmax(keys - queries, 0), queries)
        mask = slice_(rows, 3, 0, keys)
    elif mask.rank in (2, 3):
        mask = unsqueeze(mask, [1, 2] if mask.rank == 2 else [1])
    else:
        raise IRError(f"a mask of rank {mask.rank} is not supported (1 to 4 are)")
    kept = mask if mask.dtype is DType.bool else map_("lt", like(mask, 0), mask)
    return allowed(kept, filler)


def banded(queries: DimLike, keys: DimLike, past: Value, window: int, causal: bool, filler: float = -math.inf) -> Value | None:
    """A causal mask and one of a window of keys up to each query, for a past that may differ from row to row (int64, [batch, 1, 1, 1])."""
    if not causal and window <= 0:
        return None
    at, place = index(3, [1, 1, 1, keys]), map_("add", index(2, [1, 1, queries, 1]), past)
    kept = map_("le", at, place) if causal else None
    if window > 0:
        near = map_("lt", map_("sub", place, at), constant(np.int64(window)))
        kept = near if kept is None else map_("and", kept, near)
    assert kept is not None
    return allowed(kept, filler)


def extended(past: Value | None, new: Value, length: DimLike | None = None) -> tuple[Value, Value]:
    """A cache [batch, heads, keys, size] with new keys behind it: all keys, and the cache that the next call gets.

    ``length`` is of what the cache holds where it is a buffer of a fixed capacity; it is written within that then.
    """
    if past is None:
        return new, new
    past = cast(past, new.dtype)
    if length is None:
        both = concat([past, new], 2)
        return both, both
    end = length + new.shape[2]
    room = past.shape[2] - end
    full = concat([slice_(past, 2, 0, length), new, slice_(past, 2, end, room)], 2)
    return slice_(full, 2, 0, end), full


def attend(
    q: Value, k: Value, v: Value, mask: Value | None, factor: float, *,
    rep: int = 1, causal: bool = False, past: DimLike = 0, softcap: float = 0.0, sink: Value | None = None,
) -> Value:  # fmt: skip
    """softmax(softcap(factor * q k^T) + mask) v in float32: [batch, heads, queries, size].

    Args:
        q, k, v: [batch, heads, length, size]; ``rep`` heads of q share one of k and v.
        mask: float32, broadcast to the scores.
        sink: float32 [heads]: a score that takes part in the softmax and gives nothing.
    """
    q, k, v = (cast(x, WIDE) for x in (q, k, v))
    if sink is not None:  # a key of zeros, in front: where a causal mask never hides it
        k, v = (concat([fill([*x.shape[:2], 1, x.shape[3]], 0, WIDE), x], 2) for x in (k, v))
        keys, past = k.shape[2], past + 1
        first = map_("eq", index(3, [1, 1, 1, keys]), constant(np.int64(0)))
        scores = map_("where", first, reshape(sink, [1, sink.size, 1, 1]), fill((), 0, WIDE))
        if mask is not None:
            mask = concat([fill([*mask.shape[:3], 1], 0, WIDE), contiguous(mask)], 3)
        mask = added(mask, scores)
    q, v = (x if x.strides[3] == 1 else contiguous(x) for x in (q, v))
    spread = None if mask is None else broadcast_to(mask, [*q.shape[:3], k.shape[2]])
    return attention(q, k, v, spread, factor, rep=rep, causal=causal, past=past, softcap=softcap)


def scores_of(q: Value, k: Value, mask: Value | None, factor: float, *, rep: int = 1, softcap: float = 0.0) -> Value:
    """What softmax takes in :func:`attend`: float32 [batch, heads, queries, keys]."""
    batch, heads, rows, size = q.shape
    grouped = reshape(cast(q, WIDE), [batch, size_of(heads, "the number of heads") // rep, rep, rows, size])
    product = matmul(grouped, swap(unsqueeze(cast(k, WIDE), [2]), 3, 4), factor)
    scores = reshape(product, [batch, heads, rows, k.shape[2]])
    if softcap > 0:
        scores = map_("mul", map_("tanh", map_("div", scores, like(scores, softcap))), like(scores, softcap))
    return scores if mask is None else map_("add", scores, broadcast_to(mask, scores.shape))


def weights_of(scores: Value, sink: Value | None) -> Value:
    """Softmax over keys, and over a sink that takes its share where there is one."""
    if sink is None:
        return softmax(scores, 3)
    share = broadcast_to(reshape(sink, [1, sink.size, 1, 1]), [*scores.shape[:3], 1])
    both = softmax(concat([share, scores], 3), 3)
    return slice_(both, 3, 1, scores.shape[3])
