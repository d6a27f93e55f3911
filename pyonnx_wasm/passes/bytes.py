"""Sums and products of dequantised bytes that are quantised again, and what is made of single bytes: one call of bytes, for the core."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..dtypes import DType
from ..ir import Node, Storage, Value, dims
from ..ir.dims import DimLike
from ..ops.quantized import BYTE_OPERATIONS, BYTES, QBINARY, QLOOKUP
from ..tensor import COPY, MAP, expression
from ..tensor.expression import Expression
from .integers import codes_of, requantised

CODES = 256
ENOUGH = 4 * CODES  # elements that are worth a table


def combine_bytes(nodes: Sequence[Node], init: list[Node]) -> list[Node]:
    """The nodes, with others in place of maps over one or two whole tensors of bytes; what makes their tables joins ``init``."""
    made: list[Node] = []
    for node in nodes:
        one = _combined(node)
        made += [one] if one else _tabulated(node, init) or [node]
    return made


def _tabulated(node: Node, init: list[Node]) -> list[Node] | None:
    """A look-up in a table, which the same instructions make of all bytes, where some of them are of floats; of a view, behind a copy."""
    if node.kernel is not MAP or node.const or len(node.ins["x"]) != 1:
        return None
    (x,), y = node.ins["x"], node.out
    if any(v.dtype not in BYTES for v in (x, y)) or x.dtype is not x.storage.dtype or x.shape != y.shape or not y.whole:
        return None
    if isinstance(y.size, int) and y.size < ENOUGH:
        return None
    e = expression.of(node)
    instructions = expression.nodes(e)
    varies = any(i.name == "index" or (i.name == "const" and i.number is None) for i in instructions)
    if varies or not any(i.dtype.is_float for i in instructions):
        return None
    place = e.make("index", DType.int32, extra=[0])
    code = expression.replaced(e, e.make("in", x.dtype, extra=[0]), e.make("cast", DType.int32, place, extra=[int(x.dtype)]))
    made = Node(MAP, {"x": []}, {"code": expression.code(code, 0)}, node.origin)
    table = made.outs["y"] = Value(Storage(y.dtype, CODES, "temp", producer=made), y.dtype, (CODES,))
    made.const = True
    init.append(made)
    nodes = []
    if not x.whole:
        copy = Node(COPY, {"x": x}, {}, node.origin)
        x = copy.outs["y"] = Value(Storage(x.dtype, y.size, "temp", producer=copy), x.dtype, y.shape)
        nodes.append(copy)
    found = Node(QLOOKUP, {"x": x, "table": table}, {"n": y.size}, node.origin)
    found.outs = node.outs
    return [*nodes, found]


def _combined(node: Node) -> Node | None:
    if node.kernel is not MAP or len(node.ins["x"]) != 2:
        return None
    y, xs = node.out, node.ins["x"]
    if y.dtype not in BYTES or not y.whole or any(v.shape != y.shape or v.dtype not in BYTES for v in xs):
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
    (a, azero, ascale), (b, bzero, bscale) = sorted((o for o in operands if o), key=lambda o: not xs[o[0]].whole)
    rows = (y.size, 1) if xs[b].whole else repeated(xs[b])
    if not xs[a].whole or rows is None:
        return None
    inner, repeats = rows
    second = xs[b] if xs[b].whole else xs[b].view([xs[b].storage.size], 0, [1])
    params = {
        "op": BYTE_OPERATIONS.index(e.name), "n": y.size, "inner": inner, "repeats": repeats,
        "azero": azero, "ascale": ascale, "bzero": bzero, "bscale": bscale,
        "yzero": yzero, "yscale": yscale, "low": bounds[0], "high": bounds[1],
    }  # fmt: skip
    made = Node(QBINARY, {"a": xs[a], "b": second}, params, node.origin)
    made.outs = node.outs
    return made


def repeated(x: Value) -> tuple[DimLike, DimLike] | None:
    """(inner, repeats) of a view of a whole tensor whose rows of so many elements are each repeated so often, one behind the other."""
    inner: DimLike = 1
    repeats: DimLike = 1
    passed: DimLike = 1  # elements of the tensor that the axes behind this one hold
    beyond = False
    for size, stride in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if size == 1:
            continue
        if stride == 0 and not beyond:
            repeats = repeats * size
        elif not dims.same(stride, passed):
            return None
        else:
            beyond = beyond or repeats != 1
            passed = passed * size
            if not beyond:
                inner = passed
    whole = x.offset == 0 and x.dtype is x.storage.dtype and dims.same(passed, x.storage.size)
    return (inner, repeats) if whole else None


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
