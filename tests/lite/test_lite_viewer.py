"""The model viewer in the JupyterLite site, where no server helps it: the page reads the file, and Python in a worker tells the rest."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from playwright.sync_api import Browser, expect

from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
LITE = ROOT / "build" / "lite"


def test_a_model_opens_as_a_graph_and_python_tells_the_rest(browser: Browser) -> None:
    """Shapes, statistics, elements, documentation and runs; a run that is stopped ends, and the next one starts Python anew."""
    assert (LITE / "extensions" / "pyonnx-wasm" / "package.json").exists(), "the site is not built: make lite"
    with Server(LITE, isolated=False) as server:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("response", lambda response: errors.append(response.url) if "pyonnx-wasm/graph" in response.url else None)
        page.goto(f"{server.url}lab/index.html?path=digits.onnx")
        status, details = page.locator(".pw-status"), page.locator(".pw-content")
        expect(status).to_contain_text("11 nodes in", timeout=120_000)
        expect(status).to_contain_text("read in the browser")
        expect(details).to_contain_text("float32[batch, 1, 8, 8]")

        details.get_by_role("button", name="Start Python for this model").click()
        expect(status).to_contain_text("inferred shapes", timeout=120_000)
        expect(details).to_contain_text("Shapes are inferred for every value.")
        page.locator(".pw-search input").fill("conv [24,16,3,3]")
        page.locator(".pw-search input").press("Enter")
        expect(details).to_contain_text("float32[batch, 24, 8, 8]")
        details.get_by_role("button", name="Statistics").first.click()
        expect(details.get_by_role("img", name=re.compile("histogram from -"))).to_be_visible()
        expect(details).to_contain_text("of 3,456")
        details.get_by_text("Documentation").click()
        expect(details.locator(".pw-doc")).to_contain_text("kernel_shape")
        details.get_by_role("button", name="Values").first.click()
        expect(details.locator(".pw-plane")).to_have_attribute("aria-label", re.compile("3 × 3 values"))
        with page.expect_download() as download:
            details.get_by_role("button", name="Save as .npy").click()
        stored = onnx.load(ROOT / "js" / "pages" / "digits" / "digits.onnx").graph.initializer
        weight = numpy_helper.to_array(next(w for w in stored if w.dims == [24, 16, 3, 3]))
        assert np.array_equal(np.load(download.value.path()), weight)

        page.get_by_role("tab", name="Run", exact=True).click()
        panel, result = page.locator(".pw-run"), page.locator(".pw-result")
        panel.get_by_label("size of batch").fill("3")
        panel.get_by_role("button", name="Run").click()
        expect(result).to_contain_text("float32[3, 10]", timeout=60_000)
        expect(result).to_contain_text("Time per step")
        expect(result.locator(".pw-step")).to_have_count(7)
        panel.get_by_label("size of batch").fill("100000")
        panel.get_by_role("button", name="Run").click()
        panel.get_by_role("button", name="Stop").click()
        expect(result).to_have_text("Stopped.")
        panel.get_by_label("size of batch").fill("2")
        panel.get_by_role("button", name="Run").click()
        expect(result).to_contain_text("float32[2, 10]", timeout=120_000)
        page.close()
        assert not errors
