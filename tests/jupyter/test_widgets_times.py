"""In a real JupyterLab: times that mean something, functions in Python around a playground's run, and which backend is preferred."""

import re
from pathlib import Path

import pytest
from lab import Lab
from playwright.sync_api import BrowserType, expect

from pyonnx_wasm.testing.chromium import launch_options

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"
pytestmark = pytest.mark.browser
SETUP = f"""
import numpy as np
import pyonnx_wasm as ort
from pyonnx_wasm.jupyter import *
model = {str(DIGITS)!r}
"""
CELLS = [
    SETUP,
    "c = Compare(model, backends=('cpu', 'wasm'))\nc",
    "p = Profile(model, runs=3)\np",
    """s = ort.InferenceSession(model, providers=["browser"])
found = s.profile({"ink": np.zeros((1, 1, 8, 8), np.float32)}, runs=4)
print(found.runs, found.first_ms > 0, {x.backend for x in found}, len(found) == len(ort.InferenceSession(model).profile(
    {"ink": np.zeros((1, 1, 8, 8), np.float32)})))""",
    """seen = []
def before(feeds): return {"ink": feeds["ink"] * 0}
def after(results):
    seen.append(results["probabilities"].shape)
    return f"it is <b>{results['probabilities'].argmax()}</b>"
w = Playground(model, inputs={"ink": Tensor("ones")}, before=before, after=after)
w""",
    """result = (await w.result())["probabilities"]
(wanted,) = ort.InferenceSession(model).run(None, {"ink": np.zeros((len(result), 1, 8, 8), np.float32)})
seen[-1] == result.shape, np.allclose(result, wanted)""",
    "def fails(results): raise KeyError('no such class')\nv = Playground(model, inputs={'ink': Tensor()}, after=fails)\nv",
    """try: w.save_html("page.html")
except ValueError as error: print(error)""",
    "g = Playground(model)\ng",
]

# Keeps what status lines say: they change faster than a test looks.
HEAR = """() => {
  globalThis.said = [];
  const hear = () => document.querySelectorAll(".pwx-status").forEach((line) => said.push(line.textContent));
  new MutationObserver(hear).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


def test_times_and_functions(tmp_path: Path, browser_type: BrowserType) -> None:
    """On a page whose GPU is a processor: wasm is preferred, with the reason."""
    with Lab(tmp_path / "lab") as lab:
        lab.write("times.ipynb", CELLS)
        browser = browser_type.launch(**launch_options(webgpu=True))
        notebook = lab.open(browser.new_context(viewport={"width": 1100, "height": 900}), "times.ipynb")
        notebook.run(0)

        notebook.run(1)
        compare = notebook.output(1).locator(".pwx")
        times = compare.locator(".pwx-times tbody tr")
        expect(times).to_have_count(2, timeout=60_000)
        number = r"[\d.]+ ms"
        expect(times.nth(0)).to_have_text(re.compile(rf"cpu{number}{number} to {number}{number}{number}\d+"))
        expect(times.nth(1)).to_have_text(re.compile(rf"wasm{number}{number} to {number}{number}–\d+"))
        assert all(int(row.locator("td").last.inner_text().replace(",", "")) >= 5 for row in times.all())

        notebook.page.evaluate(HEAR)
        notebook.run(2)
        status = notebook.output(2).locator(".pwx-status")
        expect(status).to_contain_text(re.compile(rf"median of [\d,]+ runs after a first of {number}"), timeout=60_000)

        assert any(re.match(r"Measuring: run \d+, \d+ %", text) for text in notebook.page.evaluate("said"))

        assert notebook.run(3) == "4 True {'wasm'} True" or notebook.text(3).startswith("4 True {'webgpu'")

        notebook.run(4)
        playground = notebook.output(4).locator(".pwx")
        expect(playground.locator("output.pwx-text")).to_have_text(re.compile(r"it is <b>\d</b>"))
        assert notebook.run(5) == "(True, True)"
        notebook.run(6)
        expect(notebook.output(6).locator(".pwx > .pwx-alert")).to_contain_text("no such class")
        assert "a page of its own has no Python" in notebook.run(7)

        notebook.run(8)
        badge = notebook.output(8).locator(".pwx-badge")
        expect(badge).to_contain_text("wasm · ")
        badge.click()
        expect(notebook.output(8).locator(".pwx-note")).to_contain_text(re.compile("swiftshader here, which runs on the processor", re.I))
        browser.close()
