"""Fourier transforms, windows, mel weights."""

from __future__ import annotations

import math

import numpy as np

from ..dtypes import DType
from ..ir import Graph, IRError, Value, dims, row_major
from ..ir.dims import Dim, DimLike
from ..registry import op
from ..tensor import (
    HALVES,
    around,
    axes_of,
    axis_of,
    cast,
    concat,
    constant,
    contiguous,
    dims_of,
    fill,
    index,
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


def _tables(rows: DimLike, columns: DimLike, length: DimLike, dtype: DType) -> tuple[Value, Value]:
    """cos and sin of 2 pi j k / length, from angles reduced exactly, so that what should be 0 or 1 is."""
    wide = DType.float64
    if isinstance(rows, int) and isinstance(columns, int) and isinstance(length, int):
        step = constant(np.outer(np.arange(rows, dtype=np.int64), np.arange(columns, dtype=np.int64)) % length)
    else:
        product = map_("mul", index(0, [rows, columns]), index(1, [rows, columns]))
        step = map_("mod", product, literal([dims.dmax(length, 1)]))
    eighths = map_("div", cast(map_("mul", step, constant(np.int64(8))), wide), cast(literal([length]), wide))
    angle = map_("mul", eighths, constant(np.float64(np.pi / 4)))

    def exact(name: str, zeros: tuple[int, int]) -> Value:
        hit = map_("or", *[map_("eq", eighths, constant(np.float64(z))) for z in zeros])
        return cast(map_("where", hit, constant(np.float64(0)), map_(name, angle)), wide if dtype is wide else DType.float32)

    return exact("cos", (2, 6)), exact("sin", (0, 4))


def dft(x: Value, axis: DimLike, length: DimLike | None = None, *, inverse: bool = False, onesided: bool = False) -> Value:
    """The discrete Fourier transform along an axis, as products with tables of cosines and sines.

    Args:
        x: [..., 1] real or [..., 2] real and imaginary parts.
        length: zeros are put behind the signal, or its end is cut, to this length.
        onesided: of a real signal, the first half of the spectrum; inverse, the real signal of such a half.
    """
    if x.dtype in HALVES:
        return cast(dft(cast(x, DType.float32), axis, length, inverse=inverse, onesided=onesided), x.dtype)
    if not isinstance(parts := x.shape[-1], int):
        x, parts = concat([x, fill([*x.shape[:-1], 2 - parts], 0, x.dtype)], x.rank - 1), 2  # a real signal's imaginary parts are 0
    rank = x.rank
    before, have, behind = around(x.shape[:-1], axis)
    flat = contiguous(x)
    flat = flat.view([before, have, behind, parts], flat.offset, row_major([before, have, behind, parts]))
    n = length if length is not None else 2 * (have - 1) if inverse and onesided else have
    if isinstance(n, int) and not 0 < n <= LONGEST:
        raise IRError(f"a transform of length {n} is not supported (1 to {LONGEST})")
    if isinstance(n, Dim):
        Graph.current().check(dims.ge(n, 1) * dims.le(n, LONGEST), f"a transform of length {n} is not supported (1 to {LONGEST})")
    y = _real_inverse(flat, n) if inverse and onesided else _transform(flat, n, inverse, n // 2 + 1 if onesided else n)
    shape = [dims.select(dims.eq(axis, a), y.shape[1], s) for a, s in enumerate(x.shape[: rank - 1])] + [y.shape[-1]]
    y = contiguous(y)
    return y.view(shape, y.offset, row_major(shape))


def _transform(x: Value, n: DimLike, inverse: bool, count: DimLike) -> Value:
    """Over the second of four axes; the last holds the parts."""
    used = dims.dmin(x.shape[1], n)
    moved = transpose(slice_(x, 1, 0, used), [0, 2, 3, 1])
    cosine, sine = _tables(used, count, n, x.dtype)
    if inverse:
        whole = cast(literal([n]), cosine.dtype)
        cosine, sine = map_("div", cosine, whole), map_("div", sine, whole)
    real = slice_(moved, 2, 0, 1)
    a, b = matmul(real, cosine), matmul(real, sine, 1.0 if inverse else -1.0)
    if x.shape[-1] == 2:
        imaginary = slice_(moved, 2, 1, 1)
        a = map_("sub" if inverse else "add", a, matmul(imaginary, sine))
        b = map_("add", b, matmul(imaginary, cosine))
    return transpose(concat([a, b], 2), [0, 3, 1, 2])


def _real_inverse(x: Value, n: DimLike) -> Value:
    """What lies beyond the given half is the mirrored conjugate: its terms count twice, save the first and the middle one."""
    half = n // 2 + 1
    used = dims.dmin(x.shape[1], half)
    moved = transpose(slice_(x, 1, 0, used), [0, 2, 3, 1])
    cosine, sine = _tables(used, n, n, x.dtype)
    at = index(0, [used, 1])
    once = map_("or", map_("eq", at, constant(np.int64(0))), map_("eq", map_("mul", at, constant(np.int64(2))), literal([n])))
    count = map_("where", once, constant(np.float64(1)), constant(np.float64(2)))
    weights = cast(map_("div", count, cast(literal([n]), DType.float64)), cosine.dtype)
    y = matmul(slice_(moved, 2, 0, 1), map_("mul", cosine, weights))
    if x.shape[-1] == 2:
        y = map_("sub", y, matmul(slice_(moved, 2, 1, 1), map_("mul", sine, weights)))
    return transpose(y, [0, 3, 1, 2])


@op(since=20)
def DFT(input: Value, dft_length: Value | None = None, axis: Value | None = None, *, inverse: int = 0, onesided: int = 0) -> Value:
    at: DimLike = input.rank - 2
    if axis is not None:
        (at,) = axes_of(axis, input.rank, "the axis")
    length = None if dft_length is None else dims_of(dft_length, "the length")[0]
    return dft(input, at, length, inverse=bool(inverse), onesided=bool(onesided))


@op("DFT", since=17, until=19)
def DFT_17(input: Value, dft_length: Value | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Value:
    length = None if dft_length is None else dims_of(dft_length, "the length")[0]
    return dft(input, axis_of(axis, input.rank), length, inverse=bool(inverse), onesided=bool(onesided))


@op()
def STFT(signal: Value, frame_step: Value, window: Value | None = None, frame_length: Value | None = None, *, onesided: int = 1) -> Value:
    """Overlapping frames are a view of the signal; each is windowed and transformed."""
    if signal.rank == 2:
        signal = unsqueeze(signal, [2])
    step = dims_of(frame_step, "the frame step")[0]
    size = signal.shape[1] if window is None else window.shape[0]
    if frame_length is not None:
        (size,) = dims_of(frame_length, "the frame length")
    batch, length, parts = signal.shape
    graph = Graph.current()
    graph.check(dims.ge(step, 1), f"the frame step {step} is not positive")
    graph.check(dims.ge(size, 1) * dims.le(size, length), f"frames of {size} do not fit into a signal of {length}")
    frames = (length - size) // dims.dmax(step, 1) + 1
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
    bins, length = dims_of(num_mel_bins, "num_mel_bins")[0], dims_of(dft_length, "dft_length")[0]
    wide = DType.float64
    number = [reshape(cast(v, wide), ()) for v in (sample_rate, lower_edge_hertz, upper_edge_hertz)]
    rate = number[0]

    def times(x: Value, factor: float) -> Value:
        return map_("mul", x, constant(np.float64(factor)))

    def mel(hertz: Value) -> Value:
        return times(map_("log", map_("add", times(hertz, 1 / 700), constant(np.float64(1)))), 2595 / math.log(10))

    low, high = mel(number[1]), mel(number[2])
    points = cast(reshape(literal([bins + 2]), ()), wide)
    place = map_("add", map_("div", map_("mul", index(0, [bins + 2], wide), map_("sub", high, low)), points), low)
    hertz = times(map_("sub", map_("exp", times(place, math.log(10) / 2595)), constant(np.float64(1))), 700)
    edges = map_("floor", map_("div", map_("mul", cast(reshape(literal([length + 1]), ()), wide), hertz), rate))
    left, centre, right = (reshape(slice_(edges, 0, k, bins), [1, bins]) for k in range(3))
    at = index(0, [length // 2 + 1, bins], wide)
    zero, one = constant(np.float64(0)), constant(np.float64(1))
    rise = map_("sub", centre, left)
    flat = map_("eq", rise, zero)
    up = map_("where", flat, one, map_("div", map_("sub", at, left), map_("where", flat, one, rise)))
    up = map_("where", map_("and", map_("le", left, at), map_("le", at, centre)), up, zero)
    fall = map_("sub", right, centre)
    down = map_("sub", one, map_("div", map_("sub", at, centre), map_("where", map_("eq", fall, zero), one, fall)))
    weights = map_("where", map_("and", map_("le", centre, at), map_("lt", at, right)), down, up)
    return cast(weights, DType(output_datatype))
