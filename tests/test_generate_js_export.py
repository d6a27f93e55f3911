"""Exports opened in JavaScript by the address of their folder: what lies beside the model is what Python finds there."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import Tiny

import pyonnx_wasm
from pyonnx_wasm.generate import Generator
from pyonnx_wasm.server import Server

TESTS = Path(__file__).parent
T5, WHISPER = TESTS / "data/t5", TESTS / "packaging/transformers_js/hub/hearing"
SOUND = np.random.default_rng(1).standard_normal((80, 3000)).astype(np.float32)
SOURCE = [5, 9, 3, 7, 1]
GENAI = {"model": {"context_length": 48, "bos_token_id": 2, "eos_token_id": [1, 40], "decoder": {"filename": "text.ponnx"}}}
PLAIN = {"n_positions": 40, "eos_token_id": 3, "bos_token_id": None, "max_position_embeddings": 0}
FORCED = {
    "decoder_start_token_id": None,
    "bos_token_id": 0,
    "forced_decoder_ids": [[1, 5], [2, None]],
    "suppress_tokens": [24],
    "eos_token_id": 10,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("exports")
    for name, source in (("t5", T5), ("whisper", WHISPER)):
        for path in source.rglob("*.json"):
            (at / name).mkdir(exist_ok=True)
            shutil.copy(path, at / name)
        for path in source.rglob("*.onnx"):
            target = at / name / path.relative_to(source).with_suffix(".ponnx")
            target.parent.mkdir(exist_ok=True)
            pyonnx_wasm.save(pyonnx_wasm.compile(path), target)
    shutil.copytree(at / "t5", at / "forced")
    (at / "forced/generation_config.json").write_text(json.dumps(FORCED))
    (at / "plain").mkdir()
    pyonnx_wasm.save(pyonnx_wasm.compile(Tiny("Q8_0", layers=1).write(at / "tiny.gguf")), at / "plain/model.ponnx")
    shutil.copytree(at / "plain", at / "genai")
    (at / "genai/model.ponnx").rename(at / "genai/text.ponnx")
    (at / "genai/genai_config.json").write_text(json.dumps(GENAI))
    for name in ("plain", "genai"):
        (at / name / "config.json").write_text(json.dumps(PLAIN))
        shutil.copy(WHISPER / "tokenizer.json", at / name)
    SOUND.tofile(at / "sound.f32")
    return at


def said(generator: Generator) -> list[Any]:
    """What JavaScript's options say, as Python says it."""
    encoder = generator.decoder.encoder is not None
    parts = [generator.starts, generator.never, generator.never_first] if encoder else [None] * 3
    return [generator.context, sorted(generator.ends), generator.begin, *(p if p is None else list(p) for p in parts)]


def test_folders_say_what_they_say_in_python(folder: Path) -> None:
    names = {"t5": SOURCE, "whisper": None, "whisper/onnx": None, "forced": SOURCE, "genai": [3, 1, 4], "plain": [3, 1, 4]}
    with Server({"/": folder}) as server:
        asked = [
            {"model": f"{at}{name}/", "prompt": prompt, "limit": 8}
            for at in (f"{folder}/", server.url)
            for name, prompt in names.items()
        ]  # fmt: skip
        alone = {"model": f"{folder}/plain/model.ponnx", "prompt": "abc", "limit": 4}
        asked += [
            alone | {"options": {"config": f"{server.url}genai/config.json"}, "tokenizer": True},
            alone | {"options": {"config": {"eos_token_id": [4, 5], "bos_token_id": 6}, "begin": 7}, "prompt": [3]},
            alone | {"model": f"{folder}/plain/", "options": {"ends": [], "context": 20}, "tokenizer": True},
        ]
        (folder / "broken").mkdir()
        shutil.copy(folder / "plain/model.ponnx", folder / "broken")
        (folder / "broken/config.json").write_text("{")
        (folder / "empty").mkdir()
        wrong = [
            {"model": f"{server.url}empty/"}, {"model": f"{folder}/broken/"}, {"model": f"{folder}/t5/", "tokenizer": True},
        ]  # fmt: skip
        command = [
            "node",
            str(TESTS / "generate_export.mjs"),
            json.dumps({"sound": str(folder / "sound.f32"), "asked": asked, "wrong": wrong}),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    told = found["told"]
    for k, (name, prompt) in enumerate(names.items()):
        generator = Generator(folder / name, False)
        text = generator.generate(SOUND if prompt is None else prompt, max_new_tokens=8, temperature=0)
        list(text)
        for one in (told[k], told[k + len(names)]):
            assert one["said"] == said(generator), name
            assert one["ids"] == text.ids, name
    by_file, by_object, over = told[-3:]
    assert by_file["said"] == [48, [1, 40], 2, None, None, None]
    assert by_object["said"] == [None, [4, 5], 7, None, None, None]
    assert over["said"][:2] == [20, []]
    assert by_file["text"].startswith(f"{len(json.loads((WHISPER / 'tokenizer.json').read_text()))},0:")
    assert [message.removeprefix(str(folder)) for message in found["errors"][1:]] == [
        "/broken/config.json is no JSON: {", f"there is no {folder}/t5/tokenizer.json, which the tokenizer is to be made of"
    ]  # fmt: skip
    assert "holds no model (decoder_model_merged.onnx" in found["errors"][0]
