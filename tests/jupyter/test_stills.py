"""The pictures that saved notebooks keep of widgets, against those in ``stills``: `python tests/jupyter/test_stills.py` writes these anew.

Fonts are drawn a little differently from one machine to the next, so pictures are compared at a quarter of their size: their sizes may
differ by 2 %, and at most 2 % of the pixels by more than 24 of 255 in any channel.
"""

import base64
import io
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from pyonnx_wasm.testing import chromium

HERE = Path(__file__).parent / "stills"
SCENES = {
    "chat": "stage.chat()",
    "profile": "stage.profile()",
    "compare": "stage.compare()",
    "photo": "stage.playground(['file', 'camera'])",
    "empty": "stage.playground(['file', 'camera'])",
    "drawing": "stage.playground(['draw', 'file'])",
}
LOOKS = ("light", "dark")
pytestmark = pytest.mark.browser


def stage(page: Page, script: Path, theme: str) -> None:
    """A page of the theme with every widget, each with its inputs given."""
    style = "body { --jp-layout-color1: #111; --jp-layout-color2: #222; --jp-ui-font-color1: #fff }" if theme == "dark" else ""
    attribute = f"data-jp-theme-light='{str(theme == 'light').lower()}'"
    page.set_content(f"<!doctype html><body {attribute}><style>{style} .pwx {{ max-width: 660px }}</style></body>")
    page.add_script_tag(path=script)
    page.add_style_tag(content=page.evaluate("stage.css"))
    for name, make in SCENES.items():
        page.evaluate(f"name => document.body.append(Object.assign({make}, {{ id: name }}))", name)
    page.locator("#chat .pwx-button:enabled", has_text="Send").wait_for()
    page.locator("#photo .pwx-example").click()
    page.locator("#photo .pwx-best .pwx-label").wait_for()
    page.locator("#compare .pwx-times tbody tr").nth(1).wait_for()
    board = page.locator("#drawing .pwx-board")
    board.focus()
    for _ in range(20):
        page.keyboard.press("Shift+ArrowDown")
    page.locator("#drawing .pwx-best .pwx-label").wait_for()
    board.blur()


def still(page: Page, name: str, look: str) -> Image.Image:
    address = page.evaluate("([name, look]) => stage.still(document.getElementById(name), look)", [name, look])
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGBA")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("stage"))


def built(folder: Path) -> Path:
    subprocess.run(["node", HERE / "bundle.mjs", folder], check=True)
    return folder / "stage.js"


@pytest.fixture(scope="module", params=LOOKS)
def page(request: pytest.FixtureRequest, browser: Browser, script: Path) -> Iterator[Page]:
    """In a theme of its own: pictures do not show which."""
    page = browser.new_page(viewport={"width": 900, "height": 700}, color_scheme=request.param)
    stage(page, script, request.param)
    yield page
    page.close()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", SCENES)
def test_pictures_are_as_they_were(page: Page, name: str, look: str) -> None:
    shown, wanted = still(page, name, look), Image.open(HERE / f"{name}-{look}.png").convert("RGBA")
    assert shown.width == wanted.width
    assert abs(shown.height - wanted.height) <= 0.02 * wanted.height
    small = [np.asarray(p.resize((wanted.width // 4, wanted.height // 4), Image.Resampling.BOX), np.int16) for p in (shown, wanted)]
    apart = (np.abs(small[0] - small[1]) > 24).any(-1).mean()
    assert apart <= 0.02, f"{100 * apart:.1f} % of the pixels differ"


@pytest.mark.parametrize("behind", [(255, 255, 255), (0, 0, 0)], ids=["white", "black"])
@pytest.mark.parametrize("look", LOOKS)
def test_text_is_readable_on_any_page(page: Page, look: str, behind: tuple[int, int, int]) -> None:
    """Around the rounded card nothing is painted; in it the look's own colours are, at least 4.5 to 1 apart."""
    shown = still(page, "profile", look)
    assert np.asarray(shown)[0, 0, 3] == 0
    on = Image.new("RGBA", shown.size, (*behind, 255))
    on.alpha_composite(shown)
    head = np.asarray(on)[14:64, 24:400, :3] / 255.0
    linear = np.where(head <= 0.04045, head / 12.92, ((head + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
    assert (linear.max() + 0.05) / (linear.min() + 0.05) > 4.5


def test_hidden_things_stay_hidden(page: Page) -> None:
    """A picture is not changed by what is hidden, nor by what cannot be pressed in it."""
    before = still(page, "photo", "light")
    page.evaluate(
        """() => {
          const add = (where, tag, properties) =>
            document.querySelector(`#photo ${where}`).append(Object.assign(document.createElement(tag), properties));
          add(".pwx-column", "h1", { hidden: true, textContent: "not to be seen" });
          add(".pwx-column", "img", { hidden: true, src: "data:," });
          add(".pwx-row", "button", { className: "pwx-button", textContent: "more" });
        }"""
    )
    assert np.array_equal(np.asarray(before), np.asarray(still(page, "photo", "light")))


def test_of_long_conversations_the_newest_is_shown(page: Page) -> None:
    """And never less than the last question with its answer, however long that is."""
    heights = []
    for length in (40, 4000):
        told = [{"role": role, "content": f"{n} " + "word " * length} for n in range(30) for role in ("user", "assistant")]
        page.evaluate("told => document.body.append(Object.assign(stage.chat(told), { id: 'long' }))", told)
        heights.append(still(page, "long", "light").height / 2)
        assert page.locator("#long .pwx-said").count() == 60
        page.locator("#long").evaluate("e => e.remove()")
    assert 1200 < heights[0] < 1800
    assert heights[1] > 4000


def main() -> None:
    import tempfile

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(**chromium.launch_options())
        page = browser.new_page(viewport={"width": 900, "height": 700})
        stage(page, built(Path(folder)), "light")
        for name in SCENES:
            for look in LOOKS:
                still(page, name, look).quantize(64).save(HERE / f"{name}-{look}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
