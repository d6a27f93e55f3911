"""Products of integers whose only reader scales them to float32 are scaled by the kernel."""

from __future__ import annotations

from ..dtypes import DType
from ..ir import Graph, Node, Storage, Value, dims
from ..tensor import MAP, constant, expression, reshape
from ..tensor.expression import Expression, number
from .rewrite import emitted, splice
from .simplify import install


def scale_products(graph: Graph) -> None:
    uses, kept = graph.uses(), graph.output_storages()
    late: dict[Node, list[Node]] = {}  # the scale may be computed behind the product, never behind its reader
    for node in graph.nodes:
        if node.kernel is not MAP or node.const:
            continue
        for slot, x in enumerate(node.ins["x"]):
            if _scalable(x, node, uses, kept) and _scale(graph, node, slot):
                assert x.producer is not None
                late[node] = [x.producer]
                break
    splice(graph, late, {kernel for kernels in late.values() for kernel in kernels})


def _scalable(x: Value, node: Node, uses: dict[Storage, list[Node]], kept: set[Storage]) -> bool:
    kernel = x.producer
    if kernel is None or "dequantize" not in kernel.kernel.traits or kernel.out.dtype is not DType.int32 or not x.whole:
        return False
    return uses[x.storage] == [node] and x.storage not in kept and sum(v.storage is x.storage for v in node.ins["x"]) == 1


def _scale(graph: Graph, node: Node, slot: int) -> bool:
    x: Value = node.ins["x"][slot]
    kernel = x.producer
    assert kernel is not None
    e = expression.of(node)
    product = _product(e, ("cast", DType.int32, ("in", DType.int32, slot), DType.float32, 0))
    if product is None:
        return False
    factor = product[3] if product[2][0] == "cast" and product[2][2] == ("in", DType.int32, slot) else product[2]
    with emitted(graph, kernel.origin):
        scale = _per_column(node, factor, kernel)
    rest = expression.replaced(e, product, ("in", DType.float32, slot))
    if scale is None or ("in", DType.int32, slot) in _leaves(rest):
        return False
    out = kernel.out
    storage = Storage(DType.float32, out.storage.size, "temp", producer=kernel)
    kernel.outs["y"] = Value(storage, DType.float32, out.shape, out.offset, out.strides)
    kernel.ins["scale"] = scale
    node.ins["x"][slot] = Value(storage, DType.float32, x.shape, x.offset, x.strides)
    install(node, rest)
    return True


def _product(e: Expression, wide: Expression) -> Expression | None:
    """The product of ``wide`` and one other leaf."""
    todo, seen = [e], set()
    while todo:
        at = todo.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if at[0] == "mul" and wide in at[2:4]:
            other = at[3] if at[2] == wide else at[2]
            return at if other[0] in ("in", "const") else None
        todo += expression.operands(at)
    return None


def _leaves(e: Expression) -> set[Expression]:
    found, todo, seen = set(), [e], set()
    while todo:
        at = todo.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if at[0] == "in":
            found.add(at)
        todo += expression.operands(at)
    return found


def _per_column(node: Node, factor: Expression, kernel: Node) -> Value | None:
    """A factor that is one number, or varies along the last axis alone, as the kernel's [m, n]."""
    m, n = kernel.out.shape[-2:]
    c = number(factor)
    if c is not None:
        return reshape(constant([[c]], DType.float32), [1, 1]).view([m, n], 0, [0, 0])
    if factor[0] != "in" or factor[1] is not DType.float32:
        return None
    value: Value = node.ins["x"][factor[2]]
    if any(s != 0 and not dims.same(size, 1) for s, size in zip(value.strides[:-1], value.shape[:-1], strict=True)) or value.rank == 0:
        return None
    if value.strides[-1] != 0 and not dims.same(value.shape[-1], n):
        return None
    return value.view([m, n], value.offset, [0, value.strides[-1]])
