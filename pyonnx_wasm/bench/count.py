"""``pyonnx-wasm bench --count``: what a run moves and computes, told from the Program, against the least that the model needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import compiler
from ..gpu import Case as Way
from ..gpu import cases_of
from ..gpu.lower import call_of
from ..ir import Node, Storage, Value, dims, reachable
from ..ir.dims import DimLike
from ..ops.gather import GATHER
from ..program import Compiled, ProgramView
from ..program.section import MOST_WORKGROUPS
from ..registry import Kernel
from ..tensor import CONCAT
from . import report
from .cases import Case


@dataclass
class Count:
    """Of one kernel, or of a whole run: dispatches, bytes read and written, multiply-adds (elements, where there are none) times two.

    Attributes:
        groups: workgroups of a GPU.
        loaded: bytes that they read together; above ``read`` where several read the same, which a cache may hold.
    """

    dispatches: int = 0
    read: int = 0
    written: int = 0
    flops: int = 0
    groups: int = 0
    loaded: int = 0

    def take(self, other: Count) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Counts:
    """Of a run.

    Attributes:
        barriers: how often a step must wait for one that wrote what it reads, or reads what it writes, since the last time.
        least: bytes of weights that are read, each once, of inputs and of outputs; of what stays on a GPU the new rows alone are written.
        on_core: dispatches that a GPU leaves to the core.
    """

    total: Count = field(default_factory=Count)
    kernels: dict[str, Count] = field(default_factory=dict)
    barriers: int = 0
    least: int = 0
    on_core: int = 0

    @property
    def share(self) -> float:
        """Bytes moved, of the least."""
        return (self.total.read + self.total.written) / max(1, self.least)


def count(case: Case, gpu: bool = False) -> Counts:
    """Counts the steps of a model at the sizes of a case: as they are before a target lets some write in place, or those of a GPU, where
    a decoder's cache stays from step to step.

    Raises:
        ValueError: the steps depend on data: there are branches, loops or sizes from contents; or no GPU runs the model.
    """
    compiled = compiler.compile(case.path, gpu=gpu)
    graph = compiled.graph
    assert graph is not None
    if graph.reads or any(graph.bodies()):
        raise ValueError("what a run does depends on data: there are branches, loops or sizes from contents, which cannot be counted")
    sizes = {name: case.dims.get(name, 1) for s in compiled.inputs for d in s.shape if isinstance(d, str) for name in [d]}
    if gpu and compiled.gpu is None:
        raise ValueError(compiled.on_core)
    inputs = [v for _, v in graph.inputs]
    outputs = [v for _, v in graph.outputs]
    kept = _keep(compiled, inputs, sizes) if gpu else set()
    found = Counts()
    weights: dict[Storage, int] = {}
    touched: set[Storage] = set()
    nodes = compiled.gpu.program.nodes if compiled.gpu else [node for node in reachable(graph) if not node.const]
    for node in nodes:
        way = _way(node, sizes) if gpu else None
        if way and not _groups(way, sizes):
            continue
        one = Count(1, 0, sum(_bytes(v, sizes) for v in node.outs.values()), _flops(node, sizes), _groups(way, sizes) if way else 0)
        if node.kernel is CONCAT and node.out.storage in kept:
            one.written = sum(_bytes(v, sizes) for v in node.ins["x"])
        for name, value in _operands(node):
            taken = min(_bytes(value, sizes), one.written) if _picks(node.kernel, value, node) else _bytes(value, sizes)
            one.read += taken
            one.loaded += taken * _size(way.again.get(name, 1), sizes) if way else 0
            if value.storage.const:
                weights[value.storage] = min(weights.get(value.storage, 0) + taken, _width(value, _size(value.storage.size, sizes)))
        used = {v.storage for v in (*node.inputs(), *node.outs.values()) if not v.storage.const}
        if used & touched:
            found.barriers, touched = found.barriers + 1, set()
        touched |= {v.storage for v in node.outs.values()}
        found.on_core += gpu and way is None
        for into in (found.total, found.kernels.setdefault(node.kernel.name, Count())):
            into.take(one)
    found.least = sum(weights.values()) + sum(_bytes(v, sizes) for v in (*inputs, *outputs))
    if compiled.gpu:
        view = ProgramView(compiled.gpu.program.code)
        for state in view.states:  # its rows are read once, the new ones written
            past = _bytes(inputs[state.past], sizes)
            found.least -= past
    return found


def _keep(compiled: Compiled, inputs: Sequence[Value], sizes: dict[str, int]) -> set[Storage]:
    """Takes what stays on a GPU for being there already, all rows of it; the outputs that it is part of."""
    assert compiled.gpu is not None
    program = compiled.gpu.program
    for state, told in zip(ProgramView(program.code).states, program.told, strict=True):
        for d in told.shape:
            assert isinstance(d, dims.Dim)
            sizes[d.name] = _size(inputs[state.past].shape[state.axis], sizes)
    rooms = {d.name for told in program.told for d in told.shape if isinstance(d, dims.Dim)}
    return {n.out.storage for n in program.nodes if n.kernel is CONCAT and rooms & set(dims.symbols(n.out.storage.size))}


def _way(node: Node, sizes: Mapping[str, int]) -> Way | None:
    """How an adapter of many workgroups runs a step; None where the core does."""
    find = cases_of(node.kernel.name)
    if find is None:
        return None
    call = call_of(node)
    call = replace(call, starts={name: value.offset for name, value in call.values.items()})
    for way in find(call):
        fits = _size(way.guard, sizes) and all(_size(call.starts[name], sizes) % 4 == 0 for name in way.vec4)
        if fits and not (way.busy and _groups(way, sizes) < MOST_WORKGROUPS):
            return way
    return None


def _groups(way: Way, sizes: Mapping[str, int]) -> int:
    return math.prod([_size(g, sizes) for g in way.grid])


def _operands(node: Node) -> Iterator[tuple[str, Value]]:
    for name, value in node.ins.items():
        for v in [value] if isinstance(value, Value) else value or ():
            yield name, v


def rows(case: Case, gpu: bool = False) -> dict[str, Any]:
    """The document of a case."""
    found = count(case, gpu)
    total = found.total
    more = {"groups": total.groups, "loaded_bytes": total.loaded, "on_core": found.on_core} if gpu else {}
    kept = ["dispatches", "read", "written", "flops", *(["groups", "loaded"] if gpu else [])]
    return {
        "case": case.name, "dispatches": total.dispatches, "barriers": found.barriers, "read_bytes": total.read,
        "written_bytes": total.written, "flops": total.flops, "least_bytes": found.least, "of_least": round(found.share, 4), **more,
        "kernels": {
            name: {key: getattr(one, key) for key in kept} for name, one in sorted(found.kernels.items(), key=lambda item: -item[1].read)
        },
    }  # fmt: skip


def render(document: Mapping[str, Any]) -> str:
    """A case as a person reads it."""
    lines = [{"kernel": name, **{key: f"{value:,}" for key, value in one.items()}} for name, one in document["kernels"].items()]
    moved = document["read_bytes"] + document["written_bytes"]
    told = (
        f"{document['case']}: {document['dispatches']} dispatches, {document['barriers']} barriers, {document['flops']:,} flops; "
        f"{moved:,} bytes moved, {document['of_least']:.2f} of the least ({document['least_bytes']:,})"
    )
    if "groups" in document:
        told += f"; {document['groups']:,} workgroups ask for {document['loaded_bytes']:,} bytes"
        told += f"; {document['on_core']} steps are the core's" if document["on_core"] else ""
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
