"""Rows picked by indices along one axis, of any element type; zeros for an index out of range."""

from __future__ import annotations

from ...ir import Node, Value, dims
from .. import Call, Case
from ..elements import elements
from ..split import is_large, pieces


def cases(call: Call) -> list[Case]:
    x, indices, part = call.values["x"], call.values["indices"], call.node.params
    numbers = {
        "inner": call.inner, "count": call.count, "n_rows": call.n, "x_off": x.offset, "indices_off": indices.offset
    }  # fmt: skip
    defines = frozenset[str]()
    if "first" in part:
        numbers |= {"first": part["first"], "total": part["total"], "y_off": call.values["y"].offset}
        defines = frozenset({"part"})
    return elements(call, numbers, n=dims.product([call.outer, call.count, call.inner]), raw=("x", "y"), defines=defines)


def split(node: Node) -> list[Node]:
    """A lookup in a table too large to be bound, by rows: each part fills in the rows that it has. Nothing where that cannot be."""
    x, p = node.ins["x"], node.params
    n, inner = p["n"], p["inner"]
    if not is_large(x) or p["outer"] != 1 or not x.contiguous or x.offset != 0 or not all(isinstance(v, int) for v in (n, inner)):
        return []
    parts = []
    for first, last in pieces(n, inner * x.dtype.bits // 8):
        table = Value(x.storage, x.dtype, [(last - first) * inner], first * inner)
        params = {**p, "n": last - first, "first": first, "total": n}
        part = Node(node.kernel, {**node.ins, "x": table}, params, node.origin)
        part.outs = dict(node.outs)
        parts.append(part)
    return parts
