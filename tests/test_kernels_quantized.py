"""The products of bytes: against int64 in numpy, over operand types, zero points, strides and every size around a tile."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from kernel_call import Array, refused, run, sample

TYPES = ["uint8", "int8"]
PAIRS = list(itertools.product(TYPES, TYPES))
SIZES = [(1, 1, 1), (2, 3, 5), (3, 12, 4), (4, 13, 7), (5, 48, 33), (9, 49, 64), (17, 97, 31), (130, 25, 301), (1, 200, 768), (64, 1, 9)]


def product(a: Array, b: Array, za: Array | None = None, zb: Array | None = None) -> Array:
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    if za is not None:
        wide_a = wide_a - (za.astype(np.int64)[:, None] if za.size > 1 else int(za[0]))
    if zb is not None:
        wide_b = wide_b - zb.astype(np.int64)
    return np.asarray(wide_a @ wide_b)


def sizes(m: int, n: int, k: int) -> dict[str, int | float]:
    return {"m": m, "n": n, "k": k, "a_rs": k, "a_cs": 1, "b_rs": n, "b_cs": 1, "y_rs": n, "alpha": 1.0}


@pytest.mark.parametrize(("ta", "tb"), PAIRS)
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_are_exact(ta: str, tb: str, threads: int) -> None:
    rng = np.random.default_rng(1)
    for m, n, k in SIZES:
        a, b = sample(rng, ta, (m, k)), sample(rng, tb, (k, n))
        for rows, columns in ((0, 0), (1, 0), (0, 1), (1, 1), (m, n)):
            za, zb = sample(rng, ta, (rows,)) if rows else None, sample(rng, tb, (columns,)) if columns else None
            y = run("qmatmul", [("int32", (m, n))], [a, b, za, zb, None, None, None, None, None], threads, **sizes(m, n, k),
                    azero_ms=int(rows > 1), bzero_ns=int(columns > 1))  # fmt: skip
            np.testing.assert_array_equal(y, product(a, b, za, zb))


@pytest.mark.parametrize(("ta", "tb"), PAIRS)
def test_extremes_do_not_saturate(ta: str, tb: str) -> None:
    for low_a, low_b in itertools.product((True, False), repeat=2):
        a = np.full((5, 515), np.iinfo(ta).min if low_a else np.iinfo(ta).max, ta)
        b = np.full((515, 50), np.iinfo(tb).min if low_b else np.iinfo(tb).max, tb)
        za, zb = np.array([np.iinfo(ta).max], ta), np.array([np.iinfo(tb).max], tb)
        y = run("qmatmul", [("int32", (5, 50))], [a, b, za, zb, None, None, None, None, None], **sizes(5, 50, 515))
        np.testing.assert_array_equal(y, product(a, b, za, zb))


@pytest.mark.parametrize(("ta", "tb"), PAIRS)
def test_operands_may_be_views(ta: str, tb: str) -> None:
    rng = np.random.default_rng(2)
    for m, n, k in SIZES:
        a, b = sample(rng, ta, (3, k, m)), sample(rng, tb, (3, n, k))
        za, zb = sample(rng, ta, (1,)), sample(rng, tb, (n,))
        given = sizes(m, n, k) | {"nb": 1, "batch": [3], "abatch": [k * m], "bbatch": [n * k], "ybatch": [m * n]}
        given |= {"a_rs": 1, "a_cs": m, "b_rs": 1, "b_cs": k, "bzero_ns": 1}
        y = run("qmatmul", [("int32", (3, m, n))], [a, b, za, zb, None, None, None, None, None], **given)
        for i in range(3):
            np.testing.assert_array_equal(y[i], product(a[i].T, b[i].T, za, zb))


def test_sums_are_scaled_biased_activated_and_added_to() -> None:
    rng = np.random.default_rng(3)
    for m, n, k in SIZES:
        a, b, za = sample(rng, "uint8", (m, k)), sample(rng, "int8", (k, n)), sample(rng, "uint8", (1,))
        scale = (rng.random(n) * 1e-3).astype(np.float32)
        bias, residual = rng.standard_normal(n).astype(np.float32), rng.standard_normal((m, n)).astype(np.float32)
        given = sizes(m, n, k) | {"scale_ns": 1, "bias_ns": 1, "res_rs": n, "act": 1}
        y = run("qmatmul", [("float32", (m, n))], [a, b, za, None, scale, bias, residual, None, None], **given)
        sums = product(a, b, za).astype(np.float32)
        want = np.maximum(sums * scale + bias, 0) + residual
        np.testing.assert_allclose(y, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("ty", TYPES)
def test_results_are_quantised_again(ty: str) -> None:
    rng = np.random.default_rng(4)
    low, high = np.iinfo(ty).min, np.iinfo(ty).max
    for m, n, k in SIZES:
        a, b = sample(rng, "uint8", (m, k)), sample(rng, "int8", (k, n))
        scale, per, zero = np.array([2.0**-7], np.float32), np.array([2.0 ** (k % 5)], np.float32), sample(rng, ty, (1,))
        y = run("qmatmul", [(ty, (m, n))], [a, b, None, None, scale, None, None, per, zero], **sizes(m, n, k))
        want = np.clip(np.rint(product(a, b) * 2.0**-7 / per) + int(zero[0]), low, high)
        np.testing.assert_array_equal(y, want.astype(ty))


def test_what_does_not_fit_is_refused() -> None:
    a, b, f = np.zeros((4, 8), np.uint8), np.zeros((8, 6), np.int8), np.ones(6, np.float32)
    good = sizes(4, 6, 8)
    none = [None] * 7
    for change in ({"m": 5}, {"k": 9}, {"n": 7}, {"a_rs": 9}, {"b_cs": 2}, {"m": -1}, {"nb": 7}, {"alpha": 2.0}, {"act": 1}):
        refused("qmatmul", [("int32", (4, 6))], [a, b, *none], **(good | change))
    refused("qmatmul", [("int32", (4, 6))], [a.astype(np.int32), b, *none], **good)
    refused("qmatmul", [("int32", (4, 6))], [a, b, np.zeros(1, np.int8), *none[1:]], **good)
    refused("qmatmul", [("float32", (4, 6))], [a, b, *none], **good)
    refused("qmatmul", [("uint8", (4, 6))], [a, b, None, None, f, None, None, None, None], **good)
    refused("qmatmul", [("float32", (4, 6))], [a, b, None, None, f[:5], None, None, None, None], **(good | {"scale_ns": 1}))


def windows(x: Array, w: Array, stride: int, pad: int, dilation: int, group: int) -> Array:
    """A convolution of two axes, in int64, by its definition."""
    n, _, h, v = x.shape
    m, cg, kh, kw = w.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    oh = (h + 2 * pad - (kh - 1) * dilation - 1) // stride + 1
    ow = (v + 2 * pad - (kw - 1) * dilation - 1) // stride + 1
    y = np.zeros((n, m, oh, ow), np.int64)
    for o in range(m):
        first = o // (m // group) * cg
        for i in range(kh):
            for j in range(kw):
                part = padded[:, first : first + cg, i * dilation :, j * dilation :][:, :, ::stride, ::stride][:, :, :oh, :ow]
                y[:, o] += (part * w[o, :, i, j][None, :, None, None]).sum(1)
    return y


CONVS = [
    # n, c, m, group, size, kernel, stride, pad, dilation
    (1, 3, 5, 1, (7, 9), 3, 1, 1, 1),
    (2, 4, 6, 2, (11, 13), 3, 2, 1, 1),
    (1, 8, 17, 1, (5, 13), 1, 1, 0, 1),
    (2, 8, 33, 1, (12, 49), 1, 1, 0, 1),
    (1, 6, 4, 1, (9, 9), 5, 1, 2, 1),
    (1, 6, 6, 6, (10, 21), 3, 1, 1, 1),
    (2, 5, 10, 5, (9, 18), 3, 2, 1, 1),
    (1, 4, 4, 4, (13, 50), 5, 1, 2, 1),
    (1, 2, 3, 1, (12, 12), 3, 1, 2, 2),
    (1, 40, 9, 1, (6, 7), 3, 3, 0, 1),
    (0, 2, 2, 1, (4, 4), 3, 1, 1, 1),
]


def shape_of(case: tuple[Any, ...]) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]:
    n, c, m, group, size, kernel, stride, pad, dilation = case
    out = tuple((s + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1 for s in size)
    params = {"n": n, "c": c, "m": m, "group": group, "in": [1, *size], "kernel": [1, kernel, kernel], "stride": [1, stride, stride],
              "dilation": [1, dilation, dilation], "pad": [0, pad, pad], "out": [1, *out]}  # fmt: skip
    return params, (n, c, *size), (m, c // group, kernel, kernel)


@pytest.mark.parametrize("case", CONVS, ids=str)
@pytest.mark.parametrize(("tx", "tw"), PAIRS)
def test_convolutions_are_exact(case: tuple[Any, ...], tx: str, tw: str) -> None:
    rng = np.random.default_rng(8)
    params, xs, ws = shape_of(case)
    for threads in (1, 2):
        x, w = sample(rng, tx, xs), sample(rng, tw, ws)
        zx, zw = sample(rng, tx, (1,)), sample(rng, tw, (ws[0],))
        want = windows(x.astype(np.int64) - int(zx[0]), w.astype(np.int64) - zw.astype(np.int64)[:, None, None, None], *case[6:9], case[3])
        y = run("qconv", [("int32", want.shape)], [x, w, zx, zw, None, None, None, None, None], threads, **params, wzero_ms=1)
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("case", CONVS, ids=str)
def test_convolutions_are_scaled_and_quantised(case: tuple[Any, ...]) -> None:
    rng = np.random.default_rng(9)
    params, xs, ws = shape_of(case)
    x, w, zx = sample(rng, "uint8", xs), sample(rng, "int8", ws), sample(rng, "uint8", (1,))
    sums = windows(x.astype(np.int64) - int(zx[0]), w.astype(np.int64), *case[6:9], case[3])
    scale, bias = 2.0 ** rng.integers(-14, -10, ws[0]).astype(np.float32), rng.integers(-9, 9, ws[0]).astype(np.float32)
    residual = rng.integers(-5, 5, sums.shape).astype(np.float32)
    each = (None, slice(None), None, None)
    exact = np.minimum(np.maximum(sums * scale[each] + bias[each], 0), 6) + residual
    params |= {"scale_ms": 1, "act": 2, "act_b": 6.0}
    y = run("qconv", [("float32", sums.shape)], [x, w, zx, None, scale, bias, residual, None, None], **params)
    np.testing.assert_allclose(y, exact, rtol=1e-6, atol=1e-6)
    per, zero = np.array([0.03], np.float32), np.array([7], np.int8)
    q = run("qconv", [("int8", sums.shape)], [x, w, zx, None, scale, bias, residual, per, zero], **params)
    np.testing.assert_array_equal(q, np.clip(np.rint(y / per) + 7, -128, 127).astype(np.int8))


def test_convolutions_that_do_not_fit_are_refused() -> None:
    params, xs, ws = shape_of(CONVS[0])
    x, w, f = np.zeros(xs, np.uint8), np.zeros(ws, np.int8), np.ones(ws[0] - 1, np.float32)
    y, none = ("int32", (1, 5, 7, 9)), [None] * 7
    for change in (
        {"c": 4},
        {"m": 6},
        {"group": 2},
        {"in": [1, 8, 9]},
        {"out": [1, 7, 10]},
        {"kernel": [1, 3, 4]},
        {"stride": [1, 0, 1]},
        {"act": 1},
    ):
        refused("qconv", [y], [x, w, *none], **(params | change))
    refused("qconv", [y], [x.astype(np.int32), w, *none], **params)
    refused("qconv", [y], [x, w, None, np.zeros(4, np.int8), *none[2:]], **(params | {"wzero_ms": 1}))
    refused("qconv", [("float32", y[1])], [x, w, *none], **params)
    refused("qconv", [("float32", y[1])], [x, w, None, None, f, None, None, None, None], **(params | {"scale_ms": 1}))
    refused("qconv", [("uint8", y[1])], [x, w, None, None, np.ones(5, np.float32), None, None, None, None], **params)
