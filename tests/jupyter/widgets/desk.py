"""One notebook for all tests of widgets, and what is on show in it."""

from __future__ import annotations

import secrets
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from pyonnx_wasm.testing.lab import Notebook

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"
DATA = ROOT / "tests" / "data"
FIRST = "import ipywidgets; ipywidgets.Widget.close_all()\nfrom pyonnx_wasm.jupyter import *\nimport numpy as np, pyonnx_wasm as ort\n"
PLAYGROUND = f"""w = Playground({str(DIGITS)!r}, labels="0123456789", inputs={{"ink": Image(
    Preprocess(trim=0.12, resize=(8, 8), filter="box", color="L", scale=16 / 255), sources=("draw", "file", "camera"))}})
w"""


class Desk:
    """One notebook for all tests: each begins with cells of its own."""

    def __init__(self, notebook: Notebook, path: Path, models: Path) -> None:
        self.notebook, self.path, self.models = notebook, path, models

    def open(self, *cells: str) -> Notebook:
        """The notebook with these cells, the first of them run."""
        shown = "jupyterapp.shell.currentWidget.context.model"
        code = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        content = [{**code, "id": secrets.token_hex(4), "source": source} for source in (FIRST + cells[0], *cells[1:])]
        self.notebook.page.evaluate(f"cells => {shown}.fromJSON({{ ...{shown}.toJSON(), cells }})", content)
        self.notebook.run(0)
        return self.notebook


def widget(notebook: Notebook, cell: int = 0) -> Locator:
    """A cell's widget, once its model is loaded."""
    found = notebook.output(cell).locator(".pwx")
    expect(found.locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    return found


def draw(page: Page, board: Locator, points: list[tuple[float, float]]) -> None:
    board.scroll_into_view_if_needed()
    box = board.bounding_box()
    assert box
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=5)
    page.mouse.up()


def alert(view: Locator) -> Locator:
    """What the widget as a whole complains about."""
    return view.locator(":scope > .pwx-alert")


def best(view: Locator) -> Locator:
    return view.locator(".pwx-best .pwx-label")
