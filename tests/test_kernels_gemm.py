"""The kernels ``matmul``, ``conv`` and ``conv_transpose`` against numpy in float64, over random hostile cases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_call import BUILDS, Array, assert_close, refused, run, sample, use
from numpy.lib.stride_tricks import as_strided

SIZES = [1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 15, 16, 17, 23, 24, 25, 31, 33, 47, 48, 49, 97]
ACTS = 12
AFTER = 100


@np.errstate(all="ignore")
def activate(act: int, v: Array, a: float, b: float) -> Array:
    """The activation codes of matmul and conv."""
    erf: Any = np.vectorize(math.erf, otypes=[float])
    cases: list[Callable[[], Array]] = [
        lambda: v,
        lambda: np.maximum(v, 0),
        lambda: np.clip(v, a, b),
        lambda: 1 / (1 + np.exp(-v)),
        lambda: np.tanh(v),
        lambda: v / (1 + np.exp(-v)),
        lambda: 0.5 * v * (1 + erf(v / math.sqrt(2))),
        lambda: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
        lambda: np.where(v < 0, a * v, v),
        lambda: np.clip(a * v + b, 0, 1),
        lambda: v * np.clip(v / 6 + 0.5, 0, 1),
        lambda: np.where(v < 0, a * np.expm1(v), v),
    ]
    return np.asarray(cases[act]())


def finish(total: Array, residual: Array | None, act: int, after: bool, a: float, b: float) -> Array:
    r = 0 if residual is None else residual.astype(float)
    return activate(act, total + r, a, b) if after else activate(act, total, a, b) + r


def draw_act(rng: np.random.Generator, count: int = ACTS) -> dict[str, Any]:
    act = int(rng.choice([0, 0, *range(1, count)]))
    after = bool(act and rng.random() < 0.5)
    return {"act": act, "after": after, "a": -1.0 if act == 2 else 0.2, "b": 1.5 if act == 2 else 0.5}


# ---- matmul ----


def size(rng: np.random.Generator) -> int:
    return 0 if rng.random() < 0.03 else int(rng.choice(SIZES))


def product_case(rng: np.random.Generator, dtype: str, m: int, n: int, k: int, special: bool = False) -> None:
    """One product: operands in either order, with gaps, batches that broadcast, bias in any direction, residual, activation, alpha."""
    is_float = np.dtype(dtype).kind == "f"
    batch = [int(rng.integers(1, 4)) for _ in range(rng.integers(0, 3))]

    def operand(rows: int, columns: int, ordered: bool) -> tuple[Array, int, list[int], int, int, Array]:
        gap, offset = int(rng.integers(0, 3)), int(rng.integers(0, 3))
        flip = not ordered and rng.random() < 0.5
        rs, cs = (1, rows + gap) if flip else (columns + gap, 1)
        step = (cs * columns if flip else rs * rows) * int(ordered or rng.random() < 0.6)
        strides = [step * math.prod(batch[d + 1 :]) for d in range(len(batch))]
        last = sum((s - 1) * t for s, t in zip([*batch, rows, columns], [*strides, rs, cs], strict=True))
        data = sample(rng, dtype, [offset + last + 1 if rows * columns else offset])
        if special and data.size:
            data[rng.integers(0, data.size, 2)] = rng.choice([np.nan, np.inf, -np.inf], 2)
        view = as_strided(data[offset:], [*batch, rows, columns], [data.itemsize * s for s in [*strides, rs, cs]])
        return data, offset, strides, rs, cs, view

    a, aoff, abatch, a_rs, a_cs, a_view = operand(m, k, False)
    b, boff, bbatch, b_rs, b_cs, b_view = operand(k, n, False)
    bias_ms, bias_ns = [(0, 0), (1, 0), (0, 1), (n, 1), (1, m)][rng.integers(0, 5)]
    bias = sample(rng, dtype, [1 + max(m - 1, 0) * bias_ms + max(n - 1, 0) * bias_ns]) if rng.random() < 0.6 else None
    residual, res_off, resbatch, res_rs, _, res_view = operand(m, n, True)
    use_residual = rng.random() < 0.4
    act: dict[str, Any] = draw_act(rng) if is_float else {"act": 0, "after": False, "a": 0.0, "b": 0.0}
    alpha = 0.5 if is_float and rng.random() < 0.3 else 1.0
    y_rs = n + int(rng.integers(0, 2))
    count = math.prod(batch) * m * y_rs
    got = run(
        "matmul",
        [(dtype, [count])],
        [a, b, bias, residual if use_residual else None],
        int(rng.integers(1, 4)),
        nb=len(batch),
        batch=batch,
        abatch=abatch,
        bbatch=bbatch,
        ybatch=[m * y_rs * math.prod(batch[d + 1 :]) for d in range(len(batch))],
        **{"m": m, "n": n, "k": k, "aoff": aoff, "a_rs": a_rs, "a_cs": a_cs, "boff": boff, "b_rs": b_rs, "b_cs": b_cs},
        **{"y_rs": y_rs, "bias_ms": bias_ms, "bias_ns": bias_ns, "res_off": res_off, "res_rs": res_rs, "resbatch": resbatch},
        act=act["act"] + AFTER * act["after"],
        alpha=alpha,
        act_a=act["a"],
        act_b=act["b"],
    ).reshape(*batch, m, y_rs)
    assert (got[..., n:].view(np.uint8) == 0xA5).all()
    got = got[..., :n]
    added = None if bias is None else as_strided(bias, (m, n), (bias.itemsize * bias_ms, bias.itemsize * bias_ns))
    if not is_float:
        with np.errstate(over="ignore"):
            want = a_view @ b_view + (0 if added is None else added) + (res_view if use_residual else 0)
        np.testing.assert_array_equal(got, want.astype(dtype))
        return
    with np.errstate(all="ignore"):
        wide_a, wide_b = a_view.astype(float), b_view.astype(float)
        total = alpha * (wide_a @ wide_b) + (0 if added is None else added)
        want = finish(total, res_view if use_residual else None, act["act"], act["after"], act["a"], act["b"])
        scale = (np.abs(wide_a) @ np.abs(wide_b) + 4) * (1 + k**0.5 / 16)
    known = np.isfinite(total) if act["act"] > 2 else np.ones_like(want, bool)
    assert_close(got[known], want[known], np.nan_to_num(scale)[known], dtype, 8)


@pytest.mark.parametrize("seed", range(60))
def test_matmul(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(6):
        product_case(rng, "float32", size(rng), size(rng), size(rng))


@pytest.mark.parametrize("seed", range(20))
def test_matmul_deep(seed: int) -> None:
    """Several blocks of k, several groups of columns."""
    rng = np.random.default_rng(seed)
    product_case(rng, "float32", int(rng.integers(1, 60)), int(rng.choice([1, 3, 40, 700])), int(rng.integers(255, 1200)))


@pytest.mark.parametrize("seed", range(20))
def test_matmul_not_finite(seed: int) -> None:
    rng = np.random.default_rng(seed)
    product_case(rng, "float32", size(rng), size(rng), size(rng), special=True)


def test_matmul_tall() -> None:
    """Several blocks of rows."""
    product_case(np.random.default_rng(0), "float32", 1100, 30, 300)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("seed", range(6))
def test_matmul_other_types(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    product_case(rng, dtype, size(rng), size(rng), size(rng))


def test_matmul_refuses() -> None:
    a, b = np.zeros(12, np.float32), np.zeros(20, np.float32)
    good: dict[str, Any] = {"m": 3, "n": 5, "k": 4, "a_rs": 4, "a_cs": 1, "b_rs": 5, "b_cs": 1, "y_rs": 5, "alpha": 1.0}
    run("matmul", [("float32", [15])], [a, b, None, None], **good)
    for wrong in (
        {"m": 4}, {"k": 5}, {"n": 6}, {"k": -1}, {"m": 1 << 62}, {"a_rs": -4}, {"aoff": 1}, {"boff": -1}, {"b_rs": 1 << 60}, {"y_rs": 6},
        {"yoff": 1}, {"act": 12}, {"act": 100}, {"act": -1}, {"nb": 7}, {"nb": -1}, {"nb": 1, "batch": [2], "ybatch": [15]},
    ):  # fmt: skip
        refused("matmul", [("float32", [15])], [a, b, None, None], **(good | wrong))
    refused("matmul", [("float32", [15])], [a, b, np.zeros(4, np.float32), None], **good, bias_ns=1)
    refused("matmul", [("float32", [15])], [a, b, None, np.zeros(14, np.float32)], **good, res_rs=5)
    refused("matmul", [("float32", [15])], [a, b.astype(np.float64), None, None], **good)
    refused("matmul", [("int8", [15])], [a.astype(np.int8), b.astype(np.int8), None, None], **good)


# ---- pack ----


@pytest.mark.parametrize("seed", range(30))
def test_packed_weights(seed: int) -> None:
    """Products with what ``pack`` gave, in bands or of transposed weights, are those with the weights themselves."""
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.choice([1, 2, 3, 4, 5, 7, 13, 24, 49, 65, 100, 130, 385])) for _ in range(3))
    batch, threads, transposed = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(0, 2))
    band = k if transposed else int(rng.integers(1, k + 1))
    a, b = sample(rng, "float32", [batch, m, k]), sample(rng, "float32", [k, n])
    flip = rng.random() < 0.3
    packed = run("pack", [("float32", [k * n])], [b.T if transposed else b], threads, k=k, n=n, band=band, transposed=transposed)
    sizes: dict[str, Any] = {"m": m, "n": n, "k": k, "b_rs": n, "b_cs": 1, "y_rs": n, "alpha": 1.0}
    sizes |= {"a_rs": 1, "a_cs": m} if flip else {"a_rs": k, "a_cs": 1}
    batches = {"nb": 1, "batch": [batch], "abatch": [m * k], "bbatch": [0], "ybatch": [m * n]}
    bias = sample(rng, "float32", [n])
    laid = a.swapaxes(1, 2).copy() if flip else a
    got = run("matmul", [("float32", [batch, m, n])], [laid, packed, bias], threads, **sizes, **batches, bias_ns=1, band=band)
    scale = np.abs(a).astype(float) @ np.abs(b) + 4
    assert_close(got, a.astype(float) @ b + bias, scale * (1 + k**0.5 / 16), "float32", 8)


@pytest.mark.parametrize("seed", range(40))
def test_one_row_of_packed_weights(seed: int) -> None:
    """Runs of panels that are read side by side, what is left behind them, several bands, and all that follows a sum."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.choice([47, 48, 49, 95, 96, 107, 191, 192, 200, 383, 400, 777, 1000])), int(rng.choice([1, 2, 3, 64, 97, 400]))
    band, threads = int(rng.integers(1, k + 1)), int(rng.integers(1, 4))
    a, b, step = sample(rng, "float32", [k]), sample(rng, "float32", [k, n]), int(rng.integers(1, 3))
    packed = run("pack", [("float32", [k * n])], [b], threads, k=k, n=n, band=band, transposed=0)
    bias = sample(rng, "float32", [n]) if rng.random() < 0.7 else None
    residual = sample(rng, "float32", [n]) if rng.random() < 0.5 else None
    act, alpha = draw_act(rng), 0.5 if rng.random() < 0.3 else 1.0
    sizes: dict[str, Any] = {"m": 1, "n": n, "k": k, "a_rs": k * step, "a_cs": step, "b_rs": n, "b_cs": 1, "y_rs": n, "res_rs": n}
    ends: dict[str, Any] = {"act": act["act"] + AFTER * act["after"], "act_a": act["a"], "act_b": act["b"], "alpha": alpha, "bias_ns": 1}
    got = run("matmul", [("float32", [1, n])], [np.repeat(a, step), packed, bias, residual], threads, **sizes, **ends, band=band)
    total = alpha * (a.astype(float) @ b) + (0 if bias is None else bias)
    want = finish(total, residual, act["act"], act["after"], act["a"], act["b"])
    scale = (np.abs(a).astype(float) @ np.abs(b) + 4) * (1 + k**0.5 / 16)
    assert_close(got[0], want, scale, "float32", 8)


def test_packed_weights_refuse() -> None:
    w, a = np.zeros(20, np.float32), np.zeros(12, np.float32)
    for wrong in ({"k": 5}, {"k": 0}, {"n": 1 << 62}, {"band": 0}, {"band": 5}, {"band": 2, "transposed": 1}):
        refused("pack", [("float32", [20])], [w], **({"k": 4, "n": 5, "band": 4} | wrong))
    refused("pack", [("float32", [19])], [w], k=4, n=5, band=4)
    refused("pack", [("float64", [20])], [w.astype(np.float64)], k=4, n=5, band=4)
    good: dict[str, Any] = {"m": 3, "n": 5, "k": 4, "a_rs": 4, "a_cs": 1, "b_rs": 5, "b_cs": 1, "y_rs": 5, "alpha": 1.0, "band": 4}
    run("matmul", [("float32", [15])], [a, w], **good)
    for wrong in ({"band": 5}, {"band": -1}, {"b_rs": 1, "b_cs": 4}, {"nb": 1, "batch": [1], "bbatch": [1]}):
        refused("matmul", [("float32", [15])], [a, w], **(good | wrong))
    refused("matmul", [("float64", [15])], [a.astype(np.float64), w.astype(np.float64)], **good)


# ---- conv, conv_transpose ----


def window(rng: np.random.Generator, transpose: bool, rank: int, largest: int) -> dict[str, list[int]]:
    """Sizes of the three spatial dimensions; those before the last ``rank`` are 1."""
    out: dict[str, list[int]] = {k: [] for k in ("in", "kernel", "stride", "dilation", "pad", "out")}
    for d in range(3):
        kernel = stride = dilation = size = result = 1
        pad = 0
        if d >= 3 - rank:
            kernel, stride, dilation = int(rng.choice([1, 2, 3, 3, 4, 5])), int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 1, 2, 3]))
            pad, size = int(rng.choice([kernel // 2, 0, 1, -1, 3])), int(rng.integers(1, largest))
            reach = (kernel - 1) * dilation + 1
            span = (size - 1) * stride + reach - pad if transpose else (size + 2 * pad - reach) // stride + 1
            result = max(span, 0)
        for key, value in zip(out, (size, kernel, stride, dilation, pad, result), strict=True):
            out[key].append(value)
    return out


def same(kernel: int, height: int, width: int) -> dict[str, list[int]]:
    """A square window that keeps the image's size."""
    half, ones = kernel // 2, [1, 1, 1]
    image = [1, height, width]
    return {"in": image, "kernel": [1, kernel, kernel], "stride": ones, "dilation": ones, "pad": [0, half, half], "out": image}


def taps(v: dict[str, list[int]], small: str, big: str) -> Any:
    """For every tap: positions in the flattened ``small`` image and the places in the flattened ``big`` one that they meet."""
    for tap in itertools.product(*map(range, v["kernel"])):
        axes = [np.arange(v[small][d]) * v["stride"][d] - v["pad"][d] + tap[d] * v["dilation"][d] for d in range(3)]
        grid = np.ix_(*axes)
        inside = [(grid[d] >= 0) & (grid[d] < v[big][d]) for d in range(3)]
        ok = (inside[0] & inside[1] & inside[2]).ravel()
        place = ((grid[0] * v[big][1] + grid[1]) * v[big][2] + grid[2]).ravel()
        yield tap, np.flatnonzero(ok), place[ok]


def conv_case(
    rng: np.random.Generator, dtype: str, transpose: bool, group: int, c: int, m: int, v: dict[str, list[int]], images: int = 2
) -> None:
    """One convolution with ``c`` input and ``m`` output channels per group, of up to so many images."""
    n = int(rng.integers(1, images + 1))
    pixels_in, pixels_out, n_taps = math.prod(v["in"]), math.prod(v["out"]), math.prod(v["kernel"])
    x = sample(rng, dtype, [n, group, c, pixels_in])
    w = sample(rng, dtype, [group, c, m, *v["kernel"]] if transpose else [group, m, c, *v["kernel"]])
    bias = sample(rng, dtype, [group * m]) if rng.random() < 0.5 else None
    act: dict[str, Any] = {"act": 0, "after": False, "a": 0.0, "b": 0.0} if transpose else draw_act(rng, ACTS if dtype == "float32" else 3)
    residual = sample(rng, dtype, [n, group, m, pixels_out]) if not transpose and rng.random() < 0.4 else None
    total = np.zeros([n, group, m, pixels_out]) + (0 if bias is None else bias.reshape(group, m, 1))
    scale = np.full_like(total, 4)
    wide_x, wide_w = x.astype(float), w.astype(float)
    for tap, small, big in taps(v, *(("in", "out") if transpose else ("out", "in"))):
        weight = wide_w[:, :, :, *tap]
        order, read, write = ("gcm,ngcp->ngmp", small, big) if transpose else ("gmc,ngcp->ngmp", big, small)
        total[..., write] += np.einsum(order, weight, wide_x[..., read])
        scale[..., write] += np.einsum(order, np.abs(weight), np.abs(wide_x[..., read]))
    want = finish(total, residual, act["act"], act["after"], act["a"], act["b"])
    given: dict[str, Any] = {"n": n, "c": group * c, "m": group * m, "group": group, **v}
    if not transpose:
        given |= {"act": act["act"] + AFTER * act["after"], "act_a": act["a"], "act_b": act["b"]}
    ins = [x, w, bias] if transpose else [x, w, bias, residual]
    got = run("conv_transpose" if transpose else "conv", [(dtype, total.shape)], ins, int(rng.integers(1, 4)), **given)
    # Winograd's method rounds by the largest terms nearby.
    assert_close(got, want, scale.max(initial=0) * (1 + (c * n_taps) ** 0.5 / 16), dtype, 16)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(40))
def test_conv(transpose: bool, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for rank, largest in ((1, 200), (2, 15), (2, 15), (3, 6)):
        group, c, m = (int(rng.choice(q)) for q in ([1, 1, 2, 3], [1, 2, 5, 17], [1, 3, 8, 13]))
        conv_case(rng, dtype, transpose, group, c, m, window(rng, transpose, rank, largest))


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("seed", range(40))
def test_conv_depthwise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for rank, largest in ((1, 120), (2, 20), (2, 70), (3, 5)):
        group = int(rng.choice([2, 3, 5, 9, 16, 37]))
        conv_case(rng, "float32", False, group, 1, int(rng.choice([1, 1, 2, 3])), window(rng, False, rank, largest))


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("seed", range(40))
def test_conv_depthwise_side_by_side(seed: int) -> None:
    """Windows of any sides, taps apart and steps, larger than the image and beyond it, in as many bands as it takes."""
    rng = np.random.default_rng(seed)
    v: dict[str, list[int]] = {k: [1] for k in ("in", "kernel", "stride", "dilation", "out")} | {"pad": [0]}
    for steps, longest in ((4, 200), (3, 90)):
        kernel, stride, dilation = int(rng.integers(1, 13)), int(rng.integers(1, steps)), int(rng.choice([1, 1, 2, 5]))
        reach = (kernel - 1) * dilation + 1
        pad, more = int(rng.integers(0, reach + 2)), int(rng.integers(-1, reach + 2))
        size = max(int(rng.choice([1, 2, 7, 8, 14, 15, 16, 17, 31, 33, longest])), reach - pad - more, 1)
        out = (size + pad + more - reach) // stride + 1
        for key, value in zip(v, (size, kernel, stride, dilation, out, pad), strict=True):
            v[key].append(value)
    conv_case(rng, "float32", False, int(rng.choice([8, 16, 19, 40])), 1, 1, v)


@pytest.mark.parametrize(("c", "m", "size", "kernel"), [(70, 20, 9, 3), (300, 5, 7, 1), (600, 40, 1, 1), (33, 64, 20, 5)])
def test_conv_deep(c: int, m: int, size: int, kernel: int) -> None:
    """Several blocks of k."""
    conv_case(np.random.default_rng(0), "float32", False, 1, c, m, same(kernel, size, size))


@pytest.mark.parametrize(
    ("c", "m", "height", "width"), [(8, 8, 40, 41), (16, 33, 27, 28), (40, 12, 17, 20), (64, 9, 33, 16), (8, 8, 2, 65537)]
)
def test_conv_large(c: int, m: int, height: int, width: int) -> None:
    """Large enough for Winograd's method; the last too wide."""
    for seed in range(4):
        conv_case(np.random.default_rng(seed), "float32", False, 1, c, m, same(3, height, width))


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use(request.param, monkeypatch)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("seed", range(24))
def test_conv_three_by_three(seed: int, stride: int) -> None:
    """Winograd's method with any padding; where there are many channels, weights are transformed a part at a time."""
    rng = np.random.default_rng(seed)
    c, m, height, width = (int(rng.choice(q)) for q in ([8, 17, 48, 72, 130], [8, 24, 50, 90], [9, 13, 14, 28, 31], [8, 13, 16, 27, 40]))
    image = [height * stride - int(rng.integers(stride)), width * stride - int(rng.integers(stride))]
    pads = [int(rng.choice([-1, 0, 1, 1, 2])) for _ in range(2)]
    after = [pad + int(rng.integers(-1, 2)) for pad in pads]
    out = [(size + before + more - 3) // stride + 1 for size, before, more in zip(image, pads, after, strict=True)]
    v = {**same(3, *image), "stride": [1, stride, stride], "pad": [0, *pads], "out": [1, *out]}
    conv_case(rng, "float32", False, 1, c, m, v)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("seed", range(24))
def test_conv_few_tiles(seed: int) -> None:
    """Images of three or four of Winograd's tiles, where lanes are channels: those that fill no vector, and blocks of unlike depth."""
    rng = np.random.default_rng(seed)
    c, m = int(rng.choice([8, 9, 31, 130, 420])), int(rng.choice([16, 17, 33, 50, 72]))
    out = [(int(rng.integers(5, 9)), int(rng.integers(5, 9))), (3, 12), (11, 4)][max(seed % 8 - 5, 0)]
    pads, more = (rng.choice([-1, 0, 1, 1, 2], 2) for _ in range(2))
    image = np.maximum(np.array(out) + 2 - pads - more, 1)
    v = {**same(3, *map(int, image)), "pad": [0, *map(int, pads)], "out": [1, *out]}
    conv_case(rng, "float32", False, 1, c, m, v, 12 if c > 400 else 2)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("seed", range(24))
def test_conv_three_by_three_apart(seed: int) -> None:
    """Taps that lie apart: pixels as far apart are images of their own, of which the last may be smaller."""
    rng = np.random.default_rng(seed)
    c, m = int(rng.choice([8, 17, 48, 130])), int(rng.choice([8, 24, 50]))
    image, apart = rng.integers(12, 40, 2), np.array([(2, 2), (3, 3), (2, 1), (1, 2), (4, 3), (6, 6)][seed % 6])
    pads, more = (apart * rng.choice([0, 1, 1, 1, 2], 2) + rng.integers(-1, 2, 2) for _ in range(2))
    out = np.maximum(image + pads + more - 2 * apart, 1)
    image = out + 2 * apart - pads - more
    v = {"in": [1, *image], "kernel": [1, 3, 3], "stride": [1, 1, 1], "dilation": [1, *apart], "pad": [0, *pads], "out": [1, *out]}
    conv_case(rng, "float32", False, 1, c, m, {k: [int(n) for n in sizes] for k, sizes in v.items()})


@pytest.mark.parametrize("seed", range(24))
def test_conv_few_channels(seed: int) -> None:
    """Windows that are read where they lie: of few channels, with rows of outputs that fill vectors."""
    rng = np.random.default_rng(seed)
    v: dict[str, list[int]] = {k: [1] for k in ("in", "kernel", "stride", "dilation", "out")} | {"pad": [0]}
    for longest in (40, 140):
        kernel, stride, dilation, pad = (int(rng.choice(q)) for q in ([1, 2, 3, 5, 7], [1, 2, 2, 3], [1, 1, 2], [-1, 0, 1, 3]))
        size = int(rng.integers(24, longest))
        result = (size + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
        for key, value in zip(
            ("in", "kernel", "stride", "dilation", "pad", "out"), (size, kernel, stride, dilation, pad, result), strict=True
        ):
            v[key].append(value)
    conv_case(rng, "float32", False, 1, int(rng.integers(0, 5)), int(rng.integers(8, 40)), v)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(("stride", "apart"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize(("channels", "group"), [(6, 1), (6, 6), (24, 1), (72, 1)])
@pytest.mark.parametrize(("high", "wide"), [(29, 31), (7, 8)])
def test_conv_not_finite(channels: int, group: int, stride: int, apart: int, high: int, wide: int) -> None:
    """A NaN or an infinity reaches the outputs whose windows hold it, and no other."""
    x = np.ones((channels, high, wide), np.float32)
    x[2, 4, wide // 2], x[3, 0, -1], x[5, -1, 0] = np.nan, np.inf, -np.inf
    w = np.ones((channels, channels // group, 3, 3), np.float32)
    padded, taps = np.pad(x.astype(float), [(0, 0), (apart, apart), (apart, apart)]), (0, apart, 2 * apart)
    want = np.sum([padded[:, i : i + high, j : j + wide] for i in taps for j in taps], 0)
    if group == 1:
        want = np.broadcast_to(want.sum(0), x.shape)
    want = want[:, ::stride, ::stride]
    v = same(3, high, wide) | {"stride": [1, stride, stride], "dilation": [1, apart, apart], "pad": [0, apart, apart]}
    v |= {"out": [1, *want.shape[1:]]}
    y = run("conv", [("float32", want.shape)], [x, w, None, None], n=1, c=channels, m=channels, group=group, act=1, **v)
    np.testing.assert_allclose(y, np.maximum(want, 0), 1e-5)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_conv_depthwise_widths(kernel: int, stride: int) -> None:
    """Every number of outputs in a row around one vector and two, with borders of all sizes, of channels one by one and side by side."""
    rng = np.random.default_rng(kernel + stride)
    for out in itertools.product(range(1, 36), (1, int(rng.integers(2, 9)))):
        pad = [0, *(int(p) for p in rng.choice([kernel // 2, 0, 1, -1, kernel], 2))]
        more = [0, *(int(p) for p in rng.integers(-1, kernel, 2))]  # what a window has behind the image
        sizes = [1, *(max((n - 1) * stride + kernel - p - q, 1) for n, p, q in zip(out[::-1], pad[1:], more[1:], strict=True))]
        v = {"in": sizes, "kernel": [1, kernel, kernel], "stride": [1, stride, stride], "dilation": [1, 1, 1], "pad": pad}
        conv_case(rng, "float32", False, int(rng.choice([3, 8, 11, 17, 35])), 1, 1, v | {"out": [1, *out[::-1]]})


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("channels", [6, 21])
@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_conv_depthwise_sides_not_finite(kernel: int, stride: int, channels: int) -> None:
    """What stands at the end of a row stays out of the windows at the beginning of the next, and of the next plane's."""
    for height, width, after in itertools.product((7, 12), range(4, 40, 1 if channels == 6 else 5), (0, 1)):
        x = np.ones((channels, height, width), np.float32)
        x[::2, 1::3, -1], x[1::2, ::2, 0], x[4, -1, -1], x[5, 0, 0] = np.nan, np.inf, -np.inf, np.nan
        before = kernel // 2
        padded = np.pad(x.astype(float), [(0, 0), (before, before - after), (before, before - after)])
        out = [(n - kernel) // stride + 1 for n in padded.shape[1:]]
        ends = [(n - 1) * stride + 1 for n in out]
        taps = itertools.product(range(kernel), repeat=2)
        want = np.sum([padded[:, i : i + ends[0] : stride, j : j + ends[1] : stride] for i, j in taps], 0)
        v = {"in": [1, height, width], "kernel": [1, kernel, kernel], "stride": [1, stride, stride], "dilation": [1, 1, 1]}
        given: dict[str, Any] = {"n": 1, "c": channels, "m": channels, "group": channels, **v, "pad": [0, before, before], "out": [1, *out]}
        y = run("conv", [("float32", want.shape)], [x, np.ones((channels, 1, kernel, kernel), np.float32), None, None], **given)
        np.testing.assert_allclose(y, want, 1e-5)


@pytest.mark.parametrize("kernel", ["conv", "conv_transpose"])
def test_conv_refuses(kernel: str) -> None:
    x, w, out = np.zeros(2 * 16, np.float32), np.zeros(3 * 2 * 9, np.float32), [("float32", [3 * 16])]
    good: dict[str, Any] = {"n": 1, "c": 2, "m": 3, "group": 1, **same(3, 4, 4)}
    rest = [None] if kernel == "conv_transpose" else [None, None]
    run(kernel, out, [x, w, *rest], **good)
    for wrong in (
        {"n": 2}, {"n": -1}, {"c": 3}, {"m": 4}, {"group": 2}, {"group": 0}, {"in": [1, 4, 5]}, {"in": [1, -4, -4]}, {"out": [1, 4, 5]},
        {"kernel": [1, 3, 4]}, {"kernel": [1, 0, 3]}, {"stride": [1, 0, 1]}, {"stride": [1, 1, 1 << 40]}, {"dilation": [1, 1, 0]},
        {"dilation": [1, 1, 1 << 30]}, {"pad": [0, -(1 << 62), 0]}, {"pad": [1 << 62, 0, 0]}, {"pad": [0, -(1 << 63), 0]},
    ):  # fmt: skip
        refused(kernel, out, [x, w, *rest], **(good | wrong))
    refused(kernel, out, [x, w, np.zeros(2, np.float32), *rest[1:]], **good)
    refused(kernel, out, [x, w.astype(np.float64), *rest], **good)
    if kernel == "conv":
        refused(kernel, out, [x, w, None, np.zeros(47, np.float32)], **good)
        refused(kernel, out, [x, w, None, None], **good, act=12)
