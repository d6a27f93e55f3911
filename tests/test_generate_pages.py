"""Texts, several at a time, beams and decoders behind encoders in a page: what Python writes, on `wasm` and on `webgpu`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import Tiny
from playwright.sync_api import BrowserType

import pyonnx_wasm
from pyonnx_wasm.cli import main
from pyonnx_wasm.generate import Generator
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium

pytestmark = pytest.mark.browser
TESTS = Path(__file__).parent
PLAYER = TESTS.parent / "js" / "dist"
T5, WHISPER = TESTS / "data/t5", TESTS / "packaging/transformers_js/hub/hearing/onnx"
PARTS = {
    "t5-encoder": T5 / "encoder_model.onnx", "t5-first": T5 / "decoder_model.onnx", "t5": T5 / "decoder_with_past_model.onnx",
    "whisper-encoder": WHISPER / "encoder_model.onnx", "whisper": WHISPER / "decoder_model_merged.onnx",
}  # fmt: skip
FOUND: list[dict[str, Any]] = json.loads((T5 / "found.json").read_text())
PROMPTS = [[5], [3, 1, 4, 1, 5, 9, 2, 6], [7, 7]]
SETTINGS = {"seed": 3, "temperature": 1.1}
SOUND = np.random.default_rng(1).standard_normal((80, 3000)).astype(np.float32)

WRITES = """async ([provider, prompts, settings, source, starts, never, neverFirst]) => {
  const [{ Tensor }, { Generator }] = await Promise.all([import("/player/index.mjs"), import("/player/generate.mjs")]);
  const session = { executionProviders: [provider] };
  const all = async (texts) => {
    for await (const _ of texts);
    return texts.ids ?? texts.texts.map(({ ids }) => ids);
  };
  const found = {};
  const tiny = await Generator.create("/tiny.ponnx", { ends: [] }, session);
  found.many = await all(tiny.generateMany(prompts, { ...settings, maxNewTokens: 8 }));
  found.beams = (await tiny.search(prompts[1], { numBeams: 3, maxNewTokens: 6 }))[0].ids;
  found.backend = tiny.session.backend;
  await tiny.release();
  const parts = { encoder: "/t5-encoder.ponnx", first: "/t5-first.ponnx", decoderInputIds: [0], ends: [10] };
  const t5 = await Generator.create("/t5.ponnx", parts, session);
  found.t5 = await all(t5.generate(source, { ...settings, maxNewTokens: 8 }));
  found.t5Beams = (await t5.search(source, { numBeams: 3, maxNewTokens: 6 }))[0].ids;
  await t5.release();
  const not = { suppressTokens: never, beginSuppressTokens: neverFirst, ends: [] };
  const whisper = await Generator.create("/whisper.ponnx", { encoder: "/whisper-encoder.ponnx", decoderInputIds: starts, ...not }, session);
  const sound = new Tensor("float32", new Float32Array(await (await fetch("/sound.f32")).arrayBuffer()), [80, 3000]);
  found.whisper = await all(whisper.generate(sound, { maxNewTokens: 6, temperature: 0 }));
  await whisper.release();
  return found;
}"""


def written(generator: Generator, source: Any, limit: int, **settings: Any) -> list[int]:
    text = generator.generate(source, max_new_tokens=limit, **settings)
    list(text)
    return text.ids


def test_pages_write_what_python_writes(browser_type: BrowserType, tmp_path: Path) -> None:
    gguf = Tiny("Q8_0", layers=1).write(tmp_path / "tiny.gguf")
    main(["compile", str(gguf), "--several", "-o", str(tmp_path / "tiny.ponnx"), "--json"])
    for name, path in PARTS.items():
        pyonnx_wasm.save(pyonnx_wasm.compile(path, gpu=True), tmp_path / f"{name}.ponnx")
    SOUND.tofile(tmp_path / "sound.f32")
    (tmp_path / "index.html").write_text('<!doctype html><link rel="icon" href="data:," />')
    tiny, t5, whisper = Generator(gguf, False), Generator(T5), Generator(WHISPER.parent)
    tiny.ends = whisper.ends = frozenset()
    source = FOUND[0]["source"]
    want = {
        "many": [written(tiny, prompt, 8, **SETTINGS) for prompt in PROMPTS],
        "beams": tiny.search(PROMPTS[1], num_beams=3, max_new_tokens=6)[0].ids,
        "t5": written(t5, source, 8, **SETTINGS),
        "t5Beams": t5.search(source, num_beams=3, max_new_tokens=6)[0].ids,
        "whisper": written(whisper, SOUND, 6, temperature=0),
    }
    browser = browser_type.launch(**chromium.launch_options(webgpu=True))
    with Server({"/": tmp_path, "/player": PLAYER}) as server:
        page = browser.new_page()
        page.goto(server.url)
        asked = [PROMPTS, SETTINGS, source, list(whisper.starts), list(whisper.never), list(whisper.never_first)]
        for provider in ("wasm", "webgpu"):
            assert page.evaluate(WRITES, [provider, *asked]) == want | {"backend": provider}
    browser.close()
