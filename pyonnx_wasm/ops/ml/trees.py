"""Tree ensembles: one kernel over packed tables, what comes behind it in the vocabulary of ``tensor``.

Where the standard leaves a case open, it is onnxruntime's: which label two classes get, which scores are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import DType
from ...ir import Graph, IRError, Strings, Value, dims
from ...registry import Enum, Kernel, op
from ...tensor import cast, constant, contiguous, fill, like, map_, unsqueeze
from .forest import AGGREGATES, BRANCHES, Forest, grown, numbers, planted
from .scores import ML, TRANSFORMS, choose, column, columns, first_largest, floats, labels_of, paired, rows_of, transformed

BRANCH = Enum("Branch", " ".join(BRANCHES))
AGGREGATE = Enum("Aggregate", "sum min max")
TREE_ENSEMBLE = Kernel(
    "tree_ensemble",
    ">y >has? x nodes roots targets weights sets?",
    "rows features trees depth n_targets widest branch aggregate",
    enums={"branch": BRANCH, "aggregate": AGGREGATE},
)


def _scores(X: Value, forest: Forest, aggregate: str) -> tuple[Value, Value | None]:
    """What the leaves add up to, [rows, targets], and which targets any leaf named, where that is not all of them."""
    x = rows_of(X)
    features = x.shape[1]
    Graph.current().check(dims.ge(features, forest.features), f"the trees ask for {forest.features} features, X has {features}")
    shape = (x.shape[0], forest.n_targets)
    partial = aggregate in ("min", "max") or not forest.complete
    outs: dict[str, tuple[DType, Sequence[Any]]] = {"y": (x.dtype, shape)}
    if partial:
        outs["has"] = (DType.bool, shape)
    found = TREE_ENSEMBLE(
        outs,
        {
            "x": contiguous(x),
            "nodes": constant(forest.nodes),
            "roots": constant(forest.roots),
            "targets": constant(forest.targets),
            "weights": constant(forest.weights),
            "sets": constant(forest.sets) if forest.sets.size else None,
        },
        rows=x.shape[0],
        features=features,
        trees=len(forest.roots),
        depth=forest.depth,
        n_targets=forest.n_targets,
        widest=forest.widest,
        branch=BRANCH.index(forest.branch),
        aggregate=AGGREGATE.index("sum" if aggregate == "average" else aggregate),
    )
    y, has = found if partial else (found, None)
    if aggregate == "average":
        y = map_("div", y, like(y, len(forest.roots)))
    return y, None if forest.complete else has


def _based(scores: Value, base: np.ndarray) -> Value:
    return map_("add", scores, constant(base.astype(np.float64 if scores.dtype is DType.float64 else np.float32))) if base.size else scores


def _regression(X: Value, forest: Forest, aggregate: str, base: np.ndarray, post: str) -> Value:
    scores, _ = _scores(X, forest, aggregate)
    if base.size not in (0, 1, forest.n_targets):
        raise IRError(f"{base.size} base values do not fit {forest.n_targets} targets")
    scores = _based(scores, base) if base.size == forest.n_targets else scores
    return transformed(scores, post) if forest.n_targets > 1 or post == "PROBIT" else scores


@op(domain=ML)
def TreeEnsembleRegressor(
    X: Value, *,
    aggregate_function: str = "SUM", base_values: Sequence[float] | None = None, base_values_as_tensor: Value | None = None,
    n_targets: int = 1, nodes_falsenodeids: Sequence[int] = (), nodes_featureids: Sequence[int] = (),
    nodes_hitrates: Sequence[float] | None = None, nodes_hitrates_as_tensor: Value | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None, nodes_modes: Sequence[str] = (), nodes_nodeids: Sequence[int] = (),
    nodes_treeids: Sequence[int] = (), nodes_truenodeids: Sequence[int] = (), nodes_values: Sequence[float] | None = None,
    nodes_values_as_tensor: Value | None = None, post_transform: str = "NONE", target_ids: Sequence[int] = (),
    target_nodeids: Sequence[int] = (), target_treeids: Sequence[int] = (), target_weights: Sequence[float] | None = None,
    target_weights_as_tensor: Value | None = None,
) -> Value:  # fmt: skip
    x = floats(X, wide=True)
    aggregate = aggregate_function.lower()
    if aggregate not in AGGREGATES:
        raise IRError(f"aggregate_function {aggregate_function!r} is not one of {', '.join(AGGREGATES).upper()}")
    forest = grown(
        x.dtype, n_targets,
        nodes=(nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes, nodes_truenodeids, nodes_falsenodeids),
        splits=numbers(nodes_values, nodes_values_as_tensor, "nodes_values"), missing=nodes_missing_value_tracks_true,
        leaves=(target_treeids, target_nodeids, target_ids),
        weights=numbers(target_weights, target_weights_as_tensor, "target_weights"),
    )  # fmt: skip
    y = _regression(x, forest, aggregate, numbers(base_values, base_values_as_tensor, "base_values"), post_transform)
    return cast(y, DType.float32)


@op(domain=ML, since=5)
def TreeEnsemble(
    X: Value, *,
    aggregate_function: int = 1, leaf_targetids: Sequence[int], leaf_weights: Value, membership_values: Value | None = None,
    n_targets: int = 1, nodes_falseleafs: Sequence[int], nodes_falsenodeids: Sequence[int], nodes_featureids: Sequence[int],
    nodes_hitrates: Value | None = None, nodes_missing_value_tracks_true: Sequence[int] | None = None, nodes_modes: Value,
    nodes_splits: Value, nodes_trueleafs: Sequence[int], nodes_truenodeids: Sequence[int], post_transform: int = 0,
    tree_roots: Sequence[int],
) -> Value:  # fmt: skip
    if not 0 <= aggregate_function < len(AGGREGATES) or not 0 <= post_transform < len(TRANSFORMS):
        raise IRError(f"aggregate_function {aggregate_function} or post_transform {post_transform} is not known")
    x = floats(X, wide=True)
    forest = planted(
        x.dtype, n_targets, tree_roots,
        nodes=(nodes_featureids, numbers(None, nodes_modes, "nodes_modes"), numbers(None, nodes_splits, "nodes_splits")),
        ways=((nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs)),
        missing=nodes_missing_value_tracks_true, members=numbers(None, membership_values, "membership_values"),
        targets=leaf_targetids, weights=numbers(None, leaf_weights, "leaf_weights"),
    )  # fmt: skip
    y = _regression(x, forest, AGGREGATES[aggregate_function], np.empty(0), TRANSFORMS[post_transform])
    return cast(y, X.dtype)


@op(domain=ML)
def TreeEnsembleClassifier(
    X: Value, *,
    base_values: Sequence[float] | None = None, base_values_as_tensor: Value | None = None, class_ids: Sequence[int] = (),
    class_nodeids: Sequence[int] = (), class_treeids: Sequence[int] = (), class_weights: Sequence[float] | None = None,
    class_weights_as_tensor: Value | None = None, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    nodes_falsenodeids: Sequence[int] = (), nodes_featureids: Sequence[int] = (), nodes_hitrates: Sequence[float] | None = None,
    nodes_hitrates_as_tensor: Value | None = None, nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_modes: Sequence[str] = (), nodes_nodeids: Sequence[int] = (), nodes_treeids: Sequence[int] = (),
    nodes_truenodeids: Sequence[int] = (), nodes_values: Sequence[float] | None = None, nodes_values_as_tensor: Value | None = None,
    post_transform: str = "NONE",
) -> tuple[Value | Strings, Value]:  # fmt: skip
    x = floats(X, wide=True)
    n = len(classlabels_strings) or len(classlabels_int64s)
    weights = numbers(class_weights, class_weights_as_tensor, "class_weights")
    forest = grown(
        x.dtype, n,
        nodes=(nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes, nodes_truenodeids, nodes_falsenodeids),
        splits=numbers(nodes_values, nodes_values_as_tensor, "nodes_values"), missing=nodes_missing_value_tracks_true,
        leaves=(class_treeids, class_nodeids, class_ids), weights=weights,
    )  # fmt: skip
    base = numbers(base_values, base_values_as_tensor, "base_values")
    scores, has = _scores(x, forest, "sum")
    if n > 2:
        places, z = _many(scores, has, base, post_transform)
    else:
        one = n == 2 and len(set(class_ids)) == 1
        places, z = _two(scores, has, base, post_transform, bool((weights >= 0).all()) if one else None)
        if not one and not classlabels_strings:
            return places, cast(z, DType.float32)
    labels = labels_of(places, classlabels_int64s, classlabels_strings)
    return labels, cast(z, DType.float32)


def _many(scores: Value, has: Value | None, base: np.ndarray, post: str) -> tuple[Value, Value]:
    """The largest score wins; a class that no leaf named has none."""
    if base.size not in (0, scores.shape[1]):
        raise IRError(f"{base.size} base values do not fit {scores.shape[1]} classes")
    if base.size:
        scores, has = _based(scores, base), None
    ranked = scores if has is None else map_("where", has, scores, like(scores, -np.inf))
    return first_largest(ranked), transformed(scores, post)


def _two(scores: Value, has: Value | None, base: np.ndarray, post: str, positive: bool | None) -> tuple[Value, Value]:
    """One or two classes.

    Args:
        positive: where all leaves name one of two classes: whether no weight is negative, which then counts as a probability.
    """
    n = scores.shape[1]
    if base.size > 2 or (base.size == 2 and n == 1):
        raise IRError(f"{base.size} base values do not fit {n} classes")
    zero = like(scores, 0)
    s0, h0 = column(scores, 0), None if has is None else column(has, 0)
    only = _named(_based(s0, base[:1]), h0, zero)
    if n == 1:
        z = unsqueeze(transformed(only, post) if post == "PROBIT" else only, [1])
        return choose(map_("lt", zero, only), 1, 0), z
    s1, h1 = column(scores, 1), None if has is None else column(has, 1)
    if base.size == 2:
        upper = _based(s0, base[1:])
        pair = transformed(columns(_named(map_("neg", upper), h0, zero), upper), post)
        single = transformed(columns(only, fill([scores.shape[0]], 0.0, scores.dtype)), post)
    else:
        upper = s1
        pair = transformed(columns(only, s1), post)
        single = paired(only, post, complement=bool(positive))
    winning = upper if h1 is None else map_("where", h1, upper, only)
    z = pair if h1 is None else map_("where", unsqueeze(h1, [1]), pair, single)
    return choose(map_("lt", like(scores, 0.5 if positive else 0), winning), 1, 0), z


def _named(score: Value, has: Value | None, zero: Value) -> Value:
    return score if has is None else map_("where", has, score, zero)
