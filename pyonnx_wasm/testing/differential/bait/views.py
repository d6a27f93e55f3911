"""Chains of views, shapes that are computed, reductions and casts one behind the other."""

from __future__ import annotations

import numpy as np

from ..sketch import FLOAT, Sketch
from ..values import code_of
from . import bait
from .products import const, given


@bait
def views(m: Sketch) -> None:
    """Transpose, slice, reshape, expand and squeeze in a chain, and what takes them strided."""
    array = m.array(FLOAT, m.shape(m.integer(1, 4), 1, 5), "plain")
    x, shape = m.input(array), array.shape
    for _ in range(m.integer(1, 5)):
        x, shape = _view(m, x, shape)
        if m.chance(0.2):
            x = m.node(m.choice(("Relu", "Neg", "Identity")), x)
    kind = m.choice(("none", "matmul", "softmax", "norm", "reduce", "binary", "concat", "conv", "cumsum", "gather", "topk"))
    rank = len(shape)
    if rank and kind in ("softmax", "cumsum", "topk", "reduce"):
        axis = m.integer(-rank, rank - 1)
        if kind == "topk":
            x = m.add("TopK", [x, m.const(np.asarray([min(1, shape[axis])]))], 2, axis=axis)[0]
        elif kind == "cumsum":
            x = m.node("CumSum", x, m.const(np.asarray(axis)))
        else:
            x = (
                m.node("Softmax", x, axis=axis)
                if kind == "softmax"
                else m.node("ReduceSum", x, m.const(np.asarray([axis])), keepdims=m.integer(0, 1))
            )
    elif rank > 1 and kind == "matmul":
        x = m.node("MatMul", x, given(m, (shape[-1], 3), 0.5))
    elif rank and kind == "norm":
        x = m.node("LayerNormalization", x, const(m, ()) if not m.chance(0.8) else given(m, shape[-1:], 0.3))
    elif kind == "binary":
        x = m.node("Add", x, given(m, m.broadcast(shape), 0.3))
    elif rank and kind == "concat":
        x = m.node("Concat", x, x, axis=m.integer(-rank, rank - 1))
    elif rank in (3, 4) and kind == "conv" and 0 not in shape:
        x = m.node("Conv", x, given(m, (2, shape[1], *[1] * (rank - 2)), 0.5))
    elif rank and kind == "gather" and shape[0]:
        x = m.node("Gather", x, m.const(np.asarray([0, shape[0] - 1])))
    m.result(x)


def _view(m: Sketch, x: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    kind = m.choice(("transpose", "slice", "reshape", "expand", "squeeze", "unsqueeze", "flatten", "split"))
    rank = len(shape)
    if kind == "transpose" and rank:
        perm = [int(i) for i in m.pick.permutation(rank)]
        return m.node("Transpose", x, perm=perm), tuple(shape[p] for p in perm)
    if kind == "slice" and rank:
        axis, start, stop, stride = m.integer(0, rank - 1), m.integer(-4, 3), m.choice((-1, 2, 4, 2**62)), m.choice((1, 1, 2, -1))
        given_ = [m.const(np.asarray([v])) for v in (start, stop, axis, stride)]
        size = len(range(*slice(start, stop, stride).indices(shape[axis]))) if stride > 0 else _backwards(start, stop, stride, shape[axis])
        return m.node("Slice", x, *given_), (*shape[:axis], size, *shape[axis + 1 :])
    if kind == "reshape" and rank > 1 and 0 not in shape:
        at = m.integer(0, rank - 2)
        target = [*shape[:at], -1, *shape[at + 2 :]]
        return m.node("Reshape", x, m.const(np.asarray(target))), (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    if kind == "expand" and rank < 4:
        lead = m.integer(1, 3)
        return m.node("Expand", x, m.const(np.asarray([lead, *[1] * rank]))), (lead, *shape)
    if kind == "unsqueeze" and rank < 5:
        axis = m.integer(0, rank)
        return m.node("Unsqueeze", x, m.const(np.asarray([axis]))), (*shape[:axis], 1, *shape[axis:])
    if kind == "squeeze" and 1 in shape:
        axis = shape.index(1)
        return m.node("Squeeze", x, m.const(np.asarray([axis]))), (*shape[:axis], *shape[axis + 1 :])
    if kind == "flatten" and rank:
        axis = m.integer(0, rank)
        return m.node("Flatten", x, axis=axis), (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
    if kind == "split" and rank and shape[-1] > 1:
        sizes = [1, shape[-1] - 1]
        return m.add("Split", [x, m.const(np.asarray(sizes))], 2, axis=-1)[1], (*shape[:-1], sizes[1])
    return x, shape


def _backwards(start: int, stop: int, stride: int, size: int) -> int:
    first = min(start + size if start < 0 else start, size - 1)
    last = stop + size if stop < 0 else min(stop, size)
    return max(0, -(-(max(last, -1) - first) // stride))


@bait
def computed_shape(m: Sketch) -> None:
    """Arithmetic on sizes, and what takes its result: Reshape, Expand, Slice, Range, ConstantOfShape, Tile."""
    dims = m.shape(m.integer(2, 4), 1, 5)
    m.empty = False
    x = given(m, dims, 0)
    shape = m.node("Shape", x)
    rank = len(dims)

    def size(axis: int) -> str:
        return m.node("Gather", shape, m.const(np.asarray(axis if m.chance(0.7) else axis - rank)), axis=0)

    def vector(name: str) -> str:
        return m.node("Unsqueeze", name, m.const(np.asarray([0])))

    a, b = m.integer(0, rank - 1), m.integer(0, rank - 1)
    n = size(a)
    for _ in range(m.integer(0, 3)):
        op, other = m.choice(("Add", "Mul", "Sub", "Div", "Max", "Min", "Mod")), m.integer(1, 3)
        n = m.node(op, n, m.const(np.asarray(other)) if m.chance(0.6) else size(b))
    n = m.node("Abs", n) if m.chance(0.3) else n
    if m.chance(0.2):
        n = m.node("Cast", m.node("Floor", m.node("Mul", m.node("Cast", n, to=1), m.const(np.float32(m.choice((0.5, 1.5)))))), to=7)
    kind = m.choice(("range", "fill", "slice", "expand", "reshape", "tile", "value"))
    if kind == "range":
        y = m.node("Range", m.const(np.asarray(0)), n, m.const(np.asarray(1)))
    elif kind == "fill":
        y = m.node("ConstantOfShape", m.node("Concat", vector(n), vector(size(b)), axis=0))
    elif kind == "slice":
        start = m.const(np.asarray([m.integer(-1, 1)]))
        y = m.node("Slice", x, start, vector(n), m.const(np.asarray([m.integer(0, rank - 1)])))
    elif kind == "expand":
        y = m.node("Expand", vector(x), m.node("Concat", vector(n), *(m.const(np.asarray([1])) for _ in range(rank)), axis=0))
    elif kind == "reshape":
        y = m.node("Reshape", x, m.node("Concat", vector(m.node("Mul", size(0), size(1))), m.const(np.asarray([-1])), axis=0))
    elif kind == "tile":
        few = m.node("Min", n, m.const(np.asarray(3)))
        y = m.node("Tile", vector(x), m.node("Concat", vector(few), m.const(np.ones(rank, np.int64)), axis=0))
    else:
        y = m.node("Mul", x, m.node("Cast", n, to=1))
    m.result(y, n)


@bait
def chains(m: Sketch) -> None:
    """Reductions of reductions, transposes of transposes, casts of casts, sums of a value with itself."""
    dims = m.shape(m.integer(1, 4), 1, 4)
    m.special = False
    y, rank = given(m, dims, 0.05), len(dims)
    for _ in range(m.integer(2, 6)):
        kind = m.choice(("cast", "transpose", "reduce", "double", "square", "unary", "minmax", "divide"))
        if kind == "cast":
            y = m.node("Cast", m.node("Cast", y, to=code_of(m.choice((np.dtype(np.float16), np.dtype(np.float64))))), to=1)
        elif kind == "transpose":
            y = m.node("Transpose", y, perm=[int(i) for i in m.pick.permutation(rank)])
        elif kind == "reduce":
            axes = m.const(np.asarray([m.integer(-rank, rank - 1)]))
            y = m.node("ReduceSum", y, axes, keepdims=1)
        elif kind in ("double", "square"):
            y = m.node("Add" if kind == "double" else "Mul", y, y)
        elif kind == "unary":
            y = m.node(m.choice(("Relu", "Abs", "Neg", "Sqrt", "Sigmoid", "Tanh")), y)
        elif kind == "minmax":
            y = m.node("Max", m.node("Min", y, m.const(np.float32(0.5))), m.const(np.float32(m.choice((-0.5, 0.0, 0.75)))))
        else:
            y = m.node("Div", y, m.const(np.float32(m.choice((2.0, 3.0, 0.1)))))
    m.result(y)
