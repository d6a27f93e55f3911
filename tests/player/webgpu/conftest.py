"""Models, a server and a Chromium with WebGPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gpu_site import BIG, NAME, runner
from onnx import helper
from player_site import CSP, DIST, SHIFT, TYPES, B, Run, W, write
from playwright.sync_api import BrowserType, Page

import pyonnx_wasm
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium


@pytest.fixture(scope="package")
def gpu_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("webgpu")
    (root / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>player</title>')
    (root / "csp.html").write_text(f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{CSP}"><title>player</title>')
    node = helper.make_node
    layers = [
        node("Add", ["b", "shift"], ["c"], name="fold"),
        node("MatMul", ["x", "w"], ["t"], name="dense_0"),
        node("Add", ["t", "c"], ["u"], name="bias_0"),
        node("Relu", ["u"], ["y"], name="relu_0"),
    ]
    row = ({"x": ("float32", ["n", 67])}, {"y": ("float32", ["n", 31])})
    for name in ("dense", "core_only"):
        write(root / f"{name}.ponnx", layers, *row, gpu=name == "dense", w=W, b=B, shift=SHIFT)
    write(root / "random.ponnx", [node("RandomUniform", [], ["y"], shape=[999])], {}, {"y": ("float32", [999])}, gpu=True)
    write(root / "soft.ponnx", [node("Softplus", ["x"], ["y"])], {"x": ("float32", ["n", 67])}, {"y": ("float32", ["n", 67])}, gpu=True)
    matrix = ("float32", ["n", "m"])
    write(
        root / "pair.ponnx",
        [node("Mul", ["a", "b"], ["p"], name="mul_0"), node("Max", ["a", "b"], ["d"], name="max_0")],
        {"a": matrix, "b": matrix},
        {"p": matrix, "d": matrix},
        gpu=True,
    )
    write(
        root / "types.ponnx",
        [node("Identity", [t], [f"{t}_out"]) for t in TYPES],
        {t: (t, ["n"]) for t in TYPES},
        {f"{t}_out": (t, ["n"]) for t in TYPES},
        gpu=True,
    )
    write(
        root / "decoder.ponnx",
        [
            node("Concat", ["past", "token"], ["present"], axis=0, name="grow"),
            node("Transpose", ["present"], ["keys"], name="turn"),
            node("MatMul", ["token", "keys"], ["scores"], name="score"),
        ],
        {"past": ("float32", ["p", 64]), "token": ("float32", [1, 64])},
        {"scores": ("float32", [1, "q"]), "present": ("float32", ["q", 64])},
        gpu=True,
    )
    pyonnx_wasm.save(pyonnx_wasm.compile(Path(__file__).parents[2] / "data" / "decoder.onnx", gpu=True), root / "cache.ponnx")
    write(
        root / "partition.ponnx",
        [
            node("MatMul", ["x", "v"], ["t"], name="before"),
            node("Cast", ["t"], ["wide"], to=11, name="widen"),
            node("Exp", ["wide"], ["e"], name="exp_64"),
            node("Cast", ["e"], ["narrow"], to=1, name="narrow"),
            node("MatMul", ["narrow", "v"], ["y"], name="after"),
        ],
        {"x": ("float32", ["n", 8])},
        {"y": ("float32", ["n", 8]), "e": ("float64", ["n", 8])},
        gpu=True,
        v=(np.eye(8) * 2).astype(np.float32),
    )
    write(
        root / "big.ponnx",
        [node("MatMul", ["x", "w"], ["y"], name="big_0")],
        {"x": ("float32", ["n", BIG[0]])},
        {"y": ("float32", ["n", BIG[1]])},
        gpu=True,
        w=np.full(BIG, 0.5, np.float32),
    )
    return root


@pytest.fixture(scope="package")
def gpu_server(gpu_models: Path) -> Iterator[Server]:
    with Server({"/": gpu_models, "/player": DIST}, isolated=False) as server:
        yield server


@pytest.fixture(scope="package")
def gpu_page(browser_type: BrowserType) -> Iterator[Page]:
    options = chromium.launch_options(webgpu=True)
    browser = browser_type.launch(**options | {"args": [*options["args"], f"--host-resolver-rules=MAP {NAME} 127.0.0.1"]})
    page = browser.new_page()
    yield page
    browser.close()


@pytest.fixture
def run(gpu_page: Page, gpu_server: Server) -> Run:
    return runner(gpu_page, f"{gpu_server.url}index.html")
