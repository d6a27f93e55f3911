"""Axes that are data: which axis it is shows only when the tensor that names it is there, how many they are is known before."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Graph, Value, dims, row_major
from ..ir.dims import DimLike
from .ask import dims_of
from .reduce import reduce
from .views import axis_of, contiguous, reshape, show


def axes_of(x: Value, rank: int, what: str = "axes") -> list[DimLike]:
    """The axes that a tensor names, not negative; those that are data are checked when they are there."""
    return [axis if isinstance(axis, int) else _checked(axis, rank, what) for axis in _counted(dims_of(x, what), rank, what)]


def _counted(axes: Sequence[DimLike], rank: int, what: str) -> list[DimLike]:
    return [axis_of(a, rank, what) if isinstance(a, int) else dims.select(dims.lt(a, 0), a + rank, a) for a in axes]


def _checked(axis: DimLike, rank: int, what: str) -> DimLike:
    Graph.current().check(dims.ge(axis, 0) * dims.lt(axis, rank), f"{what}: one is out of range for rank {rank}")
    return axis


def chosen(axes: Sequence[DimLike], rank: int) -> list[DimLike]:
    """Per axis 1 where it is among those given, else 0; they must differ."""
    marks = [dims.ne(sum((dims.eq(a, d) for a in axes), 0), 0) for d in range(rank)]
    Graph.current().check(dims.eq(sum(marks, 0), len(axes)), f"axes {show(axes)} repeat")
    return marks


def pick(at: DimLike, items: Sequence[DimLike], other: DimLike = 0) -> DimLike:
    """The item at a position that may be data."""
    if isinstance(at, int):
        return items[at] if 0 <= at < len(items) else other
    found = other
    for k, item in reversed(list(enumerate(items))):
        found = dims.select(dims.eq(at, k), item, found)
    return found


def around(shape: Sequence[DimLike], axis: DimLike) -> tuple[DimLike, DimLike, DimLike]:
    """A shape as what lies before an axis, the axis, and what lies behind it."""
    before = [dims.product(shape[:a]) for a in range(len(shape))]
    behind = [dims.product(shape[a + 1 :]) for a in range(len(shape))]
    return pick(axis, before, 1), pick(axis, shape, 1), pick(axis, behind, 1)


def without(x: Value, marks: Sequence[DimLike], count: int) -> Value:
    """A value without its ``count`` marked axes, which have size 1."""
    places = [sum((1 - m for m in marks[:d]), 0) for d in range(x.rank)]
    shape = []
    for j in range(x.rank - count):
        size: DimLike = 1
        for d in reversed(range(x.rank)):
            size = dims.select(dims.eq(places[d], j) * (1 - marks[d]), x.shape[d], size)
        shape.append(size)
    x = contiguous(x)
    return x.view(shape, x.offset, row_major(shape))


def parted(x: Value, marks: Sequence[DimLike]) -> Value:
    """A view of twice the rank: the axes with size 1 where they are marked, then the same with size 1 where they are not."""
    keep = [dims.select(m, 1, s) for m, s in zip(marks, x.shape, strict=True)]
    drop = [dims.select(m, s, 1) for m, s in zip(marks, x.shape, strict=True)]
    return x.view([*keep, *drop], x.offset, [*x.strides, *x.strides])


def squeeze_data(x: Value, axes: Sequence[DimLike]) -> Value:
    """Squeeze over axes that are data."""
    marks = chosen(axes, x.rank)
    for axis, (mark, size) in enumerate(zip(marks, x.shape, strict=True)):
        if size != 1:
            Graph.current().check(dims.ne(dims.eq(mark, 0) + dims.eq(size, 1), 0), f"axis {axis} of size {size} cannot be squeezed")
    return without(x, marks, len(axes))


def unsqueeze_data(x: Value, axes: Sequence[DimLike]) -> Value:
    """Unsqueeze at axes that are data."""
    rank = x.rank + len(axes)
    marks = chosen(axes, rank)
    shape = [dims.select(m, 1, pick(sum((1 - n for n in marks[:d]), 0), x.shape, 1)) for d, m in enumerate(marks)]
    x = contiguous(x)
    return x.view(shape, x.offset, row_major(shape))


def summed_to(x: Value, shape: Sequence[DimLike]) -> Value:
    """The sum of a value over the axes along which a tensor of a shape is repeated to become one of the value's."""
    x = reduce("sum", x, range(x.rank - len(shape))) if x.rank > len(shape) else x
    if all(map(dims.same, x.shape, shape)):
        return x
    differ = [not dims.same(have, want) for have, want in zip(x.shape, shape, strict=True)]
    fixed = [a for a, want in enumerate(shape) if differ[a] and isinstance(want, int)]
    x = reduce("sum", x, fixed, True) if fixed else x
    if sum(differ) > len(fixed):
        marks = [dims.eq(want, 1) if differ[a] and a not in fixed else 0 for a, want in enumerate(shape)]
        x = reduce("sum", parted(x, marks), range(x.rank, 2 * x.rank))
    return reshape(x, shape)
