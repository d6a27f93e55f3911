"""Products and norms read halves as they are: the casts that the core needs before them go."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..dtypes import DType
from ..ir import Node, Storage, Value, dims
from ..tensor import HALVES, MAP
from . import part_of


def read_halves(nodes: Sequence[Node], uses: Mapping[Storage, Sequence[Node]], outputs: Collection[Storage]) -> list[Node]:
    """The nodes, with those of kernels that convert reading in place of a cast what it casts, and without casts that nothing reads then."""
    out = [_direct(node, uses) if _converts(node) else node for node in nodes]
    read = {v.storage for node in out for v in node.inputs()} | set(outputs)
    return [n for n, before in zip(out, nodes, strict=True) if n is not before or not _is_cast(n) or n.out.storage in read]


def reads_halves(node: Node) -> bool:
    """Whether no core could run this call."""
    return _converts(node) and any(v.dtype in HALVES for v in node.inputs())


def _converts(node: Node) -> bool:
    return bool(part_of(node.kernel.name, "READS_HALVES"))


def _direct(node: Node, uses: Mapping[Storage, Sequence[Node]]) -> Node:
    strided = "strided" in node.kernel.traits
    ins = {name: _half(value, uses, strided) or value if isinstance(value, Value) else value for name, value in node.ins.items()}
    if all(ins[name] is value for name, value in node.ins.items()):
        return node
    direct = Node(node.kernel, ins, node.params, node.origin)
    direct.outs = node.outs
    return direct


def _is_cast(node: Node) -> bool:
    """From halves to float32, element by element."""
    if node.kernel is not MAP or len(node.ins["x"]) != 1 or len(node.params["code"]) != 1:
        return False
    name, dtype, *_ = node.params["code"][0]
    (x,) = node.ins["x"]
    return name == "cast" and dtype in HALVES and x.dtype is dtype and node.out.dtype is DType.float32 and node.out.whole


def _half(value: Value, uses: Mapping[Storage, Sequence[Node]], strided: bool) -> Value | None:
    """The view of halves that a view of a cast stands for; without gaps unless the reader takes any."""
    cast = value.producer
    if cast is None or value.dtype is not DType.float32 or not _is_cast(cast):
        return None
    x: Value = cast.ins["x"][0]
    if x.storage.const and list(uses[x.storage]) != [cast]:
        return None  # another computation of constants may end in its place
    if x.contiguous and dims.same(x.size, cast.out.size):
        return Value(x.storage, x.dtype, value.shape, x.offset + value.offset, value.strides)
    if value.whole and value.shape == x.shape and strided:
        return x
    return None
