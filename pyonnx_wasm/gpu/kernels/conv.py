"""Convolutions: products over tiles, depthwise ones four neighbours per lane, small groups one output per lane."""

from __future__ import annotations

from typing import Any

from ...ir import dims
from ...ir.dims import DimLike
from .. import F32, WORKGROUP, Call, Case, nested
from ..elements import elements
from ..epilogue import epilogue
from ..tiles import tilings

WRITTEN_OUT = 128  # inputs that a lane of a depthwise convolution reads at most
FEW = 8  # output channels of a group below which a tile would stand empty
READS_HALVES = True


def cases(call: Call) -> list[Case]:
    if not call.computes(F32) or not isinstance(call.act, int):
        return []
    defines, activation = epilogue(call)
    numbers = _numbers(call) | activation
    mg, cg = numbers["mg"], numbers["cg"]
    few = dims.lt(mg, FEW)
    return [
        *_depthwise(call, numbers, defines, dims.eq(cg, 1)),
        *elements(call, numbers, guard=few, defines=frozenset(defines), rounds=nested(numbers["cg"], *call.params["kernel"])),
        *_tiled(call, numbers, defines),
    ]


def _numbers(call: Call) -> dict[str, Any]:
    taps, pixels = dims.product(call.params["kernel"]), dims.product(call.out)
    numbers: dict[str, Any] = {name: call.params[name] for name in ("c", "m", "in", "kernel", "stride", "dilation", "pad", "out")}
    numbers |= {f"{name}_off": value.offset for name, value in call.values.items()}
    cg = call.c // call.group
    return numbers | {
        "cg": cg, "mg": call.m // call.group, "taps": taps, "k": cg * taps, "image": dims.product(call.params["in"]), "pixels": pixels,
        "columns": call.n * pixels,
    }  # fmt: skip


def _depthwise(call: Call, numbers: dict[str, Any], defines: set[str], guard: DimLike) -> list[Case]:
    """Four neighbouring outputs per lane, the taps written out."""
    kernel, stride, dilation = call.params["kernel"], call.stride[2], call.dilation[2]
    sizes = [*kernel, stride, dilation]
    if not all(isinstance(n, int) for n in sizes):
        return []
    reach = 3 * stride + (kernel[2] - 1) * dilation + 1
    if reach * kernel[1] > WRITTEN_OUT:
        return []
    quads = dims.ceildiv(call.out[2], 4)
    count = dims.product([call.n, call.m, call.out[1], quads])
    fits = [guard, dims.eq(kernel[0] * call.params["in"][0], 1), dims.eq(call.out[0], 1)]
    holes = {"height": kernel[1], "width": kernel[2], "stride": stride, "dilation": dilation, "reach": reach}
    return [
        Case(
            (dims.ceildiv(count, WORKGROUP),),
            dims.product(fits),
            frozenset(defines | {"rows"}),
            {name: str(value) for name, value in holes.items()},
            numbers | {"count": count, "quads": quads},
        )
    ]


def _tiled(call: Call, numbers: dict[str, Any], defines: set[str]) -> list[Case]:
    plain = [*call.params["kernel"], *call.stride] == [1] * 6 and all(isinstance(p, int) and p == 0 for p in call.pad)
    pointwise = plain and all(dims.same(a, b) for a, b in zip(call.params["in"], call.out, strict=True))
    found = []
    aligned = dims.eq(dims.product([numbers["pixels"] % 4 + 1, *(v.offset % 4 + 1 for n, v in call.values.items() if n in ("x", "y"))]), 1)
    rows_of_four = all(dims.known(n % 4) == 0 for n in (numbers["k"], call.values["w"].offset, call.starts["w"]))
    weights = {"w"} if rows_of_four else set()
    kernel = call.params["kernel"]
    for tile, grid, guard, busy in tilings(numbers["mg"], numbers["columns"], call.group):
        step = tile.bk * tile.slices
        steps = [step // numbers["taps"]] + [step // dims.product(kernel[d + 1 :]) % kernel[d] for d in range(3)]
        for vec4 in (True, False):
            switches = {"tiled"} | ({"pointwise"} if pointwise else set()) | ({"sliced"} if tile.slices > 1 else set())
            switches |= ({"vec4"} if vec4 else set()) | ({"w4"} if weights else set())
            vectors = weights | (({"y", "x"} if pointwise else {"y"}) if vec4 else set())
            found.append(
                Case(
                    grid,
                    dims.product([guard, aligned]) if vec4 else guard,
                    frozenset(defines | switches),
                    tile.holes,
                    numbers | {"k_step": steps},
                    vec4=frozenset(vectors),
                    busy=busy,
                    again={"w": grid[0], "x": grid[1]},
                )
            )
    return found
