"""A model larger than 4 GB in Chromium: how long it takes to load and to run, and whether its results are right.

Its weights are one deterministic pattern that a server writes as it is asked, in two files: nothing of their size lies on a disk.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from .. import compiler
from ..program import file as ponnx
from ..server import Server
from . import report
from .web import HERE, PLAYERS, peak_of

SIDE = 4096  # of each weight, float32: 64 MB
WEIGHT_BYTES = 4 * SIDE * SIDE
PERIOD = 1_000_003  # floats, a prime: no two weights are alike
SHIFT = 123_457  # of the second file against the first
RUNS = 5
MEASURE = """async ([model, files, x, threads, runs]) => {
  const { InferenceSession, Tensor, env } = await import("/ours/index.mjs");
  env.wasm.numThreads = threads;
  let last = {};
  const start = performance.now();
  const session = await InferenceSession.create(model, {
    externalData: files.map((path) => ({ path, data: new URL(path, model).href })),
    onProgress: (progress) => (last = progress),
  });
  const load = performance.now() - start;
  const feeds = { x: new Tensor("float32", Float32Array.from(x), [1, x.length]) };
  const times = [];
  let y;
  for (let i = 0; i < runs; i++) {
    const begin = performance.now();
    ({ y } = await session.run(feeds));
    times.push(performance.now() - begin);
  }
  const memory = await session.memoryBytes();
  const cores = performance.getEntriesByType("resource").map(({ name }) => name.split("/").pop()).filter((name) => name.endsWith(".wasm"));
  return { load, times, memory, bytes: last.total, y: [...y.data], cores, threads: session.threads };
}"""


def pattern() -> np.ndarray:
    """The floats that all weights are cut from, ``(PERIOD,)``, within 1/64 of 0."""
    numbers: np.ndarray = np.random.default_rng(0).uniform(-1 / 64, 1 / 64, PERIOD).astype(np.float32)
    return numbers


def weight(numbers: np.ndarray, file: int, place: int) -> np.ndarray:
    """The weight that lies at ``place`` of a file, ``(SIDE, SIDE)``."""
    first = file * SHIFT + place * SIDE * SIDE
    return np.resize(np.roll(numbers, -(first % PERIOD)), (SIDE, SIDE))


def model(weights: int, folder: Path) -> tuple[Path, list[str]]:
    """Compiles ``y = sum of x @ w_k``; returns the compiled file, which holds no weights, and the names of those that do."""
    from onnx import TensorProto, helper

    half = (weights + 1) // 2
    files = ["weights-0.bin", "weights-1.bin"]
    initializers = []
    for k in range(weights):
        tensor = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE], data_location=TensorProto.EXTERNAL)
        told = {"location": files[k // half], "offset": (k % half) * WEIGHT_BYTES, "length": WEIGHT_BYTES}
        for key, value in told.items():
            tensor.external_data.add(key=key, value=str(value))
        initializers.append(tensor)
    for name in files:
        with open(folder / name, "wb") as file:
            file.truncate(half * WEIGHT_BYTES)  # without a byte on the disk
    nodes = [helper.make_node("MatMul", ["x", f"w{k}"], [f"y{k}"]) for k in range(weights)]
    nodes.append(helper.make_node("Sum", [f"y{k}" for k in range(weights)], ["y"]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", SIDE]) for name in "xy")
    source = helper.make_model(helper.make_graph(nodes, "big", [x], [y], initializers), opset_imports=[helper.make_opsetid("", 20)])
    path = folder / "big.onnx"
    path.write_bytes(source.SerializeToString())
    ponnx.save(compiler.compile(path), path.with_suffix(".ponnx"), thin=True)
    return path.with_suffix(".ponnx"), files


@contextmanager
def served(compiled: bytes, numbers: np.ndarray, sizes: dict[str, int]) -> Iterator[str]:
    """Serves a compiled model and the files of its weights; yields the address of the folder."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name = self.path.strip("/")
            size = sizes.get(name, len(compiled))
            self.send_response(200)
            for header, value in (
                ("Content-Length", str(size)),
                ("Access-Control-Allow-Origin", "*"),
                ("Cross-Origin-Resource-Policy", "cross-origin"),
                ("Cache-Control", "no-store"),
            ):
                self.send_header(header, value)
            self.end_headers()
            with suppress(ConnectionError):
                if name not in sizes:
                    self.wfile.write(compiled)
                    return
                cycle = memoryview(np.roll(numbers, -(list(sizes).index(name) * SHIFT % PERIOD)).tobytes())
                for left in range(size, 0, -len(cycle)):
                    self.wfile.write(cycle[:left])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def expected(numbers: np.ndarray, weights: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum in float64, and that of the terms' magnitudes."""
    half = (weights + 1) // 2
    y, scale = np.zeros(SIDE), np.zeros(SIDE)
    for k in range(weights):
        w = weight(numbers, k // half, k % half).astype(np.float64)
        y += x @ w
        scale += np.abs(x) @ np.abs(w)
    return y, scale


def measure(gigabytes: float, threads: int) -> dict[str, Any]:
    """Loads and runs the model.

    Raises:
        ValueError: the player or Playwright is missing, or the results are wrong.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise ValueError("a browser is driven with Playwright: pip install pyonnx-wasm[browser]") from error
    from ..testing.chromium import launch_options

    player = next((p for p in PLAYERS if (p / "index.mjs").exists()), None)
    if player is None:
        raise ValueError("the player is not built: run `make build`")
    weights = max(2, round(gigabytes * 2**30 / WEIGHT_BYTES))
    numbers = pattern()
    x = np.random.default_rng(1).standard_normal(SIDE).astype(np.float32)
    with tempfile.TemporaryDirectory(prefix="pyonnx-wasm-bench-") as folder:
        path, files = model(weights, Path(folder))
        compiled, sizes = path.read_bytes(), {name: (Path(folder) / name).stat().st_size for name in files}
    with served(compiled, numbers, sizes) as address, Server({"/bench/": HERE, "/ours/": player}) as site, sync_playwright() as driver:
        browser = driver.chromium.launch(**launch_options())
        try:
            page = browser.new_page()
            page.set_default_timeout(0)
            page.goto(f"{site.url}bench/page.html")
            told = page.evaluate(MEASURE, [address + "big.ponnx", files, x.tolist(), threads, RUNS])
            peak = peak_of(browser)
            version = browser.version
        finally:
            browser.close()
    want, scale = expected(numbers, weights, x.astype(np.float64))
    off = float((np.abs(np.array(told["y"]) - want) / scale).max())
    if not off < 1e-6:
        raise ValueError(f"the results are wrong: {off:.1e} of the terms' magnitudes")
    return {
        "mode": "big",
        "machine": report.machine(),
        "versions": {"chromium": version},
        "weight_bytes": weights * WEIGHT_BYTES,
        "files": len(files),
        "threads": told["threads"],
        "cores": told["cores"],
        "load_ms": told["load"],
        "first_run_ms": told["times"][0],
        "run_ms": min(told["times"][1:]),
        "wasm_bytes": told["memory"],
        "peak_bytes": peak,
        "error": off,
    }


def run(gigabytes: float, threads: int, as_json: bool) -> None:
    """Measures and prints."""
    found = measure(gigabytes, threads)
    print(json.dumps(found) if as_json else render(found))


def render(found: dict[str, Any]) -> str:
    """The measurement as a person reads it."""
    size, seconds, runs = found["weight_bytes"], found["load_ms"] / 1e3, found["run_ms"]
    memory, peak = (report.mebibytes(found[key] or 0) for key in ("wasm_bytes", "peak_bytes"))
    return "\n".join(
        [
            f"Chromium {found['versions']['chromium']}, {found['threads']} thread(s), {', '.join(found['cores'])}",
            f"Weights: {size / 2**30:.2f} GB in {found['files']} files, loaded in {seconds:.1f} s ({size / seconds / 1e6:.0f} MB/s)",
            f"Run: first {found['first_run_ms']:.0f} ms, then {runs:.0f} ms ({size / runs / 1e6:.1f} GB/s of weights)",
            f"Memory: WebAssembly {memory} MiB, peak of the page {peak} MiB",
            f"Error: {found['error']:.0e} of the terms' magnitudes, against float64",
        ]
    )
