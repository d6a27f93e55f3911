"""Recognises layer and RMS normalisation written out in primitives, and hands scale and bias to the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import DType
from ..ir import Graph, Node, Storage, Value, dims, row_major
from ..ops.normalization import NORM, norm
from ..tensor import MAP, REDUCE, expression, reshape
from ..tensor.expression import Expression, number
from .rewrite import emitted, splice
from .simplify import install

Uses = dict[Storage, list[Node]]


@dataclass
class Match:
    """``(x - mean) / sqrt(variance + eps)`` over the last ``axes``, as the subexpression ``found`` of a map."""

    x: Value
    axes: int
    eps: float
    rms: bool
    found: Expression


def fuse_norms(graph: Graph) -> None:
    before: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        match = _match(node) if node.kernel is MAP and not node.const else None
        if match is None:
            continue
        rows = dims.product(match.x.shape[: match.x.rank - match.axes])
        width = dims.product(match.x.shape[match.x.rank - match.axes :])
        with emitted(graph, node.origin) as fresh:
            y = reshape(norm(match.x, rows, width, match.eps, None, None, rms=match.rms), node.out.shape)
        before[node] = fresh
        slot = len(node.ins["x"])
        node.ins["x"].append(y)
        install(node, expression.replaced(expression.of(node), match.found, ("in", DType.float32, slot)))
    splice(graph, before, set())
    _absorb(graph)


def _match(node: Node) -> Match | None:
    xs: list[Value] = node.ins["x"]
    if len(xs) >= expression.MAX_INPUTS:
        return None
    for e in _walk(expression.of(node)):
        parts = _quotient(_expanded(e, xs)) if e[0] in ("div", "mul") else None
        if parts is None or parts[0][0] != "in":
            continue
        top, spread = parts[0][2], parts[1]
        if spread[0] != "add" or top.dtype is not DType.float32 or not top.whole:
            continue
        for v, c in ((spread[2], spread[3]), (spread[3], spread[2])):
            eps = number(c)
            if v[0] == "in" and eps is not None and (got := _moments(top, v[2])) is not None:
                return Match(*got[:2], float(eps), got[2], e)
    return None


def _expanded(e: Expression, xs: list[Value]) -> Expression:
    """The expression with values as leaves, seeing through maps whose result is broadcast into it."""

    def leaf(x: Expression) -> Expression:
        if x[0] != "in":
            return x
        value = xs[x[2]]
        node = value.producer
        if node is None or node.kernel is not MAP or value.whole or not _broadcasts(value, node.out):
            return ("in", x[1], value)
        inner: list[Value] = []
        for v in node.ins["x"]:
            kept = [s if dims.same(a, b) else 0 for s, a, b in zip(v.strides, node.out.shape, value.shape, strict=True)]
            inner.append(v.view(value.shape, v.offset, kept))
        return expression.rebuild(expression.of(node), lambda y: ("in", y[1], inner[y[2]]) if y[0] == "in" else y)

    return expression.rebuild(e, leaf)


def _broadcasts(value: Value, out: Value) -> bool:
    """The value is all of ``out``, axes of size 1 repeated."""
    return (
        value.dtype is out.dtype
        and value.rank == out.rank
        and value.offset == 0
        and all(
            dims.same(s, t) if dims.same(a, b) else b == 1 and s == 0
            for s, t, a, b in zip(value.strides, out.strides, value.shape, out.shape, strict=True)
        )
    )


def _walk(e: Expression) -> list[Expression]:
    return [e, *(x for o in expression.operands(e) for x in _walk(o))]


def _quotient(e: Expression) -> tuple[Expression, Expression] | None:
    """(numerator, inside of the square root) of ``n / sqrt(r)``, ``n * rsqrt(r)`` or ``n * (1 / sqrt(r))``."""
    if e[0] == "div" and e[3][0] == "sqrt":
        return e[2], e[3][2]
    if e[0] != "mul":
        return None
    for top, low in ((e[2], e[3]), (e[3], e[2])):
        if low[0] == "rsqrt":
            return top, low[2]
        if low[0] == "recip" and low[2][0] == "sqrt":
            return top, low[2][2]
        if low[0] == "div" and number(low[2]) == 1 and low[3][0] == "sqrt":
            return top, low[3][2]
    return None


def _moments(top: Value, variance: Value) -> tuple[Value, int, bool] | None:
    """(x, normalised axes, rms) when ``variance`` is the mean square of ``top``, which is x or x minus its mean."""
    reduction = variance.producer
    if reduction is None or reduction.kernel is not REDUCE or not _spreads(variance, top, reduction):
        return None
    axes = len(reduction.params["axes"])
    x: Value = reduction.ins["x"]
    if reduction.params["op"] == "mean":
        square = x.producer
        if square is None or square.kernel is not MAP or not x.whole:
            return None
        e = expression.of(square)
        reads = [v for v in square.ins["x"] if v.storage is top.storage]
        ok = (e[0] == "mul" and e[2] == e[3] and e[2][0] == "in") or (e[0] == "pow" and number(e[3]) == 2 and e[2][0] == "in")
        if not ok or len(square.ins["x"]) != 1 or not reads or not reads[0].whole:
            return None
    else:
        return None
    centred = top.producer
    if centred is not None and centred.kernel is MAP:
        source = _centred(centred, axes)
        if source is not None and dims.same(*(dims.product(v.shape[v.rank - axes :]) for v in (source, top))):
            return source, axes, False
    return top, axes, True


def _spreads(moment: Value, top: Value, reduction: Node) -> bool:
    """The moment is over the last axes of ``top`` and broadcast back along them."""
    source: Value = reduction.ins["x"]
    n = len(reduction.params["axes"])
    last = tuple(range(source.rank - n, source.rank))
    lead = top.rank - n
    return (
        tuple(reduction.params["axes"]) == last
        and moment.rank == top.rank == source.rank
        and moment.offset == 0
        and all(n == 1 or dims.same(m, s) for n, m, s in zip(top.shape, moment.strides, row_major(top.shape[:lead]), strict=False))
        and all(moment.strides[a] == 0 for a in range(lead, top.rank))
        and all(dims.same(a, b) for a, b in zip(source.shape, top.shape, strict=True))
    )


def _centred(node: Node, axes: int) -> Value | None:
    """x of ``x - mean(x)``."""
    e, xs = expression.of(node), node.ins["x"]
    if e[0] != "sub" or e[2][0] != "in" or e[3][0] != "in":
        return None
    x, mean = xs[e[2][2]], xs[e[3][2]]
    reduction = mean.producer
    if reduction is None or reduction.kernel is not REDUCE or reduction.params["op"] != "mean":
        return None
    same = reduction.ins["x"].storage is x.storage and reduction.ins["x"].whole and x.whole
    return x if same and len(reduction.params["axes"]) == axes and _spreads(mean, x, reduction) else None


def _absorb(graph: Graph) -> None:
    """A map that only scales and shifts a normalisation along its rows becomes the kernel's scale and bias."""
    uses, kept = graph.uses(), graph.output_storages()
    gone: set[Node] = set()
    moved: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.kernel is not MAP:
            continue
        for x in node.ins["x"]:
            kernel = x.producer
            if kernel is None or kernel.kernel is not NORM or kernel in gone or len(kernel.outs) != 1:
                continue
            if uses.get(x.storage) != [node] or x.storage in kept or not x.whole:
                continue
            got = _affine(node, x, kernel)
            if got is None:
                continue
            kernel.ins["scale"], kernel.ins["bias"] = got
            kernel.outs["y"] = node.out
            node.out.storage.producer = kernel
            kernel.origin = kernel.origin if kernel.origin == node.origin else f"{kernel.origin} + {node.origin}"
            graph_nodes = moved.setdefault(node, [])
            graph_nodes.append(kernel)
            gone.add(node)
            break
    late = {k for ks in moved.values() for k in ks}
    graph.nodes = [n for n in graph.nodes if n not in late]
    splice(graph, moved, gone)


def _affine(node: Node, x: Value, kernel: Node) -> tuple[Value | None, Value | None] | None:
    """(scale, bias) of ``y * scale + bias`` where both vary along the normalised axes alone."""
    p = kernel.params
    if p["row_mod"] != 1 or p["row_mul"] != 0 or p["inner"] != 1 or kernel.ins.get("scale") is not None or not node.out.whole:
        return None
    e, xs = expression.of(node), node.ins["x"]
    bias = None
    if e[0] == "add":
        y, other = (e[2], e[3]) if e[3][0] == "in" and xs[e[3][2]] is not x else (e[3], e[2])
        if other[0] != "in" or (bias := _along(xs[other[2]], p["n"])) is None:
            return None
        e = y
    scale = None
    if e[0] == "mul":
        y, other = (e[2], e[3]) if e[2][0] == "in" and xs[e[2][2]] is x else (e[3], e[2])
        if other[0] != "in" or (scale := _along(xs[other[2]], p["n"])) is None:
            return None
        e = y
    if e[0] != "in" or xs[e[2]] is not x or (scale is None and bias is None):
        return None
    return scale, bias


def _along(v: Value, width: dims.DimLike) -> Value | None:
    """A value that varies over the last axes alone, ``width`` elements in a row, as a vector."""
    size: dims.DimLike = 1
    for axis in reversed(range(v.rank)):
        if dims.same(size, width):
            return v.view([width], v.offset, [1]) if all(v.strides[a] == 0 or v.shape[a] == 1 for a in range(axis + 1)) else None
        if not dims.same(v.strides[axis], size):
            return None
        size = size * v.shape[axis]
    return v.view([width], v.offset, [1]) if dims.same(size, width) else None
