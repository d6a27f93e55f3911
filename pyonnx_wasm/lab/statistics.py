"""Statistics of a tensor, computed piece by piece over its packed bytes, so that a mapped weight of any size is never loaded whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType, to_numpy
from ..onnxfile.tensor import unpack

CHUNK = 1 << 20  # elements, a multiple of what fills whole bytes at any width
BINS = 48
HEAD = 12

Floats = npt.NDArray[np.float64]

# exponent bits, mantissa bits, bias; whether the highest exponent holds infinity and NaN, and which codes are NaN besides
_NARROW: dict[DType, tuple[int, int, int, bool, tuple[int, ...]]] = {
    DType.float8e4m3fn: (4, 3, 7, False, (0x7F, 0xFF)),
    DType.float8e4m3fnuz: (4, 3, 8, False, (0x80,)),
    DType.float8e5m2: (5, 2, 15, True, ()),
    DType.float8e5m2fnuz: (5, 2, 16, False, (0x80,)),
    DType.float4e2m1: (2, 1, 1, False, ()),
    DType.float6e2m3: (2, 3, 1, False, ()),
    DType.float6e3m2: (3, 2, 3, False, ()),
}


@cache
def _table(dtype: DType) -> Floats:
    """The value of every code of a float of at most 8 bits."""
    if dtype is DType.float8e8m0:
        return np.append(np.exp2(np.arange(255.0) - 127), np.nan)
    exponent_bits, mantissa_bits, bias, specials, nans = _NARROW[dtype]
    codes = np.arange(1 << (1 + exponent_bits + mantissa_bits))
    mantissa = codes & ((1 << mantissa_bits) - 1)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    values = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * np.exp2(exponent - bias))
    if specials:
        values = np.where(exponent == exponent.max(), np.where(mantissa == 0, np.inf, np.nan), values)
    values = np.where(codes >> (exponent_bits + mantissa_bits), -values, values)
    values[list(nans)] = np.nan
    return values


@np.errstate(invalid="ignore")  # signalling NaNs
def decode(dtype: DType, packed: npt.NDArray[np.uint8], count: int) -> Floats:
    """``count`` elements as float64, from their packed little-endian bytes."""
    codes = unpack(packed, dtype.bits, count) if dtype.bits < 8 else packed
    if dtype in _NARROW or dtype is DType.float8e8m0:
        return _table(dtype)[codes]
    if dtype is DType.bfloat16:
        return (codes.view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype.bits < 8:
        values = codes.astype(np.float64)
        return np.where(values >= 1 << (dtype.bits - 1), values - (1 << dtype.bits), values) if dtype.is_signed else values
    return codes.view(to_numpy(dtype).newbyteorder("<")).astype(np.float64)


def of_bytes(dtype: DType, packed: npt.NDArray[np.uint8], count: int) -> dict[str, Any]:
    """Statistics of ``count`` elements in their packed form; see :func:`of_chunks`.

    Raises:
        ValueError: strings and complex numbers have none.
    """
    if dtype is DType.string or dtype.name.startswith("complex"):
        raise ValueError(f"a tensor of {dtype.name} has no statistics")

    def chunks() -> Iterator[Floats]:
        for start in range(0, count, CHUNK):
            n = min(CHUNK, count - start)
            yield decode(dtype, packed[dtype.nbytes(start) : dtype.nbytes(start + n)], n)

    return of_chunks(chunks, count)


def of_strings(array: npt.NDArray[Any]) -> dict[str, Any]:
    """The same of strings, which have a head and no numbers."""
    blank = of_chunks(lambda: iter(()), array.size)
    return {**blank, "head": [str(text)[:80] for text in array.reshape(-1)[:HEAD]]}


def of_array(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Statistics of a numpy array."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return of_chunks(partial(_slices, flat), flat.size)


def _slices(flat: npt.NDArray[Any]) -> Iterator[Floats]:
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK].astype(np.float64)


@np.errstate(over="ignore", invalid="ignore")
def of_chunks(chunks: Callable[[], Iterator[Floats]], count: int) -> dict[str, Any]:
    """``min``, ``max``, ``mean``, ``std``, ``histogram`` of the finite elements; counts ``nan``, ``inf``, ``zero``; the ``head``."""
    low, high, total, finite, nan, inf, zero = math.inf, -math.inf, 0.0, 0, 0, 0, 0
    head: list[float | str] = []
    for chunk in chunks():
        if len(head) < HEAD:
            head += [v if math.isfinite(v) else str(v) for v in chunk[: HEAD - len(head)].tolist()]
        nan += int(np.count_nonzero(np.isnan(chunk)))
        inf += int(np.count_nonzero(np.isinf(chunk)))
        zero += int(np.count_nonzero(chunk == 0))
        kept = chunk[np.isfinite(chunk)]
        if kept.size:
            low, high = min(low, float(kept.min())), max(high, float(kept.max()))
            total += float(kept.sum())
            finite += kept.size
    found: dict[str, Any] = {"count": count, "nan": nan, "inf": inf, "zero": zero, "head": head}
    if not finite:
        return {**found, "min": None, "max": None, "mean": None, "std": None, "histogram": []}
    mean, squares = total / finite, 0.0
    bins = np.zeros(BINS, np.int64)
    half = high / 2 - low / 2  # high - low may overflow
    for chunk in chunks():
        kept = chunk[np.isfinite(chunk)]
        squares += float(np.square(kept - mean).sum())
        place = np.zeros(kept.size, np.int64) if not half else np.minimum((kept / 2 - low / 2) / half * BINS, BINS - 1).astype(np.int64)
        bins += np.bincount(place, minlength=BINS)
    std = math.sqrt(squares / finite)
    shown = {"min": low, "max": high, "mean": mean, "std": std}
    return {**found, **{k: v if math.isfinite(v) else None for k, v in shown.items()}, "histogram": bins.tolist()}
