"""Sizes at which kernels take another way: windows of one channel each, weights that are packed at load."""

from __future__ import annotations

import math

from ..sketch import FLOAT, Sketch
from . import bait
from .products import const, given, tail

LONG = (16, 17, 40, 47, 48, 61, 96, 131, 256, 300, 515)


@bait
def windows(m: Sketch) -> None:
    """Depthwise convolutions of every window and stride, over sides, corners and images smaller than a window."""
    kernel = [m.choice((3, 5))] * 2 if m.chance(0.7) else [m.choice((1, 2, 3, 4, 5, 7)) for _ in range(2)]
    strides = [m.integer(1, 2)] * 2 if m.chance(0.7) else [m.integer(1, 3) for _ in range(2)]
    dilations = [1, 1] if m.chance(0.8) else [m.integer(1, 2) for _ in range(2)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [m.integer(0, r - 1 if m.chance(0.2) else r // 2) for r in reach * 2]
    n, channels, each = m.size(1, 2), m.choice((2, 3, 4, 9)), m.choice((1, 1, 1, 2))
    high = m.choice((6, 12, 40))
    sides = [max(m.size(1, high), r - before - after, 1) for r, before, after in zip(reach, pads[:2], pads[2:], strict=True)]
    more = [const(m, (channels * each,))] if m.chance(0.6) else []
    x, w = given(m, (n, channels, *sides), 0.05), const(m, (channels * each, 1, *kernel))
    y = m.node("Conv", x, w, *more, group=channels, pads=pads, strides=strides, dilations=dilations)
    out = [(s + a + b - r) // step + 1 for s, a, b, r, step in zip(sides, pads[:2], pads[2:], reach, strides, strict=True)]
    m.result(tail(m, y, (n, channels * each, *out), (channels * each, 1, 1), m.integer(0, 3)))


@bait
def pools(m: Sketch) -> None:
    """Pools of every small window and stride, over rows of up to two vectors and more, sides and corners; what is not finite too."""
    kernel = [m.choice((2, 3, 3, 5))] * 2 if m.chance(0.8) else [m.integer(1, 4) for _ in range(2)]
    strides = [m.integer(1, 2)] * 2 if m.chance(0.8) else [m.integer(1, 3) for _ in range(2)]
    pads = [m.integer(0, k - 1 if m.chance(0.2) else k // 2) for k in kernel * 2]
    high = m.choice((6, 12, 40, 70))
    sides = [max(m.size(1, high), k - before - after, 1) for k, before, after in zip(kernel, pads[:2], pads[2:], strict=True)]
    name = "MaxPool" if m.chance(0.6) else "AveragePool"
    kind = "any" if name == "MaxPool" else "mild"  # sums of the largest numbers leave the range in one order and not in another
    x = m.operand(FLOAT, (m.size(1, 2), m.choice((1, 2, 3, 9)), *sides), kind, constant=0.05)
    ceil = m.choice((None, 0, 1)) if m.opset >= 10 else None
    padded = {"count_include_pad": m.choice((None, 0, 1))} if name == "AveragePool" and m.opset >= 7 else {}
    m.result(m.node(name, x, kernel_shape=kernel, pads=pads, strides=strides, ceil_mode=ceil, **padded))


@bait
def packed(m: Sketch) -> None:
    """Products of few and many rows by weights large enough to be packed, in one band or several, read once or twice; or computed ones."""
    rows, k, columns = m.size(1, m.choice((1, 4, 17, 36, 70))), m.choice(LONG), m.choice(LONG)
    transposed = m.chance(0.3)
    w = m.const(m.array(FLOAT, (columns, k) if transposed else (k, columns), "plain", constant=True) / FLOAT.type(k))
    if m.chance(0.2):
        w = m.node("Add", w, given(m, (1,), 0))
    outs = []
    for _ in range(m.integer(1, 2)):
        x = given(m, (rows, k), 0.05)
        y = m.node("Gemm", x, w, transB=1) if transposed else m.node("MatMul", x, w)
        outs.append(tail(m, y, (rows, columns), (columns,), m.integer(0, 3)))
    m.loose = 4
    m.result(*outs)


@bait
def squares(m: Sketch) -> None:
    """3 x 3 convolutions with channels enough for Winograd's method, taps apart or not, over sides that no tile divides."""
    c, channels = (m.choice((8, 9, 16, 21, 32, 50, 72, 130)) for _ in range(2))
    few = m.chance(0.3)  # tiles to an image
    stride, high = 1 if few else m.choice((1, 1, 2)), m.choice((6, 14, 30, 70))
    apart = [m.integer(1, 4) for _ in range(2)] if stride == 1 and not few and m.chance(0.3) else [1, 1]
    pads = [m.integer(0, 2 * by) for by in apart * 2]
    least = [2 * by + 1 - before - after for by, before, after in zip(apart, pads[:2], pads[2:], strict=True)]
    n = m.choice((1, 1, 2, 33)) if few else m.size(1, 2)
    sides = [max(m.integer(5, 8) + size - 1, 1) if few else max(m.size(1, high), size) for size in least]
    more = [const(m, (channels,))] if m.chance(0.6) else []
    # Sums of about 1, where Tanh and Sigmoid end: errors of larger ones would be judged by what is left of them.
    w = m.const(m.array(FLOAT, (channels, c, 3, 3), "plain", constant=True) / FLOAT.type(48 * c**0.5))
    y = m.node("Conv", given(m, (n, c, *sides), 0.05), w, *more, pads=pads, strides=[stride] * 2, dilations=apart)
    out = [(size - no) // stride + 1 for size, no in zip(sides, least, strict=True)]
    m.loose = 16  # rounding is relative to the largest terms of a tile
    if m.chance(0.3):  # as a residual block ends
        y = m.node(m.choice(("Relu", "Sigmoid", "HardSwish")), m.node("Add", y, given(m, (n, channels, *out), 0.1)))
    m.result(tail(m, y, (n, channels, *out), (channels, 1, 1), m.integer(0, 3)))


@bait
def patches(m: Sketch) -> None:
    """Windows of four taps or more that lie apart, in one dimension to three, over sides or not, with more taps than a block of k holds."""
    rank = m.choice((1, 2, 2, 2, 3))
    kernel = [m.choice((4, 5, 7, 8, 10, 16, 21) if rank < 3 else (2, 3, 4)) for _ in range(rank)]
    if m.chance(0.5):
        kernel = kernel[-1:] * rank
    strides = [m.integer(1, k + 1) for k in kernel]
    kernel[-1], strides[-1] = max(kernel[-1], 4), max(strides[-1], 3)
    pads = [m.integer(0, k // 2 if m.chance(0.6) else 0) for k in kernel * 2]
    apart = [m.choice((1, 1, 2)) for _ in kernel[1:]] + [1]
    reach = [(k - 1) * by + 1 for k, by in zip(kernel, apart, strict=True)]
    out = [m.integer(1, {1: 130, 2: 24, 3: 9}[rank]) for _ in kernel]
    sides = [max((o - 1) * by + r - a - b, 1) for o, by, r, a, b in zip(out, strides, reach, pads[:rank], pads[rank:], strict=True)]
    c, channels, group = m.choice((1, 2, 3, 9)), m.choice((1, 5, 8, 33)), m.choice((1, 1, 1, 2))
    more = [const(m, (group * channels,))] if m.chance(0.6) else []
    w = m.const(m.array(FLOAT, (group * channels, c, *kernel), "plain", constant=True) / FLOAT.type(16 * (c * math.prod(kernel)) ** 0.5))
    m.loose = 2 + c * math.prod(kernel) / 250  # long sums
    n = m.size(1, 2)
    y = m.node("Conv", given(m, (n, group * c, *sides), 0.05), w, *more, pads=pads, strides=strides, dilations=apart, group=group)
    made = [(s + a + b - r) // by + 1 for s, a, b, r, by in zip(sides, pads[:rank], pads[rank:], reach, strides, strict=True)]
    m.result(tail(m, y, (n, group * channels, *made), (group * channels, *[1] * rank), m.integer(0, 2)))


@bait
def depths(m: Sketch) -> None:
    """Depthwise windows, of 3 x 3 and 5 x 5 above all, with channels that do and do not fill the vectors in which they lie side by side."""
    k, stride, channels = m.choice((3, 3, 5, 5, 2, 4, 7, 9)), m.choice((1, 1, 2)), m.choice((2, 7, 8, 9, 16, 21, 33))
    apart = m.choice((1, 1, 1, 2, 3))
    reach = (k - 1) * apart + 1
    pads = [m.integer(0, reach // 2 + 1) for _ in range(4)]
    high = m.choice((6, 14, 30, 70))
    n, sides = m.size(1, 2), [max(m.size(1, high), reach - before - after) for before, after in zip(pads[:2], pads[2:], strict=True)]
    more = [const(m, (channels,))] if m.chance(0.6) else []
    w = m.const(m.array(FLOAT, (channels, 1, k, k), "plain", constant=True) / FLOAT.type(4 * k))
    x = given(m, (n, channels, *sides), 0.05)
    y = m.node("Conv", x, w, *more, pads=pads, strides=[stride] * 2, dilations=[apart] * 2, group=channels)
    out = [(s + a + b - reach) // stride + 1 for s, a, b in zip(sides, pads[:2], pads[2:], strict=True)]
    m.result(tail(m, y, (n, channels, *out), (channels, 1, 1), m.integer(0, 3)))


@bait
def points(m: Sketch) -> None:
    """1 x 1 convolutions of images a pixel more or less than whole panels (7 x 7 is 3 vectors and one), over one block of k or more."""
    c, channels = m.choice((3, 8, 16, 17, 40, 300, 515)), m.choice((1, 5, 7, 8, 9, 16, 24, 31, 35, 36, 50))
    pixels = m.choice((8, 9, 16, 17, 24, 25, 32, 33, 48, 49, 50, 64, 65, 96, 97, 145, 192, 193))
    sides = (7, 7) if m.chance(0.3) else (1, pixels)
    n = m.size(1, 2)
    more = [const(m, (channels,))] if m.chance(0.6) else []
    w = m.const(m.array(FLOAT, (channels, c, 1, 1), "plain", constant=True) / FLOAT.type(c**0.5))
    y = m.node("Conv", given(m, (n, c, *sides), 0.05), w, *more)
    m.loose = 4
    m.result(tail(m, y, (n, channels, *sides), (channels, 1, 1), m.integer(0, 3)))


@bait
def turned(m: Sketch) -> None:
    """Rotary positions of heads that lie apart, side by side or in a view, once and again, between what may read and write with them."""
    m.empty = False
    batch, heads, n, pairs = m.size(1, 3), m.choice((1, 2, 3, 5)), m.size(1, 5), m.choice((1, 3, 4, 8, 9, 16, 17, 33))
    rest = m.choice((0, 0, 2, 7))
    size, apart, interleaved = 2 * pairs + rest, m.chance(0.6), m.choice((None, 0, 1))
    shape = (batch, heads, n, size) if apart else (batch, n, heads * size)
    view = m.chance(0.4)
    x = given(m, (batch, n, heads, size) if apart and view else (*shape[:-1], shape[-1] + 3) if view else shape, 0.05)
    if apart and view:
        x = m.node("Transpose", x, perm=[0, 2, 1, 3])
    elif view:
        x = m.node("Slice", x, m.ints([2]), m.ints([2 + shape[-1]]), m.ints([-1]))
    if m.chance(0.3):
        x = tail(m, x, shape, shape[-1:], 1)
    tables = [given(m, (9, pairs), 0.5) for _ in range(2)]
    at = m.input(m.whole_numbers(0, 8 - n, (1,)) if m.chance(0.3) else m.whole_numbers(0, 8, (batch, n)))
    # onnxruntime knows fewer features than a head has where heads lie side by side alone.
    part = {} if apart and not rest else {"num_heads": heads, "rotary_embedding_dim": 2 * pairs}
    turn = {"domain": "com.microsoft", "interleaved": interleaved, **part}
    y = m.node("RotaryEmbedding", x, at, *tables, **turn)
    if m.chance(0.3):
        y = m.node("RotaryEmbedding", y, at, *(tables if m.chance(0.5) else tables[::-1]), **turn)
    after = m.choice(("none", "heads", "join", "tail", "slice", "self"))
    if after == "heads" and apart:
        y = m.node("Reshape", m.node("Transpose", y, perm=[0, 2, 1, 3]), m.ints([0, 0, -1]))
    elif after == "heads":
        y = m.node("Transpose", m.node("Reshape", y, m.ints([0, 0, heads, size])), perm=[0, 2, 1, 3])
    elif after == "join":
        axis = len(shape) - 2
        past = given(m, (*shape[:axis], m.size(1, 4), *shape[axis + 1 :]), 0.1)
        y = m.node("Concat", *((past, y) if m.chance(0.7) else (y, past)), axis=axis)
    elif after == "tail":
        y = tail(m, y, shape, shape[-1:], m.integer(1, 3))
    elif after == "slice":
        y = m.node("Slice", y, m.ints([0]), m.ints([max(1, pairs)]), m.ints([-1]))
    elif after == "self":
        y = m.node("Add", y, x)
    m.result(y)
