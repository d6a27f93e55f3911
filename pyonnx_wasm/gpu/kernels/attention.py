"""Attention in one sweep over the keys: tiles of 32 queries, or one query per workgroup where there are few."""

from __future__ import annotations

from ...ir import dims
from .. import F32, Call, Case
from ..teams import fours

FEW = 4  # queries up to which each gets a workgroup of its own
CHUNKS = 4  # of 32 outputs that a workgroup has at most; more take further workgroups
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
    found = []
    for single, width in ((True, 64), (False, 32)):
        size = dims.known(call.dv)
        chunks = 1 if size is None else max(1, min(CHUNKS * 32 // width, -(-size // width)))
        grid = (dims.ceildiv(call.dv, width * chunks), call.sq if single else dims.ceildiv(call.sq, 32), heads)
        switches = frozenset(defines | ({"single"} if single else set()))
        again = {"q": grid[0], "k": grid[0] * grid[1] * call.rep, "v": grid[1] * call.rep}
        found.append(Case(grid, dims.le(call.sq, FEW) if single else 1, switches, {"chunks": str(chunks)}, vec4=vec4, again=again))
    return found
