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
