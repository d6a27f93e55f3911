"""Conversions between dtypes: casts and linear quantization."""

from __future__ import annotations

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Strings, Value
from ..registry import Context, Kernel, Step, adjoint, op
from ..tensor import broadcast_to, cast, constant, contiguous, like, map_, reshape, slice_, strings, unsqueeze
from ..tensor.packed import bitcast, pack, unpack

FORMAT = Kernel("string_format", ">y >pool x", "n", traits=strings.TRAITS)
PARSE = Kernel("string_parse", ">y x pool", "n", traits=strings.TRAITS)
FORMATTED = {
    DType.bool, DType.uint8, DType.int8, DType.uint16, DType.int16, DType.uint32, DType.int32, DType.uint64, DType.int64, DType.float16,
    DType.bfloat16, DType.float32, DType.float64,
}  # fmt: skip
SMALL = {DType.uint4, DType.int4, DType.uint2, DType.int2, DType.float4e2m1}
FLOAT8 = {DType.float8e4m3fn, DType.float8e4m3fnuz, DType.float8e5m2, DType.float8e5m2fnuz, DType.float8e8m0}
ROUNDING = ("up", "down", "nearest")
DIVIDES = (DType.float32, DType.float64, DType.float16, DType.bfloat16)
FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def convert(x: Value, to: DType, saturate: bool = True, round_mode: str = "up") -> Value:
    """Any dtype as any other, 2- and 4-bit ones included.

    Args:
        saturate: overflow of 8-bit floats gives the largest finite value, else infinity or NaN.
        round_mode: of float8e8m0, which holds powers of two: ``up``, ``down`` or ``nearest``.
    """
    for dtype in (x.dtype, to):
        if dtype in (DType.string, DType.complex64, DType.complex128, DType.float6e2m3, DType.float6e3m2):
            raise IRError(f"casts from or to {dtype.name} are not supported")
    if round_mode not in ROUNDING:
        raise IRError(f"round_mode {round_mode!r} is not one of {', '.join(ROUNDING)}")
    if x.dtype is to:
        return x
    if x.dtype in SMALL:
        return convert(_widened(x), to, saturate, round_mode)
    if to is DType.float4e2m1:
        return pack(_float4(cast(x, DType.float32)), to)
    if to in SMALL:
        mask = (1 << to.bits) - 1
        return pack(cast(map_("bitand", cast(x, DType.int32), constant(np.int32(mask))), DType.uint8), to)
    y = cast(x, to, int(not saturate) | ROUNDING.index(round_mode) << 1 if to in FLOAT8 else 0)
    y.storage.asked = True
    return y


def _widened(x: Value) -> Value:
    """A 2- or 4-bit tensor as uint8, int8 or float32."""
    codes = unpack(x)
    if x.dtype is DType.float4e2m1:
        from .gather import Gather

        return Gather(constant(FLOAT4), cast(codes, DType.int32))  # type: ignore[no-any-return]
    if not x.dtype.is_signed:
        return codes
    half = constant(np.int8(1 << (x.dtype.bits - 1)))
    return map_("sub", map_("bitxor", cast(codes, DType.int8), half), half)


def _float4(x: Value) -> Value:
    """The nearest float4e2m1 code, ties to the even one: how many of the bounds between neighbours a magnitude passes."""
    size = map_("abs", x)
    bits = bitcast(contiguous(x), DType.uint32)
    code = cast(map_("shl", map_("shr", bits, constant(np.uint32(31))), constant(np.uint32(3))), DType.uint8)
    for bound, inclusive in ((0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True), (5.0, False)):
        limit = like(x, bound)
        passed = map_("le", limit, size) if inclusive else map_("lt", limit, size)
        code = map_("add", code, cast(passed, DType.uint8))
    return code


@op(since=6)
def Cast(input: Value | Strings, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value | Strings:
    return _cast(input, DType(to), bool(saturate), round_mode)


def _cast(x: Value | Strings, to: DType, saturate: bool = True, round_mode: str = "up") -> Value | Strings:
    if to is DType.string:
        return x if isinstance(x, Strings) else formatted(x)
    return convert(parsed(x, to) if isinstance(x, Strings) else x, to, saturate, round_mode)


def formatted(x: Value) -> Strings:
    """Numbers as strings: integers in decimal, bools 1 and 0; floats by the fewest digits that give them back, laid out as C's %g does with
    8 digits, of float64 16: 0.1, 100, -0, 1e+16, INF, -INF, NaN."""
    if x.dtype not in FORMATTED:
        x = convert(x, DType.float32 if x.dtype.is_float else DType.int64)
    pool = (DType.uint8, [x.size * 32])
    spans, bytes_ = FORMAT({"y": (DType.int64, x.shape), "pool": pool}, {"x": contiguous(x)}, n=x.size)
    return Strings(spans, bytes_)


def parsed(x: Strings, to: DType) -> Value:
    """Strings as numbers, of a dtype from which that is cast: the nearest float; of integers what is ahead of the point. What is no number
    ends the run."""
    dtype = to if to in (DType.float64, DType.uint64) else DType.float32 if to.is_float else DType.int64
    dtype = DType.float64 if to is DType.bool else dtype
    y: Value = PARSE({"y": (dtype, x.shape)}, {"x": contiguous(x.spans), "pool": contiguous(x.pool)}, n=x.size)
    return y


@op("Cast", since=1, until=5)
def Cast_1(input: Value | Strings, *, to: str) -> Value | Strings:
    return _cast(input, DType[{"FLOAT": "float32", "DOUBLE": "float64"}.get(to, to.lower())])


@op()
def CastLike(input: Value | Strings, target_type: Value | Strings, *, saturate: int = 1, round_mode: str = "up") -> Value | Strings:
    return _cast(input, target_type.dtype, bool(saturate), round_mode)


@op()
def BitCast(input: Value, *, to: int) -> Value:
    """The bits as they are, read as another dtype of the same width."""
    if input.dtype.bits < 8 or DType(to).bits < 8:
        raise IRError(f"bit casts of {input.dtype.name} are not supported")
    if DType(to).name.startswith("complex"):
        raise IRError(f"dtype {DType(to).name} is not supported")
    return bitcast(input, DType(to))


@op()
def QuantizeLinear(
    x: Value,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    ctx: Context | None = None,
) -> Value:
    """Rounded, half to even, after a division in ``precision``: by default the scale's type, before opset 23 float32."""
    target = y_zero_point.dtype if y_zero_point is not None else DType(output_dtype) if output_dtype else DType.uint8
    wide = (
        DType(precision)
        if precision
        else y_scale.dtype
        if ctx is not None and ctx.opset >= 23 and y_scale.dtype in DIVIDES
        else DType.float32
    )
    if wide not in DIVIDES:
        raise IRError(f"precision {wide.name} is not supported ({', '.join(d.name for d in DIVIDES)} are)")
    scale = _per_axis(convert(y_scale, DType.float32) if y_scale.dtype in FLOAT8 else y_scale, x, axis, block_size)
    q = map_("div", convert(x, wide), convert(scale, wide))
    q = q if wide is DType.float64 else cast(q, DType.float32)
    if target.is_float:
        return convert(q, target, bool(saturate))
    q = map_("round", q)
    if y_zero_point is not None:
        q = map_("add", q, _per_axis(convert(y_zero_point, q.dtype), x, axis, block_size))
    low = -(1 << (target.bits - 1)) if target.is_signed else 0
    high = low + (1 << target.bits) - 1
    return convert(map_("clamp", q, like(q, float(low)), like(q, float(high))), target)


@op()
def DequantizeLinear(
    x: Value, x_scale: Value, x_zero_point: Value | None = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Value:
    scale = _per_axis(cast(x_scale, DType.float32), x, axis, block_size)
    middle = DType.float32 if x.dtype.is_float else DType.int32
    wide = convert(x, middle)
    if x_zero_point is not None and not x.dtype.is_float:
        wide = map_("sub", wide, _per_axis(convert(x_zero_point, middle), x, axis, block_size))
    return cast(map_("mul", cast(wide, DType.float32), scale), DType(output_dtype) if output_dtype else x_scale.dtype)


def _per_axis(p: Value, x: Value, axis: int, block_size: int) -> Value:
    """Scales and zero points: one for all, one per slice of an axis, or one per block of an axis."""
    if p.rank == 0 or p.size == 1:
        return reshape(p, ())
    axis += x.rank if axis < 0 else 0
    if not block_size:
        return reshape(p, [p.size if a == axis else 1 for a in range(x.rank)])
    blocks = unsqueeze(p, [axis + 1])
    spread = broadcast_to(blocks, [*p.shape[: axis + 1], block_size, *p.shape[axis + 1 :]])
    joined = reshape(spread, [*p.shape[:axis], p.shape[axis] * block_size, *p.shape[axis + 1 :]])
    return slice_(joined, axis, 0, x.shape[axis])


@adjoint("Cast")
def _back_cast(step: Step) -> list[Value | None]:
    return [convert(step.grad, step.inputs[0].dtype)]
