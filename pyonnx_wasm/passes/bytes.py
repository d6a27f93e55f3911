"""Sums and products of dequantised bytes that are quantised again: one call of bytes, for the core."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir import Node
from ..ops.quantized import BYTE_OPERATIONS, BYTES, QBINARY
from ..tensor import MAP, expression
from ..tensor.expression import Expression
from .integers import codes_of, requantised


def combine_bytes(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with others in place of maps over two whole tensors of bytes."""
    return [_combined(node) or node for node in nodes]


def _combined(node: Node) -> Node | None:
    if node.kernel is not MAP or len(node.ins["x"]) != 2:
        return None
    y, xs = node.out, node.ins["x"]
    if y.dtype not in BYTES or not y.whole or any(not v.whole or v.shape != y.shape or v.dtype not in BYTES for v in xs):
        return None
    result = requantised(expression.of(node))
    if result is None:
        return None
    e, yscale, yzero = result
    bounds: tuple[float | None, ...] = (-math.inf, math.inf)
    if e.name in ("relu", "clamp"):
        bounds = (0.0, math.inf) if e.name == "relu" else (e.args[1].number, e.args[2].number)
        e = e.args[0]
    if e.name not in BYTE_OPERATIONS or any(b is None or math.isnan(b) for b in bounds) or not math.isfinite(yscale):
        return None
    operands = [_dequantised(a) for a in e.args]
    if None in operands or {o[0] for o in operands if o} != {0, 1}:
        return None
    (a, azero, ascale), (b, bzero, bscale) = (o for o in operands if o)
    params = {
        "op": BYTE_OPERATIONS.index(e.name), "n": y.size, "azero": azero, "ascale": ascale, "bzero": bzero, "bscale": bscale,
        "yzero": yzero, "yscale": yscale, "low": bounds[0], "high": bounds[1],
    }  # fmt: skip
    made = Node(QBINARY, {"a": xs[a], "b": xs[b]}, params, node.origin)
    made.outs = node.outs
    return made


def _dequantised(e: Expression) -> tuple[int, int, float] | None:
    """(input, zero point, scale) of ``float(int(x) - zero) * scale``."""
    if e.name != "mul":
        return None
    for wide, factor in (e.args, e.args[::-1]):
        found = codes_of(wide)
        if found is None or factor.number is None:
            continue
        zero = 0 if found[1] is None else found[1].number
        return None if zero is None else (found[0], int(zero), factor.number)
    return None
