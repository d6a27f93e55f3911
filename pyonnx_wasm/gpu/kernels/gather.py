"""Rows picked by indices along one axis, of any element type; zeros for an index out of range."""

from __future__ import annotations

from ... import dims
from .. import Call, Case
from ..elements import elements


def cases(call: Call) -> list[Case]:
    x, indices = call.values["x"], call.values["indices"]
    numbers = {
        "inner": call.inner, "count": call.count, "n_rows": call.n, "x_off": x.offset, "indices_off": indices.offset
    }  # fmt: skip
    if "first" in call.node.params:
        numbers |= {"first": call.node.params["first"], "total": call.node.params["total"], "y_off": call.values["y"].offset}
        whole = dims.product([call.outer, call.count, call.inner])
        return elements(call, numbers, n=whole, raw=("x", "y"), defines=frozenset({"part"}))
    return elements(call, numbers, n=dims.product([call.outer, call.count, call.inner]), raw=("x", "y"))
