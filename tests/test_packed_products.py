"""Weights of float32 products, which the init Program packs for the core in their own place."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

import pyonnx_wasm
from pyonnx_wasm import compiler
from pyonnx_wasm.program.file import weight_bytes
from pyonnx_wasm.program.view import ProgramView
from pyonnx_wasm.runtimes import given_back
from pyonnx_wasm.runtimes.weights import load_weights

Array = np.ndarray[Any, Any]
K, N = 96, 84


def model(nodes: list[Any], weights: dict[str, Array], outputs: list[str]) -> onnx.ModelProto:
    tensors = [nh.from_array(w, name) for name, w in weights.items()]
    x = h.make_tensor_value_info("x", T.FLOAT, ["rows", K])
    graph = h.make_graph(nodes, "g", [x], [h.make_tensor_value_info(y, T.FLOAT, None) for y in outputs], tensors)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8)


def run(made: onnx.ModelProto, x: Array) -> list[Array]:
    session = pyonnx_wasm.InferenceSession(made.SerializeToString())
    first: list[Array] = session.run(None, {"x": x})
    for a, b in zip(first, session.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(a, b)
    return first


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def packs(made: onnx.ModelProto, **how: Any) -> tuple[int, int]:
    """Steps of init that pack, and weights that take over another's memory."""
    compiled = compiler.compile(made.SerializeToString(), **how)
    steps = compiled.init.nodes if compiled.init else []
    return sum(n.kernel.name == "pack" for n in steps), sum(w.over is not None for w in compiled.weights)


@pytest.mark.parametrize("rows", [1, 3, 16, 70])
@pytest.mark.parametrize("transposed", [0, 1])
def test_in_place(rows: int, transposed: int) -> None:
    w, x = normal(K, N), normal(rows, K, seed=1)
    made = model([h.make_node("Gemm", ["x", "w"], ["y"], transB=transposed)], {"w": w.T.copy() if transposed else w}, ["y"])
    assert packs(made) == (1, 1)
    assert packs(made, gpu=True) == (1, 1)
    assert packs(made, optimise=False) == (0, 0)
    np.testing.assert_allclose(run(made, x)[0], x.astype(float) @ w, rtol=1e-4, atol=1e-4)


def test_weights_that_others_read() -> None:
    """Packed once for two products; not at all where a row is gathered as well, or another view is multiplied."""
    w, x = normal(K, N), normal(5, K, seed=1)
    twice = [h.make_node("MatMul", ["x", "w"], ["y"]), h.make_node("Relu", ["x"], ["r"]), h.make_node("MatMul", ["r", "w"], ["z"])]
    made = model(twice, {"w": w}, ["y", "z"])
    assert packs(made) == (1, 1)
    y, z = run(made, x)
    np.testing.assert_allclose(y, x.astype(float) @ w, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(z, np.maximum(x, 0).astype(float) @ w, rtol=1e-4, atol=1e-4)
    gathered = [
        h.make_node("MatMul", ["x", "w"], ["y"]),
        h.make_node("Shape", ["x"], ["s"], end=1),
        h.make_node("Gather", ["w", "s"], ["z"]),
    ]
    made = model(gathered, {"w": w}, ["y", "z"])
    assert packs(made)[0] == 0
    square = normal(K, K)
    both = [h.make_node("MatMul", ["x", "w"], ["y"]), h.make_node("Gemm", ["x", "w"], ["z"], transB=1)]
    turned = model(both, {"w": square}, ["y", "z"])
    assert packs(turned)[0] == 0
    for got, want in zip(run(turned, x), (x.astype(float) @ square, x.astype(float) @ square.T), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    given = [*twice, h.make_node("Identity", ["w"], ["out"])]  # and where it is an output
    held = model(given, {"w": w}, ["y", "z", "out"])
    assert packs(held)[0] == 0
    np.testing.assert_array_equal(run(held, x)[2], w)
    y, z = run(made, x)
    np.testing.assert_allclose(y, x.astype(float) @ w, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(z, w[[5]])


def test_in_branches() -> None:
    w, v, x = normal(K, N), normal(K, N, seed=2), normal(4, K, seed=1)
    out = h.make_tensor_value_info("b", T.FLOAT, None)
    then, other = (h.make_graph([h.make_node("MatMul", ["x", name], ["b"])], "g", [], [out]) for name in "wv")
    nodes = [
        h.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        h.make_node("Greater", ["total", "zero"], ["positive"]),
        h.make_node("If", ["positive"], ["y"], then_branch=then, else_branch=other),
    ]
    made = model(nodes, {"w": w, "v": v, "zero": np.zeros((), np.float32)}, ["y"])
    assert packs(made) == (2, 2)
    for sign in (1, -1):
        x = np.abs(x) * np.float32(sign)
        np.testing.assert_allclose(run(made, x)[0], x.astype(float) @ (w if sign > 0 else v), rtol=1e-4, atol=1e-4)


def test_beside_a_part_for_gpus(tmp_path: Path) -> None:
    """One file: the core packs its weights, a GPU reads them as they are, and what both need is computed for both."""
    w, v, x = normal(K, N), normal(K, N, seed=2), normal(5, K, seed=1)
    nodes = [h.make_node("MatMul", ["x", "w"], ["y"]), h.make_node("Add", ["w", "v"], ["sum"]), h.make_node("MatMul", ["x", "sum"], ["z"])]
    made = model(nodes, {"w": w, "v": v}, ["y", "z"])
    path = tmp_path / "m.ponnx"
    pyonnx_wasm.save(compiler.compile(made.SerializeToString(), gpu=True), path)
    loaded = pyonnx_wasm.load(path)
    assert loaded.init is not None
    assert loaded.gpu is not None
    assert loaded.gpu.init is not None
    assert [row.kernel for row in ProgramView(loaded.init.code).steps] == ["map", "pack", "pack"]
    assert [row.kernel for row in ProgramView(loaded.gpu.init.code).steps] == ["map"]
    wanted = [x.astype(float) @ w, x.astype(float) @ (w + v)]
    for backend in ("cpu", "gpu", "wasmtime"):
        session = pyonnx_wasm.InferenceSession(path, providers=[backend])
        for got, want in zip(session.run(None, {"x": x}), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    plain = compiler.compile(model(nodes[:1], {"w": w}, ["y"]).SerializeToString(), gpu=True)
    assert plain.gpu is not None
    assert plain.gpu.init is None
    pyonnx_wasm.save(plain, path)
    for backend in ("cpu", "gpu"):
        got = pyonnx_wasm.InferenceSession(path, providers=[backend]).run(None, {"x": x})[0]
        np.testing.assert_allclose(got, wanted[0], rtol=1e-4, atol=1e-4)


def test_wide_weights() -> None:
    """What would fall into bands of few rows is multiplied as it lies."""
    for k, n, packed in ((300, 32768, 1), (300, 32769, 0), (30, 34900, 1), (16, 140000, 0), (512, 33000, 1), (500, 33000, 0)):
        made = h.make_node("MatMul", ["x", "w"], ["y"])
        graph = h.make_graph([made], "g", [h.make_tensor_value_info("x", T.FLOAT, ["rows", k])], [h.make_empty_tensor_value_info("y")])
        graph.initializer.append(nh.from_array(np.zeros((k, n), np.float32), "w"))
        assert packs(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8))[0] == packed


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="systems without madvise keep what was read")
@pytest.mark.parametrize("suffix", [".onnx", ".ponnx"])
def test_what_was_read_of_a_file_leaves_memory(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {f"w{i}": normal(K, K, seed=i) for i in range(4)}
    names = ["x", *(f"t{i}" for i in range(3)), "y"]
    made = model([h.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(4)], weights, ["y"])
    path = tmp_path / f"model{suffix}"
    if suffix == ".onnx":
        onnx.save(made, path)
    else:
        pyonnx_wasm.save(compiler.compile(made.SerializeToString()), path)
    given: list[int] = []
    give_back = given_back.give_back
    monkeypatch.setattr(given_back, "give_back", lambda *given_to: given.append(give_back(*given_to)))
    x = normal(3, K, seed=9)
    sessions = [pyonnx_wasm.InferenceSession(path) for _ in range(2)]
    assert sum(given) >= 2 * 4 * (K * K * 4 - 2 * mmap.PAGESIZE), "all but the pages that neighbours share, of each session"
    want = x.astype(float) @ np.linalg.multi_dot([w.astype(float) for w in weights.values()])
    for session in sessions:
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-3, atol=1e-3)


def test_what_init_needs_for_a_while_leaves_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of a convolution are scaled as the normalization behind it says, then packed: of the scaled ones nothing stays."""
    weights = {"w": normal(N, K, 3, 3), **{name: np.abs(normal(N, seed=i)) for i, name in enumerate(("scale", "b", "mean", "var"))}}
    nodes = [h.make_node("Conv", ["x", "w"], ["c"]), h.make_node("BatchNormalization", ["c", "scale", "b", "mean", "var"], ["y"])]
    x = h.make_tensor_value_info("x", T.FLOAT, [1, K, 9, 9])
    tensors = [nh.from_array(w, name) for name, w in weights.items()]
    graph = h.make_graph(nodes, "g", [x], [h.make_tensor_value_info("y", T.FLOAT, None)], tensors)
    compiled = compiler.compile(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8).SerializeToString())
    given: list[int] = []
    give_back = given_back.give_back
    monkeypatch.setattr(given_back, "give_back", lambda *given_to: given.append(give_back(*given_to)))
    memory = load_weights(compiled.init, compiled.weights, main=compiled.main)
    made_by_init = [k for k, w in enumerate(compiled.weights) if weight_bytes(w) is None]
    kept = [k for k in made_by_init if memory[k].nbytes]
    assert 0 < len(kept) < len(made_by_init)
    assert all(memory[k].ctypes.data % 64 == 0 for k in kept)
    if hasattr(mmap, "MADV_DONTNEED"):
        assert sum(given) >= sum(compiled.weights[k].nbytes for k in made_by_init if k not in kept) - mmap.PAGESIZE
    every = load_weights(compiled.init, compiled.weights)
    for k in kept:
        np.testing.assert_array_equal(memory[k], every[k])
    assert [w.nbytes for w in every] == [w.nbytes for w in compiled.weights]


def test_what_only_memory_holds_stays(tmp_path: Path) -> None:
    own = np.arange(1 << 14, dtype=np.uint8)
    assert given_back.give_back(own) == 0
    assert given_back.give_back(np.frombuffer(own.tobytes(), np.uint8)) == 0
    with mmap.mmap(-1, 1 << 14) as anonymous:
        anonymous[:3] = b"abc"
        array = np.frombuffer(anonymous, np.uint8)
        assert given_back.give_back(array) == 0
        assert anonymous[:3] == b"abc"
        del array
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 64)
    with path.open("rb") as file:
        mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    part = mapped[10:-10].view(np.int8)
    whole = (len(mapped) - 10) // mmap.PAGESIZE - 1  # pages from the second on
    assert given_back.give_back(part) == whole * mmap.PAGESIZE
    assert mapped.tobytes() == path.read_bytes()
