"""Features of token sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Strings, Value, dims
from ..registry import op
from ..tensor import broadcast_to, cast, concat, constant, contiguous, fill, index, like, literal, map_, reduce, reshape, strings, unsqueeze
from .gather import Gather, ScatterElements
from .matmul import matmul


@op()
def TfIdfVectorizer(
    X: Value | Strings, *,
    max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str, ngram_counts: Sequence[int], ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None, pool_strings: Sequence[str] | None = None, weights: Sequence[float] | None = None,
) -> Value:  # fmt: skip
    """How often each n-gram of the pool occurs: windows of the tokens, a view, compared with all of them at once.

    Windows take neighbours at distance 1 to 1 + max_skip_count; single tokens count once. Of n-grams for one place of the result, IDF takes
    the weight of the one that occurs last, as onnxruntime does.
    """
    if (pool_strings is None) is isinstance(X, Strings) or (pool_int64s is None) is not isinstance(X, Strings):
        raise IRError("it takes pool_strings for strings, pool_int64s for numbers")
    if isinstance(X, Strings):  # by where they are in the pool
        places = {w: k for k, w in enumerate(dict.fromkeys(pool_strings or ()))}
        pool: Sequence[int] = [places[w] for w in pool_strings or ()]
        X = strings.find(X, strings.text(list(places), "pool_strings"))
    else:
        pool = pool_int64s or ()
    if mode not in ("TF", "IDF", "TFIDF"):
        raise IRError(f"mode {mode!r} is not one of TF, IDF, TFIDF")
    x = cast(reshape(X, [1, X.shape[0]]) if X.rank == 1 else X, DType.int64)
    rows, tokens = x.shape
    columns = [i for i in ngram_indexes if i >= 0]
    ordered = mode == "IDF" and len(set(columns)) < len(columns)
    found, latest, at = [], [], 0
    picked: list[int] = []
    for n, (start, end) in enumerate(zip(ngram_counts, [*ngram_counts[1:], len(pool)], strict=True), 1):
        grams = np.array(pool[start:end], np.int64).reshape(-1, n)
        ids, at = range(at, at + len(grams)), at + len(grams)
        if not min_gram_length <= n <= max_gram_length or not len(grams):
            continue
        total = last = None
        for distance in range(1, 2 + (max_skip_count if n > 1 else 0)):
            count = dims.dmax(tokens - (n - 1) * distance, 0)
            same = None
            for j in range(n):
                first = dims.dmin(j * distance, tokens - count)  # not beyond the end where there is no window
                window = x.view([rows, count, 1], x.offset + first * x.strides[1], [*x.strides, 0])
                equal = map_("eq", window, constant(grams[:, j].reshape(1, 1, -1)))
                same = equal if same is None else map_("and", same, equal)
            assert same is not None
            if ordered:
                order = _order(distance, count, tokens, n, max_gram_length)
                newest = _latest(map_("where", same, order, constant(np.int64(-1))))
                last = newest if last is None else map_("max", last, newest)
            hits = reduce("sum", cast(same, DType.float32), [1])
            total = hits if total is None else map_("add", total, hits)
        assert total is not None
        found.append(total)
        latest.append(last)
        picked += ids
    counts = concat(found, 1)
    if ordered:
        counts = _only_last(counts, concat([v for v in latest if v is not None], 1), [ngram_indexes[i] for i in picked])
    if mode != "TF":
        weight = constant(np.array([1.0 if weights is None else weights[i] for i in picked], np.float32))
        counts = map_(
            "mul", unsqueeze(weight, [0]), counts if mode == "TFIDF" else cast(map_("lt", like(counts, 0), counts), DType.float32)
        )
    y = _placed(counts, [ngram_indexes[i] for i in picked], max(ngram_indexes) + 1)
    return reshape(y, [y.shape[1]]) if X.rank == 1 else y


def _order(distance: int, count: dims.DimLike, tokens: dims.DimLike, n: int, longest: int) -> Value:
    """int64 [1, windows, 1]: when each window of n tokens is met: by distance, place and length."""
    first = map_("add", reshape(literal([tokens * (distance - 1)]), ()), index(1, [1, count, 1]))
    return map_("add", map_("mul", first, constant(np.int64(longest))), constant(np.int64(n - 1)))


def _latest(x: Value) -> Value:
    """The largest along axis 1, -1 where there is none."""
    return reduce("max", concat([x, fill([x.shape[0], 1, x.shape[2]], -1, x.dtype)], 1), [1])


def _only_last(counts: Value, latest: Value, columns: Sequence[int]) -> Value:
    """Counts [rows, grams] of those that no later one of the same column follows, 0 for others."""
    at = constant(np.array([columns], np.int64))
    most = fill([latest.shape[0], max(columns) + 1], -1, latest.dtype)
    most = ScatterElements(most, contiguous(broadcast_to(at, latest.shape)), latest, axis=1, reduction="max")
    newest = map_("eq", Gather(most, reshape(at, [len(columns)]), axis=1), latest)
    return map_("where", newest, counts, like(counts, 0))


def _placed(x: Value, columns: Sequence[int], width: int) -> Value:
    """The columns of a matrix where they belong among `width`: those for one place are added, those for none are 0."""
    if len(set(columns)) < len(columns):
        place = np.zeros((len(columns), width), np.float32)
        place[np.arange(len(columns)), list(columns)] = 1
        return matmul(x, constant(place))
    at = {column: i for i, column in enumerate(columns)}
    order = [at.get(column, len(columns)) for column in range(width)]
    if len(at) < width:
        x = concat([x, fill([x.shape[0], 1], 0, DType.float32)], 1)
    return x if order == list(range(len(columns))) else Gather(x, constant(np.array(order, np.int64)), axis=1)
