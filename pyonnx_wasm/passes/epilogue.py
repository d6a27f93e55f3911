"""Peels bias, scale, activation and residual off element-wise maps into the kernel that feeds them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..dtypes import DType
from ..ir import Graph, Node, Value, dims
from ..ops.conv import CONV
from ..tensor import MAP, expression, map_, reshape
from ..tensor.expression import Expression, number
from .rewrite import emitted, splice

TINY = 2.0**-60  # factors from here to its inverse join without infinities or zeros that the steps would not give
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
    uses, kept = graph.uses(), graph.output_storages()
    before: dict[Node, list[Node]] = {}
    gone: set[Node] = set()
    for node in list(graph.nodes):
        if node.kernel is not MAP:
            continue
        for x in node.ins["x"]:
            kernel = x.producer
            if kernel is None or "epilogue" not in kernel.kernel.traits or kernel.const or kernel.out.dtype is not DType.float32:
                continue
            if uses[x.storage] != [node] or x.storage in kept or not x.whole or not kernel.out.whole or kernel.params.get("act"):
                continue
            if sum(v.storage is x.storage for v in node.ins["x"]) != 1:
                continue
            if _fuse(graph, node, x, kernel, before, gone):
                break
    splice(graph, before, gone)


def _fuse(graph: Graph, node: Node, x: Value, kernel: Node, before: dict[Node, list[Node]], gone: set[Node]) -> bool:
    slot = next(i for i, v in enumerate(node.ins["x"]) if v is x)
    path = _path(expression.of(node), slot)
    if path is None:
        return False
    found = Epilogue(residual=kernel.ins.get("residual"))
    for above, below in path:
        if not _take(found, above, below, node, kernel):
            break
        found.steps += 1
    if found.steps == 0:
        return False
    with emitted(graph, kernel.origin) as fresh:
        _apply(found, kernel)
    before.setdefault(node, [])
    before[node] += [*fresh, kernel]
    before[node] = before.pop(kernel, []) + before[node]
    gone.add(kernel)
    if found.steps == len(path):
        out = node.out
        kernel.outs["y"] = Value(out.storage, out.dtype, kernel.out.shape, 0)
        out.storage.producer = kernel
        gone.add(node)
        kernel.origin = _joined(kernel.origin, node.origin)
    else:
        _keep(node, slot, path, found.steps)
    return True


def _joined(a: str, b: str) -> str:
    return a if a == b or not b else f"{a} + {b}"


def _keep(node: Node, slot: int, path: list[tuple[Expression, Expression]], steps: int) -> None:
    """The map goes on with what is left above the peeled part."""
    from .simplify import install

    peeled = path[steps - 1][0]
    dtype = node.ins["x"][slot].dtype
    install(node, expression.replaced(expression.of(node), peeled, ("in", dtype, slot)))


def _path(e: Expression, slot: int) -> list[tuple[Expression, Expression]] | None:
    """(operation, operand on the way down) from input ``slot`` to the top; None when it is read more than once."""
    steps: list[tuple[Expression, Expression]] = []
    while e[0] != "in":
        down = [o for o in expression.operands(e) if slot in expression.inputs(o)]
        if len(down) != 1:
            return None
        steps.append((e, down[0]))
        e = down[0]
    return steps[::-1]


def _take(found: Epilogue, e: Expression, below: Expression, node: Node, kernel: Node) -> bool:
    """Adds one operation to the epilogue, if the kernel can do it there."""
    name = e[0]
    if name in UNARY:
        return _activate(found, (name, 0.0, 0.0))
    if name == "clamp" and e[2] is below:
        low, high = number(e[3]), number(e[4])
        return low is not None and high is not None and _activate(found, ("clip", low, high))
    if name in ("prelu", "elu") and e[2] is below and (slope := number(e[3])) is not None:
        return _activate(found, ("leaky_relu" if name == "prelu" else "elu", slope, 0.0))
    if name not in ("add", "mul", "div") or (name == "div" and e[2] is not below):
        return False
    other = e[3] if e[2] is below else e[2]
    if name in ("mul", "div"):
        return _scale(found, name, other, node, kernel)
    if other[0] != "in" or found.act_last:
        return False
    value = node.ins["x"][other[2]]
    return _add(found, value, kernel)


def _activate(found: Epilogue, act: tuple[str, float, float]) -> bool:
    if found.act is not None:
        return False
    found.act, found.act_last = act, found.residual is not None
    return True


def _scale(found: Epilogue, name: str, other: Expression, node: Node, kernel: Node) -> bool:
    if found.act or found.residual is not None:
        return False
    c = number(other)
    if kernel.kernel is not CONV:
        if c is None or found.bias is not None or kernel.ins.get("bias") is not None:
            return False
        alpha = found.alpha * c if name == "mul" else found.alpha / c if c else 0.0
        if not TINY <= abs(alpha) <= 1 / TINY or not TINY <= abs(c) <= 1 / TINY:
            return False
        found.alpha = alpha
        return True
    if other[0] != "in" or name != "mul" or found.bias is not None or found.scale is not None:
        return False
    factor = _channels(node.ins["x"][other[2]], kernel)
    bias = kernel.ins.get("bias")
    if factor is None or not factor.storage.const or not kernel.ins["w"].storage.const or (bias is not None and not bias.storage.const):
        return False
    found.scale = factor
    return True


def _add(found: Epilogue, value: Value, kernel: Node) -> bool:
    y = kernel.out
    if value.dtype is not y.dtype:
        return False
    channels = _channels(value, kernel) if kernel.kernel is CONV else _columns(value, kernel)
    if channels is not None and found.act is None and found.residual is None:
        if found.bias is None and kernel.ins.get("bias") is None:
            found.bias = channels
            return True
        first: Value = found.bias or kernel.ins["bias"]
        if channels.storage.const and first.storage.const and kernel.kernel is CONV:
            found.terms.append(channels)
            return True
    if found.residual is None and value.whole and dims.same(value.size, y.size) and value.storage.producer is not kernel:
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


def _apply(found: Epilogue, kernel: Node) -> None:
    bias = found.bias or kernel.ins.get("bias")
    if found.scale is not None:
        w = kernel.ins["w"]
        kernel.ins["w"] = map_("mul", w, reshape(found.scale, [found.scale.shape[0], *[1] * (w.rank - 1)]))
        if kernel.ins.get("bias") is not None:
            bias = map_("mul", kernel.ins["bias"], found.scale)
    for term in found.terms:
        bias = map_("add", bias, term) if bias is not None else term
    if found.alpha != 1.0:
        kernel.params["alpha"] = kernel.params.get("alpha", 1.0) * found.alpha
    if bias is not None:
        kernel.ins["bias"] = bias
    if found.act is not None:
        kernel.params["act"], kernel.params["act_last"] = found.act, found.act_last
    if found.residual is not None:
        kernel.ins["residual"] = found.residual
