"""transformers.js on this package beside transformers.js on onnxruntime-web: every pipeline, dtype of the hub and device.

`python -m tests.packaging.pairs` prints a line for each, as it goes; names of pipelines, `--dtype` and `--device` choose some.
"""

from __future__ import annotations

import argparse
import logging
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

import pyonnx_wasm
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium, pyodide

from .conftest import install
from .transformers_js import variants

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "transformers_js"
ONNXRUNTIME = ROOT / "node_modules" / "onnxruntime-web"
INDEX = '<!doctype html><link rel="icon" href="data:,"><title>transformers.js</title>'
START = """async (models) => {
  const [ours, theirs] = await Promise.all([import("/ours.js"), import("/theirs.js")]);
  ours.env.localModelPath = models;
  ours.env.backends.onnx.pyodide.indexURL = "/pyodide/";
  theirs.env.localModelPath = "/hub/";
  Object.assign(theirs.env.backends.onnx.wasm, { wasmPaths: "/ort/", numThreads: 1 });
  Object.assign(window, { ours, theirs });
}"""
RUN = "([library, name, options]) => window[library].run(name, options)"
TIMED = """async ([library, name, options]) => {
  const start = performance.now();
  const told = await window[library].run(name, options).then(
    (value) => ({ value }),
    (error) => ({ error: String(error?.message ?? error) }),
  );
  const took = (performance.now() - start) / 1000;
  await window[library].dispose().catch(() => {});
  return { ...told, took };
}"""

NAMES = (
    "feature extraction",
    "text generation",
    "text generation, sampled",
    "logits",
    "fill mask",
    "token classification",
    "text classification",
    "zero-shot classification",
    "image classification",
    "image segmentation",
    "depth estimation",
    "object detection",
    "zero-shot image classification",
    "background removal",
    "speech recognition",
    "speech logits",
    "text to speech",
)
HALVES = ("fp16", "q4f16")
DTYPES = ("fp32", "q8", "int8", "uint8", "q4", "bnb4", *HALVES)
DEVICES = ("wasm", "webgpu")
#: What says nothing, and why.
MOOT = {
    **dict.fromkeys([("text generation, sampled", dtype) for dtype in HALVES], "a sample turns on the last bits of halves"),
    ("speech recognition", "q4f16"): "two of this model's words are as likely but for the last bits of halves: see its logits",
    **dict.fromkeys(
        [("text to speech", dtype) for dtype in HALVES],
        "onnxruntime takes the root of a difference of halves that falls below zero, and refuses the sizes made of that",
    ),
}
PLAIN = ("model", "encoder_model", "decoder_model_merged")


def tolerance(name: str, dtype: str, device: str) -> float:
    """How far numbers may be apart, as a part of the largest of their tensor: halves by four of their epsilons; GPUs have exponentials
    and roots of their own; where activations are rounded to 8 bits behind many layers, a step may fall either way: of some among many
    on processors, which differ in the order of sums, of one and what it makes of the next on GPUs."""
    if dtype in HALVES:
        return 2**-8
    if dtype in ("q8", "int8", "uint8") and name in ("depth estimation", "text to speech"):
        return 2 / 255 if device == "webgpu" else 1e-3
    return 1e-3 if device == "webgpu" else 1e-4


def make_site(site: Path, tools: Path, ahead: Sequence[str] | None = None) -> Server:
    """A server of the page, both bundles and the models in all dtypes.

    Args:
        tools: where transformers.js is installed.
        ahead: folders of models of which every file is compiled before, of all others the plain ones, in `models`; None: none is.
    """
    (site / "index.html").write_text(INDEX)
    subprocess.run(["node", HERE / "bundle.mjs", site, tools, ONNXRUNTIME], check=True)
    player, hub, models = site / "player", site / "hub", site / "models"
    shutil.copytree(ROOT / "js" / "dist", player)
    pyodide.build_wheel(player)
    shutil.copytree(HERE / "hub", hub)
    for path in sorted(hub.rglob("*.onnx")):
        if path.stem in PLAIN:
            variants.make(path, [s for s in variants.DTYPES if not path.with_name(f"{path.stem}_{s}.onnx").exists()])
    if ahead is not None:
        shutil.copytree(hub, models)
        for path in sorted(models.rglob("*.onnx")):
            if path.stem in PLAIN or path.parents[1].name in ahead:
                compiled = pyonnx_wasm.compile(path.read_bytes(), gpu=True)
                path.unlink()
                pyonnx_wasm.save(compiled, path)
    return Server({"/": site, "/pyodide": pyodide.distribution(), "/ort": ONNXRUNTIME / "dist"})


def open_page(browser: Browser, server: Server, models: str) -> Page:
    page = browser.new_page()
    page.goto(server.url)
    page.evaluate(START, f"/{models}/")
    return page


def apart(ours: Any, theirs: Any, at: str = "", most: float = 0.0) -> Iterator[tuple[float, float, str]]:
    """How far numbers are apart, as a part of the largest of their tensor, or infinity for what is not the same; how far they may be
    whatever their dtype (pixels by one); and what they are."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and ours.keys() == theirs.keys():
        for key in theirs:
            yield from apart(ours[key], theirs[key], f"{at}.{key}", 1 / 255 if key == "pixels" else most)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(ours) == len(theirs):
        if theirs and all(type(n) in (int, float) for n in (*ours, *theirs)):
            a, b = np.array(ours, float), np.array(theirs, float)
            far = float(np.abs(a - b).max())
            yield _part(far, float(np.abs(b).max())), most, f"{at}: {far} of {np.abs(b).max()}"
        else:
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                yield from apart(a, b, f"{at}[{i}]", most)
    elif isinstance(theirs, float) and isinstance(ours, int | float):
        yield _part(abs(ours - theirs), max(1, abs(theirs))), most, f"{at}: {ours}, not {theirs}"
    elif ours != theirs:
        yield math.inf, most, f"{at}: {ours!r}, not {theirs!r}"


def _part(far: float, largest: float) -> float:
    """NaN and infinities are no numbers to compare."""
    return 0.0 if far == 0 else far / largest if largest and math.isfinite(far) else math.inf


def differences(ours: Any, theirs: Any, tolerance: float) -> list[str]:
    return [said for far, most, said in apart(ours, theirs) if far > max(tolerance, most)]


def compared(page: Page, name: str, dtype: str, device: str) -> tuple[bool | None, str]:
    """Whether both give the same, None where that is moot, and what is to be said of it."""
    if why := MOOT.get((name, dtype)):
        return None, why
    ours = page.evaluate(TIMED, ["ours", name, {"dtype": dtype, "device": device}])
    theirs = page.evaluate(TIMED, ["theirs", name, {"dtype": dtype, "device": "wasm"}])
    if device == "webgpu" and dtype == "fp16" and "does not support fp16" in ours.get("error", ""):
        return None, "transformers.js refuses: the GPU has no shader-f16"
    if "error" in ours or "error" in theirs:
        return False, "; ".join(f"{side}: {told['error'][:160]}" for side, told in (("ours", ours), ("theirs", theirs)) if "error" in told)
    far = max((far for far, _, _ in apart(ours["value"], theirs["value"])), default=0.0)
    wrong = differences(ours["value"], theirs["value"], tolerance(name, dtype, device))
    return not wrong, f"{far:8.1e}  {ours['took']:6.1f} s  {theirs['took']:6.1f} s" + "".join(f"  {w[:100]}" for w in wrong[:1])


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; default: all")
    options.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    options.add_argument("--device", nargs="+", choices=DEVICES, default=DEVICES)
    options.add_argument("--real-gpu", action="store_true", help="the machine's GPU; default: a software one")
    given = options.parse_args(argv)
    logging.disable(logging.WARNING)  # of quantisers
    counts = {True: 0, False: 0, None: 0}
    with (
        tempfile.TemporaryDirectory() as made,
        make_site(Path(made), install("transformers_js")) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(**chromium.launch_options(webgpu=True, real_gpu=given.real_gpu))
        page = open_page(browser, server, "hub")
        print(f"{'':46}         apart  ours      onnxruntime-web on wasm", flush=True)
        for name in given.names or NAMES:
            for device in given.device:
                for dtype in given.dtype:
                    passed, said = compared(page, name, dtype, device)
                    counts[passed] += 1
                    verdict = {True: "same", False: "FAIL", None: "moot"}[passed]
                    print(f"{name:31} {dtype:6} {device:7} {verdict}  {said}", flush=True)
                    if passed is False:  # transformers.js goes on with nothing behind an error
                        page.close()
                        page = open_page(browser, server, "hub")
        browser.close()
    print(f"{counts[True]} the same, {counts[False]} not, {counts[None]} moot")
    return int(counts[False] > 0)


if __name__ == "__main__":
    sys.exit(main())
