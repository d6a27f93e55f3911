"""Tensors side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Content, Graph, IRError, Node, Value, dims
from ..ir.dims import DimLike
from ..registry import Kernel
from .content import CONTENT_LIMIT, together
from .views import MAX_RANK, ints, show


def concat(xs: Sequence[Value], axis: int) -> Value:
    """Tensors of one dtype side by side along an axis."""

    shape = list(xs[0].shape)
    for x in xs[1:]:
        if x.rank != len(shape) or x.dtype is not xs[0].dtype:
            raise IRError(f"cannot concatenate {', '.join(map(repr, xs))}")
        for a, (have, want) in enumerate(zip(x.shape, xs[0].shape, strict=True)):
            if a != axis and not dims.same(have, want):
                Graph.current().check(
                    dims.eq(have, want), f"concatenated shapes differ on axis {a}: {show(x.shape)} and {show(xs[0].shape)}"
                )
    shape[axis] = sum((x.shape[axis] for x in xs[1:]), xs[0].shape[axis])
    if len(xs) == 1:
        return xs[0]
    y: Value = CONCAT({"y": (xs[0].dtype, shape)}, {"x": list(xs)}, axis=axis)
    fixed = ints(shape)
    if fixed is not None and math.prod(fixed) <= CONTENT_LIMIT:

        def known() -> Content | None:
            parts = together(xs)
            return None if parts is None else np.concatenate(parts, axis)

        y._content = known
    return y


def _concat_params(node: Node) -> dict[str, Any]:
    y, axis = node.out, node.params["axis"]
    tail: list[DimLike] = []
    sizes = [x.shape[axis] for x in node.ins["x"]]
    starts = node.params.get("starts") or itertools.accumulate(sizes, initial=0)
    for x, start in zip(node.ins["x"], starts, strict=False):
        pad = [0] * (MAX_RANK - x.rank)
        tail += [y.offset + start * y.strides[axis], x.offset, *x.shape, *pad, *x.strides, *pad]
    return {"rank": y.rank, "ystride": y.strides, "tail": tail}


CONCAT = Kernel("concat", ">y x*", "rank ystride[8] tail[*]", _concat_params, ("strided",))
