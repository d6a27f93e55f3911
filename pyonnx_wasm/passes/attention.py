"""Recognises softmax(scale * q k^T + mask) v, whatever the views around it, and makes it one kernel."""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import DType
from ..ir import Graph, Node, Value, dims
from ..ops.attention import attention
from ..ops.matmul import MATMUL
from ..ops.normalization import SOFTMAX
from ..tensor import COPY, MAP, expression, swap
from .rewrite import Rewriter, moderate
from .simplify import factors


@dataclass
class Match:
    """One attention: the nodes that it replaces, the last of which writes its result, and what they compute from."""

    q: Value
    k: Value
    v: Value
    mask: Value | None
    scale: float
    nodes: list[Node]


def fuse_attention(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            found = _match(rewriter, node) if node.kernel is SOFTMAX else None
            if found is not None:
                _fuse(rewriter, found)


def _fuse(rewriter: Rewriter, found: Match) -> None:
    """The kernel writes [batch, sq, heads, dv] row-major: where the only reader copies into this order, it needs no copy."""
    old = found.nodes[-1].out
    reader = rewriter.only_reader(old)
    with rewriter.emitted(found.nodes[-1].origin) as fresh:
        y = attention(found.q, found.k, found.v, found.mask, found.scale, nan_rows=True)
        if reader is not None and reader.kernel is COPY and _is_transposed_copy(reader, old):
            target = reader.out
            fresh[-1].outs["y"] = Value(target.storage, y.dtype, y.shape, 0, y.strides)
            found.nodes.append(reader)
        else:
            COPY({"y": (old.dtype, old.shape)}, {"x": y if old.rank == y.rank else y.view(y.shape[1:], y.offset, y.strides[1:])})
            fresh[-1].outs["y"] = old
    rewriter.replace(found.nodes, fresh)


def _is_transposed_copy(copy: Node, old: Value) -> bool:
    x: Value = copy.ins["x"]
    if old.rank != 4:
        return False
    b, h, s, d = old.shape
    back = swap(old, 1, 2)
    return (
        copy.out.whole
        and x.offset == 0
        and len(x.shape) == 4
        and all(dims.same(p, q) for p, q in zip(x.shape, (b, s, h, d), strict=True))
        and all(dims.same(p, q) or n == 1 for p, q, n in zip(x.strides, back.strides, back.shape, strict=True))
    )


def _match(rewriter: Rewriter, softmax: Node) -> Match | None:
    x: Value = softmax.ins["x"]
    p = softmax.params
    if p["log"] or p["inner"] != 1 or x.dtype is not DType.float32 or x.rank not in (3, 4) or not rewriter.alone(x, softmax):
        return None
    second = rewriter.only_reader(softmax.out)
    if second is None or second.kernel is not MATMUL or not _plain(second) or not dims.same(p["n"], x.shape[-1]):
        return None
    weights: Value = second.ins["a"]
    if weights.storage is not softmax.out.storage or not weights.whole or not _same_shape(weights, x):
        return None
    nodes, scale, mask = [softmax, second], 1.0, None
    scores = x
    inner = x.producer
    if inner is not None and inner.kernel is MAP:
        got = _scores(inner, x)
        if got is None:
            return None
        scores, scale, mask = got
        if not rewriter.alone(scores, inner):
            return None
        nodes.insert(0, inner)
    first = scores.producer
    if first is None or first.kernel is not MATMUL or not _plain(first) or not scores.whole or not _same_shape(first.out, x):
        return None
    q, k, v = first.ins["a"], swap(first.ins["b"], -2 + x.rank, -1 + x.rank), second.ins["b"]
    scale *= first.params.get("alpha", 1.0)
    if second.params.get("alpha", 1.0) != 1.0:
        return None
    (q, cq), (k, ck) = _unscaled(q), _unscaled(k)
    if x.rank == 3:
        q, k, v, mask = (_headed(t) for t in (q, k, v, mask))  # type: ignore[assignment]
    if q.strides[-1] != 1 or v.strides[-1] != 1 or not q.dtype is k.dtype is v.dtype is DType.float32:
        return None
    if not all(map(moderate, (scale, cq, ck))):
        return None
    return Match(q, k, v, mask, scale * cq * ck, [first, *nodes])


def _same_shape(a: Value, b: Value) -> bool:
    return a.rank == b.rank and all(dims.same(p, q) for p, q in zip(a.shape, b.shape, strict=True))


def _headed(v: Value | None) -> Value | None:
    return None if v is None else v.view([1, *v.shape], v.offset, [0, *v.strides])


def _plain(matmul: Node) -> bool:
    return matmul.ins.get("bias") is None and matmul.ins.get("residual") is None and not matmul.params.get("act")


def _scores(node: Node, x: Value) -> tuple[Value, float, Value | None] | None:
    """``c * scores`` or ``c * scores + mask``."""
    if x.storage is not node.out.storage or not x.whole or not _same_shape(x, node.out):
        return None
    xs: list[Value] = node.ins["x"]
    e = expression.of(node)
    for product, rest in [(e, None)] if e.name != "add" else [e.args, e.args[::-1]]:
        c, parts = factors(product)
        if len(parts) != 1 or parts[0].name != "in":
            continue
        scores = xs[parts[0].extra[0]]
        producer = scores.producer
        if producer is None or producer.kernel is not MATMUL or not scores.whole:
            continue
        if rest is None:
            return scores, c, None
        if rest.name == "in" and rest is not parts[0] and xs[rest.extra[0]].dtype is DType.float32:
            return scores, c, xs[rest.extra[0]]
    return None


def _unscaled(v: Value) -> tuple[Value, float]:
    """Looks through a map that only multiplies by a constant."""
    node = v.producer
    if node is None or node.kernel is not MAP or len(node.ins["x"]) != 1:
        return v, 1.0
    c, parts = factors(expression.of(node))
    source: Value = node.ins["x"][0]
    if len(parts) != 1 or parts[0].name != "in":
        return v, 1.0
    perm = _permutation(v, node.out)
    if perm is None:
        return v, 1.0
    return source.view([source.shape[p] for p in perm], source.offset, [source.strides[p] for p in perm]), c


def _permutation(v: Value, out: Value) -> list[int] | None:
    """The axes of ``out`` in the order in which ``v`` shows them."""
    if v.offset != 0 or v.rank != out.rank:
        return None
    perm: list[int] = []
    for size, stride in zip(v.shape, v.strides, strict=True):
        at = [a for a in range(out.rank) if a not in perm and dims.same(out.shape[a], size) and dims.same(out.strides[a], stride)]
        if not at:
            return None
        perm.append(at[0])
    return perm
