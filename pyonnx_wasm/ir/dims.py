"""Symbolic integer expressions: the sizes, strides and offsets of a graph whose shapes are not known yet.

``DimLike`` is ``int | Dim``. Arithmetic on it reads like arithmetic on ints and folds to an ``int`` wherever it can, so a
:class:`Dim` is never constant. Expressions are kept canonical: polynomials with integer coefficients over *atoms* (symbols,
divisions, minima, comparisons, ...), so that equal sizes reached by different ways are ``==``.

Division rounds down and the remainder has the sign of the divisor, as in Python. A divisor of 0 is an error of whoever
evaluates (``evaluate``, or binding a Program), even in the branch that a ``select`` drops; simplification may assume that
it does not occur: ``a*b//b`` is ``a``. Guard with ``a // dmax(b, 1)``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import gcd, inf, prod

from .bounds import bounds, interval, lower_bound, quotient_interval
from .polynomial import (
    BUILD,
    MAX_SIZE,
    Dim,
    DimLike,
    Poly,
    add,
    atom,
    build,
    cancel,
    dim_of,
    like,
    memoised,
    multiply,
    poly_of,
    poly_sum,
    rank,
    split_by,
    sym,
    term_order,
)

__all__ = [
    "MAX_SIZE",
    "Dim",
    "DimLike",
    "bounds",
    "ceildiv",
    "dmax",
    "dmin",
    "eq",
    "evaluate",
    "ge",
    "gt",
    "known",
    "le",
    "lt",
    "ne",
    "product",
    "same",
    "select",
    "substitute",
    "sym",
    "symbols",
]


@memoised
def _floordiv(a: DimLike, b: DimLike) -> DimLike:
    if isinstance(b, int):
        return _floordiv_int(a, b)
    if a == 0 or a == b:
        return int(a == b)
    p, q = poly_of(a), poly_of(b)
    cancelled = cancel(p, q)
    if cancelled:
        return _floordiv(*cancelled[1:])
    if len(q) == 1:
        quotient, rest = split_by(p, q)
        if quotient:
            return add(dim_of(quotient), _floordiv(dim_of(rest), b))
    lo, hi = quotient_interval(interval(a), interval(b))
    if lo == hi:
        return int(lo)
    if lower_bound(p) >= 0 and lower_bound(poly_sum(q, p, -1)) >= 1:
        return 0
    if lower_bound(poly_sum({}, p, -1)) >= 1 and lower_bound(poly_sum(p, q)) >= 0 and lower_bound(q) >= 0:
        return -1
    return atom("floordiv", a, b)


def _floordiv_int(a: DimLike, b: int) -> DimLike:
    if isinstance(a, int):
        return a // b
    if b == 0:
        raise ZeroDivisionError(f"({a})//0")
    if b < 0:
        return _floordiv(-a, -b)
    quotient: Poly = {}
    rest: Poly = {}
    for m, c in poly_of(a).items():
        q, r = divmod(c, b) if not m or c % b == 0 else (0, c)
        if q:
            quotient[m] = q
        if r:
            rest[m] = r
    g = gcd(b, *(c for m, c in rest.items() if m))
    if g > 1:
        rest = {m: c // g for m, c in rest.items() if c // g}
        b //= g
    whole, inner = dim_of(quotient), dim_of(rest)
    lo, hi = interval(inner)
    if lo != -inf and hi != inf and lo // b == hi // b:
        return whole + int(lo // b)
    offset = rest.get((), 0)
    if len(rest) == (2 if offset else 1):
        m, c = next((m, c) for m, c in rest.items() if m)
        if c == 1 and len(m) == 1 and m[0].op == "floordiv":
            x, k = m[0].args
            if isinstance(k, int):
                return whole + _floordiv(x + k * offset, k * b)
    return whole + atom("floordiv", inner, b)


@memoised
def _mod(a: DimLike, b: DimLike) -> DimLike:
    if isinstance(b, int):
        return _mod_int(a, b)
    if a == 0 or a == b:
        return 0
    p, q = poly_of(a), poly_of(b)
    cancelled = cancel(p, q)
    if cancelled:
        common, x, y = cancelled
        return multiply(common, _mod(x, y))
    if len(q) == 1:
        quotient, rest = split_by(p, q)
        if quotient:
            return _mod(dim_of(rest), b)
    if lower_bound(p) >= 0 and lower_bound(poly_sum(q, p, -1)) >= 1:
        return a
    return atom("mod", a, b)


def _mod_int(a: DimLike, b: int) -> DimLike:
    if isinstance(a, int):
        return a % b
    if b == 0:
        raise ZeroDivisionError(f"({a}) % 0")
    if b < 0:
        return -_mod(-a, -b)
    p = poly_of(a)
    for m, c in list(p.items()):
        if len(m) == 1 and m[0].op == "mod":
            x, k = m[0].args
            if isinstance(k, int) and c * k % b == 0:
                p = poly_sum(poly_sum(p, {m: c}, -1), poly_of(x), c)
    for reduced in (p, {m: c % b for m, c in p.items() if c % b}):
        lo, hi = interval(dim_of(reduced))
        if lo != -inf and hi != inf and lo // b == hi // b:
            return dim_of(reduced) - int(lo // b) * b
    g = gcd(b, *(c for m, c in reduced.items() if m))
    rest = reduced.get((), 0) % g
    inner = dim_of({m: c // g for m, c in reduced.items() if c // g})
    return g * (_mod(inner, b // g) if g > 1 else atom("mod", inner, b)) + rest


def ceildiv(a: DimLike, b: DimLike) -> DimLike:
    """``a / b`` rounded up."""
    a, b = like(a), like(b)
    if isinstance(b, int):
        return -(-a // b) if b < 0 or isinstance(a, int) else _floordiv(a + (b - 1), b)
    return _ceildiv(a, b)


@memoised
def _ceildiv(a: DimLike, b: DimLike) -> DimLike:
    down = _floordiv(multiply(-1, a), b)
    if a == 0 or not _mentions(down, "floordiv", b):
        return multiply(-1, down)
    p, q = poly_of(a), poly_of(b)
    cancelled = cancel(p, q)
    if cancelled:
        return ceildiv(*cancelled[1:])
    if len(q) == 1:
        quotient, rest = split_by(p, q)
        if quotient:
            return add(dim_of(quotient), ceildiv(dim_of(rest), b))
    return atom("ceildiv", a, b)


def _mentions(d: DimLike, op: str, divisor: DimLike) -> bool:
    return any(a.op == op and isinstance(a.args[1], Dim) for m in poly_of(d) for a in m)


def _extremum(op: str, xs: Iterable[DimLike]) -> DimLike:
    sign = 1 if op == "max" else -1
    dims: dict[Dim, None] = {}
    const: int | None = None
    for x in xs:
        for y in x.args if isinstance(x, Dim) and x.op == op else (like(x),):
            if isinstance(y, Dim):
                dims[y] = None
            else:
                const = y if const is None or sign * y > sign * const else const
    kept: list[DimLike] = [*sorted(dims, key=rank)]
    if const is not None:
        kept.append(const)
    if not kept:
        raise ValueError(f"{op} of nothing")
    i = 0
    while i < len(kept) and len(kept) <= 16:
        x = kept[i]
        pairs = ((x, y) if sign > 0 else (y, x) for j, y in enumerate(kept) if j != i)
        if any(lower_bound(poly_sum(poly_of(big), poly_of(small), -1)) >= 0 for small, big in pairs):
            del kept[i]
        else:
            i += 1
    return kept[0] if len(kept) == 1 else atom(op, *kept)


@memoised
def _min2(a: DimLike, b: DimLike) -> DimLike:
    return _extremum("min", (a, b))


@memoised
def _max2(a: DimLike, b: DimLike) -> DimLike:
    return _extremum("max", (a, b))


def dmin(*xs: DimLike) -> DimLike:
    """The least of one or more."""
    return _min2(like(xs[0]), like(xs[1])) if len(xs) == 2 else _extremum("min", xs)


def dmax(*xs: DimLike) -> DimLike:
    """The greatest of one or more."""
    return _max2(like(xs[0]), like(xs[1])) if len(xs) == 2 else _extremum("max", xs)


@memoised
def _eq(a: DimLike, b: DimLike) -> DimLike:
    p = poly_sum(poly_of(a), poly_of(b), -1)
    if not any(p):
        return int(not p)
    g = gcd(*(c for m, c in p.items() if m))
    if p.get((), 0) % g:
        return 0
    if p[min((m for m in p if m), key=term_order)] < 0:
        g = -g
    p = {m: c // g for m, c in p.items()}
    lo, hi = interval(dim_of(p))
    if lo > 0 or hi < 0:
        return 0
    left = {m: c for m, c in p.items() if c > 0 and m}
    return atom("eq", dim_of(left), dim_of(poly_sum(left, p, -1)))


@memoised
def _at_most(a: DimLike, b: DimLike) -> DimLike:
    p = poly_sum(poly_of(b), poly_of(a), -1)
    g = gcd(*(c for m, c in p.items() if m)) or 1
    p = {m: c // g for m, c in p.items() if c // g}
    c = p.pop((), 0)
    lo, hi = interval(dim_of(p))
    if lo + c >= 0 or hi + c < 0:
        return int(lo + c >= 0)
    big = {m: k for m, k in p.items() if k > 0}
    small = poly_sum(big, p, -1)
    if c == -1:
        return atom("lt", dim_of(small), dim_of(big))
    if small and (c > 0 or not big):
        return atom("le", dim_of(small), dim_of(big) + c)
    return atom("le", dim_of(small) - c, dim_of(big))


def eq(a: DimLike, b: DimLike) -> DimLike:
    """1 where a == b, else 0."""
    return _eq(like(a), like(b))


def ne(a: DimLike, b: DimLike) -> DimLike:
    """1 where a != b, else 0."""
    return 1 - eq(a, b)


def le(a: DimLike, b: DimLike) -> DimLike:
    """1 where a <= b, else 0."""
    return _at_most(like(a), like(b))


def lt(a: DimLike, b: DimLike) -> DimLike:
    """1 where a < b, else 0."""
    return _at_most(like(a) + 1, like(b))


def ge(a: DimLike, b: DimLike) -> DimLike:
    """1 where a >= b, else 0."""
    return le(b, a)


def gt(a: DimLike, b: DimLike) -> DimLike:
    """1 where a > b, else 0."""
    return lt(b, a)


def select(c: DimLike, a: DimLike, b: DimLike) -> DimLike:
    """a where c is not 0, else b. Both are evaluated."""
    c, a, b = like(c), like(a), like(b)
    if isinstance(c, int):
        return a if c else b
    if a == b:
        return a
    lo, hi = interval(c)
    if lo > 0 or hi < 0:
        return a
    if c.op == "mul" and isinstance(c.args[0], int):
        return select(product(c.args[1:]), a, b)
    if c.op == "add" and (lo, hi) == (0, 1):
        negated = 1 - c
        if isinstance(negated, Dim) and negated.op in ("eq", "lt", "le"):
            return select(negated, b, a)
    if (lo, hi) == (0, 1) and (a, b) == (1, 0):
        return c
    if isinstance(a, Dim) and a.op == "select" and a.args[0] == c:
        return select(c, a.args[1], b)
    if isinstance(b, Dim) and b.op == "select" and b.args[0] == c:
        return select(c, a, b.args[2])
    if c.op == "eq" and eq(a, b) == c:
        return b
    return atom("select", c, a, b)


# Questions


def known(d: DimLike) -> int | None:
    """The value, if it is constant."""
    return None if isinstance(d, Dim) else operator.index(d)


def same(a: DimLike, b: DimLike) -> bool:
    """Whether a == b is proved, for all values of the symbols."""
    if a is b:
        return True
    d = like(a) - like(b)
    for _ in range(4):
        mods = {x: x.args[0] - x.args[1] * (x.args[0] // x.args[1]) for m in poly_of(d) for x in m if x.op == "mod"}
        if not mods:
            break
        d = sum((product(mods.get(x, x) for x in m) * c for m, c in poly_of(d).items()), 0)
    return d == 0


def product(xs: Iterable[DimLike]) -> DimLike:
    """The product, 1 for nothing."""
    out: DimLike = 1
    for x in xs:
        out = out * like(x)
    return out


def _nodes(d: DimLike) -> Iterator[Dim]:
    """Every distinct subexpression, operands first."""
    seen: set[Dim] = set()
    stack: list[tuple[DimLike, bool]] = [(d, False)]
    while stack:
        x, ready = stack.pop()
        if not isinstance(x, Dim) or x in seen:
            continue
        if ready:
            seen.add(x)
            yield x
        else:
            stack.append((x, True))
            stack.extend((a, False) for a in reversed(x.args))


def symbols(d: DimLike) -> tuple[str, ...]:
    """The names of the symbols in d, sorted."""
    return tuple(sorted(x.name for x in _nodes(d) if x.op == "sym"))


def reads(d: DimLike) -> bool:
    """Whether d depends on elements of tensors, and not on sizes alone."""
    return any(x.op == "sym" and "{" in x.name for x in _nodes(d))


def told_by_data(d: DimLike) -> bool:
    """Whether d depends on what a run computes: on elements of tensors, or on sizes of what a branch or a loop gives."""
    return any(x.op == "sym" and ("{" in x.name or x.name[:1] in "%~") for x in _nodes(d))


BUILD.update(
    {
        "add": lambda *xs: sum(xs),
        "mul": lambda *xs: product(xs),
        "floordiv": _floordiv,
        "ceildiv": ceildiv,
        "mod": _mod,
        "min": dmin,
        "max": dmax,
        "eq": eq,
        "lt": lt,
        "le": le,
        "select": select,
    }
)


def substitute(d: DimLike, mapping: Mapping[str, DimLike]) -> DimLike:
    """d with symbols replaced, by name."""
    new: dict[DimLike, DimLike] = {}
    for x in _nodes(d):
        new[x] = like(mapping.get(x.name, x)) if x.op == "sym" else build(x.op, (new[a] if isinstance(a, Dim) else a for a in x.args))
    return new[d] if isinstance(d, Dim) else d


def evaluate(d: DimLike, env: Mapping[str, int]) -> int:
    """The value of d. Raises KeyError for a symbol that ``env`` lacks, ZeroDivisionError for a divisor of 0."""
    if isinstance(d, int):
        return d
    value: dict[Dim, int] = {}
    for x in _nodes(d):
        if x.op == "sym":
            value[x] = operator.index(env[x.name])
        else:
            value[x] = _EVALUATE[x.op]([value[a] if isinstance(a, Dim) else a for a in x.args])
    return value[d]


_EVALUATE: dict[str, Callable[[list[int]], int]] = {
    "add": sum,
    "mul": prod,
    "floordiv": lambda x: x[0] // x[1],
    "ceildiv": lambda x: -(-x[0] // x[1]),
    "mod": lambda x: x[0] % x[1],
    "min": min,
    "max": max,
    "eq": lambda x: int(x[0] == x[1]),
    "lt": lambda x: int(x[0] < x[1]),
    "le": lambda x: int(x[0] <= x[1]),
    "select": lambda x: x[1] if x[0] else x[2],
}
