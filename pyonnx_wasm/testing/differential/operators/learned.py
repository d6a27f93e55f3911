"""Classic machine learning: scalers, encoders, linear models, support vectors, trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import FLOAT, INT64, Sketch
from . import Schema, generates, picked

DOMAIN = "ai.onnx.ml"
POST = (None, "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
BRANCHES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _reals(m: Sketch, count: int) -> list[float]:
    return [m.real(-2, 2) for _ in range(count)]


def _rows(m: Sketch, schema: Schema, width: int, parameter: str = "T") -> str:
    """[n, width], of numbers that often meet a threshold exactly."""
    m.empty = False
    dtype = picked(m, schema, parameter, 0.7)
    made = (
        np.round(m.array(FLOAT, (m.size(1, 6), width), "plain"), 1) if dtype.kind == "f" else m.whole_numbers(-4, 4, (m.size(1, 6), width))
    )
    return m.input(made.astype(dtype))


@generates("Normalizer", domain=DOMAIN)
def normalizer(m: Sketch, schema: Schema) -> None:
    m.result(m.node("Normalizer", _rows(m, schema, m.integer(1, 5)), domain=DOMAIN, norm=m.choice((None, "MAX", "L1", "L2"))))


@generates("Scaler", domain=DOMAIN)
def scaler(m: Sketch, schema: Schema) -> None:
    width = m.integer(1, 5)
    count = m.choice((1, width))
    m.result(m.node("Scaler", _rows(m, schema, width), domain=DOMAIN, offset=_reals(m, count), scale=_reals(m, count)))


@generates("Imputer", domain=DOMAIN)
def imputer(m: Sketch, schema: Schema) -> None:
    width = m.integer(1, 5)
    count = m.choice((1, width))
    if m.chance(0.5):
        x = m.input(m.whole_numbers(-2, 2, (m.size(1, 6), width)))
        given: dict[str, Any] = {"imputed_value_int64s": [m.integer(-9, 9) for _ in range(count)], "replaced_value_int64": m.integer(-2, 2)}
    else:
        missing = m.choice((float("nan"), 0.0, 1.0))
        whole = m.whole_numbers(-2, 2, (m.size(1, 6), width)).astype(FLOAT)
        x = m.input(np.where(whole == 2, np.float32(missing), whole))
        given = {"imputed_value_floats": _reals(m, count), "replaced_value_float": missing}
    m.result(m.node("Imputer", x, domain=DOMAIN, **given))


@generates("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(m: Sketch, schema: Schema) -> None:
    m.empty = False
    rows, dtype = m.size(1, 5), picked(m, schema, "T1", 0.6)
    widths = [m.integer(1, 4) for _ in range(m.integer(1, 3))]
    parts = [m.input(m.array(dtype, (rows, w), "plain")) for w in widths]
    m.result(m.node("FeatureVectorizer", *parts, domain=DOMAIN, inputdimensions=widths))


@generates("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(m: Sketch, schema: Schema) -> None:
    categories = [int(i) for i in m.pick.permutation(6)[: m.integer(1, 5)]]
    zeros = m.choice((None, 1, 0))
    dtype = m.choice((np.dtype(np.float32), np.dtype(np.float64), INT64, np.dtype(np.int32)))
    x = np.asarray(categories)[m.whole_numbers(0, len(categories) - 1, m.shape(m.integer(1, 3)))] if zeros == 0 else None
    x = m.whole_numbers(-1, 6, m.shape(m.integer(1, 3))) if x is None else x
    m.result(m.node("OneHotEncoder", m.input(x.astype(dtype)), domain=DOMAIN, cats_int64s=categories, zeros=zeros))


@generates("LabelEncoder", domain=DOMAIN)
def label_encoder(m: Sketch, schema: Schema) -> None:
    count = m.integer(1, 5)
    keys = [int(i) for i in m.pick.permutation(7)[:count]]
    floats = m.chance(0.5)
    x = m.whole_numbers(-1, 7, m.shape(m.integer(1, 3)), INT64)
    given: dict[str, Any] = {"keys_floats": [k / 2 for k in keys]} if floats else {"keys_int64s": keys}
    if m.chance(0.5):
        given |= {"values_floats": _reals(m, count), "default_float": m.real(-2, 2) if m.chance(0.5) else None}
    else:
        given |= {"values_int64s": [m.integer(-9, 9) for _ in keys], "default_int64": m.integer(-9, 9) if m.chance(0.5) else None}
    m.result(m.node("LabelEncoder", m.input((x / 2).astype(FLOAT) if floats else x), domain=DOMAIN, **given))


@generates("LinearRegressor", domain=DOMAIN)
def linear_regressor(m: Sketch, schema: Schema) -> None:
    width, targets = m.integer(1, 5), m.integer(1, 3)
    x = m.input(m.array(FLOAT, (m.size(1, 6), width), "plain"))
    bias = _reals(m, targets) if m.chance(0.6) else None
    m.result(m.node("LinearRegressor", x, domain=DOMAIN, coefficients=_reals(m, width * targets), intercepts=bias, targets=targets))


@generates("LinearClassifier", domain=DOMAIN)
def linear_classifier(m: Sketch, schema: Schema) -> None:
    width, classes = m.integer(1, 5), m.integer(2, 4)
    x = m.input(m.array(FLOAT, (m.size(1, 6), width), "plain"))
    m.result(*m.add("LinearClassifier", [x], 2, DOMAIN, coefficients=_reals(m, width * classes), intercepts=_reals(m, classes),
                    classlabels_ints=[int(i) for i in m.pick.permutation(9)[:classes]], multi_class=m.choice((None, 0, 1)),
                    post_transform=m.choice(POST)))  # fmt: skip


def _supports(m: Sketch, count: int, width: int) -> dict[str, Any]:
    kind = m.choice(KERNELS)
    params = [m.real(0.1, 0.6), m.real(-0.5, 0.5), float(m.integer(1, 3))]
    return {"kernel_type": kind, "kernel_params": params, "support_vectors": _reals(m, count * width)}


@generates("SVMRegressor", domain=DOMAIN)
def svm_regressor(m: Sketch, schema: Schema) -> None:
    width, count = m.integer(1, 4), m.integer(1, 5)
    x = m.input(m.array(FLOAT, (m.size(1, 6), width), "plain"))
    m.result(m.node("SVMRegressor", x, domain=DOMAIN, coefficients=_reals(m, count), rho=_reals(m, 1), n_supports=count,
                    **_supports(m, count, width)))  # fmt: skip


@generates("SVMClassifier", domain=DOMAIN)
def svm_classifier(m: Sketch, schema: Schema) -> None:
    width, classes = m.integer(1, 4), m.integer(2, 4)
    per = [m.integer(1, 3) for _ in range(classes)]
    pairs = classes * (classes - 1) // 2
    x = m.input(m.array(FLOAT, (m.size(1, 6), width), "plain"))
    likely = {"prob_a": [m.real(-2, -0.5) for _ in range(pairs)], "prob_b": _reals(m, pairs)} if m.chance(0.4) else {}
    m.result(*m.add("SVMClassifier", [x], 2, DOMAIN, coefficients=_reals(m, (classes - 1) * sum(per)), rho=_reals(m, pairs),
                    vectors_per_class=per, classlabels_ints=[int(i) for i in m.pick.permutation(9)[:classes]],
                    **likely, **_supports(m, sum(per), width)))  # fmt: skip


def _trees(m: Sketch, width: int, targets: int, what: str) -> dict[str, Any]:
    """Random trees: nodes and what their leaves give to targets or classes."""
    nodes: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
                                                  "missing_value_tracks_true")}  # fmt: skip
    leaves: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree: int, depth: int, rows: list[Any]) -> int:
        at = len(rows)
        rows.append(())
        if not depth or m.chance(0.2):
            rows[at] = (tree, at, 0, "LEAF", 0.0, 0, 0, 0)
            for target in m.some(range(targets), 1):
                for name, value in zip(leaves, (tree, at, target, m.real(-2, 2)), strict=True):
                    leaves[name].append(value)
        else:
            yes, no = grow(tree, depth - 1, rows), grow(tree, depth - 1, rows)
            rows[at] = (tree, at, m.integer(0, width - 1), m.choice(BRANCHES), m.integer(-20, 20) / 10, yes, no, m.integer(0, 1))
        return at

    for tree in range(m.integer(1, 4)):
        rows: list[Any] = []
        grow(tree, m.integer(0, 3), rows)
        for row in rows:
            for name, value in zip(nodes, row, strict=True):
                nodes[name].append(value)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"{what}_{k}": v for k, v in leaves.items()}


@generates("TreeEnsembleRegressor", domain=DOMAIN)
def tree_regressor(m: Sketch, schema: Schema) -> None:
    width, targets = m.integer(1, 4), m.integer(1, 3)
    x = _rows(m, schema, width)
    how = m.choice((None, "SUM", "AVERAGE", "MIN", "MAX"))
    base = _reals(m, targets) if m.chance(0.5) else None
    m.result(m.node("TreeEnsembleRegressor", x, domain=DOMAIN, n_targets=targets, aggregate_function=how, base_values=base,
                    **_trees(m, width, targets, "target")))  # fmt: skip


@generates("TreeEnsembleClassifier", domain=DOMAIN)
def tree_classifier(m: Sketch, schema: Schema) -> None:
    width, classes = m.integer(1, 4), m.integer(2, 4)
    x = _rows(m, schema, width, "T1")
    base = _reals(m, classes) if m.chance(0.4) else None
    m.result(*m.add("TreeEnsembleClassifier", [x], 2, DOMAIN, classlabels_int64s=[int(i) for i in m.pick.permutation(9)[:classes]],
                    base_values=base, post_transform=m.choice(POST), **_trees(m, width, classes, "class")))  # fmt: skip
