"""Convolution of bytes: every lane gathers the inputs of its output."""

from __future__ import annotations

from typing import Any

from ...dtypes import DType
from ...ir import dims
from .. import Call, Case
from ..elements import elements
from ..epilogue import epilogue


def cases(call: Call) -> list[Case]:
    if call.values["y"].dtype not in (DType.int32, DType.float32):
        return []
    numbers: dict[str, Any] = {name: call.params[name] for name in ("c", "m", "in", "kernel", "stride", "dilation", "pad", "out")}
    numbers |= {f"{name}_off": value.offset for name, value in call.values.items() if name != "y"}
    numbers |= {
        "cg": call.c // call.group, "mg": call.m // call.group, "taps": dims.product(call.params["kernel"]),
        "image": dims.product(call.params["in"]), "pixels": dims.product(call.out), "wzero_ms": call.wzero_ms, "scale_ms": call.scale_ms,
    }  # fmt: skip
    defines: frozenset[str] = frozenset()
    if "scale" in call.values:
        switches, activation = epilogue(call)
        numbers |= activation
        defines = frozenset(switches)
    return elements(call, numbers, defines=defines)
