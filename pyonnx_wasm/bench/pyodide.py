"""Compiling and running inside Pyodide, in Chromium; each model in a fresh worker or page."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..interface import signatures
from ..pending import declared
from ..testing import pyodide
from ..testing.chromium import launch_options
from . import report
from .cases import Case

DEFAULT = (Path("js/pages/digits/digits.onnx"), Path("build/models/minilm.onnx"))
MEASURE = """
import time
def clock(): return time.perf_counter() * 1e3
class Timed(dict):
    def __call__(self, name, fn):
        start = clock()
        value = fn()
        self[name] = clock() - start
        return value
path = await fetched(given["path"])
timed = Timed()
def imported():
    global ort
    import pyonnx_wasm as ort
timed("import_ms", imported)
timed("compile_ms", lambda: ort.compile(path))
timed("compile_again_ms", lambda: ort.compile(path))
s = timed("create_ms", lambda: ort.InferenceSession(path))
feed = received(given["feed"])
timed("first_run_ms", lambda: s.run(None, feed))
runs = []
end = clock() + given["seconds"] * 1e3
while len(runs) < 3 or (clock() < end and len(runs) < given["runs"]):
    start = clock()
    s.run(None, feed)
    runs.append(clock() - start)
timed["run_ms"] = sorted(runs)[len(runs) // 2]
import pyodide_js
from pyonnx_wasm.runtimes import pyodide
timed["python_bytes"], timed["core_bytes"] = pyodide_js._module.HEAPU8.length, pyodide.memory_bytes()
timed
"""


class PyodideBench:
    """One Chromium and the wheel of this checkout.

    Raises:
        ValueError: Playwright or the built player is missing.
    """

    def __init__(self, browser: Any, wheel: Path, in_page: bool) -> None:
        self._browser, self._wheel, self._in_page = browser, wheel, in_page
        self.versions = {"chromium": browser.version, "wheel_bytes": str(wheel.stat().st_size)}

    def measure(self, case: Case, *, limits: report.Limits, tell: Callable[[str], None]) -> report.Row:
        """One row: milliseconds to import, to compile the model's file (first the operators are imported), to create a session, per run."""
        tell("start")
        mounts = {"/models/": case.path.parent}
        with pyodide.opened(self._browser, self._wheel, worker=not self._in_page, mounts=mounts) as python:
            tell("measure")
            feed = pyodide.encoded(case.feed(signatures(declared(case.path)[0])))
            given = {"path": f"models/{case.path.name}", "feed": feed, "runs": limits.runs, "seconds": limits.seconds}
            found = python.run(MEASURE, given)
        return {"case": case.name, "quantised": case.quantised, "agree": True, **{k: round(v, 2) for k, v in found.items()}}


@contextmanager
def opened(in_page: bool) -> Iterator[PyodideBench]:
    """Builds the wheel and launches Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise ValueError("a browser is driven with Playwright: pip install pyonnx-wasm[browser]") from error
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        try:
            wheel = pyodide.build_wheel(Path(folder))
        except RuntimeError as error:
            raise ValueError(str(error)) from None
        browser = playwright.chromium.launch(**launch_options())
        try:
            yield PyodideBench(browser, wheel, in_page)
        finally:
            browser.close()


def chosen() -> list[Case]:
    """The models that a checkout has, at their smallest sizes."""
    return [Case(path.stem, path, {"seq": 16}) for path in DEFAULT if path.exists()]


def render(rows: Sequence[report.Row]) -> list[str]:
    """The rows as a table."""
    columns = {
        "import_ms": "import ms",
        "compile_ms": "compile ms",
        "compile_again_ms": "again ms",
        "create_ms": "create ms",
        "first_run_ms": "first run ms",
        "run_ms": "run ms",
    }
    cells = [
        {
            "case": row["case"],
            **{title: report.milliseconds(row[key]) for key, title in columns.items()},
            "Python MiB": report.mebibytes(row["python_bytes"]),
            "core MiB": report.mebibytes(row["core_bytes"]),
        }
        for row in rows
    ]
    return [report.table(cells)] if cells else []
