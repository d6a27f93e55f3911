"""Attention operators of com.microsoft: against onnxruntime where its CPU provider has them, else numpy; three shapes in one session."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from operator_case import Array, Feed, Oracle, check, model, normal, outputs_of, sessions, whole

DOMAIN = "com.microsoft"
HALF = {"rtol": 5e-3, "atol": 5e-3}
SIZES = ((2, 3), (1, 1), (3, 6))  # batch, length


def near(dtype: Any) -> dict[str, float]:
    return HALF if dtype is np.float16 else {}


def typed(op: str, given: list[Feed], outputs: list[str], **rest: Any) -> Oracle:
    """onnxruntime, which cannot infer the type of scores."""
    made = onnx.load_from_string(model(op, given, outputs, domain=DOMAIN, **rest))
    for output in made.graph.output:
        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    data = made.SerializeToString()
    return lambda feed: outputs_of(data, feed, "onnxruntime")


def padded(kind: str, b: int, n: int, keys: int) -> Array:
    """A mask of one of the kinds; every row keeps a key."""
    ends = whole(1, keys + 1, b, dtype=np.int32)
    if kind == "ends":
        return ends
    begins = np.minimum(whole(0, 3, b, dtype=np.int32), ends - 1)
    if kind == "both":
        return np.concatenate([ends, begins])
    at = np.arange(keys)
    rows = ((at < ends[:, None]) & (at >= begins[:, None])).astype(np.int32)
    return rows if kind == "keys" else np.broadcast_to(rows[:, None], (b, n, keys)).copy()


@pytest.mark.parametrize("mask", ["", "ends", "both", "keys", "rows"])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, past: bool, causal: int) -> None:
    heads, size, hidden = 2, 4, 5
    constants = {"w": normal(hidden, 24) * 0.5, "b": normal(24)}
    given: list[Feed] = []
    for i, (b, n) in enumerate(SIZES):
        before = (0, 4, 1)[i] if past else 0
        feed = {"x": normal(b, n, hidden)}
        if mask:
            feed["m"] = padded(mask, b, n, n + before)
        if past:
            feed["p"] = normal(2, b, heads, before, size, seed=3)
        given.append(feed)
    inputs = ["x", "w", "b", "m" if mask else "", *(["p"] if past else [])]
    outputs = ["y", "c"] if past else ["y"]
    check("Attention", given, constants=constants, inputs=inputs, outputs=outputs, domain=DOMAIN, num_heads=heads, unidirectional=causal)


@pytest.mark.parametrize("case", ["sizes", "bias", "no bias", "scale", "filler"])
def test_attention_attributes(case: str) -> None:
    attributes: dict[str, Any] = {"num_heads": 2}
    width = 24
    if case == "sizes":
        attributes["qkv_hidden_sizes"], width = [8, 8, 12], 28
    if case == "scale":
        attributes["scale"] = 0.25
    if case == "filler":
        attributes["mask_filter_value"] = -1.0
    constants = {"w": normal(5, width) * 0.5} | ({} if case == "no bias" else {"b": normal(width)})
    given: list[Feed] = [{"x": normal(b, n, 5)} for b, n in SIZES]
    inputs = ["x", "w", "b" if "b" in constants else ""]
    if case == "filler":
        given = [f | {"m": padded("keys", *f["x"].shape[:2], f["x"].shape[1])} for f in given]
        inputs.append("m")
    if case == "bias":
        given = [f | {"ab": normal(1 if b == 2 else b, 2, n, n, seed=8)} for f, (b, n) in zip(given, SIZES, strict=True)]
        inputs += ["", "", "ab"]

    def unbiased(feed: Feed) -> list[Array]:
        """onnxruntime crashes without a bias."""
        q, k, v = (heads_first(t, 2) for t in np.split(feed["x"] @ constants["w"], 3, 2))
        return [heads_last(attention(q, k, v)).astype(np.float32)]

    oracle: Oracle = unbiased if case == "no bias" else "onnxruntime"
    check("Attention", given, constants=constants, inputs=inputs, domain=DOMAIN, oracle=oracle, **attributes)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def attention(q: Array, k: Array, v: Array, bias: Array | float = 0.0) -> Array:
    """[batch, heads, length, size] in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    return softmax(q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3]) + bias) @ v


def heads_first(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def heads_last(x: Array) -> Array:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def turned(x: Array, cos: Array, sin: Array, interleaved: bool = False) -> Array:
    """Angles [batch or 1, length, pairs]."""
    half = cos.shape[-1]
    a, b = (x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]) if interleaved else (x[..., :half], x[..., half : 2 * half])
    cos, sin = cos[:, None], sin[:, None]
    real, imaginary = cos * a - sin * b, sin * a + cos * b
    y = x.astype(np.float64).copy()
    if interleaved:
        y[..., 0 : 2 * half : 2], y[..., 1 : 2 * half : 2] = real, imaginary
    else:
        y[..., :half], y[..., half : 2 * half] = real, imaginary
    return y


def test_a_shared_buffer_and_rotation() -> None:
    """What CUDA's provider alone has: the cache is a buffer of a capacity, positions turn queries and keys."""
    heads, size = 2, 4
    w, b = normal(5, 24) * 0.5, normal(24)
    given: list[Feed] = [
        {"x": normal(n, m, 5), "p": normal(2, n, heads, 9, size, seed=2), "length": np.array([held], np.int32)}
        for n, m, held in ((2, 3, 4), (1, 1, 0), (1, 9, 0), (2, 1, 8))
    ]

    def oracle(feed: Feed) -> list[Array]:
        q, k, v = (heads_first(t, heads) for t in np.split(feed["x"] @ w + b, 3, 2))
        held, n = int(feed["length"][0]), q.shape[2]
        angles = (held + np.arange(n))[:, None] / 10000.0 ** (np.arange(0, size, 2) / size)
        q, k = (turned(t, np.cos(angles)[None], np.sin(angles)[None]) for t in (q, k))
        cache = feed["p"].copy()
        cache[0, :, :, held : held + n], cache[1, :, :, held : held + n] = k, v
        hidden = np.where(np.arange(held + n) > held + np.arange(n)[:, None], -np.inf, 0.0)
        y = attention(q, *cache[:, :, :, : held + n], hidden)
        return [heads_last(y).astype(np.float32), cache]

    check(
        "Attention", given, constants={"w": w, "b": b}, inputs=["x", "w", "b", "", "p", "", "length"], outputs=["y", "c"], domain=DOMAIN,
        num_heads=heads, unidirectional=1, do_rotary=1, past_present_share_buffer=1, oracle=oracle,
    )  # fmt: skip


@pytest.mark.parametrize("mask", ["", "ends", "keys", "rows"])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head(mask: str, past: bool, causal: int) -> None:
    heads, hidden, wide = 2, 8, 12
    if past:
        wide = hidden
    constants = {"b": normal(2 * hidden + wide)}
    given: list[Feed] = []
    for i, (b, n) in enumerate(SIZES):
        before = (3, 4, 1)[i] if past else 0
        feed = {"q": normal(b, n, hidden), "k": normal(b, n, hidden, seed=1), "v": normal(b, n, wide, seed=2)}
        if mask:
            feed["m"] = padded(mask, b, n, n + before)
        if past:
            feed |= {"pk": normal(b, heads, before, 4, seed=3), "pv": normal(b, heads, before, wide // 2, seed=4)}
        given.append(feed)
    inputs = ["q", "k", "v", "b", "m" if mask else "", "", *(["pk", "pv"] if past else [])]
    outputs = ["y", "ck", "cv", "qk"] if past else ["y"]
    rest: dict[str, Any] = {"constants": constants, "inputs": inputs, "num_heads": heads, "unidirectional": causal}
    check("MultiHeadAttention", given, outputs=outputs, domain=DOMAIN, oracle=typed("MultiHeadAttention", given, outputs, **rest), **rest)


@pytest.mark.parametrize("case", ["qkv", "kv", "cross", "bias", "scores"])
def test_multi_head_inputs(case: str) -> None:
    heads, size = 2, 4
    given: list[Feed] = []
    for b, n in SIZES:
        q, ab = normal(b, n, 8), normal(1, heads, n, n + 2 if case == "bias" else n, seed=7)
        k, v = (normal(b, n + 2, 8, seed=i) for i in (1, 2))
        given.append(
            {
                "qkv": {"q": normal(b, n, heads, 3, size)},
                "kv": {"q": q, "k": normal(b, n + 1, heads, 2, size)},
                "cross": {"q": q, "k": normal(b, heads, n + 4, size), "v": normal(b, heads, n + 4, size, seed=1)},
                "bias": {"q": q, "k": k, "v": v, "ab": ab},
                "scores": {"q": q, "k": k, "v": v},
            }[case]
        )
    inputs = [*given[0]][:3] + (["", "", "ab"] if case == "bias" else [])
    outputs = ["y", "", "", "qk"] if case == "scores" else ["y"]

    def unpacked(feed: Feed) -> list[Array]:
        parts = [feed["q"][:, :, :, i] for i in range(3)] if case == "qkv" else [feed["q"], feed["k"][..., 0, :], feed["k"][..., 1, :]]
        q, k, v = (heads_first(p.reshape(*p.shape[:2], 8), heads) for p in parts)
        return [heads_last(attention(q, k, v)).astype(np.float32)]

    oracle = unpacked if case in ("qkv", "kv") else typed("MultiHeadAttention", given, outputs, inputs=inputs, num_heads=heads)
    check("MultiHeadAttention", given, inputs=inputs, outputs=outputs, domain=DOMAIN, num_heads=heads, oracle=oracle)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_decoder_masked(cross: bool, mask: bool, bias: bool) -> None:
    """A cache that grows."""
    heads, size, given = 2, 4, []
    for b, held in ((2, 3), (1, 1), (3, 5)):
        feed: dict[str, Array] = {"q": normal(b, 1, 8)}
        kv = (b, heads, held, size) if cross else (b, 1, 8)
        feed |= {"k": normal(*kv, seed=1), "v": normal(*kv, seed=2)}
        if mask:
            feed["m"] = padded("keys", b, 1, held if cross else held + 1)
        if not cross:
            feed |= {"pk": normal(b, heads, held, size, seed=3), "pv": normal(b, heads, held, size, seed=4)}
        given.append(feed)
    constants = {"b": normal(24)} if bias else {}
    names = ["q", "k", "v", "m", "", "pk", "pv", "", "", "", "b"]
    inputs = [n if n in given[0] or n in constants else "" for n in names]
    outputs = ["y"] if cross else ["y", "ck", "cv"]

    def oracle(feed: Feed) -> list[Array]:
        q, k, v = feed["q"], feed["k"], feed["v"]
        if bias:
            parts = np.split(constants["b"], 3)
            q, k, v = q + parts[0], k if cross else k + parts[1], v if cross else v + parts[2]
        q, k, v = (t if t.ndim == 4 else heads_first(t, heads) for t in (q, k, v))
        if not cross:
            k, v = np.concatenate([feed["pk"], k], 2), np.concatenate([feed["pv"], v], 2)
        hidden = np.where(feed["m"][:, None, None] > 0, 0.0, -10000.0) if mask else 0.0
        return [heads_last(attention(q, k, v, hidden)).astype(np.float32), *(() if cross else (k, v))]

    check(
        "DecoderMaskedMultiHeadAttention", given, constants=constants, inputs=inputs, outputs=outputs, domain=DOMAIN, num_heads=heads,
        oracle=oracle,
    )  # fmt: skip


def test_decoder_masked_with_beams_in_a_buffer() -> None:
    """Each token of each beam comes from the beam that the cache's indirection names."""
    heads, size, beams, room = 2, 4, 3, 7
    names = ["q", "k", "v", "", "", "pk", "pv", "length", "beams", "origin"]
    given: list[Feed] = []
    for rows, held in ((1, 2), (2, 6), (2, 0)):
        b = rows * beams
        feed = {n: normal(b, 1, 8, seed=i) for i, n in enumerate("qkv")}
        feed |= {"pk": normal(b, heads, room, size, seed=3), "pv": normal(b, heads, room, size, seed=4)}
        origin = whole(0, beams, rows, beams, room, dtype=np.int32)
        origin[:, :, held] = np.arange(beams)
        feed |= {"length": np.array([held], np.int32), "beams": np.array([beams], np.int32), "origin": origin}
        given.append(feed)

    def oracle(feed: Feed) -> list[Array]:
        held = int(feed["length"][0])
        caches = [feed["pk"].copy(), feed["pv"].copy()]
        out = []
        for cache, new in zip(caches, (feed["k"], feed["v"]), strict=True):
            cache[:, :, held] = heads_first(new, heads)[:, :, 0]
            seen = np.empty_like(cache[:, :, : held + 1])
            for row in range(len(cache)):
                first, beam = row // beams * beams, row % beams
                for t in range(held + 1):
                    seen[row, :, t] = cache[first + feed["origin"][row // beams, beam, t], :, t]
            out.append(seen)
        y = attention(heads_first(feed["q"], heads), *out)
        return [heads_last(y).astype(np.float32), *caches]

    check(
        "DecoderMaskedMultiHeadAttention", given, inputs=names, outputs=["y", "ck", "cv"], domain=DOMAIN, num_heads=heads,
        past_present_share_buffer=1, oracle=oracle,
    )  # fmt: skip


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_quantised(column: bool, past: bool, causal: int) -> None:
    rng = np.random.default_rng(0)
    wide = (24,) if column else ()
    constants = {
        "w": rng.integers(-128, 128, (5, 24)).astype(np.int8), "b": normal(24), "xs": np.asarray(np.float32(0.02)),
        "ws": rng.uniform(0.005, 0.02, wide).astype(np.float32), "xz": np.asarray(np.uint8(120)), "wz": np.zeros(wide, np.int8),
    }  # fmt: skip
    given: list[Feed] = []
    for i, (b, n) in enumerate(SIZES):
        feed: dict[str, Array] = {"x": whole(0, 256, b, n, 5, dtype=np.uint8), "m": padded("ends", b, n, n)}
        if past:
            before = (3, 2, 1)[i]
            feed |= {"p": normal(2, b, 2, before, 4), "m": padded("ends", b, n, n + before)}
        given.append(feed)
    inputs = ["x", "w", "b", "xs", "ws", "m", "xz", "wz", *(["p"] if past else [])]
    outputs = ["y", "c"] if past else ["y"]
    check("QAttention", given, constants=constants, inputs=inputs, outputs=outputs, domain=DOMAIN, num_heads=2, unidirectional=causal)


def packing(lengths: Array, longest: int) -> tuple[Array, Array]:
    """Offsets of tokens, then of padding, and sums of lengths."""
    real = np.arange(longest) < lengths[:, None]
    flat = np.arange(real.size).reshape(real.shape)
    return np.concatenate([flat[real], flat[~real]]).reshape(real.shape).astype(np.int32), np.cumsum([0, *lengths]).astype(np.int32)


@pytest.mark.parametrize("case", ["Attention", "apart", "together"])
def test_packed(case: str) -> None:
    heads = 2
    w, b = normal(5, 24) * 0.5, normal(24)
    given: list[Feed] = []
    for lengths in ([1, 2, 4], [3], [2, 2]):
        offset, sums = packing(np.array(lengths), max(lengths))
        count, shared = sum(lengths), {"offset": offset, "sums": sums, "ab": normal(1, heads, max(lengths), max(lengths), seed=9)}
        if case == "Attention":
            given.append({"x": normal(count, 5)} | shared)
        elif case == "apart":
            given.append({n: normal(count, 8, seed=i) for i, n in enumerate("qkv")} | shared)
        else:
            given.append({"q": normal(count, heads, 3, 4)} | shared)

    def oracle(feed: Feed) -> list[Array]:
        if case == "Attention":
            parts = np.split(feed["x"] @ w + b, 3, 1)
        elif case == "apart":
            parts = [feed[n] + p for n, p in zip("qkv", np.split(b, 3), strict=True)]
        else:
            parts = [feed["q"][:, :, i].reshape(-1, 8) for i in range(3)]
        rows = []
        for begin, end in zip(feed["sums"], feed["sums"][1:], strict=False):
            q, k, v = (heads_first(p[None, begin:end], heads) for p in parts)
            rows.append(heads_last(attention(q, k, v, feed["ab"][..., : end - begin, : end - begin]))[0])
        return [np.concatenate(rows).astype(np.float32)]

    inputs = {
        "Attention": ["x", "w", "b", "offset", "sums", "ab"], "apart": ["q", "k", "v", "b", "offset", "sums", "ab"],
        "together": ["q", "", "", "", "offset", "sums", "ab"],
    }[case]  # fmt: skip
    op = "PackedAttention" if case == "Attention" else "PackedMultiHeadAttention"
    stored = {"w": w, "b": b} if case == "Attention" else {"b": b} if case == "apart" else {}
    check(op, given, constants=stored, inputs=inputs, domain=DOMAIN, num_heads=heads, oracle=oracle)


def test_padding_comes_back() -> None:
    given: list[Feed] = []
    for lengths in ([1, 2, 4], [3], [2, 2]):
        offset, _ = packing(np.array(lengths), max(lengths))
        given.append({"x": normal(sum(lengths), 5), "offset": offset})

    def restored(feed: Feed) -> list[Array]:
        full = np.zeros((feed["offset"].size, 5), np.float32)
        full[feed["offset"].reshape(-1)[: len(feed["x"])]] = feed["x"]
        return [full.reshape(*feed["offset"].shape, 5)]

    check("RestorePadding", given, domain=DOMAIN, oracle=restored)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("case", ["3-D", "4-D", "partial", "first"])
def test_rotary(dtype: Any, interleaved: int, case: str) -> None:
    pairs = 3 if case == "partial" else 4
    caches = [f(np.outer(np.arange(12), 0.5 ** np.arange(pairs))).astype(dtype) for f in (np.cos, np.sin)]
    given: list[Feed] = []
    for b, n in SIZES:
        at = np.array([2]) if case == "first" else whole(0, 12, b, n)
        given.append({"x": normal(b, 2, n, 8).astype(dtype) if case == "4-D" else normal(b, n, 16).astype(dtype), "at": at})
    attributes = {"num_heads": 2, "rotary_embedding_dim": 6} if case == "partial" else {}
    check(
        "RotaryEmbedding", given, constants={"cos": caches[0], "sin": caches[1]}, domain=DOMAIN, interleaved=interleaved, scale=1.0,
        **attributes, **near(dtype),
    )  # fmt: skip


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_by_time_height_and_width(layout: int, interleaved: int) -> None:
    caches = [f(np.outer(np.arange(12), 0.7 ** np.arange(8))).astype(np.float32) for f in (np.cos, np.sin)]
    given: list[Feed] = [{"x": normal(b, n, 32), "at": whole(0, 12, 3, b, n)} for b, n in SIZES]
    check(
        "MRotaryEmbedding", given, constants={"cos": caches[0], "sin": caches[1]}, domain=DOMAIN, interleaved=interleaved,
        mrope_layout=layout, mrope_section=[4, 2, 2], num_heads=2, rotary_embedding_dim=16,
    )  # fmt: skip


def test_rotary_of_gemma() -> None:
    given: list[Feed] = []
    for b, n in SIZES:
        feed = {k: normal(b, 2, n, 4, seed=i).astype(np.float16) for i, k in enumerate(("q", "qr", "k", "kr"))}
        given.append({"e": normal(b, n, 4)} | feed)

    def oracle(feed: Feed) -> list[Array]:
        cos, sin = (f(feed["e"])[:, None] for f in (np.cos, np.sin))
        return [(feed[x] * cos + feed[x + "r"] * sin).astype(np.float16) for x in "qk"]

    check("GemmaRotaryEmbedding", given, outputs=["y", "z"], domain=DOMAIN, oracle=oracle, **HALF)


def test_what_cannot_be_is_named() -> None:
    given: list[Feed] = [{"x": normal(1, 2, 5)}]
    constants = {"w": normal(5, 24), "b": normal(24)}
    data = model("Attention", given, constants=constants, domain=DOMAIN, num_heads=2, past_present_share_buffer=1)
    with pytest.raises(ValueError, match=r"Attention.*past_sequence_length"):
        next(sessions(data))
