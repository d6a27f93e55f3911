"""The kernels ``softmax``, ``norm`` and ``attention`` against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_call import BUILDS, Array, offset, refused, run, steps, use

FLOATS = ["float32", "float64"]


def near(got: Array, want: Array, tolerance: float) -> None:
    with np.errstate(invalid="ignore"):
        ok = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= tolerance * (1 + np.abs(want)))
    assert ok.all(), (np.argwhere(~ok)[:3], got[~ok][:3], want[~ok][:3])


# ---- softmax ----


@np.errstate(all="ignore")
def softmax(x: Array, log: bool) -> Array:
    x = x.astype(float)
    shifted = x - x.max(1, keepdims=True, initial=-np.inf)
    total = np.exp(shifted).sum(1, keepdims=True)
    return np.asarray(shifted - np.log(total) if log else np.exp(shifted) / total)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 130, 1009])
@pytest.mark.parametrize("inner", [1, 2, 15, 16, 33])
@pytest.mark.parametrize("log", [False, True])
def test_softmax(dtype: str, n: int, inner: int, log: bool) -> None:
    rng = np.random.default_rng(n)
    for outer in (0, 1, 5):
        x = (rng.standard_normal((outer, n, inner)) * 10).astype(dtype)
        x[rng.random(x.shape) < 0.05] = -np.inf
        if x.size:
            x[0, :, 0] = -np.inf
            x[-1, 0, -1] = rng.choice([np.nan, np.inf, 1e30])
        y = run("softmax", [(dtype, x.shape)], [x], 1 + outer % 3, outer=outer, n=n, inner=inner, log=log)
        near(y, softmax(x, log), 2e-6 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("inner", [1, 3])
@pytest.mark.parametrize("low", [-0.1, -0.3, -1.7])
def test_softmax_of_long_rows(isa: str, inner: int, low: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nearly equal terms a sum loses some of each, on one side."""
    use(isa, monkeypatch)
    for n in (5000, 50257, 300007):
        x = np.full((1, n, inner), low, np.float32)
        x[0, 0] = 0
        for log in (False, True):
            y = run("softmax", [("float32", x.shape)], [x], outer=1, n=n, inner=inner, log=log)
            want = softmax(x, log)
            assert np.abs(y - want if log else y / want - 1).max() < 2.5e-6


def test_softmax_refuses() -> None:
    x = np.zeros(12, np.float32)
    refused("softmax", [("float32", [12])], [x], outer=2, n=7, inner=1)
    refused("softmax", [("float32", [12])], [x], outer=-1, n=-3, inner=4)
    refused("softmax", [("float32", [12])], [x], outer=1 << 40, n=1 << 40, inner=1)
    refused("softmax", [("float64", [12])], [x], outer=1, n=12, inner=1)


# ---- norm ----

SHAPES = {
    "layer": [(rows, n, 1, 0, 1) for rows in (0, 1, 7) for n in (1, 2, 15, 16, 17, 384, 1009, 5000)],
    "instance": [(2 * c, n, c, 1, n) for c in (1, 3) for n in (1, 2, 49, 1000, 20011)],
    "group": [(2 * g, per * n, g, per, n) for g in (1, 4) for per in (1, 3) for n in (1, 9, 130)],
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("mean", [0, 1000])
def test_norm(dtype: str, rms: bool, kind: str, mean: float) -> None:
    rng = np.random.default_rng(7)
    for rows, n, row_mod, row_mul, inner in SHAPES[kind]:
        x = (rng.standard_normal((rows, n)) * 3 + mean).astype(dtype)
        index = (np.arange(rows)[:, None] % row_mod) * row_mul + np.arange(n)[None] // inner
        scale, bias = (rng.standard_normal(index.max(initial=0) + 1).astype(dtype) if rng.random() < 0.7 else None for _ in range(2))
        stats = (dtype, [rows]) if rng.random() < 0.7 else None
        given: dict[str, Any] = {"rows": rows, "n": n, "rms": rms, "row_mod": row_mod, "row_mul": row_mul, "inner": inner, "eps": 1e-5}
        got = run("norm", [(dtype, x.shape), stats, stats], [x, scale, bias], 1 + rows % 4, **given)
        wide = x.astype(float)
        center = wide.mean(1, keepdims=True) * (not rms)
        inverse = 1 / np.sqrt(((wide - center) ** 2).mean(1, keepdims=True) + 1e-5)
        want = (wide - center) * inverse * (1 if scale is None else scale[index]) + (0 if bias is None else bias[index])
        tolerance = 4e-6 if dtype == "float32" else 1e-11
        near(got[0] if stats else got, want, tolerance)
        if stats:
            near(got[1], center[:, 0], tolerance)
            near(got[2], inverse[:, 0], tolerance)


@pytest.mark.parametrize("size", [1e-25, 1e-20, 1e19, 1e30, 1e38])
@pytest.mark.parametrize("n", [2, 16, 77])
@pytest.mark.parametrize("rms", [False, True])
def test_norm_of_extremes(size: float, n: int, rms: bool) -> None:
    """The squares of what float32 holds are not all float32."""
    x = (np.random.default_rng(n).uniform(0.5, 1, (3, n)) * size * [[1], [-1], [3]]).astype(np.float32)
    got = run("norm", [("float32", x.shape), None, None], [x, None, None], 2, rows=3, n=n, rms=rms, row_mod=1, row_mul=0, inner=1, eps=0.0)
    wide = x.astype(float)
    center = wide.mean(1, keepdims=True) * (not rms)
    near(got, (wide - center) / np.sqrt(((wide - center) ** 2).mean(1, keepdims=True)), 4e-6)


def test_norm_refuses() -> None:
    x, scale = np.zeros(12, np.float32), np.zeros(3, np.float32)
    good: dict[str, Any] = {"rows": 3, "n": 4, "row_mod": 3, "row_mul": 1, "inner": 4, "eps": 1e-5}
    run("norm", [("float32", [12]), None, None], [x, scale, None], **good)
    for bad in ({"rows": 4}, {"n": -4}, {"row_mod": 0}, {"inner": 0}, {"inner": 3}, {"row_mul": 2}, {"row_mul": 1 << 62}, {"row_mul": -1}):
        refused("norm", [("float32", [12]), None, None], [x, scale, None], **{**good, **bad})
    refused("norm", [("float32", [12]), ("float32", [2]), None], [x, scale, None], **good)


# ---- attention ----


@np.errstate(all="ignore")
def attend(q: Array, k: Array, v: Array, mask: Any, causal: bool, past: int, scale: float, softcap: float) -> Array:
    rep, sq, sk = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    k, v = (np.repeat(a.astype(float), rep, 1) for a in (k, v))
    scores = scale * (q.astype(float) @ k.swapaxes(2, 3))
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = scores + mask
    if causal:
        scores = np.where(np.arange(sk)[None] > np.arange(sq)[:, None] + past, -np.inf, scores)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.where(np.isneginf(top), 0, np.exp(scores - np.where(np.isneginf(top), 0, top)))
    total = weights.sum(-1, keepdims=True)
    return np.asarray(np.where(total == 0, 0, weights @ v / np.where(total == 0, 1, total)))


def attention_params(y: Array, q: Array, k: Array, v: Array, mask: Array | None, base: Array | None) -> dict[str, Any]:
    names = {"q": (q, "bhs"), "k": (k, "bhsd"), "v": (v, "bhs"), "y": (y, "bhs")}
    out = {f"{n}_{axis}": s for n, (a, axes) in names.items() for axis, s in zip(axes, steps(a), strict=False)}
    if mask is not None and base is not None:
        strides = [0 if n == 1 else s for n, s in zip(mask.shape, steps(mask), strict=True)]
        out |= dict(zip(("m_b", "m_h", "m_q", "m_k"), strides, strict=True)) | {"moff": offset(mask, base)}
    batch, heads, sq, d = q.shape
    return out | {"batch": batch, "heads": heads, "rep": heads // k.shape[1], "sq": sq, "sk": k.shape[2], "d": d, "dv": v.shape[3]}


@pytest.mark.parametrize("seed", range(300))
def test_attention(seed: int) -> None:
    """Any layout of the keys, grouped heads, masks of every broadcast, caps, causality with and without a past."""
    rng = np.random.default_rng(seed)
    pick = lambda *values: int(rng.choice(values))  # noqa: E731
    batch, kv, rep = pick(1, 2), pick(1, 2, 3), pick(1, 1, 2, 3)
    heads, sq, sk = kv * rep, pick(0, 1, 1, 2, 3, 4, 5, 15, 16, 17, 33, 50), pick(0, 1, 2, 3, 7, 16, 17, 31, 32, 33, 65, 129, 300)
    d, dv = pick(1, 2, 3, 8, 15, 16, 17, 32, 40, 64), pick(1, 3, 8, 16, 17, 20, 32, 48, 64, 80)

    def stored(order: tuple[int, ...], *shape: int) -> tuple[Array, Array]:
        base = rng.standard_normal([shape[a] for a in order]).astype(np.float32)
        return base, base.transpose(np.argsort(order))

    qb, q = stored((0, 2, 1, 3), batch, heads, sq, d)
    kb, k = stored([(0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 3, 1)][pick(0, 1, 2)], batch, kv, sk, d)
    vb, v = stored((0, 2, 1, 3), batch, kv, sk, dv)
    mask = base = None
    if rng.random() < 0.5:
        base = rng.standard_normal([n if rng.random() < 0.6 else 1 for n in (batch, heads, sq, sk)]).astype(np.float32)
        base[rng.random(base.shape) < (1.1 if rng.random() < 0.1 else 0.3)] = -np.inf
        mask = base
    options = {"causal": pick(0, 1), "past": pick(0, sk - sq, -2, 5), "scale": float(d**-0.5), "softcap": float(pick(0, 0, 5))}
    y = np.empty((batch, sq, heads, dv), np.float32)
    given = attention_params(y.swapaxes(1, 2), q, k, v, mask, base)
    got = run("attention", [("float32", y.shape)], [qb, kb, vb, base], pick(1, 2, 4), **given, **options)
    near(got.swapaxes(1, 2), attend(q, k, v, 0 if mask is None else mask, **options), 1e-5)


@pytest.mark.parametrize("isa", BUILDS)
def test_attention_to_many_keys(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(isa, monkeypatch)
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((1, 1, n, 32)).astype(np.float32) / 10 for n in (8, 40_001))
    v = np.ones_like(k)
    y = np.empty((1, 8, 1, 32), np.float32)
    given = attention_params(y.swapaxes(1, 2), q, k, v, None, None)
    got = run("attention", [("float32", y.shape)], [q, k, v, None], scale=1.0, **given)
    assert np.abs(got - 1).max() < 1.5e-5


def test_attention_refuses() -> None:
    q = np.zeros((1, 2, 3, 4), np.float32)
    mask = np.zeros((1, 1, 3, 3), np.float32)
    good = {**attention_params(q, q, q, q, mask, mask), "scale": 1.0}
    run("attention", [("float32", q.shape)], [q, q, q, mask], **good)
    outside = [{"sk": 4}, {"sq": 4}, {"d": 5}, {"dv": 5}, {"heads": 3}, {"qoff": -1}, {"koff": 1}, {"k_d": 2}, {"m_k": 9}, {"moff": 1}]
    huge = [{"y_s": 1 << 60}, {"past": 1 << 62}, {"sk": 1 << 46, "k_s": 0, "v_s": 0, "m_k": 0, "d": 1 << 40}]
    for bad in [*outside, *huge, {"rep": 0}, {"batch": -1}]:
        refused("attention", [("float32", q.shape)], [q, q, q, mask], **{**good, **bad})
    refused("attention", [("float32", q.shape)], [q, q.astype(np.float64), q, mask], **good)
