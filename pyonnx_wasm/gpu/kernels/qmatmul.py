"""Products of 8-bit integers: one output per lane."""

from __future__ import annotations

from typing import Any

from ...dtypes import DType
from ...ir import dims
from .. import Call, Case
from ..elements import elements
from ..epilogue import epilogue


def cases(call: Call) -> list[Case]:
    y = call.values["y"]
    if y.dtype not in (DType.int32, DType.float32):
        return []
    names = ("aoff", "a_rs", "a_cs", "boff", "b_rs", "b_cs", "batch", "abatch", "bbatch", "resbatch", "res_off", "res_rs")
    numbers: dict[str, Any] = {name: call.params[name] for name in names} | {"rows": call.m, "columns": call.n, "depth": call.k}
    for name, steps in (("azero", ("ms",)), ("bzero", ("ns",)), ("scale", ("ms", "ns")), ("bias", ("ms", "ns"))):
        if name in call.values:
            numbers |= {f"{name}_off": call.values[name].offset} | {f"{name}_{step}": call.params[f"{name}_{step}"] for step in steps}
    defines = {"batched"} if call.nb else set()
    if "scale" in call.values:
        switches, activation = epilogue(call)
        numbers |= activation | {"alpha": float(call.alpha)}
        defines |= switches
    count = dims.product([*call.batch[: call.nb], call.m, call.n])
    return elements(call, numbers, n=count, defines=frozenset(defines), holes={"nb": str(call.nb)})
