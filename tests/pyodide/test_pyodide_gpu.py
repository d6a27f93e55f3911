"""WebGPU in Pyodide: blocking where the browser can suspend Python, awaited everywhere."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import BrowserType

import pyonnx_wasm as ort
from pyonnx_wasm.testing import pyodide
from pyonnx_wasm.testing.chromium import launch_options
from pyonnx_wasm.testing.pyodide import Pyodide, PythonError, decoded, encoded

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "js/pages/digits/digits.onnx"
OPEN = "import pyonnx_wasm as ort\ns = ort.InferenceSession(await fetched('digits/digits.onnx'), providers=['webgpu', 'wasm'])\n"


@pytest.fixture(scope="module", params=["page", "worker"])
def gpu(request: pytest.FixtureRequest, browser_type: BrowserType, wheel: Path, mounts: dict[str, Path]) -> Iterator[Pyodide]:
    browser = browser_type.launch(**launch_options(webgpu=True))
    try:
        with pyodide.opened(browser, wheel, worker=request.param == "worker", mounts=mounts) as python:
            yield python
    finally:
        browser.close()


@pytest.mark.parametrize("call", ["s.run(None, feed)", "await s.run_async(None, feed)"])
def test_digits(gpu: Pyodide, call: str) -> None:
    feeds = [np.random.default_rng(n).uniform(0, 16, (n, 1, 8, 8)).astype(np.float32) for n in (3, 1, 7)]
    code = f"{OPEN}got = []\nfor one in given:\n    feed = received(one)\n    got.append(sent({call}))\n[s.providers, got]"
    providers, results = gpu.run(code, [encoded({"ink": x}) for x in feeds])
    assert providers == ["webgpu"]
    for x, got in zip(feeds, results, strict=True):
        (want,) = ort.InferenceSession(DIGITS).run(None, {"ink": x})
        (result,) = decoded(got)
        np.testing.assert_allclose(result, want, rtol=1e-3, atol=1e-4)


def test_profile_is_of_the_gpu(gpu: Pyodide) -> None:
    code = OPEN + "profile = s.profile(received(given))\nsorted({step.backend for step in profile})"
    assert gpu.run(code, encoded({"ink": np.zeros((1, 1, 8, 8), np.float32)})) == ["webgpu"]


def test_where_python_cannot_wait_the_error_names_the_cure(gpu: Pyodide) -> None:
    name = gpu.run("await fetched('digits/digits.onnx')")
    code = f"import pyonnx_wasm as ort\ns = ort.InferenceSession({name!r}, providers=['webgpu'])\ns.run(None, received(given))"
    with pytest.raises(PythonError, match=r"await session\.run_async"):
        gpu.run(code, encoded({"ink": np.zeros((1, 1, 8, 8), np.float32)}), blocking=True)
