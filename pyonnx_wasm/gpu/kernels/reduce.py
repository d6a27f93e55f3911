"""Reductions over any axes: teams of lanes whose partial results meet in workgroup memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dtypes import DType
from ...ir import dims
from ...ir.dims import DimLike
from ...tensor import REDUCTIONS
from .. import Call, Case
from ..elements import address, coordinates
from ..teams import LANES, team_cases
from .map import FLOATS, WIDE


def cases(call: Call) -> list[Case]:
    dtype, op = call.values["x"].dtype, REDUCTIONS[call.op]
    formulas = _formulas(dtype, op)
    if formulas is None:
        return []
    kept = _merged(call.keep_shape[: call.rank_keep], call.keep_stride[: call.rank_keep])
    reduced = _merged(call.red_shape[: call.rank_red], call.red_stride[: call.rank_red])
    outputs, n = dims.product(call.keep_shape[: call.rank_keep]), dims.product(call.red_shape[: call.rank_red])
    numbers: dict[str, Any] = {"outputs": outputs, "n": n, "xoff": call.xoff}
    holes = dict(formulas)
    for name, (shape, strides) in (("kept", kept), ("reduced", reduced)):
        if shape:
            numbers |= {f"{name}_shape": shape, f"{name}_step": strides}
        holes[name] = "\n".join([*coordinates(len(shape), f"{name}_shape"), f"  return {address(f'{name}_step', strides)};"])
    columns = bool(kept[1]) and isinstance(kept[1][-1], int) and kept[1][-1] == 1 and not (reduced[1] and _is_one(reduced[1][-1]))
    if columns:
        return [Case((dims.ceildiv(outputs, LANES // 8),), 1, frozenset({"across"}), holes, numbers)]
    return team_cases(call, outputs, n, uniforms=numbers, holes=holes)


def _is_one(d: DimLike) -> bool:
    return isinstance(d, int) and d == 1


def _merged(shape: Sequence[DimLike], strides: Sequence[DimLike]) -> tuple[list[DimLike], list[DimLike]]:
    """The axes with neighbours made one where the inner one runs on into the next of the outer one."""
    sizes: list[DimLike] = []
    steps: list[DimLike] = []
    for size, step in zip(shape, strides, strict=True):
        if isinstance(size, int) and size == 1:
            continue
        if sizes and dims.same(steps[-1], step * size):
            sizes[-1], steps[-1] = sizes[-1] * size, step
        else:
            sizes.append(size)
            steps.append(step)
    return sizes, steps


def _formulas(dtype: DType, op: str) -> dict[str, str] | None:
    """Texts of the partial result's type, its start, what an element brings in, how two join, and what is written."""
    if dtype in FLOATS:
        load = {"sumsq": "v * v", "sumabs": "abs(v)"}.get(op, "v")
        merge = {"max": "max_nan(a, v)", "min": "min_nan(a, v)", "prod": "a * v"}.get(op, "a + v")
        none = {"max": "from_bits(0xff800000u)", "min": "from_bits(0x7f800000u)", "prod": "1.0"}.get(op, "0.0")
        return {"part": "f32", "load": load, "merge": merge, "none": none, "result": "v / f32($n)" if op == "mean" else "v"}
    if dtype is DType.bool:
        # As u32: NVIDIA's Vulkan driver loses bool in workgroup memory.
        merge = {"max": "a | v", "min": "a & v"}.get(op, "")
        none = "0u" if op == "max" else "1u"
        return {"part": "u32", "load": "u32(v)", "merge": merge, "none": none, "result": "v != 0u"} if merge else None
    if dtype in WIDE:
        signed = dtype.is_signed
        less = "lts64" if signed else "ltu64"
        load = {"sumsq": "mul64(v, v)", "sumabs": "abs64(v)" if signed else "v"}.get(op, "v")
        merge = {"max": f"select(a, v, {less}(a, v))", "min": f"select(a, v, {less}(v, a))", "prod": "mul64(a, v)"}.get(op, "add64(a, v)")
        low, high = ("0u, 0x80000000u", "0xffffffffu, 0x7fffffffu") if signed else ("0u, 0u", "0xffffffffu, 0xffffffffu")
        none = {"max": f"vec2<u32>({low})", "min": f"vec2<u32>({high})", "prod": "vec2<u32>(1u, 0u)"}.get(op, "vec2<u32>(0u)")
        result = (
            f"div{'s' if signed else 'u'}64(v, {'i64_of' if signed else 'u64_of'}({'' if signed else 'u32'}($n)))" if op == "mean" else "v"
        )
        return {"part": "vec2<u32>", "load": load, "merge": merge, "none": none, "result": result}
    if not dtype.is_int or not 8 <= dtype.bits <= 32:
        return None
    signed = dtype.is_signed
    part = "i32" if signed else "u32"
    least, most = (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if signed else (0, (1 << dtype.bits) - 1)
    load = {"sumsq": "v * v", "sumabs": "abs(v)"}.get(op, "v")
    merge = {"max": "max(a, v)", "min": "min(a, v)", "prod": "a * v"}.get(op, "a + v")
    start = {"max": least, "min": most, "prod": 1}.get(op, 0)
    none = f"bitcast<i32>({start & 0xFFFFFFFF}u)" if signed else f"{start}u"
    result = ("div_i(v, $n)" if signed else "div_u(v, u32($n))") if op == "mean" else "v"
    return {"part": part, "load": load, "merge": merge, "none": none, "result": result}
