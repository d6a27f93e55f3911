"""Weights larger than one binding may be: calls that read them become several, each over a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from ..ir import Node, Storage, Value
from ..ops.gather import GATHER
from ..ops.matmul import MATMUL

BINDING_BYTES = 1 << 27  # what every adapter binds (WebGPU's default maxStorageBufferBindingSize)
ALIGN = 256  # of what is bound (minStorageBufferOffsetAlignment)


def is_large(value: Value) -> bool:
    """A view of a weight that no adapter has to be able to bind whole."""
    storage = value.storage
    return storage.const and isinstance(storage.size, int) and storage.size * storage.dtype.bits // 8 > BINDING_BYTES


def split_large(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with those that can be taken apart in place of those that read too much."""
    out: list[Node] = []
    for node in nodes:
        parts: list[Node] = []
        if node.kernel is MATMUL and is_large(node.ins["b"]):
            parts = list(_columns(node)) or list(_depth(node))
        elif node.kernel is GATHER and is_large(node.ins["x"]):
            parts = list(_rows(node))
        out += parts or [node]
    return out


def _pieces(count: int, each_bytes: int) -> Iterator[tuple[int, int]]:
    """[0, count) in runs that begin at aligned bytes and fit a binding; nothing where that cannot be."""
    unit = ALIGN // gcd(ALIGN, each_bytes)
    most = BINDING_BYTES // each_bytes // unit * unit
    if most:
        yield from ((at, min(at + most, count)) for at in range(0, count, most))


def _columns(node: Node) -> Iterator[Node]:
    """A product by columns of ``b``, whose columns must lie one behind the other."""
    b, y = node.ins["b"], node.out
    k, n, stride = b.shape[-2], b.shape[-1], b.strides[-1]
    lead = any(not (isinstance(s, int) and s == 0) for s in b.strides[:-2])
    if lead or b.offset != 0 or b.strides[-2] != 1 or not all(isinstance(v, int) for v in (k, n, stride)) or stride < k:
        return
    for first, last in _pieces(n, stride * b.dtype.bits // 8):
        ins = dict(node.ins)
        for name in ("b", "bias", "residual"):
            value = ins.get(name)
            if value is not None:
                shape = [*value.shape[:-1], last - first if value.shape[-1] != 1 else 1]
                ins[name] = value.view(shape, value.offset + first * value.strides[-1], value.strides)
        part = Node(node.kernel, ins, node.params, node.origin)
        part.outs["y"] = Value(y.storage, y.dtype, [*y.shape[:-1], last - first], y.offset + first, y.strides)
        yield part


def _depth(node: Node) -> Iterator[Node]:
    """A product by rows of ``b``, each a part of the sum that goes on where the last one ended."""
    a, b, y = node.ins["a"], node.ins["b"], node.out
    k, n, stride = b.shape[-2], b.shape[-1], b.strides[-2]
    lead = any(not (isinstance(s, int) and s == 0) for s in b.strides[:-2])
    if lead or b.offset != 0 or b.strides[-1] != 1 or not all(isinstance(v, int) for v in (k, n, stride)) or stride < n:
        return
    residual = node.ins.get("residual")
    acts = node.params.get("act", ("none",))[0] != "none"
    if acts and residual is not None and not node.params.get("act_last"):
        return  # what is added last cannot be where the sum began
    for first, last in _pieces(k, stride * b.dtype.bits // 8):
        ins = {
            "a": a.view([*a.shape[:-1], last - first], a.offset + first * a.strides[-1], a.strides),
            "b": b.view([*b.shape[:-2], last - first, n], first * stride, b.strides),
        }
        if residual is not None:
            ins["residual"] = residual
        if last == k:
            if "bias" in node.ins:
                ins["bias"] = node.ins["bias"]
            part = Node(node.kernel, ins, {**node.params, "act_last": acts}, node.origin)
            part.outs["y"] = y
        else:
            part = Node(node.kernel, ins, {"alpha": node.params.get("alpha", 1.0)}, node.origin)
            residual = part.outs["y"] = Value(Storage(y.dtype, y.size, "temp", producer=part), y.dtype, y.shape)
        yield part


def _rows(node: Node) -> Iterator[Node]:
    """A lookup by rows of the table: each part fills in the rows that it has."""
    x, p = node.ins["x"], node.params
    n, inner = p["n"], p["inner"]
    if p["outer"] != 1 or not x.contiguous or x.offset != 0 or not all(isinstance(v, int) for v in (n, inner)):
        return
    for first, last in _pieces(n, inner * x.dtype.bits // 8):
        table = Value(x.storage, x.dtype, [(last - first) * inner], first * inner)
        params = {**p, "n": last - first, "first": first, "total": n}
        part = Node(node.kernel, {**node.ins, "x": table}, params, node.origin)
        part.outs = dict(node.outs)
        yield part
