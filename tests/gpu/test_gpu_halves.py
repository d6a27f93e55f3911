"""Products and norms of halves: read as they are, by adapters that know them and by those that do not."""

import numpy as np
import onnx
import pytest
from gpu_model import assert_same, both, graph, section
from onnx import helper

from pyonnx_wasm.gpu import wgsl
from pyonnx_wasm.runtimes import wgpu

RNG = np.random.default_rng(0)


def halves(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 4).astype(np.float16)


@pytest.fixture(params=["native", "in words"], autouse=True)
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the adapter had shader-f16, or not."""
    if request.param == "native":
        if "shader-f16" not in wgpu.device().features:
            pytest.skip("this adapter has no shader-f16")
        return
    every = wgsl.shaders
    monkeypatch.setattr(wgsl, "shaders", lambda call, case: [s for s in every(call, case) if "shader-f16" not in s.needs])


def kernels(model: bytes) -> list[str]:
    found = section(model)
    assert None not in found.steps
    return [found.pipelines[cases[-1]["pipeline"]]["kernel"] for cases in found.steps if cases]


@pytest.mark.parametrize(("k", "n"), [(64, 96), (63, 95)], ids=["fours", "odd"])
def test_products_of_all_sizes(k: int, n: int) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["y0"])]
    feeds = [{"x": halves(1, m, k)} for m in (1, 3, 40, 200)]
    model = graph(nodes, feeds[0], weights={"w": halves(k, n), "b": halves(n)})
    assert kernels(model) == ["matmul", "map"]
    for pairs in both(model, *feeds):
        assert_same(pairs)


def test_a_product_with_the_transpose_of_a_few_columns() -> None:
    nodes = [helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]), helper.make_node("MatMul", ["x", "turned"], ["y0"])]
    feeds = [{"x": halves(m, 68)} for m in (1, 7, 90)]
    for n in (3, 72):
        for pairs in both(graph(nodes, feeds[0], weights={"w": halves(n, 68)}), *feeds):
            assert_same(pairs)


@pytest.mark.parametrize("size", [20, 7])
@pytest.mark.parametrize(("kernel", "group"), [(3, 1), (1, 1), (3, 16)])
def test_convolutions(kernel: int, group: int, size: int) -> None:
    weights = {"w": halves(16, 16 // group, kernel, kernel), "b": halves(16)}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y0"], pads=[kernel // 2] * 4, group=group)]
    feed = {"x": halves(2, 16, size, size)}
    model = graph(nodes, feed, weights=weights, symbolic=False)
    assert kernels(model) == ["conv", "map"]
    assert_same(both(model, feed)[0])


def test_norm_and_softmax() -> None:
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["normed"], epsilon=1e-5),
        helper.make_node("Softmax", ["normed"], ["y0"]),
    ]
    feed = {"x": halves(5, 64)}
    model = graph(nodes, feed, weights={"scale": halves(64), "bias": halves(64)}, symbolic=False)
    assert kernels(model).count("norm") == kernels(model).count("softmax") == 1
    assert_same(both(model, feed)[0])


def test_attention_with_few_and_many_queries() -> None:
    nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y0"])]
    for queries in (1, 37):
        feed = {"q": halves(1, 2, queries, 16), "k": halves(1, 2, 37, 16), "v": halves(1, 2, 37, 16)}
        model = graph(nodes, feed, opset=23, symbolic=False)
        assert "attention" in kernels(model)
        assert_same(both(model, feed)[0])


def test_casts_that_others_read_stay() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=onnx.TensorProto.FLOAT),
        helper.make_node("MatMul", ["wide", "w"], ["y0"]),
        helper.make_node("Neg", ["wide"], ["negative"]),
        helper.make_node("CumSum", ["negative", "axis"], ["y1"]),
    ]
    feed = {"x": halves(9, 12)}
    weights = {"w": RNG.standard_normal((12, 8)).astype(np.float32), "axis": np.array(0, np.int64)}
    model = graph(nodes, feed, outputs=2, weights=weights)
    assert_same(both(model, feed)[0])


def test_bfloat16_weights_that_are_cast() -> None:
    wide = RNG.standard_normal((12, 8)).astype(np.float32)
    held = helper.make_tensor(
        "w", onnx.TensorProto.BFLOAT16, wide.shape, (wide.view(np.uint32) >> 16).astype(np.uint16).tobytes(), raw=True
    )
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], to=onnx.TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "wide"], ["y0"]),
    ]
    feeds = [{"x": RNG.standard_normal((m, 12)).astype(np.float32)} for m in (2, 30)]
    model = onnx.load_model_from_string(graph(nodes, feeds[0]))
    model.graph.initializer.append(held)
    for pairs in both(model.SerializeToString(), *feeds):
        assert_same(pairs)
