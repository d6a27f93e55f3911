"""Reading and writing by index, transposed convolution, literals."""

from typing import Any

import numpy as np
import onnx
import pytest
from gpu_model import assert_same, both, graph, node

DTYPES = ["float32", "float16", "int64", "uint8", "bool", "float64"]


def draw(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.integers(0, 2, shape).astype(bool) if dtype == "bool" else (rng.standard_normal(shape) * 9).astype(dtype)


def places(n: int, kind: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-n, n, shape).astype(kind)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("axis", "kind"), [(0, "int64"), (1, "int32"), (2, "int64")])
def test_gather_elements(dtype: str, axis: int, kind: str) -> None:
    feeds = [
        {"x": draw(dtype, 4, 5, 6), "i": places((4, 5, 6)[axis], kind, 3, 4, 5)},
        {"x": draw(dtype, 7, 9, 8), "i": places((7, 9, 8)[axis], kind, 7, 8, 3)},
        {"x": draw(dtype, 1, 1, 1), "i": places(1, kind, 1, 0, 1)},
    ]
    for pairs in both(node("GatherElements", feeds[0], axis=axis), *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "depth"), [(0, 1), (0, 2), (1, 1), (1, 2)])
def test_gather_nd(dtype: str, batch: int, depth: int) -> None:
    feeds = [
        {"x": draw(dtype, 3, 4, 5), "i": places(3, "int64", 3, 7, depth)},
        {"x": draw(dtype, 2, 3, 3), "i": places(2, "int64", 2, 1, depth)},
    ]
    for feed in feeds:
        model = graph([onnx.helper.make_node("GatherND", ["x", "i"], ["y0"], batch_dims=batch)], feed, symbolic=False)
        for pairs in both(model, feed):
            assert_same(pairs)


@pytest.mark.parametrize("op", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint64", "uint8", "int32", "bool"])
def test_scatter_elements(dtype: str, op: str) -> None:
    for axis, shape in ((0, (4, 5)), (1, (3, 5))):
        feeds = [
            {"x": draw(dtype, 5, 6), "i": places((5, 6)[axis], "int64", *shape), "u": draw(dtype, *shape)},
            {"x": draw(dtype, 9, 7), "i": places((9, 7)[axis], "int64", 6, 7), "u": draw(dtype, 6, 7)},
            {"x": draw(dtype, 2, 3), "i": places(2, "int64", 0, 3), "u": draw(dtype, 0, 3)},
        ]
        for pairs in both(node("ScatterElements", feeds[0], axis=axis, reduction=op), *feeds):
            assert_same(pairs)


@pytest.mark.parametrize("op", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_scatter_nd(dtype: str, op: str) -> None:
    for depth in (1, 2):
        feed = {"x": draw(dtype, 5, 4, 3), "i": places(4, "int32", 6, depth), "u": draw(dtype, 6, *(4, 3)[depth - 1 :])}
        model = graph([onnx.helper.make_node("ScatterND", list(feed), ["y0"], reduction=op)], feed, symbolic=False)
        for pairs in both(model, feed):
            assert_same(pairs)


def test_scatter_without_reduction_takes_any_dtype() -> None:
    feed = {"x": draw("float64", 5, 3), "i": places(5, "int64", 4, 3), "u": draw("float64", 4, 3)}
    for pairs in both(node("ScatterElements", feed), feed):
        assert_same(pairs)


TRANSPOSES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 6, 5, 7), (6, 4, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 0]}),
    ((1, 6, 5, 4), (6, 2, 2, 3), {"group": 3, "dilations": [2, 1]}),
    ((1, 3, 9), (3, 5, 4), {"strides": [3]}),
    ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [1, 2, 2]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), TRANSPOSES)
def test_conv_transpose(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    weights = {"w": draw("float32", *w), "b": draw("float32", w[1] * attributes.get("group", 1))}
    feeds = [{"x": draw("float32", *s)} for s in (x, (x[0] + 1, *x[1:-1], x[-1] + 4))]
    model = graph([onnx.helper.make_node("ConvTranspose", ["x", "w", "b"], ["y0"], **attributes)], feeds[0], weights=weights)
    for pairs in both(model, *feeds):
        assert_same(pairs)


def test_literals_follow_the_shapes() -> None:
    feeds = [{"x": draw("float32", 3, 5)}, {"x": draw("float32", 1, 0)}]
    steps = [
        onnx.helper.make_node("Shape", ["x"], ["y0"]),
        onnx.helper.make_node("Neg", ["y0"], ["y1"]),
        onnx.helper.make_node("Cast", ["y1"], ["y2"], to=onnx.TensorProto.INT32),
    ]
    for pairs in both(graph(steps, feeds[0], 3), *feeds):
        assert_same(pairs)
