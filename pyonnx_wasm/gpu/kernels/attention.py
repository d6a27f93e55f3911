"""Attention in one sweep over the keys: tiles of 32 queries, or few queries per workgroup where there are few tiles."""

from __future__ import annotations

from ...ir import dims
from ...ir.dims import DimLike
from .. import F32, Call, Case
from ..teams import LANES, fours

FEW = 4  # queries up to which each gets a workgroup of its own
LINES = 4  # queries of a workgroup where there are more, but few tiles; half as many where outputs are not known to be few
ENOUGH = 64  # tiles
TILE = 32  # queries of a tile
CHUNKS = 4  # of 32 outputs that a tile has at most; more take further workgroups
NARROW, WIDE = 8, 16  # lanes that bring in a value
MOST_OUTPUTS = 4  # vectors that a lane has of few queries
MOST_LOADS = 4  # values that a lane brings in at the same time
READS_HALVES = True


def cases(call: Call) -> list[Case]:
    if not call.computes(F32):
        return []
    unit = isinstance(call.k_d, int) and call.k_d == 1
    aligned = {
        "q": fours(call.d, call.qoff, call.q_b, call.q_h, call.q_s, call.starts["q"]),
        "k": unit and fours(call.d, call.koff, call.k_b, call.k_h, call.k_s, call.starts["k"]),
        "v": fours(call.dv, call.voff, call.v_b, call.v_h, call.v_s, call.starts["v"]),
        "y": fours(call.dv, call.yoff, call.y_b, call.y_h, call.y_s, call.starts["y"]),
    }
    vec4 = frozenset(name for name, holds in aligned.items() if holds)
    defines = (
        {f"{name}4" for name in vec4}
        | {n for n in ("causal", "nan_rows") if getattr(call, n)}
        | ({"capped"} if call.softcap > 0 else set())
    )
    if isinstance(call.k_s, int) and call.k_s == 1 and not unit:
        defines |= {"k_columns"}
    heads = call.batch * call.heads
    size = dims.known(call.dv)

    def case(rows: int, width: int, most: int, guard: DimLike, holes: dict[str, int]) -> Case:
        """A case whose workgroups have so many queries, and up to ``most`` times so many outputs of each."""
        chunks = 1 if size is None else max(1, min(most, -(-size // width)))
        grid = (dims.ceildiv(call.dv, width * chunks), dims.ceildiv(call.sq, rows), heads)
        switches = frozenset(defines | ({"few"} if holes else set()))
        again = {"q": grid[0], "k": grid[0] * grid[1] * call.rep, "v": grid[1] * call.rep}
        text = {"chunks": str(chunks)} | {n: str(v) for n, v in holes.items()}
        return Case(grid, guard, switches, text, vec4=vec4, again=again)

    def few(lines: int, guard: DimLike) -> Case:
        wide = NARROW if size is not None and size <= NARROW * 4 else WIDE
        keys = LANES // lines
        loads = min(MOST_LOADS, keys * wide // LANES)
        return case(lines, wide * 4, MOST_OUTPUTS // lines, guard, {"lines": lines, "wide": wide, "rounds": keys // 32, "loads": loads})

    lines = LINES if size is not None and size <= WIDE * 4 else LINES // 2
    tiled = dims.product([dims.ceildiv(call.sq, TILE), heads])
    return [few(1, dims.le(call.sq, FEW)), case(TILE, 32, CHUNKS, dims.le(ENOUGH, tiled), {}), few(lines, 1)]
