"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir import Node, Value
from ..registry import Enum, Kernel
from .views import axis_of

REDUCTIONS = Enum("Reduction", "sum mean max min prod sumsq sumabs")


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


REDUCE = Kernel(
    "reduce",
    ">y x",
    "op rank_keep rank_red xoff keep_shape[8] keep_stride[8] red_shape[8] red_stride[8]",
    _reduce_params,
    ("strided", "smooth"),
    {"op": REDUCTIONS},
)
