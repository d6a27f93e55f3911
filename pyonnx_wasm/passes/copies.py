"""Drops calls that only copy a whole tensor as it is."""

from __future__ import annotations

from ..ir import Graph, Node, Value
from .rewrite import Rewriter, derived


def drop_copies(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            x = _copied(node)
            if x is None:
                continue
            producer = x.producer
            if node.out.storage not in rewriter.kept and x.storage.const == node.const:
                for reader in list(rewriter.readers.get(node.out.storage, ())):
                    rewriter.replace([reader], [_reading(reader, node.out, x)])
                rewriter.replace([node], [])
            elif producer is not None and not producer.const and rewriter.alone(x, node):
                whole = derived(producer)
                name = next(n for n, v in producer.outs.items() if v.storage is x.storage)
                v = whole.outs[name]
                whole.outs[name] = Value(node.out.storage, v.dtype, v.shape, v.offset, v.strides)
                rewriter.replace([producer, node], [whole])


def _copied(node: Node) -> Value | None:
    """What an element-wise call without an instruction copies, if both are all of their storages."""
    if "elementwise" not in node.kernel.traits or node.params.get("code"):
        return None
    xs = list(node.inputs())
    return xs[0] if len(xs) == 1 and xs[0].whole and node.out.whole and xs[0].dtype is node.out.dtype else None


def _reading(node: Node, old: Value, new: Value) -> Node:
    """The call with the storage of ``new`` in place of that of ``old``."""

    def moved(v: Value) -> Value:
        return v if v.storage is not old.storage else Value(new.storage, v.dtype, v.shape, v.offset, v.strides)

    ins = {n: moved(got) if isinstance(got, Value) else got and [moved(v) for v in got] for n, got in node.ins.items()}
    return derived(node, ins)
