"""Contents of tensors: ordinary numbers, small integers that are exact, and the values at which arithmetic is special."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from ...dtypes import DType

Array = np.ndarray[Any, Any]
Shape = Sequence[int]
HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
WIDE = (np.dtype(np.float32), np.dtype(np.float64))
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5)


@cache
def dtype_of(spelled: str) -> np.dtype[Any] | None:
    """The numpy dtype of a type of a schema, ``tensor(float)``; None for what is no tensor of numbers."""
    if not spelled.startswith("tensor(") or spelled == "tensor(string)":
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(spelled[7:-1].upper())))


@cache
def code_of(dtype: np.dtype[Any]) -> int:
    """The code of ``TensorProto.DataType``."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Floating point, 8 bits and fewer included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def is_exotic(dtype: np.dtype[Any]) -> bool:
    """A type that numpy lacks."""
    return dtype.type.__module__ == "ml_dtypes"


@cache
def epsilon(dtype: np.dtype[Any]) -> float:
    """Distance from 1 to the next number; 0 for integers."""
    if not is_float(dtype):
        return 0.0
    return float(finfo(dtype).eps)


def finfo(dtype: np.dtype[Any]) -> Any:
    """Limits of a floating-point type."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def iinfo(dtype: np.dtype[Any]) -> Any:
    """Limits of an integer type."""
    return ml_dtypes.iinfo(dtype) if is_exotic(dtype) else np.iinfo(dtype)  # type: ignore[no-untyped-call]


@cache
def specials(dtype: np.dtype[Any], mild: bool, finite: bool = False) -> tuple[Any, ...]:
    """The values to sprinkle; mild: without those whose products overflow; finite: without infinity and NaN."""
    if dtype.kind == "b":
        return (False, True)
    if is_float(dtype):
        info = finfo(dtype)
        if dtype.itemsize == 1:
            return (0.0, 1.0, -1.0, float(info.max), float(info.smallest_subnormal))
        few = (*(_SPECIAL[3:] if finite else _SPECIAL), float(info.smallest_subnormal), float(info.tiny))
        return few if mild else (*few, float(info.max), float(info.min), -float(info.smallest_subnormal), 2.5, -1.5)
    if dtype.kind == "c":
        return (0, 1, -1, 1j)
    info = iinfo(dtype)
    return (0, 1, *((info.min, -1) if info.min < 0 else ()), info.max) if not mild else (0, 1, *((-1,) if info.min < 0 else ()))


def numbers(rng: np.random.Generator, dtype: np.dtype[Any], shape: Shape, low: float, high: float) -> Array:
    """Uniform over [low, high]; whole for integers."""
    if is_float(dtype):
        return np.asarray(rng.uniform(low, high, shape)).astype(dtype)
    return np.asarray(rng.integers(int(low), int(high), shape, endpoint=True)).astype(dtype)


def ordinary(rng: np.random.Generator, dtype: np.dtype[Any], shape: Shape, whole: bool) -> Array:
    """What a model sees: normal floats (small integers where ``whole``), integers around 0, truth values."""
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind == "c":
        return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if is_float(dtype):
        raw = rng.integers(-4, 5, shape).astype(np.float64) if whole else rng.standard_normal(shape)
        return np.asarray(np.abs(raw) + 0.5 if dtype.name == "float8_e8m0fnu" else raw).astype(dtype)
    info = iinfo(dtype)
    return np.asarray(rng.integers(max(int(info.min), -9), min(int(info.max), 9), shape, endpoint=True)).astype(dtype)


def sprinkle(rng: np.random.Generator, array: Array, share: float, mild: bool, finite: bool = False) -> Array:
    """Replaces about ``share`` of the elements by special values."""
    found = specials(array.dtype, mild, finite)
    out = array.reshape(-1).copy()
    chosen = rng.random(out.size) < share
    picks = rng.integers(0, len(found), out.size)
    with np.errstate(all="ignore"):
        table = np.array([np.array(v).astype(out.dtype) for v in found], out.dtype)
    out[chosen] = table[picks[chosen]]
    return out.reshape(array.shape)


def shown(array: Array, dtype: DType) -> Array:
    """Bit patterns as the ``ml_dtypes`` type; signed integers of 2 and 4 bits extend the sign."""
    target = np.dtype(helper.tensor_dtype_to_np_dtype(int(dtype)))
    if array.dtype == target:
        return array
    if dtype in (DType.int4, DType.int2):
        half = 1 << (dtype.bits - 1)
        signed: Array = ((array.astype(np.uint8) ^ half).astype(np.int8) - np.int8(half)).astype(target)
        return signed
    if dtype in (DType.uint4, DType.uint2):
        return array.astype(target)
    return array.view(target)
