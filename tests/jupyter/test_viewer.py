"""The model viewer in a real JupyterLab."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from accessibility import complaints
from onnx import numpy_helper
from playwright.sync_api import Browser, expect
from viewer import Viewer, viewer_lab
from viewer_models import HOSTILE, blocks, branches, decoder, hostile, varied

from pyonnx_wasm import compile, save
from pyonnx_wasm.testing.lab import Lab

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
DATA = sorted((ROOT / "tests" / "data").glob("*.onnx"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models to open."""
    folder = tmp_path_factory.mktemp("models")
    digits = ROOT / "js" / "pages" / "digits" / "digits.onnx"
    for path in (digits, *DATA):
        shutil.copy(path, folder)
    save(compile(digits), folder / "digits.ponnx")
    (folder / "broken.onnx").write_bytes(digits.read_bytes()[:5000])
    blocks(folder / "large.onnx", 100, lambda layer, k, op: f"/model/layers.{layer}/{'attention' if k < 33 else 'mlp'}/{op}_{k}")
    hostile(folder / "hostile.onnx")
    decoder(folder / "many.onnx", 12)
    branches(folder / "branches.onnx")
    varied(digits, folder / "varied.onnx")
    np.save(folder / "ink.npy", np.zeros((3, 1, 8, 8), np.float32))
    return folder


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Lab]:
    with viewer_lab(tmp_path_factory.mktemp("lab")) as lab:
        shutil.copytree(folder, lab.folder, dirs_exist_ok=True)
        yield lab


@pytest.fixture(scope="module")
def viewer(lab: Lab, browser: Browser) -> Iterator[Viewer]:
    """One page for all models."""
    viewer = Viewer.open(lab, browser, "digits.onnx")
    yield viewer
    viewer.page.close()
    assert not viewer.errors


def test_a_model_opens_with_inferred_shapes(viewer: Viewer) -> None:
    viewer.show("digits.onnx")
    expect(viewer.status).to_contain_text("11 nodes in")
    expect(viewer.status).to_contain_text("inferred shapes")
    details = viewer.panel(".pw-content")
    expect(details).to_contain_text("Shapes are inferred for every value.")
    expect(details).to_contain_text("float32[batch, 1, 8, 8]")
    assert viewer.pixels()[3] > 50


@pytest.mark.parametrize("path", DATA, ids=lambda p: p.stem)
def test_every_kind_of_model_opens(viewer: Viewer, path: Path) -> None:
    viewer.show(path.name)
    expect(viewer.status).to_contain_text("inferred shapes")
    assert 5 <= viewer.boxes <= 300


def test_the_node_panel_tells_attributes_types_and_statistics(viewer: Viewer) -> None:
    viewer.show("digits.onnx")
    viewer.click("/model/features/features.1/features.1.0/Conv")
    details = viewer.panel(".pw-content")
    expect(details).to_contain_text("kernel_shape")
    expect(details).to_contain_text("[3, 3]")
    expect(details).to_contain_text("float32[24, 16, 3, 3]")
    expect(details).to_contain_text("float32[batch, 24, 8, 8]")
    details.get_by_role("button", name="Statistics").first.click()
    expect(details.get_by_role("img", name=re.compile("histogram from -"))).to_be_visible()
    expect(details).to_contain_text("of 3,456")
    details.get_by_role("button", name=re.compile("^to Relu")).click()
    expect(details.locator(".pw-kind")).to_have_text("Relu")
    viewer.panel(".pw-graph").focus()
    viewer.page.keyboard.press("ArrowUp")
    expect(details.locator(".pw-kind")).to_have_text("Conv")
    viewer.page.keyboard.press("Escape")
    expect(details.locator(".pw-kind")).to_have_text("ONNX model")


def test_5000_nodes_open_to_few_boxes_and_groups_open_and_close(viewer: Viewer) -> None:
    viewer.show("large.onnx")
    expect(viewer.status).to_contain_text("5,000 nodes")
    expect(viewer.status).to_contain_text("inferred shapes")
    closed = viewer.boxes
    assert 10 <= closed <= 300
    viewer.click("layers.1", double=True)
    expect(viewer.panel(f".pw-graph[data-boxes='{closed + 2}']")).to_be_attached()
    viewer.click("attention")
    expect(viewer.panel(".pw-content")).to_contain_text("100 groups of this structure")
    viewer.panel(".pw-graph").focus()
    viewer.page.keyboard.press("Enter")
    expect(viewer.panel(f".pw-graph[data-boxes='{closed + 35}']")).to_be_attached()
    assert viewer.place("/model/layers.1/attention/Softmax_31")
    viewer.tool("Close all")
    expect(viewer.status).to_contain_text("in 3 boxes")
    viewer.tool("Open all")
    assert not viewer.errors


def test_search_goes_into_closed_groups(viewer: Viewer) -> None:
    viewer.show("large.onnx")
    viewer.panel(".pw-graph").focus()
    viewer.page.keyboard.press("/")
    expect(viewer.panel(".pw-search input")).to_be_focused()
    viewer.page.keyboard.type("layers.77/mlp/gemm")
    expect(viewer.panel(".pw-count")).to_have_text("0")
    viewer.search("LAYERS.77/mlp/")
    expect(viewer.panel(".pw-count")).to_have_text("17")
    viewer.panel(".pw-search input").press("Enter")
    expect(viewer.panel(".pw-count")).to_have_text("1 of 17")
    expect(viewer.panel(".pw-heading .pw-name")).to_have_text("/model/layers.77/mlp/Add_33")
    first = viewer.panel(".pw-heading .pw-name").inner_text()
    viewer.settle()
    at, box = viewer.place(first), viewer.panel(".pw-graph").bounding_box()
    assert at
    assert box
    assert box["x"] < at["x"] < box["x"] + box["width"]
    assert box["y"] < at["y"] < box["y"] + box["height"]
    viewer.panel(".pw-search input").press("Shift+Enter")
    expect(viewer.panel(".pw-count")).to_have_text("17 of 17")
    viewer.search("")


def test_names_are_text_and_never_markup(viewer: Viewer) -> None:
    viewer.show("hostile.onnx")
    expect(viewer.status).to_contain_text("inferred shapes")
    details = viewer.panel(".pw-content")
    expect(details).to_contain_text("Not supported: Unheard")
    viewer.search("matmul")
    viewer.panel(".pw-search input").press("Enter")
    expect(viewer.panel(".pw-heading .pw-name")).to_have_text(f"{HOSTILE}/{HOSTILE}a")
    details.get_by_role("button", name="Statistics").first.click()
    expect(details.get_by_role("img")).to_be_visible()
    viewer.search("unheard")
    viewer.panel(".pw-search input").press("Enter")
    expect(details).to_contain_text("This operator is not supported.")
    expect(details).to_contain_text(HOSTILE)
    with viewer.page.expect_download() as download:
        viewer.tool("SVG")
    text = Path(download.value.path()).read_text()
    assert "<img" not in text
    shown = "".join(ElementTree.fromstring(text).itertext())
    assert "Unheard" in shown
    assert HOSTILE[:16] in shown
    assert viewer.page.evaluate("window.hacked") is None
    assert viewer.panel("img").count() == 0


def test_weights_with_nan_are_marked(viewer: Viewer) -> None:
    viewer.show("hostile.onnx")
    viewer.search("Add")
    viewer.panel(".pw-search input").press("Enter")
    viewer.panel(".pw-content").get_by_role("button", name="Statistics").click()
    expect(viewer.panel(".pw-alarm")).to_contain_text("NaN")


def test_pictures_can_be_saved(viewer: Viewer) -> None:
    viewer.show("digits.onnx")
    with viewer.page.expect_download() as download:
        viewer.tool("SVG")
    assert download.value.suggested_filename == "digits.svg"
    root = ElementTree.parse(download.value.path()).getroot()
    assert root.tag.endswith("svg")
    assert "MaxPool" in "".join(root.itertext())
    with viewer.page.expect_download() as download:
        viewer.tool("PNG")
    assert download.value.suggested_filename == "digits.png"
    data = Path(download.value.path()).read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") > 200


def test_the_run_panel(viewer: Viewer) -> None:
    viewer.show("digits.onnx")
    viewer.tab("Run")
    panel = viewer.panel(".pw-run")
    panel.get_by_label("size of batch").fill("4")
    panel.get_by_role("button", name="Run").click()
    result = viewer.panel(".pw-result")
    expect(result).to_contain_text("float32[4, 10]")
    expect(result).to_contain_text("Time per step")
    result.locator(".pw-step").first.click()
    expect(viewer.panel(".pw-content")).to_contain_text("time")
    viewer.tab("Run")
    panel.get_by_label("contents of ink").select_option("file")
    panel.get_by_label("file for ink").fill("ink.npy")
    panel.get_by_role("button", name="Run").click()
    expect(result).to_contain_text("float32[3, 10]")
    panel.get_by_label("file for ink").fill("../ink.npy")
    panel.get_by_role("button", name="Run").click()
    expect(result).to_contain_text("../ink.npy is outside")


def test_a_run_can_be_stopped(viewer: Viewer) -> None:
    viewer.show("large.onnx")
    viewer.tab("Run")
    panel = viewer.panel(".pw-run")
    panel.get_by_label("size of n").fill("1000000")
    panel.get_by_role("button", name="Run").click()
    panel.get_by_role("button", name="Stop").click()
    expect(viewer.panel(".pw-result")).to_have_text("Stopped.")
    panel.get_by_label("size of n").fill("2")
    panel.get_by_role("button", name="Run").click()
    expect(viewer.panel(".pw-result")).to_contain_text("float32[2, 16]")


def test_pointer_wheel_keys_and_fingers_move_and_zoom(viewer: Viewer) -> None:
    viewer.show("digits.onnx")
    viewer.tool("Fit")
    viewer.settle()
    name = "/model/Flatten"
    canvas = viewer.panel(".pw-graph").bounding_box()
    assert canvas
    x, y = canvas["x"] + 40, canvas["y"] + 200
    mouse, keyboard = viewer.page.mouse, viewer.page.keyboard
    before = viewer.place(name)
    assert before
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 50, y + 30, steps=3)
    mouse.up()
    moved = viewer.moved(name, before, 50, 30)
    mouse.wheel(0, -240)
    zoomed = viewer.placed(name, "at.width > 1.2 * arg", moved["width"])
    mouse.wheel(30, 10)
    panned = viewer.moved(name, zoomed, -30, -10)
    viewer.panel(".pw-graph").focus()
    keyboard.press("-")
    viewer.placed(name, "Math.abs(at.width - 0.8 * arg) < 1e-3 * arg", panned["width"])
    keyboard.press("ArrowRight")
    keyboard.press("0")
    assert viewer.moved(name, before, 0, 0) == pytest.approx(before, abs=1)
    touch = viewer.page.context.new_cdp_session(viewer.page)
    for kind, *spots in (("touchStart", 0), ("touchStart", 0, 60), *(("touchMove", -d, 60 + d) for d in (10, 20, 30)), ("touchEnd",)):
        points = [{"x": x + dx, "y": y, "id": k} for k, dx in enumerate(spots)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.detach()
    viewer.placed(name, "Math.abs(at.width - 2 * arg) < 0.3 * arg", before["width"])


def test_a_compiled_model_shows_its_steps(viewer: Viewer) -> None:
    viewer.show("digits.ponnx")
    details = viewer.panel(".pw-content")
    expect(details).to_contain_text("Compiled model")
    expect(details).to_contain_text("digits.onnx")
    viewer.search("conv")
    viewer.panel(".pw-search input").press("Enter")
    expect(viewer.panel(".pw-kind")).to_have_text("conv")


def test_blocks_that_repeat_lie_one_below_the_other(viewer: Viewer) -> None:
    viewer.show("many.onnx")
    viewer.tool("Open all")
    blocks = [viewer.placed(f"h.{k}", "true") for k in range(12)]
    middles = [at["x"] + at["width"] / 2 for at in blocks]
    assert max(middles) - min(middles) < blocks[0]["width"] / 3
    assert all(a["y"] + a["height"] <= b["y"] for a, b in pairwise(blocks))


def test_branches_are_groups(viewer: Viewer) -> None:
    viewer.show("branches.onnx")
    viewer.tool("Open all")
    groups = [viewer.placed(f"choose {name}", "true") for name in ("then_branch", "else_branch")]
    inner = viewer.placed("t_first", "true")
    assert groups[0]["x"] < inner["x"] < groups[0]["x"] + groups[0]["width"]
    about = viewer.panel(".pw-content")
    for told in ("branches of one", "about the graph", "two ways"):
        expect(about).to_contain_text(told)


def test_inputs_of_a_run_are_folded_where_there_are_many(viewer: Viewer) -> None:
    viewer.show("many.onnx")
    viewer.tab("Run")
    panel = viewer.panel(".pw-run")
    expect(panel.get_by_label("contents of past.0")).to_be_hidden()
    expect(panel.get_by_role("button", name="Run")).to_be_in_viewport()
    panel.get_by_text("14 inputs").click()
    panel.get_by_label("contents of all inputs").select_option("ones")
    expect(panel.get_by_label("contents of past.11")).to_have_value("ones")
    panel.get_by_role("button", name="Run").click()
    expect(viewer.panel(".pw-result")).to_contain_text("present.11")


def test_search_by_dtype_and_shape(viewer: Viewer) -> None:
    viewer.show("digits.onnx")
    for text, count in (("float32[batch, 24", "4"), ("batch×10", "3"), ("conv [24,16,3,3]", "1"), ("int64", "0"), ("[10, 640]", "1")):
        viewer.search(text)
        expect(viewer.panel(".pw-count")).to_have_text(count)
    viewer.search("")


def weight_of(shape: list[int]) -> np.ndarray:
    stored = onnx.load(ROOT / "js" / "pages" / "digits" / "digits.onnx").graph.initializer
    return numpy_helper.to_array(next(w for w in stored if w.dims == shape))


def test_a_node_tells_its_documentation_and_its_weights_elements(viewer: Viewer) -> None:
    viewer.show("digits.onnx")
    viewer.search("features.1 conv")
    viewer.panel(".pw-search input").press("Enter")
    details = viewer.panel(".pw-content")
    details.get_by_text("Documentation").click()
    expect(details.locator(".pw-doc")).to_contain_text("The convolution operator consumes an input tensor")
    details.get_by_text("Documentation").click()
    details.get_by_role("button", name="Values").first.click()
    plane = details.locator(".pw-plane")
    expect(plane).to_have_attribute("aria-label", re.compile("3 × 3 values"))
    colours = plane.evaluate("c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size")
    told = details.locator(".pw-values [role=status]")
    first = told.inner_text()
    details.get_by_label(re.compile("^plane of")).fill("5")
    plane.focus()
    expect(told).not_to_have_text(first)
    for _ in range(2):
        viewer.page.keyboard.press("ArrowRight")
    weight = numpy_helper.to_array(
        next(w for w in onnx.load(ROOT / "js/pages/digits/digits.onnx").graph.initializer if w.dims[:2] == [24, 16])
    )
    expect(told).to_contain_text("[0, 2] = ")
    assert float(told.inner_text().partition("= ")[2]) == pytest.approx(weight[0, 5, 0, 2], rel=1e-4)
    assert colours > 8
    with viewer.page.expect_download() as download:
        details.get_by_role("button", name="Save as .npy").click()
    assert np.array_equal(np.load(download.value.path()), weight)
    viewer.search("")


def test_the_outline_does_what_the_graph_does_by_keyboard(viewer: Viewer) -> None:
    viewer.show("digits.onnx")
    viewer.tool("Close all")
    viewer.tab("Outline")
    tree = viewer.panel("[role=tree]")
    tree.locator("[role=treeitem]").first.focus()
    for key in ("ArrowDown", "ArrowLeft", "ArrowRight", "ArrowDown", "Enter"):
        viewer.page.keyboard.press(key)
    expect(tree.locator("[aria-selected=true]")).to_have_attribute("aria-label", re.compile("^Div"))
    expect(tree.locator(":focus")).to_have_attribute("aria-selected", "true")
    viewer.placed("/model/Div", "true")
    viewer.tab("Selected")
    expect(viewer.panel(".pw-kind")).to_have_text("Div")


def test_commands_and_settings(viewer: Viewer, lab: Lab, browser: Browser) -> None:
    viewer.show("digits.onnx")
    run = "id => jupyterapp.commands.execute(`pyonnx-wasm:${id}`)"
    viewer.page.evaluate(run, "close-all")
    expect(viewer.status).to_contain_text("in 4 boxes")
    viewer.page.evaluate(run, "search")
    expect(viewer.panel(".pw-search input")).to_be_focused()
    viewer.page.keyboard.press("Control+Shift+C")
    palette = viewer.page.locator(".lm-CommandPalette")
    palette.locator("input").fill("compare with another")
    expect(palette.get_by_text("Compare with Another Model…")).to_be_visible()
    viewer.page.keyboard.press("Escape")
    settings = viewer.page.evaluate(
        "async () => (await (await fetch('/lab/api/settings/pyonnx-wasm:viewer')).json()).schema?.properties.boxes.default"
    )
    assert settings == 240
    save = "boxes => jupyterapp.serviceManager.settings.save('pyonnx-wasm:viewer', JSON.stringify(boxes))"
    viewer.page.evaluate(save, {"boxes": 4})
    other = Viewer.open(lab, browser, "digits.onnx")
    expect(other.status).to_contain_text("in 4 boxes")
    other.page.close()
    viewer.page.evaluate(save, {})


@pytest.mark.parametrize("look", ["light", "dark", "forced"])
def test_nothing_serious_is_found_for_those_who_do_not_see_or_point(viewer: Viewer, look: str) -> None:
    viewer.show("digits.onnx")
    viewer.theme("dark" if look == "dark" else "light")
    viewer.page.emulate_media(forced_colors="active" if look == "forced" else "none")
    for tab in ("Model", "Outline", "Selected", "Run"):
        viewer.tab(tab)
        assert complaints(viewer.page, ".jp-MainAreaWidget:not(.lm-mod-hidden) .pw-viewer") == [], tab
    viewer.page.emulate_media(forced_colors="none")
    viewer.theme("light")


def test_two_models_side_by_side(viewer: Viewer) -> None:
    viewer.show("digits.onnx")
    viewer.page.evaluate("void jupyterapp.commands.execute('pyonnx-wasm:compare')")
    dialog = viewer.page.get_by_role("dialog")
    dialog.locator("input").fill("varied.onnx")
    dialog.get_by_role("button", name="Compare").click()
    found = viewer.page.locator(".pw-differences")
    expect(found.get_by_role("status")).to_have_text("2 nodes differ, 0 are in the first model alone, 1 in the second alone")
    expect(found).to_contain_text("operator: MaxPool → AveragePool")
    expect(found).to_contain_text("weight model.head.weight: other contents")
    found.get_by_role("button", name=re.compile("^MaxPool")).click()
    expect(viewer.page.locator(".pw-half .pw-kind")).to_have_text(["MaxPool", "AveragePool"])
    viewer.page.evaluate("jupyterapp.shell.currentWidget.close()")


def test_a_broken_file_says_what_is_wrong(viewer: Viewer) -> None:
    viewer.show("broken.onnx")
    failed = viewer.panel(".pw-failed")
    expect(failed).to_contain_text("This model cannot be shown")
    expect(failed).to_contain_text("truncated")
    failed.get_by_role("button", name="Try again").click()
    expect(failed).to_contain_text("truncated")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_themes_and_narrow_windows(lab: Lab, browser: Browser, theme: str) -> None:
    viewer = Viewer.open(lab, browser, "digits.onnx", theme, (620, 760))
    expect(viewer.status).to_contain_text("inferred shapes")
    red, green, blue, colours = viewer.pixels()
    assert colours > 20
    assert (red + green + blue > 3 * 200) if theme == "light" else (red + green + blue < 3 * 80)
    stage, side = viewer.panel(".pw-stage").bounding_box(), viewer.panel(".pw-side").bounding_box()
    assert stage
    assert side
    assert side["y"] >= stage["y"] + stage["height"] - 1
    viewer.page.close()
    assert not viewer.errors


def test_without_the_server_extension_the_browser_reads_the_file(folder: Path, tmp_path: Path, browser: Browser) -> None:
    with viewer_lab(tmp_path / "lab", server=False) as lab:
        shutil.copytree(folder, lab.folder, dirs_exist_ok=True)
        viewer = Viewer.open(lab, browser, "large.onnx")
        expect(viewer.status).to_contain_text("5,000 nodes in")
        expect(viewer.status).to_contain_text("read in the browser")
        expect(viewer.panel(".pw-content")).to_contain_text("Read in the browser: shapes are those that the file declares.")
        for name, text in (("digits.onnx", "11 nodes"), ("vit.onnx", "nodes"), ("decoder.onnx", "nodes"), ("digits.ponnx", "nodes in")):
            viewer.show(name)
            expect(viewer.status).to_contain_text(text)
        viewer.show("broken.onnx")
        expect(viewer.panel(".pw-failed")).to_contain_text("truncated")
        viewer.page.close()
        assert not viewer.errors
