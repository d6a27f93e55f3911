"""Random graphs of 5 to 40 nodes: branches, values used several times, several outputs, repeated nodes, symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .sketch import FLOAT, Impossible, Sketch
from .values import code_of

HALF, DOUBLE = np.dtype(np.float16), np.dtype(np.float64)


@dataclass(frozen=True)
class Dim:
    """A size with a name: structure is decided by names alone, so that it is the same at all sizes."""

    key: str
    size: int

    @property
    def fixed(self) -> bool:
        return self.key.isdigit()


def static(size: int) -> Dim:
    return Dim(str(size), size)


Dims = tuple[Dim, ...]
ONE = static(1)


@dataclass(frozen=True)
class Value:
    """A float value of the graph."""

    name: str
    dims: Dims

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(d.size for d in self.dims)


Step = Callable[["Graph", Value], Sequence[Value]]
STEPS: list[tuple[int, Step]] = []


def step(weight: int) -> Callable[[Step], Step]:
    """Registers a way to go on from a value."""

    def register(make: Step) -> Step:
        STEPS.append((weight, make))
        return make

    return register


class Graph:
    """A graph that grows from a pool of values."""

    def __init__(self, m: Sketch) -> None:
        self.m = m
        self.dtype = m.choice((FLOAT,) * 10 + (DOUBLE, HALF))
        self.symbols = [Dim(k, int(m.fill.integers(1, 6))) for k in ("n", "m")]
        self.pool: list[Value] = []
        self.used: set[str] = set()
        m.varying, m.empty, m.special = True, False, m.chance(0.08)

    def dim(self) -> Dim:
        return self.m.choice(self.symbols) if self.m.chance(0.35) else static(self.m.choice((1, 2, 3, 4, 5, 8)))

    def input(self) -> Value:
        dims = tuple(self.dim() for _ in range(self.m.choice((1, 2, 3, 3, 4, 4))))
        array = self.m.array(self.dtype, [d.size for d in dims], "mild")
        return Value(self.m.input(array, [d.size if d.fixed else d.key for d in dims]), dims)

    def value(self) -> Value:
        """A value, rather a late one."""
        at = len(self.pool) - 1 - min(int(self.m.pick.geometric(0.25)) - 1, len(self.pool) - 1)
        found = self.pool[at]
        self.used.add(found.name)
        return found

    def like(self, dims: Dims) -> Value | None:
        """Another value that broadcasts with these dims."""
        fit = [
            v
            for v in self.pool
            if v.rank <= len(dims) and all(d.key in (e.key, "1") for d, e in zip(v.dims[::-1], dims[::-1], strict=False))
        ]
        if not fit:
            return None
        found: Value = self.m.choice(fit)
        self.used.add(found.name)
        return found

    def const(self, dims: Dims) -> str:
        """A constant that broadcasts to these dims."""
        rank = self.m.integer(0, len(dims))
        shape = [d.size if d.fixed and self.m.chance(0.7) else 1 for d in dims[len(dims) - rank :]]
        return self.m.const(self.m.array(self.dtype, shape, "plain", constant=True))

    def node(self, op: str, *inputs: str, dims: Dims, **attributes: Any) -> Value:
        return Value(self.m.node(op, *inputs, **attributes), dims)

    def grow(self) -> None:
        value = self.value()
        weights = np.asarray([w for w, _ in STEPS], np.float64)
        make = STEPS[int(self.m.pick.choice(len(STEPS), p=weights / weights.sum()))][1]
        try:
            self.pool += make(self, value)
        except Impossible:
            return


def graph(m: Sketch) -> None:
    """A random graph."""
    g = Graph(m)
    g.pool = [g.input() for _ in range(m.integer(1, 3))]
    target = m.integer(5, 40)
    for _ in range(3 * target):
        if len(m.nodes) >= target:
            break
        g.grow()
    made = {o for n in m.nodes for o in n.output}
    last = [v.name for v in g.pool if v.name in made and v.name not in g.used]
    m.result(*last[:6])
    m.result(*(v.name for v in g.pool if v.name in made and m.chance(0.08)))
    if not m.outputs:
        raise Impossible("nothing was computed")


_UNARY: tuple[tuple[str, dict[str, float]], ...] = (
    ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Neg", {}), ("Abs", {}), ("LeakyRelu", {"alpha": 0.1}), ("Elu", {}), ("HardSigmoid", {}),
    ("Softplus", {}), ("Erf", {}), ("Sin", {}), ("Cos", {}), ("Identity", {}), ("Selu", {}), ("Softsign", {}), ("HardSwish", {}),
    ("Ceil", {}),
)  # fmt: skip


@step(10)
def unary(g: Graph, x: Value) -> list[Value]:
    op, attributes = g.m.choice(_UNARY)
    if op == "HardSwish" and g.m.opset < 14:
        raise Impossible
    made = [g.node(op, x.name, dims=x.dims, **attributes)]
    if g.m.chance(0.25):
        g.used.add(made[0].name)
        made.append(g.node(op, made[0].name, dims=x.dims, **attributes))
    if g.m.chance(0.15):
        made.append(g.node(op, x.name, dims=x.dims, **attributes))
    return made


@step(4)
def gated(g: Graph, x: Value) -> list[Value]:
    """x · f(x)."""
    gate = g.node(g.m.choice(("Sigmoid", "Tanh", "HardSigmoid")), x.name, dims=x.dims)
    return [g.node("Mul", *((x.name, gate.name) if g.m.chance(0.5) else (gate.name, x.name)), dims=x.dims)]


@step(10)
def binary(g: Graph, x: Value) -> list[Value]:
    other = g.like(x.dims)
    if other is None:
        raise Impossible
    names = (x.name, other.name) if g.m.chance(0.5) else (other.name, x.name)
    return [g.node(g.m.choice(("Add", "Add", "Sub", "Mul", "Max", "Min")), *names, dims=x.dims)]


@step(8)
def with_const(g: Graph, x: Value) -> list[Value]:
    op = g.m.choice(("Add", "Mul", "Sub", "Max", "Min", "Add"))
    names = (x.name, g.const(x.dims)) if g.m.chance(0.7) else (g.const(x.dims), x.name)
    made = [g.node(op, *names, dims=x.dims)]
    if g.m.chance(0.2):
        g.used.add(made[0].name)
        made.append(g.node(op, made[0].name, next(n for n in names if n != x.name), dims=x.dims))
    return made


@step(2)
def quotient(g: Graph, x: Value) -> list[Value]:
    other = g.like(x.dims)
    if other is None:
        raise Impossible
    size = g.m.node("Add", g.m.node("Abs", other.name), g.m.const(np.asarray(1, g.dtype)))
    return [g.node("Div", x.name, size, dims=x.dims)]


@step(2)
def where(g: Graph, x: Value) -> list[Value]:
    other = g.like(x.dims)
    if other is None:
        raise Impossible
    cond = g.m.node(g.m.choice(("Greater", "Less")), x.name, g.m.const(np.asarray(0.1, g.dtype)))
    return [g.node("Where", cond, x.name, other.name, dims=x.dims)]


@step(1)
def wide_product(g: Graph, x: Value) -> list[Value]:
    """Weights that the core packs, as wide as that asks for; a few of the columns go on."""
    m, left = g.m, 5
    if x.rank < 2 or not x.dims[-1].fixed or not x.dims[-1].size:
        raise Impossible
    k = x.dims[-1].size
    n = 4096 // k + m.integer(1, 100)
    wide = m.node("MatMul", x.name, m.const(m.array(g.dtype, (k, n), "plain", constant=True)))
    first = m.integer(0, n - left)
    ends = [m.const(np.asarray([end], np.int64)) for end in (first, first + left, -1)]
    return [g.node("Slice", wide, *ends, dims=(*x.dims[:-1], static(left)))]


@step(6)
def product(g: Graph, x: Value) -> list[Value]:
    m = g.m
    if x.rank < 2:
        raise Impossible
    if x.dims[-1].fixed and m.chance(0.7):
        out = static(m.integer(1, 6))
        w = m.const(m.array(g.dtype, (x.dims[-1].size, out.size), "plain", constant=True))
        return [g.node("MatMul", x.name, w, dims=(*x.dims[:-1], out))]
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = m.node("Transpose", x.name, perm=perm)
    if m.chance(0.5):
        return [g.node("MatMul", x.name, turned, dims=(*x.dims[:-1], x.dims[-2]))]
    return [g.node("MatMul", turned, x.name, dims=(*x.dims[:-2], x.dims[-1], x.dims[-1]))]


@step(4)
def convolution(g: Graph, x: Value) -> list[Value]:
    m = g.m
    if x.rank not in (3, 4) or not x.dims[1].fixed:
        raise Impossible
    k, out = m.choice((1, 3)), m.integer(1, 4)
    w = m.const(m.array(g.dtype, (out, x.dims[1].size, *[k] * (x.rank - 2)), "plain", constant=True))
    bias = [m.const(m.array(g.dtype, (out,), "plain", constant=True))] if m.chance(0.5) else []
    return [g.node("Conv", x.name, w, *bias, dims=(x.dims[0], static(out), *x.dims[2:]), pads=[k // 2] * (2 * (x.rank - 2)))]


@step(2)
def pool(g: Graph, x: Value) -> list[Value]:
    if x.rank not in (3, 4) or g.m.special:  # onnxruntime's largest value skips NaN
        raise Impossible
    op = g.m.choice(("MaxPool", "AveragePool"))
    return [g.node(op, x.name, dims=x.dims, kernel_shape=[3] * (x.rank - 2), pads=[1] * (2 * (x.rank - 2)))]


@step(3)
def transpose(g: Graph, x: Value) -> list[Value]:
    perm = [int(i) for i in g.m.pick.permutation(x.rank)]
    return [g.node("Transpose", x.name, dims=tuple(x.dims[p] for p in perm), perm=perm)]


@step(5)
def concat(g: Graph, x: Value) -> list[Value]:
    m = g.m
    axis = m.integer(0, x.rank - 1)

    def fits(v: Value) -> bool:
        return v.rank == x.rank and all(a.key == b.key for i, (a, b) in enumerate(zip(v.dims, x.dims, strict=True)) if i != axis)

    parts = [x] + [m.choice([v for v in g.pool if fits(v)]) for _ in range(m.integer(1, 2))]
    if m.chance(0.4):
        parts = parts[::-1]
    if m.chance(0.3):
        parts = [g.node(m.choice(("Relu", "Neg")), p.name, dims=p.dims) for p in parts]
    g.used |= {p.name for p in parts}
    sizes = [p.dims[axis] for p in parts]
    total = sum(d.size for d in sizes)
    joined = static(total) if all(d.fixed for d in sizes) else Dim("+".join(d.key for d in sizes), total)
    if total > 40:
        raise Impossible
    return [g.node("Concat", *(p.name for p in parts), dims=(*x.dims[:axis], joined, *x.dims[axis + 1 :]), axis=axis)]


@step(3)
def split(g: Graph, x: Value) -> list[Value]:
    m = g.m
    axes = [a for a, d in enumerate(x.dims) if d.fixed and d.size > 1]
    if not axes:
        raise Impossible
    axis = m.choice(axes)
    first = m.integer(1, x.dims[axis].size - 1)
    sizes = [first, x.dims[axis].size - first]
    names = m.add("Split", [x.name, m.const(np.asarray(sizes))], 2, axis=axis)
    return [Value(n, (*x.dims[:axis], static(s), *x.dims[axis + 1 :])) for n, s in zip(names, sizes, strict=True)]


@step(3)
def slice_(g: Graph, x: Value) -> list[Value]:
    m = g.m
    axis = m.integer(0, x.rank - 1)
    d = x.dims[axis]
    if d.fixed:
        start = m.integer(0, d.size - 1)
        stop, stride = m.integer(start + 1, d.size), m.choice((1, 1, 2))
        size, ends = static(-(-(stop - start) // stride)), (start, stop, stride)
    elif m.chance(0.5):
        size, ends = d, (-1, -(2**62), -1)
    else:
        size, ends = ONE, m.choice(((0, 1, 1), (-1, 2**62, 1)))
    given = [m.const(np.asarray([v])) for v in (ends[0], ends[1], axis, ends[2])]
    return [g.node("Slice", x.name, *given, dims=(*x.dims[:axis], size, *x.dims[axis + 1 :]))]


@step(2)
def gather(g: Graph, x: Value) -> list[Value]:
    m = g.m
    axes = [a for a, d in enumerate(x.dims) if d.fixed]
    if not axes:
        raise Impossible
    axis = m.choice(axes)
    scalar = m.chance(0.4) and x.rank > 1
    index = m.whole_numbers(0, x.dims[axis].size - 1, () if scalar else (m.integer(1, 3),), constant=True)
    middle = () if scalar else (static(int(index.size)),)
    return [g.node("Gather", x.name, m.const(index), dims=(*x.dims[:axis], *middle, *x.dims[axis + 1 :]), axis=axis)]


@step(4)
def reshape(g: Graph, x: Value) -> list[Value]:
    """Joins two axes, or splits one and comes back; sizes are constants, or computed from the shape."""
    m = g.m
    if x.rank < 2:
        return [g.node("Unsqueeze", x.name, m.const(np.asarray([0])), dims=(ONE, *x.dims))]
    at = m.integer(0, x.rank - 2)
    a, b = x.dims[at : at + 2]
    joined = static(a.size * b.size) if a.fixed and b.fixed else Dim(f"({a.key}*{b.key})", a.size * b.size)
    dims = (*x.dims[:at], joined, *x.dims[at + 2 :])
    if m.chance(0.5) and sum(not d.fixed for d in dims) <= 1 and all(d.size for d in dims):
        target = m.const(np.asarray([d.size if d.fixed else -1 for d in dims]))
    else:
        whole = m.node("Shape", x.name)
        parts = [m.node("Slice", whole, *(m.const(np.asarray([v])) for v in ends)) for ends in ((0, at), (at + 2, 99))]
        target = m.node("Concat", parts[0], m.const(np.asarray([-1])), parts[1], axis=0)
    flat = g.node("Reshape", x.name, target, dims=dims)
    if m.chance(0.6):
        return [flat]
    g.used.add(flat.name)
    return [g.node("Reshape", m.node(m.choice(("Relu", "Neg", "Identity")), flat.name), m.node("Shape", x.name), dims=x.dims)]


@step(3)
def expand(g: Graph, x: Value) -> list[Value]:
    m = g.m
    if x.rank > 3:
        raise Impossible
    lead = static(m.integer(1, 3))
    target = m.node("Concat", m.const(np.asarray([lead.size])), m.node("Shape", x.name), axis=0)
    return [g.node("Expand", x.name, target, dims=(lead, *x.dims))]


@step(2)
def squeeze(g: Graph, x: Value) -> list[Value]:
    ones = [a for a, d in enumerate(x.dims) if d.key == "1"]
    if not ones or x.rank < 2:
        raise Impossible
    axis = g.m.choice(ones)
    return [g.node("Squeeze", x.name, g.m.const(np.asarray([axis])), dims=(*x.dims[:axis], *x.dims[axis + 1 :]))]


@step(4)
def reduce_(g: Graph, x: Value) -> list[Value]:
    m = g.m
    axes = sorted(m.some(range(x.rank), 1))
    keep = m.integer(0, 1) if len(axes) < x.rank else 1
    op = m.choice(("ReduceSum", "ReduceMean", "ReduceL2", *(() if m.special else ("ReduceMax", "ReduceMin"))))
    given, attributes = ([m.const(np.asarray(axes))], {}) if m.opset >= 18 or op == "ReduceSum" else ([], {"axes": axes})
    dims = tuple(ONE if a in axes else d for a, d in enumerate(x.dims) if keep or a not in axes)
    return [g.node(op, x.name, *given, dims=dims, keepdims=keep, **attributes)]


@step(3)
def softmax(g: Graph, x: Value) -> list[Value]:
    return [g.node("Softmax", x.name, dims=x.dims, axis=g.m.integer(-x.rank, x.rank - 1))]


@step(3)
def layer_normalization(g: Graph, x: Value) -> list[Value]:
    if not x.dims[-1].fixed or x.dims[-1].size < 3:
        raise Impossible
    given = [g.m.const(g.m.array(g.dtype, (x.dims[-1].size,), "plain", constant=True)) for _ in range(g.m.integer(1, 2))]
    return [g.node("LayerNormalization", x.name, *given, dims=x.dims)]


@step(1)
def through_cast(g: Graph, x: Value) -> list[Value]:
    if g.m.chance(0.5):
        mask = g.m.node("Greater", x.name, g.m.const(np.asarray(0, g.dtype)))
        return [g.node("Cast", mask, dims=x.dims, to=code_of(g.dtype))]
    return [g.node("Cast", g.m.node("Cast", x.name, to=code_of(DOUBLE)), dims=x.dims, to=code_of(g.dtype))]


@step(1)
def quantised(g: Graph, x: Value) -> list[Value]:
    if g.dtype != FLOAT:
        raise Impossible
    scale, zero = g.m.const(np.float32(0.05)), g.m.const(np.uint8(128))
    return [g.node("DequantizeLinear", g.m.node("QuantizeLinear", x.name, scale, zero), scale, zero, dims=x.dims)]


@step(1)
def pad(g: Graph, x: Value) -> list[Value]:
    if not x.dims[-1].fixed or x.dims[-1].size > 20:
        raise Impossible
    pads = [0] * (2 * x.rank)
    pads[x.rank - 1], pads[-1] = g.m.integer(0, 2), g.m.integer(0, 2)
    dims = (*x.dims[:-1], static(x.dims[-1].size + pads[x.rank - 1] + pads[-1]))
    return [g.node("Pad", x.name, g.m.const(np.asarray(pads)), dims=dims)]
