"""Merges element-wise chains: a map whose only reader is another map becomes part of it."""

from __future__ import annotations

from ..ir import Graph, Node, Storage, Value, dims
from ..tensor import MAP, expression, split_strides
from ..tensor.expression import Expression

INPUTS = expression.MAX_INPUTS - 1  # with the output the 8 buffers that every GPU binds


def fuse_maps(graph: Graph) -> None:
    uses, kept = graph.uses(), graph.output_storages()
    gone: set[Node] = set()
    for node in graph.nodes:
        if node.kernel is not MAP:
            continue
        blocked: set[Storage] = set()
        while (view := _candidate(node, uses, kept, blocked)) is not None:
            producer = view.producer
            assert producer is not None
            if not _inline(node, view.storage, producer):
                blocked.add(view.storage)
                continue
            gone.add(producer)
            for value in producer.inputs():
                uses[value.storage] = [node if n is producer else n for n in uses[value.storage] if n is not node or n is producer]
                if node not in uses[value.storage]:
                    uses[value.storage].append(node)
    graph.nodes = [n for n in graph.nodes if n not in gone]


def _candidate(node: Node, uses: dict[Storage, list[Node]], kept: set[Storage], blocked: set[Storage]) -> Value | None:
    for value in node.ins["x"]:
        storage = value.storage
        producer = storage.producer
        if producer is None or producer.kernel is not MAP or storage in kept or storage in blocked or producer.const != node.const:
            continue
        if uses[storage] == [node]:
            return value  # type: ignore[no-any-return]
    return None


def _inline(node: Node, storage: Storage, producer: Node) -> bool:
    """Rewrites ``node`` to compute what ``producer`` wrote; False when layouts or the machine's limits do not allow it."""
    xs: list[Value] = []
    where: list[Expression] = []
    inner = expression.of(producer)

    def place(value: Value) -> int:
        for i, x in enumerate(xs):
            if (
                x.storage is value.storage
                and x.dtype is value.dtype
                and x.offset == value.offset
                and x.strides == value.strides
                and x.shape == value.shape
            ):
                return i
        xs.append(value)
        return len(xs) - 1

    for x in node.ins["x"]:
        if x.storage is not storage:
            where.append(("in", x.dtype, place(x)))
            continue
        moved = _relaid(x, producer)
        if moved is None:
            return False
        views, axes = moved
        at = [("in", v.dtype, place(v)) for v in views]
        if axes is None and _indexes(inner):
            return False

        def leaf(e: Expression, at: list[Expression] = at) -> Expression:
            return at[e[2]] if e[0] == "in" else e

        where.append(expression.rebuild(inner, leaf))
    outer = expression.rebuild(expression.of(node), lambda e: where[e[2]] if e[0] == "in" else e)
    if len(xs) > INPUTS:
        return False
    code = expression.code(outer, len(xs))
    if len(code) > expression.MAX_CODE or expression.allocate(code, len(xs)) is None:
        return False
    node.ins["x"], node.params["code"] = xs, code
    node.origin = (
        node.origin if node.origin == producer.origin else f"{producer.origin} + {node.origin}" if producer.origin else node.origin
    )
    return True


def _indexes(e: Expression) -> bool:
    return e[0] == "index" or any(_indexes(o) for o in expression.operands(e))


def _relaid(x: Value, producer: Node) -> tuple[list[Value], object] | None:
    """The producer's inputs as the consumer's view of its result walks them; None when no strides say so."""
    out = producer.out
    if x.dtype is not out.dtype:
        return None
    if x.offset == 0 and x.shape == out.shape and x.strides == out.strides:
        return list(producer.ins["x"]), ()
    if x.whole and out.whole:
        views = []
        for v in producer.ins["x"]:
            strides = split_strides(v, x.shape) if not v.contiguous else None
            if v.contiguous:
                views.append(v.view(x.shape, v.offset, x.strides))
            elif strides is not None and not _squashed(v):
                views.append(v.view(x.shape, v.offset, strides))
            else:
                return None
        return views, None
    return None


def _squashed(v: Value) -> bool:
    return any(s == 0 for s in v.strides) and not dims.same(v.size, 0) and any(isinstance(s, dims.Dim) for s in v.strides)
