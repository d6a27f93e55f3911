"""Resampling: coordinates as exact fractions, so that ties fall as they do on the core."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...dtypes import DType
from ...ir import dims, row_major
from ...ir.dims import DimLike
from ...ops.resize import COORDINATES, MODES, NEAREST
from .. import F32, Call, Case
from ..elements import bits_of, coordinates, elements

SMALL = {DType.int8, DType.uint8, DType.int16, DType.uint16}
ROUNDINGS = dict(zip(NEAREST, ("prefer_floor", "prefer_ceil", "round_down", "round_up"), strict=True))


def cases(call: Call) -> list[Case]:
    x, y = call.values["x"], call.values["y"]
    mode, coordinate = MODES[call.mode], COORDINATES[call.coord]
    if mode != "nearest" and x.dtype is not F32 and x.dtype not in SMALL:
        return []
    crop = coordinate == "tf_crop_and_resize"
    ratios = [_ratio(call, d) for d in range(x.rank)]
    active = [d for d in range(x.rank) if not _stays(call, d, crop, coordinate)]
    defines = {mode} | ({"crop"} if crop else set())
    numbers: dict[str, Any] = {"in": x.shape, "out": y.shape, "x_stride": row_major(x.shape), "x_off": x.offset}
    if crop:
        numbers |= {"roi_start": [*call.roi_start[: x.rank]], "roi_end": [*call.roi_end[: x.rank]]}
    else:
        rows = [_line(coordinate, *ratios[d], x.shape[d], y.shape[d]) for d in range(x.rank)]
        numbers |= {name: [row[k] for row in rows] for k, name in enumerate(("times", "plus", "divide"))}
    lines = coordinates(x.rank, "out")
    lines += [f"  let p{d} = place(c{d}, {d}u);" for d in active]
    if crop and active:
        fill = bits_of(y.dtype, call.extrapolation) or 0
        numbers["fill"] = (fill & 0xFFFFFFFF, fill >> 32)
        value = "vec2<u32>(u32($fill[0]), u32($fill[1]))" if y.dtype.bits == 64 else "u32($fill[0])"
        test = " || ".join(f"outside(p{d}, {d}u)" for d in active)
        lines.append(f"  if ({test}) {{ return {value if mode == 'nearest' else _rounded('$extrapolation', y.dtype)}; }}")
        numbers["extrapolation"] = float(call.extrapolation)
    fixed = " + ".join([f"c{d} * $x_stride[{d}]" for d in range(x.rank) if d not in active] + ["$x_off"])
    if mode == "nearest":
        defines.add(ROUNDINGS[NEAREST[call.nearest]])
        place = " + ".join([fixed, *(f"nearest(p{d}, {d}u) * $x_stride[{d}]" for d in active)])
        lines.append(f"  return x_get(u32({place}));")
        return elements(call, numbers, defines=frozenset(defines), holes={"body": "\n".join(lines)}, raw=("x", "y"))
    if call.exclude_outside:
        defines.add("exclude_outside")
    if call.exclude_outside or call.antialias:
        defines.add("normalised")
    reach = 2 if mode == "cubic" else 1
    shrinks = [call.antialias and dims.known(dims.ge(up, down)) != 1 for up, down in ratios]
    numbers |= {
        "cubic_a": float(call.cubic_a),
        "taps": [2 * dims.dmax(reach, dims.ceildiv(reach * d, u)) if s else 2 * reach for (u, d), s in zip(ratios, shrinks, strict=True)],
    }
    numbers["stretch_up"] = [dims.dmin(u, d) if s else 1 for (u, d), s in zip(ratios, shrinks, strict=True)]
    numbers["stretch_down"] = [d if s else 1 for (_, d), s in zip(ratios, shrinks, strict=True)]
    lines += [f"  let s{d} = first_tap(p{d}, {d}u);" for d in active]
    lines += [f"  let t{d} = total(p{d}, {d}u);" for d in active]
    lines.append("  var sum = 0.0;")
    weight, place = "1.0", fixed
    for d in active:
        lines.append(f"  for (var k{d} = 0; k{d} < $taps[{d}]; k{d}++) {{")
        lines.append(f"  let w{d} = {weight} * weight(p{d}, s{d} + k{d}, {d}u) / t{d};")
        lines.append(f"  if (w{d} == 0.0) {{ continue; }}")
        lines.append(f"  let a{d} = {place} + clamp(s{d} + k{d}, 0, $in[{d}] - 1) * $x_stride[{d}];")
        weight, place = f"w{d}", f"a{d}"
    lines.append(f"  sum += {weight} * f32(x_get(u32({place})));")
    lines += ["  }"] * len(active)
    lines.append(f"  return {_rounded('sum', y.dtype)};")
    return elements(call, numbers, defines=frozenset(defines), holes={"body": "\n".join(lines)})


def _rounded(x: str, dtype: DType) -> str:
    if dtype is F32:
        return x
    top = (1 << dtype.bits - dtype.is_signed) - 1
    low = -(top + 1) if dtype.is_signed else 0
    return f"{'i32' if dtype.is_signed else 'u32'}(clamp(round({x}), {low}.0, {top}.0))"


def _ratio(call: Call, d: int) -> tuple[DimLike, DimLike]:
    """The scale of an axis as a fraction; scales are given as float32 and meant as simple fractions."""
    scale = call.scale[d]
    if scale == 0:
        return call.out[d], call.params["in"][d]
    exact = Fraction(scale).limit_denominator(1 << 12)
    if abs(float(exact) - scale) > 1e-6 * scale:
        exact = Fraction(scale).limit_denominator(1 << 15)
    return exact.numerator, exact.denominator


def _stays(call: Call, d: int, crop: bool, coordinate: str) -> bool:
    whole = not crop or (call.roi_start[d], call.roi_end[d]) == (0.0, 1.0)
    same = dims.same(call.params["in"][d], call.out[d]) and (call.scale[d] == 0 or abs(call.scale[d] - 1) < 1e-9)
    return same and whole and coordinate != "tf_half_pixel_for_nn"


def _line(coordinate: str, up: DimLike, down: DimLike, size: DimLike, out: DimLike) -> tuple[DimLike, DimLike, DimLike]:
    """(a, b, d) such that output coordinate c lies at (a * c + b) / d of the input."""
    if coordinate == "asymmetric":
        return down, 0, up
    if coordinate == "align_corners":
        if dims.same(up, out) and dims.same(down, size):
            return size - 1, 0, dims.dmax(out - 1, 1)
        return (size - 1) * down, 0, dims.dmax(size * up - down, 1)
    plus: DimLike = down - up
    if coordinate == "pytorch_half_pixel":
        plus = dims.select(dims.gt(out, 1), plus, 0)
    elif coordinate == "half_pixel_symmetric":
        plus = plus + size * up - out * down
    elif coordinate == "tf_half_pixel_for_nn":
        plus = down
    return 2 * down, plus, 2 * up
