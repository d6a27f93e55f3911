"""Bounds of symbolic integers, given those of their symbols. Inside, -inf and inf stand for unknown."""

from __future__ import annotations

from math import inf, prod

from .polynomial import DimLike, Poly, like, poly_of, poly_product, poly_sum, without

_HUGE = 2**200  # a bound beyond counts as infinite


def _cap(x: float) -> float:
    return -inf if x < -_HUGE else inf if x > _HUGE else x


def _mul_range(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    corners = [_cap(x * y) if x and y else 0 for x in a for y in b]
    return min(corners), max(corners)


def _div(x: float, y: float) -> float:
    if x in (inf, -inf):
        return x if y > 0 else -x
    return (0 if x == 0 or (x > 0) == (y > 0) else -1) if y in (inf, -inf) else x // y


def quotient_interval(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    lo, hi = b[0] or 1, b[1] or -1
    if lo > hi:  # the divisor is 0
        return -inf, inf
    if lo < 0 < hi:
        reach = max(abs(a[0]), abs(a[1]))
        return -reach, reach
    corners = [_div(x, y) for x in a for y in (lo, hi)]
    return min(corners), max(corners)


def _atom_range(op: str, args: tuple[DimLike, ...]) -> tuple[float, float]:
    ranges = [interval(a) for a in args]
    if op in ("eq", "lt", "le"):
        return 0, 1
    if op in ("min", "max"):
        pick = min if op == "min" else max
        return pick(r[0] for r in ranges), pick(r[1] for r in ranges)
    if op == "select":
        return min(r[0] for r in ranges[1:]), max(r[1] for r in ranges[1:])
    a, b = ranges
    if op == "floordiv":
        return quotient_interval(a, b)
    if op == "ceildiv":
        lo, hi = quotient_interval((-a[1], -a[0]), b)
        return -hi, -lo
    assert op == "mod"
    hi = max(0, b[1] - 1)
    return min(0, b[0] + 1), min(hi, a[1]) if a[0] >= 0 and b[0] >= 0 else hi


def interval(d: DimLike) -> tuple[float, float]:
    if isinstance(d, int):
        return d, d
    if d._bounds is None:
        if d._poly is None:
            d._bounds = _atom_range(d.op, d.args)
        else:
            d._bounds = lower_bound(d._poly), -lower_bound(poly_sum({}, d._poly, -1))
    return d._bounds


def lower_bound(p: Poly, depth: int = 4) -> float:
    """A lower bound of p: by intervals, and by replacing a nested atom by what bounds it."""
    best = _interval_lower(p)
    if depth == 0 or len(p) < 2:
        return best
    found = [(a, m) for m in p for a in m if a.op in ("min", "max", "select") or (a.op == "floordiv" and isinstance(a.args[1], int))]
    if not found:
        return best
    atom, m = max(found, key=lambda am: am[0]._order)
    cofactor = without(m, (atom,)) or ()
    if any(interval(a)[0] < 0 for a in cofactor):
        return best
    rest = {cofactor: p[m]}
    others = poly_sum(p, {m: p[m]}, -1)
    up = p[m] > 0
    if atom.op == "floordiv":
        x, k = atom.args
        assert isinstance(k, int)
        low = lower_bound(poly_sum(poly_product(poly_of(x + (1 - k) if up else x), rest), others, k), depth - 1)
        return max(best, low if low == -inf else -(-low // k))
    if atom.op == "select":
        return max(best, min(lower_bound(poly_sum(others, poly_product(poly_of(x), rest)), depth - 1) for x in atom.args[1:]))
    pick = max if (atom.op == "max") == up else min
    return max(best, pick(lower_bound(poly_sum(others, poly_product(poly_of(x), rest)), depth - 1) for x in atom.args))


def _interval_lower(p: Poly) -> float:
    total: float = 0
    for m, c in p.items():
        r: tuple[float, float] = (c, c)
        for a in m:
            r = _mul_range(r, interval(a))
        total += r[0]
    if len(p) < 2 or total == -inf or max(map(len, p)) < 2 or any(interval(a)[0] == -inf for m in p for a in m):
        return _cap(total)
    # Measure every atom from its lower bound: a*b - b becomes b*a' where a = 1 + a'.
    shifted: Poly = {}
    for m, c in p.items():
        term: Poly = {(): c}
        for a in m:
            lo = interval(a)[0]
            term = poly_product(term, {(a,): 1, (): int(lo)} if lo else {(a,): 1})
        shifted = poly_sum(shifted, term)
    from_lo: float = shifted.get((), 0)
    for m, c in shifted.items():
        if m and c < 0:
            widths = [r[1] - r[0] for r in map(interval, m)]
            from_lo += _cap(c * prod(widths)) if all(widths) else 0
    return _cap(max(total, from_lo))


def bounds(d: DimLike) -> tuple[int | None, int | None]:
    """An interval that holds every value of d (None: unbounded), given the bounds of its symbols and no division by 0."""
    lo, hi = interval(like(d))
    return None if lo == -inf else int(lo), None if hi == inf else int(hi)
