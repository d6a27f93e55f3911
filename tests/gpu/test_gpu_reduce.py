"""Reductions on the GPU."""

import numpy as np
import pytest
from gpu_model import assert_same, both, graph, node
from onnx import helper

OPS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSumExp"]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axes", [[-1], [0], [0, 2], [0, 1, 2]])
def test_axes(op: str, axes: list[int]) -> None:
    rng = np.random.default_rng(3)

    def draw(*shape: int) -> dict[str, np.ndarray]:
        return {"x": (rng.standard_normal(shape) * 0.3 + 1).astype(np.float32)}

    feeds = [draw(2, 3, 5), draw(3, 1, 257), draw(2, 65, 3), draw(1, 1, 1)]
    nodes = [helper.make_node(op, ["x", "axes"], ["y0"], keepdims=0)]
    model = graph(nodes, feeds[0], weights={"axes": np.array(axes, np.int64)}, opset=18)
    for pairs in both(model, *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8", "uint32", "uint64", "float16", "bool"])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ReduceSum"])
def test_dtypes(op: str, dtype: str) -> None:
    if op == "ReduceSum" and dtype in ("uint8", "int8", "bool"):
        return
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2, (3, 200)).astype(bool) if dtype == "bool" else (rng.standard_normal((3, 200)) * 100).astype(dtype)
    model = graph([helper.make_node(op, ["x", "axes"], ["y0"])], {"x": x}, weights={"axes": np.array([1], np.int64)}, opset=20)
    for pairs in both(model, {"x": x}, {"x": x[:, :3].copy()}):
        assert_same(pairs)


def test_nan_and_nothing() -> None:
    x = np.array([[1, np.nan, 3], [np.inf, -np.inf, 0], [5, 6, 7]], np.float32)
    for op in ("ReduceMax", "ReduceMin"):
        for pairs in both(node(op, {"x": x}, opset=13, axes=[1]), {"x": x}, {"x": x[:0]}):
            assert_same(pairs)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "uint8"])
@pytest.mark.parametrize(("op", "last"), [("ArgMax", 0), ("ArgMax", 1), ("ArgMin", 0), ("ArgMin", 1)])
def test_arg(op: str, last: int, dtype: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(0, 4, (3, 67, 5)).astype(dtype)
    if dtype == "float32" and not last:
        x[1, 7, 2] = np.nan
    model = node(op, {"x": x}, opset=13, axis=1, select_last_index=last, keepdims=0)
    for pairs in both(model, {"x": x}, {"x": x[:1, :1].copy()}, {"x": x[:0]}):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_cumulative(exclusive: int, reverse: int, dtype: str) -> None:
    rng = np.random.default_rng(6)
    x = (rng.standard_normal((3, 67, 5)) * 9).astype(dtype)
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["y0"], exclusive=exclusive, reverse=reverse)]
    model = graph(nodes, {"x": x}, weights={"axis": np.array(1, np.int64)})
    for pairs in both(model, {"x": x}, {"x": x[:, :1].copy()}):
        assert_same(pairs)
