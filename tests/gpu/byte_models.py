"""Products of bytes of all types, sizes and zero points: for every player."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gpu_model import Array, graph
from onnx import helper

SIZES = [
    ((33, 21), (21, 40)),
    ((64, 64), (64, 32)),
    ((2, 3, 35, 16), (3, 16, 33)),
    ((40, 5), (5, 70)),
    ((1, 65), (65, 300)),
    ((31, 0), (0, 33)),
]
TYPES = [("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")]


def draw(shape: tuple[int, ...], dtype: str) -> Array:
    low = -128 if dtype == "int8" else 0
    return np.random.default_rng(sum(shape)).integers(low, low + 256, shape).astype(dtype)


def products() -> Iterator[tuple[str, bytes, list[dict[str, Array]]]]:
    """Names, models and feeds: without zero points, with one of each operand, with one per row and column, with b transposed, scaled."""
    for k, (left, right) in enumerate(TYPES):
        pairs = [(draw(a, left), draw(b, right)) for a, b in SIZES if len(a) == 2]
        plain = [{"a": a, "b": b} for a, b in pairs]
        yield f"plain_{k}", graph([helper.make_node("MatMulInteger", ["a", "b"], ["y0"])], plain[0]), plain
        zeros = [{"a": a, "b": b, "az": draw((1,), left)[0], "bz": draw((3,), right)[2]} for a, b in pairs]
        yield f"zeros_{k}", graph([helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y0"])], zeros[0]), zeros
        each = [{"a": a, "b": b, "bz": draw((b.shape[-1],), right)} for a, b in pairs]
        yield f"columns_{k}", graph([helper.make_node("MatMulInteger", ["a", "b", "", "bz"], ["y0"])], each[0]), each
    a, b = (draw(shape, "uint8") for shape in SIZES[2])
    yield "batched", graph([helper.make_node("MatMulInteger", ["a", "b"], ["y0"])], {"a": a, "b": b}), [{"a": a, "b": b}]
    nodes = [helper.make_node("Transpose", ["b"], ["t"], perm=[1, 0]), helper.make_node("MatMulInteger", ["a", "t"], ["y0"])]
    flipped = [{"a": draw((33, k), "int8"), "b": draw((40, k), "int8")} for k in (21, 64)]
    yield "transposed", graph(nodes, flipped[0]), flipped
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=1),
        helper.make_node("Mul", ["s", "ws"], ["ss"]),
        helper.make_node("Mul", ["f", "ss"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["y0"]),
    ]
    weights = {
        "w": draw((24, 36), "int8"),
        "ws": np.linspace(0.1, 0.2, 36, dtype=np.float32),
        "bias": np.linspace(-1, 1, 36, dtype=np.float32),
    }
    feeds = [{"x": np.random.default_rng(m).standard_normal((m, 24)).astype(np.float32)} for m in (1, 40)]
    yield "scaled", graph(nodes, feeds[0], weights=weights), feeds


# input, weights, attributes
WINDOWS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = [
    ((2, 5, 7, 9), (13, 5, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((1, 16, 8, 8), (40, 16, 1, 1), {}),
    ((1, 70, 7, 7), (9, 70, 1, 1), {}),
    ((2, 6, 9, 11), (18, 3, 3, 3), {"group": 2, "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
    ((1, 5, 10, 12), (5, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
]


def convolutions() -> Iterator[tuple[str, bytes, list[dict[str, Array]]]]:
    """Names, models and feeds: sums, and sums scaled, clamped or not, and quantised again, with ties and codes out of range."""
    for k, (left, right) in enumerate(TYPES):
        for at, (shape, window, attributes) in enumerate(WINDOWS):
            feeds = [{"x": draw(shape, left), "w": draw(window, right), "xz": draw((1,), left)[0], "wz": draw((window[0],), right)}]
            node = helper.make_node("ConvInteger", list(feeds[0]), ["y0"], **attributes)
            yield f"sums_{k}_{at}", graph([node], feeds[0], symbolic=False), feeds
            for act in ("", "Relu", "Sigmoid"):
                yield (
                    f"codes_{k}_{at}_{act}",
                    _quantised(left, right, shape, window, attributes, act, symbolic=at % 2 == 1),
                    [{"x": draw(shape, left)}],
                )


def _quantised(
    left: str, right: str, shape: tuple[int, ...], window: tuple[int, ...], attributes: dict[str, object], act: str, symbolic: bool
) -> bytes:
    """A convolution between dequantised and quantised tensors; its scales are powers of two, for ties. The weights' zero points are 0."""
    m = window[0]
    weights = {
        "w": draw(window, right), "ws": np.exp2(-np.arange(m) % 3).astype(np.float32), "xs": np.array(0.5, np.float32),
        "b": (np.arange(m) * 32).astype(np.float32), "ys": np.array(256 if not act else 512, np.float32),
        "yz": np.array(5, left), "xz": np.array(3, left), "wz": np.zeros(m, right),
    }  # fmt: skip
    last = "c"
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("Conv", ["xf", "wf", "b"], ["c"], **attributes),
    ]
    if act:
        nodes.append(helper.make_node(act, ["c"], ["a"]))
        last = "a"
    nodes.append(helper.make_node("QuantizeLinear", [last, "ys", "yz"], ["y0"]))
    return graph(nodes, {"x": draw(shape, left)}, symbolic=symbolic, weights=weights)


def quantised_products() -> Iterator[tuple[str, bytes, list[dict[str, Array]]]]:
    """Names, models and feeds: products whose results are quantised again, few and many."""
    for k, (left, right) in enumerate(TYPES):
        for shape, other in SIZES[:2] + SIZES[3:5]:
            n = other[1]
            weights = {
                "w": draw(other, right), "ws": np.exp2(-np.arange(n) % 3).astype(np.float32), "xs": np.array(0.5, np.float32),
                "ys": np.array(256, np.float32), "yz": np.array(5, left),
            }  # fmt: skip
            nodes = [
                helper.make_node("DequantizeLinear", ["x", "xs"], ["xf"]),
                helper.make_node("DequantizeLinear", ["w", "ws"], ["wf"], axis=1),
                helper.make_node("MatMul", ["xf", "wf"], ["p"]),
                helper.make_node("QuantizeLinear", ["p", "ys", "yz"], ["y0"]),
            ]
            feeds = [{"x": draw((m, shape[1]), left)} for m in (1, shape[0])]
            yield f"codes_{k}_{n}", graph(nodes, feeds[0], weights=weights), feeds
