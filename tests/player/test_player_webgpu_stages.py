"""Sizes that are data, branches, loops and products of bytes on WebGPU in a real Chromium."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from playwright.sync_api import BrowserType

import pyonnx_wasm as ort
from pyonnx_wasm.runtimes.errors import CoreError
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import browser, chromium

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
from byte_models import products
from control_models import MODELS, Feeds, Model, X, branches, count, counted, info, loop_body, positions
from gpu_model import assert_same, graph

pytestmark = pytest.mark.browser
node = helper.make_node


@pytest.fixture(scope="module")
def page(browser_type: BrowserType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("stages")
    (folder / "index.html").write_text(browser.PAGE)
    opened = browser_type.launch(**chromium.launch_options(webgpu=True))
    with Server({"/": folder, "/dist/": browser.DIST}) as server:
        found = opened.new_page()
        found.goto(server.url)
        found.wait_for_function("() => window.runBatch")
        yield found
    opened.close()


class Given:
    """What a page takes as a case."""

    def __init__(self, model: bytes, feeds: Feeds) -> None:
        self.model, self.feeds = model, feeds[0]


def asked(page: Any, model: bytes, feeds: Feeds, profiled: bool = False) -> dict[str, Any]:
    job = browser.job(Given(model, feeds), True, True, feeds[1:])  # type: ignore[arg-type]
    [answer] = page.evaluate("batch => window.runBatch(batch)", [job | {"executionProviders": ["webgpu"], "profiled": profiled}])
    found: dict[str, Any] = answer
    return found


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_every_run_of_a_session_gives_what_the_core_gives(page: Any, make: Callable[[], Model]) -> None:
    model, feeds = make()
    answer = asked(page, model, feeds)
    assert answer.get("backend") == "webgpu", answer
    core = ort.InferenceSession(model)
    for feed, outputs in zip(feeds, [answer["outputs"], *answer["later"]], strict=True):
        assert_same(list(zip(core.run(None, feed), [browser.output(o) for o in outputs], strict=True)))


@pytest.mark.parametrize(("name", "model", "feeds"), [pytest.param(*made, id=made[0]) for made in products()])
def test_products_of_bytes_are_the_cores(page: Any, name: str, model: bytes, feeds: Feeds) -> None:
    answer = asked(page, model, feeds)
    assert answer.get("backend") == "webgpu", answer
    core = ort.InferenceSession(model)
    for feed, outputs in zip(feeds, [answer["outputs"], *answer["later"]], strict=True):
        assert_same(list(zip(core.run(None, feed), [browser.output(o) for o in outputs], strict=True)))


def test_a_profile_says_where_each_step_ran(page: Any) -> None:
    for make, kernels in ((positions, {"nonzero"}), (counted, {"loop"}), (branches, {"if"})):
        assert set(asked(page, *make(), profiled=True)["onCore"]) == kernels


def test_errors_are_those_of_the_core(page: Any) -> None:
    nodes = [node("Concat", ["v", "v"], ["v2"], axis=0), node("Neg", ["v2"], ["s"])]
    body = loop_body(nodes, [info("v2"), info("s")])
    x = np.ones(2, np.float32)
    stacked = graph([node("Loop", ["n", "", "x"], ["o", "y0"], body=body)], {"x": x, "n": count(3)})
    reshape = [node("Mul", ["s", "one"], ["q"]), node("Reshape", ["x", "q"], ["r"]), node("Exp", ["r"], ["y0"])]
    wrong = np.array([2, 4], np.int64)
    reshaped = graph(reshape, {"x": X[:2, :3].copy(), "s": wrong}, weights={"one": np.array([1, 1], np.int64)})
    for model, feeds in ((stacked, {"x": x, "n": count(3)}), (reshaped, {"x": X[:2, :3].copy(), "s": wrong})):
        with pytest.raises(CoreError) as error:
            ort.InferenceSession(model).run(None, feeds)
        assert str(error.value).split(": ", 1)[-1] in asked(page, model, [feeds])["error"]


def test_a_model_without_any_shader_says_why_it_runs_on_the_core(page: Any) -> None:
    x = np.ones(3, np.float64)
    answer = asked(page, graph([node("Exp", ["x"], ["y0"])], {"x": x}), [{"x": x}])
    assert (answer["backend"], answer["fallback"]) == ("wasm", "no step of it has a shader")
