"""Small constants out of the uniforms."""

from __future__ import annotations

from ...ir.dims import Dim, DimLike
from .. import Call, Case
from ..elements import bits_of, elements

WORD = 1 << 32
LIMIT = 1000  # numbers that fit a uniform binding with room to spare


def cases(call: Call) -> list[Case]:
    y = call.values["y"]
    wide = y.dtype.bits == 64
    if not 0 < len(call.tail) <= LIMIT // (2 if wide else 1):
        return []
    low: list[DimLike] = []
    high: list[DimLike] = []
    for item in call.tail:
        if isinstance(item, Dim):
            if not y.dtype.is_int:
                return []
            low.append(item % WORD if wide else item)
            high.append(item // WORD)
            continue
        bits = bits_of(y.dtype, float(item) if y.dtype.is_float else int(item))
        if bits is None:
            return []
        low.append(bits & 0xFFFFFFFF)
        high.append(bits >> 32)
    numbers = {"low": low} | ({"high": high} if wide else {})
    return elements(call, numbers, n=len(low), defines=frozenset({"wide"} if wide else ()), raw=("y",))
