"""Pooling, padding and resampling."""

from typing import Any

import numpy as np
import onnx
import pytest
from gpu_model import assert_same, both, graph, node


def draw(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.integers(0, 2, shape).astype(bool) if dtype == "bool" else (rng.standard_normal(shape) * 50).astype(dtype)


POOLS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("MaxPool", (2, 3, 9, 11), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("MaxPool", (1, 2, 17), {"kernel_shape": [4], "ceil_mode": 1, "strides": [3], "dilations": [2]}),
    ("MaxPool", (1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "pads": [1, 0, 0, 0, 2, 1]}),
    ("AveragePool", (2, 3, 9, 11), {"kernel_shape": [3, 2], "pads": [1, 1, 1, 0]}),
    (
        "AveragePool",
        (1, 3, 9, 11),
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1, "ceil_mode": 1, "strides": [2, 3]},
    ),
    ("AveragePool", (1, 2, 4, 5, 6), {"kernel_shape": [2, 2, 2], "auto_pad": "SAME_UPPER"}),
    ("LpPool", (1, 2, 8, 9), {"kernel_shape": [3, 3], "p": 2}),
    ("LpPool", (1, 2, 8, 9), {"kernel_shape": [2, 3], "p": 3, "pads": [1, 1, 0, 0]}),
]


@pytest.mark.parametrize(("op", "shape", "attributes"), POOLS)
def test_pool(op: str, shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    feeds = [{"x": draw("float32", *s)} for s in (shape, (shape[0] + 1, 1, *(n + 3 for n in shape[2:])), (0, *shape[1:]))]
    feeds[1]["x"].flat[::7] = np.nan
    feeds[1]["x"].flat[::5] = -np.inf
    if op != "MaxPool":
        feeds[1]["x"] = np.nan_to_num(feeds[1]["x"], neginf=-3)
    for pairs in both(node(op, feeds[0], **attributes, opset=22), *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8"])
@pytest.mark.parametrize("order", [0, 1])
def test_max_pool_with_indices(dtype: str, order: int) -> None:
    feed = {"x": draw(dtype, 2, 3, 7, 6)}
    model = node("MaxPool", feed, 2, kernel_shape=[3, 3], pads=[1, 1, 1, 1], storage_order=order)
    for pairs in both(model, feed):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool", "float64"])
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(mode: str, dtype: str) -> None:
    feeds = [{"x": draw(dtype, 5, 7)}, {"x": draw(dtype, 2, 3)}]
    weights = {"pads": np.array([1, 2, 3, -1]), "v": np.array(1).astype(dtype)}
    for name in ("", "v"):
        steps = [onnx.helper.make_node("Pad", ["x", "pads", name], ["y0"], mode=mode)]
        for pairs in both(graph(steps, feeds[0], weights=weights), *feeds):
            assert_same(pairs)


def test_pad_with_a_fed_value() -> None:
    feed = {"x": draw("float32", 3, 4), "v": np.array(2.5, np.float32)}
    steps = [onnx.helper.make_node("Pad", ["x", "pads", "v"], ["y0"])]
    for pairs in both(graph(steps, feed, weights={"pads": np.array([1, 0, 0, 2])}), feed):
        assert_same(pairs)


COORDINATES = ["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners", "half_pixel_symmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def resized(feed: dict[str, np.ndarray], scales: list[float], **attributes: Any) -> bytes:
    weights = {"scales": np.array(scales, np.float32)}
    return graph([onnx.helper.make_node("Resize", ["x", "", "scales"], ["y0"], **attributes)], feed, weights=weights)


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 3], [1, 1, 0.6, 1.7]])
def test_resize(mode: str, coordinate: str, scales: list[float]) -> None:
    feeds = [{"x": draw("float32", *s)} for s in ((1, 2, 5, 7), (2, 1, 11, 4))]
    for rounding in ROUNDINGS if mode == "nearest" and coordinate != "half_pixel_symmetric" else ROUNDINGS[:1]:
        model = resized(feeds[0], scales, mode=mode, coordinate_transformation_mode=coordinate, nearest_mode=rounding)
        for pairs in both(model, *feeds):
            assert_same(pairs)


@pytest.mark.parametrize("attributes", [{"antialias": 1}, {"exclude_outside": 1}, {"cubic_coeff_a": -0.5}])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_filters(mode: str, attributes: dict[str, Any]) -> None:
    feeds = [{"x": draw("float32", *s)} for s in ((1, 1, 9, 12), (1, 2, 31, 5))]
    for pairs in both(resized(feeds[0], [1, 1, 0.4, 1.5], mode=mode, **attributes), *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool", "float16", "float64"])
def test_resize_of_any_dtype(dtype: str) -> None:
    feeds = [{"x": draw(dtype, 1, 2, 5, 7)}, {"x": draw(dtype, 1, 1, 1, 1)}]
    for pairs in both(resized(feeds[0], [1, 1, 2, 1.5], mode="nearest"), *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize(mode: str) -> None:
    feed = {"x": draw("float32", 1, 1, 8, 9)}
    weights = {"roi": np.array([0, 0, 0.3, 0.4, 1, 1, 1.2, 0.8], np.float32), "sizes": np.array([1, 1, 5, 6])}
    steps = [
        onnx.helper.make_node(
            "Resize",
            ["x", "roi", "", "sizes"],
            ["y0"],
            mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.5,
        )
    ]
    for pairs in both(graph(steps, feed, weights=weights), feed):
        assert_same(pairs)


def test_resize_to_the_size_of_another_tensor() -> None:
    feeds = [{"x": draw("float32", 1, 2, *a), "like": draw("float32", 1, 2, *b)} for a, b in (((5, 7), (10, 3)), ((64, 3), (17, 48)))]
    steps = [
        onnx.helper.make_node("Shape", ["like"], ["size"]),
        onnx.helper.make_node("Resize", ["x", "", "", "size"], ["y0"], mode="linear", coordinate_transformation_mode="align_corners"),
        onnx.helper.make_node("Resize", ["x", "", "", "size"], ["y1"], mode="nearest"),
    ]
    for pairs in both(graph(steps, feeds[0], 2), *feeds):
        assert_same(pairs)
