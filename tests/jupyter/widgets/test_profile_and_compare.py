"""Profiles and comparisons of backends, themes, narrow notebooks, and the page's GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import DATA, DIGITS, PLAYGROUND, Desk, widget
from playwright.sync_api import BrowserType, expect
from waiting import until

from pyonnx_wasm.testing.chromium import launch_options
from pyonnx_wasm.testing.lab import Lab

pytestmark = pytest.mark.browser


def test_profile(desk: Desk) -> None:
    model = str(DATA / "vit.onnx")
    notebook = desk.open(
        f"w = Profile({model!r}, runs=2)\nw",
        "[set(w.value[0]) >= {'name', 'kernel', 'ms'}, len(w.value)]",
        f"""session = ort.InferenceSession({model!r})
w.trace = session.profile({{"x": np.zeros((1, 3, 32, 32), np.float32)}}); len(w.trace) == len(w.value)""",
        "w.trace = {'traceEvents': [{'ph': 'X', 'name': 'conv', 'ts': 5, 'dur': 2000, 'args': {'nodes': 'first'}},"
        " {'ph': 'X', 'name': 'matmul', 'ts': 2005, 'dur': 1000}]}",
        "w.trace = [{'name': 'no time'}]",
    )
    view, keys = widget(notebook), notebook.page.keyboard
    status, detail = view.locator(".pwx-status"), view.locator(".pwx-detail")
    expect(status).to_contain_text("median of")
    until(lambda: notebook.run(1) == "[True, 17]")  # the page tells the kernel after it has shown them
    view.get_by_role("application").focus()
    for key, text in (("ArrowRight", "step 1 "), ("End", "step 17 "), ("ArrowLeft", "step 16 "), ("+", "step 16 "), ("Home", "step 1 ")):
        keys.press(key)
        expect(detail).to_contain_text(text)
    expect(view.locator(".pwx-chosen td").first).to_have_text("1")
    keys.press("Escape")
    expect(detail).to_contain_text("Hover")
    view.get_by_role("button", name="#").click()
    expect(view.locator("tbody tr td").first).to_have_text("1")
    view.get_by_role("button", name="kernel").press("Enter")
    expect(view.get_by_role("columnheader", name="kernel")).to_have_attribute("aria-sort", "ascending")
    view.get_by_label("Size of batch").fill("3")
    expect(status).to_contain_text("median of")

    assert notebook.run(2) == "True"
    expect(status).to_contain_text("from Python")
    assert notebook.run(3) == ""
    expect(status).to_contain_text("2 steps · 3.00 ms")
    view.get_by_role("application").hover(position={"x": 20, "y": 40})
    expect(detail).to_contain_text("conv")
    assert "has 'ms', or 'ts' and 'dur'" in notebook.run(4)


def test_compare(desk: Desk) -> None:
    model, shapes = str(DATA / "decoder.onnx"), str(desk.models / "words.onnx")
    notebook = desk.open(
        f"w = Compare({model!r})\nw",
        "len(w.value), all(f['passed'] for f in w.value), w.value[0]['output'], w.value[0]['max_ulp'] is not None",
        f"v = Compare({shapes!r}, feeds={{'input_ids': np.array([[3, 4]]), 'attention_mask': np.array([[1, 1, 1]])}})\nv",
    )
    view, keys = widget(notebook), notebook.page.keyboard
    badge = view.locator(".pwx-badge")
    expect(badge).to_have_text("cpu · wasm")
    badge.click()
    expect(view.locator(".pwx-note")).to_contain_text("webgpu: ")
    rows = view.locator(".pwx-parity tbody tr")
    expect(rows).to_have_count(5)
    expect(view.locator(".pwx-good")).to_have_count(5)
    until(lambda: notebook.run(1) == "(5, True, 'logits', True)")
    rows.first.focus()
    keys.press("ArrowDown")
    expect(view.get_by_text("Errors of present_0_k")).to_be_visible()
    before = rows.first.inner_text()
    view.get_by_label("Seed", exact=True).fill("5")
    view.get_by_label("Size of seq").fill("3")
    expect(rows.first).not_to_have_text(before)
    expect(view.locator(".pwx-good")).to_have_count(5)
    notebook.run(2)
    refused = widget(notebook, 2)
    expect(refused.locator("section > .pwx-alert").or_(notebook.output(2).locator(".pwx > .pwx-alert")).first).to_contain_text(
        "attention_mask"
    )


def test_themes_and_widths(desk: Desk) -> None:
    """The widget follows the notebook's theme, and nothing sticks out of a narrow one."""
    notebook = desk.open(
        PLAYGROUND, f"c = Compare({str(DATA / 'decoder.onnx')!r})\nc", f"p = Profile({str(DATA / 'vit.onnx')!r}, runs=1)\np"
    )
    background = "element => getComputedStyle(element).backgroundColor"
    views = [widget(notebook)]
    for cell in (1, 2):
        notebook.run(cell)
        views.append(widget(notebook, cell))
    assert views[0].evaluate(background) == "rgb(255, 255, 255)"
    notebook.theme("dark")
    assert views[0].evaluate(background) != "rgb(255, 255, 255)"
    notebook.theme("light")
    for width in (340, 700):
        for view in views:
            view.evaluate("(element, width) => { element.style.width = `${width}px`; }", width)
            outside = """element => [...element.querySelectorAll("*")].filter((e) => !e.closest(".pwx-scroll, svg")
                && e.getBoundingClientRect().right > element.getBoundingClientRect().right + 1).map((e) => e.className)"""
            assert view.evaluate(outside) == []


def test_webgpu(lab: Lab, browser_type: BrowserType, models: Path) -> None:
    """Where there is an adapter, the page's GPU is preferred, and agrees with the kernel."""
    browser = browser_type.launch(**launch_options(webgpu=True))
    path = lab.write("webgpu.ipynb", ["0"])
    desk = Desk(lab.open(browser.new_context(), path.name), path, models)
    notebook = desk.open(
        f"w = Playground({str(DIGITS)!r}, backends=['webgpu'])\nw",
        f"c = Compare({str(DIGITS)!r})\nc",
        "[(f['backend'], f['passed']) for f in c.value]",
    )
    view = widget(notebook)
    expect(view.locator(".pwx-badge")).to_contain_text("webgpu · ")
    view.locator("input[type=file]").set_input_files(models / "one.png")
    expect(view.locator(".pwx-best")).to_be_visible()
    notebook.run(1)
    expect(widget(notebook, 1).locator(".pwx-good")).to_have_count(2)
    until(lambda: notebook.run(2) == "[('wasm', True), ('webgpu', True)]")
    browser.close()
