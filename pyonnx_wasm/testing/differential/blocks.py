"""Products with weights in blocks: in float64 of what the weights mean, with a bound for each element that is about as strict as can be.

A row's numbers may be rounded by block to multiples of its largest / 32639 where the model allows it, to float32's precision of the
largest where not; products and sums are float32. All of that is relative to the largest of the block and to what its weights are made of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .sketch import Case
from .values import HALVES, Array, finfo

ROUNDED = 0.505 / 32639
FLOATS = 2.0**-22
END = 2.0**124  # what is beyond in float32 may have left the range on the way
#: ggml's types: numbers and bytes of a block.
TYPES = {
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q5_K": (256, 176),
    "Q6_K": (256, 210), "IQ4_NL": (32, 18),
}  # fmt: skip
_IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


@dataclass(frozen=True)
class Weights:
    """Weights [n, k] in groups of ``group``; ``size``: of what each is a difference of; ``most``: of each group, in units of its scale."""

    weights: Array
    size: Array
    group: int
    most: Array


@dataclass(frozen=True)
class Wanted:
    """An output is within [low, high]; anything where it may have left the range (``free``); not finite where ``broken``."""

    low: Array
    high: Array
    free: Array
    broken: Array


def wanted(case: Case, flush: bool = False) -> list[list[Wanted]] | None:
    """The outputs of each run of a model of operators on blocks, beside which rows of what they read may be gathered; None for others, and
    for what is no model.

    Args:
        flush: numbers below the smallest normal one may be 0.
    """
    nodes = case.model.graph.node
    if not nodes or not _on_blocks(nodes[0]) or any(node.op_type != "Gather" and not _on_blocks(node) for node in nodes[1:]):
        return None
    if [o.name for o in case.model.graph.output] != [node.output[0] for node in nodes]:
        return None
    stored = {t.name: numpy_helper.to_array(t) for t in case.model.graph.initializer}

    def output(node: onnx.NodeProto, held: dict[str, Array]) -> Wanted:
        if not _on_blocks(node):
            return _as_they_are(held[node.input[0]][held[node.input[1]]])
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        return _of(node, given, [held.get(n) for n in node.input], flush, case.loose)

    def outputs(held: dict[str, Array]) -> list[Wanted]:
        return [output(node, held) for node in nodes]

    try:
        with np.errstate(all="ignore"):
            return [outputs({**stored, **feeds}) for feeds in case.runs]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


def _on_blocks(node: onnx.NodeProto) -> bool:
    return (node.domain, node.op_type) in _OPERATORS


def _as_they_are(y: Array) -> Wanted:
    nothing = np.zeros(y.shape, bool)
    return Wanted(y, y, nothing, nothing)


def differs(got: list[list[Array]], want: list[list[Wanted]]) -> tuple[int, str] | None:
    """The first output that differs and how, or None."""
    for at, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if why := _apart(a, b):
                return index, f"output {index}{f' of run {at + 1}' if at else ''}: {why}"
    return None


def _apart(got: Array, want: Wanted) -> str | None:
    if got.dtype != want.low.dtype or got.shape != want.low.shape:
        return f"{got.dtype}{list(got.shape)}, should be {want.low.dtype}{list(want.low.shape)}"
    value, low, high = (v.astype(np.float64) for v in (got, want.low, want.high))
    inside = (low <= value) & (value <= high) | np.isnan(low) & np.isnan(value)
    fine = want.free | np.where(want.broken, ~np.isfinite(value), inside)
    if fine.all():
        return None
    with np.errstate(all="ignore"):
        off = np.where(fine, -1, np.nan_to_num(np.abs(value - (low + high) / 2) / ((high - low) / 2), nan=np.inf, posinf=np.inf))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    told = "something that is not finite" if want.broken[at] else f"from {low[at]:.9g} to {high[at]:.9g}"
    return f"{int((~fine).sum())} of {fine.size} differ, at {list(at)} {value[at]:.9g} should be {told}: {off[at]:.3g} times as far"


def _of(node: onnx.NodeProto, given: dict[str, Any], arrays: list[Array | None], flush: bool, loose: float) -> Wanted:
    if node.op_type == "MatMulNBits":
        a, codes, scales, zero, order, bias = [*arrays, None, None, None][:6]
        if a is None or codes is None or scales is None or order is not None or given.get("weight_prepacked"):
            raise ValueError("no product that is known")
        made = _nbits(codes, scales, zero, given)
        return _product(a, made, bias, given.get("accuracy_level", 0) > 1, flush, loose)
    kind = given["type"].decode()
    if node.op_type == "MatMul":
        a, blocks = arrays
        if a is None or blocks is None or a.dtype != np.float32:
            raise ValueError("no product that is known")
        return _product(a, ggml(kind, blocks), None, True, flush, loose)
    blocks, at = [*arrays, None][:2]
    if blocks is None:
        raise ValueError("no blocks")
    table = ggml(kind, blocks).weights
    return _as_they_are((table if node.op_type == "Dequantize" else table[at]).astype(np.float32))


_OPERATORS = {("com.microsoft", "MatMulNBits"), ("org.ggml", "MatMul"), ("org.ggml", "Dequantize"), ("org.ggml", "GetRows")}


def _product(a: Array, w: Weights, bias: Array | None, rounded: bool, flush: bool, loose: float) -> Wanted:
    """a [..., k] times the transpose of the weights."""
    n, k = w.weights.shape
    if a.shape[-1] != k or (bias is not None and bias.shape != (n,)):
        raise ValueError("shapes that do not fit")
    x = a.astype(np.float64).reshape(math.prod(a.shape[:-1]), k)
    poor = ~np.isfinite(x).all(1, keepdims=True) | ~(np.isfinite(w.weights) & np.isfinite(w.size)).all(1)
    clean, weights, size = np.where(np.isfinite(x), x, 0), *(np.where(np.isfinite(v), v, 0) for v in (w.weights, w.size))
    blocks = -(-k // w.group)

    def padded(v: Array) -> Array:
        return np.pad(np.abs(v), ((0, 0), (0, blocks * w.group - k))).reshape(len(v), blocks, w.group)

    largest = padded(clean).max(axis=2, initial=0)
    y = clean @ weights.T
    made_of = largest @ padded(size).sum(2).T
    # Additions to a sum that is large from its first terms on are each off by up to half a unit: a walk of k steps.
    bound = FLOATS * max(loose, math.sqrt(k) / 8) * made_of + k * 2.0**-149
    if rounded:
        bound = bound + ROUNDED * (largest @ padded(weights).sum(2).T)
    if flush:
        bound = bound + 2.0**-126 * (padded(clean).sum((1, 2))[:, None] * 512 + size.sum(1) + 512 * k)
    if bias is not None:
        y, bound = y + bias, bound + FLOATS * (1 + k / 4) * np.abs(bias)  # sums of many rows begin with it, half a unit off each time
        poor = poor | ~np.isfinite(bias)
    levels = largest @ (np.where(np.isfinite(w.most), w.most, 0) * w.group).T
    free = (np.maximum(made_of, levels) > END) | (size.max(axis=1, initial=0) > END)
    narrow = a.dtype if a.dtype in HALVES else np.dtype(np.float32)
    bound = bound + float(finfo(narrow).smallest_subnormal) + (float(finfo(narrow).tiny) * 2 if flush else 0.0)
    shape = (*a.shape[:-1], n)
    return Wanted(*(v.reshape(shape) for v in ((y - bound).astype(narrow), (y + bound).astype(narrow), free, poor & ~free)))


def _nbits(codes: Array, scales: Array, zero: Array | None, given: dict[str, Any]) -> Weights:
    k, n, bits, block = given["K"], given["N"], given.get("bits", 4), given["block_size"]
    blocks = -(-k // block)

    def unpacked(packed: Array, count: int) -> Array:
        if not packed.size:
            return np.zeros((n, count))
        fields = (packed.reshape(n, -1, 1) >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
        return fields.reshape(n, -1)[:, :count].astype(np.float64)

    levels = unpacked(codes, blocks * block).reshape(n, blocks, block)
    scale = scales.astype(np.float64).reshape(n, blocks)
    if zero is None:
        point = np.full((n, blocks), 1 << (bits - 1), np.float64)
    else:
        point = unpacked(zero, blocks) if zero.dtype == np.uint8 else zero.astype(np.float64).reshape(n, blocks)
    return _grouped(levels, scale, scale * point, levels - point[..., None], k)


def _grouped(levels: Array, scale: Array, shift: Array, away: Array, k: int) -> Weights:
    """Levels [n, groups, group] times scale less shift [n, groups]; ``away``: the weights in units of scale."""
    n, groups, group = levels.shape
    size = np.abs(levels * scale[..., None]) + np.abs(shift)[..., None]
    most = np.abs(levels).max(axis=2, initial=0) + np.abs(levels - away).max(axis=2, initial=0)
    weights, size = (v.reshape(n, groups * group)[:, :k] for v in (away * scale[..., None], size))
    return Weights(weights, size, group, most)


def ggml(kind: str, blocks: Array) -> Weights:
    """What blocks uint8 [rows, blocks, bytes] of one of ggml's types mean."""
    per, length = TYPES[kind]
    if blocks.ndim != 3 or blocks.shape[2] != length or blocks.dtype != np.uint8:
        raise ValueError(f"no blocks of {kind}")
    n, count = blocks.shape[:2]
    b = np.ascontiguousarray(blocks).reshape(-1, length)

    def half(at: int) -> Array:
        return np.ascontiguousarray(b[:, at : at + 2]).view(np.float16).astype(np.float64)

    def low_and_high(at: int, size: int) -> Array:
        q = b[:, at : at + size]
        return np.concatenate([q & 15, q >> 4], 1)

    minimum: Array | None = None
    if kind == "Q8_0":
        levels, scale = b[:, 2:].view(np.int8)[:, None], half(0)
    elif kind == "IQ4_NL":
        levels, scale = _IQ4_NL[low_and_high(2, 16)][:, None], half(0)
    elif kind[0:2] in ("Q4", "Q5") and kind[-1] != "K":
        old, five = kind[-1] == "1", kind[1] == "5"
        start = 4 if old else 2
        levels = low_and_high(start + 4 * five, 16).astype(np.int64)
        if five:
            levels += np.unpackbits(b[:, start : start + 4], axis=1, bitorder="little").astype(np.int64) << 4
        levels, scale = (levels if old else levels - (16 if five else 8))[:, None], half(0)
        minimum = -half(2) if old else None
    elif kind == "Q6_K":
        low = np.concatenate([low_and_high(at, 64) for at in (0, 64)], 1).astype(np.int64)
        high = [(b[:, at : at + 32] >> shift) & 3 for at in (128, 160) for shift in (0, 2, 4, 6)]
        levels = (low + (np.concatenate(high, 1).astype(np.int64) << 4) - 32).reshape(-1, 16, 16)
        scale = half(208) * b[:, 192:208].view(np.int8)
    else:
        first = 16 if kind == "Q4_K" else 48
        levels = np.concatenate([low_and_high(at, 32) for at in range(first, first + 128, 32)], 1).astype(np.int64)
        if kind == "Q5_K":
            levels += np.concatenate([(b[:, 16:48] >> shift) & 1 for shift in range(8)], 1).astype(np.int64) << 4
        levels = levels.reshape(-1, 8, 32)
        s, m, both = (b[:, at : at + 4] for at in (4, 8, 12))
        scale = half(0) * np.concatenate([s & 63, (both & 15) | (s >> 6) << 4], 1)
        minimum = half(2) * np.concatenate([m & 63, (both >> 4) | (m >> 6) << 4], 1)
    levels = levels.astype(np.float64)
    groups, group = levels.shape[1:]
    value = levels * scale[..., None] - (0 if minimum is None else minimum[..., None])
    # Without a minimum, codes are held around a middle.
    shift = np.abs(scale * (8 if kind == "Q4_0" else 128) if minimum is None else minimum)
    size = np.abs(value) + 2 * shift[..., None]
    most = np.full((len(b), groups), 512.0)
    flat = (n, count * per)
    return Weights(value.reshape(flat), size.reshape(flat), group, most.reshape(n, count * groups))
