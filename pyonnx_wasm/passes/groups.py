"""Weights in blocks are put by the init Program in the order in which the core's products read them, in their own place."""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import DType
from ..ir import Node, Storage, Value
from ..ops.blocks import MATMUL_NBITS, PACK_BLOCKS

PARTS = ("b", "scale", "shift")
MOST_BITS_EXACT = 4  # codes of more bits are read as they are where rows may not be rounded


def pack_blocks(lists: Sequence[Sequence[Node]], init: list[Node], read: set[Storage]) -> list[list[Node]]:
    """The nodes of main and bodies, with products that read packed codes, scales and shifts; what packs them joins ``init``.

    Weights that anything but such products reads stay as they are.

    Args:
        read: storages that are read besides.
    """
    plain, ways = set(read), dict[Storage, object]()
    for node in (node for nodes in lists for node in nodes):
        parts = _parts(node)
        own = {id(v) for v in parts}
        plain |= {v.storage for v in node.inputs() if id(v) not in own}
        for v in parts:
            if ways.setdefault(v.storage, _way(node, parts)) != _way(node, parts):
                plain.add(v.storage)
    # What one part of some weights cannot be, none of them is.
    while True:
        more = {v.storage for nodes in lists for n in nodes if any(p.storage in plain for p in _parts(n)) for v in _parts(n)} - plain
        if not more:
            break
        plain |= more
    made: dict[Storage, Value] = {}

    def one(name: str, v: Value, node: Node) -> Value:
        storage = v.storage
        if storage not in made:
            rows = int(v.shape[0])
            shape = [rows, int(storage.size) // rows]
            params = {"n": rows, "count": shape[1], "words": int(name == "b"), "bits": node.params["bits"], "block": node.params["block"]}
            pack = Node(PACK_BLOCKS, {"w": Value(storage, storage.dtype, shape)}, params, node.origin)
            made[storage] = pack.outs["y"] = Value(Storage(storage.dtype, storage.size, "temp", producer=pack), storage.dtype, shape)
            pack.const = True
            init.append(pack)
        return Value(made[storage].storage, v.dtype, v.shape)

    def packed(node: Node) -> Node:
        parts = _parts(node)
        if not parts or any(v.storage in plain for v in parts):
            return node
        ins = {name: one(name, v, node) if name in PARTS and v is not None else v for name, v in node.ins.items()}
        product = Node(MATMUL_NBITS, ins, {**node.params, "packed": 1}, node.origin)
        product.outs = node.outs
        return product

    return [[packed(node) for node in nodes] for nodes in lists]


def _parts(node: Node) -> list[Value]:
    """Codes, scales and shifts of a product that may read them packed: constants of known sizes that fill their storages."""
    if node.kernel is not MATMUL_NBITS or node.params["bits"] not in (4, 8) or node.params["block"] % 32:
        return []
    if node.params["bits"] > MOST_BITS_EXACT and not node.params["rounded"]:
        return []
    parts = {name: node.ins[name] for name in PARTS if node.ins.get(name) is not None}
    return [*parts.values()] if all(_fills(name, v) for name, v in parts.items()) else []


def _fills(name: str, v: Value) -> bool:
    storage = v.storage
    if not (storage.const and v.offset == 0 and v.contiguous and v.rank == 2 and isinstance(storage.size, int)):
        return False
    if not all(isinstance(n, int) and n > 0 for n in v.shape) or int(v.size) * v.dtype.bits != storage.size * storage.dtype.bits:
        return False
    return storage.dtype in (DType.uint8, DType.uint32) if name == "b" else storage.dtype is v.dtype


def _way(node: Node, parts: Sequence[Value]) -> object:
    return node.params["bits"], node.params["block"], [v.shape for v in parts], [v.storage for v in parts]
