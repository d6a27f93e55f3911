"""Reductions, places of extremes, running sums, top-k."""

from typing import Any

import numpy as np
import pytest
from gpu_model import Array, assert_same, both, graph, node
from onnx import helper

REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2", "LogSum", "LogSumExp"]


def draw(*shape: int, dtype: str = "float32") -> Array:
    rng = np.random.default_rng(sum(shape))
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(bool) if kind.kind == "b" else rng.integers(-50 * (kind.kind == "i"), 50, shape).astype(dtype)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reduce(op: str) -> None:
    make = (lambda x: np.abs(x) + 0.5) if op == "LogSum" else (lambda x: x)
    for axes in ([2], [0], [1], [0, 2], [0, 1, 2]):
        shapes = [(3, 5, 7), (1, 1, 1), (2, 33, 70), (40, 3, 40)] + ([(0, 4, 3)] if op in ("Sum", "Max", "Min", "Prod") else [])
        if op == "Prod":
            shapes = [s for s in shapes if s[0] < 40]
        feeds = [{"x": make(draw(*s))} for s in shapes]
        steps = [helper.make_node(f"Reduce{op}", ["x", "axes"], ["y0"], keepdims=len(axes) % 2)]
        for pairs in both(graph(steps, feeds[0], weights={"axes": np.array(axes)}), *feeds):
            assert_same(pairs, rtol=1e-3, atol=1e-5)


WIDE = ["float16", "int32", "uint32", "int64", "uint64"]  # what the standard sums and multiplies
SMALL = ["int8", "uint8", "bool"]  # what it only compares


@pytest.mark.parametrize(
    ("op", "dtype"),
    [*((op, d) for op in ("Sum", "Mean", "Prod") for d in WIDE), *((op, d) for op in ("Max", "Min") for d in WIDE + SMALL)],
)
def test_reduce_types(op: str, dtype: str) -> None:
    feeds = [{"x": draw(*s, dtype=dtype)} for s in ((3, 5), (2, 300), (1, 0))][: 2 if op == "Mean" else 3]
    steps = [helper.make_node(f"Reduce{op}", ["x", "axes"], ["y0"])]
    for pairs in both(graph(steps, feeds[0], opset=20, weights={"axes": np.array([1])}), *feeds):
        assert_same(pairs)


def test_reduce_of_long_rows_and_views() -> None:
    feeds = [{"x": draw(3, 40_001)}, {"x": draw(200, 1100)}]
    for axis in (0, 1):
        steps = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("ReduceSum", ["t", "axes"], ["y0"])]
        for pairs in both(graph(steps, feeds[0], weights={"axes": np.array([axis])}), *feeds):
            assert_same(pairs)


def test_extremes_of_nan() -> None:
    x = draw(4, 50)
    x[1, 3], x[2, 49], x[3, :] = np.nan, np.inf, -np.inf
    for op in ("ReduceMax", "ReduceMin", "ReduceSum"):
        steps = [helper.make_node(op, ["x", "axes"], ["y0"])]
        for pairs in both(graph(steps, {"x": x}, weights={"axes": np.array([1])}), {"x": x}):
            assert_same(pairs, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "uint64", "uint8"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_places(axis: int, last: int, dtype: str) -> None:
    feeds = [{"x": draw(*s, dtype=dtype)} for s in ((3, 5), (1, 1), (7, 1500), (300, 40))]
    if dtype == "float32":
        feeds[2]["x"][1, 5], feeds[2]["x"][1, 9], feeds[2]["x"][2, 0] = np.nan, np.nan, np.inf
    for op in ("ArgMax", "ArgMin"):
        for pairs in both(node(op, feeds[0], axis=axis, select_last_index=last), *feeds):
            assert_same(pairs)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_sums(exclusive: int, reverse: int, dtype: str) -> None:
    feeds = [{"x": draw(*s, dtype=dtype)} for s in ((3, 5), (1, 1), (2, 700), (300, 3), (2, 0))]
    for axis in (0, 1):
        steps = [helper.make_node("CumSum", ["x", "axis"], ["y0"], exclusive=exclusive, reverse=reverse)]
        for pairs in both(graph(steps, feeds[0], weights={"axis": np.array(axis)}), *feeds):
            assert_same(pairs)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "uint8"])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_top_k(axis: int, largest: int, dtype: str) -> None:
    feeds: list[dict[str, Any]] = []
    for shape, k in (((5, 5), 3), ((40, 300), 7), ((3, 1000), 1), ((4, 4), 4), ((6, 2), 0)):
        feeds.append({"x": draw(*shape, dtype=dtype), "k": np.array([min(k, shape[axis])])})
    if dtype == "float32":
        feeds[1]["x"][1, 5], feeds[1]["x"][1, 9], feeds[1]["x"][2, 0], feeds[1]["x"][3, :] = np.nan, np.nan, np.inf, -0.0
    for feed in feeds:
        steps = [helper.make_node("TopK", ["x", "k"], ["y0", "y1"], axis=axis, largest=largest)]
        model = graph(steps, {"x": feed["x"]}, 2, weights={"k": feed["k"]})
        for pairs in both(model, {"x": feed["x"]}):
            assert_same(pairs)
