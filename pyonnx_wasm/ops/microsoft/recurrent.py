"""Recurrences with a state that the next call continues from, and over 8-bit weights (com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value, dims
from ...ir.dims import DimLike
from ...registry import Context, op
from ...tensor import cast, concat, constant, fill, index, like, map_, reshape, slice_, split, swap, unsqueeze
from ..conv import Conv
from ..gather import ReverseSequence
from ..loops import run_steps
from ..recurrent import gates_of
from ..transformer import LinearAttention
from . import MICROSOFT
from .attend import scalar, size_of
from .quantized import DynamicQuantizeMatMul

Floats = Sequence[float] | None


def picked(x: Value, direction: int) -> Value:
    return reshape(slice_(x, 0, direction, 1), x.shape[1:])


def reversed_(x: Value, lengths: Value | None) -> Value:
    if lengths is None:
        return slice_(x, 0, x.shape[0] - 1, x.shape[0], -1)
    return ReverseSequence(x, lengths, batch_axis=1, time_axis=0)  # type: ignore[no-any-return]


def _direction(
    X: Value, weights: Sequence[Value], bias: Value | None, peepholes: Value | None, state: list[Value], lengths: Value | None,
    act: Sequence[object], coupled: bool, ctx: Context,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """Hidden states [steps, batch, size] and the last state, of a W, R, their scales and zero points for one direction."""
    w, ws, wz, r, rs, rz = weights
    steps, batch, size = X.shape[0], X.shape[1], r.shape[0]
    rows = DynamicQuantizeMatMul(reshape(X, [steps * batch, X.shape[2]]), w, ws, wz)
    given = reshape(rows if bias is None else map_("add", rows, bias), [steps, batch, size * 4])
    alive = None if lengths is None else unsqueeze(cast(lengths, DType.int64), [1])

    def cell(state: Sequence[Value], parts: Sequence[Value], fixed: Sequence[Value | None]) -> tuple[list[Value], list[Value]]:
        (h, c), (now, at), (r, rs, rz, peep, ends) = state, parts, fixed
        i, o, f, g = split(map_("add", now, DynamicQuantizeMatMul(h, r, rs, rz)), 1, [size] * 4)
        pi, po, pf = (None, None, None) if peep is None else split(peep, 0, [size] * 3)

        def gate(x: Value, p: Value | None, cell_state: Value, k: int) -> Value:
            return act[k](x if p is None else map_("add", x, map_("mul", p, cell_state)))  # type: ignore[operator,no-any-return]

        i = gate(i, pi, c, 0)
        f = map_("sub", like(i, 1), i) if coupled else gate(f, pf, c, 0)
        fresh = map_("add", map_("mul", f, c), map_("mul", i, gate(g, None, c, 1)))
        new = map_("mul", gate(o, po, fresh, 0), gate(fresh, None, fresh, 2))
        if ends is None:
            return [new, fresh], [new]
        going = map_("lt", at, ends)
        kept = [map_("where", going, a, b) for a, b in ((new, h), (fresh, c))]
        return kept, [map_("where", going, new, like(new, 0))]

    state, (y,) = run_steps(ctx, steps, state, [(given, 0), (index(0, [steps]), 0)], [r, rs, rz, peepholes, alive], cell)
    return y, state


@op(domain=MICROSOFT)
def DynamicQuantizeLSTM(
    X: Value, W: Value, R: Value, B: Value | None, sequence_lens: Value | None, initial_h: Value | None, initial_c: Value | None,
    P: Value | None, W_scale: Value, W_zero_point: Value, R_scale: Value, R_zero_point: Value, *,
    activation_alpha: Floats = None, activation_beta: Floats = None, activations: Sequence[str] | None = None, clip: float | None = None,
    direction: str = "forward", hidden_size: int = 0, input_forget: int = 0, ctx: Context,
) -> tuple[Value, ...]:  # fmt: skip
    """LSTM over 8-bit weights [directions, in, 4 * size]: inputs, and at each step the hidden state, are quantised to 8 bits."""
    if direction not in ("forward", "reverse", "bidirectional"):
        raise IRError(f"direction {direction!r} is not one of forward, reverse, bidirectional")
    ways = ["forward", "reverse"] if direction == "bidirectional" else [direction]
    gates = gates_of(activations or ["Sigmoid", "Tanh", "Tanh"] * len(ways), activation_alpha, activation_beta, clip)
    batch, size = X.shape[1], R.shape[1]
    outputs, finals = [], []
    for d, way in enumerate(ways):
        weights = [picked(p, d) for p in (W, W_scale, W_zero_point, R, R_scale, R_zero_point)]
        halves = None if B is None else split(picked(B, d), 0, [size * 4] * 2)
        bias = None if halves is None else map_("add", *halves)
        state = [fill([batch, size], 0, X.dtype) if s is None else picked(s, d) for s in (initial_h, initial_c)]
        x = X if way == "forward" else reversed_(X, sequence_lens)
        y, state = _direction(
            x, weights, bias, None if P is None else picked(P, d), state, sequence_lens, gates[3 * d : 3 * d + 3], bool(input_forget), ctx
        )
        outputs.append(unsqueeze(y if way == "forward" else reversed_(y, sequence_lens), [1]))
        finals.append([unsqueeze(s, [0]) for s in state])
    return (concat(outputs, 1), *(concat(list(parts), 0) for parts in zip(*finals, strict=True)))


def _last(past: Value | None, window: int) -> Value | None:
    """The newest state of a window of them."""
    return past if past is None or not window else picked(past, window - 1)


@op("LinearAttention", domain=MICROSOFT)
def LinearAttention_ms(
    query: Value, key: Value, value: Value, past_state: Value | None = None, decay: Value | None = None, beta: Value | None = None, *,
    chunk_size: int = 64, kv_num_heads: int, q_num_heads: int, scale: float = 0.0, state_window: int = 0, update_rule: str = "gated_delta",
    ctx: Context,
) -> tuple[Value, Value]:  # fmt: skip
    """The standard's."""
    if state_window:
        raise IRError("state_window is not supported; export the model without speculative decoding")
    if q_num_heads % kv_num_heads:
        raise IRError(f"q_num_heads {q_num_heads} must be a multiple of kv_num_heads {kv_num_heads}")
    return LinearAttention(  # type: ignore[no-any-return]
        query, key, value, past_state, decay, beta, chunk_size=chunk_size, kv_num_heads=kv_num_heads, q_num_heads=q_num_heads,
        scale=scale, update_rule=update_rule, ctx=ctx,
    )  # fmt: skip


def _channels(x: Value) -> Value:
    """[batch, length, d1, ..., dn] as [batch, d1 * ... * dn, length]."""
    return swap(reshape(x, [*x.shape[:2], dims.product(x.shape[2:])]), 1, 2)


@op("CausalConvWithState", domain=MICROSOFT)
def CausalConvWithState_ms(
    input: Value, weight: Value, bias: Value | None = None, past_state: Value | None = None, *,
    activation: str = "none", channels_last: int = 0, dilation: int = 1, ndim: int = 1, state_window: int = 0,
) -> tuple[Value, Value]:  # fmt: skip
    """A depthwise convolution over the past; the last columns are the state, or one state for each of the last positions."""
    if ndim != 1:
        raise IRError(f"ndim {ndim} is not supported (1 is)")
    if activation not in ("none", "silu", "swish"):
        raise IRError(f"activation {activation!r} is not one of none, silu, swish")
    x, past = input, _last(past_state, state_window)
    if channels_last:
        x, past = _channels(x), None if past is None else _channels(past)
    batch, channels, length = x.shape
    kept = (size_of(weight.shape[2], "the kernel's size") - 1) * dilation
    past = fill([batch, channels, kept], 0, x.dtype) if past is None else past
    seen = concat([past, x], 2) if kept else x
    y = Conv(seen, weight, bias, group=size_of(channels, "the number of channels"), dilations=[dilation])
    y = map_("silu", y) if activation != "none" else y

    def given(z: Value, like_: Value) -> Value:
        return reshape(swap(z, 1, 2), [batch, z.shape[2], *like_.shape[2:]]) if channels_last else z

    def state(end: DimLike) -> Value:
        return given(slice_(seen, 2, end, kept), input)

    if not state_window:
        return given(y, input), state(length)
    slots = []
    for back in reversed(range(state_window)):
        there = map_("lt", constant(np.int64(back)), scalar(length))
        slot = state(dims.dmax(length - back, 0))
        slots.append(unsqueeze(map_("where", there, slot, like(slot, 0)), [0]))
    return given(y, input), concat(slots, 0)
