"""``Playground.save_html``: one page that runs the model from a disk, from a server, in Chromium and in Firefox."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save
from PIL import Image as Pillow
from playwright.sync_api import Browser, Page, expect

from pyonnx_wasm import InferenceSession
from pyonnx_wasm.jupyter import Image, Playground, Preprocess, page
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import webdriver

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"
PREPARE = Preprocess(trim=0.12, resize=(8, 8), filter="box", color="L", scale=16 / 255)
HOSTILE = "</script><script>window.hurt = 1</script><!-- <b>&{{SPEC}}"


def digits(folder: Path) -> Playground:
    ink = np.zeros((64, 64), np.uint8)
    ink[8:56, 28:36] = 255
    Pillow.fromarray(ink).save(folder / "one.png")
    panel = Image(PREPARE, sources=("draw", "file"), examples={HOSTILE: folder / "one.png"})
    return Playground(DIGITS, labels=[HOSTILE, *"123456789"], inputs={"ink": panel})


def likeliest(folder: Path) -> str:
    (scores,) = InferenceSession(DIGITS).run(None, {"ink": PREPARE(Pillow.open(folder / "one.png"))})
    return f"{100 * scores.max():.1f} %"


def opened(browser: Browser, url: str) -> tuple[Page, list[str]]:
    """The page with its example chosen, and what it asked for and complained of."""
    shown = browser.new_page()
    told: list[str] = []
    shown.on("request", lambda request: told.append(request.url) if not request.url.startswith(("data:", "blob:")) else None)
    shown.on("console", lambda message: told.append(message.text) if message.type == "error" or "pyonnx" in message.text else None)
    shown.on("pageerror", lambda error: told.append(str(error)))
    shown.goto(url)
    expect(shown.locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    return shown, told


@pytest.mark.browser
@pytest.mark.parametrize("served", [False, True], ids=["file", "server"])
def test_it_runs_alone(browser: Browser, tmp_path: Path, served: bool) -> None:
    """In a worker of its own, asking for nothing; names from outside are text."""
    path = digits(tmp_path).save_html(tmp_path / "digits.html", title=HOSTILE, text=HOSTILE)
    with Server({"/": tmp_path}) as server:
        url = f"{server.url}digits.html" if served else path.as_uri()
        shown, told = opened(browser, url)
        assert told == [url]
        shown.get_by_role("button", name="Example").click()
        expect(shown.locator(".pwx-best .pwx-label")).to_have_text("1")
        expect(shown.locator(".pwx-best .pwx-percent")).to_have_text(likeliest(tmp_path))
        assert shown.get_by_role("heading").inner_text() == HOSTILE
        assert shown.evaluate("window.hurt") is None
        expect(shown.get_by_text("Send to Python")).to_have_count(0)
        assert shown.evaluate("fetch('https://example.org/').then(() => 'sent', () => 'refused')") == "refused"
        shown.close()


@pytest.mark.browser
def test_firefox_runs_it_from_a_disk(tmp_path: Path) -> None:
    path = digits(tmp_path).save_html(tmp_path / "digits.html")
    with webdriver.firefox() as shown:
        shown.goto(path.as_uri())
        shown.wait_for_function("() => document.querySelector('.pwx-badge[data-state=ready]')")
        shown.evaluate("() => document.querySelector('button[aria-label^=Example]').click()")
        shown.wait_for_function("() => document.querySelector('.pwx-best .pwx-percent')?.textContent")
        assert shown.evaluate("() => document.querySelector('.pwx-best .pwx-percent').textContent") == likeliest(tmp_path)


@pytest.mark.browser
def test_text_and_files_in_many_pieces(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PIECE", 4000)
    node, value = helper.make_node, helper.make_tensor_value_info
    ids = [value(name, TensorProto.INT64, ["batch", "seq"]) for name in ("input_ids", "attention_mask", "same")]
    graph = helper.make_graph([node("Mul", ["input_ids", "attention_mask"], ["same"])], "words", ids[:2], ids[2:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "words.onnx")
    words = {w: i for i, w in enumerate(["[UNK]", "a", "quiet", "morning"])}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
    tokenizer = {"version": "1.0", "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    empty = dict.fromkeys(("truncation", "padding", "post_processor", "decoder"))
    path = Playground(tmp_path / "words.onnx", tokenizer={**empty, **tokenizer, "added_tokens": []}).save_html(tmp_path / "words.html")
    assert path.read_text().count('data-file="core.wasm"') > 50
    shown, told = opened(browser, path.as_uri())
    shown.get_by_label("Text for the model").fill("A quiet morning")
    expect(shown.get_by_text("3 tokens")).to_be_visible()
    expect(shown.get_by_role("group", name="same")).to_contain_text("[1, 3]")
    assert told == [path.as_uri()]
    shown.close()


def test_what_no_page_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="give the playground 'webgpu' or 'wasm'"):
        Playground(DIGITS, backends=["cpu"]).save_html(tmp_path / "page.html")
    assert "cpu" not in json.loads("".join(page_spec(Playground(DIGITS, backends=["cpu", "wasm"]), tmp_path)))["backends"]
    monkeypatch.setattr(page, "LARGEST", 1000)
    with pytest.raises(ValueError, match="a page holds at most 1,000"):
        Playground(DIGITS).save_html(tmp_path / "page.html")


def page_spec(playground: Playground, folder: Path) -> str:
    text = playground.save_html(folder / "page.html").read_text()
    return text.partition('id="spec">')[2].partition("</script>")[0]
