"""Panels of a playground, in its page: boxes of YOLO's, SSD's and DETR's heads, masks, examples of text."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image as Pillow
from playwright.sync_api import Browser, Page, expect

from pyonnx_wasm.jupyter import Playground

pytestmark = pytest.mark.browser
SIDE = 64
READ = """canvas => {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  return [width, height, Array.from(data)];
}"""


def head(path: Path, outputs: dict[str, np.ndarray], labels: str) -> Path:
    """A model that answers every picture with the same."""
    value = helper.make_tensor_value_info
    weights = [numpy_helper.from_array(array, f"{name}_0") for name, array in outputs.items()]
    nodes = [helper.make_node("Identity", [f"{name}_0"], [name]) for name in outputs]
    faces = [value(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in outputs.items()]
    graph = helper.make_graph(nodes, "g", [value("images", TensorProto.FLOAT, [1, 3, SIDE, SIDE])], faces, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(made, {"labels": labels})
    onnx.save(made, path)
    return path


def candidates(n: int, *more: float) -> np.ndarray:
    """Rows of a head without anything found: small boxes in a corner, of no score."""
    rows = np.zeros((n, 4 + len(more)), np.float32)
    rows[:, :4] = [4, 4, 2, 2]
    rows[:, 4:] = more
    return rows


def yolo8(boxes: list[list[float]], scores: list[list[float]]) -> dict[str, np.ndarray]:
    rows = candidates(200, 0, 0)
    for i, (box, score) in enumerate(zip(boxes, scores, strict=True)):
        rows[3 * i] = [*box, *score]
    return {"output0": rows.T[None].copy()}


def yolo5(boxes: list[list[float]], scores: list[list[float]]) -> dict[str, np.ndarray]:
    rows = candidates(200, 0, 0, 0)
    for i, (box, score) in enumerate(zip(boxes, scores, strict=True)):
        rows[3 * i] = [*box, 0.9, *(s / 0.9 for s in score)]
    rows[9, 4:] = [0.01, 1, 1]  # sure of its class, and that there is nothing
    return {"output": rows[None]}


def corners(boxes: list[list[float]]) -> np.ndarray:
    x, y, w, h = np.array(boxes, np.float32).T
    return np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 1)


def end_to_end(boxes: list[list[float]], scores: list[list[float]]) -> dict[str, np.ndarray]:
    rows = np.zeros((1, 300, 6), np.float32)
    for i, (box, score) in enumerate(zip(corners(boxes), scores, strict=True)):
        rows[0, i] = [*box, max(score), int(np.argmax(score))]
    return {"output0": rows}


def tensorflow(boxes: list[list[float]], scores: list[list[float]]) -> dict[str, np.ndarray]:
    yxyx = corners(boxes)[:, [1, 0, 3, 2]] / SIDE
    return {
        "detection_boxes": yxyx[None].astype(np.float32),
        "detection_scores": np.max(scores, 1)[None].astype(np.float32),
        "detection_classes": np.argmax(scores, 1)[None].astype(np.float32),
        "num_detections": np.float32([len(boxes)]),
    }


def detr(boxes: list[list[float]], scores: list[list[float]]) -> dict[str, np.ndarray]:
    shares = np.array([[*s, 1 - sum(s)] for s in scores] + [[0, 0, 1]], np.float32) + 1e-6
    where = np.array([*boxes, [32, 32, 60, 60]], np.float32) / SIDE
    return {"logits": np.log(shares)[None].astype(np.float32) + 3, "pred_boxes": where[None]}


def ssd(boxes: list[list[float]], scores: list[list[float]]) -> dict[str, np.ndarray]:
    shares = np.array([[1 - sum(s), *s] for s in scores], np.float32)
    return {"scores": shares[None], "boxes": (corners(boxes) / SIDE)[None].astype(np.float32)}


def shown(browser: Browser, path: Path, page: Page | None = None) -> Page:
    page = page or browser.new_page()
    page.goto(path.as_uri())
    expect(page.locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    page.locator("input[type=file]").set_input_files(path.with_name("grey.png"))
    return page


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Pillow.fromarray(np.full((SIDE, SIDE, 3), 200, np.uint8)).save(tmp_path / "grey.png")
    return tmp_path


@pytest.fixture(scope="module")
def page(browser: Browser) -> Any:
    page = browser.new_page()
    yield page
    page.close()


@pytest.mark.parametrize("kind", [yolo8, yolo5, end_to_end, tensorflow, detr, ssd])
def test_boxes_of_a_head_that_nobody_declared(browser: Browser, page: Page, folder: Path, kind: Any) -> None:
    boxes, scores = [[20, 24, 16, 24], [48, 40, 20, 12]], [[0.9, 0.05], [0.05, 0.6]]
    path = head(folder / "model.onnx", kind(boxes, scores), "cat, dog")
    shown(browser, Playground(path).save_html(folder / "page.html"), page)
    expect(page.get_by_text("Taken: labels in the model's metadata (labels); boxes by the shape of the outputs")).to_be_visible()
    count = page.locator(".pwx-panel [role=status]")
    expect(count).to_have_text("2 boxes")
    width, height, data = page.locator("canvas.pwx-stage:visible").last.evaluate(READ)
    pixels = np.array(data, np.uint8).reshape(height, width, 4)[..., :3].astype(int)
    assert (width, height) == (SIDE, SIDE)
    cat, dog = (47, 125, 225), (226, 87, 76)
    for (x, y, w, _), tint in zip(boxes, (cat, dog), strict=True):
        assert np.abs(pixels[y, int(x - w / 2) - 1 : int(x - w / 2) + 2] - tint).sum(1).min() < 90, f"the left edge of the box at {x}, {y}"
        assert np.abs(pixels[y, x] - 200).max() < 3, "the middle of a box is the picture"
    page.get_by_label("Least score shown").fill("0.75")
    expect(count).to_have_text("1 box")


@pytest.mark.parametrize("numbers", [None, np.int64, np.int32], ids=["scores", "int64", "int32"])
def test_masks_on_the_picture(browser: Browser, page: Page, folder: Path, numbers: Any) -> None:
    """Of scores for each class, and of what ends in an ArgMax over them."""
    scores = np.zeros((1, 5, SIDE, SIDE), np.float32)
    scores[0, 0], scores[0, 3, 16:48, 16:48] = 1, 2
    if numbers:
        scores = scores.argmax(1).astype(numbers)
    path = head(folder / "model.onnx", {"masks": scores}, "nothing, cat, dog, bird, fish")
    shown(browser, Playground(path).save_html(folder / "page.html"), page)
    expect(page.locator(".pwx-classes li")).to_have_text(["nothing 75 %", "bird 25 %"])
    width, height, data = page.locator("canvas.pwx-stage:visible").last.evaluate(READ)
    pixels = np.array(data, np.uint8).reshape(height, width, 4)
    assert np.ptp(pixels[20:44, 20:44].reshape(-1, 4), 0).max() == 0
    assert np.abs(pixels[32, 32].astype(int) - pixels[2, 2]).max() > 40


def test_examples_of_text(browser: Browser, page: Page, folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Mul", ["input_ids", "attention_mask"], ["same"])]
    faces = [value(n, TensorProto.INT64, ["b", "s"]) for n in ("input_ids", "attention_mask", "same")]
    graph = helper.make_graph(nodes, "g", faces[:2], faces[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "words.onnx")
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "good": 1, "morning": 2, "night": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    playground = Playground(folder / "words.onnx", tokenizer=tokenizer, examples=["good morning", "good good night"])
    page.goto(playground.save_html(folder / "page.html").as_uri())
    expect(page.get_by_text("2 tokens")).to_be_visible()
    page.get_by_role("button", name="good good night").click()
    expect(page.get_by_text("3 tokens")).to_be_visible()
    expect(page.get_by_role("group", name="same")).to_contain_text("[1, 3]")
