import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import demo
import pytest
from playwright.sync_api import Browser, Page, expect

from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser

LOAD = 180_000


@pytest.fixture
def page(sound_page: Page) -> Page:
    return sound_page


@pytest.fixture
def digits(page: Page, site: Server) -> Page:
    page.goto(site.url + "digits/")
    expect(page.locator("#status")).to_contain_text("Ready", timeout=LOAD)
    return page


def best(page: Page) -> str:
    expect(page.locator("#bars .best")).to_have_count(1)
    return page.locator("#digit").inner_text()


def draw(page: Page, *points: tuple[float, float]) -> None:
    box = page.locator("#pad").bounding_box()
    assert box
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*at[0])
    page.mouse.down()
    for x, y in at[1:]:
        page.mouse.move(x, y, steps=8)
    page.mouse.up()


def test_held_out_digits(site: Server, apart: Callable[..., Any]) -> None:
    report = apart(demo.run, site.mounts["/"])
    assert report.images == 360
    assert report.accuracy >= demo.REQUIRED
    assert (report.backend, report.threads >= 1) == ("wasm", True)
    downloaded = {d.path for d in report.downloads}
    assert {"/digits/", "/digits/main.js", "/player/index.mjs", "/digits/digits.ponnx"} <= downloaded
    text = demo.summary(report)
    assert "of 360 right" in text
    assert "digits.ponnx" in text


@pytest.mark.parametrize(("right", "code"), [(353, 0), (352, 1)])
def test_exit_code_tells_the_accuracy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], site: Server, right: int, code: int
) -> None:
    report = demo.Report(360, right, 0.1, 0.1, "wasm", 2, "1.0", 0.1, 1, 1, [demo.Download("/digits/", 10, 5)])
    monkeypatch.setattr(demo, "run", lambda folder: report)
    monkeypatch.setattr("sys.argv", ["demo", "--json"])
    assert demo.main() == code
    assert json.loads(capsys.readouterr().out)["right"] == right


def test_pages_that_are_not_built(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["demo", "--site", str(tmp_path)])
    assert demo.main() == 2
    assert "make site" in capsys.readouterr().err


def test_every_example_is_recognised(digits: Page) -> None:
    for i in range(10):
        digits.click("#example")
        expect(digits.locator("#digit")).to_have_text(str((2 + 3 * i) % 10))


def test_digits_drawn_by_mouse(digits: Page) -> None:
    draw(digits, (0.3, 0.2), (0.7, 0.2), (0.45, 0.8))
    expect(digits.locator("#digit")).to_have_text("7")
    digits.click("#clear")
    expect(digits.locator("#words")).to_have_text("Nothing drawn yet")
    expect(digits.locator("#bars .best")).to_have_count(0)
    draw(digits, (0.45, 0.2), (0.3, 0.55), (0.7, 0.55))
    draw(digits, (0.6, 0.35), (0.57, 0.85))
    expect(digits.locator("#digit")).to_have_text("4")
    expect(digits.locator("#status")).to_contain_text("ms")


def test_digit_drawn_by_finger(browser: Browser, site: Server) -> None:
    context = browser.new_context(has_touch=True, is_mobile=True, viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.goto(site.url + "digits/")
    expect(page.locator("#status")).to_contain_text("Ready", timeout=LOAD)
    box = page.locator("#pad").bounding_box()
    assert box
    touch = context.new_cdp_session(page)

    def send(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]} for x, y in points]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    send("touchStart", (0.3, 0.2))
    for i in range(1, 9):
        send("touchMove", (0.3 + 0.05 * i, 0.2))
    for i in range(1, 13):
        send("touchMove", (0.7 - 0.02 * i, 0.2 + 0.05 * i))
    send("touchEnd")
    expect(page.locator("#digit")).to_have_text("7")
    assert page.evaluate("scrollY") == 0
    context.close()


def test_digit_drawn_by_keyboard(digits: Page) -> None:
    digits.focus("#pad")
    for _ in range(20):
        digits.keyboard.press("Shift+ArrowDown")
    assert best(digits) == "1"
    digits.keyboard.press("Delete")
    expect(digits.locator("#words")).to_have_text("Nothing drawn yet")


def test_dot_and_scribble_give_some_answer(digits: Page) -> None:
    draw(digits, (0.5, 0.5), (0.5, 0.5))
    best(digits)
    for i in range(20):
        draw(digits, (0.05, 0.05 * i), (0.95, 1 - 0.05 * i))
    best(digits)
    expect(digits.locator("#status")).not_to_have_class("failed")


@pytest.mark.parametrize("name", ["", "digits/", "triage/", "shapes/", "write/", "search/"])
@pytest.mark.parametrize("width", [320, 360, 1200])
def test_page_fits_its_window(browser: Browser, site: Server, name: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 700})
    page.route("**/*.ponnx", lambda route: route.abort())
    page.goto(site.url + name)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("digits/", "digits.ponnx"),
        ("triage/", "triage.ponnx"),
        ("shapes/", "shapes.ponnx"),
        ("write/", "write.ponnx"),
        ("write/", "tokenizer.json"),
        ("search/", "minilm.ponnx"),
        ("search/", "tokenizer.json"),
    ],
)
def test_missing_file_is_told(browser: Browser, site: Server, name: str, file: str) -> None:
    page = browser.new_page()
    page.route(f"**/{file}", lambda route: route.fulfill(status=404))
    page.goto(site.url + name)
    expect(page.locator("#status")).to_have_class("status failed", timeout=LOAD)
    expect(page.locator("#status")).to_contain_text(file)
    page.close()


SAID = """addEventListener("DOMContentLoaded", () => {
  const phase = document.getElementById("phase");
  window.said = [];
  new MutationObserver(() => said.push(phase.textContent)).observe(phase, { childList: true, subtree: true });
})"""


def test_search_by_meaning(page: Page, site: Server) -> None:
    page.add_init_script(SAID)
    page.goto(site.url + "search/")
    expect(page.locator("#loading")).to_be_hidden(timeout=4 * LOAD)
    said = page.evaluate("said")
    assert [text for text in said if text.startswith("Loading the model: ")], said
    assert [text for text in said if text.startswith("Reading the sentences: ")], said
    first = page.locator("#results li").first
    page.fill("#query", "the feline slept next to the heater")
    expect(first).to_contain_text("The cat curled up on the warm radiator and purred.")
    expect(page.locator("#results li")).to_have_count(8)
    page.locator("#query").press_sequentially(" no, the largest of the planets", delay=5)
    page.fill("#query", "the largest of the planets")
    expect(first).to_contain_text("Jupiter is heavier than all the other planets together.")
    scores = [float(text) for text in page.locator("#results .score").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    page.fill("#query", "<b>&amp;" * 100)
    expect(page.locator("#status")).to_contain_text("256 tokens")
    page.fill("#query", "  ")
    expect(page.locator("#results li")).to_have_count(0)
