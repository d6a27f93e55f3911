"""The k best elements in order: a workgroup per line."""

from __future__ import annotations

from ...dtypes import DType
from .. import Call, Case
from .argreduce import beats
from .map import FLOATS, WIDE


def cases(call: Call) -> list[Case]:
    dtype = call.values["x"].dtype
    if dtype is DType.float64 or not isinstance(call.largest, int):
        return []
    defines = frozenset({"float"} if dtype in FLOATS else {"wide"} if dtype in WIDE else ())
    holes = {"before": beats(dtype, "v", "m", largest=bool(call.largest)), "nan": "nan" if call.largest else "!nan"}
    return [Case((call.outer * call.inner,), 1, defines, holes)]
