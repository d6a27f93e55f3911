"""The page that writes on: its model, what it writes, what it tells of a word, its buttons and settings."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from gguf_models import talking
from playwright.sync_api import Browser, Page, Route, expect

import pyonnx_wasm
from pyonnx_wasm.bench.generate.models import Size, write_export
from pyonnx_wasm.generate import Generator
from pyonnx_wasm.generate.perplexity import perplexity
from pyonnx_wasm.server import Server

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "js/pages/write/write.gguf"
HELD_OUT = ROOT / "tests/data/write_held_out.txt"
LOAD = 180_000
BEGIN = "And it came to pass in those days, that"
# Presses Stop when a few words are there: on a busy machine a test comes when all are. Tells after which texts it was pressed.
STOP_EARLY = """() => {
  globalThis.stopped = [];
  const [next, stop, text] = ["next", "stop", "text"].map((id) => document.getElementById(id));
  new MutationObserver(() => {
    if (stop.disabled || next.querySelectorAll("span").length < 4) return;
    stopped.push(text.value);
    stop.click();
  }).observe(next, { childList: true, subtree: true });
}"""


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(MODEL, overflow="slide")


def test_the_model_foretells_what_training_never_saw(generator: Generator) -> None:
    """Two chapters; of all that was held out README tells."""
    ids = generator.encode(HELD_OUT.read_text(encoding="utf-8"))
    assert generator.decode(ids) == HELD_OUT.read_text(encoding="utf-8")
    assert perplexity(generator, ids[:2048]) < 26
    assert MODEL.stat().st_size < 6e6


@pytest.fixture
def page(sound_page: Page, site: Server) -> Page:
    sound_page.goto(site.url + "write/")
    expect(sound_page.locator("#status")).to_contain_text("tokens per second", timeout=LOAD)
    return sound_page


@pytest.mark.browser
def test_what_it_writes_and_tells(page: Page, generator: Generator) -> None:
    """The same words as Python for the seed; on hover the likeliest ones; keep, another, stop, settings."""
    how = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "repetition_penalty": 1.1, "max_new_tokens": 64}
    written = page.locator("#next")
    assert written.text_content() == generator(BEGIN, seed=1611, **how)
    tokens = list(generator.generate(BEGIN, seed=1611, likely=5, **how))
    word = written.locator("span").nth(2)
    word.hover()
    expect(page.locator("#tip")).to_be_visible()
    shown = [float(t.removesuffix(" %")) / 100 for t in page.locator("#tip .percent").all_inner_texts()]
    assert shown[:4] == pytest.approx([p for _, p in tokens[2].likely[:4]], abs=6e-4)
    expect(page.locator("#tip .best")).to_have_count(1)
    page.mouse.move(0, 0)
    expect(page.locator("#tip")).to_be_hidden()
    word.focus()
    expect(page.locator("#tip")).to_be_visible()

    page.get_by_role("button", name="Another").click()
    expect(written).to_have_text(generator(BEGIN, seed=1612, **how), use_inner_text=False)
    page.locator("summary").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Words at a time").fill("8")
    greedy = generator(BEGIN, temperature=0, repetition_penalty=1.1, max_new_tokens=8)
    expect(written).to_have_text(greedy)
    page.locator("#text").press("Control+Enter")
    expect(page.locator("#text")).to_have_value(BEGIN + greedy)
    expect(written).to_have_text(generator(BEGIN + greedy, temperature=0, repetition_penalty=1.1, max_new_tokens=8))

    page.evaluate(STOP_EARLY)
    page.get_by_label("Words at a time").fill("200")
    page.get_by_label("Temperature").fill("1")
    page.locator("#text").fill("And the king said unto")
    page.wait_for_function("stopped.includes('And the king said unto')")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    assert 0 < written.locator("span").count() < 200
    expect(page.get_by_role("button", name="Keep it")).to_be_enabled()
    page.locator("#text").fill("  ")
    expect(written).to_have_text("")


@pytest.mark.browser
def test_own_models_and_no_network(browser: Browser, site: Server, tmp_path: Path) -> None:
    """Models and their tokenizer are dropped; damaged ones are told and the page goes on; once visited, it needs no network."""
    path = talking(tmp_path / "tiny.gguf", layers=1, context=64)
    own = Generator(path, overflow="slide")
    own.tokenizer.save(str(tmp_path / "tokenizer.json"))
    pyonnx_wasm.save(pyonnx_wasm.compile(path), tmp_path / "tiny.ponnx")
    write_export(Size("tiny", 64, 96, 1, 4, 2, 33, 10000.0, 128), tmp_path / "export")
    export = tmp_path / "export/onnx/model_q4.onnx"
    (tmp_path / "half.ponnx").write_bytes((tmp_path / "tiny.ponnx").read_bytes()[:5000])
    how = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "repetition_penalty": 1.1, "max_new_tokens": 64}
    with Server(dict(site.mounts)) as server, browser.new_context() as context:
        page = context.new_page()
        page.goto(server.url + "write/")
        status, written = page.locator("#status"), page.locator("#next")
        expect(status).to_contain_text("tokens per second", timeout=LOAD)
        before = written.text_content()
        expect(page.locator("#offline")).to_be_visible()

        files = page.locator("#files")
        files.set_input_files(tmp_path / "half.ponnx")
        expect(status).to_contain_text("half.ponnx is here; now drop the tokenizer.json")
        files.set_input_files(tmp_path / "tokenizer.json")
        expect(status).to_contain_text("could not run the model")
        assert written.text_content() == before, "what was written stays"
        page.locator("#text").fill("the cat")
        expect(status).to_contain_text("tokens per second")
        drop = """async ([name, data]) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name));
          document.querySelector("main").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
        }"""
        page.evaluate(drop, ["tiny.ponnx", b64encode((tmp_path / "tiny.ponnx").read_bytes()).decode()])
        expect(page.locator("#about")).to_contain_text("tiny.ponnx writes on")
        expect(written).to_have_text(own("the cat", seed=1611, **how), use_inner_text=False)

        files.set_input_files([path, tmp_path / "tokenizer.json"])
        expect(page.locator("#about")).to_contain_text("tiny.gguf writes on", timeout=LOAD)
        expect(written).to_have_text(own("the cat", seed=1611, **how), use_inner_text=False)
        page.evaluate(drop, ["model_q4.onnx", b64encode(export.read_bytes()).decode()])
        expect(status).to_contain_text("model_q4.onnx is here; now drop the tokenizer.json")
        page.evaluate(drop, ["tokenizer.json", b64encode((tmp_path / "tokenizer.json").read_bytes()).decode()])
        expect(page.locator("#about")).to_contain_text("model_q4.onnx writes on", timeout=LOAD)
        exported = Generator(export, own.tokenizer, overflow="slide")
        exported.ends, exported.begin = frozenset(), None  # the file alone does not tell any
        expect(written).to_have_text(exported("the cat", seed=1611, **how), use_inner_text=False)

        server.close()
        context.set_offline(True)
        page.goto(server.url + "write/")
        expect(status).to_contain_text("tokens per second", timeout=LOAD)
        assert written.text_content() == before


@pytest.mark.browser
def test_a_model_that_does_not_come_is_asked_for_again(browser: Browser, site: Server) -> None:
    asked: list[str] = []
    page = browser.new_page()

    def once(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=503) if len(asked) == 1 else route.continue_()

    page.route("**/write.ponnx", once)
    page.goto(site.url + "write/")
    expect(page.locator("#status")).to_contain_text("write.ponnx: HTTP 503")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#status")).to_contain_text("tokens per second", timeout=LOAD)
    expect(page.get_by_role("button", name="Try again")).to_be_hidden()
    page.close()
