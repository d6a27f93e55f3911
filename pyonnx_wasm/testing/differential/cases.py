"""The case of (seed, index)."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
from onnx import numpy_helper

from . import bait, operators
from .graphs import graph
from .sketch import Case, Impossible, draw
from .values import Array

KINDS = ("operator", "graph", "bait")
_CYCLE = ("operator", "graph", "operator", "bait")
TRIES = 20


def kind_of(index: int) -> str:
    return _CYCLE[index % len(_CYCLE)]


@cache
def _sources(pattern: str) -> dict[str, list[str]]:
    """The names that are drawn, by kind; those that match a pattern."""
    found = {
        "operator": [operators.label(*key) for key in operators.names()],
        "graph": ["graph"],
        "bait": [f"bait.{name}" for name in bait.names()],
    }
    return {kind: [n for n in names if re.search(pattern, n)] for kind, names in found.items()}


def case(seed: int, index: int, only: str = "") -> Case:
    """The model of a seed and an index. ``only``: a regular expression of names to draw from.

    Raises:
        ValueError: nothing has such a name.
    """
    sources = _sources(only)
    kind = kind_of(index)
    if not sources[kind]:
        kind = next((k for k in KINDS if sources[k]), "")
        if not kind:
            raise ValueError(f"nothing is named {only!r}")
    names = sources[kind]
    position = index if only else index // (2 if kind == "operator" else 4)
    name = names[position % len(names)]
    for attempt in range(TRIES):
        try:
            return _made(kind, name, [seed, index, attempt])
        except Impossible:
            continue
    raise Impossible(f"{name}: no model in {TRIES} tries")


def for_backend(made: Case, backend: str) -> Case:
    """For GPUs without numbers below the normal ones: WGSL leaves it open whether such a number is zero, at every operation."""
    if backend not in ("gpu", "webgpu"):
        return made
    model = onnx.ModelProto()
    model.CopyFrom(made.model)
    for stored in model.graph.initializer:
        array = numpy_helper.to_array(stored)
        flushed = _flushed(array)
        if flushed is not array:
            stored.CopyFrom(numpy_helper.from_array(flushed, stored.name))
    return replace(made, model=model, runs=tuple({n: _flushed(a) for n, a in feeds.items()} for feeds in made.runs))


def _flushed(array: Array) -> Array:
    if array.dtype.name not in ("float32", "bfloat16"):
        return array
    low = (array != 0) & (np.abs(array) < np.finfo(np.float32).tiny)
    return np.where(low, np.copysign(np.zeros((), array.dtype), array), array) if low.any() else array


def _made(kind: str, name: str, seed: list[int]) -> Case:
    if kind == "operator":
        domain, _, operator = name.rpartition(".")
        return operators.single(domain, operator, seed)
    opset = (13, 17, 18, 20, 21, 23)[seed[1] // 4 % 6]
    return draw(name, graph if kind == "graph" else bait.BAITS[name.removeprefix("bait.")], seed, opset, runs=3)
