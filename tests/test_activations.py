"""Activations behind a product, over the whole range of float32, for rows and columns that fill tiles and that do not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from kernel_call import BUILDS, run, use

# The place among the activations, what it is of a double, and its bounds: relative, and absolute.
CURVES: dict[str, tuple[int, Callable[[float], float], float, float]] = {
    "sigmoid": (3, lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0, 3e-7, 1.2e-38),
    "silu": (5, lambda x: x / (1 + math.exp(-x)) if x > -700 else 0.0, 3e-7, 4e-36),
    "gelu": (6, lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)), 3e-7, 2e-7),
    "gelu_tanh": (7, lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), 5e-7, 3e-7),
}
EDGES = [0.0, 1e-45, 1e-38, 80.0, 87.2, 87.33, 87.4, 87.7, 88.0, 88.3, 88.38, 88.6, 88.72, 88.73, 89.0, 104.0, 1e3, 1e12]


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("name", CURVES)
def test_everywhere(name: str, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(isa, monkeypatch)
    code, curve, relative, absolute = CURVES[name]
    rng = np.random.default_rng(0)
    values = np.concatenate([EDGES, rng.uniform(0, 12, 3000), rng.uniform(0, 100, 1000), 10 ** rng.uniform(-38, 6, 500)])
    values = np.concatenate([values, -values]).astype(np.float32)
    exact = np.array([curve(float(v)) for v in values])
    for other in (1, 2, 3, 5, 6, 7, 8, 9, 13, 16, 17, 24, 31, 32, 48, 50, 100):
        ones = np.ones(other, np.float32)
        for a, b in ((values, ones), (ones, values)):
            m, n = len(a), len(b)
            y = run("matmul", [("float32", [m * n])], [a, b, None, None], m=m, n=n, k=1, a_rs=1, a_cs=1, b_rs=n, b_cs=1, y_rs=n, act=code,
                    alpha=1.0)  # fmt: skip
            y = y.reshape(m, n) if a is values else y.reshape(m, n).T
            error = np.abs(y - exact[:, None])
            assert (error <= (relative * np.abs(exact) + absolute)[:, None]).all(), (m, n, values[error.max(1).argmax()], error.max())


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("name", CURVES)
def test_what_is_no_number(name: str, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN stays NaN, and only where it is; of infinity comes infinity, or 1, of the negative one 0 where a curve ends there."""
    use(isa, monkeypatch)
    ends = name == "sigmoid"
    values = np.array([np.nan, 1, np.inf, -1, 2, np.nan, 3, np.inf, 0, -np.inf if ends else -2], np.float32)
    for n in (1, 7, 8, 16, 30):
        y = run("matmul", [("float32", [10 * n])], [values, np.ones(n, np.float32), None, None], m=10, n=n, k=1, a_rs=1, a_cs=1, b_rs=n,
                b_cs=1, y_rs=n, act=CURVES[name][0], alpha=1.0).reshape(10, n)  # fmt: skip
        assert (np.isnan(y) == np.isnan(values)[:, None]).all()
        assert (y[[2, 7]] == (1 if ends else np.inf)).all()
        assert not ends or (y[9] == 0).all()
