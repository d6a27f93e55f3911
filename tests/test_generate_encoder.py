"""Decoders behind encoders: T5 in two files, Whisper in one that asks use_cache_branch; the encoder runs once for a text."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyonnx_wasm
from pyonnx_wasm.generate import ContextError, Generator

TESTS = Path(__file__).parent
T5, WHISPER = TESTS / "data/t5", TESTS / "packaging/transformers_js/hub/hearing"
FOUND: list[dict[str, Any]] = json.loads((T5 / "found.json").read_text())
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 5, "temperature": 1.2},
    {"seed": 5, "temperature": 1.0, "top_k": 0, "repetition_penalty": 1.5},
]


def sound(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((80, 3000)).astype(np.float32)


def opened(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def plain(folder: Path, source: Any, starts: list[int], count: int, never: tuple[list[int], list[int]] = ([], [])) -> list[int]:
    """The most likely tokens, by onnxruntime and without any cache."""
    name, cached = ("input_ids", False) if folder == T5 else ("input_features", True)
    encoder = opened(next(folder.rglob("encoder_model.onnx")))
    decoder = opened(next(folder.rglob("decoder_model_merged.onnx" if cached else "decoder_model.onnx")))
    given = np.asarray(source, np.int64 if name == "input_ids" else np.float32)[None]
    asked = {name: given} | ({"attention_mask": np.ones_like(given)} if folder == T5 else {})
    told = {
        "encoder_hidden_states": encoder.run(["last_hidden_state"], asked)[0],
        "encoder_attention_mask": np.ones(given.shape[:2], np.int64),
    }
    told["use_cache_branch"] = np.array([False])
    for i in decoder.get_inputs():
        if i.name.startswith("past"):
            told[i.name] = np.zeros([d if isinstance(d, int) else (1, 0, 0, 0)[k] for k, d in enumerate(i.shape)], np.float32)
            if ".encoder." in i.name:
                told[i.name] = np.zeros([1, i.shape[1], told["encoder_hidden_states"].shape[1], i.shape[3]], np.float32)
    ids = list(starts)
    for k in range(count):
        feed = {**told, "input_ids": np.array([ids])}
        logits = decoder.run(["logits"], {i.name: feed[i.name] for i in decoder.get_inputs()})[0][0, -1]
        logits[[*never[0], *(never[1] if k == 0 else [])]] = -np.inf
        ids.append(int(logits.argmax()))
    return ids[len(starts) :]


@pytest.fixture(scope="module")
def t5() -> Generator:
    return Generator(T5)


@pytest.fixture(scope="module")
def whisper() -> Generator:
    generator = Generator(WHISPER)
    generator.ends = frozenset()
    return generator


def runs(session: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each run from now on."""
    counted, run = list[int](), session.run_values

    def counting(*given: Any) -> Any:
        counted.append(1)
        return run(*given)

    monkeypatch.setattr(session, "run_values", counting)
    return counted


@pytest.mark.parametrize("case", FOUND, ids=lambda c: f"{c['how']}-{len(c['source'])}")
def test_t5_writes_what_transformers_writes(t5: Generator, case: dict[str, Any]) -> None:
    """Greedy and beams."""
    count, want = case["how"]["num_beams"], case["ids"]
    found = t5.search(case["source"], max_new_tokens=12, num_return=count, **case["how"])
    assert [f.ids for f in found] == want
    if case["scores"]:
        np.testing.assert_allclose([f.score for f in found], case["scores"], rtol=1e-4)
    else:
        text = t5.generate(case["source"], max_new_tokens=12, temperature=0)
        list(text)
        assert text.ids == [i for i in want[0] if i != 10]
        assert text.reason == ("end" if 10 in want[0] else "length")
        assert text.prompt == [0]


@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "gpu"])
def test_the_encoder_runs_once(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = Generator(T5, providers=[backend])
    assert generator.decoder.encoder is not None
    encodes = runs(generator.decoder.encoder.session, monkeypatch)
    begins = runs(generator.decoder.first, monkeypatch)
    for source in ([5, 9, 3, 7, 1], [60, 2, 33, 1], [60, 2, 33, 1]):
        text = generator.generate(source, max_new_tokens=6, temperature=0)
        list(text)
        assert text.ids == plain(T5, source, [0], len(text.ids))
    assert (len(encodes), len(begins)) == (2, 3), "the second time the source is known, and each text's beginning is one run"


def test_whisper_writes_what_is_most_likely(whisper: Generator) -> None:
    """Of sound, with what the export forbids, and a start of one's own: one run of the decoder without a past, then token by token."""
    config = json.loads((WHISPER / "generation_config.json").read_text())
    never = (config.get("suppress_tokens") or [], config.get("begin_suppress_tokens") or [])
    for seed, starts in ((1, None), (1, [300, 7, 9]), (2, None)):
        text = whisper.generate(sound(seed), max_new_tokens=8, temperature=0, decoder_input_ids=starts)
        list(text)
        begins = starts or [config["decoder_start_token_id"]]
        assert text.prompt == begins
        assert text.ids == plain(WHISPER, sound(seed), begins, 8, never)
    assert isinstance(text.text, str)
    best = whisper.search(sound(1), num_beams=1, max_new_tokens=8)[0]
    assert best.ids == plain(WHISPER, sound(1), [config["decoder_start_token_id"]], 8, never)
    assert len(whisper.search(sound(1), num_beams=3, num_return=3, max_new_tokens=8)) == 3


@pytest.mark.parametrize("settings", SETTINGS)
def test_streamed_cancelled_several_foretold(t5: Generator, settings: dict[str, Any], apart: Any) -> None:
    sources = [[5, 9, 3, 7, 1], [60, 2, 33, 1], [11]]
    want = []
    for source in sources:
        text = t5.generate(source, max_new_tokens=10, **settings)
        assert [t.id for t in text] == text.ids
        want.append(text.ids)
    assert [m.ids for m in t5.generate_many(sources, at_once=2, max_new_tokens=10, **settings)] == want

    async def streamed() -> list[int]:
        return [t.id async for t in t5.generate(sources[0], max_new_tokens=10, **settings)]

    assert apart(asyncio.run, streamed()) == want[0]
    drafted = Generator(T5, draft="prompt")
    text = drafted.generate(sources[2], max_new_tokens=10, **settings)
    list(text)
    assert text.ids == want[2]
    text = t5.generate(sources[0], max_new_tokens=10, **settings)
    for _ in text:
        text.cancel()
    assert (text.ids, text.reason) == (want[0][:1], "cancelled")


def test_texts_that_slide_or_are_too_long() -> None:
    short = Generator(T5, context=8)
    with pytest.raises(ContextError, match="the model reads 8"):
        list(short.generate([11], max_new_tokens=20, temperature=0))
    sliding = Generator(T5, context=8, overflow="slide")
    text = sliding.generate([11], max_new_tokens=20, temperature=0)
    list(text)
    assert len(text.ids) == 20
    ids = [0, *text.ids]
    assert ids[12:13] == plain(T5, [11], [0, *ids[9:12]], 1), "the start stays, and what the encoder read"


def test_what_does_not_fit_is_told(t5: Generator, whisper: Generator, tmp_path: Path) -> None:
    for generator, source, told in (
        (t5, [64], "token 64 is none of the model's 64"), (t5, [], "the prompt is empty"), (t5, sound(1), "an array of float32"),
        (whisper, sound(1)[:79], "the encoder reads 'input_features' of"), (whisper, [[1.0]], "it was given"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            generator.generate(source)
    with pytest.raises(ValueError, match="decoder_input_ids are for models with an encoder"):
        Generator(TESTS / "packaging/transformers_js/hub/writer").generate([1], decoder_input_ids=[0])
    session = pyonnx_wasm.InferenceSession(WHISPER / "onnx/decoder_model_merged.onnx")
    with pytest.raises(ValueError, match="wants 'encoder_hidden_states' of an encoder"):
        Generator(session)
    whole = Generator(WHISPER / "onnx/decoder_model_merged.onnx", encoder=WHISPER / "onnx/encoder_model.onnx")
    assert whole.starts, "a file's folder says what texts begin with"
    for name in ("decoder_model_merged", "encoder_model"):
        shutil.copy(WHISPER / f"onnx/{name}.onnx", tmp_path)
    with pytest.raises(ValueError, match="give decoder_input_ids"):
        Generator(tmp_path).generate(sound(1))


def test_logits_that_are_no_numbers_leave_the_text_so_far(t5: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    text = t5.generate([11], max_new_tokens=10, temperature=0)
    step = t5.decoder.step

    def damaged(ids: list[int], *more: Any) -> Any:
        rows = step(ids, *more)
        return [row * np.nan for row in rows] if len(t5.decoder.ids) > 3 else rows

    with monkeypatch.context() as patched:
        patched.setattr(t5.decoder, "step", damaged)
        with pytest.raises(FloatingPointError):
            list(text)
    assert text.ids == [24, 24, 24]
    after = t5.generate([11], max_new_tokens=10, temperature=0)
    list(after)
    assert after.ids == [24] * 10
