"""Lets producers write straight into the concatenation that is the only reader of what they write."""

from __future__ import annotations

from ..ir import Graph, Node, Storage, Value, dims
from ..ir.dims import DimLike
from ..tensor import CONCAT


def write_through(graph: Graph) -> None:
    """From the last to the first, so that a Concat inside another one has its place before its own inputs move there."""
    uses, kept = graph.uses(), graph.output_storages()
    gone: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.kernel is not CONCAT or node.const or any(s != 1 for s in node.out.shape[: node.params["axis"]]):
            continue
        axis, rest, starts = node.params["axis"], [], []
        at: DimLike = 0
        for value in node.ins["x"]:
            if _movable(value, node, uses, kept):
                _move(value, node.out, at * dims.product(value.shape[axis + 1 :]))
            else:
                rest.append(value)
                starts.append(at)
            at = at + value.shape[axis]
        node.ins["x"], node.params["starts"] = rest, tuple(starts)
        if not rest:
            gone.add(node)
    graph.nodes = [n for n in graph.nodes if n not in gone]


def _movable(value: Value, node: Node, uses: dict[Storage, list[Node]], kept: set[Storage]) -> bool:
    producer, storage = value.producer, value.storage
    if producer is None or storage.const or storage in kept or uses[storage] != [node] or not value.whole:
        return False
    if sum(v.storage is storage for v in node.ins["x"]) != 1:
        return False
    out = next((v for v in producer.outs.values() if v.storage is storage), None)
    return out is not None and out.whole


def _move(value: Value, target: Value, offset: DimLike) -> None:
    producer = value.producer
    assert producer is not None
    for name, out in producer.outs.items():
        if out.storage is value.storage:
            producer.outs[name] = Value(target.storage, out.dtype, out.shape, target.offset + offset, out.strides)
