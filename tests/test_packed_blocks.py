"""Weights in blocks, which the init Program packs for the core in their own place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from kernel_call import refused, run
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from test_nbits import codes_of, middles, signed  # noqa: F401

import pyonnx_wasm
from pyonnx_wasm import compiler
from pyonnx_wasm.program.view import ProgramView

Array = np.ndarray[Any, Any]
BACKENDS = ["cpu", "wasmtime", "wasmtime, signed"]
SIZES = [(256, 4), (96, 3), (1056, 70), (250, 277)]  # K, N
OPSETS = [h.make_opsetid("", 20), h.make_opsetid("com.microsoft", 1)]


def weights(k: int, n: int, bits: int, zero: str = "", half: bool = False, seed: int = 0) -> tuple[dict[str, Array], Array]:
    """Initializers of weights in blocks of 32, and the weights [k, n] in float64."""
    rng = np.random.default_rng(seed)
    blocks = -(-k // 32)
    tensors: dict[str, Array] = {"B": rng.integers(0, 256, (n, blocks, 4 * bits)).astype(np.uint8)}
    tensors["scales"] = (rng.random(n * blocks) * 0.1).astype(np.float16 if half else np.float32)
    middle = middles(tensors, rng, n, blocks, bits, zero)
    codes = codes_of(tensors["B"], bits).astype(np.float64)
    found = (codes - middle[..., None]) * tensors["scales"].reshape(n, blocks, 1).astype(np.float64)
    return tensors, found.reshape(n, blocks * 32)[:, :k].T


def product(x: str, y: str, k: int, n: int, bits: int, level: int = 4, zero: str = "", name: str = "") -> Any:
    inputs = [x, f"B{name}", f"scales{name}"] + ([f"zero{name}"] if zero else [])
    return h.make_node("MatMulNBits", inputs, [y], domain="com.microsoft", K=k, N=n, bits=bits, block_size=32, accuracy_level=level)


def model(nodes: list[Any], tensors: dict[str, Array], k: int, outputs: dict[str, int]) -> bytes:
    values = [nh.from_array(w, name) for name, w in tensors.items()]
    graph = h.make_graph(
        nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["rows", k])],
        [h.make_tensor_value_info(y, kind, None) for y, kind in outputs.items()], values,
    )  # fmt: skip
    made: onnx.ModelProto = h.make_model(graph, opset_imports=OPSETS, ir_version=10)
    return made.SerializeToString()


def is_product(y: Array, x: Array, wanted: Array, level: int) -> bool:
    """Whether y is x times the weights, as far as floats, and rounded rows where ``level`` allows them, can tell."""
    bound = (0.51 / 32639 if level else 0.0) * np.abs(x).max() * np.abs(wanted).sum(axis=0)
    bound = bound + 32 * np.finfo(np.float32).eps * (np.abs(x).astype(float) @ (np.abs(wanted) + 255 * 0.1) + 1)
    return bool((np.abs(y - x.astype(float) @ wanted) <= bound).all())


def packs(made: bytes, **how: Any) -> tuple[int, int]:
    """Steps of init that pack, and weights that take over another's memory."""
    compiled = compiler.compile(made, **how)
    steps = compiled.init.nodes if compiled.init else []
    return sum(n.kernel.name == "pack_blocks" for n in steps), sum(w.over is not None for w in compiled.weights)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", ["", "packed", "float"])
@pytest.mark.parametrize("half", [False, True])
def test_products(backend: str, bits: int, zero: str, half: bool, request: pytest.FixtureRequest) -> None:
    """Few and many rows, rounded or not, groups that are not whole, and rows that cannot be rounded."""
    backend, _, way = backend.partition(", ")
    if way:
        request.getfixturevalue(way)
    rng = np.random.default_rng(1)
    for k, n in SIZES:
        tensors, wanted = weights(k, n, bits, zero, half)
        for level in (0, 4):
            made = model([product("x", "y", k, n, bits, level, zero)], tensors, k, {"y": T.FLOAT})
            if bits == 4 or level:
                assert packs(made)[0] == (3 if zero else 2)
            session = pyonnx_wasm.InferenceSession(made, providers=[backend])
            for rows in (1, 2, 3, 4, 5, 17):
                x = rng.standard_normal((rows, k)).astype(np.float32)
                [y] = session.run(None, {"x": x})
                assert is_product(y, x, wanted, level), (k, n, level, rows)
                x[0, 1] = np.inf
                [y] = session.run(None, {"x": x})
                with np.errstate(invalid="ignore"):
                    want = x.astype(float) @ wanted
                assert (np.isfinite(y) == np.isfinite(want)).all(), (k, n, level, rows)


def test_in_place() -> None:
    tensors, _ = weights(256, 1024, 4, "packed")
    made = model([product("x", "y", 256, 1024, 4, zero="packed")], tensors, 256, {"y": T.FLOAT})
    assert packs(made) == (3, 3)
    assert packs(made, gpu=True)[0] == 3
    assert packs(made, optimise=False) == (0, 0)
    assert packs(model([product("x", "y", 256, 64, 8, level=0)], weights(256, 64, 8)[0], 256, {"y": T.FLOAT})) == (0, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_that_others_read(backend: str, request: pytest.FixtureRequest) -> None:
    """Packed once for two products; not at all where codes or scales are read otherwise."""
    backend, _, way = backend.partition(", ")
    if way:
        request.getfixturevalue(way)
    k, n = 64, 21
    tensors, wanted = weights(k, n, 4)
    x = np.random.default_rng(1).standard_normal((2, k)).astype(np.float32)
    twice = [product("x", "y", k, n, 4), h.make_node("Relu", ["x"], ["r"]), product("r", "z", k, n, 4)]
    alone = h.make_node("Identity", ["scales"], ["z"])
    for nodes, kinds, count in (
        (twice, {"y": T.FLOAT, "z": T.FLOAT}, 2),
        ([product("x", "y", k, n, 4), alone], {"y": T.FLOAT, "z": T.FLOAT}, 0),
        ([product("x", "y", k, n, 4), h.make_node("Identity", ["B"], ["z"])], {"y": T.FLOAT, "z": T.UINT8}, 0),
    ):
        made = model(nodes, tensors, k, kinds)
        assert packs(made)[0] == count
        y, z = pyonnx_wasm.InferenceSession(made, providers=[backend]).run(None, {"x": x})
        np.testing.assert_allclose(y, x.astype(float) @ wanted, rtol=2e-3, atol=2e-3)
        if nodes is twice:
            np.testing.assert_allclose(z, np.maximum(x, 0).astype(float) @ wanted, rtol=2e-3, atol=2e-3)
        else:
            np.testing.assert_array_equal(z, tensors[str(nodes[1].input[0])])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", ["q4", "int8"])
def test_tied_embeddings(backend: str, form: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Rows of packed weights are gathered as they were: of whole groups and of what is left, by indices from both ends."""
    backend, _, way = backend.partition(", ")
    if way:
        request.getfixturevalue(way)
    k, n = 128, 1031
    table = np.random.default_rng(0).standard_normal((n, k)).astype(np.float32)
    nodes = [
        h.make_node("Gather", ["table", "i"], ["z"]),
        h.make_node("Transpose", ["table"], ["t"]),
        h.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    infos = [h.make_tensor_value_info("x", T.FLOAT, ["rows", k]), h.make_tensor_value_info("i", T.INT64, ["some"])]
    outs = [h.make_tensor_value_info(name, T.FLOAT, None) for name in "yz"]
    graph = h.make_graph(nodes, "g", infos, outs, [nh.from_array(table, "table")])
    made: onnx.ModelProto = h.make_model(graph, opset_imports=OPSETS, ir_version=10)
    compiled = compiler.compile(made.SerializeToString(), weights=form)
    assert [n.kernel.name for n in compiled.main.nodes].count("pick_blocks") == 2
    pyonnx_wasm.save(compiled, tmp_path / "tied.ponnx")
    session = pyonnx_wasm.InferenceSession(tmp_path / "tied.ponnx", providers=[backend])
    x, i = np.eye(k, dtype=np.float32)[:3], np.array([0, 1, 2, 3, 4, 1027, 1028, 1030, -1, -n, 517])
    y, z = session.run(None, {"x": x, "i": i})
    assert np.abs(z - table[i]).max() < {"q4": 0.35, "int8": 0.03}[form]
    np.testing.assert_allclose(y[:, i], z[:, :3].T, rtol=2e-4, atol=2e-4)
    for wrong in (n, -n - 1):
        with pytest.raises(Exception, match="out of range"):
            session.run(None, {"x": x, "i": np.array([0, wrong])})


def test_in_branches() -> None:
    first, a = weights(64, 9, 4)
    second, b = weights(64, 9, 4, seed=2)
    out = h.make_tensor_value_info("b", T.FLOAT, None)
    then, other = (h.make_graph([product("x", "b", 64, 9, 4, name=name)], "g", [], [out]) for name in ("", "2"))
    nodes = [
        h.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        h.make_node("Greater", ["total", "none"], ["positive"]),
        h.make_node("If", ["positive"], ["y"], then_branch=then, else_branch=other),
    ]
    tensors = {**first, **{f"{name}2": w for name, w in second.items()}, "none": np.zeros((), np.float32)}
    made = model(nodes, tensors, 64, {"y": T.FLOAT})
    assert packs(made)[0] == 4
    session = pyonnx_wasm.InferenceSession(made)
    for sign, w in ((1, a), (-1, b)):
        x = np.abs(np.random.default_rng(1).standard_normal((3, 64))).astype(np.float32) * np.float32(sign)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x.astype(float) @ w, rtol=2e-3, atol=2e-3)


def test_beside_a_part_for_gpus() -> None:
    """One file: the core packs its weights, a GPU reads them as they are."""
    tensors, wanted = weights(64, 9, 4)
    made = model([product("x", "y", 64, 9, 4)], tensors, 64, {"y": T.FLOAT})
    compiled = compiler.compile(made, gpu=True)
    assert compiled.init is not None
    assert compiled.gpu is not None
    assert [row.kernel for row in ProgramView(compiled.init.code).steps] == ["pack_blocks", "pack_blocks"]
    assert compiled.gpu.init is None
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    for backend in ("cpu", "gpu", "wasmtime"):
        [y] = pyonnx_wasm.InferenceSession(made, providers=[backend]).run(None, {"x": x})
        np.testing.assert_allclose(y, x.astype(float) @ wanted, rtol=2e-3, atol=2e-3)


def test_picked_rows_that_do_not_fit() -> None:
    good: dict[str, Any] = {"n": 4, "row": 8, "words": 0, "bits": 4, "block": 32, "count": 2}
    w, at = np.arange(32, dtype=np.uint8), np.array([3, -4])
    np.testing.assert_array_equal(run("pick_blocks", [("uint8", [2, 8])], [w, at], **good), w.reshape(4, 8)[at])
    for wrong in ({"n": 5}, {"n": -1}, {"row": 9}, {"row": -1}, {"count": 3}, {"count": -1}, {"n": 1 << 62}, {"row": 1 << 40}):
        refused("pick_blocks", [("uint8", [2, 8])], [w, at], **(good | wrong))
    refused("pick_blocks", [("uint8", [15])], [w, at], **good)
    refused("pick_blocks", [("uint32", [2, 8])], [w, at], **good)
    refused("pick_blocks", [("uint8", [2, 8])], [w, at.astype(np.float64)], **good)
    refused("pick_blocks", [("float32", [2, 8])], [w.astype(np.float32), at], **(good | {"words": 1}))
    refused("pick_blocks", [("uint8", [2, 10])], [w, at], **(good | {"n": 3, "row": 10, "words": 1}))


def test_rows_that_do_not_fit() -> None:
    good: dict[str, Any] = {"n": 4, "count": 8, "words": 0, "bits": 4, "block": 32}
    w = np.arange(32, dtype=np.uint8)
    np.testing.assert_array_equal(np.sort(run("pack_blocks", [("uint8", [32])], [w], **good)), w)
    for wrong in ({"n": 5}, {"n": -1}, {"count": 9}, {"count": -1}, {"n": 1 << 62}, {"count": 1 << 40, "n": 1 << 40}):
        refused("pack_blocks", [("uint8", [32])], [w], **(good | wrong))
    refused("pack_blocks", [("uint8", [31])], [w], **good)
    refused("pack_blocks", [("uint32", [32])], [w], **good)
    refused("pack_blocks", [("float64", [32])], [w.astype(np.float64)], **good)
    refused("pack_blocks", [("float32", [32])], [w.astype(np.float32)], **(good | {"words": 1}))
    refused("pack_blocks", [("uint8", [32])], [w], **(good | {"n": 3, "count": 10, "words": 1}))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bits", [4, 8])
def test_every_float16_as_a_scale(backend: str, bits: int, request: pytest.FixtureRequest) -> None:
    """Also those below the least normal one; what is infinite or NaN stays so. Of each row one code alone differs from the middle."""
    backend, _, way = backend.partition(", ")
    if way:
        request.getfixturevalue(way)
    scales = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    middle = 1 << (bits - 1)
    codes = np.full((scales.size, 1, 4 * bits), middle * (17 if bits == 4 else 1), np.uint8)
    codes[:, 0, 0] += 1
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = 1
    made = model([product("x", "y", 32, scales.size, bits)], {"B": codes, "scales": scales[:, None]}, 32, {"y": T.FLOAT})
    [[y]] = pyonnx_wasm.InferenceSession(made, providers=[backend]).run(None, {"x": x})
    finite = np.isfinite(scales)
    np.testing.assert_allclose(y[finite], scales[finite].astype(np.float32), rtol=1e-5, atol=0)
    assert not np.isfinite(y[~finite]).any()


@pytest.mark.parametrize("block", [16, 32, 128])
def test_constant_codes_of_two_bits_become_codes_of_four(block: int) -> None:
    rng = np.random.default_rng(0)
    k, n = 256, 9
    tensors = {
        "B": rng.integers(0, 256, (n, k // block, block // 4)).astype(np.uint8),
        "scales": rng.random((n, k // block)).astype(np.float32),
    }
    node = h.make_node(
        "MatMulNBits", ["x", "B", "scales"], ["y"], domain="com.microsoft", K=k, N=n, bits=2, block_size=block, accuracy_level=4
    )
    made = model([node], tensors, k, {"y": T.FLOAT})
    [product_of_codes] = compiler.compile(made).main.nodes
    assert product_of_codes.params["bits"] == 4
    weights = (codes_of(tensors["B"], 2).reshape(n, -1, block) - 2.0) * tensors["scales"][..., None]
    x = rng.standard_normal((3, k)).astype(np.float32)
    [y] = pyonnx_wasm.InferenceSession(made).run(None, {"x": x})
    assert is_product(y, x, weights.reshape(n, k).T, 4)
