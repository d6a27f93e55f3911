"""Rotary positions of com.microsoft: tables of cosines and sines by position (Su et al., RoFormer)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value
from ...ir.dims import DimLike
from ...registry import op
from ...tensor import HALVES, cast, constant, index, map_, reshape, slice_, transpose, unsqueeze
from ..gather import Gather
from ..rotary import rotated
from ..transformer import heads_last
from . import MICROSOFT


def heads_of(x: Value, heads: int, size: DimLike) -> Value:
    """[batch, length, hidden] or [batch, heads, length, size] as the latter; one of ``heads`` and ``size`` may be 0."""
    if x.rank == 4:
        return x
    if x.rank != 3:
        raise IRError(f"the input must have rank 3 or 4, it has {x.rank}")
    hidden = x.shape[2]
    if not heads and isinstance(size, int) and size and isinstance(hidden, int):
        heads = hidden // size
    if not heads:
        raise IRError("num_heads must be given: the sizes of the input and of cos_cache are not known when the model is compiled")
    return transpose(reshape(x, [x.shape[0], x.shape[1], heads, hidden // heads]), [0, 2, 1, 3])


def _pairs(cache: Value, dim: int) -> DimLike:
    return dim // 2 if dim else cache.shape[-1]


@op("RotaryEmbedding", domain=MICROSOFT)
def RotaryEmbedding_ms(
    input: Value, position_ids: Value, cos_cache: Value, sin_cache: Value, *,
    interleaved: int = 0, is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Value:  # fmt: skip
    """Positions are [batch, length], or one, that of the first token; ``scale`` and packed batching change nothing here:
    the one lies in the caches already, the other is how the tokens of a batch were put in rows."""
    pairs = _pairs(cos_cache, rotary_embedding_dim)
    wide = DType.float32 if input.dtype in HALVES else input.dtype
    x = cast(heads_of(input, num_heads, 0 if rotary_embedding_dim else pairs * 2), wide)
    length = x.shape[2]
    at = position_ids
    if position_ids.rank < 2:
        at = map_("add", reshape(position_ids, [1, 1]), index(1, [1, length]))
    cos, sin = (cast(Gather(c, at), wide) for c in (cos_cache, sin_cache))
    y = rotated(x, cos, sin, bool(interleaved))
    return cast(heads_last(y) if input.rank == 3 else y, input.dtype)


@op(domain=MICROSOFT)
def MRotaryEmbedding(
    input: Value, position_ids: Value, cos_cache: Value, sin_cache: Value, *, interleaved: int = 0, is_packed_batching: int = 0,
    mrope_layout: int = 0, mrope_section: Sequence[int], num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Value:  # fmt: skip
    """Three positions per token, [3, batch, length] by time, height and width: each turns its section of the pairs."""
    pairs = _pairs(cos_cache, rotary_embedding_dim)
    if not isinstance(pairs, int):
        raise IRError(f"the width of cos_cache must be known when the model is compiled, it is {pairs}; give rotary_embedding_dim")
    if len(mrope_section) != 3 or sum(mrope_section) != pairs:
        raise IRError(f"mrope_section {list(mrope_section)} must be three sizes that add up to {pairs} pairs")
    owner = [k for k, size in enumerate(mrope_section) for _ in range(size)]
    if mrope_layout:
        owner = [k if k and at < mrope_section[k] * 3 else 0 for at, k in ((at, at % 3) for at in range(pairs))]
    wide = DType.float32 if input.dtype in HALVES else input.dtype
    x = cast(heads_of(input, num_heads, 0 if rotary_embedding_dim else pairs * 2), wide)

    def angles(cache: Value) -> Value:
        rows = cast(Gather(cache, position_ids), wide)
        chosen = reshape(slice_(rows, 0, 0, 1), rows.shape[1:])
        for k in (1, 2):
            mine = constant(np.array([o == k for o in owner]))
            chosen = map_("where", mine, reshape(slice_(rows, 0, k, 1), rows.shape[1:]), chosen)
        return chosen

    y = rotated(x, angles(cos_cache), angles(sin_cache), bool(interleaved))
    return cast(heads_last(y) if input.rank == 3 else y, input.dtype)


@op(domain=MICROSOFT)
def GemmaRotaryEmbedding(emb: Value, q: Value, q_rot: Value, k: Value, k_rot: Value) -> tuple[Value, Value]:
    """q and k turned by the angles ``emb`` [batch, length, size]; the rotated halves come as inputs."""
    cos, sin = (unsqueeze(cast(map_(f, emb), q.dtype), [1]) for f in ("cos", "sin"))

    def turned(x: Value, rotated_half: Value) -> Value:
        return map_("add", map_("mul", x, cos), map_("mul", rotated_half, sin))

    return turned(q, q_rot), turned(k, k_rot)
