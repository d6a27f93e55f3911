"""Pooling and resizing, against numpy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from kernel_call import BUILDS, FLOATS, Array, assert_close, refused, run, sample, use

# ---- pool ----


def pooled(x: Array, op: int, out: Sequence[int], w: dict[str, Any]) -> tuple[Array, Array]:
    """x [planes, D, H, W] in float64, window by window; an empty one gives 0 (average) or -inf (max). Also the places of the maxima."""
    y, places = np.zeros((len(x), *out)), np.full((len(x), *out), -1)
    size = x.shape[1:]
    for o in np.ndindex(*out):
        taps, count = [], 1
        for d in range(3):
            start = o[d] * w["stride"][d] - w["pad"][d]
            places_d = [start + i * w["dilation"][d] for i in range(w["kernel"][d])]
            taps.append([i for i in places_d if 0 <= i < size[d]])
            padded = [i for i in places_d if -w["pad"][d] <= i < size[d] + w["pad_end"][d]]
            count *= len(padded if w["count_include_pad"] else taps[d])
        window = x[np.ix_(range(len(x)), *taps)].reshape(len(x), -1)
        if op == 0:
            y[(slice(None), *o)] = window.max(1, initial=-np.inf)
            for plane in range(len(x) if window.size else 0):
                d, h, v = (t[i] for t, i in zip(taps, np.unravel_index(window[plane].argmax(), [len(t) for t in taps]), strict=True))
                flat = (v * size[1] + h) * size[0] + d if w["storage_order"] else (d * size[1] + h) * size[2] + v
                places[(plane, *o)] = plane * math.prod(size) + flat
        elif op == 1:
            y[(slice(None), *o)] = window.sum(1) / max(count, 1)
        else:
            y[(slice(None), *o)] = (np.abs(window) ** w["p"]).sum(1) ** (1 / w["p"])
    return y, places


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(0, "float32"), (0, "float64"), (0, "int8"), (0, "uint8"), (1, "float32"), (1, "float64"), (2, "float32"), (2, "float64")],
)
@pytest.mark.parametrize("seed", range(30))
def test_pool(op: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    integers = lambda low, high: [int(v) for v in rng.integers(low, high, 3)]  # noqa: E731
    size, kernel = (
        [1 if seed % 2 else int(rng.integers(1, 6)), int(rng.integers(1, 9)), int(rng.choice([1, 2, 3, 7, 8, 9, 16, 17, 35]))],
        integers(1, 5),
    )
    w: dict[str, Any] = {
        "kernel": kernel,
        "stride": integers(1, 4),
        "dilation": integers(1, 3),
        "pad": integers(0, 3),
        "pad_end": integers(0, 3),
    }
    w |= {"count_include_pad": seed % 3 % 2, "p": 1 + seed % 3, "storage_order": seed % 2}
    if size[0] == 1:
        kernel[0], w["pad"][0], w["pad_end"][0] = 1, 0, 0
    room = [size[d] + w["pad"][d] + w["pad_end"][d] - (kernel[d] - 1) * w["dilation"][d] - 1 for d in range(3)]
    out = [max(r // s + 1 + (seed % 5 == 0), 0) for r, s in zip(room, w["stride"], strict=True)]
    x = sample(rng, dtype, (3, *size))
    if dtype in FLOATS and seed % 4 == 0 and op == 0:
        x.reshape(-1)[rng.integers(0, x.size, 3)] = np.nan, np.inf, -np.inf
    want, places = pooled(x.astype(np.float64), op, out, w)
    if dtype not in FLOATS:
        want = np.where(np.isinf(want), np.iinfo(dtype).min, want)
    call = {"op": op, "planes": 3, "in": size, "out": out, **w}
    y = run("pool", [(dtype, (3, *out)), None], [x], 3, **call)
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=2e-6, atol=1e-6)
    if op == 0:
        y, indices = run("pool", [(dtype, (3, *out)), ("int64", (3, *out))], [x], 3, **call)
        np.testing.assert_array_equal(y.astype(np.float64), want)
        np.testing.assert_array_equal(indices, places)


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 1), (3, 2), (5, 1)])
def test_pool_widths(kernel: int, stride: int, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maxima of square windows, by every number of outputs in a row around one vector and two, and by where a NaN lies."""
    use(isa, monkeypatch)
    rng = np.random.default_rng(kernel + stride)
    for width in range(1, 36):
        out = [1, int(rng.integers(1, 7)), width]
        pad, end = ([0, *(int(p) for p in rng.choice([kernel // 2, 0, 1, -1, kernel], 2))] for _ in range(2))
        size = [1, *(max((n - 1) * stride + kernel - p - q, 1) for n, p, q in zip(out[1:], pad[1:], end[1:], strict=True))]
        w: dict[str, Any] = {"kernel": [1, kernel, kernel], "stride": [1, stride, stride], "dilation": [1, 1, 1], "pad": pad}
        w |= {"pad_end": end, "count_include_pad": 0, "p": 1, "storage_order": 0}
        for special in ([], [np.inf, -np.inf], [np.nan], [np.nan] * 9, [-np.inf] * 999):
            x = sample(rng, "float32", (3, *size))
            x.reshape(-1)[rng.integers(0, x.size, len(special))] = special
            y = run("pool", [("float32", (3, *out)), None], [x], 2, op=0, planes=3, **{"in": size, "out": out}, **w)
            np.testing.assert_array_equal(y, pooled(x.astype(np.float64), 0, out, w)[0])


def test_pool_refuses_what_does_not_fit() -> None:
    x = np.zeros((1, 1, 4, 4), np.float32)
    one = (1, 1, 1)
    good: dict[str, Any] = {"planes": 1, "in": (1, 4, 4), "kernel": (1, 2, 2), "stride": one, "dilation": one, "out": (1, 3, 3)}
    assert run("pool", [(np.float32, (1, 1, 3, 3)), None], [x], **good).shape == (1, 1, 3, 3)
    for change in (
        {"planes": 2},
        {"in": (1, 5, 4)},
        {"out": (1, 4, 3)},
        {"kernel": (1, 0, 2)},
        {"stride": (1, 0, 1)},
        {"pad": (0, 0, 1 << 40)},
        {"op": 3},
    ):
        refused("pool", [(np.float32, (1, 1, 3, 3)), None], [x], **(good | change))
    refused("pool", [(np.int32, (1, 1, 3, 3)), None], [x.astype(np.int32)], **good)


# ---- resize ----

HALF_PIXEL, ASYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, CROP_AND_RESIZE, HALF_PIXEL_SYMMETRIC, HALF_PIXEL_FOR_NN = range(7)


def coordinates(coord: int, n: int, out: int, scale: float, roi: tuple[float, float]) -> Array:
    """Where the output's elements lie in an input of length n, as the Resize operator's text has it."""
    i, length = np.arange(out, dtype=np.float64), scale * n
    length = round(length) if math.isclose(length, round(length), rel_tol=5e-7) else length
    match coord:
        case 1:
            return i / scale
        case 2:
            return (i + 0.5) / scale - 0.5 if out > 1 else i * 0
        case 3:
            return i * (n - 1) / (length - 1) if length != 1 else i * 0
        case 4:
            return roi[0] * (n - 1) + i * (roi[1] - roi[0]) * (n - 1) / (out - 1) if out > 1 else i * 0 + 0.5 * sum(roi) * (n - 1)
        case 5:
            return n / 2 * (1 - out / length) + (i + 0.5) / scale - 0.5
        case 6:
            return (i + 0.5) / scale
        case _:
            return (i + 0.5) / scale - 0.5


def weights(x: float, n: int, r: dict[str, Any], scale: float) -> Array:
    """How much each of n input elements counts at coordinate x, linear or cubic."""
    squeeze = min(scale, 1.0) if r["antialias"] else 1.0
    reach = math.ceil(r["mode"] / squeeze) + 1
    out = np.zeros(n)
    for i in range(math.floor(x) - reach, math.floor(x) + reach + 2):
        t, a = abs(i - x) * squeeze, r["cubic_a"]
        if r["mode"] == 1:
            w = max(1 - t, 0)
        else:
            w = (a + 2) * t**3 - (a + 3) * t**2 + 1 if t <= 1 else a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0
        if not r["exclude_outside"] or 0 <= i < n:
            out[min(max(i, 0), n - 1)] += w
    return out / (out.sum() or 1)


def resized(x: Array, r: dict[str, Any]) -> Array:
    y = x.astype(np.float64)
    for d in range(x.ndim):
        n, scale, roi = x.shape[d], r["scale"][d], (r["roi_start"][d], r["roi_end"][d])
        at = coordinates(r["coord"], n, r["out"][d], scale, roi)
        outside = (at < 0) | (at > n - 1) if r["coord"] == CROP_AND_RESIZE else at != at
        if r["mode"] == 0:
            tie = np.rint(2 * at) / 2
            at = np.where(np.abs(at - tie) < 2e-7 * np.maximum(1, np.abs(at)), tie, at)
            index = (np.ceil(at - 0.5), np.floor(at + 0.5), np.floor(at), np.ceil(at))[r["nearest"]]
            y = np.take(y, np.clip(index, 0, n - 1).astype(int), d)
        else:
            matrix = np.stack([weights(v, n, r, scale) for v in at])
            y = np.moveaxis(np.tensordot(matrix, y, (1, d)), 0, d)
        y[(slice(None),) * d + (outside,)] = r["extrapolation"]
    return y


@pytest.mark.parametrize("mode", range(3))
@pytest.mark.parametrize("coord", range(7))
@pytest.mark.parametrize("seed", range(16))
def test_resize(mode: int, coord: int, seed: int) -> None:
    rng = np.random.default_rng([mode, coord, seed])
    dtypes = ["float32", "float64", "uint8", "int8", "int32", "float16", *(["bool", "int64"] if mode == 0 else [])]
    dtype, rank = dtypes[seed % len(dtypes)], 1 + seed % 4
    size = [int(n) for n in rng.choice([1, 2, 3, 5, 8, 17], rank)]
    scale, out = [], []
    for n in size:
        kind = rng.random()
        o = n if kind < 0.3 else int(rng.integers(1, 2 * n + 4))
        s = o / n
        if kind > 0.6:
            s = float(np.float32(rng.choice([2, 0.5, 0.6, 0.8, 1.5, 3, 1 / 3, 2 / 3, 0.7])))
            o = math.floor(s * n + 1e-6)
            s, o = (s, o) if o else (1.0, n)
        scale.append(s)
        out.append(o)
    crop = coord == CROP_AND_RESIZE
    r: dict[str, Any] = {
        "mode": mode,
        "coord": coord,
        "nearest": seed % 4,
        "exclude_outside": int(seed % 3 == 1),
        "antialias": int(mode > 0 and seed % 2),
        "out": out,
        "scale": scale,
        "cubic_a": (-0.75, -0.5)[seed // 2 % 2],
        "extrapolation": 1.0,
        "roi_start": [float(rng.uniform(-0.2, 0.6)) if crop else 0.0 for _ in size],
        "roi_end": [float(rng.uniform(0.4, 1.3)) if crop else 1.0 for _ in size],
    }
    x = sample(rng, dtype, size)
    if dtype in ("int32", "int64"):
        x //= 1 << (np.iinfo(dtype).bits - 24)
    want = resized(x, r)
    y = run("resize", [(dtype, out)], [x], 3, rank=rank, **r, **{"in": size})
    if dtype in FLOATS:
        assert_close(y, want, max(float(np.max(np.abs(x))), 1) * 4, dtype, 64)
    elif mode == 0:
        np.testing.assert_array_equal(y, want.astype(dtype))
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        near_tie = np.abs(want - np.floor(want) - 0.5) < 1e-4
        error = np.abs(y.astype(np.float64) - np.clip(np.rint(want), low, high))
        assert (error <= near_tie).all()


@pytest.mark.parametrize(
    "change",
    [
        *({"scale": (s,)} for s in (1e-13, -1.0, math.inf, math.nan)),
        {"scale": (1e-9,), "mode": 1, "antialias": 1},
        {"mode": 3},
        {"coord": 7},
        {"nearest": 4},
        {"in": (5,)},
        {"in": (0,)},
        {"out": (5,)},
        {"rank": 9},
    ],
)
def test_resize_refuses_what_does_not_fit(change: dict[str, Any]) -> None:
    refused("resize", [(np.float32, (4,))], [np.zeros(4, np.float32)], **({"rank": 1, "in": (4,), "out": (4,), "scale": (1.0,)} | change))


def test_resize_survives_any_region() -> None:
    call = {"rank": 1, "mode": 1, "coord": CROP_AND_RESIZE, "in": (4,), "out": (4,), "scale": (1.0,)}
    for start, end in itertools.product((math.nan, math.inf, -1e300, 0.0), (math.nan, -math.inf, 1e300)):
        y = run("resize", [(np.float32, (4,))], [np.zeros(4, np.float32)], roi_start=(start,), roi_end=(end,), extrapolation=3.0, **call)
        assert y[-1] == 3


@pytest.mark.parametrize("mode", range(3))
def test_resize_scale_zero_is_the_quotient_of_the_sizes(mode: int) -> None:
    x = sample(np.random.default_rng(mode), "float32", (5, 7))
    call = {"rank": 2, "mode": mode, "cubic_a": -0.75, "in": (5, 7), "out": (9, 4)}
    results = [run("resize", [(np.float32, (9, 4))], [x], scale=scale, **call) for scale in ((0.0, 0.0), (9 / 5, 4 / 7))]
    np.testing.assert_array_equal(*results)
