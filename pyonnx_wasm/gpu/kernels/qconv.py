"""Convolution of bytes: products over tiles; in groups of few channels every lane gathers the inputs of its outputs."""

from __future__ import annotations

from typing import Any

from ...ir import dims
from .. import Call, Case, nested
from ..byte_tiles import DOT, byte_tilings
from ..elements import elements
from ..epilogue import epilogue

FEW = 8  # output channels of a group below which a tile would stand empty


def cases(call: Call) -> list[Case]:
    numbers: dict[str, Any] = {name: call.params[name] for name in ("c", "m", "in", "kernel", "stride", "dilation", "pad", "out")}
    numbers |= {f"{name}_off": value.offset for name, value in call.values.items()}
    cg, taps, pixels = call.c // call.group, dims.product(call.params["kernel"]), dims.product(call.out)
    numbers |= {
        "cg": cg, "mg": call.m // call.group, "taps": taps, "image": dims.product(call.params["in"]), "pixels": pixels, "k": cg * taps,
        "columns": call.n * pixels, "wzero_ms": call.wzero_ms, "scale_ms": call.scale_ms,
    }  # fmt: skip
    defines: set[str] = set()
    if "scale" in call.values:
        switches, activation = epilogue(call)
        numbers |= activation
        defines = set(switches)
    few = elements(call, numbers, guard=dims.lt(numbers["mg"], FEW), defines=frozenset(defines), rounds=nested(*call.params["kernel"], cg))
    return [*few, *_tiled(call, numbers, defines)] if few else []


def _tiled(call: Call, numbers: dict[str, Any], defines: set[str]) -> list[Case]:
    y = call.values["y"]
    plain = [*call.params["kernel"], *call.stride] == [1] * 6 and all(isinstance(p, int) and p == 0 for p in call.pad)
    if plain and all(dims.same(a, b) for a, b in zip(call.params["in"], call.out, strict=True)):
        defines = defines | {"pointwise"}
    if all(dims.known(n % 4) == 0 for n in (numbers["k"], call.values["w"].offset, call.starts["w"])):
        defines = defines | {"w4"}
    whole = y.dtype.bits == 8 and y.whole
    found = []
    for grid, guard, holes, sliced in byte_tilings(numbers["mg"], numbers["columns"], numbers["k"], call.group):
        for words in (True, False) if whole else (False,):
            fits = dims.product([guard, dims.eq(numbers["pixels"] % 4, 0)]) if words else guard
            switches = frozenset(defines | sliced | {"tiled", "across"} | ({"words"} if words else set()))
            found.append(Case(grid, fits, switches, holes, numbers, words=frozenset({"y"} if words else ()), needs=(DOT,)))
    return found
