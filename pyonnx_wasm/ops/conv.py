"""Convolutions, 1-D to 3-D."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..ir import Graph, IRError, Node, Value, dims
from ..ir.dims import DimLike
from ..registry import Kernel, op
from ..tensor import HALVES, cast, contiguous, sized
from .matmul import ACTIVATIONS, activation_params


def spatial(values: Sequence[DimLike], default: int = 1) -> list[DimLike]:
    """One to three spatial entries, right-aligned in three."""
    return [default] * (3 - len(values)) + list(values)


def window_params(node: Node) -> dict[str, Any]:
    """The parameters of a convolution that say where its windows lie."""
    x, w, y, p = node.ins["x"], node.ins["w"], node.out, node.params
    return {
        "n": x.shape[0],
        "c": x.shape[1],
        "m": y.shape[1],
        "group": p["group"],
        "in": spatial(x.shape[2:]),
        "kernel": spatial(w.shape[2:]),
        "stride": spatial(p["strides"]),
        "dilation": spatial(p["dilations"]),
        "pad": spatial(p["pads"], 0),
        "out": spatial(y.shape[2:]),
    }


def _params(node: Node) -> dict[str, Any]:
    return window_params(node) | activation_params(node)


CONV = Kernel(
    "conv",
    ">y x w bias? residual?",
    "n c m group in[3] kernel[3] stride[3] dilation[3] pad[3] out[3] act act_a:f act_b:f",
    _params,
    ("epilogue", "channels", "smooth"),
    {"act": ACTIVATIONS},
)
CONV_TRANSPOSE = Kernel(
    "conv_transpose", ">y x w bias?", "n c m group in[3] kernel[3] stride[3] dilation[3] pad[3] out[3]", window_params, ("smooth",)
)


def window(
    size: DimLike, kernel: int, stride: int, dilation: int, begin: DimLike, end: DimLike, auto_pad: str, ceil_mode: bool = False
) -> tuple[DimLike, DimLike, DimLike]:
    """Output size and resolved pads of one axis (ONNX Conv and pooling, ``auto_pad`` and ``ceil_mode`` included)."""
    reach = (kernel - 1) * dilation + 1
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        out = dims.ceildiv(size, stride)
        total = dims.dmax((out - 1) * stride + reach - size, 0)
        small = total // 2
        return (out, small, total - small) if auto_pad == "SAME_UPPER" else (out, total - small, small)
    if auto_pad == "VALID":
        begin = end = 0
    span = size + begin + end - reach
    if not ceil_mode:
        return span // stride + 1, begin, end
    out = dims.ceildiv(span, stride) + 1
    return dims.select(dims.ge((out - 1) * stride, size + begin), out - 1, out), begin, end


def attributes(rank: int, kernel: Sequence[int], strides: Any, dilations: Any, pads: Any) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and pads with their defaults; raises IRError when their lengths do not fit."""
    n = rank - 2
    strides, dilations, pads = list(strides or [1] * n), list(dilations or [1] * n), list(pads or [0] * 2 * n)
    if not 1 <= n <= 3:
        raise IRError(f"{n} spatial dimensions are not supported (1 to 3 are)")
    for what, got, want in (("kernel_shape", kernel, n), ("strides", strides, n), ("dilations", dilations, n), ("pads", pads, 2 * n)):
        if len(got) != want:
            raise IRError(f"{what} {list(got)} must have {want} entries")
    if any(s < 1 for s in [*strides, *dilations, *kernel]):
        raise IRError(f"strides {strides}, dilations {dilations} and kernel {list(kernel)} must be positive")
    return strides, dilations, pads


@op()
def Conv(
    X: Value,
    W: Value,
    B: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    if X.dtype in HALVES:
        wide = [None if v is None else cast(v, DType.float32) for v in (X, W, B)]
        return cast(
            Conv(*wide, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides), X.dtype
        )
    W, _ = _kernel(X, W, kernel_shape)
    shape, params = windows(X, W, auto_pad, dilations, group, pads, strides)
    bias = None if B is None else contiguous(sized(B, [W.shape[0]], "B"))
    y: Value = CONV({"y": (X.dtype, shape)}, {"x": contiguous(X), "w": contiguous(W), "bias": bias}, **params)
    return y


def windows(
    x: Value,
    w: Value,
    auto_pad: str,
    dilations: Sequence[int] | None,
    group: int,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[list[DimLike], dict[str, Any]]:
    """The shape of a convolution of x [n, c, ...] with w [m, c / group, ...], and what a kernel needs to know beside the operands."""
    w, kernel = _kernel(x, w, None)
    steps, spread, edges = attributes(x.rank, kernel, strides, dilations, pads)
    _demand_channels(x, w.shape[1] * group)
    n = x.rank - 2
    spaces = [window(x.shape[2 + i], kernel[i], steps[i], spread[i], edges[i], edges[i + n], auto_pad) for i in range(n)]
    params = {"group": group, "strides": tuple(steps), "dilations": tuple(spread), "pads": tuple(s[1] for s in spaces)}
    return [x.shape[0], w.shape[0], *[s[0] for s in spaces]], params


def _kernel(x: Value, w: Value, shape: Sequence[int] | None) -> tuple[Value, list[int]]:
    """The weights and their sizes along the spatial axes, which ``kernel_shape`` says as well."""
    if x.rank != w.rank or (shape is not None and len(shape) != w.rank - 2):
        raise IRError(f"weights {w} do not fit input {x}")
    if shape is not None:
        w = sized(w, [*w.shape[:2], *shape], "W")
    known = [k for k in w.shape[2:] if isinstance(k, int)]
    if len(known) != w.rank - 2:
        raise IRError(
            f"the kernel's sizes must be known when the model is compiled, they are {list(map(str, w.shape[2:]))}; give kernel_shape"
        )
    return w, known


def _demand_channels(x: Value, channels: DimLike) -> None:
    Graph.current().check(dims.eq(x.shape[1], channels), f"the input has {x.shape[1]} channels, the weights take {channels}")


@op()
def ConvTranspose(
    X: Value,
    W: Value,
    B: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    if X.dtype in HALVES:
        wide = [None if v is None else cast(v, DType.float32) for v in (X, W, B)]
        y = ConvTranspose(
            *wide, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, output_padding=output_padding,
            output_shape=output_shape, pads=pads, strides=strides,
        )  # fmt: skip
        return cast(y, X.dtype)
    W, kernel = _kernel(X, W, kernel_shape)
    steps, spread, edges = attributes(X.rank, kernel, strides, dilations, pads)
    _demand_channels(X, W.shape[0])
    n = X.rank - 2
    extra = list(output_padding or [0] * n)
    begins, sizes = [], []
    for i in range(n):
        full = (X.shape[2 + i] - 1) * steps[i] + (kernel[i] - 1) * spread[i] + 1 + extra[i]
        if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            size = list(output_shape)[-n:][i] if output_shape is not None else X.shape[2 + i] * steps[i]
            total = dims.dmax(full - size, 0)
            begins.append(total // 2 if auto_pad == "SAME_UPPER" else total - total // 2)
            sizes.append(size)
        else:
            begin, end = (0, 0) if auto_pad == "VALID" else (edges[i], edges[i + n])
            begins.append(begin)
            sizes.append(full - begin - end)
    channels = W.shape[1] * group
    y = CONV_TRANSPOSE(
        {"y": (X.dtype, [X.shape[0], channels, *sizes])},
        {"x": contiguous(X), "w": contiguous(W), "bias": None if B is None else contiguous(sized(B, [channels], "B"))},
        group=group,
        strides=tuple(steps),
        dilations=tuple(spread),
        pads=tuple(begins),
    )
    return y  # type: ignore[no-any-return]
