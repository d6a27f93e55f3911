"""Rotary positions (Su et al., RoFormer): pairs of features turn by an angle that grows with the position."""

from __future__ import annotations

from typing import Any

from ..dtypes import DType
from ..ir import Graph, IRError, Node, Value, dims
from ..registry import Kernel, op
from ..tensor import HALVES, broadcast_to, cast, concat, map_, reshape, slice_, transpose, unsqueeze
from .gather import Gather
from .transformer import heads_first, heads_last


def _params(node: Node) -> dict[str, Any]:
    x, cos, sin, y = node.ins["x"], node.ins["cos"], node.ins["sin"], node.out
    return {
        "shape": y.shape, "pairs": cos.shape[3], "interleaved": node.params["interleaved"],
        "x_stride": x.strides, "cos_stride": cos.strides, "sin_stride": sin.strides, "y_stride": y.strides,
        "xoff": x.offset, "cos_off": cos.offset, "sin_off": sin.offset, "yoff": y.offset,
    }  # fmt: skip


ROTARY = Kernel(
    "rotary",
    ">y x cos sin",
    "shape[4] pairs interleaved x_stride[4] cos_stride[4] sin_stride[4] y_stride[4] xoff cos_off sin_off yoff",
    _params,
    ("strided", "smooth"),
)


def rotated(x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """[batch, heads, length, size], the first pairs of each head turned by the angles of [batch or 1, length, pairs].

    Pairs are neighbours where ``interleaved``, else the halves of what is turned; features beyond stay. All of one float dtype.
    """
    if cos.rank != 3 or sin.rank != 3:
        raise IRError(f"cosines and sines must be [batch, length, pairs], they are {list(cos.shape)} and {list(sin.shape)}")
    half = cos.shape[-1]
    Graph.current().check(dims.le(half * 2, x.shape[3]), f"{half} angles turn {half * 2} features, a head has {x.shape[3]}")
    cos, sin = unsqueeze(cos, [1]), unsqueeze(sin, [1])
    if x.dtype is DType.float32:
        lengths_first = dims.same(x.strides[2], x.shape[1] * x.strides[1])
        order = [0, 2, 1, 3] if lengths_first else [0, 1, 2, 3]
        cos, sin = (transpose(broadcast_to(angle, [*x.shape[:3], half]), order) for angle in (cos, sin))
        seen = transpose(x, order)
        y: Value = ROTARY({"y": (x.dtype, seen.shape)}, {"x": seen, "cos": cos, "sin": sin}, interleaved=int(interleaved))
        return transpose(y, order)
    turned, rest = slice_(x, 3, 0, half * 2), slice_(x, 3, half * 2, x.shape[3] - half * 2)
    a, b = (slice_(turned, 3, start, half, 2) for start in (0, 1)) if interleaved else (slice_(turned, 3, s, half) for s in (0, half))
    real = map_("sub", map_("mul", cos, a), map_("mul", sin, b))
    imaginary = map_("add", map_("mul", sin, a), map_("mul", cos, b))
    parts = [real, imaginary]
    if interleaved:
        parts = [reshape(concat([unsqueeze(p, [4]) for p in parts], 4), turned.shape)]
    return concat(parts if dims.same(rest.shape[3], 0) else [*parts, rest], 3)


@op()
def RotaryEmbedding(
    X: Value, cos_cache: Value, sin_cache: Value, position_ids: Value | None = None, *,
    interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Value:  # fmt: skip
    wide = DType.float32 if X.dtype in HALVES else X.dtype
    x = cast(heads_first(X, num_heads, "X"), wide)
    cos, sin = (cast(Gather(c, position_ids) if position_ids is not None else c, wide) for c in (cos_cache, sin_cache))
    turned = rotary_embedding_dim or x.shape[3]
    if isinstance(turned, int):
        cos, sin = (broadcast_to(angle, [*angle.shape[:-1], turned // 2]) for angle in (cos, sin))
    y = rotated(x, cos, sin, bool(interleaved))
    return cast(heads_last(y) if X.rank == 3 else y, X.dtype)
