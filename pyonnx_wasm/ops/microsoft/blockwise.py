"""Weights of 2, 4 or 8 bits in blocks with a scale each (``com.microsoft``); they are widened when the model is loaded."""

from __future__ import annotations

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value, dims
from ...ir.dims import DimLike
from ...op import op
from ...tensor import broadcast_to, cast, constant, index, like, map_, reshape, slice_, swap, unsqueeze
from ..matmul import matmul


def _codes(x: Value, bits: int, count: DimLike) -> Value:
    """The last axis of bytes as ``count`` codes of so many bits, low ones first."""
    if bits == 8:
        return slice_(x, x.rank - 1, 0, count)
    per = 8 // bits
    shape = [*x.shape, per]
    shift = cast(map_("mul", index(x.rank, shape), constant(np.int64(bits))), DType.uint8)
    codes = map_("bitand", map_("shr", broadcast_to(unsqueeze(x, [x.rank]), shape), shift), constant(np.uint8((1 << bits) - 1)))
    return slice_(reshape(codes, [*x.shape[:-1], x.shape[-1] * per]), x.rank - 1, 0, count)


@op(domain="com.microsoft")
def MatMulNBits(
    A: Value, B: Value, scales: Value, zero_points: Value | None = None, g_idx: Value | None = None, bias: Value | None = None, *,
    K: int, N: int, accuracy_level: int = 0, bits: int = 4, block_size: int, weight_prepacked: int = 0,
) -> Value:  # fmt: skip
    """A times the transpose of B [N, blocks, bytes]: (code - zero point) * scale, the zero point 2^(bits - 1) by default."""
    if bits not in (2, 4, 8) or weight_prepacked:
        raise IRError(f"weights of {bits} bits{', prepacked,' if weight_prepacked else ''} are not supported (2, 4 and 8 bits are)")
    if g_idx is not None:
        raise IRError("g_idx is not supported")
    blocks = dims.ceildiv(K, block_size)
    wide = DType.float32
    codes = cast(_codes(reshape(B, [N, blocks, block_size * bits // 8]), bits, block_size), wide)
    if zero_points is None:
        codes = map_("sub", codes, like(codes, 1 << (bits - 1)))
    else:
        packed = zero_points.dtype is DType.uint8
        zero = _codes(reshape(zero_points, [N, dims.ceildiv(blocks * bits, 8)]), bits, blocks) if packed else zero_points
        codes = map_("sub", codes, reshape(cast(zero, wide), [N, blocks, 1]))
    weights = map_("mul", codes, reshape(cast(scales, wide), [N, blocks, 1]))
    weights = slice_(reshape(weights, [N, blocks * block_size]), 1, 0, K)
    y = matmul(cast(A, wide), swap(weights, 0, 1))
    return cast(y if bias is None else map_("add", y, cast(bias, wide)), A.dtype)
