"""The widgets in the JupyterLite site: the model goes from Python in a worker to the page, and runs there."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser
LITE = Path(__file__).parents[2] / "build" / "lite"
START_MS = 180_000
MORE = """
from IPython.display import display
from pyonnx_wasm.jupyter import Compare, Profile
result = await board.result()
print("read as", result["probabilities"].argmax())
display(Compare(model, dims={"batch": 4}), Profile(model, backends=("wasm",)))
"""


def draw_a_line(page: Page, board: Locator) -> None:
    board.scroll_into_view_if_needed()
    box = board.bounding_box()
    assert box
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + 0.15 * box["height"])
    page.mouse.down()
    page.mouse.move(middle, box["y"] + 0.85 * box["height"], steps=10)
    page.mouse.up()


def test_widgets_run_in_the_page_and_answer_the_kernel(browser: Browser) -> None:
    """A drawn digit is read in the page; its result reaches Python by the button, and a cell that awaits it."""
    assert (LITE / "extensions" / "anywidget" / "package.json").exists(), "the site is not built: make lite"
    with Server(LITE, isolated=False) as server:
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        context.set_default_timeout(120_000)
        page = context.new_page()
        errors: list[str] = []
        elsewhere: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        context.on("request", lambda r: None if r.url.startswith((server.url, "blob:", "data:")) else elsewhere.append(r.url))
        page.goto(f"{server.url}lab/index.html?path=digits.ipynb")
        page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for(timeout=START_MS)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()

        board = page.locator(".pwx").first
        expect(board.locator(".pwx-badge")).to_have_text("wasm · one thread", timeout=START_MS)
        said = page.locator(".widget-label")
        expect(said).to_have_text("Python has nothing yet", timeout=START_MS)
        draw_a_line(page, board.locator(".pwx-board"))
        expect(board.locator(".pwx-best .pwx-label")).to_have_text("1")
        board.get_by_role("button", name="Send to Python").click()
        expect(said).to_have_text(re.compile("Python has a 1, with [0-9]+%"))

        # The board's ink follows the theme.
        ink = "canvas => { const side = canvas.width; return canvas.getContext('2d').getImageData(side / 2, side / 2, 1, 1).data[0]; }"
        assert board.locator(".pwx-board").evaluate(ink) < 60
        page.get_by_role("menuitem", name="Settings", exact=True).click()
        page.get_by_text("Theme", exact=True).click()
        page.get_by_text("JupyterLab Dark", exact=True).click()
        page.wait_for_function(f"() => ({ink})(document.querySelector('.pwx-board')) > 200")

        # The last cell is selected: a new one below it.
        page.locator(".jp-CodeCell").last.locator(".jp-InputPrompt").click()
        page.keyboard.press("b")
        page.keyboard.press("Enter")
        page.keyboard.insert_text(MORE.strip())
        page.keyboard.press("Shift+Enter")
        expect(page.get_by_text("read as 1", exact=True)).to_be_visible()
        compare, profile = page.locator(".pwx").nth(1), page.locator(".pwx").nth(2)
        expect(compare.locator("tr", has_text="probabilities")).to_contain_text("same")
        expect(profile).to_contain_text("conv")
        expect(profile.locator(".pwx-badge")).to_have_text("wasm · one thread")
        assert not errors
        assert not elsewhere
        context.close()
