"""Arithmetic of a few integers, which the compiler follows as symbols where it may: at the ends of each dtype."""

from __future__ import annotations

import numpy as np

from ..sketch import Sketch
from ..values import code_of
from . import bait

INTEGERS = tuple(np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64))
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "BitwiseAnd", "Add", "Sub", "Mul")
COMPARISONS = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
TARGETS = (*INTEGERS, np.dtype(np.float32), np.dtype(np.float16))


@bait
def elements(m: Sketch) -> None:
    """A chain over scalars and short rows that are given, what comes is cast to another dtype, and compared."""
    dtype = m.choice(INTEGERS)
    shape = m.choice(((), (), (1,), (3,)))
    ends = np.iinfo(dtype)
    drawn = (ends.min, ends.max, ends.max - 1, ends.max // 2 + 1, 0, 1, 2, 3, 100)

    def given() -> str:
        array = np.array([m.choice(drawn) for _ in range(int(np.prod(shape)))], dtype).reshape(shape)
        return m.const(array) if m.chance(0.25) else m.input(array)

    x = given()
    for _ in range(m.integer(1, 3)):
        x = m.node(m.choice(BINARY), x, given())
        if m.chance(0.2):
            x = m.node("Abs" if dtype.kind == "u" or m.chance(0.5) else "Neg", x)
    m.result(x)
    if m.chance(0.4):
        m.result(m.node(m.choice(COMPARISONS), x, given()))
    if m.chance(0.4):
        x = m.node("Cast", x, to=code_of(m.choice(INTEGERS)))
    m.result(m.node("Cast", x, to=code_of(m.choice(TARGETS))))


@bait
def generated_numbers(m: Sketch) -> None:
    """What is made of no tensor but its size goes into pools, concatenations and sums, and is quantised, or not."""
    m.opset = max(m.opset, 13)
    x = m.input(m.array(np.dtype(np.float32), (m.size(2, 4), m.size(2, 5)), "plain"))
    ends = [m.const(np.asarray(n, np.int64)) for n in (m.integer(-3, 0), 1)]
    y = m.node("Cast", m.node("Range", ends[0], m.node("Size", x), ends[1]), to=code_of(np.dtype(np.float32)))
    y = m.node("Reshape", y, m.const(np.asarray([1, 1, -1])))
    pair = [m.const(np.asarray(0.5, np.float32)), m.const(np.asarray(m.integer(0, 9), np.uint8))]
    for _ in range(m.integer(1, 3)):
        kind = m.choice(("pool", "concat", "quantised", "sum"))
        if kind == "pool":
            y = m.node("MaxPool", y, kernel_shape=[2])
        elif kind == "concat":
            y = m.node("Concat", y, y, axis=m.choice((0, 1, 2)))
        elif kind == "quantised":
            y = m.node("DequantizeLinear", m.node("QuantizeLinear", y, *pair), *pair)
        else:
            m.result(m.node("ReduceSum", y, keepdims=0))
    m.result(y)
