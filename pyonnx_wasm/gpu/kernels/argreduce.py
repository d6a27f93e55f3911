"""Places of extremes: a team of lanes per row, one lane per column where the axis is not the last."""

from __future__ import annotations

from ...dtypes import DType
from ...ir import dims
from ...ops.reduction import EXTREMES
from .. import Call, Case
from ..elements import elements
from ..teams import team_cases
from .map import FLOATS, WIDE


def cases(call: Call) -> list[Case]:
    dtype = call.values["x"].dtype
    if dtype is DType.float64:
        return []
    defines = frozenset({"last"} if call.select_last else ()) | ({"float"} if dtype in FLOATS else {"wide"} if dtype in WIDE else set())
    holes = {"beats": beats(dtype, "v", "m", largest=EXTREMES[call.op] == "largest")}
    numbers = {name: call.params[name] for name in ("outer", "n", "inner")}
    rows = team_cases(call, call.outer, call.n, defines | {"rows"}, guard=dims.eq(call.inner, 1), uniforms=numbers, holes=holes)
    columns = elements(
        call, {"axis": call.n, "inner": call.inner}, n=call.outer * call.inner, defines=frozenset(defines), holes=holes
    )  # fmt: skip
    return [*rows, *columns] if columns else []


def beats(dtype: DType, a: str, b: str, *, largest: bool) -> str:
    """The text of a > b, or of a < b; neither is NaN."""
    if not largest:
        a, b = b, a
    if dtype in WIDE:
        return f"{'lts64' if dtype.is_signed else 'ltu64'}({b}, {a})"
    return f"({a} && !{b})" if dtype is DType.bool else f"{a} > {b}"
