"""Products and convolutions with what may go into their epilogue; what stands between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import FLOAT, Sketch
from . import bait


def const(m: Sketch, shape: Any, kind: str = "plain") -> str:
    return m.const(m.array(FLOAT, shape, kind, constant=True))


def given(m: Sketch, shape: Any, share: float = 0.15) -> str:
    return m.operand(FLOAT, shape, "plain", constant=share)


_ACTIVATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("LeakyRelu", {"alpha": 0.2}), ("Elu", {"alpha": 0.7}),
    ("HardSigmoid", {}), ("HardSwish", {}), ("Erf", {}), ("Neg", {}), ("Abs", {}), ("Softplus", {}),
    ("Selu", {}), ("ThresholdedRelu", {"alpha": 0.3}), ("Exp", {}), ("Identity", {}),
)  # fmt: skip


def tail(m: Sketch, y: str, shape: tuple[int, ...], bias: tuple[int, ...], count: int) -> str:
    """A chain of element-wise operations behind a product of this shape; operands and operations come again."""
    seen: list[tuple[str, str, bool]] = []
    again = m.chance(0.5)
    for _ in range(count):
        if again and seen and m.chance(0.5):
            op, operand, left = m.choice(seen)
            y = m.node(op, y) if not operand else m.node(op, *((operand, y) if left else (y, operand)))
            continue
        kind = m.choice(("act", "act", "bias", "residual", "scalar", "row", "gate", "self"))
        if kind == "act":
            op, attributes = m.choice(_ACTIVATIONS)
            y = m.node(op, y, **attributes)
            if not attributes:
                seen.append((op, "", False))
            continue
        if kind == "gate":
            y = m.node("Mul", y, m.node(m.choice(("Sigmoid", "Tanh", "HardSigmoid")), y))
            continue
        if kind == "self":
            y = m.node(m.choice(("Add", "Mul", "Max")), y, y)
            continue
        dims = {"bias": bias, "residual": shape, "scalar": m.choice(((), (1,))), "row": m.broadcast(shape)}[kind]
        operand = given(m, dims, 0.6 if kind != "residual" else 0.1)
        op, left = m.choice(("Add", "Add", "Sub", "Mul", "Max", "Min")), m.chance(0.4)
        y = m.node(op, *((operand, y) if left else (y, operand)))
        seen.append((op, operand, left))
    return y


@bait
def epilogue(m: Sketch) -> None:
    """A product and a chain behind it."""
    m.special = m.special and m.chance(0.3)
    kind = m.choice(("MatMul", "MatMul", "Gemm", "Conv", "Conv", "ConvTranspose", "Einsum"))
    constant = 0.08
    if kind in ("MatMul", "Gemm", "Einsum"):
        r, k, c = m.size(1, 9), m.size(1, 9), m.size(1, 9)
        lead = m.shape(m.integer(0, 2), 1, 3) if kind == "MatMul" else ()
        a, b = given(m, (*lead, r, k), constant), given(m, (k, c), 0.7)
        more = [given(m, m.broadcast((r, c)), 0.6)] if kind == "Gemm" and m.chance(0.5) else []
        y = m.node(kind, a, b, *more, **({"equation": "ij,jk->ik"} if kind == "Einsum" else {}))
        shape, bias = (*lead, r, c), (c,)
    else:
        n, c, out, h = m.size(1, 2), m.integer(1, 4), m.integer(1, 5), m.size(1, 5)
        rank = m.choice((1, 2, 2))
        x = given(m, (n, c, *[h] * rank), constant)
        k = m.choice((1, 3))
        w = given(m, (out, c, *[k] * rank) if kind == "Conv" else (c, out, *[k] * rank), 0.8)
        y = m.node(kind, x, w, *([given(m, (out,), 0.7)] if m.chance(0.4) else []), pads=[k // 2] * (2 * rank))
        shape, bias = (n, out, *[h] * rank), m.choice(((out, *[1] * rank), (1, out, *[1] * rank), ()))
    end = tail(m, y, shape, bias, m.integer(1, 6))
    m.result(end)
    if m.chance(0.15):
        m.result(y)
    if m.chance(0.1):
        m.result(m.node("Neg", y))


@bait
def convolutions(m: Sketch) -> None:
    """Pad, Conv, BatchNormalization, activation, pool, one behind the other."""
    n, c, h = m.size(1, 2), m.integer(1, 4), m.size(4, 7)
    y, channels = given(m, (n, c, h, h), 0.05), c
    for _ in range(m.integer(1, 3)):
        if m.chance(0.4):
            pads = [0, 0, *[m.integer(0, 2) for _ in range(2)], 0, 0, *[m.integer(0, 2) for _ in range(2)]]
            value = [const(m, ())] if m.chance(0.3) else []
            y = m.node("Pad", y, m.const(np.asarray(pads)), *value, mode=m.choice((None, "constant")))
        out = m.integer(1, 4)
        depthwise = m.chance(0.25)
        out = channels if depthwise else out
        w = const(m, (out, 1 if depthwise else channels, 3, 3))
        y = m.node("Conv", y, w, *([const(m, (out,))] if m.chance(0.4) else []), group=channels if depthwise else 1, pads=[1, 1, 1, 1])
        channels = out
        if m.chance(0.5):
            table = [const(m, (channels,)) for _ in range(3)] + [const(m, (channels,), "positive")]
            y = m.node("BatchNormalization", y, *table, epsilon=m.choice((None, 0.1)))
        for _ in range(m.integer(0, 3)):
            kind = m.choice(("act", "mul", "add", "same"))
            if kind == "act":
                op, attributes = m.choice(_ACTIVATIONS)
                y = m.node(op, y, **attributes)
            elif kind == "same":
                y = m.node("Add", y, y)
            else:
                y = m.node("Mul" if kind == "mul" else "Add", y, const(m, m.choice(((1, channels, 1, 1), (channels, 1, 1), (), (1,)))))
    if m.chance(0.4):
        y = m.node(m.choice(("GlobalAveragePool", "GlobalMaxPool")), y)
    m.result(y)


@bait
def two_products(m: Sketch) -> None:
    """Products behind products, of one input, of transposed and sliced operands."""
    k = m.integer(1, 6)
    r = m.size(1, 6)
    x = given(m, (r, k), 0.05)
    ends = []
    for _ in range(m.integer(2, 4)):
        c = m.integer(1, 6)
        w = const(m, (k, c)) if m.chance(0.6) else m.node("Transpose", const(m, (c, k)), perm=[1, 0])
        if m.chance(0.3):
            w = m.node("Mul", w, const(m, m.choice(((), (1,), (c,), (k, 1)))))
        y = m.node("MatMul", x, w)
        if m.chance(0.5):
            y = m.node("Add", y, given(m, (c,), 0.8))
        if m.chance(0.4):
            y = m.node(m.choice(("Relu", "Tanh", "Neg")), y)
        ends.append(y)
    if m.chance(0.5):
        joined = m.node("Concat", *ends, axis=1)
        m.result(joined)
        if m.chance(0.4):
            m.result(m.node("Slice", joined, *(m.const(np.asarray([v])) for v in (0, 1, 1))))
    m.result(*ends[: m.integer(1, len(ends))])


@bait
def constant_product(m: Sketch) -> None:
    """A product of constants, to which what arrives at run time is added."""
    r, k, c = m.integer(1, 5), m.integer(1, 5), m.integer(1, 5)
    y = m.node("MatMul", const(m, (r, k)), const(m, (k, c)))
    for _ in range(m.integer(1, 4)):
        operand = given(m, m.choice(((r, c), (c,), (1, c), (r, 1), ())), 0.4)
        op = m.choice(("Add", "Mul", "Sub", "Max"))
        y = m.node(op, *((operand, y) if m.chance(0.4) else (y, operand)))
        if m.chance(0.3):
            y = m.node(m.choice(("Relu", "Sigmoid", "Tanh")), y)
    m.result(y)


@bait
def joined(m: Sketch) -> None:
    """Concats of Concats, of slices and splits, on equal and other axes, with parts that come again."""
    m.special = False
    dims = tuple(1 if m.chance(0.4) else s for s in m.shape(m.integer(1, 4), 1, 4))
    x = given(m, dims, 0.1)
    at = m.integer(0, len(dims) - 1)
    pool = [x, *(m.node(m.choice(("Relu", "Neg", "Abs", "Identity")), x) for _ in range(m.integer(1, 3)))]
    for _ in range(m.integer(1, 5)):
        kind = m.choice(("concat", "concat", "concat", "unary", "split", "slice", "stack"))
        if kind == "concat":
            pool.append(
                m.node("Concat", *(m.choice(pool[-3:]) if m.chance(0.6) else m.choice(pool) for _ in range(m.integer(1, 3))), axis=at)
            )
        elif kind == "unary":
            pool.append(m.node(m.choice(("Relu", "Neg", "Tanh")), m.choice(pool)))
        elif kind == "split" and m.opset >= 18:
            whole = m.node("Concat", m.choice(pool), m.choice(pool), axis=at)
            pool += m.add("Split", [whole], 2, axis=at, num_outputs=2)
        elif kind == "slice":
            whole = m.node("Concat", m.choice(pool), m.choice(pool), axis=at)
            pool.append(m.node("Slice", whole, *(m.const(np.asarray([v])) for v in (m.integer(0, 1), m.choice((2, 9)), at))))
        else:
            both = [m.node("Unsqueeze", m.choice(pool[:2]), m.const(np.asarray([0]))) for _ in range(2)]
            m.result(m.node("Concat", *both, axis=0))
    m.result(pool[-1])
    m.result(*(p for p in pool[1:] if m.chance(0.2)))


@bait
def quantised_chain(m: Sketch) -> None:
    """Quantize and dequantize around products, sums and activations."""
    uint = m.chance(0.6)
    dtype = np.uint8 if uint else np.int8

    def pair(x: str) -> str:
        scale = m.const(np.float32(m.choice((0.02, 0.05, 0.1))))
        zero = [m.const(np.asarray(m.integer(100, 140) if uint else m.integer(-9, 9), dtype))] if m.chance(0.8) or not uint else []
        return m.node("DequantizeLinear", m.node("QuantizeLinear", x, scale, *zero), scale, *zero)

    r, k, c = m.size(1, 5), m.integer(1, 6), m.integer(1, 6)
    y = pair(given(m, (r, k), 0.05))
    for _ in range(m.integer(1, 3)):
        w = m.const(m.whole_numbers(-20, 20, (k, c), np.int8, True))
        wide = m.chance(0.4)
        scales = m.const(m.array(FLOAT, (c,) if wide else (), "positive", constant=True))
        zeros = [m.const(np.zeros((c,) if wide else (), np.int8))] if m.chance(0.5) else []
        y = m.node("MatMul", y, m.node("DequantizeLinear", w, scales, *zeros, axis=1))
        y = m.node("Add", y, const(m, (c,))) if m.chance(0.5) else y
        y = m.node(m.choice(("Relu", "Sigmoid", "Clip")), y) if m.chance(0.4) else y
        y = m.node("Mul", y, m.const(np.float32(0.05)))
        y = pair(y) if m.chance(0.7) else y
        k, c = c, m.integer(1, 6)
    m.loose = 4
    m.result(y)
