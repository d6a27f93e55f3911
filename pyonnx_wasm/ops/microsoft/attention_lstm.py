"""LSTM whose input is joined by what it attended to the step before (Bahdanau, Cho and Bengio, 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value
from ...registry import Context, op
from ...tensor import cast, concat, fill, index, like, map_, reduce, reshape, slice_, split, swap, unsqueeze
from ..loops import run_steps
from ..matmul import matmul
from ..recurrent import Gate, gates_of, lstm_cell
from . import MICROSOFT
from .recurrent import Floats, picked, reversed_


@dataclass(frozen=True)
class Memory:
    """What is attended to, for one direction.

    Attributes:
        keys, values: [batch, places, size].
        missing: added to scores: [batch, places], -inf at places beyond a row's length; None: there are none.
        query, vector: weights of the query [hidden, size], and of the scores [size].
        cell, context: weights of a layer behind it, of the hidden state and of what was found; None: that is given as it is.
    """

    keys: Value
    values: Value
    missing: Value | None
    query: Value
    vector: Value
    cell: Value | None
    context: Value | None

    def parts(self) -> list[Value | None]:
        return [self.keys, self.values, self.missing, self.query, self.vector, self.cell, self.context]

    def __call__(self, h: Value) -> Value:
        mixed = map_("tanh", map_("add", self.keys, unsqueeze(matmul(h, self.query), [1])))
        scores = reduce("sum", map_("mul", mixed, self.vector), [2])
        scores = scores if self.missing is None else map_("add", scores, self.missing)
        shifted = map_("exp", map_("sub", scores, reduce("max", scores, [1], True)))
        shares = map_("div", shifted, reduce("sum", shifted, [1], True))
        found = reshape(matmul(unsqueeze(shares, [1]), self.values), [h.shape[0], self.values.shape[2]])
        if self.cell is None or self.context is None:
            return found
        return map_("add", matmul(h, self.cell), matmul(found, self.context))


def _memory(M: Value, lengths: Value | None, direction: int, QW: Value, MW: Value, V: Value, AW: Value | None, hidden: int) -> Memory:
    batch, places, depth = M.shape
    missing = None
    if lengths is not None:
        inside = map_("lt", index(1, [batch, places]), unsqueeze(cast(lengths, DType.int64), [1]))
        missing = map_("where", inside, like(M, 0), like(M, -np.inf))
    layer = None if AW is None else picked(AW, direction)
    cell = None if layer is None else slice_(layer, 0, 0, hidden)
    context = None if layer is None else slice_(layer, 0, hidden, depth)
    return Memory(matmul(M, picked(MW, direction)), M, missing, picked(QW, direction), picked(V, direction), cell, context)


@op(domain=MICROSOFT)
def AttnLSTM(
    X: Value, W: Value, R: Value, B: Value | None = None, sequence_lens: Value | None = None, initial_h: Value | None = None,
    initial_c: Value | None = None, P: Value | None = None, QW: Value | None = None, MW: Value | None = None, V: Value | None = None,
    M: Value | None = None, memory_seq_lens: Value | None = None, AW: Value | None = None, *,
    activation_alpha: Floats = None, activation_beta: Floats = None, activations: Sequence[str] | None = None, clip: float | None = None,
    direction: str = "forward", hidden_size: int = 0, input_forget: int = 0, ctx: Context,
) -> tuple[Value, ...]:  # fmt: skip
    """As LSTM; W [directions, 4 * size, in + attended] has columns for what was attended to. The memory M is [batch, places, depth]."""
    if direction not in ("forward", "reverse", "bidirectional"):
        raise IRError(f"direction {direction!r} is not one of forward, reverse, bidirectional")
    if QW is None or MW is None or V is None or M is None:
        raise IRError("the inputs QW, MW, V and M are needed: what is attended to, and the weights of it")
    ways = ["forward", "reverse"] if direction == "bidirectional" else [direction]
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * len(ways)
    clipped, plain = (gates_of(names, activation_alpha, activation_beta, c) for c in (clip, None))
    gates = [p if k % 3 == 2 else c for k, (c, p) in enumerate(zip(clipped, plain, strict=True))]  # the cell state is not clipped
    batch, size = X.shape[1], R.shape[2]
    if not isinstance(size, int):
        raise IRError(f"the hidden size must be known when the model is compiled, it is {size}")
    outputs, finals = [], []
    for d, way in enumerate(ways):
        memory = _memory(M, memory_seq_lens, d, QW, MW, V, AW, size)
        state = [fill([batch, size], 0, X.dtype) if s is None else picked(s, d) for s in (initial_h, initial_c)]
        x = X if way == "forward" else reversed_(X, sequence_lens)
        weights = [swap(picked(w, d), 0, 1) for w in (W, R)]
        bias = None if B is None else map_("add", *split(picked(B, d), 0, [size * 4] * 2))
        peep = None if P is None else picked(P, d)
        y, state = _direction(x, weights, bias, peep, state, sequence_lens, gates[3 * d : 3 * d + 3], bool(input_forget), memory, ctx)
        outputs.append(unsqueeze(y if way == "forward" else reversed_(y, sequence_lens), [1]))
        finals.append([unsqueeze(s, [0]) for s in state])
    return (concat(outputs, 1), *(concat(list(parts), 0) for parts in zip(*finals, strict=True)))


def _direction(
    X: Value, weights: Sequence[Value], bias: Value | None, peepholes: Value | None, state: list[Value], lengths: Value | None,
    act: list[Gate], coupled: bool, memory: Memory, ctx: Context,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """Hidden states [steps, batch, size] and the last h and c."""
    w, r = weights
    steps, taken = X.shape[0], X.shape[2]
    attended = w.shape[0] - taken
    given = matmul(X, slice_(w, 0, 0, taken))
    alive = None if lengths is None else unsqueeze(cast(lengths, DType.int64), [1])

    def cell(state: Sequence[Value], parts: Sequence[Value], fixed: Sequence[Value | None]) -> tuple[list[Value], list[Value]]:
        (h, c, before), (now, at), (w, r, bias, peep, ends, *kept) = state, parts, fixed
        assert w is not None
        assert r is not None
        fresh = lstm_cell(map_("add", now, matmul(before, w)), [h, c], r, bias, act, peep, coupled)
        y = fresh[0]
        if ends is not None:
            going = map_("lt", at, ends)
            y = map_("where", going, y, like(y, 0))
            fresh = [map_("where", going, a, b) for a, b in zip(fresh, (h, c), strict=True)]
        return [*fresh, Memory(*kept)(fresh[0])], [y]  # type: ignore[arg-type]

    begin = [*state, fill([state[0].shape[0], attended], 0, X.dtype)]
    fixed = [slice_(w, 0, taken, attended), r, bias, peepholes, alive, *memory.parts()]
    (h, c, _), (y,) = run_steps(ctx, steps, begin, [(given, 0), (index(0, [steps]), 0)], fixed, cell)
    return y, [h, c]
