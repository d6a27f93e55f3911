"""Each fusion on a graph that shows it, and that fused and plain Programs agree."""

import itertools
import time
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
    (concat,) = [n for n in passes.write_through(graph.nodes, graph.output_storages()) if n.kernel.name == "concat"]
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


def make(op: str, ins: str, outs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ins.split(), outs.split(), **attributes)


SPECIAL = np.array([[-np.inf, -1.5, -0.0, 0.0], [1e-40, 0.5, 3e38, np.inf], [np.nan, -1e-3, -3e38, 7.0]], np.float32)
TWICE = {
    "Sigmoid": [make("Sigmoid", "p", "q"), make("Sigmoid", "q", "y")],
    "Tanh": [make("Tanh", "p", "q"), make("Tanh", "q", "y")],
    "LeakyRelu": [make("LeakyRelu", "p", "q", alpha=0.5), make("LeakyRelu", "q", "y", alpha=0.5)],
    "Elu": [make("Elu", "p", "q"), make("Elu", "q", "y")],
    "silu": [make("Sigmoid", "p", "a"), make("Mul", "p a", "q"), make("Sigmoid", "q", "b"), make("Mul", "q b", "y")],
    "+R+R": [make("Add", "p r", "q"), make("Add", "q r", "y")],
    "relu(+c+c)": [make("Add", "p c", "q"), make("Add", "q c", "a"), make("Relu", "a", "y")],
    "*c*c": [make("Mul", "p c", "q"), make("Mul", "q c", "y")],
    "*k*k": [make("Mul", "p k", "q"), make("Mul", "q k", "y")],
    "/0": [make("Div", "p zero", "y")],
    "/tiny": [make("Div", "p tiny", "y")],
    "*small*small/small": [make("Mul", "p small", "q"), make("Mul", "q small", "a"), make("Div", "a small", "y")],
}


@pytest.mark.parametrize("steps", TWICE)
@pytest.mark.parametrize("kernel", ["MatMul", "Conv"])
def test_an_operation_behind_a_product_is_done_as_often_as_it_is_written(kernel: str, steps: str) -> None:
    conv = kernel == "Conv"
    shape = [2, 3, 4, 4] if conv else [2, 4]
    constants = {
        "w": floats(3, 3, 1, 1) if conv else floats(4, 4),
        "c": floats(3, 1, 1) if conv else floats(4),
        "k": np.float32(0.75),
        "zero": np.float32(0),
        "tiny": np.float32(1e-40),
        "small": np.float32(1e-30),
    }
    data = model([make(kernel, "x w", "p"), *TWICE[steps]], {"x": shape, "r": shape}, ["y"], constants)
    run(data, {"x": floats(*shape), "r": floats(*shape)})


@pytest.mark.parametrize("kernel", ["x w", "x w bias", "rows", "rows bias"])
def test_what_follows_a_product_is_done_in_the_order_in_which_it_is_written(kernel: str) -> None:
    """Every three of scales, offsets, residuals and activations."""
    conv = kernel.startswith("x w")
    shape = [2, 3, 4, 4] if conv else [2, 3]
    channels = (3, 1, 1) if conv else (3,)
    constants = {"w": floats(3, 3, 1, 1) if conv else floats(3, 3), "bias": floats(3)}
    first = make("Conv", kernel, "p0") if conv else make("Gemm", f"x w{' bias' if 'bias' in kernel else ''}", "p0")
    for steps in itertools.product(("Mul", "Add", "residual", "Relu"), repeat=3):
        nodes, known = [first], dict(constants)
        for k, step in enumerate(steps):
            known[f"c{k}"] = floats(*channels)
            other = {"residual": " r", "Relu": ""}.get(step, f" c{k}")
            nodes.append(make("Add" if step == "residual" else step, f"p{k}{other}", f"p{k + 1}"))
        run(model(nodes, {"x": shape, "r": shape}, ["p3"], known), {"x": floats(*shape), "r": floats(*shape)})


def test_what_is_computed_once_takes_nothing_from_a_run() -> None:
    """A product of constants is no place for a residual."""
    nodes = [make("MatMul", "a b", "p"), make("Add", "p x", "q"), make("Add", "q c", "y")]
    run(model(nodes, {"x": [3, 4]}, ["y"], {"a": floats(3, 5), "b": floats(5, 4), "c": floats(4)}), {"x": floats(3, 4)})


@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrence_from_nothing(operator: str, gates: int) -> None:
    constants = {"w": floats(1, gates * 5, 4), "r": floats(1, gates * 5, 5), "b": floats(1, gates * 10)}
    data = model([make(operator, "x w r b", "y", hidden_size=5)], {"x": [3, 1, 4]}, ["y"], constants)
    run(data, {"x": floats(3, 1, 4)})


def test_an_offset_per_axis_that_a_reshape_made_is_none_per_channel() -> None:
    nodes = [make("Conv", "x w", "a"), make("Reshape", "a s", "b"), make("Add", "b c", "y")]
    data = model(nodes, {"x": [1, 6, 4, 4]}, ["y"], {"w": floats(6, 6, 1, 1), "s": np.array([1, 4, 6, 4]), "c": floats(1, 4, 1, 1)})
    run(data, {"x": floats(1, 6, 4, 4)})


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_concatenations_of_concatenations(axis: int, depth: int) -> None:
    nodes, last = [], "x"
    for i in range(depth):
        nodes += [make("Relu", "x", f"a{i}"), make("Neg", "x", f"b{i}"), make("Concat", f"{last} a{i} b{i}", f"c{i}", axis=axis)]
        last = f"c{i}"
    nodes += [make("Abs", "x", "d"), make("Concat", f"d {last} d", "y", axis=axis)]
    run(model(nodes, {"x": [1, 3]}, ["y"], {}), {"x": floats(1, 3)})


def test_a_concatenation_that_a_loop_carries() -> None:
    infos = [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", TensorProto.INT64, []), ("k", TensorProto.BOOL, []))]
    carried = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("h", "h1")]
    body = helper.make_graph(
        [make("Identity", "k", "k1"), make("Sin", "x", "s"), make("Concat", "h s", "h1", axis=0)],
        "body",
        [*infos, carried[0]],
        [helper.make_tensor_value_info("k1", TensorProto.BOOL, []), carried[1]],
    )
    nodes = [make("Neg", "x", "h0"), make("Loop", "n yes h0", "y", body=body)]
    run(model(nodes, {"x": [2, 3]}, ["y"], {"n": np.array(3), "yes": np.array(True)}), {"x": floats(2, 3)})


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_three_axes(transposed: bool, masked: bool) -> None:
    nodes = [make("Transpose", "k", "t", perm=[0, 2, 1]), make("MatMul", "q t", "s"), make("Mul", "s scale", "u")]
    nodes += [make("Add", "u mask", "m") if masked else make("Identity", "u", "m"), make("Softmax", "m", "p"), make("MatMul", "p v", "o")]
    nodes += [make("Transpose", "o", "y", perm=[1, 0, 2]) if transposed else make("Identity", "o", "y")]
    inputs: dict[str, Sequence[Any]] = {"q": ["b", "s", 4], "k": ["b", "t", 4], "v": ["b", "t", 5]}
    if masked:
        inputs["mask"] = ["s", "t"]
    data = model(nodes, inputs, ["y"], {"scale": np.float32(0.5)})
    assert "attention" in kernels(data)
    for b, s, t in ((2, 1, 3), (3, 5, 2), (1, 1, 1)):
        feed = {"q": floats(b, s, 4), "k": floats(b, t, 4), "v": floats(b, t, 5)}
        run(data, feed | ({"mask": floats(s, t)} if masked else {}))


@pytest.mark.parametrize("queries", [1, 2, 7, 40])
def test_attention_to_nothing_is_what_softmax_says(queries: int) -> None:
    nodes = [make("MatMul", "q k", "s"), make("Add", "s mask", "m"), make("Softmax", "m", "p"), make("MatMul", "p v", "y")]
    data = model(nodes, {"q": [1, 2, "s", 4], "k": [1, 2, 4, 9], "v": [1, 2, 9, 3], "mask": ["s", 9]}, ["y"], {})
    mask = np.where(RNG.random((queries, 9)) < 0.3, -np.inf, 0).astype(np.float32)
    mask[::3] = -np.inf
    mask[1::4, 0] = np.nan
    want = run(data, {"q": floats(1, 2, queries, 4), "k": floats(1, 2, 4, 9), "v": floats(1, 2, 9, 3), "mask": mask})
    assert np.isnan(want[0][0, :, 0]).all()


@pytest.mark.parametrize("shape", [[6], [2, 6], [3, 3, 6]])
@pytest.mark.parametrize("ones", [0, 2, 3])
def test_layer_norm_whose_exponent_has_axes(shape: list[int], ones: int) -> None:
    nodes = [
        make("ReduceMean", "x", "m", axes=[-1]),
        make("Sub", "x m", "d"),
        make("Pow", "d two", "q"),
        make("ReduceMean", "q", "v", axes=[-1]),
    ]
    nodes += [make("Add", "v eps", "e"), make("Sqrt", "e", "s"), make("Div", "d s", "y")]
    data = model(nodes, {"x": shape}, ["y"], {"two": np.full([1] * ones, 2, np.float32), "eps": np.float32(1e-5)})
    run(data, {"x": floats(*shape)})


def test_moments_of_other_rows_are_no_norm() -> None:
    """Means over rows of one length, variances over rows of another; variances that come transposed."""
    nodes = [make("ReduceMean", "x", "m", axes=[-1]), make("Sub", "x m", "c"), make("Reshape", "c s", "d"), make("Mul", "d d", "q")]
    nodes += [make("ReduceMean", "q", "v", axes=[-1]), make("Add", "v eps", "e"), make("Sqrt", "e", "r"), make("Div", "d r", "y")]
    run(model(nodes, {"x": [1, 12]}, ["y"], {"s": np.array([2, 6]), "eps": np.float32(1e-5)}), {"x": floats(1, 12)})
    nodes = [make("Mul", "x x", "q"), make("ReduceMean", "q", "v", axes=[-1]), make("Transpose", "v", "t", perm=[1, 0, 2])]
    nodes += [make("Add", "t eps", "e"), make("Sqrt", "e", "r"), make("Div", "x r", "y")]
    run(model(nodes, {"x": [3, 3, 4]}, ["y"], {"eps": np.float32(1e-5)}), {"x": floats(3, 3, 4)})


@pytest.mark.parametrize("kernel", [None, "MatMul", "Conv"])
@pytest.mark.parametrize("off", [0, 3e-6, -5e-5])
def test_activations_by_almost_their_formula(kernel: str | None, off: float) -> None:
    """A constant that is off by more than rounding is another function."""
    want = 0 if off else 1
    shape = [1, 4, 4, 4] if kernel == "Conv" else [3, 4]
    first = [make(kernel, "x w", "p")] if kernel else [make("Identity", "x", "p")]
    one, near = np.float32(1), np.float32(1 + off)
    gelu = [make("Div", "p a", "b"), make("Erf", "b", "c"), make("Add", "c one", "d"), make("Mul", "p d", "e"), make("Mul", "e half", "y")]
    hard = [make("Mul", "p sixth", "b"), make("Add", "b half", "c"), make("Clip", "c zero one", "d"), make("Mul", "p d", "y")]
    constants = {"w": floats(4, 4, 1, 1) if kernel == "Conv" else floats(4, 4), "a": np.float32(2**0.5) * near, "one": one}
    constants |= {"half": np.float32(0.5), "sixth": np.float32(1 / 6) * near, "zero": np.float32(0)}
    for nodes in (gelu, hard):
        data = model([*first, *nodes], {"x": shape}, ["y"], constants)
        graph = trace(reader.read(data))
        passes.run(graph)
        said = [str(n.params.get("code")) + str(n.params.get("act")) for n in graph.nodes]
        assert sum("gelu" in s or "hardswish" in s for s in said) == want
        run(data, {"x": 3 * floats(*shape)})


@pytest.mark.parametrize("operator", ["Add", "Mul", "Max", "Sub"])
def test_what_is_shared_is_looked_at_once(operator: str) -> None:
    """A chain in which each value is read twice: two to the power of its length by way of paths."""
    names = ["x", *[f"v{i}" for i in range(199)], "y"]
    nodes = [make(operator, f"{a} {a}", b) for a, b in itertools.pairwise(names)]
    data = model([*nodes, make("ReduceMean", "y", "m"), make("Div", "y m", "z")], {"x": ["n", 5]}, ["z"], {})
    began = time.process_time()
    kernels(data)
    assert time.process_time() - began < 5
    run(data, {"x": np.zeros((2, 5), np.float32)})


def test_a_normalisation_times_itself_keeps_its_factors() -> None:
    nodes = [make("LayerNormalization", "x s", "n"), make("Mul", "n n", "y")]
    run(model(nodes, {"x": [1, 6]}, ["y"], {"s": np.ones(6, np.float32)}), {"x": floats(1, 6)})
    nodes = [
        make("ReduceMean", "x", "m", axes=[-1]),
        make("Sub", "x m", "d"),
        make("Mul", "d d", "q"),
        make("ReduceMean", "q", "v", axes=[-1]),
    ]
    nodes += [make("Add", "v eps", "e"), make("Sqrt", "e", "r"), make("Div", "d r", "n"), make("Mul", "n n", "y")]
    run(model(nodes, {"x": [1, 6]}, ["y"], {"eps": np.float32(1e-5)}), {"x": floats(1, 6)})
