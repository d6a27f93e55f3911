"""Views, which cost nothing, and the copy where no view will do; the shape rules that operators share.

A view that is made here lies inside what it views: that is proved when it is made, or a check is left in the graph for when
shapes are bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..ir import Graph, IRError, Node, Shape, Value, dims, row_major
from ..ir.dims import Dim, DimLike
from ..registry import Kernel
from .content import CONTENT_LIMIT, constant, knowing

MAX_RANK = 8


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """A non-negative axis; raises IRError when it is out of range."""
    if not -rank <= axis < max(rank, 1):
        raise IRError(f"{what} {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def transpose(x: Value, perm: Sequence[int]) -> Value:
    """The axes in another order."""
    if sorted(perm) != list(range(x.rank)):
        raise IRError(f"perm {list(perm)} does not permute {x.rank} axes")
    return x.view([x.shape[p] for p in perm], x.offset, [x.strides[p] for p in perm], knowing(x, lambda c: c.transpose(perm)))


def swap(x: Value, a: int, b: int) -> Value:
    """Two axes exchanged."""
    perm = list(range(x.rank))
    perm[a], perm[b] = perm[b], perm[a]
    return transpose(x, perm)


def reshape(x: Value, shape: Sequence[DimLike]) -> Value:
    """The same elements, row-major, in another shape: a view where strides allow, else of a contiguous copy."""
    shape = tuple(shape)
    _demand_equal(dims.product(shape), x.size, lambda: f"cannot reshape {show(x.shape)} to {show(shape)}")
    fixed = ints(shape)
    known = knowing(x, lambda c: c.reshape(fixed)) if fixed is not None else None
    strides = row_major(shape) if x.contiguous else split_strides(x, shape)
    if strides is None:
        x = contiguous(x)
        strides = row_major(shape)
    return x.view(shape, x.offset, strides, known)


def ints(shape: Sequence[DimLike]) -> tuple[int, ...] | None:
    return tuple(int(s) for s in shape) if all(isinstance(s, int) for s in shape) else None


def split_strides(x: Value, shape: Shape) -> Shape | None:
    """Strides of a reshape of a strided view, where each new axis lies inside one run of old axes; else None."""
    runs: list[tuple[DimLike, DimLike]] = []  # merged (size, stride) of the old axes
    for size, stride in zip(x.shape, x.strides, strict=True):
        if size == 1:
            continue
        if runs and dims.same(runs[-1][1], size * stride):
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    strides: list[DimLike] = []
    at = len(shape)
    for size, stride in reversed(runs):
        covered: DimLike = 1
        while not dims.same(covered, size):
            at -= 1
            if at < 0:
                return None
            strides.append(stride * covered)
            covered = covered * shape[at]
            if isinstance(covered, int) and isinstance(size, int) and covered > size:
                return None
    if any(s != 1 for s in shape[:at]):
        return None
    return tuple([0] * at + strides[::-1])


def contiguous(x: Value) -> Value:
    """The value itself when it is row-major without gaps, else a copy that is."""
    if x.contiguous:
        return x
    y: Value = COPY({"y": (x.dtype, x.shape)}, {"x": x})
    y._content = x._content
    return y


def squeeze(x: Value, axes: Sequence[int]) -> Value:
    drop = {axis_of(a, x.rank) for a in axes}
    for a in drop:
        _demand_equal(x.shape[a], 1, lambda a=a: f"axis {a} of size {x.shape[a]} cannot be squeezed")  # type: ignore[misc]
    keep = [a for a in range(x.rank) if a not in drop]
    return x.view(
        [x.shape[a] for a in keep], x.offset, [x.strides[a] for a in keep], knowing(x, lambda c: c.reshape([c.shape[a] for a in keep]))
    )


def unsqueeze(x: Value, axes: Sequence[int]) -> Value:
    rank = x.rank + len(axes)
    new = {axis_of(a, rank) for a in axes}
    if len(new) != len(axes):
        raise IRError(f"axes {list(axes)} repeat")
    old = iter(zip(x.shape, x.strides, strict=True))
    pairs = [(1, 0) if a in new else next(old) for a in range(rank)]
    return x.view([p[0] for p in pairs], x.offset, [p[1] for p in pairs], knowing(x, lambda c: c.reshape([p[0] for p in pairs])))


def slice_(x: Value, axis: int, start: DimLike, size: DimLike, step: DimLike = 1) -> Value:
    """``size`` elements of an axis from ``start`` (at least 0) in steps; they must lie inside the axis."""
    length = x.shape[axis]
    last = start + (size - 1) * step
    least, most = (start, last) if isinstance(step, int) and step > 0 else (dims.dmin(start, last), dims.dmax(start, last))
    inside = dims.ge(least, 0) * dims.lt(most, length) * dims.ge(size, 0)
    if inside != 1:
        message = f"elements {start} to {last} are out of range for axis {axis} of size {length}"
        Graph.current().check(dims.ne(inside + dims.eq(size, 0), 0), message)
    return _taken(x, axis, start, size, step)


def between(x: Value, axis: int, start: DimLike, end: DimLike, step: int = 1) -> Value:
    """``x[start:end:step]`` along an axis, as ONNX's Slice: positions below 0 count from the end, those outside are clamped.

    Unlike Python, a start before the first element is the first element in steps backwards, too.
    """
    size = x.shape[axis]
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, stop = _position(start, size, 0, high), _position(end, size, low, high)
    span = dims.dmax(stop - first if step > 0 else first - stop, 0)
    one = abs(step) >= dims.MAX_SIZE
    count = dims.dmin(span, 1) if one else dims.ceildiv(span, abs(step))
    if step < 0:
        first = dims.dmax(first, 0)
    elif not isinstance(first, int):
        first = dims.dmin(first, dims.dmax(size - 1, 0))
    return _taken(x, axis, first, count, 1 if one else step)


def between_data(x: Value, axis: int, start: DimLike, end: DimLike, step: DimLike) -> Value:
    """The same in steps whose direction is data."""
    size, up = x.shape[axis], dims.gt(step, 0)
    step = dims.dmin(dims.dmax(step, -dims.MAX_SIZE), dims.MAX_SIZE)  # no axis is longer, and a step has a negative of its own
    low, high = dims.select(up, 0, -1), dims.select(up, size, size - 1)
    first, stop = _position(start, size, 0, high), _position(end, size, low, high)
    span = dims.dmax(dims.select(up, stop - first, first - stop), 0)
    count = dims.ceildiv(span, dims.dmax(dims.select(up, step, 0 - step), 1))
    return _taken(x, axis, dims.dmin(dims.dmax(first, 0), dims.dmax(size - 1, 0)), count, dims.select(dims.le(count, 1), 1, step))


def _position(at: DimLike, size: DimLike, low: DimLike, high: DimLike) -> DimLike:
    """A position counted from the end when negative, limited to [low, high]."""
    if isinstance(at, int):
        if at >= dims.MAX_SIZE:
            return high
        if at <= -dims.MAX_SIZE:
            return dims.dmin(low, high)
        at = at + size if at < 0 else at
    elif dims.bounds(at)[0] is None or dims.bounds(at)[0] < 0:  # type: ignore[operator]
        at = dims.select(dims.lt(at, 0), at + size, at)
    return dims.dmin(dims.dmax(at, low), high)


def _taken(x: Value, axis: int, start: DimLike, size: DimLike, step: DimLike) -> Value:
    shape, strides = list(x.shape), list(x.strides)
    shape[axis], strides[axis] = size, x.strides[axis] * step
    known = None
    if isinstance(start, int) and isinstance(size, int) and isinstance(step, int) and size <= CONTENT_LIMIT:
        index = [start + i * step for i in range(size)]
        known = knowing(x, lambda c: c.take(index, axis))
    return x.view(shape, x.offset + start * x.strides[axis], strides, known)


def split(x: Value, axis: int, sizes: Sequence[DimLike]) -> list[Value]:
    """Pieces of an axis, one behind the other, which together are the axis."""
    _demand_equal(sum(sizes, 0), x.shape[axis], lambda: f"split sizes {show(sizes)} do not add up to {x.shape[axis]}")
    for size in sizes:
        if dims.ge(size, 0) != 1:
            Graph.current().check(dims.ge(size, 0), f"the split size {size} is negative")
    starts = itertools.accumulate(sizes, initial=0)
    return [_taken(x, axis, start, size, 1) for start, size in zip(starts, sizes, strict=False)]


def broadcast_to(x: Value, shape: Sequence[DimLike]) -> Value:
    """Numpy broadcasting to a shape; sizes that are not known to fit are checked when shapes are bound."""
    lead = len(shape) - x.rank
    for have, want in zip(x.shape, shape[max(lead, 0) :], strict=False):
        fits = 1 if dims.same(have, want) else dims.ne(dims.eq(have, 1) + dims.eq(have, want), 0)
        if lead < 0 or fits != 1:
            Graph.current().check(fits if lead >= 0 else 0, f"shape {show(x.shape)} does not broadcast to {show(shape)}")
    return _spread(x, shape)


def broadcast(*xs: Value, keep: int = 0) -> list[Value]:
    """Values on their common shape, the last ``keep`` axes of each as they are."""
    lead = broadcast_shapes(*(x.shape[: x.rank - keep] for x in xs))
    return [_spread(x, (*lead, *x.shape[x.rank - keep :])) for x in xs]


def expand(x: Value, shape: Sequence[DimLike]) -> Value:
    """A value on the common shape of its own and another."""
    return _spread(x, broadcast_shapes(x.shape, shape))


def _spread(x: Value, shape: Sequence[DimLike]) -> Value:
    """A size not known to be 1 gets a stride that is 0 when it turns out to be."""
    shape = tuple(shape)
    lead = len(shape) - x.rank
    strides: list[DimLike] = [0] * lead
    for have, want, stride in zip(x.shape, shape[lead:], x.strides, strict=True):
        if have == want:
            strides.append(stride)
        elif isinstance(have, int):
            strides.append(0 if have == 1 else stride)
        else:
            strides.append(dims.select(dims.eq(have, 1), 0, stride))
    fixed = ints(shape)
    known = knowing(x, lambda c: np.broadcast_to(c, fixed)) if fixed is not None and math.prod(fixed) <= CONTENT_LIMIT else None
    return x.view(shape, x.offset, strides, known)


def fill(shape: Sequence[DimLike], value: float, dtype: DType) -> Value:
    """A tensor of one repeated number."""
    return broadcast_to(constant(np.asarray(value, to_numpy(dtype)), dtype), tuple(shape))


def _demand_equal(have: DimLike, want: DimLike, message: Callable[[], str]) -> None:
    if not (have == want or dims.same(have, want)):
        Graph.current().check(dims.eq(have, want), message())


def broadcast_shapes(*shapes: Sequence[DimLike]) -> Shape:
    """The common shape; sizes that are not known to agree are checked when shapes are bound."""

    rank = max(map(len, shapes))
    out: list[DimLike] = []
    for axis in range(rank):
        size: DimLike = 1
        for shape in shapes:
            at = axis - rank + len(shape)
            other = shape[at] if at >= 0 else 1
            if other == 1 or size == other or dims.same(size, other):
                continue
            if size == 1:
                size = other
            elif isinstance(size, int) and isinstance(other, int):
                raise IRError(f"shapes {' and '.join(show(s) for s in shapes)} do not broadcast")
            else:
                fits = dims.ne(dims.eq(size, other) + dims.eq(size, 1) + dims.eq(other, 1), 0)
                Graph.current().check(fits, f"shapes {' and '.join(show(s) for s in shapes)} do not broadcast")
                size = _joined(size, other)
        out.append(size)
    return tuple(out)


def sized(x: Value, shape: Sequence[DimLike], what: str) -> Value:
    """The value as one of this shape; sizes that are not known to agree are checked when shapes are bound."""

    if x.rank != len(shape):
        raise IRError(f"{what} must have rank {len(shape)}, it is {x}")
    for have, want in zip(x.shape, shape, strict=True):
        _demand_equal(have, want, lambda: f"{what} has shape {show(x.shape)}, it must be {show(shape)}")
    return x.view(shape, x.offset, x.strides, x._content)


def _joined(a: DimLike, b: DimLike) -> DimLike:
    if isinstance(a, int) and a > 1:
        return a
    if isinstance(b, int) and b > 1:
        return b
    for size, other in ((a, b), (b, a)):
        if isinstance(other, Dim) and other.op == "min" and size in other.args:
            return size
    return dims.select(dims.eq(a, 1), b, a)


def show(shape: Sequence[DimLike]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def same_view(a: Value, b: Value) -> bool:
    same = a.storage is b.storage and a.dtype is b.dtype
    return same and a.offset == b.offset and a.shape == b.shape and a.strides == b.strides


def coalesced(y: Value, xs: Sequence[Value]) -> tuple[Value, list[Value]]:
    """Drops axes of size 1 and merges neighbours that every operand walks evenly."""
    every = [y, *xs]
    keep = [a for a in range(y.rank) if y.shape[a] != 1]
    shape = [y.shape[a] for a in keep]
    strides = [[v.strides[a] for a in keep] for v in every]
    at = len(shape) - 1
    while at > 0:
        if all(dims.same(s[at - 1], s[at] * shape[at]) for s in strides):
            shape[at - 1] = shape[at - 1] * shape[at]
            del shape[at]
            for s in strides:
                del s[at - 1]
        at -= 1
    if len(shape) > MAX_RANK:
        raise IRError(f"more than {MAX_RANK} dimensions")
    views = [v.view(shape, v.offset, s) for v, s in zip(every, strides, strict=True)]
    return views[0], views[1:]


def _copy_params(node: Node) -> dict[str, Any]:
    y, (x,) = coalesced(node.out, [node.ins["x"]])
    return {"rank": y.rank, "xoff": x.offset, "yoff": y.offset, "shape": y.shape, "xstride": x.strides, "ystride": y.strides}


COPY = Kernel("copy", ">y x", "rank xoff yoff shape[8] xstride[8] ystride[8]", _copy_params, ("strided", "elementwise"))
