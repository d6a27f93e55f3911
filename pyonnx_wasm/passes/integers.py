"""Products and convolutions whose operands are dequantised bytes multiply the bytes, and quantise again what nobody else reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dtypes import DType
from ..ir import Graph, Node, Value, dims
from ..ops.conv import CONV
from ..ops.matmul import MATMUL
from ..ops.quantized import BYTES, QCONV, QMATMUL
from ..tensor import MAP, constant, content, expression, map_
from ..tensor.expression import Expression
from .rewrite import Rewriter, derived, joined


@dataclass
class Bytes:
    """``(codes - zero) * scale``: the view that a kernel reads, and what its two factors are over the same axes; zero None: 0."""

    codes: Value
    zero: Value | None
    scale: Value


def multiply_bytes(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            if node.const or node.kernel not in (CONV, MATMUL, QCONV, QMATMUL):
                continue
            with rewriter.emitted(node.origin) as fresh:
                made = _multiplied(node)
                if made is None:
                    continue
                old, out = [node], node.out
                reader = rewriter.only_reader(out)
                if reader is not None and (quantised := _quantised(reader)) is not None:
                    made.ins |= {name: v for name, v in zip(("yscale", "yzero"), quantised, strict=True) if v is not None}
                    old, out = [node, reader], reader.out
                    made.origin = joined([node.origin, reader.origin])
                elif node.kernel is made.kernel:
                    continue
                if made in fresh:
                    fresh.remove(made)
            made.outs = {"y": Value(out.storage, out.dtype, node.out.shape, 0)}
            rewriter.replace(old, [*fresh, made])


def _multiplied(node: Node) -> Node | None:
    """The call of bytes that gives the same in float32."""
    if node.kernel is CONV or node.kernel is MATMUL:
        return _convolution(node) if node.kernel is CONV else _product(node)
    return derived(node) if node.out.dtype is DType.float32 and node.out.whole else None


def _convolution(node: Node) -> Node | None:
    x, w = _bytes(node.ins["x"]), _bytes(node.ins["w"])
    if x is None or w is None or not w.codes.storage.const:
        return None
    xzero, xscale = _along(x.zero, None), _along(x.scale, None)
    wzero, wscale = _along(w.zero, 0), _along(w.scale, 0)
    if xscale is None or wscale is None or (x.zero is not None and xzero is None) or (w.zero is not None and wzero is None):
        return None
    scale: Value = map_("mul", wscale, xscale)
    ins = {"x": x.codes, "w": w.codes, "xzero": unless_zeros(xzero), "wzero": unless_zeros(wzero)}
    ins["scale"] = scale.view(scale.shape, 0, [_step(scale)])
    y = QCONV({"y": (DType.float32, node.out.shape)}, ins | _rest(node), **node.params)
    return y.producer  # type: ignore[no-any-return]


def _product(node: Node) -> Node | None:
    a, b = _bytes(node.ins["a"]), _bytes(node.ins["b"])
    if a is None or b is None or node.out.rank < 2:
        return None
    azero, ascale = _along(a.zero, None), _along(a.scale, None)
    bzero, bscale = _along(b.zero, b.codes.rank - 1), _along(b.scale, b.codes.rank - 1)
    if ascale is None or bscale is None or (a.zero is not None and azero is None) or (b.zero is not None and bzero is None):
        return None
    m, n = node.out.shape[-2:]
    scale: Value = map_("mul", bscale, ascale)
    ins = {"a": a.codes, "b": b.codes, "azero": unless_zeros(azero), "bzero": unless_zeros(bzero)}
    ins["scale"] = scale.view([m, n], 0, [0, _step(scale)])
    y = QMATMUL({"y": (DType.float32, node.out.shape)}, ins | _rest(node), **node.params)
    return y.producer  # type: ignore[no-any-return]


def unless_zeros(zero: Value | None) -> Value | None:
    """Zero points that are known to be 0 are left out: a GPU binds few buffers."""
    known = None if zero is None else content(zero)
    return None if known is not None and all(n == 0 for n in known.flat) else zero


def _rest(node: Node) -> dict[str, Value | None]:
    return {name: node.ins.get(name) for name in ("bias", "residual")}


def _step(v: Value) -> dims.DimLike:
    return 0 if v.size == 1 else v.strides[0]


def _bytes(v: Value) -> Bytes | None:
    """What a value is made of, if it is a view of dequantised bytes."""
    node = v.producer
    if node is None or node.kernel is not MAP or not node.out.whole or v.dtype is not DType.float32:
        return None
    e = expression.of(node)
    if e.name != "mul":
        return None
    for wide, factor in (e.args, e.args[::-1]):
        found = codes_of(wide)
        if found is None:
            continue
        slot, zero = found
        codes: Value = node.ins["x"][slot]
        if not codes.whole or codes.shape != node.out.shape:
            continue
        scale = _operand(node, factor, DType.float32)
        point = None if zero is None else _operand(node, zero, codes.dtype)
        if scale is None or (zero is not None and point is None):
            return None
        seen = [_seen(u, v, node.out) for u in (codes, point, scale)]
        return None if seen[0] is None or seen[2] is None else Bytes(seen[0], seen[1], seen[2])
    return None


def codes_of(e: Expression) -> tuple[int, Expression | None] | None:
    """(input, zero point) of ``float(int(x) - zero)``."""
    if e.name != "cast" or e.result is not DType.float32:
        return None
    e, zero = e.args[0], None
    if e.name == "sub" and e.dtype is DType.int32:
        e, zero = e.args
    e = _widened(e)
    return (e.extra[0], zero) if e.name == "in" and e.dtype in BYTES else None


def _widened(e: Expression) -> Expression:
    """What was cast to int32, if anything was."""
    return e.args[0] if e.name == "cast" and e.result is DType.int32 else e


def _operand(node: Node, e: Expression, dtype: DType) -> Value | None:
    """A constant, or an input of this dtype, perhaps widened to int32, as a view over the map's axes."""
    if e.number is not None:
        if dtype is not DType.float32 and not _least(dtype) <= e.number <= _least(dtype) + 255:
            return None
        array = np.array(e.number, np.float32) if dtype is DType.float32 else np.array(int(e.number))
        return constant(array, dtype).view(node.out.shape, 0, [0] * node.out.rank)
    e = _widened(e)
    if e.name != "in":
        return None
    value: Value = node.ins["x"][e.extra[0]]
    return value if e.dtype is dtype else _narrow(value, dtype)


def _least(dtype: DType) -> int:
    return -128 if dtype is DType.int8 else 0


def _narrow(v: Value, dtype: DType) -> Value | None:
    """The bytes of which a value is nothing but their widening to int32."""
    node = v.producer
    if node is None or node.kernel is not MAP or not node.out.whole or len(node.ins["x"]) != 1:
        return None
    x: Value = node.ins["x"][0]
    e = expression.of(node)
    if e.result is not DType.int32 or _widened(e).name != "in" or x.dtype is not dtype or not x.whole:
        return None
    return Value(x.storage, dtype, v.shape, v.offset, v.strides)


def _seen(u: Value | None, v: Value, out: Value) -> Value | None:
    """A view over the axes of ``out`` as ``v``, a view of ``out``'s storage with its axes in another order, walks it."""
    if u is None or v.offset != 0 or v.rank != out.rank:
        return None
    taken: list[int] = []
    for size, stride in zip(v.shape, v.strides, strict=True):
        fits = (a for a in range(out.rank) if a not in taken and dims.same(out.shape[a], size) and dims.same(out.strides[a], stride))
        axis = next(fits, None)
        if axis is None:
            return None
        taken.append(axis)
    return Value(u.storage, u.dtype, v.shape, u.offset, [u.strides[a] for a in taken])


def _along(v: Value | None, axis: int | None) -> Value | None:
    """A value that varies along one axis alone, or not at all, as a vector; None where it varies otherwise."""
    if v is None or any(s != 0 and not dims.same(n, 1) for a, (n, s) in enumerate(zip(v.shape, v.strides, strict=True)) if a != axis):
        return None
    if axis is None or v.strides[axis] == 0:
        return v.view([1], v.offset, [0])
    return v.view([v.shape[axis]], v.offset, [v.strides[axis]]) if dims.same(v.strides[axis], 1) else None


def _quantised(node: Node) -> tuple[Value, Value | None] | None:
    """(scale, zero point or None for 0) where a map does nothing but quantise."""
    if node.kernel is not MAP or node.const or len(node.ins["x"]) != 1 or not node.ins["x"][0].whole or not node.out.whole:
        return None
    result = requantised(expression.of(node))
    if result is None or result[0].name != "in":
        return None
    _, scale, zero = result
    return constant(np.array([scale], np.float32)), unless_zeros(constant(np.array([zero]), node.out.dtype))


def requantised(e: Expression) -> tuple[Expression, float, int] | None:
    """(what is quantised, scale, zero point) of an expression that does so at last."""
    dtype = e.result
    if e.name != "cast" or e.dtype is not DType.float32 or dtype not in BYTES or e.args[0].name != "clamp":
        return None
    e, low, high = e.args[0].args
    least = _least(dtype)
    if low.number != least or high.number != least + 255:
        return None
    zero: float | None = 0.0
    if e.name == "add":
        e, zero = e.args[0], e.args[1].number
    if e.name != "round" or zero is None or not float(zero).is_integer() or not least <= zero <= least + 255:
        return None
    scale = _divisor(e.args[0])
    return None if scale is None else (e.args[0].args[0], scale, int(zero))


def _divisor(e: Expression) -> float | None:
    """c of ``x / c``, or of ``x * (1 / c)`` where that is exact."""
    c = e.args[1].number if e.name in ("div", "mul") else None
    if not c or c < 0:
        return None
    return c if e.name == "div" else 1 / c if np.frexp(c)[0] == 0.5 else None
