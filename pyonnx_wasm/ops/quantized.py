"""Products of 8-bit integers: one kernel over any strides and zero points, scaled and quantised again by passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..ir import Graph, IRError, Node, Value, dims
from ..registry import Enum, Kernel, op
from ..tensor import broadcast_shapes, broadcast_to, cast, contiguous, expand, map_, reshape, squeeze, unsqueeze
from .conv import spatial, window_params, windows
from .convert import QuantizeLinear
from .matmul import ACTIVATIONS, activation_params, batch_of, matmul

BYTES = (DType.uint8, DType.int8)


def _params(node: Node) -> dict[str, Any]:
    a, b, y = node.ins["a"], node.ins["b"], node.out
    residual = node.ins.get("residual")
    if node.ins.get("sums") is not None:  # packed: no matrix
        b = b.view([*y.shape[:-2], a.shape[-1], y.shape[-1]], 0, [0] * y.rank)
    batch, strides = batch_of(y, [a, b, y, *([residual] if residual is not None else [])])

    def steps(name: str, axis: int) -> Any:
        value = node.ins.get(name)
        return 0 if value is None else value.strides[axis]

    return {
        "nb": len(batch), "batch": batch, "abatch": strides[0], "bbatch": strides[1], "ybatch": strides[2],
        "m": y.shape[-2], "n": y.shape[-1], "k": a.shape[-1], "aoff": a.offset, "a_rs": a.strides[-2], "a_cs": a.strides[-1],
        "boff": b.offset, "b_rs": b.strides[-2], "b_cs": b.strides[-1], "yoff": y.offset, "y_rs": y.strides[-2],
        "azero_ms": steps("azero", 0), "bzero_ns": steps("bzero", 0), "scale_ms": steps("scale", 0), "scale_ns": steps("scale", 1),
        "bias_ms": steps("bias", 0), "bias_ns": steps("bias", 1), "res_off": residual.offset if residual is not None else 0,
        "res_rs": residual.strides[-2] if residual is not None else 0, "resbatch": strides[3] if residual is not None else 0,
        "alpha": node.params.get("alpha", 1.0), **activation_params(node),
    }  # fmt: skip


QMATMUL = Kernel(
    "qmatmul",
    ">y a b azero? bzero? scale? bias? residual? yscale? yzero? sums?",
    "nb batch[6] abatch[6] bbatch[6] ybatch[6] m n k aoff a_rs a_cs boff b_rs b_cs yoff y_rs azero_ms bzero_ns scale_ms scale_ns"
    " bias_ms bias_ns res_off res_rs resbatch[6] act alpha:f act_a:f act_b:f",
    _params,
    ("epilogue", "dequantize", "strided"),
    {"act": ACTIVATIONS},
)


def qmatmul(a: Value, b: Value, azero: Value | None = None, bzero: Value | None = None) -> Value:
    """int32 [..., m, n]: the product of [..., m, k] and [..., k, n] less their zero points.

    Args:
        azero: of the dtype of ``a``: one element, or [m].
        bzero: of the dtype of ``b``: one element, or [n].
    """
    k, other = a.shape[-1], b.shape[-2]
    if not dims.same(k, other):
        Graph.current().check(dims.eq(k, other), f"inner sizes differ: {k} and {other}")
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if b.rank == 2 and a.rank > 2 and a.contiguous and (azero is None or azero.strides[0] == 0):
        flat = qmatmul(reshape(a, [dims.product(a.shape[:-1]), k]), b, azero, bzero)
        return reshape(flat, [*a.shape[:-1], b.shape[-1]])
    a, b = broadcast_to(a, [*lead, *a.shape[-2:]]), broadcast_to(b, [*lead, *b.shape[-2:]])
    zeros = {"azero": azero, "bzero": bzero}
    y: Value = QMATMUL({"y": (DType.int32, [*lead, a.shape[-2], b.shape[-1]])}, {"a": a, "b": b, **zeros})
    return y


def _zero(zero: Value | None, size: Any, per: str) -> Value | None:
    """A zero point for the kernel: [size], or [1] with stride 0 where one holds for all."""
    if zero is None:
        return None
    if zero.size == 1:
        return zero.view([1], zero.offset, [0])
    if zero.rank != 1:
        raise IRError(f"the zero point must be a scalar or have one element per {per}, it is {zero}")
    if not dims.same(zero.shape[0], size):
        fits = dims.ne(dims.eq(zero.shape[0], 1) + dims.eq(zero.shape[0], size), 0)
        Graph.current().check(fits, f"the zero point needs one element per {per}: {zero.shape[0]} for {size}")
    return contiguous(expand(zero, [size]))


@op()
def MatMulInteger(A: Value, B: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None) -> Value:
    """numpy.matmul of the operands less their zero points, in int32."""
    if A.rank == 1:
        y = MatMulInteger(unsqueeze(A, [0]), B, a_zero_point, b_zero_point)
        return squeeze(y, [-1 if B.rank == 1 else -2])
    if B.rank == 1:
        return squeeze(MatMulInteger(A, unsqueeze(B, [1]), a_zero_point, b_zero_point), [-1])
    single = all(z is None or z.size == 1 or z.rank == 1 for z in (a_zero_point, b_zero_point))
    if not single or A.dtype not in BYTES or B.dtype not in BYTES:
        return _wide(A, B, a_zero_point, b_zero_point)
    return qmatmul(A, B, _zero(a_zero_point, A.shape[-2], "row"), _zero(b_zero_point, B.shape[-1], "column"))


def _wide(A: Value, B: Value, a_zero_point: Value | None, b_zero_point: Value | None) -> Value:
    """Zero points that change from matrix to matrix: the operands as int32."""
    a, b = cast(A, DType.int32), cast(B, DType.int32)
    if a_zero_point is not None:
        a = map_("sub", a, _row(cast(a_zero_point, DType.int32)))
    if b_zero_point is not None:
        b = map_("sub", b, _column(cast(b_zero_point, DType.int32)))
    return matmul(a, b)


@op()
def QLinearMatMul(
    a: Value, a_scale: Value, a_zero_point: Value, b: Value, b_scale: Value, b_zero_point: Value, y_scale: Value, y_zero_point: Value
) -> Value:
    product = cast(MatMulInteger(a, b, a_zero_point, b_zero_point), DType.float32)
    scales = map_("mul", cast(_row(a_scale), DType.float32), cast(_column(b_scale), DType.float32))
    return QuantizeLinear(map_("mul", product, scales), y_scale, y_zero_point, axis=-1)  # type: ignore[no-any-return]


def _row(scale: Value) -> Value:
    return unsqueeze(scale, [1]) if scale.rank == 1 and scale.size != 1 else reshape(scale, ()) if scale.size == 1 else scale


def _column(scale: Value) -> Value:
    return reshape(scale, ()) if scale.size == 1 else scale


def _conv_params(node: Node) -> dict[str, Any]:
    zero, scale = node.ins.get("wzero"), node.ins.get("scale")
    return window_params(node) | {
        "wzero_ms": zero.strides[0] if zero is not None else 0, "scale_ms": scale.strides[0] if scale is not None else 0,
        **activation_params(node),
    }  # fmt: skip


QCONV = Kernel(
    "qconv",
    ">y x w xzero? wzero? scale? bias? residual? yscale? yzero?",
    "n c m group in[3] kernel[3] stride[3] dilation[3] pad[3] out[3] wzero_ms scale_ms act act_a:f act_b:f",
    _conv_params,
    ("dequantize",),
    {"act": ACTIVATIONS},
)


def _last_params(node: Node) -> dict[str, Any]:
    return _conv_params(node) | {"kernel": spatial(node.params["kernel"])}


#: A convolution in two axes whose input, result and residual have their channels side by side, ``[n, h, w, c]`` in memory, of one group
#: or depthwise; ``w`` and ``sums`` are what ``QPACK`` made of the weights, zero points of depthwise ones included.
QCONV_LAST = Kernel(
    "qconv_last",
    ">y x w sums xzero? wzero? scale bias? residual? yscale? yzero?",
    "n c m group in[3] kernel[3] stride[3] dilation[3] pad[3] out[3] wzero_ms scale_ms act act_a:f act_b:f",
    _last_params,
    ("strided",),
    {"act": ACTIVATIONS},
)


def _pack_params(node: Node) -> dict[str, Any]:
    w, zero = node.ins["w"], node.ins.get("zero")
    placed = {"k": w.shape[0], "n": w.shape[1], "off": w.offset, "rs": w.strides[0], "cs": w.strides[1]}
    return {"taps": node.params["taps"], **placed, "zero_ns": 0 if zero is None or zero.size == 1 else 1}


#: Weights [k, n] as the products of the machine that runs this read them, or with ``taps`` as its depthwise convolutions do, which are
#: int16; and the sums of the columns, with what the products want to know of these. Of :func:`packed_size` on any machine.
QPACK = Kernel("qpack", ">y >sums w zero?", "taps k n off rs cs zero_ns", _pack_params, ("inplace", "strided"))


BYTE_OPERATIONS = Enum("ByteOperation", "add mul")
#: Bytes less their zero points times their scales, added or multiplied, within [low, high], quantised again; each step rounds to float32.
#: Each row of ``inner`` bytes of b goes with ``repeats`` of them.
QBINARY = Kernel(
    "qbinary",
    ">y a b",
    "op n inner repeats azero bzero yzero ascale:f bscale:f yscale:f low:f high:f",
    None,
    ("inplace",),
    {"op": BYTE_OPERATIONS},
)


#: ``table[x]`` of bytes: of 256 elements, entry ``i`` for the byte ``i``, of an int8 ``x`` as its bits.
QLOOKUP = Kernel("qlookup", ">y x table", "n", None, ("inplace",))


def packed_size(k: int, n: int, taps: bool = False) -> tuple[int, int]:
    """Elements of packed weights and of their sums: of products with four words and some for each 64 rows of 12 columns."""
    columns = -(-n // 16) * 16
    if taps:
        return columns * -(-k // 2) * 2, columns
    return columns * -(-k // 4) * 4, columns + (-(-columns // 12) + 1) * (-(-k // 256) * 16 + 4)


@op()
def ConvInteger(
    x: Value,
    w: Value,
    x_zero_point: Value | None = None,
    w_zero_point: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """The convolution of the operands less their zero points, in int32."""
    shape, params = windows(x, w, auto_pad, dilations, group, pads, strides)
    ins = {
        "x": contiguous(x), "w": contiguous(w), "xzero": _zero(x_zero_point, 1, "tensor"),
        "wzero": _zero(w_zero_point, w.shape[0], "output channel"),
    }  # fmt: skip
    y: Value = QCONV({"y": (DType.int32, shape)}, ins, **params)
    return y


@op()
def QLinearConv(
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    w: Value,
    w_scale: Value,
    w_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
    B: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    y = ConvInteger(
        x, w, x_zero_point, w_zero_point,
        auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    if B is not None:
        y = map_("add", y, unsqueeze(B, list(range(1, x.rank - 1))))
    per_channel = unsqueeze(w_scale, list(range(1, x.rank - 1))) if w_scale.rank == 1 and w_scale.size != 1 else reshape(w_scale, ())
    scale = map_("mul", cast(reshape(x_scale, ()), DType.float32), cast(per_channel, DType.float32))
    return QuantizeLinear(map_("mul", cast(y, DType.float32), scale), y_scale, y_zero_point)  # type: ignore[no-any-return]
