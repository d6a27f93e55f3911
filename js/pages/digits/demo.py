"""The main job end to end: `make demo` runs handwritten digits through this page's player in headless Chromium."""

import argparse
import gzip
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyonnx_wasm import compile, save
from pyonnx_wasm.server import Server

HERE = Path(__file__).resolve().parent
SITE = HERE.parents[2] / "build" / "site"
MODEL = HERE / "digits.onnx"
REQUIRED = 0.98

EVALUATE = """
async ([images, count]) => {
  const { InferenceSession, Tensor } = await import(new URL("../player/index.mjs", document.baseURI).href);
  const session = await InferenceSession.create(new URL("digits.ponnx", document.baseURI).href);
  const classify = async (ink, batch) =>
    (await session.run({ ink: new Tensor("float32", ink, [batch, 1, 8, 8]) })).probabilities.data;
  const pixels = Float32Array.from(images);
  const [probabilities, times] = [[], []];
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    probabilities.push(...(await classify(pixels.subarray(64 * i, 64 * (i + 1)), 1)));
    times.push(performance.now() - start);
  }
  const together = Array.from(await classify(pixels, count));
  const batches = [];
  for (let i = 0; i < 9; i++) {
    const start = performance.now();
    await classify(pixels, count);
    batches.push(performance.now() - start);
  }
  const { backend, threads } = session;
  await session.release();
  return { probabilities, together, times, batches, backend, threads };
}
"""


@dataclass
class Download:
    """A file of the page: bytes on the wire, and what they are after gzip."""

    path: str
    sent: int
    gzip: int


@dataclass
class Report:
    """What one run of the demo found; times are medians in milliseconds per image unless named otherwise."""

    images: int
    right: int
    single_ms: float
    batch_ms: float
    backend: str
    threads: int
    browser: str
    compile_seconds: float
    onnx_bytes: int
    ponnx_bytes: int
    downloads: list[Download]

    @property
    def accuracy(self) -> float:
        return self.right / self.images


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
    """The UCI handwritten digits that ship with scikit-learn.

    Returns images `[1797, 1, 8, 8]` (ink per cell, 0 to 16), labels `[1797]` and the mask of the 360 held-out images,
    every fifth one, that training never sees.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    images = data.images.astype(np.float32)[:, None]
    return images, data.target.astype(np.int64), np.arange(len(images)) % 5 == 0


def run(site: Path = SITE) -> Report:
    """Compiles the model into `site`, serves it and classifies the held-out images in Chromium."""
    compiled = site / "digits" / "digits.ponnx"
    start = time.perf_counter()
    save(compile(MODEL), compiled)
    compile_seconds = time.perf_counter() - start
    images, labels, held_out = digits()
    x, y = images[held_out], labels[held_out]
    with Server(site) as server:
        browser, found = evaluate(server.url + "digits/", x)
        downloads = measure(server)
    single, together = (np.reshape(found[key], (len(y), 10)) for key in ("probabilities", "together"))
    if not np.allclose(single, together, rtol=1e-4, atol=1e-5):
        raise AssertionError("a batch gives other probabilities than its images one by one")
    return Report(
        images=len(y),
        right=int(np.sum(single.argmax(1) == y)),
        single_ms=statistics.median(found["times"]),
        batch_ms=statistics.median(found["batches"]) / len(y),
        backend=found["backend"],
        threads=found["threads"],
        browser=browser,
        compile_seconds=compile_seconds,
        onnx_bytes=MODEL.stat().st_size,
        ponnx_bytes=compiled.stat().st_size,
        downloads=downloads,
    )


def evaluate(url: str, images: NDArray[np.float32]) -> tuple[str, dict[str, Any]]:
    """The browser's version and what `EVALUATE` returns for the images."""
    from playwright.sync_api import sync_playwright

    from pyonnx_wasm.testing.chromium import launch_options

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**launch_options())
        try:
            page = browser.new_page()
            page.goto(url)
            return browser.version, page.evaluate(EVALUATE, [images.ravel().tolist(), len(images)])
        finally:
            browser.close()


def measure(server: Server) -> list[Download]:
    """What the page fetched, each file once, in the order of the first request."""
    downloads: dict[str, Download] = {}
    for transfer in server.transfers:
        file = server.locate(transfer.path)
        file = file / "index.html" if file is not None and file.is_dir() else file
        if file is not None and transfer.path not in downloads and transfer.sent:
            downloads[transfer.path] = Download(transfer.path, transfer.sent, len(gzip.compress(file.read_bytes(), 9)))
    return list(downloads.values())


def summary(report: Report) -> str:
    threads = "one thread" if report.threads == 1 else f"{report.threads} threads"
    names = [d.path + "index.html" if d.path.endswith("/") else d.path for d in report.downloads]
    width = max(map(len, names))
    rows = [(name, d.sent, d.gzip) for name, d in zip(names, report.downloads, strict=True)]
    rows.append(("in all", sum(r[1] for r in rows), sum(r[2] for r in rows)))
    lines = [
        f"Handwritten digits, {report.images} held out from training, in headless Chromium {report.browser}",
        "",
        f"  compiled   digits.onnx {report.onnx_bytes:,} bytes → digits.ponnx {report.ponnx_bytes:,} in {report.compile_seconds:.2f} s",
        f"  accuracy   {report.accuracy:.4f} ({report.right} of {report.images} right)",
        f"  speed      {report.single_ms:.2f} ms per image one at a time, {report.batch_ms:.3f} ms in one batch of {report.images}",
        f"  backend    {report.backend}, {threads}",
        "",
        f"  {'downloaded':{width}}  {'bytes':>9}  {'gzip':>9}",
        *(f"  {name:{width}}  {sent:9,}  {small:9,}" for name, sent, small in rows),
        "",
        "  Draw your own: make serve, then http://127.0.0.1:8000/",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python js/pages/digits/demo.py", description=__doc__)
    parser.add_argument("--site", type=Path, default=SITE, help="the built pages (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args()
    if not (options.site / "digits" / "index.html").exists():
        print(f"{options.site} holds no pages: run `make site` first", file=sys.stderr)
        return 2
    report = run(options.site)
    print(json.dumps({**asdict(report), "accuracy": report.accuracy}) if options.json else summary(report))
    if report.accuracy < REQUIRED:
        print(f"accuracy {report.accuracy:.4f} is below {REQUIRED}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
