"""Attention over blocks of keys that a table leaves (Phi-3-small), and products with sparse matrices."""

from __future__ import annotations

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value
from ...registry import op
from ...tensor import cast, constant, fill, index, map_, reduce, reshape, slice_, swap, unsqueeze
from ..gather import Gather, ScatterElements
from ..matmul import matmul
from ..transformer import heads_last
from . import MICROSOFT
from .attend import added, allowed, attend, factor_of, scalar
from .grouped import Cache, projected, shared_by, turned

WIDE = DType.int64
LOWEST = float(np.finfo(np.float32).min)


def _number(value: int) -> Value:
    return constant(np.int64(value))


@op(domain=MICROSOFT)
def SparseToDenseMatMul(A: Value, B: Value, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> Value:
    """A sparse matrix, which a session takes densified, times a dense one; ``alpha`` is for float32 alone, as onnxruntime has it."""
    if A.rank != 2 or B.rank != 2:
        raise IRError(f"matrices are multiplied, not tensors of rank {A.rank} and {B.rank}")
    a, b = swap(A, 0, 1) if transA else A, swap(B, 0, 1) if transB else B
    return matmul(a, b, alpha if A.dtype is DType.float32 else 1.0)


def _blocks(rows: Value, columns: Value) -> Value:
    """bool [layouts, blocks, blocks] of where each row's blocks begin, [layouts, blocks + 1], and their columns [layouts, n]."""
    layouts, count, n = rows.shape[0], rows.shape[1] - 1, columns.shape[1]
    begins, column = cast(rows, WIDE), cast(columns, WIDE)
    ends = slice_(begins, 1, 1, count)
    at = index(2, [1, 1, n])
    row = reduce("sum", cast(map_("le", unsqueeze(ends, [2]), at), WIDE), [1])
    total = slice_(begins, 1, count, 1)
    real = map_("and", map_("lt", index(1, [1, n]), total), map_("le", _number(0), column))
    place = map_("where", real, map_("add", map_("mul", row, scalar(count)), column), scalar(count * count))
    table = fill([layouts, count * count + 1], 0, DType.int32)
    found = ScatterElements(table, place, fill([layouts, n], 1, DType.int32), axis=1)
    found = map_("eq", reshape(slice_(found, 1, 0, count * count), [layouts, count, count]), constant(np.int32(1)))
    each = map_("eq", map_("sub", ends, slice_(begins, 1, 0, count)), map_("add", index(1, [1, count]), _number(1)))
    every = map_("le", scalar(count * (count + 1) // 2), total)
    return map_("or", found, unsqueeze(map_("or", each, every), [2]))


@op(domain=MICROSOFT)
def SparseAttention(
    query: Value, key: Value | None, value: Value | None, past_key: Value, past_value: Value, block_row_indices: Value,
    block_col_indices: Value, total_sequence_length: Value, key_total_sequence_lengths: Value, cos_cache: Value | None = None,
    sin_cache: Value | None = None, *,
    do_rotary: int = 0, kv_num_heads: int, num_heads: int, rotary_interleaved: int = 0, scale: float = 0.0, sparse_block_size: int,
) -> tuple[Value, ...]:  # fmt: skip
    """Causal attention where each block of queries sees the blocks of keys that its layout names; heads take the layouts in turn.

    A row of the layout that names as many blocks as lie before its own one sees all of them, as onnxruntime has it.
    """
    rep = shared_by(num_heads, kv_num_heads)
    q, k, v = projected(query, key, value, num_heads, kv_num_heads)
    batch, _, length, _ = q.shape
    last = map_("sub", cast(key_total_sequence_lengths, WIDE), _number(1))
    cache = Cache(past_key, last, total_sequence_length, batch, length)
    if do_rotary:
        at = map_("add", index(1, [1, length]), reshape(cache.before, [batch, 1]))
        q, k = (turned(x, cos_cache, sin_cache, at, bool(rotary_interleaved)) for x in (q, k))
    present_key, present_value = cache.joined(past_key, k), cache.joined(past_value, v)
    keys, values = (slice_(p, 2, 0, cache.total) for p in (present_key, present_value))
    seen = _seen(_blocks(block_row_indices, block_col_indices), cache, num_heads, sparse_block_size)
    y = attend(q, keys, values, added(seen, cache.mask(-1, True)), factor_of(scale, q), rep=rep)
    return cast(heads_last(y), query.dtype), present_key, present_value


def _seen(blocks: Value, cache: Cache, heads: int, size: int) -> Value:
    """What is added to scores: float32 [batch, heads, queries, keys]."""
    layouts, count = blocks.shape[0], blocks.shape[1]
    place = map_("div", map_("add", index(2, [1, 1, cache.queries, 1]), cache.before), _number(size))
    layout = map_("mod", index(1, [1, heads, 1, 1]), scalar(layouts))
    column = map_("div", index(3, [1, 1, 1, cache.total]), _number(size))
    row = map_("add", map_("mul", layout, scalar(count)), place)
    flat = map_("add", map_("mul", row, scalar(count)), column)
    return allowed(Gather(reshape(blocks, [blocks.size]), flat), LOWEST)
