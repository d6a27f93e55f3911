import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium

ROOT = Path(__file__).parents[1]
pytest_plugins = ["pytester", "tests.crashes"]

expect.set_options(timeout=60_000)  # of a machine with much else to do

# Files that take minutes, the slowest first: they begin first, so that workers end together.
SLOWEST = (
    "test_conformance.py",
    "jupyter/test_bridge.py",
    "test_generate_leading.py",
    "packaging/test_transformers_js.py",
    "test_notebooks.py",
    "test_nbits.py",
    "test_arm.py",
    "test_bench.py",
    "pyodide/test_pyodide.py",
    "jupyter/test_viewer.py",
    "jupyter/test_bridge_truth.py",
    "lite/test_lite_notebooks.py",
    "jupyter/test_accessibility.py",
    "parity/test_parity.py",
    "jupyter/test_kernels.py",
    "test_packed_blocks.py",
    "test_demo.py",
    "pyodide/test_pyodide_gpu_state.py",
    "packaging/test_bundlers.py",
    "test_rules.py",
    "test_page_shapes.py",
    "player/test_other_browsers.py",
    "lite/test_lite_viewer.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {ROOT / "tests" / name: rank for rank, name in enumerate(SLOWEST)}
    if gone := [path.name for path in ranks if not path.exists()]:
        raise pytest.UsageError(f"tests/conftest.py names files that are gone: {', '.join(gone)}")
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """Makes pytest-playwright's `browser` and `page` use the Chromium that the project found."""
    return chromium.launch_options()


@pytest.fixture(scope="session")
def site() -> Iterator[Server]:
    """The built demo pages, served to isolated pages."""
    folder = ROOT / "build" / "site"
    if not (folder / "index.html").exists():
        pytest.fail(f"{folder} is not built: run `make site`", pytrace=False)
    with Server(folder) as server:
        yield server


@pytest.fixture
def sound_page(browser: Browser) -> Iterator[Page]:
    """A page of a context of its own, in which no error may have come up when the test ends."""
    context = browser.new_context()
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def apart() -> Iterator[Callable[..., Any]]:
    """Calls a function on a thread of its own: Playwright's synchronous interface allows one browser session per thread."""
    with ThreadPoolExecutor(1) as thread:
        yield lambda fn, *args, **kwargs: thread.submit(fn, *args, **kwargs).result()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What is in no circle goes with its last name; what is would stay."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
