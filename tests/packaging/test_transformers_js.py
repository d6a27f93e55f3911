"""transformers.js as its users get it, `onnxruntime-web` aliased to this package: the same ids and numbers as on onnxruntime-web."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserType, Page

import pyonnx_wasm
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium, pyodide

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "transformers_js"
HUB = HERE / "hub"
DIST = ROOT / "js" / "dist"
INDEX = '<!doctype html><link rel="icon" href="data:,"><title>transformers.js</title>'
START = """async () => {
  const [ours, theirs] = await Promise.all([import("/ours.js"), import("/theirs.js")]);
  ours.env.localModelPath = "/models/";
  ours.env.backends.onnx.pyodide.indexURL = "/pyodide/";
  theirs.env.localModelPath = "/hub/";
  Object.assign(theirs.env.backends.onnx.wasm, { wasmPaths: "/ort/", numThreads: 1 });
  Object.assign(window, { ours, theirs });
  return ours.names;
}"""
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def hub_server(installed: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The models as the hub has them, and under the same names compiled: the player tells them by what they hold."""
    site = tmp_path_factory.mktemp("transformers_js")
    (site / "index.html").write_text(INDEX)
    onnxruntime = ROOT / "node_modules" / "onnxruntime-web"
    subprocess.run(["node", HERE / "bundle.mjs", site, installed("transformers_js"), onnxruntime], check=True)
    player, models = site / "player", site / "models"
    shutil.copytree(DIST, player)
    pyodide.build_wheel(player)
    shutil.copytree(HUB, models)
    for path in sorted(models.rglob("*.onnx")):
        compiled = pyonnx_wasm.compile(path.read_bytes(), gpu=True)
        path.unlink()
        pyonnx_wasm.save(compiled, path)
    places = {"/": site, "/hub": HUB, "/pyodide": pyodide.distribution(), "/ort": onnxruntime / "dist"}
    with Server(places) as server:
        yield server


@pytest.fixture(scope="module")
def page(hub_server: Server, browser_type: BrowserType) -> Iterator[Page]:
    browser = browser_type.launch(**chromium.launch_options(webgpu=True))
    page = browser.new_page()
    page.goto(hub_server.url)
    page.evaluate(START)
    yield page
    browser.close()


@pytest.fixture(scope="module")
def ask(page: Page) -> Ask:
    """What a pipeline gives; what onnxruntime-web gives is asked once."""
    known: dict[tuple[str, str], Any] = {}

    def ask(name: str, dtype: str = "fp32", device: str = "wasm", library: str = "ours") -> Any:
        if library == "theirs" and (name, dtype) in known:
            return known[name, dtype]
        run = "([library, name, options]) => window[library].run(name, options)"
        found = page.evaluate(run, [library, name, {"dtype": dtype, "device": device}])
        return known.setdefault((name, dtype), found) if library == "theirs" else found

    return ask


def differences(ours: Any, theirs: Any, tolerance: float, at: str = "") -> Iterator[str]:
    """Words, ids and sizes exactly; numbers within the tolerance of the largest of their tensor; pixels by one."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and ours.keys() == theirs.keys():
        for key in theirs:
            yield from differences(ours[key], theirs[key], 1 / 255 if key == "pixels" else tolerance, f"{at}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(ours) == len(theirs):
        if theirs and all(type(n) in (int, float) for n in (*ours, *theirs)):
            a, b = np.array(ours, float), np.array(theirs, float)
            if np.abs(a - b).max() > tolerance * np.abs(b).max():
                yield f"{at}: {np.abs(a - b).max()} of {np.abs(b).max()}"
        else:
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                yield from differences(a, b, tolerance, f"{at}[{i}]")
    elif isinstance(theirs, float) and isinstance(ours, int | float):
        if abs(ours - theirs) > tolerance * max(1, abs(theirs)):
            yield f"{at}: {ours}, not {theirs}"
    elif ours != theirs:
        yield f"{at}: {ours!r}, not {theirs!r}"


def check(ours: Any, theirs: Any, tolerance: float) -> None:
    assert theirs not in (None, [], {})
    assert list(differences(ours, theirs, tolerance)) == []


NAMES = [
    "feature extraction",
    "text generation",
    "logits",
    "text generation, sampled",
    "fill mask",
    "token classification",
    "text classification",
    "zero-shot classification",
    "image classification",
    "image segmentation",
    "depth estimation",
    "object detection",
    "zero-shot image classification",
    "background removal",
    "interpolation",
    "text to speech",
    "speech recognition",
]


def test_every_pipeline_is_tested(page: Page) -> None:
    assert sorted(page.evaluate("ours.names")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_pipelines(ask: Ask, name: str) -> None:
    check(ask(name), ask(name, library="theirs"), 1e-4)


# With a cache on the GPU, with a picture; a software GPU compiles the others for minutes.
@pytest.mark.parametrize("name", ["feature extraction", "text generation", "image classification"])
def test_pipelines_on_webgpu(ask: Ask, name: str) -> None:
    check(ask(name, device="webgpu"), ask(name, library="theirs"), 1e-3)


QUANTISED = {"q8": 1e-4, "int8": 1e-4, "uint8": 1e-4, "q4": 1e-4, "bnb4": 1e-4}
HALVES = {"fp16": 2**-8, "q4f16": 2**-8}  # four of their epsilons


@pytest.mark.parametrize("dtype", [*QUANTISED, *HALVES])
def test_dtypes_of_an_encoder(ask: Ask, dtype: str) -> None:
    theirs = ask("feature extraction", dtype, library="theirs")
    check(ask("feature extraction", dtype), theirs, (QUANTISED | HALVES)[dtype])


@pytest.mark.parametrize("dtype", ["q8", "q4", *HALVES])
def test_dtypes_of_a_decoder(ask: Ask, dtype: str) -> None:
    check(ask("logits", dtype), ask("logits", dtype, library="theirs"), (QUANTISED | HALVES)[dtype])


@pytest.mark.parametrize("dtype", ["q8", "q4"])
def test_what_quantised_models_write(ask: Ask, dtype: str) -> None:
    check(ask("text generation", dtype), ask("text generation", dtype, library="theirs"), 1e-4)
