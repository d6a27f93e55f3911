"""Operators that move, view or measure: no arithmetic on data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..ir import Graph, IRError, Node, Strings, Value, dims
from ..ir.dims import Dim, DimLike
from ..registry import Context, Enum, Kernel, Moved, Step, adjoint, op
from ..tensor import (
    axes_of,
    axis_of,
    between,
    between_data,
    broadcast_to,
    cast,
    chosen,
    concat,
    constant,
    content,
    contiguous,
    dims_of,
    expand,
    fill,
    index,
    literal,
    map_,
    reshape,
    sized,
    slice_,
    split,
    squeeze,
    squeeze_data,
    strings,
    summed_to,
    transpose,
    unsqueeze,
    unsqueeze_data,
)
from ..tensor.packed import pack, unpack

PAD_MODES = Enum("Padding", "constant reflect edge wrap")


def _pad_params(node: Node) -> dict[str, Any]:
    x, p = node.ins["x"], node.params
    return {
        "mode": PAD_MODES.index(p["mode"]), "rank": x.rank, "xoff": x.offset, "xshape": x.shape, "xstride": x.strides,
        "before": p["before"], "yshape": node.out.shape, "value": p["value"],
    }  # fmt: skip


PAD = Kernel(
    "pad",
    ">y x value?",
    "mode rank xoff xshape[8] xstride[8] before[8] yshape[8] value:f",
    _pad_params,
    ("strided",),
    {"mode": PAD_MODES},
)


@op()
def Constant(
    *,
    value: Value | Strings | None = None,
    sparse_value: Value | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Value | Strings:
    for given in (value, sparse_value):
        if given is not None:
            return given
    for number, dtype in ((value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64)):
        if number is not None:
            return constant(np.array(number, dtype))
    if value_string is None and value_strings is None:
        raise IRError("it has no value")
    return strings.text(np.array(value_string if value_strings is None else value_strings, object))


@op()
def ConstantOfShape(input: Value, *, value: Value | None = None) -> Value:
    shape = dims_of(input, "the shape")
    if value is None:
        return fill(shape, 0, DType.float32)
    return broadcast_to(reshape(value, ()), shape)


@op()
def Shape(data: Value | Strings, *, start: int = 0, end: int | None = None) -> Value:
    return literal(data.shape[slice(start, end)])


@op()
def Size(data: Value | Strings) -> Value:
    return reshape(literal([data.size]), ())


@op(since=5)
def Reshape(data: Moved, shape: Value, *, allowzero: int = 0) -> Moved:
    return reshape(data, _target(data, dims_of(shape, "the shape"), bool(allowzero)))


@op("Reshape", since=1, until=4)
def Reshape_1(data: Moved, *, shape: Sequence[int], consumed_inputs: Any = None) -> Moved:
    return reshape(data, _target(data, list(shape), False))


def _target(x: Value, want: Sequence[DimLike], allowzero: bool) -> list[DimLike]:
    """Resolves 0 (keep) and -1 (infer), in sizes that may be known only when shapes are bound."""
    sizes: list[DimLike] = []
    for axis, size in enumerate(want):
        if not allowzero and _may_be(size, 0):
            kept = x.shape[axis] if axis < x.rank else 0
            size = dims.select(dims.eq(size, 0), kept, size)
        sizes.append(size)
    maybe = [axis for axis, size in enumerate(sizes) if _may_be(size, -1)]
    if not maybe:
        return sizes
    if [a for a in maybe if sizes[a] == -1]:
        maybe = [a for a in maybe if sizes[a] == -1 or not _is_size(sizes[a])]
    known = dims.product([dims.select(dims.eq(s, -1), 1, s) if a in maybe else s for a, s in enumerate(sizes)])
    if known == 0:
        rest: DimLike = 0
    elif isinstance(known, int) or (len(maybe) == 1 and sizes[maybe[0]] == -1):
        rest = x.size // known
    else:
        rest = x.size // dims.dmax(known, 1)
    out = [dims.select(dims.eq(s, -1), rest, s) if a in maybe else s for a, s in enumerate(sizes)]
    return out


def _may_be(size: DimLike, value: int) -> bool:
    if isinstance(size, int):
        return size == value
    if _is_size(size):
        return False
    low, high = dims.bounds(size)
    return (low is None or low <= value) and (high is None or value <= high)


def _is_size(size: DimLike) -> bool:
    """True for what is made of tensor sizes alone, which are neither 0 to keep nor -1 to infer; elements end in a brace."""
    return isinstance(size, Dim) and not any(s.endswith("}") for s in dims.symbols(size))


def _text(shape: Sequence[Any]) -> str:
    return ", ".join(map(str, shape))


@op()
def Flatten(input: Moved, *, axis: int = 1) -> Moved:
    axis += input.rank if axis < 0 else 0
    return reshape(input, [dims.product(input.shape[:axis]), dims.product(input.shape[axis:])])


@op()
def Transpose(data: Moved, *, perm: Sequence[int] | None = None) -> Moved:
    return transpose(data, list(perm) if perm is not None else list(range(data.rank))[::-1])


@op(since=13)
def Squeeze(data: Moved, axes: Value | None = None) -> Moved:
    if axes is None:
        return _squeeze(data, None)
    which = axes_of(axes, data.rank)
    known = [a for a in which if isinstance(a, int)]
    return _squeeze(data, known) if len(known) == len(which) else squeeze_data(data, which)


@op("Squeeze", since=1, until=12)
def Squeeze_1(data: Moved, *, axes: Sequence[int] | None = None) -> Moved:
    return _squeeze(data, axes)


def _squeeze(data: Value, axes: Sequence[int] | None) -> Value:
    if axes is None:
        axes = [a for a, s in enumerate(data.shape) if s == 1]
        for a, s in enumerate(data.shape):
            if isinstance(s, Dim):
                cure = "give Squeeze its axes, or compile the model for this shape (shapes=...)"
                Graph.current().check(dims.ne(s, 1), f"axis {a} has size 1 in this run and would vanish, the others do not: {cure}")
    return squeeze(data, axes)


@op(since=13)
def Unsqueeze(data: Moved, axes: Value) -> Moved:
    if not isinstance(axes.size, int):
        raise IRError("how many axes are given must be known when the model is compiled")
    which = axes_of(axes, data.rank + axes.size)
    known = [a for a in which if isinstance(a, int)]
    return unsqueeze(data, known) if len(known) == len(which) else unsqueeze_data(data, which)


@op("Unsqueeze", since=1, until=12)
def Unsqueeze_1(data: Moved, *, axes: Sequence[int]) -> Moved:
    return unsqueeze(data, axes)


@op(since=10)
def Slice(data: Moved, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None) -> Moved:
    if not all(isinstance(v.size, int) for v in (starts, ends)):
        starts, ends, axes, steps = _of_all_axes(data, starts, ends, axes, steps)
    first, last = dims_of(starts, "starts"), dims_of(ends, "ends")
    which: list[DimLike] = list(range(len(first))) if axes is None else axes_of(axes, data.rank)
    stride: list[DimLike] = [1] * len(first) if steps is None else dims_of(steps, "steps")
    known, strides = [a for a in which if isinstance(a, int)], [s for s in stride if isinstance(s, int)]
    if len(known) == len(which) and len(strides) == len(stride):
        return _slice(data, first, last, known, strides)
    return _slice_data(data, first, last, which, stride)


def _of_all_axes(
    x: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None
) -> tuple[Value, Value, Value | None, Value | None]:
    """What says of how many axes is data: of as many as the axes or steps that are told; without them of all, the others whole."""
    told = axes if axes is not None else steps
    if told is not None and isinstance(told.size, int):
        return sized(starts, [told.size], "starts"), sized(ends, [told.size], "ends"), axes, steps
    if told is not None:
        raise IRError("how many axes are given must be known when the model is compiled")
    rank, count = x.rank, starts.shape[0]
    Graph.current().check(dims.le(count, rank), f"there are more starts than the {rank} axes of the value")
    ends = sized(ends, [count], "ends")
    begins, stops = (slice_(concat([v, fill([rank], n, v.dtype)], 0), 0, 0, rank) for v, n in ((starts, 0), (ends, 2**31 - 1)))
    return begins, stops, None, None


def _slice_data(x: Value, starts: Sequence[DimLike], ends: Sequence[DimLike], axes: Sequence[DimLike], steps: Sequence[DimLike]) -> Value:
    """Slices whose axes or steps are data: per axis of the value what is said of it, else all of it."""
    marks = chosen(axes, x.rank)
    starts, ends, steps = ([_within(v) for v in values] for values in (starts, ends, steps))
    for step in steps:
        Graph.current().check(dims.ne(step, 0), "a step is 0")
    for axis, mark in enumerate(marks):
        hits = [dims.eq(a, axis) for a in axes]
        start, end, step = (sum((h * v for h, v in zip(hits, values, strict=True)), 0) for values in (starts, ends, steps))
        size = x.shape[axis]
        x = between_data(x, axis, start, dims.select(mark, end, size), dims.select(mark, step, 1))
    return x


def _within(position: DimLike) -> DimLike:
    """A position that is known, no further out than any axis is long."""
    return max(-dims.MAX_SIZE, min(position, dims.MAX_SIZE)) if isinstance(position, int) else position


@op("Slice", since=1, until=9)
def Slice_1(data: Moved, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None) -> Moved:
    return _slice(data, starts, ends, list(axes) if axes is not None else list(range(len(starts))), [1] * len(starts))


def _slice(x: Value, starts: Sequence[DimLike], ends: Sequence[DimLike], axes: Sequence[int], steps: Sequence[int]) -> Value:
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise IRError("a step is 0")
        x = between(x, axis_of(axis, x.rank), start, end, step)
    return x


@op()
def Concat(*inputs: Moved, axis: int = 1) -> Moved:
    return concat(inputs, axis_of(axis, inputs[0].rank))


@op(since=13)
def Split(input: Moved, split: Value | None = None, *, axis: int = 0, num_outputs: int | None = None, ctx: Context) -> list[Moved]:
    return _split(input, None if split is None else dims_of(split, "split"), axis, num_outputs or len(ctx.outputs))


@op("Split", since=1, until=1)
def Split_with_sizes(
    input: Moved, sizes: Value | None = None, *, axis: int = 0, split: Sequence[int] | None = None, ctx: Context
) -> list[Moved]:
    return _split(input, split if sizes is None else dims_of(sizes, "split"), axis, len(ctx.outputs))


@op("Split", since=2, until=12)
def Split_1(input: Moved, *, axis: int = 0, split: Sequence[int] | None = None, ctx: Context) -> list[Moved]:
    return _split(input, split, axis, len(ctx.outputs))


def _split(x: Value, sizes: Sequence[DimLike] | None, axis: int, count: int) -> list[Value]:
    axis = axis_of(axis, x.rank)
    total = x.shape[axis]
    if sizes is None:
        each = dims.ceildiv(total, count)
        ends = [dims.dmin(each * (i + 1), total) for i in range(count)]
        sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    return split(x, axis, sizes)


@op()
def Expand(input: Moved, shape: Value) -> Moved:
    return expand(input, dims_of(shape, "the shape"))


@op("Tile", since=1, until=5)
def Tile_1(input: Moved, tiles: Value, axis: Value) -> Moved:
    (at,), (times,) = axes_of(axis, input.rank, "the axis"), dims_of(reshape(tiles, [1]), "tiles")
    repeats = literal([dims.select(dims.eq(at, a), times, 1) for a in range(input.rank)])
    tiled: Moved = Tile(input, repeats)
    return tiled


@op(since=6)
def Tile(input: Moved, repeats: Value) -> Moved:
    times = dims_of(repeats, "repeats")
    shape = [d for t, s in zip(times, input.shape, strict=True) for d in (t, s)]
    spread = broadcast_to(unsqueeze(input, list(range(0, 2 * input.rank, 2))), shape)
    return reshape(spread, [t * s for t, s in zip(times, input.shape, strict=True)])


@op(since=11)
def Pad(data: Moved, pads: Value, constant_value: Moved | None = None, axes: Value | None = None, *, mode: str = "constant") -> Moved:
    rank = data.rank
    which: list[DimLike] = axes_of(axes, rank) if axes is not None else list(range(rank))
    given = dims_of(pads, "pads")
    before: list[DimLike] = [0] * rank
    after: list[DimLike] = [0] * rank
    if len(given) != 2 * len(which):
        raise IRError(f"{len(given)} pads for {len(which)} axes: there must be two per axis")
    for i, at in enumerate(which):
        for axis in range(rank):
            before[axis] = dims.select(dims.eq(at, axis), given[i], before[axis])
            after[axis] = dims.select(dims.eq(at, axis), given[i + len(which)], after[axis])
    return pad(data, before, after, mode, constant_value)


@op("Pad", since=1, until=1)
def Pad_1(data: Value, *, paddings: Sequence[int], mode: str = "constant", value: float = 0.0) -> Value:
    return pad(data, paddings[: data.rank], paddings[data.rank :], mode, constant(np.array(value, to_numpy(data.dtype))))


@op("Pad", since=2, until=10)
def Pad_2(data: Value, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Value:
    return pad(data, pads[: data.rank], pads[data.rank :], mode, constant(np.array(value, to_numpy(data.dtype))))


def pad(x: Value, before: Sequence[DimLike], after: Sequence[DimLike], mode: str = "constant", value: Value | None = None) -> Value:
    """Elements put around (or, where negative, taken off) each axis."""
    if mode not in PAD_MODES:
        raise IRError(f"pad mode {mode!r} is not one of {', '.join(PAD_MODES)}")
    if all(b == 0 for b in before) and all(a == 0 for a in after):
        return x
    if x.dtype.bits < 8:
        codes = pad(unpack(x), before, after, mode, None if value is None else unpack(value))
        return pack(codes, x.dtype)
    shape = [b + s + a for b, s, a in zip(before, x.shape, after, strict=True)]
    known = None if value is None else content(value)
    number = known.item() if known is not None and not isinstance(known.item(), Dim) else None
    if number is not None and float(number) != number and number == number:  # a double cannot hold it
        number = None
    y: Value = PAD(
        {"y": (x.dtype, shape)},
        {"x": x, "value": contiguous(value) if value is not None and number is None else None},
        mode=mode,
        before=tuple(before),
        value=float(number or 0),
    )
    return y


@op()
def DepthToSpace(input: Moved, *, blocksize: int, mode: str = "DCR") -> Moved:
    n, c, h, w = input.shape
    b = blocksize
    if mode == "DCR":
        x = transpose(reshape(input, [n, b, b, c // (b * b), h, w]), [0, 3, 4, 1, 5, 2])
    else:
        x = transpose(reshape(input, [n, c // (b * b), b, b, h, w]), [0, 1, 4, 2, 5, 3])
    return reshape(x, [n, c // (b * b), h * b, w * b])


@op()
def SpaceToDepth(input: Moved, *, blocksize: int, mode: str = "DCR") -> Moved:
    n, c, h, w = input.shape
    b = blocksize
    x = reshape(input, [n, c, h // b, b, w // b, b])
    x = transpose(x, [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4])
    return reshape(x, [n, c * b * b, h // b, w // b])


_REACH = 2**62 - 1  #: the difference of two such numbers is an int64


@op()
def Range(start: Value, limit: Value, delta: Value, *, stash_type: int = 1) -> Value:
    dtype = start.dtype
    if dtype.is_int:
        first, stop, step = (dims_of(v, what)[0] for v, what in ((start, "start"), (limit, "limit"), (delta, "delta")))
        for end in (first, stop):
            least, most = dims.bounds(end)
            if least is None or most is None or least < -_REACH or most > _REACH:
                Graph.current().check(dims.le(-_REACH, end) * dims.le(end, _REACH), f"a range to {end} goes beyond 2^62")
        step = dims.dmax(step, -2 * _REACH)
        if step == 1:
            count = dims.dmax(stop - first, 0)
        elif isinstance(step, int) and step != 0:
            count = dims.dmax(dims.ceildiv(stop - first, step) if step > 0 else dims.ceildiv(first - stop, -step), 0)
        else:
            count = dims.dmax(
                dims.select(
                    dims.gt(step, 0), dims.ceildiv(stop - first, dims.dmax(step, 1)), dims.ceildiv(first - stop, dims.dmax(0 - step, 1))
                ),
                0,
            )
    else:
        if dtype in (DType.float16, DType.bfloat16) and stash_type != DType.float32:
            raise IRError(f"stash_type {stash_type} is not supported (1, float32, is)")
        compute = DType.float64 if dtype is DType.float64 else DType.float32
        low, high, by = (reshape(cast(v, compute), ()) for v in (start, limit, delta))
        steps_of = map_("div", cast(map_("sub", high, low), DType.float64), cast(by, DType.float64))
        count = dims.dmax(dims_of(cast(map_("ceil", steps_of), DType.int64), "the range")[0], 0)
    wide = dtype if dtype in (DType.int32, DType.int64, DType.float64) else DType.int64 if dtype.is_int else DType.float32
    steps = map_("mul", cast(index(0, [count]), wide), cast(reshape(delta, ()), wide))
    return cast(map_("add", steps, cast(reshape(start, ()), wide)), dtype)


@op()
def EyeLike(input: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    to = DType(dtype) if dtype else input.dtype
    row, column = index(0, input.shape), index(1, input.shape)
    return cast(map_("eq", map_("add", row, constant(np.int64(k))), column), to)


@op()
def Trilu(input: Moved, k: Value | None = None, *, upper: int = 1) -> Moved:
    rank = input.rank
    row, column = index(rank - 2, input.shape), index(rank - 1, input.shape)
    edge = row if k is None else map_("add", row, reshape(k, ()))
    keep = map_("le", edge, column) if upper else map_("le", column, edge)
    return map_("where", keep, input, constant(np.array(0, to_numpy(input.dtype)), input.dtype))


@op()
def OneHot(indices: Value, depth: Value, values: Moved, *, axis: int = -1) -> Moved:
    size = dims_of(cast(depth, DType.int64), "depth")[0]
    rank = indices.rank + 1
    axis = axis_of(axis, rank)
    at = unsqueeze(cast(indices, DType.int64), [axis])
    shape = [size if a == axis else s for a, s in enumerate(at.shape)]
    wrapped = map_("where", map_("lt", at, constant(np.int64(0))), map_("add", at, reshape(literal([size]), ())), at)
    hit = map_("eq", broadcast_to(wrapped, shape), index(axis, shape))
    off, on = (reshape(v, ()) for v in split(values, 0, [1, 1]))
    return map_("where", hit, on, off)


@op()
def CenterCropPad(input_data: Moved, shape: Value, *, axes: Sequence[int] | None = None) -> Moved:
    which = [axis_of(a, input_data.rank) for a in axes] if axes is not None else list(range(input_data.rank))
    x = input_data
    before: list[DimLike] = [0] * x.rank
    after: list[DimLike] = [0] * x.rank
    for axis, want in zip(which, dims_of(shape, "the shape"), strict=True):
        extra = want - x.shape[axis]
        crop = dims.dmax(0 - extra, 0)
        x = slice_(x, axis, crop // 2, x.shape[axis] - crop)
        more = dims.dmax(extra, 0)
        before[axis], after[axis] = more // 2, more - more // 2
    return pad(x, before, after)


@adjoint("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _back_reshape(step: Step) -> list[Value | None]:
    return [reshape(step.grad, step.inputs[0].shape)]


@adjoint("Transpose")
def _back_transpose(step: Step) -> list[Value | None]:
    perm = step.attrs.get("perm") or list(range(step.grad.rank))[::-1]
    return [transpose(step.grad, [list(perm).index(a) for a in range(len(perm))])]


@adjoint("Expand")
def _back_expand(step: Step) -> list[Value | None]:
    return [summed_to(step.grad, step.inputs[0].shape)]


@adjoint("Concat")
def _back_concat(step: Step) -> list[Value | None]:
    at = axis_of(step.attrs.get("axis", 1), step.grad.rank)
    return [*split(step.grad, at, [x.shape[at] for x in step.inputs])]


@adjoint("Split")
def _back_split(step: Step) -> list[Value | None]:
    x = step.inputs[0]
    pieces = [fill(y.shape, 0, y.dtype) if g is None else g for g, y in zip(step.grads, step.outputs, strict=True)]
    return [concat(pieces, axis_of(step.attrs.get("axis", 0), x.rank))]
