"""Element-wise operators: a table row each where one instruction says it, a few lines where not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import Items, Packed, Value
from ..registry import Moved, Step, adjoint, op
from ..tensor import HALVES, cast, expand, like, map_, reshape, single, summed_to, unsqueeze

UNARY = {
    "Neg": "neg",
    "Abs": "abs",
    "Sign": "sign",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Sqrt": "sqrt",
    "Reciprocal": "recip",
    "Exp": "exp",
    "Log": "log",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Tanh": "tanh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Sigmoid": "sigmoid",
    "Relu": "relu",
    "Softplus": "softplus",
    "HardSwish": "hardswish",
    "Not": "not",
    "BitwiseNot": "bitnot",
}
BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "BitwiseAnd": "bitand",
    "BitwiseOr": "bitor",
    "BitwiseXor": "bitxor",
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
}
SWAPPED = {"Greater": "lt", "GreaterOrEqual": "le"}
VARIADIC = {"Min": "min", "Max": "max", "Sum": "add", "Mean": "add"}
BROADCAST_ATTRIBUTE = ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Less", "Greater")


def _unary(instruction: str) -> Callable[..., Value]:
    def run(X: Value, *, consumed_inputs: Any = None) -> Value:
        return map_(instruction, X)

    return run


def _binary(instruction: str, swapped: bool = False) -> Callable[..., Value]:
    def run(A: Value, B: Value) -> Value:
        return map_(instruction, B, A) if swapped else map_(instruction, A, B)

    return run


def _old_binary(instruction: str, swapped: bool = False) -> Callable[..., Value]:
    """Before opset 7 the second operand is placed at ``axis`` and broadcast only when asked."""

    def run(A: Value, B: Value, *, axis: int | None = None, broadcast: int = 0, consumed_inputs: Any = None) -> Value:
        if broadcast and axis is not None:
            B = unsqueeze(B, list(range(B.rank, A.rank - (axis if axis >= 0 else axis + A.rank))))
        return map_(instruction, B, A) if swapped else map_(instruction, A, B)

    return run


def _variadic(name: str, instruction: str) -> Callable[..., Value]:
    def run(*data: Value, consumed_inputs: Any = None) -> Value:
        out = data[0]
        for x in data[1:]:
            out = map_(instruction, out, x)
        return map_("div", out, like(out, len(data))) if name == "Mean" and len(data) > 1 else out

    return run


for _name, _code in UNARY.items():
    op(_name)(_unary(_code))
for _name, _code in {**BINARY, **SWAPPED}.items():
    old = _name in BROADCAST_ATTRIBUTE
    op(_name, since=7 if old else 1)(_binary(_code, _name in SWAPPED))
    if old:
        op(_name, since=1, until=6)(_old_binary(_code, _name in SWAPPED))
for _name, _code in VARIADIC.items():
    op(_name)(_variadic(_name, _code))


@op(since=7)
def Pow(X: Value, Y: Value) -> Value:
    exponent = single(Y)
    if X.dtype.is_float and exponent == 2:
        return _shaped(map_("mul", X, X), Y)
    if X.dtype.is_float and exponent == 1:
        return _shaped(X, Y)
    if X.dtype in (DType.float16, DType.bfloat16):
        return cast(_power(cast(X, DType.float32), _exponent(Y)), X.dtype)
    return _power(X, _exponent(Y))


def _power(X: Value, Y: Value) -> Value:
    """Integers that a float holds only rounded are odd or even all the same."""
    y, exponent = map_("pow", X, Y), single(Y)
    exact = isinstance(exponent, int) and abs(exponent) <= 1 << 24
    if not X.dtype.is_float or Y.dtype.is_float or Y.dtype.bits < 32 or exact:
        return y
    low = cast(Y, DType.int32)
    odd = cast(map_("bitand", low, like(low, 1)), DType.bool)
    return map_("where", map_("and", odd, map_("lt", X, like(X, 0))), map_("neg", map_("abs", y)), y)


def _exponent(Y: Value) -> Value:
    return cast(Y, DType.float32) if Y.dtype in (DType.float16, DType.bfloat16) else Y


def _shaped(X: Value, Y: Value) -> Value:
    return expand(X, Y.shape)


@op("Pow", since=1, until=6)
def Pow_1(X: Value, Y: Value, *, axis: int | None = None, broadcast: int = 0) -> Value:
    return _old_binary("pow")(X, Y, axis=axis, broadcast=broadcast)


@op("PRelu", since=7)
def PRelu(X: Value, slope: Value) -> Value:
    return map_("prelu", X, slope)


@op("PRelu", since=1, until=6)
def PRelu_1(X: Value, slope: Value, *, consumed_inputs: Any = None) -> Value:
    if slope.rank == 1 and X.rank > 1 and slope.shape[0] != 1:
        slope = unsqueeze(slope, list(range(1, X.rank - 1)))
    return map_("prelu", X, slope)


@op()
def Mod(A: Value, B: Value, *, fmod: int = 0) -> Value:
    return map_("fmod" if fmod else "mod", A, B)


@op()
def BitShift(X: Value, Y: Value, *, direction: str) -> Value:
    return map_("shl" if direction == "LEFT" else "shr", X, Y)


@op()
def Where(condition: Value, X: Moved, Y: Moved) -> Moved:
    return map_("where", condition, X, Y)


@op(since=11)
def Clip(input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    least, most = (b if b is None or any(s != 1 for s in b.shape) else reshape(b, ()) for b in (min, max))
    if least is not None and most is not None:
        return map_("clamp", input, least, most)
    if least is not None:
        return map_("max", input, least)
    return input if most is None else map_("min", input, most)


FLOAT32_MAX = float(np.finfo(np.float32).max)


@op("Clip", since=1, until=10)
def Clip_6(input: Value, *, min: float = -FLOAT32_MAX, max: float = FLOAT32_MAX, consumed_inputs: Any = None) -> Value:
    """The default bounds are float32's largest numbers whatever the dtype: infinity does not pass."""
    return Clip(input, like(input, min), like(input, max))  # type: ignore[no-any-return]


@op()
def Identity(input: Moved | Items | Packed) -> Any:
    return input


@op()
def LeakyRelu(X: Value, *, alpha: float = 0.01, consumed_inputs: Any = None) -> Value:
    return map_("prelu", X, like(X, alpha))


@op()
def Elu(X: Value, *, alpha: float = 1.0, consumed_inputs: Any = None) -> Value:
    return map_("elu", X, like(X, alpha))


def _in_float32(function: Callable[..., Any], x: Value, **attributes: float) -> Value:
    """A function of several steps over a half, rounded once: what stands between may leave the half's range."""
    y: Value = function(cast(x, DType.float32), **attributes)
    return cast(y, x.dtype)


@op("Selu", since=1, until=5)
def Selu_1(X: Value, *, alpha: float = 1.6732, gamma: float = 1.0507, consumed_inputs: Any = None) -> Value:
    if X.dtype in HALVES:
        return _in_float32(Selu_1, X, alpha=alpha, gamma=gamma)
    return map_("mul", map_("elu", X, like(X, alpha)), like(X, gamma))


@op(since=6)
def Selu(X: Value, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Value:
    if X.dtype in HALVES:
        return _in_float32(Selu, X, alpha=alpha, gamma=gamma)
    return map_("mul", map_("elu", X, like(X, alpha)), like(X, gamma))


@op()
def Celu(X: Value, *, alpha: float = 1.0) -> Value:
    """x from 0 on, below alpha (exp(x / alpha) - 1)."""
    if X.dtype in HALVES:
        return _in_float32(Celu, X, alpha=alpha)
    ratio = map_("div", X, like(X, alpha))
    if alpha < 0:  # ratio > 0 here, where elu is the identity: exp(r) - 1 = -exp(r) (exp(-r) - 1)
        below = map_("mul", map_("exp", ratio), map_("elu", map_("neg", ratio), like(X, -alpha)))
    else:
        below = map_("elu", ratio, like(X, alpha))
    return map_("where", map_("lt", X, like(X, 0)), below, X)


@op()
def ThresholdedRelu(X: Value, *, alpha: float = 1.0) -> Value:
    return map_("where", map_("lt", like(X, alpha), X), X, like(X, 0))


@op()
def HardSigmoid(X: Value, *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: Any = None) -> Value:
    if X.dtype in HALVES:
        return _in_float32(HardSigmoid, X, alpha=alpha, beta=beta)
    return map_("clamp", map_("add", map_("mul", X, like(X, alpha)), like(X, beta)), like(X, 0), like(X, 1))


@op()
def Softsign(input: Value) -> Value:
    if input.dtype in HALVES:
        return _in_float32(Softsign, input)
    return map_("div", input, map_("add", map_("abs", input), like(input, 1)))


@op()
def Gelu(X: Value, *, approximate: str = "none") -> Value:
    return map_("gelu_tanh" if approximate == "tanh" else "gelu", X)


@op()
def Swish(X: Value, *, alpha: float = 1.0) -> Value:
    if X.dtype in HALVES:
        return _in_float32(Swish, X, alpha=alpha)
    if alpha == 1.0:
        return map_("silu", X)
    return map_("mul", X, map_("sigmoid", map_("mul", X, like(X, alpha))))


@op()
def Mish(X: Value) -> Value:
    if X.dtype in HALVES:
        return _in_float32(Mish, X)
    return map_("mul", X, map_("tanh", map_("softplus", X)))


@op()
def Erf(input: Value) -> Value:
    return map_("erf", input) if input.dtype.is_float else cast(map_("erf", cast(input, DType.float64)), input.dtype)


@op()
def Shrink(input: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    if input.dtype.is_int:
        return cast(Shrink(cast(input, DType.float64), bias=bias, lambd=lambd), input.dtype)
    high = map_("where", map_("lt", like(input, lambd), input), map_("sub", input, like(input, bias)), like(input, 0))
    return map_("where", map_("lt", input, like(input, -lambd)), map_("add", input, like(input, bias)), high)


def _readable(X: Value) -> Value:
    """The halves and 8-bit floats as float32."""
    return cast(X, DType.float32) if X.dtype.is_float and X.dtype.bits < 32 else X


@op()
def IsNaN(X: Value) -> Value:
    return map_("isnan", _readable(X))


@op()
def IsInf(X: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    X = _readable(X)
    infinite = []
    if detect_positive:
        infinite.append(map_("eq", X, like(X, np.inf)))
    if detect_negative:
        infinite.append(map_("eq", X, like(X, -np.inf)))
    if not infinite:
        return map_("xor", *[map_("eq", X, X)] * 2)
    return infinite[0] if len(infinite) == 1 else map_("or", *infinite)


def _one_less(x: Value) -> Value:
    """1 - x."""
    return map_("sub", like(x, 1), x)


def _one_more_square(x: Value, sign: str = "add") -> Value:
    """1 + x x, or x x - 1."""
    return map_(sign, map_("mul", x, x), like(x, 1))


#: The derivative of each function, of its argument and its value.
SLOPES: dict[str, Callable[[Value, Value], Value]] = {
    "Neg": lambda x, y: like(x, -1),
    "Identity": lambda x, y: like(x, 1),
    "Abs": lambda x, y: map_("sign", x),
    "Sqrt": lambda x, y: map_("div", like(x, 0.5), y),
    "Reciprocal": lambda x, y: map_("neg", map_("mul", y, y)),
    "Exp": lambda x, y: y,
    "Log": lambda x, y: map_("recip", x),
    "Sin": lambda x, y: map_("cos", x),
    "Cos": lambda x, y: map_("neg", map_("sin", x)),
    "Tan": lambda x, y: _one_more_square(y),
    "Asin": lambda x, y: map_("recip", map_("sqrt", _one_less(map_("mul", x, x)))),
    "Acos": lambda x, y: map_("neg", map_("recip", map_("sqrt", _one_less(map_("mul", x, x))))),
    "Atan": lambda x, y: map_("recip", _one_more_square(x)),
    "Sinh": lambda x, y: map_("cosh", x),
    "Cosh": lambda x, y: map_("sinh", x),
    "Tanh": lambda x, y: _one_less(map_("mul", y, y)),
    "Asinh": lambda x, y: map_("recip", map_("sqrt", _one_more_square(x))),
    "Acosh": lambda x, y: map_("recip", map_("sqrt", _one_more_square(x, "sub"))),
    "Atanh": lambda x, y: map_("recip", _one_less(map_("mul", x, x))),
    "Sigmoid": lambda x, y: map_("mul", y, _one_less(y)),
    "Softplus": lambda x, y: map_("sigmoid", x),
    "Relu": lambda x, y: cast(map_("lt", like(x, 0), x), x.dtype),
    "Erf": lambda x, y: map_("mul", like(x, 2 / math.sqrt(math.pi)), map_("exp", map_("neg", map_("mul", x, x)))),
    **dict.fromkeys(("Sign", "Floor", "Ceil", "Round"), lambda x, y: like(x, 0)),
}


@adjoint(*SLOPES)
def _back_unary(step: Step) -> list[Value | None]:
    return [map_("mul", step.grad, expand(SLOPES[step.name](step.inputs[0], step.outputs[0]), step.grad.shape))]


@adjoint("LeakyRelu")
def _back_leaky(step: Step) -> list[Value | None]:
    x = step.inputs[0]
    slope = map_("where", map_("lt", x, like(x, 0)), like(x, step.attrs.get("alpha", 0.01)), like(x, 1))
    return [map_("mul", step.grad, slope)]


@adjoint("Elu")
def _back_elu(step: Step) -> list[Value | None]:
    x, alpha = step.inputs[0], step.attrs.get("alpha", 1.0)
    slope = map_("where", map_("lt", x, like(x, 0)), map_("add", step.outputs[0], like(x, alpha)), like(x, 1))
    return [map_("mul", step.grad, slope)]


@adjoint("Add", "Sum")
def _back_add(step: Step) -> list[Value | None]:
    return [summed_to(step.grad, x.shape) for x in step.inputs]


@adjoint("Sub")
def _back_sub(step: Step) -> list[Value | None]:
    a, b = step.inputs
    return [summed_to(step.grad, a.shape), summed_to(map_("neg", step.grad), b.shape)]


@adjoint("Mul")
def _back_mul(step: Step) -> list[Value | None]:
    a, b = step.inputs
    return [summed_to(map_("mul", step.grad, b), a.shape), summed_to(map_("mul", step.grad, a), b.shape)]


@adjoint("Div")
def _back_div(step: Step) -> list[Value | None]:
    a, b = step.inputs
    by = map_("div", step.grad, b)
    return [summed_to(by, a.shape), summed_to(map_("neg", map_("mul", by, step.outputs[0])), b.shape)]


@adjoint("Pow")
def _back_pow(step: Step) -> list[Value | None]:
    """The exponent's gradient is 0 where the base is not positive."""
    x, n = step.inputs[0], cast(step.inputs[1], step.inputs[0].dtype)
    less = map_("mul", n, map_("pow", x, map_("sub", n, like(n, 1))))
    slope = map_("where", map_("eq", n, like(n, 0)), like(x, 0), less)  # 0 to the power of -1 there
    positive = map_("lt", like(x, 0), x)
    log = map_("log", map_("where", positive, x, like(x, 1)))
    by_n = summed_to(map_("mul", step.grad, map_("mul", step.outputs[0], log)), n.shape)
    return [summed_to(map_("mul", step.grad, slope), x.shape), by_n]


@adjoint("Max", "Min")
def _back_extreme(step: Step) -> list[Value | None]:
    """To what gives the element; of equal ones each its share."""
    marks = [cast(map_("eq", x, step.outputs[0]), step.grad.dtype) for x in step.inputs]
    count = marks[0]
    for mark in marks[1:]:
        count = map_("add", count, mark)
    return [summed_to(map_("mul", step.grad, map_("div", mark, count)), x.shape) for x, mark in zip(step.inputs, marks, strict=True)]


@adjoint("Where")
def _back_where(step: Step) -> list[Value | None]:
    condition, a, b = step.inputs
    zero = like(step.grad, 0)
    return [
        None,
        summed_to(map_("where", condition, step.grad, zero), a.shape),
        summed_to(map_("where", condition, zero, step.grad), b.shape),
    ]
