"""Symbolic integers as canonical polynomials: what :mod:`.dims` computes with. Sums, products and exact quotients stand here."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from math import gcd
from typing import Any, NoReturn, TypeAlias
from weakref import WeakValueDictionary

MAX_SIZE = 2**31 - 1
"""The default upper bound of a symbol."""

_MAX_TERMS = 64  # a product that would expand to more terms keeps its sums as factors


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
                self._args = tuple(dim_of({m: c}) for m, c in self._poly.items())
            else:
                ((m, c),) = self._poly.items()
                self._args = m if c == 1 else (c, *m)
        return self._args

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self._hash == other._hash and _digest(self) == _digest(other))

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: DimLike) -> DimLike:
        return self if isinstance(other, int) and other == 0 else add(self, like(other))

    __radd__ = __add__

    def __sub__(self, other: DimLike) -> DimLike:
        return add(self, multiply(-1, like(other)))

    def __rsub__(self, other: DimLike) -> DimLike:
        return add(like(other), multiply(-1, self))

    def __mul__(self, other: DimLike) -> DimLike:
        return self if isinstance(other, int) and other == 1 else multiply(self, like(other))

    __rmul__ = __mul__

    def __neg__(self) -> DimLike:
        return multiply(-1, self)

    def __pos__(self) -> Dim:
        return self

    def __floordiv__(self, other: DimLike) -> DimLike:
        return BUILD["floordiv"](self, like(other))

    def __rfloordiv__(self, other: DimLike) -> DimLike:
        return BUILD["floordiv"](like(other), self)

    def __mod__(self, other: DimLike) -> DimLike:
        return BUILD["mod"](self, like(other))

    def __rmod__(self, other: DimLike) -> DimLike:
        return BUILD["mod"](like(other), self)

    def _symbolic(self, *_: object) -> NoReturn:
        raise TypeError(
            f"the size {self} is symbolic, known only with the input shapes (compare with eq, lt, le, same; branch with select)"
        )

    __bool__ = __int__ = __index__ = __float__ = _symbolic
    __lt__ = __le__ = __gt__ = __ge__ = _symbolic

    @property
    def written(self) -> int:
        """How many symbols, numbers and signs its text has, in which parts that are shared stand as often as they are used."""
        found: dict[Dim, int] = {}
        stack = [self]
        while stack:
            x = stack[-1]
            rest = [a for a in x.args if isinstance(a, Dim) and a not in found]
            if rest:
                stack += rest
                continue
            found[stack.pop()] = 1 + sum(found[a] if isinstance(a, Dim) else 1 for a in x.args)
        return found[self]

    def __str__(self) -> str:
        """For :mod:`dims_text` to read; three dots where it would be longer than anybody reads."""
        return write(self) if self.written <= LONGEST else "..."

    __repr__ = __str__

    def __reduce__(self) -> tuple[Callable[..., DimLike], tuple[Any, ...]]:
        if self.op == "sym":
            assert self._bounds is not None
            return sym, (self.name, *(int(b) for b in self._bounds))
        return build, (self.op, self.args)


DimLike: TypeAlias = int | Dim
Monomial: TypeAlias = tuple[Dim, ...]  # sorted atoms, repeated for powers
Poly: TypeAlias = dict[Monomial, int]  # no zero coefficient
BUILD: dict[str, Callable[..., DimLike]] = {}  # what makes an expression, by its op; :mod:`.dims` fills it


def like(x: DimLike) -> DimLike:
    """A size, or what Python takes for an integer as an int; TypeError for anything else."""
    return x if isinstance(x, Dim) else operator.index(x)


def build(op: str, args: Iterable[DimLike]) -> DimLike:
    """The expression of an operation over operands, simplified."""
    return BUILD[op](*args)


# Every live expression exists once per set of symbol bounds.

_LIVE: WeakValueDictionary[tuple[object, ...], Dim] = WeakValueDictionary()
_MEMO_SIZE = 1 << 14


def memoised(fn: Callable[[DimLike, DimLike], DimLike]) -> Callable[[DimLike, DimLike], DimLike]:
    """Remembers results by structure and bounds of the operands."""
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


def atom(op: str, *args: DimLike) -> Dim:
    key = (op, *[a._token if isinstance(a, Dim) else a for a in args])
    d = _LIVE.get(key)
    return _new(key, op, args, None) if d is None else d


def rank(d: Dim) -> tuple[int, str, bytes]:
    """A total order, also over sums and products."""
    if d._poly is not None and not d._order[2]:
        d._order = (*d._order[:2], _digest(d))
    return d._order


def term_order(m: Monomial) -> tuple[Any, ...]:
    return (-len(m), tuple(a._order for a in m))


def dim_of(poly: Poly) -> DimLike:
    if len(poly) < 2:
        if not poly:
            return 0
        ((m, c),) = poly.items()
        if not m:
            return c
        if len(m) == 1 and c == 1:
            return m[0]
    else:
        poly = {m: poly[m] for m in sorted(poly, key=term_order)}
    key = tuple([(c, *[a._token for a in m]) for m, c in poly.items()])
    d = _LIVE.get(key)
    return _new(key, "add" if len(poly) > 1 else "mul", None, poly) if d is None else d


def poly_of(d: DimLike) -> Poly:
    if isinstance(d, Dim):
        return {(d,): 1} if d._poly is None else d._poly
    return {(): d} if d else {}


def _merge(*parts: Monomial) -> Monomial:
    return tuple(sorted((a for m in parts for a in m), key=lambda a: a._order))


def poly_sum(p: Poly, q: Poly, k: int = 1) -> Poly:
    """p + k*q"""
    out = dict(p)
    for m, c in q.items():
        total = out.get(m, 0) + k * c
        if total:
            out[m] = total
        else:
            del out[m]
    return out


def poly_product(p: Poly, q: Poly) -> Poly:
    out: Poly = {}
    for m, c in p.items():
        for n, e in q.items():
            key = _merge(m, n) if m and n else m or n
            out[key] = out.get(key, 0) + c * e
    return {m: c for m, c in out.items() if c}


@memoised
def add(a: DimLike, b: DimLike) -> DimLike:
    return dim_of(poly_sum(poly_of(a), poly_of(b)))


@memoised
def multiply(a: DimLike, b: DimLike) -> DimLike:
    p, q = poly_of(a), poly_of(b)
    if len(p) * len(q) > _MAX_TERMS and isinstance(a, Dim) and isinstance(b, Dim):
        p, q = _opaque(p), _opaque(q)
    return dim_of(poly_product(p, q))


def _opaque(p: Poly) -> Poly:
    """p as one term: its content times its primitive part."""
    m, c = _signed_content(p)
    primitive = _reduced(p, m, c)
    if isinstance(primitive, Dim):
        rank(primitive)
        m = _merge(m, (primitive,))
    return {m: c}


def without(m: Monomial, factors: Monomial) -> Monomial | None:
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
    return dim_of({without(n, m) or (): e // c for n, e in p.items()})


def split_by(p: Poly, by: Poly) -> tuple[Poly, Poly]:
    """The terms of p that one term ``by`` divides, divided by it, and the others."""
    ((m, c),) = by.items()
    quotient: Poly = {}
    rest: Poly = {}
    for n, e in p.items():
        q = without(n, m) if e % c == 0 else None
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
        m = without(top, lead)
        if m is None or p[top] % q[lead]:
            return None
        out[m] = p[top] // q[lead]
        p = poly_sum(p, poly_product({m: out[m]}, q), -1)
    return None


def cancel(p: Poly, q: Poly) -> tuple[DimLike, DimLike, DimLike] | None:
    """(g, p / g, q / g) for a common factor g that is worth it."""
    m, c = _content(p, q)
    if m or c > 1:
        return dim_of({m: c}), _reduced(p, m, c), _reduced(q, m, c)
    if len(p) < 2 or len(q) < 2:
        return None
    (m, c), (n, e) = _signed_content(p), _signed_content(q)
    x, y = poly_of(_reduced(p, m, c)), poly_of(_reduced(q, n, e))
    quotient = _exact_quotient(x, y)
    if quotient is not None:
        return dim_of(y), multiply(dim_of({m: c}), dim_of(quotient)), dim_of({n: e})
    quotient = _exact_quotient(y, x)
    if quotient is not None:
        return dim_of(x), dim_of({m: c}), multiply(dim_of({n: e}), dim_of(quotient))
    return None


LONGEST = 2000  # symbols, numbers and signs of a text
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
FUNCTIONS = ("min", "max", "ceildiv", "select")  # ops that are written as calls
_SIGN = {"eq": "==", "lt": "<", "le": "<="}


def write(d: DimLike, level: int = 0) -> str:
    """Levels: 0 anything, 1 operand of a comparison, 2 left of //, 3 factor or divisor."""
    if isinstance(d, int):
        return str(d) if d >= 0 or level < 2 else f"({d})"
    args = d.args
    if d.op == "sym":
        if _IDENTIFIER.match(d.name) and d.name not in FUNCTIONS:
            return d.name
        return "'" + d.name.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if d.op in FUNCTIONS:
        return f"{d.op}({', '.join(write(a) for a in args)})"
    if d.op == "add":
        text, own = write(args[0], 1), 1
        for a in args[1:]:
            t = write(a, 1)
            text += f" - {t[1:]}" if t.startswith("-") else f" + {t}"
    elif d.op == "mul":
        c = args[0] if isinstance(args[0], int) else 1
        factors = [write(a, 3) for a in args if a is not c]
        if abs(c) > 1:
            factors.insert(0, str(abs(c)))
        text, own = "-" * (c < 0) + "*".join(factors), 1 if c < 0 else 2
    elif d.op in ("floordiv", "mod"):
        text, own = write(args[0], 3) + ("//" if d.op == "floordiv" else " % ") + write(args[1], 3), 2
    else:
        text, own = f"{write(args[0], 1)} {_SIGN[d.op]} {write(args[1], 1)}", 0
    return text if own >= level else f"({text})"
