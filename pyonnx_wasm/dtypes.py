"""Element types, numbered as in ONNX ``TensorProto.DataType`` everywhere: in Python, in Programs, in C++ and in JavaScript."""

from __future__ import annotations

import builtins
import enum

import numpy as np


class DType(enum.IntEnum):
    """An element type. The value is the code of ``TensorProto.DataType`` (onnx.proto, IR version 14).

    Attributes:
        bits: per element; 0 for strings.
        is_float: any floating-point type.
        is_int: signed or unsigned integer (bool is none).
        is_signed: an integer that can be negative.
        short: the IR text's spelling: ``f32``, ``i64``, ``b8``.
    """

    bits: int
    is_float: builtins.bool
    is_int: builtins.bool
    is_signed: builtins.bool
    short: str
    __hash__ = int.__hash__

    float32 = 1
    uint8 = 2
    int8 = 3
    uint16 = 4
    int16 = 5
    int32 = 6
    int64 = 7
    string = 8
    bool = 9
    float16 = 10
    float64 = 11
    uint32 = 12
    uint64 = 13
    complex64 = 14
    complex128 = 15
    bfloat16 = 16
    float8e4m3fn = 17
    float8e4m3fnuz = 18
    float8e5m2 = 19
    float8e5m2fnuz = 20
    uint4 = 21
    int4 = 22
    float4e2m1 = 23
    float8e8m0 = 24
    uint2 = 25
    int2 = 26
    float6e2m3 = 27
    float6e3m2 = 28

    def nbytes(self, count: int) -> int:
        """Bytes that ``count`` packed elements occupy."""
        return (count * self.bits + 7) // 8


_BITS = {
    DType.float32: 32, DType.uint8: 8, DType.int8: 8, DType.uint16: 16, DType.int16: 16, DType.int32: 32, DType.int64: 64,
    DType.string: 0, DType.bool: 8, DType.float16: 16, DType.float64: 64, DType.uint32: 32, DType.uint64: 64,
    DType.complex64: 64, DType.complex128: 128, DType.bfloat16: 16, DType.float8e4m3fn: 8, DType.float8e4m3fnuz: 8,
    DType.float8e5m2: 8, DType.float8e5m2fnuz: 8, DType.uint4: 4, DType.int4: 4, DType.float4e2m1: 4, DType.float8e8m0: 8,
    DType.uint2: 2, DType.int2: 2, DType.float6e2m3: 6, DType.float6e3m2: 6,
}  # fmt: skip
_SHORT = {
    d: {"float": "f", "uint": "u", "int": "i", "bfloat": "bf", "complex": "c", "string": "str", "bool": "b8"}[d.name.rstrip("0123456789")]
    + d.name.lstrip("abcdefghijklmnopqrstuvwxyz")
    if "e" not in d.name[5:] or d.name in ("string",)
    else d.name.replace("float", "f", 1)
    for d in DType
}
_SHORT[DType.string], _SHORT[DType.bool], _SHORT[DType.bfloat16] = "str", "b8", "bf16"
for _d in DType:
    _d.bits, _d.short = _BITS[_d], _SHORT[_d]
    _d.is_float, _d.is_int = "float" in _d.name, "int" in _d.name
    _d.is_signed = _d.is_int and not _d.name.startswith("u")
_NUMPY = {
    DType.float32: np.float32, DType.uint8: np.uint8, DType.int8: np.int8, DType.uint16: np.uint16, DType.int16: np.int16,
    DType.int32: np.int32, DType.int64: np.int64, DType.bool: np.bool_, DType.float16: np.float16, DType.float64: np.float64,
    DType.uint32: np.uint32, DType.uint64: np.uint64, DType.complex64: np.complex64, DType.complex128: np.complex128,
}  # fmt: skip
_FROM_NUMPY = {np.dtype(v): k for k, v in _NUMPY.items()}


def to_numpy(dtype: DType) -> np.dtype:
    """The numpy dtype; types that numpy lacks travel as their bit patterns (``uint8``, ``uint16``)."""
    known = _NUMPY.get(dtype)
    if known is not None:
        return np.dtype(known)
    return np.dtype(np.uint16 if dtype.bits == 16 else np.uint8)


def from_numpy(dtype: np.dtype) -> DType:
    """The element type of a numpy dtype; ``ml_dtypes`` names (``bfloat16``, ``float8_e4m3fn``, ...) are understood."""
    known = _FROM_NUMPY.get(np.dtype(dtype).newbyteorder("="))
    if known is not None:
        return known
    name = np.dtype(dtype).name.replace("_", "")
    for spelling in (name, name.removesuffix("fn"), name.removesuffix("fnu")):
        if spelling in DType.__members__:
            return DType[spelling]
    raise TypeError(f"numpy dtype {dtype} has no ONNX counterpart")
