"""What the badge says is so, and no call hangs: reload, restart, other kernels, names, notebooks and clients; JupyterLab is real."""

import time
from collections.abc import Callable
from contextlib import suppress

from playwright.sync_api import Error, expect
from test_bridge import SETUP, Desk, badge, big, desk, expected, pytestmark, until, user  # noqa: F401

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
    begin = time.monotonic()
    assert second.run(1) == expected(1)
    assert time.monotonic() - begin < 12
    expect(badge(second)).to_contain_text("wasm · ")


def test_calls_of_a_page_survive_the_end_of_their_subshell(desk: Desk, expected: Callable[[int], str]) -> None:  # noqa: F811
    """JupyterLab deletes the subshell of the comms after a restart, by the count of those before it, and goes on naming it."""
    setup = SETUP.removesuffix("session.bridge\n") + "bridge = session.bridge\n"
    kill = """
thread = get_ipython().kernel.shell_channel_thread
ids = thread.manager.list_subshell()
for id in ids: thread.io_loop.add_callback(thread.manager._delete_subshell, id)
print(len(ids))
"""
    notebook = desk.open(kill, "from pyonnx_wasm.jupyter import Playground\nw = Playground(session)\nw", RUN, setup=setup)
    notebook.run(0)
    until(lambda: notebook.run(1) == "1")
    notebook.run(2)
    expect(notebook.output(2).locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    assert notebook.run(3) == expected(1)
