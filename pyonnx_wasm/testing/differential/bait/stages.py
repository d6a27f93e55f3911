"""Sizes that contents decide, one behind the other, within branches and loops too, and loops within loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..sketch import BOOL, FLOAT, INT64, Sketch
from ..values import code_of
from . import bait

MOST = 12  # elements that a row keeps


def _row(m: Sketch) -> str:
    """Few different whole numbers, so that nothing hangs on rounding: [n]."""
    return m.input(m.whole_numbers(-3, 3, (m.size(1, 6),)).astype(FLOAT))


def _mask(s: Sketch, row: str) -> str:
    return s.node(s.choice(("Greater", "Less")), row, s.const(np.float32(s.choice((-1.5, 0.5, 1.5)))))


def _count(s: Sketch, row: str, keep: int = 0, least: int = 0) -> str:
    """How many of a row are on one side: int64, a scalar or [1]."""
    found = s.node("ReduceSum", s.node("Cast", _mask(s, row), to=code_of(INT64)), keepdims=keep)
    return s.node("Add", found, s.const(np.asarray(least))) if least else found


def _ints(s: Sketch, *numbers: int) -> str:
    return s.const(np.asarray(numbers, np.int64))


def _range(s: Sketch, row: str) -> str:
    first, step = s.const(np.asarray(s.integer(-2, 0))), s.const(np.asarray(s.choice((1, 2))))
    return s.node("Cast", s.node("Range", first, _count(s, row), step), to=code_of(FLOAT))


def _filled(s: Sketch, row: str) -> str:
    from ..sketch import tensor_attribute

    value = tensor_attribute(np.asarray([s.integer(-3, 3)], FLOAT))
    return s.node("ConstantOfShape", _count(s, row, 1), value=value)


def _one_hot(s: Sketch, row: str) -> str:
    index = s.node("Cast", s.node("Abs", row), to=code_of(INT64))
    hot = s.node("OneHot", index, _count(s, row, 0, 1), s.const(np.asarray([0, 1], FLOAT)))
    return s.node("ReduceSum", hot, _ints(s, 0), keepdims=0)


def _grouped(s: Sketch, row: str) -> str:
    """The row twice, as two rows of a size that is computed, and their sum."""
    twice = s.node("Concat", row, s.node("Neg", row) if s.chance(0.3) else row, axis=0)
    size = s.node("Div", s.node("Size", twice), s.const(np.asarray(2)))
    shape = s.node("Concat", _ints(s, 2), s.node("Reshape", size, _ints(s, 1)), axis=0)
    return s.node("ReduceSum", s.node("Reshape", twice, shape), _ints(s, 0), keepdims=0)


SIZED: dict[str, Callable[[Sketch, str], str]] = {
    "compress": lambda s, row: s.node("Compress", row, _mask(s, row), axis=0 if s.chance(0.5) else None),
    "nonzero": lambda s, row: s.node("GatherND", row, s.node("Transpose", s.node("NonZero", _mask(s, row)), perm=[1, 0])),
    "unique": lambda s, row: s.node("Unique", row, axis=0 if s.chance(0.3) else None),
    "range": _range,
    "filled": _filled,
    "slice": lambda s, row: s.node("Slice", row, _ints(s, 0), _count(s, row, 1)),
    "backwards": lambda s, row: s.node("Slice", row, _count(s, row, 1), _ints(s, -(2**31)), _ints(s, 0), _ints(s, -1)),
    "pad": lambda s, row: s.node("Pad", row, s.node("Concat", _ints(s, s.integer(0, 1)), _count(s, row, 1), axis=0)),
    "tile": lambda s, row: s.node("Tile", row, _count(s, row, 1)),
    "expand": lambda s, row: s.node("Expand", s.const(np.asarray([2], FLOAT)), _count(s, row, 1)),
    "topk": lambda s, row: s.add("TopK", [row, _count(s, row, 1)], 2, axis=0)[0],
    "onehot": _one_hot,
    "grouped": _grouped,
}
SAME: tuple[Callable[[Sketch, str], str], ...] = (
    lambda s, row: s.node("Relu", row),
    lambda s, row: s.node("Neg", row),
    lambda s, row: s.node("Add", row, s.const(np.float32(1))),
    lambda s, row: s.node("Mul", row, row),
    lambda s, row: s.node("CumSum", row, s.const(np.asarray(0))),
    lambda s, row: s.node("Sub", row, s.node("ReduceSum", row)),
    lambda s, row: s.node("Clip", row, s.const(np.float32(-2)), s.const(np.float32(3))),
)


def _steps(s: Sketch, row: str, others: list[str], count: int) -> str:
    """A row of another length, bounded in size and in numbers, by a few operations."""
    for _ in range(count):
        if s.chance(0.55):
            row = s.choice(list(SIZED.values()))(s, row)
        elif s.chance(0.35) and others:
            row = s.node("Concat", *((row, s.choice(others)) if s.chance(0.5) else (s.choice(others), row)), axis=0)
        else:
            row = s.choice(SAME)(s, row)
        row = s.node("Slice", s.node("Clip", row, s.const(np.float32(-9)), s.const(np.float32(9))), _ints(s, 0), _ints(s, MOST))
    return row


def _ends(s: Sketch, row: str) -> list[str]:
    """The row, and what is made of it in the end."""
    found = [row]
    if s.chance(0.4):
        found.append(s.node("ReduceSum", row, keepdims=s.integer(0, 1)))
    if s.chance(0.3):
        column = s.node("Unsqueeze", row, _ints(s, 1))
        found.append(s.node("MatMul", column, s.const(s.array(FLOAT, (1, 3), "plain", True))))
    if s.chance(0.2):
        found.append(s.node("Shape", row))
    return found


@bait
def stages(m: Sketch) -> None:
    """Rows whose lengths follow from the contents of rows."""
    m.empty, m.special = False, False
    rows = [_row(m) for _ in range(m.integer(1, 2))]
    for _ in range(m.integer(1, 3)):
        rows.append(_steps(m, m.choice(rows), rows, m.integer(1, 4)))
    m.result(*_ends(m, rows[-1]), *(rows[2:3] if m.chance(0.3) else []))


def _loop(s: Sketch, row: str, others: list[str], depth: int) -> str:
    """A loop that carries a row of changing length; how often it runs is a constant, an input, or computed."""
    body = s.body()
    at, on, carried = body.fresh("i"), body.fresh("on"), body.fresh("row")
    inner = _steps(body, carried, others, s.integer(1, 2))
    if depth and s.chance(0.6):
        inner = s.choice((_loop, _branch))(body, inner, [*others, carried], depth - 1)
    if s.chance(0.3):
        inner = body.node("Add", inner, body.node("Cast", at, to=code_of(FLOAT)))
    going = on
    if s.chance(0.4):
        going = body.node("Less", _count(body, inner), body.const(np.asarray(s.integer(1, 6))))
    body.outputs = [body.node("Identity", going), body.node("Identity", inner)]
    graph = body.subgraph([(at, INT64, ()), (on, BOOL, ()), (carried, FLOAT, [None])])
    kind = s.choice(("constant", "input", "computed"))
    trips = s.choice((0, 1, 2, 3, 12))
    if kind == "computed":
        count = _count(s, row)
    else:
        count = s.const(np.asarray(trips)) if kind == "constant" else s.input(s.whole_numbers(0, 4, ()))
    cond = "" if s.chance(0.6) else s.const(np.asarray(True))
    return s.add("Loop", [count, cond, row], 1, body=graph)[0]


def _branch(s: Sketch, row: str, others: list[str], depth: int) -> str:
    """A branch on what a row holds."""
    cond = s.node("Greater", _count(s, row), s.const(np.asarray(s.integer(0, 2))))
    graphs = []
    for _ in range(2):
        body = s.body()
        inner = _steps(body, row, others, s.integer(1, 2))
        if depth and s.chance(0.4):
            inner = s.choice((_loop, _branch))(body, inner, others, depth - 1)
        body.outputs = [body.node("Identity", inner)]
        graphs.append(body.subgraph())
    return s.add("If", [cond], 1, then_branch=graphs[0], else_branch=graphs[1])[0]


@bait
def steered(m: Sketch) -> None:
    """Loops and branches over rows of changing lengths, within each other, with sizes from data before, within and behind."""
    m.empty, m.special = False, False
    rows = [_row(m), _row(m)]
    rows.append(_steps(m, rows[0], rows, m.integer(0, 2)))
    for _ in range(m.integer(1, 2)):
        rows.append(m.choice((_loop, _branch))(m, rows[-1], rows[:3], m.integer(0, 2)))
        rows[-1] = _steps(m, rows[-1], rows[:2], m.integer(0, 2))
    m.result(*_ends(m, rows[-1]))
