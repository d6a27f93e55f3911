"""Normalisations and fused element-wise operators of com.microsoft: against onnxruntime where its CPU provider has them, else numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from operator_case import Array, Feed, check, normal, whole

DOMAIN = "com.microsoft"
HALF = {"rtol": 4e-3, "atol": 4e-3}


def wide(x: Array) -> Array:
    return x.astype(np.float64)


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("absent", ["", "beta", "bias", "beta bias"])
def test_skip_layer_normalization(dtype: Any, absent: str) -> None:
    given = [
        {"x": normal(*s).astype(dtype), "skip": (normal(*t) * 2 + 1).astype(dtype)}
        for s, t in (((2, 3, 8), (2, 3, 8)), ((1, 5, 8), (5, 8)), ((3, 2, 8), (1, 2, 8)))
    ]
    given = [{k: np.broadcast_to(v, f["x"].shape).copy() for k, v in f.items()} for f in given]
    constants = {n: (normal(8, seed=i) + 1).astype(dtype) for i, n in enumerate(("gamma", "beta", "bias")) if n not in absent}
    inputs = ["x", "skip", *[n if n in constants else "" for n in ("gamma", "beta", "bias")]]
    check(
        "SkipLayerNormalization", given, constants=constants, inputs=inputs, outputs=["y", "", "", "s"], domain=DOMAIN, epsilon=1e-5,
        **(HALF if dtype is np.float16 else {}),
    )  # fmt: skip


@pytest.mark.parametrize("skip", [(2, 8), (1, 2, 8)])
def test_a_skip_that_repeats(skip: tuple[int, ...]) -> None:
    given = [{"x": normal(b, 2, 8), "skip": normal(*skip)} for b in (3, 1, 2)]
    check("SkipLayerNormalization", given, constants={"g": normal(8)}, outputs=["y", "", "", "s"], domain=DOMAIN)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("bias", [False, True])
def test_skip_simplified(dtype: Any, bias: bool) -> None:
    given = [{k: (normal(*s, seed=i) * 3).astype(dtype) for i, k in enumerate(("x", "skip"))} for s in ((2, 3, 8), (1, 1, 8), (2, 7, 8))]
    constants = {n: (normal(8, seed=i) + 1).astype(dtype) for i, n in enumerate(("g", "b")[: 1 + bias])}
    check(
        "SkipSimplifiedLayerNormalization", given, constants=constants, outputs=["y", "", "", "s"], domain=DOMAIN,
        **(HALF if dtype is np.float16 else {}),
    )  # fmt: skip


def test_the_deviation_of_a_root_mean_square() -> None:
    given: list[Feed] = [{"x": normal(2, n, 8), "skip": normal(2, n, 8, seed=1)} for n in (3, 1, 4)]

    def oracle(feed: Feed) -> list[Array]:
        total = wide(feed["x"] + feed["skip"])
        inverse = 1 / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5)
        return [(total * inverse).astype(np.float32), inverse.astype(np.float32), total.astype(np.float32)]

    check(
        "SkipSimplifiedLayerNormalization", given, constants={"g": np.ones(8, np.float32)}, outputs=["y", "", "i", "s"], domain=DOMAIN,
        epsilon=1e-5, oracle=oracle,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("parts", ["segments mask places", "segments", "mask", "places", ""])
def test_embed(dtype: Any, parts: str) -> None:
    constants = {
        "words": normal(11, 8), "places": normal(9, 8, seed=1), "kinds": normal(2, 8, seed=2), "g": normal(8) + 1, "b": normal(8, seed=3),
    }  # fmt: skip
    if "segments" not in parts:
        del constants["kinds"]
    given: list[Feed] = []
    for b, n in ((2, 5), (1, 9), (3, 1)):
        feed = {"ids": whole(0, 11, b, n, dtype=np.int32)}
        if "segments" in parts:
            feed["seg"] = whole(0, 2, b, n, dtype=np.int32)
        if "mask" in parts:
            feed["mask"] = (np.arange(n) < whole(1, n + 1, b, 1)).astype(np.int32)
        if "places" in parts:
            feed["at"] = whole(0, 9, b, n, dtype=np.int32)
        given.append(feed)
    names = ["ids", "seg", "words", "places", "kinds", "g", "b", "mask", "at"]
    inputs = [n if n in given[0] or n in constants else "" for n in names]
    stored = {k: v.astype(dtype) for k, v in constants.items()}
    check(
        "EmbedLayerNormalization", given, constants=stored, inputs=inputs, outputs=["y", "m", "s"], domain=DOMAIN,
        **(HALF if dtype is np.float16 else {}),
    )  # fmt: skip


@pytest.mark.parametrize("segments", [True, False])
def test_quantised_embed(segments: bool) -> None:
    rng = np.random.default_rng(0)
    tables = {"words": (11, 8), "places": (9, 8), "kinds": (2, 8), "g": (8,), "b": (8,)}
    constants: dict[str, Array] = {k: rng.integers(0, 256, s).astype(np.uint8) for k, s in tables.items() if segments or k != "kinds"}
    for k in list(constants):
        constants |= {k + "_s": np.asarray(np.float32(rng.uniform(0.01, 0.1))), k + "_z": np.asarray(np.uint8(rng.integers(100, 150)))}
    given = [{"ids": whole(0, 11, b, n, dtype=np.int32), "mask": whole(0, 2, b, n, dtype=np.int32)} for b, n in ((2, 5), (1, 9), (3, 1))]
    if segments:
        given = [f | {"seg": whole(0, 2, *f["ids"].shape, dtype=np.int32)} for f in given]
    order = ["words", "places", "kinds", "g", "b"]
    names = ["ids", "seg", *order, "mask", *(n + "_s" for n in order), *(n + "_z" for n in order)]
    inputs = [n if n in given[0] or n in constants else "" for n in names]
    check("QEmbedLayerNormalization", given, constants=constants, inputs=inputs, outputs=["y", "m"], domain=DOMAIN, rtol=1e-3, atol=1e-4)


def group_norm(x: Array, gamma: Array, beta: Array, groups: int, last: int, activation: int) -> Array:
    x = np.moveaxis(wide(x), -1, 1) if last else wide(x)
    rows = x.reshape(x.shape[0], groups, -1)
    y = ((rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    y = y * gamma[:, None, None] + beta[:, None, None]
    y = silu(y) if activation else y
    return np.moveaxis(y, 1, -1) if last else y


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("last", "activation"), [(1, 1), (1, 0), (0, 1)])
def test_group_norm(dtype: Any, last: int, activation: int) -> None:
    gamma, beta = normal(6) + 1, normal(6, seed=1)
    shapes = [(n, h, w, 6) if last else (n, 6, h, w) for n, h, w in ((2, 3, 5), (1, 4, 4), (3, 1, 7))]
    given: list[Feed] = [{"x": normal(*s).astype(dtype)} for s in shapes]
    attributes = {"activation": activation, "groups": 2, "channels_last": last, "epsilon": 1e-5}
    check(
        "GroupNorm", given, constants={"g": gamma, "b": beta}, domain=DOMAIN, **attributes, **(HALF if dtype is np.float16 else {}),
        oracle=lambda f: [group_norm(f["x"], gamma, beta, 2, last, activation).astype(dtype)],
    )  # fmt: skip
    skips = [(s[0], 6) for s in shapes] if dtype is np.float32 else shapes
    more: list[Feed] = [f | {"skip": normal(*s, seed=4).astype(dtype)} for f, s in zip(given, skips, strict=True)]
    bias = normal(6, seed=5).astype(dtype)

    def skipped(feed: Feed) -> list[Array]:
        skip = wide(feed["skip"])
        if skip.ndim == 2:
            skip = skip[:, None, None] if last else skip[:, :, None, None]
        total = wide(feed["x"]) + skip + (wide(bias) if last else wide(bias)[:, None, None])
        return [group_norm(total, gamma, beta, 2, last, activation).astype(dtype), total.astype(dtype)]

    check(
        "SkipGroupNorm", more, constants={"g": gamma, "b": beta, "bias": bias}, inputs=["x", "g", "b", "skip", "bias"],
        outputs=["y", "s"], domain=DOMAIN, oracle=skipped, **attributes, **(HALF if dtype is np.float16 else {}),
    )  # fmt: skip


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_rms_norm(activation: str) -> None:
    given: list[Feed] = [{"x": normal(*s), "g": normal(8), "gate": normal(*s, seed=2)} for s in ((2, 3, 16), (1, 1, 16), (2, 5, 16))]
    check("GatedRMSNorm", given, domain=DOMAIN, activation=activation)


@pytest.mark.parametrize("scale", [(12,), (3, 4), (4,), None])
@pytest.mark.parametrize("flat", [True, False])
def test_branchwise_rms_norm(scale: tuple[int, ...] | None, flat: bool) -> None:
    given: list[Feed] = [{"x": normal(b, 2, 12) if flat else normal(b, 2, 3, 4)} for b in (2, 1, 3)]
    constants = {} if scale is None else {"s": normal(*scale)}
    check("BranchwiseRMSNorm", given, constants=constants, domain=DOMAIN, **({"num_branches": 3} if flat else {}))


def test_engram_gate() -> None:
    constants = {n: normal(2, 8, seed=i) for i, n in enumerate("abc")}
    given: list[Feed] = [
        {"k": normal(b, n, 2, 8), "q": normal(b, n, 2, 8, seed=1), "v": normal(b, n, 8)} for b, n in ((2, 3), (1, 1), (1, 6))
    ]
    check("EngramGate", given, constants=constants, outputs=["y", "n"], domain=DOMAIN)


def test_hyper_connections() -> None:
    for mix in ((3,), (3, 1), (3, 4)):
        pre: list[Feed] = [{"x": normal(b, 2, 3, 4), "m": normal(b, 2, *mix, seed=1)} for b in (1, 2, 3)]
        check("HyperConnectionPreMix", pre, domain=DOMAIN, reduction_scale=0.5)
        post: list[Feed] = [{"x": f["x"], "b": normal(len(f["x"]), 2, 4), "m": f["m"], "s": normal(len(f["x"]), 2, 3, 3)} for f in pre]
        check("HyperConnectionPostMix", post, domain=DOMAIN)
    flat: list[Feed] = [{"x": normal(b, 2, 12), "m": normal(b, 2, 12, seed=1)} for b in (1, 2, 3)]
    check("HyperConnectionPreMix", flat, domain=DOMAIN, num_branches=3)


ELEMENTWISE: dict[str, tuple[list[Any], dict[str, Any], Callable[..., Array] | None]] = {
    "Gelu": ([(2, 3, 8)], {}, None),
    "QuickGelu": ([(2, 3, 8)], {"alpha": 1.0}, None),
    "FastGelu": ([(2, 3, 8), (8,)], {}, None),
    "BiasGelu": ([(2, 3, 8), (8,)], {}, None),
    "ScaledSiLU": ([(2, 3, 8)], {"alpha": 0.7}, None),
    "GatedAdd": ([(2, 3, 8), (2, 3, 8), (2, 3, 1)], {}, None),
    "FusedMatMul": ([(2, 3, 8), (2, 5, 8)], {"transB": 1, "alpha": 0.5}, None),
    "TransposeMatMul": ([(3, 8), (3, 5)], {"transA": 1}, None),
    "GemmFastGelu": ([(2, 3, 8), (8, 5), (5,)], {}, lambda x, w, b: gelu_tanh(x @ w + b)),
    "BiasAdd": ([(2, 3, 8), (8,), (2, 3, 8)], {}, lambda x, b, s: x + b + s),
    "BiasSplitGelu": ([(2, 3, 8), (8,)], {}, lambda x, b: (x + b)[..., :4] * gelu((x + b)[..., 4:])),
    "BiasDropout": ([(2, 3, 8), (8,), (2, 3, 8)], {}, lambda x, b, r: x + b + r),
    "FusedMatMulActivation": ([(2, 8), (8, 5)], {"activation": "Relu", "alpha": 2.0}, lambda a, b: np.maximum(2 * (a @ b), 0)),
    "LinearAttentionGate": ([(2, 3, 8), (8,), (8,)], {}, None),
}  # fmt: skip


def gelu_tanh(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def gelu(x: Array) -> Array:
    from math import erf

    return np.asarray(x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))))


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_elementwise(op: str) -> None:
    shapes, attributes, formula = ELEMENTWISE[op]
    given: list[Feed] = []
    for first in (2, 1, 4):
        sized = [(first, *s[1:]) if len(s) == 3 else s for s in shapes]
        given.append({f"x{i}": normal(*s, seed=i) for i, s in enumerate(sized)})

    def oracle(feed: Feed) -> list[Array]:
        assert formula is not None
        return [formula(*map(wide, feed.values())).astype(np.float32)]

    check(op, given, domain=DOMAIN, oracle="onnxruntime" if formula is None else oracle, **attributes)


def test_softmax_of_a_sum() -> None:
    def oracle(feed: Feed) -> list[Array]:
        x = wide(feed["x"] + feed["b"])
        e = np.exp(x - x.max(-1, keepdims=True))
        return [(e / e.sum(-1, keepdims=True)).astype(np.float32)]

    for inner, shape in ((0, (3, 5)), (0, (1, 1, 3, 5)), (1, (2, 1, 1, 5))):
        given: list[Feed] = [{"x": normal(2, n, 3, 5), "b": normal(*shape)} for n in (4, 1, 2)]
        check("BiasSoftmax", given, domain=DOMAIN, axis=3, is_inner_broadcast=inner, oracle=oracle)


def test_finiteness() -> None:
    for bad, flags, want in ((0.0, {}, True), (np.inf, {}, False), (np.nan, {"isinf_only": 1}, True), (np.inf, {"isinf_only": 1}, False)):
        given: list[Feed] = [{"x": normal(2, n), "z": np.array([1, bad], np.float32)} for n in (1, 4, 3)]
        check("IsAllFinite", given, domain=DOMAIN, oracle=lambda f, w=want: [np.asarray(w)], **flags)


def test_scale_of_branches_whose_size_is_a_symbol() -> None:
    """For the whole axis, one for every branch, or one number, in one session."""
    feeds = [{"x": normal(1, 2, n), "s": normal(k, seed=k)} for n, k in ((6, 6), (12, 4), (9, 9), (3, 1))]

    def want(feed: Feed) -> list[Array]:
        x = feed["x"].astype(np.float64).reshape(1, 2, 3, -1)
        y = x / np.sqrt((x**2).mean(-1, keepdims=True) + np.float64(np.float32(1e-5)))
        scale = feed["s"].reshape(3, -1) if feed["s"].size == feed["x"].shape[2] else feed["s"]
        return [(y * scale).reshape(feed["x"].shape).astype(np.float32)]

    check("BranchwiseRMSNorm", feeds, domain=DOMAIN, oracle=want, num_branches=3)
