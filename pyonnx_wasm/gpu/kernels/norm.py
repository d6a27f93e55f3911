"""Normalisation of rows: a team of lanes per row."""

from __future__ import annotations

from ...ir import dims
from .. import F32, Call, Case
from ..teams import fours, team_cases

READS_HALVES = True


def cases(call: Call) -> list[Case]:
    if not call.computes(F32):
        return []
    each = dims.known(call.inner) == 1
    vec4 = {"x", "y"} | ({"scale", "bias"} & set(call.values) if each else set())
    wide = fours(call.n, call.row_mul if each else call.inner, *(call.starts[name] for name in vec4))
    defines = {"rms"} if call.rms else set()
    defines |= ({"wide"} if wide else set()) | ({"each"} if each else set())
    return team_cases(call, call.rows, call.n, defines, vec4 if wide else set(), needs=("subgroups",))
