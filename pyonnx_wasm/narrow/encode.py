"""Arrays as halves, or as codes in blocks along the last axis, with the least squared error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import DType
from ..passes.narrow import Small

BLOCK = 32
CHUNK = 1 << 20  # weights at a time
SCALES = np.linspace(0.78, 1.08, 9, dtype=np.float32)  # tried, of the one that fits the largest weight of a block
SPANS = np.linspace(0.72, 1.0, 6, dtype=np.float32)
WORTH = 0.9  # of the squared error, for zero points to be stored
_SMALLEST, _LARGEST = 2.0**-17, 6e4  # of scales that are held as float16

Array = np.ndarray[Any, Any]
Fit = tuple[Array, Array, Array | None, Array]  # codes, scales, zero points and squared errors by block


def encode(values: Array, form: str) -> Small | None:
    """float32 [n, k] in one of :data:`FORMS`; None where it holds what the form does not."""
    return FORMS[form](values) if np.isfinite(values).all() else None


def decode(small: Small, k: int) -> Array:
    """float32 [n, k]: what a product with these weights multiplies by."""
    if small.bits == 16:
        halves = small.codes
        return halves.astype(np.float32) if small.dtype is DType.float16 else (halves.astype(np.uint32) << 16).view(np.float32)
    n = len(small.codes)
    shifts = np.arange(0, 8, small.bits, dtype=np.uint8)
    codes = (small.codes[..., None] >> shifts & ((1 << small.bits) - 1)).reshape(n, -1, small.block).astype(np.float32)
    assert small.scale is not None
    zero = np.float32(1 << small.bits - 1) if small.shift is None else small.shift.astype(np.float32)[..., None]
    return np.asarray(((codes - zero) * small.scale.astype(np.float32)[..., None]).reshape(n, -1)[:, :k])


def _float16(values: Array) -> Small | None:
    if np.abs(values).max(initial=0) > 65504:
        return None
    return Small(values.astype(np.float16), None, None, 16, 16, DType.float16)


def _bfloat16(values: Array) -> Small | None:
    bits = np.ascontiguousarray(values).view(np.uint32)
    halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    if (halves & 0x7F80 == 0x7F80).any():
        return None
    return Small(halves, None, None, 16, 16, DType.bfloat16)


def _int8(values: Array) -> Small:
    def fit(w: Array, half: bool) -> Fit:
        scale = _held(np.abs(w).max(axis=-1) / 127, half)
        codes = _codes(w, scale, 128, 255)
        return codes, scale, None, _error(w, codes, scale, 128)

    return _blocks(values, 8, fit)[0]


def _int4(values: Array) -> Small:
    (even, off), (shifted, off_shifted) = (_blocks(values, 4, fit) for fit in (_symmetric, _asymmetric))
    return shifted if off_shifted < WORTH * off else even


def _symmetric(w: Array, half: bool) -> Fit:
    largest = np.take_along_axis(w, np.abs(w).argmax(axis=-1)[..., None], -1)[..., 0]
    tried = [largest * (t / divisor) for divisor in (-8, 7) for t in SCALES]
    return _least(w, [(s, np.full_like(s, 8)) for s in tried], half, refit=True)


def _asymmetric(w: Array, half: bool) -> Fit:
    low, high = np.minimum(w.min(axis=-1), 0), np.maximum(w.max(axis=-1), 0)
    tried = []
    for t in SPANS:
        scale = _held((high - low) * (t / 15), half)
        tried.append((scale, np.clip(np.rint(-low * t * _inverse(scale)), 0, 15)))
    return _least(w, tried, half, refit=False)


def _least(w: Array, tried: list[tuple[Array, Array]], half: bool, refit: bool) -> Fit:
    """The best of some scales and zero points for each block."""
    best: tuple[Array, Array, Array, Array] | None = None
    for scale, zero in tried:
        best = _better(w, best, _held(scale, half), zero)
    assert best is not None
    if refit:
        q = best[0].astype(np.float32) - best[2][..., None]
        norm = np.square(q).sum(axis=-1)
        best = _better(w, best, _held(np.where(norm > 0, (w * q).sum(axis=-1) / np.maximum(norm, 1), best[1]), half), best[2])
    return best[0], best[1], None if refit else best[2].astype(np.uint8), best[3]


def _better(w: Array, best: tuple[Array, Array, Array, Array] | None, scale: Array, zero: Array) -> tuple[Array, Array, Array, Array]:
    codes = _codes(w, scale, zero[..., None], 15)
    error = _error(w, codes, scale, zero[..., None])
    if best is None:
        return codes, scale, zero, error
    less = error < best[3]
    return (
        np.where(less[..., None], codes, best[0]), np.where(less, scale, best[1]), np.where(less, zero, best[2]),
        np.where(less, error, best[3]),
    )  # fmt: skip


def _held(scale: Array, half: bool) -> Array:
    """A scale as it will be read."""
    return scale.astype(np.float16).astype(np.float32) if half else scale.astype(np.float32)


def _inverse(scale: Array) -> Array:
    with np.errstate(divide="ignore", over="ignore"):
        found = 1 / scale
    return np.asarray(np.where(np.isfinite(found), found, 0))


def _codes(w: Array, scale: Array, zero: Array | float, most: int) -> Array:
    return np.asarray(np.clip(np.rint(w * _inverse(scale)[..., None]) + zero, 0, most), np.uint8)


def _error(w: Array, codes: Array, scale: Array, zero: Array | float) -> Array:
    return np.asarray(np.square((codes - np.float32(zero)) * scale[..., None] - w).sum(axis=-1, dtype=np.float64))


def _blocks(values: Array, bits: int, fit: Callable[[Array, bool], Fit]) -> tuple[Small, float]:
    n, k = values.shape
    count = -(-k // BLOCK)
    most = np.abs(values).max(initial=0)
    half = bool(most < _LARGEST and _spread(values, count) > _SMALLEST * 127)
    codes = np.empty((n, count * BLOCK * bits // 8), np.uint8)
    scales = np.empty((n, count), np.float16 if half else np.float32)
    shifts: Array | None = None
    unit = np.float32(1 if half or not most else 2.0 ** min(max(math.floor(math.log2(most)), -126), 126))  # squares stay in range
    step, total = max(1, CHUNK // max(1, k)), 0.0
    for at in range(0, n, step):
        some = values[at : at + step].astype(np.float32)
        padded = np.zeros((len(some), count * BLOCK), np.float32)
        padded[:, :k] = some / unit
        found, scale, shift, off = fit(padded.reshape(len(some), count, BLOCK), half)
        total += float(off.sum())
        flat = found.reshape(len(some), -1)
        packed = flat[:, 0 :: 8 // bits].copy()
        for i in range(1, 8 // bits):
            packed |= flat[:, i :: 8 // bits] << np.uint8(i * bits)
        codes[at : at + step], scales[at : at + step] = packed, scale * unit
        if shift is not None:
            shifts = np.empty((n, count), np.uint8) if shifts is None else shifts
            shifts[at : at + step] = shift
    return Small(codes, scales, shifts, bits, BLOCK, DType.uint8), total


def _spread(values: Array, count: int) -> float:
    """The largest weight of the block where that is smallest, blocks of zeros aside."""
    least = np.inf
    for i in range(count):
        largest = np.abs(values[:, i * BLOCK : (i + 1) * BLOCK]).max(axis=1)
        least = min(least, float(largest[largest > 0].min(initial=np.inf)))
    return least


FORMS: dict[str, Callable[[Array], Small | None]] = {"f16": _float16, "bf16": _bfloat16, "int8": _int8, "q4": _int4}
