"""Rewrites the expressions inside maps: constants folded, activations recognised by their formula."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..dtypes import DType
from ..ir import Graph, Node
from ..ir.dims import Dim
from ..tensor import MAP, expression, scalar
from ..tensor.expression import Expression, number

Rule = Callable[[Expression], Expression | None]


def simplify(graph: Graph) -> None:
    for node in graph.nodes:
        if node.kernel is not MAP or not node.params["code"]:
            continue
        before = expression.of(node)
        after = expression.rebuild(before, _simplified)
        if after != before:
            install(node, after)


def install(node: Node, e: Expression) -> None:
    """Puts an expression back, dropping inputs that it no longer reads."""
    xs = node.ins["x"]
    used = sorted(expression.inputs(e))
    place = {old: new for new, old in enumerate(used)}
    e = expression.rebuild(e, lambda x: ("in", x[1], place[x[2]]) if x[0] == "in" else x)
    node.ins["x"], node.params["code"] = [xs[i] for i in used], expression.code(e, len(used))


def _simplified(e: Expression) -> Expression:
    for rule in RULES:
        found = rule(e)
        if found is not None:
            return found
    return e


def _fold(e: Expression) -> Expression | None:
    """An instruction on constants is a constant."""
    if e[0] in expression.LEAVES or any(o[0] != "const" for o in expression.operands(e)):
        return None
    items = [o[2] for o in expression.operands(e)]
    target = expression.dtype(e)
    if target not in scalar.COMPUTE:
        return None
    value = scalar.cast(items[0], target) if e[0] == "cast" else scalar.evaluate(e[0], items, e[1])
    if value is None or (target.is_float and isinstance(value, Dim)):
        return None
    return ("const", target, float(value) if target.is_float and isinstance(value, (int, float)) else value)


def _neutral(e: Expression) -> Expression | None:
    """x*1, x/1, x+0, x-0, casts to the same type and choices between equals."""
    if e[0] == "cast" and e[1] is e[3]:
        return e[2]  # type: ignore[no-any-return]
    if e[0] == "where" and e[3] == e[4]:
        return e[3]  # type: ignore[no-any-return]
    if e[0] not in ("mul", "div", "add", "sub"):
        return None
    if _is_unit(e, number(e[3])):
        return e[2]  # type: ignore[no-any-return]
    return e[3] if e[0] in ("mul", "add") and _is_unit(e, number(e[2])) else None


def _is_unit(e: Expression, c: float | None) -> bool:
    """Whether ``x`` stays as it is, sign of zero included: only -0 may be added to floats, only +0 be subtracted."""
    if c is None or e[0] in ("mul", "div"):
        return c == 1
    return c == 0 and (not e[1].is_float or (math.copysign(1, c) < 0) == (e[0] == "add"))


def _by_power_of_two(e: Expression) -> Expression | None:
    """Division by a power of two is an exact product."""
    c = number(e[3]) if e[0] == "div" and e[1].is_float else None
    if not c or math.frexp(abs(c))[0] != 0.5 or not 1e-30 < abs(c) < 1e30:
        return None
    return ("mul", e[1], e[2], ("const", e[1], 1 / c))


def factors(e: Expression) -> tuple[float, list[Expression]]:
    """A product as one constant and the other factors; division by a constant counts."""
    if e[0] == "mul":
        (ca, fa), (cb, fb) = factors(e[2]), factors(e[3])
        return ca * cb, fa + fb
    if e[0] == "div" and (c := number(e[3])):
        ca, fa = factors(e[2])
        return ca / c, fa
    if e[0] == "pow" and number(e[3]) in (2.0, 3.0) and e[2][0] != "const":
        c, f = factors(e[2])
        times = int(number(e[3]) or 0)
        return c**times, f * times
    value = number(e)
    return (value, []) if value is not None else (1.0, [e])


def _near(a: float, b: float) -> bool:
    """Equal as far as float32 constants and one division of them can tell."""
    return abs(a - b) <= 2.0**-22 * abs(b)


def _activation(e: Expression) -> Expression | None:
    """silu, gelu (both forms) and hard-swish, as products of x with a gate."""
    if e[0] != "mul" or e[1] is not DType.float32:
        return None
    c, parts = factors(e)
    if len(parts) != 2:
        return None
    for x, gate in (parts, parts[::-1]):
        if gate == ("sigmoid", DType.float32, x) and c == 1:
            return ("silu", DType.float32, x)
        name = _gate(gate, x)
        if name is not None and _near(c, 0.5):
            return (name, DType.float32, x)
        if c == 1 and _hard_gate(gate, x):
            return ("hardswish", DType.float32, x)
    return None


def _gate(gate: Expression, x: Expression) -> str | None:
    """``1 + erf(x / sqrt 2)`` or ``1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))``."""
    inner = _plus_one(gate)
    if inner is None or inner[0] not in ("erf", "tanh"):
        return None
    c, parts = factors(inner[2])
    if inner[0] == "erf":
        return "gelu" if parts == [x] and _near(c, math.sqrt(0.5)) else None
    if not _near(c, math.sqrt(2 / math.pi)):
        return None
    if parts == [x]:
        return None
    if len(parts) == 2 and x in parts:
        rest = parts[1] if parts[0] == x else parts[0]
        poly = _plus_one(rest)
        k, cubed = factors(poly) if poly is not None else (0.0, [])
        return "gelu_tanh" if cubed == [x, x] and _near(k, 0.044715) else None
    if len(parts) == 1 and parts[0][0] == "add":
        for a, b in ((parts[0][2], parts[0][3]), (parts[0][3], parts[0][2])):
            k, cubed = factors(b)
            if a == x and cubed == [x, x, x] and _near(k, 0.044715):
                return "gelu_tanh"
    return None


def _plus_one(e: Expression) -> Expression | None:
    if e[0] != "add":
        return None
    return e[2] if number(e[3]) == 1 else e[3] if number(e[2]) == 1 else None


def _hard_gate(gate: Expression, x: Expression) -> bool:
    """``clamp(x / 6 + 0.5, 0, 1)``."""
    if gate[0] != "clamp" or number(gate[3]) != 0 or number(gate[4]) != 1 or gate[2][0] != "add":
        return False
    a, b = gate[2][2:]
    c, parts = factors(a)
    return parts == [x] and _near(c, 1 / 6) and number(b) == 0.5


def _clamp(e: Expression) -> Expression | None:
    """min(max(x, lo), hi) and max(min(x, hi), lo) with constant bounds in order."""
    got = _bounded(e) if e[0] in ("min", "max") and e[1].is_float else None
    if got is None:
        return None
    inner, bound, limit = got
    if e[0] == "max" and limit == 0:
        return ("relu", e[1], inner)
    if e[0] == "min" and inner[0] == "relu" and limit >= 0:
        return ("clamp", e[1], inner[2], ("const", e[1], 0.0), bound)
    below = _bounded(inner) if inner[0] == ("max" if e[0] == "min" else "min") else None
    if below is None or (below[2] > limit if e[0] == "min" else below[2] < limit):
        return None
    x, edge, _ = below
    return ("clamp", e[1], x, edge, bound) if e[0] == "min" else ("clamp", e[1], x, bound, edge)


def _bounded(e: Expression) -> tuple[Expression, Expression, float] | None:
    """(x, bound, its number) of a min or max with a constant. Zeros are equal, so that the first operand stays: 0 must not be it."""
    for x, bound in ((e[2], e[3]), (e[3], e[2])):
        limit = number(bound)
        if limit is not None and not math.isnan(limit) and (limit != 0 or bound is e[3]):
            return x, bound, limit
    return None


RULES: list[Rule] = [_fold, _neutral, _by_power_of_two, _activation, _clamp]
