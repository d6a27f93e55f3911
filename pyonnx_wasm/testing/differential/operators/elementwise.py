"""Operators that work element by element, with and without broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import FLOAT, Impossible, Sketch
from ..values import code_of, is_float
from . import Schema, dtypes, generates, picked

_REALS = {
    "Elu": {"alpha": (-2, 3)}, "Celu": {"alpha": (-2, 3)}, "LeakyRelu": {"alpha": (-1, 2)}, "Selu": {"alpha": (0, 3), "gamma": (0, 3)},
    "HardSigmoid": {"alpha": (-1, 1), "beta": (-1, 1)}, "ThresholdedRelu": {"alpha": (-1, 2)}, "Shrink": {"bias": (-2, 2), "lambd": (0, 2)},
    "Swish": {"alpha": (-2, 2)}, "SwiGLU": {"alpha": (-2, 2)},
}  # fmt: skip


def _reals(m: Sketch, name: str) -> dict[str, Any]:
    return {k: m.real(*span) for k, span in _REALS.get(name, {}).items() if m.chance(0.6)}


@generates(
    *[
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "BitwiseNot",
        "Ceil",
        "Celu",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "IsNaN",
    ],
    *[
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Not",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Swish",
        "Tan",
        "Tanh",
    ],
    "ThresholdedRelu",
)
def unary(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema, schema.inputs[0].type_str)
    kind = "unit" if schema.name == "Erf" and not is_float(dtype) else "any"  # between whole results, rounding decides
    if schema.name == "Shrink" and not is_float(dtype):
        kind = "plain"  # the largest numbers of 64 bits are no float64s
    m.result(m.node(schema.name, m.operand(dtype, m.shape(), kind), **_reals(m, schema.name)))


@generates("IsInf")
def is_inf(m: Sketch, schema: Schema) -> None:
    m.special = True
    flags: dict[str, Any] = {k: m.integer(0, 1) for k in m.some(("detect_negative", "detect_positive"))}
    m.result(m.node("IsInf", m.operand(picked(m, schema, "T1"), m.shape()), **flags))


@generates("Gelu")
def gelu(m: Sketch, schema: Schema) -> None:
    how = m.choice((None, "none", "tanh"))
    m.result(m.node("Gelu", m.operand(picked(m, schema), m.shape()), approximate=how))


def pair(m: Sketch) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast together."""
    full = m.shape()
    a, b = full, m.broadcast(full)
    if m.chance(0.3):
        a = m.broadcast(full, len(full))
    return (a, b) if m.chance(0.6) else (b, a)


def legacy(m: Sketch) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Before opset 7 the second shape is a part of the first, from ``axis`` on."""
    full = m.shape()
    if not full or m.chance(0.3):
        return full, full, {}
    at = m.integer(0, len(full))
    end = m.integer(at, len(full))
    return full, full[at:end], {"broadcast": 1, "axis": at if end < len(full) or m.chance(0.5) else None}


@generates(
    *[
        "Add",
        "And",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Div",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Mul",
        "Or",
        "Sub",
        "Xor",
    ],
    "SwiGLU",
)
def binary(m: Sketch, schema: Schema) -> None:
    name = schema.name
    dtype = picked(m, schema)
    old = m.opset < 7
    a, b, attributes = legacy(m) if old else (*pair(m), _reals(m, name))
    if name == "SwiGLU":
        b = a
    kind = "nonzero" if name == "Div" and not is_float(dtype) else "any"
    m.result(m.node(name, m.operand(dtype, a), m.operand(dtype, b, kind), **attributes))


@generates("PRelu")
def prelu(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    full = m.shape()
    slope = m.broadcast(full) if m.opset > 6 else (full[1:2] or (1,))
    m.result(m.node("PRelu", m.operand(dtype, full), m.operand(dtype, slope)))


@generates("Mod")
def mod(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    a, b = pair(m)
    fmod = 1 if is_float(dtype) else m.choice((None, 0, 1))
    m.result(m.node("Mod", m.operand(dtype, a), m.operand(dtype, b, "any" if is_float(dtype) else "nonzero"), fmod=fmod))


@generates("BitShift")
def bit_shift(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    a, b = pair(m)
    bits = dtype.itemsize * 8
    amount = m.whole_numbers(0, bits - 1, b, dtype)
    m.result(m.node("BitShift", m.operand(dtype, a), m.input(amount), direction=m.choice(("LEFT", "RIGHT"))))


@generates("Pow")
def pow_(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    power = picked(m, schema, "T1") if m.opset >= 12 else dtype
    if m.opset < 7:
        a, b, attributes = legacy(m)
    else:
        (a, b), attributes = pair(m), {}
    if m.chance(0.4) and is_float(power):
        exponent = m.const(np.asarray(m.choice((0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0, -0.5, 1.5)), power))
        x = m.operand(dtype, a, "any" if is_float(dtype) else "positive")
    elif is_float(dtype):
        x = m.operand(dtype, a)
        exponent = m.operand(power, b)
    else:
        x, exponent = m.input(m.whole_numbers(-5 if dtype.kind == "i" else 0, 5, a, dtype)), m.input(m.whole_numbers(0, 4, b).astype(power))
    m.result(m.node("Pow", x, exponent, **attributes))


@generates("Max", "Min", "Mean", "Sum")
def variadic(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    full = m.shape()
    count = m.integer(1, 4)
    shapes = [full if m.opset < 8 or m.chance(0.5) else m.broadcast(full) for _ in range(count)]
    m.result(m.node(schema.name, *(m.operand(dtype, s, "any" if schema.name in ("Max", "Min") else "mild") for s in shapes)))


@generates("Where")
def where(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    full = m.shape()
    shapes = [full if m.chance(0.5) else m.broadcast(full) for _ in range(3)]
    m.result(m.node("Where", m.operand(np.bool_, shapes[0]), m.operand(dtype, shapes[1]), m.operand(dtype, shapes[2])))


@generates("Clip")
def clip(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    x = m.operand(dtype, m.shape())
    if m.opset < 11:
        low, high = (m.real(-2, 2) if m.chance(0.7) else None for _ in range(2))
        m.result(m.node("Clip", x, min=low, max=high))
        return
    given = [m.operand(dtype, (), constant=0.7) if m.chance(0.7) else "" for _ in range(2)]
    while given and not given[-1]:
        given.pop()
    m.result(m.node("Clip", x, *given))


@generates("Dropout")
def dropout(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    x = m.operand(dtype, m.shape())
    if m.opset < 12:
        more: list[str] = []
        attributes: dict[str, Any] = {"ratio": m.real(0, 0.9)} | ({"is_test": 1} if m.opset < 7 else {})
    else:
        attributes = {"seed": 1} if m.chance(0.3) else {}
        more = [m.const(np.asarray(m.real(0, 0.9), picked(m, schema, "T1")))] if m.chance(0.5) else []
        if more and m.chance(0.4):
            more.append(m.const(np.asarray(False)))
    mask = m.opset >= 10 and m.chance(0.4)  # before, it is not said what it holds
    m.result(*m.add("Dropout", [x, *more], 2 if mask else 1, **attributes))


@generates("Cast")
def cast(m: Sketch, schema: Schema) -> None:
    source = picked(m, schema, "T1", 0.25)
    target = picked(m, schema, "T2", 0.2)
    x = m.operand(source, m.shape(), castable(m, source, target))
    attributes = {"saturate": m.choice((None, 0, 1))} if m.opset >= 19 and "float8" in target.name else {}
    m.result(m.node("Cast", x, to=code_of(target), **attributes))


def castable(m: Sketch, source: np.dtype[Any], target: np.dtype[Any]) -> str:
    """What a cast defines: floats outside of an integer's range are not."""
    if target.name == "float8_e8m0fnu":
        return "positive"
    if is_float(source) and not is_float(target) and target.kind != "b":
        return "positive" if target.kind == "u" or "uint" in target.name else "plain"
    if source.kind == "i" and target.name.startswith("uint") and target.itemsize == 1:
        return "positive"
    return "any"


@generates("CastLike")
def cast_like(m: Sketch, schema: Schema) -> None:
    source, target = picked(m, schema, "T1", 0.25), picked(m, schema, "T2", 0.2)
    m.result(m.node("CastLike", m.operand(source, m.shape(), castable(m, source, target)), m.operand(target, m.shape(m.integer(0, 2)))))


@generates("BitCast")
def bit_cast(m: Sketch, schema: Schema) -> None:
    source = picked(m, schema, "T1")
    same = [d for d in dtypes(schema, "T2") if d.itemsize == source.itemsize and ("4" in d.name) == ("4" in source.name)]
    if not same:
        raise Impossible
    m.result(m.node("BitCast", m.operand(source, m.shape()), to=code_of(m.choice(sorted(same, key=str)))))


@generates("Binarizer", domain="ai.onnx.ml")
def binarizer(m: Sketch, schema: Schema) -> None:
    threshold: dict[str, Any] = {"threshold": m.real(-1, 1)} if m.chance(0.7) else {}
    m.result(m.node("Binarizer", m.operand(picked(m, schema), m.shape()), domain="ai.onnx.ml", **threshold))


@generates("Gelu", "QuickGelu", domain="com.microsoft")
def ms_unary(m: Sketch, schema: Schema) -> None:
    name = m.name.rpartition(".")[2]
    alpha: dict[str, Any] = {"alpha": m.real(0.5, 2)} if name == "QuickGelu" and m.chance(0.5) else {}
    dtype = m.dtype([FLOAT, np.dtype(np.float16)] if name == "QuickGelu" else [FLOAT])
    m.result(m.node(name, m.operand(dtype, m.shape()), domain="com.microsoft", **alpha))


@generates("BiasGelu", "FastGelu", "BiasSplitGelu", "BiasAdd", domain="com.microsoft")
def ms_biased(m: Sketch, schema: Schema) -> None:
    name = m.name.rpartition(".")[2]
    shape = m.shape(3)
    if name == "BiasSplitGelu":
        shape = (*shape[:2], 2 * shape[2])
    x, bias = m.operand(FLOAT, shape), m.operand(FLOAT, shape[2:])
    more = [m.operand(FLOAT, shape)] if name == "BiasAdd" else []
    given = [x, *([] if name == "FastGelu" and m.chance(0.4) else [bias]), *more]
    m.result(m.node(name, *given, domain="com.microsoft"))
