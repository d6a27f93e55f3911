"""Operators that move elements, or make shapes and indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import INT64, Impossible, Sketch, tensor_attribute
from ..values import code_of
from . import Schema, dtypes, generates, picked


def listed(m: Sketch, key: str, numbers: list[int], since: int) -> tuple[list[str], dict[str, Any]]:
    """A list that is an attribute before an opset and an input from then on."""
    if m.opset < since:
        return [], {key: numbers}
    return [m.ints(numbers)], {}


@generates("Shape")
def shape(m: Sketch, schema: Schema) -> None:
    ends: dict[str, Any] = {k: m.integer(-6, 6) for k in m.some(("start", "end"))} if m.opset >= 15 else {}
    m.result(m.node("Shape", m.operand(picked(m, schema), m.shape()), **ends))


@generates("Size")
def size(m: Sketch, schema: Schema) -> None:
    m.result(m.node("Size", m.operand(picked(m, schema), m.shape())))


@generates("Transpose")
def transpose(m: Sketch, schema: Schema) -> None:
    dims = m.shape()
    perm = [int(i) for i in m.pick.permutation(len(dims))] if m.chance(0.8) else None
    m.result(m.node("Transpose", m.operand(picked(m, schema), dims), perm=perm))


@generates("Reshape")
def reshape(m: Sketch, schema: Schema) -> None:
    x = m.array(picked(m, schema), m.shape())
    target: list[int] = []
    left = list(x.shape)
    while left:
        take = m.integer(1, min(2, len(left)))
        target.append(int(np.prod(left[:take])))
        left = left[take:]
    if target and m.chance(0.4):
        target.insert(m.integer(0, len(target)), 1)
    if target and m.chance(0.5) and 0 not in target:
        target[m.integer(0, len(target) - 1)] = -1
    for axis in range(min(len(target), x.ndim)):
        if target[axis] == x.shape[axis] and m.chance(0.4) and 0 not in x.shape:
            target[axis] = 0
    allow: dict[str, Any] = (
        {"allowzero": 1 if 0 in x.shape and -1 not in target else 0} if m.opset >= 14 and (0 in x.shape or m.chance(0.2)) else {}
    )
    m.result(m.node("Reshape", m.input(x), m.ints(target), **allow))


@generates("Flatten")
def flatten(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 5))
    low = -len(dims) if m.opset >= 11 else 0
    axis = m.integer(low, len(dims)) if m.chance(0.8) else None
    m.result(m.node("Flatten", m.operand(picked(m, schema), dims), axis=axis))


@generates("Squeeze")
def squeeze(m: Sketch, schema: Schema) -> None:
    dims = tuple(1 if m.chance(0.4) else s for s in m.shape())
    ones = [a for a, s in enumerate(dims) if s == 1]
    chosen = m.some(ones, 1) if ones and m.chance(0.7) else None
    x = m.operand(picked(m, schema), dims)
    if chosen is not None and m.opset >= 11:
        chosen = [a - len(dims) if m.chance(0.4) else a for a in chosen]
    more, attributes = ([], {}) if chosen is None else listed(m, "axes", chosen, 13)
    m.result(m.node("Squeeze", x, *more, **attributes))


@generates("Unsqueeze")
def unsqueeze(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(0, 3))
    rank = len(dims) + m.integer(1, 2)
    chosen = m.some(range(rank))[: rank - len(dims)]
    while len(chosen) < rank - len(dims):
        chosen.append(next(a for a in range(rank) if a not in chosen))
    if m.opset >= 11:
        chosen = [a - rank if m.chance(0.4) else a for a in chosen]
    more, attributes = listed(m, "axes", chosen, 13)
    m.result(m.node("Unsqueeze", m.operand(picked(m, schema), dims), *more, **attributes))


@generates("Concat")
def concat(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 5))
    at = m.integer(0, len(dims) - 1)
    dtype = picked(m, schema)
    parts = [m.operand(dtype, (*dims[:at], m.size(0 if m.chance(0.1) else 1, 5), *dims[at + 1 :])) for _ in range(m.integer(1, 4))]
    if m.chance(0.2):
        parts.append(parts[0])
    axis = at - len(dims) if m.opset >= 11 and m.chance(0.4) else at
    m.result(m.node("Concat", *parts, axis=axis))


@generates("Split")
def split(m: Sketch, schema: Schema) -> None:
    dims = list(m.shape(m.integer(1, 5)))
    at = m.integer(0, len(dims) - 1)
    count = m.integer(1, 4)
    sizes = [m.size(0 if m.chance(0.1) else 1, 4) for _ in range(count)]
    even = m.chance(0.4)
    if even:
        sizes = [sizes[0]] * count
    dims[at] = sum(sizes)
    axis = at - len(dims) if m.opset >= 11 and m.chance(0.4) else at if at or m.chance(0.5) else None
    attributes: dict[str, Any] = {"axis": axis}
    more: list[str] = []
    if even and m.chance(0.7):
        attributes |= {"num_outputs": count} if m.opset >= 18 else {}
        if m.opset >= 18 and m.chance(0.5):
            dims[at] = max(0, dims[at] - m.integer(0, max(0, sizes[0] - 1)))
    else:
        more, extra = listed(m, "split", sizes, 13)
        attributes |= extra
    m.result(*m.add("Split", [m.operand(picked(m, schema), dims), *more], count, **attributes))


@generates("Slice")
def slice_(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 5))
    axes = m.some(range(len(dims)), 1)
    old = m.opset < 10
    far = (2**31 - 1, 2**63 - 1, -(2**31), -(2**63), 1000, -1000)
    steps = [1 if old or m.chance(0.4) else m.choice((1, 2, 3, -1, -2, -3, 100, -100, *(() if m.chance(0.8) else far))) for _ in axes]
    ends = [[m.choice(far) if m.chance(0.2) else m.integer(-7, 7) for _ in axes] for _ in range(2)]
    x = m.operand(picked(m, schema), dims)
    if old:
        m.result(m.node("Slice", x, starts=ends[0], ends=ends[1], axes=axes if axes != list(range(len(axes))) or m.chance(0.5) else None))
        return
    kind: np.dtype[Any] = INT64
    if m.chance(0.3):
        kind = np.dtype(np.int32)
        steps, *ends = [[int(np.clip(v, -(2**31), 2**31 - 1)) for v in row] for row in (steps, *ends)]
    signed = [a - len(dims) if m.opset >= 10 and m.chance(0.4) else a for a in axes]
    given = [m.ints(ends[0], kind), m.ints(ends[1], kind)]
    plain = axes == list(range(len(axes))) and m.chance(0.5)
    with_steps = set(steps) != {1} or m.chance(0.3)
    given += [] if plain and not with_steps else ["" if plain else m.ints(signed, kind)]
    given += [m.ints(steps, kind)] if with_steps else []
    m.result(m.node("Slice", x, *given))


@generates("Expand")
def expand(m: Sketch, schema: Schema) -> None:
    full = m.shape()
    target = [1 if m.chance(0.2) else s for s in full]
    source = m.broadcast(full)
    whole = np.broadcast_shapes(tuple(target), source)
    m.result(m.node("Expand", m.operand(picked(m, schema), source), m.ints(target if len(whole) == len(full) else whole)))


@generates("Tile")
def tile(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(0, 4), 1, 4)
    m.result(m.node("Tile", m.operand(picked(m, schema), dims), m.ints([m.integer(0 if m.chance(0.1) else 1, 3) for _ in dims])))


@generates("Pad")
def pad(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4), 2, 6)
    mode = m.choice((None, "constant", "reflect", "edge", *(("wrap",) if m.opset >= 19 else ())))
    negative = mode in (None, "constant") and m.chance(0.3)
    if mode not in (None, "constant"):
        m.empty = False
        dims = tuple(max(1, s) for s in dims)
    axes = m.some(range(len(dims)), 1) if m.opset >= 18 and m.chance(0.4) else None
    count = len(dims) if axes is None else len(axes)
    most = 1 if mode == "reflect" else 3
    pads = [m.integer(-1 if negative else 0, most) for _ in range(2 * count)]
    dtype = picked(m, schema)
    x = m.operand(dtype, dims)
    if m.opset < 11:
        m.result(m.node("Pad", x, pads=pads, mode=mode, value=m.real(-3, 3) if m.chance(0.5) else None))
        return
    given = [x, m.ints(pads)]
    value = mode in (None, "constant") and m.chance(0.6)
    if value or axes is not None:
        given.append(m.operand(dtype, (), constant=0.7) if value else "")
    if axes is not None:
        given.append(m.ints([a - len(dims) if m.chance(0.4) else a for a in axes], m.choice((np.int64, np.int32))))
    m.result(m.node("Pad", *given, mode=mode))


@generates("CenterCropPad")
def center_crop_pad(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4))
    axes = m.some(range(len(dims)), 1) if m.chance(0.5) else None
    sizes = [m.integer(1, 8) for _ in (dims if axes is None else axes)]
    signed = None if axes is None else [a - len(dims) if m.chance(0.4) else a for a in axes]
    m.result(m.node("CenterCropPad", m.operand(picked(m, schema), dims), m.ints(sizes), axes=signed))


@generates("DepthToSpace", "SpaceToDepth")
def blocks(m: Sketch, schema: Schema) -> None:
    n, c, h, w = m.shape(4, 1, 3)
    b = m.integer(1, 3)
    deep = schema.name == "DepthToSpace"
    dims = (n, c * b * b, h, w) if deep else (n, c, h * b, w * b)
    mode = m.choice((None, "DCR", "CRD")) if (deep and m.opset >= 11) else None
    m.result(m.node(schema.name, m.operand(picked(m, schema, "T"), dims), blocksize=b, mode=mode))


@generates("Trilu")
def trilu(m: Sketch, schema: Schema) -> None:
    x = m.operand(picked(m, schema), m.shape(m.integer(2, 4)))
    k = [m.ints(m.integer(-7, 7))] if m.chance(0.7) else []
    m.result(m.node("Trilu", x, *k, upper=m.choice((None, 0, 1))))


@generates("EyeLike")
def eye_like(m: Sketch, schema: Schema) -> None:
    dtype = code_of(picked(m, schema, "T2")) if m.chance(0.5) else None
    k = m.integer(-6, 6) if m.chance(0.7) else None
    m.result(m.node("EyeLike", m.operand(picked(m, schema, "T1"), m.shape(2)), dtype=dtype, k=k))


@generates("ReverseSequence")
def reverse_sequence(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(2, 4), 1, 5)
    batch = m.integer(0, 1)
    length = dims[1 - batch]
    lengths = m.whole_numbers(1 if length else 0, length, (dims[batch],)) if length else np.zeros(dims[batch], np.int64)
    x = m.operand(picked(m, schema), dims)
    named: dict[str, Any] = {"batch_axis": batch, "time_axis": 1 - batch} if batch == 0 or m.chance(0.5) else {}
    m.result(m.node("ReverseSequence", x, m.input(lengths), **named))


@generates("Constant")
def constant(m: Sketch, schema: Schema) -> None:
    kind = m.choice(("value", "value_float", "value_floats", "value_int", "value_ints") if m.opset >= 12 else ("value",))
    given: Any = tensor_attribute(m.array(picked(m, schema), m.shape(), constant=True))
    if kind != "value":
        given = m.real(-3, 3) if "float" in kind else m.integer(-5, 5)
        given = given if not kind.endswith("s") else [given] * m.integer(1, 4)
    m.result(m.node("Constant", **{kind: given}))


@generates("ConstantOfShape")
def constant_of_shape(m: Sketch, schema: Schema) -> None:
    value = tensor_attribute(m.array(picked(m, schema, "T2"), (1,), constant=True)) if m.chance(0.8) else None
    m.result(m.node("ConstantOfShape", m.ints(m.shape()), value=value))


@generates("Range")
def range_(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    start, step = m.integer(-4, 4), m.choice((1, 2, 3, -1, -2))
    stop = start + step * m.integer(0, 6) + m.choice((0, 1))
    if dtype.kind == "u":
        start, stop, step = abs(start), abs(stop), abs(step)
    scale = 0.5 if dtype.kind == "f" and m.chance(0.5) else 1
    given = [np.asarray(v * scale).astype(dtype) for v in (start, stop, step)]
    m.result(m.node("Range", *(m.const(g) if m.chance(0.7) else m.input(g) for g in given)))


def _indices(m: Sketch, size: int, dims: Any, dtype: Any = INT64) -> str:
    if size < 1 and int(np.prod(dims)):
        raise Impossible("an index into nothing")
    low = -size if m.opset >= 11 and m.chance(0.4) else 0
    fixed = m.chance(0.4)
    made = m.whole_numbers(low, max(size - 1, low), dims, dtype, fixed)
    return m.const(made) if fixed else m.input(made)


@generates("Gather")
def gather(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4))
    at = m.integer(0, len(dims) - 1)
    axis = at - len(dims) if m.chance(0.4) else at
    index = _indices(m, dims[at], m.shape(m.integer(0, 2)), m.dtype(dtypes(schema, "Tind")))
    m.result(m.node("Gather", m.operand(picked(m, schema), dims), index, axis=axis if axis or m.chance(0.5) else None))


@generates("GatherElements")
def gather_elements(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4))
    at = m.integer(0, len(dims) - 1)
    shape = [max(s - m.integer(0, 1), min(s, 1)) for s in dims]
    shape[at] = m.size(1, 5)
    index = _indices(m, dims[at], shape, m.dtype(dtypes(schema, "Tind")))
    m.result(m.node("GatherElements", m.operand(picked(m, schema), dims), index, axis=at - len(dims) if m.chance(0.4) else at))


@generates("GatherND")
def gather_nd(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4))
    batch = m.integer(0, max(0, len(dims) - 1)) if m.opset >= 12 and m.chance(0.4) else 0
    depth = m.integer(1, len(dims) - batch)
    made = _tuples(m, dims[batch : batch + depth], (*dims[:batch], *m.shape(m.integer(0, 2), 1, 3)))
    x = m.operand(picked(m, schema), dims)
    m.result(m.node("GatherND", x, m.input(made), batch_dims=batch if batch or m.chance(0.3) else None))


def _tuples(m: Sketch, sizes: Any, dims: Any, unique: bool = False) -> Any:
    """Index tuples into ``sizes``."""
    if 0 in sizes and int(np.prod(dims)):
        raise Impossible("an index into nothing")
    if unique:
        total, count = int(np.prod(sizes)), int(np.prod(dims))
        if count > total:
            raise Impossible("not so many places")
        flat = np.random.default_rng(int(m.fill.integers(1 << 62))).permutation(total)[:count]
        made = np.stack(np.unravel_index(flat, sizes), -1) if count else np.zeros((0, len(sizes)), np.int64)
        return made.reshape(*dims, len(sizes)).astype(np.int64)
    low = -1 if m.opset >= 11 and m.chance(0.3) else 0
    columns = [m.whole_numbers(low * s, max(s - 1, low * s), dims) for s in sizes]
    return np.stack(columns, -1)


def reductions(m: Sketch) -> str | None:
    return m.choice((None, "none", *(("add", "mul") if m.opset >= 16 else ()), *(("max", "min") if m.opset >= 18 else ())))  # type: ignore[no-any-return]


@generates("ScatterElements")
def scatter_elements(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4))
    at = m.integer(0, len(dims) - 1)
    reduction = reductions(m)
    shape = [max(s - m.integer(0, 1), min(s, 1)) for s in dims]
    dtype, kind = picked(m, schema), m.dtype(dtypes(schema, "Tind"))
    if reduction in (None, "none"):
        shape[at] = min(dims[at], m.integer(1, 4))
        rng = np.random.default_rng(int(m.fill.integers(1 << 62)))
        lines = np.argsort(rng.random((*shape[:at], *shape[at + 1 :], dims[at])), -1)[..., : shape[at]]
        index = m.input(np.moveaxis(lines, -1, at).astype(kind))
    else:
        index = _indices(m, dims[at], shape, kind)
    x, updates = m.operand(dtype, dims), m.operand(dtype, shape)
    m.result(m.node("ScatterElements", x, index, updates, axis=at - len(dims) if m.chance(0.4) else at, reduction=reduction))


@generates("ScatterND")
def scatter_nd(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4))
    depth = m.integer(1, len(dims))
    reduction = reductions(m)
    lead = m.shape(m.integer(0, 2), 1, 3)
    made = _tuples(m, dims[:depth], lead, unique=reduction in (None, "none"))
    dtype = picked(m, schema)
    x, updates = m.operand(dtype, dims), m.operand(dtype, (*lead, *dims[depth:]))
    m.result(m.node("ScatterND", x, m.input(made), updates, reduction=reduction))


@generates("TensorScatter")
def tensor_scatter(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(2, 4), 2, 6)
    at = m.integer(1, len(dims) - 1)
    mode = m.choice((None, "linear", "circular"))
    take = m.integer(1, max(1, dims[at]))
    dtype = picked(m, schema)
    high = dims[at] - take if mode != "circular" else dims[at] - 1
    if high < 0:
        raise Impossible
    index = [m.input(m.whole_numbers(0, high, (dims[0],)))] if m.chance(0.8) else []
    update = m.operand(dtype, (*dims[:at], take, *dims[at + 1 :]))
    m.result(m.node("TensorScatter", m.operand(dtype, dims), update, *index, mode=mode, axis=at - len(dims)))


@generates("OneHot")
def one_hot(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(0, 3))
    depth = m.integer(1, 6)
    kind = picked(m, schema, "T1")
    low = 0 if kind.kind == "u" else -depth - 1
    indices = m.whole_numbers(low, depth, dims, np.int64).astype(kind)
    axis = m.integer(-len(dims) - 1, len(dims)) if m.chance(0.6) else None
    values = m.operand(picked(m, schema, "T3"), (2,))
    m.result(m.node("OneHot", m.input(indices), m.const(np.asarray(depth, picked(m, schema, "T2"))), values, axis=axis))


@generates("TopK")
def top_k(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4))
    at = m.integer(0, len(dims) - 1)
    k = m.integer(0, dims[at])
    attributes: dict[str, Any] = {"axis": at - len(dims)}
    if m.opset >= 11:
        attributes |= {key: m.integer(0, 1) for key in m.some(("largest",))}
    dtype = picked(m, schema)
    rng = np.random.default_rng(int(m.fill.integers(1 << 62)))
    steps = np.arange(int(np.prod(dims))) * (0.25 if dtype.kind == "f" else 1) - (0 if dtype.kind == "u" else 9)
    x = rng.permutation(steps).reshape(dims).astype(dtype) if m.chance(0.6) else m.array(dtype, dims)
    given, extra = listed(m, "k", [k], 10)
    extra = {"k": k} if extra else {}
    m.result(*m.add("TopK", [m.input(x), *given], 2, **attributes, **extra))


@generates("Compress")
def compress(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 3))
    axis = m.axis(len(dims)) if m.chance(0.7) else None
    length = int(np.prod(dims)) if axis is None else dims[axis]
    m.result(m.node("Compress", m.operand(picked(m, schema), dims), m.operand(np.bool_, (max(0, length - m.integer(0, 1)),)), axis=axis))


@generates("NonZero")
def non_zero(m: Sketch, schema: Schema) -> None:
    m.result(m.node("NonZero", m.operand(picked(m, schema), m.shape(m.integer(1, 4)))))


@generates("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 3))
    index = m.whole_numbers(0, max(0, dims[-1] - 1), (m.size(1, 4),))
    m.result(m.node("ArrayFeatureExtractor", m.operand(picked(m, schema), dims), m.input(index), domain="ai.onnx.ml"))


@generates("Unique")
def unique(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 3))
    axis = m.axis(len(dims)) if m.chance(0.5) else None
    dtype = picked(m, schema)
    x = m.whole_numbers(0, 2, dims, dtype) if dtype.kind != "b" else m.array(dtype, dims)
    count = m.integer(1, 4)
    m.result(*m.add("Unique", [m.input(x)], count, axis=axis, sorted=m.choice((None, 0, 1))))


@generates("NonMaxSuppression")
def non_max_suppression(m: Sketch, schema: Schema) -> None:
    batch, classes, boxes = m.size(1, 2), m.size(1, 3), m.size(1, 8)
    corner = m.array(np.float32, (batch, boxes, 2), "unit")
    size = m.array(np.float32, (batch, boxes, 2), "unit") * np.float32(0.6) + np.float32(0.05)
    centred = m.chance(0.3)
    table = np.concatenate([corner, size] if centred else [corner, corner + size], 2)
    scores = m.array(np.float32, (batch, classes, boxes), "unit")
    optional = [m.operand(INT64, (), "positive", constant=0.7) if m.chance(0.8) else ""]
    optional += [m.operand(np.float32, (), "unit", constant=0.7) if m.chance(0.6) else "" for _ in range(2)]
    while optional and not optional[-1]:
        optional.pop()
    given = [m.input(table), m.input(scores), *optional]
    m.result(m.node("NonMaxSuppression", *given, center_point_box=1 if centred else m.choice((None, 0))))
