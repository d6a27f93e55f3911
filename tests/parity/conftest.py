"""Fixtures of the comparison's tests."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from broken_core import Broken
from onnx import TensorProto, helper, numpy_helper

from pyonnx_wasm import toolchain


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose softmax lies between two products."""
    rng = np.random.default_rng(1)
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "w0", "b0"], ["h0"], name="encode/Gemm"),
        node("Relu", ["h0"], ["h1"], name="encode/Relu"),
        node("MatMul", ["h1", "w1"], ["h2"], name="attend/MatMul"),
        node("Softmax", ["h2"], ["h3"], name="attend/Softmax", axis=-1),
        node("Mul", ["h3", "h1"], ["h4"], name="attend/Mul"),
        node("MatMul", ["h4", "w1"], ["h5"], name="decode/MatMul"),
        node("Add", ["h5", "b0"], ["y"], name="decode/Add"),
        node("ArgMax", ["y"], ["label"], name="decode/ArgMax", axis=-1, keepdims=0),
    ]
    weights = {"w0": (12, 33), "b0": (33,), "w1": (33, 33)}
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 12])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 33]),
            helper.make_tensor_value_info("label", TensorProto.INT64, ["batch"]),
        ],
        [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 3, name) for name, shape in weights.items()],
    )
    path = tmp_path_factory.mktemp("parity") / "classifier.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broken]:
    folder = tmp_path_factory.mktemp("broken")
    right, wrong = "float scale = float(1 / total);", "float scale = float(1.01 / total);"
    text = (toolchain.SOURCES / "softmax.cpp").read_text()
    assert text.count(right) == 1
    source = folder / "softmax.cpp"
    source.write_text(text.replace(right, wrong))
    targets = [*toolchain.native_targets(toolchain.host(), folder)[:1], *toolchain.wasm_targets(folder)]
    with toolchain.alone():
        toolchain.Builder(toolchain.declared(), lambda line: None, replaced={"softmax": source}).build(targets)
    yield Broken(folder / targets[0].file, folder)
    for leftover in (toolchain.BUILD / "obj").glob("softmax-*.o"):
        if leftover.stat().st_mtime >= source.stat().st_mtime:
            leftover.unlink()
