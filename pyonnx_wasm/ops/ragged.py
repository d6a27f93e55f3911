"""Sequences whose length is data, in tensors: all elements in one run, a row of sizes for each element (:class:`~pyonnx_wasm.ir.Packed`).

An element is a view of the run; what grows is a longer run, so every backend runs sequences with the kernels that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import ROW, Form, Graph, IRError, Items, Maybe, NeedsShape, Packed, Single, Strings, Value, dims, parts
from ..ir.dims import DimLike
from ..onnxfile.strings import MAX_BYTES
from ..tensor import (
    COPY,
    MAX_RANK,
    axis_of,
    broadcast_to,
    cast,
    concat,
    constant,
    contiguous,
    dims_of,
    fill,
    index,
    literal,
    map_,
    reduce,
    reshape,
    slice_,
    strings,
    transpose,
)
from .gather import Gather, ScatterElements, ScatterND
from .reduction import CumSum

Sequential = Items | Packed


def pack(x: Sequential, dtype: DType | None = None) -> Packed:
    """A sequence in two tensors; ``dtype``: of an empty one."""
    if isinstance(x, Packed):
        return x
    if x.whole is not None:
        return x.whole()
    dtype = x.values[0].dtype if x.values else x.dtype or dtype or DType.float32
    if 0 < dtype.bits < 8:
        raise IRError(f"sequences of {dtype.name} whose length is data are not supported: cast the tensors to a whole byte per element")
    if not x.values:
        return Packed(_nothing(dtype, 1), fill([0, ROW], 0, DType.int64), frozenset())
    runs = [flat(v) for v in x.values]
    rows = literal([n for v in x.values for n in row_of(v)])
    return Packed(side_by_side(*runs), reshape(rows, [len(runs), ROW]), frozenset(v.rank for v in x.values))


def _nothing(dtype: DType, rank: int) -> Value | Strings:
    """A tensor without elements."""
    if dtype is DType.string:
        return Strings(fill([0] * rank, 0, DType.int64), fill([0], 0, DType.uint8), True)
    return fill([0] * rank, 0, dtype)


def flat(x: Value | Strings) -> Any:
    """All elements in one run."""
    return strings.moved(lambda v: reshape(v, [v.size]), x)


def side_by_side(*runs: Value | Strings) -> Any:
    """Tensors one behind the other along their first axis."""
    return strings.moved(lambda *parts: concat(parts, 0), *runs)


def laid(lengths: Value, pool: Value) -> Strings:
    """Strings of these lengths, one behind the other in a pool."""
    Graph.current().check(dims.le(pool.shape[0], MAX_BYTES), f"strings that come together take more than {MAX_BYTES} bytes")
    run = reshape(lengths, [lengths.size])
    start = map_("sub", CumSum(run, constant(np.int64(0))), run)
    spans = map_("add", map_("mul", start, constant(np.int64(1 << 32))), run)
    return Strings(reshape(spans, lengths.shape), pool, True)


def row_of(x: Value | Strings) -> list[DimLike]:
    """A tensor's row in the table of shapes."""
    if x.rank > MAX_RANK:
        raise IRError(f"sequences of tensors of rank {x.rank} are not supported, at most {MAX_RANK}")
    return [x.rank, *x.shape, *[1] * (ROW - 1 - x.rank)]


def length(x: Sequential) -> DimLike:
    return len(x.values) if isinstance(x, Items) else x.shapes.shape[0]


def place(at: Value, count: DimLike, beyond: int = 0) -> DimLike:
    """A position, counted from the end when negative; an insertion may be one behind the last."""
    position = dims_of(reshape(at, [1]), "the position")[0]
    fits = dims.ge(position, 0 - count) * dims.lt(position, count + beyond)
    told = isinstance(position, int) and isinstance(count, int)
    text = f"position {position} is out of range for a sequence of {count}" if told else "the position is out of range for the sequence"
    Graph.current().check(fits, text if told else at_node(text))
    return dims.select(dims.lt(position, 0), position + count, position)


def at_node(text: str) -> str:
    """A message of a check, which shows as it is: with the node."""
    return f"node {Graph.current().origin!r}: {text}"


def _number(x: Value) -> DimLike:
    return dims_of(reshape(x, [1]), "a size")[0]


def _sizes(x: Packed) -> Value:
    """Elements of each tensor, int64 [length]."""
    return reduce("prod", slice_(x.shapes, 1, 1, ROW - 1), [1])


def _start(x: Packed, position: DimLike) -> DimLike:
    """Where a tensor begins in the run."""
    if position == 0:
        return 0
    return _number(reduce("sum", slice_(_sizes(x), 0, 0, position), [0]))


def the_rank(x: Packed) -> int:
    """The rank of all tensors of a sequence, where it is known."""
    if x.ranks is None and x.unranked:
        raise NeedsShape([x.unranked])
    if x.ranks is None or len(x.ranks) > 1:
        raise IRError(mixed(x))
    return next(iter(x.ranks), 0)


def mixed(x: Packed) -> str:
    """What is wrong where a tensor is taken out of a sequence of many ranks."""
    have = "any rank" if x.ranks is None else f"ranks {' and '.join(map(str, sorted(x.ranks)))}"
    return f"the sequence holds tensors of {have}: of which it gives one is data; declare the shape of its elements"


def rank_at(x: Packed, position: DimLike) -> DimLike:
    """The rank of the tensor at a position."""
    return _told(x, position)[0]


def _told(x: Packed, position: DimLike) -> list[DimLike]:
    """The row of a tensor."""
    row = slice_(x.shapes, 0, position, 1)
    if row.storage.kind == "input":  # what is read there would be read before the position is checked
        row = COPY({"y": (row.dtype, row.shape)}, {"x": row})
    return dims_of(reshape(row, [ROW]), "a shape")


def at(x: Packed, position: DimLike) -> Value | Strings:
    """The tensor at a position."""
    rank = the_rank(x)
    row = _told(x, position)
    Graph.current().check(dims.eq(row[0], rank), at_node(f"the tensor has another rank than {rank}, the declared one"))
    shape = row[1 : 1 + rank]
    start = _start(x, position)
    return strings.moved(lambda run: reshape(slice_(run, 0, start, dims.product(shape)), shape), x.elements)  # type: ignore[no-any-return]


def insert(x: Packed, value: Value | Strings, position: DimLike | None) -> Packed:
    """With a tensor more: behind the last, or before the one at a position."""
    if value.dtype is not x.dtype:
        raise IRError(f"a sequence of {x.dtype.name} cannot take {value.dtype.name}")
    run, row = flat(value), reshape(literal(row_of(value)), [1, ROW])
    ranks = None if x.ranks is None else x.ranks | {value.rank}
    if position is None or dims.same(position, length(x)):
        root, put = x.grew or (x, ())
        shapes = concat([x.shapes, row], 0)
        return replace(x, elements=side_by_side(x.elements, run), shapes=shapes, ranks=ranks, grew=(root, (*put, value)))
    head, tail = _halves(x.elements, _start(x, position), 0)
    above, below = _halves(x.shapes, position, 0)
    return replace(x, elements=side_by_side(head, run, tail), shapes=concat([above, row, below], 0), ranks=ranks, grew=None)


def run_of(values: Sequence[Value | Strings | Packed], dtype: DType) -> Packed:
    """Tensors, and sequences of them, one behind the other."""
    made = [v if isinstance(v, Packed) else pack(Items((v,), dtype)) for v in values] or [pack(Items((), dtype))]
    known = [v.ranks for v in made if v.ranks is not None]
    ranks = frozenset[int]().union(*known) if len(known) == len(made) else None
    return Packed(side_by_side(*(v.elements for v in made)), concat([v.shapes for v in made], 0), ranks)


def extend(x: Packed, more: Packed) -> Packed:
    """With the tensors of another sequence behind it."""
    root, put = x.grew or (x, ())
    both = run_of([x, more], x.dtype)
    return replace(x, elements=both.elements, shapes=both.shapes, ranks=both.ranks, grew=(root, (*put, more)))


def erase(x: Packed, position: DimLike) -> Packed:
    """Without the tensor at a position."""
    start = _start(x, position)
    size = _number(slice_(_sizes(x), 0, position, 1))
    head, tail = _halves(x.elements, start, size)
    above, below = _halves(x.shapes, position, 1)
    return replace(x, elements=side_by_side(head, tail), shapes=concat([above, below], 0), grew=None)


def _halves(x: Value | Strings, start: DimLike, size: DimLike) -> tuple[Any, Any]:
    """What lies before and behind a part of axis 0."""
    return (
        strings.moved(lambda v: slice_(v, 0, 0, start), x),
        strings.moved(lambda v: slice_(v, 0, start + size, v.shape[0] - start - size), x),
    )


def joined(x: Packed, axis: int, new_axis: bool) -> Value | Strings:
    """All tensors side by side along an axis, or along a new one."""
    if isinstance(x.elements, Strings):
        spans = _joined(replace(x, elements=x.elements.spans, grew=None), axis, new_axis)
        return Strings(spans, x.elements.pool)
    return _joined(x, axis, new_axis)


def _joined(x: Packed, axis: int, new_axis: bool) -> Value:
    rank, count = the_rank(x), length(x)
    where = axis_of(axis, rank + new_axis)
    graph = Graph.current()
    graph.check(dims.ge(count, 1), at_node("the sequence is empty"))
    first = _told(x, 0)
    _demand_alike(x, None if new_axis else where)
    shape = first[1 : 1 + rank]
    assert isinstance(x.elements, Value)
    if new_axis:
        stacked = reshape(x.elements, [count, *shape])
        return transpose(stacked, [*range(1, where + 1), 0, *range(where + 1, rank + 1)])
    sizes = reshape(slice_(x.shapes, 1, 1 + where, 1), [count])
    total = _number(reduce("sum", sizes, [0]))
    outer, inner = dims.product(shape[:where]), dims.product(shape[where + 1 :])
    whole = [*shape[:where], total, *shape[where + 1 :]]
    if outer == 1:
        return reshape(x.elements, whole)
    rows = reshape(x.elements, [outer * total, inner])
    return reshape(Gather(rows, reshape(_places(sizes, total, outer), [outer * total]), axis=0), whole)


def _demand_alike(x: Packed, but: int | None) -> None:
    """Demands that all tensors have one shape, sizes along axis ``but`` apart."""
    table = slice_(x.shapes, 1, 0, ROW)
    alike = map_("eq", table, broadcast_to(slice_(table, 0, 0, 1), table.shape))
    if but is not None:
        alike = concat([slice_(alike, 1, 0, 1 + but), slice_(alike, 1, 2 + but, ROW - 2 - but)], 1)
    least = _number(reduce("min", cast(alike, DType.int32), [0, 1]))
    Graph.current().check(dims.eq(least, 1), at_node("the tensors of the sequence differ in rank, or in sizes beyond the axis"))


def _places(sizes: Value, total: DimLike, outer: DimLike) -> Value:
    """Where [outer, total] rows lie in a run of pieces [outer, sizes[k]], one behind the other: int64 [outer, total]."""
    ends = CumSum(sizes, constant(np.int64(0)))
    ones = broadcast_to(constant(np.int64(1)), ends.shape)
    marks = ScatterElements(fill([total + 1], 0, DType.int64), ends, ones, axis=0, reduction="add")
    piece = slice_(CumSum(marks, constant(np.int64(0))), 0, 0, total)  # that each position along the axis belongs to
    own = Gather(sizes, piece, axis=0)
    start = map_("sub", Gather(ends, piece, axis=0), own)
    shape = (outer, total)
    within = map_("sub", index(1, shape), broadcast_to(start, shape))
    row = map_("add", map_("mul", index(0, shape), broadcast_to(own, shape)), within)
    begin = map_("mul", broadcast_to(start, shape), broadcast_to(reshape(literal([outer]), [1, 1]), shape))
    return map_("add", begin, row)


def divided(x: Value | Strings, axis: int, sizes: Value, keep: bool = True) -> Packed:
    """An axis in pieces of these sizes, int64 [n], which together are the axis; without ``keep`` each is 1 and the axis goes."""
    if isinstance(x, Strings):
        spans = divided(x.spans, axis, sizes, keep)
        return replace(spans, elements=Strings(spans.elements, x.pool))  # type: ignore[arg-type]
    count, length = sizes.shape[0], x.shape[axis]
    fits = map_("eq", reduce("sum", sizes, [0]), constant(np.int64(0)) if length == 0 else reshape(literal([length]), []))
    positive = map_("le", constant(np.int64(0)), reduce("min", concat([sizes, constant(np.zeros(1, np.int64))], 0), [0]))
    right = map_("and", fits, positive)
    Graph.current().check(_number(right), at_node("the sizes of the pieces do not add up to the axis's, or one is negative"))
    whole = map_("mul", cast(map_("eq", index(0, [count]), constant(np.int64(0))), DType.int64), broadcast_to(literal([length]), [count]))
    sizes = map_("where", broadcast_to(right, [count]), sizes, whole)  # what runs before that is checked stays inside
    outer, inner = dims.product(x.shape[:axis]), dims.product(x.shape[axis + 1 :])
    columns: list[Any] = [x.rank - (not keep), *x.shape[:axis], *([sizes] if keep else []), *x.shape[axis + 1 :]]
    columns += [1] * (ROW - len(columns))
    shapes = concat([broadcast_to(c if isinstance(c, Value) else literal([c]), [count]) for c in columns], 0)
    table = transpose(reshape(shapes, [ROW, count]), [1, 0])
    run = reshape(x, [x.size])
    if outer != 1:
        rows = reshape(x, [outer * length, inner])
        where = reshape(_places(sizes, length, outer), [outer * length, 1])
        run = reshape(ScatterND(fill(rows.shape, 0, x.dtype), where, rows), [x.size])
    return Packed(contiguous(run), contiguous(table), frozenset([x.rank - (not keep)]))


def even(x: Value, axis: int, each: DimLike) -> Value:
    """The sizes of an axis in pieces of a size; the last may be smaller. int64 [n]."""
    size = x.shape[axis]
    Graph.current().check(dims.ge(each, 1), at_node(f"pieces of {each} are too small"))
    count = dims.ceildiv(size, dims.dmax(each, 1))
    shape = (count,)
    begins = map_("mul", index(0, shape), broadcast_to(literal([each]), shape))
    left = map_("sub", broadcast_to(literal([size]), shape), begins)
    return map_("min", left, broadcast_to(literal([each]), shape))


def there(x: Maybe) -> Any:
    """The value of an optional, which must have one."""
    present = _number(x.present)
    Graph.current().check(present, at_node("the optional has no value"))
    return x.value


def formed(x: Any, form: Form) -> Any:
    """A value in a form that it may have: as tensors of a number that the form tells."""
    if form.optional:
        if isinstance(x, Maybe):
            return Maybe(x.present, formed(x.value, replace(form, optional=False)))
        bare = replace(form, optional=False)
        return Maybe(constant(np.array(x is not None)), _blank(bare) if x is None else formed(x, bare))
    if isinstance(x, Maybe):
        return formed(there(x), form)
    if x is None:
        raise IRError("an optional without a value stands where a value is needed")
    if form.sequence:
        if not isinstance(x, Sequential):
            raise IRError("a tensor stands where a sequence is needed")
        whole = pack(x, form.dtype)
        elements = strings.join(whole.elements) if isinstance(whole.elements, Strings) else whole.elements
        return replace(whole, elements=elements, ranks=form.ranks, unranked=form.unranked)
    if isinstance(x, Strings):
        return strings.join(x)  # so that what is carried does not grow by what is dropped
    if isinstance(x, Single):
        x = x.value
    if not isinstance(x, Value):
        raise IRError("a sequence stands where a tensor is needed")
    if form.ranks is not None and len(form.ranks) > 1:
        if any(size != 1 for size in x.shape):
            raise IRError(f"{x} may be a tensor of another rank, as data decide")
        return reshape(x, [1] * max(form.ranks))
    return x


def _blank(form: Form) -> Any:
    """What stands for the value of an optional that has none."""
    if form.sequence:
        return formed(Items((), form.dtype), form)
    return _nothing(form.dtype or DType.float32, one_rank(form))


def one_rank(form: Form) -> int:
    """The rank of the tensors that a form means, which must be one."""
    if form.ranks is None or len(form.ranks) > 1:
        raise IRError("the ranks of the tensors that an optional may hold must agree")
    return next(iter(form.ranks), 0)


def shaped(form: Form, made: Iterator[Value]) -> Any:
    """A value of a form over tensors, as :func:`formed` gives them."""
    if form.optional:
        return Maybe(next(made), shaped(replace(form, optional=False), made))
    if form.sequence:
        run: Any = shaped(Form(False, False, form.dtype, frozenset([1])), made)
        return Packed(run, next(made), form.ranks, form.unranked)
    if form.dtype is DType.string:
        return Strings(next(made), next(made), True)
    value = next(made)
    return value if form.ranks is None or len(form.ranks) < 2 else Single(value, min(form.ranks))


def tensors(values: Sequence[Any]) -> Iterator[Value]:
    """The tensors that values are made of, one after the other."""
    for value in values:
        yield from parts(value)


def of_each_rank(x: Any) -> list[Any]:
    """A tensor whose rank is data, with each; anything else as it is."""
    return [x.value, reshape(x.value, [1] * x.least)] if isinstance(x, Single) else [x]


def ranked(ways: Sequence[Sequence[Any]]) -> list[Any]:
    """What an operator gives where the rank of an input is data, of what it would give for each: one shape, or again one element."""
    if len(ways) > 16:
        raise IRError("too many inputs whose rank is data")
    found = []
    for values in zip(*ways, strict=True):
        first = max(values, key=lambda v: v.rank if isinstance(v, Value) else -1)
        shapes: list[Sequence[Any]] = [v.shape if isinstance(v, Value) and v.dtype is first.dtype else (None,) for v in values]
        if all(isinstance(first, Value) and len(s) == first.rank and all(map(dims.same, s, first.shape)) for s in shapes):
            found.append(first)
        elif all(size == 1 for shape in shapes for size in shape):
            found.append(Single(first, min(map(len, shapes))))
        else:
            raise IRError("the rank of an input is data, and what it gives depends on that: Reshape the input to one rank")
    return found
