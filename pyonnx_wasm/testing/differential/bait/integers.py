"""Products and convolutions of integers and of blocks, whose scales, zero points and weights are views of something larger."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..sketch import FLOAT, Sketch
from ..values import Array
from . import bait

UINT8, INT8 = np.dtype(np.uint8), np.dtype(np.int8)
ODD = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 65)


def seen(m: Sketch, array: Array, constant: float = 0.6) -> str:
    """A value with these contents, mostly a view: of something longer, turned, strided, spread, picked from or joined."""
    fixed = m.chance(constant)
    whole, views = array, []
    for _ in range(m.choice((0, 1, 1, 1, 2))):
        whole, view = _larger(m, whole, fixed)
        views.append(view)
    name = m.const(whole) if fixed else m.input(whole)
    for op, inputs, attributes in reversed(views):
        name = m.node(op, name, *(m.const(i) for i in inputs), **attributes)
    return name


View = tuple[str, tuple[Array, ...], dict[str, Any]]


def _larger(m: Sketch, array: Array, fixed: bool) -> tuple[Array, View]:
    """An array that a node views as the given one."""
    rank = array.ndim
    kind = m.choice(("slice", "slice", "transpose", "reshape", "expand", "gather", "squeeze", "strided"))
    if kind == "transpose" and rank > 1:
        perm = [int(i) for i in m.pick.permutation(rank)]
        return array.transpose(np.argsort(perm)), ("Transpose", (), {"perm": perm})
    if kind in ("slice", "strided") and rank:
        axis, lead, step = m.integer(0, rank - 1), m.integer(0, 3), 2 if kind == "strided" else m.choice((1, 1, -1))
        n = array.shape[axis]
        shape = list(array.shape)
        shape[axis] = lead + max(n * abs(step), 1) + m.integer(0, 2)
        whole = m.array(array.dtype, shape, "plain", fixed)
        start = lead if step > 0 else lead + n - 1
        stop = lead + n * step if step > 0 else lead - 1 if lead else -(2**31)
        take = [slice(None)] * rank
        take[axis] = slice(start, None if stop < 0 else stop, step)
        if n:
            whole[tuple(take)] = array
        ends = tuple(np.asarray([v]) for v in (start, stop, axis, step))
        return whole, ("Slice", ends if n else tuple(np.asarray([v]) for v in (0, 0, axis, 1)), {})
    if kind == "gather" and rank and array.shape[0]:
        order = m.pick.permutation(array.shape[0] + 2)[: array.shape[0]]
        whole = m.array(array.dtype, (array.shape[0] + 2, *array.shape[1:]), "plain", fixed)
        whole[order] = array
        return whole, ("Gather", (order.astype(np.int64),), {"axis": 0})
    if kind == "expand" and array.size and (array == array.reshape(-1)[0]).all():
        return array.reshape(-1)[:1].reshape([1] * rank), ("Expand", (np.asarray(array.shape, np.int64),), {})
    if kind == "squeeze" and m.opset >= 13:
        return array[None], ("Squeeze", (np.asarray([0]),), {})
    if array.size == 0:
        return array, ("Identity", (), {})
    return array.reshape(-1), ("Reshape", (np.asarray(array.shape, np.int64),), {})


def scales(m: Sketch, shape: tuple[int, ...], even: float = 0.3) -> Array:
    made = (m.array(FLOAT, shape, "unit", True) * np.float32(0.1) + np.float32(0.01)).astype(np.float32)
    return np.full_like(made, made.reshape(-1)[0]) if made.size and m.chance(even) else made


def points(m: Sketch, dtype: Any, shape: tuple[int, ...], even: float = 0.4) -> Array:
    low, high = (0, 255) if dtype == UINT8 else (-128, 127)
    made = m.whole_numbers(low, high, shape, dtype, True)
    return np.full_like(made, made.reshape(-1)[0]) if made.size and m.chance(even) else made


def numbers(m: Sketch, dtype: Any, shape: tuple[int, ...], fixed: bool = True) -> Array:
    low, high = (0, 255) if dtype == UINT8 else (-128, 127)
    return m.whole_numbers(low, high, shape, dtype, fixed)


def _types(m: Sketch) -> tuple[Any, Any]:
    return m.choice((UINT8, UINT8, INT8)), m.choice((UINT8, INT8, INT8))


@bait
def integer_products(m: Sketch) -> None:
    """MatMulInteger and what exporters put behind it: cast, scale, bias."""
    first, second = _types(m)
    r, k, c = m.choice((m.size(1, 5), 1, 33)), m.choice(ODD), m.choice(ODD)
    lead = m.choice(((), (), (2,)))
    a = m.input(numbers(m, first, (*lead, r, k), False))
    b = seen(m, numbers(m, second, (k, c)), 0.8)
    given = [a, b]
    if m.chance(0.8):
        given.append(seen(m, points(m, first, m.choice(((), (1,))))))
        given += [seen(m, points(m, second, m.choice(((), (1,), (c,), (c,)))))] if m.chance(0.7) else []
    y = m.node("MatMulInteger", *given)
    if m.chance(0.7):
        y = m.node("Cast", y, to=1)
        y = m.node("Mul", y, seen(m, scales(m, m.choice(((), (1,), (c,), (1, c)))), 0.7))
        y = m.node("Add", y, seen(m, m.array(FLOAT, (c,), "plain", True), 0.8)) if m.chance(0.5) else y
        y = m.node("Relu", y) if m.chance(0.3) else y
    m.result(y)


@bait
def dynamic_products(m: Sketch) -> None:
    """DynamicQuantizeLinear before MatMulInteger or ConvInteger, as onnxruntime's quantiser writes it."""
    m.special = False
    deep = m.chance(0.3)
    c, k = m.choice(ODD[:12]), m.choice(ODD[:12])
    x = m.input(m.array(FLOAT, (1, 2, 5, 5) if deep else (m.size(1, 4), k), "plain"))
    quantised, scale, zero = m.add("DynamicQuantizeLinear", [x], 3)
    second = m.choice((UINT8, INT8))
    wide = (c,) if m.chance(0.5) and not deep else ()
    w = seen(m, numbers(m, second, (c, 2, 3, 3) if deep else (k, c)), 0.8)
    point = seen(m, np.zeros(wide, second) if m.chance(0.4) else points(m, second, wide), 0.9)
    y = m.node("ConvInteger" if deep else "MatMulInteger", quantised, w, zero, point)
    y = m.node("Mul", m.node("Cast", y, to=1), m.node("Mul", scale, seen(m, scales(m, wide), 0.8)))
    m.loose = 4
    m.result(m.node("Add", y, seen(m, m.array(FLOAT, (c, 1, 1) if deep else (c,), "plain", True), 0.9)) if m.chance(0.5) else y)


@bait
def reshaped_sums(m: Sketch) -> None:
    """Integer sums in another shape, of axes as long as others, before they are scaled along one of these."""
    m.special = False
    first, second = _types(m)
    deep, c = m.chance(0.6), m.choice((2, 3, 4))
    x = numbers(m, first, (1, 2, c + 2, c + 2) if deep else (c * c, 5), False)
    w = numbers(m, second, (c, 2, 3, 3) if deep else (5, c))
    y = m.node("ConvInteger" if deep else "MatMulInteger", m.input(x), m.const(w), m.const(points(m, first, ())))
    shape = m.choice(((c, c, c), (1, c, c, c), (c, 1, c, c), (c * c, c), (1, c, c * c)))
    y = m.node("Reshape", y, m.const(np.asarray(shape, np.int64)))
    along = [n if i == m.integer(0, len(shape) - 1) else 1 for i, n in enumerate(shape)]
    if m.chance(0.4):
        y = m.node("Add", y, m.const(m.whole_numbers(-500, 500, along, np.int32, True)))
    m.result(m.node("Mul", m.node("Cast", y, to=1), m.const(scales(m, tuple(along)))))


@bait
def ranges(m: Sketch) -> None:
    """DynamicQuantizeLinear of views and of what was computed, once and again, whose codes, scales and points several read.

    The standard does not say what a range without bounds gives."""
    m.special = False
    shape = m.choice(((m.choice(ODD),), (m.size(1, 4), m.choice(ODD)), (2, m.size(0, 3), 5), (), (3, 700), (9000,)))
    kind = m.choice(("any", "plain", "unit"))
    x = seen(m, m.array(FLOAT, shape, kind, True), 0.3)
    x = m.node(m.choice(("Relu", "Neg", "Identity")), x) if m.chance(0.4) else x
    given = [x, x] if m.chance(0.4) else [x, m.node("Neg", x)] if m.chance(0.3) else [x]
    for one in given:
        codes, scale, point = m.add("DynamicQuantizeLinear", [one], 3)
        back = m.node("DequantizeLinear", codes, scale, point) if m.chance(0.5) else ""
        flat = m.node("Transpose", codes) if m.chance(0.4) else codes
        again = m.node("QuantizeLinear", one, scale, point) if m.chance(0.3) else ""
        m.result(*filter(None, (*(v for v in (scale, point, flat) if m.chance(0.6)), back, again)))
        if m.chance(0.3):
            m.result(m.node("Add", one, scale))
    if not m.outputs:
        m.result(codes)


@bait
def qlinear(m: Sketch) -> None:
    """QLinearMatMul and QLinearConv with operands that are views."""
    first, second = _types(m)
    deep = m.chance(0.5)
    c, k = m.choice(ODD[:11]), m.choice(ODD if not deep else ODD[:6])
    x = numbers(m, first, (1, k, *[m.size(3, 6)] * 2) if deep else (m.size(1, 4), k), False)
    w = numbers(m, second, (c, k, *m.choice(((1, 1), (3, 3), (2, 3)))) if deep else (k, c))
    wide = m.choice(((), (c,), (c,)))
    zero = np.zeros(wide, second) if m.chance(0.5) or deep else points(m, second, wide)
    given = [m.input(x), seen(m, scales(m, ())), seen(m, points(m, first, ()))]
    given += [seen(m, w, 0.8), seen(m, scales(m, wide)), seen(m, zero, 0.8)]
    given += [seen(m, scales(m, ()) * np.float32(20)), seen(m, points(m, first, ()))]
    if deep:
        given += [seen(m, m.whole_numbers(-500, 500, (c,), np.int32, True), 0.8)] if m.chance(0.5) else []
        y = m.node("QLinearConv", *given, pads=m.choice(([0, 0, 0, 0], [1, 1, 1, 1])), strides=m.choice((None, [2, 1])))
    else:
        y = m.node("QLinearMatMul", *given)
    m.result(m.node("DequantizeLinear", y, given[6], given[7]) if m.chance(0.4) else y)


@bait
def dequantised(m: Sketch) -> None:
    """DequantizeLinear of weights by tensor, axis or block, before a product; weights of 4 and 8 bits."""
    m.opset = max(m.opset, 21)
    m.special = False
    k, c = m.choice(ODD), m.choice(ODD)
    turned = m.chance(0.3)
    shape = (c, k) if turned else (k, c)
    kind = m.choice((UINT8, INT8, INT8))
    axis = m.integer(0, 1)
    block = m.choice((2, 16, 32)) if m.chance(0.4) else 0
    wide: tuple[int, ...] = m.choice(((), shape[axis : axis + 1]))
    if block:
        wide = tuple(-(-s // block) if a == axis else s for a, s in enumerate(shape))
    w = seen(m, numbers(m, kind, shape), 0.9)
    given = [w, seen(m, scales(m, wide), 0.8)] + ([seen(m, points(m, kind, wide), 0.8)] if m.chance(0.5) else [])
    y = m.node("DequantizeLinear", *given, axis=axis - 2 if m.chance(0.4) else axis, block_size=block or None)
    x = m.input(m.array(FLOAT, (m.choice((1, 2, 5)), k), "plain"))
    if turned and m.chance(0.5):
        z = m.node("Gemm", x, y, transB=1)
    else:
        z = m.node("MatMul", x, m.node("Transpose", y, perm=[1, 0]) if turned else y)
    m.loose = 4
    m.result(z, *([y] if m.chance(0.1) else []))


@bait
def blocks_of_bits(m: Sketch) -> None:
    """MatMulNBits over odd shapes; its scales and zero points are views."""
    bits, block = m.choice((4, 4, 8, 2)), m.choice((16, 32, 64, 128))
    k, n = m.choice((*ODD, 100, 129, 160, 1100)), m.choice(ODD)
    count = -(-k // block)
    rows = -(-count * bits // 8)
    b = m.const(m.whole_numbers(0, 255, (n, count, block * bits // 8), np.uint8, True))
    flat = m.chance(0.5)
    given = [seen(m, scales(m, (n * count,) if flat else (n, count)), 0.9)]
    given += [seen(m, m.whole_numbers(0, 255, (n * rows,) if flat else (n, rows), np.uint8, True), 0.9)] if m.chance(0.5) else []
    given += [*([""] if len(given) == 1 else []), "", seen(m, m.array(FLOAT, (n,), "plain", True), 0.8)] if m.chance(0.3) else []
    a = m.input(m.array(FLOAT, (*m.choice(((), (2,))), m.choice((1, 2, 7, 33)), k), "plain"))
    level = m.choice((0, 1, 4))
    # The sum of a block times its zero point is taken off, which may be most of it; level 4 allows rows in units of max / 32639.
    m.loose = 1 << 10 if level == 4 else 4
    how = {"accuracy_level": level} if level else {}
    m.result(m.node("MatMulNBits", a, b, *given, domain="com.microsoft", K=k, N=n, bits=bits, block_size=block, **how))


@bait
def byte_functions(m: Sketch) -> None:
    """What several maps make of one tensor of bytes: activations, products with itself, codes of codes; enough of them for a table."""
    m.special = False
    m.opset = max(m.opset, 14)
    first, second = _types(m)
    shape = m.choice(((2, 37, 29), (1, 3, 20, 20), (1025,), (m.size(1, 3), m.choice(ODD))))
    wide = m.node("DequantizeLinear", seen(m, numbers(m, first, shape), 0.1), m.const(scales(m, ())), m.const(points(m, first, ())))
    made = [wide]
    if m.chance(0.4):  # in one shape by some, in another by others
        m.result(m.node(m.choice(("Sigmoid", "Neg")), wide))
        shape = m.choice(((math.prod(shape),), (1, math.prod(shape), 1)))
        made = [m.node("Reshape", wide, m.const(np.asarray(shape, np.int64)))]
    for _ in range(m.integer(1, 3)):
        y = m.node(m.choice(("Sigmoid", "Tanh", "Relu", "Neg", "Abs", "HardSwish")), m.choice(made))
        if m.chance(0.5):
            code = m.const(scales(m, ())), m.const(points(m, second, ()))
            y = m.node("DequantizeLinear", m.node("QuantizeLinear", y, *code), *code)
        made.append(m.node(m.choice(("Mul", "Add", "Sub")), y, m.choice(made)) if m.chance(0.5) else y)
    last = m.node("Add", made[-1], m.input(m.array(FLOAT, shape, "plain"))) if m.chance(0.2) else made[-1]
    m.result(m.node("QuantizeLinear", last, m.const(scales(m, ())), m.const(points(m, first, ()))))
    m.result(*(v for v in made if m.chance(0.2)))


@bait
def gates(m: Sketch) -> None:
    """Sums and products of dequantised bytes with what some of their axes repeat, quantised again."""
    m.special = False
    m.opset = max(m.opset, 14)
    shape = m.choice(((2, 24, 5, 7), (1, 3, 9, 9), (4, 6, 16), (3, 17), (m.size(1, 3), m.choice(ODD), 1, m.size(0, 5))))
    alike = [n if m.chance(0.5) else 1 for n in shape][m.integer(0, len(shape) - 1) :]
    made = []
    for array, dtype in zip((shape, tuple(alike)), _types(m), strict=True):
        code = m.const(scales(m, ())), m.const(points(m, dtype, ()))
        made.append(m.node("DequantizeLinear", seen(m, numbers(m, dtype, array), 0.1), *code))
    y = m.node(m.choice(("Add", "Mul")), *(made if m.chance(0.5) else made[::-1]))
    y = m.node("Relu", y) if m.chance(0.3) else y
    m.result(m.node("QuantizeLinear", y, m.const(scales(m, ())), m.const(points(m, UINT8, ()))))
