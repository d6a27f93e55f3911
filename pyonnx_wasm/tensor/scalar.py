"""The instruction set of the ``map`` kernel, and its meaning on single elements.

The position in :data:`INSTRUCTIONS` is the opcode. The Python functions evaluate an instruction on ints, floats, bools and
symbolic dims; they fold shape arithmetic and small constants. ``None`` means: not evaluated at compile time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..ir import dims
from ..ir.dims import Dim


@dataclass(frozen=True)
class Instruction:
    """One entry of the table: ``arity`` register operands, result type ``"same"``, ``"bool"`` or ``"cast"``."""

    name: str
    arity: int
    evaluate: Callable[..., Any] | None = None
    result: str = "same"
    code: int = 0


def _trunc_div(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return a / b if b else math.copysign(math.inf, a) * math.copysign(1, b) if a else math.nan
    if isinstance(b, int) and b == 0:
        return 0
    if isinstance(a, Dim) or isinstance(b, Dim):
        (alo, _), (blo, _) = dims.bounds(a), dims.bounds(b)
        if alo is not None and alo >= 0 and blo is not None and blo >= 0:
            return a // b
        return dims.select(dims.lt(a * b, 0), -(-a // b) if not isinstance(a, Dim) else 0 - (0 - a) // b, a // b)
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _where(c: Any, a: Any, b: Any) -> Any:
    if isinstance(c, Dim):
        return dims.select(c, a, b)
    return a if c else b


def _compare(fn: Callable[[Any, Any], Any], dim_fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: dim_fn(a, b) if isinstance(a, Dim) or isinstance(b, Dim) else bool(fn(a, b))


def _least(a: Any, b: Any) -> Any:
    return dims.dmin(a, b) if isinstance(a, Dim) or isinstance(b, Dim) else min(a, b)


def _most(a: Any, b: Any) -> Any:
    return dims.dmax(a, b) if isinstance(a, Dim) or isinstance(b, Dim) else max(a, b)


def _not(a: Any) -> Any:
    return dims.eq(a, 0) if isinstance(a, Dim) else not a


def _mod(a: Any, b: Any) -> Any:
    return a % b if not isinstance(b, (int, float)) or b else 0


def _truth(a: Any) -> Any:
    return dims.ne(a, 0) if isinstance(a, Dim) else bool(a)


def _and(a: Any, b: Any) -> Any:
    return _truth(a) * _truth(b) if isinstance(a, Dim) or isinstance(b, Dim) else bool(a and b)


def _or(a: Any, b: Any) -> Any:
    return dims.ne(_truth(a) + _truth(b), 0) if isinstance(a, Dim) or isinstance(b, Dim) else bool(a or b)


def _real(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    def call(a: Any) -> Any:
        try:
            return fn(float(a))
        except ValueError:
            return math.nan

    return call


def _np(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a: fn(*a).item()


_TABLE = [
    Instruction("const", 0),
    Instruction("index", 0),
    Instruction("cast", 1, result="cast"),
    Instruction("neg", 1, lambda a: -a),
    Instruction("abs", 1, lambda a: _most(a, -a)),
    Instruction("sign", 1, lambda a: (a > 0) - (a < 0) if not isinstance(a, Dim) else dims.gt(a, 0) - dims.lt(a, 0)),
    Instruction("floor", 1, lambda a: float(math.floor(a)) if isinstance(a, float) else a),
    Instruction("ceil", 1, lambda a: float(math.ceil(a)) if isinstance(a, float) else a),
    Instruction("round", 1, lambda a: float(np.rint(a)) if isinstance(a, float) else a),
    Instruction("trunc", 1, lambda a: float(math.trunc(a)) if isinstance(a, float) else a),
    Instruction("sqrt", 1, _real(math.sqrt)),
    Instruction("rsqrt", 1, _real(lambda a: 1 / math.sqrt(a))),
    Instruction("recip", 1, lambda a: 1 / a if a else math.inf),
    Instruction("exp", 1, _real(math.exp)),
    Instruction("log", 1, _real(math.log)),
    Instruction("sin", 1, _real(math.sin)),
    Instruction("cos", 1, _real(math.cos)),
    Instruction("tan", 1),
    Instruction("asin", 1),
    Instruction("acos", 1),
    Instruction("atan", 1),
    Instruction("sinh", 1),
    Instruction("cosh", 1),
    Instruction("tanh", 1),
    Instruction("asinh", 1),
    Instruction("acosh", 1),
    Instruction("atanh", 1),
    Instruction("erf", 1),
    Instruction("sigmoid", 1),
    Instruction("relu", 1, lambda a: _most(a, 0)),
    Instruction("silu", 1),
    Instruction("gelu", 1),
    Instruction("gelu_tanh", 1),
    Instruction("softplus", 1),
    Instruction("hardswish", 1),
    Instruction("not", 1, _not),
    Instruction("bitnot", 1, lambda a: ~a),
    Instruction("isnan", 1, math.isnan, "bool"),
    Instruction("isinf", 1, None, "bool"),
    Instruction("add", 2, lambda a, b: a + b),
    Instruction("sub", 2, lambda a, b: a - b),
    Instruction("mul", 2, lambda a, b: a * b),
    Instruction("div", 2, _trunc_div),
    Instruction("pow", 2, lambda a, b: a**b if not isinstance(b, Dim) else None),
    Instruction("mod", 2, _mod),
    Instruction("fmod", 2, _np(np.fmod)),
    Instruction("min", 2, _least),
    Instruction("max", 2, _most),
    Instruction("and", 2, _and),
    Instruction("or", 2, _or),
    Instruction("xor", 2, lambda a, b: dims.ne(a, b)),
    Instruction("bitand", 2, lambda a, b: a & b),
    Instruction("bitor", 2, lambda a, b: a | b),
    Instruction("bitxor", 2, lambda a, b: a ^ b),
    Instruction("shl", 2),
    Instruction("shr", 2),
    Instruction("eq", 2, _compare(lambda a, b: a == b, dims.eq), "bool"),
    Instruction("lt", 2, _compare(lambda a, b: a < b, dims.lt), "bool"),
    Instruction("le", 2, _compare(lambda a, b: a <= b, dims.le), "bool"),
    Instruction("prelu", 2, lambda a, b: a * b if a < 0 else a),
    Instruction("where", 3, _where),
    Instruction("clamp", 3, lambda a, lo, hi: _least(_most(a, lo), hi)),
    Instruction("fma", 3, lambda a, b, c: a * b + c),
    Instruction("elu", 2),
]

INSTRUCTIONS: dict[str, Instruction] = {i.name: Instruction(i.name, i.arity, i.evaluate, i.result, n) for n, i in enumerate(_TABLE)}
NAMES = [i.name for i in _TABLE]

COMPUTE = {
    DType.float32,
    DType.float64,
    DType.int32,
    DType.uint32,
    DType.int64,
    DType.uint64,
    DType.int16,
    DType.uint16,
    DType.int8,
    DType.uint8,
    DType.bool,
}


def evaluate(name: str, args: list[Any], dtype: DType) -> Any:
    """One instruction on single elements; None where the result is not known at compile time."""
    fn = INSTRUCTIONS[name].evaluate
    if fn is None or any(a is None for a in args):
        return None
    if any(isinstance(a, Dim) for a in args):
        if any(isinstance(a, float) and not a.is_integer() for a in args):
            return None
        args = [int(a) if isinstance(a, (float, bool)) else a for a in args]
        if name == "div" and dtype.is_float:
            return None
    try:
        return fn(*args)
    except (ValueError, OverflowError, ZeroDivisionError, TypeError):
        return None


def cast(value: Any, to: DType) -> Any:
    """One element converted. A symbolic size stays symbolic: integral, whatever the dtype."""
    if isinstance(value, Dim):
        return dims.ne(value, 0) if to is DType.bool else value
    if to is DType.bool:
        return bool(value)
    if to.is_int:
        if isinstance(value, float) and not math.isfinite(value):
            return 0
        bits, v = to.bits, int(value)
        v &= (1 << bits) - 1
        return v - (1 << bits) if to.is_signed and v >> (bits - 1) else v
    return rounded(float(value), to)


def rounded(value: Any, dtype: DType) -> Any:
    """A result as the dtype holds it: floats rounded to it, integers wrapped, bools as bools; symbols as they are."""
    if value is None or isinstance(value, Dim):
        return value
    if dtype in (DType.float32, DType.float16):
        with np.errstate(over="ignore"):
            return float(to_numpy(dtype).type(value))
    if dtype is DType.bool:
        return bool(value)
    if dtype.is_int:
        return cast(value, dtype)
    return float(value)
