from __future__ import annotations

import copy
import itertools
import operator
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest

from pyonnx_wasm.ir.dims import (
    MAX_SIZE,
    Dim,
    DimLike,
    bounds,
    ceildiv,
    dmax,
    dmin,
    eq,
    evaluate,
    ge,
    gt,
    known,
    le,
    lt,
    ne,
    product,
    same,
    select,
    substitute,
    sym,
    symbols,
)
from pyonnx_wasm.ir.dims_text import parse

batch, seq, past, h, w = (sym(n) for n in ("batch", "seq", "past", "h", "w"))
one = sym("one", lo=1)
start = sym("start[0]", lo=-(2**63), hi=2**63 - 1)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ((batch * seq * 384) // (seq * 384), batch),
        ((batch * 12 * seq * 32) // (batch * 12), seq * 32),
        ((batch * seq * 768) // (batch * 12 * 64), seq),
        ((h + 2 - 3) // 2 + 1, (h + 1) // 2),
        ((batch * ((h + 1) // 2) * ((w + 1) // 2) * 64) // (batch * 64 * ((h + 1) // 2)), (w + 1) // 2),
        ((past + seq) * batch - past * batch - seq * batch, 0),
        ((batch + 1) * seq - batch * seq - seq, 0),
        ((batch + 1) * (seq + past) // (seq + past), batch + 1),
        (batch * (h + 1) // (seq * (h + 1)), batch // seq),
        (h // 2 // 3, h // 6),
        ((h // 2 + 1) // 3, (h + 2) // 6),
        (h * 4 // 4, h),
        ((h * 4 + 3) // 4, h),
        ((h * 4 + sym("r", 0, 3)) // 4, h),
        (h * 8 % 4, 0),
        (batch * seq % seq, 0),
        ((batch * seq + past) % seq, past % seq),
        ((h % 12 + w) % 4, (h + w) % 4),
        (ceildiv(h * 4, 4), h),
        (ceildiv(batch * seq, seq), batch),
        (ceildiv(h, 2), (h + 1) // 2),
        (dmax(h, h + 1), h + 1),
        (dmin(h, h + 1, 3 + h), h),
        (dmax(h, 0), h),
        (dmax(-1, 0, 3), 3),
        (dmin(dmax(0, 0), h), 0),
        (dmin(dmax(h + w, 0), h), h),
        (dmin(dmax(w, h), h), h),
        (dmin(MAX_SIZE, h), h),
        (dmin(2**62, h), h),
        (dmax(seq * one, seq), seq * one),
        (eq(h, h), 1),
        (eq(h, h + 1), 0),
        (eq(h * 2, 1), 0),
        (eq(h, -1), 0),
        (eq(h * 2, w * 2), eq(w, h)),
        (lt(h, h + 1), 1),
        (le(0, h), 1),
        (lt(h, 0), 0),
        (ge(h + w, w), 1),
        (gt(one * h, h * one), 0),
        (select(1, h, w), h),
        (select(eq(h, 1), w, w), w),
        (select(ne(h, 1), w, h), select(eq(h, 1), h, w)),
        (select(eq(h, w), h, w), w),
        (select(eq(h, 1), 1, 0), eq(h, 1)),
        (product([2, h, w, 3]), 6 * h * w),
        (product([]), 1),
        (h - h, 0),
        (h // h, 1),
        (0 // h, 0),
        (h // -1, -h),
        (-(h // 1), 0 - h),
        (h % 1, 0),
        (sym("n", 0, 7) // 8, 0),
        (sym("n", 0, 7) % 8, sym("n")),
    ],
)
def test_folds(got: DimLike, want: DimLike) -> None:
    assert got == want
    assert type(got) is type(want)


def test_equality_is_structural_and_by_name() -> None:
    assert sym("a", 1, 5) == sym("a")
    assert hash(sym("a", 1, 5)) == hash(sym("a"))
    assert sym("a", 1, 5) - sym("a") == 0
    assert sym("a") != sym("b")
    assert (sym("a") == 1) is False
    assert (h * w + 1 == 1 + w * h) is True
    assert len({h + w, w + h, h}) == 2


def test_bounds_of_one_symbol_do_not_leak_into_another_of_its_name() -> None:
    assert dmax(sym("a", 1), 1) == sym("a")
    assert dmax(sym("a"), 1) != sym("a")
    assert bounds(sym("a", 1) + 1)[0] == 2
    assert bounds(sym("a") + 1)[0] == 1


@pytest.mark.parametrize("use", [bool, int, operator.index, range, lambda d: d < 3, lambda d: [0, 1][d]])
def test_symbolic_sizes_are_not_numbers(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="h is symbolic"):
        use(h)


def test_operands_must_be_integers() -> None:
    with pytest.raises(TypeError):
        h * 1.5  # type: ignore[operator]
    assert type(dmax(True, False)) is int


def test_numpy_integers_are_integers() -> None:
    np = pytest.importorskip("numpy")
    for x in (np.int64(2) * h, h * np.int64(2)):
        assert x == 2 * h
        assert isinstance(x, Dim)
    assert type(dmin(np.int32(3), 5)) is int
    assert np.int64(7) // (h + 1) == 7 // (h + 1)


def test_constant_division_by_zero() -> None:
    for divide in (operator.floordiv, operator.mod, ceildiv):
        with pytest.raises(ZeroDivisionError):
            divide(h, 0)
    with pytest.raises(ZeroDivisionError):
        evaluate(batch // seq, {"batch": 1, "seq": 0})


@pytest.mark.parametrize(
    ("d", "text"),
    [
        (batch * seq + 1, "batch*seq + 1"),
        ((seq + 1) // 2, "(seq + 1)//2"),
        (dmax(batch, seq), "max(batch, seq)"),
        (select(eq(batch, 1), 0, seq), "select(batch == 1, 0, seq)"),
        (1 - h, "-h + 1"),
        (2 * h - 3 * w, "2*h - 3*w"),
        (3 * (h // 2), "3*(h//2)"),
        (h // (w + 1), "h//(w + 1)"),
        (h % 8, "h % 8"),
        (2 * eq(h, w), "2*(h == w)"),
        (sym("past_sequence_length + 1") + 1, "'past_sequence_length + 1' + 1"),
        (sym("max"), "'max'"),
        (start, "'start[0]'"),
    ],
)
def test_text(d: DimLike, text: str) -> None:
    assert str(d) == repr(d) == text
    assert parse(text) == d


@pytest.mark.parametrize("name", ["", " ", "'", "\\", "\\'", "a\nb", "é", "漢", "select", "1", "a-b", "'a' + b", "\ud800", "\0"])
def test_any_name_reads_back(name: str) -> None:
    assert parse(str(sym(name) * 2 + 1)) == sym(name) * 2 + 1
    assert symbols(parse(str(sym(name)))) == (name,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h +",
        "h w",
        "(h",
        "max(",
        "max()",
        "select(h, 1)",
        "ceildiv(h)",
        "h ? 2",
        "'h",
        "h//0",
        "h % (1 - 1)",
        "a == b == c",
        "(" * 99999,
    ],
)
def test_malformed_text(text: str) -> None:
    with pytest.raises(ValueError, match="dimension"):
        parse(text)


def test_parse_reads_ordinary_arithmetic() -> None:
    assert parse("2 + 3*4 - -1") == 15
    assert parse("h*w//w") == h
    assert parse("h != 1") == ne(h, 1)
    assert parse("h >= 3") == ge(h, 3)
    assert parse("n + 1", {"n": 4}) == 5
    assert dmax(parse("s", {"s": start}), 0) == dmax(start, 0)


def test_questions() -> None:
    d = batch * (seq // 2) + dmin(past, h)
    assert symbols(d) == ("batch", "h", "past", "seq")
    assert symbols(3) == ()
    assert known(3) == 3
    assert known(h) is None
    assert substitute(d, {"seq": 2 * w, "past": h}) == batch * w + h
    assert substitute(d, {"batch": 2, "seq": 5, "past": 3, "h": 4}) == evaluate(d, {"batch": 2, "seq": 5, "past": 3, "h": 4}) == 7
    assert same(h // 4 * 4 + h % 4, h)
    assert not same(h, w)
    assert not same(h // 2 * 2, h)


def test_bounds() -> None:
    assert bounds(7) == (7, 7)
    assert bounds(h) == (0, MAX_SIZE)
    assert bounds(h - w) == (-MAX_SIZE, MAX_SIZE)
    assert bounds(batch * one - batch)[0] == 0
    assert bounds(dmin(dmax(start, 0), seq)) == (0, MAX_SIZE)
    assert bounds(seq - dmin(dmax(start, 0), seq))[0] == 0
    assert bounds(one - (one + 1) // 2)[0] == 0
    assert bounds(h % 8) == (0, 7)
    assert bounds(h // (w + 1)) == (0, MAX_SIZE)
    assert bounds(product([start] * 8)) == (None, None)


def test_a_bound_holds_for_powers_of_what_may_be_negative() -> None:
    c, t, on = sym("c", -9, 9), sym("t", -9, 9), eq(h, w)
    m = dmin(c, t)
    smaller = dmin(dmax(t, 1), on * m * m)
    assert evaluate(smaller, {"c": -9, "t": -8, "h": 1, "w": 1}) == 1


def test_copies_and_pickles_are_the_same_object() -> None:
    for d in (sym("x", -3, 9) * h + dmin(h, sym("y", 2, 3)), sym("x", -3, 9)):
        assert copy.deepcopy(d) is d
        assert pickle.loads(pickle.dumps(d)) is d


def test_products_of_long_sums_stay_small() -> None:
    xs = sum(sym(f"x{i}") for i in range(12))
    ys = sum(sym(f"y{i}") for i in range(12))
    d = xs * ys * 3 + 1
    assert isinstance(d, Dim)
    assert len(d.args) == 2
    assert parse(str(d)) == d
    assert same(d, ys * xs * 3 + 1)
    assert evaluate(d, dict.fromkeys(symbols(d), 1)) == 433
    assert (xs * ys) // (ys * 1) in (xs, (xs * ys) // ys)
    grown: DimLike = 1
    for _ in range(30):
        grown = grown * (h + w + 1)
    assert evaluate(grown, {"h": 1, "w": 1}) == 3**30


def test_long_chains_do_not_recurse() -> None:
    d: DimLike = h
    for i in range(1500):
        d = dmax(d // 3 + w, w * 2 + i)
        d = d if isinstance(d, Dim) else h
    evaluate(d, {"h": 5, "w": 1})
    substitute(d, {"h": 5})
    assert symbols(d)


# Random expressions, against the same tree computed with plain integers.

Env = dict[str, int]
Tree = tuple[DimLike, Callable[[Env], int]]
I64 = 2**63
SYMBOLS: list[tuple[str, int, int]] = [
    ("a", 0, 9),
    ("b", 1, 6),
    ("c", -5, 5),
    ("d", 0, MAX_SIZE),
    ("e f", 1, MAX_SIZE),
    ("s[0]", -I64, I64 - 1),
    ("k", 3, 3),
    ("z", 0, 0),
]
SYMS = {n: sym(n, lo, hi) for n, lo, hi in SYMBOLS}
BINARY: list[tuple[Callable[[Any, Any], DimLike], Callable[[int, int], int]]] = [
    (operator.add, operator.add),
    (operator.sub, operator.sub),
    (operator.mul, operator.mul),
    (operator.mul, operator.mul),
    (operator.floordiv, operator.floordiv),
    (operator.floordiv, operator.floordiv),
    (operator.mod, operator.mod),
    (ceildiv, lambda x, y: -(-x // y)),
    (dmin, min),
    (dmax, max),
    (eq, lambda x, y: int(x == y)),
    (ne, lambda x, y: int(x != y)),
    (lt, lambda x, y: int(x < y)),
    (le, lambda x, y: int(x <= y)),
    (gt, lambda x, y: int(x > y)),
    (ge, lambda x, y: int(x >= y)),
]


def tree(rng: random.Random, depth: int) -> Tree:
    if depth == 0 or rng.random() < 0.1:
        if rng.random() < 0.3:
            k = rng.choice([-4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12])
            return k, lambda env: k
        name = rng.choice(list(SYMS))
        return SYMS[name], lambda env: env[name]
    if rng.random() < 0.1:
        (c, cf), (a, af), (b, bf) = (tree(rng, depth - 1) for _ in range(3))
        return select(c, a, b), lambda env: [bf(env), af(env)][cf(env) != 0]
    dim, plain = rng.choice(BINARY)
    (a, af), (b, bf) = tree(rng, depth - 1), tree(rng, depth - 1)
    if rng.random() < 0.2:  # make cancellation likely
        a, af = a * b, lambda env, af=af: af(env) * bf(env)  # type: ignore[misc]
    return dim(a, b), lambda env: plain(af(env), bf(env))


def trees(seed: int, count: int) -> list[Tree]:
    rng = random.Random(seed)
    out: list[Tree] = []
    while len(out) < count:
        try:
            out.append(tree(rng, rng.randint(1, 5)))
        except ZeroDivisionError:
            continue
    return out


def environments(rng: random.Random, count: int) -> list[Env]:
    def draw(lo: int, hi: int) -> int:
        return rng.choice([lo, hi, rng.randint(lo, hi), rng.randint(max(lo, -9), min(hi, 9)), rng.randint(max(lo, -9), min(hi, 9))])

    return [{n: draw(lo, hi) for n, lo, hi in SYMBOLS} for _ in range(count)]


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions(seed: int) -> None:
    envs = environments(random.Random(seed), 24)
    checked = 0
    for d, plain in trees(seed, 500):
        lo, hi = bounds(d)
        again = parse(str(d), SYMS)
        assert again == d, (d, again)
        assert substitute(d, {}) == d
        for i, env in enumerate(envs):
            try:
                want = plain(env)
            except ZeroDivisionError:
                continue
            checked += 1
            assert evaluate(d, env) == want, (d, env)
            assert lo is None or lo <= want, (d, env)
            assert hi is None or want <= hi, (d, env)
            if i % 8 == 0:
                assert substitute(d, env) == want
    assert checked > 4000


@pytest.mark.parametrize("seed", range(4))
def test_operators_say_what_they_are(seed: int) -> None:
    """``op`` and ``args`` compute the value, operation by operation."""
    for d, _ in trees(seed + 100, 300):
        stack = [d]
        while stack:
            x = stack.pop()
            if isinstance(x, Dim):
                assert x.op in {"sym", "add", "mul", "floordiv", "ceildiv", "mod", "min", "max", "eq", "lt", "le", "select"}
                assert bool(x.name) == (x.op == "sym")
                assert len(x.args) >= 2 or x.op == "sym"
                assert not any(isinstance(a, int) for a in x.args[1:] if x.op == "mul")
                stack.extend(x.args)


def test_algebra() -> None:
    xs = [d for d, _ in trees(7, 60)]
    for a, b in itertools.product(xs, xs):
        assert a + b == b + a
        assert a * b == b * a
        assert same(a + b - b, a)
        assert (le(a, b) == 1) == (gt(a, b) == 0)
        assert dmin(a, b) == dmin(b, a)
        assert dmax(a, b) == dmax(b, a)
        assert eq(a, b) == eq(b, a)


def test_a_text_is_never_longer_than_anybody_reads() -> None:
    """Each of forty steps uses the one before twice: written out, the last would have 2^40 symbols."""
    size = sym("n")
    for i in range(40):
        size = select(lt(size % (i + 7), 3), size // 2 + i, size + 1)
    assert str(size) == "..."
    assert str(sym("n") // 2 + 1) == "n//2 + 1"
