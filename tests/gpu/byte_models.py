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
