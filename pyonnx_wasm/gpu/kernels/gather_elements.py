"""Elements picked along one axis, of any type; zeros for an index out of range."""

from __future__ import annotations

from ...ir import row_major
from .. import Call, Case
from ..elements import address, coordinates, elements


def cases(call: Call) -> list[Case]:
    x, indices, axis = call.values["x"], call.values["indices"], call.axis
    if not isinstance(axis, int):
        return []
    numbers = {
        "shape": indices.shape, "n_axis": x.shape[axis], "x_stride": row_major(x.shape), "x_off": x.offset, "indices_off": indices.offset
    }  # fmt: skip
    body = [
        "  let at = index_at(i + u32($indices_off), $n_axis);",
        "  if (at < 0) { return y_t(); }",
        *coordinates(x.rank),
        f"  return x_get({address('x_stride', row_major(x.shape), instead={axis: 'at'})} + u32($x_off));",
    ]
    return elements(call, numbers, holes={"body": "\n".join(body)}, raw=("x", "y"))
