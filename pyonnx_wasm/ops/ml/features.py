"""What is done to features ahead of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value
from ...registry import Moved, op
from ...tensor import cast, concat, constant, fill, like, map_, reduce, reshape, slice_
from ..gather import Gather
from .scores import ML, floats


@op(domain=ML)
def Binarizer(X: Value, *, threshold: float = 0.0) -> Value:
    """1 where an element is above the threshold: for integers, above the whole number below it."""
    return cast(map_("lt", like(X, math.floor(threshold) if X.dtype.is_int else threshold), X), X.dtype)


@op(domain=ML)
def ArrayFeatureExtractor(X: Moved, Y: Value) -> Moved:
    """Columns of the last axis; a vector counts as one row."""
    rows = reshape(X, [1, X.shape[0]]) if X.rank == 1 else X
    return Gather(rows, reshape(Y, [Y.size]), axis=-1)  # type: ignore[no-any-return]


@op(domain=ML)
def Normalizer(X: Value, *, norm: str = "MAX") -> Value:
    """Along axis 1, of a vector along all of it; what would be divided by 0 stays."""
    if norm not in ("MAX", "L1", "L2"):
        raise IRError(f"norm {norm!r} is not one of MAX, L1, L2")
    x, axis = floats(X), min(1, X.rank - 1)
    if norm == "L2":
        total = reduce("sumsq", x, [axis], True)
        root = map_("sqrt", map_("div", map_("mul", x, x), total))
        scaled = map_("where", map_("lt", x, like(x, 0)), map_("neg", root), root)
    else:
        total = reduce("max" if norm == "MAX" else "sumabs", x, [axis], True)
        scaled = map_("div", x, total)
    return map_("where", map_("eq", total, like(x, 0)), x, scaled)


@op(domain=ML)
def Scaler(X: Value, *, offset: Sequence[float], scale: Sequence[float]) -> Value:
    """(X - offset) * scale along the last axis."""
    x = floats(X, wide=True)
    for what, values in (("offset", offset), ("scale", scale)):
        if len(values) != 1 and isinstance(X.shape[-1], int) and len(values) != X.shape[-1]:
            raise IRError(f"{what} has {len(values)} numbers, X has {X.shape[-1]} features")
    kind = np.float64 if x.dtype is DType.float64 else np.float32
    shifted = map_("sub", x, constant(np.asarray(offset, kind)))
    return cast(map_("mul", shifted, constant(np.asarray(scale, kind))), DType.float32)


@op(domain=ML)
def Imputer(
    X: Value, *,
    imputed_value_floats: Sequence[float] | None = None, imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Value:  # fmt: skip
    """Puts one value, or one per feature, in the place of the value that stands for what is missing."""
    whole = X.dtype.is_int
    given, missing = (imputed_value_int64s, replaced_value_int64) if whole else (imputed_value_floats, replaced_value_float)
    if not given:
        raise IRError(f"imputed_value_{'int64s' if whole else 'floats'} is missing, X is {X.dtype.name}")
    instead = cast(constant(np.asarray(given, np.int64 if whole else np.float32)), X.dtype)
    is_missing = map_("isnan", X, mode=0) if missing != missing else map_("eq", X, like(X, missing))
    return map_("where", is_missing, instead, X)


@op(domain=ML)
def FeatureVectorizer(*X: Value, inputdimensions: Sequence[int]) -> Value:
    """Features side by side, of each input as many as ``inputdimensions`` says: cut off, or filled up with zeros."""
    if len(X) != len(inputdimensions):
        raise IRError(f"{len(X)} inputs, {len(inputdimensions)} inputdimensions")
    rows, parts = X[0].shape[0], []
    for x, width in zip(X, inputdimensions, strict=True):
        flat = reshape(floats(x), [x.shape[0], 1]) if x.rank == 1 else floats(x)
        have = flat.shape[1]
        if isinstance(have, int) and have > width:
            flat = slice_(flat, 1, 0, width)
        parts.append(flat)
        if isinstance(have, int) and have < width:
            parts.append(fill([rows, width - have], 0.0, DType.float32))
    return concat(parts, 1)
