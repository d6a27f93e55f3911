"""A conversation in the browser: the words that Python would write, stop, another answer, a system prompt, and Python's side of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from desk import ROOT, Desk, alert, widget
from gguf_models import Tiny, talking
from playwright.sync_api import Locator, expect
from waiting import until

from pyonnx_wasm.generate import Generator
from pyonnx_wasm.jupyter import Chat

HOW = {"max_new_tokens": 12, "temperature": 0.9, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.2, "seed": 2}
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talking(tmp_path_factory.mktemp("chat") / "tiny.gguf", context=4096, layers=1)


def answer(model: Path, *said: str, system: str = "", **settings: Any) -> str:
    """What Python writes: the user and the model speak by turns."""
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(said)]
    head = [{"role": "system", "content": system}] if system else []
    generator = Generator(model)
    generator.ends = frozenset()
    return generator([*head, *messages], **(HOW | settings))


def said(view: Locator) -> list[str]:
    return view.locator(".pwx-said").all_inner_texts()


def test_a_conversation(desk: Desk, model: Path) -> None:
    notebook = desk.open(
        f"""from pyonnx_wasm.generate import Generator
g = Generator({str(model)!r})
g.ends = frozenset()
w = Chat(g, settings={HOW!r}, system='be a cat')
w""",
        "[m['role'] for m in w.messages], w.value == w.messages[-1]['content'], w.messages[-1]['content']",
        "await w.ask('and a dog')",
        "w.system = ''; w.messages = [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'yes'}]",
        "await w.result(), w.messages[-1], w.system",
        "w.settings = {'max_new_tokens': 4000, 'seed': 1}",
        "w.settings = {'colour': 1}",
        "w.messages = [{'role': 'robot', 'content': ''}]",
    )
    view = widget(notebook)
    text, log = view.get_by_label("Message", exact=True), view.get_by_role("log")
    expect(log).to_contain_text("Nothing has been said yet.")
    expect(view.get_by_role("button", name="Another answer")).to_be_disabled()
    text.fill("the cat")
    text.press("Shift+Enter")
    expect(text).to_have_value("the cat\n")
    text.fill("the cat sat.")
    text.press("Enter")
    first = answer(model, "the cat sat.", system="be a cat")
    expect(view.locator(".pwx-assistant .pwx-said")).to_have_text(first, use_inner_text=False)
    expect(view.locator(".pwx-status")).to_contain_text("tokens, ")
    expect(text).to_have_value("")
    until(lambda: notebook.run(1) == repr((["user", "assistant"], True, first)))  # what is said travels to the kernel
    second = answer(model, "the cat sat.", first, "and a dog", system="be a cat")
    assert notebook.run(2) == repr(second)
    expect(view.locator(".pwx-said")).to_have_count(4)

    notebook.run(3)
    expect(view.locator(".pwx-said")).to_have_text(["hi", "yes"])
    view.get_by_role("button", name="Another answer").click()
    other = answer(model, "hi")
    expect(view.locator(".pwx-assistant .pwx-said")).to_have_text(other, use_inner_text=False)
    assert notebook.run(4) == repr((other, {"role": "assistant", "content": other}, ""))
    view.locator("summary").click()
    view.get_by_label("What the model is told first").fill("purr")
    view.get_by_label("What the model is told first").blur()
    view.get_by_role("button", name="Another answer").click()
    expect(view.locator(".pwx-assistant .pwx-said")).to_have_text(answer(model, "hi", system="purr"), use_inner_text=False)

    notebook.run(5)
    view.get_by_role("button", name="New chat").click()
    expect(text).to_be_focused()
    text.fill("go on")
    view.get_by_role("button", name="Send").click()
    stop = view.get_by_role("button", name="Stop")
    expect(stop).to_be_enabled()
    expect(log).to_have_attribute("aria-busy", "true")
    stop.click()
    expect(stop).to_be_disabled()
    expect(view.locator(".pwx-status")).to_contain_text("stopped")
    assert "settings ['colour'] are not known" in notebook.run(6)
    assert "messages[0] must have a role" in notebook.run(7)
    assert alert(view).is_hidden()


def test_what_goes_wrong_is_told_and_nothing_is_lost(desk: Desk, model: Path) -> None:
    """A template that fails or does not parse; without one the model goes on with the text."""
    bare = Tiny("Q8_0", words=33, layers=1, context=256).write(desk.models / "bare.gguf")
    tokenizer = desk.models / "letters.json"
    tokenizer.write_text(Generator(model).tokenizer.to_str())
    notebook = desk.open(
        f"w = Chat({str(model)!r}, template=\"{{{{ raise_exception('no cats') }}}}\")\nw",
        f"v = Chat({str(model)!r}, template='{{% for %}}')\nv",
        f"u = Chat({str(bare)!r}, tokenizer={str(tokenizer)!r}, settings={HOW | {'seed': 4}!r})\nu",
        f"Chat({str(bare)!r})",
    )
    view = widget(notebook)
    view.get_by_label("Message", exact=True).fill("a cat")
    view.get_by_role("button", name="Send").click()
    expect(alert(view)).to_contain_text("no cats")
    assert said(view) == ["a cat"]
    notebook.run(1)
    expect(alert(widget(notebook, 1))).to_contain_text("the chat template does not parse")
    notebook.run(2)
    plain = widget(notebook, 2)
    plain.get_by_label("Message", exact=True).fill("the cat")
    plain.get_by_role("button", name="Send").click()
    want = Generator(bare, Generator(model).tokenizer)("the cat", **(HOW | {"seed": 4}))
    assert len(want) > 4
    expect(plain.locator(".pwx-assistant .pwx-said")).to_have_text(want, use_inner_text=False)
    expect(plain.locator("summary")).to_have_count(0)
    assert "a chat needs a tokenizer" in notebook.run(3)


def test_what_is_said_gets_into_the_notebook_only_where_it_is_asked_for(desk: Desk, model: Path) -> None:
    """As a picture, with the text beside it; a chat that begins anew takes both away. The system prompt is in neither."""
    chat = f"Chat({str(model)!r}, settings={HOW!r}, system='purrs'"
    notebook = desk.open(f"w = {chat})\nw", f"v = {chat}, still=True)\nv")
    notebook.run(1)

    def kept(cell: int) -> str:
        return "".join(str(o["data"].get("text/plain")) for o in notebook.outputs(cell) if "image/png" in o.get("data", {}))

    for cell, word in ((0, "a cat"), (1, "a dog")):  # the one that keeps a picture last: when it has one, the other would have
        view = widget(notebook, cell)
        view.get_by_label("Message", exact=True).fill(word)
        view.get_by_role("button", name="Send").click()
        expect(view.locator(".pwx-status")).to_contain_text("tokens, ")
    until(lambda: "You: a dog\n\nModel: " in kept(1))
    notebook.save()
    saved = [cell["outputs"] for cell in json.loads(desk.path.read_text())["cells"]]
    assert "image/png" not in json.dumps(saved[0])
    assert "a dog" in json.dumps(saved[1])
    assert not any(text in json.dumps(saved) for text in ("a cat", "purrs"))
    widget(notebook, 1).get_by_role("button", name="New chat").click()
    until(lambda: kept(1).endswith("0 messages"))


def test_what_is_given(model: Path) -> None:
    chat = Chat(model, messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], settings={"seed": 3})
    assert chat.value == "b"
    assert repr(chat) == "Chat with tiny.gguf: 2 messages"
    assert chat.settings["seed"] == 3
    assert json.loads(json.dumps(chat.get_state(["messages", "system", "settings"])))["settings"]["max_new_tokens"] == 256
    assert chat.spec["hints"]["context_length"] == 4096
    for wrong, message in (({"temperature": -1}, "temperature is -1"), ({"max_new_tokens": 0}, "max_new_tokens is 0")):
        with pytest.raises(ValueError, match=message):
            chat.settings = wrong
    with pytest.raises(ValueError, match="in the kernel a Generator writes"):
        Chat(model, backends=["cpu"])


def test_for_everyone(desk: Desk, model: Path) -> None:
    """Nothing that axe-core finds serious in either theme; nothing sticks out of a narrow notebook."""
    talk = [{"role": r, "content": f"{r} says {'a long sentence ' * 6}{n}"} for n in range(6) for r in ("user", "assistant")]
    notebook = desk.open(f"w = Chat({str(model)!r}, messages={talk!r}, system='purr')\nw")
    view, page = widget(notebook), notebook.page
    page.evaluate((ROOT / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8"))
    found = """async () => (await axe.run(".pwx-chat", { resultTypes: ["violations"] })).violations
        .filter(({ impact }) => impact !== "minor").map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 120)}`)"""
    for theme in ("dark", "light"):
        notebook.theme(theme)
        assert page.evaluate(found) == []
    log = view.get_by_role("log")
    assert log.evaluate("e => e.scrollHeight - e.scrollTop - e.clientHeight") <= 1, "the last message is in view"
    for width in (340, 700):
        view.evaluate("(element, width) => { element.style.width = `${width}px`; }", width)
        outside = """element => [...element.querySelectorAll("*")].filter((e) => !e.closest("svg, .pwx-log > *")
            && e.getBoundingClientRect().right > element.getBoundingClientRect().right + 1).map((e) => e.className)"""
        assert view.evaluate(outside) == []
