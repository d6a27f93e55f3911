"""Sampling grids and what folds windows back into images."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..dtypes import DType
from ..ir import IRError, Value, dims
from ..ir.dims import DimLike
from ..registry import Context, op
from ..tensor import (
    HALVES,
    broadcast_to,
    cast,
    concat,
    contiguous,
    dims_of,
    fill,
    index,
    like,
    literal,
    map_,
    reduce,
    reshape,
    slice_,
    transpose,
    unsqueeze,
)
from .conv import CONV_TRANSPOSE
from .gather import GatherND
from .matmul import matmul

PADDINGS = ("zeros", "border", "reflection")
CUBIC = -0.75  # of the convolution kernel of Keys (1981)


def _scalar(size: DimLike, dtype: DType) -> Value:
    return cast(reshape(literal([size]), ()), dtype)


@op()
def AffineGrid(theta: Value, size: Value, *, align_corners: int = 0) -> Value:
    """The positions of an output's pixels, in -1..1 over each axis, moved by a matrix per batch element."""
    _, _, *space = dims_of(size, "the size")
    wide = DType.float64 if theta.dtype is DType.float64 else DType.float32
    matrix = cast(theta, wide)
    coordinates = []
    for axis, length in reversed(list(enumerate(space))):
        i, n = index(axis, space, wide), _scalar(length, wide)
        twice = map_("mul", i, like(i, 2))
        between = map_("max", map_("sub", n, like(n, 1)), like(n, 1))  # a single pixel lies at -1
        top, bottom = (twice, between) if align_corners else (map_("add", twice, like(i, 1)), n)
        at = map_("div", top, bottom)
        coordinates.append(map_("sub", at, like(at, 1)))
    rows = []
    for row in range(len(space)):
        total = _entry(matrix, row, len(space), space)
        for column, at in enumerate(coordinates):
            total = map_("add", total, map_("mul", _entry(matrix, row, column, space), at))
        rows.append(unsqueeze(total, [total.rank]))
    return cast(concat(rows, rows[0].rank - 1), theta.dtype)


def _entry(matrix: Value, row: int, column: int, space: Sequence[DimLike]) -> Value:
    one = slice_(slice_(matrix, 1, row, 1), 2, column, 1)
    return broadcast_to(reshape(one, [matrix.shape[0]] + [1] * len(space)), [matrix.shape[0], *space])


@op(since=16)
def GridSample(X: Value, grid: Value, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros") -> Value:
    """Pixels at the places of a grid, the last entry of which runs along the last axis of X."""
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if kind not in ("linear", "nearest", "cubic") or padding_mode not in PADDINGS:
        raise IRError(f"mode {mode!r} with padding_mode {padding_mode!r} is not supported")
    wide = DType.float64 if X.dtype is DType.float64 else DType.float32
    x, at = cast(X, wide), cast(grid, wide)
    batch, channels, *space = X.shape
    places = grid.shape[1:-1]
    count = dims.product(places)
    pixels = contiguous(transpose(reshape(x, [batch, channels, dims.product(space)]), [0, 2, 1]))
    taps = []
    for axis, size in enumerate(space):
        n = _scalar(size, wide)
        position = reshape(slice_(at, at.rank - 1, len(space) - 1 - axis, 1), [batch, count, 1])
        taps.append(_taps(position, n, kind, padding_mode, bool(align_corners)))
    total = None
    for chosen in itertools.product(*taps):
        flat, weight = chosen[0]
        for axis, (where, factor) in enumerate(chosen[1:], 1):
            flat = map_("add", map_("mul", flat, reshape(literal([space[axis]]), ())), where)
            weight = factor if weight is None else weight if factor is None else map_("mul", weight, factor)
        value = GatherND(pixels, flat, batch_dims=1)
        value = value if weight is None else map_("mul", value, weight)
        total = value if total is None else map_("add", total, value)
    assert total is not None
    return cast(reshape(transpose(total, [0, 2, 1]), [batch, channels, *places]), X.dtype)


def _taps(position: Value, n: Value, kind: str, padding: str, align: bool) -> list[tuple[Value, Value | None]]:
    """Per neighbour along one axis: its index (int64) and its weight, None for 1."""
    one, half = like(n, 1), like(n, 0.5)
    last = map_("sub", n, one)
    if align:
        x = map_("mul", map_("div", map_("add", position, one), like(n, 2)), last)
        low, high = like(n, 0), last
    else:
        x = map_("div", map_("sub", map_("mul", map_("add", position, one), n), one), like(n, 2))
        low, high = like(n, -0.5), map_("sub", n, half)
    if kind == "nearest":
        x = map_("round", x)
    if padding == "border" and kind != "cubic":  # the taps of a cubic are clamped one by one
        outside = map_("or", map_("lt", x, low), map_("lt", high, x))
        x = map_("where", outside, map_("clamp", x, like(n, 0), last), x)
    elif padding == "reflection":
        x = _reflected(x, low, high)
    return _around(x, n, kind, padding, (low, high))


def _around(x: Value, n: Value, kind: str, padding: str, ends: tuple[Value, Value] | None = None) -> list[tuple[Value, Value | None]]:
    """The neighbours of a position in pixels along an axis of n; ``ends`` are the places where a reflection folds."""
    one, last = like(n, 1), map_("sub", n, like(n, 1))
    first = x if kind == "nearest" else map_("floor", x)
    if kind == "nearest":
        steps: list[tuple[int, Value | None]] = [(0, None)]
    elif kind == "linear":
        part = map_("sub", x, first)
        steps = [(0, map_("sub", one, part)), (1, part)]
    else:
        part = map_("sub", x, first)
        steps = [(i - 1, w) for i, w in enumerate(_cubic(part))]
    found = []
    for step, weight in steps:
        place = map_("add", first, like(first, step)) if step else first
        if padding == "zeros":
            inside = map_("and", map_("le", like(place, 0), place), map_("le", place, last))
            weight = map_("where", inside, like(place, 1) if weight is None else weight, like(place, 0))
        elif padding == "reflection" and ends is not None:
            place = map_("trunc", _reflected(place, *ends))
        found.append((cast(map_("clamp", place, like(place, 0), last), DType.int64), weight))
    return found


def _reflected(x: Value, low: Value, high: Value) -> Value:
    """Folded back at the borders until it lies between them."""
    span = map_("sub", high, low)
    beyond = map_("where", map_("lt", x, low), map_("sub", low, x), map_("sub", x, high))
    times = map_("trunc", map_("div", beyond, span))
    rest = map_("sub", beyond, map_("mul", times, span))
    even = map_("eq", map_("mod", times, like(x, 2)), like(x, 0))
    near_low = map_("eq", map_("lt", x, low), even)
    folded = map_("where", near_low, map_("add", low, rest), map_("sub", high, rest))
    outside = map_("or", map_("lt", x, low), map_("lt", high, x))
    return map_("where", outside, folded, x)


def _cubic(t: Value) -> list[Value]:
    """The weights of four neighbours of a point that lies t behind the second."""

    def near(d: Value) -> Value:
        inner = map_("sub", map_("mul", d, like(d, CUBIC + 2)), like(d, CUBIC + 3))
        return map_("add", map_("mul", map_("mul", inner, d), d), like(d, 1))

    def far(d: Value) -> Value:
        inner = map_("add", map_("mul", map_("sub", map_("mul", d, like(d, CUBIC)), like(d, 5 * CUBIC)), d), like(d, 8 * CUBIC))
        return map_("sub", map_("mul", inner, d), like(d, 4 * CUBIC))

    one = like(t, 1)
    rest = map_("sub", one, t)
    return [far(map_("add", t, one)), near(t), near(rest), far(map_("add", rest, one))]


@op()
def Col2Im(
    input: Value, image_shape: Value, block_shape: Value, *,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """Adds windows up where they overlap: a transposed convolution whose weights pick one tap each."""
    if input.dtype not in (DType.float32, DType.float64):
        kept = {"dilations": dilations, "pads": pads, "strides": strides}
        wide = DType.float32 if input.dtype in HALVES else DType.float64
        return cast(Col2Im(cast(input, wide), image_shape, block_shape, **kept), input.dtype)
    image, block = dims_of(image_shape, "image_shape"), dims_of(block_shape, "block_shape")
    n = len(block)
    spread, edges, steps = list(dilations or [1] * n), list(pads or [0] * 2 * n), list(strides or [1] * n)
    if n > 3:
        raise IRError(f"{n} spatial dimensions are not supported (1 to 3 are)")
    taps = dims.product(block)
    channels = input.shape[1] // dims.dmax(taps, 1)
    counts = [(image[i] + edges[i] + edges[i + n] - spread[i] * (block[i] - 1) - 1) // steps[i] + 1 for i in range(n)]
    shape = [channels * taps, 1, *block]
    place = map_("mod", index(0, shape), literal([dims.dmax(taps, 1)]))
    tap: Value | None = None
    for i in range(n):
        at = map_("mul", index(2 + i, shape), literal([dims.product(block[i + 1 :])]))
        tap = at if tap is None else map_("add", tap, at)
    assert tap is not None
    weights = cast(map_("eq", place, tap), input.dtype)
    y: Value = CONV_TRANSPOSE(
        {"y": (input.dtype, [input.shape[0], channels, *image])},
        {"x": contiguous(reshape(input, [*input.shape[:2], *counts])), "w": contiguous(weights)},
        group=channels,
        strides=tuple(steps),
        dilations=tuple(spread),
        pads=tuple(edges[:n]),
    )
    return y


@op()
def MaxUnpool(
    X: Value, I: Value, output_shape: Value | None = None, *,  # noqa: E741 - the standard's name
    kernel_shape: Sequence[int], pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """Values put back where a pooling found them; the indices count in the unpadded size that the kernel implies."""
    from .gather import ScatterElements

    n = len(kernel_shape)
    steps, edges = list(strides or [1] * n), list(pads or [0] * 2 * n)
    inferred = [(X.shape[2 + i] - 1) * steps[i] + kernel_shape[i] - edges[i] - edges[i + n] for i in range(n)]
    shape = [*X.shape[:2], *inferred]
    blank = fill([dims.product(shape)], 0, X.dtype)
    y = reshape(ScatterElements(blank, reshape(I, [I.size]), reshape(X, [X.size])), shape)
    if output_shape is None:
        return y
    from .shape import pad

    want = dims_of(output_shape, "output_shape")
    return pad(y, [0] * y.rank, [w - s for w, s in zip(want, shape, strict=True)])


@op()
def Det(X: Value) -> Value:
    """Determinants of square matrices up to 3 by 3, by their formula."""
    n = X.shape[-1]
    if n not in (1, 2, 3) or X.shape[-2] != n:
        raise IRError(f"determinants of {X.shape[-2]} by {n} matrices are not supported (up to 3 by 3 are)")

    def at(row: int, column: int) -> Value:
        return reshape(slice_(slice_(X, X.rank - 2, row, 1), X.rank - 1, column, 1), X.shape[:-2])

    def minor(row: int, columns: list[int]) -> Value:
        if len(columns) == 1:
            return at(row, columns[0])
        total = None
        for k, c in enumerate(columns):
            term = map_("mul", at(row, c), minor(row + 1, [o for o in columns if o != c]))
            total = term if total is None else map_("sub" if k % 2 else "add", total, term)
        assert total is not None
        return total

    return minor(0, list(range(n)))


@op()
def DeformConv(
    X: Value, W: Value, offset: Value, B: Value | None = None, mask: Value | None = None, *,
    dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None, offset_group: int = 1,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """A convolution whose taps are displaced by data (Dai et al. 2017): columns of sampled pixels times the weights."""
    if X.rank != 4:
        raise IRError(f"{X.rank - 2} spatial dimensions are not supported (2 are)")
    wide = DType.float64 if X.dtype is DType.float64 else DType.float32
    channels, (outputs, _, rows, columns) = X.shape[1], W.shape
    steps, spread, edges = strides or (1, 1), dilations or (1, 1), pads or (0, 0, 0, 0)
    batch, high, across = X.shape[0], offset.shape[2], offset.shape[3]
    each = channels // offset_group
    full = [batch, offset_group, rows, columns, high, across]
    moved = reshape(cast(offset, wide), [batch, offset_group, rows, columns, 2, high, across])
    taps = []
    for axis in range(2):
        tap, place = index(2 + axis, full, wide), index(4 + axis, full, wide)
        base = map_("add", map_("mul", place, like(place, steps[axis])), map_("mul", tap, like(tap, spread[axis])))
        shift = reshape(slice_(moved, 4, axis, 1), full)
        x = map_("sub", map_("add", base, shift), like(base, edges[axis]))
        taps.append(_around(x, _scalar(X.shape[2 + axis], wide), "linear", "zeros"))
    pixels = reshape(cast(X, wide), [batch * offset_group, each, X.shape[2] * X.shape[3]])
    pixels = contiguous(transpose(pixels, [0, 2, 1]))
    count = rows * columns * high * across
    total = None
    for (y, wy), (x, wx) in itertools.product(*taps):
        assert wy is not None
        assert wx is not None
        flat = map_("add", map_("mul", y, reshape(literal([X.shape[3]]), ())), x)
        value = GatherND(pixels, reshape(flat, [batch * offset_group, count, 1]), batch_dims=1)
        value = map_("mul", value, reshape(map_("mul", wy, wx), [batch * offset_group, count, 1]))
        total = value if total is None else map_("add", total, value)
    assert total is not None
    sampled = transpose(reshape(total, [batch, offset_group, rows * columns, high * across, each]), [0, 1, 4, 2, 3])
    if mask is not None:
        sampled = map_("mul", sampled, reshape(cast(mask, wide), [batch, offset_group, 1, rows * columns, high * across]))
    unfolded = reshape(sampled, [batch, group, channels // group * rows * columns, high * across])
    weights = reshape(cast(W, wide), [1, group, outputs // group, channels // group * rows * columns])
    y = reshape(matmul(weights, unfolded), [batch, outputs, high, across])
    return cast(y if B is None else map_("add", y, unsqueeze(cast(B, wide), [1, 2])), X.dtype)


@op(since=10)
def RoiAlign(
    X: Value, rois: Value, batch_indices: Value, *, coordinate_transformation_mode: str | None = None, mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0, ctx: Context,
) -> Value:  # fmt: skip
    """Regions pooled from bilinear samples (He et al. 2017, Mask R-CNN); ``max`` is over the weighted pixels."""
    if sampling_ratio <= 0:
        raise IRError("sampling_ratio=0, samples that depend on the regions' sizes, is not supported")
    if mode not in ("avg", "max"):
        raise IRError(f"mode {mode!r} is not one of avg, max")
    centred = (coordinate_transformation_mode or ("half_pixel" if ctx.opset >= 16 else "output_half_pixel")) == "half_pixel"
    wide, s = DType.float64 if X.dtype is DType.float64 else DType.float32, sampling_ratio
    regions = cast(rois, wide)
    regions = map_("mul", regions, like(regions, spatial_scale))
    regions = map_("sub", regions, like(regions, 0.5)) if centred else regions
    count, channels = rois.shape[0], X.shape[1]
    taps = []
    for axis, bins in ((1, output_height), (0, output_width)):
        start, end = slice_(regions, 1, axis, 1), slice_(regions, 1, axis + 2, 1)
        length = map_("sub", end, start)
        length = length if centred else map_("max", length, like(length, 1))
        sample = index(1, [count, bins * s], wide)
        share = map_("div", map_("add", sample, like(sample, 0.5)), like(sample, bins * s))
        pairs = _clamped(map_("add", start, map_("mul", share, length)), _scalar(X.shape[2 if axis else 3], wide))
        taps.append([tuple(unsqueeze(v, [2] if axis else [1]) for v in pair) for pair in pairs])
    places = output_height * s * output_width * s
    pixels = contiguous(transpose(reshape(cast(X, wide), [X.shape[0], channels, X.shape[2] * X.shape[3]]), [0, 2, 1]))
    image = broadcast_to(reshape(cast(batch_indices, DType.int64), [count, 1, 1]), [count, places, 1])
    total = None
    for (y, wy), (x, wx) in itertools.product(*taps):
        flat = map_("add", map_("mul", y, reshape(literal([X.shape[3]]), ())), x)
        at = concat([image, reshape(flat, [count, places, 1])], 2)
        value = map_("mul", GatherND(pixels, at), reshape(map_("mul", wy, wx), [count, places, 1]))
        total = value if total is None else map_("add" if mode == "avg" else "max", total, value)
    assert total is not None
    grid = reshape(total, [count, output_height, s, output_width, s, channels])
    pooled = reduce("mean" if mode == "avg" else "max", grid, [2, 4])
    return cast(transpose(pooled, [0, 3, 1, 2]), X.dtype)


def _clamped(x: Value, n: Value) -> list[tuple[Value, Value]]:
    """Two neighbours along an axis: samples up to one pixel outside take the border, those beyond count nothing."""
    last, zero = map_("sub", n, like(n, 1)), like(n, 0)
    inside = map_("and", map_("le", like(n, -1), x), map_("le", x, n))
    at = map_("max", x, zero)
    low = map_("min", map_("floor", at), last)
    high = map_("min", map_("add", low, like(n, 1)), last)
    part = map_("where", map_("lt", low, last), map_("sub", at, low), zero)
    weights = (map_("sub", like(n, 1), part), part)
    found = zip((low, high), weights, strict=True)
    return [(cast(map_("max", place, zero), DType.int64), map_("where", inside, w, zero)) for place, w in found]
