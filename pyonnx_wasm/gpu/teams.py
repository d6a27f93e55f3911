"""What kernels share that bring rows together: how many lanes work on one row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..ir import dims
from ..ir.dims import DimLike
from . import Call, Case

LANES = 256  # of a workgroup
SMALL, LONG = 32, 1024  # lanes per row, for rows up to this length


def team_cases(
    call: Call,
    rows: DimLike,
    n: DimLike,
    defines: Collection[str] = (),
    vec4: Collection[str] = (),
    *,
    guard: DimLike = 1,
    uniforms: Mapping[str, Any] | None = None,
    holes: Mapping[str, str] | None = None,
    needs: tuple[str, ...] = (),
) -> list[Case]:
    """Cases of a source that includes ``team``: one row of ``n`` elements per team, more lanes for long rows."""
    return [
        Case(
            (dims.ceildiv(rows, LANES // team),), dims.product([guard, fits]), frozenset({*defines, *(["whole"] if team == LANES else [])}),
            {**(holes or {}), "team": str(team)}, uniforms, vec4=frozenset(vec4), needs=needs,
        )
        for team, fits in ((SMALL, dims.le(n, LONG)), (LANES, 1))
    ]  # fmt: skip


def fours(*numbers: DimLike) -> bool:
    """Whether all are multiples of 4, for any sizes."""
    return all(dims.known(n % 4) == 0 for n in numbers)
