"""Weights of products and convolutions of bytes are packed by the init Program as the core's tiles read them."""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import DType
from ..ir import Node, Storage, Value
from ..ir.dims import DimLike
from ..ops.quantized import QMATMUL, QPACK, packed_size


def pack_weights(nodes: Sequence[Node], init: list[Node]) -> list[Node]:
    """The nodes, with products that read packed weights; what packs them joins ``init``."""
    made: dict[object, dict[str, Value]] = {}
    out: list[Node] = []
    for node in nodes:
        b = node.ins["b"] if node.kernel is QMATMUL else None
        if b is not None and "sums" not in node.ins and b.storage.const and _fixed(b) and all(s == 0 for s in b.strides[:-2]):
            key = (b.storage, b.offset, b.shape[-2:], b.strides[-2:])
            if key not in made:
                made[key] = packed(b.view(b.shape[-2:], b.offset, b.strides[-2:]), init, node.origin)
            y, sums = made[key]["b"], made[key]["sums"]
            product = Node(QMATMUL, {**node.ins, "b": y, "sums": sums}, node.params, node.origin)
            product.outs = node.outs
            node = product
        out.append(node)
    return out


def _fixed(v: Value) -> bool:
    return all(isinstance(n, int) for n in (*v.shape, v.offset, *v.strides))


def packed(w: Value, init: list[Node], origin: str, taps: bool = False, zero: Value | None = None) -> dict[str, Value]:
    """Weights of [k, n] as ``b`` and ``sums``: flat values that a node which joins ``init`` gives."""
    k, n = (int(s) for s in w.shape)
    size, columns = packed_size(k, n, taps)
    node = Node(QPACK, {"w": w, "zero": zero}, {"taps": int(taps)}, origin)
    shape: tuple[DimLike, ...] = (size,)
    for name, dtype, count in (("y", DType.int16 if taps else w.dtype, shape), ("sums", DType.int32, (columns,))):
        node.outs[name] = Value(Storage(dtype, count[0], "temp", producer=node), dtype, count)
    node.const = True
    init.append(node)
    return {"b": node.outs["y"], "sums": node.outs["sums"]}
