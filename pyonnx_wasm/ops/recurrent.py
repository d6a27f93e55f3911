"""Recurrent layers: one kernel of the core for what they mostly are; else cells of other operators, one step after another where the length
is known and small, or a loop that the core runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Value
from ..ir.dims import DimLike
from ..registry import Context, Enum, Kernel, op
from ..tensor import (
    HALVES,
    cast,
    concat,
    constant,
    contiguous,
    fill,
    index,
    like,
    map_,
    reshape,
    sized,
    slice_,
    split,
    swap,
    transpose,
    unsqueeze,
)
from .gather import ReverseSequence
from .loops import run_steps
from .matmul import PACK, matmul

CELLS = Enum("Cell", "tanh relu gru linear_gru lstm")
RECURRENT = Kernel(
    "recurrent", ">y >h >c? x r r1? bias? h0? c0? lengths?", "cell steps batch size ways reverse", traits=("smooth",), enums={"cell": CELLS}
)
GATES = {"tanh": 1, "relu": 1, "gru": 3, "linear_gru": 3, "lstm": 4}
PLAIN = {("tanh",): "tanh", ("relu",): "relu", ("sigmoid", "tanh"): "gru", ("sigmoid", "tanh", "tanh"): "lstm"}  # by activations

STEPS = 1024
Floats = Sequence[float] | None
Gate = Callable[[Value], Value]
Optionals = Sequence[Value | None]
Step = Callable[[Value, Sequence[Value], Optionals, list[Gate]], list[Value]]  # the next state; of the recurrence, bias and peepholes
ACTIVATIONS: dict[str, tuple[float | None, float | None, Callable[[Value, Any, Any], Value]]] = {  # alpha, beta; None: takes none
    "sigmoid": (None, None, lambda x, a, b: map_("sigmoid", x)),
    "tanh": (None, None, lambda x, a, b: map_("tanh", x)),
    "relu": (None, None, lambda x, a, b: map_("relu", x)),
    "softplus": (None, None, lambda x, a, b: map_("softplus", x)),
    "softsign": (None, None, lambda x, a, b: map_("div", x, map_("add", map_("abs", x), like(x, 1)))),
    "affine": (1, 0, lambda x, a, b: map_("add", map_("mul", x, like(x, a)), like(x, b))),
    "leakyrelu": (0.01, None, lambda x, a, b: map_("prelu", x, like(x, a))),
    "thresholdedrelu": (1, None, lambda x, a, b: map_("where", map_("lt", like(x, a), x), x, like(x, 0))),
    "scaledtanh": (1, 1, lambda x, a, b: map_("mul", map_("tanh", map_("mul", x, like(x, b))), like(x, a))),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: map_("clamp", map_("add", map_("mul", x, like(x, a)), like(x, b)), like(x, 0), like(x, 1))),
    "elu": (1, None, lambda x, a, b: map_("elu", x, like(x, a))),
}


def gates_of(names: Sequence[str], alpha: Floats, beta: Floats, clip: float | None) -> list[Gate]:
    """The activations of all directions with their parameters: of those lists each activation that has one takes the next."""
    alphas, betas = list(alpha or []), list(beta or [])
    found: list[Gate] = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise IRError(f"activation {name!r} is not one of {', '.join(ACTIVATIONS)}")
        a, b, fn = ACTIVATIONS[name.lower()]
        a = alphas.pop(0) if a is not None and alphas else a
        b = betas.pop(0) if b is not None and betas else b

        def gate(x: Value, a: float | None = a, b: float | None = b, fn: Callable[[Value, Any, Any], Value] = fn) -> Value:
            return fn(x if clip is None else map_("clamp", x, like(x, -clip), like(x, clip)), a, b)

        found.append(gate)
    return found


def _rnn(x: Value, h: Sequence[Value], r: Value, bias: Value | None, act: list[Gate]) -> list[Value]:
    return [act[0](_plus(map_("add", x, matmul(h[0], r)), bias))]


def _gru(x: Value, h: Sequence[Value], r: Value, bias: Value | None, act: list[Gate], linear_before_reset: bool) -> list[Value]:
    size = h[0].shape[1]
    xz, xr, xh = split(x, 1, [size] * 3)
    rz, rr, rh = split(r, 1, [size] * 3)
    bz, br, bh = split(bias, 0, [size] * 3) if bias is not None else (None, None, None)
    z = act[0](_plus(map_("add", xz, matmul(h[0], rz)), bz))
    reset = act[0](_plus(map_("add", xr, matmul(h[0], rr)), br))
    before, after = (h[0], reset) if linear_before_reset else (map_("mul", reset, h[0]), None)
    memory = _plus(matmul(before, rh), bh)
    memory = memory if after is None else map_("mul", after, memory)
    new = act[1](map_("add", xh, memory))
    return [map_("add", map_("mul", map_("sub", like(z, 1), z), new), map_("mul", z, h[0]))]


def lstm_cell(
    x: Value, state: Sequence[Value], r: Value, bias: Value | None, act: list[Gate], peep: Value | None, coupled: bool
) -> list[Value]:
    h, c = state
    size = h.shape[1]
    i, o, f, g = split(_plus(map_("add", x, matmul(h, r)), bias), 1, [size] * 4)
    pi, po, pf = split(peep, 0, [size] * 3) if peep is not None else (None, None, None)
    i = act[0](_plus(i, None if pi is None else map_("mul", pi, c)))
    f = map_("sub", like(i, 1), i) if coupled else act[0](_plus(f, None if pf is None else map_("mul", pf, c)))
    c = map_("add", map_("mul", f, c), map_("mul", i, act[1](g)))
    o = act[0](_plus(o, None if po is None else map_("mul", po, c)))
    return [map_("mul", o, act[2](c)), c]


def _there(x: Value | None) -> Value:
    assert x is not None
    return x


def _plus(a: Value, b: Value | None) -> Value:
    return a if b is None else map_("add", a, b)


def _known(names: Sequence[str], direction: str, linear: bool = False) -> str | None:
    """The kernel's cell with these activations in all directions."""
    ways = 2 if direction == "bidirectional" else 1
    first = tuple(name.lower() for name in names[: len(names) // ways])
    cell = PLAIN.get(first) if [name.lower() for name in names] == [*first] * ways else None
    return "linear_gru" if linear and cell == "gru" else cell


def _plain(
    X: Value, W: Value, R: Value, B: Value | None, lengths: Value | None, initial: Optionals, cell: str, direction: str
) -> list[Value]:
    """[steps, ways, batch, size], and the last states: of a layer that the kernel knows, whose inputs' share is one product."""
    steps, batch, size, gates = X.shape[0], X.shape[1], R.shape[2], GATES[cell]
    ways = 2 if direction == "bidirectional" else 1
    width, state = gates * size, [ways, batch, size]
    rows = reshape(sized(W, [ways, width, X.shape[2]], "W"), [ways * width, X.shape[2]])
    given, inner = matmul(X, swap(rows, 0, 1)), None
    if B is not None:
        mine, recurrent = split(sized(B, [ways, 2 * width], "B"), 1, [width] * 2)
        if cell == "linear_gru":
            parts = split(recurrent, 1, [size * 2, size])
            recurrent, inner = concat([parts[0], fill(parts[1].shape, 0, X.dtype)], 1), contiguous(parts[1])
        given = map_("add", given, reshape(map_("add", mine, recurrent), [ways * width]))
    ins = {"x": contiguous(given), "bias": inner}
    for name, r in zip(("r", "r1"), split(sized(R, [ways, width, size], "R"), 0, [1] * ways), strict=False):
        all_of_it = [width * size]
        ins[name] = PACK({"y": (R.dtype, all_of_it)}, {"w": contiguous(reshape(r, all_of_it))}, k=size, n=width, band=size, transposed=1)
    for name, s in zip(("h0", "c0"), initial, strict=False):
        ins[name] = None if s is None else contiguous(sized(s, state, "an initial state"))
    if lengths is not None:
        ins["lengths"] = contiguous(cast(sized(lengths, [batch], "sequence_lens"), DType.int32))
    outs = {"y": (X.dtype, (steps, ways, batch, size)), "h": (X.dtype, state)} | ({"c": (X.dtype, state)} if cell == "lstm" else {})
    backwards = int(direction == "reverse")
    return list(RECURRENT(outs, ins, cell=CELLS.index(cell), steps=steps, batch=batch, size=size, ways=ways, reverse=backwards))


def _recurrent(
    X: Value, W: Value, R: Value, B: Value | None, sequence_lens: Value | None, initial: Optionals,
    cell: str | None, step: Step, gates: int,
    activations: Sequence[str], alpha: Floats, beta: Floats, clip: float | None, direction: str, layout: int, ctx: Context,
    peepholes: Value | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    """Runs a cell over time in each direction; the inputs' share of the gates is one product for all steps. cell: the kernel's, if any."""
    if layout:
        X, initial = swap(X, 0, 1), [None if s is None else swap(s, 0, 1) for s in initial]
    steps, batch, size = X.shape[0], X.shape[1], R.shape[2]
    if direction not in ("forward", "reverse", "bidirectional"):
        raise IRError(f"direction {direction!r} is not one of forward, reverse, bidirectional")
    if cell is not None and X.dtype is DType.float32 and isinstance(size, int) and size and clip is None and peepholes is None:
        results = _plain(X, W, R, B, sequence_lens, initial, cell, direction)
        if layout:
            results = [transpose(results[0], [2, 0, 1, 3]), *(swap(s, 0, 1) for s in results[1:])]
        return tuple(results)
    lengths = None
    if sequence_lens is not None:
        lengths = unsqueeze(cast(sized(sequence_lens, [batch], "sequence_lens"), DType.int64), [1])
    ways = ["forward", "reverse"] if direction == "bidirectional" else [direction]
    per = len(activations) // len(ways)
    given_gates = gates_of(activations, alpha, beta, clip)
    outputs, finals = [], []
    for d, way in enumerate(ways):
        act = given_gates[d * per : (d + 1) * per]
        x = X if way == "forward" else _reversed(X, sequence_lens)
        recurrence = swap(_pick(R, d), 0, 1)
        halves = None if B is None else split(_pick(B, d), 0, [gates * size] * 2)
        given = _plus(matmul(x, swap(_pick(W, d), 0, 1)), None if halves is None else halves[0])
        state = [fill([batch, size], 0, X.dtype) if s is None else sized(_pick(s, d), [batch, size], "an initial state") for s in initial]
        fixed = [recurrence, None if halves is None else halves[1], None if peepholes is None else _pick(peepholes, d)]
        state, y = _over_time(ctx, steps, state, given, fixed, lengths, step, act)
        outputs.append(unsqueeze(y if way == "forward" else _reversed(y, sequence_lens), [1]))
        finals.append([unsqueeze(s, [0]) for s in state])
    results = [concat(outputs, 1), *(concat(list(parts), 0) for parts in zip(*finals, strict=True))]
    if layout:
        results = [transpose(results[0], [2, 0, 1, 3]), *(swap(s, 0, 1) for s in results[1:])]
    return tuple(results)


def _over_time(
    ctx: Context, steps: DimLike, state: list[Value], given: Value, fixed: Optionals, lengths: Value | None, step: Step, act: list[Gate]
) -> tuple[list[Value], Value]:
    """The last state, and the first value of the states of all steps, [steps, batch, size]; beyond a length it is 0, the states stay."""

    def cell(state: Sequence[Value], parts: Sequence[Value], given: Optionals) -> tuple[list[Value], list[Value]]:
        (now, at), (*fixed, lengths) = parts, given
        fresh = step(now, state, fixed, act)
        if lengths is None:
            return fresh, [fresh[0]]
        alive = map_("lt", at, lengths)
        row = map_("where", alive, fresh[0], like(fresh[0], 0))
        return [map_("where", alive, new, old) for new, old in zip(fresh, state, strict=True)], [row]

    if not isinstance(steps, int) or not 0 < steps <= STEPS:
        state, rows = run_steps(ctx, steps, state, [(given, 0), (index(0, [steps]), 0)], [*fixed, lengths], cell)
        return state, rows[0]
    stacked = []
    for t in range(steps):
        now = reshape(slice_(given, 0, t, 1), given.shape[1:])
        state, (row,) = cell(state, [now, constant(np.array(t, np.int64))], [*fixed, lengths])
        stacked.append(unsqueeze(row, [0]))
    return state, concat(stacked, 0)


def _pick(x: Value, direction: int) -> Value:
    return reshape(slice_(x, 0, direction, 1), x.shape[1:])


def _reversed(x: Value, lengths: Value | None) -> Value:
    if lengths is not None:
        return ReverseSequence(x, lengths, batch_axis=1, time_axis=0)  # type: ignore[no-any-return]
    return slice_(x, 0, x.shape[0] - 1, x.shape[0], -1)


def _wide(fn: Callable[..., tuple[Value, ...]], X: Value, *rest: Value | None, **attributes: object) -> tuple[Value, ...] | None:
    """The halves in float32; None for other dtypes."""
    if X.dtype not in HALVES:
        return None
    up = [v if v is None or v.dtype not in HALVES else cast(v, DType.float32) for v in (X, *rest)]
    return tuple(cast(y, X.dtype) for y in fn(*up, **attributes))


@op()
def RNN(
    X: Value, W: Value, R: Value, B: Value | None = None, sequence_lens: Value | None = None, initial_h: Value | None = None, *,
    activation_alpha: Floats = None, activation_beta: Floats = None, activations: Sequence[str] | None = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int = 0, layout: int = 0, output_sequence: int = 0,
    ctx: Context,
) -> tuple[Value, ...]:  # fmt: skip
    names = activations or ["Tanh"] * (2 if direction == "bidirectional" else 1)
    attributes = {"activation_alpha": activation_alpha, "activation_beta": activation_beta, "activations": names, "clip": clip}
    if wide := _wide(RNN, X, W, R, B, sequence_lens, initial_h, **attributes, direction=direction, layout=layout, ctx=ctx):
        return wide
    return _recurrent(
        X, W, R, B, sequence_lens, [initial_h], _known(names, direction),
        lambda x, s, fixed, act: _rnn(x, s, _there(fixed[0]), fixed[1], act), 1,
        names, activation_alpha, activation_beta, clip, direction, layout, ctx,
    )  # fmt: skip


@op()
def GRU(
    X: Value, W: Value, R: Value, B: Value | None = None, sequence_lens: Value | None = None, initial_h: Value | None = None, *,
    activation_alpha: Floats = None, activation_beta: Floats = None, activations: Sequence[str] | None = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int = 0, layout: int = 0, linear_before_reset: int = 0,
    output_sequence: int = 0, ctx: Context,
) -> tuple[Value, ...]:  # fmt: skip
    names = activations or ["Sigmoid", "Tanh"] * (2 if direction == "bidirectional" else 1)
    attributes = {"activation_alpha": activation_alpha, "activation_beta": activation_beta, "activations": names, "clip": clip}
    attributes["linear_before_reset"] = linear_before_reset
    if wide := _wide(GRU, X, W, R, B, sequence_lens, initial_h, **attributes, direction=direction, layout=layout, ctx=ctx):
        return wide
    return _recurrent(
        X, W, R, B, sequence_lens, [initial_h], _known(names, direction, linear=bool(linear_before_reset)),
        lambda x, s, fixed, act: _gru(x, s, _there(fixed[0]), fixed[1], act, bool(linear_before_reset)), 3,
        names, activation_alpha, activation_beta, clip, direction, layout, ctx,
    )  # fmt: skip


@op()
def LSTM(
    X: Value, W: Value, R: Value, B: Value | None = None, sequence_lens: Value | None = None, initial_h: Value | None = None,
    initial_c: Value | None = None, P: Value | None = None, *,
    activation_alpha: Floats = None, activation_beta: Floats = None, activations: Sequence[str] | None = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int = 0, input_forget: int = 0, layout: int = 0,
    output_sequence: int = 0, ctx: Context,
) -> tuple[Value, ...]:  # fmt: skip
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * (2 if direction == "bidirectional" else 1)
    attributes = {"activation_alpha": activation_alpha, "activation_beta": activation_beta, "activations": names, "clip": clip}
    attributes["input_forget"] = input_forget
    if wide := _wide(LSTM, X, W, R, B, sequence_lens, initial_h, initial_c, P, **attributes, direction=direction, layout=layout, ctx=ctx):
        return wide

    return _recurrent(
        X, W, R, B, sequence_lens, [initial_h, initial_c], None if input_forget else _known(names, direction),
        lambda x, s, fixed, act: lstm_cell(x, s, _there(fixed[0]), fixed[1], act, fixed[2], bool(input_forget)), 4,
        names, activation_alpha, activation_beta, clip, direction, layout, ctx, P,
    )  # fmt: skip
