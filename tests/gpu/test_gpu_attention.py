"""Attention."""

from typing import Any

import numpy as np
import onnx
import pytest
from gpu_model import Array, assert_same, both, graph, node

from pyonnx_wasm.gpu.kernels import attention


@pytest.fixture(autouse=True, params=["few", "tiles"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many queries in tiles, as where there are enough of them, and without."""
    monkeypatch.setattr(attention, "ENOUGH", 1 if request.param == "tiles" else 1 << 30)


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def feed(b: int, h: int, kv: int, sq: int, sk: int, d: int, dv: int, mask: tuple[int, ...] | None = None) -> dict[str, Array]:
    found = {"q": draw(b, h, sq, d), "k": draw(b, kv, sk, d), "v": draw(b, kv, sk, dv)}
    return found | ({"m": draw(*mask)} if mask else {})


SIZES: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "borders": ([(1, 2, 2, q, k, 64, n) for q, k, n in ((1, 255, 64), (1, 257, 65), (5, 63, 32), (6, 65, 33), (7, 129, 128))], {}),
    "long": ([(1, 2, 2, 1, 1100, 64, 64), (1, 1, 1, 5, 700, 40, 36), (1, 2, 1, 3, 530, 96, 260)], {}),
    "plain": ([(2, 3, 3, 37, 41, 32, 32), (1, 1, 1, 1, 300, 64, 64), (1, 2, 2, 4, 3, 8, 20), (1, 1, 1, 70, 1, 5, 3)], {}),
    "causal": (
        [(2, 2, 2, 50, 50, 16, 16), (1, 2, 2, 3, 90, 16, 16), (1, 2, 1, 9, 300, 16, 80), (1, 1, 1, 40, 20, 16, 16)],
        {"is_causal": 1},
    ),
    "grouped": ([(2, 6, 2, 33, 35, 16, 16), (1, 4, 1, 1, 70, 16, 16)], {}),
    "capped": ([(1, 2, 2, 33, 35, 16, 16), (1, 2, 2, 1, 35, 16, 16)], {"softcap": 2.0, "scale": 3.0}),
    "wide values": ([(1, 2, 2, 34, 40, 200, 300), (1, 2, 2, 2, 300, 200, 300)], {}),
    "empty": ([(0, 2, 2, 4, 5, 8, 8), (1, 2, 2, 0, 5, 8, 8)], {}),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    sizes, attributes = SIZES[name]
    for one in (feed(*s) for s in sizes):
        for pairs in both(node("Attention", one, opset=23, symbolic=False, **attributes), one):
            assert_same(pairs)


@pytest.mark.parametrize("causal", [0, 1])
def test_any_batch_and_length(causal: int) -> None:
    feeds = [feed(b, 4, 2, sq, sk, 16, 24) for b, sq, sk in ((1, 1, 1), (2, 50, 70), (1, 3, 300), (3, 33, 32), (0, 2, 2), (1, 0, 9))]
    model = onnx.load_from_string(node("Attention", feeds[0], opset=23, symbolic=False, is_causal=causal))
    for given, lengths in zip(model.graph.input, ("sq", "sk", "sk"), strict=True):
        given.type.tensor_type.shape.dim[0].dim_param = "batch"
        given.type.tensor_type.shape.dim[2].dim_param = lengths
    for pairs in both(model.SerializeToString(), *feeds):
        assert_same(pairs)


@pytest.mark.parametrize("sq", [2, 40])
@pytest.mark.parametrize("mask", [(1, 1, 1, 45), (2, 1, 0, 45), (1, 3, 0, 45), (2, 3, 0, 45)])
def test_masks(mask: tuple[int, ...], sq: int) -> None:
    one = feed(2, 3, 3, sq, 45, 24, 24, (mask[0], mask[1], mask[2] or sq, mask[3]))
    one["m"][..., 5:20] = -np.inf
    one["m"][0, 0, 0, :] = -np.inf
    one["m"][-1, -1, -1, :] = np.finfo(np.float32).min
    for pairs in both(node("Attention", one, opset=23, symbolic=False), one):
        assert_same(pairs)


@pytest.mark.parametrize("queries", [1, 9])
def test_infinities_and_nan_among_the_keys(queries: int) -> None:
    given = feed(1, 3, 3, queries, 300, 8, 8)
    given["k"][0, 0, 70], given["k"][0, 1, 299, 3], given["v"][0, 2, 100, 5] = np.inf, np.nan, np.inf
    (pair,) = both(node("Attention", given, opset=23, symbolic=False), given)
    assert_same(pair)


@pytest.mark.parametrize("queries", [1, 9])
def test_a_query_that_is_nan_gives_nan(queries: int) -> None:
    given = feed(1, 1, 1, queries, 12, 8, 8)
    given["q"][0, 0, 0] = np.nan
    (pair,) = both(node("Attention", given, opset=23, symbolic=False), given)
    assert np.isnan(pair[0][0][0, 0, 0]).all()
    assert_same(pair)


@pytest.mark.parametrize("queries", [1, 3, 40])
@pytest.mark.parametrize("keys", [0, 5, 300])
def test_a_softmax_over_hidden_keys_is_nan(queries: int, keys: int) -> None:
    """Written out, unlike the operator; a sum over no key at all is 0 in both."""
    one = {"q": draw(1, 2, queries, 8), "k": draw(1, 2, 8, keys), "v": draw(1, 2, keys, 12), "m": draw(queries, keys)}
    one["m"][::2] = -np.inf
    steps = [("MatMul", "qk", "s"), ("Add", "sm", "t"), ("Softmax", "t", "p"), ("MatMul", "pv", "y0")]
    model = graph([onnx.helper.make_node(op, list(ins), [out]) for op, ins, out in steps], one, symbolic=False)
    for pairs in both(model, one):
        assert_same(pairs)
        assert np.isnan(pairs[0][0][0, :, 0]).all() == (keys > 0)
