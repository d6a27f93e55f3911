"""Bits as they lie: another dtype of the same width, and tensors of 2 and 4 bits per element."""

from __future__ import annotations

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Value, dims
from . import broadcast_to, cast, concat, constant, contiguous, index, map_, reshape, slice_, unsqueeze


def bitcast(x: Value, dtype: DType) -> Value:
    """The same bits read as another dtype of the same width."""
    if dtype.bits != x.dtype.bits:
        raise IRError(f"{x.dtype.name} and {dtype.name} differ in width")
    return Value(x.storage, dtype, x.shape, x.offset, x.strides)


def bytes_of(x: Value) -> Value:
    """The bytes of a whole tensor of less than 8 bits per element, first element in the lowest bits."""
    return Value(x.storage, DType.uint8, (dims.ceildiv(x.size * x.dtype.bits, 8),))


def unpack(x: Value) -> Value:
    """One uint8 per element of a view of 2- or 4-bit elements."""
    per = 8 // x.dtype.bits
    held = x.storage.size if x.storage.dtype.bits == 8 else dims.ceildiv(x.storage.size, per)
    packed = Value(x.storage, DType.uint8, (held,))
    shape = (*packed.shape, per)
    shift = cast(map_("mul", index(1, shape), constant(np.int64(x.dtype.bits))), DType.uint8)
    spread = broadcast_to(unsqueeze(packed, [1]), shape)
    codes = map_("bitand", map_("shr", spread, shift), constant(np.uint8((1 << x.dtype.bits) - 1)))
    return codes.view(x.shape, x.offset, x.strides)


def settled(x: Value) -> Value:
    """A value that kernels can read: elements of less than a byte as they lie, a view of such as a tensor of its own."""
    return x if x.dtype.bits not in (2, 4) or (x.offset == 0 and x.contiguous) else pack(unpack(x), x.dtype)


def pack(codes: Value, dtype: DType) -> Value:
    """Elements of 2 or 4 bits from one uint8 each, which hold nothing above them."""
    per = 8 // dtype.bits
    count = dims.ceildiv(codes.size, per)
    flat = reshape(contiguous(codes), [codes.size])
    if not dims.same(codes.size, count * per):
        flat = concat([flat, broadcast_to(constant(np.uint8(0)), [count * per - codes.size])], 0)
    groups = reshape(flat, [count, per])
    packed = slice_(groups, 1, 0, 1)
    for i in range(1, per):
        packed = map_("bitor", packed, map_("shl", slice_(groups, 1, i, 1), constant(np.uint8(i * dtype.bits))))
    return Value(packed.storage, dtype, codes.shape)
