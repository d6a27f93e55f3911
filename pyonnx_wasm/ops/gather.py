"""Reading and writing by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Value, dims
from ..registry import Enum, Kernel, Moved, op
from ..tensor import axis_of, cast, content, contiguous, knowing, slice_, squeeze

SCATTERS = Enum("Scatter", "none add mul max min")
GATHER = Kernel("gather", ">y x indices", "outer n inner count")
GATHER_ELEMENTS = Kernel("gather_elements", ">y x indices", "rank axis xshape[8] ishape[8]")
GATHER_ND = Kernel("gather_nd", ">y x indices", "batch count depth xdims[8] inner")
SCATTER_ELEMENTS = Kernel("scatter_elements", ">y x indices updates", "rank axis op xshape[8] ishape[8]", enums={"op": SCATTERS})
SCATTER_ND = Kernel("scatter_nd", ">y x indices updates", "op count depth xdims[8] inner", enums={"op": SCATTERS})


@op()
def Gather(data: Moved, indices: Value, *, axis: int = 0) -> Moved:
    at = axis_of(axis, data.rank)
    known = content(indices)
    if known is not None and known.size == 1 and isinstance(known.item(), int):
        picked = _pick(data, at, known.item())
        return picked if indices.rank == 1 else squeeze(picked, [at]) if indices.rank == 0 else _spread(picked, at, indices.rank)
    shape = [*data.shape[:at], *indices.shape, *data.shape[at + 1 :]]
    y: Value = GATHER(
        {"y": (data.dtype, shape)},
        {"x": contiguous(data), "indices": contiguous(_integers(indices))},
        outer=dims.product(data.shape[:at]),
        n=data.shape[at],
        inner=dims.product(data.shape[at + 1 :]),
        count=indices.size,
    )
    if known is not None and all(isinstance(i, int) for i in known.reshape(-1)):
        y._content = knowing(data, lambda c: c.take(known.astype(np.int64), at))
    return y


def _pick(data: Value, axis: int, position: int) -> Value:
    size = data.shape[axis]
    if isinstance(size, int) and not -size <= position < size:
        raise IRError(f"index {position} is out of range for axis {axis} of size {size}")
    start = position if position >= 0 else size + position
    return slice_(data, axis, start, 1)


def _spread(x: Value, axis: int, rank: int) -> Value:
    from ..tensor import unsqueeze

    return unsqueeze(x, list(range(axis, axis + rank - 1)))


def _integers(indices: Value) -> Value:
    return indices if indices.dtype in (DType.int32, DType.int64) else cast(indices, DType.int64)


@op()
def GatherElements(data: Moved, indices: Value, *, axis: int = 0) -> Moved:
    y: Value = GATHER_ELEMENTS(
        {"y": (data.dtype, indices.shape)},
        {"x": contiguous(data), "indices": contiguous(_integers(indices))},
        rank=data.rank,
        axis=axis_of(axis, data.rank),
        xshape=data.shape,
        ishape=indices.shape,
    )
    return y


def _depth(indices: Value) -> int:
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise IRError(f"the last size of indices ({depth}) must be known")
    return depth


@op()
def GatherND(data: Moved, indices: Value, *, batch_dims: int = 0) -> Moved:
    depth = _depth(indices)
    rest = data.shape[batch_dims + depth :]
    y: Value = GATHER_ND(
        {"y": (data.dtype, [*indices.shape[:-1], *rest])},
        {"x": contiguous(data), "indices": contiguous(_integers(indices))},
        batch=dims.product(data.shape[:batch_dims]),
        count=dims.product(indices.shape[batch_dims:-1]),
        depth=depth,
        xdims=data.shape[batch_dims : batch_dims + depth],
        inner=dims.product(rest),
    )
    return y


@op()
def ScatterElements(data: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none") -> Value:
    return _widened(data, updates, lambda d, u: _scatter_elements(d, indices, u, axis, reduction), reduction)


def _scatter_elements(data: Value, indices: Value, updates: Value, axis: int, reduction: str) -> Value:
    y: Value = SCATTER_ELEMENTS(
        {"y": (data.dtype, data.shape)},
        {"x": contiguous(data), "indices": contiguous(_integers(indices)), "updates": contiguous(updates)},
        rank=data.rank,
        axis=axis_of(axis, data.rank),
        op=SCATTERS.index(reduction),
        xshape=data.shape,
        ishape=indices.shape,
    )
    return y


def _widened(data: Value, updates: Value, fn: Any, reduction: str) -> Value:
    """Reductions of the halves are computed in float32."""
    if reduction not in SCATTERS:
        raise IRError(f"reduction {reduction!r} is not one of {', '.join(SCATTERS)}")
    if reduction != "none" and data.dtype in (DType.float16, DType.bfloat16):
        wide: Value = fn(cast(data, DType.float32), cast(updates, DType.float32))
        return cast(wide, data.dtype)
    plain: Value = fn(data, updates)
    return plain


@op("Scatter", since=9, until=10)
def Scatter(data: Value, indices: Value, updates: Value, *, axis: int = 0) -> Value:
    return ScatterElements(data, indices, updates, axis=axis)  # type: ignore[no-any-return]


@op()
def ScatterND(data: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    depth = _depth(indices)

    def run(d: Value, u: Value) -> Value:
        y: Value = SCATTER_ND(
            {"y": (d.dtype, d.shape)},
            {"x": contiguous(d), "indices": contiguous(_integers(indices)), "updates": contiguous(u)},
            op=SCATTERS.index(reduction),
            count=dims.product(indices.shape[:-1]),
            depth=depth,
            xdims=d.shape[:depth],
            inner=dims.product(d.shape[depth:]),
        )
        return y

    return _widened(data, updates, run, reduction)


@op()
def ReverseSequence(input: Moved, sequence_lens: Value, *, batch_axis: int = 1, time_axis: int = 0) -> Moved:
    """Gathers along time from ``length - 1 - t`` while t < length, from t after."""
    from ..tensor import broadcast_to, index, map_, reshape

    shape = input.shape
    lengths = reshape(sequence_lens, [shape[batch_axis] if a == batch_axis else 1 for a in range(input.rank)])
    time = index(time_axis, shape)
    lens = broadcast_to(cast(lengths, DType.int64), shape)
    from ..tensor import constant

    mirrored = map_("sub", map_("sub", lens, constant(np.int64(1))), time)
    return GatherElements(input, map_("where", map_("lt", time, lens), mirrored, time), axis=time_axis)  # type: ignore[no-any-return]
