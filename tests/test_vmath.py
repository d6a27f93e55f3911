"""Elementary functions of float32 against float64, densely where their ways meet and where they end: within what vmath.h says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.test_kernels_map import flat

BOUNDS: dict[str, tuple[Callable[..., Any], float]] = {
    "exp": (np.exp, 1),
    "log": (np.log, 1),
    "tanh": (np.tanh, 2.5),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 2.5),
    "sin": (np.sin, 2.5),
    "cos": (np.cos, 2.5),
    "tan": (np.tan, 4),
    "asin": (np.arcsin, 2.5),
    "acos": (np.arccos, 2.5),
    "atan": (np.arctan, 2.5),
    "sinh": (np.sinh, 2.5),
    "cosh": (np.cosh, 2.5),
}
ENDS = (0.5, 1, np.pi / 4, np.pi / 2, 3, 9, 88.72284, 89.41599, 104, 2.0**28)


def numbers() -> np.ndarray:
    rng = np.random.default_rng(5)
    near = np.concatenate([end * (1 + np.ldexp(rng.uniform(-1, 1, 2000), -rng.integers(1, 24, 2000))) for end in ENDS])
    bits = rng.integers(0, 1 << 32, 60_000, dtype=np.uint32).view(np.float32)
    special = np.array([0, np.inf, np.nan, np.finfo(np.float32).tiny, 1e-45, np.finfo(np.float32).max], np.float32)
    x = np.concatenate([near, rng.uniform(-1, 1, 40_000), rng.uniform(-100, 100, 40_000), special]).astype(np.float32)
    return np.concatenate([x, -x, bits])


@pytest.mark.parametrize("name", BOUNDS)
def test_units_in_the_last_place(name: str) -> None:
    function, bound = BOUNDS[name]
    x = numbers()
    got = flat([(name, "float32", 1, 0)], "float32", x)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
        rounded = want.astype(np.float32)
        off = np.abs(got.astype(np.float64) - want) / np.maximum(np.spacing(np.abs(rounded)), np.finfo(np.float32).tiny)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    assert np.isfinite(got[finite]).all()
    worst = np.argmax(np.where(finite, off, 0))
    assert off[worst] <= bound, (x[worst], got[worst], want[worst])
    odd = name in ("tanh", "sin", "tan", "asin", "atan", "sinh")
    assert not odd or (np.signbit(got[x == 0]) == np.signbit(x[x == 0])).all()
