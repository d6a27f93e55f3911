"""Lets producers write straight into the concatenation that is the only reader of what they write."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..ir import Node, Storage, Value, dims, symbols_in
from ..ir.dims import DimLike
from ..tensor import CONCAT


def write_through(nodes: Sequence[Node], kept: Collection[Storage], later: Collection[str] = ()) -> list[Node]:
    """The nodes with others in place of concatenations along the outermost axis and of what those alone read.

    From the last to the first, so that a concatenation inside another has its place there before its own inputs move into it.

    Args:
        kept: storages that are read where no node shows.
        later: symbols that are known when the Program has begun to run; what they size is written behind that.
    """
    writes = {v.storage: node for node in nodes for v in node.outs.values()}
    reads: dict[Storage, int] = dict.fromkeys(kept, 2)
    for node in nodes:
        for value in node.inputs():
            reads[value.storage] = reads.get(value.storage, 0) + 1
    homes: dict[Storage, Value] = {}  # where the whole of a storage lies instead
    out: list[Node] = []
    for node in reversed(nodes):
        moved = _moved(node, homes)
        if (
            node.kernel is CONCAT
            and node.out.whole
            and symbols_in([node.out.storage.size]).isdisjoint(later)
            and all(s == 1 for s in node.out.shape[: node.params["axis"]])
        ):
            moved = _taken(moved, writes, reads, homes)
        if moved.kernel is not CONCAT or moved.ins["x"]:
            out.append(moved)
    return out[::-1]


def _moved(node: Node, homes: dict[Storage, Value]) -> Node:
    """The node writing where its outputs have moved to."""
    if not any(v.storage in homes for v in node.outs.values()):
        return node
    moved = Node(node.kernel, dict(node.ins), dict(node.params), node.origin)
    for name, v in node.outs.items():
        home = homes.get(v.storage)
        moved.outs[name] = v if home is None else Value(home.storage, v.dtype, v.shape, home.offset, v.strides)
    return moved


def _taken(node: Node, writes: dict[Storage, Node], reads: dict[Storage, int], homes: dict[Storage, Value]) -> Node:
    """The concatenation without the inputs that can be written to their places in it."""
    axis = node.params["axis"]
    rest: list[Value] = []
    starts: list[DimLike] = []
    at: DimLike = 0
    for value in node.ins["x"]:
        storage = value.storage
        producer = writes.get(storage)
        if producer is not None and value.dtype.bits >= 8 and value.whole and reads[storage] == 1 and _writes_whole(producer, storage):
            homes[storage] = Value(node.out.storage, value.dtype, value.shape, node.out.offset + at * dims.product(value.shape[axis + 1 :]))
        else:
            rest.append(value)
            starts.append(at)
        at = at + value.shape[axis]
    taken = Node(node.kernel, {"x": rest}, {**node.params, "starts": tuple(starts)}, node.origin)
    taken.outs = node.outs
    return taken


def _writes_whole(node: Node, storage: Storage) -> bool:
    """False for branches and loops: what they give are whole storages of their bodies."""
    return "control" not in node.kernel.traits and any(v.storage is storage and v.whole for v in node.outs.values())
