"""ArgMax and ArgMin, one output per lane."""

from __future__ import annotations

from ... import dims
from ...dtypes import DType
from .. import WORKGROUP, Call, Case
from .map import FLOATS


def cases(call: Call) -> list[Case]:
    x, y = call.values["x"], call.values["y"]
    dtype = x.dtype
    if y.dtype is not DType.int64 or dtype is DType.bool or not (dtype in FLOATS or (dtype.is_int and dtype.bits >= 8)):
        return []
    a, b = ("b", "a") if call.op == 0 else ("a", "b")
    if dtype in FLOATS:
        before = f"{a} < {b} || (is_nan(a) && !is_nan(b))"
    elif dtype.bits == 64:
        before = f"{'lts64' if dtype.is_signed else 'ltu64'}({a}, {b})"
    else:
        before = f"{a} < {b}"
    outputs = call.outer * call.inner
    defines = {name for name, on in (("last", call.select_last), ("wide", dtype.bits == 64)) if on}
    numbers = {"outputs": outputs, "n": call.n, "inner": call.inner}
    return [Case((dims.ceildiv(outputs, WORKGROUP),), defines=frozenset(defines), holes={"before": before}, uniforms=numbers)]
