"""What the classical models share: rows, post transforms, labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Strings, Value
from ...tensor import cast, concat, constant, contiguous, fill, like, map_, reduce, reshape, strings, unsqueeze
from ..gather import Gather
from ..normalization import softmax
from ..reduction import ArgMax

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # in the order of TreeEnsemble's numbers
NUMBERS = (DType.float32, DType.float64, DType.int32, DType.int64)


def rows_of(X: Value) -> Value:
    """[rows, features]; a vector is one row."""
    if X.rank not in (1, 2):
        raise IRError(f"X has rank {X.rank}; it must be a matrix, or a vector for one row")
    return reshape(X, [1, X.shape[0]]) if X.rank == 1 else X


def floats(X: Value, wide: bool = False) -> Value:
    """float32, or float64 where X is and that is asked for."""
    return X if wide and X.dtype is DType.float64 else cast(X, DType.float32)


def transformed(scores: Value, name: str) -> Value:
    """A post transform over the last axis; LOGISTIC and PROBIT are computed in float32."""
    if name not in TRANSFORMS:
        raise IRError(f"post_transform {name!r} is not one of {', '.join(TRANSFORMS)}")
    if name == "NONE":
        return scores
    if name == "SOFTMAX":
        return softmax(scores, scores.rank - 1)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    narrow = cast(scores, DType.float32)
    return cast(map_("sigmoid", narrow) if name == "LOGISTIC" else _probit(narrow), scores.dtype)


def _softmax_zero(x: Value) -> Value:
    """As softmax, but what is within 1e-7 of 0 stays near 0 and does not count."""
    top = reduce("max", x, [x.rank - 1], True)
    powers = map_("exp", map_("sub", x, top))
    counts = map_("lt", like(x, 1e-7), map_("abs", x))
    total = reduce("sum", map_("where", counts, powers, like(x, 0)), [x.rank - 1], True)
    return map_("div", map_("where", counts, powers, map_("mul", x, map_("exp", map_("neg", top)))), total)


def _probit(x: Value) -> Value:
    """sqrt(2) * erfinv(2 x - 1), by S. Winitzki's approximation with a = 0.147, as onnxruntime has it."""
    a = float(np.float32(0.147))
    t = map_("sub", map_("mul", like(x, 2), x), like(x, 1))
    log = map_("log", map_("mul", map_("sub", like(x, 1), t), map_("add", like(x, 1), t)))
    v = map_("add", map_("mul", like(x, 0.5), log), like(x, float(np.float32(2) / (np.float32(3.14159) * np.float32(a)))))
    inner = map_("sub", map_("mul", v, v), map_("mul", like(x, float(np.float32(1) / np.float32(a))), log))
    root = map_("sqrt", map_("sub", map_("sqrt", inner), v))
    signed = map_("where", map_("lt", t, like(x, 0)), map_("neg", root), root)
    return map_("mul", like(x, float(np.float32(1.41421356))), signed)


def columns(*xs: Value) -> Value:
    """Vectors [rows] side by side."""
    return concat([unsqueeze(x, [1]) for x in xs], 1)


def column(x: Value, at: int) -> Value:
    """One column of a matrix, as a vector."""
    return x.view([x.shape[0]], x.offset + at * x.strides[1], [x.strides[0]])


def paired(score: Value, post: str, complement: bool) -> Value:
    """The scores of two classes from that of the second: its complement where it is a probability, else its negative, beside it."""
    if post == "PROBIT":
        return columns(transformed(score, post), fill([score.shape[0]], 0.0, score.dtype))
    other = map_("sub", like(score, 1), score) if complement and post != "LOGISTIC" else map_("neg", score)
    both = columns(other, score)
    return transformed(both, post) if post == "LOGISTIC" else both


def first_largest(scores: Value) -> Value:
    """The first place of the largest score of each row, int64."""
    return ArgMax(contiguous(scores), axis=1, keepdims=0)  # type: ignore[no-any-return]


def choose(condition: Value, yes: int, no: int) -> Value:
    """int64: one of two numbers."""
    return map_("where", condition, constant(np.int64(yes)), constant(np.int64(no)))


def labels_of(places: Value, ints: Sequence[int] | None, names: Sequence[str] | None) -> Value | Strings:
    """The labels at int64 places."""
    if names:
        table = strings.text(list(names), "the labels")
        return Strings(Gather(table.spans, places), table.pool)
    if not ints:
        raise IRError("the labels are missing: classlabels_strings or classlabels_int64s")
    if list(ints) == list(range(len(ints))):
        return places
    return Gather(constant(np.array(ints, np.int64)), places)  # type: ignore[no-any-return]
