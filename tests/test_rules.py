"""Each rule of ``simplify`` against the kernel: what it puts in place of an expression gives the same on special values of every dtype."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from test_kernels_map import bits, flat
from test_scalar import FLOATS, INTS, special

from pyonnx_wasm.dtypes import from_numpy
from pyonnx_wasm.passes.simplify import RULES, simplified
from pyonnx_wasm.runtimes.core import CoreError
from pyonnx_wasm.tensor import expression
from pyonnx_wasm.tensor.expression import Expression, make

Rule = Callable[[Expression], Expression | None]
EXACT = {"_fold", "_neutral", "_by_power_of_two", "_clamp"}
PAIRS = ("min", "max")


def values(e: Expression, dtype: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the kernel gives for x, a bool and x again; a choice between x and x where there is nothing to compute."""
    written = expression.code(e, 3) or [("where", from_numpy(np.dtype(dtype)), 3, 1, 0, 0)]
    code = [(n, int(d), dst, bits(d.name, a) if n == "const" else a, *more) for n, d, dst, a, *more in written]
    return flat(code, dtype, x, np.arange(x.size) % 2 == 0, x[::-1].copy())


def expressions(dtype: str) -> Iterator[Expression]:
    """Operations on x and constants, and two of them on each other, in every order."""
    pool: expression.Pool = {}
    d = from_numpy(np.dtype(dtype))
    x = make(pool, "in", d, (), [0])
    numbers = [float(v) if d.is_float else int(v) for v in special(dtype)] + ([-0.0, 4.0, 0.125, 1e-40, 2.0**-126] if d.is_float else [4])
    consts = dict.fromkeys(make(pool, "const", d, (), [v]) for v in numbers)
    yield make(pool, "cast", d, [x], [int(d)])
    yield make(pool, "where", d, [make(pool, "in", from_numpy(np.dtype(bool)), (), [1]), x, x])
    for name, c in itertools.product(("add", "sub", "mul", "div", *PAIRS), consts):
        yield make(pool, name, d, [x, c])
        yield make(pool, name, d, [c, x])
    for a, b in itertools.product(consts, consts):
        for name in ("add", "sub", "mul", "div", *PAIRS):
            yield make(pool, name, d, [a, b])
    inner = [make(pool, n, d, o) for n in PAIRS for c in consts for o in ([x, c], [c, x])] + [make(pool, "relu", d, [x])]
    for i, name, c in itertools.product(inner, PAIRS, consts):
        yield make(pool, name, d, [i, c])
        yield make(pool, name, d, [c, i])


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Equal with the signs of zeros; one NaN is as good as another."""
    if a.dtype.kind != "f":
        return a == b
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("rule", [r for r in RULES if r.__name__ in EXACT], ids=lambda r: r.__name__)
def test_rule(rule: Rule, dtype: str) -> None:
    x = np.concatenate([special(dtype), np.array([0.3, -7, 1e-40, 1e-45, -0.0, 5], dtype)]) if dtype in FLOATS else special(dtype)
    tried = 0
    for e in expressions(dtype):
        found = rule(e)
        if found is None or (rule.__name__ == "_fold" and tried > 400):
            continue
        tried += 1
        try:
            want = values(e, dtype, x)
        except CoreError:
            continue  # the dtype has no such instruction
        got = values(found, dtype, x)
        assert same(want, got).all(), (expression.code(e, 3), expression.code(found, 3), x[~same(want, got)], want, got)
    assert tried or dtype in INTS


def chain(pool: expression.Pool, *steps: tuple[Any, ...]) -> Expression:
    """Float32 operations by name over earlier results (integers; 0 is x) and constants (floats)."""
    d = from_numpy(np.dtype(np.float32))
    done = [make(pool, "in", d, (), [0])]
    for name, *args in steps:
        operands = [make(pool, "const", d, (), [float(np.float32(a))]) if isinstance(a, float) else done[a] for a in args]
        done.append(make(pool, name, d, operands))
    return done[-1]


CUBE = [("mul", 0, 0), ("mul", 1, 0), ("mul", 2, 0.044715), ("add", 0, 3)]
SQUARE = [("mul", 0, 0), ("mul", 1, 0.044715), ("add", 2, 1.0), ("mul", 3, 0)]
FORMULAS = {
    "silu": [("sigmoid", 0), ("mul", 1, 0)],
    "gelu": [("mul", 0, 0.5**0.5), ("erf", 1), ("add", 1.0, 2), ("mul", 0, 0.5), ("mul", 4, 3)],
    "gelu (x (1 + erf)) / 2": [("div", 0, 2**0.5), ("erf", 1), ("add", 2, 1.0), ("mul", 0, 3), ("div", 4, 2.0)],
    "gelu_tanh": [*CUBE, ("mul", 4, 0.7978845608), ("tanh", 5), ("add", 1.0, 6), ("mul", 7, 0.5), ("mul", 0, 8)],
    "gelu_tanh of squares": [*SQUARE, ("mul", 4, 0.7978845608), ("tanh", 5), ("add", 6, 1.0), ("mul", 0, 7), ("mul", 8, 0.5)],
    "hardswish": [("div", 0, 6.0), ("add", 1, 0.5), ("clamp", 2, 0.0, 1.0), ("mul", 0, 3)],
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_activation(formula: str) -> None:
    e = chain({}, *FORMULAS[formula])
    found = expression.rebuild(e, simplified)
    assert (found.name, found.args[0].name) == (formula.split()[0], "in")
    x = np.concatenate([np.linspace(-12, 12, 97), [1e30, -1e30, 1e-30, -1e-40, 0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    np.testing.assert_allclose(values(found, "float32", x), values(e, "float32", x), rtol=3e-6, atol=5e-7)
