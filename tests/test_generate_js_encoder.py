"""Decoders behind encoders in JavaScript write what they write in Python and in transformers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyonnx_wasm
from pyonnx_wasm.generate import Generator

TESTS = Path(__file__).parent
T5, WHISPER = TESTS / "data/t5", TESTS / "packaging/transformers_js/hub/hearing"
FOUND: list[dict[str, Any]] = json.loads((T5 / "found.json").read_text())
PARTS = {
    "t5-encoder": T5 / "encoder_model.onnx", "t5-first": T5 / "decoder_model.onnx", "t5-next": T5 / "decoder_with_past_model.onnx",
    "whisper": WHISPER / "onnx/decoder_model_merged.onnx", "whisper-encoder": WHISPER / "onnx/encoder_model.onnx",
}  # fmt: skip
SETTINGS: list[dict[str, Any]] = [{"temperature": 0}, {"seed": 5, "temperature": 1.2}, {"seed": 5, "temperature": 1.0, "min_p": 0.1}]
NAMES = {"num_beams": "numBeams", "length_penalty": "lengthPenalty", "early_stopping": "earlyStopping", "min_p": "minP"}
SOUND = np.random.default_rng(1).standard_normal((80, 3000)).astype(np.float32)


def named(settings: dict[str, Any]) -> dict[str, Any]:
    return {NAMES.get(k, k): v for k, v in settings.items()}


@pytest.fixture(scope="module")
def whisper() -> Generator:
    generator = Generator(WHISPER)
    generator.ends = frozenset()
    return generator


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory, whisper: Generator) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("js")
    for name, path in PARTS.items():
        pyonnx_wasm.save(pyonnx_wasm.compile(path), folder / f"{name}.ponnx")
    SOUND.tofile(folder / "sound.f32")
    starts, never, first = whisper.starts, whisper.never, whisper.never_first
    asked = {
        "cases": [{"source": c["source"], "how": named(c["how"]) | {"numReturn": c["how"]["num_beams"]}} for c in FOUND],
        "settings": [named(s) for s in SETTINGS], "whisper": {"starts": starts, "never": never, "neverFirst": first, "count": 8},
    }  # fmt: skip
    (folder / "asked.json").write_text(json.dumps(asked))
    command = ["node", str(TESTS / "generate_encoder.mjs"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def t5() -> Generator:
    return Generator(T5)


def alone(generator: Generator, source: Any, limit: int = 10, **settings: Any) -> list[int]:
    made = generator.generate(source, max_new_tokens=limit, **settings)
    list(made)
    return made.ids


@pytest.mark.parametrize("k", range(len(FOUND)))
def test_t5_writes_what_transformers_writes(js: dict[str, Any], k: int) -> None:
    case, found = FOUND[k], js["cases"][k]
    if case["scores"] is None:
        assert found == [{"ids": [i for i in case["ids"][0] if i != 10], "reason": "end" if 10 in case["ids"][0] else "length"}]
    else:
        assert [f["ids"] for f in found] == case["ids"]
        assert [f["score"] for f in found] == pytest.approx(case["scores"], rel=1e-4)


def test_the_encoder_runs_once(js: dict[str, Any]) -> None:
    assert js["counts"] == {"encoder": 2, "first": 3}, "the third text is about what the second was"


@pytest.mark.parametrize("k", range(len(SETTINGS)))
def test_the_same_tokens_as_in_python(js: dict[str, Any], t5: Generator, k: int) -> None:
    want = [alone(t5, case["source"], **SETTINGS[k]) for case in FOUND]
    one, many, drafted = js["sampled"][k]
    assert one == many == want
    assert drafted == want[0]


def test_slides_cancels_lost_devices_and_errors(js: dict[str, Any], t5: Generator) -> None:
    assert js["slid"] == alone(Generator(T5, context=8, overflow="slide"), [11], 20, temperature=0)
    assert js["cancelled"] == [1, "cancelled"]
    assert js["lost"] == [[alone(t5, [11], temperature=0), alone(t5, [5, 9, 3, 7, 1], temperature=0)]] * 2
    for told, want in zip(
        js["errors"],
        ["RangeError: token 64", "TypeError: the model reads tokens, not a tensor", "Error: the model wants the input encoder_",
         "Error: nothing says what the decoder's texts begin with", "ContextError: the text has 9 tokens, the model reads 8"], strict=True,
    ):  # fmt: skip
        assert told.startswith(want)


def test_whisper_hears_what_it_hears_in_python(js: dict[str, Any], whisper: Generator) -> None:
    assert js["whisper"] == alone(whisper, SOUND, 8, temperature=0)
    best = whisper.search(SOUND, num_beams=3, max_new_tokens=8)[0]
    assert js["whisperBeams"]["ids"] == best.ids
    assert js["whisperBeams"]["score"] == pytest.approx(best.score, rel=1e-4)
    assert js["whisperError"].startswith("TypeError: the encoder reads input_features: give a tensor")
