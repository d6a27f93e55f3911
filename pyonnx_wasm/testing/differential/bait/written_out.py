"""Normalisation, attention and activations written out in small operations."""

from __future__ import annotations

import numpy as np

from ..sketch import Sketch
from . import bait
from .products import const, given


def number(m: Sketch, value: float, rank: int = 2) -> str:
    """A constant number, as a scalar or with axes of size 1."""
    return m.const(np.full([1] * m.choice((0, 0, 0, 1, m.integer(0, rank))), value, np.float32))


def mean(m: Sketch, x: str, axes: list[int], keep: int = 1) -> str:
    if m.opset < 18:
        return m.node("ReduceMean", x, axes=axes, keepdims=keep)
    return m.node("ReduceMean", x, m.const(np.asarray(axes)), keepdims=keep)


@bait
def layer_norm(m: Sketch) -> None:
    dims = m.shape(m.integer(1, 4), 2, 7)
    m.special = False
    rank = len(dims)
    x = given(m, dims, 0.05)
    count = m.integer(1, min(2, rank))
    axes = list(range(-count, 0)) if m.chance(0.8) else sorted(a - rank for a in m.some(range(rank), 1))
    axes = [a + rank for a in axes] if m.chance(0.2) else axes
    rms = m.chance(0.35)
    centred = x if rms else m.node("Sub", x, mean(m, x, axes))
    again = m.node("Sub", x, mean(m, x, axes)) if not rms and m.chance(0.2) else centred
    square = m.choice(("Pow", "Pow", "Mul", "three"))
    if square == "Mul":
        powered = m.node("Mul", again, centred)
    else:
        powered = m.node("Pow", again, number(m, 2.0 if square == "Pow" else 4.0, rank + 1))
    variance = mean(m, powered, axes if m.chance(0.9) else [-1])
    epsilon = number(m, m.choice((1e-5, 1e-3, 0.1)), rank)
    total = m.node("Add", *((variance, epsilon) if m.chance(0.7) else (epsilon, variance)))
    root = m.node("Sqrt", total)
    if m.chance(0.6):
        y = m.node("Div", centred, root)
    else:
        inverse = m.node("Reciprocal", root) if m.chance(0.5) else m.node("Div", number(m, m.choice((1.0, 1.0, 2.0)), rank), root)
        y = m.node("Mul", *((centred, inverse) if m.chance(0.6) else (inverse, centred)))
    if m.chance(0.7):
        scale = given(m, m.broadcast(dims) if m.chance(0.3) else dims[-1:], 0.8)
        y = m.node("Mul", *((y, scale) if m.chance(0.6) else (scale, y)))
    if m.chance(0.6):
        bias = given(m, m.broadcast(dims) if m.chance(0.3) else dims[-1:], 0.8)
        y = m.node("Add", *((y, bias) if m.chance(0.6) else (bias, y)))
    m.result(y)
    if m.chance(0.15):
        m.result(m.choice((centred, root, variance)))


@bait
def group_norm(m: Sketch) -> None:
    """Reshape, InstanceNormalization or means, Reshape, scale and bias."""
    groups, per, n, h = m.integer(1, 3), m.integer(1, 2), m.size(1, 2), m.size(1, 4)
    c = groups * per
    x = given(m, (n, c, h, h), 0.05)
    flat = m.node("Reshape", x, m.const(np.asarray([0, groups, -1])))
    if m.chance(0.5):
        y = m.node("InstanceNormalization", flat, const(m, (groups,)), const(m, (groups,)))
    else:
        centred = m.node("Sub", flat, mean(m, flat, [-1]))
        variance = mean(m, m.node("Mul", centred, centred), [-1])
        y = m.node("Div", centred, m.node("Sqrt", m.node("Add", variance, number(m, 1e-3, 3))))
    back = m.node("Shape", x) if m.chance(0.5) else m.const(np.asarray([-1, c, h, h]))
    y = m.node("Reshape", y, back)
    y = m.node("Add", m.node("Mul", y, const(m, (c, 1, 1))), const(m, (c, 1, 1)))
    m.result(m.node("Mul", y, m.node("Sigmoid", y)) if m.chance(0.4) else y)


@bait
def attention(m: Sketch) -> None:
    rank = m.choice((3, 4, 4, 2))
    m.special = False
    lead = m.shape(rank - 2, 1, 3)
    q, k, size, depth = m.choice((1, m.size(1, 5))), m.size(1, 5), m.integer(1, 6), m.integer(1, 6)
    query, value = given(m, (*lead, q, size), 0.05), given(m, (*lead, k, depth), 0.05)
    perm = [*range(rank - 2), rank - 1, rank - 2]
    keys = given(m, (*lead, size, k), 0.05) if m.chance(0.3) else m.node("Transpose", given(m, (*lead, k, size), 0.05), perm=perm)
    where_scaled = m.choice(("none", "q", "k", "both", "mul", "div", "mul", "div", "input"))
    factor = m.choice((0.5, 0.35355339, 2.0, 1.0))
    if where_scaled in ("q", "both"):
        query = m.node("Mul", query, number(m, factor))
    if where_scaled in ("k", "both"):
        keys = m.node("Mul", keys, number(m, factor))
    scores = m.node("MatMul", query, keys)
    if where_scaled in ("mul", "div"):
        scores = m.node("Mul" if where_scaled == "mul" else "Div", scores, number(m, factor))
    if where_scaled == "input":
        scores = m.node("Mul", scores, m.input(np.asarray(factor, np.float32)))
    scores = masked(m, scores, (*lead, q, k))
    axis = -1 if m.chance(0.85) else -2
    weights = m.node("Softmax", scores, axis=axis if m.chance(0.6) else axis + rank)
    if m.chance(0.15):
        m.result(weights)
    if m.chance(0.15):
        weights = m.node("Dropout", weights)
    if m.chance(0.1):
        weights = m.node("Mul", weights, number(m, 0.5))
    y = m.node("MatMul", weights, value)
    if rank == 4 and m.chance(0.6):
        y = m.node("Transpose", y, perm=[0, 2, 1, 3])
        y = m.node("Reshape", y, m.const(np.asarray([0, 0, -1]))) if m.chance(0.7) else y
    m.result(y)


def masked(m: Sketch, scores: str, full: tuple[int, ...]) -> str:
    """Scores with a mask: added, chosen by Where, causal, or none."""
    kind = m.choice(("none", "add", "add", "where", "causal", "two"))
    shape = m.choice((full, full[-2:], full[-1:], tuple(1 if i < len(full) - 2 else s for i, s in enumerate(full)), (full[-2], 1), ()))
    if kind in ("add", "two"):
        scores = m.node("Add", *((scores, given(m, shape, 0.4)) if m.chance(0.7) else (given(m, shape, 0.4), scores)))
    if kind in ("where", "two"):
        low = m.const(np.asarray(m.choice((-1e9, -10000.0, -3.4028235e38)), np.float32))
        mask = m.operand(np.bool_, shape, "plain", constant=0.4)
        scores = m.node("Where", mask, scores, low) if m.chance(0.5) else m.node("Where", mask, low, scores)
    if kind == "causal":
        table = np.triu(np.full((full[-2], full[-1]), -np.inf if m.chance(0.5) else -1e9, np.float32), 1)
        scores = m.node("Add", scores, m.const(table) if m.chance(0.7) else m.input(table))
    return scores


@bait
def heads(m: Sketch) -> None:
    """Projections, split into heads, attention with shared keys, merged."""
    m.special = False
    batch, length, count, rep, size = m.size(1, 2), m.size(1, 4), m.integer(1, 2), m.integer(1, 2), m.integer(1, 4)
    width = m.integer(2, 5)
    x = given(m, (batch, length, width), 0)

    def projected(n: int, perm: list[int]) -> str:
        y = m.node("MatMul", x, const(m, (width, n * size)))
        y = m.node("Add", y, const(m, (n * size,))) if m.chance(0.6) else y
        y = m.node("Reshape", y, m.const(np.asarray([0, 0, n, size])))
        return m.node("Transpose", y, perm=perm)

    turned = m.chance(0.5)
    q = projected(count * rep, [0, 2, 1, 3])
    k = projected(count, [0, 2, 3, 1] if turned else [0, 2, 1, 3])
    v = projected(count, [0, 2, 1, 3])
    if rep > 1:
        k, v = (repeated(m, y, rep) for y in (k, v))
    k = k if turned else m.node("Transpose", k, perm=[0, 1, 3, 2])
    scores = m.node(m.choice(("Div", "Mul")), m.node("MatMul", q, k), number(m, m.choice((2.0, 0.7))))
    scores = masked(m, scores, (batch, count * rep, length, length))
    y = m.node("MatMul", m.node("Softmax", scores, axis=-1), v)
    y = m.node("Reshape", m.node("Transpose", y, perm=[0, 2, 1, 3]), m.const(np.asarray([0, 0, count * rep * size])))
    m.result(m.node("Add", x, m.node("MatMul", y, const(m, (count * rep * size, width)))))


def repeated(m: Sketch, y: str, rep: int) -> str:
    """[b, h, a, c] with each head ``rep`` times, as exporters write it."""
    shape = m.node("Shape", y)
    wide = m.node("Unsqueeze", y, m.const(np.asarray([2])))
    b, h, rest = (m.node("Slice", shape, *(m.const(np.asarray([v])) for v in ends)) for ends in ((0, 1), (1, 2), (2, 4)))
    spread = m.node("Expand", wide, m.node("Concat", b, h, m.const(np.asarray([rep])), rest, axis=0))
    return m.node("Reshape", spread, m.node("Concat", b, m.node("Mul", h, m.const(np.asarray([rep]))), rest, axis=0))


@bait
def activation(m: Sketch) -> None:
    """Gelu, silu, hardswish, mish, quick gelu and their kin, with right and with slightly other constants."""
    m.special = m.special and m.chance(0.5)
    dims = m.shape()
    x = given(m, dims, 0.05)

    def near(value: float) -> str:
        return number(m, value if m.chance(0.7) else value * m.choice((1.0001, 0.99, 1.01, 0.5, 1.00001)), max(1, len(dims)))

    def mul(a: str, b: str) -> str:
        return m.node("Mul", *((a, b) if m.chance(0.5) else (b, a)))

    def add(a: str, b: str) -> str:
        return m.node("Add", *((a, b) if m.chance(0.5) else (b, a)))

    kind = m.choice(("gelu", "gelu", "tanh", "tanh", "silu", "quick", "hardswish", "hardsigmoid", "mish", "softplus", "clip", "elu"))
    half = m.integer(0, 2)
    if kind == "gelu":
        inner = m.node("Div", x, near(1.4142135)) if m.chance(0.5) else mul(x, near(0.70710678))
        gate = add(m.node("Erf", inner), near(1.0))
        y = mul(mul(x, gate), near(0.5)) if half == 0 else mul(mul(x, near(0.5)), gate) if half == 1 else mul(x, mul(gate, near(0.5)))
    elif kind == "tanh":
        cube = m.node("Pow", x, near(3.0)) if m.chance(0.6) else mul(mul(x, x), x)
        gate = add(m.node("Tanh", mul(add(x, mul(cube, near(0.044715))), near(0.7978846))), near(1.0))
        y = mul(mul(x, near(0.5)), gate) if half else mul(x, mul(gate, near(0.5)))
    elif kind in ("silu", "quick"):
        y = mul(x, m.node("Sigmoid", x if kind == "silu" else mul(x, near(1.702))))
    elif kind == "hardswish":
        gate = m.node("Clip", add(x, near(3.0)), m.const(np.float32(0)), m.const(np.float32(m.choice((6.0, 6.0, 5.0)))))
        y = m.node("Div", mul(x, gate), near(6.0)) if half else mul(x, m.node("Div", gate, near(6.0)))
    elif kind == "hardsigmoid":
        y = m.node("HardSigmoid", x, alpha=m.choice((1 / 6, 0.2, 0.1667)), beta=m.choice((0.5, 0.5, 0.4)))
        y = mul(x, y) if half else y
    elif kind == "mish":
        y = mul(x, m.node("Tanh", m.node("Softplus", x)))
    elif kind == "softplus":
        y = m.node("Log", add(m.node("Exp", x), near(1.0)))
    elif kind == "clip":
        y = (
            m.node("Min", m.node("Max", x, near(-0.5)), near(0.5))
            if half
            else m.node("Relu", m.node("Clip", x, number(m, -1.0, 0), number(m, 1.0, 0)))
        )
    else:
        y = m.node("Where", m.node("Greater", x, near(0.0)), x, m.node("Sub", m.node("Exp", x), near(1.0)))
    for _ in range(m.integer(0, 2)):
        y = m.node(m.choice(("Relu", "Neg", "Identity")), y)
    m.result(y)


@bait
def softmax(m: Sketch) -> None:
    """Exponentials over their sum, with and without the largest taken away, and their logarithm."""
    dims = m.shape(m.integer(1, 4))
    x = given(m, dims, 0.05)
    axis = m.integer(-len(dims), len(dims) - 1)

    def reduced(op: str, y: str) -> str:
        if op == "ReduceSum" or m.opset >= 18:
            return m.node(op, y, m.const(np.asarray([axis])), keepdims=1)
        return m.node(op, y, axes=[axis], keepdims=1)

    if m.chance(0.6):
        x = m.node("Sub", x, reduced("ReduceMax", x))
    powers = m.node("Exp", x)
    y = m.node("Div", powers, reduced("ReduceSum", powers))
    m.result(m.node("Log", y) if m.chance(0.4) else y)
