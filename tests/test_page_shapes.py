"""The page with a detector: what it finds, its numbers, its pictures and its settings."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import shape_pictures
from numpy.typing import NDArray
from page_weight import told, weigh
from PIL import Image, ImageDraw
from playwright.sync_api import BrowserType, Page, expect

import pyonnx_wasm
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium

pytestmark = pytest.mark.browser

MODEL = Path(__file__).parents[1] / "js/pages/shapes/shapes.onnx"
LOAD = 180_000
FIND = """
async ([runs, backend]) => {
  const { InferenceSession, Tensor } = await import(new URL("../player/index.mjs", document.baseURI).href);
  const model = new URL("shapes.ponnx", document.baseURI).href;
  const session = await InferenceSession.create(model, { executionProviders: [backend] });
  const found = [];
  for (const [pixels, dims, threshold] of runs) {
    const image = new Tensor("uint8", Uint8Array.from(pixels), dims);
    const { boxes, labels, scores } = await session.run({ image, threshold: new Tensor("float32", [threshold], []) });
    found.push([Array.from(boxes.data), Array.from(labels.data, Number), Array.from(scores.data)]);
  }
  await session.release();
  return [session.backend, found];
}
"""


def opaque(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.concatenate([pixels, np.full((*pixels.shape[:2], 1), 255, np.uint8)], 2)


def oracle(image: NDArray[np.uint8], threshold: float) -> list[Any]:
    return list(onnxruntime.InferenceSession(MODEL).run(None, {"image": image, "threshold": np.array(threshold, np.float32)}))


def settled(page: Page) -> None:
    """Waits until what is on show was looked at."""
    expect(page.locator("#picture")).to_have_attribute("aria-busy", "false")


def drawn() -> bytes:
    """A picture with a circle at the top left, a square at the top right and a triangle at the bottom, as PNG."""
    picture = Image.new("RGB", (512, 384), "#e8e4d8")
    pen = ImageDraw.Draw(picture)
    pen.ellipse([50, 40, 170, 160], fill="#b03060")
    pen.rectangle([340, 45, 450, 155], fill="#2050c0")
    pen.polygon([(256, 230), (330, 350), (182, 350)], fill="#208050")
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def ready(page: Page, site: Server) -> Page:
    page.goto(site.url + "shapes/")
    expect(page.locator("#status")).to_contain_text("a picture", timeout=LOAD)
    return page


def show(page: Page, data: bytes) -> None:
    page.set_input_files("#file", {"name": "picture.png", "mimeType": "image/png", "buffer": data})
    expect(page.locator("#words")).not_to_contain_text("drawn")
    settled(page)


def listed(page: Page) -> list[str]:
    return page.locator("#found li > span:first-child").all_text_contents()


@pytest.fixture
def page(sound_page: Page, site: Server) -> Page:
    return ready(sound_page, site)


@pytest.fixture(scope="module")
def equipped(browser_type: BrowserType) -> Iterator[Page]:
    """A page of a browser with WebGPU and a camera that films a test picture."""
    options = chromium.launch_options(webgpu=True)
    options["args"] += ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    browser = browser_type.launch(**options)
    yield browser.new_page()
    browser.close()


def test_accuracy_on_what_training_never_saw(page: Page) -> None:
    pictures = shape_pictures.kept()
    session = pyonnx_wasm.InferenceSession(MODEL)
    right = answers = 0
    for p in pictures:
        image = opaque(p.pixels)
        boxes, labels, scores = session.run(None, {"image": image, "threshold": np.array(0.4, np.float32)})
        for got, want in zip((boxes, scores), oracle(image, 0.4)[::2], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
        right += shape_pictures.matched(p, boxes, labels)
        answers += len(labels)
    there = sum(len(p.labels) for p in pictures)
    assert right >= 0.85 * there, f"{right} of {there}"
    assert answers - right <= 0.08 * there, f"{answers - right} wrong"
    expect(page.locator("#there")).to_have_text(str(there))
    assert abs(int(page.locator("#right").inner_text()) - right) <= 1


@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
def test_numbers_agree_with_onnxruntime(equipped: Page, site: Server, backend: str) -> None:
    """In one session at three sizes: a few boxes, many, none."""
    equipped.goto(site.url + "shapes/")
    picture = Image.fromarray(shape_pictures.kept()[4].pixels)
    runs = [
        (opaque(np.asarray(picture.resize(size))), threshold) for size, threshold in (((128, 96), 0.4), ((61, 83), 0.02), ((64, 48), 0.999))
    ]
    used, found = equipped.evaluate(FIND, [[(image.ravel().tolist(), image.shape, threshold) for image, threshold in runs], backend])
    assert used == backend
    few, many, none = (len(labels) for _, labels, _ in found)
    assert many > few > none == 0
    for (image, threshold), got in zip(runs, found, strict=True):
        boxes, labels, scores = oracle(image, threshold)
        assert got[1] == labels.tolist()
        np.testing.assert_allclose(np.reshape(got[0], (-1, 4)), boxes, atol=0.02)
        np.testing.assert_allclose(got[2], scores, atol=1e-4)


def test_made_up_pictures(page: Page) -> None:
    """Of what the page draws, nearly all is found, and little else."""
    off = there = 0
    for _ in range(15):
        page.click("#scene")
        settled(page)
        drawn = int(page.locator("#words").inner_text().split(", ")[1].split()[0])
        found = int(page.locator("#count").inner_text())
        assert found == min(10, page.locator("#found li").count()) or found > 10
        off, there = off + abs(found - drawn), there + drawn
    assert off <= 0.08 * there, f"{off} too many or too few, of {there}"


def test_own_picture(page: Page) -> None:
    show(page, drawn())
    expect(page.locator("#count")).to_have_text("3")
    assert Counter(listed(page)) == Counter(["circle, top left", "square, top right", "triangle, bottom"])
    expect(page.locator("#picture")).to_have_attribute("aria-label", "Picture, 3 shapes found")
    for size in ("128 px", "384 px", "256 px"):
        page.get_by_role("radio", name=size).check()
        settled(page)
        assert {text.split(",")[0] for text in listed(page)[:3]} == {"circle", "square", "triangle"}
    box = page.evaluate("[document.getElementById('picture').width, document.getElementById('picture').height]")
    assert box == [512, 384]


def test_file_that_is_no_picture(page: Page) -> None:
    page.set_input_files("#file", {"name": "picture.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(page.locator("#status")).to_have_text("The file could not be read as a picture.")
    page.click("#scene")
    expect(page.locator("#status")).to_contain_text("a picture")


def test_threshold(page: Page) -> None:
    show(page, drawn())
    threshold = page.get_by_role("slider")
    threshold.fill("0.95")
    expect(page.locator("#least")).to_have_text("95 %")
    settled(page)
    strict = int(page.locator("#count").inner_text())
    threshold.focus()
    for _ in range(18):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#least")).to_have_text("5 %")
    settled(page)
    assert int(page.locator("#count").inner_text()) > strict
    scores = [float(text.split("\n")[-1].removesuffix(" %")) for text in page.locator("#found li").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) >= 5


def test_shapes_that_move(page: Page) -> None:
    page.click("#moving")
    expect(page.locator("#moving")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#status")).to_contain_text("frames per second")
    expect(page.locator("#summary")).to_have_attribute("aria-live", "off")
    page.click("#moving")
    expect(page.locator("#moving")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#status")).not_to_contain_text("frames per second")
    expect(page.locator("#summary")).to_have_attribute("aria-live", "polite")


def test_camera(equipped: Page, site: Server) -> None:
    ready(equipped, site)
    equipped.click("#camera")
    expect(equipped.locator("#camera")).to_have_attribute("aria-pressed", "true")
    expect(equipped.locator("#status")).to_contain_text("frames per second")
    expect(equipped.locator("#words")).not_to_contain_text("drawn")
    equipped.click("#scene")
    expect(equipped.locator("#camera")).to_have_attribute("aria-pressed", "false")
    expect(equipped.locator("#words")).to_contain_text("drawn")


def test_no_camera(page: Page) -> None:
    page.click("#camera")
    expect(page.locator("#status")).to_contain_text("camera")
    expect(page.locator("#camera")).to_have_attribute("aria-pressed", "false")


def test_webgpu_by_choice(equipped: Page, site: Server) -> None:
    ready(equipped, site)
    show(equipped, drawn())
    expect(equipped.locator("#status")).to_contain_text("wasm")
    equipped.get_by_role("radio", name="WebGPU").check()
    expect(equipped.locator("#status")).to_contain_text("webgpu ·", timeout=LOAD)
    expect(equipped.locator("#count")).to_have_text("3")
    equipped.get_by_role("radio", name="WebAssembly").check()
    expect(equipped.locator("#status")).to_contain_text("wasm ·")


def test_needs_no_network_once_loaded(page: Page) -> None:
    page.context.set_offline(True)
    show(page, drawn())
    expect(page.locator("#count")).to_have_text("3")


def test_download_is_what_the_page_says(sound_page: Page, site: Server) -> None:
    sent, packed, files = weigh(sound_page, site, "shapes/")
    assert {"/shapes/shapes.ponnx", "/shapes/main.js", "/player/index.mjs"} <= files
    assert 0.7 * told(sound_page, "raw") < sent < told(sound_page, "raw")
    assert 0.7 * told(sound_page, "packed") < packed < told(sound_page, "packed")
