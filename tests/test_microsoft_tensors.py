"""Tensor operators and layouts of com.microsoft: against onnxruntime where its CPU provider has them, else numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from operator_case import Array, Feed, check, model, normal, sessions, whole
from test_microsoft_attention import DOMAIN


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric: str, dtype: Any) -> None:
    given: list[Feed] = [{"a": normal(m, 5).astype(dtype), "b": normal(k, 5, seed=1).astype(dtype)} for m, k in ((3, 4), (1, 1), (7, 2))]
    check("CDist", given, domain=DOMAIN, metric=metric)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_inverse(n: int, dtype: Any) -> None:
    """Matrices whose diagonals are no pivots."""
    given: list[Feed] = [
        {"x": (np.roll(np.eye(n), 1, 0) * 3 + normal(*lead, n, n) * 0.5).astype(dtype)} for lead in ((2, 3), (1, 1), (4, 2))
    ]
    near = {"rtol": 2e-2, "atol": 2e-2} if dtype is np.float16 else {"rtol": 1e-3, "atol": 1e-4}
    check("Inverse", given, domain=DOMAIN, **near)


def test_inverse_of_any_size() -> None:
    given: list[Feed] = [{"x": np.roll(np.eye(n, dtype=np.float32), 1, 0) * 3 + normal(n, n) * 0.5} for n in (3, 1, 20)]
    check("Inverse", given, domain=DOMAIN, rtol=1e-3, atol=1e-4)


SAME = [
    ("ExpandDims", [(2, 3), (4, 3), (1, 3)], {"axis": np.array(1, np.int32)}, {}),
    ("ExpandDims", [(2, 3), (4, 3), (1, 3)], {"axis": np.array(-1, np.int32)}, {}),
    ("Trilu", [(2, 3, 4), (1, 5, 2), (3, 3, 3)], {"k": np.array(1)}, {"upper": 0}),
    ("UnfoldTensor", [(2, 7), (3, 5), (1, 11)], {}, {"dim": 1, "size": 3, "step": 2}),
    ("SampleOp", [(2, 3), (1, 1), (4, 2)], {}, {}),
    ("GatherND", [(3, 4), (3, 2), (3, 9)], {"i": np.array([[0], [2]])}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "shapes", "constants", "attributes"), SAME)
def test_moves(op: str, shapes: list[tuple[int, ...]], constants: dict[str, Array], attributes: dict[str, Any]) -> None:
    check(op, [{"x": normal(*s)} for s in shapes], constants=constants, domain=DOMAIN, **attributes)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    given: list[Feed] = [
        {"x": normal(*s), "p": np.array([p])} for s, p in (((2, 3), [0, 2, 1, 1]), ((4, 5), [1, 0, 0, 3]), ((3, 3), [1, 1, 1, 1]))
    ]
    constants = {"v": np.array([1.5], np.float32)} if mode == "constant" else {}
    check("Pad", given, constants=constants, domain=DOMAIN, mode=mode)


def test_range() -> None:
    given: list[Feed] = [{n: np.array(v, np.int64) for n, v in zip("abc", t, strict=True)} for t in ((1, 9, 2), (5, 0, -1), (3, 3, 1))]
    check("Range", given, domain=DOMAIN)
    check("Range", [{"a": np.array([0.5], np.float32), "b": np.array([n], np.float32)} for n in (3, 1, 7)], domain=DOMAIN)


def test_unique() -> None:
    check("Unique", [{"x": whole(0, 4, n).astype(np.float32)} for n in (7, 1, 20)], outputs=["y", "i", "n"], domain=DOMAIN)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode: str, padding: str) -> None:
    given: list[Feed] = [{"x": normal(n, 2, 4, 5), "g": normal(n, h, 3, 2) * 0.8} for n, h in ((1, 2), (2, 5), (1, 1))]
    check("GridSample", given, domain=DOMAIN, mode=mode, padding_mode=padding, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_crop_and_resize(mode: str) -> None:
    rng = np.random.default_rng(0)
    given: list[Feed] = []
    for n, boxes in ((2, 3), (1, 1), (3, 5)):
        corners = rng.uniform(-0.1, 1.1, (boxes, 4)).astype(np.float32)
        given.append({"x": normal(n, 2, 5, 6), "r": corners, "b": whole(0, n, boxes, dtype=np.int32)})
    for size in ((3, 4), (1, 2)):
        check(
            "CropAndResize", given, constants={"s": np.array(size, np.int32)}, domain=DOMAIN, mode=mode, extrapolation_value=0.5, rtol=1e-3,
            atol=1e-4,
        )  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ngrams(size: int) -> None:
    given: list[Feed] = [{"i": whole(0, 4, b, n), "s": normal(b, 5)} for b, n in ((2, 9), (1, 3), (3, 20))]
    check("NGramRepeatBlock", given, domain=DOMAIN, ngram_size=size)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64])
@pytest.mark.parametrize("attributes", [{}, {"seed": 7, "positive": 0}])
def test_hashes(dtype: Any, attributes: dict[str, Any]) -> None:
    low = 0 if np.dtype(dtype).kind == "u" else -1000
    given = [{"x": whole(low, 100000, *s).astype(dtype)} for s in ((2, 3), (1, 1), (4, 5))]
    check("MurmurHash3", given, domain=DOMAIN, **attributes)


def test_transforms() -> None:
    """What CUDA's provider alone has."""
    signals: list[Feed] = [{"x": normal(*s)} for s in ((2, 8), (3, 6), (1, 16))]
    parts = lambda x: np.stack([x.real, x.imag], -1).astype(np.float32)  # noqa: E731
    check("Rfft", signals, domain=DOMAIN, signal_ndim=1, oracle=lambda f: [parts(np.fft.rfft(f["x"].astype(np.float64)))])
    spectra: list[Feed] = [{"x": parts(np.fft.rfft(f["x"]))} for f in signals]
    back = lambda f: [np.fft.irfft(f["x"][..., 0] + 1j * f["x"][..., 1]).astype(np.float32)]  # noqa: E731
    check("Irfft", spectra, domain=DOMAIN, signal_ndim=1, oracle=back)
    pairs: list[Feed] = [{"a": normal(n, 3, 2), "b": normal(n, 3, 2, seed=1)} for n in (2, 1, 5)]
    number = lambda x: x[..., 0] + 1j * x[..., 1]  # noqa: E731
    check("ComplexMul", pairs, domain=DOMAIN, oracle=lambda f: [parts(number(f["a"]) * number(f["b"]))])
    check("ComplexMulConj", pairs, domain=DOMAIN, oracle=lambda f: [parts(number(f["a"]) * number(f["b"]).conj())])


@pytest.mark.parametrize("both", [0, 1])
def test_relative_positions(both: int) -> None:
    table, heads, buckets, far = normal(8, 3), 3, 8, 20

    def oracle(feed: Feed) -> list[Array]:
        q, k = int(feed["q"][0]), int(feed["k"][0])
        ahead = np.arange(k) - np.arange(q)[:, None]
        n = buckets // 2 if both else buckets
        base = (ahead > 0) * n if both else 0
        distance = np.abs(ahead) if both else np.maximum(-ahead, 0)
        exact = n // 2
        large = exact + (np.log(np.maximum(distance, 1) / exact) / np.log(far / exact) * (n - exact)).astype(int)
        bucket = base + np.where(distance < exact, distance, np.minimum(large, n - 1))
        return [table.reshape(heads, buckets)[:, bucket][None]]

    given: list[Feed] = [{"q": np.array([n]), "k": np.array([n])} for n in (5, 1, 30)]
    check(
        "RelativePositionBias",
        given,
        constants={"t": table},
        inputs=["t", "q", "k"],
        domain=DOMAIN,
        is_bidirectional=both,
        max_distance=far,
        oracle=oracle,
    )


def test_gated_relative_positions() -> None:
    heads, size = 2, 4
    constants = {"qb": normal(8), "w": normal(size, 6), "b": normal(6, seed=2), "e": normal(1, heads, 1, 1)}
    given: list[Feed] = [{"q": normal(b, n, 8), "r": normal(1, heads, n, n)} for b, n in ((2, 3), (1, 1), (1, 5))]

    def oracle(feed: Feed) -> list[Array]:
        q = (feed["q"] + constants["qb"]).reshape(*feed["q"].shape[:2], heads, size).transpose(0, 2, 1, 3)
        u = (q @ constants["w"] + constants["b"]).reshape(*q.shape[:3], 2, 3).sum(-1)
        gates = 1 / (1 + np.exp(-u.astype(np.float64)))
        factor = gates[..., :1] * (gates[..., 1:] * constants["e"] - 1) + 2
        return [(factor * feed["r"]).astype(np.float32)]

    check(
        "GatedRelativePositionBias", given, constants=constants, inputs=["q", "qb", "r", "w", "b", "e"], domain=DOMAIN, num_heads=heads,
        oracle=oracle,
    )  # fmt: skip


def test_padding_goes() -> None:
    given: list[Feed] = [{"x": normal(len(c), n, 3), "c": np.array(c, np.int32)} for c, n in (([2, 4, 1], 4), ([3], 3), ([1, 2], 2))]

    def oracle(feed: Feed) -> list[Array]:
        counts, n = feed["c"], feed["x"].shape[1]
        real = np.arange(n) < counts[:, None]
        flat = np.arange(real.size).reshape(real.shape)
        offsets = np.concatenate([flat[real], flat[~real]]).reshape(real.shape).astype(np.int32)
        sums = np.cumsum([0, *counts]).astype(np.int32)
        return [feed["x"][real], offsets, sums, np.array([counts.max()], np.int32)]

    check("RemovePadding", given, outputs=["y", "o", "s", "m"], domain=DOMAIN, oracle=oracle)


def test_embedding() -> None:
    given: list[Feed] = [{"i": whole(0, 7, *s)} for s in ((2, 3), (1, 1), (4, 2))]
    table = normal(7, 3)
    check("TorchEmbedding", given, constants={"w": table}, inputs=["w", "i"], domain=DOMAIN, oracle=lambda f: [table[f["i"]]])


def last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


IMAGES = [normal(1, 3, 6, 7), normal(2, 3, 9, 5), normal(1, 3, 4, 4)]
WINDOW: dict[str, Any] = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}


def standard(op: str, *rest: Array, **attributes: Any) -> Any:
    """The operator of the standard, by onnxruntime, over channels that come last."""
    data = model(op, [{"x": i, **{f"r{k}": r for k, r in enumerate(rest)}} for i in IMAGES], **attributes)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return lambda f: [last(session.run(None, {"x": np.moveaxis(f["x"], -1, 1), **{f"r{k}": r for k, r in enumerate(rest)}})[0])]


def test_channels_last() -> None:
    given: list[Feed] = [{"x": last(i)} for i in IMAGES]
    w, b = normal(4, 3, 3, 2), normal(4)
    plain = standard("Conv", w, b, **WINDOW)
    check("NhwcConv", given, constants={"w": last(w), "b": b}, domain=DOMAIN, oracle=plain, **WINDOW)
    relu = lambda f: [np.maximum(plain(f)[0], 0)]  # noqa: E731
    check("NhwcFusedConv", given, constants={"w": w, "b": b}, domain=DOMAIN, activation="Relu", oracle=relu, **WINDOW)
    codes: list[Feed] = [{"x": whole(0, 256, *f["x"].shape, dtype=np.uint8)} for f in given]
    check("NhwcMaxPool", codes, domain=DOMAIN, **WINDOW)


def test_dynamic_pads() -> None:
    given: list[Feed] = [{"x": i} for i in IMAGES]
    constants = {"w": normal(3, 2, 3, 3), "p": np.array([1, 0, 1, 1])}
    check("ConvTransposeWithDynamicPads", given, constants=constants, domain=DOMAIN, strides=[2, 2])


def test_what_onnxruntime_kept_of_older_standards() -> None:
    given: list[Feed] = [{"x": i} for i in IMAGES]
    check("Crop", given, opset=7, border=[1, 0, 2, 1])
    check("Crop", given, opset=7, border=[1, 1, 0, 0], scale=[2, 3])
    check("ImageScaler", given, opset=7, bias=[0.5, -1.0, 2.0], scale=0.25)


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(ValueError, match="metric 'cosine'"):
        next(sessions(model("CDist", [{"a": normal(2, 3), "b": normal(2, 3)}], domain=DOMAIN, metric="cosine")))
