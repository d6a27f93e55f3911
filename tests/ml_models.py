"""Models of ai.onnx.ml for tests: one node of the domain, random trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import pyonnx_wasm

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
BRANCHES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
TYPES = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
    "float16": TensorProto.FLOAT16, "int16": TensorProto.INT16, "string": TensorProto.STRING,
}  # fmt: skip


def one_node(op: str, inputs: dict[str, tuple[str, int]], outputs: dict[str, str], version: int = 3, **attributes: Any) -> bytes:
    """A model of one node; inputs by name with dtype and rank, outputs with their dtype."""
    node = helper.make_node(op, list(inputs), list(outputs), domain="ai.onnx.ml", **attributes)
    infos = [helper.make_tensor_value_info(n, TYPES[t], [None] * rank) for n, (t, rank) in inputs.items()]
    results = [helper.make_tensor_value_info(n, TYPES[t], None) for n, t in outputs.items()]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    made = helper.make_model(helper.make_graph([node], op, infos, results), opset_imports=opsets, ir_version=9)
    return bytes(made.SerializeToString())


def expected(data: bytes, feed: dict[str, Array]) -> list[Any]:
    """What onnxruntime gives, on one thread: sums in the order of the file."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    found: list[Any] = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feed)
    return found


def compare(data: bytes, feeds: Sequence[dict[str, Array]], rtol: float = 2e-6, atol: float = 1e-6) -> None:
    """All feeds in one session; labels exactly."""
    session = pyonnx_wasm.InferenceSession(data)
    for feed in feeds:
        for got, want in zip(session.run(None, feed), expected(data, feed), strict=True):
            assert got.shape == want.shape, (got.shape, want.shape)
            assert got.dtype == want.dtype
            if want.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol, atol)
            else:
                np.testing.assert_array_equal(got, want)


def random_rows(rng: Rng, rows: int, features: int, dtype: str, special: bool) -> Array:
    """Rows that often meet a split exactly; with NaN and infinities where asked for."""
    x = np.round(rng.normal(size=(rows, features)), 1)
    if special and dtype.startswith("float"):
        x[rng.random(x.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
    return x.astype(dtype)


def random_trees(
    rng: Rng, trees: int, depth: int, features: int, targets: int, branches: Sequence[str], per_leaf: int
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Lists of nodes and of weights; ``per_leaf`` 0: any number of targets at each leaf."""
    nodes: dict[str, list[Any]] = {
        k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    }
    weights: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        rows: list[tuple[Any, ...]] = []

        def grow(left: int, rows: list[tuple[Any, ...]] = rows, tree: int = tree) -> int:
            at = len(rows)
            rows.append(())
            if left == 0 or (left < depth and rng.random() < 0.2):
                rows[at] = (tree, at, 0, "LEAF", 0.0, 0, 0, 0)
                for target in rng.permutation(targets)[: per_leaf or rng.integers(1, targets + 1)].tolist():
                    for name, value in zip(weights, (tree, at, target, float(np.float32(rng.normal()))), strict=True):
                        weights[name].append(value)
            else:
                mode, feature, split = branches[rng.integers(len(branches))], int(rng.integers(features)), float(np.round(rng.normal(), 1))
                yes, no = grow(left - 1), grow(left - 1)
                rows[at] = (tree, at, feature, mode, split, yes, no, int(rng.integers(2)))
            return at

        grow(depth)
        for row in rows:
            for name, value in zip(nodes, row, strict=True):
                nodes[name].append(value)
    return nodes, weights


def as_tensors(attributes: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The attributes of these names as float64 tensors."""
    found = {k: v for k, v in attributes.items() if k not in names}
    for name in names:
        if name in attributes:
            found[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(attributes[name], np.float64), name)
    return found
