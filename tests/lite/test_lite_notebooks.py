"""Every notebook runs in the JupyterLite site, from top to bottom, without an error."""

import json
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from onnx import ModelProto, helper
from playwright.sync_api import Browser, Page, Route, expect
from waiting import until

from pyonnx_wasm.generate import Generator
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing.lab import CURRENT, Notebook

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
LITE = ROOT / "build" / "lite"
START_MS = 180_000
# One that changes an operator of the standard is the last; first_steps and digits are run by the tests
# beside this one.
NOTEBOOKS = ("parity_and_profile", "torch_to_page", "semantic_search", "writing", "custom_operators")
CHAT = """
from pyonnx_wasm.generate import Template
told = Template("{% for m in messages %}{{ m.role }}: {{ m.content | tojson }}{% endfor %}")([{"role": "user", "content": "é"}])
assert told == 'user: "é"', told
assert [m["role"] for m in chat.messages] == ["user", "assistant"], chat.messages
"""


def exposed(route: Route) -> None:
    """The site's configuration, and what lets a test ask the application."""
    config = json.loads((LITE / "jupyter-lite.json").read_text())
    config["jupyter-config-data"]["exposeAppInBrowser"] = True
    route.fulfill(json=config)


def opened(page: Page, name: str, kernel: str | None) -> Notebook:
    """In the kernel of the notebooks before it, which saves its start."""
    given = {"path": name, **({"kernel": {"id": kernel}} if kernel else {})}
    page.evaluate("given => void jupyterapp.commands.execute('docmanager:open', given)", given)
    notebook = Notebook(page, name)
    page.wait_for_function(f"() => ['idle', 'busy'].includes({CURRENT}?.sessionContext?.session?.kernel?.status)", timeout=START_MS)
    notebook.ready()
    return notebook


def writes(page: Page) -> None:
    """The conversation in the page, which Python then knows of; and a template of chats."""
    chat = page.locator(".pwx").last
    chat.get_by_role("textbox", name="Message").fill("And Moses said")
    chat.get_by_role("textbox", name="Message").press("Enter")
    expect(chat.locator(".pwx-badge")).to_have_text("wasm · one thread", timeout=60_000)
    expect(chat.get_by_role("button", name="Another answer")).to_be_enabled(timeout=60_000)
    execute = f"code => {CURRENT}.sessionContext.session.kernel.requestExecute({{ code }}).done.then((r) => r.content)"
    reply: dict[str, str] = {}

    def known() -> bool:
        """What is said travels to the kernel."""
        reply.update(page.evaluate(execute, CHAT))
        return reply["status"] == "ok"

    with suppress(AssertionError):
        until(known)
    assert reply["status"] == "ok", reply


def test_each_runs_first_try(browser: Browser) -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == {*NOTEBOOKS, "first_steps", "digits"}
    with Server(LITE, isolated=False) as server:
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        context.route(f"{server.url}jupyter-lite.json*", exposed)
        elsewhere: list[str] = []
        context.on("request", lambda r: None if r.url.startswith((server.url, "blob:", "data:")) else elsewhere.append(r.url))
        context.set_default_timeout(120_000)
        page = context.new_page()
        page.goto(f"{server.url}lab/index.html")
        page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)", timeout=120_000)
        kernel = None
        texts: dict[str, list[str]] = {}
        for name in NOTEBOOKS:
            notebook = opened(page, f"{name}.ipynb", kernel)
            kernel = page.evaluate(f"{CURRENT}.sessionContext.session.kernel.id")
            notebook.run_all(300)
            cells = range(page.evaluate(f"{CURRENT}.content.model.cells.length"))
            shown = [k for k in cells if notebook.outputs(k)]  # of code; other cells have none
            texts[name] = [notebook.text(k) for k in shown]
            problems = [o for k in shown for o in notebook.outputs(k) if o["output_type"] == "error" or o.get("name") == "stderr"]
            assert not problems, (name, problems)
            if name == "parity_and_profile":
                expect(page.locator(".pwx-compare .pwx-times tbody tr", has_text="wasm")).to_contain_text("ms", timeout=60_000)
            if name == "writing":
                writes(page)
            page.evaluate(f"{CURRENT}.context.save().then(() => {CURRENT}.close())")
        assert elsewhere == []
        context.close()
    assert any(re.fullmatch(r"'(9\d\.\d|100\.0)% of 400'", text) for text in texts["torch_to_page"])
    how = {"max_new_tokens": 24, "seed": 1611}
    assert texts["writing"][0].startswith(Generator(ROOT / "js/pages/write/write.gguf")("In the beginning", **how) + "\n\n")
    assert "(120, 384)" in texts["semantic_search"]
    assert "bird" in texts["semantic_search"][2].lower()
    assert "no function is registered here to run it" in texts["custom_operators"][-1]
    assert all("False" not in text for text in texts["custom_operators"])


def test_models_are_written_as_onnx_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in for ``onnx.helper`` where there is none."""
    monkeypatch.syspath_prepend(ROOT / "notebooks")
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    import helper as own  # type: ignore[import-not-found]

    def made(h: object) -> bytes:
        call = lambda kind, *args, **kwargs: getattr(h, f"make_{kind}")(*args, **kwargs)  # noqa: E731
        table = call("tensor", "t", 1, [2], b"\0" * 8, raw=True)
        attributes = {"at": 2, "table": table, "mode": "plain", "beta": 2.0, "ints": [1, -2], "floats": [1.0, 0.5], "strings": ["a", "é"]}
        nodes = [call("node", "Split2", ["x", ""], ["y", "c"], name="n", domain="my.ops", **attributes)]
        opsets = [call("opsetid", "", 22), call("opsetid", "my.ops", 1)]
        inner = call("node", "Mul", ["a", "a"], ["c"])
        function = call("function", "my.ops", "P", ["a"], ["c"], [inner], opsets[:1])
        faces = [call("tensor_value_info", "x", 1, ["rows", 500])], [call("empty_tensor_value_info", "y")]
        graph = call("graph", nodes, "g", *faces, [call("tensor", "w", 7, [1, 2], b"\1" * 16, raw=True)])
        return bytes(call("model", graph, opset_imports=opsets, ir_version=10, functions=[function]).SerializeToString())

    assert ModelProto.FromString(made(own)) == ModelProto.FromString(made(helper))
