"""What moves or compares numbers does so to the bytes that were dequantised, or that are made of it: a maximum is dequantised behind its
windows, what is repeated by a change of size behind that, and parts of a concatenation are quantised before it."""

from __future__ import annotations

from collections.abc import Callable

from ..dtypes import DType
from ..ir import Graph, Node, Storage, Value
from ..ops.pool import POOL
from ..ops.quantized import BYTES
from ..ops.resize import COORDINATES, MODES, RESIZE
from ..tensor import CONCAT, MAP, expression
from ..tensor.expression import Expression, Pool
from .rewrite import Rewriter, derived, joined, moderate

LIMITS = {DType.uint8: (0, 255), DType.int8: (-128, 127)}


def move_bytes(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            if node.kernel is POOL:
                if node.params["op"] == "max" and "indices" not in node.outs and _inside(node):
                    _of_bytes(rewriter, node, _rising)
            elif node.kernel is RESIZE:
                if node.params["mode"] == MODES.index("nearest") and node.params["coord"] != COORDINATES.index("tf_crop_and_resize"):
                    _of_bytes(rewriter, node, _of_each)
            elif node.kernel is CONCAT:
                _concat(rewriter, node)


def _of_bytes(rewriter: Rewriter, node: Node, may_follow: Callable[[Expression], bool]) -> None:
    """Has a node that reads dequantised bytes read these; what it gives is dequantised, or already what it would be quantised to."""
    x, dequantise = node.ins["x"], node.ins["x"].producer
    if dequantise is None or dequantise.kernel is not MAP or not x.whole or len(dequantise.ins["x"]) != 1:
        return
    first = dequantise.ins["x"][0]
    alike = first.dtype in BYTES and first.whole and first.shape == x.shape == dequantise.out.shape
    if not alike or x.dtype in BYTES or not may_follow(expression.of(dequantise)):
        return
    moved = Node(node.kernel, {**node.ins, "x": first}, node.params, node.origin)
    y, quantise = node.out, rewriter.only_reader(node.out)
    if quantise is not None and _restores(dequantise, quantise):
        moved.outs["y"] = quantise.out
        rewriter.replace([node, quantise], [moved])
        return
    moved.outs["y"] = Value(Storage(first.dtype, y.size, "temp", producer=moved), first.dtype, y.shape)
    after = Node(MAP, {"x": [moved.outs["y"]]}, dequantise.params, dequantise.origin)
    after.outs = dict(node.outs)
    rewriter.replace([node], [moved, after])


def _of_each(e: Expression) -> bool:
    """What is made of each byte does not depend on where that lies."""
    return all(n.name != "index" for n in expression.nodes(e))


def _rising(e: Expression) -> bool:
    """A byte less a number, times a positive one: it never falls where the byte rises."""
    if e.name == "in":
        return True
    if e.name == "cast":
        return e.result.bits >= 32 and _rising(e.args[0])
    if e.name == "sub":
        number = e.args[1].number
        return number is not None and abs(number) < 1 << 16 and e.dtype.bits >= 32 and _rising(e.args[0])
    if e.name != "mul" or e.dtype is not DType.float32:
        return False
    numbers = [a.number for a in e.args]
    return any(n is not None and 0 < n < float("inf") and _rising(x) for n, x in zip(numbers, reversed(e.args), strict=True))


def _restores(dequantise: Node, quantise: Node) -> bool:
    """Bytes become what they were: multiplied by a scale and divided by it, a number is next to the integer that it was."""
    if quantise.kernel is not MAP or len(quantise.ins["x"]) != 1 or not (quantise.ins["x"][0].whole and quantise.out.whole):
        return False
    pool: Pool = {}
    dtype = quantise.out.dtype
    real = expression.of(dequantise, pool)
    if quantise.ins["x"][0].shape != quantise.out.shape or dtype is not dequantise.ins["x"][0].dtype:
        return False
    names = [e.name for e in expression.nodes(real)]
    if names not in (["in", "cast", "cast", "const", "mul"], ["in", "cast", "const", "sub", "cast", "const", "mul"]):
        return False
    less, scale = real.args[0].args[0], real.args[1]
    if scale.number is None or not moderate(scale.number) or not less.dtype.is_int:
        return False

    def number(value: float) -> Expression:
        return real.make("const", real.dtype, extra=[float(value)])

    code = real.make("round", real.dtype, real.make("div", real.dtype, real, scale))
    code = real.make("add", real.dtype, code, number(less.args[1].number or 0 if less.name == "sub" else 0))
    code = real.make("clamp", real.dtype, code, *[number(limit) for limit in LIMITS[dtype]])
    return expression.of(quantise, pool, [real]) is real.make("cast", real.dtype, code, extra=[dtype])


def _inside(node: Node) -> bool:
    """No window lies in the padding as a whole, where a maximum is that of nothing."""
    p = node.params
    pads = zip((*p["begins"], *p["ends"]), (*p["kernel"], *p["kernel"]), strict=True)
    return all(d == 1 for d in p["dilations"]) and all(isinstance(n, int) and n < k for n, k in pads)


def _concat(rewriter: Rewriter, node: Node) -> None:
    y, quantise = node.out, rewriter.only_reader(node.out)
    if quantise is None or quantise.kernel is not MAP or quantise.const or quantise.out.dtype not in BYTES or y.dtype in BYTES:
        return
    xs = quantise.ins["x"]
    if node.params.get("starts") is not None or len(xs) != 1 or not (xs[0].whole and y.whole and quantise.out.whole):
        return
    if not xs[0].shape == y.shape == quantise.out.shape or any(e.name == "index" for e in expression.nodes(expression.of(quantise))):
        return
    made: dict[tuple[object, ...], Node] = {}
    parts = []
    for x in node.ins["x"]:
        key = (x.storage, x.offset, tuple(x.shape), tuple(x.strides))
        if key not in made:
            made[key] = Node(MAP, {"x": [x]}, quantise.params, quantise.origin)
            made[key].outs["y"] = Value(Storage(quantise.out.dtype, x.size, "temp", producer=made[key]), quantise.out.dtype, x.shape)
        parts.append(made[key].out)
    whole = derived(node, {"x": parts}, origin=joined([node.origin, quantise.origin]))
    whole.outs = dict(quantise.outs)
    rewriter.replace([node, quantise], [*made.values(), whole])
