"""Recognises layer and RMS normalisation written out in primitives, and hands scale and bias to the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import DType
from ..ir import Graph, Node, Value, dims, row_major
from ..ops.normalization import NORM, norm
from ..tensor import MAP, REDUCE, expression, reshape
from ..tensor.expression import Expression
from .rewrite import Rewriter, computing, derived, joined


@dataclass
class Match:
    """``(x - mean) / sqrt(variance + eps)`` over the last ``axes``, as the subexpression ``found`` of a map."""

    x: Value
    axes: int
    eps: float
    rms: bool
    found: Expression


def fuse_norms(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            if node.kernel is not MAP or node.const or len(node.ins["x"]) >= expression.MAX_INPUTS:
                continue
            e = expression.of(node)
            match = _match(e, node.ins["x"])
            if match is None:
                continue
            rows = dims.product(match.x.shape[: match.x.rank - match.axes])
            width = dims.product(match.x.shape[match.x.rank - match.axes :])
            with rewriter.emitted(node.origin) as fresh:
                y = reshape(norm(match.x, rows, width, match.eps, None, None, rms=match.rms), node.out.shape)
            leaf = e.make("in", DType.float32, extra=[len(node.ins["x"])])
            rest = computing(node, expression.replaced(e, match.found, leaf), [*node.ins["x"], y])
            rewriter.replace([node], [*fresh, rest])
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            if node.kernel is MAP:
                _absorb(rewriter, node)


def _match(top: Expression, xs: list[Value]) -> Match | None:
    for e in reversed(expression.nodes(top)):
        parts = _quotient(_expanded(e, xs)) if e.name in ("div", "mul") else None
        if parts is None or parts[0].name != "in":
            continue
        value, spread = parts[0].extra[0], parts[1]
        if spread.name != "add" or value.dtype is not DType.float32 or not value.whole:
            continue
        for v, c in (spread.args, spread.args[::-1]):
            if v.name == "in" and c.number is not None and (got := _moments(value, v.extra[0])) is not None:
                return Match(*got[:2], float(c.number), got[2], e)
    return None


def _expanded(e: Expression, xs: list[Value]) -> Expression:
    """The expression with values as leaves, seeing through maps whose result is broadcast into it."""
    pool: expression.Pool = {}

    def leaf(x: Expression) -> Expression:
        if x.name != "in":
            return x
        value = xs[x.extra[0]]
        node = value.producer
        if node is None or node.kernel is not MAP or value.whole or not _broadcasts(value, node.out):
            return x.make("in", x.dtype, extra=[value])
        inner: list[Value] = []
        for v in node.ins["x"]:
            kept = [s if dims.same(a, b) else 0 for s, a, b in zip(v.strides, node.out.shape, value.shape, strict=True)]
            inner.append(v.view(value.shape, v.offset, kept))
        return expression.rebuild(
            expression.of(node), lambda y: y.make("in", y.dtype, extra=[inner[y.extra[0]]]) if y.name == "in" else y, pool
        )

    return expression.rebuild(e, leaf, pool)


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


def _quotient(e: Expression) -> tuple[Expression, Expression] | None:
    """(numerator, inside of the square root) of ``n / sqrt(r)``, ``n * rsqrt(r)`` or ``n * (1 / sqrt(r))``."""
    if e.name == "div" and e.args[1].name == "sqrt":
        return e.args[0], e.args[1].args[0]
    if e.name != "mul":
        return None
    for top, low in (e.args, e.args[::-1]):
        if low.name == "rsqrt":
            return top, low.args[0]
        if low.name == "recip" and low.args[0].name == "sqrt":
            return top, low.args[0].args[0]
        if low.name == "div" and low.args[0].number == 1 and low.args[1].name == "sqrt":
            return top, low.args[1].args[0]
    return None


def _moments(top: Value, variance: Value) -> tuple[Value, int, bool] | None:
    """(x, normalised axes, rms) when ``variance`` is the mean square of ``top``, which is x or x minus its mean."""
    reduction = variance.producer
    if reduction is None or reduction.kernel is not REDUCE or reduction.params["op"] != "mean" or not _spreads(variance, top, reduction):
        return None
    axes = len(reduction.params["axes"])
    x: Value = reduction.ins["x"]
    square = x.producer
    if square is None or square.kernel is not MAP or not x.whole or not _squares(square, top):
        return None
    centred = top.producer
    if centred is not None and centred.kernel is MAP:
        source = _centred(centred, axes)
        if source is not None and dims.same(*(dims.product(v.shape[v.rank - axes :]) for v in (source, top))):
            return source, axes, False
    return top, axes, True


def _squares(node: Node, top: Value) -> bool:
    """The node multiplies what ``top`` shows by itself."""
    e, xs = expression.of(node), node.ins["x"]
    if len(xs) != 1 or xs[0].storage is not top.storage or not xs[0].whole or not e.args or e.args[0].name != "in":
        return False
    return (e.name == "mul" and e.args[0] is e.args[1]) or (e.name == "pow" and e.args[1].number == 2)


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
        and all(size == 1 or dims.same(m, s) for size, m, s in zip(top.shape, moment.strides, row_major(top.shape[:lead]), strict=False))
        and all(moment.strides[a] == 0 for a in range(lead, top.rank))
        and all(dims.same(a, b) for a, b in zip(source.shape, top.shape, strict=True))
    )


def _centred(node: Node, axes: int) -> Value | None:
    """x of ``x - mean(x)``."""
    e, xs = expression.of(node), node.ins["x"]
    if e.name != "sub" or any(a.name != "in" for a in e.args):
        return None
    x, mean = (xs[a.extra[0]] for a in e.args)
    reduction = mean.producer
    if reduction is None or reduction.kernel is not REDUCE or reduction.params["op"] != "mean":
        return None
    same = reduction.ins["x"].storage is x.storage and reduction.ins["x"].whole and x.whole
    return x if same and len(reduction.params["axes"]) == axes and _spreads(mean, x, reduction) else None


def _absorb(rewriter: Rewriter, node: Node) -> None:
    """A map that only scales and shifts a normalisation along its rows becomes the kernel's scale and bias."""
    for x in node.ins["x"]:
        kernel = x.producer
        if kernel is None or kernel.kernel is not NORM or len(kernel.outs) != 1 or not x.whole or not rewriter.alone(x, node):
            continue
        got = _affine(node, x, kernel)
        if got is not None:
            whole = derived(kernel, got, origin=joined([kernel.origin, node.origin]))
            whole.outs = {"y": node.out}
            return rewriter.replace([kernel, node], [whole])


def _affine(node: Node, x: Value, kernel: Node) -> dict[str, object] | None:
    """The inputs ``scale`` and ``bias`` of ``y * scale + bias`` where both vary along the normalised axes alone."""
    p, xs = kernel.params, node.ins["x"]
    if p["row_mod"] != 1 or p["row_mul"] != 0 or p["inner"] != 1 or kernel.ins.get("scale") is not None or not node.out.whole:
        return None
    found: dict[str, object] = {}
    e = expression.of(node)
    y = e.make("in", x.dtype, extra=[next(i for i, v in enumerate(xs) if v is x)])
    for name, operation in (("bias", "add"), ("scale", "mul")):
        if e.name != operation:
            continue
        e, other = e.args if e.args[0].reads & y.reads else e.args[::-1]
        value = _along(xs[other.extra[0]], p["n"]) if other.name == "in" and other is not y else None
        if value is None:
            return None
        found[name] = value
    return found if found and e is y else None


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
