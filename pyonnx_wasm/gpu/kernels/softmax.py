"""Softmax: a team of lanes per row, one lane per column where the axis is not the last."""

from __future__ import annotations

from ...ir import dims
from .. import F32, WORKGROUP, Call, Case, nested
from ..teams import team_cases

READS_HALVES = True


def cases(call: Call) -> list[Case]:
    if not call.computes(F32):
        return []
    log = {"log"} if call.log else set()
    rows = team_cases(call, call.outer, call.n, log | {"rows"}, guard=dims.eq(call.inner, 1), needs=("subgroups",))
    columns = Case((dims.ceildiv(call.outer * call.inner, WORKGROUP),), defines=frozenset(log), rounds=3 * nested(call.n))
    return [*rows, columns]
