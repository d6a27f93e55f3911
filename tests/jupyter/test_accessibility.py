"""axe-core finds nothing serious, light, dark and in forced colours: in playgrounds and demo pages; the keyboard does it all."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accessibility import complaints
from playwright.sync_api import Browser, Page, expect
from test_page_panels import head, shown, yolo8
from test_stills import script, stage

from pyonnx_wasm.jupyter import Image, Playground, Preprocess, Slider, Table, Tensor
from pyonnx_wasm.server import Server

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"
SITE = ROOT / "build" / "site"
pytestmark = pytest.mark.browser
__all__ = ["script"]


@pytest.fixture(params=["light", "dark", "forced"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Any:
    forced = request.param == "forced"
    page = browser.new_page(color_scheme="dark" if request.param == "dark" else "light", forced_colors="active" if forced else "none")
    yield page
    page.close()


def numbers(path: Path) -> Path:
    import onnx
    from onnx import TensorProto, helper

    node, value, f = helper.make_node, helper.make_tensor_value_info, TensorProto.FLOAT
    nodes = [node("Mul", ["table", "factor"], ["scaled"]), node("Add", ["scaled", "more"], ["sum"]), node("Not", ["flag"], ["other"])]
    inputs = [value("table", f, ["rows", 3]), value("factor", f, []), value("more", f, [1, 3]), value("flag", TensorProto.BOOL, [1])]
    outputs = [value("scaled", f, ["rows", 3]), value("sum", f, ["rows", 3]), value("other", TensorProto.BOOL, [1])]
    graph = helper.make_graph(nodes, "numbers", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_playground_of_pictures(page: Page, browser: Browser, tmp_path: Path) -> None:
    from PIL import Image as Pillow

    Pillow.fromarray(np.full((64, 64, 3), 200, np.uint8)).save(tmp_path / "grey.png")
    masks = np.random.default_rng(0).random((1, 5, 64, 64)).astype(np.float32)
    outputs = {**yolo8([[20, 24, 16, 24]], [[0.9, 0.05]]), "masks": masks, "logits": np.float32([[3, 1]])}
    path = head(tmp_path / "model.onnx", outputs, "cat, dog")
    shown(browser, Playground(path, examples=[tmp_path / "grey.png"]).save_html(tmp_path / "page.html"), page)
    expect(page.locator(".pwx-classes li").first).to_be_visible()
    assert complaints(page) == []


def test_a_playground_of_numbers_by_keyboard_alone(page: Page, tmp_path: Path) -> None:
    inputs = {"table": Table(["a", "b", "c"], [[1, 2, 3]]), "factor": Slider(0, 4, 0.5, 2), "more": Tensor("ones")}
    playground = Playground(numbers(tmp_path / "numbers.onnx"), inputs=inputs, outputs={"sum": [Tensor(), Table()]})
    page.goto(playground.save_html(tmp_path / "page.html").as_uri())
    expect(page.get_by_role("group", name="scaled").locator("td").nth(1)).to_have_text("2")
    assert complaints(page) == []
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.id ?? ''"))
        outline = page.evaluate(
            "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        )
        assert outline, f"no focus is seen at {reached}"
    assert {"Row 1, a", "Row 1, b", "Row 1, c", "Fill of more"} <= reached


def test_a_drawing_area(page: Page, tmp_path: Path) -> None:
    panel = Image(Preprocess(trim=0.12, resize=(8, 8), filter="box", color="L", scale=16 / 255), sources=("draw", "file", "camera"))
    page.goto(Playground(DIGITS, labels="0123456789", inputs={"ink": panel}).save_html(tmp_path / "page.html").as_uri())
    expect(page.locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    page.locator(".pwx-board").focus()
    for _ in range(26):
        page.keyboard.press("Shift+ArrowDown")
    expect(page.locator(".pwx-best .pwx-label")).to_have_text("1")
    assert complaints(page) == []


def colour(page: Page, selector: str) -> np.ndarray:
    """What is seen in the middle of an element."""
    from PIL import Image as Pillow

    shown = np.asarray(Pillow.open(io.BytesIO(page.locator(selector).first.screenshot())).convert("RGB"), np.int16)
    return shown[shown.shape[0] // 2, shown.shape[1] // 2]


def test_profile_and_compare_by_keyboard_alone(page: Page, script: Path) -> None:
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    stage(page, script, "dark" if dark else "light")
    assert complaints(page, ".pwx-profile") == []
    assert complaints(page, ".pwx-compare") == []
    assert complaints(page, ".pwx-chat") == []
    behind = colour(page, "#photo .pwx-foot")
    for mark in ("#photo .pwx-best .pwx-track > span", "#profile .pwx-key i", "#profile .pwx-dot"):
        assert np.abs(colour(page, mark) - behind).max() > 60, f"{mark} is not seen"
    assert page.locator("#profile td.pwx-name").evaluate_all("all => all.filter((e) => e.scrollWidth > e.clientWidth).length") == 0
    lane = page.get_by_role("application", name="Timeline")
    lane.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#profile .pwx-detail")).to_contain_text("step 1")
    page.keyboard.press("End")
    expect(page.locator("#profile .pwx-detail")).to_contain_text("step 20")
    page.keyboard.press("Escape")
    expect(page.locator("#profile .pwx-detail")).to_contain_text("Hover or use")
    page.locator("#compare .pwx-parity tbody tr").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#compare .pwx-plots")).to_contain_text("Errors of hidden")


@pytest.mark.parametrize("path", ["", "digits/", "search/"])
def test_demo_pages(page: Page, path: str) -> None:
    with Server({"/": SITE}) as server:
        page.goto(f"{server.url}{path}")
        page.wait_for_load_state("networkidle")
        assert complaints(page) == []
