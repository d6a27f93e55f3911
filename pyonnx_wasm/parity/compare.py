"""How far two tensors lie apart, and whether that is too far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType

SAMPLES = 1500
BINS = 40
COARSER = {DType.float16: 10.0, DType.bfloat16: 40.0}  # tolerances of f32 times this


@dataclass(frozen=True)
class Tolerance:
    """Floats may differ by ``atol * scale + rtol * |expected|``, ``scale`` being the largest finite ``|expected|`` of the tensor.

    The figures are those of float32 and float64; float16 takes 10 and bfloat16 40 times as much. All other types are exact.
    """

    rtol: float = 1e-3
    atol: float = 1e-4


@dataclass(frozen=True)
class Difference:
    """Of one tensor against the one expected.

    Attributes:
        excess: the worst error in units of what is tolerated; above 1 the tensors diverge. Infinite where one side alone is NaN,
            an infinity is missing, or integers differ.
        max_abs, max_rel: largest errors among finite elements.
        max_ulp: largest error in steps between neighbouring floats; None for types without such.
        wrong: how many of ``count`` elements exceed the tolerance.
        at: index of the worst element, () for scalars, None where all agree exactly or nothing could be compared.
        got, expected: that element.
        failure: why there is nothing to compare: an error, another shape, another type.
    """

    excess: float
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: int | None = None
    wrong: int = 0
    count: int = 0
    at: tuple[int, ...] | None = None
    got: float | int | None = None
    expected: float | int | None = None
    failure: str = ""

    @property
    def agrees(self) -> bool:
        return self.excess <= 1


def failed(text: str) -> Difference:
    """For a tensor that was not computed."""
    return Difference(math.inf, failure=text)


def difference(got: np.ndarray, expected: np.ndarray, dtype: DType, tolerance: Tolerance) -> Difference:
    """Compares two arrays of one dtype; bfloat16 comes as its bit patterns, as do the smaller types."""
    if got.shape != expected.shape:
        return failed(f"shape {list(got.shape)}, expected {list(expected.shape)}")
    if got.dtype != expected.dtype:
        return failed(f"dtype {got.dtype}, expected {expected.dtype}")
    if not got.size:
        return Difference(0.0)
    ulps = _ulps(got, expected) if got.dtype.kind == "f" or dtype is DType.bfloat16 else None
    a, b = values(got, dtype), values(expected, dtype)
    with np.errstate(all="ignore"):
        same = (a == b) | ((a != a) & (b != b))
        finite = np.isfinite(a) & np.isfinite(b)
        error = np.where(same, 0.0, np.where(finite, np.abs(a - b), math.inf))
        if got.dtype.kind == "f" or dtype is DType.bfloat16:
            factor = COARSER.get(dtype, 1.0)
            scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) or 1.0
            excess = error / (factor * (tolerance.atol * scale + tolerance.rtol * np.where(np.isfinite(b), np.abs(b), 0.0)))
        else:
            excess = np.where(got == expected, 0.0, math.inf)
        relative = np.where(same | ~finite, 0.0, error / np.maximum(np.abs(b), np.finfo(np.float64).tiny))
    # Of several that are infinitely wrong, the one furthest away.
    worst = int(np.argmax(np.where(np.isinf(excess), np.finfo(np.float64).max, excess).reshape(-1)))
    at = tuple(int(i) for i in np.unravel_index(worst, got.shape))
    exact = not excess.any()
    return Difference(
        float(excess.reshape(-1)[worst]),
        float(np.where(finite, error, 0.0).max()),
        float(relative.max()),
        None if ulps is None else int(np.where(finite, ulps, 0).max()),
        int((excess > 1).sum()),
        got.size,
        None if exact else at,
        None if exact else _plain(a[at], got[at], dtype),
        None if exact else _plain(b[at], expected[at], dtype),
    )


def values(array: np.ndarray, dtype: DType) -> np.ndarray:
    """As float64: of bfloat16 what its patterns stand for."""
    if dtype is DType.bfloat16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(array, np.float64)


def _plain(value: Any, raw: Any, dtype: DType) -> float | int:
    return float(value) if dtype.is_float else int(raw)


def _ulps(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Steps between floats, counted along the number line."""
    unsigned = np.dtype(f"u{got.itemsize}")
    sign = unsigned.type(1 << (8 * got.itemsize - 1))

    def rank(array: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(array).reshape(-1).view(unsigned).reshape(array.shape)
        ranks: np.ndarray = np.where(bits & sign, ~bits + unsigned.type(1), bits | sign).astype(np.uint64)
        return ranks

    a, b = rank(got), rank(expected)
    steps: np.ndarray = np.where(a > b, a - b, b - a)
    return steps


def sample(got: np.ndarray, expected: np.ndarray, dtype: DType, tolerance: Tolerance) -> dict[str, Any]:
    """What plots of one tensor need: pairs of values, among them the worst, and a histogram of log10(error / scale)."""
    a, b = values(got, dtype).reshape(-1), values(expected, dtype).reshape(-1)
    keep = np.isfinite(a) & np.isfinite(b)
    a, b = a[keep], b[keep]
    error = np.abs(a - b)
    worst = np.argsort(error)[::-1][: SAMPLES // 5]
    chosen = np.unique(np.concatenate([worst, np.linspace(0, len(a) - 1, min(len(a), SAMPLES)).astype(np.int64)])) if len(a) else worst
    scale = float(np.abs(b).max(initial=0.0)) or 1.0
    logs = np.log10(np.maximum(error / scale, 1e-12))
    counts, edges = np.histogram(logs, bins=BINS, range=(-12, max(1.0, float(logs.max(initial=0.0)))))
    return {
        "expected": [float(f"{v:.6g}") for v in b[chosen]],
        "got": [float(f"{v:.6g}") for v in a[chosen]],
        "counts": counts.tolist(),
        "edges": [round(float(e), 4) for e in edges],
        "tolerated": math.log10(tolerance.atol * COARSER.get(dtype, 1.0)),
    }
