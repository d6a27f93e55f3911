"""Resize of opset 11 and later in float64, axis by axis, as its definition has it; onnx's reference evaluator computes places in float32.

Places within 1e-6 of a tie are ties, places as near to a bound are on it: scales and regions come as float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from .values import Array

TIE = 1e-6


def resized(x: Array, roi: Array | None, scales: Array | None, sizes: Array | None, given: dict[str, Any]) -> Array:
    """What is nearest in the dtype of ``x``, else float64.

    Args:
        given: attributes, defaults included.
    Raises:
        NotImplementedError: sizes that keep the aspect, and elements of nothing.
    """
    axes = [a % x.ndim for a in given["axes"]] if given["axes"] is not None else list(range(x.ndim))
    crop = given["coordinate_transformation_mode"] == "tf_crop_and_resize"
    region = np.asarray(roi, np.float32) if crop and roi is not None else np.repeat(np.array([0, 1], np.float32), len(axes))
    nearest = given["mode"] == "nearest"
    y, outside = x if nearest else x.astype(np.float64), np.zeros((1,) * x.ndim, bool)
    for i, axis in enumerate(axes):
        n, (begin, end) = x.shape[axis], (region[i], region[i + len(axes)])
        if sizes is not None and sizes.size:
            if given["keep_aspect_ratio_policy"] not in (None, "stretch"):
                raise NotImplementedError("sizes that keep the aspect")
            m = int(sizes[i])
            scale = m / n if n else 1.0
        else:
            assert scales is not None
            scale = float(scales[i])
            m = int(np.floor(np.float32(n) * ((end - begin) * np.float32(scale))))
        if m and not n:
            raise NotImplementedError("elements of nothing")
        at = _places(given["coordinate_transformation_mode"], n, m, scale, float(begin), float(end))
        if nearest:
            y = np.take(y, np.clip(_nearest(at, given["nearest_mode"]), 0, max(n - 1, 0)), axis)
        else:
            y = np.moveaxis(np.tensordot(_weights(at, n, scale, given), y, (1, axis)), 0, axis)
        if crop:
            beyond = (at < -TIE / 2) | (at > n - 1 + TIE / 2)
            outside = outside | beyond.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    return np.where(outside, numpy_helper.saturate_cast(np.array(given["extrapolation_value"]), y.dtype), y) if crop else y


def _places(mode: str, n: int, m: int, scale: float, begin: float, end: float) -> Array:
    """Where the elements of an axis lie in the input."""
    i, length = np.arange(m, dtype=np.float64), scale * n
    length = round(length) if abs(length - round(length)) < TIE * length else length
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (n - 1) / (length - 1) if length != 1 else i * 0
    if mode == "tf_crop_and_resize":
        return (begin + i * (end - begin) / (m - 1)) * (n - 1) if m > 1 else i * 0 + 0.5 * (begin + end) * (n - 1)
    half = (i + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return half if m > 1 else i * 0
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - m / length) + half
    return (i + 0.5) / scale if mode == "tf_half_pixel_for_nn" else half


def _weights(at: Array, n: int, scale: float, given: dict[str, Any]) -> Array:
    """[elements, n]: what each takes of the input."""
    matrix = np.zeros((len(at), n))
    rows = np.arange(len(at))
    squeeze = min(scale, 1.0) if given["antialias"] and len(at) else 1.0
    taps = int(np.ceil((2 if given["mode"] == "cubic" else 1) / squeeze))
    for offset in range(-taps - 1, taps + 2):
        tap = np.floor(at).astype(np.int64) + offset
        w = _filter((tap - at) * squeeze, given["mode"], given["cubic_coeff_a"])
        if given["exclude_outside"]:
            w = np.where((tap >= 0) & (tap < n), w, 0)
        np.add.at(matrix, (rows, np.clip(tap, 0, n - 1)), w)
    total = matrix.sum(axis=1, keepdims=True)
    return matrix / np.where(total == 0, 1, total) if given["exclude_outside"] or given["antialias"] else matrix


def _nearest(at: Array, mode: str) -> Array:
    tie = np.rint(2 * at) / 2
    at = np.where(np.abs(at - tie) < TIE * np.maximum(1, np.abs(at)), tie, at)
    if mode.startswith("round"):
        at = np.ceil(at - 0.5) if mode == "round_prefer_floor" else np.floor(at + 0.5)
    return (np.floor(at) if mode == "floor" else np.ceil(at)).astype(np.int64)


def _filter(t: Array, mode: str, a: float) -> Array:
    t = np.abs(t)
    if mode == "linear":
        return np.asarray(np.maximum(1 - t, 0))
    near, far = ((a + 2) * t - (a + 3)) * t * t + 1, ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.asarray(np.where(t <= 1, near, np.where(t < 2, far, 0)))
