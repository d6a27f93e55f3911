"""Transposed convolution: every lane gathers the inputs that reach its output."""

from __future__ import annotations

from typing import Any

from ...ir import dims
from .. import F32, Call, Case, nested
from ..elements import elements


def cases(call: Call) -> list[Case]:
    if not call.all(F32):
        return []
    numbers: dict[str, Any] = {name: call.params[name] for name in ("c", "m", "in", "kernel", "stride", "dilation", "pad", "out")}
    numbers |= {f"{name}_off": value.offset for name, value in call.values.items() if name != "y"}
    numbers |= {
        "cg": call.c // call.group, "mg": call.m // call.group, "taps": dims.product(call.params["kernel"]),
        "image": dims.product(call.params["in"]), "pixels": dims.product(call.out),
    }  # fmt: skip
    return elements(call, numbers, rounds=nested(*call.params["kernel"], numbers["cg"]))
