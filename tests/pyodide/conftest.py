"""Pyodide in Chromium: in a page and in its worker, with and without what threads need."""

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from playwright.sync_api import Browser, BrowserType

from pyonnx_wasm import shim
from pyonnx_wasm.testing import pyodide
from pyonnx_wasm.testing.chromium import launch_options

ROOT = Path(__file__).parents[2]
MODELS = {
    "/digits/": ROOT / "js/pages/digits",
    "/data/": ROOT / "tests/data",
    "/models/": ROOT / "build/models",
    "/light/": Path(onnx.__file__).parent / "backend/test/data/light",
}


@pytest.fixture(scope="session")
def mounts() -> dict[str, Path]:
    """Folders that pages can fetch from."""
    return MODELS


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pyodide.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def onnxruntime_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shim.build(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="module", params=["page", "worker"])
def python(request: pytest.FixtureRequest, browser: Browser, wheel: Path, onnxruntime_wheel: Path) -> Iterator[pyodide.Pyodide]:
    """Python with the wheel installed."""
    mounts = MODELS | {"/onnxruntime/": onnxruntime_wheel.parent}
    with pyodide.opened(browser, wheel, worker=request.param == "worker", mounts=mounts) as python:
        yield python


@pytest.fixture(scope="module", params=["page", "worker"])
def isolated(request: pytest.FixtureRequest, browser: Browser, wheel: Path) -> Iterator[pyodide.Pyodide]:
    """The same where threads can share memory."""
    with pyodide.opened(browser, wheel, worker=request.param == "worker", isolated=True, mounts=MODELS) as python:
        yield python


@pytest.fixture(scope="module", params=["page", "worker"])
def gpu(request: pytest.FixtureRequest, browser_type: BrowserType, wheel: Path, mounts: dict[str, Path]) -> Iterator[pyodide.Pyodide]:
    """The same where there is a GPU."""
    browser = browser_type.launch(**launch_options(webgpu=True))
    try:
        with pyodide.opened(browser, wheel, worker=request.param == "worker", mounts=mounts) as python:
            yield python
    finally:
        browser.close()
