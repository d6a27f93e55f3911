"""Strided copies of any element type: transposes through tiles, the rest element by element."""

from __future__ import annotations

from typing import Any

from ...ir import Value, dims, row_major
from ...tensor import coalesced
from .. import Call, Case
from ..elements import address, coordinates, elements, linear

TILE = 32


def cases(call: Call) -> list[Case]:
    y, (x,) = coalesced(call.values["y"], [call.values["x"]])
    if not linear(y, y):
        return []
    numbers: dict[str, Any] = {"x_off": x.offset}
    if linear(x, y):
        body = ["  return x_get(i + u32($x_off));"]
    else:
        body = [*coordinates(y.rank), f"  return x_get({address('x_stride', x.strides)} + u32($x_off));"]
        numbers |= {"shape": y.shape, "x_stride": x.strides}
    plain = elements(call, numbers, y=y, holes={"body": "\n".join(body), "batch": ""}, raw=("x", "y"))
    return [*_transposes(y, x), *plain]


def _transposes(y: Value, x: Value) -> list[Case]:
    """The last axis of ``y`` and the one along which ``x`` is dense, where they differ and are long enough."""
    last = y.rank - 1
    dense = [d for d in range(last) if isinstance(x.strides[d], int) and x.strides[d] == 1 and y.shape[d] != 1]
    if y.dtype.bits < 32 or not dense or x.strides[last] in (0, 1):
        return []
    axis = dense[-1]
    rows = row_major(y.shape)
    batch = [d for d in range(last) if d != axis]
    m, k = y.shape[axis], y.shape[last]
    numbers: dict[str, Any] = {
        "m": m, "k": k, "x_row": x.strides[last], "y_row": rows[axis], "x_off": x.offset, "y_off": y.offset
    }  # fmt: skip
    lines = coordinates(len(batch))
    to, start = "0u", "0u"
    if batch:
        numbers |= {
            "shape": tuple(y.shape[d] for d in batch),
            "x_stride": tuple(x.strides[d] for d in batch),
            "y_stride": tuple(rows[d] for d in batch),
        }
        start, to = address("x_stride", [x.strides[d] for d in batch]), address("y_stride", [rows[d] for d in batch])
    lines += [f"  let from_base = {start} + u32($x_off);", f"  let to_base = {to} + u32($y_off);"]
    grid = (dims.ceildiv(k, TILE), dims.ceildiv(m, TILE), dims.product(y.shape[d] for d in batch))
    guard = dims.ge(dims.dmin(m, k), TILE // 2)
    return [Case(grid, guard, frozenset({"tile"}), {"batch": "\n".join(lines), "body": ""}, numbers, frozenset({"x", "y"}))]
