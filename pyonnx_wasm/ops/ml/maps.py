"""Maps: at a model's border alone, where rows of scores become maps from labels."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import DType
from ...ir import Graph, IRError, Maps, Value, dims
from ...registry import op
from ...tensor import contiguous, reshape
from .scores import ML, rows_of


@op(domain=ML)
def ZipMap(X: Value, *, classlabels_int64s: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None) -> Maps:
    """A map from labels to scores for each row."""
    if X.dtype is not DType.float32:
        raise IRError(f"X is {X.dtype.name}; it must be float32")
    keys: tuple[int | str, ...] = tuple(classlabels_strings or classlabels_int64s or ())
    if not keys:
        raise IRError("the labels are missing: classlabels_strings or classlabels_int64s")
    rows = contiguous(rows_of(X))
    Graph.current().check(dims.eq(rows.shape[1], len(keys)), f"{len(keys)} labels for scores {list(map(str, rows.shape))}")
    return Maps(reshape(rows, [rows.shape[0], len(keys)]), keys)
