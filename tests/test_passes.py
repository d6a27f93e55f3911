"""Each fusion on a graph that shows it, and that fused and plain Programs agree."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyonnx_wasm as ort
from pyonnx_wasm import passes
from pyonnx_wasm.onnxfile import reader
from pyonnx_wasm.trace import trace

RNG = np.random.default_rng(7)


def model(
    nodes: Sequence[Any], inputs: dict[str, Sequence[Any]], outputs: Sequence[str], constants: dict[str, np.ndarray], opset: int = 17
) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def kernels(data: bytes) -> list[str]:
    graph = trace(reader.read(data))
    passes.run(graph)
    return [n.kernel.name for n in graph.nodes if not n.const]


def run(data: bytes, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Both with and without the passes, against onnxruntime."""
    import onnxruntime

    want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)
    for optimise in (False, True):
        got = ort.InferenceSession(data, ort.SessionOptions(enable_optimisation=optimise)).run(None, feed)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return want  # type: ignore[no-any-return]


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_chain_of_maps_is_one() -> None:
    nodes = [helper.make_node(o, [a], [b]) for o, a, b in (("Exp", "x", "a"), ("Neg", "a", "b"), ("Sin", "b", "c"), ("Relu", "c", "y"))]
    data = model(nodes, {"x": ["n", 5]}, ["y"], {})
    assert kernels(data) == ["map"]
    run(data, {"x": floats(3, 5)})


def test_a_value_with_two_readers_is_kept() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Sin", ["a"], ["z"])]
    data = model(nodes, {"x": ["n", 5]}, ["y", "z"], {})
    assert kernels(data) == ["map"] * 3
    run(data, {"x": floats(2, 5)})


def erf_gelu(x: str, y: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Div", [x, "sqrt2"], ["g0"]),
        helper.make_node("Erf", ["g0"], ["g1"]),
        helper.make_node("Add", ["g1", "one"], ["g2"]),
        helper.make_node("Mul", [x, "g2"], ["g3"]),
        helper.make_node("Mul", ["g3", "half"], [y]),
    ]


SCALARS = {"sqrt2": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}


def test_matmul_takes_bias_gelu_and_residual() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["bias", "a"], ["b"]), *erf_gelu("b", "c")]
    nodes.append(helper.make_node("Add", ["c", "r"], ["y"]))
    data = model(nodes, {"x": ["n", 6, 8], "r": ["n", 6, 7]}, ["y"], {"w": floats(8, 7), "bias": floats(7), **SCALARS})
    graph = trace(reader.read(data))
    passes.run(graph)
    (node,) = graph.nodes
    assert node.kernel.name == "matmul"
    assert node.params["act"][0] == "gelu"
    assert not node.params["act_last"]
    assert node.ins["bias"] is not None
    assert node.ins["residual"] is not None
    for n in (1, 3):
        run(data, {"x": floats(n, 6, 8), "r": floats(n, 6, 7)})


def test_convolution_takes_batch_norm_residual_and_relu() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s", "t", "m", "v"], ["c"]),
        helper.make_node("Add", ["c", "x"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    constants = {"w": floats(4, 4, 3, 3), "b": floats(4), "s": floats(4), "t": floats(4), "m": floats(4), "v": np.abs(floats(4)) + 0.5}
    data = model(nodes, {"x": ["n", 4, 9, 7]}, ["y"], constants)
    graph = trace(reader.read(data))
    passes.run(graph)
    (conv,) = [n for n in graph.nodes if not n.const]
    assert conv.kernel.name == "conv"
    assert conv.params["act"][0] == "relu"
    assert conv.params["act_last"]
    for n in (1, 2):
        run(data, {"x": floats(n, 4, 9, 7)})


@pytest.mark.parametrize(("first", "second", "act"), [("Sigmoid", "Mul", "silu"), ("Tanh", "", "tanh"), ("Relu", "", "relu")])
def test_convolution_takes_activations(first: str, second: str, act: str) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node(first, ["a"], ["b" if second else "y"])]
    if second:
        nodes.append(helper.make_node(second, ["a", "b"], ["y"]))
    data = model(nodes, {"x": [1, 3, 8, 8]}, ["y"], {"w": floats(5, 3, 3, 3)})
    graph = trace(reader.read(data))
    passes.run(graph)
    assert [n.kernel.name for n in graph.nodes] == ["conv"]
    assert graph.nodes[0].params["act"][0] == act
    run(data, {"x": floats(1, 3, 8, 8)})


def attention_model(mask: bool) -> bytes:
    nodes = []
    for name in "qkv":
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            helper.make_node("Reshape", [f"{name}0", "heads"], [f"{name}1"]),
            helper.make_node("Transpose", [f"{name}1"], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    nodes += [helper.make_node("MatMul", ["q", "k"], ["s0"]), helper.make_node("Mul", ["s0", "scale"], ["s1"])]
    nodes.append(helper.make_node("Add", ["s1", "mask"], ["s2"]) if mask else helper.make_node("Identity", ["s1"], ["s2"]))
    nodes += [
        helper.make_node("Softmax", ["s2"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o0"]),
        helper.make_node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["o1", "flat"], ["y"]),
    ]
    constants = {f"w{n}": floats(12, 12) for n in "qkv"}
    constants |= {"heads": np.array([0, 0, 3, 4]), "flat": np.array([0, 0, 12]), "scale": np.float32(0.5)}
    inputs: dict[str, Sequence[Any]] = {"x": ["b", "t", 12]}
    if mask:
        inputs["mask"] = ["b", 1, "t", "t"]
    return model(nodes, inputs, ["y"], constants)


@pytest.mark.parametrize("mask", [False, True])
def test_attention_is_one_kernel_without_copies(mask: bool) -> None:
    data = attention_model(mask)
    assert kernels(data) == ["matmul"] * 3 + ["attention"]
    for b, t in ((1, 1), (2, 7), (1, 33)):
        feed = {"x": floats(b, t, 12)}
        if mask:
            feed["mask"] = np.where(RNG.random((b, 1, t, t)) < 0.3, -1e9, 0).astype(np.float32)
        run(data, feed)


def test_layer_norm_written_out() -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[-1]),
        helper.make_node("Sub", ["x", "m"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["q"]),
        helper.make_node("ReduceMean", ["q"], ["v"], axes=[-1]),
        helper.make_node("Add", ["v", "eps"], ["e"]),
        helper.make_node("Sqrt", ["e"], ["s"]),
        helper.make_node("Div", ["d", "s"], ["n"]),
        helper.make_node("Mul", ["n", "g"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["y"]),
    ]
    data = model(nodes, {"x": ["n", "t", 10]}, ["y"], {"two": np.float32(2), "eps": np.float32(1e-5), "g": floats(10), "b": floats(10)})
    assert kernels(data) == ["norm"]
    run(data, {"x": floats(2, 3, 10)})


def test_producers_write_into_the_concatenation() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Concat", ["a", "b", "x"], ["y"], axis=1),
    ]
    data = model(nodes, {"x": [1, 3, 6, 6]}, ["y"], {"w": floats(4, 3, 1, 1)})
    graph = trace(reader.read(data))
    passes.run(graph)
    (concat,) = [n for n in graph.nodes if n.kernel.name == "concat"]
    assert len(concat.ins["x"]) == 1
    run(data, {"x": floats(1, 3, 6, 6)})


def test_random_chains_agree() -> None:
    """Fused and plain Programs give the same numbers on random element-wise graphs with broadcasts."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        names, nodes = ["x", "c", "r"], []
        for i in range(int(rng.integers(2, 14))):
            if rng.random() < 0.5:
                nodes.append(
                    helper.make_node(
                        str(rng.choice(["Neg", "Abs", "Tanh", "Sigmoid", "Relu", "Floor"])), [str(rng.choice(names))], [f"v{i}"]
                    )
                )
            else:
                nodes.append(
                    helper.make_node(
                        str(rng.choice(["Add", "Sub", "Mul", "Max", "Min"])), [str(n) for n in rng.choice(names, 2)], [f"v{i}"]
                    )
                )
            names.append(f"v{i}")
        data = model(nodes, {"x": ["n", 3, 5], "r": [3, 1]}, [names[-1]], {"c": floats(5)}, opset=13)
        run(data, {"x": floats(2, 3, 5), "r": floats(3, 1)})
