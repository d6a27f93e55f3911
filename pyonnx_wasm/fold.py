"""Compile-time values: runs the part of a graph that depends on constants alone, on the core itself."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .dtypes import to_numpy
from .ir import Graph, Value
from .program.lower import lower, partition


def evaluate(graph: Graph, x: Value) -> np.ndarray:
    """Computes a constant value by a Program of its own, one output, no inputs."""
    part = Graph()
    around: Graph | None = graph
    while around is not None:
        part.nodes = [n for n in around.nodes if n.const] + part.nodes
        around = around.outer
    part.outputs = [("value", x)]
    lowered = lower(partition(part), optimise=False)
    shape = tuple(int(s) for s in x.shape)
    out = np.empty(shape, to_numpy(x.dtype))
    runtime = executor()(lowered.main, lowered.init, lowered.weights)
    runtime.bind([], [])
    runtime.run([], [out])
    return out


def executor() -> Any:
    """Of the core that is here: WebAssembly beside Pyodide, native elsewhere."""
    if sys.platform == "emscripten":
        from .runtimes import pyodide as here
    else:
        from .runtimes import cpu as here
    return here.Executor
