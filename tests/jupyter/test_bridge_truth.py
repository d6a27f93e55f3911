"""What the badge says is so, and no call hangs: reload, restart, other kernels, names, notebooks and clients; JupyterLab is real."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lab import Notebook
from playwright.sync_api import Browser, Error, expect
from test_bridge import CASES, SETUP, Desk, badge, big, desk, expected, pytestmark, until, user  # noqa: F401

RUN = "print(show(session.run(None, feed(1))))"
CURRENT = "jupyterapp.shell.currentWidget"


def test_a_reloaded_page_is_ready_before_any_run(desk: Desk, expected: Callable[[int], str]) -> None:  # noqa: F811
    notebook = desk.open(RUN)
    notebook.run_all()
    notebook.save()
    notebook.reload()
    expect(badge(notebook)).to_have_attribute("data-phase", "ready")
    expect(badge(notebook)).not_to_contain_text("connecting")
    assert notebook.run(1) == expected(1)
    expect(badge(notebook)).to_contain_text("wasm · ")


def test_a_renamed_notebook_goes_on(desk: Desk, expected: Callable[[int], str]) -> None:  # noqa: F811
    notebook = desk.open(RUN)
    notebook.run_all()
    notebook.page.evaluate(f"{CURRENT}.context.rename('renamed {notebook.name}')")
    assert notebook.run(1) == expected(1)
    expect(badge(notebook)).to_have_attribute("data-phase", "ready")
    expect(badge(notebook)).to_contain_text("wasm · ")


def test_another_kernel_has_another_bridge(desk: Desk, expected: Callable[[int], str]) -> None:  # noqa: F811
    notebook = desk.open(RUN)
    notebook.run_all()
    notebook.page.evaluate(f"{CURRENT}.sessionContext.changeKernel({{ name: 'python3' }})")
    expect(badge(notebook)).to_have_attribute("data-phase", "gone")
    expect(badge(notebook)).to_contain_text("run the notebook again")
    notebook.idle()
    notebook.run_all()
    assert notebook.text(1) == expected(1)
    expect(badge(notebook)).to_have_attribute("data-phase", "ready")


def test_a_page_that_is_killed_is_noticed(desk: Desk, expected: Callable[[int], str]) -> None:  # noqa: F811
    notebook = desk.open(RUN)
    notebook.run_all()
    notebook.save()
    second = desk.tab(notebook.name)
    expect(badge(second)).to_contain_text("stands by")
    with suppress(Error):
        notebook.page.goto("chrome://crash", timeout=3000)
    assert second.run(1) == expected(1)
    expect(badge(second)).to_contain_text("wasm · ")


def test_calls_of_a_page_survive_the_end_of_their_subshell(desk: Desk, expected: Callable[[int], str]) -> None:  # noqa: F811
    """JupyterLab deletes the subshell of the comms after a restart, by the count of those before it, and goes on naming it."""
    setup = SETUP.removesuffix("session.bridge\n") + "bridge = session.bridge\n"
    kill = """
thread = get_ipython().kernel.shell_channel_thread
ids = thread.manager.list_subshell()
for id in ids: thread.io_loop.add_callback(thread.manager._delete_subshell, id)
killed = globals().get("killed", 0) + len(ids)
print(killed > 0)
"""
    notebook = desk.open(kill, "from pyonnx_wasm.jupyter import Playground\nw = Playground(session)\nw", RUN, setup=setup)
    notebook.run(0)
    until(lambda: notebook.run(1) == "True")
    notebook.run(2)
    expect(notebook.output(2).locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    assert notebook.run(3) == expected(1)


def test_two_notebooks_and_a_second_client_of_one_kernel(desk: Desk, expected: Callable[[int], str], browser: Browser) -> None:  # noqa: F811
    """Two in one tab share its end of the bridge, and each shows its state; another browser stands by until that tab is closed."""
    first = desk.open(RUN)
    first.run_all()
    first.save()
    (session,) = desk.lab.sessions()
    kernel, page = session["kernel"]["id"], first.page
    path = desk.lab.write(f"beside {first.name}", ["session.bridge", RUN]).name
    open_it = "given => void jupyterapp.commands.execute('docmanager:open', given)"
    page.evaluate(open_it, {"path": path, "kernel": {"id": kernel}})
    second = Notebook(page, path)
    second.ready()
    assert [s["kernel"]["id"] for s in desk.lab.sessions()] == [kernel] * 2
    second.run(0)
    badges = page.locator(".pyonnx-badge")
    expect(badges).to_have_count(2)
    assert second.run(1) == expected(1)
    expect(badges.filter(has_text="wasm · ")).to_have_count(2)

    client = browser.new_context()
    third = desk.lab.open(client, first.name)
    third.find_widgets()
    assert {s["kernel"]["id"] for s in desk.lab.sessions()} == {kernel}
    expect(badge(third)).to_contain_text("stands by")
    assert third.run(1) == expected(1)
    expect(badge(third)).to_contain_text("stands by")
    expect(badges.filter(has_text="wasm · ")).to_have_count(2)

    second.save()
    page.evaluate(f"{CURRENT}.close()")
    first.ready()
    expect(badges).to_have_count(1)
    assert first.run(1) == expected(1)
    expect(badges).to_contain_text("wasm · ")
    page.close()
    assert third.run(1) == expected(1)
    expect(badge(third)).to_contain_text("wasm · ")
    client.close()


def test_the_badge_shows_what_runs_while_others_load(desk: Desk, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "loop.onnx"
    path.write_bytes(CASES["loop"][0])
    notebook = desk.open(
        f"loop = ort.InferenceSession({str(path)!r}, providers=['browser'])",
        "loop.run(None, {'n': np.array(1), 'x': np.ones(3, np.float32)}); session.run(None, feed(1))",
        f"big = ort.InferenceSession({str(desk.big)!r}, providers=['browser'])\n"
        "loop.run(None, {'n': np.array(1 << 50), 'x': np.ones(3, np.float32)})",
    )
    for cell in range(3):
        notebook.run(cell)
    kept = "caches.open('pyonnx_wasm').then(cache => cache.keys()).then(keys => keys.length)"
    before = notebook.page.evaluate(kept)
    notebook.run(3, wait=False)
    expect(badge(notebook)).to_have_attribute("data-phase", "running")
    badge(notebook).evaluate("""el => {
        window.seen = [];
        const note = () => window.seen.push([el.dataset.phase, el.innerText]);
        new MutationObserver(note).observe(el, { subtree: true, attributes: true, childList: true });
    }""")
    until(lambda: notebook.page.evaluate(kept) > before)
    assert all(phase == "running" and "loop.onnx" in text for phase, text in notebook.page.evaluate("window.seen"))
    notebook.interrupt()
    notebook.finish()
