"""Tree ensembles against onnxruntime, and their kernel on damaged tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_call import refused, run
from ml_models import BRANCHES, Array, as_tensors, compare, one_node, random_rows, random_trees
from onnx import numpy_helper

import pyonnx_wasm
from pyonnx_wasm.ir import IRError
from pyonnx_wasm.runtimes import core

POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
SIZES = (3, 0, 1, 70, 197)


def forest(rng: np.random.Generator, prefix: str, targets: int, features: int, per_leaf: int) -> dict[str, Any]:
    branches = BRANCHES if rng.random() < 0.5 else [BRANCHES[rng.integers(6)]]
    nodes, weights = random_trees(rng, int(rng.integers(1, 8)), int(rng.integers(0, 5)), features, targets, branches, per_leaf)
    if rng.random() < 0.4:
        nodes.pop("missing_value_tracks_true")
    if rng.random() < 0.3:
        weights["weights"] = [abs(w) for w in weights["weights"]]
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"{prefix}_{k}": v for k, v in weights.items()}


def tolerance(post: str) -> dict[str, float]:
    return {"rtol": 1e-3, "atol": 1e-3} if post == "PROBIT" else {}  # its approximation cancels near 0.5


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("seed", range(8))
def test_classifier(seed: int, post: str) -> None:
    rng = np.random.default_rng((seed, len(post)))
    classes, features = int(rng.integers(1, 5)), int(rng.integers(1, 7))
    attributes = forest(rng, "class", classes, features, [0, 1, classes][rng.integers(3)])
    if classes == 2 and rng.random() < 0.5:
        attributes["class_ids"] = [int(rng.integers(2))] * len(attributes["class_ids"])
    bases = {1: [0, 1], 2: [0, 2] if post == "PROBIT" or len(set(attributes["class_ids"])) > 1 else [0, 1, 2]}.get(classes, [0, classes])
    base = int(rng.choice(bases))
    if base:
        attributes["base_values"] = rng.normal(size=base).astype(np.float32).tolist()
    dtype = str(rng.choice(["float32", "float64", "int32", "int64"]))
    if dtype == "float64":
        attributes = as_tensors(attributes, ["nodes_values", "class_weights", "base_values"])
    data = one_node(
        "TreeEnsembleClassifier", {"x": (dtype, 2)}, {"y": "int64", "z": "float32"},
        post_transform=post, classlabels_int64s=list(range(3, 3 + classes)), **attributes,
    )  # fmt: skip
    one_score = post == "PROBIT" and classes == 2  # onnxruntime leaves the score of the other class as it was in memory
    if not one_score or len(set(attributes["class_ids"])) == 2:
        compare(data, [{"x": random_rows(rng, n, features, dtype, n > 1)} for n in SIZES], **tolerance(post))


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("seed", range(3))
def test_regressor(seed: int, aggregate: str, post: str) -> None:
    rng = np.random.default_rng((seed, len(post), len(aggregate)))
    targets, features = int(rng.integers(1, 5)), int(rng.integers(1, 7))
    base = bool(rng.random() < 0.5)
    attributes = forest(rng, "target", targets, features, targets if base else [0, 1, targets][rng.integers(3)])
    if base:
        attributes["base_values"] = rng.normal(size=targets).astype(np.float32).tolist()
    dtype = str(rng.choice(["float32", "float64"]))
    if dtype == "float64":
        attributes = as_tensors(attributes, ["nodes_values", "target_weights", "base_values"])
    data = one_node(
        "TreeEnsembleRegressor", {"x": (dtype, 2)}, {"y": "float32"},
        post_transform=post, aggregate_function=aggregate, n_targets=targets, **attributes,
    )  # fmt: skip
    compare(data, [{"x": random_rows(rng, n, features, dtype, n > 1)} for n in SIZES], **tolerance(post))


def stump(**changes: Any) -> dict[str, Any]:
    """One tree: feature 1 at most 0.5 gives 2, else 3."""
    return {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "n_targets": 2,
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [2.0, 3.0], **changes,
    }  # fmt: skip


def test_a_target_that_no_leaf_names_has_its_base_value() -> None:
    data = one_node("TreeEnsembleRegressor", {"x": ("float32", 2)}, {"y": "float32"}, base_values=[10.0, 20.0], **stump())
    (y,) = pyonnx_wasm.InferenceSession(data).run(None, {"x": np.array([[9, 0], [9, 1]], np.float32)})
    np.testing.assert_array_equal(y, [[12, 20], [13, 20]])


def test_a_vector_is_one_row() -> None:
    session = pyonnx_wasm.InferenceSession(one_node("TreeEnsembleRegressor", {"x": ("float32", 1)}, {"y": "float32"}, **stump()))
    assert session.run(None, {"x": np.array([0, 1], np.float32)})[0].tolist() == [[3, 0]]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "in a circle"),
        ({"nodes_truenodeids": [7, 0, 0]}, "tree 0 has no node 7"),
        ({"nodes_nodeids": [0, 1, 1]}, "node 1 of tree 0 exists twice"),
        ({"nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_X"]}, "'BRANCH_X' is not known"),
        ({"nodes_values": [0.5]}, "nodes_values has 1 entries"),
        ({"nodes_featureids": [-1, 0, 0]}, "nodes_featureids"),
        ({"target_ids": [0, 2]}, "a target outside of 2"),
        ({"target_nodeids": [1, 9]}, "has no node 9"),
        ({"n_targets": 0}, "no target"),
        ({"aggregate_function": "MEAN"}, "'MEAN'"),
        ({"post_transform": "TANH"}, "'TANH'"),
        ({"base_values": [1.0, 2.0, 3.0]}, "3 base values"),
    ],
)
def test_a_damaged_ensemble_is_refused(changes: dict[str, Any], told: str) -> None:
    data = one_node("TreeEnsembleRegressor", {"x": ("float32", 2)}, {"y": "float32"}, **stump(**changes))
    with pytest.raises(IRError, match=told):
        pyonnx_wasm.InferenceSession(data)


def test_too_few_features_are_refused() -> None:
    session = pyonnx_wasm.InferenceSession(one_node("TreeEnsembleRegressor", {"x": ("float32", 2)}, {"y": "float32"}, **stump()))
    with pytest.raises(Exception, match="the trees ask for 2 features"):
        session.run(None, {"x": np.zeros((3, 1), np.float32)})


# ---- TreeEnsemble ----


def planted(rng: np.random.Generator, dtype: str, targets: int, features: int, trees: int = 4) -> tuple[bytes, Any]:
    """Trees of version 5 with membership tests, and what follows them in Python."""
    nodes: list[list[Any]] = []
    leaves: list[tuple[int, float]] = []

    def rounded(v: Any) -> float:
        return float(np.dtype(dtype).type(v))

    def grow(depth: int) -> tuple[int, bool]:
        if depth == 0 or rng.random() < 0.2:
            leaves.append((int(rng.integers(targets)), rounded(rng.normal())))
            return len(leaves) - 1, True
        at, mode = len(nodes), int(rng.integers(7))
        nodes.append([])
        members = np.unique(rng.integers(-3, 50, int(rng.integers(1, 45)))).astype(float) if mode == 6 else None
        feature, split, missing = int(rng.integers(features)), rounded(np.round(rng.normal(), 1)), int(rng.integers(2))
        (yes, yes_leaf), (no, no_leaf) = grow(depth - 1), grow(depth - 1)
        nodes[at] = [feature, mode, split, yes, int(yes_leaf), no, int(no_leaf), missing, members]
        return at, False

    roots = []
    for _ in range(trees):
        root, leaf = grow(3)
        if leaf:  # a node both of whose ways lead there
            nodes.append([0, 0, 0.0, root, 1, root, 1, 0, None])
            root = len(nodes) - 1
        roots.append(root)

    def follow(row: Array) -> Array:
        y = np.zeros(targets)
        for root in roots:
            at, leaf = root, False
            while not leaf:
                feature, mode, split, yes, yes_leaf, no, no_leaf, missing, members = nodes[at]
                v = row[feature]
                holds = [v <= split, v < split, v >= split, v > split, v == split, v != split, members is not None and v in members][mode]
                at, leaf = (yes, bool(yes_leaf)) if holds or (missing and np.isnan(v)) else (no, bool(no_leaf))
            y[leaves[at][0]] += leaves[at][1]
        return y

    columns = list(zip(*nodes, strict=True))
    as_numbers = lambda values: numpy_helper.from_array(np.array(values, dtype), "v")  # noqa: E731
    ordered = [np.append(n[8], np.nan) for n in nodes if n[8] is not None]
    more = {"membership_values": as_numbers(np.concatenate(ordered))} if ordered else {}
    data = one_node(
        "TreeEnsemble", {"x": (dtype, 2)}, {"y": dtype}, version=5, n_targets=targets, tree_roots=roots,
        nodes_featureids=list(columns[0]), nodes_modes=numpy_helper.from_array(np.array(columns[1], np.uint8), "m"),
        nodes_splits=as_numbers(columns[2]), nodes_truenodeids=list(columns[3]), nodes_trueleafs=list(columns[4]),
        nodes_falsenodeids=list(columns[5]), nodes_falseleafs=list(columns[6]), nodes_missing_value_tracks_true=list(columns[7]),
        leaf_targetids=[t for t, _ in leaves], leaf_weights=as_numbers([w for _, w in leaves]), **more,
    )  # fmt: skip
    return data, follow


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("seed", range(6))
def test_tree_ensemble(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    data, follow = planted(rng, dtype, int(rng.integers(1, 4)), 3)
    session = pyonnx_wasm.InferenceSession(data)
    for rows in SIZES:
        x = np.where(rng.random((rows, 3)) < 0.5, random_rows(rng, rows, 3, "float64", True), rng.integers(-4, 51, (rows, 3))).astype(dtype)
        (y,) = session.run(None, {"x": x})
        want = np.array([follow(row.astype(float)) for row in x]).reshape(rows, -1) if rows else y
        assert y.dtype == np.dtype(dtype)
        np.testing.assert_allclose(y, want, rtol=1e-3 if dtype == "float16" else 1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("tree_roots", [9], "tree_roots"),
        ("nodes_truenodeids", [5], "does not exist"),
        ("nodes_truenodeids", [0], "in a circle"),
        ("nodes_modes", numpy_helper.from_array(np.array([7], np.uint8)), "no mode"),
        ("nodes_modes", numpy_helper.from_array(np.array([6], np.uint8)), "in a circle|holds 1 sets|ask for one"),
        ("leaf_targetids", [4, 0], "outside of 1"),
        ("aggregate_function", 9, "not known"),
    ],
)
def test_a_damaged_tree_ensemble_is_refused(name: str, value: Any, told: str) -> None:
    attributes: dict[str, Any] = {
        "n_targets": 1, "tree_roots": [0], "nodes_featureids": [0], "nodes_modes": numpy_helper.from_array(np.array([0], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.zeros(1, np.float32)), "nodes_truenodeids": [0], "nodes_trueleafs": [1],
        "nodes_falsenodeids": [1], "nodes_falseleafs": [1], "leaf_targetids": [0, 0],
        "leaf_weights": numpy_helper.from_array(np.ones(2, np.float32)), name: value,
    }  # fmt: skip
    if told == "in a circle":
        attributes["nodes_trueleafs"] = [0]
    if told.endswith("ask for one"):
        attributes |= {"nodes_modes": numpy_helper.from_array(np.array([6, 6], np.uint8)), "tree_roots": [0, 1]}
        attributes |= {k: attributes[k] * 2 for k in attributes if k.startswith("nodes_") and isinstance(attributes[k], list)}
        attributes["nodes_splits"] = numpy_helper.from_array(np.zeros(2, np.float32))
    data = one_node("TreeEnsemble", {"x": ("float32", 2)}, {"y": "float32"}, version=5, **attributes)
    with pytest.raises(IRError, match=told):
        pyonnx_wasm.InferenceSession(data)


# ---- the kernel ----

LEAF, MEMBER = 7 << 24, 6 << 24


def bits(value: float, dtype: str) -> list[int]:
    return np.array([value], dtype).view(np.int32).tolist()


def place(at: int, dtype: str) -> list[int]:
    return np.array([at], np.int32 if dtype == "float32" else np.int64).view(np.int32).tolist()


def tables(dtype: str) -> dict[str, Any]:
    """Feature 0 below 1: 5 for target 0 and 6 for target 1; else whether it is in {3, 4}: 7, or nothing."""
    pad = [] if dtype == "float32" else [0]
    rows = [
        [*bits(1, dtype), 1 << 24, 1, 2, *pad],
        [*place(0, dtype), LEAF, 1, 1, *pad],
        [*place(0, dtype), MEMBER, 3, 4, *pad],
        [*place(2, dtype), LEAF, 3, 3, *pad],
        [*place(-1, dtype), LEAF, 4, 4, *pad],
    ]
    last = -(1 << 31)
    return {
        "nodes": np.array(rows, np.int32), "roots": np.array([0], np.int32), "targets": np.array([0, 1 | last, 1 | last], np.int32),
        "weights": np.array([5, 6, 7], dtype), "sets": np.array([2, 3, 4], dtype),
    }  # fmt: skip


def call(dtype: str, x: Array, changed: dict[str, Any], **params: Any) -> tuple[Any, ...]:
    given = {**tables(dtype), **{k: v for k, v in changed.items() if isinstance(v, np.ndarray)}}
    sizes: dict[str, Any] = {
        "rows": len(x), "features": 1, "trees": 1, "depth": 2, "n_targets": 2, "widest": 2, "branch": 8, "aggregate": 0, **params
    }  # fmt: skip
    sizes |= {k: v for k, v in changed.items() if not isinstance(v, np.ndarray)}
    outs = [(dtype, (len(x), 2)), ("bool", (len(x), 2))]
    return ("tree_ensemble", outs, [x, *(given[k] for k in ("nodes", "roots", "targets", "weights", "sets"))], 2), sizes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 63, 64, 65, 300])
def test_the_kernel(dtype: str, rows: int) -> None:
    x = np.random.default_rng(rows).integers(0, 6, (rows, 1)).astype(dtype)
    args, params = call(dtype, x, {})
    y, has = run(*args, **params)
    below, inside = x < 1, (x == 3) | (x == 4)
    np.testing.assert_array_equal(y, np.concatenate([below * 5, below * 6 + inside * 7], 1))
    np.testing.assert_array_equal(has, np.concatenate([below, below | inside], 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("x", "row", "word", "value"),
    [
        (0, 0, "yes", 5), (0, 0, "yes", -1), (5, 0, "no", 1 << 30), (0, 0, "what", 1 << 24 | 1), (0, 0, "what", 1 << 24 | 0xFFFFFF),
        (0, 1, "place", 3), (0, 1, "place", -2), (0, 1, "place", 1 << 30), (3, 2, "place", 3), (3, 2, "place", -1),
        (3, 2, "yes", 2), (3, 3, "what", 1 << 24), (0, 1, "what", 1 << 24 | 7),
    ],
)  # fmt: skip
def test_damaged_tables_end_the_run(dtype: str, x: float, row: int, word: str, value: int) -> None:
    """Ways, features, places of weights and of sets that lie outside; a path without a leaf; all lanes and one alone."""
    nodes = tables(dtype)["nodes"]
    lead = 1 if dtype == "float32" else 2
    if word == "place":
        nodes[row, :lead] = place(value, dtype)
    else:
        nodes[row, lead + ["what", "yes", "no"].index(word)] = value
    for rows in (4, 1):
        args, params = call(dtype, np.full((rows, 1), x, dtype), {"nodes": nodes})
        refused(*args, code=core.BAD_DATA, **params)


def test_tables_of_other_sizes_end_the_run() -> None:
    x = np.zeros((4, 1), np.float32)
    for changed in (
        {"roots": np.array([5], np.int32)},
        {"targets": np.array([0, 2, 0], np.int32)},
        {"targets": np.array([0, 1, 1], np.int32)},
    ):
        args, params = call("float32", x, changed)
        refused(*args, code=core.BAD_DATA, **params)
    for count in ([np.nan, 3, 4], [-1, 3, 4], [3, 3, 4], [1e30, 3, 4], [np.inf, 3, 4]):
        args, params = call("float32", x + 3, {"sets": np.array(count, np.float32)})
        refused(*args, code=core.BAD_DATA, **params)


@pytest.mark.parametrize("wrong", [
    {"rows": 5}, {"rows": -1}, {"features": 2}, {"n_targets": 3}, {"trees": 2}, {"trees": -1}, {"depth": -1}, {"widest": 1 << 40},
    {"branch": 9},
    {"aggregate": 3}, {"rows": 1 << 62}, {"weights": np.zeros(3, np.float64)}, {"targets": np.zeros(3, np.int64)},
])  # fmt: skip
def test_the_kernel_refuses_what_does_not_fit(wrong: dict[str, Any]) -> None:
    args, params = call("float32", np.zeros((4, 1), np.float32), wrong)
    refused(*args, **params)


def test_without_marks_there_is_no_minimum() -> None:
    args, params = call("float32", np.zeros((4, 1), np.float32), {"aggregate": 1})
    refused(args[0], [args[1][0], None], *args[2:], **params)


def test_other_threads_give_the_same() -> None:
    rng = np.random.default_rng(0)
    nodes, weights = random_trees(rng, 30, 6, 10, 3, BRANCHES, 3)
    attributes = {f"nodes_{k}": v for k, v in nodes.items()} | {f"target_{k}": v for k, v in weights.items()}
    data = one_node("TreeEnsembleRegressor", {"x": ("float32", 2)}, {"y": "float32"}, n_targets=3, **attributes)
    x, found = random_rows(rng, 1000, 10, "float32", True), []
    for threads in (1, 3):
        options = pyonnx_wasm.SessionOptions(intra_op_num_threads=threads)
        found.append(pyonnx_wasm.InferenceSession(data, options).run(None, {"x": x})[0])
    np.testing.assert_array_equal(*found)


def test_a_wide_tree_that_shares_nodes() -> None:
    """Both ways of every node lead to the next one: paths are many, nodes few."""
    n = 40
    chain = [i + 1 for i in range(n)]
    attributes = stump(
        nodes_treeids=[0] * (n + 1), nodes_nodeids=list(range(n + 1)), nodes_featureids=[0] * (n + 1),
        nodes_modes=["BRANCH_GT"] * n + ["LEAF"],
        nodes_values=[0.0] * (n + 1), nodes_truenodeids=[*chain, 0], nodes_falsenodeids=[*chain, 0], n_targets=1,
        target_treeids=[0], target_nodeids=[n], target_ids=[0], target_weights=[2.5],
    )  # fmt: skip
    data = one_node("TreeEnsembleRegressor", {"x": ("float32", 2)}, {"y": "float32"}, **attributes)
    assert pyonnx_wasm.InferenceSession(data).run(None, {"x": np.zeros((2, 1), np.float32)})[0].tolist() == [[2.5], [2.5]]
