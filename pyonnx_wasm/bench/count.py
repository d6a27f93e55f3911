"""``pyonnx-wasm bench --count``: what a run moves and computes, told from the Program, against the least that the model needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import compiler
from ..ir import Node, Storage, Value, dims, reachable
from ..ir.dims import DimLike
from ..ops.gather import GATHER
from ..registry import Kernel
from . import report
from .cases import Case


@dataclass
class Count:
    """Of one kernel, or of a whole run: dispatches, bytes read and written, multiply-adds (elements, where there are none) times two."""

    dispatches: int = 0
    read: int = 0
    written: int = 0
    flops: int = 0


@dataclass
class Counts:
    """Of a run.

    Attributes:
        barriers: how often a step must wait for one that wrote what it reads, or reads what it writes, since the last time.
        least: bytes of weights that are read, each once, of inputs and of outputs.
    """

    total: Count = field(default_factory=Count)
    kernels: dict[str, Count] = field(default_factory=dict)
    barriers: int = 0
    least: int = 0

    @property
    def share(self) -> float:
        """Bytes moved, of the least."""
        return (self.total.read + self.total.written) / max(1, self.least)


def count(case: Case) -> Counts:
    """Counts the steps of a model at the sizes of a case, as they are before a target lets some write in place.

    Raises:
        ValueError: the steps depend on data: there are branches, loops or sizes from contents.
    """
    compiled = compiler.compile(case.path)
    graph = compiled.graph
    assert graph is not None
    if graph.reads or any(graph.bodies()):
        raise ValueError("what a run does depends on data: there are branches, loops or sizes from contents, which cannot be counted")
    sizes = {name: case.dims.get(name, 1) for s in compiled.inputs for d in s.shape if isinstance(d, str) for name in [d]}
    found = Counts()
    weights: dict[Storage, int] = {}
    touched: set[Storage] = set()
    for node in [node for node in reachable(graph) if not node.const]:
        one = Count(1, 0, sum(_bytes(v, sizes) for v in node.outs.values()), _flops(node, sizes))
        for value in node.inputs():
            taken = min(_bytes(value, sizes), one.written) if _picks(node.kernel, value, node) else _bytes(value, sizes)
            one.read += taken
            if value.storage.const:
                weights[value.storage] = min(weights.get(value.storage, 0) + taken, _width(value, _size(value.storage.size, sizes)))
        used = {v.storage for v in (*node.inputs(), *node.outs.values()) if not v.storage.const}
        if used & touched:
            found.barriers, touched = found.barriers + 1, set()
        touched |= {v.storage for v in node.outs.values()}
        for into in (found.total, found.kernels.setdefault(node.kernel.name, Count())):
            into.dispatches, into.read = into.dispatches + 1, into.read + one.read
            into.written, into.flops = into.written + one.written, into.flops + one.flops
    found.least = sum(weights.values()) + sum(_bytes(v, sizes) for _, v in (*graph.inputs, *graph.outputs))
    return found


def rows(case: Case) -> dict[str, Any]:
    """The document of a case."""
    found = count(case)
    total = found.total
    return {
        "case": case.name, "dispatches": total.dispatches, "barriers": found.barriers, "read_bytes": total.read,
        "written_bytes": total.written, "flops": total.flops, "least_bytes": found.least, "of_least": round(found.share, 4),
        "kernels": {name: one.__dict__ for name, one in sorted(found.kernels.items(), key=lambda item: -item[1].read)},
    }  # fmt: skip


def render(document: Mapping[str, Any]) -> str:
    """A case as a person reads it."""
    lines = [
        {"kernel": name, "dispatches": str(one["dispatches"]), "read": f"{one['read']:,}", "written": f"{one['written']:,}",
         "flops": f"{one['flops']:,}"}
        for name, one in document["kernels"].items()
    ]  # fmt: skip
    moved = document["read_bytes"] + document["written_bytes"]
    told = (
        f"{document['case']}: {document['dispatches']} dispatches, {document['barriers']} barriers, {document['flops']:,} flops; "
        f"{moved:,} bytes moved, {document['of_least']:.2f} of the least ({document['least_bytes']:,})"
    )
    return f"{report.table(lines)}\n{told}" if lines else told


def _size(size: DimLike, sizes: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else int(dims.evaluate(size, dict(sizes)))


def _width(value: Value, elements: int) -> int:
    return value.dtype.nbytes(elements)


def _bytes(value: Value, sizes: Mapping[str, int]) -> int:
    """Of the elements that a view names, each once."""
    spread = [s for s, step in zip(value.shape, value.strides, strict=True) if not dims.same(step, 0)]
    return _width(value, math.prod([_size(s, sizes) for s in spread]))


def _picks(kernel: Kernel, value: Value, node: Node) -> bool:
    """Whether a kernel reads no more of a value than it writes."""
    return kernel is GATHER and value is node.ins["x"]


def _flops(node: Node, sizes: Mapping[str, int]) -> int:
    """Two for each multiply-add of a product or a window, else one for each element."""
    elements = sum(math.prod([_size(s, sizes) for s in v.shape]) for v in node.outs.values())
    names = [p.name for p in node.kernel.params if not p.count]
    if {"m", "n", "k"} <= set(names):
        return 2 * elements * _size(node.ins["a"].shape[-1], sizes)
    if "w" in node.ins and isinstance(node.ins["w"], Value):
        return 2 * elements * math.prod([_size(s, sizes) for s in node.ins["w"].shape[1:]])
    if {"q", "k", "v"} <= node.ins.keys():
        q, k = node.ins["q"].shape, node.ins["k"].shape
        return 4 * math.prod([_size(s, sizes) for s in q]) * _size(k[-2], sizes)
    return elements
