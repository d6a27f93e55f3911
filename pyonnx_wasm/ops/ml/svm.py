"""Support vector machines, as libsvm has them: kernels, votes, probabilities of classes from those of pairs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Strings, Value
from ...registry import Kernel, op
from ...tensor import cast, constant, contiguous, like, map_, reduce
from ..matmul import matmul
from .linear import weighed
from .scores import ML, column, first_largest, floats, labels_of, paired, rows_of, transformed

COUPLING = Kernel("coupling", ">y x", "rows classes")
DISTANCE = Kernel("distance", ">y a b", "m n k")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def distances(a: Value, b: Value) -> Value:
    """Squared Euclidean distances between the rows of two matrices of one dtype, float32 or float64."""
    m, k, n = a.shape[0], a.shape[1], b.shape[0]
    y: Value = DISTANCE({"y": (a.dtype, (m, n))}, {"a": contiguous(a), "b": contiguous(b)}, m=m, n=n, k=k)
    return y


def _similar(x: Value, vectors: np.ndarray, kind: str, params: Sequence[float] | None) -> Value:
    """The kernel function of each row and each support vector."""
    if kind not in KERNELS:
        raise IRError(f"kernel_type {kind!r} is not one of {', '.join(KERNELS)}")
    if params and len(params) != 3:
        raise IRError("kernel_params must hold gamma, coef0 and degree")
    gamma, offset, degree = params or (0.0, 0.0, 0.0)
    if kind == "RBF":
        return map_("exp", map_("mul", like(x, -gamma), distances(x, constant(vectors))))
    y = matmul(x, constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return y
    y = map_("add", map_("mul", y, like(y, gamma)), like(y, offset))
    if kind == "SIGMOID":
        return map_("tanh", y)
    square = map_("mul", y, y) if degree in (2, 3) else None
    return map_("pow", y, like(y, degree)) if square is None else square if degree == 2 else map_("mul", square, y)


def _vectors(values: Sequence[float] | None, count: int) -> np.ndarray:
    flat = np.asarray(values or (), np.float32)
    if count < 1 or flat.size % count:
        raise IRError(f"{flat.size} numbers are not {count} support vectors")
    return flat.reshape(count, -1)


@op(domain=ML)
def SVMRegressor(
    X: Value, *,
    coefficients: Sequence[float], kernel_params: Sequence[float] | None = None, kernel_type: str = "LINEAR", n_supports: int = 0,
    one_class: int = 0, post_transform: str = "NONE", rho: Sequence[float], support_vectors: Sequence[float] | None = None,
) -> Value:  # fmt: skip
    x = floats(rows_of(X))
    if n_supports:
        vectors = _vectors(support_vectors, n_supports)
        y = weighed(_similar(x, vectors, kernel_type, kernel_params), coefficients, 1, rho[:1])
    else:
        y = weighed(x, coefficients, 1, rho[:1])
    if one_class:
        return map_("where", map_("lt", like(y, 0), y), like(y, 1), like(y, -1))
    return transformed(y, post_transform) if post_transform == "PROBIT" else y


@op(domain=ML)
def SVMClassifier(
    X: Value, *,
    classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (), coefficients: Sequence[float],
    kernel_params: Sequence[float] | None = None, kernel_type: str = "LINEAR", post_transform: str = "NONE",
    prob_a: Sequence[float] | None = None, prob_b: Sequence[float] | None = None, rho: Sequence[float],
    support_vectors: Sequence[float] | None = None, vectors_per_class: Sequence[int] | None = None,
) -> tuple[Value | Strings, Value]:  # fmt: skip
    x = floats(rows_of(X))
    n = len(classlabels_strings) or len(classlabels_ints)
    if not sum(vectors_per_class or ()):
        scores = weighed(x, coefficients, n, [rho[0]] * n)
        places = _of_two(scores, np.asarray(coefficients)) if n == 2 else first_largest(scores)
        return labels_of(places, classlabels_ints, classlabels_strings), transformed(scores, post_transform)
    counts = list(vectors_per_class or ())
    if len(counts) != n or min(counts) < 0:
        raise IRError(f"vectors_per_class has {len(counts)} entries, the classes are {n}")
    similar = _similar(x, _vectors(support_vectors, sum(counts)), kernel_type, kernel_params)
    pairs = _decisions(similar, counts, np.asarray(coefficients, np.float32), rho)
    labels = labels_of(first_largest(_votes(pairs, n)), classlabels_ints, classlabels_strings)
    narrow = cast(pairs, DType.float32)
    if prob_a or prob_b:
        return labels, transformed(_probabilities(narrow, n, prob_a or (), prob_b or ()), post_transform)
    if n == 2:
        return labels, paired(column(narrow, 0), post_transform, complement=post_transform != "NONE")
    return labels, transformed(narrow, post_transform)


def _of_two(scores: Value, coefficients: np.ndarray) -> Value:
    """The second class where the larger score is high enough, as onnxruntime has it."""
    positive = bool((coefficients >= 0).all())
    top = reduce("max", scores, [1])
    enough = map_("le", like(top, 0.5), top) if positive else map_("lt", like(top, 0), top)
    return map_("where", enough, constant(np.int64(1)), first_largest(scores))


def _decisions(similar: Value, counts: Sequence[int], coefficients: np.ndarray, rho: Sequence[float]) -> Value:
    """The decision of each pair of classes, summed in float64."""
    n, total = len(counts), sum(counts)
    pairs = n * (n - 1) // 2
    if coefficients.size != (n - 1) * total or len(rho) < pairs:
        raise IRError(f"{coefficients.size} coefficients or {len(rho)} rho do not fit {n} classes of {total} support vectors")
    rows, starts = coefficients.reshape(n - 1, total), np.cumsum([0, *counts])
    weights = np.zeros((total, pairs))
    for pair, (i, j) in enumerate(itertools.combinations(range(n), 2)):
        a, b = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        weights[a, pair], weights[b, pair] = rows[j - 1, a], rows[i, b]
    y = matmul(cast(similar, DType.float64), constant(weights))
    return map_("add", y, constant(np.asarray(rho[:pairs], np.float64)))


def _votes(pairs: Value, n: int) -> Value:
    """How many pairs each class wins: the first of a pair where its decision is above 0."""
    first = np.zeros((n * (n - 1) // 2, n), np.float32)
    last = first.copy()
    for pair, (i, j) in enumerate(itertools.combinations(range(n), 2)):
        first[pair, i] = last[pair, j] = 1
    won = cast(map_("lt", like(pairs, 0), pairs), DType.float32)
    return map_("add", matmul(won, constant(first - last)), constant(last.sum(0)))


def _probabilities(pairs: Value, n: int, prob_a: Sequence[float], prob_b: Sequence[float]) -> Value:
    """Platt's sigmoid of each decision, then the classes."""
    count = n * (n - 1) // 2
    if len(prob_a) < count or len(prob_b) < count:
        raise IRError(f"prob_a and prob_b must hold {count} numbers")
    a, b = (constant(np.asarray(v[:count], np.float32)) for v in (prob_a, prob_b))
    likely = map_("sigmoid", map_("neg", map_("add", map_("mul", pairs, a), b)))
    y: Value = COUPLING({"y": (DType.float32, (pairs.shape[0], n))}, {"x": contiguous(likely)}, rows=pairs.shape[0], classes=n)
    return y
