"""Features of token sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Strings, Value, dims
from ..registry import op
from ..tensor import cast, concat, constant, fill, like, map_, reduce, reshape, strings, unsqueeze
from .gather import Gather
from .matmul import matmul


@op()
def TfIdfVectorizer(
    X: Value | Strings, *,
    max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str, ngram_counts: Sequence[int], ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None, pool_strings: Sequence[str] | None = None, weights: Sequence[float] | None = None,
) -> Value:  # fmt: skip
    """How often each n-gram of the pool occurs: windows of the tokens, a view, compared with all of them at once.

    Windows take neighbours at distance 1 to 1 + max_skip_count; single tokens count once.
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
    found, at = [], 0
    picked: list[int] = []
    for n, (start, end) in enumerate(zip(ngram_counts, [*ngram_counts[1:], len(pool)], strict=True), 1):
        grams = np.array(pool[start:end], np.int64).reshape(-1, n)
        ids, at = range(at, at + len(grams)), at + len(grams)
        if not min_gram_length <= n <= max_gram_length or not len(grams):
            continue
        total = None
        for distance in range(1, 2 + (max_skip_count if n > 1 else 0)):
            count = dims.dmax(tokens - (n - 1) * distance, 0)
            same = None
            for j in range(n):
                first = dims.dmin(j * distance, tokens - count)  # not beyond the end where there is no window
                window = x.view([rows, count, 1], x.offset + first * x.strides[1], [*x.strides, 0])
                equal = map_("eq", window, constant(grams[:, j].reshape(1, 1, -1)))
                same = equal if same is None else map_("and", same, equal)
            assert same is not None
            hits = reduce("sum", cast(same, DType.float32), [1])
            total = hits if total is None else map_("add", total, hits)
        assert total is not None
        found.append(total)
        picked += ids
    counts = concat(found, 1)
    if mode != "TF":
        weight = constant(np.array([1.0 if weights is None else weights[i] for i in picked], np.float32))
        counts = map_(
            "mul", unsqueeze(weight, [0]), counts if mode == "TFIDF" else cast(map_("lt", like(counts, 0), counts), DType.float32)
        )
    y = _placed(counts, [ngram_indexes[i] for i in picked], max(ngram_indexes) + 1)
    return reshape(y, [y.shape[1]]) if X.rank == 1 else y


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
