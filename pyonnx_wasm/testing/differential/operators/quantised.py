"""Quantisation and the operators on quantised numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import FLOAT, Sketch
from ..values import code_of, is_float
from . import Schema, dtypes, generates, picked
from .neural import products, window

UINT8, INT8 = np.dtype(np.uint8), np.dtype(np.int8)
DOMAIN = "com.microsoft"


def scale(m: Sketch, shape: Any, dtype: Any = FLOAT, constant: float = 0.7) -> str:
    fixed = m.chance(constant)
    made = m.array(dtype, shape, "unit", fixed)
    made = (made.astype(np.float64) * 0.2 + 0.01).astype(dtype) if is_float(np.dtype(dtype)) else made + np.ones((), dtype)
    return m.const(made) if fixed else m.input(made)


def _granularity(m: Sketch, dims: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, Any], int]:
    """The shape of scales: per tensor, per axis or per block."""
    if not dims or m.chance(0.5) or m.opset < 13:
        return (), {}, 0
    at = m.integer(0, len(dims) - 1)
    axis = at - len(dims) if m.chance(0.4) else at
    if m.opset < 21 or m.chance(0.6):
        return dims[at : at + 1], {"axis": axis if axis != 1 or m.chance(0.5) else None}, 0
    block = m.integer(2, 3)
    return (*dims[:at], -(-dims[at] // block), *dims[at + 1 :]), {"axis": axis, "block_size": block}, block


@generates("QuantizeLinear")
def quantize(m: Sketch, schema: Schema) -> None:
    source = picked(m, schema, "T1", 0.6)
    kinds = dtypes(schema, schema.outputs[0].type_str)
    target = m.choice(sorted(kinds, key=str)) if m.chance(0.6) else UINT8
    dims = m.shape()
    shape, attributes, _ = _granularity(m, dims)
    widths = dtypes(schema, "T2") if m.opset >= 19 else [FLOAT]
    width = source if m.opset >= 19 and source in widths else FLOAT
    if not is_float(source) and m.opset < 23:
        width = FLOAT
    point = m.chance(0.8) or target != UINT8
    given = [m.operand(source, dims, "plain"), scale(m, shape, width)]
    if point and (m.opset < 21 or m.chance(0.7)):
        fixed = m.chance(0.7)
        zero = m.array(target, shape, "plain", fixed) if not is_float(target) else np.zeros(shape, target)
        given.append(m.const(zero) if fixed else m.input(zero))
    elif point:
        attributes["output_dtype"] = code_of(target)
    if "float8" in target.name and m.opset >= 19:
        attributes["saturate"] = m.choice((None, 0, 1))
    if m.opset >= 23 and m.chance(0.3):
        attributes["precision"] = m.choice((1, 10, 11, 16))
    m.result(m.node("QuantizeLinear", *given, **attributes))


@generates("DequantizeLinear")
def dequantize(m: Sketch, schema: Schema) -> None:
    source = picked(m, schema, "T" if m.opset < 19 else "T1")
    width = picked(m, schema, "T2", 0.7) if m.opset >= 19 else FLOAT
    dims = m.shape()
    shape, attributes, _ = _granularity(m, dims)
    given = [m.operand(source, dims, "any"), scale(m, shape, width)]
    if source != np.int32 and m.chance(0.6):
        zero = np.zeros(shape, source) if is_float(source) else m.array(source, shape, "plain", True)
        given.append(m.const(zero))
    m.result(m.node("DequantizeLinear", *given, **attributes))


@generates("DynamicQuantizeLinear")
def dynamic_quantize(m: Sketch, schema: Schema) -> None:
    m.result(*m.add("DynamicQuantizeLinear", [m.operand(FLOAT, m.shape(), "plain")], 3))


def point(m: Sketch, dtype: np.dtype[Any], shape: Any = ()) -> str:
    return m.operand(dtype, shape, "plain", constant=0.8)


@generates("MatMulInteger")
def matmul_integer(m: Sketch, schema: Schema) -> None:
    a, b = products(m)
    first, second = m.choice((UINT8, INT8)), m.choice((UINT8, INT8))
    given = [m.operand(first, a), m.operand(second, b)]
    if m.chance(0.6):
        given.append(point(m, first))
        if m.chance(0.6):
            given.append(point(m, second, b[-1:] if len(b) == 2 and m.chance(0.4) else ()))
    m.result(m.node("MatMulInteger", *given))


@generates("ConvInteger", "QLinearConv")
def conv_integer(m: Sketch, schema: Schema) -> None:
    rank = m.choice((1, 2, 2))
    kernel, attributes, sizes = window(m, rank)
    group = m.choice((1, 1, 2))
    per, out = m.integer(1, 3), group * m.integer(1, 3)
    first, second = m.choice((UINT8, INT8)), m.choice((UINT8, INT8))
    x = m.operand(first, (m.size(1, 2), group * per, *sizes), constant=0.1)
    w = m.operand(second, (out, per, *kernel), constant=0.8)
    if schema.name == "ConvInteger":
        given = [x, w]
        if m.chance(0.6):
            given.append(point(m, first))
            given += [point(m, second)] if m.chance(0.5) else []
    else:
        wide = (out,) if m.chance(0.4) else ()
        zero = m.const(np.zeros(wide, second)) if m.chance(0.6) else point(m, second, wide)
        given = [x, scale(m, ()), point(m, first), w, scale(m, wide), zero, scale(m, ()), point(m, first)]
        given += [m.operand(np.int32, (out,), "plain")] if m.chance(0.5) else []
    m.result(m.node(schema.name, *given, group=group, **attributes))


@generates("QLinearMatMul")
def qlinear_matmul(m: Sketch, schema: Schema) -> None:
    a, b = products(m)
    first, second = m.choice((UINT8, INT8)), m.choice((UINT8, INT8))
    width = picked(m, schema, "TS", 0.8) if m.opset >= 21 else FLOAT
    wide = b[-1:] if len(b) == 2 and m.chance(0.3) else ()
    given = [m.operand(first, a), scale(m, (), width), point(m, first), m.operand(second, b), scale(m, wide, width), point(m, second, wide)]
    m.result(m.node("QLinearMatMul", *given, scale(m, (), width), point(m, first)))


@generates("MatMulIntegerToFloat", "DynamicQuantizeMatMul", domain=DOMAIN)
def ms_integer(m: Sketch, schema: Schema) -> None:
    name = m.name.rpartition(".")[2]
    m.empty = False  # onnxruntime leaves the output of a sum over nothing as it was
    r, k, c = m.size(1, 5), m.size(1, 5), m.size(1, 5)
    second = m.choice((UINT8, INT8))
    b = m.operand(second, (k, c), constant=0.7)
    wide = (c,) if m.chance(0.4) else ()
    zero = point(m, second, wide) if m.chance(0.5) else ""
    bias = m.operand(FLOAT, (c,), "plain") if m.chance(0.4) else ""
    if name == "MatMulIntegerToFloat":
        a = m.operand(UINT8, (r, k), constant=0)
        given = [a, b, scale(m, ()), scale(m, wide), point(m, UINT8) if m.chance(0.6) else "", zero, bias]
    else:
        given = [m.operand(FLOAT, (r, k), "plain", constant=0), b, scale(m, wide), zero, bias]
    while not given[-1]:
        given.pop()
    m.result(m.node(name, *given, domain=DOMAIN))
