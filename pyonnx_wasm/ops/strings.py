"""Operators on strings.

An input annotated ``Strings`` is two plain tensors: ``spans``, int64 and of its shape, and the ``pool`` of bytes that they lie in. What
moves elements moves spans: a plain operator says ``Moved`` in its signature and takes strings, too. ``tensor.strings`` has constants,
what is equal, what is found where, and joining; ``program/PROGRAM.md`` says what a span is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Strings, Value, dims
from ..registry import Kernel, op
from ..tensor import concat, constant, contiguous, dims_of, map_, reduce, reshape, strings
from .gather import Gather, ScatterElements, ScatterND
from .regex import automaton
from .select import Unique, positions
from .shape import pad

SPLIT = Kernel("string_split", ">y? >count? x pool delimiter", "n width most", traits=strings.TRAITS)
CASE = Kernel("string_case", ">y >pool x xpool table", "n rows room", traits=strings.TRAITS)
MATCH = Kernel("string_match", ">y x pool states ranges", "n size count", traits=strings.TRAITS)
LAST_CASED = 0x1E943  # no code point behind it has another case


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


@op()
def StringSplit(X: Strings, *, delimiter: str = "", maxsplit: int = -1) -> tuple[Strings, Value]:
    """As Python's ``str.split``: without a delimiter at runs of Unicode white space, none at the ends. Missing pieces are empty."""
    spans = contiguous(X.spans)
    ins = {"x": spans, "pool": contiguous(X.pool), "delimiter": constant(np.frombuffer(delimiter.encode(), np.uint8))}
    counts: Value = SPLIT({"count": (DType.int64, X.shape)}, ins, n=X.size, most=maxsplit)
    every = concat([reshape(counts, [X.size]), constant(np.zeros(1, np.int64))], 0)
    width = dims_of(reduce("max", every, [0], True), "the most pieces of a string")[0]
    y: Value = SPLIT({"y": (DType.int64, [*X.shape, width])}, ins, n=X.size, width=width, most=maxsplit)
    return Strings(y, X.pool), counts


@op()
def StringNormalizer(
    X: Strings,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: Sequence[str] | None = None,
) -> Strings:
    """Strings without the stop words, in another case: Unicode's simple mappings, one code point for one, whatever the locale."""
    if case_change_action not in ("NONE", "LOWER", "UPPER"):
        raise IRError(f"case_change_action {case_change_action!r} is not one of NONE, LOWER, UPPER")
    if X.rank not in (1, 2):
        raise IRError(f"strings of shape [C] or [1, C] are normalised, not of rank {X.rank}")
    x = X if X.rank == 1 else Strings(reshape(X.spans, [X.shape[1]]), X.pool)
    if stopwords:
        words = strings.text(list(stopwords), "stopwords")
        same = (lambda s: s) if is_case_sensitive else (lambda s: in_case(s, case_change_action == "UPPER"))
        at = positions(map_("lt", strings.find(same(x), same(words)), constant(np.int64(0))))
        x = Strings(Gather(x.spans, at), x.pool)
    x = Strings(pad(x.spans, [0], [dims.dmax(1 - x.shape[0], 0)]), x.pool)  # the empty string where none is left
    x = x if case_change_action == "NONE" else in_case(x, case_change_action == "UPPER")
    return x if X.rank == 1 else Strings(reshape(x.spans, [1, x.shape[0]]), x.pool)


def in_case(x: Strings, upper: bool) -> Strings:
    """Strings in upper or lower case. A code point may take half as many bytes more."""
    table, spans = constant(_cases(upper)), contiguous(x.spans)
    size = strings.total(strings.lengths(x))
    room = size + size // 2
    y, pool = CASE(
        {"y": (DType.int64, x.shape), "pool": (DType.uint8, [room])},
        {"x": spans, "xpool": contiguous(x.pool), "table": table},
        n=x.size,
        rows=table.shape[0],
        room=room,
    )
    return Strings(y, pool)


@cache
def _cases(upper: bool) -> np.ndarray:
    """Rows of a code point and the one in its place, int32, by rising code point."""
    rows = []
    for code in range(LAST_CASED + 1):
        char = chr(code)
        other = char.upper() if upper else char.lower()
        if len(other) != 1:  # the full mapping; the simple one is that of titles, or the first code point's
            other = char.title() if upper else other[0]
        if len(other) == 1 and other != char:
            rows.append((code, ord(other)))
    return np.array(rows, np.int32)


@op()
def RegexFullMatch(X: Strings, *, pattern: str) -> Value:
    """RE2's syntax, without ``\\C`` and the scripts of ``\\p``: an automaton that takes as long as string and pattern are."""
    states, ranges, _ = automaton(pattern)
    y: Value = MATCH(
        {"y": (DType.bool, X.shape)},
        {"x": contiguous(X.spans), "pool": contiguous(X.pool), "states": constant(states), "ranges": constant(ranges)},
        n=X.size,
        size=len(states),
        count=len(ranges),
    )
    return y
