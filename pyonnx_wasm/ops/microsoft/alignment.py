"""The cheapest path through a matrix of costs: what aligns Whisper's words with time (Sakoe and Chiba, 1978)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value
from ...registry import Context, op
from ...tensor import cast, concat, constant, contiguous, dims_of, fill, index, like, literal, map_, reduce, reshape, slice_, transpose
from ..gather import Gather
from ..loops import run_steps
from . import MICROSOFT
from .attend import scalar

WIDE = DType.int64


def _number(value: int) -> Value:
    return constant(np.int64(value))


@op(domain=MICROSOFT)
def DynamicTimeWarping(input: Value, *, ctx: Context) -> Value:
    """int32 [2, length]: rows and columns of a path from the first element of [m, n] or [1, m, n] to the last, of the least sum."""
    if input.rank not in (2, 3):
        raise IRError(f"costs of shape [m, n] or [1, m, n] are supported, not of rank {input.rank}")
    costs = reshape(input, input.shape[-2:])
    return _path(ctx, costs, _moves(ctx, costs))


def _moves(ctx: Context, costs: Value) -> Value:
    """[m + n - 1, m + 1], by diagonals: how the cheapest path comes to each row of a diagonal; 0 over the corner, 1 from above, 2 from the
    left."""
    m, n = costs.shape
    room = concat([reshape(costs, [m * n]), fill([1], 0, costs.dtype)], 0)
    row = index(0, [m + 1])
    first = map_("where", map_("eq", row, _number(0)), like(costs, 0), like(costs, math.inf))

    def cell(state: Sequence[Value], parts: Sequence[Value], fixed: Sequence[Value | None]) -> tuple[list[Value], list[Value]]:
        (before, last), (at,), (room, row, width) = state, parts, fixed
        assert room is not None
        assert row is not None
        assert width is not None
        column = map_("sub", map_("add", at, _number(1)), row)  # of the element that lies in a row of this diagonal
        inside = map_("and", map_("le", _number(1), row), map_("and", map_("le", _number(0), column), map_("lt", column, width)))
        place = map_("add", map_("mul", map_("sub", row, _number(1)), width), column)
        cost = Gather(room, map_("where", inside, place, _number(0)))
        far = like(cost, math.inf)
        corner, above = (_shifted(x, far) for x in (before, last))
        by_corner = map_("and", map_("lt", corner, above), map_("lt", corner, last))
        by_above = map_("and", map_("lt", above, corner), map_("lt", above, last))
        least = map_("where", by_corner, corner, map_("where", by_above, above, last))
        move = map_("where", by_corner, _number(0), map_("where", by_above, _number(1), _number(2)))
        return [last, map_("where", inside, map_("add", least, cost), far)], [move]

    state, steps = [first, fill([m + 1], math.inf, costs.dtype)], m + n - 1
    _, (moves,) = run_steps(ctx, steps, state, [(index(0, [steps]), 0)], [room, row, scalar(n)], cell)
    return moves


def _shifted(x: Value, first: Value) -> Value:
    return slice_(concat([reshape(first, [1]), x], 0), 0, 0, x.shape[0])


def _path(ctx: Context, costs: Value, moves: Value) -> Value:
    m, n = costs.shape
    flat = reshape(moves, [moves.size])

    def cell(state: Sequence[Value], parts: Sequence[Value], fixed: Sequence[Value | None]) -> tuple[list[Value], list[Value]]:
        (at,), (flat, width) = state, fixed
        assert flat is not None
        assert width is not None
        i, j = (slice_(at, 0, k, 1) for k in (0, 1))
        alive = map_("and", map_("lt", _number(0), i), map_("lt", _number(0), j))
        place = map_("add", map_("mul", map_("sub", map_("add", i, j), _number(2)), width), i)
        move = Gather(flat, map_("where", alive, place, _number(0)))
        up = cast(map_("not", map_("eq", move, _number(2))), WIDE)
        left = cast(map_("not", map_("eq", move, _number(1))), WIDE)
        stepped = map_("sub", at, concat([up, left], 0))
        return [map_("where", alive, stepped, at)], [at, cast(alive, WIDE)]

    steps = m + n - 1
    _, (points, alive) = run_steps(ctx, steps, [literal([m, n])], [(index(0, [steps]), 0)], [flat, scalar(m + 1)], cell)
    (length,) = dims_of(reduce("sum", reshape(alive, [alive.size]), [0], True), "how long the path is")
    back = slice_(points, 0, length - 1, length, -1)
    return contiguous(transpose(cast(map_("sub", back, _number(1)), DType.int32), [1, 0]))
