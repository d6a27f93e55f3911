"""Reductions, arg-reductions, cumulative sums, top-k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import Graph, IRError, Value, dims
from ..ir.dims import DimLike
from ..registry import Enum, Kernel, Step, adjoint, op
from ..tensor import (
    HALVES,
    around,
    axes_of,
    axis_of,
    broadcast_to,
    cast,
    chosen,
    concat,
    contiguous,
    dims_of,
    index,
    like,
    literal,
    map_,
    parted,
    reduce,
    reshape,
    slice_,
    without,
)
from .gather import GatherElements

EXTREMES = Enum("Extreme", "largest smallest")
SCANS = Enum("Scan", "sum product")
ARGREDUCE = Kernel("argreduce", ">y x", "op select_last outer n inner", enums={"op": EXTREMES})
CUMULATIVE = Kernel("cumulative", ">y x", "op exclusive reverse outer n inner", enums={"op": SCANS})
TOPK = Kernel("topk", ">values >indices x", "outer n inner k largest")


Fold = Callable[..., Value]  # of a reduction's name and a value, over the axes; with True those stay with size 1, as they may without


def _plain(name: str) -> Callable[[Value, Fold], Value]:
    return lambda x, fold: fold(name, x)


def _l2(x: Value, fold: Fold) -> Value:
    return map_("sqrt", fold("sumsq", x))


def _log_sum(x: Value, fold: Fold) -> Value:
    return map_("log", fold("sum", x))


def _log_sum_exp(x: Value, fold: Fold) -> Value:
    """Shifted by the maximum where that is finite, so that exp cannot overflow."""
    top = fold("max", x, True)
    finite = map_("lt", map_("abs", top), like(top, np.inf))
    shift = map_("where", finite, top, like(top, 0))
    return map_("add", map_("log", fold("sum", map_("exp", map_("sub", x, shift)), True)), shift)


REDUCE = {
    "ReduceSum": _plain("sum"), "ReduceMean": _plain("mean"), "ReduceMax": _plain("max"), "ReduceMin": _plain("min"),
    "ReduceProd": _plain("prod"), "ReduceSumSquare": _plain("sumsq"), "ReduceL1": _plain("sumabs"), "ReduceL2": _l2,
    "ReduceLogSum": _log_sum, "ReduceLogSumExp": _log_sum_exp,
}  # fmt: skip
WITHOUT_AXES = {"ReduceSumSquare": "sumsq", "ReduceL1": "abs", "ReduceL2": "abs", "ReduceLogSum": "log"}


def _reduction(name: str, fn: Callable[[Value, Fold], Value]) -> tuple[Callable[..., Value], Callable[..., Value]]:
    def apply(x: Value, axes: Sequence[DimLike] | None, keep: bool, noop: bool) -> Value:
        if x.dtype in HALVES:
            return cast(apply(cast(x, DType.float32), axes, keep, noop), x.dtype)
        if not axes:
            if noop:
                special = WITHOUT_AXES.get(name)
                return x if special is None else map_("mul", x, x) if special == "sumsq" else map_(special, x)
            axes = list(range(x.rank))
        if x.dtype.is_int and fn in (_l2, _log_sum, _log_sum_exp):
            return cast(over(cast(x, DType.float64), axes, keep), x.dtype)
        return over(x, axes, keep)

    def over(x: Value, axes: Sequence[DimLike], keep: bool) -> Value:
        known = [a for a in axes if isinstance(a, int)]
        if len(known) == len(axes):
            y = fn(x, lambda kind, v, stay=False: reduce(kind, v, known, keep or stay))
            drop = {axis_of(a, x.rank) for a in known}
            return y if keep or y.rank < x.rank else reshape(y, [s for a, s in enumerate(x.shape) if a not in drop])
        marks = chosen(axes, x.rank)
        y = fn(x, lambda kind, v, stay=False: reduce(kind, parted(v, marks), range(x.rank, 2 * x.rank), False))
        return y if keep else without(y, marks, len(axes))

    def with_input(data: Value, axes: Value | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Value:
        which = None if axes is None or axes.size == 0 else axes_of(axes, data.rank)
        return apply(data, which, bool(keepdims), bool(noop_with_empty_axes))

    def with_attribute(data: Value, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Value:
        return apply(data, axes, bool(keepdims), False)

    return with_input, with_attribute


for _name, _fn in REDUCE.items():
    _new, _old = _reduction(_name, _fn)
    _since = 13 if _name == "ReduceSum" else 18
    op(_name, since=_since)(_new)
    op(_name, since=1, until=_since - 1)(_old)


def _around(x: Value, axis: int) -> tuple[Any, Any, Any]:
    return dims.product(x.shape[:axis]), x.shape[axis], dims.product(x.shape[axis + 1 :])


def _arg(kind: str, data: Value, axis: int, keepdims: int, select_last_index: int) -> Value:
    """The place of the first or last extreme; nothing is written where the axis is empty."""
    at = axis_of(axis, data.rank)
    if data.dtype in HALVES:
        data = cast(data, DType.float32)
    outer, n, inner = _around(data, at)
    shape = [*data.shape[:at], *([1] if keepdims else []), *data.shape[at + 1 :]]
    y: Value = ARGREDUCE(
        {"y": (DType.int64, shape)},
        {"x": contiguous(data)},
        op=EXTREMES.index(kind),
        select_last=select_last_index,
        outer=outer * dims.gt(n, 0),
        n=n,
        inner=inner,
    )
    return y


def _demand_elements(data: Value, axis: int) -> None:
    at = axis_of(axis, data.rank)
    rest = dims.product(s for a, s in enumerate(data.shape) if a != at)
    Graph.current().check(dims.ne(dims.gt(data.shape[at], 0) + dims.eq(rest, 0), 0), f"axis {axis} is empty: it has no extreme")


@op()
def ArgMax(data: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
    _demand_elements(data, axis)
    return _arg("largest", data, axis, keepdims, select_last_index)


@op()
def ArgMin(data: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
    _demand_elements(data, axis)
    return _arg("smallest", data, axis, keepdims, select_last_index)


def _cumulative(kind: str, x: Value, axis: Value, exclusive: int, reverse: int) -> Value:
    if x.dtype in HALVES:
        return cast(_cumulative(kind, cast(x, DType.float32), axis, exclusive, reverse), x.dtype)
    outer, n, inner = around(x.shape, axes_of(axis, x.rank, "axis")[0])
    y: Value = CUMULATIVE(
        {"y": (x.dtype, x.shape)},
        {"x": contiguous(x)},
        op=SCANS.index(kind),
        exclusive=exclusive,
        reverse=reverse,
        outer=outer,
        n=n,
        inner=inner,
    )
    return y


@op()
def CumSum(x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    return _cumulative("sum", x, axis, exclusive, reverse)


@op()
def CumProd(x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    return _cumulative("product", x, axis, exclusive, reverse)


def topk(x: Value, k: Any, axis: int, largest: int) -> tuple[Value, Value]:
    """The k largest or smallest along an axis, in order, of equal ones the first first; and their positions, int64."""
    at = axis_of(axis, x.rank)
    if x.dtype is DType.bfloat16:
        values, indices = topk(cast(x, DType.float32), k, axis, largest)
        return cast(values, x.dtype), indices
    Graph.current().check(dims.le(k, x.shape[at]), f"k {k} exceeds the axis's size {x.shape[at]}")
    outer, n, inner = _around(x, at)
    shape = [*x.shape[:at], k, *x.shape[at + 1 :]]
    values, indices = TOPK(
        {"values": (x.dtype, shape), "indices": (DType.int64, shape)},
        {"x": contiguous(x)},
        outer=outer,
        n=n,
        inner=inner,
        k=k,
        largest=largest,
    )
    return values, indices


BLOCK = 64  # numbers side by side, of which one alone is compared at first


def _leading(x: Value, count: DimLike) -> tuple[Value, Value]:
    """The ``count`` largest of float32 [..., n], in order, of equal ones the first first; and their places, int64.

    They lie in the ``count`` blocks whose own largest are the largest, of equal ones the first: any other block has so many elements
    before its own.
    """
    *outer, n = x.shape
    if not isinstance(n, int) or not isinstance(count, int) or n <= 4 * count * BLOCK:
        return topk(x, count, -1, 1)
    blocks = -(-n // BLOCK)
    if n % BLOCK:
        x = concat([x, broadcast_to(literal([-np.inf], x.dtype), [*outer, blocks * BLOCK - n])], x.rank - 1)
    _, best = topk(reduce("max", reshape(x, [*outer, blocks, BLOCK]), [x.rank]), count, -1, 1)
    best, _ = topk(best, count, -1, 0)  # in their order again, which is that of equal ones
    shape = [*outer, count, BLOCK]
    begin = map_("mul", reshape(best, [*outer, count, 1]), literal([BLOCK]))
    places = reshape(map_("add", begin, index(x.rank, shape)), [*outer, count * BLOCK])
    most, found = topk(GatherElements(x, places, axis=-1), count, -1, 1)
    return most, GatherElements(places, found, axis=-1)


def choice(logits: Value, count: int) -> list[Value]:
    """Of logits [..., vocabulary] the largest ``count``, or all: float32 [..., 2 * count + 1] of their places, themselves, the largest
    first and of equal ones the first, and the logarithm of the sum of all logits' powers; and, of several, the same of the first alone."""
    wide = cast(logits, DType.float32)
    most, places = _leading(wide, dims.dmin(count, wide.shape[-1]))
    total = _log_sum_exp(wide, lambda name, x, keep=True: reduce(name, x, [x.rank - 1], True))
    axis, found = wide.rank - 1, [cast(places, DType.float32), most]
    first = [slice_(x, axis, 0, 1) for x in found]
    return [concat([*of, total], axis) for of in ((found, first) if count > 1 else (found,))]


@op(since=10)
def TopK(X: Value, K: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Value, Value]:
    return topk(X, dims_of(K, "K")[0], axis, largest)


@op("TopK", since=1, until=9)
def TopK_1(X: Value, *, k: int, axis: int = -1) -> tuple[Value, Value]:
    return topk(X, k, axis, 1)


@op(since=13)
def Hardmax(input: Value, *, axis: int = -1) -> Value:
    at = axis_of(axis, input.rank)
    first = _arg("largest", input, at, 1, 0)
    return cast(map_("eq", index(at, input.shape), first), input.dtype)


@op("Hardmax", since=1, until=12)
def Hardmax_1(input: Value, *, axis: int = 1) -> Value:
    at = axis_of(axis, input.rank)
    flat = reshape(input, [dims.product(input.shape[:at]), dims.product(input.shape[at:])])
    return reshape(Hardmax(flat, axis=1), input.shape)


@op()
def MeanVarianceNormalization(X: Value, *, axes: Sequence[int] = (0, 2, 3)) -> Value:
    centred = map_("sub", X, reduce("mean", X, axes, True))
    deviation = map_("sqrt", reduce("mean", map_("mul", centred, centred), axes, True))
    return map_("div", centred, map_("add", deviation, like(X, 1e-9)))


@adjoint("ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMin")
def _back_reduction(step: Step) -> list[Value | None]:
    """Of the largest and the least, to what gives them, of equal ones each its share."""
    x = step.inputs[0]
    axes: Any = step.attrs.get("axes")
    if len(step.inputs) > 1 and step.inputs[1] is not None:
        axes = axes_of(step.inputs[1], x.rank)
    if not axes and step.attrs.get("noop_with_empty_axes", 0):
        raise IRError("it reduces nothing")
    if any(not isinstance(a, int) for a in axes or ()):
        raise IRError("its axes are data")
    over = {axis_of(a, x.rank) for a in (axes or range(x.rank))}
    kept = [1 if a in over else s for a, s in enumerate(x.shape)]
    g, y = (broadcast_to(reshape(v, kept), x.shape) for v in (step.grad, step.outputs[0]))
    if step.name in ("ReduceMax", "ReduceMin"):
        mark = cast(map_("eq", x, y), x.dtype)
        return [map_("mul", g, map_("div", mark, reduce("sum", mark, list(over), True)))]
    size = cast(reshape(literal([dims.product([x.shape[a] for a in over])]), []), x.dtype)
    slope = {
        "ReduceSum": lambda: like(x, 1),
        "ReduceMean": lambda: map_("recip", size),
        "ReduceSumSquare": lambda: map_("mul", x, like(x, 2)),
        "ReduceL1": lambda: map_("sign", x),
        "ReduceL2": lambda: map_("where", map_("eq", y, like(y, 0)), like(x, 0), map_("div", x, y)),
        "ReduceLogSumExp": lambda: map_("exp", map_("sub", x, y)),
    }[step.name]()
    return [map_("mul", g, slope)]
