"""Playgrounds: pictures, numbers, tensors and text in, what the model makes of them out."""

from __future__ import annotations

import pytest
from desk import DATA, DIGITS, PLAYGROUND, Desk, alert, best, draw, widget
from playwright.sync_api import expect
from waiting import until

pytestmark = pytest.mark.browser


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
    """A data frame as a table, a slider and a switch in, tables out; NaN is said, not drawn."""
    model = str(desk.models / "numbers.onnx")
    notebook = desk.open(
        f"""import pandas as pd
frame = pd.DataFrame({{"a": [1], "b": pd.array([2], "Int64"), "c": [3.0]}})
w = Playground({model!r}, inputs={{'table': frame, 'factor': Slider(0, 4, 0.5, 2)}})
w""",
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


def test_playground_closed_by_the_kernel_says_nothing_more(desk: Desk) -> None:
    """What a page sends to a widget that is closed, ipykernel reports in a cell: "No such comm"."""
    notebook = desk.open(
        PLAYGROUND,
        """import logging
said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
for name in ("Comm", "ipykernel.comm"): logging.getLogger(name).addHandler(handler)
w.close()""",
        "said",
    )
    # What a page that still opens the model says is on its way when the kernel closes the widget.
    expect(widget(notebook).locator(".pwx-status")).to_have_text("Waiting for an input")
    notebook.idle()
    notebook.run(1)
    expect(notebook.output(0).locator(".pwx")).to_have_count(0)
    assert notebook.run(2) == "[]"
