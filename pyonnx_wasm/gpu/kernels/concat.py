"""Tensors side by side along an axis, of any element type: every lane finds the input that its element comes from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ...ir import Value, dims
from ...ir.dims import DimLike
from .. import WORKGROUP, Call, Case
from ..elements import address, coordinates, elements, linear


def cases(call: Call) -> list[Case]:
    y = call.values["y"]
    xs = [call.values[f"x{k}"] for k in range(len(call.values) - 1)]
    axis = call.node.params["axis"]
    if not xs:
        return []
    if call.node.params.get("starts") is not None:
        return _apart(call, xs, call.node.params["starts"], axis)
    numbers: dict[str, Any] = {"x_off": [x.offset for x in xs]}
    if all(linear(x, x) for x in xs):
        # Rows of all inputs side by side: [outer, row], each input holds [outer, own row].
        rows = [dims.product(x.shape[axis:]) for x in xs]
        numbers |= {"row": dims.product(y.shape[axis:]), "rows": rows, "starts": list(itertools.accumulate(rows, initial=0))[:-1]}
        lines = ["  let r = i32(i % u32($row));", "  let o = i32(i / u32($row));"]
        places = [f"u32(o * $rows[{k}] + r - $starts[{k}])" for k in range(len(xs))]
        at = "r"
    else:
        starts = list(itertools.accumulate((x.shape[axis] for x in xs), initial=0))[:-1]
        numbers |= {"shape": y.shape, "starts": starts} | {f"x{k}_stride": x.strides for k, x in enumerate(xs)}
        lines = coordinates(y.rank)
        places = [
            f"{address(f'x{k}_stride', x.strides)} - u32($starts[{k}] * $x{k}_stride[{axis}])" for k, x in enumerate(xs)
        ]  # unsigned arithmetic wraps: the difference is right whichever is larger
        at = f"c{axis}"
    for k in range(len(xs) - 1, 0, -1):
        lines.append(f"  if ({at} >= $starts[{k}]) {{ return x{k}_get({places[k]} + u32($x_off[{k}])); }}")
    lines.append(f"  return x0_get({places[0]} + u32($x_off[0]));")
    return elements(call, numbers, holes={"body": "\n".join(lines)}, raw=tuple(call.values))


def _apart(call: Call, xs: Sequence[Value], starts: Sequence[DimLike], axis: int) -> list[Case]:
    """Inputs from their places on, one behind the other, in a view with gaps; what lies in front of the first stays."""
    y = call.values["y"]
    if y.dtype.bits < 32:
        return []
    rows = starts[-1] + xs[-1].shape[axis] - starts[0]
    shape = (*y.shape[:axis], rows, *y.shape[axis + 1 :])
    numbers: dict[str, Any] = {
        "n": dims.product(shape),
        "shape": shape,
        "starts": [start - starts[0] for start in starts],
        "y_stride": y.strides,
        "y_off": y.offset + starts[0] * y.strides[axis],
        "x_off": [x.offset for x in xs],
    } | {f"x{k}_stride": x.strides for k, x in enumerate(xs)}
    lines = [*coordinates(y.rank), f"  let to = {address('y_stride', y.strides)} + u32($y_off);"]
    for k in range(len(xs) - 1, -1, -1):
        place = f"{address(f'x{k}_stride', xs[k].strides)} - u32($starts[{k}] * $x{k}_stride[{axis}]) + u32($x_off[{k}])"
        lines.append(f"  if (c{axis} >= $starts[{k}]) {{ y_put(to, x{k}_get({place})); return; }}")
    grid = (dims.ceildiv(dims.product(shape), WORKGROUP),)
    return [Case(grid, 1, frozenset({"apart"}), {"body": "\n".join(lines)}, numbers, frozenset(call.values))]
