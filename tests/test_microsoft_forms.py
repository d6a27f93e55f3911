"""Operators and forms of com.microsoft that onnxruntime's CPU provider has not: against what they are made of, run there or in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from operator_case import DOMAINS, Array, Feed, check, model, normal, sessions
from test_microsoft_attention import attention, heads_first, heads_last

DOMAIN = "com.microsoft"
DOMAINS.setdefault("com.ms.internal.nhwc", 1)
INTERNAL = "com.ms.internal.nhwc"


def standard(op: str, x: Array, *weights: Array, **attributes: Any) -> Array:
    """The operator of the standard over [n, c, ...], by onnxruntime."""
    names = ["x", *(f"w{i}" for i in range(len(weights)))]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in zip(names, (x, *weights), strict=True)]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", infos, [out])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    found: Array = session.run(None, dict(zip(names, (x, *weights), strict=True)))[0]
    return found


def turned(x: Array) -> Array:
    """Channels last."""
    return np.moveaxis(x, 1, -1)


IMAGES = ((2, 4, 7, 6), (1, 4, 5, 9), (3, 4, 8, 8))
POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
FORMS: dict[str, tuple[str, tuple[Array, ...], dict[str, Any]]] = {
    "Conv": ("Conv", (normal(6, 4, 3, 3), normal(6)), {"pads": [1, 0, 1, 1], "strides": [1, 2]}),
    "Conv of groups": ("Conv", (normal(8, 2, 2, 2),), {"group": 2, "dilations": [2, 1], "pads": [1, 1, 0, 1]}),
    "MaxPool": ("MaxPool", (), {**POOL, "ceil_mode": 1}),
    "AveragePool": ("AveragePool", (), POOL),
    "AveragePool with pads": ("AveragePool", (), {**POOL, "count_include_pad": 1}),
    "GlobalAveragePool": ("GlobalAveragePool", (), {}),
    "GlobalMaxPool": ("GlobalMaxPool", (), {}),
}


@pytest.mark.parametrize("name", FORMS)
def test_channels_last(name: str) -> None:
    """As onnxruntime writes them while it runs and loads none from a file: the standard's, with images turned."""
    op, weights, attributes = FORMS[name]
    names = [f"w{i}" for i in range(len(weights))]

    def oracle(feed: Feed) -> list[Array]:
        return [turned(standard(op, np.moveaxis(feed["x"], -1, 1), *weights, **attributes))]

    given: list[Feed] = [{"x": np.ascontiguousarray(turned(normal(*s)))} for s in IMAGES]
    check(op, given, constants=dict(zip(names, weights, strict=True)), domain=INTERNAL, oracle=oracle, **attributes)


def test_channels_last_with_an_activation() -> None:
    weights = normal(6, 4, 3, 3), normal(6)

    def oracle(feed: Feed) -> list[Array]:
        return [np.maximum(turned(standard("Conv", np.moveaxis(feed["x"], -1, 1), *weights)), 0)]

    given: list[Feed] = [{"x": np.ascontiguousarray(turned(normal(*s)))} for s in IMAGES]
    check("Conv", given, constants={"w": weights[0], "b": weights[1]}, domain=INTERNAL, oracle=oracle, activation="Relu")


def test_places_of_the_largest_are_refused_with_channels_last() -> None:
    data = model("MaxPool", [{"x": normal(1, 4, 4, 2)}], ("y", "i"), domain=INTERNAL, kernel_shape=[2, 2])
    with pytest.raises(ValueError, match="Indices is not supported with channels last"):
        next(sessions(data))


@pytest.mark.parametrize("op", ["BitmaskDropout", "BitmaskBiasDropout"])
@pytest.mark.parametrize("residual", [False, True])
def test_dropout_in_bits_leaves_all_in_inference(op: str, residual: bool) -> None:
    bias = op == "BitmaskBiasDropout"
    if residual and not bias:
        return
    given: list[Feed] = [{"x": normal(n, 5), **({"b": normal(5)} if bias else {}), **({"r": normal(n, 5, seed=3)} if residual else {})}
                         for n in (3, 1, 8)]  # fmt: skip
    inputs = ["x", *(["b", "r" if residual else ""] if bias else []), "ratio", "mode"]
    constants = {"ratio": np.array(0.7, np.float32), "mode": np.array(False)}

    def oracle(feed: Feed) -> list[Array]:
        return [feed["x"] + feed.get("b", np.float32(0)) + feed.get("r", np.float32(0))]

    check(op, given, inputs=inputs, constants=constants, domain=DOMAIN, oracle=oracle)


@pytest.mark.parametrize(
    ("outputs", "mode", "told"), [(("y", "m"), False, "the output mask is not supported"), (("y",), True, "training_mode must be false")]
)
@pytest.mark.parametrize("op", ["BitmaskDropout", "BitmaskBiasDropout"])
def test_dropout_in_bits_is_refused_in_training(op: str, outputs: tuple[str, ...], mode: bool, told: str) -> None:
    constants = {"ratio": np.array(0.7, np.float32), "mode": np.array(mode)}
    given: list[Feed] = [{"x": normal(3, 5), **({"b": normal(5)} if "Bias" in op else {})}]
    inputs = [*given[0], *([""] if "Bias" in op else []), "ratio", "mode"]
    with pytest.raises(ValueError, match=told):
        next(sessions(model(op, given, outputs, constants, DOMAIN, inputs=inputs)))


HEADS, SIZE, HIDDEN = 2, 4, 5


def attended(feed: Feed, w: Array, b: Array, kept: Array) -> list[Array]:
    """Attention with its projection over keys that are kept [batch, queries, keys]; the cache with the new keys and values."""
    q, k, v = (heads_first(part, HEADS) for part in np.split(feed["x"] @ w + b, 3, axis=-1))
    if "p" in feed:
        k, v = (np.concatenate([old, new], 2) for old, new in zip(feed["p"], (k, v), strict=True))
    y = heads_last(attention(q, k, v, np.where(kept[:, None], 0, -10000.0))).astype(np.float32)
    return [y, np.stack([k, v])] if "p" in feed else [y]


@pytest.mark.parametrize("past", [False, True])
def test_a_mask_for_all_places(past: bool) -> None:
    """[batch, 1, m, m]: the rows of the last queries, the columns of the keys that there are."""
    w, b, most = normal(HIDDEN, 24) * 0.5, normal(24), 9
    given: list[Feed] = []
    for i, (batch, n) in enumerate(((2, 3), (1, 1), (3, 6))):
        before = (0, 4, 1)[i] if past else 0
        mask = (np.random.default_rng(i).random((batch, 1, most, most)) < 0.7) | np.eye(most, dtype=bool)
        feed = {"x": normal(batch, n, HIDDEN), "m": mask.astype(np.int32)}
        given.append({**feed, "p": normal(2, batch, HEADS, before, SIZE, seed=3)} if past else feed)

    def oracle(feed: Feed) -> list[Array]:
        n = feed["x"].shape[1]
        keys = n + (feed["p"].shape[3] if past else 0)
        return attended(feed, w, b, feed["m"][:, 0, keys - n : keys, :keys] > 0)

    inputs, outputs = ["x", "w", "b", "m", *(["p"] if past else [])], ["y", *(["c"] if past else [])]
    check("Attention", given, constants={"w": w, "b": b}, inputs=inputs, outputs=outputs, domain=DOMAIN, oracle=oracle, num_heads=HEADS)


def test_a_mask_of_lengths_and_their_sums() -> None:
    """[3 * batch + 2]: lengths of the keys, then the sums of lengths of queries and of keys, which say no more."""
    w, b = normal(HIDDEN, 24) * 0.5, normal(24)
    given: list[Feed] = []
    for batch, n in ((2, 3), (1, 1), (3, 6)):
        lengths = np.random.default_rng(n).integers(1, n + 1, batch)
        sums = np.concatenate([[0], np.cumsum(lengths)])
        given.append({"x": normal(batch, n, HIDDEN), "m": np.concatenate([lengths, sums, sums]).astype(np.int32)})

    def oracle(feed: Feed) -> list[Array]:
        batch, n, _ = feed["x"].shape
        return attended(feed, w, b, np.broadcast_to(np.arange(n) < feed["m"][:batch, None, None], (batch, n, n)))

    check("Attention", given, constants={"w": w, "b": b}, inputs=["x", "w", "b", "m"], domain=DOMAIN, oracle=oracle, num_heads=HEADS)


@pytest.mark.parametrize("mask", [False, True])
def test_decoder_masked_self_attention(mask: bool) -> None:
    """One query a row behind a cache, as Attention has it."""
    w, b = normal(HIDDEN, 24) * 0.5, normal(24)
    given: list[Feed] = []
    for batch, before in ((2, 3), (1, 0), (3, 7)):
        feed: dict[str, Array] = {"x": normal(batch, 1, HIDDEN)}
        if mask:
            kept = np.arange(before + 1) >= np.random.default_rng(before).integers(0, before + 1, (batch, 1))
            feed["m"] = kept.astype(np.int32)
        given.append({**feed, "p": normal(2, batch, HEADS, before, SIZE, seed=3)})

    def oracle(feed: Feed) -> list[Array]:
        keys = feed["p"].shape[3] + 1
        kept = feed["m"][:, None] > 0 if mask else np.ones((len(feed["x"]), 1, keys), bool)
        return attended(feed, w, b, kept)

    inputs = ["x", "w", "b", "m" if mask else "", "p"]
    check("DecoderMaskedSelfAttention", given, constants={"w": w, "b": b}, inputs=inputs, outputs=["y", "c"], domain=DOMAIN,
          oracle=oracle, num_heads=HEADS)  # fmt: skip


def test_beams_of_decoder_masked_self_attention_are_refused() -> None:
    given: list[Feed] = [{"x": normal(2, 1, HIDDEN), "p": normal(2, 2, HEADS, 3, SIZE), "c": np.zeros((1, 2, 4), np.int32)}]
    constants = {"w": normal(HIDDEN, 24), "b": normal(24)}
    data = model(
        "DecoderMaskedSelfAttention", given, ("y",), constants, DOMAIN, inputs=["x", "w", "b", "", "p", "", "", "", "c"], num_heads=2
    )
    with pytest.raises(ValueError, match="cache_indirection is not supported; export"):
        next(sessions(data))
