"""Maps: at a model's border alone, where they become tensors, and rows of scores become maps from labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import DType
from ...ir import Graph, IRError, Map, Maps, Strings, Value, dims
from ...registry import op
from ...tensor import concat, constant, contiguous, dims_of, fill, literal, map_, reduce, reshape, slice_, strings, unsqueeze
from ..convert import convert, formatted, parsed
from ..gather import Gather, ScatterElements
from ..reduction import TopK
from .scores import ML, rows_of

CASTS = {"TO_FLOAT": DType.float32, "TO_INT64": DType.int64, "TO_STRING": DType.string}


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


@op(domain=ML)
def DictVectorizer(
    X: Map, *, int64_vocabulary: Sequence[int] | None = None, string_vocabulary: Sequence[str] | None = None
) -> Value | Strings:
    """A row of the values of the vocabulary's words, zeros or empty strings for those that the map lacks."""
    x = _map(X)
    words = string_vocabulary if isinstance(x.keys, Strings) else int64_vocabulary
    if words is None:
        which = "string_vocabulary" if isinstance(x.keys, Strings) else "int64_vocabulary"
        raise IRError(f"the map has keys of {x.keys.dtype.name}, {which} is missing")
    keys = x.keys if isinstance(x.keys, Strings) else formatted(x.keys)
    at = strings.find(strings.text([str(w) for w in words], "the vocabulary"), keys)  # -1 is the last
    values = x.values.spans if isinstance(x.values, Strings) else x.values
    none = fill([1], 0, values.dtype)
    row = Gather(concat([values, none], 0), at)
    return _rowed(Strings(row, x.values.pool) if isinstance(x.values, Strings) else row)


@op(domain=ML)
def CastMap(X: Map, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> Value | Strings:
    """A row of the values by rising keys, or with SPARSE each at the place of its key, 0 elsewhere; keys from ``max_map`` on are left out.
    Numbers become strings as Cast has them."""
    x, to = _map(X), CASTS.get(cast_to)
    if to is None or map_form not in ("DENSE", "SPARSE"):
        raise IRError(f"cast_to {cast_to!r} is not one of {', '.join(CASTS)}, or map_form {map_form!r} neither DENSE nor SPARSE")
    if isinstance(x.keys, Strings):
        raise IRError("the keys are strings, they must be int64")
    if map_form == "SPARSE" and max_map < 1:
        raise IRError(f"max_map is {max_map}, it must be positive")
    keys, size = x.keys, x.keys.shape[0]
    values = x.values.spans if isinstance(x.values, Strings) else x.values
    if map_form == "DENSE":
        row = Gather(values, TopK(keys, literal([size]), largest=0)[1])
    else:
        zero, most = constant(np.zeros(1, np.int64)), constant(np.int64(max_map))
        least = dims_of(reduce("min", concat([keys, zero], 0), [0], True), "the least key")[0]
        Graph.current().check(dims.ge(least, 0), f"node {Graph.current().origin!r}: a key is negative")
        place = map_("min", map_("max", keys, zero), most)
        row = slice_(ScatterElements(fill([max_map + 1], 0, values.dtype), place, values), 0, 0, max_map)
    return _rowed(_cast(row, x.values, to))


def _rowed(x: Value | Strings) -> Value | Strings:
    return Strings(unsqueeze(x.spans, [0]), x.pool) if isinstance(x, Strings) else unsqueeze(x, [0])


def _map(x: Any) -> Map:
    if isinstance(x, Map):
        return x
    raise IRError("X is no map")


def _cast(row: Value, values: Value | Strings, to: DType) -> Value | Strings:
    """What was picked of values, as another dtype; the empty string is 0."""
    if not isinstance(values, Strings):
        return formatted(row) if to is DType.string else convert(row, to)
    if to is DType.string:
        return Strings(row, values.pool)
    (spans, zero), pool = strings.common(Strings(row, values.pool), strings.text(["0"]))
    empty = map_("eq", row, constant(np.int64(0)))
    return convert(parsed(Strings(map_("where", empty, zero, spans), pool), to), to)
