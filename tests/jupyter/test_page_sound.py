"""Sound and film in a playground's page: files, what is recorded, and what cannot be."""

import io
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser, Page, expect

from pyonnx_wasm.jupyter import Audio, Playground, Sound, Tensor

pytestmark = pytest.mark.browser
RATE = 16_000
# Half a second of a canvas whose colour changes, as a file in the input.
FILM = """async input => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [64, 48];
  const recorder = new MediaRecorder(canvas.captureStream(20));
  const parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.start();
  const context = canvas.getContext("2d");
  for (let k = 0; k < 10; k++) {
    context.fillStyle = `hsl(${36 * k} 90% 50%)`;
    context.fillRect(0, 0, 64, 48);
    await new Promise((done) => setTimeout(done, 50));
  }
  await new Promise((done) => { recorder.onstop = done; recorder.stop(); });
  const files = new DataTransfer();
  files.items.add(new File(parts, "film.webm", { type: "video/webm" }));
  input.files = files.files;
  input.dispatchEvent(new Event("change"));
}"""


def model(path: Path, op: str, shape: list[int | str], name: str = "x") -> Path:
    f, value = TensorProto.FLOAT, helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node(op, [name, name], ["y"])], "g", [value(name, f, shape)], [value("y", f, shape)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def tone(seconds: float, rate: int, channels: int) -> bytes:
    """Half as loud as can be, on every channel."""
    t = np.arange(int(seconds * rate)) / rate
    one = (0.5 * 32767 * np.sin(2 * np.pi * 440 * t)).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat(one, channels).tobytes())
    return out.getvalue()


@pytest.fixture
def page(browser: Browser) -> Page:
    return browser.new_page()


@pytest.mark.parametrize(("shape", "seconds"), [([1, "n"], 0.5), ([1, 1, RATE], 1.0)], ids=["any length", "fixed length"])
def test_sound_in_and_out(page: Page, tmp_path: Path, shape: list[int | str], seconds: float) -> None:
    """A file of another rate and two channels becomes one channel of the model's rate; a fixed length ends in silence."""
    outputs = {"y": [Sound(RATE), Tensor()]}
    playground = Playground(model(tmp_path / "m.onnx", "Add", shape), inputs={"x": Audio(RATE)}, outputs=outputs)
    page.goto(playground.save_html(tmp_path / "page.html").as_uri())
    expect(page.get_by_text("Nothing to hear yet")).to_be_visible()
    page.locator("input[type=file]").set_input_files({"name": "a.wav", "mimeType": "audio/wav", "buffer": tone(0.5, 8000, 2)})
    expect(page.get_by_text("a.wav: 0.50 s at 16000 Hz")).to_be_visible()
    expect(page.get_by_text(f"{seconds:.2f} s at 16000 Hz", exact=True)).to_be_visible()
    greatest = float(page.locator("dt:text-is('max') + dd").inner_text())
    assert greatest == pytest.approx(1.0, abs=0.05)
    expect(page.get_by_label("Sound of y")).to_have_js_property("paused", True)
    page.wait_for_function("d => Math.abs(document.querySelector('[aria-label=\"Sound of y\"]').duration - d) < 0.01", arg=seconds)
    page.locator("input[type=file]").set_input_files({"name": "b.wav", "mimeType": "audio/wav", "buffer": b"RIFF and nothing"})
    expect(page.get_by_role("alert").filter(has_text="b.wav cannot be read as sound")).to_be_visible()
    page.close()


def test_a_microphone_that_is_not_there_is_said(page: Page, tmp_path: Path) -> None:
    playground = Playground(model(tmp_path / "m.onnx", "Add", [1, "n"]), inputs={"x": Audio(RATE, sources=("microphone",))})
    page.goto(playground.save_html(tmp_path / "page.html").as_uri())
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_role("alert").filter(has_text="microphone")).to_be_visible()
    page.close()


def test_a_film_is_seen_frame_by_frame(page: Page, tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", "Mul", [1, 3, 24, 32], "pixels")
    page.goto(Playground(path).save_html(tmp_path / "page.html").as_uri())
    expect(page.locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    page.locator("input[type=file]").evaluate(FILM)
    status = page.locator(".pwx-status")
    expect(status).to_contain_text("fps")
    colour = "() => document.querySelector('.pwx-stage').getContext('2d').getImageData(5, 5, 1, 1).data.join()"
    first = page.evaluate(colour)
    page.wait_for_function(f"first => ({colour})() !== first", arg=first)
    page.get_by_role("button", name="Clear").click()
    expect(status).to_have_text("Waiting for an input")
    page.close()
