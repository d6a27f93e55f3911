"""Pooling over windows, and over everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..ir import IRError, Node, Value
from ..registry import Context, Enum, Kernel, op
from ..tensor import HALVES, cast, contiguous, like, map_, reduce
from .conv import attributes, spatial, window

POOLS = Enum("Pooling", "max average lp")


def _params(node: Node) -> dict[str, Any]:
    x, y, p = node.ins["x"], node.outs["y"], node.params
    return {
        "op": POOLS.index(p["op"]),
        "planes": x.shape[0] * x.shape[1],
        "in": spatial(x.shape[2:]),
        "kernel": spatial(p["kernel"]),
        "stride": spatial(p["strides"]),
        "dilation": spatial(p["dilations"]),
        "pad": spatial(p["begins"], 0),
        "pad_end": spatial(p["ends"], 0),
        "out": spatial(y.shape[2:]),
        "count_include_pad": p["count_include_pad"],
        "p": p["p"],
        "storage_order": p["storage_order"],
    }


POOL = Kernel(
    "pool",
    ">y >indices? x",
    "op planes in[3] kernel[3] stride[3] dilation[3] pad[3] pad_end[3] out[3] count_include_pad p storage_order",
    _params,
    ("smooth",),
    {"op": POOLS},
)


def pool(
    kind: str,
    x: Value,
    kernel: Sequence[int],
    strides: Any,
    dilations: Any,
    pads: Any,
    auto_pad: str,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    p: int = 2,
    storage_order: int = 0,
    indices: bool = False,
) -> Any:
    """Windows over the spatial axes of [n, c, ...]; with ``indices`` also the flat position of each maximum."""
    if x.dtype in HALVES:
        y = pool(
            kind,
            cast(x, DType.float32),
            kernel,
            strides,
            dilations,
            pads,
            auto_pad,
            ceil_mode,
            count_include_pad,
            p,
            storage_order,
            indices,
        )
        return (cast(y[0], x.dtype), y[1]) if indices else cast(y, x.dtype)
    steps, spread, edges = attributes(x.rank, kernel, strides, dilations, pads)
    n = x.rank - 2
    sized = [window(x.shape[2 + i], kernel[i], steps[i], spread[i], edges[i], edges[i + n], auto_pad, bool(ceil_mode)) for i in range(n)]
    shape = [*x.shape[:2], *[s[0] for s in sized]]
    outs: dict[str, Any] = {"y": (x.dtype, shape)}
    if indices:
        outs["indices"] = (DType.int64, shape)
    return POOL(
        outs,
        {"x": contiguous(x)},
        op=kind,
        kernel=tuple(kernel),
        strides=tuple(steps),
        dilations=tuple(spread),
        begins=tuple(s[1] for s in sized),
        ends=tuple(s[2] for s in sized),
        count_include_pad=count_include_pad,
        p=p,
        storage_order=storage_order,
    )


@op()
def MaxPool(
    X: Value,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    ctx: Context,
) -> Any:
    return pool("max", X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, storage_order=storage_order, indices=ctx.wants(1))


@op()
def AveragePool(
    X: Value,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    return pool("average", X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, count_include_pad)  # type: ignore[no-any-return]


@op("LpPool", since=1, until=1)
def LpPool_1(
    X: Value,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    p: float = 2.0,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    if p != int(p):
        raise IRError(f"p is {p}; whole numbers are supported")
    return pool("lp", X, kernel_shape, strides, None, pads, auto_pad, 0, p=int(p))  # type: ignore[no-any-return]


@op(since=2)
def LpPool(
    X: Value,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    return pool("lp", X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, p=p)  # type: ignore[no-any-return]


def _everywhere(x: Value) -> list[int]:
    return list(range(2, x.rank))


@op()
def GlobalAveragePool(X: Value) -> Value:
    return reduce("mean", X, _everywhere(X), keepdims=True)


@op()
def GlobalMaxPool(X: Value) -> Value:
    return reduce("max", X, _everywhere(X), keepdims=True)


@op()
def GlobalLpPool(X: Value, *, p: int = 2) -> Value:
    total = reduce("sum", map_("pow", map_("abs", X), like(X, p)), _everywhere(X), keepdims=True)
    return map_("pow", total, like(X, 1 / p))


@op()
def LRN(X: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Value:
    """Local response normalisation (AlexNet, section 3.3): a sum of squares over neighbouring channels."""
    from .shape import pad

    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    around = pad(map_("mul", X, X), [0, low] + [0] * (X.rank - 2), [0, high] + [0] * (X.rank - 2))
    windows = around.view([*X.shape, size], around.offset, [*around.strides, around.strides[1]])
    total = reduce("sum", windows, [X.rank])
    scale = map_("add", map_("mul", total, like(X, alpha / size)), like(X, bias))
    if beta != 0.75:
        return map_("div", X, map_("pow", scale, like(X, beta)))
    root = map_("sqrt", scale)
    return map_("div", X, map_("mul", root, map_("sqrt", root)))
