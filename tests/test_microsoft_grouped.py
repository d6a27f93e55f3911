"""GroupQueryAttention: against onnxruntime, rows of different lengths, caches that grow and buffers, all in one session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operator_case import Array, Feed, check, model, normal, outputs_of, same, sessions
from test_microsoft_attention import DOMAIN, HALF, attention, heads_first, heads_last

HEADS, KV, SIZE = 4, 2, 16  # onnxruntime rotates multiples of 16 alone
NAMES = ["q", "k", "v", "pk", "pv", "ends", "total", "cos", "sin", "at", "bias", "sink"]


def table(dtype: Any = np.float32) -> dict[str, Array]:
    angles = np.outer(np.arange(20), 0.6 ** np.arange(SIZE // 2))
    return {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}


def step(before: list[int], new: int, held: int | None = None, dtype: Any = np.float32, packed: bool = False) -> dict[str, Array]:
    """Rows with ``before`` keys each in a cache of ``held``, and ``new`` tokens."""
    b = len(before)
    held = max(before) if held is None else held
    feed = {"q": normal(b, new, HEADS * SIZE), "k": normal(b, new, KV * SIZE, seed=1), "v": normal(b, new, KV * SIZE, seed=2)}
    if packed:
        feed = {"q": np.concatenate([feed["q"], feed["k"], feed["v"]], 2)}
    feed |= {"pk": normal(b, KV, held, SIZE, seed=3), "pv": normal(b, KV, held, SIZE, seed=4)}
    feed = {k: x.astype(dtype) for k, x in feed.items()}
    return feed | {"ends": np.array([n + new - 1 for n in before], np.int32), "total": np.array(max(before) + new, np.int32)}


CASES: dict[str, list[tuple[list[int], int, int | None]]] = {
    "one row": [([0], 5, None), ([5], 1, None), ([9], 1, None), ([4], 3, None)],
    "a buffer": [([0], 5, 12), ([5], 1, 12), ([11], 1, 12)],
    "rows": [([0, 0], 5, None), ([5, 5], 1, None), ([7, 2, 4], 1, None)],
    "rows in a buffer": [([0, 0], 3, 9), ([5, 2], 1, 9), ([8, 8], 1, 9)],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_steps(name: str, packed: bool, dtype: Any) -> None:
    """Prompts and steps over caches of any length and rows."""
    given: list[Feed] = [step(*c, dtype, packed) for c in CASES[name]]
    inputs = [n if n in given[0] or n in ("cos", "sin") else "" for n in NAMES[:9]]
    check(
        "GroupQueryAttention", given, constants=table(dtype), inputs=inputs, outputs=["y", "ck", "cv"], domain=DOMAIN, num_heads=HEADS,
        kv_num_heads=KV, do_rotary=1, **(HALF if dtype is np.float16 else {}),
    )  # fmt: skip


@pytest.mark.parametrize("rows", ["one row", "rows"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"softcap": 0.7}, {"local_window_size": 3}, {"smooth_softmax": 1}, {"scale": 0.2}, {"rotary_interleaved": 1, "do_rotary": 1},
        {"sink": True}, {"sink": True, "local_window_size": 2, "softcap": 2.0}, {"bias": True}, {"bias": True, "local_window_size": 4},
        {"at": True, "do_rotary": 1}, {"first": True},
    ],
)  # fmt: skip
def test_options(rows: str, attributes: dict[str, Any]) -> None:
    given: list[dict[str, Array]] = []
    for before, new, held in CASES[rows]:
        feed = step(before, new, held)
        b, total = len(before), int(feed["total"])
        if "bias" in attributes:
            feed["bias"] = normal(1, HEADS, new, total, seed=6)
        if "sink" in attributes:
            feed["sink"] = normal(HEADS, seed=7)
        if "at" in attributes:
            feed["at"] = (np.array(before)[:, None] + np.arange(new)).astype(np.int64)
        if "first" in attributes:
            del feed["pk"], feed["pv"]
            feed |= {"ends": np.full(b, new - 1, np.int32), "total": np.array(new, np.int32)}
        given.append(feed)
    constants = table() if "do_rotary" in attributes else {}
    inputs = [n if n in given[0] or n in constants else "" for n in NAMES]
    while not inputs[-1]:
        inputs.pop()
    rest = {k: v for k, v in attributes.items() if k not in ("bias", "sink", "at", "first")}
    check(
        "GroupQueryAttention", given, constants=constants, inputs=inputs, outputs=["y", "ck", "cv"], domain=DOMAIN, num_heads=HEADS,
        kv_num_heads=KV, **rest,
    )  # fmt: skip


@pytest.mark.parametrize("mode", [1, 2])
def test_scores(mode: int) -> None:
    """Before and after softmax, where keys are seen."""
    given: list[Feed] = [step([0], 4), step([3], 1), step([6], 1)]
    data = model(
        "GroupQueryAttention", given, inputs=NAMES[:7], outputs=["y", "ck", "cv", "qk"], domain=DOMAIN, num_heads=HEADS, kv_num_heads=KV,
        qk_output=mode,
    )  # fmt: skip
    for _, session in sessions(data):
        for feed in given:
            got, want = session.run(None, feed)[3], outputs_of(data, feed, "onnxruntime")[3]
            seen = np.arange(got.shape[3]) <= int(feed["total"]) - got.shape[2] + np.arange(got.shape[2])[:, None]
            same(got[:, :, seen], want[:, :, seen], 1e-4, 1e-5)


@pytest.mark.parametrize(("dtype", "bits"), [(np.int8, 8), (np.uint8, 4)])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_a_quantised_cache(dtype: Any, bits: int, kind: str) -> None:
    """The cache keeps its type; what is new is quantised before it is attended."""
    rng, width = np.random.default_rng(0), SIZE if bits == 8 else SIZE // 2
    shape = (1,) if kind == "PER_TENSOR" else (1, KV, 1, SIZE)
    scales = {n: rng.uniform(0.05, 0.3, shape).astype(np.float32) for n in ("ks", "vs")}
    given: list[dict[str, Array]] = []
    for before, new in (([3], 1), ([6], 1), ([2], 2)):
        feed = step(before, new)
        info = np.iinfo(dtype)
        feed |= {n: rng.integers(info.min, info.max + 1, (1, KV, before[0], width)).astype(dtype) for n in ("pk", "pv")}
        given.append(feed)

    def opened(codes: Array, scale: Array) -> Array:
        if bits == 8:
            return codes * scale
        return (np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:3], SIZE).astype(np.float64) - 8) * scale

    def closed(x: Array, scale: Array) -> Array:
        low, high = (-128, 127) if bits == 8 else (-8, 7)
        codes = np.clip(np.round(x / scale), low, high)
        if bits == 8:
            return codes.astype(np.int8)
        codes = (codes + 8).astype(np.uint8)
        return codes[..., ::2] | codes[..., 1::2] << 4

    def oracle(feed: Feed) -> list[Array]:
        new = feed["q"].shape[1]
        out = [
            np.concatenate([feed["p" + n], closed(heads_first(feed[n], KV), scales[n + "s"])], 2) for n in "kv"
        ]  # fmt: skip
        k, v = (np.repeat(opened(c, scales[n + "s"]), HEADS // KV, 1) for n, c in zip("kv", out, strict=True))
        total = k.shape[2]
        hidden = np.where(np.arange(total) > total - new + np.arange(new)[:, None], -np.inf, 0.0)
        return [heads_last(attention(heads_first(feed["q"], HEADS), k, v, hidden)).astype(np.float32), *out]

    check(
        "GroupQueryAttention", given, constants=scales, inputs=[*NAMES[:7], "", "", "", "", "", "ks", "vs"], outputs=["y", "ck", "cv"],
        domain=DOMAIN, num_heads=HEADS, kv_num_heads=KV, kv_cache_bit_width=bits, k_quant_type=kind, v_quant_type=kind, oracle=oracle,
    )  # fmt: skip


def test_norms_before_rotation() -> None:
    """What Qwen3 writes: keys and queries by their root mean square, a head at a time."""
    weights = {"qn": normal(SIZE) + 1, "kn": normal(SIZE, seed=1) + 1}
    given: list[Feed] = [step([0], 4), step([3], 1), step([6], 1)]
    inputs = [*NAMES[:7], "", "", "", "", "", "", "", "qn", "kn"]
    data = model("GroupQueryAttention", given, constants=weights, inputs=inputs, domain=DOMAIN, num_heads=HEADS, kv_num_heads=KV)
    outputs = ["y", "ck", "cv"]  # without them onnxruntime forgets the past
    plain = model("GroupQueryAttention", given, outputs, inputs=NAMES[:7], domain=DOMAIN, num_heads=HEADS, kv_num_heads=KV)

    def normed(x: Array, heads: int, weight: Array) -> Array:
        y = x.reshape(*x.shape[:2], heads, SIZE).astype(np.float64)
        return (y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-6) * weight).reshape(x.shape).astype(np.float32)

    for _, session in sessions(data):
        for feed in given:
            before = dict(feed) | {"q": normed(feed["q"], HEADS, weights["qn"]), "k": normed(feed["k"], KV, weights["kn"])}
            same(session.run(None, feed)[0], outputs_of(plain, before, "onnxruntime")[0], 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("change", "what"),
    [({"sliding_window_cache": 1, "local_window_size": 2}, "sliding_window_cache"), ({"kv_num_heads": 3}, "multiple of kv_num_heads")],
)
def test_what_cannot_be_is_named(change: dict[str, int], what: str) -> None:
    attributes = {"num_heads": HEADS, "kv_num_heads": KV} | change
    with pytest.raises(ValueError, match=what):
        next(sessions(model("GroupQueryAttention", [step([3], 1)], inputs=NAMES[:7], domain=DOMAIN, **attributes)))


def test_lengths_that_do_not_fit_are_told() -> None:
    feed = step([3], 1)
    data = model("GroupQueryAttention", [feed], inputs=NAMES[:7], domain=DOMAIN, num_heads=HEADS, kv_num_heads=KV)
    for _, session in sessions(data):
        with pytest.raises(RuntimeError, match=r"the cache holds|less than"):
            session.run(None, feed | {"total": np.array(9, np.int32), "ends": np.array([8], np.int32)})
