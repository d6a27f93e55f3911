"""Weights in blocks are put by the init Program in the order in which the core's products read them, in their own place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..ir import Node, Storage, Value
from ..ops.blocks import MATMUL_NBITS, PACK_BLOCKS, PICK_BLOCKS
from ..ops.gather import GATHER

PARTS = ("b", "scale", "shift")
Way = dict[str, Any]  # parameters of what packs a part
MOST_BITS_EXACT = 4  # codes of more bits are read as they are where rows may not be rounded


def pack_blocks(lists: Sequence[Sequence[Node]], init: list[Node], read: set[Storage]) -> list[list[Node]]:
    """The nodes of main and bodies, with products that read packed codes, scales and shifts; what packs them joins ``init``.

    Rows that are gathered of them, as of tied embeddings, are put back in their order. Weights that anything else reads stay as they are.

    Args:
        read: storages that are read besides.
    """
    nodes = [node for nodes in lists for node in nodes]
    products = [(node, parts) for node in nodes if (parts := _parts(node))]
    ways: dict[Storage, Way] = {}
    origins: dict[Storage, str] = {}
    plain = set(read)
    for node, parts in products:
        for name, v in parts.items():
            way = _way(node, name, v)
            origins.setdefault(v.storage, node.origin)
            if ways.setdefault(v.storage, way) != way:
                plain.add(v.storage)
    for node in nodes:
        own = {id(v) for v in _parts(node).values()}
        if _picked(node, ways):
            own.add(id(node.ins["x"]))
        plain |= {v.storage for v in node.inputs() if id(v) not in own}
    # What one part of some weights cannot be, none of them is.
    while more := {v.storage for _, parts in products if any(p.storage in plain for p in parts.values()) for v in parts.values()} - plain:
        plain |= more
    made = {storage: _pack(storage, way, init, origins[storage]) for storage, way in ways.items() if storage not in plain}

    def packed(node: Node) -> Node:
        ins: dict[str, Any] = dict(node.ins)
        parts = _parts(node)
        if parts and all(v.storage in made for v in parts.values()):
            for name, v in parts.items():
                ins[name] = Value(made[v.storage].storage, v.dtype, v.shape)
            replaced = Node(MATMUL_NBITS, ins, {**node.params, "packed": 1}, node.origin)
        elif _picked(node, ways) and (w := made.get(node.ins["x"].storage)) is not None:
            way = ways[node.ins["x"].storage]
            params = {**way, "row": way["count"], "count": node.params["count"]}
            replaced = Node(PICK_BLOCKS, {"w": w, "indices": node.ins["indices"]}, params, node.origin)
        else:
            return node
        replaced.outs = node.outs
        return replaced

    return [[packed(node) for node in nodes] for nodes in lists]


def _pack(storage: Storage, way: Way, init: list[Node], origin: str) -> Value:
    shape = [way["n"], way["count"]]
    pack = Node(PACK_BLOCKS, {"w": Value(storage, storage.dtype, shape)}, way, origin)
    made = pack.outs["y"] = Value(Storage(storage.dtype, storage.size, "temp", producer=pack), storage.dtype, shape)
    pack.const = True
    init.append(pack)
    return made


def _parts(node: Node) -> dict[str, Value]:
    """Codes, scales and shifts of a product that may read them packed: constants of known sizes that fill their storages."""
    if node.kernel is not MATMUL_NBITS or node.params["bits"] not in (4, 8) or node.params["block"] % 16:
        return {}
    if node.params["bits"] > MOST_BITS_EXACT and not node.params["rounded"]:
        return {}
    parts = {name: node.ins[name] for name in PARTS if node.ins.get(name) is not None}
    return parts if all(_fills(name, v) for name, v in parts.items()) else {}


def _fills(name: str, v: Value) -> bool:
    storage = v.storage
    if not (storage.const and v.offset == 0 and v.contiguous and v.rank == 2 and isinstance(storage.size, int)):
        return False
    if not all(isinstance(n, int) and n > 0 for n in v.shape) or int(v.size) * v.dtype.bits != storage.size * storage.dtype.bits:
        return False
    return storage.dtype in (DType.uint8, DType.uint32) if name == "b" else storage.dtype is v.dtype


def _way(node: Node, name: str, v: Value) -> Way:
    rows = int(v.shape[0])
    count = int(v.storage.size) // rows
    return {"n": rows, "count": count, "words": int(name == "b"), "bits": node.params["bits"], "block": node.params["block"]}


def _picked(node: Node, ways: dict[Storage, Way]) -> bool:
    """Whether a node gathers whole rows of what a product reads."""
    if node.kernel is not GATHER:
        return False
    x: Value = node.ins["x"]
    way = ways.get(x.storage)
    if way is None or x.dtype is not x.storage.dtype or x.offset != 0 or not x.contiguous:
        return False
    return (node.params["outer"], node.params["n"], node.params["inner"]) == (1, way["n"], way["count"])
