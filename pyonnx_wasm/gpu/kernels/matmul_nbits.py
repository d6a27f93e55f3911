"""Products with weights of a few bits or of halves: they are read as they are, by tiles or, for few rows, in one sweep."""

from __future__ import annotations

from typing import Any

from ...ir import dims
from .. import Call, Case
from ..epilogue import epilogue
from ..tiles import tiles

FEW = 8


def cases(call: Call) -> list[Case]:
    names = ("aoff", "a_rs", "yoff", "y_rs", "bias_ms", "bias_ns", "res_off", "res_rs", "block")
    blocks = dims.ceildiv(call.k, call.block)
    numbers: dict[str, Any] = {name: call.params[name] for name in names}
    numbers |= {"rows": call.m, "columns": call.n, "depth": call.k, "blocks": blocks, "words": blocks * call.block * call.bits // 32}
    switches, activation = epilogue(call)
    numbers |= activation | {"alpha": float(call.alpha)}
    holes = {"bits": str(call.bits)}
    found = []
    for lines, fits in ((1, dims.eq(call.m, 1)), (4, dims.le(call.m, FEW))):
        grid = (dims.ceildiv(call.n, 8), dims.ceildiv(call.m, lines), 1)
        found.append(Case(grid, fits, frozenset(switches), holes | {"lines": str(lines)}, numbers))
    for tile, busy in tiles():
        grid = (dims.ceildiv(call.n, tile.bn), dims.ceildiv(call.m, tile.bm), 1)
        defines = switches | {"tiled", "b_columns"} | ({"sliced"} if tile.slices > 1 else set())
        found.append(Case(grid, 1, frozenset(defines), holes | tile.holes, numbers, busy=busy))
    return found
