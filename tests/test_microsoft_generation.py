"""com.microsoft's searches against onnxruntime: decoders, decoders behind encoders and Whisper's, with every input and attribute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from generation_models import WORDS, decoder, encoder, gpt, search
from onnx import TensorProto

from pyonnx_wasm import InferenceSession, SessionOptions, parity, set_seed

Array = np.ndarray[Any, Any]
GREEDY = ["input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask"]
BEAM = ["input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty", "repetition_penalty",
        "vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids", "logits_processor", "", "", "temperature"]  # fmt: skip
SAMPLING = [*GREEDY, "presence_mask", "seed"]
PER_ROW = ("input_ids", "attention_mask", "prefix_vocab_mask", "decoder_input_ids")


def i32(*values: Any) -> Array:
    return np.array(values, np.int32)


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def of_onnxruntime(data: bytes, feed: Mapping[str, Any]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    found: list[Array] = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, dict(feed))
    return found


def row_by_row(data: bytes, feed: Mapping[str, Any]) -> list[Array]:
    """onnxruntime ends a row of several by another row's scores, where it does not stop early."""
    rows = [{k: v[b : b + 1] if k in PER_ROW else v for k, v in feed.items()} for b in range(len(feed["input_ids"]))]
    return [np.concatenate(found) for found in zip(*(of_onnxruntime(data, row) for row in rows), strict=True)]


def named(names: list[str], feed: Mapping[str, Any]) -> list[str]:
    given = [n if n in feed else "" for n in names]
    while not given[-1]:
        given.pop()
    return given


def common(rng: np.random.Generator, batch: int, length: int, most: int, pad: int) -> dict[str, Array]:
    """Inputs that any search may have, each or not."""
    mask = np.ones((batch, length), np.int32)
    mask[rng.integers(batch), : rng.integers(length)] = 0
    every = {
        "min_length": i32(rng.integers(most)),
        "repetition_penalty": f32(rng.uniform(0.7, 1.6)),
        "vocab_mask": (rng.random(WORDS) < 0.8).astype(np.int32),
        "prefix_vocab_mask": (rng.random((batch, WORDS)) < 0.6).astype(np.int32),
        "attention_mask": mask,
    }
    ids = rng.integers(0, WORDS, (batch, length)).astype(np.int32)
    if rng.random() < 0.5:
        ids[:, : length // 2] = pad
    return {"input_ids": ids, "max_length": i32(most)} | {k: v for k, v in every.items() if rng.random() < 0.4}


def tokens(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "eos_token_id": int(rng.integers(WORDS)),
        "pad_token_id": int(rng.integers(WORDS)),
        "no_repeat_ngram_size": int(rng.choice([0, 0, 1, 2, 3])),
    }


@pytest.mark.parametrize("seed", range(12))
def test_greedy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    attributes, length = tokens(rng), int(rng.integers(1, 5))
    pad, most = attributes["pad_token_id"], length + int(rng.integers(1, 9))
    feed = common(rng, int(rng.integers(1, 4)), length, most, pad)
    attributes |= {"decoder": gpt(seed)} | ({"init_decoder": gpt(seed)} if seed % 3 == 0 else {})
    data = search("GreedySearch", named(GREEDY, feed), attributes)
    (got,), (want,) = InferenceSession(data).run(None, feed), of_onnxruntime(data, feed)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    ends = [max([k for k in range(length, most) if row[k] != pad], default=length - 1) + 2 for row in got]
    np.testing.assert_array_equal(got[:, : max(ends)], want[:, : max(ends)])  # behind the end of all onnxruntime writes nothing


@pytest.mark.parametrize("seed", range(30))
def test_beams(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    kind = ["gpt", "t5", "gpt", "t5 of all tokens", "t5 from nothing", "whisper"][seed % 6]
    attributes, length, batch = tokens(rng), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    feed = common(rng, batch, length, length + int(rng.integers(2, 9)), attributes["pad_token_id"])
    beams = int(rng.integers(1, 4))
    feed = {"min_length": i32(0), "repetition_penalty": f32(1)} | feed
    feed |= {"num_beams": i32(beams), "num_return_sequences": i32(rng.integers(1, beams + 1))}
    feed["length_penalty"] = f32(rng.choice([1, rng.uniform(0, 2)]))
    attributes |= {"early_stopping": int(rng.integers(2)), "model_type": 0 if kind == "gpt" else 1, "decoder_start_token_id": 2}
    if kind == "gpt":
        attributes |= {"decoder": gpt(seed)} | ({"init_decoder": gpt(seed)} if seed % 4 == 0 else {})
    elif kind == "whisper":
        feed = {k: v for k, v in feed.items() if k != "attention_mask"} | {"input_ids": rng.normal(size=(batch, 5, 6)).astype(np.float32)}
        feed |= {"decoder_input_ids": rng.integers(0, WORDS, (batch, 2)).astype(np.int32), "max_length": i32(rng.integers(4, 10))}
        attributes |= {"model_type": 2, "encoder": encoder("whisper", seed), "decoder": decoder(False, seed=seed)}
    else:
        feed["max_length"] = i32(rng.integers(3, 10))
        given = "all" if kind == "t5 of all tokens" else "one"
        attributes |= {"encoder": encoder(seed=seed, starts=kind != "t5 from nothing"), "decoder": decoder(seed=seed, given=given)}
    compare(search("BeamSearch", named(BEAM, feed), attributes, 2), feed, attributes)


def compare(data: bytes, feed: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    got, want = InferenceSession(data).run(None, feed), of_onnxruntime(data, feed)
    assert [g.shape for g in got] == [w.shape for w in want]
    if not attributes["early_stopping"]:
        want = row_by_row(data, feed)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1], 1e-4, 1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_timestamps_of_whisper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stamps = {"beginning_timestamp_token_id": int(rng.integers(8, 22)), "transcribe_token_id": 4, "translate_token_id": 3}
    stamps |= {n: int(rng.integers(WORDS)) for n in ("no_timestamps_token_id", "start_of_lm_token_id")}
    attributes = {"eos_token_id": int(rng.integers(4, 8)), "pad_token_id": 0, "decoder_start_token_id": 2, "early_stopping": 1} | stamps
    attributes |= {"model_type": 2, "encoder": encoder("whisper", seed), "decoder": decoder(False, seed=seed)}
    feed = {"input_ids": rng.normal(size=(2, 5, 6)).astype(np.float32), "decoder_input_ids": i32([2, 3], [2, 4]), "max_length": i32(14)}
    feed |= {"min_length": i32(0), "num_beams": i32(2), "num_return_sequences": i32(2), "length_penalty": f32(1)}
    feed |= {"repetition_penalty": f32(1), "temperature": f32(rng.uniform(0.5, 2))}
    data = search("WhisperBeamSearch", named(BEAM, {**feed, "logits_processor": 1}), attributes, 2, logits_processor=1)
    compare(data, feed, attributes)


def beams_of_one(**more: Any) -> tuple[bytes, dict[str, Array]]:
    attributes = {"decoder": gpt(3), "eos_token_id": 4, "pad_token_id": 0, "early_stopping": 1}
    feed = {"input_ids": i32([3, 5, 7], [0, 0, 9]), "max_length": i32(9), "min_length": i32(9), "num_beams": i32(3)}
    feed |= {"num_return_sequences": i32(2), "length_penalty": f32(1), "repetition_penalty": f32(1), **more}
    return search("BeamSearch", named(BEAM, feed), attributes, 3), feed


def test_scores_of_each_step() -> None:
    data, feed = beams_of_one()
    got, want = InferenceSession(data).run(None, feed), of_onnxruntime(data, feed)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, 1e-5, 1e-5)


def test_scores_of_steps_that_were_not_made_are_0() -> None:
    data, feed = beams_of_one(min_length=i32(0), vocab_mask=(np.arange(WORDS) // 3 == 1).astype(np.int32))
    *_, scores = InferenceSession(data).run(None, feed | {"max_length": i32(30), "num_return_sequences": i32(1)})
    assert scores.shape == (27, 2, 3, WORDS)
    made = np.abs(scores).max((1, 2, 3)) > 0
    assert made[0]
    assert not made[-1]
    assert not np.any(made[np.argmin(made) :])


def test_one_session_for_all_sizes() -> None:
    """Batch, length, beams and lengths are data."""
    data, feed = beams_of_one()
    for optimise in (True, False):
        session = InferenceSession(data, SessionOptions(enable_optimisation=optimise))
        for ids, most, beams in (([[1]], 2, 1), ([[3, 5, 7], [0, 0, 9]], 9, 4), ([[8, 8]] * 3, 7, 2)):
            given = {**feed, "input_ids": i32(*ids), "max_length": i32(most), "num_beams": i32(beams), "num_return_sequences": i32(1)}
            np.testing.assert_array_equal(session.run(None, given)[0], of_onnxruntime(data, given)[0])


@pytest.mark.parametrize("backend", ["wasmtime", "gpu"])
def test_backends(backend: str) -> None:
    data, feed = beams_of_one()
    got, want = (InferenceSession(data, providers=[p]).run(None, feed) for p in (backend, "cpu"))
    np.testing.assert_array_equal(got[0], want[0])
    for g, w in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(g, w, 1e-4, 1e-4)


def test_in_chromium(tmp_path: Path) -> None:
    """A greedy and a beam search: the tokens of onnxruntime from a page, in WebAssembly and on WebGPU."""
    data, feed = beams_of_one()
    (tmp_path / "beams.onnx").write_bytes(data)
    greedy = {"input_ids": i32([3, 5, 7], [2, 4, 9]), "max_length": i32(8)}
    attributes = {"decoder": gpt(3), "eos_token_id": 4, "pad_token_id": 0}
    (tmp_path / "greedy.onnx").write_bytes(search("GreedySearch", named(GREEDY, greedy), attributes))
    for name, given in (("beams", feed), ("greedy", greedy)):
        report = parity.run(tmp_path / f"{name}.onnx", given, backends=["cpu", "wasm", "webgpu"], against="onnxruntime")
        assert report.agrees, report.table()
        assert report.skipped == {}


def sampled(feed: Mapping[str, Any], outputs: int = 1, **attributes: Any) -> bytes:
    given = {"decoder": gpt(1), "eos_token_id": WORDS - 1, "pad_token_id": 0, **attributes}
    return search("Sampling", named(SAMPLING, feed), given, outputs)


@pytest.mark.parametrize("custom", [0, 1])
def test_sampling_of_one_word_is_onnxruntimes(custom: int) -> None:
    """Where one word alone is kept nothing is left to chance."""
    rng = np.random.default_rng(custom)
    for most in (4, 9):
        feed = {**common(rng, 3, 2, most, 0), "presence_mask": np.eye(3, WORDS, dtype=np.int32), "seed": i32(5)}
        given = {"top_p": 0.001, "custom": custom, "min_tokens_to_keep": 1, "temperature": 0.6, "no_repeat_ngram_size": 2}
        data = sampled(feed, **given)
        np.testing.assert_array_equal(InferenceSession(data).run(None, feed)[0], of_onnxruntime(data, feed)[0])


@pytest.mark.parametrize(("top_p", "least", "custom"), [(0.6, 1, 0), (0.6, 5, 0), (0.8, 1, 1), (1.0, 1, 1), (0.0, 3, 0)])
def test_sampling_keeps_the_most_probable_words(top_p: float, least: int, custom: int) -> None:
    """How often each is drawn of 4,000 rows, against its probability among those that are kept; scores of the others."""
    feed = {"input_ids": i32(*[[3]] * 4000), "max_length": i32(2), "seed": i32(7)}
    data = sampled(feed, 2, top_p=top_p, min_tokens_to_keep=least, custom=custom, filter_value=-30.0)
    got, scores = InferenceSession(data).run(None, feed)
    (whole,) = InferenceSession(search("BeamSearch", BEAM[:5], {"decoder": gpt(1), "eos_token_id": 22, "pad_token_id": 0}, 3)).run(
        ["scores"], {"input_ids": i32([3]), "max_length": i32(2), "min_length": i32(0), "num_beams": i32(1), "num_return_sequences": i32(1)}
    )
    share = np.exp(np.sort(whole.ravel().astype(np.float64))[::-1])
    before = np.cumsum(share) - share
    kept = before <= top_p if custom else (1 - before > 1 - top_p) & (before < top_p) | (np.arange(WORDS) < least)
    order = np.argsort(-whole.ravel(), kind="stable")
    assert set(order[kept]) == set(np.flatnonzero(scores[0] > -30))
    wanted = np.zeros(WORDS)
    wanted[order[kept]] = share[kept] / share[kept].sum()
    found = np.bincount(np.where(got[:, 1] == 0, WORDS - 1, got[:, 1]), minlength=WORDS) / 4000
    wanted[WORDS - 1] += wanted[0]
    wanted[0] = 0
    np.testing.assert_allclose(found, wanted, atol=0.03)


def test_a_seed_is_repeated_on_every_backend_and_no_seed_goes_on() -> None:
    feed = {"input_ids": i32([3, 5], [7, 9]), "max_length": i32(12), "seed": i32(11)}
    data = sampled(feed, top_p=1.0, custom=1)
    first = InferenceSession(data).run(None, feed)[0]
    for backend in ("cpu", "wasmtime", "gpu"):
        np.testing.assert_array_equal(InferenceSession(data, providers=[backend]).run(None, feed)[0], first)
    assert (InferenceSession(data).run(None, feed | {"seed": i32(12)})[0] != first).any()
    constant = search(
        "Sampling",
        named(SAMPLING, feed),
        {"decoder": gpt(1), "eos_token_id": WORDS - 1, "pad_token_id": 0, "top_p": 1.0, "custom": 1},
        seed=11,
    )
    np.testing.assert_array_equal(InferenceSession(constant).run(None, {k: feed[k] for k in ("input_ids", "max_length")})[0], first)
    unseeded = {k: feed[k] for k in ("input_ids", "max_length")}
    set_seed(3)
    session = InferenceSession(sampled(unseeded, top_p=1.0, custom=1))
    runs = [session.run(None, unseeded)[0] for _ in range(2)]
    assert (runs[0] != runs[1]).any()
    set_seed(3)
    np.testing.assert_array_equal(InferenceSession(sampled(unseeded, top_p=1.0, custom=1)).run(None, unseeded)[0], runs[0])


def test_what_is_wrong_names_the_node() -> None:
    data, feed = beams_of_one()
    session = InferenceSession(data)
    with pytest.raises(RuntimeError, match=r"search.*max_length"):
        session.run(None, feed | {"max_length": i32(3)})
    with pytest.raises(RuntimeError, match=r"search.*num_return_sequences"):
        session.run(None, feed | {"num_return_sequences": i32(4)})
    attributes = {"eos_token_id": 1, "pad_token_id": 0, "model_type": 1, "decoder": decoder(), "encoder": encoder(starts=False)}
    with pytest.raises(ValueError, match=r"node 'search' \(GreedySearch\): .*use BeamSearch"):
        InferenceSession(search("GreedySearch", GREEDY[:2], attributes))
    of_cuda = gpt(0)
    of_cuda.input.add(name="beam_width").type.tensor_type.elem_type = TensorProto.INT32
    with pytest.raises(ValueError, match=r"node 'search' \(GreedySearch\): .*'beam_width'.*without --use_decoder_masked_attention"):
        InferenceSession(search("GreedySearch", GREEDY[:2], {"eos_token_id": 1, "pad_token_id": 0, "decoder": of_cuda}))
