"""Weights that are smaller than float32: codes of a few bits in blocks along k with a scale each, and halves.

A row of codes, as of ``MatMulNBits``, is ``ceil(k / block)`` blocks of ``block`` codes, low bits of a byte first, the last block filled
up. The weight is ``code * scale - shift`` in float32 or float16; a shift of uint8 is the code that stands for 0, without one that is
``2^(bits - 1)``. PROGRAM.md describes the kernel, ``nbits/weights.h`` reads the same on the core.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import Graph, Node, Value, dims
from ..ir.dims import DimLike
from ..registry import Kernel
from ..tensor import (
    COPY,
    HALVES,
    broadcast_to,
    cast,
    constant,
    contiguous,
    index,
    map_,
    reshape,
    slice_,
    unsqueeze,
)
from .gather import Gather
from .matmul import ACTIVATIONS, activation_params


def _params(node: Node) -> dict[str, Any]:
    a, y, p = node.ins["a"], node.out, node.params
    bias, residual = node.ins.get("bias"), node.ins.get("residual")
    return {
        "m": y.shape[-2], "n": y.shape[-1], "k": a.shape[-1], "bits": p["bits"], "block": p["block"],
        "rounded": int(p["rounded"]), "packed": int(p.get("packed", 0)),
        "aoff": a.offset, "a_rs": a.strides[-2], "yoff": y.offset, "y_rs": y.strides[-2],
        "bias_ms": bias.strides[0] if bias is not None else 0, "bias_ns": bias.strides[1] if bias is not None else 0,
        "res_off": residual.offset if residual is not None else 0, "res_rs": residual.strides[-2] if residual is not None else 0,
        "alpha": p.get("alpha", 1.0), **activation_params(node),
    }  # fmt: skip


def _params_of_several(node: Node) -> dict[str, Any]:
    """``node.params["products"]``: those of each product by meaning."""
    a, p = node.ins["a"], node.params
    ys, biases = list(node.outs.values()), [node.ins.get(name) for name in ("bias", "bias1", "bias2")]
    given = [activation_params(Node(MATMUL_NBITS, {}, one)) for one in p["products"]]
    return {
        "m": a.shape[-2], "k": a.shape[-1], "bits": p["bits"], "block": p["block"], "rounded": int(p["rounded"]),
        "packed": int(p.get("packed", 0)), "aoff": a.offset, "a_rs": a.strides[-2], "n": [y.shape[-1] for y in ys],
        "bias_ms": [0 if bias is None else bias.strides[0] for bias in biases],
        "bias_ns": [0 if bias is None else bias.strides[1] for bias in biases],
        "alpha": [one.get("alpha", 1.0) for one in p["products"]], **{name: [one[name] for one in given] for name in given[0]},
    }  # fmt: skip


MATMUL_NBITS = Kernel(
    "matmul_nbits",
    ">y a b scale? shift? bias? residual?",
    "m n k bits block rounded packed aoff a_rs yoff y_rs bias_ms bias_ns res_off res_rs act alpha:f act_a:f act_b:f",
    _params,
    ("epilogue", "strided", "smooth"),
    {"act": ACTIVATIONS},
)

#: What two or three such products of one ``a`` are to one step, which takes ``a`` once.
MATMULS_NBITS = Kernel(
    "matmuls_nbits",
    ">y >y1 >y2? a b scale? shift? bias? b1 scale1? shift1? bias1? b2? scale2? shift2? bias2?",
    "m k bits block rounded packed aoff a_rs n[3] bias_ms[3] bias_ns[3] act[3] alpha[3]:f act_a[3]:f act_b[3]:f",
    _params_of_several,
    ("strided", "smooth"),
    {"act": ACTIVATIONS},
)

#: Rows [n, count] of codes (``words`` of four bytes), scales or shifts in the order in which ``matmul_nbits`` of the machine that runs this
#: reads them, where it has one of its own for such blocks.
PACK_BLOCKS = Kernel("pack_blocks", ">y w", "n count words bits block", None, ("inplace",))

#: Rows of what ``PACK_BLOCKS`` gave, of ``row`` elements, picked by ``count`` indices and as they were before.
PICK_BLOCKS = Kernel("pick_blocks", ">y w indices", "n row words bits block count")


def multiply(x: Value, codes: Value, scale: Value | None, shift: Value | None, k: DimLike, bits: int, block: int, *, rounded: int) -> Value:
    """float32 [..., n] of x [..., k] times the transpose of weights.

    Args:
        codes: bytes [n, ...]; or halves [n, k], of 16 bits, without ``scale`` and ``shift``.
        scale: [n, blocks], like ``shift``.
        rounded: 1: x may be taken as int16 per row and block, in units of its largest magnitude there / 32639; 2: rather than not,
            where that is faster, as few rows are anyway.
    """
    wide = DType.float32
    rows = contiguous(cast(reshape(x, [dims.product(x.shape[:-1]), x.shape[-1]]), wide))
    if not dims.same(rows.shape[1], k):
        Graph.current().check(dims.eq(rows.shape[1], k), f"A has {rows.shape[1]} columns, K is {k}")
    n = codes.shape[0]
    held = codes if codes.whole else COPY({"y": (codes.dtype, codes.shape)}, {"x": codes})
    if bits < 16:
        held = Value(held.storage, DType.uint32, [n, dims.product(codes.shape[1:]) // 4])
    ins = {"a": rows, "b": held, "scale": _settled(scale), "shift": _settled(shift)}
    y: Value = MATMUL_NBITS({"y": (wide, [rows.shape[0], n])}, ins, bits=bits, block=block, rounded=rounded)
    return reshape(y, [*x.shape[:-1], n])


def _settled(x: Value | None) -> Value | None:
    """Whole, and of a type that the kernel reads."""
    if x is None:
        return None
    if x.dtype not in (DType.float16, DType.float32, DType.uint8):
        x = cast(x, DType.float32)
    return x if x.whole else COPY({"y": (x.dtype, x.shape)}, {"x": x})


def unpacked(x: Value, bits: int, count: DimLike) -> Value:
    """The last axis of bytes as ``count`` codes of so many bits, low ones first."""
    if bits == 8:
        return slice_(x, x.rank - 1, 0, count)
    per = 8 // bits
    shape = [*x.shape, per]
    shift = cast(map_("mul", index(x.rank, shape), constant(np.int64(bits))), DType.uint8)
    codes = map_("bitand", map_("shr", broadcast_to(unsqueeze(x, [x.rank]), shape), shift), constant(np.uint8((1 << bits) - 1)))
    return slice_(reshape(codes, [*x.shape[:-1], x.shape[-1] * per]), x.rank - 1, 0, count)


def rows(codes: Value, scale: Value | None, shift: Value | None, indices: Value, k: int, bits: int, block: int) -> Value:
    """float32 [*indices, k]: the picked rows of weights, which alone are widened."""
    picked = Gather(codes, indices)
    if codes.dtype in HALVES or scale is None:
        return cast(picked, DType.float32)
    blocks = -(-k // block)
    outer = list(indices.shape)
    wide = cast(unpacked(picked, bits, blocks * block), DType.float32)
    wide = reshape(wide, [*outer, blocks, block])

    def by_block(table: Value) -> Value:
        found = cast(reshape(Gather(table, indices), [*outer, blocks, 1]), DType.float32)
        return broadcast_to(found, [*outer, blocks, block])

    factor = by_block(scale)
    if shift is None or shift.dtype is DType.uint8:
        zero = constant(np.float32(1 << (bits - 1))) if shift is None else by_block(shift)
        found = map_("mul", map_("sub", wide, zero), factor)
    else:
        found = map_("sub", map_("mul", wide, factor), by_block(shift))
    return slice_(reshape(found, [*outer, blocks * block]), len(outer), 0, k)
