"""Padding of any element type."""

from __future__ import annotations

from typing import Any

from ...ops.shape import PAD_MODES
from .. import Call, Case
from ..elements import address, bits_of, coordinates, elements


def cases(call: Call) -> list[Case]:
    x, y = call.values["x"], call.values["y"]
    numbers: dict[str, Any] = {
        "before": tuple(call.before[: x.rank]), "x_shape": x.shape, "y_shape": y.shape, "x_stride": x.strides, "x_off": x.offset
    }  # fmt: skip
    wide = y.dtype.bits == 64
    if "value" in call.values:
        numbers["value_off"] = call.values["value"].offset
        fill = "value_get(u32($value_off))"
    else:
        bits = bits_of(y.dtype, call.value)
        if bits is None:
            return []
        numbers["fill"] = (bits & 0xFFFFFFFF, bits >> 32)
        fill = "vec2<u32>(u32($fill[0]), u32($fill[1]))" if wide else "u32($fill[0])"
    lines = coordinates(x.rank, "y_shape")
    for d in range(x.rank):
        lines.append(f"  let p{d} = place(c{d}, $before[{d}], $x_shape[{d}], $y_shape[{d}]);")
    if x.rank:
        lines.append(f"  if ({' || '.join(f'p{d} < 0' for d in range(x.rank))}) {{ return {fill}; }}")
    lines.append(f"  return x_get({address('x_stride', x.strides, 'p')} + u32($x_off));")
    raw = ("x", "y", "value") if "value" in call.values else ("x", "y")
    return elements(call, numbers, defines=frozenset({PAD_MODES[call.mode]}), holes={"body": "\n".join(lines)}, raw=raw)
