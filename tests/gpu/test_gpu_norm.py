"""Softmax and normalisation."""

from typing import Any

import numpy as np
import pytest
from gpu_model import assert_same, both, node


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(op: str, axis: int) -> None:
    shapes = [(3, 5, 7), (1, 1, 1), (2, 33, 1031), (70, 1, 300), (1200, 2, 3), (0, 2, 3), (2, 0, 3), (2, 3, 0)]
    feeds = [{"x": draw(*s) * 20} for s in shapes]
    special = draw(4, 4, 4)
    special[0, 1, 2], special[1, 0, 0], special[2, :, 0], special[3, 2] = np.nan, np.inf, -np.inf, -np.inf
    special[2, 2, 0] = 1
    for pairs in both(node(op, feeds[0], axis=axis), *feeds, {"x": special}):
        assert_same(pairs)


def test_softmax_of_halves() -> None:
    feed = {"x": draw(9, 50).astype(np.float16)}
    for pairs in both(node("Softmax", feed), feed):
        assert_same(pairs)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("n", [1, 7, 768, 1500])
def test_layer_norm(n: int, outputs: int) -> None:
    feeds = [{"x": draw(*s, n) * 3 + 100, "s": draw(n), "b": draw(n)} for s in ((2, 3), (1, 1), (37, 5), (0, 4))]
    for pairs in both(node("LayerNormalization", feeds[0], outputs), *feeds):
        assert_same(pairs, atol=1e-4 if n > 1 else 1e-3)
    for pairs in both(node("LayerNormalization", feeds[0], outputs, symbolic=False), feeds[0]):
        assert_same(pairs, atol=1e-4 if n > 1 else 1e-3)


def test_layer_norm_over_two_axes() -> None:
    feed = {"x": draw(5, 6, 8), "s": draw(6, 8)}
    for pairs in both(node("LayerNormalization", feed, axis=1), feed):
        assert_same(pairs)


KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "InstanceNormalization": (1, {}), "GroupNormalization": (1, {"num_groups": 3}), "RMSNormalization": (-1, {}),
}  # fmt: skip


@pytest.mark.parametrize("op", KINDS)
def test_others(op: str) -> None:
    axis, attributes = KINDS[op]
    feeds = []
    for shape in ((2, 6, 5, 7), (1, 6, 4, 4), (3, 6, 40, 40)):
        n = shape[axis]
        feeds.append({"x": draw(*shape), "s": draw(n)} | ({"b": draw(n + 1)[:n].copy()} if axis == 1 else {}))
    for feed in feeds:
        for pairs in both(node(op, feed, opset=23, symbolic=False, **attributes), feed):
            assert_same(pairs)


def test_nan_and_infinity_stay_in_their_rows() -> None:
    x = draw(4, 50)
    x[1, 3], x[2, 49] = np.nan, np.inf
    feed = {"x": x, "s": draw(50)}
    for pairs in both(node("LayerNormalization", feed), feed):
        assert_same(pairs)


@pytest.mark.parametrize("n", [2, 77, 300, 1028])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_rows_whose_squares_are_beyond_float32(op: str, n: int) -> None:
    """Each row at another end of float32, among rows of usual size; without an epsilon, and with one that tiny rows are lost in."""
    sizes = np.array([1, 1e38, 1e19, 3e18, 1e-13, 1e-18, 1e-25, 1e-36, 1, 1e30])[:, None]
    x = (np.random.default_rng(n).uniform(0.5, 1, (len(sizes), n)) * sizes * np.where(np.arange(n) % 3, 1, -3)).astype(np.float32)
    feed = {"x": x, "s": draw(n)} | ({"b": draw(n + 1)[:n].copy()} if op == "LayerNormalization" else {})
    for epsilon in (0.0, 1e-30, 1e-5):
        for outputs in (1, 3) if op == "LayerNormalization" else (1,):
            for pairs in both(node(op, feed, outputs, opset=23, epsilon=epsilon), feed):
                for want, got in pairs:
                    assert np.isfinite(want).all()
                    for a, b in zip(want, got, strict=True):
                        assert_same([(a / np.abs(a).max(), b / np.abs(a).max())])


@pytest.mark.parametrize("op", ["InstanceNormalization", "GroupNormalization"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_groups_at_the_ends(op: str, dtype: str) -> None:
    info = np.finfo(dtype)
    sizes = np.array([1, float(info.max) / 2, float(info.max) ** 0.5, float(info.tiny) ** 0.5, float(info.tiny) * 64, 1])
    x = (np.random.default_rng(3).uniform(-1, 1, (2, 6, 9, 4)) * sizes[:, None, None]).astype(dtype)
    feed = {"x": x, "s": np.ones(6, dtype), "b": np.zeros(6, dtype)}
    attributes = {"num_groups": 3} if op == "GroupNormalization" else {}
    for pairs in both(node(op, feed, symbolic=False, epsilon=0.0, **attributes), feed):
        assert all(np.isfinite(want).all() for want, _ in pairs)
        assert_same(pairs)
