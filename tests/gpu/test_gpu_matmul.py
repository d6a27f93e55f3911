"""Matrix products."""

from typing import Any

import numpy as np
import onnx
import pytest
from gpu_model import assert_same, both, graph, node, section

from pyonnx_wasm.runtimes import wgpu_device


def draw(*shape: int, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.standard_normal(shape).astype(dtype) if dtype == "float32" else rng.integers(-9 * (dtype[0] != "u"), 9, shape).astype(dtype)


def pair(a: tuple[int, ...], b: tuple[int, ...], dtype: str = "float32") -> dict[str, np.ndarray]:
    return {"a": draw(*a, dtype=dtype), "b": draw(*b, dtype=dtype)}


SIZES = [(1, 1, 1), (3, 5, 7), (1, 64, 31), (2, 300, 100), (8, 77, 129), (9, 33, 65), (64, 64, 64), (130, 37, 67), (200, 1, 5),
         (75, 200, 1),
         (1, 1000, 1), (500, 129, 3), (65, 0, 9), (0, 4, 4), (33, 4, 0), (700, 24, 1100), (1450, 9, 1500)]  # fmt: skip


def test_any_size() -> None:
    feeds = [pair((m, k), (k, n)) for m, k, n in SIZES]
    for pairs in both(node("MatMul", feeds[0]), *feeds):
        assert_same(pairs, rtol=1e-3)


@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("k", [64, 63])
def test_weights(k: int, transposed: tuple[int, int]) -> None:
    def feed(m: int) -> dict[str, np.ndarray]:
        return {"a": draw(k, m) if transposed[0] else draw(m, k)}

    weights = {"b": draw(100, k) if transposed[1] else draw(k, 100), "c": draw(100)}
    gemm = onnx.helper.make_node("Gemm", ["a", "b", "c"], ["y0"], transA=transposed[0], transB=transposed[1], alpha=0.5, beta=2.0)
    feeds = [feed(m) for m in (1, 5, 70, 0, 1040)]
    for pairs in both(graph([gemm], feeds[0], weights=weights), *feeds):
        assert_same(pairs, rtol=1e-3)


def test_few_columns() -> None:
    for k, n in ((64, 3), (96, 1), (61, 8)):
        feeds = [{"a": draw(m, k)} for m in (1, 45, 300)]
        for pairs in both(graph([onnx.helper.make_node("MatMul", ["a", "b"], ["y0"])], feeds[0], weights={"b": draw(k, n)}), *feeds):
            assert_same(pairs, rtol=1e-3)


BATCHES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 33, 20), (3, 20, 40)), ((2, 3, 1, 70), (1, 3, 70, 9)), ((2, 1, 5, 6), (3, 6, 7)), ((7, 50, 24), (24, 36)), ((19,), (4, 19, 2)),
    ((2, 1, 2, 1, 2, 3, 20, 5), (1, 3, 1, 2, 1, 3, 5, 18)), ((6, 40, 32), (32,)), ((0, 3, 4), (4, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), BATCHES)
def test_batches(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    feed = pair(a, b)
    for pairs in both(node("MatMul", feed, symbolic=False), feed):
        assert_same(pairs, rtol=1e-3)


def test_operands_are_views() -> None:
    steps = [
        onnx.helper.make_node("Transpose", ["a"], ["t"], perm=[1, 2, 0]),
        onnx.helper.make_node("Slice", ["t", "starts", "ends", "axes"], ["s"]),
        onnx.helper.make_node("MatMul", ["s", "b"], ["y0"]),
    ]
    weights = {"starts": np.array([1, 1]), "ends": np.array([9, 100]), "axes": np.array([0, 1])}
    feeds = [{"a": draw(6, 9, n), "b": draw(1, 6, m)} for n, m in ((5, 7), (40, 48), (3, 1))]
    for pairs in both(graph(steps, feeds[0], weights=weights), *feeds):
        assert_same(pairs, rtol=1e-3)


def test_parts_that_start_anywhere() -> None:
    steps = [
        onnx.helper.make_node("Split", ["x", "lengths"], ["p", "a"], axis=0),
        onnx.helper.make_node("Reshape", ["a", "shape"], ["m"]),
        onnx.helper.make_node("MatMul", ["m", "b"], ["y0"]),
    ]
    weights = {"lengths": np.array([3, 640]), "shape": np.array([20, 32]), "b": draw(32, 16)}
    feed = {"x": draw(643)}
    for pairs in both(graph(steps, feed, weights=weights, symbolic=False), feed):
        assert_same(pairs, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_integers(dtype: str) -> None:
    feeds = [pair((2, 17, 9), (2, 9, 21), dtype), pair((1, 1, 1), (1, 1, 1), dtype), pair((1, 3, 0), (1, 0, 2), dtype)]
    feeds[0]["a"][0] *= np.array(1 << 24, dtype)
    for pairs in both(node("MatMul", feeds[0]), *feeds):
        assert_same(pairs)


def test_halves_and_small_integers() -> None:
    feed = {k: v.astype(np.float16) for k, v in pair((33, 20), (20, 17)).items()}
    for pairs in both(node("MatMul", feed), feed):
        assert_same(pairs)
    small = {"a": draw(9, 20, dtype="int32").astype(np.uint8), "b": draw(20, 5, dtype="int32").astype(np.int8)}
    for pairs in both(node("MatMulInteger", small), small):
        assert_same(pairs)


ACTIVATIONS: dict[str, dict[str, Any]] = {
    "Relu": {},
    "Sigmoid": {},
    "Tanh": {},
    "Gelu": {},
    "LeakyRelu": {"alpha": 0.1},
    "Elu": {"alpha": 0.7},
}


@pytest.mark.parametrize("kind", ["after", "before", "alone"])
@pytest.mark.parametrize("op", ACTIVATIONS)
def test_epilogue(op: str, kind: str) -> None:
    steps = [onnx.helper.make_node("MatMul", ["x", "w"], ["p"]), onnx.helper.make_node("Add", ["p", "b"], ["c"])]
    act = ACTIVATIONS[op]
    if kind == "after":
        steps += [onnx.helper.make_node("Add", ["c", "r"], ["s"]), onnx.helper.make_node(op, ["s"], ["y0"], **act)]
    else:
        steps += [onnx.helper.make_node(op, ["c"], ["a" if kind == "before" else "y0"], **act)]
        steps += [onnx.helper.make_node("Add", ["a", "r"], ["y0"])] if kind == "before" else []
    feeds = [{"x": draw(2, m, 24)} | ({"r": draw(2, m, 20)} if kind != "alone" else {}) for m in (1, 3, 33)]
    model = graph(steps, feeds[0], weights={"w": draw(24, 20), "b": draw(20)})
    if kind == "alone":
        assert len(section(model).steps) == 1
    for pairs in both(model, *feeds):
        assert_same(pairs, rtol=1e-3)


def test_nan_and_infinity_stay_in_their_rows() -> None:
    for m in (3, 40):
        a, b = draw(m, 21), draw(21, 40)
        a[1, 3], a[2, 5], b[4, 7] = np.nan, np.inf, -np.inf
        for pairs in both(node("MatMul", {"a": a, "b": b}), {"a": a, "b": b}):
            assert_same(pairs, rtol=1e-3)


TILED = [(17, 129, 15), (16, 128, 16), (33, 260, 31), (260, 70, 250), (257, 1, 256), (64, 192, 1030), (9, 0, 70)]


@pytest.mark.parametrize("views", ["plain", "a transposed", "b transposed"])
def test_tiles_of_any_size(views: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny, small and large ones; the last only for many outputs where an adapter wants many workgroups."""
    monkeypatch.setattr(wgpu_device, "_workgroups", lambda info: 16)
    steps = [onnx.helper.make_node("Gemm", ["a", "b"], ["y0"], transA=int(views[0] == "a"), transB=int(views[0] == "b"))]
    feeds = [{"a": draw(k, m) if views[0] == "a" else draw(m, k), "b": draw(n, k) if views[0] == "b" else draw(k, n)} for m, k, n in TILED]
    for pairs in both(graph(steps, feeds[0]), *feeds):
        assert_same(pairs, rtol=1e-3)
    for feed in feeds[1:4]:
        assert_same(both(graph(steps, feed, symbolic=False), feed)[0], rtol=1e-3)


@pytest.mark.parametrize("zero", ["", "uint8", "float32"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_tiles_of_weights_of_a_few_bits(bits: int, zero: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgpu_device, "_workgroups", lambda info: 16)
    rng = np.random.default_rng(bits)
    for k, n, block in ((70, 35, 16), (128, 264, 32), (260, 17, 128)):
        blocks = -(-k // block)
        weights = {
            "b": rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
            "s": rng.random(n * blocks).astype(np.float32),
        }
        if zero:
            width = -(-blocks * bits // 8) if zero == "uint8" else blocks
            weights["z"] = (rng.random((n, width)) * (256 if zero == "uint8" else 1 << bits)).astype(zero)
        attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
        product = onnx.helper.make_node("MatMulNBits", ["a", *weights], ["y0"], domain="com.microsoft", **attributes)
        feeds = [{"a": draw(m, k)} for m in (9, 33, 260)]
        model = onnx.load_from_string(graph([product], feeds[0], weights=weights))
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        for pairs in both(model.SerializeToString(), *feeds):
            assert_same(pairs, rtol=1e-3)


@pytest.mark.parametrize("k", [74, 76])
def test_an_infinite_scale_stays_in_its_column(k: int) -> None:
    rng = np.random.default_rng(5)
    weights = {"b": rng.integers(0, 256, (40, 3, 16)).astype(np.uint8), "s": rng.random(120).astype(np.float32)}
    weights["s"][7], weights["s"][65] = np.inf, np.nan
    product = onnx.helper.make_node("MatMulNBits", ["a", "b", "s"], ["y0"], domain="com.microsoft", K=k, N=40, bits=4, block_size=32)
    feeds = [{"a": draw(m, k)} for m in (1, 3, 20)]
    model = onnx.load_from_string(graph([product], feeds[0], weights=weights))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    for ((want, got),) in both(model.SerializeToString(), *feeds):
        there = np.isfinite(got)
        assert there.all(axis=0).sum() == 38
        assert_same([(want[there], got[there])], rtol=1e-3)


def test_one_row_on_adapters_that_want_many_workgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number of columns takes another shader there than on one that is the processor."""
    monkeypatch.setattr(wgpu_device, "_workgroups", lambda info: 128)
    feeds = [pair((1, k), (k, n)) for k, n in ((64, 8), (99, 33), (260, 700), (24, 4200), (3, 4099))]
    for symbolic in (True, False):
        for feed in feeds:
            for pairs in both(node("MatMul", feed, symbolic=symbolic), feed):
                assert_same(pairs, rtol=1e-3)
    for transposed in (True, False):
        for feed in (pair((1, k), (n, k) if transposed else (k, n)) for k, n in ((3100, 20), (1030, 36), (1028, 1030), (512, 4))):
            step = onnx.helper.make_node("Gemm", ["a", "b"], ["y0"], transB=int(transposed))
            assert_same(both(graph([step], feed, symbolic=False), feed)[0], rtol=1e-3)
    for k, n, bits in ((64, 40, 4), (96, 2100, 4), (128, 17000, 4), (3104, 9, 4), (1056, 50, 8), (2112, 2090, 2), (1060, 12, 4)):
        rng = np.random.default_rng(n)
        blocks = -(-k // 32)
        weights = {"b": rng.integers(0, 256, (n, blocks, 4 * bits)).astype(np.uint8), "s": rng.random(n * blocks).astype(np.float32)}
        attributes = {"K": k, "N": n, "bits": bits, "block_size": 32}
        product = onnx.helper.make_node("MatMulNBits", ["a", "b", "s"], ["y0"], domain="com.microsoft", **attributes)
        model = onnx.load_from_string(graph([product], {"a": draw(1, k)}, weights=weights))
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        for pairs in both(model.SerializeToString(), {"a": draw(1, k)}, {"a": draw(3, k)}):
            assert_same(pairs, rtol=1e-3)
