"""The tables of a tree ensemble, from the attributes of its operators: checked, and packed as the kernel reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...dtypes import DType
from ...ir import Graph, IRError, Value

BRANCHES = ("leq", "lt", "gte", "gt", "eq", "neq", "member", "leaf", "mixed")  # in the order of TreeEnsemble's numbers
AGGREGATES = ("average", "sum", "min", "max")
LEAF = BRANCHES.index("leaf")
MAX_FEATURES = MAX_NODES = 1 << 24  # a set's place, and a feature, must fit into 24 bits
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Forest:
    """An ensemble as the kernel takes it.

    Attributes:
        nodes: int32 [nodes, 4 or 6]: the split (float32, or float64 in two words), the word of feature and branch, the nodes that
            follow where the comparison holds and where not.
        targets: int32, of each weight; the last one of a leaf is negative.
        sets: per set of a membership test its size and its numbers, ascending.
        features: how many a row must have at least.
        branch: the one that all nodes have, or ``mixed``.
        complete: every row reaches every target.
    """

    n_targets: int
    nodes: Array
    roots: Array
    targets: Array
    weights: Array
    sets: Array
    features: int
    depth: int
    widest: int
    branch: str
    complete: bool


def numbers(listed: Sequence[float] | None, tensor: Value | None, what: str) -> Array:
    """The numbers of an attribute that exists as a list and as a tensor."""
    if tensor is None:
        return np.asarray(listed or (), np.float32)
    if listed:
        raise IRError(f"{what} and {what}_as_tensor are both given")
    found = Graph.current().fold(tensor)
    if found is None:
        raise IRError(f"{what} is no constant")
    return np.asarray(found.reshape(-1), np.float64)


def grown(
    dtype: DType,
    n_targets: int,
    *,
    nodes: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[str], Sequence[int], Sequence[int]],
    splits: Array,
    missing: Sequence[int] | None,
    leaves: tuple[Sequence[int], Sequence[int], Sequence[int]],
    weights: Array,
) -> Forest:
    """From the lists of TreeEnsembleClassifier and TreeEnsembleRegressor.

    Args:
        nodes: per node its tree, number, feature, mode, and the numbers of the two that follow.
        leaves: per weight its tree, node and target.
    """
    trees, ids, features, yes, no = (np.asarray(nodes[k], np.int64) for k in (0, 1, 2, 4, 5))
    modes = np.asarray([_mode(m) for m in nodes[3]], np.int64)
    n = len(trees)
    for what, got in (("nodes_nodeids", ids), ("nodes_featureids", features), ("nodes_modes", modes), ("nodes_values", splits)):
        _demand(len(got) == n, f"{what} has {len(got)} entries, nodes_treeids {n}")
    _demand(len(yes) == n and len(no) == n, f"nodes_truenodeids and nodes_falsenodeids must have {n} entries")
    at = _Places(trees, ids)
    inner = modes != LEAF
    own = np.arange(n)
    ways = np.stack([own, own], 1)
    for k, (way, what) in enumerate(((yes, "true"), (no, "false"))):
        ways[inner, k] = at.find(trees[inner], way[inner], f"nodes_{what}nodeids")
    w_trees, w_nodes, targets = (np.asarray(v, np.int64) for v in leaves)
    _demand(len(w_trees) == len(w_nodes) == len(targets) == len(weights), "the lists of weights differ in length")
    where = at.find(w_trees, w_nodes, "a weight")
    used = ~inner[where]
    first = np.flatnonzero(np.diff(trees, prepend=trees[0] - 1)) if n else np.empty(0, np.int64)
    table = _Table(dtype, n_targets, first, modes, features, splits, ways, _flags(missing, n))
    return table.packed(where[used], targets[used], weights[used], [])


def planted(
    dtype: DType,
    n_targets: int,
    roots: Sequence[int],
    *,
    nodes: tuple[Sequence[int], Array, Array],
    ways: tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]],
    missing: Sequence[int] | None,
    members: Array,
    targets: Sequence[int],
    weights: Array,
) -> Forest:
    """From the attributes of TreeEnsemble; leaves follow the nodes.

    Args:
        nodes: per node feature, mode and split.
        ways: where the comparison holds and where not: the place of the node, or of the leaf where the second list is not 0.
    """
    features, modes, splits = np.asarray(nodes[0], np.int64), nodes[1].astype(np.int64), nodes[2]
    n, m = len(features), len(targets)
    _demand(len(modes) == n and len(splits) == n, f"nodes_modes and nodes_splits must have {n} entries")
    _demand(bool(((modes >= 0) & (modes < LEAF)).all()), "nodes_modes holds a number that is no mode")
    _demand(len(weights) == m, f"leaf_weights has {len(weights)} entries, leaf_targetids {m}")
    both = np.tile(np.arange(n + m)[:, None], (1, 2))
    for k, (to, is_leaf) in enumerate(ways):
        place, leaf = np.asarray(to, np.int64), np.asarray(is_leaf, np.int64) != 0
        _demand(len(place) == n and len(leaf) == n, f"the lists of nodes that follow must have {n} entries")
        _demand(bool(((place >= 0) & (place < np.where(leaf, m, n))).all()), "a node leads to a node or a leaf that does not exist")
        both[:n, k] = np.where(leaf, place + n, place)
    first = np.asarray(roots, np.int64)
    _demand(bool(((first >= 0) & (first < n)).all()), "tree_roots names a node that does not exist")
    none = np.zeros(m, np.int64)
    every = (np.concatenate([modes, none + LEAF]), np.concatenate([features, none]), np.concatenate([splits, none]))
    table = _Table(dtype, n_targets, first, *every, both, np.concatenate([_flags(missing, n), none]))
    sets = _sets(members, int((modes == BRANCHES.index("member")).sum()))
    return table.packed(np.arange(n, n + m), np.asarray(targets, np.int64), weights, sets)


def _demand(fits: bool, message: str) -> None:
    if not fits:
        raise IRError(message)


def _mode(name: str) -> int:
    known = name.removeprefix("BRANCH_").lower()
    _demand(known in BRANCHES[: LEAF + 1] and known != "member", f"nodes_modes: {name!r} is not known")
    return BRANCHES.index(known)


def _flags(missing: Sequence[int] | None, n: int) -> Ints:
    flags = np.asarray(missing or (), np.int64)[:n] == 1
    return np.concatenate([flags, np.zeros(n - len(flags), bool)]).astype(np.int64)


def _sets(members: Array, count: int) -> list[Array]:
    """The sets of membership tests, in the order of their nodes: runs of numbers with a NaN behind each."""
    ends = [*np.flatnonzero(np.isnan(members)).tolist(), len(members)]
    _demand(len(ends) >= count, f"membership_values holds {len(ends)} sets, {count} nodes ask for one")
    starts = [0, *[e + 1 for e in ends]]
    return [np.unique(members[a:b]) for a, b in zip(starts, ends, strict=False)][:count]


class _Places:
    """Where the node of a number lies in its tree."""

    def __init__(self, trees: Ints, ids: Ints) -> None:
        self.trees, self.ids = np.unique(trees), np.unique(ids)
        keys = np.searchsorted(self.trees, trees) * len(self.ids) + np.searchsorted(self.ids, ids)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        twice = self.keys[1:] == self.keys[:-1]
        if twice.any():
            at = self.order[int(np.argmax(twice))]
            raise IRError(f"node {ids[at]} of tree {trees[at]} exists twice")

    def find(self, trees: Ints, ids: Ints, what: str) -> Ints:
        if not len(trees):
            return np.empty(0, np.int64)
        tree, node = _ranks(self.trees, trees), _ranks(self.ids, ids)
        at = _ranks(self.keys, np.where((tree < 0) | (node < 0), -1, tree * len(self.ids) + node))
        if (at < 0).any():
            miss = int(np.argmax(at < 0))
            raise IRError(f"{what}: tree {trees[miss]} has no node {ids[miss]}")
        return self.order[at]


def _ranks(ascending: Ints, wanted: Ints) -> Ints:
    """The place of each number, -1 for what is not there."""
    if not len(ascending):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return np.where(ascending[at] == wanted, at, -1)


@dataclass
class _Table:
    """Nodes with their ways as places; leaves lead to themselves."""

    dtype: DType
    n_targets: int
    roots: Ints
    modes: Ints
    features: Ints
    splits: Array
    ways: Ints
    missing: Ints

    def packed(self, where: Ints, targets: Ints, weights: Array, sets: list[Array]) -> Forest:
        """The tables, with weights for targets at the leaves ``where``."""
        _demand(self.n_targets > 0, "there is no target, or no class")
        _demand(len(self.modes) < MAX_NODES, f"{len(self.modes)} nodes are too many; fewer than {MAX_NODES} are supported")
        _demand(bool(((targets >= 0) & (targets < self.n_targets)).all()), f"a weight names a target outside of {self.n_targets}")
        inner = self.modes != LEAF
        asked = self.features[inner]
        _demand(bool(((asked >= 0) & (asked < MAX_FEATURES)).all()), "nodes_featureids holds a number out of range")
        real = np.dtype(np.float64 if self.dtype is DType.float64 else np.float32)
        place = np.dtype(np.int64 if real.itemsize == 8 else np.int32)
        order = np.argsort(where, kind="stable")
        where, targets, weights = where[order], targets[order], weights[order]
        last = np.append(where[1:] != where[:-1], True)[: len(where)]
        first = np.full(len(self.modes), -1, place)
        first[where[::-1]] = np.arange(len(where))[::-1]
        splits = np.where(inner, self.splits, 0).astype(real)
        splits[~inner] = first[~inner].view(real)
        starts, flat = _laid_out(sets)
        splits[self.modes == BRANCHES.index("member")] = starts.astype(place).view(real)
        lead = real.itemsize // 4
        words = np.zeros((len(self.modes), 4 if lead == 1 else 6), np.int32)
        words[:, :lead] = splits.view(np.int32).reshape(len(self.modes), -1)
        features = np.where(inner, self.features, 0)
        words[:, lead : lead + 3] = np.stack([features | self.modes << 24 | self.missing << 28, *self.ways.T], 1)
        used = set(self.modes[inner].tolist())
        return Forest(
            self.n_targets, words, self.roots.astype(np.int32), np.where(last, targets | -(1 << 31), targets).astype(np.int32),
            weights.astype(real), flat.astype(real), int(asked.max(initial=-1)) + 1, self._depth(),
            int(np.bincount(where).max(initial=0)) if len(where) else 0, BRANCHES[used.pop()] if len(used) == 1 else "mixed",
            self._complete(where, targets),
        )  # fmt: skip

    def _depth(self) -> int:
        """The longest path, by taking away nodes that nothing leads to any more; what then remains is a circle."""
        inner = self.modes != LEAF
        into = np.bincount(self.ways[inner].reshape(-1), minlength=len(self.modes))
        front, seen, depth = np.flatnonzero(into == 0), 0, 0
        while len(front):
            seen += len(front)
            front = front[inner[front]]
            if not len(front):
                break
            depth += 1
            ahead = self.ways[front].reshape(-1)
            np.subtract.at(into, ahead, 1)
            front = np.unique(ahead[into[ahead] == 0])
        if (into > 0).any():
            raise IRError(f"the nodes of a tree lead in a circle, through entry {int(np.argmax(into > 0))}")
        return depth

    def _complete(self, where: Ints, targets: Ints) -> bool:
        """Whether for each target there is a tree all of whose leaves name it; not where nodes are shared."""
        count = len(self.roots)
        inner = self.modes != LEAF
        if (np.bincount(self.ways[inner].reshape(-1), minlength=len(self.modes)) > 1).any() or len(np.unique(self.roots)) < count:
            return False
        tree = np.full(len(self.modes), -1)
        front, own = self.roots, np.arange(count)
        while len(front):
            tree[front] = own
            go = self.modes[front] != LEAF
            front, own = self.ways[front[go]].reshape(-1), np.repeat(own[go], 2)
        leaves = np.bincount(tree[(self.modes == LEAF) & (tree >= 0)], minlength=count)
        named = tree[where] >= 0
        pairs = np.unique(np.stack([where[named], targets[named]], 1), axis=0)
        found = np.zeros((count, self.n_targets), np.int64)
        np.add.at(found, (tree[pairs[:, 0]], pairs[:, 1]), 1)
        return bool((found == leaves[:, None]).any(0).all())


def _laid_out(sets: list[Array]) -> tuple[Ints, Array]:
    """Where each set begins, and all of them with their sizes ahead."""
    starts = np.cumsum([0, *[len(s) + 1 for s in sets]])
    _demand(int(starts[-1]) < MAX_NODES, "membership_values holds too many numbers")
    parts = [np.append(float(len(s)), s) for s in sets]
    return starts[:-1].astype(np.int64), np.concatenate(parts) if parts else np.empty(0)
