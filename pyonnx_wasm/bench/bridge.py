"""``pyonnx-wasm bench --bridge``: the line from a kernel through JupyterLab to the browser and back, on this machine."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    time.sleep(1)  # the page puts the file into its cache
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
    with tempfile.TemporaryDirectory(prefix="pyonnx-wasm-bench-") as home, Lab(Path(home, "lab")) as lab:
        lab.write("bench.ipynb", [""])
        with _page(f"{lab.url}lab/tree/bench.ipynb?token={lab.token}", Path(home, "profile")):
            text = _run(lab, [SETUP, MEASURE.format(trips=trips, repeat=repeat, mb=mb)])
    if not text.startswith("{"):
        raise RuntimeError(f"the bridge could not be measured: {text}")
    found: dict[str, Any] = json.loads(text)
    return found


@contextmanager
def _page(url: str, profile: Path) -> Iterator[None]:
    """Chromium with a page. Nothing is attached to it: tools that watch a page's network copy every byte."""
    options = chromium.launch_options()
    command = [options["executable_path"], *options["args"], "--headless", "--no-sandbox", f"--user-data-dir={profile}", url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _run(lab: Lab, cells: list[str]) -> str:
    """Runs cells in the kernel that the page started; what the last one printed."""
    from jupyter_client.blocking.client import BlockingKernelClient

    deadline = time.monotonic() + 60
    while not (sessions := lab.sessions()):
        if time.monotonic() > deadline:
            raise RuntimeError("Chromium did not open the notebook")
        time.sleep(0.2)
    client = BlockingKernelClient(connection_file=str(lab.home / "runtime" / f"kernel-{sessions[0]['kernel']['id']}.json"))
    client.load_connection_file()
    client.start_channels(hb=False)
    printed: list[str] = []

    def output(message: dict[str, Any]) -> None:
        content = message["content"]
        printed.append(content.get("text", "") if message["msg_type"] == "stream" else "".join(content.get("traceback", [])))

    try:
        client.kernel_info(reply=True, timeout=60)
        client.get_iopub_msg(timeout=60)
        for cell in cells:
            printed.clear()
            client.execute_interactive(cell, timeout=600, output_hook=output)
    finally:
        client.stop_channels()
    return "".join(printed)


def run(as_json: bool = False) -> None:
    """Measures and prints, beside what is required."""
    found = measure()
    if as_json:
        print(json.dumps(found))
        return
    print(f"1 KB there and back    {found['round_trip_ms']:6.1f} ms median   (at most {LIMITS['round_trip_ms']:.0f})")
    print(f"kernel to browser      {found['to_browser_mb_s']:6.0f} MB/s          (at least {LIMITS['to_browser_mb_s']:.0f})")
    print(f"browser to kernel      {found['from_browser_mb_s']:6.0f} MB/s          (at least {LIMITS['from_browser_mb_s']:.0f})")
