"""Generation: sampling's numbers, texts over decoders of several kinds, conversations, limits, what goes wrong."""

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
from gguf_models import Tiny, talking
from onnx import TensorProto, helper

import pyonnx_wasm
from pyonnx_wasm.generate import ContextError, Generator, Sampling, Template, TextError
from pyonnx_wasm.generate.loop import Shown
from pyonnx_wasm.generate.sampling import choose, probabilities, uniform

# --- sampling


def test_uniform_numbers_are_those_of_threefry() -> None:
    """Known answer of Random123 for key 0, counter 0; the others are the definition of the sequence."""
    assert uniform(0, 0) == ((0x6B200159 >> 5) * 2**26 + (0x99BA4EFE >> 6)) / 2**53
    drawn = np.array([uniform(seed, n) for seed in (1, 2**40 + 3) for n in range(2000)])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert len(set(drawn)) == 4000
    assert abs(np.histogram(drawn, 8, (0, 1))[0] - 500).max() < 100


def kept(logits: Sequence[float], **settings: Any) -> set[int]:
    how = Sampling(**({"top_k": 0, "top_p": 1.0, "temperature": 1.0} | settings))
    return {choose(np.array(logits, np.float32), how, 5, n, [0]) for n in range(300)}


def test_settings_keep_what_they_say() -> None:
    logits = np.log([0.5, 0.2, 0.15, 0.1, 0.05])
    assert kept(logits) == {0, 1, 2, 3, 4}
    assert kept(logits, top_k=2) == {0, 1}
    assert kept(logits, top_p=0.6) == {0, 1}
    assert kept(logits, top_p=0.5) == {0}
    assert kept(logits, min_p=0.25) == {0, 1, 2}
    assert kept(logits, temperature=0.0) == {0}
    assert kept(logits, temperature=0.01) == {0}
    assert kept(logits, top_k=3, top_p=0.7) == {0, 1}, "top_p counts what top_k left: 0.5 and 0.2 of 0.85"
    assert kept([2.0, 1.5, -9.0], temperature=0.0, repetition_penalty=2.0) == {1}
    assert kept([-2.0, -3.0, -9.0], temperature=0.0, repetition_penalty=2.0) == {1}
    assert kept([1.0, 1.0, 0.0], temperature=0.0) == {0}, "of equals the first"


def test_tokens_come_as_often_as_they_are_likely() -> None:
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    how = Sampling(temperature=2.0, top_k=0, top_p=1.0)
    found = np.bincount([choose(2 * np.log(shares), how, 9, n, ()) for n in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(found, shares, atol=0.03)


@pytest.mark.parametrize("logits", [[np.nan, 1.0], [-np.inf, -np.inf]])
def test_logits_that_are_no_numbers_are_told(logits: list[float]) -> None:
    for made in (lambda x: choose(x, Sampling(), 0, 0, ()), probabilities):
        with pytest.raises(FloatingPointError, match="logits are not numbers"):
            made(np.array(logits, np.float32))


@pytest.mark.parametrize(
    "settings", [{"temperature": -1}, {"top_k": -1}, {"top_k": 1.5}, {"top_p": 0}, {"top_p": 1.1}, {"min_p": 2}, {"repetition_penalty": 0}]
)
def test_settings_out_of_range_are_told(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))} is .* it must be"):
        Sampling(**settings)


# --- text as it comes


def shown(pieces: list[bytes], stop: Sequence[str] = ()) -> tuple[list[str], str, bool]:
    view = Shown(lambda ids: b"".join(pieces[i] for i in ids).decode("utf-8", "replace"), stop)
    told = []
    for i in range(len(pieces)):
        told.append(view.add(i))
        if view.stopped:
            break
    return told, view.tell(), view.stopped


def test_text_is_told_in_whole_characters_and_before_a_stop() -> None:
    assert shown([b"a", b"\xe2", b"\x82", b"\xac", b"b"]) == (["a", "", "", "€", "b"], "", False)
    assert shown([b"a", b"\xe2\x82"]) == (["a", ""], "\ufffd", False)
    assert shown([b"one ", b"E", b"N", b"D!", b"x"], ["END"]) == (["one ", "", "", ""], "", True)
    assert shown([b"one ", b"E", b"N", b"x"], ["END"]) == (["one ", "", "", "ENx"], "", False)
    assert shown([b"ab", b"c.\n", b"\nd"], ["\n\n"]) == (["ab", "c.", ""], "", True)
    assert shown([b"one ", b"E"], ["END"]) == (["one ", ""], "E", False)


# --- decoders


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file with a byte-level tokenizer and a template."""
    return talking(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


PROMPT = "the cat sat."


def test_a_text_is_the_same_however_it_is_read(tiny: Path) -> None:
    """In one piece or in chunks, in a new generator or going on, awaited or not, compiled or not, on a second core."""
    first = Generator(tiny)
    want = first.generate(PROMPT, max_new_tokens=12, seed=3)
    tokens = list(want)
    assert [t.id for t in tokens] == want.ids
    assert "".join(t.text for t in tokens) == want.text == first.decode(want.ids)
    assert want.reason == "length"
    assert len(want.ids) == 12

    async def awaited(generator: Generator) -> list[int]:
        return [t.id async for t in generator.generate(PROMPT, max_new_tokens=12, seed=3)]

    pyonnx_wasm.save(pyonnx_wasm.compile(tiny), tiny.with_suffix(".ponnx"))
    compiled = Generator(tiny.with_suffix(".ponnx"), first.tokenizer)
    assert (compiled.context, compiled.ends) == (32, {1}), "a compiled model keeps what the file says"
    for other in (first, Generator(tiny, chunk=2), compiled, Generator(tiny, providers=["wasmtime"])):
        made = other.generate(PROMPT, max_new_tokens=12, seed=3)
        assert [t.id for t in made] == want.ids
    with ThreadPoolExecutor(1) as alone:  # this thread may have a loop of its own
        assert alone.submit(lambda: asyncio.run(awaited(Generator(tiny)))).result() == want.ids
    greedy = [list(Generator(tiny).generate(PROMPT, max_new_tokens=4, temperature=0, seed=s)) for s in (1, 2)]
    assert greedy[0] == greedy[1]
    assert first(PROMPT, max_new_tokens=12, seed=4) != want.text


def test_a_conversation_goes_on_without_reading_again(tiny: Path) -> None:
    generator = Generator(tiny)
    one = generator.generate(PROMPT, max_new_tokens=5, seed=1)
    list(one)
    more = generator.generate(one.prompt + one.ids + generator.encode(" dog"), max_new_tokens=4, seed=1)
    list(more)
    fresh = Generator(tiny).generate(more.prompt, max_new_tokens=4, seed=1)
    list(fresh)
    assert more.ids == fresh.ids
    assert more.statistics.reused_tokens == len(one.prompt) + 4
    assert fresh.statistics.reused_tokens == 0
    again = generator.generate(one.prompt, max_new_tokens=5, seed=1)
    list(again)
    assert again.ids == one.ids
    assert again.statistics.reused_tokens == len(one.prompt) - 1, "a retry reads the last token alone"
    assert again.statistics.prefill_rate > 0
    assert again.statistics.decode_rate > 0


def test_ends_stops_and_cancelling(tiny: Path) -> None:
    generator = Generator(tiny)
    whole = generator(PROMPT, max_new_tokens=12, seed=3)
    stop = whole[3:5]
    made = generator.generate(PROMPT, max_new_tokens=12, seed=3, stop=stop)
    assert "".join(t.text for t in made) == made.text == whole[: whole.index(stop)]
    assert made.reason == "stop"
    made = generator.generate(PROMPT, max_new_tokens=12, seed=3)
    for n, _ in enumerate(made):
        if n == 2:
            made.cancel()
    assert made.reason == "cancelled"
    assert len(made.ids) == 3
    assert generator(PROMPT, max_new_tokens=12, seed=3) == whole, "what was cancelled leaves nothing behind"
    ids = list(generator.generate(PROMPT, max_new_tokens=1, seed=3))
    generator.ends = frozenset([ids[0].id])
    made = generator.generate(PROMPT, max_new_tokens=12, seed=3)
    assert list(made) == []
    assert made.reason == "end"
    generator.ends = frozenset()
    first, second = (generator.generate(PROMPT, seed=s) for s in (1, 2))
    next(iter(first))
    next(iter(second))
    assert first.reason == "cancelled", "one text at a time"
    with pytest.raises(RuntimeError, match="has begun already"):
        next(iter(first))


def test_likely_tokens_are_told(tiny: Path) -> None:
    for token in Generator(tiny).generate(PROMPT, max_new_tokens=3, seed=2, likely=40, temperature=1.0, top_k=0, top_p=1.0):
        shares = dict(token.likely)
        assert shares[token.id] == token.probability
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        assert sum(shares.values()) == pytest.approx(1)


def test_texts_longer_than_the_model_reads(tiny: Path) -> None:
    with pytest.raises(ContextError, match="the text has 40 tokens, the model reads 32: shorten it, or let it slide"):
        Generator(tiny).generate([5] * 40)
    strict = Generator(tiny).generate([5] * 28, max_new_tokens=20, seed=1)
    with pytest.raises(ContextError, match="the text has 32 tokens"):
        list(strict)
    assert len(strict.ids) == 4
    assert strict.reason is not None
    assert strict.reason.startswith("error: the text has")
    sliding = Generator(tiny, overflow="slide")
    made = sliding.generate([5] * 40, max_new_tokens=40, seed=1)
    assert len(list(made)) == 40
    assert len(sliding.decoder.ids) < 32


def test_chats_and_their_templates(tiny: Path) -> None:
    generator = Generator(tiny)
    Tiny("F16").write(tiny.with_name("bare.gguf"))
    chat = [{"role": "user", "content": "the cat"}]
    assert generator.prompt(chat) == "user: the cat "
    assert generator(chat, max_new_tokens=4, seed=1) == generator("user: the cat ", max_new_tokens=4, seed=1)
    with pytest.raises(TextError, match="the chat template says: no"):
        generator.prompt([])
    with pytest.raises(TextError, match="does not parse: "):
        Template("{% for %}")
    with pytest.raises(TextError, match="fails on these messages"):
        Template("{{ messages[0].content.missing.more }}")(chat)
    with pytest.raises(TextError, match="SecurityError"):
        Template("{{ messages.__class__.__mro__ }}")(chat)
    with pytest.raises(TextError, match="no chat template: give one"):
        Generator(tiny.with_name("bare.gguf")).prompt(chat)


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([99], {}, "token 99 is none of the model's 33"),
        ([-1], {}, "token -1 is none"),
        ([3], {"max_new_tokens": 0}, "max_new_tokens is 0"),
        ([3], {"temperature": -1}, "temperature is -1"),
        ([3], {"sampling": Sampling(), "top_k": 3}, "top_k beside sampling="),
    ],
)
def test_what_cannot_be_asked(tiny: Path, prompt: list[int], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Generator(tiny).generate(prompt, **settings)


# --- exports


def decoder(style: str, weights: dict[str, Any], past: bool = True) -> onnx.ModelProto:
    """One layer of attention without positions, with the inputs of an exporter."""
    word, heads, size = len(weights["table"]), 2, 4
    cache = [TensorProto.FLOAT, ["batch", heads, "past", size]]
    inputs = [("input_ids", TensorProto.INT64, ["batch", "length"]), ("attention_mask", TensorProto.INT64, ["batch", "total"])]
    inputs += [("position_ids", TensorProto.INT64, ["batch", "length"])] if style != "genai" else []
    inputs += [(f"past_key_values.0.{p}", *cache) for p in ("key", "value")] if past else []
    held = ["past_key_values.0.key", "past_key_values.0.value"] if past else ["", ""]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["x"]),
        *([helper.make_node("Gather", ["places", "position_ids"], ["p"]), helper.make_node("Add", ["x", "p"], ["h"])]
          if style != "genai" else [helper.make_node("Identity", ["x"], ["h"])]),
        helper.make_node("ReduceSum", ["attention_mask", "axis"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "axis"], ["last"]),
        helper.make_node("Cast", ["last"], ["seqlens"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["shape"], start=1, end=2),
        helper.make_node("Squeeze", ["shape"], ["total1"]),
        helper.make_node("Cast", ["total1"], ["total32"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention", ["h", "h", "h", *held, "seqlens", "total32"],
            ["y", "present.0.key", "present.0.value"], domain="com.microsoft", num_heads=heads, kv_num_heads=heads,
        ),
        helper.make_node("MatMul", ["y", "head"], ["logits"]),
    ]  # fmt: skip
    stored = [onnx.numpy_helper.from_array(v, k) for k, v in weights.items()]
    outputs = [
        ("logits", TensorProto.FLOAT, ["batch", "length", word]),
        *((f"present.0.{p}", *cache[:1], ["batch", heads, "total", size]) for p in ("key", "value")),
    ]
    graph = helper.make_graph(
        nodes, style, [helper.make_tensor_value_info(*i) for i in inputs], [helper.make_tensor_value_info(*o) for o in outputs], stored
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)


def merged(weights: dict[str, Any]) -> onnx.ModelProto:
    """Both ways in one file, as optimum merges them: a branch asks use_cache_branch."""
    parts = {way: decoder("optimum", weights, past=way == "then") for way in ("then", "else")}
    whole = parts["then"].graph
    bodies = {}
    for way, part in parts.items():
        names = {o: f"{way}_{o}" for n in part.graph.node for o in n.output}
        for node in part.graph.node:
            node.input[:] = [names.get(i, i) for i in node.input]
            node.output[:] = [names.get(o, o) for o in node.output]
        out = [helper.make_tensor_value_info(f"{way}_{o.name}", TensorProto.FLOAT, None) for o in whole.output]
        bodies[f"{way}_branch"] = helper.make_graph(list(part.graph.node), way, [], out)
    node = helper.make_node("If", ["use_cache_branch"], [o.name for o in whole.output], **bodies)
    inputs = [*whole.input, helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])]
    graph = helper.make_graph([node], "merged", inputs, list(whole.output), list(whole.initializer))
    return helper.make_model(graph, opset_imports=parts["then"].opset_import, ir_version=10)


@pytest.mark.parametrize("style", ["optimum", "merged", "split", "genai"])
def test_exports_of_other_tools(style: str, tmp_path: Path) -> None:
    """Folders as tools lay them out give the tokens that the model without a cache gives."""
    rng = np.random.default_rng(8)
    weights = {"table": rng.standard_normal((40, 8)), "head": rng.standard_normal((8, 40)), "places": rng.standard_normal((64, 8))}
    stored = {k: v.astype(np.float32) for k, v in weights.items()} | {"axis": np.array([1])}
    whole = decoder(style, stored, past=False)
    if style == "genai":
        onnx.save(decoder(style, stored), tmp_path / "phi.onnx")
        config = {"model": {"decoder": {"filename": "phi.onnx"}, "context_length": 64, "eos_token_id": [39], "bos_token_id": 0}}
        (tmp_path / "genai_config.json").write_text(json.dumps(config))
    elif style == "split":
        onnx.save(whole, tmp_path / "decoder_model.onnx")
        onnx.save(decoder(style, stored), tmp_path / "decoder_with_past_model.onnx")
    else:
        (tmp_path / "onnx").mkdir()
        onnx.save(
            merged(stored) if style == "merged" else decoder(style, stored),
            tmp_path / "onnx" / ("decoder_model_merged.onnx" if style == "merged" else "model.onnx"),
        )
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 64, "eos_token_id": 39}))
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    generator = Generator(tmp_path)
    assert generator.context == 64
    assert generator.ends == {39}
    text = generator.generate([3, 1, 4, 1, 5], max_new_tokens=8, temperature=0)
    list(text)
    session, ids = pyonnx_wasm.InferenceSession(whole.SerializeToString()), [3, 1, 4, 1, 5]
    for _ in range(8):
        feed = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64), "position_ids": np.arange(len(ids))[None]}
        logits = session.run(["logits"], {i.name: feed[i.name] for i in session.get_inputs()})[0]
        ids.append(int(logits[0, -1].argmax()))
    assert text.prompt + text.ids == ids


def test_what_is_no_decoder_is_told(tmp_path: Path) -> None:
    weights = {
        "table": np.zeros((4, 8), np.float32),
        "head": np.zeros((8, 4), np.float32),
        "places": np.zeros((4, 8), np.float32),
        "axis": np.array([1]),
    }
    with pytest.raises(ValueError, match="has no cache of keys and values"):
        Generator(pyonnx_wasm.InferenceSession(decoder("optimum", weights, past=False).SerializeToString()))
    with pytest.raises(FileNotFoundError, match="holds no model"):
        Generator(tmp_path)
