"""Weights in blocks and mixtures of experts of com.microsoft: against onnxruntime where its CPU provider has them, else numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from operator_case import Array, Feed, check, model, normal, sessions, whole
from test_microsoft_attention import DOMAIN, HALF

HIDDEN, INNER, EXPERTS = 32, 64, 4


def codes(*shape: int) -> Array:
    return whole(0, 256, *shape, dtype=np.uint8)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("k", "n", "block"), [(32, 5, 16), (48, 3, 32), (7, 3, 16)])
def test_bnb4(kind: int, dtype: Any, k: int, n: int, block: int) -> None:
    constants = {"B": codes((n * k + 1) // 2), "s": np.abs(normal(-(-n * k // block))).astype(dtype)}
    given: list[Feed] = [{"x": normal(2, m, k).astype(dtype)} for m in (3, 1, 6)]
    near = HALF if dtype is np.float16 else {"rtol": 1e-4, "atol": 1e-4}
    check("MatMulBnb4", given, constants=constants, domain=DOMAIN, K=k, N=n, block_size=block, quant_type=kind, **near)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_groups_by_column(bits: int, zero: bool) -> None:
    k, n, block = 64, 5, 16
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 1 << bits, (n, k)).astype(np.uint8)
    packed = raw.reshape(n, k // block, -1) if bits == 8 else (raw[:, ::2] | raw[:, 1::2] << 4).reshape(n, k // block, -1)
    points = rng.integers(0, 1 << bits, (n, k // block)).astype(np.uint8)
    constants: dict[str, Array] = {
        "B": packed,
        "s": rng.random((n, k // block)).astype(np.float32),
        "g": rng.integers(0, 4, k).astype(np.int32),
    }
    if zero:
        constants["z"] = points if bits == 8 else points[:, ::2] | points[:, 1::2] << 4
    given: list[Feed] = [{"x": normal(m, k)} for m in (3, 1, 6)]

    def oracle(feed: Feed) -> list[Array]:
        group = constants["g"]
        middle = points[:, group] if zero else 1 << (bits - 1)
        weights = (raw.astype(np.float64) - middle) * constants["s"][:, group]
        return [(feed["x"] @ weights.T).astype(np.float32)]

    inputs = ["x", "B", "s", "z" if zero else "", "g"]
    check(
        "MatMulNBits",
        given,
        constants=constants,
        inputs=inputs,
        domain=DOMAIN,
        K=k,
        N=n,
        bits=bits,
        block_size=block,
        oracle=oracle,
        atol=1e-3,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gather_packed_bytes(bits: int, zero: bool, dtype: Any) -> None:
    rows, width, block = 11, 64, 16
    constants: dict[str, Array] = {"d": codes(rows, width * bits // 8), "s": np.abs(normal(rows, width // block)).astype(dtype)}
    if zero:
        constants["z"] = codes(rows, max(width // block * bits // 8, 1))
    given: list[Feed] = [{"i": whole(-rows, rows, *s)} for s in ((2, 3), (1, 1), (4, 2))]
    inputs = ["d", "i", "s", *(["z"] if zero else [])]
    check(
        "GatherBlockQuantized", given, constants=constants, inputs=inputs, domain=DOMAIN, bits=bits, block_size=block, quantize_axis=1,
        gather_axis=0, **(HALF if dtype is np.float16 else {}),
    )  # fmt: skip


@pytest.mark.parametrize("kind", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(("gather", "quantise", "width"), [(0, 1, 32), (0, 2, 32), (1, 2, 32), (0, 2, 37), (2, 1, 6), (-3, -1, 16)])
def test_gather_small_integers(kind: Any, zero: bool, gather: int, quantise: int, width: int) -> None:
    """Rows that fill bytes and rows that do not, blocks that the axis cuts."""
    shape, low = [5, 20, width], -8 if kind is ml_dtypes.int4 else 0
    scale = list(shape)
    scale[quantise] = -(-shape[quantise] // 16)
    constants: dict[str, Array] = {"d": whole(low, low + 16, *shape).astype(kind), "s": np.abs(normal(*scale))}
    if zero:
        constants["z"] = whole(low, low + 16, *scale).astype(kind)
    limit = shape[gather]
    given: list[Feed] = [{"i": whole(-limit, limit, *s)} for s in ((2, 3), (1, 1), (4, 2))]
    inputs = ["d", "i", "s", *(["z"] if zero else [])]
    check(
        "GatherBlockQuantized", given, constants=constants, inputs=inputs, domain=DOMAIN, block_size=16, quantize_axis=quantise,
        gather_axis=gather,
    )  # fmt: skip


def test_what_no_row_is_gives_zeros() -> None:
    constants = {"d": codes(3, 16), "s": np.ones((3, 1), np.float32)}
    given: list[Feed] = [{"i": np.array(i)} for i in ([0, 3, -4], [2, 99, -1], [1, 1, 1])]

    def oracle(feed: Feed) -> list[Array]:
        full = np.concatenate([constants["d"].astype(np.float32) - 128, np.zeros((1, 16), np.float32)])
        return [full[[i if -3 <= i < 3 and i >= 0 else i + 3 if -3 <= i < 0 else 3 for i in feed["i"]]]]

    check(
        "GatherBlockQuantized", given, constants=constants, inputs=["d", "i", "s"], domain=DOMAIN, bits=8, block_size=16, quantize_axis=1,
        oracle=oracle,
    )  # fmt: skip


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def opened(packed: Array, scale: Array, bits: int, block: int, zero: Array | float = 0.0) -> Array:
    """The weights of codes [..., bytes]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    flat = (packed[..., None] >> shifts & ((1 << bits) - 1)).reshape(*packed.shape[:-1], -1).astype(np.float64)
    return np.asarray((flat - (zero or 1 << (bits - 1))) * np.repeat(scale, block, -1))


@pytest.mark.parametrize("skip", [False, True])
def test_fused_projections(skip: bool) -> None:
    k, n, block = 64, 6, 32
    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {"g": normal(k) + 1}
    for name in "abc":
        constants |= {name: rng.integers(0, 256, (n, 2, 16)).astype(np.uint8), name + "s": rng.random((n, 2)).astype(np.float32) * 0.1}
    weights = {c: opened(constants[c].reshape(n, 32), constants[c + "s"], 4, 32) for c in "abc"}
    given: list[Feed] = [{"x": normal(1, m, k)} | ({"skip": normal(1, m, k, seed=1)} if skip else {}) for m in (3, 1, 6)]

    def normed(feed: Feed) -> tuple[Array, Array]:
        total = feed["x"] + feed.get("skip", 0)
        wide = total.astype(np.float64)
        return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * constants["g"], total

    def mlp(feed: Feed) -> list[Array]:
        x, total = normed(feed)
        return [(silu(x @ weights["a"].T) * (x @ weights["b"].T)).astype(np.float32), *([total] if skip else [])]

    def qkv(feed: Feed) -> list[Array]:
        x, total = normed(feed)
        return [*((x @ weights[c].T).astype(np.float32) for c in "abc"), *([total] if skip else [])]

    shared: dict[str, Any] = {"domain": DOMAIN, "K": k, "bits": 4, "block_size": block, "epsilon": 1e-5, "rtol": 1e-3, "atol": 1e-3}
    head = ["x", "skip" if skip else "", "g"]
    two = {x: v for x, v in constants.items() if x[0] != "c"}
    check(
        "MatMulNBitsMlp", given, constants=two, inputs=[*head, "a", "as", "", "b", "bs", ""], outputs=["y", "s"] if skip else ["y"], N=n,
        activation="silu", oracle=mlp, **shared,
    )  # fmt: skip
    check(
        "MatMulNBitsQkv", given, constants=constants, inputs=[*head, "a", "as", "", "b", "bs", "", "c", "cs", ""],
        outputs=["q", "k", "v", "s"] if skip else ["q", "k", "v"], Nq=n, Nkv=n, oracle=qkv, **shared,
    )  # fmt: skip


def tokens(*leads: tuple[int, ...]) -> list[Feed]:
    return [{"x": normal(*lead, HIDDEN), "r": normal(int(np.prod(lead)), EXPERTS, seed=1)} for lead in leads]


LEADS = ((2, 3), (1, 1), (4, 2))


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("normalise", [0, 1])
@pytest.mark.parametrize(("kind", "bias"), [("relu", True), ("gelu", False), ("silu", True), ("identity", False), ("swiglu", True)])
def test_mixture(kind: str, bias: bool, k: int, normalise: int) -> None:
    """Experts that nobody chose among them."""
    wide = INNER * 2 if kind == "swiglu" else INNER
    constants = {"w1": normal(EXPERTS, wide, HIDDEN) * 0.2, "w2": normal(EXPERTS, HIDDEN, INNER) * 0.2}
    if bias:
        constants |= {"b1": normal(EXPERTS, wide, seed=3), "b2": normal(EXPERTS, HIDDEN, seed=4)}
    inputs = ["x", "r", "w1", "b1" if bias else "", "w2", *(["b2"] if bias else [])]
    extra = {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.5} if kind == "swiglu" else {}
    check(
        "MoE", tokens(*LEADS), constants=constants, inputs=inputs, domain=DOMAIN, k=k, activation_type=kind, atol=1e-4,
        normalize_routing_weights=normalise, **extra,
    )  # fmt: skip


@pytest.mark.parametrize(("fusion", "third"), [(0, True), (2, False)])
def test_mixture_by_its_documentation(fusion: int, third: bool) -> None:
    """A third layer, and halves side by side; tokens packed in a matrix."""
    constants = {"w1": normal(EXPERTS, INNER * (1 if third else 2), HIDDEN) * 0.2, "w2": normal(EXPERTS, HIDDEN, INNER) * 0.2}
    if third:
        constants["w3"] = normal(EXPERTS, INNER, HIDDEN, seed=9) * 0.2

    def oracle(feed: Feed) -> list[Array]:
        chances = np.exp(feed["r"].astype(np.float64))
        chances /= chances.sum(1, keepdims=True)
        y = np.zeros(feed["x"].shape)
        for t, row in enumerate(feed["x"].astype(np.float64)):
            for e in np.argsort(-chances[t])[:2]:
                first = constants["w1"][e] @ row
                gate, linear = (first, constants["w3"][e] @ row) if third else np.split(first, 2)
                y[t] += chances[t, e] * (constants["w2"][e] @ (silu(gate) * linear))
        return [y.astype(np.float32)]

    inputs = ["x", "r", "w1", "", "w2", "", *(["w3"] if third else [])]
    given = tokens((5,), (1,), (7,))
    check(
        "MoE",
        given,
        constants=constants,
        inputs=inputs,
        domain=DOMAIN,
        k=2,
        activation_type="swiglu",
        swiglu_fusion=fusion,
        oracle=oracle,
        atol=1e-4,
    )


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16, 32])
@pytest.mark.parametrize("zero", [False, True])
def test_quantised_mixture(bits: int, block: int, zero: bool) -> None:
    rng = np.random.default_rng(bits + block)
    per = 8 // bits
    constants: dict[str, Array] = {}
    weights = {}
    for name, rows, width in (("1", INNER * 2, HIDDEN), ("2", HIDDEN, INNER)):
        blocks = width // block if block else 1
        packed = rng.integers(0, 256, (EXPERTS, rows, width // per)).astype(np.uint8)
        scale = (rng.random((EXPERTS, rows, blocks)) * 0.1 / (1 << bits)).astype(np.float32) * 4
        constants |= {"w" + name: packed, "s" + name: scale if block else scale[:, :, 0], "b" + name: normal(EXPERTS, rows)}
        middle: Array | float = 0.0
        if zero:
            points = rng.integers(1, 1 << bits, (EXPERTS, rows, blocks)).astype(np.uint8)
            flat = points if block else points[:, :, 0]
            flat = np.concatenate([flat, np.zeros((*flat.shape[:-1], -flat.shape[-1] % per), np.uint8)], -1)
            groups = flat.reshape(*flat.shape[:-1], -1, per)
            constants["z" + name] = sum(groups[..., i] << (i * bits) for i in range(per)).astype(np.uint8)
            middle = np.repeat(points, width // blocks, -1)
        weights[name] = opened(packed, scale, bits, width // blocks) if not zero else opened(packed, scale, bits, width // blocks, 1e-30)
        if zero:
            weights[name] = opened(packed, scale, bits, width // blocks, 1e-30) - middle * np.repeat(scale, width // blocks, -1)

    def oracle(feed: Feed) -> list[Array]:
        chances = np.exp(feed["r"].astype(np.float64))
        y = np.zeros((len(feed["r"]), HIDDEN))
        for t, row in enumerate(feed["x"].reshape(-1, HIDDEN).astype(np.float64)):
            best = np.argsort(-chances[t])[:2]
            for e in best:
                first = weights["1"][e] @ row + constants["b1"][e]
                gate, linear = np.minimum(first[::2], 7), np.clip(first[1::2], -7, 7)
                inner = gate / (1 + np.exp(-1.702 * gate)) * (linear + 1)
                y[t] += chances[t, e] / chances[t, best].sum() * (weights["2"][e] @ inner + constants["b2"][e])
        return [y.reshape(feed["x"].shape).astype(np.float32)]

    inputs = ["x", "r", "w1", "s1", "b1", "w2", "s2", "b2", "", "", "", *(["z1", "z2"] if zero else [])]
    check(
        "QMoE", tokens(*LEADS), constants=constants, inputs=inputs, domain=DOMAIN, k=2, activation_type="swiglu", swiglu_fusion=1,
        activation_alpha=1.702, activation_beta=1.0, swiglu_limit=7.0, normalize_routing_weights=1, expert_weight_bits=bits, oracle=oracle,
        rtol=1e-3, atol=1e-3, **({"block_size": block} if block else {}),
    )  # fmt: skip


@pytest.mark.parametrize("normalise", [0, 1])
def test_quantised_mixture_as_onnxruntime(normalise: int) -> None:
    """4 bits, a scale per row; selection and weights from two routers."""
    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {}
    for name, rows, width in (("1", INNER, HIDDEN), ("2", HIDDEN, INNER)):
        constants["w" + name] = rng.integers(0, 256, (EXPERTS, rows, width // 2)).astype(np.uint8)
        constants["s" + name] = (rng.random((EXPERTS, rows)) * 0.1).astype(np.float32)
    given = [f | {"rw": np.abs(normal(*f["r"].shape, seed=5))} for f in tokens(*LEADS)]
    inputs = ["x", "r", "w1", "s1", "", "w2", "s2", *[""] * 7, "rw"]
    check(
        "QMoE", given, constants=constants, inputs=inputs, domain=DOMAIN, k=2, activation_type="relu", rtol=2e-3, atol=2e-2,
        normalize_routing_weights=normalise,
    )  # fmt: skip
    check(
        "QMoE", tokens(*LEADS), constants=constants, inputs=inputs[:7], domain=DOMAIN, k=2, activation_type="silu", rtol=2e-3, atol=2e-2,
        normalize_routing_weights=normalise,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "what"),
    [({"use_sparse_mixer": 1}, "use_sparse_mixer"), ({"activation_type": "tanh"}, "activation_type 'tanh'")],
)
def test_what_cannot_be_is_named(change: dict[str, Any], what: str) -> None:
    constants = {"w1": normal(EXPERTS, INNER, HIDDEN), "w2": normal(EXPERTS, HIDDEN, INNER)}
    with pytest.raises(ValueError, match=what):
        next(sessions(model("MoE", tokens((2,)), constants=constants, inputs=["x", "r", "w1", "", "w2"], domain=DOMAIN, **change)))
