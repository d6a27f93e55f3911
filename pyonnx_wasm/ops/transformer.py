"""Attention and what surrounds it in language models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Value, dims
from ..ir.dims import DimLike
from ..registry import Context, op
from ..tensor import (
    axis_of,
    broadcast_to,
    cast,
    concat,
    constant,
    contiguous,
    fill,
    index,
    like,
    literal,
    map_,
    reduce,
    reshape,
    slice_,
    squeeze,
    swap,
    transpose,
    unsqueeze,
)
from .attention import attention
from .control import subgraph
from .gather import GatherElements
from .loops import run_steps
from .matmul import matmul
from .normalization import softmax
from .shape import pad


def heads_first(x: Value, heads: int | None, what: str) -> Value:
    """[batch, heads, length, size] as it is; [batch, length, heads * size] as a view of it."""
    if x.rank == 4:
        return x
    if x.rank != 3 or not heads:
        raise IRError(f"{what} must have rank 4, or rank 3 with the number of heads as an attribute")
    return transpose(reshape(x, [x.shape[0], x.shape[1], heads, x.shape[2] // heads]), [0, 2, 1, 3])


def heads_last(x: Value) -> Value:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    y = transpose(x, [0, 2, 1, 3])
    return reshape(y, [y.shape[0], y.shape[1], y.shape[2] * y.shape[3]])


@op()
def Attention(
    Q: Value,
    K: Value,
    V: Value,
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    nonpad_kv_seqlen: Value | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    ctx: Context,
) -> tuple[Value, ...]:
    """Scaled dot-product attention; one fused kernel unless the scores are wanted or the data is float64."""
    q, k, v = (heads_first(x, n, w) for x, n, w in ((Q, q_num_heads, "Q"), (K, kv_num_heads, "K"), (V, kv_num_heads, "V")))
    past: DimLike = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = concat([past_key, k], 2), concat([past_value, v], 2)
    present = (k, v)
    factor = 1 / math.sqrt(_known(q.shape[3], "the head size")) if scale is None else scale
    if softmax_precision not in (None, DType.float32, DType.float64, Q.dtype):
        raise IRError(f"softmax_precision {softmax_precision} is not supported (1 and 11, float32 and float64, and the type of Q are)")
    wide = DType.float64 if DType.float64 in (Q.dtype, softmax_precision) else DType.float32
    q, k, v = (cast(x, wide) for x in (q, k, v))
    rep = _known(q.shape[1], "the number of heads") // _known(k.shape[1], "the number of heads")
    sizes = (q.shape[2], k.shape[2])
    offset = _offset(past, nonpad_kv_seqlen, q.shape[2])
    bias = _mask_bias(attn_mask, sizes[1], wide)
    windowed = left_window_size >= 0 or right_window_size >= 0
    fused = wide is DType.float32 and not ctx.wants(3)
    causal_inside = bool(is_causal) and fused and nonpad_kv_seqlen is None
    if (is_causal and not causal_inside) or windowed:
        right = 0 if is_causal and not causal_inside else right_window_size
        bias = _plus(bias, _band(sizes, offset, left_window_size, right, wide))
    if nonpad_kv_seqlen is not None:
        length = reshape(cast(nonpad_kv_seqlen, DType.int64), [nonpad_kv_seqlen.size, 1, 1, 1])
        bias = _plus(bias, _bias(map_("lt", index(3, [1, 1, 1, sizes[1]]), length), wide))
    if fused:
        mask = None if bias is None else broadcast_to(bias, [*q.shape[:3], sizes[1]])
        q, v = (x if x.strides[3] == 1 else contiguous(x) for x in (q, v))
        y = attention(q, k, v, mask, factor, rep=rep, causal=causal_inside, past=past, softcap=softcap)
        scores: tuple[Value, ...] = ()
    else:
        y, kept = _unfused(q, k, v, bias, factor, rep, softcap, qk_matmul_output_mode)
        scores = (cast(kept, Q.dtype),)
    y = cast(y, Q.dtype)
    return (heads_last(y) if Q.rank == 3 else y, *present, *scores)


def _known(size: DimLike, what: str) -> int:
    if not isinstance(size, int):
        raise IRError(f"{what} must be known when the model is compiled, it is {size}")
    return size


def _plus(a: Value | None, b: Value) -> Value:
    return b if a is None else map_("add", a, b)


def _bias(allowed: Value, dtype: DType) -> Value:
    """0 where attention is allowed, -inf elsewhere."""
    return map_("where", allowed, fill((), 0, dtype), fill((), -np.inf, dtype))


def _mask_bias(mask: Value | None, keys: DimLike, dtype: DType) -> Value | None:
    """A boolean or additive mask as an additive one over all keys; keys beyond a short mask are not attended."""
    if mask is None:
        return None
    bias = _bias(mask, dtype) if mask.dtype is DType.bool else cast(mask, dtype)
    missing = keys - mask.shape[-1]
    if dims.same(keys, mask.shape[-1]):
        return bias
    return pad(bias, [0] * bias.rank, [0] * (bias.rank - 1) + [dims.dmax(missing, 0)], value=fill((), -np.inf, dtype))


def _offset(past: DimLike, valid: Value | None, queries: DimLike) -> Value:
    """Keys before the first query: int64 scalar, or [batch, 1, 1, 1] where each batch has its own."""
    if valid is None:
        return reshape(literal([past]), ())
    lengths = reshape(cast(valid, DType.int64), [valid.size, 1, 1, 1])
    return map_("sub", lengths, reshape(literal([queries]), ()))


def _band(sizes: tuple[DimLike, DimLike], offset: Value, left: int, right: int, dtype: DType) -> Value:
    """The bias of a window of keys around each query's position; a negative bound is none."""
    ahead = map_("sub", index(3, [1, 1, *sizes]), map_("add", index(2, [1, 1, *sizes]), offset))
    allowed = None
    if left >= 0:
        allowed = map_("le", constant(np.int64(-left)), ahead)
    if right >= 0:
        behind = map_("le", ahead, constant(np.int64(right)))
        allowed = behind if allowed is None else map_("and", allowed, behind)
    assert allowed is not None
    return _bias(allowed, dtype)


def _unfused(q: Value, k: Value, v: Value, bias: Value | None, scale: float, rep: int, softcap: float, mode: int) -> tuple[Value, Value]:
    """Attention step by step; also the scores at the stage that ``mode`` names. Rows without any key give zeros."""
    batch, heads, rows, size = q.shape
    grouped = reshape(q, [batch, heads // rep, rep, rows, size])
    qk = matmul(grouped, swap(unsqueeze(k, [2]), 3, 4), scale)
    raw = scores = reshape(qk, [batch, heads, rows, k.shape[2]])
    if softcap > 0:
        scores = map_("mul", map_("tanh", map_("div", scores, like(scores, softcap))), like(scores, softcap))
    capped = scores
    if bias is not None:
        scores = map_("add", scores, broadcast_to(bias, scores.shape))
    weights = softmax(scores, 3)
    if bias is not None:
        dead = map_("eq", reduce("max", bias, [-1], True), like(bias, -np.inf))
        weights = map_("where", broadcast_to(dead, weights.shape), like(weights, 0), weights)
    y = matmul(reshape(weights, qk.shape), unsqueeze(v, [2]))
    return reshape(y, [batch, heads, rows, v.shape[3]]), (raw, capped, scores, weights)[mode]


@op()
def SwiGLU(A: Value, B: Value, *, alpha: float = 1.0) -> Value:
    from .elementwise import Swish

    return map_("mul", Swish(A, alpha=alpha), B)


@op()
def TensorScatter(past_cache: Value, update: Value, write_indices: Value | None = None, *, axis: int = -2, mode: str = "linear") -> Value:
    """A cache with ``update`` written from each batch's index on: read by position, so that nothing is written twice."""
    at = axis_of(axis, past_cache.rank)
    size = reshape(literal([past_cache.shape[at]]), ())
    step = index(at, past_cache.shape)
    if write_indices is not None:
        first = reshape(cast(write_indices, DType.int64), [past_cache.shape[0]] + [1] * (past_cache.rank - 1))
        step = map_("sub", step, first)
    if mode == "circular":
        step = map_("mod", step, size)
    last = reshape(literal([update.shape[at] - 1]), ())
    zero = constant(np.int64(0))
    written = map_("and", map_("le", zero, step), map_("le", step, last))
    new = GatherElements(update, map_("clamp", step, zero, map_("max", last, zero)), axis=at)
    return map_("where", written, new, past_cache)


@op()
def CausalConvWithState(
    input: Value, weight: Value, bias: Value | None = None, past_state: Value | None = None, *, activation: str = "none"
) -> tuple[Value, Value]:
    """A depthwise convolution over the past; the last kernel - 1 columns are the state that the next call continues from."""
    from .conv import Conv

    batch, channels, _ = input.shape
    kept = _known(weight.shape[2], "the kernel's size") - 1
    past = fill([batch, channels, kept], 0, input.dtype) if past_state is None else past_state
    seen = concat([past, input], 2) if kept else input
    y = Conv(seen, weight, bias, group=_known(channels, "the number of channels"))
    if activation in ("silu", "swish"):
        y = map_("silu", y)
    elif activation != "none":
        raise IRError(f"activation {activation!r} is not one of none, silu, swish")
    return y, slice_(seen, 2, seen.shape[2] - kept, kept)


STEPS = 256


def _per_head(x: Value, heads: int) -> Value:
    """[batch, length, 1 or heads * size] as float32 [batch, 1 or heads, length, size]."""
    return cast(heads_first(x, 1 if x.shape[2] == 1 else heads, "decay and beta"), DType.float32)


@op()
def LinearAttention(
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    ctx: Context,
) -> tuple[Value, Value]:
    """The recurrence of the standard, one token after another: S = exp(g) S + k (beta (v - S^T k))^T, o = scale S^T q."""
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise IRError(f"update_rule {update_rule!r} is not one of linear, gated, delta, gated_delta")
    wide = DType.float32
    pairs = ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
    q, k, v = (cast(heads_first(x, n, "input"), wide) for x, n in pairs)
    batch, rep = q.shape[0], q_num_heads // kv_num_heads
    factor = scale or 1 / math.sqrt(_known(q.shape[3], "the head size"))
    state = cast(fill([batch, kv_num_heads, k.shape[3], v.shape[3]], 0, wide) if past_state is None else past_state, wide)
    gates = None if decay is None or "gated" not in update_rule else map_("exp", _per_head(decay, kv_num_heads))
    rates = None if beta is None or "delta" not in update_rule else _per_head(beta, kv_num_heads)

    def cell(state: Sequence[Value], parts: Sequence[Value], _: Sequence[Value | None]) -> tuple[list[Value], list[Value]]:
        """One token: q [batch, q_num_heads, size], k and v [batch, kv_num_heads, size], the state [batch, kv_num_heads, size, depth]."""
        (now,), (qt, kt, vt, *rest) = state, parts
        if gates is not None:
            now = map_("mul", now, unsqueeze(rest.pop(0), [3]))
        if "delta" in update_rule:
            vt = map_("sub", vt, squeeze(matmul(unsqueeze(kt, [2]), now), [2]))
            if rates is not None:
                vt = map_("mul", vt, rest.pop(0))
        now = map_("add", now, map_("mul", unsqueeze(kt, [3]), unsqueeze(vt, [2])))
        grouped = reshape(qt, [*now.shape[:2], rep, 1, now.shape[2]])
        o = matmul(grouped, unsqueeze(now, [2]), factor)
        return [now], [reshape(o, [now.shape[0], q_num_heads * now.shape[3]])]

    scanned = [(x, 2) for x in (q, k, v, gates, rates) if x is not None]
    steps = query.shape[1]
    if isinstance(steps, int) and 0 < steps <= STEPS:
        rows = []
        for t in range(steps):
            (state,), (row,) = cell([state], [squeeze(slice_(x, axis, t, 1), [axis]) for x, axis in scanned], [])
            rows.append(unsqueeze(row, [1]))
        y = concat(rows, 1)
    else:
        (state,), (rows_first,) = run_steps(ctx, steps, [state], scanned, [], cell)
        y = swap(rows_first, 0, 1)
    return cast(y, query.dtype), cast(state, query.dtype if past_state is None else past_state.dtype)


@op("FlexAttention", domain="ai.onnx.preview")
def FlexAttention(
    Q: Value,
    K: Value,
    V: Value,
    *,
    prob_mod: Any = None,
    scale: float | None = None,
    score_mod: Any = None,
    softmax_precision: int | None = None,
    ctx: Context,
) -> Value:
    """Attention whose scores and probabilities pass through graphs of the model's own."""
    wide = DType.float64 if DType.float64 in (Q.dtype, softmax_precision) else DType.float32
    kind = DType(softmax_precision) if softmax_precision else DType.float32 if Q.dtype.bits < 32 else Q.dtype
    factor = 1 / math.sqrt(_known(Q.shape[3], "the head size")) if scale is None else scale
    q, k, v = (cast(x, wide) for x in (Q, K, V))
    rep = _known(q.shape[1], "the number of heads") // _known(k.shape[1], "the number of heads")
    if score_mod is None and prob_mod is None and wide is DType.float32:
        q, v = (x if x.strides[3] == 1 else contiguous(x) for x in (q, v))
        return cast(attention(q, k, v, None, factor, rep=rep), V.dtype)
    batch, heads, rows, size = q.shape
    grouped = [batch, heads // rep, rep, rows, k.shape[2]]
    scores = matmul(reshape(q, [*grouped[:4], size]), swap(unsqueeze(k, [2]), 3, 4), factor)
    scores = reshape(scores, [batch, heads, rows, k.shape[2]])
    if score_mod is not None:
        scores = cast(subgraph(ctx, score_mod, [cast(scores, kind)])[0], wide)
    weights = softmax(scores, 3)
    if prob_mod is not None:
        weights = cast(subgraph(ctx, prob_mod, [cast(weights, kind)])[0], wide)
    y = matmul(reshape(weights, grouped), unsqueeze(v, [2]))
    return cast(reshape(y, [batch, heads, rows, v.shape[3]]), V.dtype)
