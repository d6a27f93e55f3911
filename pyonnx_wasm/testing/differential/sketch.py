"""``Sketch``: a model under construction, with the random choices that shape it and the inputs that it is run on.

Choices come from two streams. One decides the structure: nodes, attributes, ranks, dtypes, contents of constants. The other
decides sizes that vary and contents of inputs. A generator that is called again with the same structure and another second
stream gives the same model at other shapes: :func:`draw` does that, and what comes out is one model with several runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from . import values
from .values import Array, Shape

NEWEST = 28
FLOAT = np.dtype(np.float32)
INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
OTHER_DOMAINS = {"com.microsoft": 1, "ai.onnx.ml": 3, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1, "org.ggml": 1}


class Impossible(Exception):
    """These choices make no model."""


@dataclass(frozen=True)
class Case:
    """A model and the runs of one session.

    Attributes:
        name: the operator, or the kind of graph.
        runs: an array per input, for each run.
        loose: factor by which the tolerance of this model is wider.
    """

    name: str
    model: onnx.ModelProto
    runs: tuple[dict[str, Array], ...]
    loose: float = 1.0

    @property
    def data(self) -> bytes:
        return bytes(self.model.SerializeToString())

    def operators(self) -> set[str]:
        """Of the graph and of its subgraphs."""
        return {node.op_type for node in every(self.model.graph)}


def every(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph, and of those within them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from every(attribute.g)


@dataclass
class Sketch:
    """A graph that grows. ``pick`` decides structure, ``fill`` varying sizes and contents."""

    pick: np.random.Generator
    fill: np.random.Generator
    opset: int = 21
    name: str = ""
    outer: Sketch | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    stored: dict[str, Array] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    declared: dict[str, tuple[int, Sequence[int | str] | None]] = field(default_factory=dict)
    loose: float = 1.0
    count: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.varying = self.chance(0.5)
        self.empty = self.chance(0.06)
        self.special = self.chance(0.3)
        self.whole = self.chance(0.15)
        self.constant = float(self.choice((0.0, 0.3, 0.6)))

    # --- choices

    def chance(self, p: float) -> bool:
        return bool(self.pick.random() < p)

    def choice(self, items: Sequence[Any]) -> Any:
        return items[int(self.pick.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """Both ends included."""
        return int(self.pick.integers(low, high, endpoint=True))

    def real(self, low: float, high: float) -> float:
        """A float32: what an attribute can hold."""
        return float(np.float32(self.pick.uniform(low, high)))

    def some(self, items: Sequence[Any], low: int = 0) -> list[Any]:
        """A subset, at least ``low``, in any order."""
        count = self.integer(min(low, len(items)), len(items))
        return [items[int(i)] for i in self.pick.permutation(len(items))[:count]]

    def size(self, low: int = 1, high: int = 6, fixed: bool = False) -> int:
        """One size, which may differ between the runs unless ``fixed``."""
        base, still, none = self.integer(low, high), self.chance(0.5), self.chance(0.25)
        if none and self.empty:
            return 0
        drawn = int(self.fill.integers(low, high, endpoint=True))
        return base if fixed or still or not self.varying else drawn

    def shape(self, rank: int | None = None, low: int = 1, high: int = 6) -> tuple[int, ...]:
        rank = self.integer(0, 5) if rank is None else rank
        return tuple(1 if self.chance(0.15) else self.size(low, high if rank < 4 else min(high, 4)) for _ in range(rank))

    def dtype(self, allowed: Sequence[np.dtype[Any]], favourite: float = 0.35) -> np.dtype[Any]:
        """float32 with a share of ``favourite``, else any."""
        if FLOAT in allowed and self.chance(favourite):
            return FLOAT
        allowed = [d for d in allowed if d.kind != "c" or self.chance(0.1)] or allowed
        return self.choice(sorted(allowed, key=str))  # type: ignore[no-any-return]

    def broadcast(self, shape: Shape, rank: int | None = None) -> tuple[int, ...]:
        """A shape that broadcasts to ``shape``."""
        rank = self.integer(0, len(shape)) if rank is None else rank
        return tuple(1 if self.chance(0.3) else s for s in shape[len(shape) - rank :])

    def axis(self, rank: int, low: int = 0) -> int:
        """Of ``rank`` axes, counted from either end."""
        at = self.integer(low, max(rank - 1, low))
        return at - rank if self.chance(0.4) and rank else at

    def axes(self, rank: int, low: int = 0) -> list[int]:
        return [a - rank if self.chance(0.4) else a for a in self.some(range(rank), low)]

    # --- contents

    def _rng(self, constant: bool) -> np.random.Generator:
        return np.random.default_rng(int((self.pick if constant else self.fill).integers(1 << 62)))

    def array(self, dtype: Any, shape: Shape, kind: str = "any", constant: bool = False) -> Array:
        """Contents. ``kind``: any; mild (specials whose products do not overflow); finite (no
        infinity, no NaN); plain (none); unit (0 to 1); positive; nonzero."""
        rng, dtype = self._rng(constant), np.dtype(dtype)
        if kind == "unit":
            return values.numbers(rng, dtype, shape, 0, 1)
        if kind == "positive":
            return values.numbers(rng, dtype, shape, 0.25, 2) if values.is_float(dtype) else values.numbers(rng, dtype, shape, 1, 6)
        made = values.ordinary(rng, dtype, shape, self.whole)
        if kind == "nonzero":
            made = np.where(made == 0, np.ones((), dtype), made)
        elif kind in ("any", "mild", "finite") and self.special:
            made = values.sprinkle(rng, made, 0.15, kind != "any", kind == "finite")
        return made

    def whole_numbers(self, low: int, high: int, shape: Shape, dtype: Any = np.int64, constant: bool = False) -> Array:
        return values.numbers(self._rng(constant), np.dtype(dtype), shape, low, high)

    # --- the graph

    def fresh(self, stem: str = "v") -> str:
        self.count[0] += 1
        return f"{stem}{self.count[0]}"

    def input(self, array: Any, dims: Sequence[int | str] | None = None) -> str:
        """An input of the model, of whatever graph this is."""
        if self.outer is not None:
            return self.outer.input(array, dims)
        name = self.fresh("x")
        self.inputs[name] = np.asarray(array)
        self.declared[name] = (values.code_of(self.inputs[name].dtype), dims)
        return name

    def const(self, array: Any) -> str:
        name = self.fresh("c")
        self.stored[name] = np.asarray(array)
        return name

    def ints(self, numbers: Any, dtype: Any = np.int64) -> str:
        """Small integers that say something about structure: mostly a constant."""
        array = np.asarray(numbers, dtype)
        return self.const(array) if not self.chance(0.15) else self.input(array)

    def operand(self, dtype: Any, shape: Shape, kind: str = "any", constant: float | None = None) -> str:
        """An input, or a constant with this share."""
        fixed = self.chance(self.constant if constant is None else constant)
        made = self.array(dtype, shape, kind, fixed)
        return self.const(made) if fixed else self.input(made)

    def add(self, op_type: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        """A node; attributes that are None are left out."""
        names = [self.fresh() for _ in range(outputs)]
        node = helper.make_node(op_type, list(inputs), names, domain=domain or None)
        for key, value in sorted(attributes.items()):
            if value is not None:
                empty = isinstance(value, list) and not value
                node.attribute.append(helper.make_attribute(key, value, attr_type=onnx.AttributeProto.INTS if empty else None))
        self.nodes.append(node)
        return names

    def node(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A node with one output."""
        return self.add(op_type, inputs, 1, domain, **attributes)[0]

    def result(self, *names: str) -> None:
        self.outputs += [n for n in dict.fromkeys(names) if n not in self.outputs]

    def body(self) -> Sketch:
        """For a subgraph: shares choices and names."""
        return Sketch(self.pick, self.fill, self.opset, outer=self, count=self.count)

    def subgraph(self, inputs: Sequence[tuple[str, np.dtype[Any], Sequence[Any] | None]] = ()) -> onnx.GraphProto:
        """This sketch as a body: inputs by name, dtype and shape."""
        infos = [helper.make_tensor_value_info(n, values.code_of(np.dtype(d)), s) for n, d, s in inputs]
        outs = [helper.make_empty_tensor_value_info(o) for o in self.outputs]
        stored = [numpy_helper.from_array(a, n) for n, a in self.stored.items()]
        return helper.make_graph(self.nodes, "body", infos, outs, stored)


def _model(runs: Sequence[Sketch], pick: np.random.Generator) -> onnx.ModelProto:
    """The model of sketches that agree; axes whose sizes differ are symbols, others may be."""
    first = runs[0]
    shared = bool(pick.random() < 0.5)
    infos = []
    for name, array in first.inputs.items():
        code, given = first.declared[name]
        if given is None:
            given = []
            for axis, size in enumerate(array.shape):
                sizes = tuple(r.inputs[name].shape[axis] for r in runs)
                symbol = f"s{'_'.join(map(str, sizes))}" if shared else f"{name}_{axis}"
                given.append(symbol if len(set(sizes)) > 1 or pick.random() < 0.25 else size)
        infos.append(helper.make_tensor_value_info(name, code, list(given)))
    outputs = [helper.make_empty_tensor_value_info(o) for o in first.outputs]
    stored = [numpy_helper.from_array(a, n) for n, a in first.stored.items()]
    graph = helper.make_graph(first.nodes, first.name or "g", infos, outputs, stored)
    domains = {n.domain for n in first.nodes} - {""}
    opsets = [helper.make_opsetid("", first.opset)] + [helper.make_opsetid(d, OTHER_DOMAINS[d]) for d in sorted(domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=13 if first.opset > 24 else 10)


def draw(name: str, make: Callable[[Sketch], None], seed: Sequence[int], opset: int, runs: int = 2) -> Case:
    """The case that a generator makes of a seed.

    Raises:
        Impossible: the choices make no model.
    """
    made: list[Sketch] = []
    for run in range(runs):
        pick = np.random.default_rng([*seed, 0])
        sketch = Sketch(pick, np.random.default_rng([*seed, 1, run]), opset, name)
        make(sketch)
        if not sketch.outputs:
            for node in sketch.nodes:
                sketch.result(*(o for o in node.output if o))
        if made and not _same(made[0], sketch):
            break
        made.append(sketch)
        if not sketch.varying:
            break
    model = _model(made, np.random.default_rng([*seed, 2]))
    return Case(name, model, tuple(dict(s.inputs) for s in made), made[0].loose)


def _same(a: Sketch, b: Sketch) -> bool:
    """True when two runs of a generator gave one model."""
    if [n.SerializeToString() for n in a.nodes] != [n.SerializeToString() for n in b.nodes] or a.outputs != b.outputs:
        return False
    if a.inputs.keys() != b.inputs.keys() or a.stored.keys() != b.stored.keys() or a.opset != b.opset:
        return False
    alike = all(a.inputs[n].dtype == b.inputs[n].dtype and a.inputs[n].ndim == b.inputs[n].ndim for n in a.inputs)
    return alike and all(a.stored[n].dtype == b.stored[n].dtype and a.stored[n].shape == b.stored[n].shape
                         and a.stored[n].tobytes() == b.stored[n].tobytes() for n in a.stored)  # fmt: skip


def tensor_attribute(array: Array) -> TensorProto:
    return numpy_helper.from_array(array)
