"""Several texts at a time, beam search, tokens that are foretold: each text is what it is alone, token by token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from gguf_architectures import CHECKED, write
from gguf_models import Tiny
from test_generate import decoder

import pyonnx_wasm
from pyonnx_wasm.generate import ContextError, Generator
from pyonnx_wasm.generate.ahead import Lookup
from pyonnx_wasm.generate.several import apart

ROOT = Path(__file__).parents[1]
WRITES = ROOT / "js/pages/write/write.gguf"
PROMPTS = [[5], [3, 1, 4, 1, 5, 9, 2, 6], [7, 7], [2, 7, 1, 8, 2, 8], [4, 4, 4, 4]]


def alone(generator: Generator, prompts: list[list[int]], limit: int = 12, **settings: Any) -> list[list[int]]:
    found = []
    for prompt in prompts:
        made = generator.generate(prompt, max_new_tokens=limit, seed=3, **settings)
        list(made)
        found.append(made.ids)
    return found


def counted(generator: Generator) -> list[int]:
    """Tokens of each run from now on."""
    runs, step = list[int](), generator.decoder.step

    def counting(ids: list[int], *more: Any) -> Any:
        runs.append(len(ids))
        return step(ids, *more)

    generator.decoder.step = counting  # type: ignore[method-assign]
    return runs


@pytest.mark.parametrize("name", CHECKED)
def test_texts_of_several_lengths_do_not_disturb_each_other(name: str, tmp_path: Path) -> None:
    """Of every architecture: with rotations, learned positions, windows."""
    generator = Generator(write(name, tmp_path / f"{name}.gguf"), False)
    generator.ends = frozenset()
    wide = generator.together(3)
    assert wide.shares
    assert [m.ids for m in generator.generate_many(PROMPTS, at_once=3, max_new_tokens=8, temperature=0)] == alone(
        generator, PROMPTS, 8, temperature=0
    )


@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "gpu"])
def test_texts_come_and_go(tmp_path: Path, backend: str) -> None:
    """More than are written at once, of other lengths; what ended leaves its cache to who goes on."""
    path = Tiny("Q8_0", layers=1).write(tmp_path / "tiny.gguf")
    generator = Generator(path, False, providers=[backend], several=True, chunk=3)
    generator.ends = frozenset()
    want = alone(Generator(path, False), PROMPTS)
    assert [len(w) for w in want] == [12] * 5
    made = generator.generate_many(PROMPTS, at_once=2, max_new_tokens=12, seed=3)
    assert [m.ids for m in made] == want
    assert [m.reason for m in made] == ["length"] * 5
    again = generator.generate_many([made[4].prompt + made[4].ids], at_once=2, max_new_tokens=4, seed=3)[0]
    assert again.statistics.reused_tokens == len(made[4].prompt) + 11
    assert [again.ids] == alone(Generator(path, False), [again.prompt], 4)


def test_one_that_ends_slides_fails_or_is_cancelled(tmp_path: Path) -> None:
    generator = Generator(Tiny("Q8_0").write(tmp_path / "tiny.gguf"), False, overflow="slide")
    generator.ends = frozenset()
    long = alone(generator, PROMPTS, 45)
    assert [m.ids for m in generator.generate_many(PROMPTS, max_new_tokens=45, seed=3)] == long, "each slides when it is too long"
    together = generator.together(4)
    texts = [generator.generate(p, max_new_tokens=20, seed=3) for p in PROMPTS]
    for text in texts:
        together.add(text)
    for _ in range(8):
        together.turn()
    texts[1].cancel()
    texts[2].fail(RuntimeError("lost"))
    while together.busy:
        together.turn()
    assert texts[1].reason == "cancelled"
    assert 0 < len(texts[1].ids) < 20
    assert texts[2].reason == "error: lost"
    assert [t.ids for t in (texts[0], *texts[3:])] == [long[k][:20] for k in (0, 3, 4)]
    with pytest.raises(RuntimeError, match="has begun already"):
        together.add(texts[0])
    strict = Generator(generator.decoder.session, False, context=32)
    strict.ends = frozenset()
    with pytest.raises(ContextError, match="the model reads 32"):
        strict.generate_many([[5], [5] * 25], max_new_tokens=20, seed=3)


def test_logits_that_are_no_numbers_end_one_text_alone(tmp_path: Path) -> None:
    generator = Generator(Tiny("Q8_0").write(tmp_path / "tiny.gguf"), False, several=True)
    generator.ends = frozenset()
    together = generator.together(4)
    texts = [generator.generate(p, max_new_tokens=6, seed=3) for p in PROMPTS[:3]]
    for text in texts:
        together.add(text)
    while not all(m.joined for m in together.members) or not together.members:
        together.turn()
    step = together._joined.step

    def damaged(*given: Any) -> Any:
        rows = list(step(*given))
        together._joined.step = step  # type: ignore[method-assign]
        rows[1] = rows[1] * np.nan
        return rows

    together._joined.step = damaged  # type: ignore[method-assign]
    before = list(texts[1].ids)
    while together.busy:
        together.turn()
    assert isinstance(texts[1].error, FloatingPointError)
    assert texts[1].ids == before, "nothing of the text is lost"
    assert [t.ids for t in texts[::2]] == alone(generator, PROMPTS[:3], 6)[::2]


@pytest.mark.parametrize("style", ["optimum", "genai"])
def test_exports_that_cannot_keep_texts_apart_have_a_run_for_each(style: str) -> None:
    """A mask alone does not say where a text begins to a cache that fills from the left; that is found by trying."""
    rng = np.random.default_rng(8)
    weights = {"table": rng.standard_normal((40, 8)), "head": rng.standard_normal((8, 40)), "places": rng.standard_normal((64, 8))}
    stored = {k: v.astype(np.float32) for k, v in weights.items()} | {"axis": np.array([1])}
    model = decoder(style, stored)
    generator = Generator(pyonnx_wasm.InferenceSession(model.SerializeToString()))
    assert not apart(generator.decoder)
    assert [m.ids for m in generator.generate_many(PROMPTS, at_once=3, max_new_tokens=8, seed=3)] == alone(generator, PROMPTS, 8)


def masked() -> onnx.ModelProto:
    """An export whose attention sees by the mask, as optimum writes decoders."""
    return onnx.parser.parse_model(
        """
      <ir_version: 10, opset_import: ["" : 23]>
      g (int64[b, s] input_ids, int64[b, t] attention_mask, int64[b, s] position_ids,
         float[b, 2, p, 4] past_key_values.0.key, float[b, 2, p, 4] past_key_values.0.value)
        => (float[b, s, 40] logits, float[b, 2, t, 4] present.0.key, float[b, 2, t, 4] present.0.value) {
        w = Gather(table, input_ids)
        a = Gather(places, position_ids)
        h = Add(w, a)
        seen = Cast<to = 9>(attention_mask)
        axes = Constant<value_ints = [1, 2]>()
        mask = Unsqueeze(seen, axes)
        y, present.0.key, present.0.value =
          Attention<q_num_heads = 2, kv_num_heads = 2, is_causal = 1>(h, h, h, mask, past_key_values.0.key, past_key_values.0.value)
        logits = MatMul(y, head)
      }""".replace("past_key_values.0.", "past_key_values_0_").replace("present.0.", "present_0_")
    )


def test_exports_with_masks_and_positions_share_runs() -> None:
    model, rng = masked(), np.random.default_rng(8)
    names = {f"{a}_0_{b}": f"{a}.0.{b}" for a in ("past_key_values", "present") for b in ("key", "value")}
    for node in model.graph.node:
        node.input[:] = [names.get(i, i) for i in node.input]
        node.output[:] = [names.get(o, o) for o in node.output]
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for name, shape in {"table": (40, 8), "head": (8, 40), "places": (64, 8)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    generator = Generator(pyonnx_wasm.InferenceSession(model.SerializeToString()))
    assert apart(generator.decoder)
    assert [m.ids for m in generator.generate_many(PROMPTS, at_once=3, max_new_tokens=8, seed=3)] == alone(generator, PROMPTS, 8)


# --- beam search


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    found = Generator(write("llama", tmp_path_factory.mktemp("beams") / "llama.gguf"), False)
    found.ends = frozenset((1, 17, 30))
    return found


@pytest.mark.parametrize("case", json.loads((ROOT / "tests/data/beams.json").read_text()), ids=lambda c: f"{c['how']}-{len(c['prompt'])}")
def test_beam_search_finds_what_transformers_finds(llama: Generator, case: dict[str, Any]) -> None:
    count = case["how"]["num_beams"]
    found = llama.search(case["prompt"], max_new_tokens=10, num_return=count, **case["how"])
    assert [f.ids for f in found] == case["ids"]
    if case["scores"]:
        np.testing.assert_allclose([f.score for f in found], case["scores"], rtol=1e-4)


def test_what_beam_search_is_not_asked(llama: Generator, tmp_path: Path) -> None:
    for wrong in ({"num_beams": 0}, {"num_return": 5}, {"max_new_tokens": 0}, {"early_stopping": "soon"}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is out of range"):
            llama.search([3], **wrong)  # type: ignore[arg-type]
    pyonnx_wasm.save(pyonnx_wasm.compile(Tiny("Q8_0", layers=1).write(tmp_path / "one.gguf")), tmp_path / "one.ponnx")
    with pytest.raises(ValueError, match="reads one text at a time"):
        Generator(tmp_path / "one.ponnx", False).search([3])
    with pytest.raises(ContextError):
        llama.search([3] * 64)


# --- tokens that are foretold


def test_what_followed_before_is_foretold() -> None:
    guess = Lookup(3)
    assert guess([1, 2, 3, 4, 5, 1, 2, 3], 8, 9) == [4, 5, 1]
    assert guess([1, 2, 3, 4, 5, 1, 2, 3], 8, 2) == [4, 5]
    assert guess([9, 3, 7, 4, 3], 5, 9) == [7, 4, 3], "of a shorter end where the longer one is new"
    assert guess([1, 2, 3], 3, 9) == []
    assert guess([1, 5, 1, 6, 1], 5, 9) == [6, 1], "the latest"


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 0.9, "repetition_penalty": 1.2}, {"likely": 3}])
def test_foretold_tokens_change_no_text(settings: dict[str, Any]) -> None:
    """In fewer runs: with look-up in the prompt, with the model itself and another one as its draft."""
    plain = Generator(WRITES)
    prompt = "And God said, Let there be light: and there was light. And God said, Let there be"
    want = plain.generate(prompt, max_new_tokens=32, seed=5, **settings)
    tokens = list(want)
    for draft, least in (("prompt", 0), (plain, 16)):
        generator = Generator(plain.decoder.session, plain.tokenizer, draft=draft, ahead=4, context=plain.context)  # type: ignore[arg-type]
        runs = counted(generator)
        made = generator.generate(prompt, max_new_tokens=32, seed=5, **settings)
        assert [t.id for t in made] == [t.id for t in tokens]
        assert made.text == want.text
        assert len(runs) <= 32 - least
        assert max(runs[1:]) > 1


def test_foretold_tokens_at_the_ends(tmp_path: Path) -> None:
    """Of the context, of the number asked for, of a text that ends among them."""
    path = Tiny("Q8_0", layers=1).write(tmp_path / "tiny.gguf")
    plain, foretold = Generator(path, False), Generator(path, False, draft="prompt", ahead=6)
    loop = [3, 1, 4, 1, 5] * 4
    for limit in (1, 2, 5, 11):
        made = foretold.generate(loop, max_new_tokens=limit, temperature=0)
        list(made)
        assert [made.ids] == alone(plain, [loop], limit, temperature=0)
    slides = [Generator(path, False, overflow="slide", draft=d) for d in (None, "prompt", path)]
    texts = [alone(g, [loop], 40, temperature=0) for g in slides]
    assert texts[0] == texts[1] == texts[2]
    for generator in (plain, foretold):
        generator.ends = frozenset(texts[0][0][3:4])
    assert alone(plain, [loop], 11, temperature=0) == alone(foretold, [loop], 11, temperature=0)
    with pytest.raises(ValueError, match="ahead is 0"):
        Generator(path, False, draft="prompt", ahead=0)
