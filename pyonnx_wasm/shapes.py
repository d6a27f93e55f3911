"""Symbolic shapes of every value of a model, also of a model that cannot be compiled whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .dtypes import DType
from .fold import evaluate
from .ir import Graph, IRError, Storage, Strings, Value, dims
from .onnxfile import reader
from .tensor import MAX_RANK
from .trace import Tracer

CONTENT = 8


@dataclass(frozen=True)
class Shape:
    """What is known of a value.

    Attributes:
        dims: sizes, or expressions in the symbols of the inputs as text.
        content: the elements of a small integer tensor where they are known before the model runs, likewise.
    """

    dtype: DType
    dims: tuple[int | str, ...]
    content: tuple[int | str, ...] | None = None


@dataclass
class Shapes:
    """Shapes by value name, and why nodes have none."""

    values: dict[str, Shape] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def infer(model: reader.Model) -> Shapes:
    """Runs the operators' own shape rules node by node.

    A node that fails is listed, what it would have given takes the shape that the file declares, if it does, and inference goes on.
    """
    graph, found = Graph(evaluate), Shapes()
    tracer = _Tracer(model, graph, found)
    with graph:
        for info in model.graph.inputs:
            try:
                tracer.add_input(info, None, None)
            except IRError as error:
                found.failures[info.name] = str(error)
        tracer.run(model.graph, tracer.names)
    return found


class _Tracer(Tracer):
    def __init__(self, model: reader.Model, graph: Graph, found: Shapes) -> None:
        super().__init__(model, graph)
        self.found = found
        self.depth = 0

    def run(self, graph: reader.Graph, names: dict[str, Any]) -> None:
        self.depth += 1
        try:
            if self.depth > 1:
                super().run(graph, names)
            else:
                self.each(graph, names)
        finally:
            self.depth -= 1
        for node in graph.nodes:
            for name in filter(None, node.outputs):
                if name in names and name not in self.found.values and isinstance(names[name], Value):
                    self.found.values[name] = _shape(names[name])

    def each(self, graph: reader.Graph, names: dict[str, Any]) -> None:
        for name, stored in graph.initializers.items():
            try:
                names[name] = self.constant(stored)
            except IRError as error:
                self.found.failures[name] = str(error)
        lost: set[str] = set()
        for node in graph.nodes:
            label = self.graph.origin = node.name or f"{node.op_type}_{node.index}"
            if lost.isdisjoint(node.inputs):
                try:
                    names.update((n, v) for n, v in zip(node.outputs, self.call(node, names), strict=False) if n)
                    continue
                except (IRError, reader.ReadError) as error:
                    self.found.failures[label] = str(error)
            for name in filter(None, node.outputs):
                declared = self.declared(graph.value_info.get(name) or _output_type(graph, name), name)
                if declared is None:
                    lost.add(name)
                else:
                    names[name] = declared

    def declared(self, kind: reader.TypeInfo | None, name: str) -> Value | Strings | None:
        """A value of unknown contents, of the type that the file gives."""
        if kind is None or kind.kind != "tensor" or kind.dtype is None or kind.shape is None or len(kind.shape) > MAX_RANK:
            return None
        sizes = [self.size(d, f"{name}[{axis}]") for axis, d in enumerate(kind.shape)]
        if kind.dtype is DType.string:
            count = dims.sym(f"{name}[bytes]")
            spans = Value(Storage(DType.int64, dims.product(sizes), "input", name), DType.int64, sizes)
            return Strings(spans, Value(Storage(DType.uint8, count, "input", f"{name}.bytes"), DType.uint8, [count]))
        return Value(Storage(kind.dtype, dims.product(sizes), "input", name), kind.dtype, sizes)


def _output_type(graph: reader.Graph, name: str) -> reader.TypeInfo | None:
    return next((o.type for o in graph.outputs if o.name == name), None)


def _shape(value: Value | Strings) -> Shape:
    content = None
    if isinstance(value, Strings):
        return Shape(DType.string, tuple(map(_text, value.shape)))
    if value.dtype.is_int and value.rank <= 1 and isinstance(value.size, int) and value.size <= CONTENT and value.content is not None:
        content = tuple(map(_text, value.content.reshape(-1).tolist()))
    return Shape(value.dtype, tuple(map(_text, value.shape)), content)


def _text(size: Any) -> int | str:
    return size if isinstance(size, int) else str(size)


def as_json(shapes: Shapes) -> Mapping[str, Any]:
    """Plain data: ``[dtype, dims]`` or ``[dtype, dims, content]`` by value."""
    values = {name: [s.dtype.name, list(s.dims)] + ([] if s.content is None else [list(s.content)]) for name, s in shapes.values.items()}
    return {"values": values, "failures": shapes.failures}
