"""What axe-core finds in a page."""

from pathlib import Path

from playwright.sync_api import Page

AXE = (Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
# Levels A and AA of WCAG 2.2, and what axe itself holds for good practice.
RUN = """async (selector) => (await axe.run(selector ?? document, { resultTypes: ["violations"] })).violations
    .filter(({ impact }) => impact === "serious" || impact === "critical" || impact === "moderate")
    .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" | ")}`)"""


def complaints(page: Page, selector: str | None = None) -> list[str]:
    page.evaluate(AXE)
    found: list[str] = page.evaluate(RUN, selector)
    return found
