"""Resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..dtypes import DType
from ..ir import Graph, IRError, Value, dims
from ..ir.dims import Dim, DimLike
from ..registry import Enum, Kernel, op
from ..tensor import (
    HALVES,
    axis_of,
    cast,
    contiguous,
    dims_of,
    floats_of,
    is_known,
    like,
    literal,
    map_,
    params_of,
    reduce,
    sized,
    split,
)

MODES = Enum("Interpolation", "nearest linear cubic")
COORDINATES = Enum(
    "Coordinates",
    "half_pixel asymmetric pytorch_half_pixel align_corners tf_crop_and_resize half_pixel_symmetric tf_half_pixel_for_nn",
)
NEAREST = Enum("Nearest", "round_prefer_floor round_prefer_ceil floor ceil")
RESIZE = Kernel(
    "resize",
    ">y x",
    "rank mode coord nearest exclude_outside antialias in[8] out[8] cubic_a:f extrapolation:f scale[8]:f roi_start[8]:f roi_end[8]:f",
    traits=("smooth",),
    enums={"mode": MODES, "coord": COORDINATES, "nearest": NEAREST},
)


def _limited(value: float, dtype: DType) -> float:
    """A float32 as an integer dtype holds it: rounded, and no further than the dtype goes."""
    if not dtype.is_int:
        return value
    if math.isnan(value):
        return 0.0
    bits = dtype.bits - dtype.is_signed
    high = 2**bits - (1 if bits <= 24 else 2 ** (bits - 24))
    return float(round(min(max(value, -(2**bits) if dtype.is_signed else 0), high)))


def resize(
    x: Value, sizes: Sequence[DimLike], scales: Sequence[float | Dim], mode: str, coordinates: str, nearest: str = "round_prefer_floor",
    cubic_a: float = -0.75, exclude_outside: int = 0, antialias: int = 0, extrapolation: float = 0.0, roi: Sequence[float | Dim] = (),
) -> Value:  # fmt: skip
    """Resamples every axis to ``sizes``; a scale of 0 means size out / size in, taken when shapes are bound."""
    wide = DType.float32 if x.dtype in HALVES else DType.float64 if x.dtype.is_int and x.dtype.bits == 64 else x.dtype
    if wide is not x.dtype and mode != "nearest":
        y = resize(cast(x, wide), sizes, scales, mode, coordinates, nearest, cubic_a, exclude_outside, antialias, extrapolation, roi)
        return cast(y, x.dtype)
    for given, known, what in (
        (mode, MODES, "mode"),
        (coordinates, COORDINATES, "coordinate_transformation_mode"),
        (nearest, NEAREST, "nearest_mode"),
    ):
        if given not in known:
            raise IRError(f"{what} {given!r} is not one of {', '.join(known)}")
    rank = x.rank
    y = RESIZE(
        {"y": (x.dtype, sizes)},
        {"x": contiguous(x)},
        rank=rank,
        mode=MODES.index(mode),
        coord=COORDINATES.index(coordinates),
        nearest=NEAREST.index(nearest),
        exclude_outside=exclude_outside,
        antialias=antialias,
        **{"in": x.shape, "out": tuple(sizes)},
        cubic_a=cubic_a,
        extrapolation=_limited(extrapolation, x.dtype),
        scale=tuple(scales),
        roi_start=tuple(roi[:rank]) or (0.0,) * rank,
        roi_end=tuple(roi[rank:]) or (1.0,) * rank,
    )
    result: Value = y
    return result


SCALED_BITS = 23  # sizes up to 2^23, where float32 still tells halves


def scaled(size: DimLike, scale: float) -> DimLike:
    """floor(size * scale), the product rounded to float32, which is what other runtimes compute.

    The product p = size * scale is exact in integers: scale = top / 2^low. Rounded to 24 bits it reaches the next integer where
    p + 2^(e - 24) does, for 2^e <= p < 2^(e + 1); e grows with the size.
    """
    if not 0 < scale < 2**SCALED_BITS:
        raise IRError(f"scale {scale} must be positive")
    top, bottom = np.float32(scale).item().as_integer_ratio()
    low = bottom.bit_length() - 1
    first = max(24 - low, -1)
    half: DimLike = 0
    for e in range(first, SCALED_BITS):
        here = 1 << (low + e - 24)
        more = here - (here >> 1) if e > first else here
        half = half + dims.ge(size, -(-(bottom << (e + 1)) // (2 * top))) * more
    if not isinstance(size, int):
        Graph.current().check(dims.le(size, (bottom << SCALED_BITS) // top), f"the size {size} times {scale} exceeds 2^{SCALED_BITS}")
    return (size * top + half) // bottom


def _by_scales(shape: Sequence[DimLike], scales: Value, roi: Value | None) -> tuple[Sequence[float | Dim], list[DimLike]]:
    """The scales, and the sizes that they lead to from the region that is taken."""
    n = len(shape)
    if is_known(scales) and (roi is None or is_known(roi)):
        known = floats_of(scales, "scales")
        edges = [0.0] * n + [1.0] * n if roi is None else floats_of(roi, "roi")
        parts = [np.float32(e) - np.float32(b) for b, e in zip(edges, edges[n:], strict=False)]
        return known, [scaled(s, float(part * np.float32(f))) for s, part, f in zip(shape, parts, known, strict=True)]
    scales = total = sized(scales, [n], "scales")
    if roi is not None:
        begin, end = split(cast(sized(roi, [2 * n], "roi"), DType.float32), 0, [n, n])
        total = map_("mul", map_("sub", end, begin), scales)
    sizes = map_("floor", map_("mul", cast(literal(shape), DType.float32), total))
    return params_of(scales, "scales"), dims_of(sizes, "scales")


@op(since=11)
def Resize(
    X: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    rank = X.rank
    which = [axis_of(a, rank) for a in axes] if axes is not None else list(range(rank))
    out: list[DimLike] = list(X.shape)
    factor: list[float | Dim] = [1.0] * rank
    region: list[float | Dim] = []
    crop = roi if coordinate_transformation_mode == "tf_crop_and_resize" else None
    if crop is not None:
        bounds = params_of(crop, "roi")
        start: list[float | Dim] = [0.0] * rank
        end: list[float | Dim] = [1.0] * rank
        for i, axis in enumerate(which):
            start[axis], end[axis] = bounds[i], bounds[i + len(which)]
        region = start + end
    if scales is not None and scales.size != 0:
        given, wanted = _by_scales([X.shape[a] for a in which], scales, crop)
        for i, axis in enumerate(which):
            factor[axis], out[axis] = given[i], wanted[i]
    elif sizes is not None:
        ratio: float | Dim = 0.0
        if keep_aspect_ratio_policy == "stretch":
            want = dims_of(sizes, "sizes")
        else:
            want, ratio = _same_ratio([X.shape[a] for a in which], sizes, keep_aspect_ratio_policy)
        for i, axis in enumerate(which):
            out[axis] = want[i]
            if keep_aspect_ratio_policy != "stretch":
                factor[axis] = ratio
            elif isinstance(want[i], Dim) or isinstance(X.shape[axis], Dim):
                factor[axis] = 1.0 if dims.same(want[i], X.shape[axis]) else 0.0
            else:
                factor[axis] = float(want[i]) / float(X.shape[axis])
    else:
        raise IRError("neither scales nor sizes is given")
    return resize(
        X,
        out,
        factor,
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        exclude_outside,
        antialias,
        extrapolation_value,
        region,
    )


def _same_ratio(shape: Sequence[DimLike], sizes: Value, policy: str) -> tuple[list[DimLike], float | Dim]:
    """The sizes nearest to those given with the same ratio on every axis, and that ratio."""
    have = cast(literal(shape), DType.float64)
    ratio = reduce("min" if policy == "not_larger" else "max", map_("div", cast(sizes, DType.float64), have), [0], True)
    rounded = map_("floor", map_("add", map_("mul", have, ratio), like(have, 0.5)))
    return dims_of(cast(rounded, DType.int64), "sizes"), params_of(ratio, "sizes")[0]


@op("Resize", since=10, until=10)
def Resize_10(X: Value, scales: Value, *, mode: str = "nearest") -> Value:
    factors, sizes = _by_scales(X.shape, scales, None)
    shrinks = [mode == "nearest" and not isinstance(f, Dim) and f < 1 for f in factors]
    if any(shrinks):  # along these axes the next element is taken, not the one before, as onnxruntime does
        fewer = [size if s else n for s, size, n in zip(shrinks, sizes, X.shape, strict=True)]
        X = resize(X, fewer, [f if s else 1.0 for s, f in zip(shrinks, factors, strict=True)], mode, "asymmetric", "ceil")
        factors = [1.0 if s else f for s, f in zip(shrinks, factors, strict=True)]
    return _upsampled(X, factors, sizes, mode)


@op("Upsample", since=9, until=10)
def Upsample(X: Value, scales: Value, *, mode: str = "nearest") -> Value:
    return _upsampled(X, *_by_scales(X.shape, scales, None), mode)


@op("Upsample", since=1, until=6)
def Upsample_1(X: Value, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Value:
    if X.rank != 4:
        raise IRError(f"a picture has the axes N, C, H and W, it is {X}")
    scales = [1.0, 1.0, height_scale, width_scale]
    return _upsampled(X, scales, [scaled(s, f) for s, f in zip(X.shape, scales, strict=True)], "linear" if mode == "bilinear" else mode)


@op("Upsample", since=7, until=8)
def Upsample_7(X: Value, *, scales: Sequence[float], mode: str = "nearest") -> Value:
    return _upsampled(X, scales, [scaled(s, f) for s, f in zip(X.shape, scales, strict=True)], mode)


def _upsampled(x: Value, scales: Sequence[float | Dim], sizes: Sequence[DimLike], mode: str) -> Value:
    return resize(x, sizes, list(scales), mode, "asymmetric", "floor")
