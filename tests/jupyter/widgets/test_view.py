"""``View``: a model as a graph in a cell, in a real JupyterLab."""

from __future__ import annotations

import re

import pytest
from desk import DIGITS, Desk
from playwright.sync_api import expect
from waiting import until

from pyonnx_wasm.jupyter import View
from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser


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
