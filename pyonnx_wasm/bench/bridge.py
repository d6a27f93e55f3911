"""``pyonnx-wasm bench --bridge``: the line from a kernel through JupyterLab to the browser and back, on this machine."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ..testing import chromium
from ..testing.lab import Lab

LIMITS = {"round_trip_ms": 15.0, "to_browser_mb_s": 150.0, "from_browser_mb_s": 60.0}
SETUP = """
import json, time
import numpy as np
from pyonnx_wasm.jupyter import feed
from pyonnx_wasm.jupyter.bridge import bridge
from pyonnx_wasm.jupyter.wait import wait
rpc = bridge().rpc
bridge().widget
"""
MEASURE = """
def timed(call):
    begin = time.perf_counter()
    reply = wait(call())
    return time.perf_counter() - begin, reply

kilobyte = np.zeros(1024, np.uint8)
trips = [timed(lambda: rpc.call("echo", None, [kilobyte]))[0] * 1e3 for _ in range({trips} + 10)][10:]
up, down = [], []
for k in range({repeat}):
    blob = feed.Blob(feed.Bytes(np.random.default_rng(k).integers(0, 256, {mb} << 20, np.uint8).tobytes()))
    seconds, reply = timed(lambda: rpc.call("fetch", blob.ref))
    assert reply.json["bytes"] == blob.nbytes
    up.append(blob.nbytes / seconds / 1e6)
    seconds, reply = timed(lambda: rpc.call("produce", {{"bytes": {mb} << 20}}))
    down.append(len(reply.buffers[0]) / seconds / 1e6)
print(json.dumps({{"round_trip_ms": float(np.median(trips)), "to_browser_mb_s": max(up), "from_browser_mb_s": max(down),
                  "all": {{"round_trip_ms": trips, "to_browser_mb_s": up, "from_browser_mb_s": down}}}}))
"""


def measure(trips: int = 200, repeat: int = 5, mb: int = 128) -> dict[str, Any]:
    """Medians and rates, with ``all`` single ones.

    Args:
        trips: calls with 1 KB in and out.
        repeat: transfers each way, of which the best counts: other work on the machine only ever slows them.
        mb: size of a transfer.
    """
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="pyonnx-wasm-bench-") as home, Lab(Path(home, "lab")) as lab, sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium.launch_options())
        try:
            lab.write("bench.ipynb", [SETUP, MEASURE.format(trips=trips, repeat=repeat, mb=mb)])
            notebook = lab.open(browser, "bench.ipynb")
            notebook.run_all(timeout=600)
            text = notebook.text(1)
        finally:
            browser.close()
    if not text.startswith("{"):
        raise RuntimeError(f"the bridge could not be measured: {text}")
    found: dict[str, Any] = json.loads(text)
    return found


def run(as_json: bool = False) -> None:
    """Measures and prints, beside what is required."""
    found = measure()
    if as_json:
        print(json.dumps(found))
        return
    print(f"1 KB there and back    {found['round_trip_ms']:6.1f} ms median   (at most {LIMITS['round_trip_ms']:.0f})")
    print(f"kernel to browser      {found['to_browser_mb_s']:6.0f} MB/s          (at least {LIMITS['to_browser_mb_s']:.0f})")
    print(f"browser to kernel      {found['from_browser_mb_s']:6.0f} MB/s          (at least {LIMITS['from_browser_mb_s']:.0f})")
