"""A JupyterLab with the model viewer, and the viewer in a page."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from pyonnx_wasm.testing.lab import CURRENT, Lab

ROOT = Path(__file__).parents[2]
EXTENSIONS = ROOT / "pyonnx_wasm" / "lib" / "labextension"


def viewer_lab(home: Path, server: bool = True) -> Lab:
    """A server that has the extension, and its server part unless told otherwise."""
    assert (EXTENSIONS / "pyonnx-wasm" / "package.json").exists(), "the extension is not built: make build"
    options = [f"--LabApp.extra_labextensions_path={EXTENSIONS}"]
    if server:
        options.append("--ServerApp.jpserver_extensions={'pyonnx_wasm.lab.server': True}")
    return Lab(home, options=options)


class Viewer:
    """A model that is open in a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    @classmethod
    def open(cls, lab: Lab, browser: Browser, name: str, theme: str = "light", size: tuple[int, int] = (1280, 800)) -> Viewer:
        """Opens a file by its path and waits until the graph or an error is shown."""
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        page.set_default_timeout(60_000)
        viewer = cls(page)
        page.goto(f"{lab.url}lab/workspaces/{secrets.token_hex(4)}/tree/{name}?token={lab.token}")
        expect(viewer.page.locator(".pw-viewer .pw-graph[data-boxes], .pw-viewer .pw-failed").first).to_be_attached(timeout=180_000)
        viewer.theme(theme)
        return viewer

    def theme(self, name: str) -> None:
        """Changes to the theme ``light`` or ``dark``."""
        self.page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", f"JupyterLab {name.capitalize()}")
        self.page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=str(name == "light").lower())

    def show(self, name: str) -> None:
        """Opens another file in the same page."""
        self.page.evaluate("async path => void (await jupyterapp.commands.execute('docmanager:open', { path }))", name)
        self.page.wait_for_function(f"path => {CURRENT}?.context?.path === path && {CURRENT}.context.isReady", arg=name)
        expect(self.panel(".pw-graph[data-boxes], .pw-failed").first).to_be_attached()

    def panel(self, selector: str) -> Locator:
        """Of the current document."""
        return self.page.locator(f".jp-MainAreaWidget:not(.lm-mod-hidden) .pw-viewer :is({selector})")

    @property
    def status(self) -> Locator:
        return self.panel(".pw-status")

    @property
    def boxes(self) -> int:
        return int(self.panel(".pw-graph").get_attribute("data-boxes") or 0)

    def tab(self, name: str) -> None:
        self.panel(".pw-tab").get_by_text(name, exact=True).click()

    def tool(self, name: str) -> None:
        self.panel(".pw-tool").get_by_text(name, exact=True).click()

    def place(self, name: str) -> dict[str, float] | None:
        """Where a node's or a group's box is on the page."""
        found: dict[str, float] | None = self.page.evaluate(f"name => {CURRENT}.content.place(name)", name)
        return found

    def placed(self, name: str, condition: str, arg: object = None) -> dict[str, float]:
        """Waits until a box is ``at`` a place of which a condition in JavaScript holds; where that is."""
        body = f"const at = {CURRENT}.content.place(name); return at && ({condition}) ? at : null;"
        found: dict[str, float] = self.page.wait_for_function(f"([name, arg]) => {{ {body} }}", arg=[name, arg]).json_value()
        return found

    def moved(self, name: str, before: dict[str, float], x: float, y: float) -> dict[str, float]:
        """Waits until a box has moved by so many pixels, and no further."""
        want = {"x": before["x"] + x, "y": before["y"] + y}
        self.settle()
        return self.placed(name, "Math.abs(at.x - arg.x) < 1 && Math.abs(at.y - arg.y) < 1", want)

    def settle(self) -> None:
        """Waits until no box is on its way."""
        expect(self.panel(".pw-graph:not([data-moving])")).to_be_attached()

    def click(self, name: str, double: bool = False) -> None:
        """On a node's or group's box."""
        at = self.place(name)
        assert at, f"{name} is not on show"
        (self.page.mouse.dblclick if double else self.page.mouse.click)(at["x"] + at["width"] / 2, at["y"] + min(at["height"] / 2, 12))

    def search(self, text: str) -> None:
        self.panel(".pw-search input").fill(text)

    def pixels(self) -> Sequence[int]:
        """Mean red, green, blue of the canvas, and how many colours it has."""
        found: list[int] = self.page.evaluate(
            """canvas => {
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              const sum = [0, 0, 0], seen = new Set();
              for (let k = 0; k < data.length; k += 4) {
                for (let c = 0; c < 3; c++) sum[c] += data[k + c];
                seen.add((data[k] << 16) | (data[k + 1] << 8) | data[k + 2]);
              }
              return [...sum.map((s) => Math.round((4 * s) / data.length)), seen.size];
            }""",
            self.panel(".pw-graph").element_handle(),
        )
        return found
