"""transformers.js as its users get it, `onnxruntime-web` aliased to this package: the same ids and numbers as on onnxruntime-web.

What takes a software GPU, or a page that compiles, longer is compared by `python -m tests.packaging.pairs`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserType, Error, Page

from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium
from tests.packaging import pairs

pytestmark = pytest.mark.browser
WHOLE = ("features", "writer")  # of which every file is compiled before
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def hub_server(installed: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The models as the hub has them; under the same names some compiled, some as they are: the player tells them by what they hold."""
    with pairs.make_site(tmp_path_factory.mktemp("transformers_js"), installed("transformers_js"), WHOLE) as server:
        yield server


@pytest.fixture(scope="module")
def page(hub_server: Server, browser_type: BrowserType) -> Iterator[Page]:
    browser = browser_type.launch(**chromium.launch_options(webgpu=True))
    yield pairs.open_page(browser, hub_server, "models")
    browser.close()


@pytest.fixture(scope="module")
def ask(page: Page) -> Ask:
    """What a pipeline gives; what onnxruntime-web gives is asked once."""
    known: dict[tuple[str, str], Any] = {}

    def ask(name: str, dtype: str = "fp32", device: str = "wasm", library: str = "ours") -> Any:
        if library == "theirs" and (name, dtype) in known:
            return known[name, dtype]
        found = page.evaluate(pairs.RUN, [library, name, {"dtype": dtype, "device": device}])
        return known.setdefault((name, dtype), found) if library == "theirs" else found

    return ask


def check(ask: Ask, name: str, dtype: str = "fp32", device: str = "wasm") -> None:
    theirs = ask(name, dtype, library="theirs")
    assert theirs not in (None, [], {})
    assert pairs.differences(ask(name, dtype, device), theirs, pairs.tolerance(name, dtype, device)) == []


def test_every_pipeline_is_tested(page: Page) -> None:
    assert sorted(page.evaluate("ours.names")) == sorted([*pairs.NAMES, "interpolation"])


def test_what_is_no_number_differs() -> None:
    nan = float("nan")
    assert pairs.differences([{"pixels": [1, 255]}, [1.0, 2.0], "a"], [{"pixels": [2, 255]}, [1.0, 2.00001], "a"], 1e-4) == []
    for ours, theirs in (([nan, 1], [0, 1]), (nan, 1.0), ([1.0, 2.0], [1.0, nan]), ("a", "b"), ([1], [1, 2]), ([1.0], [1.1])):
        assert len(pairs.differences(ours, theirs, 1e-4)) == 1


@pytest.mark.parametrize("name", [*pairs.NAMES, "interpolation"])
def test_pipelines(ask: Ask, name: str) -> None:
    check(ask, name)


SMALL = [
    "feature extraction",
    "logits",
    "fill mask",
    "token classification",
    "text classification",
    "zero-shot classification",
    "image classification",
    "object detection",
    "zero-shot image classification",
    "background removal",
]
LARGE = {
    "text generation": ("q8", "q4", *pairs.HALVES),
    "image segmentation": ("q8", "q4", *pairs.HALVES),
    "depth estimation": ("q8", "q4", "fp16"),
    "speech recognition": ("q8", "q4", "fp16"),
    "speech logits": ("q8", "q4", *pairs.HALVES),
    "text to speech": ("q8", "q4"),
}


@pytest.mark.parametrize("name", SMALL)
def test_dtypes(ask: Ask, name: str) -> None:
    for dtype in pairs.DTYPES[1:]:
        check(ask, name, dtype)


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, dtypes in LARGE.items() for dtype in dtypes])
def test_dtypes_of_large_ones(ask: Ask, name: str, dtype: str) -> None:
    check(ask, name, dtype)


@pytest.mark.parametrize("name", SMALL)
def test_dtypes_on_webgpu(ask: Ask, name: str) -> None:
    for dtype in pairs.DTYPES:
        if dtype != "fp16":
            check(ask, name, dtype, "webgpu")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("text generation", "fp32"),
        ("text generation", "q4"),
        ("text generation, sampled", "fp32"),
        ("image segmentation", "fp32"),
        ("image segmentation", "q8"),
        ("depth estimation", "fp32"),
        ("speech recognition", "fp32"),
        ("speech logits", "fp32"),
    ],
)
def test_large_ones_on_webgpu(ask: Ask, name: str, dtype: str) -> None:
    check(ask, name, dtype, "webgpu")


def test_halves_on_webgpu_need_its_feature(ask: Ask, page: Page) -> None:
    if page.evaluate("async () => (await navigator.gpu.requestAdapter()).features.has('shader-f16')"):
        return check(ask, "fill mask", "fp16", "webgpu")
    with pytest.raises(Error, match="does not support fp16"):
        ask("fill mask", "fp16", "webgpu")
