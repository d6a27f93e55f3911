"""Rotary positions: every lane turns the pair that its number is of."""

from __future__ import annotations

from .. import F32, Call, Case
from ..elements import address, coordinates, elements

READS_HALVES = True


def cases(call: Call) -> list[Case]:
    if not call.computes(F32):
        return []
    y, x = call.values["y"], call.values["x"]
    numbers = {"shape": y.shape, "pairs": call.pairs, "x_stride": x.strides, "x_off": x.offset}
    holes = {"row": "\n".join(coordinates(4)), "x": address("x_stride", x.strides[:3]) + " + u32($x_off)"}
    for name in ("cos", "sin"):
        angle = call.values[name]
        numbers |= {f"{name}_stride": angle.strides, f"{name}_off": angle.offset}
        holes[name] = address(f"{name}_stride", angle.strides, instead={3: "t"}) + f" + u32(${name}_off)"
    return elements(call, numbers, defines=frozenset({"interleaved"} if call.interleaved else ()), holes=holes)
