"""The widgets: JupyterLab, a kernel and Chromium, all real."""

import base64
import io
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from lab import Lab, Notebook
from onnx import TensorProto, helper
from PIL import Image
from playwright.sync_api import Browser, BrowserType, Locator, Page, expect

from pyonnx_wasm.testing.chromium import launch_options

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"
DATA = ROOT / "tests" / "data"
FIRST = "import ipywidgets; ipywidgets.Widget.close_all()\nfrom pyonnx_wasm.jupyter import *\nimport numpy as np, pyonnx_wasm as ort\n"
PLAYGROUND = f"""w = Playground({str(DIGITS)!r}, labels="0123456789", inputs={{"ink": Image(
    Preprocess(trim=0.12, resize=(8, 8), filter="box", color="L", scale=16 / 255), sources=("draw", "file", "camera"))}})
w"""
WORDS = ["[UNK]", "a", "quiet", "morning", "by", "the", "lake"]
pytestmark = pytest.mark.browser


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


@pytest.fixture(scope="module")
def chromium(browser_type: BrowserType, browser_type_launch_args: dict[str, Any]) -> Iterator[Browser]:
    """A Chromium with a camera that films a test pattern."""
    args = [*browser_type_launch_args["args"], "--use-fake-device-for-media-stream"]
    browser = browser_type.launch(**{**browser_type_launch_args, "args": args})
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab") / "lab") as lab:
        yield lab


@pytest.fixture(scope="module")
def desk(lab: Lab, chromium: Browser, models: Path) -> Iterator[Desk]:
    path = lab.write("widgets.ipynb", ["0"])
    context = chromium.new_context(viewport={"width": 1100, "height": 900})
    yield Desk(lab.open(context, path.name), path, models)
    context.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    node, value = helper.make_node, helper.make_tensor_value_info

    def write(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> None:
        graph = helper.make_graph(nodes, name, inputs, outputs)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / f"{name}.onnx")

    f = TensorProto.FLOAT
    write(
        "numbers",
        [node("Mul", ["table", "factor"], ["scaled"]), node("Log", ["scaled"], ["logs"]), node("Not", ["flag"], ["other"])],
        [value("table", f, ["rows", 3]), value("factor", f, []), value("flag", TensorProto.BOOL, [1])],
        [value("scaled", f, ["rows", 3]), value("logs", f, ["rows", 3]), value("other", TensorProto.BOOL, [1])],
    )
    picture = ["n", 3, 24, 32]
    write(
        "pictures",
        [node("Sub", ["one", "x"], ["negative"]), node("ReduceMean", ["x"], ["grey"], axes=[1], keepdims=1)],
        [value("x", f, picture), value("one", f, [1])],
        [value("negative", f, picture), value("grey", f, ["n", 1, 24, 32])],
    )
    ids = ["batch", "seq"]
    write(
        "words",
        [node("Mul", ["input_ids", "attention_mask"], ["same"])],
        [value("input_ids", TensorProto.INT64, ids), value("attention_mask", TensorProto.INT64, ids)],
        [value("same", TensorProto.INT64, ids)],
    )
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    rng = np.random.default_rng(3)
    Image.fromarray(rng.integers(0, 256, (60, 90, 3), dtype=np.uint8)).save(folder / "noise.png")
    ink = np.zeros((64, 64), np.uint8)
    ink[8:56, 28:36] = 255
    Image.fromarray(ink).save(folder / "one.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nand then nothing")
    np.save(folder / "rows.npy", np.arange(6, dtype=np.float64).reshape(2, 3))
    return folder


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


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


def test_playground_drawn_by_mouse_and_by_keys(desk: Desk) -> None:
    notebook = desk.open(PLAYGROUND, "await w.result()")
    view = widget(notebook)
    assert notebook.run(1) == "RemoteError: the widget has no input yet: give it one, then ask again"
    board = view.locator(".pwx-board")
    expect(view.locator(".pwx-status")).to_have_text("Waiting for an input")
    expect(view.locator(".pwx-badge")).to_have_text("wasm · one thread")
    view.locator(".pwx-badge").click()
    expect(view.locator(".pwx-note")).to_contain_text("not cross-origin isolated")
    draw(notebook.page, board, [(0.3, 0.25), (0.5, 0.15), (0.7, 0.3), (0.45, 0.5), (0.7, 0.7), (0.5, 0.85), (0.3, 0.75)])
    expect(best(view)).to_have_text("3")
    expect(view.locator(".pwx-status")).to_contain_text("run ")
    view.get_by_role("button", name="Clear").click()
    expect(view.locator(".pwx-status")).to_have_text("Waiting for an input")

    board.focus()
    for key in ["Shift+ArrowDown"] * 26:
        notebook.page.keyboard.press(key)
    expect(best(view)).to_have_text("1")
    notebook.page.keyboard.press("Delete")
    expect(view.locator(".pwx-status")).to_have_text("Waiting for an input")
    assert notebook.page.locator(".jp-Notebook .jp-Cell").count() == 2  # the keys are the widget's, not the notebook's


def test_playground_gives_python_what_python_computes(desk: Desk) -> None:
    """The picture of a file, prepared in the page and in Python; results by await, by button, and all when in sync."""
    notebook = desk.open(
        f"seen = []\n{PLAYGROUND.replace(chr(10) + 'w', '')}\nw.observe(lambda change: seen.append(change.new), names='value')\nw",
        "result = await w.result(); len(seen)",
        f"""from PIL import Image as Pillow
pre = Preprocess(trim=0.12, resize=(8, 8), filter="box", color="L", scale=16 / 255)
(wanted,) = ort.InferenceSession({str(DIGITS)!r}).run(None, {{"ink": pre(Pillow.open({str(desk.models / "one.png")!r}))}})
got = result["probabilities"]
got.shape, got.dtype.name, bool(np.allclose(got, wanted, atol=1e-6)), int(got.argmax()), w.value["probabilities"] is got""",
        "len(seen), w.sync",
    )
    view = widget(notebook)
    view.locator("input[type=file]").set_input_files(desk.models / "one.png")
    expect(best(view)).to_have_text("1")
    assert notebook.run(1) == "1"
    assert notebook.run(2) == "((1, 10), 'float32', True, 1, True)"
    assert notebook.run(3) == "(1, False)"

    view.get_by_role("button", name="Send to Python").click()
    expect(view.locator(".pwx-status")).to_contain_text("Sent")
    view.get_by_role("button", name="Draw").click()
    view.get_by_label("sync").check()
    until(lambda: notebook.run(3).endswith("True)"))
    draw(notebook.page, view.locator(".pwx-board"), [(0.3, 0.2), (0.7, 0.2), (0.4, 0.8)])
    until(lambda: int(notebook.run(3)[1:].split(",")[0]) > 2)


def test_playground_camera(desk: Desk) -> None:
    notebook = desk.open(PLAYGROUND)
    view = widget(notebook)
    camera = view.get_by_role("button", name="Camera")
    camera.click()
    expect(view.get_by_role("alert").first).to_contain_text("The camera was not allowed")
    expect(camera).to_have_attribute("aria-pressed", "false")

    notebook.page.context.grant_permissions(["camera"])
    camera.click()
    expect(view.locator(".pwx-status")).to_contain_text("fps")
    expect(view.locator(".pwx-best")).to_be_visible()
    expect(view.locator(".pwx-stage").first).to_be_visible()
    camera.click()
    expect(view.locator(".pwx-status")).to_have_text("Waiting for an input")


def test_playground_takes_pictures_only(desk: Desk) -> None:
    """Examples, pasted and dropped files; what cannot be read is said, and mended by the next."""
    example = str(desk.models / "noise.png")
    notebook = desk.open(
        f"w = Playground({str(DATA / 'mobilenet.onnx')!r}, examples=[{example!r}], preprocess=Preprocess.imagenet(32, 36))\nw"
    )
    view = widget(notebook)
    alert = view.locator(".pwx-panel > .pwx-alert").first
    choose = view.locator("input[type=file]")
    choose.set_input_files(desk.models / "notes.txt")
    expect(alert).to_contain_text("notes.txt is text/plain, not an image")
    choose.set_input_files(desk.models / "broken.png")
    expect(alert).to_contain_text("broken.png cannot be read as an image")
    view.get_by_role("button", name="Example: noise").click()
    expect(alert).to_be_hidden()
    expect(view.locator(".pwx-best")).to_be_visible()

    give = """(element, [kind, name, type, bytes]) => {
        const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(bytes)], name, { type }));
        const options = { bubbles: true, cancelable: true };
        element.dispatchEvent(kind === "drop"
            ? new DragEvent("drop", { ...options, dataTransfer: data }) : new ClipboardEvent("paste", { ...options, clipboardData: data }));
    }"""
    pixels = list((desk.models / "one.png").read_bytes())
    panel = view.locator(".pwx-panel").first
    for kind in ("drop", "paste"):
        view.get_by_role("button", name="Clear").click()
        expect(view.locator(".pwx-status")).to_have_text("Waiting for an input")
        panel.evaluate(give, [kind, "one.png", "image/png", pixels])
        expect(view.locator(".pwx-best")).to_be_visible()
    panel.evaluate(give, ["drop", "a.pdf", "application/pdf", [1, 2]])
    expect(alert).to_contain_text("a.pdf is application/pdf")


def test_playground_of_numbers(desk: Desk) -> None:
    """A table, a slider and a switch in, tables out; NaN is said, not drawn."""
    model = str(desk.models / "numbers.onnx")
    notebook = desk.open(
        f"w = Playground({model!r}, inputs={{'table': Table(['a', 'b', 'c'], [[1, 2, 3]]), 'factor': Slider(0, 4, 0.5, 2)}})\nw",
        "result = await w.result(); print({k: v.tolist() for k, v in result.items() if k != 'logs'})",
    )
    view, keys = widget(notebook), notebook.page.keyboard
    assert notebook.run(1) == "{'scaled': [[2.0, 4.0, 6.0]], 'other': [True]}"
    view.get_by_role("button", name="Row", exact=True).click()
    view.get_by_label("Row 2, b").fill("-7")
    keys.press("ArrowUp")
    expect(view.get_by_label("Row 1, b")).to_be_focused()
    expect(view.get_by_role("group", name="logs").get_by_role("alert")).to_contain_text("NaN (1 of 6 values)")
    view.get_by_role("slider", name="factor").focus()
    keys.press("ArrowRight")
    view.get_by_role("checkbox", name="flag").press("Space")
    assert notebook.run(1) == "{'scaled': [[2.5, 5.0, 7.5], [0.0, -17.5, 0.0]], 'other': [False]}"
    view.get_by_label("Row 2, b").fill("seven")
    expect(alert(view)).to_contain_text("Row 2, b: not a number")
    view.get_by_label("Row 2, b").fill("7")
    assert "17.5" in notebook.run(1)


def test_playground_of_tensors(desk: Desk) -> None:
    """Open dims, fills, seeds and files; tensors that no page can hold, and what the model refuses, are said."""
    model = str(desk.models / "numbers.onnx")
    notebook = desk.open(
        f"w = Playground({model!r}, inputs={{'table': Tensor('ones')}}, outputs={{'scaled': Tensor()}}, dims={{'rows': 2}})\nw",
        "result = await w.result(); result['scaled'].shape",
    )
    notebook.run_all()
    assert notebook.text(1) == "(2, 3)"
    view = widget(notebook)
    assert notebook.run(1) == "(2, 3)"
    rows = view.get_by_label("Size of rows")
    rows.fill("900000000")
    expect(alert(view)).to_contain_text("takes 11 GB; make a dim smaller")
    rows.fill("5")
    expect(alert(view)).to_be_hidden()
    view.get_by_label("Fill of table").select_option("random")
    view.get_by_role("button", name="Another seed").first.click()
    expect(view.get_by_label("Seed of table")).to_have_value("1")
    assert notebook.run(1) == "(5, 3)"
    view.get_by_label("Fill of table").select_option("file")
    view.locator("input[accept='.npy']").first.set_input_files(desk.models / "rows.npy")
    expect(alert(view)).to_contain_text("rows.npy holds float64, table takes float32[rows, 3]")


def test_playground_of_text(desk: Desk) -> None:
    model, tokenizer = str(desk.models / "words.onnx"), str(desk.models / "tokenizer.json")
    notebook = desk.open(
        f"w = Playground({model!r}, tokenizer={tokenizer!r}, outputs={{'same': Text()}})\nw",
        "(await w.result())['same'].tolist()",
    )
    view = widget(notebook)
    view.get_by_label("Text for the model").fill("A quiet morning")
    expect(view.locator("output")).to_have_text("a quiet morning")
    expect(view.get_by_text("3 tokens")).to_be_visible()
    assert notebook.run(1) == "[[1, 2, 3]]"


def test_playground_shows_pictures_maps_and_boxes(desk: Desk) -> None:
    pictures, detector, noise = str(desk.models / "pictures.onnx"), str(DATA / "detector.onnx"), str(desk.models / "noise.png")
    notebook = desk.open(
        f"v = Playground({pictures!r}, examples={{'noise': {noise!r}}}, outputs={{'grey': HeatMap(overlay=True)}})\nv",
        f"""w = Playground({detector!r}, examples=[{noise!r}], preprocess=Preprocess.letterbox(64, 64),
    outputs={{'y': Boxes(labels=['cat', 'dog'], threshold=0.05)}})\nw""",
    )
    notebook.run(1)
    view, boxes = widget(notebook), widget(notebook, 1)
    view.get_by_role("button", name="Example").click()
    view.get_by_label("one, exact").fill("1")
    shown = view.get_by_role("group", name="negative").locator("canvas")
    expect(shown).to_be_visible()
    size = "canvas => [canvas.width, canvas.height]"
    assert shown.evaluate(size) == [32, 24]
    assert view.get_by_role("group", name="grey").locator("canvas").evaluate(size) == [90, 60]
    boxes.get_by_role("button", name="Example").click()
    count = boxes.get_by_role("group", name="y").get_by_role("status")
    expect(count).to_contain_text("box")
    before = int(count.inner_text().split()[0])
    boxes.get_by_label("Least score shown").focus()
    notebook.page.keyboard.press("End")
    expect(count).to_have_text("0 boxes")
    assert before > 0


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
    return Image.open(io.BytesIO(png)).convert("L")


def test_what_the_user_gives_does_not_get_into_the_notebook_unasked(desk: Desk) -> None:
    notebook = desk.open(PLAYGROUND)
    view = widget(notebook)
    view.locator("input[type=file]").set_input_files(desk.models / "one.png")
    expect(best(view)).to_have_text("1")
    notebook.page.wait_for_timeout(3000)  # three times the pause after which a picture would go
    assert not any("image/png" in o.get("data", {}) for o in notebook.outputs(0))
    notebook.save()
    until(lambda: "widget-view+json" in desk.path.read_text())
    text = desk.path.read_text()
    assert "image/png" not in text
    assert base64.b64encode((desk.models / "one.png").read_bytes()[:90]).decode() not in text


def test_saved_notebook_keeps_a_picture_that_is_asked_for(desk: Desk) -> None:
    notebook = desk.open(PLAYGROUND.replace("labels=", "still=True, labels="))
    view = widget(notebook)
    view.locator("input[type=file]").set_input_files(desk.models / "one.png")
    expect(best(view)).to_have_text("1")
    until(lambda: any("image/png" in o.get("data", {}) for o in notebook.outputs(0)))
    (kept,) = [o["data"]["image/png"] for o in notebook.outputs(0) if "image/png" in o.get("data", {})]
    grey = np.asarray(grey_of(base64.b64decode(kept)))
    dark = np.flatnonzero((grey < 10).sum(0) > 40) / grey.shape[1]  # columns with much of the photo's black
    assert 0.2 < dark.max() < 0.35, "the photo is in the middle of its half, as in the widget"
    expect(notebook.output(0).locator(".jp-RenderedImage")).to_be_hidden()
    notebook.save()
    path = desk.path
    until(lambda: "image/png" in path.read_text())

    subprocess.run([sys.executable, "-m", "nbconvert", "--to", "html", "--log-level=ERROR", path], check=True, cwd=path.parent)
    page = notebook.page.context.new_page()
    page.route("http*://**", lambda route: route.abort())  # what the export would fetch for formulas
    page.goto(path.with_suffix(".html").as_uri(), wait_until="commit")
    picture = page.locator(".jp-OutputArea img")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 600
    expect(page.get_by_text("Playground of digits.onnx")).to_be_hidden()
    page.close()

    notebook.restart()
    notebook.reload()
    expect(notebook.output(0).locator(".jp-RenderedImage img")).to_be_visible()
    expect(notebook.page.get_by_text("Error displaying widget")).to_be_hidden()


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
    expect(status).to_contain_text("mean of")
    assert notebook.run(1) == "[True, 17]"
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
    expect(status).to_contain_text("mean of")

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
    rows = view.locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(view.locator(".pwx-good")).to_have_count(5)
    assert notebook.run(1) == "(5, True, 'logits', True)"
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
        f"w = Playground({str(DIGITS)!r})\nw", f"c = Compare({str(DIGITS)!r})\nc", "[(f['backend'], f['passed']) for f in c.value]"
    )
    view = widget(notebook)
    expect(view.locator(".pwx-badge")).to_contain_text("webgpu · ")
    view.locator("input[type=file]").set_input_files(models / "one.png")
    expect(view.locator(".pwx-best")).to_be_visible()
    notebook.run(1)
    expect(widget(notebook, 1).locator(".pwx-good")).to_have_count(2)
    assert notebook.run(2) == "[('wasm', True), ('webgpu', True)]"
    browser.close()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("preprocess=Preprocess(resize=(8, 8))", "takes 1 channels, its Preprocess gives 3"),
        ("inputs={'pixels': Image()}", "the model has no input 'pixels'; it has 'ink'"),
        ("outputs={'y': TopK()}", "the model has no output 'y'"),
        ("tokenizer={}", "no input is called input_ids"),
        ("backends=['cuda']", "choose from 'webgpu', 'wasm' and 'cpu'"),
        ("inputs={'ink': Text()}", "text needs a tokenizer"),
    ],
)
def test_what_does_not_suit_the_model_is_refused(arguments: str, text: str) -> None:
    from pyonnx_wasm import jupyter

    names = {name: getattr(jupyter, name) for name in jupyter.__all__}
    with pytest.raises(ValueError, match=text.replace("(", r"\(")):
        eval(f"Playground({str(DIGITS)!r}, {arguments})", names)
