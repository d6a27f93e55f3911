"""Chains in float16 and bfloat16: what is rounded between operators only to be widened again, and what has to be."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..sketch import FLOAT, Sketch
from ..values import HALVES, code_of, epsilon
from . import bait
from .written_out import mean

SMOOTH = ("Sigmoid", "Tanh", "Relu", "Neg", "Abs", "Softplus", "Exp", "Identity")


@bait
def halves(m: Sketch) -> None:
    """Products, norms and element-wise operators; on the way copies, readers of the halves themselves, steps and Casts."""
    m.special = False
    dtype = m.choice((HALVES[0], *HALVES))
    rows, width, wide = m.size(1, 5), m.integer(1, 6), m.chance(0.6)
    if wide:  # in which the errors of halves are seen
        m.loose = epsilon(dtype) / epsilon(FLOAT)

    def operand(*shape: int) -> str:
        return m.operand(dtype, shape, "plain", constant=0.5)

    def cast(x: str, to: int) -> str:
        return m.node("Cast", x, to=to)

    start = m.array(FLOAT, (rows, width), "plain")
    y = cast(m.input(start), code_of(dtype)) if m.chance(0.6) else m.input(start.astype(dtype))
    passed: list[str] = []
    for _ in range(m.integer(2, 6)):
        kind = m.choice(("product", "norm", "softmax", "map", "map", "chain", "turn", "mean", "asked", "gather", "join", "step"))
        if kind == "product":
            y = m.node("MatMul", y, operand(width, width))
        elif kind == "norm":
            y = m.node("LayerNormalization", y, operand(width), *([operand(width)] if m.chance(0.5) else []), epsilon=0.01)
        elif kind == "softmax":
            y = m.node("Softmax", y, axis=-1)
        elif kind == "map":
            y = m.node(m.choice(SMOOTH), y)
        elif kind == "chain":
            y = m.node(m.choice(("Add", "Sub", "Mul")), y, m.choice([operand(width), y, *passed]))
        elif kind == "turn":
            y = m.node("Reshape", m.node("Transpose", y, perm=[1, 0]), m.const(np.asarray([-1, width])))
        elif kind == "mean":
            y = m.node("Sub", y, mean(m, y, [-1]))
        elif kind == "asked":
            single = cast(y, TensorProto.FLOAT)
            y = cast(m.node("Add", single, single) if m.chance(0.5) else single, code_of(dtype))
        elif kind == "gather":
            y = m.node("Gather", y, m.const(np.asarray([width - 1, *range(width - 1)])), axis=1)
        elif kind == "join":
            both = m.node("Concat", y, m.node("Neg", y), axis=1)
            y = m.node("Slice", both, *(m.const(np.asarray([n])) for n in (width, 2 * width, 1)))
        else:
            passed.append(y)
            _step(m, y, width)
        if m.chance(0.3):
            passed.append(y)
        if m.chance(0.15):
            m.result(cast(y, TensorProto.FLOAT) if wide else y)
    m.result(cast(y, TensorProto.FLOAT) if wide else y)


def _step(m: Sketch, y: str, width: int) -> None:
    """What tells neighbours apart: it must see the number that others see."""
    everything = m.const(np.arange(width))
    same = m.choice((m.node("Gather", y, everything, axis=1), m.node("Neg", m.node("Neg", y)), m.node("Identity", y)))
    m.result(m.node(m.choice(("Equal", "LessOrEqual", "GreaterOrEqual")), y, same))
