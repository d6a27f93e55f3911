"""The domain com.microsoft: searches over a small decoder, and operators around decoders."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from ..sketch import FLOAT, Sketch
from . import NOT_GENERATED, Schema, generates
from .microsoft import finish, name_of, plain
from .quantised import DOMAIN

HEADS, HEAD, WORDS, PLACES = 2, 4, 11, 24
WIDTH = HEADS * HEAD
INT32 = np.dtype(np.int32)
NOT_GENERATED.update(
    {
        (DOMAIN, "Sampling"): "random numbers: no two implementations draw the same",
        (DOMAIN, "WhisperBeamSearch"): "BeamSearch behind an encoder of sounds; tests of theirs draw searches",
        (DOMAIN, "SparseAttention"): "onnxruntime writes into its inputs, which have to be bound as outputs, too",
        (DOMAIN, "SparseToDenseMatMul"): "sparse inputs, which feeds here are not",
        (DOMAIN, "VarlenNGramHashMapping"): "NGramHashMapping over rows that lie one behind the other; tests draw them",
    }
)


def decoder(m: Sketch) -> GraphProto:
    """Embeddings of words and places, attention with a past, its residual, and logits."""
    sizes = {"wte": (WORDS, WIDTH), "wpe": (PLACES, WIDTH), "head": (WIDTH, WORDS), "qkv": (WIDTH, 3 * WIDTH), "bias": (3 * WIDTH,)}
    rng = np.random.default_rng(m.integer(0, 1 << 30))
    stored = [numpy_helper.from_array((rng.normal(size=s) * 1.5).astype(np.float32), n) for n, s in sizes.items()]
    own: dict[str, Any] = {"num_heads": HEADS, "unidirectional": 1, "domain": DOMAIN}
    nodes = [
        helper.make_node("Gather", ["wte", "input_ids"], ["words"]),
        helper.make_node("Gather", ["wpe", "position_ids"], ["places"]),
        helper.make_node("Add", ["words", "places"], ["x"]),
        helper.make_node("Attention", ["x", "qkv", "bias", "attention_mask", "past_0"], ["a", "present_0"], **own),
        helper.make_node("Add", ["x", "a"], ["y"]),
        helper.make_node("MatMul", ["y", "head"], ["logits"]),
    ]

    def info(name: str, dtype: int, *shape: int | str) -> Any:
        return helper.make_tensor_value_info(name, dtype, shape)

    whole, real = TensorProto.INT32, TensorProto.FLOAT
    inputs = [info("input_ids", whole, "b", "s"), info("position_ids", whole, "b", "s"), info("attention_mask", whole, "b", "t")]
    outputs = [info("logits", real, "b", "s", WORDS), info("present_0", real, 2, "b", HEADS, "t", HEAD)]
    return helper.make_graph(nodes, "decoder", [*inputs, info("past_0", real, 2, "b", HEADS, "p", HEAD)], outputs, stored)


@generates("GreedySearch", "BeamSearch", domain=DOMAIN)
def search(m: Sketch, schema: Schema) -> None:
    """No sequence ends: behind those that do onnxruntime leaves what was in memory."""
    m.empty = False
    length, most = m.size(1, 4), m.integer(5, 12)
    beams = m.integer(1, 3)
    given = [m.input(m.whole_numbers(1, WORDS - 1, (m.size(1, 3), length), INT32)), m.const(np.array([most], INT32))]
    given.append(m.const(np.array([0], INT32)))
    if name_of(m) == "BeamSearch":
        given += [m.const(np.array([n], INT32)) for n in (beams, m.integer(1, beams))]
        given.append(m.const(np.array([m.choice((0.5, 1.0, 2.0))], FLOAT)))
    given.append(m.const(np.array([m.choice((1.0, 1.3))], FLOAT)))
    given.append(m.const((np.arange(WORDS) < WORDS - 1).astype(INT32)))
    finish(m, given, decoder=decoder(m), eos_token_id=WORDS - 1, pad_token_id=0, no_repeat_ngram_size=m.choice((None, 2, 3)))


@generates("DynamicTimeWarping", domain=DOMAIN)
def path(m: Sketch, schema: Schema) -> None:
    m.empty = False
    finish(m, [plain(m, *((1,) if m.chance(0.3) else ()), m.size(1, 9), m.size(1, 9))])


@generates("NGramHashMapping", domain=DOMAIN)
def hashes(m: Sketch, schema: Schema) -> None:
    m.empty = False
    dtype, order, heads = m.choice((INT32, np.dtype(np.int64))), m.integer(2, 4), m.integer(1, 3)
    batch, length, limits = m.size(), m.size(), np.iinfo(m.choice((np.int16, np.int32)))
    given = [m.input(m.whole_numbers(0, 5, (batch, length), dtype))]
    given.append(m.const(m.whole_numbers(limits.min, limits.max, (order,), dtype, True)))
    given.append(m.const(m.whole_numbers(1, 99, ((order - 1) * heads,), dtype, True)))
    given.append(m.input(m.whole_numbers(0, 5, (batch, order - 1), dtype)) if m.chance(0.5) else "")
    given.append(m.const(m.whole_numbers(0, 999, ((order - 1) * heads,), dtype, True)) if m.chance(0.3) else "")
    given.append(m.const(np.array(m.integer(0, 5), dtype)) if m.chance(0.5) else "")
    given.append(m.input(m.whole_numbers(0, 2, (batch, length), INT32)) if m.chance(0.4) else "")
    sizes = {"max_ngram_size": order, "n_head_per_ngram": heads, "pad_id": m.integer(0, 5)}
    finish(m, given, 2, **sizes, reset_on_eos=m.choice((0, 1)))


@generates("BifurcationDetector", domain=DOMAIN)
def bifurcation(m: Sketch, schema: Schema) -> None:
    m.empty = False
    length = m.size(1, 8)
    begin = length // 2
    given = [m.input(m.whole_numbers(0, 3, (n,))) for n in (length, m.size(1, 5))]
    given.append(m.input(np.array([begin], np.int64)))
    given.append(m.input(m.whole_numbers(0, 3, (length + 1 - begin,))) if m.chance(0.7) else "")
    least = m.integer(1, 3)
    finish(m, given, 2, min_ngram_size=least, max_ngram_size=least + m.integer(0, 2))


@generates("WordConvEmbedding", domain=DOMAIN)
def words(m: Sketch, schema: Schema) -> None:
    m.empty = False
    width, filters, size = m.integer(1, 3), m.integer(1, 5), m.integer(1, 4)
    letters = m.whole_numbers(0, 7, (m.size(), width + m.size(0, 5)), INT32)
    letters[:, 0] = np.maximum(letters[:, 0], 1)
    shapes = ((filters, 1, width, size), (filters,), (8, size))
    finish(m, [m.input(letters), *(plain(m, *s, constant=1) for s in shapes)])


@generates("MaxpoolWithMask", domain=DOMAIN)
def masked_maxima(m: Sketch, schema: Schema) -> None:
    m.empty = False
    rank = m.integer(1, 3)
    kernel = [m.integer(1, 3) for _ in range(rank)]
    shape = (m.size(1, 3), m.size(1, 3), *(m.size(3, 7) for _ in range(rank)))
    mask = m.input(m.whole_numbers(0, 3, (m.choice((1, shape[0])), m.choice((1, shape[1])), *shape[2:]), INT32))
    finish(m, [plain(m, *shape), mask], kernel_shape=kernel, strides=[m.integer(1, 3) for _ in range(rank)])


@generates("AttnLSTM", domain=DOMAIN)
def attentive(m: Sketch, schema: Schema) -> None:
    m.empty = False
    ways, size, width, depth, attention, layer = (m.integer(low, 4) for low in (1, 1, 1, 1, 1, 1))
    ways = 1 + (ways > 2)
    steps, batch, places = m.size(), m.size(1, 3), m.size(1, 5)
    attended = layer if m.chance(0.5) else 0

    def weights(*shape: int) -> str:
        return m.const(m.array(FLOAT, shape, "unit", True) - np.float32(0.5))

    given = [plain(m, steps, batch, width), weights(ways, 4 * size, width + (attended or depth)), weights(ways, 4 * size, size)]
    given.append(weights(ways, 8 * size) if m.chance(0.6) else "")
    given.append(m.input(m.whole_numbers(1, steps, (batch,), INT32)) if m.chance(0.4) else "")
    given += [plain(m, ways, batch, size) if m.chance(0.4) else "" for _ in range(2)]
    given.append(weights(ways, 3 * size) if m.chance(0.3) else "")
    given += [weights(ways, size, attention), weights(ways, depth, attention), weights(ways, attention), plain(m, batch, places, depth)]
    given.append(m.input(m.whole_numbers(1, places, (batch,), INT32)) if m.chance(0.4) else "")
    given.append(weights(ways, depth + size, layer) if attended else "")
    m.loose = 4
    finish(m, given, 3, hidden_size=size, direction="bidirectional" if ways == 2 else m.choice(("forward", "reverse")))
