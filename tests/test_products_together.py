"""Products of one value with weights in blocks are one step of the core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from test_nbits import signed  # noqa: F401
from test_packed_blocks import BACKENDS, is_product, model, product, weights

import pyonnx_wasm
from pyonnx_wasm import compiler

Array = np.ndarray[Any, Any]
K = 160


def several(columns: list[int], **how: Any) -> tuple[dict[str, Array], list[Any], list[Array]]:
    """Initializers, nodes and weights of products of x, one with so many columns each; ``how`` is of all, or a list of each."""
    tensors: dict[str, Array] = {}
    nodes, wanted = [], []
    for i, n in enumerate(columns):
        own = {name: given[i] if isinstance(given, list) else given for name, given in how.items()}
        made, w = weights(K, n, own.get("bits", 4), own.get("zero", ""), seed=i)
        tensors |= {f"{name}{i}": tensor for name, tensor in made.items()}
        nodes.append(product("x", f"y{i}", K, n, own.get("bits", 4), own.get("level", 4), own.get("zero", ""), name=str(i)))
        wanted.append(w)
    return tensors, nodes, wanted


def steps(made: bytes, **how: Any) -> list[tuple[str, int]]:
    """Kernels of main, and how many outputs each gives."""
    return [(node.kernel.name, len(node.outs)) for node in compiler.compile(made, **how).main.nodes]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", ["", "packed", "float"])
def test_queries_keys_and_values(backend: str, bits: int, zero: str, request: pytest.FixtureRequest) -> None:
    backend, _, way = backend.partition(", ")
    if way:
        request.getfixturevalue(way)
    tensors, nodes, wanted = several([200, 33, 7], bits=bits, zero=zero)
    made = model(nodes, tensors, K, dict.fromkeys(("y0", "y1", "y2"), T.FLOAT))
    assert steps(made) == [("matmuls_nbits", 3)]
    session = pyonnx_wasm.InferenceSession(made, providers=[backend])
    for rows in (1, 2, 4, 5, 40, 0):
        x = np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)
        got = session.run(None, {"x": x})
        assert [y.shape for y in got] == [(rows, w.shape[1]) for w in wanted]
        assert all(is_product(y, x, w, 4) for y, w in zip(got, wanted, strict=True) if rows)
        if rows:  # a number that no product can hold: rows are not rounded
            x[0, 3] = np.inf
            assert all(not np.isfinite(y[0]).any() for y in session.run(None, {"x": x}))


def test_gate_and_up_have_activations_and_biases_of_their_own() -> None:
    tensors, nodes, wanted = several([64, 64])
    tensors["bias"] = np.random.default_rng(9).standard_normal(64).astype(np.float32)
    more = [h.make_node("Add", ["y0", "bias"], ["z"]), h.make_node("Relu", ["z"], ["gate"]), h.make_node("Mul", ["gate", "y1"], ["out"])]
    made = model([*nodes, *more], tensors, K, {"out": T.FLOAT, "gate": T.FLOAT})
    assert [kernel for kernel, _ in steps(made)] == ["matmuls_nbits", "map"]
    session = pyonnx_wasm.InferenceSession(made)
    for rows in (1, 9):
        x = np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)
        out, gate = session.run(None, {"x": x})
        plain = [x.astype(float) @ w for w in wanted]
        np.testing.assert_allclose(gate, np.maximum(plain[0] + tensors["bias"], 0), rtol=1e-3, atol=2e-2)
        np.testing.assert_allclose(out, np.maximum(plain[0] + tensors["bias"], 0) * plain[1], rtol=1e-2, atol=0.5)


def test_three_at_most_and_only_those_that_are_alike() -> None:
    tensors, nodes, _ = several([16] * 5)
    made = model(nodes, tensors, K, {f"y{i}": T.FLOAT for i in range(5)})
    assert steps(made) == [("matmuls_nbits", 3), ("matmuls_nbits", 2)]
    tensors, nodes, _ = several([16] * 4, bits=[4, 8, 4, 4], level=[4, 4, 1, 4], zero=["", "", "", "float"])
    made = model(nodes, tensors, K, {f"y{i}": T.FLOAT for i in range(4)})
    assert steps(made) == [("matmul_nbits", 1)] * 4
    assert steps(made, optimise=False).count(("matmul_nbits", 1)) == 4


def test_one_that_waits_for_another_stays_behind_it() -> None:
    """Its residual is what comes of the first."""
    tensors, nodes, wanted = several([16, 16, 16])
    more = [h.make_node("Sigmoid", ["y0"], ["s"]), h.make_node("Add", ["y1", "s"], ["out"])]
    made = model([*nodes[:2], *more, nodes[2]], tensors, K, {"out": T.FLOAT, "y2": T.FLOAT})
    x = np.random.default_rng(0).standard_normal((3, K)).astype(np.float32)
    got = pyonnx_wasm.InferenceSession(made).run(None, {"x": x})
    plain = [x.astype(float) @ w for w in wanted]
    np.testing.assert_allclose(got[0], plain[1] + 1 / (1 + np.exp(-plain[0])), rtol=1e-3, atol=2e-2)
    np.testing.assert_allclose(got[1], plain[2], rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("columns", [[0, 5], [5, 0, 9], [0, 0]])
def test_some_without_columns(columns: list[int]) -> None:
    tensors, nodes, wanted = several(columns)
    session = pyonnx_wasm.InferenceSession(model(nodes, tensors, K, {f"y{i}": T.FLOAT for i in range(len(columns))}))
    for rows in (1, 7):
        x = np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)
        for y, w, n in zip(session.run(None, {"x": x}), wanted, columns, strict=True):
            assert y.shape == (rows, n)
            assert n == 0 or is_product(y, x, w, 4)


def test_each_has_its_name_in_the_profile() -> None:
    tensors, nodes, _ = several([16, 16])
    for name, node in zip(("query", "key"), nodes, strict=True):
        node.name = name
    session = pyonnx_wasm.InferenceSession(model(nodes, tensors, K, {"y0": T.FLOAT, "y1": T.FLOAT}))
    assert [step.name for step in session.profile({"x": np.ones((1, K), np.float32)})] == ["query + key"]
