"""Slices picked by index tuples, of any element type; zeros for a tuple out of range."""

from __future__ import annotations

from ...ir import dims
from .. import Call, Case
from ..elements import elements


def cases(call: Call) -> list[Case]:
    sizes = call.xdims[: call.depth]
    numbers = {
        "depth": call.depth, "dims": call.xdims, "inner": call.inner, "count": call.count, "span": dims.product(sizes),
        "x_off": call.values["x"].offset, "indices_off": call.values["indices"].offset,
    }  # fmt: skip
    return elements(call, numbers, n=dims.product([call.batch, call.count, call.inner]), raw=("x", "y"))
