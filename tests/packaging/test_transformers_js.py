"""transformers.js as its users get it, `onnxruntime-web` aliased to this package: the same ids and numbers as on onnxruntime-web."""

import shutil
import subprocess
import sys
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
sys.path.insert(0, str(HERE))
import variants  # noqa: E402

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
PLAIN = ("model", "encoder_model", "decoder_model_merged")
# Made here: onnxruntime alone makes them in no time.
LIGHT = ["fill", "tokens", "entailment", "classes", "objects", "pairs", "matte"]
EIGHT_BITS = {
    **dict.fromkeys(LIGHT, variants.WEIGHTS),
    "writer": ("int8", "uint8"),
    **dict.fromkeys(["regions", "depth", "hearing"], ("quantized",)),
}
HALVED = ("regions",)
WHOLE = ("features", "writer")  # of which every file is compiled before
ON_GPU = [f"{name}/onnx/model.onnx" for name in ("fill", "tokens", "classes")]
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def hub_server(installed: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The models as the hub has them; under the same names some compiled, some as they are: the player tells them by what they hold."""
    site = tmp_path_factory.mktemp("transformers_js")
    (site / "index.html").write_text(INDEX)
    onnxruntime = ROOT / "node_modules" / "onnxruntime-web"
    subprocess.run(["node", HERE / "bundle.mjs", site, installed("transformers_js"), onnxruntime], check=True)
    player, hub, models = site / "player", site / "hub", site / "models"
    shutil.copytree(DIST, player)
    pyodide.build_wheel(player)
    shutil.copytree(HUB, hub)
    for folder in HALVED:
        variants.make(hub / folder / "onnx" / "model.onnx", variants.HALVES)
    for folder, suffixes in EIGHT_BITS.items():
        for path in sorted((hub / folder / "onnx").glob("*.onnx")):
            if path.stem in PLAIN:
                variants.make(path, suffixes)
    shutil.copytree(hub, models)
    compiled = [path for path in models.rglob("*.onnx") if path.stem in PLAIN or path.parents[1].name in WHOLE]
    for path in sorted(compiled):
        compiled = pyonnx_wasm.compile(
            path.read_bytes(), gpu=path.parents[1].name in WHOLE or path.relative_to(models).as_posix() in ON_GPU
        )
        path.unlink()
        pyonnx_wasm.save(compiled, path)
    places = {"/": site, "/pyodide": pyodide.distribution(), "/ort": onnxruntime / "dist"}
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


@pytest.mark.parametrize("dtype", [*QUANTISED, *HALVES])
def test_dtypes_of_a_decoder(ask: Ask, dtype: str) -> None:
    check(ask("logits", dtype), ask("logits", dtype, library="theirs"), (QUANTISED | HALVES)[dtype])


OTHERS = [
    "fill mask",
    "token classification",
    "text classification",
    "zero-shot classification",
    "image classification",
    "object detection",
    "zero-shot image classification",
    "background removal",
]


@pytest.mark.parametrize("name", OTHERS)
def test_dtypes_of_others(ask: Ask, name: str) -> None:
    """Of a network of convolutions, q4 is the same file, and what makes it fp16 makes no valid model."""
    convolutions = name == "background removal"
    for dtype in ["q8", "int8", "uint8", *([] if convolutions else ["q4", "fp16"])]:
        check(ask(name, dtype), ask(name, dtype, library="theirs"), (QUANTISED | HALVES)[dtype])


# They take longer; a step of an activation's 8 bits may fall either way.
@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [
        ("image segmentation", "q8", 1e-4),
        ("image segmentation", "q4", 1e-4),
        ("image segmentation", "fp16", HALVES["fp16"]),
        ("image segmentation", "q4f16", HALVES["q4f16"]),
        ("depth estimation", "q8", 1e-3),
        ("depth estimation", "q4", 1e-4),
        ("speech recognition", "q8", 1e-4),
        ("text to speech", "q4", 1e-4),
    ],
)
def test_dtypes_of_large_ones(ask: Ask, name: str, dtype: str, tolerance: float) -> None:
    check(ask(name, dtype), ask(name, dtype, library="theirs"), tolerance)


# This GPU has no shader-f16, without which transformers.js refuses fp16.
ON_WEBGPU = {
    "feature extraction": ("q8", "int8", "uint8", "q4", "bnb4", "q4f16"),
    "logits": ("q8", "q4", "bnb4", "q4f16"),
    "image classification": ("q8", "int8", "uint8", "q4", "bnb4", "q4f16"),
    "fill mask": ("fp32", "int8", "q4"),
    "token classification": ("fp32", "uint8", "q4"),
}


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, dtypes in ON_WEBGPU.items() for dtype in dtypes])
def test_dtypes_on_webgpu(ask: Ask, name: str, dtype: str) -> None:
    check(ask(name, dtype, device="webgpu"), ask(name, dtype, library="theirs"), max(1e-3, (QUANTISED | HALVES).get(dtype, 0)))


@pytest.mark.parametrize("dtype", ["q8", "q4", *HALVES])
def test_what_narrow_models_write(ask: Ask, dtype: str) -> None:
    check(ask("text generation", dtype), ask("text generation", dtype, library="theirs"), (QUANTISED | HALVES)[dtype])
