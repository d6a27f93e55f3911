"""Sound and film in a playground's page: files, what is recorded, and what cannot be."""

import io
import re
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser, BrowserType, Page, expect

from pyonnx_wasm.jupyter import Audio, Image, Playground, Sound, Tensor
from pyonnx_wasm.testing.chromium import launch_options

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


# How often the sound in a player typically goes up through zero in a second, though parts of it be lost, and its greatest sample.
HEARD = """async player => {
  const bytes = await (await fetch(player.src)).arrayBuffer();
  const samples = (await new OfflineAudioContext(1, 1, 16000).decodeAudioData(bytes)).getChannelData(0);
  const loud = samples.subarray(samples.findIndex((v) => Math.abs(v) > 0.2));
  const ups = [];
  let most = 0;
  for (let k = 1; k < loud.length; k++) {
    // Where the line between two samples comes through zero.
    if (loud[k - 1] < 0 && loud[k] >= 0) ups.push(k - loud[k] / (loud[k] - loud[k - 1]));
    most = Math.max(most, Math.abs(loud[k]));
  }
  const apart = ups.slice(1).map((at, k) => at - ups[k]).sort((a, b) => a - b);
  return [16000 / apart[apart.length >> 1], most];
}"""


def test_a_microphone_and_a_camera(browser_type: BrowserType, tmp_path: Path) -> None:
    """The microphone hears a tone, which the model doubles; the camera's frames go through a model one by one."""
    (tmp_path / "tone.wav").write_bytes(tone(30, 48_000, 1))
    options = launch_options()
    devices = ["fake-device-for-media-stream", "fake-ui-for-media-stream", f"file-for-fake-audio-capture={tmp_path}/tone.wav"]
    browser = browser_type.launch(**{**options, "args": [*options["args"], *(f"--use-{device}" for device in devices)]})
    page = browser.new_page()
    playground = Playground(
        model(tmp_path / "m.onnx", "Add", [1, "n"]),
        inputs={"x": Audio(RATE, sources=("microphone",))},
        outputs={"y": [Sound(RATE), Tensor()]},
    )
    page.goto(playground.save_html(tmp_path / "page.html").as_uri())
    record = page.get_by_role("button", name="Record")
    record.click()
    expect(page.get_by_text("Recording: press again to end it")).to_be_visible()
    expect(record).to_have_attribute("aria-pressed", "true")
    page.wait_for_function("begin => performance.now() > begin + 1500", arg=page.evaluate("performance.now()"))
    record.click()
    expect(page.get_by_text(re.compile(r"Recording: \d\.\d+ s at 16000 Hz"))).to_be_visible()
    heard, loudest = page.get_by_label("The sound given to the model").evaluate(HEARD)
    doubled, most = page.get_by_label("Sound of y").evaluate(HEARD)
    assert [heard, doubled] == pytest.approx([440, 440], rel=0.05)
    assert most == pytest.approx(2 * loudest, rel=0.02)
    expect(record).to_have_attribute("aria-pressed", "false")

    path = model(tmp_path / "pictures.onnx", "Mul", [1, 3, 24, 32], "pixels")
    page.goto(Playground(path, inputs={"pixels": Image(sources=("camera",))}).save_html(tmp_path / "camera.html").as_uri())
    expect(page.locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    page.get_by_role("button", name="Camera").click()
    expect(page.locator(".pwx-status")).to_contain_text("fps")
    seen = "() => [...document.querySelectorAll('.pwx-stage')].map((c) => c.toDataURL()).join()"
    first = page.evaluate(seen)
    page.wait_for_function(f"first => ({seen})() !== first", arg=first)
    page.get_by_role("button", name="Camera").click()
    expect(page.locator(".pwx-status")).to_have_text("Waiting for an input")
    browser.close()


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
