"""Recurrences of com.microsoft against onnxruntime: 8-bit weights, states that the next call continues from."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from operator_case import Array, Feed, check, model, normal, outputs_of, same, sessions
from test_microsoft_attention import DOMAIN

NAMES = ["x", "w", "r", "b", "n", "h", "c", "p", "ws", "wz", "rs", "rz"]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("case", ["", "all", "columns", "attributes"])
def test_lstm(case: str, direction: str, kind: Any) -> None:
    """A quantum of a hidden state, 1/255 of its range, may move by the last bit of a sum."""
    rng, ways, size, width = np.random.default_rng(0), 2 if direction == "bidirectional" else 1, 4, 3
    low = 0 if kind is np.uint8 else -128
    constants: dict[str, Array] = {
        "w": rng.integers(low, low + 256, (ways, width, 4 * size)).astype(kind),
        "r": rng.integers(low, low + 256, (ways, size, 4 * size)).astype(kind),
    }
    per = (ways, 4 * size) if case == "columns" else (ways,)
    for n in "wr":
        constants |= {n + "s": rng.uniform(0.002, 0.008, per).astype(np.float32), n + "z": np.full(per, low + 128, kind)}
    if case in ("all", "attributes"):
        constants |= {"b": normal(ways, 8 * size)}
    given: list[Feed] = []
    for steps, batch in ((5, 2), (1, 1), (9, 3)):
        feed: dict[str, Array] = {"x": normal(steps, batch, width)}
        if case == "all":
            feed |= {"h": normal(ways, batch, size, seed=2), "c": normal(ways, batch, size, seed=3), "p": normal(ways, 3 * size, seed=4)}
            feed["n"] = rng.integers(1, steps + 1, batch).astype(np.int32)
        given.append(feed)
    attributes: dict[str, Any] = {"hidden_size": size, "direction": direction}
    if case == "attributes":
        attributes |= {"clip": 1.5, "input_forget": 1, "activations": ["Sigmoid", "Tanh", "Relu"] * ways}
    inputs = [n if n in given[0] or n in constants else "" for n in NAMES]
    check(
        "DynamicQuantizeLSTM", given, constants=constants, inputs=inputs, outputs=["y", "yh", "yc"], domain=DOMAIN, rtol=0.02, atol=0.02,
        **attributes,
    )  # fmt: skip


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("rep", [1, 2])
@pytest.mark.parametrize("wide", [False, True])
def test_linear_attention(rule: str, rep: int, wide: bool) -> None:
    heads, size, depth = 2, 4, 3
    given: list[Feed] = []
    for b, n in ((2, 5), (1, 1), (1, 9)):
        k = normal(b, n, heads, size, seed=1)
        k /= np.linalg.norm(k, axis=-1, keepdims=True)
        feed = {"q": normal(b, n, heads * rep * size), "k": k.reshape(b, n, -1), "v": normal(b, n, heads * depth, seed=2)}
        feed["s"] = normal(b, heads, size, depth, seed=3)
        if "gated" in rule:
            feed["d"] = -np.abs(normal(b, n, heads * (size if wide else 1), seed=4))
        if "delta" in rule:
            feed["b"] = np.abs(normal(b, n, 1 if wide else heads, seed=5)) * 0.3
        given.append(feed)
    inputs = [n if n in given[0] else "" for n in "qkvsdb"]
    while not inputs[-1]:
        inputs.pop()
    check(
        "LinearAttention", given, inputs=inputs, outputs=["y", "t"], domain=DOMAIN, q_num_heads=heads * rep, kv_num_heads=heads,
        update_rule=rule, rtol=1e-3, atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("past", [False, True])
def test_causal_convolution(last: int, dilation: int, window: int, past: bool) -> None:
    channels, kept = 4, 2 * dilation
    given: list[Feed] = []
    for b, n in ((2, 5), (1, 1), (1, 2)):
        feed = {"x": normal(b, n, channels) if last else normal(b, channels, n)}
        if past:
            slot = (b, kept, channels) if last else (b, channels, kept)
            feed["s"] = normal(*((window, *slot) if window else slot), seed=1)
        given.append(feed)
    constants, inputs = {"w": normal(channels, 1, 3), "b": normal(channels)}, ["x", "w", "b", *(["s"] if past else [])]
    attributes = {"activation": "silu"} | ({"channels_last": 1} if last else {}) | ({"dilation": 2} if dilation == 2 else {})
    newest = [f | ({"s": f["s"][window - 1]} if window and past else {}) for f in given]
    beginnings = [{k: v if k == "s" else v[:, :1] if last else v[:, :, :1] for k, v in f.items()} for f in newest]
    plain = model("CausalConvWithState", [*newest, *beginnings], ["y", "t"], constants, DOMAIN, inputs=inputs, **attributes)

    def windowed(feed: Feed) -> list[Array]:
        """What onnxruntime's CPU provider lacks, by what it gives for all beginnings."""
        begun = dict(feed) | ({"s": feed["s"][window - 1]} if past else {})
        axis = 1 if last else 2
        runs = [outputs_of(plain, begun | {"x": feed["x"].take(range(n + 1), axis)}, "onnxruntime") for n in range(feed["x"].shape[axis])]
        states = [np.zeros_like(runs[0][1])] * window + [r[1] for r in runs]
        return [runs[-1][0], np.stack(states[-window:])]

    check(
        "CausalConvWithState", given, constants=constants, inputs=inputs, outputs=["y", "t"], domain=DOMAIN,
        oracle=windowed if window else "onnxruntime", **attributes, **({"state_window": window} if window else {}),
    )  # fmt: skip


ATTENDED = [
    {},
    {"lengths": True},
    {"memory_lengths": True},
    {"layer": False},
    {"peepholes": True, "input_forget": 1},
    {"bias": False, "initial": True, "clip": 0.3},
    {"direction": "reverse", "lengths": True},
    {"direction": "bidirectional", "lengths": True, "memory_lengths": True, "peepholes": True, "initial": True},
]


@pytest.mark.parametrize("case", ATTENDED)
def test_attention_lstm(case: dict[str, Any]) -> None:
    direction = case.get("direction", "forward")
    ways, size, width, depth, attention, layer = (2 if direction == "bidirectional" else 1), 3, 4, 5, 6, 2
    attended = layer if case.get("layer", True) else depth
    constants = {"w": normal(ways, 4 * size, width + attended) * 0.5, "r": normal(ways, 4 * size, size) * 0.5}
    constants |= {"qw": normal(ways, size, attention), "mw": normal(ways, depth, attention), "v": normal(ways, attention)}
    constants |= {"b": normal(ways, 8 * size)} if case.get("bias", True) else {}
    constants |= {"p": normal(ways, 3 * size)} if "peepholes" in case else {}
    constants |= {"aw": normal(ways, depth + size, layer)} if case.get("layer", True) else {}
    feeds = []
    for steps, batch, places in ((4, 2, 3), (1, 1, 5), (6, 3, 2)):
        given = {"x": normal(steps, batch, width), "m": normal(batch, places, depth)}
        less = np.arange(batch)
        given |= {"lengths": np.maximum(steps - less, 1).astype(np.int32)} if "lengths" in case else {}
        given |= {"places": np.maximum(places - less, 1).astype(np.int32)} if "memory_lengths" in case else {}
        given |= {n: normal(ways, batch, size, seed=s) for s, n in enumerate("hc", 3)} if "initial" in case else {}
        feeds.append(given)
    known = {*constants, *feeds[0]}
    names = [n if n in known else "" for n in ("x", "w", "r", "b", "lengths", "h", "c", "p", "qw", "mw", "v", "m", "places", "aw")]
    while not names[-1]:
        names.pop()
    attributes = {k: v for k, v in case.items() if k in ("direction", "clip", "input_forget")}
    check(
        "AttnLSTM", feeds, outputs=["y", "h1", "c1"], inputs=names, constants=constants, domain=DOMAIN, hidden_size=size, **attributes,
        rtol=1e-3,
    )  # fmt: skip


def test_attention_lstm_of_any_width() -> None:
    """How many columns of the weights are the input's is told by the input alone."""
    constants = {"w": normal(1, 12, 9), "r": normal(1, 12, 3), "qw": normal(1, 3, 2), "mw": normal(1, 5, 2), "v": normal(1, 2)}
    given = [{"x": normal(t, 2, 4), "m": normal(2, p, 5)} for t, p in ((3, 2), (1, 4))]
    names = ["x", "w", "r", "", "", "", "", "", "qw", "mw", "v", "m"]
    data = model("AttnLSTM", given, ["y"], constants, DOMAIN, inputs=names, hidden_size=3)
    free = onnx.load_from_string(data)
    free.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "width"
    for _, session in sessions(free.SerializeToString()):
        for feed in given:
            same(session.run(None, feed)[0], outputs_of(data, feed, "onnxruntime")[0], 1e-3, 1e-5)
