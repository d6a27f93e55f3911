"""JupyterLab, a kernel, Chromium with a camera, and models for widgets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from desk import Desk
from onnx import TensorProto, helper
from PIL import Image
from playwright.sync_api import Browser, BrowserType

from pyonnx_wasm.testing.lab import Lab

WORDS = ["[UNK]", "a", "quiet", "morning", "by", "the", "lake"]


@pytest.fixture(scope="package")
def chromium(browser_type: BrowserType, browser_type_launch_args: dict[str, Any]) -> Iterator[Browser]:
    """A Chromium with a camera that films a test pattern."""
    args = [*browser_type_launch_args["args"], "--use-fake-device-for-media-stream"]
    browser = browser_type.launch(**{**browser_type_launch_args, "args": args})
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab") / "lab") as lab:
        yield lab


@pytest.fixture(scope="package")
def desk(lab: Lab, chromium: Browser, models: Path) -> Iterator[Desk]:
    path = lab.write("widgets.ipynb", ["0"])
    context = chromium.new_context(viewport={"width": 1100, "height": 900})
    yield Desk(lab.open(context, path.name), path, models)
    context.close()


@pytest.fixture(scope="package")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    node, value = helper.make_node, helper.make_tensor_value_info

    def write(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> None:
        graph = helper.make_graph(nodes, name, inputs, outputs)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / f"{name}.onnx")

    f = TensorProto.FLOAT
    write(
        "numbers",
        [node("Mul", ["table", "factor"], ["scaled"]), node("Log", ["scaled"], ["logs"]), node("Not", ["flag"], ["other"])],
        [value("table", f, ["rows", 3]), value("factor", f, []), value("flag", TensorProto.BOOL, [1])],
        [value("scaled", f, ["rows", 3]), value("logs", f, ["rows", 3]), value("other", TensorProto.BOOL, [1])],
    )
    write("double", [node("Add", ["x", "x"], ["y"])], [value("x", f, ["rows", 3])], [value("y", f, ["rows", 3])])
    picture = ["n", 3, 24, 32]
    write(
        "pictures",
        [node("Sub", ["one", "x"], ["negative"]), node("ReduceMean", ["x"], ["grey"], axes=[1], keepdims=1)],
        [value("x", f, picture), value("one", f, [1])],
        [value("negative", f, picture), value("grey", f, ["n", 1, 24, 32])],
    )
    ids = ["batch", "seq"]
    write(
        "words",
        [node("Mul", ["input_ids", "attention_mask"], ["same"])],
        [value("input_ids", TensorProto.INT64, ids), value("attention_mask", TensorProto.INT64, ids)],
        [value("same", TensorProto.INT64, ids)],
    )
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    rng = np.random.default_rng(3)
    Image.fromarray(rng.integers(0, 256, (60, 90, 3), dtype=np.uint8)).save(folder / "noise.png")
    ink = np.zeros((64, 64), np.uint8)
    ink[8:56, 28:36] = 255
    Image.fromarray(ink).save(folder / "one.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nand then nothing")
    np.save(folder / "rows.npy", np.arange(6, dtype=np.float64).reshape(2, 3))
    return folder
