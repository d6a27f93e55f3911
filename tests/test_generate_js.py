"""Generation in JavaScript gives what it gives in Python."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import Tiny
from playwright.sync_api import BrowserType
from waiting import until

import pyonnx_wasm
from pyonnx_wasm.bench.generate.models import Size, write_gguf
from pyonnx_wasm.generate import Generator
from pyonnx_wasm.generate.sampling import probabilities, uniform
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium

PLAYER = Path(__file__).parents[1] / "js" / "dist"

SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 1.3, "top_k": 0, "top_p": 0.9, "repetition_penalty": 1.3},
    {"top_k": 5, "min_p": 0.2, "top_p": 1.0},
    {"top_k": 0, "top_p": 1.0, "temperature": 1.0, "likely": 4},
]
NAMES = {"top_k": "topK", "top_p": "topP", "min_p": "minP", "repetition_penalty": "repetitionPenalty"}
SEED = 2**63 + 5


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Generator]:
    folder = tmp_path_factory.mktemp("js")
    path = Tiny("Q8_0", words=200).write(folder / "tiny.gguf")
    pyonnx_wasm.save(pyonnx_wasm.compile(path), folder / "tiny.ponnx")
    asked = [
        {"prompt": [3, 1, 4, 1, 5], "seed": str(SEED), "settings": {"maxNewTokens": 16} | {NAMES.get(k, k): v for k, v in how.items()}}
        for how in SETTINGS
    ]
    (folder / "asked.json").write_text(json.dumps(asked))
    command = ["node", str(Path(__file__).with_name("generate.mjs")), str(folder / "tiny.ponnx"), str(folder / "asked.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout), Generator(path, False)


@pytest.mark.parametrize("k", range(len(SETTINGS)))
def test_the_same_tokens_for_a_seed(both: tuple[dict[str, Any], Generator], k: int) -> None:
    """Probabilities differ where a sum in another order rounds to another unit of its block, max / 32639, in nine products."""
    found, generator = both
    text = generator.generate([3, 1, 4, 1, 5], max_new_tokens=16, seed=SEED, **SETTINGS[k])
    tokens = list(text)
    got = found["texts"][k]
    assert got["ids"] == text.ids
    assert got["text"] == got["told"] == "".join(f"<{i}>" for i in text.ids)
    assert got["reason"] == text.reason
    assert got["reusedTokens"] == (4 if k else 0), "what is known already is not read again"
    for likely, token in zip(got["likely"], tokens, strict=True):
        assert [e["id"] for e in likely] == [i for i, _ in token.likely]
        assert [e["probability"] for e in likely] == pytest.approx([p for _, p in token.likely], rel=9 / 32639)


def test_probabilities() -> None:
    """Of logits that lie near each other, far apart, beyond what a sum can feel, and below all numbers."""
    rng = np.random.default_rng(0)
    rows = [scale * rng.standard_normal(3000) + 7 for scale in (1e-3, 1, 12, 300)]
    rows += [np.array([0, *rng.uniform(-46, -42, 50), -745.2, -1e300, -np.inf]), np.array([-np.inf, 3.0])]
    script = """
      import { readFileSync } from "node:fs";
      const { probabilities } = await import(process.argv[1]);
      const rows = JSON.parse(readFileSync(0, "utf8"), (_, x) => (x === "-inf" ? -Infinity : x));
      console.log(JSON.stringify(rows.map((row) => Array.from(probabilities(row)))));
    """
    told = json.dumps([["-inf" if x == -np.inf else x for x in row.tolist()] for row in rows])
    command = ["node", "--input-type=module", "-e", script, str(PLAYER / "generate.mjs")]
    made = json.loads(subprocess.run(command, input=told, capture_output=True, text=True, check=True, timeout=60).stdout)
    for row, got in zip(rows, made, strict=True):
        np.testing.assert_allclose(got, probabilities(row), rtol=1e-12, atol=0)


def test_limits_stops_and_errors(both: tuple[dict[str, Any], Generator]) -> None:
    found, generator = both
    assert found["context"] == generator.context == 32
    assert found["uniform"] == [uniform(0, 0), uniform(2**40 + 3, 7)]
    assert found["cancelled"] == ["cancelled", 2, "cancelled"]
    reason, text, whole = found["stopped"]
    assert reason == "stop"
    assert whole.startswith(text)
    assert len(text) < len(whole)
    slid, held = found["slid"]
    assert slid == 40
    assert held < 32
    for told, want in zip(
        found["errors"],
        ["RangeError: the prompt is empty", "RangeError: token 0.5", "RangeError: token 200 is none of the model's 200",
         "RangeError: topP is 0", "RangeError: maxNewTokens is 0",
         "ContextError: the text has 40 tokens, the model reads 32"], strict=True,
    ):  # fmt: skip
        assert told.startswith(want)


def test_a_run_that_fails_in_mid_sentence_goes_on_from_its_tokens(both: tuple[dict[str, Any], Generator]) -> None:
    found, generator = both
    text = generator.generate([3, 1, 4, 1, 5], max_new_tokens=16, seed=7)
    list(text)
    whole = "".join(f"<{i}>" for i in text.ids)
    assert found["resumed"] == [whole] * 3, "while the prompt is read, and later"
    message, reason, count, kept = found["lost"]
    assert (message, reason) == ("the device was lost", "error")
    assert count == 6
    assert kept == "".join(f"<{i}>" for i in text.ids[:6]), "what was written is not lost"


@pytest.mark.parametrize("k", range(2))
def test_foretold_tokens_change_no_text(both: tuple[dict[str, Any], Generator], k: int) -> None:
    found, generator = both
    how: dict[str, Any] = [{"temperature": 0}, {"seed": 7, "temperature": 1.3, "repetition_penalty": 1.3}][k]
    text = generator.generate([3, 1, 4, 1, 5, 3, 1], max_new_tokens=20, **how)
    list(text)
    plain, looked_up, own, wrong = found["foretold"][k::2]
    assert [ids for ids, _ in (plain, looked_up, own, wrong)] == [text.ids] * 4
    assert plain[1] == len(text.ids)
    assert own[1] <= -(-plain[1] // 4) + 1, "what is always confirmed comes four at a time"
    assert wrong[1] >= plain[1] - 1


def test_logits_that_are_no_numbers_keep_the_text_so_far(both: tuple[dict[str, Any], Generator]) -> None:
    found, generator = both
    text = generator.generate([3, 1, 4, 1, 5], max_new_tokens=16, seed=7)
    list(text)
    words = [f"<{i}>" for i in text.ids]
    why, reason, before, after = found["nan"]
    assert why.startswith("the model's logits are not numbers")
    assert (reason, before, after) == ("error", "".join(words[:3]), "".join(words))


LOADED = """
const [{ readFileSync }, { InferenceSession }] = [await import("node:fs"), await import(process.argv[1])];
const session = await InferenceSession.create(readFileSync(process.argv[2]), { worker: false });
console.log(await session.memoryBytes());
process.exit(0);
"""


def test_weights_that_were_packed_make_room(tmp_path: Path) -> None:
    """Blocks of 4 bits are laid anew by the init Program: what it has read makes room for what it writes."""
    size = Size("", 512, 2048, 8, 8, 4, 4096, 10000.0)
    write_gguf(size, tmp_path / "m.gguf")
    pyonnx_wasm.save(pyonnx_wasm.compile(tmp_path / "m.gguf"), tmp_path / "m.ponnx")
    command = ["node", "--input-type=module", "-e", LOADED, str(PLAYER / "index.mjs"), str(tmp_path / "m.ponnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert size.read_bytes < int(done.stdout) < 1.6 * size.read_bytes


RESIDENT = """async ([provider, loses]) => {
  const [{ env }, { Generator }] = await Promise.all([import("/player/index.mjs"), import("/player/generate.mjs")]);
  const generator = await Generator.create("/tiny.ponnx", { chunk: 2, ends: [] }, { executionProviders: [provider], worker: false });
  const first = generator.session;
  const text = generator.generate([3, 1, 4, 1, 5], { maxNewTokens: 12, seed: 7 });
  const places = new Set();
  for await (const _ of text) {
    for (const { location } of generator.decoder.values.values()) places.add(location);
    if (loses && text.ids.length === 4) (await env.webgpu.device).destroy();
  }
  const again = generator.generate([3, 1, 4, 9], { maxNewTokens: 3, seed: 7 });
  for await (const _ of again);
  const found = [generator.session.backend, text.ids, [...places], again.statistics.reusedTokens, first === generator.session];
  await generator.release();
  return found;
}"""


SLEEPS = """async () => {
  const { Generator } = await import("/player/generate.mjs");
  const generator = await Generator.create("/tiny.ponnx", { ends: [] });
  globalThis.text = generator.generate([3, 1, 4, 1, 5], { maxNewTokens: 40, seed: 7 });
  globalThis.done = (async () => {
    for await (const _ of text) await new Promise((shown) => setTimeout(shown, 20));
    await generator.release();
    return text.ids;
  })();
}"""


@pytest.mark.browser
def test_the_cache_stays_with_its_engine_and_a_lost_device_loses_no_text(browser_type: BrowserType, tmp_path: Path) -> None:
    """In the core's memory, and in the GPU's. A device is lost, a tab sleeps in mid-sentence: the text goes on as it would have."""
    path = Tiny("Q8_0", layers=1, context=64).write(tmp_path / "tiny.gguf")
    pyonnx_wasm.save(pyonnx_wasm.compile(path, gpu=True), tmp_path / "tiny.ponnx")
    (tmp_path / "index.html").write_text('<!doctype html><link rel="icon" href="data:," />')
    generator = Generator(path, False)
    generator.ends = frozenset()
    want = generator.generate([3, 1, 4, 1, 5], max_new_tokens=12, seed=7)
    list(want)
    browser = browser_type.launch(**chromium.launch_options(webgpu=True))
    with Server({"/": tmp_path, "/player": PLAYER}) as server:
        page = browser.new_page()
        page.goto(server.url)
        assert page.evaluate(RESIDENT, ["wasm", False]) == ["wasm", want.ids, ["cpu-pinned"], 3, True]
        assert page.evaluate(RESIDENT, ["webgpu", True]) == ["webgpu", want.ids, ["gpu-buffer"], 3, False]
        want = generator.generate([3, 1, 4, 1, 5], max_new_tokens=40, seed=7)
        list(want)
        page.evaluate(SLEEPS)
        page.wait_for_function("text.ids.length > 3")
        tab = page.context.new_cdp_session(page)
        stopped: list[Any] = []
        tab.on("Debugger.paused", lambda event: stopped.append(event))
        tab.send("Debugger.enable")
        tab.send("Debugger.pause")  # as the system stops a tab's threads; Chromium freezes no tab that is visible
        until(lambda: bool(tab.send("Runtime.getIsolateId") and stopped))
        tab.send("Debugger.disable")
        assert page.evaluate("done") == want.ids
    browser.close()
