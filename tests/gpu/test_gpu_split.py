"""Weights larger than what an adapter binds at once."""

import numpy as np
import pytest
from gpu_model import assert_same, both, graph, section
from onnx import helper

from pyonnx_wasm.gpu import split
from pyonnx_wasm.runtimes import wgpu


@pytest.fixture(autouse=True)
def small_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if adapters bound 8 KB."""
    for module in (split, wgpu):
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
