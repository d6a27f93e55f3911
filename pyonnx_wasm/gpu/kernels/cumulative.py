"""CumSum and CumProd, one line per lane."""

from __future__ import annotations

from ... import dims
from ...dtypes import DType
from .. import WORKGROUP, Call, Case
from .reduce import arithmetic


def cases(call: Call) -> list[Case]:
    found = arithmetic(call.values["x"].dtype, "sum" if call.op == 0 else "prod")
    if found is None or call.values["x"].dtype is DType.bool:
        return []
    lines = call.outer * call.inner
    defines = {name for name in ("exclusive", "reverse") if call.params[name]} | ({"wide"} if call.values["x"].dtype.bits == 64 else set())
    holes = {"join": found[1], "none": found[2]}
    numbers = {"lines": lines, "n": call.n, "inner": call.inner}
    return [Case((dims.ceildiv(lines, WORKGROUP),), defines=frozenset(defines), holes=holes, uniforms=numbers)]
