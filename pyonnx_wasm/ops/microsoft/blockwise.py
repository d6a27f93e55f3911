"""Weights of 2, 4 or 8 bits in blocks with a scale each (``com.microsoft``); they stay as they are in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import DType
from ...ir import Graph, IRError, Node, Value, dims
from ...ir.dims import DimLike
from ...op import Kernel, op
from ...tensor import COPY, broadcast_to, cast, constant, contiguous, index, map_, reshape, slice_, unsqueeze
from ..matmul import ACTIVATIONS, activation_params


def _codes(x: Value, bits: int, count: DimLike) -> Value:
    """The last axis of bytes as ``count`` codes of so many bits, low ones first."""
    if bits == 8:
        return slice_(x, x.rank - 1, 0, count)
    per = 8 // bits
    shape = [*x.shape, per]
    shift = cast(map_("mul", index(x.rank, shape), constant(np.int64(bits))), DType.uint8)
    codes = map_("bitand", map_("shr", broadcast_to(unsqueeze(x, [x.rank]), shape), shift), constant(np.uint8((1 << bits) - 1)))
    return slice_(reshape(codes, [*x.shape[:-1], x.shape[-1] * per]), x.rank - 1, 0, count)


def _params(node: Node) -> dict[str, Any]:
    a, y, p = node.ins["a"], node.out, node.params
    bias, residual = node.ins.get("bias"), node.ins.get("residual")
    return {
        "m": y.shape[-2], "n": y.shape[-1], "k": a.shape[-1], "bits": p["bits"], "block": p["block"],
        "aoff": a.offset, "a_rs": a.strides[-2], "yoff": y.offset, "y_rs": y.strides[-2],
        "bias_ms": bias.strides[0] if bias is not None else 0, "bias_ns": bias.strides[1] if bias is not None else 0,
        "res_off": residual.offset if residual is not None else 0, "res_rs": residual.strides[-2] if residual is not None else 0,
        "alpha": p.get("alpha", 1.0), **activation_params(node),
    }  # fmt: skip


MATMUL_NBITS = Kernel(
    "matmul_nbits",
    ">y a b scale shift? bias? residual?",
    "m n k bits block aoff a_rs yoff y_rs bias_ms bias_ns res_off res_rs act alpha:f act_a:f act_b:f",
    _params,
    ("epilogue", "strided"),
    {"act": ACTIVATIONS},
)


@op(domain="com.microsoft")
def MatMulNBits(
    A: Value, B: Value, scales: Value, zero_points: Value | None = None, g_idx: Value | None = None, bias: Value | None = None, *,
    K: int, N: int, accuracy_level: int = 0, bits: int = 4, block_size: int, weight_prepacked: int = 0,
) -> Value:  # fmt: skip
    """A times the transpose of B [N, blocks, bytes]: (code - zero point) * scale, the zero point 2^(bits - 1) by default.

    Products and sums are float32, whatever ``accuracy_level`` would allow.
    """
    if bits not in (2, 4, 8) or weight_prepacked:
        raise IRError(f"weights of {bits} bits{', prepacked,' if weight_prepacked else ''} are not supported (2, 4 and 8 bits are)")
    if g_idx is not None:
        raise IRError("g_idx is not supported")
    if block_size < 16 or block_size & (block_size - 1):
        raise IRError(f"block_size {block_size} must be a power of 2, at least 16")
    wide, blocks = DType.float32, -(-K // block_size)
    codes = contiguous(reshape(B, [N, blocks, block_size * bits // 8]))
    if not codes.whole:
        codes = COPY({"y": (codes.dtype, codes.shape)}, {"x": codes})
    words = Value(codes.storage, DType.uint32, [N, blocks * block_size * bits // 32])
    scale = contiguous(cast(reshape(scales, [N, blocks]), wide))
    shift = None
    if zero_points is not None:
        zero = zero_points
        if zero.dtype is DType.uint8:
            zero = _codes(reshape(zero, [N, -(-blocks * bits // 8)]), bits, blocks)
        zero = reshape(zero, [N, blocks])
        shift = map_("mul", cast(zero, wide), scale)
    rows = contiguous(cast(reshape(A, [dims.product(A.shape[:-1]), A.shape[-1]]), wide))
    if not dims.same(rows.shape[1], K):
        Graph.current().check(dims.eq(rows.shape[1], K), f"A has {rows.shape[1]} columns, K is {K}")
    ins = {"a": rows, "b": words, "scale": scale, "shift": shift}
    y: Value = MATMUL_NBITS({"y": (wide, [rows.shape[0], N])}, ins, bits=bits, block=block_size)
    y = reshape(y, [*A.shape[:-1], N])
    return cast(y if bias is None else map_("add", y, cast(bias, wide)), A.dtype)
