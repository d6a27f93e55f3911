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
from hashlib import blake2b
from math import gcd, inf, prod
from typing import Any, NoReturn, TypeAlias
from weakref import WeakValueDictionary

MAX_SIZE = 2**31 - 1
"""The default upper bound of a symbol."""

_MAX_TERMS = 64  # a product that would expand to more terms keeps its sums as factors
_HUGE = 2**200  # a bound beyond counts as infinite


class Dim:
    """An integer expression that depends on a symbol. Immutable; ``==`` compares canonical forms, symbols by name.

    Attributes:
        op: ``sym add mul floordiv ceildiv mod min max eq lt le select``.
        args: the operands, ``int`` or ``Dim``. ``add``, ``mul``, ``min`` and ``max`` have two or more; a coefficient is the
            first operand of its ``mul``. Comparisons give 0 or 1. ``select(c, a, b)`` is ``a`` where ``c`` is not 0, else ``b``.
        name: the symbol's name, else empty.
    """

    __slots__ = ("__weakref__", "_args", "_bounds", "_digest", "_hash", "_order", "_poly", "_token", "name", "op")
    __array_ufunc__ = None  # numpy scalars leave the operators to us

    op: str
    name: str
    _args: tuple[DimLike, ...] | None
    _poly: Poly | None  # None: an atom
    _bounds: tuple[float, float] | None
    _hash: int  # of the structure, without the bounds of its symbols
    _digest: bytes | None  # likewise, and collision-free: equality, and an order that does not change from run to run
    _token: object  # one per structure and bounds: caches
    _order: tuple[int, str, bytes]  # depth of nested atoms, name; the digest makes it total for atoms

    @property
    def args(self) -> tuple[DimLike, ...]:
        if self._args is None:
            assert self._poly is not None
            if self.op == "add":
                self._args = tuple(_dim({m: c}) for m, c in self._poly.items())
            else:
                ((m, c),) = self._poly.items()
                self._args = m if c == 1 else (c, *m)
        return self._args

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self._hash == other._hash and _digest(self) == _digest(other))

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: DimLike) -> DimLike:
        return self if isinstance(other, int) and other == 0 else _add(self, _like(other))

    __radd__ = __add__

    def __sub__(self, other: DimLike) -> DimLike:
        return _add(self, _mul(-1, _like(other)))

    def __rsub__(self, other: DimLike) -> DimLike:
        return _add(_like(other), _mul(-1, self))

    def __mul__(self, other: DimLike) -> DimLike:
        return self if isinstance(other, int) and other == 1 else _mul(self, _like(other))

    __rmul__ = __mul__

    def __neg__(self) -> DimLike:
        return _mul(-1, self)

    def __pos__(self) -> Dim:
        return self

    def __floordiv__(self, other: DimLike) -> DimLike:
        return _floordiv(self, _like(other))

    def __rfloordiv__(self, other: DimLike) -> DimLike:
        return _floordiv(_like(other), self)

    def __mod__(self, other: DimLike) -> DimLike:
        return _mod(self, _like(other))

    def __rmod__(self, other: DimLike) -> DimLike:
        return _mod(_like(other), self)

    def _symbolic(self, *_: object) -> NoReturn:
        raise TypeError(
            f"the size {self} is symbolic, known only with the input shapes (compare with eq, lt, le, same; branch with select)"
        )

    __bool__ = __int__ = __index__ = __float__ = _symbolic
    __lt__ = __le__ = __gt__ = __ge__ = _symbolic

    def __str__(self) -> str:
        from .dims_text import write

        return write(self)

    __repr__ = __str__

    def __reduce__(self) -> tuple[Callable[..., DimLike], tuple[Any, ...]]:
        if self.op == "sym":
            return sym, (self.name, *(int(b) for b in _range(self)))
        return _build, (self.op, self.args)


DimLike: TypeAlias = int | Dim
Monomial: TypeAlias = tuple[Dim, ...]  # sorted atoms, repeated for powers
Poly: TypeAlias = dict[Monomial, int]  # no zero coefficient


def _like(x: DimLike) -> DimLike:
    return x if isinstance(x, Dim) else operator.index(x)


# Building: every live expression exists once per set of symbol bounds

_LIVE: WeakValueDictionary[tuple[object, ...], Dim] = WeakValueDictionary()
_MEMO_SIZE = 1 << 14


def _memoised(fn: Callable[[DimLike, DimLike], DimLike]) -> Callable[[DimLike, DimLike], DimLike]:
    memo: dict[tuple[object, object], DimLike] = {}

    def cached(a: DimLike, b: DimLike) -> DimLike:
        key = a._token if isinstance(a, Dim) else a, b._token if isinstance(b, Dim) else b
        found = memo.get(key)
        if found is None:
            if len(memo) >= _MEMO_SIZE:
                memo.clear()
            found = memo[key] = fn(a, b)
        return found

    return cached


def _digest(d: Dim) -> bytes:
    if d._digest is None:
        h = blake2b(d.op.encode(), digest_size=16)
        for part in d.args if d._poly is None else (x for m, c in d._poly.items() for x in (len(m), c, *m)):
            h.update(b"d" + _digest(part) if isinstance(part, Dim) else f"i{part};".encode())
        d._digest = h.digest()
    return d._digest


def _new(key: tuple[object, ...], op: str, args: tuple[DimLike, ...] | None, poly: Poly | None, name: str = "") -> Dim:
    d = Dim()
    d.op, d.name, d._args, d._poly, d._bounds, d._digest, d._token = op, name, args, poly, None, None, object()
    d._hash = hash((op, name, args if poly is None else tuple(poly.items())))
    if poly is not None:
        d._order = (max(a._order[0] for m in poly for a in m), op, b"")
    elif args:
        d._order = (1 + max(a._order[0] for a in args if isinstance(a, Dim)), op, _digest(d))
    else:
        d._digest = blake2b(b"sym" + name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        d._order = (0, name, b"")
    _LIVE[key] = d
    return d


def sym(name: str, lo: int = 0, hi: int | None = None) -> Dim:
    """The symbol of that name, within ``lo <= value <= hi`` (default ``MAX_SIZE``). Symbols are equal when their names are."""
    hi = max(MAX_SIZE, lo) if hi is None else hi
    if lo > hi:
        raise ValueError(f"symbol {name!r}: empty range {lo} to {hi}")
    key = ("sym", name, lo, hi)
    d = _LIVE.get(key)
    if d is None:
        d = _new(key, "sym", (), None, name)
        d._bounds = (lo, hi)
    return d


def _atom(op: str, *args: DimLike) -> Dim:
    key = (op, *[a._token if isinstance(a, Dim) else a for a in args])
    d = _LIVE.get(key)
    return _new(key, op, args, None) if d is None else d


def _rank(d: Dim) -> tuple[int, str, bytes]:
    """A total order, also over sums and products."""
    if d._poly is not None and not d._order[2]:
        d._order = (*d._order[:2], _digest(d))
    return d._order


def _term_order(m: Monomial) -> tuple[Any, ...]:
    return (-len(m), tuple(a._order for a in m))


def _dim(poly: Poly) -> DimLike:
    if len(poly) < 2:
        if not poly:
            return 0
        ((m, c),) = poly.items()
        if not m:
            return c
        if len(m) == 1 and c == 1:
            return m[0]
    else:
        poly = {m: poly[m] for m in sorted(poly, key=_term_order)}
    key = tuple([(c, *[a._token for a in m]) for m, c in poly.items()])
    d = _LIVE.get(key)
    return _new(key, "add" if len(poly) > 1 else "mul", None, poly) if d is None else d


def _poly(d: DimLike) -> Poly:
    if isinstance(d, Dim):
        return {(d,): 1} if d._poly is None else d._poly
    return {(): d} if d else {}


def _merge(*parts: Monomial) -> Monomial:
    return tuple(sorted((a for m in parts for a in m), key=lambda a: a._order))


def _sum(p: Poly, q: Poly, k: int = 1) -> Poly:
    """p + k*q"""
    out = dict(p)
    for m, c in q.items():
        total = out.get(m, 0) + k * c
        if total:
            out[m] = total
        else:
            del out[m]
    return out


def _times(p: Poly, q: Poly) -> Poly:
    out: Poly = {}
    for m, c in p.items():
        for n, e in q.items():
            key = _merge(m, n) if m and n else m or n
            out[key] = out.get(key, 0) + c * e
    return {m: c for m, c in out.items() if c}


# Arithmetic


@_memoised
def _add(a: DimLike, b: DimLike) -> DimLike:
    return _dim(_sum(_poly(a), _poly(b)))


@_memoised
def _mul(a: DimLike, b: DimLike) -> DimLike:
    p, q = _poly(a), _poly(b)
    if len(p) * len(q) > _MAX_TERMS and isinstance(a, Dim) and isinstance(b, Dim):
        p, q = _opaque(p), _opaque(q)
    return _dim(_times(p, q))


def _opaque(p: Poly) -> Poly:
    """p as one term: its content times its primitive part."""
    m, c = _signed_content(p)
    primitive = _reduced(p, m, c)
    if isinstance(primitive, Dim):
        _rank(primitive)
        m = _merge(m, (primitive,))
    return {m: c}


def _without(m: Monomial, factors: Monomial) -> Monomial | None:
    """m / factors, or None where it does not divide."""
    rest = list(m)
    for f in factors:
        if f not in rest:
            return None
        rest.remove(f)
    return tuple(rest)


def _content(*polys: Poly) -> tuple[Monomial, int]:
    """The greatest monomial and positive integer that divide every term."""
    terms = [m for p in polys for m in p]
    shared: list[Dim] = []
    if terms and all(terms):
        rests = [list(m) for m in terms]
        for atom in terms[0]:
            if all(atom in r for r in rests):
                shared.append(atom)
                for r in rests:
                    r.remove(atom)
    return tuple(shared), gcd(*(c for p in polys for c in p.values()))


def _signed_content(p: Poly) -> tuple[Monomial, int]:
    """The content, negative where the leading coefficient is."""
    m, c = _content(p)
    return m, -c if next(iter(p.values())) < 0 else c


def _reduced(p: Poly, m: Monomial, c: int) -> DimLike:
    """p / (c*m), which divides exactly."""
    return _dim({_without(n, m) or (): e // c for n, e in p.items()})


def _split(p: Poly, by: Poly) -> tuple[Poly, Poly]:
    """The terms of p that one term ``by`` divides, divided by it, and the others."""
    ((m, c),) = by.items()
    quotient: Poly = {}
    rest: Poly = {}
    for n, e in p.items():
        q = _without(n, m) if e % c == 0 else None
        if q is None:
            rest[n] = e
        else:
            quotient[q] = e // c
    return quotient, rest


def _exact_quotient(p: Poly, q: Poly) -> Poly | None:
    """p / q where q divides p as a polynomial: long division by leading terms."""
    atoms = sorted({a for poly in (p, q) for m in poly for a in m}, key=lambda a: a._order)

    def exponents(m: Monomial) -> tuple[int, ...]:
        return (len(m), *(m.count(a) for a in atoms))

    lead = max(q, key=exponents)
    out: Poly = {}
    for _ in range(2 * _MAX_TERMS):
        if not p:
            return out
        top = max(p, key=exponents)
        m = _without(top, lead)
        if m is None or p[top] % q[lead]:
            return None
        out[m] = p[top] // q[lead]
        p = _sum(p, _times({m: out[m]}, q), -1)
    return None


def _cancel(p: Poly, q: Poly) -> tuple[DimLike, DimLike, DimLike] | None:
    """(g, p / g, q / g) for a common factor g that is worth it."""
    m, c = _content(p, q)
    if m or c > 1:
        return _dim({m: c}), _reduced(p, m, c), _reduced(q, m, c)
    if len(p) < 2 or len(q) < 2:
        return None
    (m, c), (n, e) = _signed_content(p), _signed_content(q)
    x, y = _poly(_reduced(p, m, c)), _poly(_reduced(q, n, e))
    quotient = _exact_quotient(x, y)
    if quotient is not None:
        return _dim(y), _mul(_dim({m: c}), _dim(quotient)), _dim({n: e})
    quotient = _exact_quotient(y, x)
    if quotient is not None:
        return _dim(x), _dim({m: c}), _mul(_dim({n: e}), _dim(quotient))
    return None


@_memoised
def _floordiv(a: DimLike, b: DimLike) -> DimLike:
    if isinstance(b, int):
        return _floordiv_int(a, b)
    if a == 0 or a == b:
        return int(a == b)
    p, q = _poly(a), _poly(b)
    cancelled = _cancel(p, q)
    if cancelled:
        return _floordiv(*cancelled[1:])
    if len(q) == 1:
        quotient, rest = _split(p, q)
        if quotient:
            return _add(_dim(quotient), _floordiv(_dim(rest), b))
    lo, hi = _div_range(_range(a), _range(b))
    if lo == hi:
        return int(lo)
    if _lower(p) >= 0 and _lower(_sum(q, p, -1)) >= 1:
        return 0
    if _lower(_sum({}, p, -1)) >= 1 and _lower(_sum(p, q)) >= 0 and _lower(q) >= 0:
        return -1
    return _atom("floordiv", a, b)


def _floordiv_int(a: DimLike, b: int) -> DimLike:
    if isinstance(a, int):
        return a // b
    if b == 0:
        raise ZeroDivisionError(f"({a})//0")
    if b < 0:
        return _floordiv(-a, -b)
    quotient: Poly = {}
    rest: Poly = {}
    for m, c in _poly(a).items():
        q, r = divmod(c, b) if not m or c % b == 0 else (0, c)
        if q:
            quotient[m] = q
        if r:
            rest[m] = r
    g = gcd(b, *(c for m, c in rest.items() if m))
    if g > 1:
        rest = {m: c // g for m, c in rest.items() if c // g}
        b //= g
    whole, inner = _dim(quotient), _dim(rest)
    lo, hi = _range(inner)
    if lo != -inf and hi != inf and lo // b == hi // b:
        return whole + int(lo // b)
    offset = rest.get((), 0)
    if len(rest) == (2 if offset else 1):
        m, c = next((m, c) for m, c in rest.items() if m)
        if c == 1 and len(m) == 1 and m[0].op == "floordiv":
            x, k = m[0].args
            if isinstance(k, int):
                return whole + _floordiv(x + k * offset, k * b)
    return whole + _atom("floordiv", inner, b)


@_memoised
def _mod(a: DimLike, b: DimLike) -> DimLike:
    if isinstance(b, int):
        return _mod_int(a, b)
    if a == 0 or a == b:
        return 0
    p, q = _poly(a), _poly(b)
    cancelled = _cancel(p, q)
    if cancelled:
        common, x, y = cancelled
        return _mul(common, _mod(x, y))
    if len(q) == 1:
        quotient, rest = _split(p, q)
        if quotient:
            return _mod(_dim(rest), b)
    if _lower(p) >= 0 and _lower(_sum(q, p, -1)) >= 1:
        return a
    return _atom("mod", a, b)


def _mod_int(a: DimLike, b: int) -> DimLike:
    if isinstance(a, int):
        return a % b
    if b == 0:
        raise ZeroDivisionError(f"({a}) % 0")
    if b < 0:
        return -_mod(-a, -b)
    p = _poly(a)
    for m, c in list(p.items()):
        if len(m) == 1 and m[0].op == "mod":
            x, k = m[0].args
            if isinstance(k, int) and c * k % b == 0:
                p = _sum(_sum(p, {m: c}, -1), _poly(x), c)
    for reduced in (p, {m: c % b for m, c in p.items() if c % b}):
        lo, hi = _range(_dim(reduced))
        if lo != -inf and hi != inf and lo // b == hi // b:
            return _dim(reduced) - int(lo // b) * b
    g = gcd(b, *(c for m, c in reduced.items() if m))
    rest = reduced.get((), 0) % g
    inner = _dim({m: c // g for m, c in reduced.items() if c // g})
    return g * (_mod(inner, b // g) if g > 1 else _atom("mod", inner, b)) + rest


def ceildiv(a: DimLike, b: DimLike) -> DimLike:
    """``a / b`` rounded up."""
    a, b = _like(a), _like(b)
    if isinstance(b, int):
        return -(-a // b) if b < 0 or isinstance(a, int) else _floordiv(a + (b - 1), b)
    return _ceildiv(a, b)


@_memoised
def _ceildiv(a: DimLike, b: DimLike) -> DimLike:
    down = _floordiv(_mul(-1, a), b)
    if a == 0 or not _mentions(down, "floordiv", b):
        return _mul(-1, down)
    p, q = _poly(a), _poly(b)
    cancelled = _cancel(p, q)
    if cancelled:
        return ceildiv(*cancelled[1:])
    if len(q) == 1:
        quotient, rest = _split(p, q)
        if quotient:
            return _add(_dim(quotient), ceildiv(_dim(rest), b))
    return _atom("ceildiv", a, b)


def _mentions(d: DimLike, op: str, divisor: DimLike) -> bool:
    return any(a.op == op and isinstance(a.args[1], Dim) for m in _poly(d) for a in m)


def _extremum(op: str, xs: Iterable[DimLike]) -> DimLike:
    sign = 1 if op == "max" else -1
    dims: dict[Dim, None] = {}
    const: int | None = None
    for x in xs:
        for y in x.args if isinstance(x, Dim) and x.op == op else (_like(x),):
            if isinstance(y, Dim):
                dims[y] = None
            else:
                const = y if const is None or sign * y > sign * const else const
    kept: list[DimLike] = [*sorted(dims, key=_rank)]
    if const is not None:
        kept.append(const)
    if not kept:
        raise ValueError(f"{op} of nothing")
    i = 0
    while i < len(kept) and len(kept) <= 16:
        x = kept[i]
        pairs = ((x, y) if sign > 0 else (y, x) for j, y in enumerate(kept) if j != i)
        if any(_lower(_sum(_poly(big), _poly(small), -1)) >= 0 for small, big in pairs):
            del kept[i]
        else:
            i += 1
    return kept[0] if len(kept) == 1 else _atom(op, *kept)


@_memoised
def _min2(a: DimLike, b: DimLike) -> DimLike:
    return _extremum("min", (a, b))


@_memoised
def _max2(a: DimLike, b: DimLike) -> DimLike:
    return _extremum("max", (a, b))


def dmin(*xs: DimLike) -> DimLike:
    """The least of one or more."""
    return _min2(_like(xs[0]), _like(xs[1])) if len(xs) == 2 else _extremum("min", xs)


def dmax(*xs: DimLike) -> DimLike:
    """The greatest of one or more."""
    return _max2(_like(xs[0]), _like(xs[1])) if len(xs) == 2 else _extremum("max", xs)


@_memoised
def _eq(a: DimLike, b: DimLike) -> DimLike:
    p = _sum(_poly(a), _poly(b), -1)
    if not any(p):
        return int(not p)
    g = gcd(*(c for m, c in p.items() if m))
    if p.get((), 0) % g:
        return 0
    if p[min((m for m in p if m), key=_term_order)] < 0:
        g = -g
    p = {m: c // g for m, c in p.items()}
    lo, hi = _range(_dim(p))
    if lo > 0 or hi < 0:
        return 0
    left = {m: c for m, c in p.items() if c > 0 and m}
    return _atom("eq", _dim(left), _dim(_sum(left, p, -1)))


@_memoised
def _at_most(a: DimLike, b: DimLike) -> DimLike:
    p = _sum(_poly(b), _poly(a), -1)
    g = gcd(*(c for m, c in p.items() if m)) or 1
    p = {m: c // g for m, c in p.items() if c // g}
    c = p.pop((), 0)
    lo, hi = _range(_dim(p))
    if lo + c >= 0 or hi + c < 0:
        return int(lo + c >= 0)
    big = {m: k for m, k in p.items() if k > 0}
    small = _sum(big, p, -1)
    if c == -1:
        return _atom("lt", _dim(small), _dim(big))
    if small and (c > 0 or not big):
        return _atom("le", _dim(small), _dim(big) + c)
    return _atom("le", _dim(small) - c, _dim(big))


def eq(a: DimLike, b: DimLike) -> DimLike:
    """1 where a == b, else 0."""
    return _eq(_like(a), _like(b))


def ne(a: DimLike, b: DimLike) -> DimLike:
    """1 where a != b, else 0."""
    return 1 - eq(a, b)


def le(a: DimLike, b: DimLike) -> DimLike:
    """1 where a <= b, else 0."""
    return _at_most(_like(a), _like(b))


def lt(a: DimLike, b: DimLike) -> DimLike:
    """1 where a < b, else 0."""
    return _at_most(_like(a) + 1, _like(b))


def ge(a: DimLike, b: DimLike) -> DimLike:
    """1 where a >= b, else 0."""
    return le(b, a)


def gt(a: DimLike, b: DimLike) -> DimLike:
    """1 where a > b, else 0."""
    return lt(b, a)


def select(c: DimLike, a: DimLike, b: DimLike) -> DimLike:
    """a where c is not 0, else b. Both are evaluated."""
    c, a, b = _like(c), _like(a), _like(b)
    if isinstance(c, int):
        return a if c else b
    if a == b:
        return a
    lo, hi = _range(c)
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
    return _atom("select", c, a, b)


# Bounds. Internally -inf and inf stand for unknown.


def _cap(x: float) -> float:
    return -inf if x < -_HUGE else inf if x > _HUGE else x


def _mul_range(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    corners = [_cap(x * y) if x and y else 0 for x in a for y in b]
    return min(corners), max(corners)


def _div(x: float, y: float) -> float:
    if x in (inf, -inf):
        return x if y > 0 else -x
    return (0 if x == 0 or (x > 0) == (y > 0) else -1) if y in (inf, -inf) else x // y


def _div_range(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    lo, hi = b[0] or 1, b[1] or -1
    if lo > hi:  # the divisor is 0
        return -inf, inf
    if lo < 0 < hi:
        reach = max(abs(a[0]), abs(a[1]))
        return -reach, reach
    corners = [_div(x, y) for x in a for y in (lo, hi)]
    return min(corners), max(corners)


def _atom_range(op: str, args: tuple[DimLike, ...]) -> tuple[float, float]:
    ranges = [_range(a) for a in args]
    if op in ("eq", "lt", "le"):
        return 0, 1
    if op in ("min", "max"):
        pick = min if op == "min" else max
        return pick(r[0] for r in ranges), pick(r[1] for r in ranges)
    if op == "select":
        return min(r[0] for r in ranges[1:]), max(r[1] for r in ranges[1:])
    a, b = ranges
    if op == "floordiv":
        return _div_range(a, b)
    if op == "ceildiv":
        lo, hi = _div_range((-a[1], -a[0]), b)
        return -hi, -lo
    assert op == "mod"
    hi = max(0, b[1] - 1)
    return min(0, b[0] + 1), min(hi, a[1]) if a[0] >= 0 and b[0] >= 0 else hi


def _range(d: DimLike) -> tuple[float, float]:
    if isinstance(d, int):
        return d, d
    if d._bounds is None:
        if d._poly is None:
            d._bounds = _atom_range(d.op, d.args)
        else:
            d._bounds = _lower(d._poly), -_lower(_sum({}, d._poly, -1))
    return d._bounds


def _lower(p: Poly, depth: int = 4) -> float:
    """A lower bound of p: by intervals, and by replacing a nested atom by what bounds it."""
    best = _interval_lower(p)
    if depth == 0 or len(p) < 2:
        return best
    found = [(a, m) for m in p for a in m if a.op in ("min", "max", "select") or (a.op == "floordiv" and isinstance(a.args[1], int))]
    if not found:
        return best
    atom, m = max(found, key=lambda am: am[0]._order)
    cofactor = _without(m, (atom,)) or ()
    if any(_range(a)[0] < 0 for a in cofactor):
        return best
    rest = {cofactor: p[m]}
    others = _sum(p, {m: p[m]}, -1)
    up = p[m] > 0
    if atom.op == "floordiv":
        x, k = atom.args
        assert isinstance(k, int)
        low = _lower(_sum(_times(_poly(x + (1 - k) if up else x), rest), others, k), depth - 1)
        return max(best, low if low == -inf else -(-low // k))
    if atom.op == "select":
        return max(best, min(_lower(_sum(others, _times(_poly(x), rest)), depth - 1) for x in atom.args[1:]))
    pick = max if (atom.op == "max") == up else min
    return max(best, pick(_lower(_sum(others, _times(_poly(x), rest)), depth - 1) for x in atom.args))


def _interval_lower(p: Poly) -> float:
    total: float = 0
    for m, c in p.items():
        r: tuple[float, float] = (c, c)
        for a in m:
            r = _mul_range(r, _range(a))
        total += r[0]
    if len(p) < 2 or total == -inf or max(map(len, p)) < 2 or any(_range(a)[0] == -inf for m in p for a in m):
        return _cap(total)
    # Measure every atom from its lower bound: a*b - b becomes b*a' where a = 1 + a'.
    shifted: Poly = {}
    for m, c in p.items():
        term: Poly = {(): c}
        for a in m:
            lo = _range(a)[0]
            term = _times(term, {(a,): 1, (): int(lo)} if lo else {(a,): 1})
        shifted = _sum(shifted, term)
    from_lo: float = shifted.get((), 0)
    for m, c in shifted.items():
        if m and c < 0:
            widths = [r[1] - r[0] for r in map(_range, m)]
            from_lo += _cap(c * prod(widths)) if all(widths) else 0
    return _cap(max(total, from_lo))


def bounds(d: DimLike) -> tuple[int | None, int | None]:
    """An interval that holds every value of d (None: unbounded), given the bounds of its symbols and no division by 0."""
    lo, hi = _range(_like(d))
    return None if lo == -inf else int(lo), None if hi == inf else int(hi)


# Questions


def known(d: DimLike) -> int | None:
    """The value, if it is constant."""
    return None if isinstance(d, Dim) else operator.index(d)


def same(a: DimLike, b: DimLike) -> bool:
    """Whether a == b is proved, for all values of the symbols."""
    if a is b:
        return True
    d = _like(a) - _like(b)
    for _ in range(4):
        mods = {x: x.args[0] - x.args[1] * (x.args[0] // x.args[1]) for m in _poly(d) for x in m if x.op == "mod"}
        if not mods:
            break
        d = sum((product(mods.get(x, x) for x in m) * c for m, c in _poly(d).items()), 0)
    return d == 0


def product(xs: Iterable[DimLike]) -> DimLike:
    """The product, 1 for nothing."""
    out: DimLike = 1
    for x in xs:
        out = out * _like(x)
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


def _build(op: str, args: Iterable[DimLike]) -> DimLike:
    return _BUILD[op](*args)


_BUILD: dict[str, Callable[..., DimLike]] = {
    "add": lambda *xs: sum(xs),
    "mul": lambda *xs: product(xs),
    "floordiv": operator.floordiv,
    "ceildiv": ceildiv,
    "mod": operator.mod,
    "min": dmin,
    "max": dmax,
    "eq": eq,
    "lt": lt,
    "le": le,
    "select": select,
}


def substitute(d: DimLike, mapping: Mapping[str, DimLike]) -> DimLike:
    """d with symbols replaced, by name."""
    new: dict[DimLike, DimLike] = {}
    for x in _nodes(d):
        new[x] = _like(mapping.get(x.name, x)) if x.op == "sym" else _build(x.op, (new[a] if isinstance(a, Dim) else a for a in x.args))
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


# Text


def parse(text: str, names: Mapping[str, DimLike] | None = None) -> DimLike:
    """Reads what ``str`` writes. ``names`` gives symbols (or values) by name; others are sizes, ``sym(name)``.

    The text holds no bounds: pass the symbols that may be negative. Raises ValueError.
    """
    from .dims_text import Parser

    try:
        return Parser(text, names or {}).whole()
    except RecursionError:
        raise ValueError("dimension text is nested too deeply") from None
