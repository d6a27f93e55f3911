"""Weights of 2, 4 or 8 bits in blocks with a scale each (``com.microsoft``); they stay small in memory, constant ones of 2 bits as 4."""

from __future__ import annotations

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value, dims
from ...registry import Context, op
from ...tensor import (
    axis_of,
    broadcast_to,
    cast,
    concat,
    constant,
    contiguous,
    fill,
    index,
    like,
    literal,
    map_,
    reshape,
    slice_,
    swap,
    unsqueeze,
)
from ..blocks import multiply, unpacked
from ..convert import DequantizeLinear, convert
from ..gather import Gather
from ..matmul import matmul
from ..normalization import SimplifiedLayerNormalization
from . import MICROSOFT
from .normalization import SkipSimplifiedLayerNormalization


def _zeros(zero: Value, bits: int, n: int, blocks: int) -> Value:
    """float32 [n, blocks] of zero points, packed in bytes or not."""
    if zero.dtype is DType.uint8:
        zero = unpacked(reshape(zero, [n, -(-blocks * bits // 8)]), bits, blocks)
    return cast(reshape(zero, [n, blocks]), DType.float32)


def _grouped(B: Value, scales: Value, zero: Value | None, g_idx: Value, k: int, n: int, bits: int, blocks: int) -> Value:
    """The weights [n, k] in float32, where each column names the group of its scale."""
    codes = cast(unpacked(reshape(B, [n, B.size // n]), bits, k), DType.float32)
    group = slice_(g_idx, 0, 0, k)
    middle = constant(np.float32(1 << (bits - 1))) if zero is None else Gather(_zeros(zero, bits, n, blocks), group, axis=1)
    scale = Gather(cast(reshape(scales, [n, blocks]), DType.float32), group, axis=1)
    return map_("mul", map_("sub", codes, middle), scale)


def _doubled(codes: Value) -> Value:
    """Codes of 2 bits as codes of 4, which kernels multiply many at a time: [n, blocks, bytes] becomes [n, blocks, 2 * bytes]."""

    def part(name: str, by: int, mask: int) -> Value:
        moved = map_(name, codes, like(codes, by)) if by else codes
        return map_("bitand", moved, like(codes, mask))

    low = map_("bitor", part("shr", 0, 0x03), part("shl", 2, 0x30))
    high = map_("bitor", part("shr", 4, 0x03), part("shr", 2, 0x30))
    both = concat([unsqueeze(low, [3]), unsqueeze(high, [3])], 3)
    return reshape(both, [*codes.shape[:-1], codes.shape[-1] * 2])


@op(domain=MICROSOFT)
def MatMulNBits(
    A: Value, B: Value, scales: Value, zero_points: Value | None = None, g_idx: Value | None = None, bias: Value | None = None, *,
    K: int, N: int, accuracy_level: int = 0, bits: int = 4, block_size: int, weight_prepacked: int = 0,
) -> Value:  # fmt: skip
    """A times the transpose of B [N, blocks, bytes]: (code - zero point) * scale, the zero point 2^(bits - 1) by default.

    Products and sums are float32; where ``accuracy_level`` is above 1, A may be rounded to 16 bits per row and block.
    """
    if bits not in (2, 4, 8) or weight_prepacked:
        raise IRError(f"weights of {bits} bits{', prepacked,' if weight_prepacked else ''} are not supported (2, 4 and 8 bits are)")
    if block_size < 16 or block_size & (block_size - 1):
        raise IRError(f"block_size {block_size} must be a power of 2, at least 16")
    wide, blocks = DType.float32, -(-K // block_size)
    if g_idx is not None:
        found = matmul(cast(A, wide), swap(_grouped(B, scales, zero_points, g_idx, K, N, bits, blocks), 0, 1))
        return cast(found if bias is None else map_("add", found, cast(bias, wide)), A.dtype)
    codes = contiguous(reshape(B, [N, blocks, block_size * bits // 8]))
    scale = contiguous(reshape(scales, [N, blocks]))
    shift = None
    if zero_points is not None and zero_points.dtype is DType.uint8:
        shift = unpacked(reshape(zero_points, [N, -(-blocks * bits // 8)]), bits, blocks)
    elif zero_points is not None:
        shift = map_("mul", cast(reshape(zero_points, [N, blocks]), wide), cast(scale, wide))
    if bits == 2 and codes.storage.const:
        shift = fill([N, blocks], 2, DType.uint8) if shift is None else shift
        codes, bits = _doubled(codes), 4
    y = multiply(A, codes, scale, shift, K, bits, block_size, rounded=int(accuracy_level > 1))
    return cast(y if bias is None else map_("add", y, cast(bias, wide)), A.dtype)


def _projected(x: Value, weights: Value, scales: Value, bias: Value | None, k: int, n: int, bits: int, block: int) -> Value:
    y: Value = MatMulNBits(x, weights, scales, bias=bias, K=k, N=n, bits=bits, block_size=block)
    return y


def _normed(A: Value, skip: Value | None, scale: Value | None, epsilon: float, ctx: Context) -> tuple[Value, Value | None]:
    """The normalised input, and its sum with ``skip`` where there is one."""
    if scale is None:
        return A, None
    if skip is None:
        return SimplifiedLayerNormalization(A, scale, epsilon=epsilon), None
    y, _, _, total = SkipSimplifiedLayerNormalization(A, skip, scale, epsilon=epsilon, ctx=Context(1, (), ctx.node))
    return y, total


@op(domain=MICROSOFT)
def MatMulNBitsMlp(
    A: Value, skip: Value | None, norm_scale: Value | None, gate_B: Value, gate_scales: Value, gate_bias: Value | None, up_B: Value,
    up_scales: Value, up_bias: Value | None = None, *, K: int, N: int, accuracy_level: int = 0, activation: str, bits: int = 4,
    block_size: int, epsilon: float = 1e-5, ctx: Context,
) -> tuple[Value, Value | None]:  # fmt: skip
    """A norm, two products over its result, and one of them, activated, times the other."""
    if activation not in ("silu", "swish", "gelu", "relu"):
        raise IRError(f"activation {activation!r} is not one of silu, swish, gelu, relu")
    x, total = _normed(A, skip, norm_scale, epsilon, ctx)
    gate, up = (_projected(x, *p, K, N, bits, block_size) for p in ((gate_B, gate_scales, gate_bias), (up_B, up_scales, up_bias)))
    return map_("mul", map_("silu" if activation == "swish" else activation, gate), up), total


@op(domain=MICROSOFT)
def MatMulNBitsQkv(
    A: Value, skip: Value | None, norm_scale: Value, q_B: Value, q_scales: Value, q_bias: Value | None, k_B: Value, k_scales: Value,
    k_bias: Value | None, v_B: Value, v_scales: Value, v_bias: Value | None = None, *, K: int, Nkv: int, Nq: int,
    accuracy_level: int = 0, bits: int = 4, block_size: int, epsilon: float = 1e-6, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """A norm and three products over its result."""
    x, total = _normed(A, skip, norm_scale, epsilon, ctx)
    parts = ((q_B, q_scales, q_bias, Nq), (k_B, k_scales, k_bias, Nkv), (v_B, v_scales, v_bias, Nkv))
    return (*(_projected(x, b, s, c, K, n, bits, block_size) for b, s, c, n in parts), total)


# The values of 4-bit codes: bitsandbytes, and QLoRA (Dettmers et al.), appendix E.
FP4 = np.array([0, 0.00520833333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25], np.float32)
NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32,
)  # fmt: skip


@op(domain=MICROSOFT)
def MatMulBnb4(
    A: Value, B: Value, absmax: Value, *, K: int, N: int, block_size: int, quant_type: int, training_mode: int = 0, transB: int = 1
) -> Value:
    """A times weights [N, K] that are 4-bit codes of a table, high half of a byte first, in blocks along the flat tensor."""
    if quant_type not in (0, 1):
        raise IRError(f"quant_type {quant_type} is not 0 (FP4) or 1 (NF4)")
    table = constant(NF4 if quant_type else np.concatenate([FP4, -FP4]))
    count, wide = N * K, DType.float32
    shape = [B.size, 2]
    shift = cast(map_("sub", constant(np.int64(4)), map_("mul", index(1, shape), constant(np.int64(4)))), DType.uint8)
    codes = map_("bitand", map_("shr", broadcast_to(reshape(B, [B.size, 1]), shape), shift), constant(np.uint8(15)))
    flat = Gather(table, cast(slice_(reshape(codes, [B.size * 2]), 0, 0, count), DType.int32))
    blocks = -(-count // block_size)
    scale = reshape(broadcast_to(reshape(cast(absmax, wide), [blocks, 1]), [blocks, block_size]), [blocks * block_size])
    weights = reshape(map_("mul", flat, slice_(scale, 0, 0, count)), [N, K])
    return cast(matmul(cast(A, wide), swap(weights, 0, 1) if transB else weights), A.dtype)


def _bytes_of(data: Value) -> tuple[Value, int]:
    """2- and 4-bit integers as bytes along the last axis, where rows fill bytes, and the bits of each."""
    bits = data.dtype.bits
    per = 8 // bits
    width = data.shape[-1]
    if not isinstance(width, int) or width % per or not data.whole:
        return convert(data, DType.int8 if data.dtype.is_signed else DType.uint8), 8
    return Value(data.storage, DType.uint8, [*data.shape[:-1], width // per]), bits


@op(domain=MICROSOFT)
def GatherBlockQuantized(
    data: Value, indices: Value, scales: Value, zero_points: Value | None = None, *,
    bits: int = 4, block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> Value:  # fmt: skip
    """Rows of a table of 2-, 4- or 8-bit codes in blocks with a scale each: what is picked alone is widened. Zeros out of range."""
    at, along = axis_of(gather_axis, data.rank, "gather_axis"), axis_of(quantize_axis, data.rank, "quantize_axis")
    rows = data.shape[at]
    size = reshape(literal([rows]), ())
    wanted = cast(indices, DType.int64)
    inside = map_("and", map_("le", map_("neg", size), wanted), map_("lt", wanted, size))
    picked = map_("where", inside, wanted, constant(np.int64(0)))
    small = not data.dtype.is_float and data.dtype.bits < 8
    packed, width = _bytes_of(data) if small and at != data.rank - 1 else (data, bits if data.dtype is DType.uint8 else 8)
    if small and at == data.rank - 1:
        packed, width = convert(data, DType.int8 if data.dtype.is_signed else DType.uint8), 8
    zero: Value | None = None
    if zero_points is not None:
        zero = _zero_codes(zero_points, small, bits, scales)
    elif data.dtype is DType.uint8:
        zero = fill(scales.shape, 1 << (bits - 1), DType.uint8)

    def rows_of(x: Value) -> Value:
        return x if x.shape[at] == 1 and not dims.same(rows, 1) else Gather(x, picked, axis=at)

    codes = Gather(packed, picked, axis=at)
    if width < 8:
        codes = unpacked(codes, width, codes.shape[-1] * (8 // width))
        if data.dtype.is_signed:
            half = constant(np.int8(1 << (width - 1)))
            codes = map_("sub", map_("bitxor", cast(codes, DType.int8), half), half)
    axis = along + indices.rank - 1 if along > at else along
    scale, point = rows_of(scales), None if zero is None else rows_of(zero)
    y = DequantizeLinear(codes, scale, point, axis=axis, block_size=block_size or size_of_axis(data, along))
    kept = reshape(inside, [*[1] * at, *indices.shape, *[1] * (data.rank - at - 1)])
    return map_("where", kept, y, like(y, 0))


def size_of_axis(x: Value, axis: int) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        raise IRError(f"the size of quantize_axis must be known when the model is compiled, it is {size}")
    return size


def _zero_codes(zero: Value, small: bool, bits: int, scales: Value) -> Value:
    """Zero points of the shape of the scales, one byte each."""
    if small:
        return convert(zero, DType.int8 if zero.dtype.is_signed else DType.uint8)
    return unpacked(zero, bits, scales.shape[-1]) if bits < 8 else zero
