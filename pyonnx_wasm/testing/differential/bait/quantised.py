"""Networks of bytes as quantisers write them: QuantizeLinear and DequantizeLinear around what is computed.

Scales are powers of two and biases multiples of their product, so that float32 holds every sum exactly: results are the same bits
whoever computes them, ties included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import FLOAT, Sketch
from ..values import Array
from . import bait
from .integers import INT8, UINT8


def power(m: Sketch, low: int, high: int, shape: tuple[int, ...] = ()) -> Array:
    """Scales of 2^low to 2^high."""
    return np.array([2.0 ** m.integer(low, high) for _ in range(int(np.prod(shape)))], np.float32).reshape(shape)


class Bytes:
    """Nodes over values of bytes, which are kept as their dequantised names."""

    def __init__(self, m: Sketch) -> None:
        self.m = m
        self.dtype = m.choice((UINT8, UINT8, INT8))

    def quantised(self, x: str, low: int = -5, high: int = -2) -> tuple[str, Array]:
        m = self.m
        scale = power(m, low, high)
        point = np.array(m.integer(0, 255) - (128 if self.dtype == INT8 else 0), self.dtype)
        self.last = [m.const(scale), m.const(point)]
        return self.again(x), scale

    def again(self, x: str) -> str:
        """By the scale and the zero point of the last time."""
        return self.m.node("DequantizeLinear", self.m.node("QuantizeLinear", x, *self.last), *self.last)

    def pooled(self, x: str) -> str:
        m = self.m
        side, pads = m.choice(((2, [1, 1, 0, 0]), (2, [0, 0, 0, 0]), (3, [1, 1, 1, 1])))
        how = {"strides": m.choice((None, [2, 2], [1, 2])), "dilations": m.choice((None, None, [2, 1])), "ceil_mode": m.choice((0, 0, 1))}
        return m.node("MaxPool", x, kernel_shape=[side, side], pads=pads, **how)

    def convolved(self, x: str, scale: Array, channels: int) -> tuple[str, int]:
        """Of all kinds: dense, depthwise and grouped, with weights by tensor or by channel, biases and activations."""
        m = self.m
        depthwise = m.chance(0.4)
        group = channels if depthwise else 2 if channels % 2 == 0 and m.chance(0.2) else 1
        made = channels if depthwise else group * m.choice((1, 2, 3, 5, 8, 17))
        window = m.choice(((1, 1), (1, 1), (3, 3), (3, 3), (2, 3), (5, 5)))
        second = m.choice((INT8, INT8, UINT8))
        wide: tuple[int, ...] = m.choice(((), (made,)))
        low = 0 if second == UINT8 else -128
        w = m.whole_numbers(low, low + 255, (made, channels // group, *window), second, True)
        sizes = power(m, -9, -6, wide)
        points = m.whole_numbers(low, low + 255, wide, second, True) if second == UINT8 else np.zeros(wide, second)
        weights = m.node("DequantizeLinear", m.const(w), m.const(sizes), m.const(points), axis=0 if wide else None)
        given = [x, weights]
        if m.chance(0.6):
            bias = m.whole_numbers(-3000, 3000, (made,), np.int32, True)
            by = np.broadcast_to(scale * sizes, (made,)).astype(np.float32)
            wide_bias = m.const((bias * by).astype(np.float32))
            given.append(wide_bias if m.chance(0.5) else m.node("DequantizeLinear", m.const(bias), m.const(by), axis=0))
        half = max(window) // 2  # on every side, so that a window fits in whatever is left of a picture
        pads = [half] * 4 if window[0] > 3 or m.chance(0.7) else [half, 1, half + 1, 1]
        y = m.node("Conv", *given, group=group, pads=pads, strides=m.choice((None, None, [2, 2], [1, 2])))
        kind = m.choice(("none", "relu", "clip"))
        y = m.node("Relu", y) if kind == "relu" else m.node("Clip", y, *(m.const(np.float32(v)) for v in (0, 6))) if kind == "clip" else y
        return y, made


@bait
def quantised_networks(m: Sketch) -> None:
    """One to three convolutions, with sums, products, joins, pools, parts and repetitions of what they give between them."""
    m.opset = max(m.opset, 13)
    m.special = False
    b = Bytes(m)
    channels = m.choice((1, 2, 3, 4, 8, 16))
    x, scale = b.quantised(m.input(m.array(FLOAT, (m.size(1, 2), channels, m.size(5, 9), m.size(5, 9)), "plain")))
    for _ in range(m.integer(1, 3)):
        y, channels = b.convolved(x, scale, channels)
        y, scale = b.quantised(y)
        kind = m.choice(("none", "none", "add", "mul", "concat", "pool", "skip", "shape", "sum", "split", "part", "resize"))
        if kind in ("add", "mul"):
            other, _ = b.quantised(m.node("Relu", y))
            y, scale = b.quantised(m.node("Add" if kind == "add" else "Mul", y, other))
        elif kind == "concat":
            other, _ = b.quantised(m.node("Neg", y))
            y, scale = b.quantised(m.node("Concat", y, other, axis=1))
            channels *= 2
        elif kind == "pool":
            largest = b.pooled(y)
            if m.chance(0.3):
                m.result(y)
            if m.chance(0.5):
                y = b.again(largest)
            else:
                y, scale = b.quantised(largest)
        elif kind == "skip":
            largest = m.node("MaxPool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            other = b.again(largest) if m.chance(0.5) else b.quantised(largest)[0]
            y, scale = b.quantised(m.node("Concat", *((y, other) if m.chance(0.5) else (other, y)), axis=1))
            channels *= 2
        elif kind == "sum":
            m.result(m.node("ReduceMax", y, keepdims=0))
        elif kind == "split" and channels > 1:
            at = m.integer(1, channels - 1)
            parts = [m.node("Slice", y, *(m.const(np.array([n], np.int64)) for n in (*ends, 1))) for ends in ((0, at), (at, channels))]
            few = [b.again(part) if m.chance(0.4) else b.quantised(part)[0] for part in parts]
            both = m.chance(0.5)
            y, scale = b.quantised(m.node("Concat", few[1], *(few if both else few[:1]), axis=1))
            channels += channels - at if both else 0
        elif kind == "part":
            if m.chance(0.2):
                m.result(y)
            ends = [[m.integer(0, 1), m.integer(0, 1)], [m.choice((-1, 99)), m.choice((-1, 99))], [2, 3], [m.choice((1, 1, 2)), 1]]
            y, scale = b.quantised(m.node("Slice", y, *(m.const(np.array(n, np.int64)) for n in ends)))
        elif kind == "resize":
            how = {"coordinate_transformation_mode": m.choice(("asymmetric", "half_pixel")), "nearest_mode": m.choice(("floor", "ceil"))}
            y = m.node(
                "Resize", y, "", m.const(np.array([1, 1, *m.choice(((2, 2), (1, 2), (1.5, 0.5)))], np.float32)), mode="nearest", **how
            )
            y = b.again(y) if m.chance(0.5) else y
        elif kind == "shape":
            y = m.node("Reshape", y, m.const(np.array([0, 0, 0, -1])))
        x = y
    m.result(x)
    if m.chance(0.2):
        m.result(m.node("Transpose", x, perm=[0, 2, 3, 1]))


@bait
def integer_products(m: Sketch) -> None:
    """Products of bytes by weights of one size, with some at the ends of their range, long enough for sums to pass int16; then scaled."""
    m.opset = max(m.opset, 13)
    m.special = False
    rows, depth, columns = (
        m.choice((1, 2, 3, 4, 7, 13, 40)),
        m.choice((4, 7, 16, 33, 64, 130, 300)),
        m.choice((1, 4, 5, 8, 12, 13, 24, 29, 50)),
    )
    dtype = m.choice((INT8, INT8, UINT8))
    most = m.choice((1, 3, 12, 40, 100, 127))
    middle = 0 if dtype == INT8 else 128
    w = m.whole_numbers(-most, most + 1, (depth, columns), np.int64, True)
    far = m.whole_numbers(0, m.choice((2, 9, 60, 1000)), (depth, columns), np.int64, True) == 0
    w = np.clip(np.where(far, np.where(w < 0, -128, 127), w) + middle, *((-128, 127) if dtype == INT8 else (0, 255))).astype(dtype)
    weights = m.const(w) if m.chance(0.85) else m.input(w)
    point = m.const(np.array(middle if m.chance(0.7) else m.integer(0, 100), dtype))
    first = m.choice((UINT8, UINT8, INT8))
    low = -128 if first == INT8 else 0
    if m.chance(0.3):
        ends = np.where(m.whole_numbers(0, 2, (rows, depth)) == 0, low, low + 255).astype(first)
        a, zero, scale = m.input(ends), m.const(np.array(m.integer(low, low + 255), first)), m.const(np.float32(0.5))
    elif m.chance(0.5):
        whole = m.whole_numbers(low, low + 255, (rows, depth)).astype(first)
        a, zero, scale = m.input(whole), m.const(np.array(m.integer(low, low + 255), first)), m.const(np.float32(0.25))
    else:
        # Multiples of a power of two from 0 to 255 of them: scale and zero point are exact.
        codes = np.minimum(m.whole_numbers(0, 256, (rows, depth)), 255)
        codes.flat[0], codes.flat[-1] = 0, 255
        x = m.input(((codes - m.integer(0, 255)) * 0.125).astype(np.float32))
        a, scale, zero = m.add("DynamicQuantizeLinear", [x], 3)
    y = m.node("MatMulInteger", a, weights, zero, point)
    if m.chance(0.3):
        m.result(y)
        return
    y = m.node("Mul", m.node("Cast", y, to=1), m.node("Mul", scale, m.const(power(m, -9, -6, m.choice(((), (columns,)))))))
    y = m.node("Add", y, m.const(m.array(FLOAT, (columns,), "plain", constant=True))) if m.chance(0.6) else y
    if m.chance(0.4):
        y = m.node(m.choice(("Relu", "Tanh", "Sigmoid")), y)
    if m.chance(0.3):
        y = m.node("Add", y, m.input(m.array(FLOAT, (rows, columns), "plain")))
    m.result(y)


@bait
def integer_windows(m: Sketch) -> None:
    """QLinearConv of 3 x 3 windows of many channels, whose images and weights may be at the ends of their range; once or twice."""
    m.special = False
    c, dtype = m.choice((4, 8, 12, 16, 20, 32, 36, 64, 128, 228, 232, 260)), m.choice((UINT8, INT8))
    low, size = -128 if dtype == INT8 else 0, (m.choice((1, 1, 2)), m.integer(1, 14), m.integer(1, 14))
    shape = (size[0], c, *size[1:])
    kind = m.choice(("ends", "all", "any"))
    if kind == "any":
        codes = m.whole_numbers(low, low + 255, shape, dtype)
    else:
        codes = (np.zeros(shape) + 255 * m.whole_numbers(0, 2, shape if kind == "ends" else (1, c, 1, 1)) + low).astype(dtype)
    y, zero = m.input(codes), m.const(np.array(m.integer(low, low + 255), dtype))
    scale, least = m.const(np.float32(0.5)), m.choice(((1, 1, 2, 2), (0, 0, 2, 2), (2, 1, 1, 0)))
    for _ in range(m.integer(1, 2)):
        made = m.choice((1, 4, 7, 12, 13, 29, c))
        most = m.choice((3, 40, 127))
        w = m.whole_numbers(-most, most + 1, (made, c, 3, 3), np.int64, True)
        far = m.whole_numbers(0, m.choice((1, 2, 60, 1000)), w.shape if m.chance(0.5) else (made, c, 1, 1), np.int64, True) == 0
        w = np.where(far, np.where(w < 0, -128, 127), w)
        wide: tuple[int, ...] = m.choice(((), (made,)))
        second: np.dtype[Any] = np.dtype(INT8)
        point: Array = np.zeros(wide, np.int8)
        if dtype == UINT8 and m.chance(0.6):  # int8 by uint8 has the reference evaluator alone, which rounds ties behind the zero point
            wide, second = (), np.dtype(UINT8)
            point = np.array(128 + m.choice((0, 0, m.integer(-20, 20), m.integer(-128, 127))), np.uint8)
        given = [m.const((w + (0 if second == INT8 else 128)).astype(second)), m.const(power(m, -9, -6, wide)), m.const(point)]
        if m.chance(0.2):
            y = m.node("ConvInteger", y, given[0], zero, given[2], pads=[m.choice((0, 1)), 1, m.choice((1, 2)), 1])
            return m.result(m.node("Mul", m.node("Cast", y, to=1), m.const(power(m, -9, -6))))
        result = [m.const(power(m, -3, 7)), m.const(np.array(m.integer(low, low + 255), dtype))]
        bias = [m.const(m.whole_numbers(-(2**20), 2**20, (made,), np.int32, True))] if m.chance(0.4) else []
        pads = [m.choice((1, 1, 2, n)) for n in least] if m.chance(0.7) else [1] * 4
        y = m.node("QLinearConv", y, scale, zero, *given, *result, *bias, pads=pads)
        c, (scale, zero) = made, result
    m.result(y if m.chance(0.7) else m.node("DequantizeLinear", y, scale, zero))
