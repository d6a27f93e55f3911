"""The page that writes on: its model, what it writes, what it tells of a word, its buttons and settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pyonnx_wasm.generate import Generator
from pyonnx_wasm.generate.perplexity import perplexity
from pyonnx_wasm.server import Server

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "js/pages/write/write.gguf"
HELD_OUT = ROOT / "tests/data/write_held_out.txt"
LOAD = 60_000
BEGIN = "And it came to pass in those days, that"


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

    page.get_by_label("Words at a time").fill("200")
    page.get_by_label("Temperature").fill("1")
    page.locator("#text").fill("And the king said unto")
    expect(page.get_by_role("button", name="Stop")).to_be_enabled()
    expect(written.locator("span").nth(3)).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    assert 0 < written.locator("span").count() < 200
    expect(page.get_by_role("button", name="Keep it")).to_be_enabled()
    page.locator("#text").fill("  ")
    expect(written).to_have_text("")
