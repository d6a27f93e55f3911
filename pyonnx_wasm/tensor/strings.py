"""Strings: constants, what is equal and what is found, and bytes put together.

Kernels read and write spans and pools. Moving strings is moving spans, which are int64: the kernels and views that move elements do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import Graph, Strings, Value, dims
from ..onnxfile.strings import LENGTH, MAX_BYTES, encode
from ..registry import Kernel
from .ask import dims_of
from .concat import concat
from .content import constant
from .literal import literal
from .map import map_
from .reduce import reduce
from .views import broadcast, contiguous, reshape

TRAITS = ("strings",)
EQUAL = Kernel("string_equal", ">y a apool b bpool", "n", traits=TRAITS)
FIND = Kernel("string_find", ">y x xpool table pool order", "n count", traits=TRAITS)
JOIN = Kernel("string_join", ">y >pool a apool b? bpool?", "n total", traits=TRAITS)
ORDER = Kernel("string_order", ">order? >rank? x pool", "n", traits=TRAITS)


def text(items: Sequence[str | bytes] | np.ndarray, what: str = "a constant") -> Strings:
    """Constant strings, of the shape of the array or list."""
    spans, pool = encode(items, what)
    return Strings(constant(spans), constant(pool), True)


def common(*xs: Strings) -> tuple[list[Value], Value]:
    """The spans of several tensors of strings in one pool, and that pool."""
    pools: dict[int, tuple[int, Value]] = {}
    for x in xs:
        pools.setdefault(x.pool.storage.id, (len(pools), x.pool))
    if len(pools) == 1:
        return [x.spans for x in xs], xs[0].pool
    every = [pool for _, pool in pools.values()]
    starts = [sum((p.shape[0] for p in every[:k]), 0) for k in range(len(every) + 1)]
    Graph.current().check(dims.le(starts[-1], MAX_BYTES), f"strings that come together take more than {MAX_BYTES} bytes")
    spans = []
    for x in xs:
        start = starts[pools[x.pool.storage.id][0]]
        spans.append(x.spans if start == 0 else map_("add", x.spans, reshape(literal([start * (1 << 32)]), ())))
    return spans, concat(every, 0)


def moved(fn: Callable[..., Value], *xs: Value | Strings) -> Any:
    """A function that only moves elements on tensors: on the spans of strings, which share a pool."""
    if not isinstance(xs[0], Strings):
        return fn(*xs)
    spans, pool = common(*xs)  # type: ignore[arg-type]
    return Strings(fn(*spans), pool)


def lengths(x: Strings) -> Value:
    """The bytes of each string, int64."""
    return map_("bitand", x.spans, constant(np.int64(LENGTH)))


def total(*counts: Value) -> dims.DimLike:
    """The sum of the elements of int64 tensors, as a size."""
    parts = [reduce("sum", reshape(c, [c.size]), [0], True) for c in counts]
    every = parts[0]
    for part in parts[1:]:
        every = map_("add", every, part)
    size = dims_of(every, "the bytes of strings")[0]
    Graph.current().check(dims.le(size, MAX_BYTES), f"the strings take more than {MAX_BYTES} bytes")
    return size


def join(a: Strings, b: Strings | None = None) -> Strings:
    """Each string of ``a`` with that of ``b`` behind it, packed; without ``b`` the same strings, packed."""
    if b is None:
        if a.packed:
            return a
        first, second = a.spans, None
    else:
        first, second = broadcast(a.spans, b.spans)
    first = contiguous(first)
    second = None if second is None else contiguous(second)
    size = total(*[lengths(Strings(s, a.pool)) for s in (first, second) if s is not None])
    spans, pool = JOIN(
        {"y": (DType.int64, first.shape), "pool": (DType.uint8, [size])},
        {"a": first, "apool": contiguous(a.pool), "b": second, "bpool": None if b is None else contiguous(b.pool)},
        n=first.size,
        total=size,
    )
    return Strings(spans, pool, True)


def equal(a: Strings, b: Strings) -> Value:
    """Where strings are the same bytes, bool, of the common shape."""
    first, second = map(contiguous, broadcast(a.spans, b.spans))
    ins = {"a": first, "apool": contiguous(a.pool), "b": second, "bpool": contiguous(b.pool)}
    y: Value = EQUAL({"y": (DType.bool, first.shape)}, ins, n=first.size)
    return y


def find(x: Strings, table: Strings) -> Value:
    """Where in a table ``[n]`` each string is found first, int64; -1 where it is not."""
    spans, pool = contiguous(table.spans), contiguous(table.pool)
    order: Value = ORDER({"order": (DType.int64, spans.shape)}, {"x": spans, "pool": pool}, n=spans.size)
    ins = {"x": contiguous(x.spans), "xpool": contiguous(x.pool), "table": spans, "pool": pool, "order": order}
    y: Value = FIND({"y": (DType.int64, x.shape)}, ins, n=x.size, count=spans.size)
    return y


def ranks(x: Strings) -> Value:
    """How many different strings of the tensor come before each one, int64: equal strings are equal numbers. By code points."""
    y: Value = ORDER({"rank": (DType.int64, x.shape)}, {"x": contiguous(x.spans), "pool": contiguous(x.pool)}, n=x.size)
    return y
