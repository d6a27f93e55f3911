"""Calls that compute the same of the same become one: angles and masks that every layer of a decoder makes anew."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping
from typing import Any

from ..ir import Graph, Node, Storage, Value
from .rewrite import Rewriter, derived

#: What they give may be another each time, or is another's to run.
APART = {"chance", "control", "shader"}


def merge_equals(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        seen: dict[Hashable, Node] = {}
        homes: dict[Storage, Storage] = {}  # where lies what an earlier call gave already
        gone: set[Node] = set()
        for node in graph.nodes:
            if not APART.isdisjoint(node.kernel.traits):
                continue
            first = seen.setdefault(_key(node, homes), node)
            outs = [v.storage for v in node.outs.values()]
            if first is not node and not any(s in rewriter.kept for s in outs) and _plainly(node) and _plainly(first):
                homes.update(zip(outs, (v.storage for v in first.outs.values()), strict=True))
                gone.add(node)
        if not homes:
            return
        for node in reversed(graph.nodes):  # a storage goes when all that read it are gone
            ins = {name: _moved(given, homes) for name, given in node.ins.items()}
            if node in gone:
                rewriter.replace([node], [])
            elif any(v.storage in homes for v in node.inputs()):
                rewriter.replace([node], [derived(node, ins)])


def _plainly(node: Node) -> bool:
    """Each output is a storage of its own."""
    return all(v.whole for v in node.outs.values())


def _moved(given: Any, homes: Mapping[Storage, Storage]) -> Any:
    if isinstance(given, list):
        return [_moved(v, homes) for v in given]
    if given is None or given.storage not in homes:
        return given
    return Value(homes[given.storage], given.dtype, given.shape, given.offset, given.strides)


def _key(node: Node, homes: Mapping[Storage, Storage]) -> Hashable:
    """Equal for calls that give the same."""

    def view(given: Any) -> Hashable:
        if isinstance(given, list):
            return tuple(map(view, given))
        return None if given is None else (homes.get(given.storage, given.storage), given.dtype, given.shape, given.offset, given.strides)

    def plain(param: Any) -> Hashable:
        if isinstance(param, dict):
            return tuple((name, plain(value)) for name, value in sorted(param.items()))
        if isinstance(param, (list, tuple)):
            return tuple(map(plain, param))
        return struct.pack("<d", param) if isinstance(param, float) else param  # 0.0 and -0.0 are two

    outs = tuple((name, v.dtype, v.shape, v.storage.asked) for name, v in node.outs.items())
    return (node.kernel.name, tuple((name, view(node.ins.get(name))) for name in node.kernel.input_names), outs, plain(node.params))
