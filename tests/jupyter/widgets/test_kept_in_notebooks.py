"""What a notebook keeps of its widgets, and what comes back when it is opened again."""

from __future__ import annotations

import base64
import io
import json
import re
from typing import Any

import nbformat
import numpy as np
import pytest
from desk import DIGITS, PLAYGROUND, Desk, best, widget
from nbconvert import get_exporter as exporter
from PIL import Image
from playwright.sync_api import expect
from waiting import until

pytestmark = pytest.mark.browser
EXPORTS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"theme": "dark"},
    "plain": {"template_name": "basic"},
    "sanitized": {"sanitize_html": True},
}
FIGURE = {"markdown": r"!\[png\]\((.*?)\)", "rst": r"\.\. image:: (.*)", "latex": r"\\adjustimage\{.*\}\{(.*)\}"}


def test_two_widgets_reload_and_close(desk: Desk) -> None:
    """They share the page's engine and nothing else; a reloaded page shows them again; closing frees the model."""
    notebook = desk.open(
        PLAYGROUND, f"x = Playground({str(DIGITS)!r}, title='second')\nx", "int((await w.result())['probabilities'].argmax())", "x.close()"
    )
    notebook.run(1)
    first, second = widget(notebook), widget(notebook, 1)
    first.locator("input[type=file]").set_input_files(desk.models / "one.png")
    expect(best(first)).to_have_text("1")
    expect(second.locator(".pwx-status")).to_have_text("Waiting for an input")
    assert notebook.run(2) == "1"

    notebook.save()
    notebook.reload()
    first, second = widget(notebook), widget(notebook, 1)
    first.locator("input[type=file]").set_input_files(desk.models / "one.png")
    expect(best(first)).to_have_text("1")
    assert notebook.run(2) == "1"

    page = notebook.page
    page.evaluate(
        """async () => {
            const engine = await globalThis[Symbol.for("pyonnx_wasm")].engine;
            const release = engine.release;
            window.released = 0;
            engine.release = (model) => release(model).then(() => window.released++);
        }"""
    )
    notebook.run(3)
    page.wait_for_function("() => window.released === 1")
    expect(notebook.output(1).locator(".pwx")).to_have_count(0)
    expect(best(first)).to_have_text("1")


def grey_of(png: bytes) -> Image.Image:
    """On white."""
    picture = Image.open(io.BytesIO(png)).convert("RGBA")
    white = Image.new("RGBA", picture.size, "white")
    white.alpha_composite(picture)
    return white.convert("L")


def test_what_the_user_gives_does_not_get_into_the_notebook_unasked(desk: Desk) -> None:
    notebook = desk.open(PLAYGROUND, PLAYGROUND.replace("labels=", "still=True, labels="))
    notebook.run(1)
    for cell in (0, 1):  # the one that was asked for a picture is given it last: when it sends one, the other would have
        view = widget(notebook, cell)
        view.locator("input[type=file]").set_input_files(desk.models / "one.png")
        expect(best(view)).to_have_text("1")
    until(lambda: any("image/png" in o.get("data", {}) for o in notebook.outputs(1)))
    assert not any("image/png" in o.get("data", {}) for o in notebook.outputs(0))
    notebook.save()
    saved = json.loads(desk.path.read_text())
    [first, second] = saved["cells"]
    assert "image/png" in json.dumps(second)
    saved["cells"] = [first]
    text = json.dumps(saved)
    assert "widget-view+json" in text
    assert "image/png" not in text
    assert base64.b64encode((desk.models / "one.png").read_bytes()[:90]).decode() not in text


def test_saved_notebook_keeps_a_picture_that_is_asked_for(desk: Desk) -> None:
    notebook = desk.open(PLAYGROUND.replace("labels=", "still=True, labels="))
    view = widget(notebook)
    view.locator("input[type=file]").set_input_files(desk.models / "one.png")
    expect(best(view)).to_have_text("1")
    until(lambda: any("image/png" in o.get("data", {}) for o in notebook.outputs(0)))
    notebook.save()
    path = desk.path
    # The file's, as the widget may send another while this goes on.
    (kept,) = [o["data"]["image/png"] for o in nbformat.read(path, as_version=4).cells[0].outputs if "image/png" in o.get("data", {})]
    grey = np.asarray(grey_of(base64.b64decode(kept)))
    dark = np.flatnonzero((grey < 10).sum(0) > 40) / grey.shape[1]  # columns with much of the photo's black
    assert 0.2 < dark.max() < 0.35, "the photo is in the middle of its half, as in the widget"
    expect(notebook.output(0).locator(".jp-RenderedImage")).to_be_hidden()

    for name, options in EXPORTS.items():
        html, _ = exporter("html")(**options).from_filename(path)
        if name == "plain":  # as of a renderer that trusts no notebook: without style sheets and scripts
            html = re.sub(r"(?s)<(style|script)\b.*?</\1>", "", html)
        path.with_name(f"{name}.html").write_text(html, "utf-8")
        page = notebook.page.context.new_page()
        page.route("http*://**", lambda route: route.abort())  # what the export would fetch for formulas
        page.goto(path.with_name(f"{name}.html").as_uri(), wait_until="commit")
        picture = page.locator("img")
        expect(picture).to_be_visible()
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 600
        expect(page.get_by_text("Playground of digits.onnx")).to_be_visible(visible=name in ("plain", "sanitized"))
        shown = np.asarray(grey_of(picture.screenshot()))
        assert (np.median(shown) < 64) == (name == "dark"), "the picture has the look of the page"
        page.close()
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:  # without what kernels log of their own tasks
        cell.outputs = [out for out in cell.outputs if out.output_type != "stream"]
    for form, figure in FIGURE.items():
        text, resources = exporter(form)().from_notebook_node(book)
        text = text.partition(r"\begin{document}")[2] if form == "latex" else text
        (named,) = re.findall(figure, text)
        assert resources["outputs"][named] == base64.b64decode(kept), form
        assert "Playground of digits.onnx: ink float32" in text.replace("\\", ""), form
        # Neither HTML, which renderers escape or strip, nor a picture as text.
        assert not re.search(r"<\w|base64|raw:: html", text), (form, text)
        assert len(text) < 3000, form

    notebook.restart()
    notebook.reload(widgets=False)
    expect(notebook.output(0).locator(".jp-RenderedImage img")).to_be_visible()
    expect(notebook.page.get_by_text("Error displaying widget")).to_be_hidden()
