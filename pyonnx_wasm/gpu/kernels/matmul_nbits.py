"""Products with weights of a few bits or of halves: they are read as they are, by tiles or, for few rows, in one sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from ...ir import dims
from .. import Call, Case
from ..epilogue import epilogue
from ..teams import LANES as WORKGROUP
from ..teams import fours
from ..tiles import tilings

FEW = 8
WORD_BITS = 32


class Sweep(NamedTuple):
    """How few rows meet all columns: a lane has several columns only where workgroups enough are left for all of an adapter."""

    team: int  # lanes that share a column
    columns: int  # of a lane
    lines: int  # rows of a lane
    words: int  # that a lane reads at a time
    turns: int  # of them that it has at the same time


SWEEPS = (Sweep(8, 4, 1, 4, 1), Sweep(32, 2, 1, 1, 2), Sweep(64, 1, 1, 1, 2), Sweep(32, 1, 4, 1, 2))


def cases(call: Call) -> list[Case]:
    names = ("aoff", "a_rs", "yoff", "y_rs", "bias_ms", "bias_ns", "res_off", "res_rs")
    blocks = dims.ceildiv(call.k, call.block)
    numbers: dict[str, Any] = {name: call.params[name] for name in names}
    numbers |= {"rows": call.m, "columns": call.n, "depth": call.k, "blocks": blocks, "words": blocks * call.block * call.bits // 32}
    switches, activation = epilogue(call)
    numbers |= activation | {"alpha": float(call.alpha)}
    holes = {"bits": str(call.bits), "block": str(call.block)}
    found = list(_packs(call, numbers, switches, holes))
    for lines, fits in ((1, dims.eq(call.m, 1)), (4, dims.le(call.m, FEW))):
        grid = (dims.ceildiv(call.n, 8), dims.ceildiv(call.m, lines), 1)
        again = {"a": grid[0], "b": grid[1]}
        found.append(Case(grid, fits, frozenset(switches), holes | {"lines": str(lines)}, numbers, again=again))
    return [*found, *_tiled(call, numbers, switches, holes)]


def _tiled(call: Call, numbers: dict[str, Any], defines: Collection[str], holes: dict[str, str]) -> Iterator[Case]:
    vec4 = frozenset({"a"} if fours(call.k, call.a_rs, call.aoff, call.starts["a"]) else ())
    switches = {*defines, "tiled", "along", *(f"{name}4" for name in vec4), *(["coded"] if "scale" in call.values else [])}
    for tile, grid, guard, busy in tilings(call.m, call.n):
        sliced = {"sliced"} if tile.slices > 1 else set()
        again = {"a": grid[0], "b": grid[1]}
        yield Case(grid, guard, frozenset(switches | sliced), holes | tile.holes, numbers, vec4=vec4, busy=busy, again=again)


def _packs(call: Call, numbers: dict[str, Any], defines: Collection[str], holes: dict[str, str]) -> Iterator[Case]:
    """Few rows, where words lie within blocks and rows of ``a`` are vectors."""
    if call.bits > 8 or not fours(call.k, call.a_rs, call.aoff, call.starts["a"]):
        return
    for sweep in SWEEPS:
        if call.block * call.bits % (sweep.words * WORD_BITS):
            continue
        grid = (dims.ceildiv(call.n, WORKGROUP // sweep.team * sweep.columns), dims.ceildiv(call.m, sweep.lines), 1)
        vectors = sweep.words * WORD_BITS // call.bits // 4
        numbered = {"team": sweep.team, "columns": sweep.columns, "lines": sweep.lines, "turns": sweep.turns, "vectors": vectors}
        fits = dims.eq(call.m, 1) if sweep.lines == 1 else dims.le(call.m, FEW)
        whole = {"vectors"} if sweep.words > 1 else set()
        yield Case(
            grid, fits, frozenset({*defines, "packs", *whole}), holes | {name: str(v) for name, v in numbered.items()}, numbers,
            vec4=frozenset({"a", *("b" for _ in whole)}), busy=sweep.columns > 1, again={"a": grid[0], "b": grid[1]},
        )  # fmt: skip
