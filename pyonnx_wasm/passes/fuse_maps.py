"""Merges element-wise chains: a map whose only reader is another map becomes part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dtypes import DType
from ..ir import Graph, Node, Storage, Value, dims
from ..tensor import MAP, expression, split_strides
from ..tensor.expression import Expression, Pool
from .rewrite import Rewriter, derived, joined

INPUTS = expression.MAX_INPUTS - 1  # with the output the 8 buffers that every GPU binds


@dataclass
class Cluster:
    """Maps that become one, the last of which gives the result.

    Attributes:
        expression: of all, over views as leaves.
        inputs: these views.
        size, held: of the code, and registers that it needs at a time; upper bounds.
        apart: storages that did not fit in, as they will not when it has grown.
    """

    nodes: list[Node]
    expression: Expression
    inputs: list[Value]
    size: int
    held: int
    apart: frozenset[Storage] = frozenset()

    @property
    def out(self) -> Value:
        return self.nodes[-1].out


def fuse_maps(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        fusion = Fusion(rewriter)
        for node in rewriter.nodes():
            if node.kernel is MAP:
                fusion.visit(node)
        for cluster in fusion.clusters.values():
            if len(cluster.nodes) > 1:
                rewriter.replace(cluster.nodes, [_merged(cluster)])


class Fusion:
    """The clusters found so far, by what they write. A view is one object wherever it is a leaf."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.kept = rewriter.kept
        self.readers = {storage: set(nodes) for storage, nodes in rewriter.readers.items()}
        self.clusters: dict[Storage, Cluster] = {}
        self.pool: Pool = {}
        self.views: dict[tuple[object, ...], Value] = {}

    def leaf(self, v: Value) -> Expression:
        seen = self.views.setdefault((v.storage, v.dtype, v.offset, v.shape, v.strides), v)
        return expression.make(self.pool, "in", v.dtype, (), [seen])

    def visit(self, node: Node) -> None:
        leaves = [self.leaf(x) for x in node.ins["x"]]
        own = expression.of(node, self.pool, leaves)
        count = len(node.params["code"])
        cluster = Cluster([node], own, list(dict.fromkeys(x.extra[0] for x in leaves)), count, count)
        while found := self.candidates(cluster):
            grown = self.grown(cluster, found)
            if grown is None and len(found) > 1:
                grown = self.grown(cluster, found[:1])
                found = found[:1]
            if grown is None:
                cluster.apart |= {found[0].out.storage}
                continue
            for taken in found:
                del self.clusters[taken.out.storage]
                for v in taken.inputs:
                    self.readers[v.storage] = self.readers[v.storage] - {taken.nodes[-1]} | {node}
            grown.apart = cluster.apart.union(*(o.apart for o in found))
            cluster = grown
        self.clusters[node.out.storage] = cluster

    def candidates(self, cluster: Cluster) -> list[Cluster]:
        """Clusters whose results nothing else reads."""
        node = cluster.nodes[-1]
        found: dict[Storage, Cluster] = {}
        for v in cluster.inputs:
            other = self.clusters.get(v.storage)
            if other is None or v.storage in cluster.apart or v.storage in self.kept or other.nodes[-1].const != node.const:
                continue
            if _quantises(other.expression):
                continue
            if self.readers[v.storage] == {node}:
                found[v.storage] = other
        return list(found.values())

    def grown(self, cluster: Cluster, others: Sequence[Cluster]) -> Cluster | None:
        """A cluster with others in it; None when layouts or the machine's limits do not allow it."""
        where: dict[Expression, Expression] = {}
        inputs: dict[Value, None] = {}
        size, held = cluster.size, cluster.size + max(o.held for o in others)
        by_storage = {o.out.storage: o for o in others}
        for v in cluster.inputs:
            other = by_storage.get(v.storage)
            if other is None:
                inputs[v] = None
                continue
            moved = self.moved(other, v)
            if moved is None:
                return None
            where[self.leaf(v)], views = moved
            inputs |= dict.fromkeys(views)
            size += other.size
        if len(inputs) > INPUTS:
            return None
        e = expression.rebuild(cluster.expression, lambda x: where.get(x, x))
        nodes = [n for o in others for n in o.nodes] + cluster.nodes
        if size <= expression.MAX_CODE and (held if len(where) == 1 else size) <= expression.REGISTERS - INPUTS:
            return Cluster(nodes, e, list(inputs), size, min(held, size) if len(where) == 1 else size)
        code = _code(e, inputs)
        held = expression.held(code, len(inputs))
        if len(code) > expression.MAX_CODE or held + len(inputs) > expression.REGISTERS:
            return None
        return Cluster(nodes, e, list(inputs), len(code), held)

    def moved(self, cluster: Cluster, x: Value) -> tuple[Expression, list[Value]] | None:
        """The cluster's expression and inputs as a view of its result walks them; None when no strides say so."""
        out, e = cluster.out, cluster.expression
        if x.dtype is not out.dtype:
            return None
        if x.offset == 0 and x.shape == out.shape and x.strides == out.strides:
            return e, cluster.inputs
        if not x.whole or not out.whole or any(n.name == "index" for n in expression.nodes(e)):
            return None
        place: dict[Value, Expression] = {}
        for v in cluster.inputs:
            strides = x.strides if v.contiguous else None if _squashed(v) else split_strides(v, x.shape)
            if strides is None:
                return None
            place[v] = self.leaf(v.view(x.shape, v.offset, strides))
        e = expression.rebuild(e, lambda n: place[n.extra[0]] if n.name == "in" and n.extra[0] in place else n)
        return e, [leaf.extra[0] for leaf in place.values()]


def _quantises(e: Expression) -> bool:
    """Whether floats become bytes: what reads them reads a quarter of the memory, and may multiply them as they are."""
    return e.name == "cast" and e.dtype.is_float and e.result in (DType.uint8, DType.int8)


def _squashed(v: Value) -> bool:
    return any(s == 0 for s in v.strides) and not dims.same(v.size, 0) and any(isinstance(s, dims.Dim) for s in v.strides)


def _code(e: Expression, inputs: dict[Value, None]) -> expression.Code:
    place = {v: i for i, v in enumerate(inputs)}
    at = expression.rebuild(e, lambda x: x.make("in", x.dtype, extra=[place[x.extra[0]]]) if x.name == "in" else x, {})
    return expression.code(at, len(inputs))


def _merged(cluster: Cluster) -> Node:
    node, inputs = cluster.nodes[-1], dict.fromkeys(cluster.inputs)
    return derived(node, {"x": list(inputs)}, {"code": _code(cluster.expression, inputs)}, joined(n.origin for n in cluster.nodes))
