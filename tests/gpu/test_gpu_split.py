"""Weights larger than what an adapter binds at once."""

import numpy as np
import pytest
from gpu_model import assert_same, both, graph, section
from onnx import helper

from pyonnx_wasm.gpu import split
from pyonnx_wasm.runtimes import wgpu_program


@pytest.fixture(autouse=True)
def small_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if adapters bound 8 KB."""
    for module in (split, wgpu_program):
        monkeypatch.setattr(module, "BINDING_BYTES", 8192)


def test_a_table_and_the_product_with_it_transposed() -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((301, 24)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["rows", "turned"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["y0"]),
    ]
    weights = {"table": table, "bias": rng.standard_normal(301).astype(np.float32)}
    feeds = [{"ids": np.array(ids, np.int64)} for ids in ([0, 300, 84, 85, 86, -1, 170], [5], [1, 299])]
    model = graph(nodes, feeds[0], weights=weights)
    kernels = [row["kernel"] for row in section(model).pipelines]
    assert len(section(model).steps) > 4, kernels
    for pairs in both(model, *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("ending", [(), ("bias",), ("bias", "Relu"), ("residual",), ("residual", "Relu"), ("bias", "Relu", "residual")])
def test_a_product_with_rows(ending: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((100, 64)).astype(np.float32), "bias": rng.standard_normal(64).astype(np.float32)}
    names = iter(["t0", "t1", "t2", "t3"])
    here = next(names)
    nodes = [helper.make_node("MatMul", ["x", "w"], [here])]
    for what in ending:
        last, here = here, next(names)
        nodes.append(helper.make_node(what, [last], [here]) if what == "Relu" else helper.make_node("Add", [last, what], [here]))
    nodes[-1].output[0] = "y0"
    feeds = [
        {"x": rng.standard_normal((m, 100)).astype(np.float32), "residual": rng.standard_normal((m, 64)).astype(np.float32)}
        for m in (1, 5, 70)
    ]
    whole = ending == ("bias", "Relu", "residual")  # what is added last cannot be where a sum begins
    for feed in feeds:
        model = graph(nodes, feed, weights=weights, symbolic=False)
        assert len(section(model).steps) == (1 if whole else 4)
        assert_same(both(model, feed)[0])
