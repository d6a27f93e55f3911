"""Convolutions: products over tiles, depthwise ones from patches in workgroup memory, small groups one output per lane."""

from __future__ import annotations

from typing import Any

from ... import dims
from ...dims import DimLike
from ...ops.matmul import ACTIVATIONS, AFTER_RESIDUAL
from .. import F32, Call, Case
from ..elements import elements

BUSY = 128  # workgroups that keep a GPU busy; fewer large tiles are split
PATCH = 3840  # floats of a depthwise patch
FEW = 8  # output channels of a group below which a tile would stand empty


def cases(call: Call) -> list[Case]:
    if not call.all(F32) or not isinstance(call.act, int):
        return []
    defines = {f"act_{ACTIVATIONS[call.act % AFTER_RESIDUAL]}"} | ({"after"} if call.act > AFTER_RESIDUAL else set())
    numbers = _numbers(call)
    mg, cg = numbers["mg"], numbers["cg"]
    few = dims.lt(mg, FEW)
    return [
        *_depthwise(call, numbers, defines, dims.eq(cg, 1)),
        *elements(call, numbers, guard=few, defines=frozenset(defines)),
        *_tiled(call, numbers, defines),
    ]


def _numbers(call: Call) -> dict[str, Any]:
    taps, pixels = dims.product(call.params["kernel"]), dims.product(call.out)
    numbers: dict[str, Any] = {name: call.params[name] for name in ("c", "m", "in", "kernel", "stride", "dilation", "pad", "out")}
    numbers |= {f"{name}_off": value.offset for name, value in call.values.items()}
    cg = call.c // call.group
    return numbers | {
        "cg": cg, "mg": call.m // call.group, "taps": taps, "k": cg * taps, "image": dims.product(call.params["in"]), "pixels": pixels,
        "columns": call.n * pixels, "act_a": float(call.act_a), "act_b": float(call.act_b),
    }  # fmt: skip


def _depthwise(call: Call, numbers: dict[str, Any], defines: set[str], guard: DimLike) -> list[Case]:
    patch = [
        (lanes - 1) * call.stride[d] + (call.params["kernel"][d] - 1) * call.dilation[d] + 1 for d, lanes in ((1, 8), (2, 32))
    ]  # fmt: skip
    fits = [
        guard, dims.le(dims.product(patch), PATCH), dims.eq(call.params["kernel"][0] * call.params["in"][0], 1),
        dims.eq(call.out[0], 1), dims.ge(call.out[2], 16),
    ]  # fmt: skip
    return [
        Case(
            (dims.ceildiv(call.out[2], 32), dims.ceildiv(call.out[1], 8), call.n * call.m),
            dims.product(fits),
            frozenset(defines | {"patches"}),
            uniforms=numbers | {"patch": patch},
        )
    ]


def _tiled(call: Call, numbers: dict[str, Any], defines: set[str]) -> list[Case]:
    plain = [*call.params["kernel"], *call.stride] == [1] * 6 and all(isinstance(p, int) and p == 0 for p in call.pad)
    pointwise = plain and all(dims.same(a, b) for a, b in zip(call.params["in"], call.out, strict=True))
    found = []
    aligned = dims.eq(dims.product([numbers["pixels"] % 4 + 1, *(v.offset % 4 + 1 for n, v in call.values.items() if n in ("x", "y"))]), 1)
    for bm, bn, bk, slices in ((64, 64, 16, 1), (32, 32, 8, 4)):
        grid = (dims.ceildiv(numbers["columns"], bn), dims.ceildiv(numbers["mg"], bm), call.group)
        kernel, step = call.params["kernel"], bk * slices
        steps = [step // numbers["taps"]] + [step // dims.product(kernel[d + 1 :]) % kernel[d] for d in range(3)]
        busy = dims.ge(dims.product(grid), BUSY) if slices == 1 else 1
        holes = {"bm": bm, "bn": bn, "bk": bk, "slices": slices, "vectors": slices * bk * (bm + bn) // 4, "lanes": bm * bn // 16 * slices}
        for vec4 in (True, False):
            switches = {"tiled"} | ({"pointwise"} if pointwise else set()) | ({"sliced"} if slices > 1 else set())
            found.append(
                Case(
                    grid,
                    dims.product([busy, aligned]) if vec4 else busy,
                    frozenset(defines | switches | ({"vec4"} if vec4 else set())),
                    {name: str(value) for name, value in holes.items()},
                    numbers | {"k_step": steps},
                    vec4=frozenset({"y", "x"} if pointwise else {"y"}) if vec4 else frozenset(),
                )
            )
    return found
