"""Kernels that move elements without looking at them."""

import numpy as np
import onnx
import pytest
from gpu_model import assert_same, both, graph, node

import pyonnx_wasm as ort

DTYPES = ["float32", "float16", "int64", "uint8", "bool", "int16", "float64"]


def draw(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.integers(0, 2, shape).astype(bool) if dtype == "bool" else (rng.standard_normal(shape) * 100).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("perm", [(1, 0), (0, 2, 1), (2, 0, 1), (0, 2, 3, 1), (3, 1, 2, 0)])
def test_transpose(dtype: str, perm: tuple[int, ...]) -> None:
    shapes = [(37, 65, 33, 5)[: len(perm)], (1, 2, 3, 4)[: len(perm)], (16, 0, 2, 3)[: len(perm)], (3, 17, 70, 31)[-len(perm) :]]
    feeds = [{"x": draw(dtype, *s)} for s in shapes]
    for pairs in both(node("Transpose", feeds[0], perm=list(perm)), *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_slice_and_expand(dtype: str) -> None:
    steps = [
        onnx.helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["s"]),
        onnx.helper.make_node("Unsqueeze", ["s", "two"], ["u"]),
        onnx.helper.make_node("Expand", ["u", "wide"], ["y0"]),
    ]
    weights = {
        "starts": np.array([-1, 1]), "ends": np.array([-1000, 5]), "axes": np.array([0, 1]), "steps": np.array([-2, 1]),
        "two": np.array([2]), "wide": np.array([1, 1, 3]),
    }  # fmt: skip
    feeds = [{"x": draw(dtype, 7, 6)}, {"x": draw(dtype, 1, 9)}]
    for pairs in both(graph(steps, feeds[0], weights=weights), *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat(dtype: str, axis: int) -> None:
    def feed(*lengths: int) -> dict[str, np.ndarray]:
        shapes = [[3, 5, 7] for _ in lengths]
        for shape, n in zip(shapes, lengths, strict=True):
            shape[axis] = n
        return {f"x{k}": draw(dtype, *s) for k, s in enumerate(shapes)}

    feeds = [feed(3, 1, 6), feed(0, 2, 0), feed(0, 0, 0)]
    for pairs in both(node("Concat", feeds[0], axis=axis), *feeds):
        assert_same(pairs)


def test_concat_of_views() -> None:
    steps = [
        onnx.helper.make_node("Transpose", ["a"], ["t"], perm=[1, 0]),
        onnx.helper.make_node("Concat", ["t", "b", "t"], ["y0"], axis=1),
    ]
    feeds = [{"a": draw("float32", 5, 9), "b": draw("float32", 9, 2)}, {"a": draw("float32", 1, 1), "b": draw("float32", 1, 8)}]
    for pairs in both(graph(steps, feeds[0]), *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("axis", "kind"), [(0, "int64"), (1, "int32"), (-1, "int64")])
def test_gather(dtype: str, axis: int, kind: str) -> None:
    feeds = []
    for shape, count in (((5, 7, 3), (2, 3)), ((9, 1, 1), (1, 1)), ((1, 4, 2), (0, 3))):
        n = shape[axis]
        at = np.random.default_rng(count[0]).integers(-n, n, count).astype(kind)
        feeds.append({"x": draw(dtype, *shape), "indices": at})
    for pairs in both(node("Gather", feeds[0], axis=axis), *feeds):
        assert_same(pairs)


def test_gather_takes_zeros_where_an_index_is_out_of_range() -> None:
    x = draw("float32", 4, 3)
    at = np.array([1, 4, -5, 1 << 32, -1])
    session = ort.InferenceSession(node("Gather", {"x": x, "indices": at}), providers=["gpu"])
    (got,) = session.run(None, {"x": x, "indices": at})
    np.testing.assert_array_equal(got, np.stack([x[1], 0 * x[0], 0 * x[0], 0 * x[0], x[3]]))
