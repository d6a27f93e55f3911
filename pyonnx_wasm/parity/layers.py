"""Intermediate values: which there are, and variants of the model that give them.

The values are those that a node computes and no mere view of another, by their ONNX names. Each variant gives every ``n``-th of
them, so that what lies between is fused as it is in the model itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import compiler
from ..dtypes import DType
from ..ir import Graph, Value
from ..narrow import Wish
from ..onnxfile import reader
from ..program import Compiled
from ..trace import Tracer
from .compare import Difference

GROUPS = 4
LARGEST_GROUP = 64


@dataclass
class Layer:
    """One intermediate value, and how far each backend is off."""

    value: str
    node: str
    operator: str
    dtype: DType
    shape: tuple[int, ...] = ()
    differences: dict[str, Difference] = field(default_factory=dict)


def find(model: reader.Model) -> list[Layer]:
    """The values worth comparing, in the order in which they are computed."""
    graph = Graph()
    tracer = Tracer(model, graph)
    with graph:
        for info in model.graph.inputs:
            tracer.add_input(info, None, None)
        tracer.run(model.graph, tracer.names)
    given = {info.name for info in model.graph.outputs}
    found, seen = [], set()
    for node in model.graph.nodes:
        for name in node.outputs:
            value: Any = tracer.names.get(name)
            if not isinstance(value, Value) or value.storage.kind != "temp" or value.storage.const:
                continue
            if name not in given and (value.storage in seen or value.content is not None):
                continue
            seen.add(value.storage)
            found.append(Layer(name, node.name or f"{node.op_type}_{node.index}", node.op_type, value.dtype))
    return found


def groups(layers: Sequence[Layer]) -> Iterator[list[Layer]]:
    """Every n-th layer, from the first, from the second, and so on."""
    n = max(GROUPS, -(-len(layers) // LARGEST_GROUP))
    for k in range(min(n, len(layers))):
        yield list(layers[k::n])


class Variants:
    """Compiles a model for the values that are wanted of it.

    Attributes:
        gpu: lower for GPUs as well.
    """

    def __init__(self, source: str | bytes) -> None:
        self.source, self.gpu = source, False

    def compile(self, values: Sequence[str] | None = None, weights: Wish | None = None) -> Compiled:
        """The variant that gives these values; None: the model's outputs. ``weights``: held in fewer bits."""
        return compiler.compile(self.source, outputs=values, gpu=self.gpu, weights=weights)
