"""A real JupyterLab in a real browser, for tests and measurements.

    with Lab(tmp_path) as lab:                          # a server of its own: free port, token, empty settings
        lab.write("a.ipynb", ["x = 1", "x + 1"])        # or copy any file into lab.folder
        notebook = lab.open(browser, "a.ipynb")         # a page with the notebook and a running kernel
        notebook.run_all()
        assert notebook.text(1) == "2"

``Lab``: ``folder`` what it serves, ``url``, ``token``; ``write`` a notebook; ``open`` one in a page;
``sessions``; ``end_kernels``; ``close``.
``Notebook``: ``page`` (Playwright); ``run_all``, ``start`` (without waiting), ``finish``, ``run`` one cell, ``text``, ``outputs`` and
``output`` (an element) of a cell, ``execute`` a command, ``status``, ``idle``, ``interrupt``, ``restart``, ``save``, ``reload``,
``find_widgets``, ``theme``, ``close``. Pages of one browser context load JupyterLab faster than each in a context of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

ROOT = Path(__file__).parents[2]
QUIET = {"checkForUpdates": False, "fetchNews": "false", "doNotDisturbMode": True}
CURRENT = "jupyterapp.shell.currentWidget"
SHOWN = "[...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')].map(output => output.textContent)"
START_SECONDS = 180  # of a machine with much else to do
RELOADS = 5
STRAY = "No such comm"  # lines of ipykernel, of messages that were on their way from the page when the kernel closed their widget


class Lab:
    """A JupyterLab server.

    Args:
        home: an empty folder for what is served, settings and logs.
        pythonpath: put before the checkout on the kernels' path.
        environment: further variables of server and kernels.
        options: further options of the command line.
    """

    def __init__(
        self,
        home: Path,
        pythonpath: Sequence[Path | str] = (),
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.home, self.folder, self.token = home, home / "work", secrets.token_hex(16)
        self.folder.mkdir(parents=True)
        settings = home / "settings"
        _write_settings(settings, "notification", QUIET)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]  # another program may take it first: then the server takes one beside it
        self.settings = settings
        path = [*map(str, pythonpath), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]  # the package, if it is not installed
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(settings),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
            "IPYTHONDIR": str(home / "ipython"),
            **(environment or {}),
        }
        self._options = options
        self.log = home / "lab.log"

    def __enter__(self) -> Lab:
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"]
        command += [f"--ServerApp.port={self.port}", "--ServerApp.port_retries=50", "--ServerApp.ip=127.0.0.1"]
        command += [f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.folder}", *self._options]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, env=self._environment, cwd=self.folder, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()}")
            time.sleep(0.1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _answers(self) -> bool:
        about = self.home / "runtime" / f"jpserver-{self._process.pid}.json"
        try:
            self.port = json.loads(about.read_text())["port"]
            return "started" in self._api("status")
        except (OSError, ValueError):  # not written yet, or not to its end
            return False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def close(self) -> None:
        """Ends the server and its kernels."""
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def end_kernels(self) -> None:
        """Shuts down every kernel."""
        for kernel in {session["kernel"]["id"] for session in self.sessions()}:
            try:
                self._api(f"kernels/{kernel}", "DELETE")
            except urllib.error.HTTPError as error:
                if error.code != 404:  # it ended meanwhile
                    raise

    def sessions(self) -> list[dict[str, Any]]:
        """The open notebooks with their kernels, as Jupyter's REST interface gives them."""
        found: list[dict[str, Any]] = self._api("sessions")
        return found

    def _api(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"{self.url}api/{path}", method=method, headers={"Authorization": f"token {self.token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or "null")

    def write(self, name: str, cells: Sequence[str]) -> Path:
        """A notebook of code cells in the served folder."""
        empty: dict[str, Any] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        notebook = {
            "cells": [{**empty, "id": f"cell-{i}", "source": source} for i, source in enumerate(cells)],
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        path = self.folder / name
        path.write_text(json.dumps(notebook))
        return path

    def open(self, browser: Browser | BrowserContext, name: str, page: Page | None = None, theme: str = "light") -> Notebook:
        """Opens a notebook in a page of its own and waits for its kernel."""
        _write_settings(self.settings, "themes", {"theme": f"JupyterLab {theme.capitalize()}"})
        if page is None:
            page = browser.new_page()
            page.set_viewport_size({"width": 1100, "height": 800})
        page.set_default_timeout(60_000)
        workspace = secrets.token_hex(4)
        page.goto(f"{self.url}lab/workspaces/{workspace}/tree/{name}?token={self.token}", timeout=START_SECONDS * 1000)
        notebook = Notebook(page, name)
        notebook.ready()
        return notebook


class Notebook:
    """A notebook that is open in a page. Cells are counted from 0."""

    def __init__(self, page: Page, name: str) -> None:
        self.page, self.name = page, name

    def ready(self) -> None:
        """Waits until the notebook is shown and its kernel answers."""
        self.page.wait_for_function(
            f"""name => window.jupyterapp && {CURRENT}?.context?.path === name && {CURRENT}.context.isReady
            && {CURRENT}.content?.widgets?.length > 0 && {CURRENT}.sessionContext.isReady
            && ['idle', 'busy'].includes({CURRENT}.sessionContext.session?.kernel?.status)""",
            arg=self.name,
            timeout=START_SECONDS * 1000,
        )

    def start(self, command: str = "notebook:run-all-cells") -> None:
        """Runs a command without waiting for its end."""
        self.page.evaluate(
            "name => { window.running = name; void jupyterapp.commands.execute(name).finally(() => { window.running = ''; }); }",
            command,
        )

    def finish(self, timeout: float = 120) -> None:
        """Waits for the end of what ``start`` began."""
        self.page.wait_for_function("() => window.running === ''", timeout=timeout * 1000)

    def run_all(self, timeout: float = 120) -> None:
        """Runs all cells, as Run > Run All Cells does."""
        self.start()
        self.finish(timeout)

    def run(self, cell: int, timeout: float = 120, wait: bool = True) -> str:
        """Runs one cell; returns its text."""
        self.page.evaluate(f"cell => {{ {CURRENT}.content.deselectAll(); {CURRENT}.content.activeCellIndex = cell; }}", cell)
        self.start("notebook:run-cell")
        if not wait:
            return ""
        self.finish(timeout)
        return self.text(cell)

    def execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Runs one of JupyterLab's commands to its end."""
        return self.page.evaluate("([name, args]) => jupyterapp.commands.execute(name, args)", [command, dict(arguments or {})])

    def outputs(self, cell: int) -> list[dict[str, Any]]:
        """A cell's outputs as the notebook's file holds them."""
        found: list[dict[str, Any]] = self.page.evaluate(f"cell => {CURRENT}.content.model.cells.get(cell).toJSON().outputs", cell)
        return found

    def text(self, cell: int) -> str:
        """What a cell printed and returned; of an error, its name and message."""
        parts = []
        for output in self.outputs(cell):
            kind = output["output_type"]
            if kind == "stream":
                text = _joined(output["text"])
                if output["name"] == "stderr":
                    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(STRAY))
                # What asyncio says of ipykernel's own tasks while it collects garbage lands in whichever cell runs then.
                if output["name"] == "stdout" or (text and not text.startswith("Task was destroyed")):
                    parts.append(text)
            elif kind == "error":
                parts.append(f"{output['ename']}: {output['evalue']}")
            else:
                parts.append(_joined(output["data"].get("text/plain", "")))
        return "\n".join(part.rstrip("\n") for part in parts)

    def output(self, cell: int) -> Locator:
        """The element of a cell's outputs."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-OutputArea").first

    @property
    def status(self) -> str:
        """The kernel's: idle, busy, restarting, ..."""
        return str(self.page.evaluate(f"{CURRENT}.sessionContext.session?.kernel?.status ?? 'none'"))

    def interrupt(self) -> None:
        self.page.evaluate(f"{CURRENT}.sessionContext.session.kernel.interrupt()")

    def restart(self) -> None:
        """Restarts the kernel and waits for it."""
        self.page.evaluate(f"{CURRENT}.sessionContext.session.kernel.restart()")
        self.page.wait_for_function(f"() => {CURRENT}.sessionContext.session?.kernel?.status === 'idle'")

    def idle(self, timeout: float = 120) -> None:
        """Waits until the kernel has nothing to do."""
        self.page.wait_for_function(f"() => {CURRENT}.sessionContext.session?.kernel?.status === 'idle'", timeout=timeout * 1000)

    def save(self) -> None:
        """Saves the notebook: what a reloaded page shows is what was saved."""
        self.page.evaluate(f"{CURRENT}.context.save()")

    def reload(self, widgets: bool = True) -> None:
        """Reloads the page, as F5 does, and waits for the notebook and, unless told not to, its widgets."""
        self.page.reload()
        self.ready()
        if widgets:
            self.find_widgets()

    def find_widgets(self) -> None:
        """Waits until the widgets of a kernel that had them before have found their models.

        ipywidgets 8.1.9 gives a model 2 s to come and does not look again though it came meanwhile, as on a slow machine it may
        (https://github.com/jupyter-widgets/ipywidgets/issues/4026); then one has to reload, and so does this.
        """
        for _ in range(RELOADS):
            self.page.wait_for_function(f"() => !({SHOWN}).some(text => text.startsWith('Loading widget'))", timeout=START_SECONDS * 1000)
            if not self.page.evaluate(f"() => ({SHOWN}).some(text => text.includes('widget: model not found'))"):
                return
            self.page.reload()
            self.ready()

    def theme(self, name: str) -> None:
        """Changes to the theme ``light`` or ``dark``."""
        self.execute("apputils:change-theme", {"theme": f"JupyterLab {name.capitalize()}"})
        self.page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=str(name == "light").lower())

    def close(self) -> None:
        self.page.close()


def _write_settings(folder: Path, plugin: str, settings: Mapping[str, Any]) -> None:
    path = folder / "@jupyterlab" / "apputils-extension" / f"{plugin}.jupyterlab-settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
