"""Kernels that move, pick, scatter and reduce elements, against numpy."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from kernel_call import BF16, BY_SIZE, FLOATS, NUMBERS, Array, assert_close, bf16, from_bf16, offset, refused, run, sample, steps

from pyonnx_wasm.runtimes import core

# ---- copy, concat, pad, literal ----


def copy(view: Array, base: Array, threads: int = 1) -> Array:
    y = np.empty(view.shape)
    params = {"rank": view.ndim, "xoff": offset(view, base), "shape": view.shape, "xstride": steps(view), "ystride": steps(y)}
    return run("copy", [(base.dtype, view.shape)], [base], threads, **params)


@pytest.mark.parametrize("dtype", BY_SIZE)
@pytest.mark.parametrize("seed", range(60))
def test_copy_of_any_view(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(0, 6))
    x = sample(rng, dtype, rng.choice([0, 1, 1, 2, 3, 4, 5, 7, 9, 16, 17], rank, p=[0.02, *[0.98 / 10] * 10]))
    view = x
    if rank:
        view = x.transpose(rng.permutation(rank))[tuple(slice(None, None, int(s)) for s in rng.choice([1, 1, 1, 2, -1, -2], rank))]
        if rng.random() < 0.3:
            view = np.broadcast_to(view[:, None], (view.shape[0], 3, *view.shape[1:]))
    np.testing.assert_array_equal(copy(view, x, threads=1 + seed % 3), view)


@pytest.mark.parametrize("dtype", BY_SIZE)
@pytest.mark.parametrize(("m", "n"), [(1, 17), (3, 65), (15, 16), (16, 15), (17, 17), (31, 130), (64, 64), (67, 1), (300, 257)])
def test_copy_transposes(dtype: str, m: int, n: int) -> None:
    x = sample(np.random.default_rng(m), dtype, (2, m, n))
    for axes in itertools.permutations(range(3)):
        np.testing.assert_array_equal(copy(x.transpose(axes), x, threads=3), x.transpose(axes))


def test_copy_into_a_strided_place() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    y = run("copy", [(np.float32, (6, 4))], [x], rank=2, shape=(4, 6), xstride=(6, 1), ystride=(1, 4))
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize(
    "params",
    [
        {"rank": 9},
        {"rank": -1},
        {"rank": 2, "shape": (4, 7), "xstride": (6, 1), "ystride": (6, 1)},
        {"rank": 1, "shape": (24,), "xstride": (1,), "ystride": (-1,)},
        {"rank": 2, "shape": (1 << 62, 1 << 62)},
        {"rank": 1, "shape": (-1,)},
        {"rank": 1, "shape": (3,), "xstride": (1 << 62,), "ystride": (1,)},
        {"rank": 1, "shape": (1,), "xoff": 24},
        {"rank": 1, "shape": (1,), "yoff": -1},
    ],
)
def test_copy_refuses_what_leaves_its_buffers(params: dict[str, Any]) -> None:
    refused("copy", [(np.float32, (24,))], [np.zeros(24, np.float32)], **params)


def test_copy_refuses_other_dtypes() -> None:
    refused("copy", [(np.int32, (4,))], [np.zeros(4, np.float32)], rank=1, shape=(4,), xstride=(1,), ystride=(1,))


@pytest.mark.parametrize("dtype", BY_SIZE)
@pytest.mark.parametrize("axis", range(3))
def test_concat(dtype: str, axis: int) -> None:
    rng = np.random.default_rng(axis)
    xs = [sample(rng, dtype, [n if d == axis else 5 for d in range(3)]) for n in (1, 0, 3, 16, 2)]
    xs[3] = xs[3][::-1].transpose(0, 2, 1).copy().transpose(0, 2, 1)
    want = np.concatenate(xs, axis)
    stored = [np.ascontiguousarray(x.transpose(0, 2, 1)) if i == 3 else x for i, x in enumerate(xs)]
    tail: list[int] = []
    at = 0
    for x in xs:
        tail += [at * steps(want)[axis], 0, *x.shape, *[0] * 5, *steps(x), *[0] * 5]
        at += x.shape[axis]
    np.testing.assert_array_equal(run("concat", [(dtype, want.shape)], stored, rank=3, ystride=steps(want), tail=tail), want)


def test_concat_refuses_what_does_not_fit() -> None:
    x = np.zeros(4, np.float32)
    good = [0, 0, 4, *[0] * 7, 1, *[0] * 7]
    for tail in ([], good[:-1], [1, *good[1:]], [0, 1, *good[2:]], [0, 0, 5, *good[3:]]):
        refused("concat", [(np.float32, (4,))], [x], rank=1, ystride=(1,), tail=tail)


MODES = ["constant", "reflect", "edge", "wrap"]


@pytest.mark.parametrize("dtype", [*BY_SIZE, "float64", "int16"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(15))
def test_pad(dtype: str, mode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    base = sample(rng, dtype, rng.integers(2, 7, rank))
    x = base.transpose(rng.permutation(rank)) if seed % 2 else base
    low = -1 if mode == "constant" or seed % 3 == 0 else 0
    before, after = rng.integers(low, 6, rank), rng.integers(0, 6, rank)
    if mode == "constant":
        after[0] = -1 if x.shape[0] + before[0] > 1 else 0
    crop = x[tuple(slice(max(-b, 0), n + min(a, 0)) for n, b, a in zip(x.shape, before, after, strict=True))]
    width = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    fill = np.ones((), dtype)
    want = np.pad(crop, width, mode, constant_values=fill) if mode == "constant" else np.pad(crop, width, mode)  # type: ignore[call-overload]
    params = {"mode": MODES.index(mode), "rank": rank, "xoff": offset(x, base), "xshape": x.shape, "xstride": steps(x)}
    for value in (None, fill):
        y = run("pad", [(dtype, want.shape)], [base, value], 2, before=before, yshape=want.shape, value=float(value is None), **params)
        np.testing.assert_array_equal(y, want)


def test_pad_of_nothing() -> None:
    x = np.zeros((0, 3), np.float32)
    params = {"rank": 2, "xshape": (0, 3), "xstride": (3, 1), "before": (1, 1), "yshape": (2, 5), "value": 2.0}
    assert (run("pad", [(np.float32, (2, 5))], [x, None], **params) == 2).all()
    refused("pad", [(np.float32, (2, 5))], [x, None], mode=1, **params)
    scalar = run("pad", [(np.float32, ())], [np.array(5, np.float32), None])
    assert scalar == 5
    refused("pad", [(np.float32, (4,))], [np.zeros(3, np.float32), None], rank=1, xshape=(3,), xstride=(2,), yshape=(4,))
    refused("pad", [(np.float32, (4,))], [np.zeros(3, np.float32), None], rank=1, xshape=(3,), xstride=(1,), yshape=(5,))


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_literal(dtype: str) -> None:
    values = [0, 1, 5] if dtype == "bool" else [0, 1, -1, 127, (1 << 40) + 3]
    tail = [struct.unpack("<q", struct.pack("<d", v))[0] for v in values] if dtype in FLOATS else values
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            run("literal", [(dtype, (len(values),))], [], n=len(values), tail=tail), np.array(values).astype(dtype)
        )
    refused("literal", [(dtype, (len(values),))], [], n=len(values) + 1, tail=tail)


# ---- reduce, argreduce, cumulative, topk ----

OPS = ["sum", "mean", "max", "min", "prod", "squares", "abs"]
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()), ((5,), ()), ((1,), (0,)), ((7, 3), (0,)), ((7, 64), (0,)), ((7, 65), (0,)), ((300, 131), (0,)), ((2, 15), (1,)),
    ((2, 16), (1,)), ((2, 17), (1,)), ((2, 47), (1,)), ((3, 5000), (1,)), ((2, 3, 7, 7), (2, 3)), ((2, 3, 4, 5), (0, 2)),
    ((2, 3, 4, 5), (1, 3)), ((2, 3, 4, 5), (0, 1, 2, 3)), ((2, 600, 5), (1,)), ((3, 0, 2), (1,)), ((3, 0, 2), (0,)), ((0,), (0,)),
]  # fmt: skip


def reduce(x: Array, axes: Sequence[int], op: str, base: Array | None = None, threads: int = 1) -> Array:
    base = x if base is None else base
    keep = [d for d in range(x.ndim) if d not in axes]
    pick = lambda values, of: [values[d] for d in of]  # noqa: E731
    shape, stride = x.shape, steps(x)
    dtype = "bfloat16" if isinstance(base, BF16) else x.dtype
    params = {
        "keep_shape": pick(shape, keep),
        "keep_stride": pick(stride, keep),
        "red_shape": pick(shape, axes),
        "red_stride": pick(stride, axes),
    }
    sizes = {"rank_keep": len(keep), "rank_red": len(axes), "xoff": offset(x, base)}
    return run("reduce", [(dtype, pick(shape, keep))], [base], threads, op=OPS.index(op), **sizes, **params)


def reduced(x: Array, axes: tuple[int, ...], op: str) -> Array:
    """In the widest type of the kind, wrapping integers, truncating their means."""
    kind, count = x.dtype.kind, math.prod(x.shape[d] for d in axes)
    if op in ("max", "min"):
        if kind == "f":
            worst: Any = -np.inf if op == "max" else np.inf
        else:
            worst = op == "min" if kind == "b" else getattr(np.iinfo(x.dtype), {"max": "min", "min": "max"}[op])
        return np.asarray(getattr(np, op)(x, axis=axes, initial=worst) if count == 0 else getattr(np, op)(x, axis=axes))
    wide = x.astype({"f": np.longdouble, "i": np.int64, "u": np.uint64}[kind])
    with np.errstate(all="ignore"):
        if op == "mean":
            total = np.sum(wide, axis=axes)
            if kind == "f":
                return np.asarray(total / count).astype(x.dtype)
            return (
                np.asarray([int(math.copysign(abs(int(t)) // count, int(t))) if count else 0 for t in total.flat])
                .reshape(total.shape)
                .astype(x.dtype)
            )
        value = {"sum": lambda: wide, "prod": lambda: wide, "squares": lambda: wide * wide, "abs": lambda: np.abs(wide)}[op]()
        return np.asarray((np.prod if op == "prod" else np.sum)(value, axis=axes)).astype(x.dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "uint8", "int32", "uint32", "int64", "uint64", "bool"])
def test_reduce(dtype: str, op: str) -> None:
    if dtype == "bool" and op not in ("max", "min"):
        refused("reduce", [("bool", ())], [np.zeros(3, bool)], op=OPS.index(op), rank_red=1, red_shape=(3,), red_stride=(1,))
        return
    rng = np.random.default_rng(OPS.index(op))
    for (shape, axes), threads in itertools.product(SHAPES, (1, 3)):
        x = sample(rng, dtype, shape)
        if dtype in FLOATS:
            x = (1 + x / 1024).astype(dtype) if op == "prod" else (x / 16).astype(dtype)
        if dtype.endswith("64") and op == "mean" and dtype not in FLOATS:
            x //= 1 << 16
        y, want = reduce(x, axes, op, threads=threads), reduced(x, axes, op)
        if dtype not in FLOATS:
            np.testing.assert_array_equal(y, want)
            continue
        count = max(math.prod(x.shape[d] for d in axes), 1)
        magnitude = (
            np.sum(np.abs(x.astype(np.float64)), axis=axes) / (count if op == "mean" else 1)
            if op in ("sum", "mean")
            else np.abs(want.astype(np.float64))
        )
        assert_close(y, want, magnitude * (count if op == "prod" else 1) + 1e-30, dtype)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_reduce_of_views(op: str, axes: tuple[int, ...]) -> None:
    for dtype in ("float32", "float64", "int32"):
        x = sample(np.random.default_rng(0), dtype, (6, 5, 40))
        for view in (x.transpose(2, 0, 1), x[:, ::2, ::-1], np.broadcast_to(x[:, :1], (6, 5, 40)), x[:, :, ::3]):
            y, want = reduce(view, axes, op, x), reduced(view, axes, op)
            if dtype == "int32":
                np.testing.assert_array_equal(y, want)
            else:
                assert_close(y, want, np.sum(np.abs(view.astype(np.float64)), axis=axes), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_reduce_of_nan_and_infinity(dtype: str, bad: float) -> None:
    for op, (shape, axis), at in itertools.product(OPS, (((100,), 0), ((40, 70), 0), ((3, 40), 1), ((3, 7), 1)), (0, -1)):
        x = np.full(shape, 0.5, dtype)
        x.reshape(-1)[at] = bad
        with np.errstate(all="ignore"):
            want = reduced(x, (axis,), op).astype(np.float64)
        np.testing.assert_allclose(reduce(x, (axis,), op).astype(np.float64), want, rtol=1e-2)


def test_reduce_sums_millions_accurately() -> None:
    x = np.random.default_rng(0).random(1 << 22, dtype=np.float32)
    for shape in ((-1, 1), (-1, 5), (1, -1)):
        v = x[: x.size // 5 * 5].reshape(shape)
        axis = 1 if shape[0] == 1 else 0
        np.testing.assert_allclose(reduce(v, (axis,), "sum"), v.sum(axis, dtype=np.float64), rtol=2e-7)


def test_reduce_bfloat16() -> None:
    x = bf16(np.random.default_rng(0).standard_normal((8, 300)))
    np.testing.assert_array_equal(from_bf16(reduce(x, (1,), "max")), from_bf16(x).max(1))
    np.testing.assert_allclose(from_bf16(reduce(x, (0,), "sum")), from_bf16(x).sum(0), rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_argreduce(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for outer, n, inner in itertools.product((0, 1, 3), (1, 2, 17), (0, 1, 5, 64, 65)):
        x = sample(rng, dtype, (outer, n, inner))
        x = x if dtype == "bool" else (x.astype(np.float64) % 4).astype(dtype)
        if dtype in FLOATS and x.size:
            x.reshape(-1)[rng.integers(0, x.size, 2)] = np.nan
        for op, last in itertools.product((0, 1), (0, 1)):
            find = (np.argmax, np.argmin)[op]
            want = n - 1 - find(x[:, ::-1], 1) if last else find(x, 1)
            y = run("argreduce", [("int64", (outer, inner))], [x], 2, op=op, select_last=last, outer=outer, n=n, inner=inner)
            np.testing.assert_array_equal(y, want)
    refused("argreduce", [("int64", (1,))], [np.zeros((1, 0), dtype)], outer=1, n=0, inner=1)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", [0, 1])
def test_cumulative(dtype: str, op: int) -> None:
    rng = np.random.default_rng(op)
    wide = np.float64 if dtype in FLOATS else np.uint64 if dtype[0] == "u" else np.int64
    for outer, n, inner, exclusive, reverse in itertools.product((0, 1, 3), (0, 1, 2, 17), (1, 5), (0, 1), (0, 1)):
        x = sample(rng, dtype, (outer, n, inner))
        v = x[:, ::-1] if reverse else x
        with np.errstate(all="ignore"):
            want = (np.cumprod if op else np.cumsum)(v.astype(wide), 1)
        if exclusive and n:
            want = np.concatenate([np.full((outer, 1, inner), op, wide), want[:, :-1]], 1)
        want = want[:, ::-1] if reverse else want
        y = run("cumulative", [(dtype, x.shape)], [x], 2, op=op, exclusive=exclusive, reverse=reverse, outer=outer, n=n, inner=inner)
        if dtype in FLOATS:
            assert_close(y, want, 17 * max(float(np.max(np.abs(want), initial=0)), 1.0), dtype, 1)
        else:
            np.testing.assert_array_equal(y, want.astype(dtype))


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("largest", [0, 1])
def test_topk(dtype: str, largest: int) -> None:
    rng = np.random.default_rng(largest)
    for outer, n, inner in itertools.product((0, 1, 3), (1, 2, 17, 300, 1000), (1, 4)):
        for k, ties in itertools.product(sorted({0, 1, min(5, n), n}), (False, True)):
            x = sample(rng, dtype, (outer, n, inner))
            x = (x.astype(np.float64) % 7).astype(dtype) if ties else x
            shape = (outer, k, inner)
            values, indices = run("topk", [(dtype, shape), ("int64", shape)], [x], 3, outer=outer, n=n, inner=inner, k=k, largest=largest)
            key = x.astype(np.longdouble)
            want = np.argsort(-key if largest else key, axis=1, kind="stable")[:, :k]
            np.testing.assert_array_equal(indices, want)
            np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))
    refused("topk", [(dtype, (3,)), ("int64", (3,))], [np.zeros(2, dtype)], outer=1, n=2, inner=1, k=3)


def test_topk_orders_nan_and_zeros() -> None:
    x = np.array([1, np.nan, -np.inf, np.inf, -0.0, 0.0], np.float32)
    _, indices = run("topk", [(np.float32, (6,)), ("int64", (6,))], [x], outer=1, n=6, inner=1, k=6, largest=1)
    assert indices.tolist() == [1, 3, 0, 4, 5, 2]


# ---- gather, scatter ----

COMBINE: list[Any] = [lambda a, b: b, np.add, np.multiply, np.maximum, np.minimum]


@pytest.mark.parametrize("dtype", [*BY_SIZE, "float64"])
@pytest.mark.parametrize("itype", ["int32", "int64"])
def test_gather(dtype: str, itype: str) -> None:
    rng = np.random.default_rng(0)
    for outer, n, inner, count in itertools.product((1, 3), (1, 5), (0, 1, 3, 17, 300), (0, 1, 7)):
        x, indices = sample(rng, dtype, (outer, n, inner)), rng.integers(-n, n, count).astype(itype)
        call = {"outer": outer, "n": n, "inner": inner, "count": count}
        y = run("gather", [(dtype, (outer, count, inner))], [x, indices], 3, **call)
        np.testing.assert_array_equal(y, np.take(x, indices, 1))
        for bad in (n, -n - 1, (1 << 31) - 1, -(1 << 31)):
            if count and inner:
                indices[-1] = bad
                refused("gather", [(dtype, (outer, count, inner))], [x, indices], code=core.BAD_DATA, **call)


def test_gather_refuses_what_does_not_fit() -> None:
    x, indices = np.zeros((2, 3), np.float32), np.zeros(2, np.int64)
    good = {"outer": 1, "n": 2, "inner": 3, "count": 2}
    for change in ({"n": 3}, {"inner": 4}, {"count": 3}, {"outer": -1}, {"outer": 1 << 40, "n": 1 << 40}):
        refused("gather", [(np.float32, (2, 3))], [x, indices], **(good | change))
    refused("gather", [(np.float32, (2, 3))], [x, indices.astype(np.uint8)], **good)


@pytest.mark.parametrize("dtype", BY_SIZE)
@pytest.mark.parametrize("seed", range(25))
def test_gather_and_scatter_elements(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    axis, shape = int(rng.integers(0, rank)), tuple(map(int, rng.integers(1, 6, rank)))
    ishape = tuple(int(rng.integers(0, 8)) if d == axis else int(rng.integers(1, n + 1)) for d, n in enumerate(shape))
    x, updates = sample(rng, dtype, shape), sample(rng, dtype, ishape)
    indices = rng.integers(-shape[axis], shape[axis], ishape).astype(("int32", "int64")[seed % 2])
    call = {"rank": rank, "axis": axis, "xshape": shape, "ishape": ishape}
    region = x[tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(ishape))]
    want = np.take_along_axis(region, (indices % shape[axis]).astype(np.int64), axis)
    np.testing.assert_array_equal(run("gather_elements", [(dtype, ishape)], [x, indices], 3, **call), want)
    for op, combine in enumerate(COMBINE):
        want = x.copy()
        for at in np.ndindex(*ishape):
            place = (*at[:axis], indices[at], *at[axis + 1 :])
            with np.errstate(all="ignore"):
                want[place] = combine(want[place], updates[at])
        np.testing.assert_array_equal(run("scatter_elements", [(dtype, shape)], [x, indices, updates], 3, op=op, **call), want)
    for bad in (shape[axis], -shape[axis] - 1):
        if indices.size:
            indices.reshape(-1)[-1] = bad
            refused("gather_elements", [(dtype, ishape)], [x, indices], code=core.BAD_DATA, **call)
            refused("scatter_elements", [(dtype, shape)], [x, indices, updates], code=core.BAD_DATA, **call)


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
@pytest.mark.parametrize("op", range(5))
def test_scatter_to_the_same_place(dtype: str, op: int) -> None:
    rng = np.random.default_rng(op)
    x, updates, indices = sample(rng, dtype, (7,)), sample(rng, dtype, (5,)), np.array([1, 1, 6, -7, 1])
    want = x.copy()
    for i, update in zip(indices, updates, strict=True):
        with np.errstate(all="ignore"):
            want[i] = COMBINE[op](want[i], update)
    y = run("scatter_elements", [(dtype, (7,))], [x, indices, updates], op=op, rank=1, xshape=(7,), ishape=(5,))
    np.testing.assert_array_equal(y, want)
    y = run("scatter_nd", [(dtype, (7,))], [x, indices, updates], op=op, count=5, depth=1, xdims=(7,), inner=1)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("dtype", BY_SIZE)
@pytest.mark.parametrize("seed", range(25))
def test_gather_and_scatter_nd(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, depth, count, inner = int(rng.integers(1, 4)), seed % 4, int(rng.integers(0, 6)), int(rng.choice([0, 1, 3, 17, 100]))
    dims = tuple(map(int, rng.integers(1, 5, depth)))
    x, updates = sample(rng, dtype, (batch, *dims, inner)), sample(rng, dtype, (count, inner))
    indices = rng.integers([-d for d in dims], dims, (batch, count, depth)).astype(("int32", "int64")[seed % 2])
    call = {"count": count, "depth": depth, "xdims": dims, "inner": inner}
    y = run("gather_nd", [(dtype, (batch, count, inner))], [x, indices], 3, batch=batch, **call)
    for b, i in np.ndindex(batch, count):
        np.testing.assert_array_equal(y[b, i], x[(b, *indices[b, i])])
    for op, combine in enumerate(COMBINE):
        want = x[0].copy()
        for i in range(count):
            with np.errstate(all="ignore"):
                want[tuple(indices[0, i])] = combine(want[tuple(indices[0, i])], updates[i])
        y = run("scatter_nd", [(dtype, want.shape)], [x[0], indices[0], updates], op=op, **call)
        np.testing.assert_array_equal(y, want)
    if indices.size and inner:
        indices[0, -1, -1] = dims[-1]
        refused("gather_nd", [(dtype, (batch, count, inner))], [x, indices], code=core.BAD_DATA, batch=batch, **call)
        refused("scatter_nd", [(dtype, x[0].shape)], [x[0], indices[0], updates], code=core.BAD_DATA, **call)
