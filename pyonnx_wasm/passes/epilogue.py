"""Peels bias, scale, activation and residual off element-wise maps into the kernel that feeds them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..dtypes import DType
from ..ir import Graph, Node, Storage, Value, dims
from ..tensor import MAP, expression, map_, reshape
from ..tensor.expression import Expression
from .rewrite import Rewriter, computing, derived, joined, moderate

UNARY = {"relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "hardswish"}


@dataclass
class Epilogue:
    """What a kernel takes over from the map that reads it."""

    alpha: float = 1.0
    scale: Value | None = None  # per channel, constant
    bias: Value | None = None
    terms: list[Value] = field(default_factory=list)  # further constant biases
    act: tuple[str, float, float] | None = None
    act_last: bool = False
    residual: Value | None = None
    steps: int = 0


def fuse_epilogues(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            left, asked = node if node.kernel is MAP else None, set[Storage]()
            while left is not None:
                left = _shorter(rewriter, left, asked)


def _shorter(rewriter: Rewriter, node: Node, asked: set[Storage]) -> Node | None:
    """What is left of a map after a kernel that feeds it took a part, each asked once; None when nothing is left, or none takes any."""
    for slot, x in enumerate(node.ins["x"]):
        kernel = x.producer
        if kernel is None or x.storage in asked or not _takes(kernel, x) or not rewriter.alone(x, node):
            continue
        if new := _fuse(rewriter, node, slot, kernel):
            asked.add(x.storage)
            return new[-1] if new[-1].kernel is MAP else None
    return None


def _takes(kernel: Node, x: Value) -> bool:
    """A kernel that can do more, on all of what it gives. What runs in init gets nothing from a run."""
    return (
        "epilogue" in kernel.kernel.traits
        and not kernel.const
        and not kernel.params.get("act")
        and kernel.out.dtype is DType.float32
        and x.whole
        and kernel.out.whole
    )


def _fuse(rewriter: Rewriter, node: Node, slot: int, kernel: Node) -> list[Node]:
    """The nodes that take the place of a map and of the kernel that its input ``slot`` comes from; none where nothing can be done."""
    x, e = node.ins["x"][slot], expression.of(node)
    path = _path(e, slot)
    if path is None:
        return []
    found = Epilogue(residual=kernel.ins.get("residual"))
    for above, below in path:
        if not _take(found, above, below, node, kernel):
            break
        found.steps += 1
    if found.steps == 0:
        return []
    with rewriter.emitted(kernel.origin) as fresh:
        more = _applied(found, kernel)
    if found.steps == len(path):
        more.outs["y"] = Value(node.out.storage, node.out.dtype, kernel.out.shape, 0)
        more.origin = joined([kernel.origin, node.origin])
        new = [*fresh, more]
    else:
        rest = expression.replaced(e, path[found.steps - 1][0], e.make("in", x.dtype, extra=[slot]))
        new = [*fresh, more, computing(node, rest, node.ins["x"])]
    rewriter.replace([kernel, node], new)
    return new


def _path(e: Expression, slot: int) -> list[tuple[Expression, Expression]] | None:
    """(operation, operand on the way down) from input ``slot`` to the top; None when it is read more than once."""
    steps: list[tuple[Expression, Expression]] = []
    while e.name != "in":
        down = [a for a in e.args if a.reads >> slot & 1]
        if len(down) != 1:
            return None
        steps.append((e, down[0]))
        e = down[0]
    return steps[::-1]


def _take(found: Epilogue, e: Expression, below: Expression, node: Node, kernel: Node) -> bool:
    """Adds one operation to the epilogue, if the kernel can do it there."""
    if e.name in UNARY:
        return _activate(found, e.name)
    numbers = [a.number for a in e.args[1:]]
    if e.name in ("clamp", "prelu", "elu") and e.args[0] is below and None not in numbers:
        return _activate(found, {"clamp": "clip", "prelu": "leaky_relu"}.get(e.name, e.name), *numbers)  # type: ignore[arg-type]
    if e.name not in ("add", "mul", "div") or (e.name == "div" and e.args[0] is not below):
        return False
    other = e.args[1] if e.args[0] is below else e.args[0]
    if e.name in ("mul", "div"):
        return _scale(found, e.name, other, node, kernel)
    return other.name == "in" and not found.act_last and _add(found, node.ins["x"][other.extra[0]], kernel)


def _activate(found: Epilogue, name: str, a: float = 0.0, b: float = 0.0) -> bool:
    if found.act is not None:
        return False
    found.act, found.act_last = (name, a, b), found.residual is not None
    return True


def _scale(found: Epilogue, name: str, other: Expression, node: Node, kernel: Node) -> bool:
    if found.act or found.terms or found.residual is not None:
        return False
    c = other.number
    if "channels" not in kernel.kernel.traits:
        if c is None or found.bias is not None or kernel.ins.get("bias") is not None:
            return False
        alpha = found.alpha * c if name == "mul" else found.alpha / c if c else 0.0
        if not moderate(alpha) or not moderate(c):
            return False
        found.alpha = alpha
        return True
    if other.name != "in" or name != "mul" or found.bias is not None or found.scale is not None:
        return False
    factor, bias = _channels(node.ins["x"][other.extra[0]], kernel), kernel.ins.get("bias")
    if factor is None or not factor.storage.const or not kernel.ins["w"].storage.const or (bias is not None and not bias.storage.const):
        return False
    found.scale = factor
    return True


def _add(found: Epilogue, value: Value, kernel: Node) -> bool:
    y = kernel.out
    if value.dtype is not y.dtype:
        return False
    per_channel = "channels" in kernel.kernel.traits
    bias = _channels(value, kernel) if per_channel else _columns(value, kernel)
    if bias is not None and found.act is None and found.residual is None:
        if found.bias is None and kernel.ins.get("bias") is None:
            found.bias = bias
            return True
        first: Value = found.bias or kernel.ins["bias"]
        if per_channel and bias.storage.const and first.storage.const:
            found.terms.append(bias)
            return True
    if found.residual is None and value.whole and dims.same(value.size, y.size):
        found.residual = reshape(value, y.shape)
        return True
    return False


def _channels(value: Value, kernel: Node) -> Value | None:
    """A value of [n, m, ...] that varies over the channels alone, as [m]."""
    m = kernel.out.shape[1]
    if value.shape != kernel.out.shape or any(not _still(value, a) for a in range(value.rank) if a != 1):
        return None
    if value.strides[1] != 1 and m != 1:
        return None
    return value.view([m], value.offset, [1])


def _columns(value: Value, kernel: Node) -> Value | None:
    """A value that varies over the last axis alone, as [m, n] with strides (0, 1)."""
    if value.rank == 0 or value.offset != 0 or value.strides[-1] != 1 or any(not _still(value, a) for a in range(value.rank - 1)):
        return None
    m, n = kernel.out.shape[-2:]
    return value.view([m, n], 0, [0, 1]) if dims.same(value.shape[-1], n) else None


def _still(value: Value, axis: int) -> bool:
    return value.strides[axis] == 0 or value.shape[axis] == 1


def _applied(found: Epilogue, kernel: Node) -> Node:
    """The kernel with its epilogue; what has to be computed for it is emitted."""
    ins: dict[str, object] = {}
    params: dict[str, object] = {}
    bias = found.bias or kernel.ins.get("bias")
    if found.scale is not None:
        w = kernel.ins["w"]
        ins["w"] = map_("mul", w, reshape(found.scale, [found.scale.shape[0], *[1] * (w.rank - 1)]))
        if kernel.ins.get("bias") is not None:
            bias = map_("mul", kernel.ins["bias"], found.scale)
    for term in found.terms:
        bias = map_("add", bias, term) if bias is not None else term
    if found.alpha != 1.0:
        params["alpha"] = kernel.params.get("alpha", 1.0) * found.alpha
    if bias is not None:
        ins["bias"] = bias
    if found.act is not None:
        params["act"], params["act_last"] = found.act, found.act_last
    if found.residual is not None:
        ins["residual"] = found.residual
    return derived(kernel, ins, params)
