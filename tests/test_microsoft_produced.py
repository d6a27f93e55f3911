"""What onnxruntime's optimiser and quantisers make of small models, run here as they wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from operator_case import Array, normal, sessions

from pyonnx_wasm.testing.peer import exact

CHANNELS = 24


def convnet() -> bytes:
    """Convolutions with an addition, a concatenation, pools, a product and a softmax."""
    rng = np.random.default_rng(0)
    weights: dict[str, Array] = {}

    def weight(name: str, *shape: int) -> str:
        weights[name] = (rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5).astype(np.float32)
        return name

    def conv(x: str, y: str, out: int, inside: int, group: int = 1, size: int = 3) -> Any:
        names = [x, weight(f"{y}_w", out, inside // group, size, size), weight(f"{y}_b", out)]
        return helper.make_node("Conv", names, [y], group=group, kernel_shape=[size] * 2, pads=[size // 2] * 4)

    c = CHANNELS
    nodes = [
        conv("x", "a", c, 3), helper.make_node("Relu", ["a"], ["b"]), conv("b", "d", c, c, c), helper.make_node("LeakyRelu", ["d"], ["e"]),
        conv("e", "f", c, c, size=1), helper.make_node("Add", ["f", "b"], ["g"]), helper.make_node("Sigmoid", ["g"], ["h"]),
        helper.make_node("Mul", ["g", "h"], ["i"]), helper.make_node("Concat", ["i", "b"], ["j"], axis=1),
        helper.make_node("AveragePool", ["j"], ["k"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxPool", ["k"], ["l"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["l"], ["m"]), helper.make_node("Flatten", ["m"], ["n"]),
        helper.make_node("Gemm", ["n", weight("q", 10, 2 * c), weight("r", 10)], ["o"], transB=1),
        helper.make_node("Softmax", ["o"], ["y"], axis=-1),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 12, 12])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "net", [x], [y], [numpy_helper.from_array(v, k) for k, v in weights.items()])
    return bytes(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


class Pictures(CalibrationDataReader):
    """Two batches."""

    def __init__(self) -> None:
        self.left = [{"x": normal(2, 3, 12, 12, seed=s)} for s in (1, 2)]

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


def reference(path: Path, signed: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    if not signed:  # int8 by int8 it multiplies exactly as it is
        exact(options)
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def compare(path: Path, feeds: list[dict[str, Array]], atol: float, signed: bool = False) -> None:
    oracle = reference(path, signed)
    for _, session in sessions(path.read_bytes()):
        for feed in feeds:
            for got, want in zip(session.run(None, feed), oracle.run(None, feed), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=atol)


def operators(path: Path) -> set[str]:
    return {n.op_type for n in onnx.load(path).graph.node if n.domain.startswith("com.")}


@pytest.mark.parametrize(
    ("kind", "weights"), [(QuantType.QUInt8, QuantType.QInt8), (QuantType.QUInt8, QuantType.QUInt8), (QuantType.QInt8, QuantType.QInt8)]
)
@pytest.mark.parametrize("channels", [False, True])
def test_quantised_operators(tmp_path: Path, kind: Any, weights: Any, channels: bool) -> None:
    """quantize_static, QOperator: a quantum of the last layer is 1/256."""
    source, made = tmp_path / "net.onnx", tmp_path / "made.onnx"
    source.write_bytes(convnet())
    quantize_static(
        source, made, Pictures(), quant_format=QuantFormat.QOperator, per_channel=channels, activation_type=kind, weight_type=weights
    )
    assert {"QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearSigmoid", "QLinearGlobalAveragePool", "QGemm"} <= operators(made)
    compare(made, [{"x": normal(n, 3, 12, 12, seed=5)} for n in (1, 3, 2)], 1.5 / 256, kind is QuantType.QInt8)


@pytest.mark.parametrize("level", ["BASIC", "EXTENDED", "ALL"])
def test_saved_optimised(tmp_path: Path, level: str) -> None:
    options, made = onnxruntime.SessionOptions(), tmp_path / "made.onnx"
    options.log_severity_level, options.optimized_model_filepath = 4, str(made)
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    onnxruntime.InferenceSession(convnet(), options, providers=["CPUExecutionProvider"])
    compare(made, [{"x": normal(n, 3, 12, 12, seed=5)} for n in (1, 3, 2)], 1e-5)


@pytest.mark.parametrize("ways", [1, 2])
def test_dynamic_lstm(tmp_path: Path, ways: int) -> None:
    """Both directions lie in one tensor of weights."""
    rng = np.random.default_rng(0)
    stored = {
        n: (rng.standard_normal(s) * 0.3).astype(np.float32)
        for n, s in (("w", (ways, 32, 6)), ("r", (ways, 32, 8)), ("b", (ways, 64)), ("q", (8, 5)))
    }
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["h", "last"], hidden_size=8, direction="bidirectional" if ways == 2 else "forward"),
        helper.make_node("Squeeze", ["last", "one"], ["s"]),
        helper.make_node("MatMul", ["s", "q"], ["y"]),
    ]  # fmt: skip
    tensors = [numpy_helper.from_array(v, k) for k, v in stored.items()] + [numpy_helper.from_array(np.array([1]), "one")]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["t", 1, 6])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [ways, 5])
    source, made = tmp_path / "net.onnx", tmp_path / "made.onnx"
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", [x], [y], tensors), ir_version=10, opset_imports=[helper.make_opsetid("", 17)]),
        source,
    )
    quantize_dynamic(source, made)
    assert "DynamicQuantizeLSTM" in operators(made)
    compare(made, [{"x": normal(t, 1, 6)} for t in (5, 1, 12)], 0.02)


def blocked(w: Array, block: int, by_input: bool) -> Array:
    """Weights [m, c, kh, kw] as onnxruntime lays them out for vectors of ``block`` numbers."""
    m, c, h, k = w.shape
    if not by_input:
        return w.reshape(m // block, block, c, h, k).transpose(0, 2, 3, 4, 1).reshape(w.shape)
    return w.reshape(m // block, block, c // block, block, h, k).transpose(0, 2, 4, 5, 3, 1).reshape(w.shape)


def saved_at_all(block: int, channels: int) -> tuple[bytes, bytes]:
    """A first, a full and a depthwise convolution in blocks, and the same as the standard has them."""
    padded = -(-channels // block) * block
    weights = {"a": normal(channels, 3, 3, 3), "b": normal(channels, channels, 1, 1) * 0.3, "c": normal(channels, 1, 3, 3)}
    wide = {k: np.pad(v, [(0, padded - channels), (0, padded - channels if k == "b" else 0), (0, 0), (0, 0)]) for k, v in weights.items()}
    lying = {k: blocked(v, block, k == "b") for k, v in wide.items()}

    def graph(domain: str, stored: dict[str, Array], group: int) -> bytes:
        same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "domain": domain}
        up = {"mode": "nearest", "domain": domain}
        nodes = [
            helper.make_node("Conv", ["x", "a"], ["1"], **same),
            helper.make_node("Relu", ["1"], ["2"]),
            helper.make_node("Conv", ["2", "b"], ["3"], domain=domain, kernel_shape=[1, 1]),
            helper.make_node("Conv", ["3", "c"], ["4"], group=group, **same),
            helper.make_node("Upsample", ["4"], ["5"], scales=[1, 1, 2, 2], **up)
            if domain
            else helper.make_node("Resize", ["4", "", "scales"], ["5"], coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
            helper.make_node("MaxPool", ["5"], ["6"], domain=domain, kernel_shape=[2, 2]),
            helper.make_node("ReorderOutput", ["6"], ["y"], domain=domain, channels=channels)
            if domain
            else helper.make_node("Identity", ["6"], ["y"]),
        ]  # fmt: skip
        infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", c, None, None]) for n, c in (("x", 3), ("y", channels))]
        tensors = [numpy_helper.from_array(v, k) for k, v in stored.items()]
        made = helper.make_graph(nodes, "g", infos[:1], infos[1:], tensors)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
        return bytes(helper.make_model(made, ir_version=10, opset_imports=opsets).SerializeToString())

    scales = {"scales": np.array([1, 1, 2, 2], np.float32)}
    return graph("com.microsoft.nchwc", lying, padded), graph("", weights | scales, channels)


@pytest.mark.parametrize(("block", "channels"), [(8, 24), (8, 40), (16, 24), (16, 40)])
def test_blocks_of_channels(block: int, channels: int) -> None:
    """Of the widths of other machines too."""
    data, plain = saved_at_all(block, channels)
    oracle = onnxruntime.InferenceSession(plain, providers=["CPUExecutionProvider"])
    for _, session in sessions(data):
        for n, h in ((1, 5), (2, 8), (1, 4)):
            feed = {"x": normal(n, 3, h, 6)}
            np.testing.assert_allclose(session.run(None, feed)[0], oracle.run(None, feed)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("block", [8, 16])
def test_blocks_that_nothing_tells_are_refused(block: int) -> None:
    with pytest.raises(ValueError, match=r"Conv.*level 'extended'"):
        next(sessions(saved_at_all(block, 32)[0]))
