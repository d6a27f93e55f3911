"""The instruction set of the ``map`` kernel, and its meaning on single elements.

The position in :data:`INSTRUCTIONS` is the opcode. An instruction has a function on numbers (ints, floats, bools), which has the
kernel's meaning for every number, and one on sizes that are not known yet; they fold shape arithmetic and small constants.
Without the function that its operands take, an instruction is not evaluated at compile time.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..ir import dims
from ..ir.dims import Dim
from ..registry import Enum

Function = Callable[..., Any]


@dataclass(frozen=True)
class Instruction:
    """One entry of the table.

    Attributes:
        arity: register operands.
        kinds: of the dtypes that it is defined on: ``f`` floats, ``i`` integers, ``b`` bool.
        numbers: the result for numbers; floats may be wider than the dtype, integers may leave it.
        sizes: the result for integers some of which are symbolic.
        result: ``"same"`` dtype as the operands, ``"bool"`` or ``"cast"``.
    """

    name: str
    arity: int
    kinds: str
    numbers: Function | None = None
    sizes: Function | None = None
    result: str = "same"
    code: int = 0


def _of_floats(fn: Function, otherwise: Function) -> Function:
    """One function for floats, another for integers."""
    return lambda *a: fn(*a) if isinstance(a[0], float) else otherwise(*a)


def _real(fn: Callable[[float], float]) -> Callable[[float], float]:
    """A function of the math module: NaN outside its domain, infinite where it overflows."""

    def call(a: float) -> float:
        try:
            return fn(a)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return call


def _whole(fn: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding that keeps infinities, NaN and the sign of zero."""
    return lambda a: math.copysign(float(fn(a)), a) if math.isfinite(a) else a


def _same(a: Any) -> Any:
    return a


def _divided(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if not a or a != a else math.copysign(math.inf, a) * math.copysign(1, b)


def _quotient(a: int, b: int) -> int:
    if b == 0:
        return 0
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _by_data(of_sizes: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A division whose divisor may be 0 where data say it: it gives 0 then, as integers do; a size of 0 is an error of the core."""

    def call(a: Any, b: Any) -> Any:
        if isinstance(b, int):
            return of_sizes(a, b) if b else 0
        least, most = dims.bounds(b)
        if not dims.told_by_data(b) or (least or 0) > 0 or (most or 0) < 0:
            return of_sizes(a, b)
        none = dims.eq(b, 0)
        return dims.select(none, 0, of_sizes(a, dims.select(none, 1, b)))

    return call


@_by_data
def _size_quotient(a: Any, b: Any) -> Any:
    (low, _), (least, _) = dims.bounds(a), dims.bounds(b)
    if low is not None and low >= 0 and least is not None and least >= 0:
        return a // b
    down = a // b
    return dims.select(dims.ne(dims.lt(a, 0), dims.lt(b, 0)), dims.select(dims.eq(a % b, 0), down, down + 1), down)


def _fmod(a: float, b: float) -> float:
    return math.nan if a != a or b != b or math.isinf(a) or not b else math.fmod(a, b)


def _mod(a: float, b: float) -> float:
    rest = _fmod(a, b)
    if rest == 0:
        return math.copysign(0.0, b)
    return rest + b if (rest < 0) != (b < 0) else rest


def _power(a: Any, b: Any) -> Any:
    """Integers wrap in 64 bits; a negative exponent of integers leaves 0 but of 1 and -1; else C's pow."""
    if isinstance(a, int) and isinstance(b, int):
        return pow(a, b, 1 << 64) if b >= 0 else a ** (b & 1) if abs(a) == 1 else 0
    a, b = float(a), float(b)
    odd = math.isfinite(b) and b % 2 == 1
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:
        return math.nan if a else math.copysign(math.inf, a) if odd else math.inf


def _shifted_left(a: int, b: int) -> int:
    return a << b if 0 <= b < 64 else 0


def _shifted_right(a: int, b: int) -> int:
    return a >> b if b >= 0 else -1 if a < 0 else 0


def _truth(a: Any) -> Any:
    return dims.ne(a, 0) if isinstance(a, Dim) else int(bool(a))


_TABLE = [
    Instruction("const", 0, "fib"),
    Instruction("index", 0, "fib"),
    Instruction("cast", 1, "fib", result="cast"),
    Instruction("neg", 1, "fi", lambda a: -a, lambda a: -a),
    Instruction("abs", 1, "fi", abs, lambda a: dims.dmax(a, -a)),
    Instruction("sign", 1, "fi", lambda a: type(a)(1) if a > 0 else type(a)(-1) if a < 0 else a, lambda a: dims.gt(a, 0) - dims.lt(a, 0)),
    Instruction("floor", 1, "f", _of_floats(_whole(math.floor), _same), _same),
    Instruction("ceil", 1, "f", _of_floats(_whole(math.ceil), _same), _same),
    Instruction("round", 1, "f", _of_floats(_whole(round), _same), _same),
    Instruction("trunc", 1, "f", _of_floats(_whole(math.trunc), _same), _same),
    Instruction("sqrt", 1, "f", _real(math.sqrt)),
    Instruction("rsqrt", 1, "f", lambda a: _divided(1.0, _real(math.sqrt)(a))),
    Instruction("recip", 1, "f", lambda a: _divided(1.0, a)),
    Instruction("exp", 1, "f", _real(math.exp)),
    Instruction("log", 1, "f", lambda a: _real(math.log)(a) if a else -math.inf),
    Instruction("sin", 1, "f", _real(math.sin)),
    Instruction("cos", 1, "f", _real(math.cos)),
    Instruction("tan", 1, "f"),
    Instruction("asin", 1, "f"),
    Instruction("acos", 1, "f"),
    Instruction("atan", 1, "f"),
    Instruction("sinh", 1, "f"),
    Instruction("cosh", 1, "f"),
    Instruction("tanh", 1, "f"),
    Instruction("asinh", 1, "f"),
    Instruction("acosh", 1, "f"),
    Instruction("atanh", 1, "f"),
    Instruction("erf", 1, "f"),
    Instruction("sigmoid", 1, "f"),
    Instruction("relu", 1, "fi", lambda a: type(a)(0) if a < 0 else a, lambda a: dims.dmax(a, 0)),
    Instruction("silu", 1, "f"),
    Instruction("gelu", 1, "f"),
    Instruction("gelu_tanh", 1, "f"),
    Instruction("softplus", 1, "f"),
    Instruction("hardswish", 1, "f"),
    Instruction("not", 1, "b", lambda a: not a, lambda a: dims.eq(a, 0)),
    Instruction("bitnot", 1, "i", lambda a: ~a),
    Instruction("isnan", 1, "f", lambda a: a != a, lambda a: False, "bool"),
    Instruction("isinf", 1, "f", None, None, "bool"),
    Instruction("add", 2, "fi", lambda a, b: a + b, lambda a, b: a + b),
    Instruction("sub", 2, "fi", lambda a, b: a - b, lambda a, b: a - b),
    Instruction("mul", 2, "fi", lambda a, b: a * b, lambda a, b: a * b),
    Instruction("div", 2, "fi", _of_floats(_divided, _quotient), _size_quotient),
    Instruction("pow", 2, "fi", _power),
    Instruction("mod", 2, "fi", _of_floats(_mod, lambda a, b: a % b if b else 0), _by_data(lambda a, b: a % b)),
    Instruction("fmod", 2, "fi", _of_floats(_fmod, lambda a, b: a - b * _quotient(a, b) if b else 0)),
    Instruction("min", 2, "fi", lambda a, b: a if a <= b or a != a else b, dims.dmin),
    Instruction("max", 2, "fi", lambda a, b: a if a >= b or a != a else b, dims.dmax),
    Instruction("and", 2, "b", lambda a, b: bool(a and b), lambda a, b: _truth(a) * _truth(b)),
    Instruction("or", 2, "b", lambda a, b: bool(a or b), lambda a, b: dims.ne(_truth(a) + _truth(b), 0)),
    Instruction("xor", 2, "b", lambda a, b: bool(a) != bool(b), lambda a, b: dims.ne(_truth(a), _truth(b))),
    Instruction("bitand", 2, "i", lambda a, b: a & b),
    Instruction("bitor", 2, "i", lambda a, b: a | b),
    Instruction("bitxor", 2, "i", lambda a, b: a ^ b),
    Instruction("shl", 2, "i", _shifted_left),
    Instruction("shr", 2, "i", _shifted_right),
    Instruction("eq", 2, "fib", lambda a, b: a == b, dims.eq, "bool"),
    Instruction("lt", 2, "fib", lambda a, b: a < b, dims.lt, "bool"),
    Instruction("le", 2, "fib", lambda a, b: a <= b, dims.le, "bool"),
    Instruction("prelu", 2, "fi", lambda a, b: a * b if a < 0 else a, lambda a, b: dims.select(dims.lt(a, 0), a * b, a)),
    Instruction("where", 3, "fib", lambda c, a, b: a if c else b, dims.select),
    Instruction(
        "clamp",
        3,
        "fi",
        lambda a, low, high: (lambda y: high if y > high else y)(low if a < low else a),
        lambda a, low, high: dims.dmin(dims.dmax(a, low), high),
    ),
    Instruction("fma", 3, "fi", lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
    Instruction("elu", 2, "f"),
]

INSTRUCTIONS: dict[str, Instruction] = {i.name: replace(i, code=n) for n, i in enumerate(_TABLE)}
NAMES = [i.name for i in _TABLE]
OPCODES = Enum("Instruction", " ".join(NAMES))

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


def takes(name: str, dtype: DType) -> bool:
    """Whether an instruction is defined on operands of a dtype."""
    return dtype in COMPUTE and ("f" if dtype.is_float else "i" if dtype.is_int else "b") in INSTRUCTIONS[name].kinds


def evaluate(name: str, args: list[Any], dtype: DType) -> Any:
    """One instruction on single elements, as the result's dtype holds it; None where it is not known at compile time.

    Args:
        dtype: of the operands: of the last two of ``where``, of the base of ``pow``.
    """
    instruction = INSTRUCTIONS[name]
    result = DType.bool if instruction.result == "bool" else dtype
    if any(a is None for a in args):
        return None
    if not any(isinstance(a, Dim) for a in args):
        return None if instruction.numbers is None else rounded(instruction.numbers(*args), result)
    if instruction.sizes is None or (name in ("div", "mod") and dtype.is_float):
        return None
    if any(isinstance(a, float) and not a.is_integer() for a in args):
        return None
    try:
        return rounded(instruction.sizes(*(a if isinstance(a, Dim) else int(a) for a in args)), result)
    except ZeroDivisionError:  # whoever runs it divides by zero, or never comes there
        return None


def cast(value: Any, to: DType) -> Any:
    """One element converted as the kernels do it; None for what is not known at compile time."""
    if isinstance(value, Dim):
        return dims.ne(value, 0) if to is DType.bool else held(value, to)
    if to is DType.bool:
        return bool(value)
    if to.is_int:
        if isinstance(value, float):
            value = _integer(value, to)
        bits, v = to.bits, int(value)
        v &= (1 << bits) - 1
        return v - (1 << bits) if to.is_signed and v >> (bits - 1) else v
    return rounded(value if isinstance(value, float) else int(value), to)


def _integer(value: float, to: DType) -> int:
    """NaN gives 0; what 64 bits cannot hold gives the least of them, as on x86."""
    if value != value:
        return 0
    high = 2.0**64 if to is DType.uint64 else 2.0**63
    return int(value) if -(2.0**63) <= value < high else -(1 << 63)


_EXACT = {DType.bfloat16: 8, DType.float16: 11, DType.float32: 24, DType.float64: 53}  # bits of the integers that floats hold


def held(value: Dim, dtype: DType) -> Dim | None:
    """A symbolic integer as a dtype holds it: itself where each number that it can be is one of the dtype's, else None.

    What is made of sizes alone stays symbolic in every dtype that shape arithmetic is done in: integers of 32 and 64 bits, floats.
    """
    if dtype.bits >= 32 and not dims.reads(value):
        return value
    if dtype.is_int:
        low = -(1 << dtype.bits - 1) if dtype.is_signed else 0
        high = low + (1 << dtype.bits) - 1
    elif dtype in _EXACT:
        high = 1 << _EXACT[dtype]
        low = -high
    else:
        return None
    least, most = dims.bounds(value)
    return value if least is not None and most is not None and low <= least and most <= high else None


def rounded(value: Any, dtype: DType) -> Any:
    """A result as the dtype holds it: floats rounded to it, integers wrapped, bools as bools; None where that is not known."""
    if isinstance(value, Dim):
        return value if dtype is DType.bool else held(value, dtype)
    if value is None:
        return value
    if dtype is DType.bool:
        return bool(value)
    if dtype.is_int:
        return cast(value, dtype)
    if dtype is DType.bfloat16:
        return _bfloat16(value)
    if dtype not in (DType.float16, DType.float32, DType.float64):
        return None
    with np.errstate(over="ignore"):
        if isinstance(value, int):
            value = (np.int64 if value < 1 << 63 else np.uint64)(value)
        return float(to_numpy(dtype).type(value))


def _bfloat16(value: Any) -> float:
    """The nearest bfloat16, ties to even, from a float32 rounded to odd, so that rounding twice is rounding once."""
    exact = float(value)
    near = rounded(exact, DType.float32)
    if not math.isfinite(near):
        return near  # type: ignore[no-any-return]
    (bits,) = struct.unpack("<I", struct.pack("<f", near))
    if near != exact and not bits & 1:
        bits += 1 if (exact > near) == (near >= 0) else -1
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])
