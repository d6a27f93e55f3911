"""Models that tell their most likely token themselves: the same text, and of a GPU's logits nothing is read."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from gguf_models import Tiny
from onnx import TensorProto, helper
from playwright.sync_api import BrowserType

import pyonnx_wasm
from pyonnx_wasm.cli import main
from pyonnx_wasm.ir import IRError
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium

TESTS = Path(__file__).parent
PLAYER = TESTS.parent / "js" / "dist"


def rows(name: str) -> onnx.ModelProto:
    """Gives what it is given."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", "kept", "words"]) for n in ("x", name)]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], [name])], "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "gpu"])
@pytest.mark.parametrize("many", [1, 64])
def test_the_first_of_the_largest_and_the_sum(backend: str, many: int, tmp_path: Path) -> None:
    path = tmp_path / "rows.ponnx"
    pyonnx_wasm.save(pyonnx_wasm.compile(rows("logits").SerializeToString(), choice=many, gpu=True), path)
    session = pyonnx_wasm.InferenceSession(path, providers=[backend])
    for words in (1, 3, 257, 70001):
        x = np.random.default_rng(words).standard_normal((2, 3, words)).astype(np.float32) * 5
        x[0, 1, words // 2 :] = x[0, 1].max()
        x[1, 2, words // 3] = np.nan
        x[1, 1] = -np.inf
        found, logits = session.run(["choice", "logits"], {"x": x})
        if many > 1:
            (first,) = session.run(["first"], {"x": x})
            np.testing.assert_array_equal(first, found[..., [0, found.shape[-1] // 2, -1]])
            found = first
        np.testing.assert_array_equal(logits, x)
        np.testing.assert_array_equal(found[..., 0], x.argmax(-1))
        np.testing.assert_array_equal(found[..., 1], np.take_along_axis(x, x.argmax(-1)[..., None], -1)[..., 0])
        with np.errstate(divide="ignore"):
            want = np.log(np.exp(x.astype(np.float64)).sum(-1))
        np.testing.assert_allclose(found[..., 2], want, rtol=1e-5)


def test_what_has_no_logits_makes_no_choice() -> None:
    with pytest.raises(IRError, match="a choice is of an output 'logits'"):
        pyonnx_wasm.compile(rows("y").SerializeToString(), choice=True)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("choice")
    tiny = str(Tiny("Q8_0", layers=1, words=8000, context=64).write(folder / "tiny.gguf"))
    paths = [folder / "plain.ponnx", folder / "choice.ponnx", folder / "many.ponnx"]
    for path, more in zip(paths, ([], ["--choice", "1"], ["--choice"]), strict=True):
        assert main(["compile", tiny, "-o", str(path), "--json", *more]) == 0
    return paths


def test_texts_stay_what_they_are(models: list[Path]) -> None:
    """With and without foretold tokens; where more than the most likely token is wanted, logits are read."""
    command = ["node", str(TESTS / "generate_choice.mjs"), *map(str, models[:2])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    want = found["texts"][:4]
    for k in range(4):
        for (ids, told), (ids_, told_) in zip(found["texts"][4 * k : 4 * k + 4], want, strict=True):
            assert ids == ids_
            assert told == pytest.approx(told_, rel=1e-5)
    assert found["fetched"] == [["logits"]] * 8 + [["choice"], ["logits"], ["choice+logits"], ["choice+logits"]] * 2
    assert found["nan"].startswith("the model's logits are not numbers")
    assert found["kept"] == [4, "error"]
    assert found["gone"] == [want[3][0]] * 4


READ = """async (name) => {
  const { Generator } = await import("/player/generate.mjs");
  const generator = await Generator.create(name, { ends: [] }, { executionProviders: ["webgpu"], worker: false });
  const { mapAsync } = GPUBuffer.prototype;
  let read = 0;
  let reads = 0;
  GPUBuffer.prototype.mapAsync = function (mode, ...more) {
    if (mode === GPUMapMode.READ) [read, reads] = [read + (more[1] ?? this.size), reads + 1];
    return mapAsync.call(this, mode, ...more);
  };
  const text = generator.generate([3, 1, 4, 1, 5], { maxNewTokens: 12, temperature: 0 });
  for await (const _ of text);
  GPUBuffer.prototype.mapAsync = mapAsync;
  const { backend } = generator.session;
  await generator.release();
  return [backend, text.ids, read / text.ids.length, reads / text.ids.length];
}"""


@pytest.mark.browser
def test_of_a_gpu_the_choice_alone_is_read(browser_type: BrowserType, models: list[Path]) -> None:
    folder = models[0].parent
    (folder / "index.html").write_text('<!doctype html><link rel="icon" href="data:," />')
    browser = browser_type.launch(**chromium.launch_options(webgpu=True))
    with Server({"/": folder, "/player": PLAYER}) as server:
        page = browser.new_page()
        page.goto(server.url)
        found: list[Any] = [page.evaluate(READ, f"/{path.name}") for path in models]
    browser.close()
    (backend, ids, every, once), *some = found
    assert (backend, once) == ("webgpu", 1)
    assert every >= 4 * 8000
    for backend_, ids_, few, once in some:
        assert (backend_, ids_, once) == (backend, ids, 1)
        assert few <= 16
