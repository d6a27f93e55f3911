"""Convolution and its transpose."""

from typing import Any

import numpy as np
import onnx
import pytest
from gpu_model import assert_same, both, graph, section

from pyonnx_wasm.runtimes import wgpu_device


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((2, 24, 10, 8), (33, 24, 1, 1), {}),
    "pointwise, odd": ((1, 19, 7, 7), (70, 19, 1, 1), {}),
    "pointwise, large": ((1, 36, 64, 64), (130, 36, 1, 1), {}),
    "pointwise, strided": ((1, 17, 9, 11), (12, 17, 1, 1), {"strides": [2, 2]}),
    "3 x 3": ((2, 16, 13, 15), (40, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    "3 x 3, large": ((1, 20, 65, 63), (129, 20, 3, 3), {"pads": [1, 1, 1, 1]}),
    "7 x 7 of images": ((1, 3, 37, 41), (64, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    "dilated": ((1, 9, 20, 20), (10, 9, 3, 3), {"dilations": [2, 3], "pads": [2, 0, 1, 4]}),
    "one axis": ((2, 5, 50), (11, 5, 4), {"strides": [3], "pads": [2, 1]}),
    "three axes": ((1, 4, 5, 6, 7), (9, 4, 3, 2, 3), {"pads": [1, 0, 1, 1, 1, 2], "strides": [1, 2, 1]}),
    "grouped": ((1, 24, 9, 9), (48, 8, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "small groups": ((1, 12, 9, 9), (8, 3, 3, 3), {"group": 4}),
    "depthwise": ((2, 6, 33, 35), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "depthwise, strided": ((1, 5, 40, 70), (5, 1, 5, 5), {"group": 5, "pads": [2, 2, 2, 2], "strides": [2, 2]}),
    "depthwise, small": ((1, 7, 7, 7), (7, 1, 3, 3), {"group": 7, "pads": [1, 1, 1, 1]}),
    "depthwise, doubled": ((1, 3, 20, 20), (6, 1, 3, 3), {"group": 3}),
    "depthwise, wide window": ((1, 2, 60, 90), (2, 1, 31, 41), {"group": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_conv(name: str) -> None:
    x, w, attributes = CASES[name]
    feeds = [{"x": draw(*shape), "b": draw(w[0])} for shape in (x, (x[0] + 1, *x[1:-1], x[-1] + 5), (0, *x[1:]))]
    nodes = [onnx.helper.make_node("Conv", ["x", "w", "b"], ["y0"], **attributes)]
    weights = {"w": draw(*w)}
    for pairs in both(graph(nodes, feeds[0], weights=weights), *feeds):
        assert_same(pairs, rtol=1e-3, atol=1e-5)
    for pairs in both(graph(nodes, feeds[0], weights=weights, symbolic=False), feeds[0]):
        assert_same(pairs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["pointwise", "pointwise, odd", "3 x 3", "3 x 3, large", "7 x 7 of images", "three axes", "grouped"])
def test_tiles_on_adapters_that_want_many_workgroups(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgpu_device, "_workgroups", lambda info: 128)
    x, w, attributes = CASES[name]
    feed = {"x": draw(*x), "b": draw(w[0])}
    nodes = [onnx.helper.make_node("Conv", ["x", "w", "b"], ["y0"], **attributes)]
    for symbolic in (True, False):
        for pairs in both(graph(nodes, feed, weights={"w": draw(*w)}, symbolic=symbolic), feed):
            assert_same(pairs, rtol=1e-3, atol=1e-5)


ACTIVATIONS: dict[str, dict[str, Any]] = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "HardSwish": {}, "LeakyRelu": {"alpha": 0.1}, "Elu": {"alpha": 0.7},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["after", "before", "alone"])
@pytest.mark.parametrize("op", ACTIVATIONS)
def test_epilogue(op: str, kind: str) -> None:
    feed = {"x": draw(1, 8, 6, 6), "r": draw(1, 8, 6, 6)}
    steps = [onnx.helper.make_node("Conv", ["x", "w", "b"], ["c"])]
    if kind == "after":
        steps += [onnx.helper.make_node("Add", ["c", "r"], ["s"]), onnx.helper.make_node(op, ["s"], ["y0"], **ACTIVATIONS[op])]
    else:
        steps += [onnx.helper.make_node(op, ["c"], ["a"], **ACTIVATIONS[op]), onnx.helper.make_node("Add", ["a", "r"], ["y0"])]
    feed = feed if kind != "alone" else {"x": feed["x"]}
    steps = steps if kind != "alone" else [steps[0], onnx.helper.make_node(op, ["c"], ["y0"], **ACTIVATIONS[op])]
    model = graph(steps, feed, weights={"w": draw(8, 8, 1, 1), "b": draw(8)}, symbolic=False)
    assert len(section(model).steps) == 1
    for pairs in both(model, feed):
        assert_same(pairs, rtol=1e-3, atol=1e-5)


def test_nan_spreads_only_over_its_window() -> None:
    x = draw(1, 3, 12, 12)
    x[0, 1, 5, 6] = np.nan
    model = graph([onnx.helper.make_node("Conv", ["x", "w"], ["y0"])], {"x": x}, weights={"w": draw(9, 3, 3, 3)})
    for pairs in both(model, {"x": x}):
        assert_same(pairs, rtol=1e-3, atol=1e-5)
