"""Products of integers whose only reader scales them to float32 are scaled by the kernel."""

from __future__ import annotations

from ..dtypes import DType
from ..ir import Graph, Node, Storage, Value, dims
from ..tensor import MAP, constant, expression, reshape
from ..tensor.expression import Expression
from .rewrite import Rewriter, computing, derived


def scale_products(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            if node.kernel is not MAP or node.const:
                continue
            for slot, x in enumerate(node.ins["x"]):
                kernel = x.producer
                if kernel is not None and _takes(kernel, x) and rewriter.alone(x, node) and _scale(rewriter, node, slot, kernel):
                    break


def _takes(kernel: Node, x: Value) -> bool:
    return "dequantize" in kernel.kernel.traits and not kernel.const and kernel.out.dtype is DType.int32 and x.whole and kernel.out.whole


def _scale(rewriter: Rewriter, node: Node, slot: int, kernel: Node) -> bool:
    x, e = node.ins["x"][slot], expression.of(node)
    leaf = e.make("in", DType.int32, extra=[slot])
    wide = e.make("cast", DType.int32, leaf, extra=[int(DType.float32)])
    product = next((at for at in expression.nodes(e) if at.name == "mul" and (at.args[0] is wide) != (at.args[1] is wide)), None)
    if product is None:
        return False
    rest = expression.replaced(e, product, e.make("in", DType.float32, extra=[slot]))
    if leaf in expression.nodes(rest):
        return False
    with rewriter.emitted(kernel.origin):
        scale = _per_column(node, product.args[1] if product.args[0] is wide else product.args[0], kernel)
    if scale is None:
        return False
    scaled = derived(kernel, {"scale": scale})
    out = kernel.out
    storage = Storage(DType.float32, out.storage.size, "temp")
    scaled.outs["y"] = Value(storage, DType.float32, out.shape, out.offset, out.strides)
    xs = list(node.ins["x"])
    xs[slot] = Value(storage, DType.float32, x.shape, x.offset, x.strides)
    rewriter.replace([kernel, node], [scaled, computing(node, rest, xs)])
    return True


def _per_column(node: Node, factor: Expression, kernel: Node) -> Value | None:
    """A factor that is one number, or varies along the last axis alone, as the kernel's [m, n]."""
    m, n = kernel.out.shape[-2:]
    if factor.number is not None:
        return reshape(constant([[factor.number]], DType.float32), [1, 1]).view([m, n], 0, [0, 0])
    if factor.name != "in" or factor.dtype is not DType.float32:
        return None
    value: Value = node.ins["x"][factor.extra[0]]
    if not dims.same(value.offset, 0):  # the kernel counts from the start of the buffer
        return None
    if any(s != 0 and not dims.same(size, 1) for s, size in zip(value.strides[:-1], value.shape[:-1], strict=True)) or value.rank == 0:
        return None
    if value.strides[-1] != 0 and not dims.same(value.shape[-1], n):
        return None
    return value.view([m, n], value.offset, [0, value.strides[-1]])
