"""Runs every home, or those that are named, and tells what holds in each."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from pyonnx_wasm.testing import chromium
from pyonnx_wasm.testing.lab import Lab

from . import vscode

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "homes"
PACKAGES = ["notebook>=7.6,<8", "voila>=0.5,<0.6", "marimo>=0.20", "anywidget>=0.11,<0.12", "ipywidgets>=8.1,<9", "pillow", "onnx"]
DIGITS = str(ROOT / "js" / "pages" / "digits" / "digits.onnx")
PANEL = 'Image(Preprocess(trim=0.12, resize=(8, 8), filter="box", color="L", scale=16 / 255), sources=("file", "draw"))'
CELLS = [
    f"from pyonnx_wasm.jupyter import *\nw = Playground({DIGITS!r}, labels='0123456789', inputs={{'ink': {PANEL}}})\nw",
    f"View({DIGITS!r}, height=300)",
    f"Profile({DIGITS!r}, backends=['wasm'])",
    f"Compare({DIGITS!r}, backends=['cpu', 'wasm'])",
]
BRIDGE = f"""import numpy as np, pyonnx_wasm as ort
session = ort.InferenceSession({DIGITS!r}, providers=["browser"])
session.bridge"""
RUN = "print('ran', session.run(None, {'ink': np.zeros((2, 1, 8, 8), np.float32)})[0].shape)"
MARIMO = """import marimo
app = marimo.App()

@app.cell
def _():
    import marimo as mo
    import numpy as np
    import pyonnx_wasm as ort
    from pyonnx_wasm.jupyter import Compare, Image, Playground, Preprocess, Profile, View
    return Compare, Image, Playground, Preprocess, Profile, View, mo, np, ort

@app.cell
def _(Image, Playground, Preprocess, mo):
    w = mo.ui.anywidget(Playground({digits!r}, labels="0123456789", inputs={{"ink": {panel}}}, sync=True))
    w
    return (w,)

@app.cell
def _(View, mo):
    mo.ui.anywidget(View({digits!r}, height=300))
    return

@app.cell
def _(Compare, mo):
    mo.ui.anywidget(Compare({digits!r}, backends=["cpu", "wasm"]))
    return
"""


def python() -> Path:
    """The interpreter of the homes' own environment, which is made where it is missing."""
    found = FOLDER / "venv" / "bin" / "python"
    if not (FOLDER / "venv" / "bin" / "voila").exists():
        print("Installing Notebook, Voila and marimo into build/homes", flush=True)
        subprocess.run([sys.executable, "-m", "venv", FOLDER / "venv"], check=True)
        subprocess.run([found, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES, "numpy", "tqdm"], check=True)
    return found


@contextmanager
def served(folder: Path, command: Sequence[str | Path], path: str = "/") -> Iterator[str]:
    """The address of a server that runs until the end; ``{port}`` in the command becomes a free one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    homes = {name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **homes}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(c).format(port=port) for c in command], cwd=folder, stdout=log, stderr=log, env=environment)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 90
        while True:
            try:
                urllib.request.urlopen(address + path, timeout=60).read()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start:\n{(folder / 'log').read_text()[-4000:]}") from None
                time.sleep(0.3)
        yield address
    finally:
        process.terminate()
        process.wait(20)


def notebook_of(folder: Path, cells: Sequence[str]) -> None:
    empty: dict[str, object] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    content = [{**empty, "id": f"c{k}", "source": source} for k, source in enumerate(cells)]
    (folder / "a.ipynb").write_text(json.dumps({"cells": content, "metadata": spec, "nbformat": 4, "nbformat_minor": 5}))


def one(folder: Path) -> Path:
    """A picture of a 1."""
    ink = np.zeros((64, 64), np.uint8)
    ink[8:56, 28:36] = 255
    Image.fromarray(ink).save(folder / "one.png")
    return folder / "one.png"


def widgets(page: Page, folder: Path) -> None:
    """A playground that runs in the page, a viewer and a comparison that ask the kernel."""
    playground = page.locator(".pwx-playground")
    expect(playground.locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    playground.locator("input[type=file]").set_input_files(one(folder))
    expect(playground.locator(".pwx-best .pwx-label")).to_have_text("1")
    expect(page.locator(".pwx-view .pw-status")).to_contain_text("inferred shapes")
    expect(page.locator(".pwx-compare .pwx-good")).to_have_count(1)


def notebook7(browser: Browser, folder: Path) -> None:
    """Widgets, and runs of a session in the browser."""
    notebook_of(folder, [*CELLS, BRIDGE, RUN])
    command: list[str | Path] = [
        python(),
        "-m",
        "notebook",
        "--no-browser",
        "--allow-root",
        "--expose-app-in-browser",
        "--ServerApp.port={port}",
    ]
    with served(folder, [*command, "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"], "/api/status") as address:
        page = opened(browser, f"{address}/notebooks/a.ipynb")
        page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.sessionContext?.isReady", timeout=60_000)
        page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
        widgets(page, folder)
        expect(page.locator(".pwx-profile .pwx-status")).to_contain_text("median of")
        expect(page.get_by_text("ran (2, 10)")).to_be_visible()
        shot(page, "notebook7")


def voila(browser: Browser, folder: Path) -> None:
    """Widgets, and a run of a session in the browser, which a cell waits for while the page is made."""
    notebook_of(folder, [*CELLS])
    command: list[str | Path] = [python().with_name("voila"), "a.ipynb", "--no-browser", "--port={port}", "--Voila.ip=127.0.0.1"]
    with served(folder, command, "/voila/static/voila.js") as address:
        page = opened(browser, address)
        widgets(page, folder)
        expect(page.locator(".pwx-profile .pwx-status")).to_contain_text("median of")
        shot(page, "voila")


def marimo(browser: Browser, folder: Path) -> None:
    """Widgets by ``mo.ui.anywidget``."""
    (folder / "app.py").write_text(MARIMO.format(digits=DIGITS, panel=PANEL))
    command: list[str | Path] = [
        python().with_name("marimo"),
        "run",
        "app.py",
        "--headless",
        "--no-token",
        "--host=127.0.0.1",
        "--port={port}",
    ]
    with served(folder, command, "/health") as address:
        page = opened(browser, address)
        widgets(page, folder)
        shot(page, "marimo")


def vscode_(browser: Browser, folder: Path) -> None:
    """Widgets in the manager of VS Code's Jupyter extension, runs of a session in the browser, and kept pictures in VS Code's renderer."""
    options = chromium.launch_options()  # of a page that no server sent the browser does not know that it is local
    own = browser.browser_type.launch(**{**options, "args": [*options["args"], "--disable-features=LocalNetworkAccessChecks"]})
    with Lab(folder / "lab") as lab:
        for look in ("light", "dark"):
            page = vscode.page_of(own, folder, lab, look)
            assert vscode.run(page, CELLS) == [""] * len(CELLS)
            widgets(page, folder)
            expect(page.locator(".pwx-profile .pwx-status")).to_contain_text("median of")
            dark = page.locator(".pwx-playground").evaluate("e => getComputedStyle(e).backgroundColor")
            assert (dark == "rgb(31, 31, 31)") == (look == "dark"), "the widget has the colours of the editor"
            assert vscode.run(page, [BRIDGE, RUN]) == ["", "ran (2, 10)\n"]
            page.screenshot(path=FOLDER / f"vscode-{look}.png", full_page=True)
            vscode.pictures(page)
            page.close()
    own.close()


def opened(browser: Browser, address: str) -> Page:
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.set_default_timeout(60_000)
    page.on("console", lambda m: print(f"    page: {m.text[:300]}") if m.type == "error" else None)
    page.goto(address)
    return page


def shot(page: Page, name: str) -> None:
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True)
    page.close()


HOMES: dict[str, Callable[[Browser, Path], None]] = {"notebook7": notebook7, "voila": voila, "marimo": marimo, "vscode": vscode_}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("homes", nargs="*", choices=[*HOMES, []], help="default: all")
    chosen = parser.parse_args().homes or list(HOMES)
    if set(chosen) != {"vscode"}:
        python()
    FOLDER.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=60_000)
    failed = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium.launch_options())
        for name in chosen:
            begin = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    HOMES[name](browser, Path(folder))
                    print(f"{name}: passed, {time.monotonic() - begin:.0f} s", flush=True)
                except Exception as error:
                    failed += 1
                    told = re.sub(r"\s+", " ", str(error))[:600]
                    print(f"{name}: FAILED: {type(error).__name__}: {told}", flush=True)
        browser.close()
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
