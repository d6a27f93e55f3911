"""Quantisation over the range of the data: one workgroup finds the range, a map codes."""

from __future__ import annotations

from ...dtypes import DType
from ...ir import Node, Value
from ...tensor import MAP
from .. import F32, Call, Case
from ..teams import LANES

CODES = (
    ("div", F32, 3, 0, 1, 0), ("round", F32, 4, 3, 0, 0), ("cast", DType.uint8, 5, 2, int(F32), 0), ("add", F32, 6, 4, 5, 0),
    ("const", F32, 7, 0.0, 0, 0), ("const", F32, 8, 255.0, 0, 0), ("clamp", F32, 9, 6, 7, 8), ("cast", F32, 10, 9, int(DType.uint8), 0),
)  # fmt: skip


def steps(node: Node) -> list[Node]:
    """The range, and then the codes, which all lanes of a GPU give."""
    x, y, scale, zero = node.ins["x"], node.outs["y"], node.outs["scale"], node.outs["zero"]
    extent = Node(node.kernel, dict(node.ins), dict(node.params), node.origin)
    extent.outs = {"scale": scale, "zero": zero}
    spread = [Value(v.storage, v.dtype, y.shape, v.offset, [0] * y.rank) for v in (scale, zero)]
    codes = Node(MAP, {"x": [Value(x.storage, x.dtype, y.shape, x.offset), *spread]}, {"code": CODES}, node.origin)
    codes.outs = {"y": y}
    return [extent, codes]


def cases(call: Call) -> list[Case]:
    if "y" in call.outputs:
        return []
    return [Case((1,), 1, holes={"team": str(LANES)})]
