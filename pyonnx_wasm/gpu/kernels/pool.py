"""Pooling, one window per lane."""

from __future__ import annotations

from ...dtypes import DType
from ...ir import dims
from ...ops.pool import POOLS
from .. import F32, Call, Case, nested
from ..elements import elements

LOWEST = {F32: "from_bits(0xff800000u)", DType.int8: "-128", DType.uint8: "0u"}


def cases(call: Call) -> list[Case]:
    dtype = call.values["x"].dtype
    kind = POOLS[call.op]
    if dtype not in LOWEST or (kind != "max" and dtype is not F32) or call.dtype("indices") not in (None, DType.int64):
        return []
    defines = {kind} if kind != "lp" else {"square" if call.p == 2 else "power"}
    if dtype is F32:
        defines.add("float")
    if call.count_include_pad:
        defines.add("whole")
    if call.storage_order:
        defines.add("column_major")
    if "indices" in call.values and not call.values["indices"].whole:
        return []
    numbers = {name: call.params[name] for name in ("in", "kernel", "stride", "dilation", "pad", "pad_end", "out")}
    numbers |= {"pixels": dims.product(call.out), "image": dims.product(call.params["in"]), "p": float(call.p)}
    numbers |= {f"{name}_off": value.offset for name, value in call.values.items() if name != "y"}
    lowest = LOWEST[dtype] if kind == "max" else "0.0"
    return elements(call, numbers, defines=frozenset(defines), holes={"lowest": lowest}, rounds=nested(*call.params["kernel"]))
