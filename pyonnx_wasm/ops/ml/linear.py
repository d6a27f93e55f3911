"""Linear models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir import IRError, Strings, Value
from ...registry import op
from ...tensor import constant, like, map_, swap
from ..matmul import matmul
from .scores import ML, choose, column, first_largest, floats, labels_of, paired, rows_of, transformed


def weighed(x: Value, coefficients: Sequence[float], outputs: int, bias: Sequence[float] | None) -> Value:
    """x times the coefficients [outputs, features] of a model, plus its bias."""
    weights = np.asarray(coefficients, np.float32)
    if outputs < 1 or weights.size % outputs:
        raise IRError(f"{weights.size} coefficients do not fit {outputs} outputs")
    y = matmul(x, swap(constant(weights.reshape(outputs, -1)), 0, 1))
    return map_("add", y, constant(np.asarray(bias, np.float32))) if bias else y


@op(domain=ML)
def LinearRegressor(
    X: Value, *,
    coefficients: Sequence[float], intercepts: Sequence[float] | None = None, post_transform: str = "NONE", targets: int = 1,
) -> Value:  # fmt: skip
    if intercepts and len(intercepts) not in (1, targets):
        raise IRError(f"{len(intercepts)} intercepts do not fit {targets} targets")
    y = weighed(floats(rows_of(X)), coefficients, targets, intercepts)
    return transformed(y, post_transform) if targets > 1 or post_transform == "PROBIT" else y


@op(domain=ML)
def LinearClassifier(
    X: Value, *,
    coefficients: Sequence[float], classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    intercepts: Sequence[float] | None = None, multi_class: int = 0, post_transform: str = "NONE",
) -> tuple[Value | Strings, Value]:  # fmt: skip
    x = floats(rows_of(X))
    n = len(classlabels_strings) or len(classlabels_ints)
    rows = len(intercepts or ()) or n
    scores = weighed(x, coefficients, rows, intercepts)
    if rows > 1:
        return labels_of(first_largest(scores), classlabels_ints, classlabels_strings), transformed(scores, post_transform)
    if n != 2:
        raise IRError(f"a classifier of one row of coefficients has 2 labels, not {n}")
    only = column(scores, 0)
    places = choose(map_("lt", like(only, 0), only), 1, 0)
    return labels_of(places, classlabels_ints, classlabels_strings), paired(only, post_transform, complement=True)
