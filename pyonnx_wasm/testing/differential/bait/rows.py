"""Rows of several vectors, and of some numbers more: what kernels do with whole vectors, and where those end."""

from __future__ import annotations

import numpy as np

from ..sketch import FLOAT, Sketch
from . import bait
from .products import const, given

LONG = (3, 7, 8, 9, 15, 16, 17, 31, 33, 48, 50, 70)
CURVES = ("Asin", "Acos", "Atan", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Exp", "Log", "Sqrt")


@bait
def widened(m: Sketch) -> None:
    """Transposed convolutions: taps one or two beside each other, rows cut at both sides, channels for one product and for several."""
    m.empty = False
    kernel = [m.integer(1, 5), m.choice((1, 2, 2, 3, 4, 5))]
    strides, dilations = [m.integer(1, 3), m.choice((2, 2, 2, 1, 3))], [m.choice((1, 1, 2)) for _ in range(2)]
    group = m.choice((1, 1, 2))
    per, out = m.choice((1, 3, 8, 17)), m.choice((1, 2, 5, 9, 40, 70))
    sides = [m.size(1, 9), m.choice(LONG)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [m.integer(0, r // 2) for r in reach * 2]
    w = m.const(m.array(FLOAT, (group * per, out, *kernel), "plain", constant=True) / FLOAT.type(4 * per**0.5))
    more = [const(m, (group * out,))] if m.chance(0.5) else []
    x = given(m, (m.size(1, 2), group * per, *sides), 0.05)
    m.result(m.node("ConvTranspose", x, w, *more, group=group, strides=strides, dilations=dilations, pads=pads))


@bait
def crowds(m: Sketch) -> None:
    """Many boxes on a coarse grid: equal scores, zeros of both signs, boxes that touch, hold others, are turned round or empty."""
    rng = np.random.default_rng(int(m.fill.integers(1 << 62)))
    batch, classes, boxes = m.integer(1, 2), m.integer(1, 2), m.choice((1, 7, 8, 9, 17, 33, 60, 150))
    grid, far = np.float32(m.choice((1, 8))), m.choice((4, 9, 16))
    low = rng.integers(-far, far + 1, (batch, boxes, 2)).astype(np.float32)
    size = rng.integers(0, 5, (batch, boxes, 2)).astype(np.float32)
    centred = m.chance(0.3)
    corners = [low, low + size]
    if m.chance(0.3):
        turned = rng.random((batch, boxes, 1)) < 0.3
        corners = [np.where(turned, low + size, low), np.where(turned, low, low + size)]
    table = np.concatenate([low, size] if centred else corners, 2) / grid
    scores = rng.choice(np.array([-0.0, 0, 0.25, 0.5, 0.75, 1, -1], np.float32), (batch, classes, boxes))
    if m.chance(0.5):
        scores = np.where(rng.random(scores.shape) < 0.5, rng.standard_normal(scores.shape).astype(np.float32), scores)
    most = m.const(np.asarray([m.choice((1, 8, 20, 100, 200))]))
    overlap, least = (m.const(np.full(1, m.choice(of), np.float32)) for of in ((0, 0.25, 0.5, 0.9), (-2, 0, 0.3)))
    given = [m.input(table.astype(np.float32)), m.input(scores), most, overlap, least]
    m.result(m.node("NonMaxSuppression", *given, center_point_box=int(centred)))


@bait
def codes(m: Sketch) -> None:
    """Numbers as bytes and back, for the whole tensor and by channel, with a zero and without, of what a map computes before."""
    shape = (m.size(1, 3), m.choice((1, 3, 5)), m.choice(LONG))
    dtype = m.choice((np.uint8, np.int8))
    axis = m.choice((None, None, 1, 2))
    wide = () if axis is None else (shape[axis],)
    halfway = m.chance(0.4)  # between two codes
    steps = np.abs(m.array(FLOAT, wide, "plain", constant=True)) / np.float32(16) + np.float32(2**-7)
    scale = m.const(np.full(wide, 2**-4, np.float32) if halfway else steps)
    info = np.iinfo(dtype)
    pair = [scale, m.const(m.whole_numbers(info.min, info.max, wide, dtype, constant=True))] if m.chance(0.7) else [scale]
    more = {} if axis is None else {"axis": axis}
    signed = len(pair) > 1 and dtype is np.int8
    values = m.array(FLOAT, shape, "mild" if halfway else m.choice(("mild", "any")))
    values = np.rint(values * np.float32(32)) / np.float32(32) if halfway else values
    x = m.input(np.where(np.isnan(values), np.float32(0), values))  # what NaN is as a byte nobody says
    if m.chance(0.4):
        x = m.node(m.choice(("Relu", "Neg", "Abs")), x)
    y = m.node("QuantizeLinear", x, *pair, **more)
    code = m.input(m.whole_numbers(info.min if signed else 0, info.max if signed else 255, shape, np.int8 if signed else np.uint8))
    back = m.node("DequantizeLinear", code, *pair, **more)
    if m.chance(0.3):
        back = m.node("Add", back, m.node("DequantizeLinear", y, *pair, **more))
    m.result(y, back)


@bait
def curves(m: Sketch) -> None:
    """Elementary functions near where their ways meet and end, and far out."""
    rng = np.random.default_rng(int(m.fill.integers(1 << 62)))
    shape = (m.size(1, 3), m.choice(LONG))
    name = m.choice(CURVES)
    centres = np.array([0, 0.5, 1, 1.5707964, 3, 9, 2.0**20, 2.0**28, 1e30], np.float32)
    if name in ("Exp", "Sinh", "Cosh"):  # WGSL allows e^x 3 + 2 |x| units in the last place
        centres = centres[centres < 10]
    x = rng.choice(centres, shape) * (1 + rng.choice([0, 1e-6, 1e-2, 0.3], shape) * rng.uniform(-1, 1, shape)) * rng.choice([-1, 1], shape)
    if name == "Tan":  # beside a pole a number's last bit is all of the result's
        x = np.where(np.abs(np.cos(x.astype(np.float32).astype(np.float64))) < 1e-2, 0.7, x)
    if m.special:
        x = np.where(rng.random(shape) < 0.1, rng.choice([np.inf, -np.inf, np.nan, -0.0], shape), x)
    m.result(m.node(name, m.input(x.astype(np.float32))))
