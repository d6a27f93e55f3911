"""Weights of float32 products are put by the init Program in the order in which the core's tiles read them, in their own place."""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import DType
from ..ir import Node, Storage, Value
from ..ops.matmul import MATMUL, PACK

LEAST_COLUMNS, LEAST_WEIGHTS = 16, 1 << 12  # what is smaller stays in cache as it is
# A band is copied before it is packed, in little memory, or little beside its matrix; in one of few rows, sums would be taken up again
# too often.
BAND, SHARE, LEAST_ROWS = 1 << 20, 16, 32
MOST_ROWS = 384  # what a tile goes through at once in WebAssembly; others take a band in parts


def pack_products(lists: Sequence[Sequence[Node]], init: list[Node], read: set[Storage]) -> list[list[Node]]:
    """The nodes of main and bodies, with products that read packed weights; what packs them joins ``init``.

    Weights that anything else reads, or another product the other way round, stay as they are.

    Args:
        read: storages that are read besides.
    """
    plain, ways = set(read), dict[Storage, object]()
    for node in (node for nodes in lists for node in nodes):
        others = node.inputs()
        if (b := _weights(node)) is not None:
            others.remove(b)
            if ways.setdefault(b.storage, _way(b)) != _way(b):
                plain.add(b.storage)
        plain |= {v.storage for v in others}
    made: dict[Storage, Value] = {}

    def packed(node: Node) -> Node:
        b = _weights(node)
        if b is None or b.storage in plain:
            return node
        k, n, transposed = _way(b)
        rows = k if transposed else min(k, MOST_ROWS, _most(k * n) // n)
        band = -(-k // -(-k // rows))
        if b.storage not in made:
            pack = Node(PACK, {"w": b.view([k * n], 0, [1])}, {"k": k, "n": n, "band": band, "transposed": int(transposed)}, node.origin)
            made[b.storage] = pack.outs["y"] = Value(Storage(DType.float32, k * n, "temp", producer=pack), DType.float32, [k * n])
            pack.const = True
            init.append(pack)
        y = made[b.storage].view(b.shape, 0, [*b.strides[:-2], n, 1])
        product = Node(MATMUL, {**node.ins, "b": y}, {**node.params, "band": band}, node.origin)
        product.outs = node.outs
        return product

    return [[packed(node) for node in nodes] for nodes in lists]


def _most(size: int) -> int:
    """The floats of a band of so large a matrix."""
    return max(BAND, size // SHARE)


def _way(b: Value) -> tuple[int, int, bool]:
    """Rows, columns, and whether they lie column by column."""
    return int(b.shape[-2]), int(b.shape[-1]), b.strides[-1] != 1


def _weights(node: Node) -> Value | None:
    """The matrix that a product may read packed: a float32 constant that fills its storage, column by column, or by rows not too wide."""
    if node.kernel is not MATMUL:
        return None
    b: Value = node.ins["b"]
    k, n, size = b.shape[-2], b.shape[-1], b.storage.size
    if not (b.storage.const and b.dtype is b.storage.dtype is DType.float32 and b.offset == 0 and all(s == 0 for s in b.strides[:-2])):
        return None
    if not (isinstance(k, int) and isinstance(n, int) and isinstance(size, int)) or k * n != size:
        return None
    fits = b.strides[-2:] == (1, k) or (b.strides[-2:] == (n, 1) and n * min(k, LEAST_ROWS) <= _most(size))
    return b if fits and n >= LEAST_COLUMNS and size >= LEAST_WEIGHTS else None
