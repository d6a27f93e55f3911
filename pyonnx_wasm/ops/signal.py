"""Fourier transforms, windows, mel weights."""

from __future__ import annotations

import math

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Value
from ..ir.dims import DimLike
from ..op import op
from ..tensor import (
    HALVES,
    axis_of,
    cast,
    concat,
    constant,
    dims_of,
    fill,
    floats_of,
    index,
    ints_of,
    like,
    literal,
    map_,
    reshape,
    slice_,
    transpose,
    unsqueeze,
)
from .matmul import matmul

LONGEST = 4096  # a table of cosines and sines has this many elements squared


def _window(size: Value, periodic: int, output_datatype: int, terms: tuple[float, ...]) -> Value:
    """sum of (-1)^k terms[k] cos(2 pi k n / length), where a symmetric window's length is one less than its size."""
    count = dims_of(size, "the size")[0]
    n = index(0, [count], DType.float64)
    length = cast(reshape(literal([count if periodic else count - 1]), ()), DType.float64)
    y = like(n, terms[0])
    for k, term in enumerate(terms[1:], 1):
        angle = map_("div", map_("mul", n, like(n, 2 * math.pi * k)), length)
        y = map_("add", y, map_("mul", map_("cos", angle), like(n, term * (-1) ** k)))
    return cast(y, DType(output_datatype))


@op()
def HannWindow(size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Value:
    return _window(size, periodic, output_datatype, (0.5, 0.5))


@op()
def HammingWindow(size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Value:
    return _window(size, periodic, output_datatype, (25 / 46, 21 / 46))


@op()
def BlackmanWindow(size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Value:
    return _window(size, periodic, output_datatype, (0.42, 0.5, 0.08))


def _tables(rows: int, columns: int, length: int, dtype: DType) -> tuple[Value, Value]:
    """cos and sin of 2 pi j k / length, from angles reduced exactly, so that what should be 0 or 1 is."""
    step = np.outer(np.arange(rows), np.arange(columns)) % length
    eighths = 8 * step / length
    cosine, sine = (f(np.pi / 4 * eighths) for f in (np.cos, np.sin))
    cosine[np.isin(eighths, (2, 6))] = 0
    sine[np.isin(eighths, (0, 4))] = 0
    wanted = np.float64 if dtype is DType.float64 else np.float32
    return constant(cosine.astype(wanted)), constant(sine.astype(wanted))


def dft(x: Value, axis: int, length: int | None = None, *, inverse: bool = False, onesided: bool = False) -> Value:
    """The discrete Fourier transform along an axis, as products with tables of cosines and sines.

    Args:
        x: [..., 1] real or [..., 2] real and imaginary parts.
        length: zeros are put behind the signal, or its end is cut, to this length.
        onesided: of a real signal, the first half of the spectrum; inverse, the real signal of such a half.
    """
    if x.dtype in HALVES:
        return cast(dft(cast(x, DType.float32), axis, length, inverse=inverse, onesided=onesided), x.dtype)
    have = _known(x.shape[axis])
    n = length if length is not None else 2 * (have - 1) if inverse and onesided else have
    if not 0 < n <= LONGEST:
        raise IRError(f"a transform of length {n} is not supported (1 to {LONGEST})")
    if not isinstance(parts := x.shape[-1], int):
        x = concat([x, fill([*x.shape[:-1], 2 - parts], 0, x.dtype)], x.rank - 1)  # a real signal's imaginary parts are 0
    if inverse and onesided:
        return _real_inverse(x, axis, n)
    used, count = min(have, n), n // 2 + 1 if onesided else n
    order = [a for a in range(x.rank - 1) if a != axis]
    moved = transpose(slice_(x, axis, 0, used), [*order, x.rank - 1, axis])
    cosine, sine = _tables(used, count, n, x.dtype)
    scale = 1 / n if inverse else 1.0
    real = slice_(moved, moved.rank - 2, 0, 1)
    a, b = matmul(real, cosine, scale), matmul(real, sine, scale if inverse else -scale)
    if x.shape[-1] == 2:
        imaginary = slice_(moved, moved.rank - 2, 1, 1)
        a = map_("sub" if inverse else "add", a, matmul(imaginary, sine, scale))
        b = map_("add", b, matmul(imaginary, cosine, scale))
    y = concat([a, b], a.rank - 2)
    back = [*range(axis), y.rank - 1, *range(axis, y.rank - 2), y.rank - 2]
    return transpose(y, back)


def _real_inverse(x: Value, axis: int, n: int) -> Value:
    """What lies beyond the given half is the mirrored conjugate: its terms count twice, save the first and the middle one."""
    half = n // 2 + 1
    used = min(_known(x.shape[axis]), half)
    order = [a for a in range(x.rank - 1) if a != axis]
    moved = transpose(slice_(x, axis, 0, used), [*order, x.rank - 1, axis])
    cosine, sine = _tables(used, n, n, x.dtype)
    twice = np.full((used, 1), 2 / n)
    twice[0] = 1 / n
    if n % 2 == 0 and used == half:
        twice[-1] = 1 / n
    weights = cast(constant(twice), x.dtype)
    y = matmul(slice_(moved, moved.rank - 2, 0, 1), map_("mul", cosine, weights))
    if x.shape[-1] == 2:
        y = map_("sub", y, matmul(slice_(moved, moved.rank - 2, 1, 1), map_("mul", sine, weights)))
    return transpose(y, [*range(axis), y.rank - 1, *range(axis, y.rank - 2), y.rank - 2])


def _known(size: DimLike) -> int:
    if not isinstance(size, int):
        raise IRError(f"the length of a Fourier transform must be known when the model is compiled, it is {size}")
    return size


@op(since=20)
def DFT(input: Value, dft_length: Value | None = None, axis: Value | None = None, *, inverse: int = 0, onesided: int = 0) -> Value:
    at = -2 if axis is None else ints_of(axis, "the axis")[0]
    length = None if dft_length is None else ints_of(dft_length, "the length")[0]
    return dft(input, axis_of(at, input.rank), length, inverse=bool(inverse), onesided=bool(onesided))


@op("DFT", since=17, until=19)
def DFT_17(input: Value, dft_length: Value | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Value:
    length = None if dft_length is None else ints_of(dft_length, "the length")[0]
    return dft(input, axis_of(axis, input.rank), length, inverse=bool(inverse), onesided=bool(onesided))


@op()
def STFT(signal: Value, frame_step: Value, window: Value | None = None, frame_length: Value | None = None, *, onesided: int = 1) -> Value:
    """Overlapping frames are a view of the signal; each is windowed and transformed."""
    if signal.rank == 2:
        signal = unsqueeze(signal, [2])
    step = ints_of(frame_step, "the frame step")[0]
    whole = signal.shape[1] if window is None else window.shape[0]
    size = _known(whole) if frame_length is None else ints_of(frame_length, "the frame length")[0]
    batch, length, parts = signal.shape
    frames = (length - size) // step + 1
    s = signal.strides
    x = signal.view([batch, frames, size, parts], signal.offset, [s[0], s[1] * step, s[1], s[2]])
    if window is not None:
        x = map_("mul", x, cast(reshape(window, [size, 1]), x.dtype))
    return dft(x, 2, onesided=bool(onesided))


@op()
def MelWeightMatrix(
    num_mel_bins: Value,
    dft_length: Value,
    sample_rate: Value,
    lower_edge_hertz: Value,
    upper_edge_hertz: Value,
    *,
    output_datatype: int = 1,
) -> Value:
    """Triangles over the bins of a spectrum, evenly spaced in mel = 2595 log10(1 + hertz / 700)."""
    numbers = ((num_mel_bins, "num_mel_bins"), (dft_length, "dft_length"), (sample_rate, "sample_rate"))
    bins, length, rate = (ints_of(v, what)[0] for v, what in numbers)
    low, high = (2595 * math.log10(1 + floats_of(v, "an edge")[0] / 700) for v in (lower_edge_hertz, upper_edge_hertz))
    hertz = 700 * (10 ** ((np.arange(bins + 2) * (high - low) / (bins + 2) + low) / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(int)
    weights = np.zeros((length // 2 + 1, bins))
    for i, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        weights[left : centre + 1, i] = np.linspace(0, 1, centre - left + 1) if centre > left else 1
        if right > centre:
            weights[centre:right, i] = 1 - np.arange(right - centre) / (right - centre)
    return cast(constant(weights), DType(output_datatype))
