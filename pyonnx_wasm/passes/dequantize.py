"""Products and convolutions of integers whose only reader scales them to float32 are scaled by the kernel; what it adds before, too."""

from __future__ import annotations

from ..dtypes import DType
from ..ir import Content, Graph, Node, Storage, Value, dims
from ..ops.quantized import QCONV
from ..tensor import MAP, cast, constant, content, expression, map_, reshape
from ..tensor.expression import Expression
from .integers import unless_zeros
from .rewrite import Rewriter, computing, derived, moderate


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
    product, sums = next(((at, s) for at in expression.nodes(e) if at.name == "mul" and len(s := _sums(at, leaf)) == 1), (None, []))
    if product is None:
        return False
    ((wide, added),) = sums
    rest = expression.replaced(e, product, e.make("in", DType.float32, extra=[slot]))
    if leaf in expression.nodes(rest):
        return False
    with rewriter.emitted(kernel.origin) as fresh:
        ins = _scaled(node, product.args[1] if product.args[0] is wide else product.args[0], added, kernel)
    if ins is None:
        return False
    zeros = {name: unless_zeros(kernel.ins.get(name)) for name in ("xzero", "wzero", "azero", "bzero") if name in kernel.ins}
    scaled = derived(kernel, ins | zeros)
    out = kernel.out
    storage = Storage(DType.float32, out.storage.size, "temp")
    scaled.outs["y"] = Value(storage, DType.float32, out.shape, out.offset, out.strides)
    xs = list(node.ins["x"])
    xs[slot] = Value(storage, DType.float32, x.shape, x.offset, x.strides)
    rewriter.replace([kernel, node], [*fresh, scaled, computing(node, rest, xs)])
    return True


def _sums(product: Expression, leaf: Expression) -> list[tuple[Expression, Expression | None]]:
    """The factors that are the kernel's sums as float32, and what is added to these before."""
    found: list[tuple[Expression, Expression | None]] = []
    for factor in dict.fromkeys(product.args):
        if factor.name == "cast" and factor.dtype is DType.int32 and factor.result is DType.float32:
            inner = factor.args[0]
            if inner is leaf:
                found.append((factor, None))
            elif inner.name == "add" and (inner.args[0] is leaf) != (inner.args[1] is leaf):
                found.append((factor, inner.args[1] if inner.args[0] is leaf else inner.args[0]))
    return found if len(found) == len([f for f in product.args if leaf in expression.nodes(f)]) else []


def _scaled(node: Node, factor: Expression, added: Expression | None, kernel: Node) -> dict[str, object] | None:
    """The kernel's ``scale``, and its ``bias``, which is scaled too; None where they vary otherwise than it can."""
    scale, bias = _vector(node, factor, DType.float32, kernel), None
    if scale is None:
        return None
    if added is not None:
        bias = _vector(node, added, DType.int32, kernel)
        if bias is None or bias.size == 1 or not _finite(scale):
            return None
        bias = map_("mul", cast(bias, DType.float32), scale)
    if kernel.kernel is QCONV:
        return {"scale": scale, **({"bias": bias} if bias is not None else {})}
    size = kernel.out.shape[-2:]
    step = 0 if scale.strides[0] == 0 else 1
    return {"scale": scale.view(size, 0, [0, step]), **({"bias": bias.view(size, 0, [0, 1])} if bias is not None else {})}


def _finite(scale: Value) -> bool:
    """Whether factors are known to be such that products are distributive, as those with infinities are not."""

    def all_moderate(known: Content | None) -> bool:
        return known is not None and all(moderate(float(n)) for n in known.flat)

    made = scale.producer
    if made is None or made.kernel is not MAP:
        return all_moderate(content(scale))
    e, xs = expression.of(made), made.ins["x"]
    if e.name != "mul":
        return False
    return all(moderate(a.number) if a.number is not None else a.name == "in" and all_moderate(content(xs[a.extra[0]])) for a in e.args)


def _vector(node: Node, e: Expression, dtype: DType, kernel: Node) -> Value | None:
    """An operand of a map that is one number, or varies along the channels of a convolution or the columns of a product, from the start of
    its buffer: [1] of stride 0, or as long as that axis."""
    if e.number is not None:
        return reshape(constant([e.number], dtype), [1]).view([1], 0, [0])
    if e.name != "in" or e.dtype is not dtype:
        return None
    value: Value = node.ins["x"][e.extra[0]]
    channels = kernel.kernel is QCONV
    axis = 1 if channels else value.rank - 1
    if value.rank == 0 or not dims.same(value.offset, 0) or (channels and value.shape != kernel.out.shape):
        return None
    if any(s != 0 and not dims.same(n, 1) for a, (n, s) in enumerate(zip(value.shape, value.strides, strict=True)) if a != axis):
        return None
    if value.strides[axis] == 0:
        return value.view([1], 0, [0])
    size = kernel.out.shape[1 if channels else -1]
    return value.view([size], 0, [1]) if dims.same(value.shape[axis], size) and dims.same(value.strides[axis], 1) else None
