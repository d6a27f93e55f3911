"""The model viewer in the JupyterLite site, where no server helps it."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser
LITE = Path(__file__).parents[2] / "build" / "lite"


def test_a_model_opens_as_a_graph(browser: Browser) -> None:
    assert (LITE / "extensions" / "pyonnx-wasm" / "package.json").exists(), "the site is not built: make lite"
    with Server(LITE, isolated=False) as server:
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{server.url}lab/index.html?path=digits.onnx")
        expect(page.locator(".pw-status")).to_contain_text("11 nodes in", timeout=120_000)
        expect(page.locator(".pw-status")).to_contain_text("read in the browser")
        expect(page.locator(".pw-content")).to_contain_text("float32[batch, 1, 8, 8]")
        page.locator(".pw-search input").fill("MaxPool")
        page.locator(".pw-search input").press("Enter")
        expect(page.locator(".pw-content")).to_contain_text("kernel_shape")
        page.close()
        assert not errors
