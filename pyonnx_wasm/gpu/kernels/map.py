"""Element-wise chains: the map's instructions as WGSL, one element per lane."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from ...dtypes import DType
from ...ir import Value
from ...ir.dims import Dim, DimLike
from .. import F32, Call, Case
from ..elements import address, coordinates, elements, linear

FLOATS = {DType.float32, DType.float16, DType.bfloat16}
WIDE = {DType.int64, DType.uint64}
WORD = 1 << 32
#: WGSL lets implementations change the order of products. A driver that multiplies written numbers with one another first may leave
#: float32; where a number is further from 1 than this, all come from the uniforms, where none sees them.
FAR = float(1 << 30)
LARGEST = 3.4028234663852886e38


class Unsupported(Exception):
    """An instruction that no shader has: the core runs the chain."""


def cases(call: Call) -> list[Case]:
    if not call.all(*FLOATS, *WIDE, DType.bool, *(d for d in DType if d.is_int and 8 <= d.bits <= 32)):
        return []
    try:
        return _cases(call)
    except Unsupported:
        return []


def _cases(call: Call) -> list[Case]:
    from ...tensor import MAX_RANK, coalesced

    y, xs = call.values["y"], [v for n, v in call.values.items() if n != "y"]
    if y.rank > MAX_RANK or not any(name == "index" for name, *_ in call.node.params["code"]):
        y, xs = coalesced(y, xs)
    code = call.node.params["code"]
    writer = Writer(y, xs)
    writer.far = any(name == "const" and dtype in FLOATS and _far(a) for name, dtype, _, a, *_ in code)
    for instruction in code:
        writer.add(*instruction)
    last = code[-1][2] if code else 0
    body = [*writer.head(), *writer.lines, f"  return r{last};"]
    numbers: dict[str, Any] = {"shape": y.shape} if writer.coordinates else {}
    defines = {"wide"} if writer.wide else set()
    defines |= {"trig"} if any(name in ("sin", "cos", "tan") for name, *_ in code) else set()
    return elements(call, numbers | writer.numbers, y=y, defines=frozenset(defines), holes={"body": "\n".join(body)})


class Writer:
    """Collects the lines of a shader's ``element``."""

    def __init__(self, y: Value, xs: Sequence[Value]) -> None:
        self.y, self.xs = y, xs
        self.lines: list[str] = []
        self.numbers: dict[str, Any] = {}
        self.types: dict[int, DType] = {}
        self.zeros: dict[int, str] = {}  # registers that are 0 whatever the inputs, and the bit of its sign
        self.symbols: list[DimLike] = []
        self.coordinates = False
        self.far = False
        self.wide = any(v.dtype in WIDE for v in (y, *xs))
        for k, x in enumerate(xs):
            self.types[k] = x.dtype
            self.lines.append(f"  let r{k} = {self.load(k, x)};")

    def load(self, k: int, x: Value) -> str:
        offset = ""
        if not (isinstance(x.offset, int) and x.offset == 0):
            self.numbers[f"x{k}_off"] = x.offset
            offset = f" + u32($x{k}_off)"
        if all(isinstance(s, int) and s == 0 for s in x.strides):
            return f"x{k}_get(0u{offset})"
        if linear(x, self.y):
            return f"x{k}_get(i{offset})"
        self.coordinates = True
        self.numbers[f"x{k}_stride"] = x.strides
        return f"x{k}_get({address(f'x{k}_stride', x.strides)}{offset})"

    def head(self) -> list[str]:
        """The lines that find the element's coordinates, where anything needs them."""
        if self.symbols:
            self.numbers["symbols"] = tuple(self.symbols)
        return coordinates(self.y.rank) if self.coordinates else []

    def add(self, name: str, dtype: DType, dst: int, a: Any, b: Any, c: Any) -> None:
        if dtype is DType.float64 or (name == "cast" and DType(b) not in FLOATS | WIDE | {DType.bool} and not _word(DType(b))):
            raise Unsupported
        self.wide = self.wide or dtype in WIDE
        result: DType = dtype
        if name == "const":
            text = self.constant(dtype, a)
            if not isinstance(a, Dim) and a == 0:
                self.zeros[dst] = f"{0x80000000 if math.copysign(1, a) < 0 else 0}u"
        elif name == "index":
            self.coordinates = True
            text = _converted(f"c{a}", DType.int32, dtype)
        elif name == "cast":
            target = DType(b)
            if c or not (dtype in FLOATS | WIDE | {DType.bool} or _word(dtype)):
                raise Unsupported
            self.wide = self.wide or target in WIDE
            text, result = _converted(f"r{a}", dtype, target), target
        else:
            text, result = self.operation(name, dtype, a, b, c)
        self.types[dst] = result
        self.lines.append(f"  let r{dst} = {text};")

    def constant(self, dtype: DType, value: Any) -> str:
        if isinstance(value, Dim) and dtype in WIDE:
            self.symbols += [value % WORD, value // WORD]
            at = len(self.symbols) - 2
            return f"vec2<u32>(u32($symbols[{at}]), u32($symbols[{at + 1}]))"
        if isinstance(value, Dim):
            self.symbols.append(value)
            return _converted(f"$symbols[{len(self.symbols) - 1}]", DType.int32, dtype)
        if dtype in FLOATS and self.far and value and abs(value) <= LARGEST:
            bits = struct.unpack("<I", struct.pack("<f", float(value)))[0]
            self.symbols.append(bits - WORD if bits >> 31 else bits)
            return f"bitcast<f32>($symbols[{len(self.symbols) - 1}])"
        if dtype in FLOATS:
            return real(float(value))
        if dtype is DType.bool:
            return "true" if value else "false"
        if dtype in WIDE:
            bits = int(value) & (1 << 64) - 1
            return f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)"
        if dtype.is_signed:
            return f"bitcast<i32>({int(value) & 0xFFFFFFFF}u)"
        return f"{int(value)}u"

    def operation(self, name: str, dtype: DType, a: int, b: int, c: int) -> tuple[str, DType]:
        x, y, z = f"r{a}", f"r{b}", f"r{c}"
        result = DType.bool if name in ("eq", "lt", "le", "isnan", "isinf") else dtype
        if name == "where":
            return f"select({z}, {y}, {x})", dtype
        if name == "pow":
            exponent = DType(c)
            if dtype in FLOATS and exponent is not DType.float64:
                return f"pow_f({x}, {_converted(y, exponent, F32)})", dtype
            if _word(dtype) and dtype.is_signed and _word(exponent) and exponent.is_signed:
                return _wrapped(f"pow_i({x}, {y})", dtype), dtype
            if not all(d in WIDE or _word(d) for d in (dtype, exponent)):
                raise Unsupported
            self.wide = True
            text = f"pow64({_converted(x, dtype, DType.int64)}, {_converted(y, exponent, DType.int64)})"
            return _converted(text, DType.int64, dtype), dtype
        if dtype in FLOATS:
            table, key = _FLOAT, name
        elif dtype is DType.bool:
            table, key = _BOOL, name
        elif dtype in WIDE:
            table, key = _WIDE, name
        else:
            table, key = _INT, name
        form = table.get(key)
        if form is None:
            raise Unsupported
        if isinstance(form, dict):
            form = form[dtype.is_signed]
        if name == "isinf":
            tests = [t for bit, t in ((1, f"(is_inf({x}) && {x} > 0.0)"), (2, f"(is_inf({x}) && {x} < 0.0)")) if b & bit]
            return " || ".join(tests) or "false", result
        if name == "sub" and dtype in FLOATS and a == b:
            form = "nothing_of({x})"
        if name == "div" and dtype in FLOATS and b in self.zeros:
            form = f"over_zero({{x}}, {self.zeros[b]})"
        if name == "mul" and dtype in FLOATS and {a, b} & self.zeros.keys():
            form = f"times_zero({{x}}, {self.zeros[b]})" if b in self.zeros else f"times_zero({{y}}, {self.zeros[a]})"
        text = form.format(x=x, y=y, z=z, bits=f"{dtype.bits}u")
        return (_wrapped(text, dtype) if result is dtype and _word(dtype) and dtype.bits < 32 else text), result


def _far(value: Any) -> bool:
    return not isinstance(value, Dim) and (0.0 < abs(value) < 1 / FAR or FAR < abs(value) <= LARGEST)


def real(value: float) -> str:
    """A float32 literal; what no literal can say goes through its bits."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0] if abs(value) < 3.5e38 or not math.isfinite(value) else 0x7F800000
    exponent = bits >> 23 & 0xFF
    if exponent == 0xFF or (exponent == 0 and bits & 0x7FFFFF) or bits == 0x80000000:
        return f"from_bits({bits}u)"
    return f"{struct.unpack('<f', struct.pack('<I', bits))[0]!r}f"


def _word(dtype: DType) -> bool:
    return dtype.is_int and 8 <= dtype.bits <= 32


def _wrapped(text: str, dtype: DType) -> str:
    if not _word(dtype) or dtype.bits == 32:
        return text
    shift = 32 - dtype.bits
    return f"(({text}) << {shift}u) >> {shift}u"


def _converted(x: str, source: DType, target: DType) -> str:
    """A cast as ONNX Cast defines it; out of range as the core does it."""
    if source is target or (source in FLOATS and target in FLOATS):
        return _rounded(x, target) if source is not target else x
    if target is DType.bool:
        return f"({x} != 0.0)" if source in FLOATS else f"any({x} != vec2<u32>(0u))" if source in WIDE else f"({x} != {_zero(source)})"
    if source is DType.bool:
        if target in FLOATS:
            return f"select(0.0, 1.0, {x})"
        return (
            f"vec2<u32>(select(0u, 1u, {x}), 0u)" if target in WIDE else f"select({_zero(target)}, {_zero(target).replace('0', '1')}, {x})"
        )
    if target in FLOATS:
        text = f"i64_to_f32({x})" if source is DType.int64 else f"u64_to_f32({x})" if source is DType.uint64 else f"f32({x})"
        return _rounded(text, target)
    if source in FLOATS:
        if target in WIDE:
            return f"f32_to_i64({x})"
        return _wrapped(f"to_i32({x})" if target.is_signed else f"to_u32({x})", target)
    if target in WIDE:
        return x if source in WIDE else f"i64_of({x})" if source.is_signed else f"u64_of({x})"
    low = f"{x}.x" if source in WIDE else x
    signed = False if source in WIDE else source.is_signed
    text = low if signed == target.is_signed else f"bitcast<i32>({low})" if target.is_signed else f"bitcast<u32>({low})"
    return _wrapped(text, target)


def _rounded(x: str, target: DType) -> str:
    if target is DType.float16:
        return f"f16_round({x})"
    return f"bf16_round({x})" if target is DType.bfloat16 else x


def _zero(dtype: DType) -> str:
    return "0" if dtype.is_signed else "0u"


_FLOAT: dict[str, Any] = {
    "neg": "-{x}", "abs": "abs({x})", "sign": "sign_nan({x})", "floor": "floor({x})", "ceil": "ceil({x})", "round": "round({x})",
    "trunc": "trunc({x})", "sqrt": "sqrt({x})", "rsqrt": "(1.0 / sqrt({x}))", "recip": "div_f(1.0, {x})", "exp": "exp_f({x})",
    "log": "log_f({x})",
    "sin": "sin_f({x})", "cos": "cos_f({x})", "tan": "tan_f({x})", "asin": "asin_f({x})", "acos": "acos_f({x})", "atan": "atan_f({x})",
    "sinh": "sinh_f({x})", "cosh": "cosh_f({x})", "tanh": "tanh_f({x})", "asinh": "asinh_f({x})", "acosh": "acosh_f({x})",
    "atanh": "atanh_f({x})", "erf": "erf_f({x})", "sigmoid": "sigmoid_f({x})", "relu": "relu_f({x})", "silu": "silu_f({x})",
    "gelu": "gelu_f({x})", "gelu_tanh": "gelu_tanh_f({x})", "softplus": "softplus_f({x})", "hardswish": "hardswish_f({x})",
    "isnan": "is_nan({x})", "isinf": "", "add": "({x} + {y})", "sub": "({x} - {y})", "mul": "({x} * {y})", "div": "div_f({x}, {y})",
    "mod": "mod_f({x}, {y})", "fmod": "fmod_f({x}, {y})", "min": "min_nan({x}, {y})", "max": "max_nan({x}, {y})",
    "eq": "eq_f({x}, {y})", "lt": "lt_f({x}, {y})", "le": "le_f({x}, {y})", "prelu": "select({x}, {x} * {y}, lt_f({x}, 0.0))",
    "clamp": "clamp_nan({x}, {y}, {z})", "fma": "({x} * {y} + {z})", "elu": "elu_f({x}, {y})",
}  # fmt: skip
_INT: dict[str, Any] = {
    "neg": {True: "-{x}", False: "(0u - {x})"}, "abs": {True: "abs({x})", False: "{x}"}, "sign": {True: "sign({x})", False: "min({x}, 1u)"},
    "relu": {True: "max({x}, 0)", False: "{x}"}, "bitnot": "~{x}", "add": "({x} + {y})", "sub": "({x} - {y})", "mul": "({x} * {y})",
    "div": {True: "div_i({x}, {y})", False: "div_u({x}, {y})"}, "mod": {True: "mod_i({x}, {y})", False: "mod_u({x}, {y})"},
    "fmod": {True: "fmod_i({x}, {y})", False: "mod_u({x}, {y})"}, "min": "min({x}, {y})", "max": "max({x}, {y})",
    "bitand": "({x} & {y})", "bitor": "({x} | {y})", "bitxor": "({x} ^ {y})",
    "shl": {True: "bitcast<i32>(shl_u(bitcast<u32>({x}), bitcast<u32>({y}), {bits}))", False: "shl_u({x}, {y}, {bits})"},
    "shr": {True: "shr_i({x}, {y}, {bits})", False: "shr_u({x}, {y}, {bits})"},
    "eq": "({x} == {y})", "lt": "({x} < {y})", "le": "({x} <= {y})", "prelu": {True: "select({x}, {x} * {y}, {x} < 0)", False: "{x}"},
    "clamp": "min(max({x}, {y}), {z})", "fma": "({x} * {y} + {z})",
}  # fmt: skip
_WIDE: dict[str, Any] = {
    "neg": "neg64({x})", "abs": {True: "abs64({x})", False: "{x}"},
    "sign": {True: "sign64({x})", False: "vec2<u32>(u32(any({x} != vec2<u32>(0u))), 0u)"},
    "relu": {True: "select({x}, vec2<u32>(0u), neg_sign64({x}))", False: "{x}"}, "bitnot": "~{x}", "add": "add64({x}, {y})",
    "sub": "sub64({x}, {y})", "mul": "mul64({x}, {y})", "div": {True: "divs64({x}, {y})", False: "divu64({x}, {y})"},
    "mod": {True: "mods64({x}, {y})", False: "modu64({x}, {y})"}, "fmod": {True: "fmods64({x}, {y})", False: "modu64({x}, {y})"},
    "min": {True: "mins64({x}, {y})", False: "minu64({x}, {y})"}, "max": {True: "maxs64({x}, {y})", False: "maxu64({x}, {y})"},
    "clamp": {True: "mins64(maxs64({x}, {y}), {z})", False: "minu64(maxu64({x}, {y}), {z})"},
    "prelu": {True: "select({x}, mul64({x}, {y}), neg_sign64({x}))", False: "{x}"},
    "bitand": "({x} & {y})", "bitor": "({x} | {y})", "bitxor": "({x} ^ {y})", "shl": "shl64({x}, select({y}.x, 64u, {y}.y != 0u))",
    "shr": {True: "shrs64({x}, select({y}.x, 64u, {y}.y != 0u))", False: "shru64({x}, select({y}.x, 64u, {y}.y != 0u))"},
    "eq": "eq64({x}, {y})", "lt": {True: "lts64({x}, {y})", False: "ltu64({x}, {y})"},
    "le": {True: "!lts64({y}, {x})", False: "!ltu64({y}, {x})"}, "fma": "add64(mul64({x}, {y}), {z})",
}  # fmt: skip
_BOOL: dict[str, Any] = {
    "not": "!{x}", "and": "({x} && {y})", "or": "({x} || {y})", "xor": "({x} != {y})", "eq": "({x} == {y})", "lt": "(!{x} && {y})",
    "le": "(!{x} || {y})",
}  # fmt: skip
