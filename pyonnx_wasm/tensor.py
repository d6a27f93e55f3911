"""The vocabulary that operators are written in: views, constants, element-wise maps, copies, reductions.

Everything takes and returns :class:`~pyonnx_wasm.ir.Value`; views cost nothing. The kernels that most operators share are
declared here, the others in the operator family that brings them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import dims, expression, scalar
from .dims import Dim, DimLike
from .dtypes import DType, from_numpy, to_numpy
from .ir import Content, IRError, NeedsContent, Node, Shape, Storage, Value, flatten, row_major
from .op import Kernel

MAX_RANK = 8
CONTENT_LIMIT = 64  # elements; larger tensors are never shapes
LOAD_LIMIT = 4096  # elements of a constant that may be looked at when an operator asks for its value
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "sumsq", "sumabs")
HALVES = (DType.float16, DType.bfloat16)


def constant(array: np.ndarray | Any, dtype: DType | None = None) -> Value:
    """A constant from a numpy array (or anything that makes one)."""
    array = np.asarray(array)
    if dtype is None:
        dtype = from_numpy(array.dtype)
    stored = to_numpy(dtype)
    if array.dtype.kind == "V" and from_numpy(array.dtype) is dtype:  # an ml_dtypes type: its bits
        array = array.view(stored)
    storage = Storage(dtype, int(array.size), "const", source=np.ascontiguousarray(array, stored))
    value = Value(storage, dtype, array.shape)
    if array.size <= CONTENT_LIMIT and dtype in scalar.COMPUTE:
        value._content = array.astype(object)
    return value


def fill(shape: Sequence[DimLike], value: float, dtype: DType) -> Value:
    """A tensor of one repeated number."""
    return broadcast_to(constant(np.asarray(value, to_numpy(dtype)), dtype), tuple(shape))


def literal(items: Sequence[Any], dtype: DType = DType.int64) -> Value:
    """A vector of numbers that may be symbolic, computed when shapes are bound."""
    content = np.empty(len(items), object)
    content[:] = list(items)
    if all(not isinstance(i, Dim) for i in items):
        return constant(np.array([scalar.cast(i, dtype) for i in items], to_numpy(dtype)), dtype)
    value: Value = LITERAL({"y": (dtype, (len(items),))}, {}, n=len(items), tail=tuple(items))
    value._content = content
    return value


def content(x: Value) -> Content | None:
    """What is known of the elements at compile time: loads small constants."""
    if x.content is None and x.storage.kind == "const" and x.dtype in scalar.COMPUTE and x.dtype is x.storage.dtype:
        shape = tuple(s for s in x.shape if isinstance(s, int))
        if len(shape) == x.rank and isinstance(x.storage.size, int) and x.storage.size <= LOAD_LIMIT and int(np.prod(shape)) <= LOAD_LIMIT:
            x._content = _load(x).astype(object)
    return x.content


def _load(x: Value) -> np.ndarray:
    source = x.storage.source
    flat = (source if isinstance(source, np.ndarray) else source.numpy()).reshape(-1)
    strides = [int(s) * flat.itemsize for s in x.strides]
    shape = [int(s) for s in x.shape]
    if 0 in shape:
        return np.empty(shape, flat.dtype)
    return np.lib.stride_tricks.as_strided(flat[int(x.offset) :], shape, strides)


def sources(x: Value) -> list[str]:
    """The graph inputs that a value's contents depend on, by way of data or of elements that became sizes."""
    names, seen, todo = [], set(), [x]
    while todo:
        value = todo.pop()
        names += _element_sources([value.shape, value.offset, value.strides])
        storage = value.storage
        if storage in seen:
            continue
        seen.add(storage)
        if storage.kind == "input":
            names.append(storage.name)
        elif storage.producer is not None:
            names += _element_sources(storage.producer.params)
            todo += storage.producer.inputs()
    return list(dict.fromkeys(names))


def _element_sources(params: Any) -> list[str]:
    symbols = [s for p in flatten(params) if isinstance(p, Dim) for s in dims.symbols(p)]
    return [s[: s.rindex("{")] for s in symbols if s.endswith("}")]


def dims_of(x: Value, what: str) -> list[DimLike]:
    """The elements of an integer tensor as sizes; raises NeedsContent where they are data."""
    known = content(x)
    if known is None or any(e is None for e in known.reshape(-1)):
        from .fold import fold

        known = fold(x)
    if known is None:
        raise NeedsContent(what, sources(x))
    return [int(e) if isinstance(e, (bool, np.bool_, np.integer, float)) else e for e in known.reshape(-1)]


def ints_of(x: Value, what: str) -> list[int]:
    """The elements of an integer tensor that must be plain numbers; raises NeedsContent where they are not."""
    got = dims_of(x, what)
    if any(isinstance(e, Dim) for e in got):
        raise NeedsContent(what, sources(x))
    return [int(e) for e in got]


def floats_of(x: Value, what: str) -> list[float]:
    """The elements of a tensor as Python floats; raises NeedsContent where they are data."""
    if x.dtype.is_float and x.dtype not in scalar.COMPUTE:
        x = cast(x, DType.float32)
    known = content(x)
    if known is None or any(e is None or isinstance(e, Dim) for e in known.reshape(-1)):
        from .fold import fold

        known = fold(x)
    if known is None or any(isinstance(e, Dim) for e in known.reshape(-1)):
        raise NeedsContent(what, sources(x))
    return [float(e) for e in known.reshape(-1)]


def scalar_of(x: Value, what: str) -> float:
    """The only element of a tensor, as a float."""
    got = floats_of(x, what)
    if len(got) != 1:
        raise IRError(f"{what} must have one element, it has {len(got)}")
    return got[0]


def _known(x: Value, change: Callable[[Content], Content]) -> Callable[[], Content | None] | None:
    def compute() -> Content | None:
        known = content(x)
        return None if known is None else change(known)

    return compute


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """A non-negative axis; raises IRError when it is out of range."""
    if not -rank <= axis < max(rank, 1):
        raise IRError(f"{what} {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def transpose(x: Value, perm: Sequence[int]) -> Value:
    """The axes in another order."""
    if sorted(perm) != list(range(x.rank)):
        raise IRError(f"perm {list(perm)} does not permute {x.rank} axes")
    return x.view([x.shape[p] for p in perm], x.offset, [x.strides[p] for p in perm], _known(x, lambda c: c.transpose(perm)))


def swap(x: Value, a: int, b: int) -> Value:
    """Two axes exchanged."""
    perm = list(range(x.rank))
    perm[a], perm[b] = perm[b], perm[a]
    return transpose(x, perm)


def reshape(x: Value, shape: Sequence[DimLike]) -> Value:
    """The same elements, row-major, in another shape: a view where strides allow, else of a contiguous copy."""
    shape = tuple(shape)
    fixed = _ints(shape)
    known = _known(x, lambda c: c.reshape(fixed)) if fixed is not None else None
    strides = row_major(shape) if x.contiguous else _split_strides(x, shape)
    if strides is None:
        x = contiguous(x)
        strides = row_major(shape)
    return x.view(shape, x.offset, strides, known)


def _ints(shape: Sequence[DimLike]) -> tuple[int, ...] | None:
    return tuple(int(s) for s in shape) if all(isinstance(s, int) for s in shape) else None


def _split_strides(x: Value, shape: Shape) -> Shape | None:
    """Strides of a reshape of a strided view, where each new axis lies inside one run of old axes; else None."""
    runs: list[tuple[DimLike, DimLike]] = []  # merged (size, stride) of the old axes
    for size, stride in zip(x.shape, x.strides, strict=True):
        if size == 1:
            continue
        if runs and dims.same(runs[-1][1], size * stride):
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    strides: list[DimLike] = []
    at = len(shape)
    for size, stride in reversed(runs):
        covered: DimLike = 1
        while not dims.same(covered, size):
            at -= 1
            if at < 0:
                return None
            strides.append(stride * covered)
            covered = covered * shape[at]
            if isinstance(covered, int) and isinstance(size, int) and covered > size:
                return None
    if any(s != 1 for s in shape[:at]):
        return None
    return tuple([0] * at + strides[::-1])


def contiguous(x: Value) -> Value:
    """The value itself when it is row-major without gaps, else a copy that is."""
    if x.contiguous:
        return x
    y: Value = COPY({"y": (x.dtype, x.shape)}, {"x": x})
    y._content = x._content
    return y


def squeeze(x: Value, axes: Sequence[int]) -> Value:
    drop = {axis_of(a, x.rank) for a in axes}
    for a in drop:
        if isinstance(x.shape[a], int) and x.shape[a] != 1:
            raise IRError(f"axis {a} of size {x.shape[a]} cannot be squeezed")
    keep = [a for a in range(x.rank) if a not in drop]
    return x.view(
        [x.shape[a] for a in keep], x.offset, [x.strides[a] for a in keep], _known(x, lambda c: c.reshape([c.shape[a] for a in keep]))
    )


def unsqueeze(x: Value, axes: Sequence[int]) -> Value:
    rank = x.rank + len(axes)
    new = {axis_of(a, rank) for a in axes}
    if len(new) != len(axes):
        raise IRError(f"axes {list(axes)} repeat")
    old = iter(zip(x.shape, x.strides, strict=True))
    pairs = [(1, 0) if a in new else next(old) for a in range(rank)]
    return x.view([p[0] for p in pairs], x.offset, [p[1] for p in pairs], _known(x, lambda c: c.reshape([p[0] for p in pairs])))


def slice_(x: Value, axis: int, start: DimLike, size: DimLike, step: DimLike = 1) -> Value:
    """``size`` elements of an axis from ``start`` (already clamped) in steps."""
    shape, strides = list(x.shape), list(x.strides)
    shape[axis], strides[axis] = size, x.strides[axis] * step
    known = None
    if isinstance(start, int) and isinstance(size, int) and isinstance(step, int):
        index = [start + i * step for i in range(size)]
        known = _known(x, lambda c: c.take(index, axis))
    return x.view(shape, x.offset + start * x.strides[axis], strides, known)


def split(x: Value, axis: int, sizes: Sequence[DimLike]) -> list[Value]:
    starts = itertools.accumulate(sizes, initial=0)
    return [slice_(x, axis, start, size) for start, size in zip(starts, sizes, strict=False)]


def broadcast_to(x: Value, shape: Sequence[DimLike]) -> Value:
    """Numpy broadcasting to a shape; a size not known to be 1 gets a stride that is 0 when it turns out to be."""
    shape = tuple(shape)
    lead = len(shape) - x.rank
    strides: list[DimLike] = [0] * lead
    for have, want, stride in zip(x.shape, shape[lead:], x.strides, strict=True):
        if have == want:
            strides.append(stride)
        elif isinstance(have, int):
            strides.append(0 if have == 1 else stride)
        else:
            strides.append(dims.select(dims.eq(have, 1), 0, stride))
    fixed = _ints(shape)
    known = _known(x, lambda c: np.broadcast_to(c, fixed)) if fixed is not None and int(np.prod(fixed)) <= CONTENT_LIMIT else None
    return x.view(shape, x.offset, strides, known)


def broadcast_shapes(*shapes: Sequence[DimLike]) -> Shape:
    """The common shape; sizes that are not known to agree are checked when shapes are bound."""
    from .ir import Graph

    rank = max(map(len, shapes))
    out: list[DimLike] = []
    for axis in range(rank):
        size: DimLike = 1
        for shape in shapes:
            at = axis - rank + len(shape)
            other = shape[at] if at >= 0 else 1
            if other == 1 or size == other or dims.same(size, other):
                continue
            if size == 1:
                size = other
            elif isinstance(size, int) and isinstance(other, int):
                raise IRError(f"shapes {' and '.join(_show(s) for s in shapes)} do not broadcast")
            else:
                fits = dims.ne(dims.eq(size, other) + dims.eq(size, 1) + dims.eq(other, 1), 0)
                Graph.current().check(fits, f"shapes {' and '.join(_show(s) for s in shapes)} do not broadcast")
                size = _joined(size, other)
        out.append(size)
    return tuple(out)


def sized(x: Value, shape: Sequence[DimLike], what: str) -> Value:
    """The value as one of this shape; sizes that are not known to agree are checked when shapes are bound."""
    from .ir import Graph

    if x.rank != len(shape):
        raise IRError(f"{what} must have rank {len(shape)}, it is {x}")
    for have, want in zip(x.shape, shape, strict=True):
        if not dims.same(have, want):
            Graph.current().check(dims.eq(have, want), f"{what} has shape {_show(x.shape)}, it must be {_show(shape)}")
    return x.view(shape, x.offset, x.strides, x._content)


def _joined(a: DimLike, b: DimLike) -> DimLike:
    if isinstance(a, int) and a > 1:
        return a
    if isinstance(b, int) and b > 1:
        return b
    for size, other in ((a, b), (b, a)):
        if isinstance(other, Dim) and other.op == "min" and size in other.args:
            return size
    return dims.select(dims.eq(a, 1), b, a)


def _show(shape: Sequence[DimLike]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def map_(name: str, *args: Value, out: DType | None = None, via: DType | None = None, mode: int = 0) -> Value:
    """One instruction over broadcast operands.

    Args:
        name: of :data:`scalar.INSTRUCTIONS`.
        args: operands of one dtype (``where``: bool, then two of one dtype; ``pow``: base and exponent of any).
        out: the target of a ``cast``.
        via: dtype to compute in; default the operands' own, float32 for the halves.
        mode: of a ``cast`` to 8-bit floats: bit 0 lets overflow become infinity or NaN, the bits above round float8e8m0.
    """
    instruction = scalar.INSTRUCTIONS[name]
    dtype = args[-1].dtype if name == "where" else args[0].dtype
    compute = via or (DType.float32 if dtype in HALVES and name != "cast" else dtype)
    if compute is not dtype:
        args = tuple(a if a.dtype is DType.bool and name == "where" and i == 0 else cast(a, compute) for i, a in enumerate(args))
        return cast(map_(name, *args), DType.bool if instruction.result == "bool" else dtype)
    result = {"same": dtype, "bool": DType.bool, "cast": out or dtype}[instruction.result]
    known = [_single(a) for a in args]
    if len(args) > 1:
        shape = broadcast_shapes(*(a.shape for a in args))
        args = tuple(broadcast_to(a, shape) for a in args)
    else:
        shape = args[0].shape
    xs, code = _code(name, args, known, result, mode)
    y: Value = MAP({"y": (result, shape)}, {"x": xs}, code=code)
    y._content = _mapped(name, args, result, shape)
    return y


def _code(
    name: str, args: Sequence[Value], known: Sequence[Any], result: DType, mode: int = 0
) -> tuple[list[Value], tuple[tuple[Any, ...], ...]]:
    """Inputs and instructions of a one-instruction map; operands of one known element become ``const`` instructions."""
    xs: list[Value] = []
    for arg, value in zip(args, known, strict=True):
        if value is None and not any(_same_view(arg, x) for x in xs):
            xs.append(arg)
    code: list[tuple[Any, ...]] = []
    operands: list[int] = []
    free = len(xs)
    for arg, value in zip(args, known, strict=True):
        if value is None:
            operands.append(next(i for i, x in enumerate(xs) if _same_view(arg, x)))
            continue
        if isinstance(value, Dim) and arg.dtype.is_float:
            code.append(("const", DType.int64, free, value, 0, 0))
            code.append(("cast", DType.int64, free + 1, free, int(arg.dtype), 0))
            free += 1
        else:
            code.append(("const", arg.dtype, free, value, 0, 0))
        operands.append(free)
        free += 1
    dtype = args[-1].dtype if name == "where" else args[0].dtype
    operands += [0] * (3 - len(operands))
    if name == "cast":
        operands[1:] = [int(result), mode]
    if name == "pow":
        operands[2] = int(args[1].dtype)
    code.append((name, dtype, free, *operands))
    return xs, tuple(code)


def _same_view(a: Value, b: Value) -> bool:
    same = a.storage is b.storage and a.dtype is b.dtype
    return same and a.offset == b.offset and a.shape == b.shape and a.strides == b.strides


def _single(x: Value) -> Any:
    if x.dtype not in scalar.COMPUTE or any(s != 1 for s, stride in zip(x.shape, x.strides, strict=True) if stride != 0):
        return None
    first = x.view((), x.offset, (), _first(x))
    known = content(first)
    if known is None or known.item() is None:
        return None
    value = known.item()
    if isinstance(value, Dim):
        return value
    return float(value) if x.dtype.is_float else int(value)


def _first(x: Value) -> Callable[[], Content | None]:
    return lambda: None if (known := content(x)) is None or not known.size else np.array(known.flat[0], object)


def _mapped(name: str, args: Sequence[Value], result: DType, shape: Shape) -> Callable[[], Content | None] | None:
    fixed = _ints(shape)
    if fixed is None or int(np.prod(fixed)) > CONTENT_LIMIT:
        return None

    def compute() -> Content | None:
        known = [content(a) for a in args]
        if any(k is None for k in known):
            return None
        out = np.empty(fixed, object)
        for at in np.ndindex(*fixed):
            items = [k[at] for k in known]  # type: ignore[index]
            if name == "cast":
                out[at] = None if items[0] is None else scalar.cast(items[0], result)
            else:
                out[at] = scalar.rounded(scalar.evaluate(name, items, args[-1].dtype), result)
        return None if any(e is None for e in out.reshape(-1)) else out

    return compute


def cast(x: Value, dtype: DType, mode: int = 0) -> Value:
    return x if x.dtype is dtype else map_("cast", x, out=dtype, mode=mode)


def like(x: Value, number: float) -> Value:
    """A scalar of the same dtype."""
    if x.dtype is DType.bfloat16:
        return cast(constant(np.float32(number)), DType.bfloat16)
    return constant(np.array(number, to_numpy(x.dtype)), x.dtype)


def index(axis: int, shape: Sequence[DimLike], dtype: DType = DType.int64) -> Value:
    """The coordinate along an axis."""
    shape = tuple(shape)
    y: Value = MAP({"y": (dtype, shape)}, {"x": []}, code=(("index", dtype, 0, axis, 0, 0),))
    fixed = _ints(shape)
    if fixed is not None and int(np.prod(fixed)) <= CONTENT_LIMIT:
        y._content = np.indices(fixed)[axis].astype(object) if fixed else None
    return y


def _map_params(node: Node) -> dict[str, Any]:
    """Strides from the values; constant scalars of one element become ``const`` instructions in the fusion pass."""
    y, xs = node.out, list(node.ins["x"])
    if y.rank > MAX_RANK:
        y, xs = _coalesced(y, xs)
    tail: list[DimLike | float] = []
    for x in xs:
        tail += [x.offset, *x.strides, *[0] * (MAX_RANK - x.rank)]
    code = expression.allocate(node.params["code"], len(xs))
    if code is None:
        raise IRError("an element-wise chain needs too many registers")
    for name, dtype, dst, a, b, c in code:
        tail += [scalar.INSTRUCTIONS[name].code, int(dtype), dst, a, b, c]
    return {
        "rank": y.rank, "n_in": len(xs), "n_code": len(code), "yoff": y.offset, "shape": y.shape, "ystride": y.strides, "tail": tail
    }  # fmt: skip


def _coalesced(y: Value, xs: Sequence[Value]) -> tuple[Value, list[Value]]:
    """Drops axes of size 1 and merges neighbours that every operand walks evenly."""
    every = [y, *xs]
    keep = [a for a in range(y.rank) if y.shape[a] != 1]
    shape = [y.shape[a] for a in keep]
    strides = [[v.strides[a] for a in keep] for v in every]
    at = len(shape) - 1
    while at > 0:
        if all(dims.same(s[at - 1], s[at] * shape[at]) for s in strides):
            shape[at - 1] = shape[at - 1] * shape[at]
            del shape[at]
            for s in strides:
                del s[at - 1]
        at -= 1
    if len(shape) > MAX_RANK:
        raise IRError(f"more than {MAX_RANK} dimensions")
    views = [v.view(shape, v.offset, s) for v, s in zip(every, strides, strict=True)]
    return views[0], views[1:]


def concat(xs: Sequence[Value], axis: int) -> Value:
    """Tensors of one dtype side by side along an axis."""
    from .ir import Graph

    shape = list(xs[0].shape)
    for x in xs[1:]:
        if x.rank != len(shape) or x.dtype is not xs[0].dtype:
            raise IRError(f"cannot concatenate {', '.join(map(repr, xs))}")
        for a, (have, want) in enumerate(zip(x.shape, xs[0].shape, strict=True)):
            if a != axis and not dims.same(have, want):
                Graph.current().check(
                    dims.eq(have, want), f"concatenated shapes differ on axis {a}: {_show(x.shape)} and {_show(xs[0].shape)}"
                )
    shape[axis] = sum((x.shape[axis] for x in xs[1:]), xs[0].shape[axis])
    if len(xs) == 1:
        return xs[0]
    y: Value = CONCAT({"y": (xs[0].dtype, shape)}, {"x": list(xs)}, axis=axis)
    fixed = _ints(shape)
    if fixed is not None and int(np.prod(fixed)) <= CONTENT_LIMIT:

        def known() -> Content | None:
            parts = [content(x) for x in xs]
            return None if any(p is None for p in parts) else np.concatenate(parts, axis)  # type: ignore[arg-type]

        y._content = known
    return y


def _copy_params(node: Node) -> dict[str, Any]:
    y, (x,) = _coalesced(node.out, [node.ins["x"]])
    return {"rank": y.rank, "xoff": x.offset, "yoff": y.offset, "shape": y.shape, "xstride": x.strides, "ystride": y.strides}


def _concat_params(node: Node) -> dict[str, Any]:
    y, axis = node.out, node.params["axis"]
    tail: list[DimLike] = []
    sizes = [x.shape[axis] for x in node.ins["x"]]
    starts = node.params.get("starts") or itertools.accumulate(sizes, initial=0)
    for x, start in zip(node.ins["x"], starts, strict=False):
        pad = [0] * (MAX_RANK - x.rank)
        tail += [y.offset + start * y.strides[axis], x.offset, *x.shape, *pad, *x.strides, *pad]
    return {"rank": y.rank, "ystride": y.strides, "tail": tail}


def reduce(name: str, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
    """One of :data:`REDUCTIONS` over some axes; float32 accumulation for the halves."""
    drop = sorted({axis_of(a, x.rank) for a in axes})
    keep = [a for a in range(x.rank) if a not in drop]
    shape = [1 if a in drop else s for a, s in enumerate(x.shape)] if keepdims else [x.shape[a] for a in keep]
    y: Value = REDUCE({"y": (x.dtype, shape)}, {"x": x}, op=name, axes=tuple(drop))
    return y


def _reduce_params(node: Node) -> dict[str, Any]:
    x, drop = node.ins["x"], node.params["axes"]
    keep = [a for a in range(x.rank) if a not in drop]
    return {
        "op": REDUCTIONS.index(node.params["op"]),
        "rank_keep": len(keep),
        "rank_red": len(drop),
        "xoff": x.offset,
        "keep_shape": [x.shape[a] for a in keep],
        "keep_stride": [x.strides[a] for a in keep],
        "red_shape": [x.shape[a] for a in drop],
        "red_stride": [x.strides[a] for a in drop],
    }


MAP = Kernel("map", ">y x*", "rank n_in n_code yoff shape[8] ystride[8] tail[*]", _map_params, ("strided", "inplace"))
COPY = Kernel("copy", ">y x", "rank xoff yoff shape[8] xstride[8] ystride[8]", _copy_params, ("strided",))
CONCAT = Kernel("concat", ">y x*", "rank ystride[8] tail[*]", _concat_params, ("strided",))
LITERAL = Kernel("literal", ">y", "n tail[*]")
REDUCE = Kernel(
    "reduce", ">y x", "op rank_keep rank_red xoff keep_shape[8] keep_stride[8] red_shape[8] red_stride[8]", _reduce_params, ("strided",)
)
