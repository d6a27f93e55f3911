"""Updates of elements along one axis, of any type; those out of range are passed over."""

from __future__ import annotations

from ...ir import dims, row_major
from .. import Call, Case, nested
from ..elements import address, coordinates, scattered


def cases(call: Call) -> list[Case]:
    x, indices, axis = call.values["x"], call.values["indices"], call.axis
    rows = row_major(indices.shape)
    numbers = {
        "shape": x.shape, "updates_shape": indices.shape, "updates_stride": rows, "axis_n": x.shape[axis],
        "updates_n": indices.shape[axis], "step": rows[axis],
    }  # fmt: skip
    lines = [*coordinates(x.rank), f"  let own = c{axis};"]
    for d in range(x.rank):
        if d != axis and not dims.same(indices.shape[d], x.shape[d]):
            lines.append(f"  if (c{d} >= $updates_shape[{d}]) {{ return v; }}")
    lines.append(f"  let first = i32({address('updates_stride', rows, instead={axis: '0'})});")
    return scattered(call, numbers, nested(indices.shape[axis]), "\n".join(lines))
