"""Reductions: one lane per output, or a workgroup where there is much to reduce."""

from __future__ import annotations

from typing import Any

from ... import dims
from ...dtypes import DType
from ...tensor import REDUCTIONS
from .. import WORKGROUP, Call, Case
from .map import FLOATS

TEAM = 128  # elements from which a workgroup shares an output
LOWEST = {32: -(1 << 31), 16: -(1 << 15), 8: -128}


def cases(call: Call) -> list[Case]:
    x, y = call.values["x"], call.values["y"]
    kind = REDUCTIONS[call.op]
    found = arithmetic(x.dtype, kind)
    if found is None or not y.whole:
        return []
    acc, join, none, square, absolute = found
    kept, reduced = dims.product(call.keep_shape[: call.rank_keep]), dims.product(call.red_shape[: call.rank_red])
    numbers: dict[str, Any] = {"n": kept, "reduced": reduced, "xoff": call.xoff}
    for name, rank in (("keep", call.rank_keep), ("red", call.rank_red)):
        for what in ("shape", "stride"):
            numbers[f"{name}_{what}"] = call.params[f"{name}_{what}"][: max(rank, 1)]
    holes = {
        "acc": acc, "join": join, "none": none, "square": square, "abs": absolute, "rank_keep": str(call.rank_keep),
        "rank_red": str(call.rank_red),
    }  # fmt: skip
    defines = {kind} | ({"wide"} if x.dtype.bits == 64 else set()) | ({"row"} if call.rank_red == 1 else set())
    few = dims.le(TEAM, reduced)
    team = Case((kept,), guard=few, defines=frozenset(defines | {"team"}), holes=holes, uniforms=numbers)
    return [team, Case((dims.ceildiv(kept, WORKGROUP),), defines=frozenset(defines), holes=holes, uniforms=numbers)]


def arithmetic(dtype: DType, kind: str) -> tuple[str, str, str, str, str] | None:
    """Accumulator type, how two join, what joins to nothing, squares and magnitudes; None where the core does it."""
    if dtype in FLOATS:
        join = {"max": "max_nan(a, b)", "min": "min_nan(a, b)", "prod": "a * b"}.get(kind, "a + b")
        none = {"max": "from_bits(0xff800000u)", "min": "from_bits(0x7f800000u)", "prod": "1.0"}.get(kind, "0.0")
        return "f32", join, none, "v * v", "abs(v)"
    if kind == "mean":
        return None
    if dtype is DType.bool:
        pair = {"max": ("a || b", "false"), "min": ("a && b", "true")}.get(kind)
        return None if pair is None else ("bool", *pair, "v", "v")
    if dtype in (DType.int64, DType.uint64):
        less = "lts64" if dtype.is_signed else "ltu64"
        top, bottom = ("0x7fffffffu", "0x80000000u") if dtype.is_signed else ("0xffffffffu", "0u")
        join = {"max": f"select(a, b, {less}(a, b))", "min": f"select(a, b, {less}(b, a))", "prod": "mul64(a, b)"}.get(kind, "add64(a, b)")
        nothing = {"max": f"vec2<u32>(0u, {bottom})", "min": f"vec2<u32>(0xffffffffu, {top})", "prod": "vec2<u32>(1u, 0u)"}
        return "vec2<u32>", join, nothing.get(kind, "vec2<u32>(0u, 0u)"), "mul64(v, v)", "abs64(v)" if dtype.is_signed else "v"
    if not dtype.is_int or dtype.bits < 8:
        return None
    join = {"max": "max(a, b)", "min": "min(a, b)", "prod": "a * b"}.get(kind, "a + b")
    if dtype.is_signed:
        low = LOWEST[dtype.bits]
        none_of = {"max": f"bitcast<i32>({low & 0xFFFFFFFF}u)", "min": f"{-low - 1}", "prod": "1"}
        return "i32", join, none_of.get(kind, "0"), "v * v", "abs(v)"
    none_of = {"max": "0u", "min": f"{(1 << dtype.bits) - 1}u", "prod": "1u"}
    return "u32", join, none_of.get(kind, "0u"), "v * v", "v"
