"""Weights of 2, 4 and 8 bits in blocks: against numpy in float64, over block lengths, zero points, rows and sizes that fill no block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyonnx_wasm
from pyonnx_wasm import compiler
from pyonnx_wasm.runtimes import wasmtime as runtime

Array = np.ndarray[Any, Any]
SIZES = [  # K, N, block
    (64, 5, 32), (100, 49, 32), (33, 3, 16), (256, 17, 128), (160, 50, 16), (16, 1, 16), (64, 24, 64), (100, 301, 32), (72, 260, 64),
    (1100, 13, 32), (176, 301, 16),
]  # fmt: skip
ROWS = [(1, 1), (1, 2), (3, 1), (1, 4), (5, 1), (3, 11), (0, 2)]


def codes_of(packed: Array, bits: int) -> Array:
    """The codes along the last axis of bytes, low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray((packed[..., None] >> shifts & ((1 << bits) - 1)).reshape(*packed.shape[:-1], packed.shape[-1] * 8 // bits))


def middles(tensors: dict[str, Array], rng: np.random.Generator, n: int, blocks: int, bits: int, zero: str) -> Array:
    """The code [n, blocks] that stands for 0 in each block, in float64; zero points join the tensors."""
    if zero == "packed":
        tensors["zero"] = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
        return codes_of(tensors["zero"], bits)[:, :blocks].astype(np.float64)
    if zero == "float":
        tensors["zero"] = (rng.random((n, blocks)) * (1 << bits)).astype(np.float32)
        return tensors["zero"].astype(np.float64)
    return np.full((n, blocks), 1 << (bits - 1), np.float64)


def model(k: int, n: int, block: int, bits: int, zero: str, activation: bool = False, level: int = 0) -> tuple[bytes, Array]:
    """A product with random weights, and the weights [K, N] in float64."""
    rng = np.random.default_rng(k * n + bits)
    blocks = -(-k // block)
    packed = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = (rng.random(n * blocks) * 0.1).astype(np.float32)
    tensors = {"B": packed, "scales": scales, "bias": rng.standard_normal(n).astype(np.float32)}
    codes, middle = codes_of(packed, bits).astype(np.float64), middles(tensors, rng, n, blocks, bits, zero)
    weights = (codes - middle[..., None]) * scales.reshape(n, blocks, 1).astype(np.float64)
    inputs = ["A", "B", "scales", "zero" if zero else "", "", "bias"]
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    product = helper.make_node("MatMulNBits", inputs, ["p"], domain="com.microsoft", **attributes)
    nodes = [product, helper.make_node("Relu" if activation else "Identity", ["p"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "m", size]) for name, size in (("A", k), ("y", n))]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(a, name) for name, a in tensors.items()])
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])
    return made.SerializeToString(), np.vstack([weights.reshape(n, -1)[:, :k].T, tensors["bias"][None].astype(np.float64)])


@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "gpu"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", ["", "packed", "float"])
def test_products(backend: str, bits: int, zero: str) -> None:
    rng = np.random.default_rng(0)
    for i, (k, n, block) in enumerate(SIZES):
        data, weights = model(k, n, block, bits, zero, activation=i % 2 == 1)
        session = pyonnx_wasm.InferenceSession(data, providers=[backend])
        for rows in ROWS:
            x = rng.standard_normal((*rows, k)).astype(np.float32)
            [y] = session.run(None, {"A": x})
            want = x.astype(np.float64) @ weights[:-1] + weights[-1]
            want = np.maximum(want, 0) if i % 2 else want
            bound = 16 * np.finfo(np.float32).eps * (np.abs(x).astype(np.float64) @ (np.abs(weights[:-1]) + 1) + 1)
            assert (np.abs(y - want) <= bound).all(), (k, n, block, rows)


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Relaxed products of bytes as Arm computes them: both signed."""
    monkeypatch.setenv("PYONNX_WASM_RELAXED", "deterministic")
    runtime._compiled.cache_clear()
    yield
    runtime._compiled.cache_clear()


@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "wasmtime, signed"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", ["", "packed", "float"])
@pytest.mark.parametrize("level", [0, 4])
def test_long_rows(backend: str, bits: int, zero: str, level: int, request: pytest.FixtureRequest) -> None:
    """Rows that may be taken as int16 by block are off by half a unit.

    Blocks of one, two and more groups of 16 bytes; rows that end within a step."""
    backend, _, kind = backend.partition(", ")
    if kind:
        request.getfixturevalue(kind)
    rng = np.random.default_rng(0)
    unit = 1.001 / 32639 if level else 0.0
    for k, n, block in [
        (416, 9, 32),
        (768, 7, 32),
        (272, 3, 16),
        (752, 70, 16),
        (320, 5, 64),
        (1000, 3, 32),
        (600, 4, 128),
        (1030, 2, 256),
        (700, 3, 512),
        (256, 1, 64),
    ]:
        data, weights = model(k, n, block, bits, zero, level=level)
        session = pyonnx_wasm.InferenceSession(data, providers=[backend])
        for rows in (1, 2, 3, 4, 5, 14):
            x = rng.standard_normal((1, rows, k)).astype(np.float32)
            x[..., :block] *= 1e4  # a block that is far from the others
            x[..., -1] = 0
            [y] = session.run(None, {"A": x})
            want = x.astype(np.float64) @ weights[:-1] + weights[-1]
            count = -(-k // block)
            padded = np.pad(np.abs(x).astype(np.float64), ((0, 0), (0, 0), (0, count * block - k)))
            most = np.repeat(padded.reshape(1, rows, count, block).max(axis=-1), block, axis=-1)[..., :k]
            bound = (most * unit / 2) @ np.abs(weights[:-1])
            bound += 16 * np.finfo(np.float32).eps * (np.abs(x).astype(np.float64) @ (np.abs(weights[:-1]) + 255) + 1)
            assert (np.abs(y - want) <= bound).all(), (k, n, block, rows)


@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "wasmtime, signed"])
@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_many_rows_of_a_gguf_file(backend: str, kind: str, request: pytest.FixtureRequest) -> None:
    """Few rows are taken as int16 by block, many so or as floats; several panels along k, columns that fill none."""
    backend, _, way = backend.partition(", ")
    if way:
        request.getfixturevalue(way)
    rng = np.random.default_rng(0)
    for k, n in ((64, 5), (1120, 19), (2080, 8)):
        codes = rng.integers(0, 256, (n, k // 32, 16 if kind == "Q4_0" else 32)).astype(np.uint8)
        scales = (rng.random((n, k // 32, 1)) * 0.1).astype(np.float16)
        blocks = np.concatenate([scales.view(np.uint8), codes], axis=2)
        whole = np.concatenate([codes & 15, codes >> 4], 2) - 8.0 if kind == "Q4_0" else codes.view(np.int8).astype(np.float64)
        weights = (whole * scales).reshape(n, k).T
        node = helper.make_node("MatMul", ["A", "blocks"], ["y"], domain="org.ggml", type=kind)
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", size]) for name, size in (("A", k), ("y", n))]
        graph = helper.make_graph([node], "g", values[:1], values[1:], [numpy_helper.from_array(blocks, "blocks")])
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("org.ggml", 1)]
        made = helper.make_model(graph, ir_version=10, opset_imports=opsets)
        session = pyonnx_wasm.InferenceSession(made.SerializeToString(), providers=[backend])
        for rows in (1, 4, 5, 6, 7, 33):
            x = rng.standard_normal((rows, k)).astype(np.float32)
            [y] = session.run(None, {"A": x})
            most = np.repeat(np.abs(x.astype(np.float64)).reshape(rows, -1, 32).max(axis=-1), 32, axis=-1)
            bound = most @ np.abs(weights) * (0.51 / 32639) + 64 * np.finfo(np.float32).eps * (np.abs(x) @ (np.abs(weights) + 13) + 1)
            assert (np.abs(y - x.astype(np.float64) @ weights) <= bound).all(), (kind, k, n, rows)


@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "wasmtime, signed"])
def test_sums_of_nothing(backend: str, request: pytest.FixtureRequest) -> None:
    """Products over no columns are zero, however few or many the rows."""
    backend, _, way = backend.partition(", ")
    if way:
        request.getfixturevalue(way)
    node = helper.make_node("MatMul", ["A", "blocks"], ["y"], domain="org.ggml", type="Q4_0")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", size]) for name, size in (("A", 0), ("y", 3))]
    graph = helper.make_graph([node], "g", values[:1], values[1:], [numpy_helper.from_array(np.zeros((3, 0, 18), np.uint8), "blocks")])
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("org.ggml", 1)])
    session = pyonnx_wasm.InferenceSession(made.SerializeToString(), providers=[backend])
    for rows in (1, 3, 9):
        [y] = session.run(None, {"A": np.zeros((rows, 0), np.float32)})
        np.testing.assert_array_equal(y, np.zeros((rows, 3), np.float32))


def test_weights_stay_as_they_are() -> None:
    compiled = compiler.compile(model(256, 64, 32, 4, "")[0])
    assert [n.kernel.name for n in compiled.main.nodes] == ["matmul_nbits"]
    assert sum(w.nbytes for w in compiled.weights if w.over is None) < 256 * 64 // 2 + 256 * 64 // 32 * 4 * 2 + 1024


def test_what_no_block_can_be_is_refused() -> None:
    for change, what in (({"block_size": 24}, "power of 2"), ({"block_size": 8}, "power of 2"), ({"bits": 3}, "3 bits")):
        given: dict[str, Any] = {"K": 32, "N": 2, "bits": 4, "block_size": 32} | change
        node = helper.make_node("MatMulNBits", ["A", "B", "s"], ["y"], domain="com.microsoft", **given)
        infos = [helper.make_tensor_value_info("A", 1, [1, 32]), helper.make_tensor_value_info("y", 1, [1, 2])]
        tensors = [numpy_helper.from_array(np.zeros((2, 1, 16), np.uint8), "B"), numpy_helper.from_array(np.ones(2, np.float32), "s")]
        made = helper.make_model(
            helper.make_graph([node], "g", infos[:1], infos[1:], tensors),
            ir_version=10, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
        )  # fmt: skip
        with pytest.raises(ValueError, match=what):
            pyonnx_wasm.InferenceSession(made.SerializeToString())
