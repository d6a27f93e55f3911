"""Small decoders with random weights as subgraphs of com.microsoft's searches, as onnxruntime's convert_generation writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

HEADS, HEAD, WORDS, PLACES = 2, 4, 23, 40
WIDTH = HEADS * HEAD
MICROSOFT = "com.microsoft"
I32, F32 = TensorProto.INT32, TensorProto.FLOAT


def weights(seed: int, shapes: Mapping[str, Sequence[int]], scale: float = 1.5) -> list[TensorProto]:
    rng = np.random.default_rng(seed)
    return [numpy_helper.from_array((rng.normal(size=s) * scale / np.sqrt(s[0])).astype(np.float32), name) for name, s in shapes.items()]


def info(name: str, dtype: int, shape: Sequence[int | str]) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def gpt(seed: int = 0, layers: int = 2, ids: str = "input_ids", words: int = WORDS) -> GraphProto:
    """A decoder with a past: embeddings of words and places, attention with its residual, logits by the embedding."""
    shapes: dict[str, Sequence[int]] = {"wte": (words, WIDTH), "wpe": (PLACES, WIDTH), "head": (WIDTH, words)}
    nodes = [
        helper.make_node("Gather", ["wte", "input_ids"], ["words"]),
        helper.make_node("Gather", ["wpe", "position_ids"], ["places"]),
        helper.make_node("Add", ["words", "places"], ["x0"]),
    ]
    inputs = [info("input_ids", I32, ["b", "s"]), info("position_ids", I32, ["b", "s"]), info("attention_mask", I32, ["b", "t"])]
    outputs = [info("logits", F32, ["b", "s", words])]
    for k in range(layers):
        shapes |= {f"qkv{k}": (WIDTH, 3 * WIDTH), f"bias{k}": (3 * WIDTH,)}
        given = [f"x{k}", f"qkv{k}", f"bias{k}", "attention_mask", f"past_{k}"]
        own = {"num_heads": HEADS, "unidirectional": 1, "domain": MICROSOFT}
        nodes.append(helper.make_node("Attention", given, [f"a{k}", f"present_{k}"], **own))
        nodes.append(helper.make_node("Add", [f"x{k}", f"a{k}"], [f"x{k + 1}"]))
        inputs.append(info(f"past_{k}", F32, [2, "b", HEADS, "p", HEAD]))
        outputs.append(info(f"present_{k}", F32, [2, "b", HEADS, "t", HEAD]))
    nodes.append(helper.make_node("MatMul", [f"x{layers}", "head"], ["logits"]))
    return helper.make_graph(nodes, "gpt", inputs, outputs, weights(seed, shapes))


def attention(name: str, x: str, past: str, present: str) -> list[Any]:
    """Attention of a decoder's own, with a past; its result is added to x."""
    nodes = [helper.make_node("MatMul", [x, f"{w}{name}"], [f"{w}{name}x"]) for w in ("q", "k", "v")]
    pasts, presents = ([text.format(w) for w in ("key", "value")] for text in (past, present))
    given = [*(f"{w}{name}x" for w in ("q", "k", "v")), *([""] * 3 + pasts if past else [])]
    nodes.append(helper.make_node("MultiHeadAttention", given, [f"own{name}", *presents], num_heads=HEADS, domain=MICROSOFT))
    return [*nodes, helper.make_node("Add", [x, f"own{name}"], [f"{x}_own"])]


def crossing(name: str, x: str, mask: str, key: str, value: str, out: str) -> list[Any]:
    """Attention to what the encoder gave; its result is added to x."""
    return [
        helper.make_node("MatMul", [x, f"c{name}"], [f"c{name}x"]),
        helper.make_node("MultiHeadAttention", [f"c{name}x", key, value, "", mask], [f"cross{name}"], num_heads=HEADS, domain=MICROSOFT),
        helper.make_node("Add", [x, f"cross{name}"], [out]),
    ]


DECODER = {"emb": (WORDS, WIDTH), **dict.fromkeys(["q0", "k0", "v0", "c0"], (WIDTH, WIDTH)), "head": (WIDTH, WORDS)}


def decoder(mask: bool = True, hidden: bool = False, seed: int = 0, given: str = "one") -> GraphProto:
    """A decoder of one layer behind an encoder: tokens, the encoder's mask and hidden states where it takes them, and the pasts."""
    nodes = [helper.make_node("Gather", ["emb", "input_ids"], ["x"])]
    if given == "all":  # of all tokens it reads the last
        nodes = [
            helper.make_node("Slice", ["input_ids", "last", "end", "axis"], ["token"]),
            helper.make_node("Gather", ["emb", "token"], ["x"]),
        ]
    nodes += attention("0", "x", "past_{}_self_0", "present_{}_self_0")
    nodes += crossing("0", "x_own", "encoder_attention_mask" if mask else "", "past_key_cross_0", "past_value_cross_0", "y0")
    nodes.append(helper.make_node("MatMul", ["y0", "head"], ["logits0"]))
    last = "logits0"
    if hidden:
        nodes.append(helper.make_node("ReduceSum", ["encoder_hidden_states", "axes"], ["sums"], keepdims=0))
        nodes += [helper.make_node("Unsqueeze", ["sums", "one"], ["bias"]), helper.make_node("Add", [last, "bias"], ["logits"])]
    else:
        nodes.append(helper.make_node("Identity", [last], ["logits"]))
    pasts = [info(f"past_{w}_self_0", F32, ["b", HEADS, "p", HEAD]) for w in ("key", "value")]
    pasts += [info(f"past_{w}_cross_0", F32, ["b", HEADS, "e", HEAD]) for w in ("key", "value")]
    inputs = [info("input_ids", I32, ["b", 1 if given == "one" else "s"])]
    inputs += [info("encoder_attention_mask", I32, ["b", "e"])] if mask else []
    inputs += [info("encoder_hidden_states", F32, ["b", "e", WORDS])] if hidden else []
    outputs = [info("logits", F32, ["b", 1, WORDS]), *(info(f"present_{w}_self_0", F32, ["b", HEADS, "t", HEAD]) for w in ("key", "value"))]
    stored = weights(seed, DECODER)
    for name, value in {"last": [-1], "end": [1 << 30], "axis": [1], "axes": [1], "one": [1]}.items():
        stored.append(numpy_helper.from_array(np.array(value, np.int64), name))
    used = {n for node in nodes for n in node.input}
    return helper.make_graph(nodes, "decoder", [*inputs, *pasts], outputs, [t for t in stored if t.name in used])


def encoder(kind: str = "t5", seed: int = 0, starts: bool = True) -> GraphProto:
    """What runs once: keys and values of cross attention, and where it ``starts`` the decoder hidden states, its first logits and past."""
    shapes: dict[str, Sequence[int]] = {"ew": (WORDS if kind == "t5" else 5, WIDTH), "ek": (WIDTH, WIDTH), "ev": (WIDTH, WIDTH)}
    shapes["eh"] = (WIDTH, WORDS)
    nodes: list[Any] = []
    if kind == "t5":
        inputs = [info("encoder_input_ids", I32, ["b", "e"]), info("encoder_attention_mask", I32, ["b", "e"])]
        nodes.append(helper.make_node("Gather", ["ew", "encoder_input_ids"], ["h"]))
    else:
        inputs = [info("encoder_input_ids", F32, ["b", 5, "e"])]
        nodes.append(helper.make_node("Transpose", ["encoder_input_ids"], ["frames"], perm=[0, 2, 1]))
        nodes.append(helper.make_node("MatMul", ["frames", "ew"], ["h"]))
    heads = numpy_helper.from_array(np.array([0, 0, HEADS, HEAD], np.int64), "heads")
    for w in ("key", "value"):
        nodes.append(helper.make_node("MatMul", ["h", f"e{w[0]}"], [f"{w}h"]))
        nodes.append(helper.make_node("Reshape", [f"{w}h", "heads"], [f"{w}r"]))
        nodes.append(helper.make_node("Transpose", [f"{w}r"], [f"present_{w}_cross_0"], perm=[0, 2, 1, 3]))
    outputs = [info(f"present_{w}_cross_0", F32, ["b", HEADS, "e", HEAD]) for w in ("key", "value")]
    stored = [heads, *weights(seed + 1, shapes)]
    if starts:
        inputs.append(info("decoder_input_ids", I32, ["b", 1 if kind == "t5" else "s"]))
        nodes.append(helper.make_node("MatMul", ["h", "eh"], ["encoder_hidden_states"]))
        nodes.append(helper.make_node("Gather", ["emb", "decoder_input_ids"], ["x"]))
        nodes += attention("0", "x", "", "present_{}_self_0")
        mask = "encoder_attention_mask" if kind == "t5" else ""
        nodes += crossing("0", "x_own", mask, "present_key_cross_0", "present_value_cross_0", "y0")
        nodes.append(helper.make_node("MatMul", ["y0", "head"], ["logits"]))
        own = [info(f"present_{w}_self_0", F32, ["b", HEADS, "s", HEAD]) for w in ("key", "value")]
        outputs = [info("logits", F32, ["b", "s", WORDS]), info("encoder_hidden_states", F32, ["b", "e", WORDS]), *own, *outputs]
        stored += weights(seed, DECODER)
    else:
        stored = [t for t in stored if t.name != "eh"]
    return helper.make_graph(nodes, "encoder", inputs, outputs, stored)


def search(kind: str, given: Sequence[str], attributes: Mapping[str, Any], outputs: int = 1, **constants: Any) -> bytes:
    """A model of one search.

    Args:
        given: the operator's inputs by place, empty where it is absent; those not among the ``constants`` are inputs of the model.
    """
    ranks: dict[str, Sequence[int | str]] = {}
    floats = ("length_penalty", "repetition_penalty", "temperature")
    ranks |= {"input_ids": ["batch", "length"], "attention_mask": ["batch", "length"], "vocab_mask": ["words"]}
    ranks |= {"decoder_input_ids": ["batch", "start"]}
    if attributes.get("model_type") == 2:
        ranks["input_ids"] = ["batch", 5, "length"]
        floats = (*floats, "input_ids")
    ranks |= {"prefix_vocab_mask": ["batch", "words"], "presence_mask": ["batch", "words"]}
    inputs = [info(n, F32 if n in floats else I32, ranks.get(n, [1])) for n in given if n and n not in constants]
    stored = [numpy_helper.from_array(np.array([v], np.float32 if n in floats else np.int32), n) for n, v in constants.items()]
    names = ["sequences", "more", "scores"][:outputs]
    node = helper.make_node(kind, list(given), names, "search", domain=MICROSOFT, **attributes)
    types = [I32, F32, F32]
    graph = helper.make_graph([node], "g", inputs, [info(n, t, None) for n, t in zip(names, types, strict=False)], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
