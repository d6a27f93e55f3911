"""Random numbers: words of a counter-based generator, and what is made of them.

Words are the same on every backend for a seed; so are uniform numbers, while normal ones may differ by the rounding of log and cos.
A ``seed`` attribute gives the same numbers in each run; without one they go on from the session's seed (``set_seed``).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Value, dims
from ..ir.dims import Dim, DimLike
from ..registry import Context, Kernel, op
from ..tensor import broadcast_to, cast, constant, floats_of, is_known, like, literal, map_, reduce, reshape, unsqueeze
from .reduction import CUMULATIVE, SCANS

RANDOM = Kernel("random", ">y", "n seeded seed", traits=("chance",))
BITS = {DType.float32: 24, DType.float64: 53, DType.float16: 11, DType.bfloat16: 8}
FLOATS = {1: DType.float32, 10: DType.float16, 11: DType.float64, 16: DType.bfloat16}


def words(shape: Sequence[DimLike], seed: float | Dim | None) -> Value:
    """Random uint32. A seed is a number known when the model is compiled, or an integer that data tell."""
    bits: DimLike = seed if isinstance(seed, Dim) else struct.unpack("<q", struct.pack("<d", 0.0 if seed is None else seed))[0]
    y: Value = RANDOM({"y": (DType.uint32, shape)}, {}, n=dims.product(shape), seeded=int(seed is not None), seed=bits)
    return y


def uniform(shape: Sequence[DimLike], dtype: DType, seed: float | Dim | None) -> Value:
    """In [0, 1), evenly spaced by the precision of the dtype."""
    wide = DType.float64 if dtype is DType.float64 else DType.float32
    if dtype is DType.float64:
        return _fractions(words([2, *shape], seed))
    bits = BITS[dtype]
    high = map_("shr", words(shape, seed), constant(np.uint32(32 - bits)))
    return cast(map_("mul", cast(high, wide), like_of(wide, 2.0**-bits)), dtype)


def _fractions(pair: Value) -> Value:
    """Of two words each, float64 in [0, 1)."""
    wide = DType.float64
    high, low = (
        cast(map_("shr", reshape(_row(pair, k), pair.shape[1:]), constant(np.uint32(shift))), wide) for k, shift in ((0, 5), (1, 6))
    )
    return map_("mul", map_("fma", high, constant(np.float64(1 << 26)), low), constant(np.float64(2.0**-53)))


def _row(x: Value, k: int) -> Value:
    return x.view(x.shape[1:], x.offset + k * x.strides[0], x.strides[1:])


def like_of(dtype: DType, number: float) -> Value:
    return constant(np.float64(number)) if dtype is DType.float64 else constant(np.float32(number))


def normal(shape: Sequence[DimLike], dtype: DType, seed: float | None) -> Value:
    """Box and Muller (1958): of two uniform numbers one normal one."""
    wide = DType.float64 if dtype is DType.float64 else DType.float32
    pair = uniform([2, *shape], wide, seed)
    radius = map_("sub", like_of(wide, 1), _row(pair, 0))  # in (0, 1]
    radius = map_("sqrt", map_("mul", map_("log", radius), like_of(wide, -2)))
    turn = map_("cos", map_("mul", _row(pair, 1), like_of(wide, 2 * math.pi)))
    return cast(map_("mul", radius, turn), dtype)


def _float(number: int) -> DType:
    if number not in FLOATS:
        raise IRError(f"dtype {number} is not one of float, double, float16 and bfloat16")
    return FLOATS[number]


def _spread(x: Value, scale: float, offset: float) -> Value:
    return map_("add", map_("mul", x, like(x, scale)), like(x, offset))


@op()
def RandomUniform(*, shape: list[int], dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None) -> Value:
    return _spread(uniform(shape, _float(dtype), seed), high - low, low)


@op()
def RandomNormal(*, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None) -> Value:
    return _spread(normal(shape, _float(dtype), seed), scale, mean)


@op()
def RandomUniformLike(input: Value, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None) -> Value:
    return _spread(uniform(input.shape, _float(int(input.dtype) if dtype is None else dtype), seed), high - low, low)


@op()
def RandomNormalLike(input: Value, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None) -> Value:
    return _spread(normal(input.shape, _float(int(input.dtype) if dtype is None else dtype), seed), scale, mean)


@op(since=15)
def Bernoulli(input: Value, *, dtype: int | None = None, seed: float | None = None) -> Value:
    """True where a uniform number lies below the probability."""
    drawn = uniform(input.shape, input.dtype, seed)
    return cast(map_("lt", drawn, input), input.dtype if dtype is None else DType(dtype))


@op(since=7)
def Multinomial(input: Value, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Value:
    """Classes by their unnormalised log-probabilities [batch, classes]."""
    if DType(dtype) not in (DType.int32, DType.int64):
        raise IRError(f"dtype {dtype} is neither int32 nor int64")
    return cast(chosen(input, uniform([input.shape[0], sample_size], DType.float64, seed)), DType(dtype))


def chosen(input: Value, numbers: Value) -> Value:
    """Classes int64 by uniform numbers float64 [batch, samples]: how many of the running sums of probabilities lie at or below each."""
    batch, classes = input.shape
    logits = cast(input, DType.float64)
    most = reshape(reduce("max", logits, [1]), [batch, 1])
    weights = map_("exp", map_("sub", logits, most))
    scan = {"op": SCANS.index("sum"), "exclusive": 0, "reverse": 0}
    sums: Value = CUMULATIVE({"y": (DType.float64, weights.shape)}, {"x": weights}, outer=batch, n=classes, inner=1, **scan)
    whole = _column(sums, classes - 1)
    below = map_("le", unsqueeze(sums, [1]), unsqueeze(map_("mul", numbers, whole), [2]))
    found = reshape(reduce("sum", cast(below, DType.int64), [2]), [batch, numbers.shape[1]])
    return map_("min", found, reshape(literal([classes - 1]), ()))


def _column(x: Value, k: DimLike) -> Value:
    return x.view([x.shape[0], 1], x.offset + k * x.strides[1], x.strides)


@op(since=12)
def Dropout(data: Value, ratio: Value | None = None, training_mode: Value | None = None, *, seed: int | None = None) -> tuple[Value, ...]:
    """Elements that stay grow so that the expected sum does; in inference all stay."""
    known = training_mode is not None and is_known(training_mode)
    still = training_mode is None or (known and not floats_of(training_mode, "training_mode")[0])
    if still or (ratio is not None and is_known(ratio) and floats_of(ratio, "ratio") == [0.0]):
        return data, broadcast_to(_true(), data.shape)
    compute = DType.float64 if data.dtype is DType.float64 else DType.float32
    share = like_of(compute, 0.5) if ratio is None else cast(reshape(ratio, ()), compute)
    if not known and training_mode is not None:
        share = map_("where", reshape(training_mode, ()), share, like_of(compute, 0))
    return _dropped(data, share, seed)


@op("Dropout", since=1, until=11)
def Dropout_1(data: Value, *, ratio: float = 0.5, is_test: int = 0, consumed_inputs: Any = None, ctx: Context) -> tuple[Value, ...]:
    if ctx.opset < 7 and not is_test:
        y, mask = _dropped(data, like_of(DType.float64 if data.dtype is DType.float64 else DType.float32, ratio), None)
    else:
        y, mask = data, broadcast_to(_true(), data.shape)
    return y, mask if ctx.opset >= 10 else cast(mask, data.dtype)


def _dropped(x: Value, share: Value, seed: float | None) -> tuple[Value, Value]:
    mask = map_("le", share, uniform(x.shape, share.dtype, seed))
    grown = map_("div", cast(x, share.dtype), map_("sub", like(share, 1), share))
    return cast(map_("where", mask, grown, like(share, 0)), x.dtype), mask


def _true() -> Value:
    return constant(np.array(True))
