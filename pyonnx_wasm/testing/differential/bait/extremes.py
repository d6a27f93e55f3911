"""Numbers near the ends of float32, and those whose squares or sums leave it, through norms, softmax, reductions and division."""

from __future__ import annotations

import numpy as np

from ..sketch import Sketch
from ..values import Array
from . import bait

#: Powers of two between which numbers are drawn: near the largest; whose squares overflow, or vanish; near the least normal and below.
BANDS = ((120, 127), (60, 70), (-76, -62), (-129, -122), (-149, -140))
UNARY = (
    *("Reciprocal", "Sqrt", "Exp", "Log", "Sigmoid", "Tanh", "Softplus", "Softsign", "Erf", "Elu", "Selu", "HardSigmoid", "Atan", "Asinh"),
    *("Abs", "Neg", "Floor", "Round", "Sign", "IsInf", "IsNaN"),
)
REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMean", "ReduceLogSumExp", "ReduceMax", "ReduceMin")
BINARY = ("Div", "Div", "Mul", "Sub", "Add", "Max", "Min", "Less", "Equal")


def extreme(m: Sketch, shape: tuple[int, ...], bands: list[tuple[int, int]]) -> Array:
    """Of one sign in a row, so that sums do not cancel: what those give depends on their order."""
    rng = np.random.default_rng(int(m.fill.integers(1 << 62)))
    low, high = np.array(bands).T[:, rng.integers(0, len(bands), shape)]
    sign = rng.choice((-1.0, 1.0), (*shape[:-1], 1))
    with np.errstate(all="ignore"):
        made = np.asarray(sign * np.ldexp(1 + rng.random(shape), rng.integers(low, high, endpoint=True))).astype(np.float32)
    if m.special:
        made = np.where(rng.random(shape) < 0.08, np.float32(np.inf) * sign.astype(np.float32), made)
    return made


@bait
def extremes(m: Sketch) -> None:
    shape = m.shape(m.integer(1, 3), 1, 9)
    bands = m.some(BANDS, 1)[: m.integer(1, 2)]
    axis = m.integer(-len(shape), len(shape) - 1)
    x = m.input(extreme(m, shape, bands))
    kind = m.choice(("unary", "binary", "binary", "reduction", "reduction", "softmax", "norm", "scaled"))
    if kind == "unary":
        y = m.node(m.choice(UNARY), x)
    elif kind == "binary":
        y = m.node(m.choice(BINARY), x, m.input(extreme(m, m.broadcast(shape, len(shape)), m.some(BANDS, 1))))
    elif kind == "reduction":
        op = m.choice(REDUCTIONS)
        y = m.node(op, x, m.const(np.asarray([axis])), keepdims=1) if m.opset >= 18 else m.node(op, x, axes=[axis], keepdims=1)
        if m.chance(0.4):
            m.result(m.node("Div", x, y))
    elif kind == "softmax":
        y = m.node(m.choice(("Softmax", "LogSoftmax", "Hardmax")), x, axis=axis)
    elif kind == "norm":
        # Where the sum of a row leaves float32, onnxruntime gives 0, and with p = 1 no oracle tells better.
        y = m.node("LpNormalization", x, axis=axis, p=2 if BANDS[0] in bands else m.integer(1, 2))
    else:
        y = m.node(
            "Mul",
            m.node("Mul", x, m.const(np.float32(2.0 ** m.choice((-100, -60, 60, 100))))),
            m.const(np.float32(2.0 ** m.choice((-60, 30)))),
        )
    m.result(y)


@bait
def long_rows(m: Sketch) -> None:
    """Rows of many terms that are nearly equal: what a sum loses of each of them is lost on one side."""
    inner = m.choice((1, 1, 1, 3, 17))
    shape = (m.choice((1, 2)), m.choice((2049, 30_522, 65_537, 200_003)) // inner, inner)
    x = np.full(shape, m.choice((-0.1, -0.3, -1.7, 0.9)), np.float32)
    x[:, 0] = 1
    y = m.input(x)
    op = m.choice(("Softmax", "Softmax", "Softmax", "LogSoftmax", "LogSoftmax", *REDUCTIONS[:5]))
    if op.endswith("Softmax"):
        m.result(m.node(op, y, axis=1))
    elif m.opset >= 18:
        m.result(m.node(op, y, m.const(np.asarray([1])), keepdims=1))
    else:
        m.result(m.node(op, y, axes=[1], keepdims=1))
