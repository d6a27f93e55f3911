"""A page or a browser that crashes costs one test another run, or its success."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from pyonnx_wasm.testing import chromium

pytest_plugins = ["tests.crashes"]

@pytest.fixture(scope="session")
def browser_type_launch_args():
    return chromium.launch_options()

@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page()
    yield page
    page.close()

@pytest.fixture(scope="module")
def run(page):
    page.evaluate("globalThis.opened = performance.timeOrigin")
    return page.evaluate
"""
TESTS = """
from contextlib import suppress

import pytest
from playwright.sync_api import Error

told = []

def test_before(run):
    told.append(run("opened"))

def test_a_page_is_kept(run):
    assert run("opened") == told[0]

def test_crash(run, page):
    with suppress(Error):
        page.goto("chrome://crash")
    run("opened")

crashes = []

def test_one_crash(run, page):
    if not crashes:
        crashes.append(True)
        test_crash(run, page)
    assert run("opened") != told[0]

def test_another_page(run):
    assert run("opened") != told[0]

def test_the_browser_ends(run, browser):
    session = browser.new_browser_cdp_session()
    session.send("Browser.crash")
    run("opened")

def test_another_browser(run):
    told.append(run("opened"))

@pytest.mark.parametrize("fails", [True, False])
def test_other_failures_keep_the_page(run, fails):
    assert run("opened") == told[-1]
    assert not fails
"""


def test_a_crash_is_of_the_test_that_it_happens_in(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    again = [option for option in pytestconfig.getini("addopts") if "rerun" in option]
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-q", *again, timeout=120)
    assert result.parseoutcomes() == {"passed": 6, "failed": 3, "rerun": 3}
    told = [line.partition("::")[2].split("[")[0] for line in result.outlines if line.startswith("RERUN")]
    assert told == ["test_crash", "test_one_crash", "test_the_browser_ends"]
    failed = [line.partition("::")[2].split(" ")[0].replace("chromium", "") for line in result.outlines if line.startswith("FAILED")]
    assert failed == ["test_crash[]", "test_the_browser_ends[]", "test_other_failures_keep_the_page[-True]"]
    assert sum("crashed or was closed in this test" in line for line in result.outlines) == 2
