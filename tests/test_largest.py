"""The largest and the smallest of float32, several numbers at a time, against numpy on every build."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kernel_call import BUILDS, Array, run, use

F4 = np.float32


def rows(n: int, kind: str, outer: int = 3) -> Array:
    rng = np.random.default_rng(n)
    x = rng.standard_normal((outer, n)).astype(F4)
    if kind == "equal":
        x = np.round(x).astype(F4)
    elif kind == "one":
        x[:] = -0.0
    elif kind == "rising":
        x.sort(1)
    elif kind == "infinite":
        x[rng.random(x.shape) < 0.3] = -np.inf
        x[:, n // 2 :][rng.random((outer, n - n // 2)) < 0.01] = np.inf
    elif kind == "nan":
        x[:, rng.integers(0, n, 3)] = np.nan
    elif kind == "first nan":
        x[:, 0] = np.nan
    elif kind == "all nan":
        x[:] = np.nan
    return x


KINDS = ["plain", "equal", "one", "rising", "infinite", "nan", "first nan", "all nan"]


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("kind", KINDS)
def test_argreduce(kind: str, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(isa, monkeypatch)
    for n, op, last, inner in itertools.product((1, 31, 128, 129, 1000, 5000), (0, 1), (0, 1), (1, 3, 70)):
        x = rows(n, kind, 3 * inner).reshape(3, inner, n).swapaxes(1, 2)
        find = (np.argmax, np.argmin)[op]
        want = n - 1 - find(x[:, ::-1], 1) if last else find(x, 1)
        y = run("argreduce", [("int64", (3, inner))], [x], 2, op=op, select_last=last, outer=3, n=n, inner=inner)
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("kind", KINDS)
def test_topk(kind: str, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(isa, monkeypatch)
    for n, k, largest in itertools.product((64, 1000, 5003), (1, 10, 60), (0, 1)):
        x = rows(n, kind)
        keys = np.where(np.isnan(x), np.inf, x).astype(float) + 0.0, ~np.isnan(x)  # NaN is the largest number
        order = np.stack([np.lexsort((np.arange(n), *((nan, -key) if largest else (~nan, key)))) for key, nan in zip(*keys, strict=True)])
        want = order[:, :k]
        outs = [("float32", (3, k)), ("int64", (3, k))]
        values, indices = run("topk", outs, [x], 2, outer=3, n=n, inner=1, k=k, largest=largest)
        np.testing.assert_array_equal(indices, want)
        np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))
