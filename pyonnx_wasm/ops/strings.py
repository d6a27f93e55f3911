"""Operators on strings.

An input annotated ``Strings`` is two plain tensors: ``spans``, int64 and of its shape, and the ``pool`` of bytes that they lie in. What
moves elements moves spans: a plain operator says ``Moved`` in its signature and takes strings, too. ``tensor.strings`` has constants,
what is equal, what is found where, and joining; ``program/PROGRAM.md`` says what a span is.
"""

from __future__ import annotations

from ..ir import IRError, Strings, Value
from ..op import op
from ..tensor import reshape, strings
from .gather import Gather, ScatterElements, ScatterND
from .select import Unique


@op("Equal")
def EqualStrings(A: Strings, B: Strings) -> Value:
    return strings.equal(A, B)


@op()
def StringConcat(X: Strings, Y: Strings) -> Strings:
    return strings.join(X, Y)


@op("Unique")
def UniqueStrings(X: Strings, *, axis: int | None = None, sorted: int = 1) -> tuple[Strings, Value, Value, Value]:
    """By their ranks, which are equal where strings are and rise as they do."""
    x = X.spans if axis is not None else reshape(X.spans, [X.size])
    _, first, inverse, counts = Unique(strings.ranks(X), axis=axis, sorted=sorted)
    return Strings(Gather(x, first, axis=axis or 0), X.pool), first, inverse, counts


@op("ScatterElements")
def ScatterStrings(data: Strings, indices: Value, updates: Strings, *, axis: int = 0, reduction: str = "none") -> Strings:
    _no_reduction(reduction)
    (x, y), pool = strings.common(data, updates)
    return Strings(ScatterElements(x, indices, y, axis=axis), pool)


@op("Scatter", since=9, until=10)
def ScatterStrings_9(data: Strings, indices: Value, updates: Strings, *, axis: int = 0) -> Strings:
    return ScatterStrings(data, indices, updates, axis=axis)  # type: ignore[no-any-return]


@op("ScatterND")
def ScatterNDStrings(data: Strings, indices: Value, updates: Strings, *, reduction: str = "none") -> Strings:
    _no_reduction(reduction)
    (x, y), pool = strings.common(data, updates)
    return Strings(ScatterND(x, indices, y), pool)


def _no_reduction(reduction: str) -> None:
    if reduction != "none":
        raise IRError(f"reduction {reduction!r} of strings is not defined")
