"""Running sums and products: a workgroup per row, one lane per column where the axis is not the last."""

from __future__ import annotations

from ...ir import dims
from ...ops.reduction import SCANS
from .. import WORKGROUP, Call, Case, nested
from .map import FLOATS, WIDE


def cases(call: Call) -> list[Case]:
    dtype = call.values["x"].dtype
    product = SCANS[call.op] == "product"
    if dtype in FLOATS:
        texts = ("a * b", "1.0") if product else ("a + b", "0.0")
    elif dtype in WIDE:
        texts = ("mul64(a, b)", "vec2<u32>(1u, 0u)") if product else ("add64(a, b)", "vec2<u32>(0u)")
    elif dtype.is_int and dtype.bits == 32:
        texts = ("a * b" if product else "a + b", f"{int(product)}{'' if dtype.is_signed else 'u'}")
    else:
        return []
    exclusive = "vec2<bool>($exclusive != 0)" if dtype in WIDE else "$exclusive != 0"
    holes = {"merge": texts[0], "none": texts[1], "exclusive": exclusive}
    return [
        Case((call.outer,), dims.eq(call.inner, 1), frozenset({"rows"}), holes),
        Case((dims.ceildiv(call.outer * call.inner, WORKGROUP),), holes=holes, rounds=nested(call.n)),
    ]
