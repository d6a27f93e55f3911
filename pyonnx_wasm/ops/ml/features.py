"""Operators of the ``ai.onnx.ml`` domain."""

from __future__ import annotations

import math

from ...ir import Value
from ...op import op
from ...tensor import cast, like, map_, reshape
from ..gather import Gather

ML = "ai.onnx.ml"


@op(domain=ML)
def Binarizer(X: Value, *, threshold: float = 0.0) -> Value:
    """1 where an element is above the threshold: for integers, above the whole number below it."""
    return cast(map_("lt", like(X, math.floor(threshold) if X.dtype.is_int else threshold), X), X.dtype)


@op(domain=ML)
def ArrayFeatureExtractor(X: Value, Y: Value) -> Value:
    """Columns of the last axis; a vector counts as one row."""
    rows = reshape(X, [1, X.shape[0]]) if X.rank == 1 else X
    return Gather(rows, reshape(Y, [Y.size]), axis=-1)  # type: ignore[no-any-return]
