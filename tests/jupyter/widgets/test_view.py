"""``View``: a model as a graph in a cell, in a real JupyterLab."""

from __future__ import annotations

import re

import pytest
from accessibility import complaints
from desk import DIGITS, Desk
from playwright.sync_api import expect
from waiting import until

from pyonnx_wasm.jupyter import View
from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser
# The name of what has the focus, and whether that shows: by an outline, or on the graph's canvas by what is drawn.
FOCUSED = """() => {
  const at = document.activeElement;
  const name = at.getAttribute("aria-label") ?? at.labels?.[0]?.textContent ?? at.textContent;
  return { name: name.slice(0, 80), seen: at === document.body || getComputedStyle(at).outlineStyle !== "none" };
}"""


def test_a_model_in_a_cell(desk: Desk) -> None:
    """From an address; shapes, elements, documentation and runs come from the kernel; the notebook keeps a picture."""
    with Server({"/": DIGITS.parent}) as server:
        notebook = desk.open(f"v = View({f'{server.url}{DIGITS.name}'!r}, height=420)\nv")
        view = notebook.output(0).locator(".pwx-view")
        expect(view.locator(".pw-status")).to_contain_text("inferred shapes")
    view.get_by_role("searchbox").fill("conv [24,16,3,3]")
    view.get_by_role("searchbox").press("Enter")
    details = view.locator(".pw-content")
    details.get_by_text("Documentation").click()
    expect(details.locator(".pw-doc")).to_contain_text("convolution")
    details.get_by_role("button", name="Values").first.click()
    expect(details.locator(".pw-plane")).to_have_attribute("aria-label", re.compile("3 × 3 values"))
    view.get_by_role("tab", name="Run").click()
    details.get_by_label("size of batch").fill("3")
    details.get_by_role("button", name="Run").click()
    expect(details.locator(".pw-result")).to_contain_text("float32[3, 10]")
    until(lambda: any("image/png" in o.get("data", {}) for o in notebook.outputs(0)))


def test_two_models_in_a_cell(desk: Desk) -> None:
    notebook = desk.open(f"View({str(DIGITS)!r}, {str(desk.models / 'pictures.onnx')!r}, height=640)")
    summary = notebook.output(0).locator(".pw-differences [role=status]")
    expect(summary).to_contain_text("in the first model alone")
    expect(notebook.output(0).locator(".pw-half")).to_have_count(2)


def test_what_is_no_file_is_said(desk: Desk) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file absent\.onnx"):
        View("absent.onnx")
    shown = View(DIGITS.read_bytes())
    assert "model.onnx" in repr(shown)
    shown.close()


def test_nothing_serious_is_found_and_keys_do_it_all(desk: Desk) -> None:
    """Light, dark and in forced colours; a box chosen, opened and left, a search, the tabs, elements of a weight and a run, by keys."""
    notebook = desk.open(f"View({str(DIGITS)!r}, height=520)")
    page, view = notebook.page, notebook.output(0).locator(".pwx-view")
    expect(view.locator(".pw-status")).to_contain_text("inferred shapes")
    details, press = view.locator(".pw-content"), page.keyboard.press

    for look in ("light", "dark", "forced"):
        notebook.theme("dark" if look == "dark" else "light")
        page.emulate_media(forced_colors="active" if look == "forced" else "none")
        for tab in ("Model", "Outline", "Selected", "Run"):
            view.get_by_role("tab", name=tab, exact=True).click()
            assert complaints(page, ".pwx-view") == [], (look, tab)
    page.emulate_media(forced_colors="none")
    notebook.theme("light")

    def walk(name: str) -> None:
        """Tab until the focus is on what has this name; it is always seen."""
        for _ in range(60):
            press("Tab")
            told = page.evaluate(FOCUSED)
            assert told["seen"], f"no focus is seen on {told['name']}"
            if name in told["name"]:
                return
        raise AssertionError(f"Tab never comes to {name}")

    view.get_by_role("searchbox").focus()
    page.keyboard.type("conv [24,16,3,3]")
    press("Enter")
    expect(details.locator(".pw-kind")).to_have_text("Conv")
    walk("Values")
    press("Enter")
    expect(details.locator(".pw-plane")).to_have_attribute("aria-label", re.compile("3 × 3 values"))
    view.locator("canvas.pw-graph").focus()
    press("ArrowDown")
    expect(details.locator(".pw-kind")).to_have_text("Relu")
    press("Escape")
    expect(details.locator(".pw-kind")).to_have_text("ONNX model")
    view.get_by_role("tab", name="Model", exact=True).focus()
    for tab in ("Outline", "Selected", "Run"):
        press("ArrowRight")
        expect(view.get_by_role("tab", name=tab, exact=True)).to_have_attribute("aria-selected", "true")
    walk("size of batch")
    press("Control+A")
    page.keyboard.type("3")
    walk("Run")
    press("Enter")
    expect(details.locator(".pw-result")).to_contain_text("float32[3, 10]")
