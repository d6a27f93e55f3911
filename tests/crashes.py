"""A plugin of the tests: a browser or a page that crashes does not fail the tests behind the one that it crashed in.

Fixtures of modules and sessions keep pages for many tests. Where a test fails since its page, or the browser, is gone, they are taken
down behind it, so that the next test that asks for one opens it anew. That test is run once more, in another page (``--only-rerun`` in
``pyproject.toml``): a page can ask for what its process does not survive, but once in ten thousand tests a browser ends on its own. It is
told at the end; what crashes twice fails.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from _pytest.fixtures import FixtureDef
from playwright.sync_api import Browser, Error

GONE = ("Target crashed", "Page crashed", "has been closed", "Connection closed")
OPENERS = {"browser", "browser_type", "launch_browser"}
SAID = "The browser or a page of it crashed or was closed in this test; it is given another once, as are the tests behind it."
gone = pytest.StashKey[bool]()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_gone(error: BaseException) -> bool:
    """Whether it says that a page, its process or the browser is no more."""
    return any(isinstance(one, Error) and any(text in one.message for text in GONE) for one in _chain(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and is_gone(call.excinfo.value):
        item.stash[gone] = True
        report.sections.append(("Crash", SAID))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        yield
    finally:
        if item.stash.get(gone, False):
            _take_down(item)


def _take_down(item: pytest.Item) -> None:
    """Ends all that holds a page beyond a test, and what is made of it; what complains meanwhile was told by the test."""
    defined: dict[str, tuple[FixtureDef[object], ...]] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    for name, overrides in defined.items():
        for fixture in overrides:
            if fixture.cached_result is None or not (OPENERS & {name, *fixture.argnames}):
                continue
            value = fixture.cached_result[0]
            if name in ("browser_type", "launch_browser") or (isinstance(value, Browser) and name == "browser" and value.is_connected()):
                continue
            try:
                fixture.finish(item._request)  # type: ignore[attr-defined]
            except Exception as error:
                item.add_report_section("teardown", "crash", f"{name}: {error}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.write_line(f"RERUN {report.nodeid}: the browser or its page crashed", yellow=True)
