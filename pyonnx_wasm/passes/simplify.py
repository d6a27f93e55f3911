"""Rewrites the expressions inside maps: constants folded, activations recognised by their formula.

A rule gives the same results for every operand: infinities, NaN, subnormals and the signs of zeros included. Only an activation may
save a product on the way from overflowing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..dtypes import DType
from ..ir import Graph
from ..ir.dims import Dim
from ..tensor import MAP, expression, scalar
from ..tensor.expression import Expression
from .rewrite import Rewriter, computing

Rule = Callable[[Expression], Expression | None]
FACTORS = 3  # of a product that a rule may look for


def simplify(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            if node.kernel is not MAP or not node.params["code"]:
                continue
            before = expression.of(node)
            after = expression.rebuild(before, simplified)
            if after is not before:
                rewriter.replace([node], [computing(node, after, node.ins["x"])])


def simplified(e: Expression) -> Expression:
    """The expression without what rules can say about its last operation."""
    while (found := next((f for rule in RULES if (f := rule(e)) is not None), None)) is not None:
        e = found
    return e


def _fold(e: Expression) -> Expression | None:
    """An instruction on constants is a constant."""
    if not e.args or any(a.name != "const" for a in e.args) or e.result not in scalar.COMPUTE:
        return None
    target, items = e.result, [a.extra[0] for a in e.args]
    value = scalar.cast(items[0], target) if e.name == "cast" else scalar.evaluate(e.name, items, e.dtype)
    if value is None or (target.is_float and isinstance(value, Dim)):
        return None
    return e.make("const", target, extra=[float(value) if target.is_float and isinstance(value, (int, float)) else value])


def _neutral(e: Expression) -> Expression | None:
    """x*1, x/1, x+0, x-0, casts to the same type and choices between equals."""
    if e.name == "cast" and e.dtype is e.result:
        return e.args[0]
    if e.name == "where" and e.args[1] is e.args[2]:
        return e.args[1]
    if e.name not in ("mul", "div", "add", "sub"):
        return None
    a, b = e.args
    if _is_unit(e, b.number):
        return a
    return b if e.name in ("mul", "add") and _is_unit(e, a.number) else None


def _is_unit(e: Expression, c: float | None) -> bool:
    """Whether ``x`` stays as it is, sign of zero included: only -0 may be added to floats, only +0 be subtracted."""
    if c is None or e.name in ("mul", "div"):
        return c == 1
    return c == 0 and (not e.dtype.is_float or (math.copysign(1, c) < 0) == (e.name == "add"))


def _by_power_of_two(e: Expression) -> Expression | None:
    """Division by a power of two is an exact product."""
    c = e.args[1].number if e.name == "div" and e.dtype.is_float else None
    if not c or math.frexp(abs(c))[0] != 0.5 or not 1e-30 < abs(c) < 1e30:
        return None
    return e.make("mul", e.dtype, e.args[0], e.make("const", e.dtype, extra=[1 / c]))


def factors(e: Expression) -> tuple[float, list[Expression]]:
    """A product as one constant and at most ``FACTORS`` other factors; division by a constant counts."""
    found: dict[Expression, tuple[float, list[Expression]]] = {}
    for x in expression.nodes(e):
        found[x] = (1.0, [x])
        if x.number is not None:
            found[x] = (x.number, [])
        elif x.name == "mul":
            (ca, fa), (cb, fb) = (found[a] for a in x.args)
            if len(fa) + len(fb) <= FACTORS:
                found[x] = (ca * cb, fa + fb)
        elif x.name == "div" and (by := x.args[1].number):
            c, f = found[x.args[0]]
            found[x] = (c / by, f)
        elif x.name == "pow" and (power := x.args[1].number) in (2.0, 3.0):
            c, f = found[x.args[0]]
            if f and len(f) * power <= FACTORS:
                found[x] = (c**power, f * int(power))
    return found[e]


def _near(a: float, b: float) -> bool:
    """Equal as far as float32 constants and one division of them can tell."""
    return abs(a - b) <= 2.0**-22 * abs(b)


def _activation(e: Expression) -> Expression | None:
    """silu, gelu (both forms) and hard-swish, as products of x with a gate."""
    if e.name != "mul" or e.dtype is not DType.float32:
        return None
    c, parts = factors(e)
    if len(parts) != 2:
        return None
    for x, gate in (parts, parts[::-1]):
        if gate.name == "sigmoid" and gate.args[0] is x and c == 1:
            return e.make("silu", e.dtype, x)
        name = _gate(gate, x)
        if name is not None and _near(c, 0.5):
            return e.make(name, e.dtype, x)
        if c == 1 and _hard_gate(gate, x):
            return e.make("hardswish", e.dtype, x)
    return None


def _gate(gate: Expression, x: Expression) -> str | None:
    """``1 + erf(x / sqrt 2)`` or ``1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))``."""
    inner = _plus_one(gate)
    if inner is None or inner.name not in ("erf", "tanh"):
        return None
    c, parts = factors(inner.args[0])
    if inner.name == "erf":
        return "gelu" if parts == [x] and _near(c, math.sqrt(0.5)) else None
    return "gelu_tanh" if _near(c, math.sqrt(2 / math.pi)) and _cubic(parts, x) else None


def _cubic(parts: list[Expression], x: Expression) -> bool:
    """``x + 0.044715 x^3``, or ``x * (1 + 0.044715 x^2)``."""
    if len(parts) == 2 and x in parts:
        poly = _plus_one(parts[1] if parts[0] is x else parts[0])
        k, powers = factors(poly) if poly is not None else (0.0, [])
        return powers == [x, x] and _near(k, 0.044715)
    if len(parts) != 1 or parts[0].name != "add":
        return False
    for a, b in (parts[0].args, parts[0].args[::-1]):
        k, powers = factors(b)
        if a is x and powers == [x, x, x] and _near(k, 0.044715):
            return True
    return False


def _plus_one(e: Expression) -> Expression | None:
    if e.name != "add":
        return None
    a, b = e.args
    return a if b.number == 1 else b if a.number == 1 else None


def _hard_gate(gate: Expression, x: Expression) -> bool:
    """``clamp(x / 6 + 0.5, 0, 1)``."""
    if gate.name != "clamp" or gate.args[1].number != 0 or gate.args[2].number != 1 or gate.args[0].name != "add":
        return False
    a, b = gate.args[0].args
    c, parts = factors(a)
    return parts == [x] and _near(c, 1 / 6) and b.number == 0.5


def _clamp(e: Expression) -> Expression | None:
    """min(max(x, lo), hi) and max(min(x, hi), lo) with constant bounds in order."""
    got = _bounded(e) if e.name in ("min", "max") and e.dtype.is_float else None
    if got is None:
        return None
    inner, bound, limit = got
    if e.name == "min" and inner.name == "relu" and limit >= 0:
        return e.make("clamp", e.dtype, inner.args[0], e.make("const", e.dtype, extra=[0.0]), bound)
    below = _bounded(inner) if inner.name == ("max" if e.name == "min" else "min") else None
    if below is not None and (below[2] <= limit if e.name == "min" else below[2] >= limit):
        x, edge, _ = below
        return e.make("clamp", e.dtype, x, *((edge, bound) if e.name == "min" else (bound, edge)))
    return e.make("relu", e.dtype, inner) if e.name == "max" and limit == 0 and math.copysign(1, limit) > 0 else None


def _bounded(e: Expression) -> tuple[Expression, Expression, float] | None:
    """(x, bound, its number) of a min or max with a constant. Zeros are equal, so that the first operand stays: 0 must not be it."""
    for x, bound in (e.args, e.args[::-1]):
        limit = bound.number
        if limit is not None and not math.isnan(limit) and (limit != 0 or bound is e.args[1]):
            return x, bound, limit
    return None


RULES: list[Rule] = [_fold, _neutral, _by_power_of_two, _activation, _clamp]
