"""Bodies of branches and loops as graphs of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..ir import (
    COMPOUND,
    Form,
    Graph,
    IRError,
    Items,
    Packed,
    Shape,
    Storage,
    Strings,
    Value,
    dims,
    parts,
    reachable,
    rebuilt,
    symbols_in,
    symbols_of,
)
from ..ir.dims import Dim, DimLike
from ..registry import Context, Control, Notation
from ..tensor import constant, content, contiguous, literal, reshape
from .ragged import formed, pack, tensors

ANY_TRIPS = (1 << 63) - 1
FOLDED = 4096  # elements of a computed constant that the body has as it is
COMPUTED = (DType.bool, DType.int32, DType.int64, DType.float32, DType.float64)


class Outline:
    """A body traced into a graph of its own.

    What it takes from around it become inputs: constants stay what they are, sizes that are known by way of the tensors that it takes
    stay sizes, everything else is a tensor whose sizes are symbols of the body, equal where they are equal outside.

    Attributes:
        taken: the values around it that its inputs behind the first ``lead`` stand for.
        packed: the sequences around it, by what the body has in their place.
    """

    def __init__(self, ctx: Context, body: Any, lead: int = 0) -> None:
        self.ctx, self.body, self.lead = ctx, body, lead
        around = Graph.current()
        self.graph = Graph(around.evaluate)
        self.graph.outer = around
        self.graph._numbers = around._numbers
        self.symbols: dict[DimLike, DimLike] = {}  # of sizes around it
        self.origin_of: dict[str, DimLike] = {}  # and back
        self.taken: list[Value] = []
        self.packed: list[tuple[Packed, Packed]] = []

    def size(self, size: DimLike) -> DimLike:
        """A size around the body as the body knows it."""
        if isinstance(size, int):
            return size
        if size not in self.symbols:
            symbol = self.symbols[size] = self.graph.fresh()
            self.origin_of[symbol.name] = size
        return self.symbols[size]

    def know(self, size: DimLike, inside: DimLike) -> None:
        """Says what a size around the body is in it, by a symbol."""
        if not isinstance(size, int) and isinstance(inside, Dim):
            self.symbols[size] = inside
            self.origin_of.update(dict.fromkeys(dims.symbols(inside), size))

    def back(self, size: DimLike) -> DimLike | None:
        """A size of the body as it is known around it; None where it is not."""
        names = dims.symbols(size) if isinstance(size, Dim) else ()
        return dims.substitute(size, self.origin_of) if all(n in self.origin_of for n in names) else None

    def input(self, dtype: DType, shape: Sequence[DimLike]) -> Value:
        """A further input of the body."""
        storage = Storage(dtype, dims.product(shape), "input", f"in{len(self.graph.inputs)}")
        value = Value(storage, dtype, shape)
        self.graph.inputs.append((storage.name, value))
        return value

    def take(self, value: Value, shape: Sequence[DimLike] | None = None) -> Value:
        """A value around the body as an input of it; ``shape``: where it may change from step to step."""
        self.taken.append(contiguous(value))
        return self.input(value.dtype, [self.size(s) for s in value.shape] if shape is None else shape)

    def bring(self, value: Value) -> Value:
        """A value around the body as the body has it: constants stay constants."""
        fixed = self._constant(value) if value.storage.const else None
        return self.take(value) if fixed is None else fixed

    def take_whole(self, x: Any) -> Any:
        """The same of a sequence or an optional. One of known length comes as its tensors, and packed where the body asks for that."""
        if isinstance(x, Items):
            around, made = Graph.current(), list[Packed]()

            def whole() -> Packed:
                if not made:
                    with around:
                        made.append(self.take_whole(pack(x)))
                return made[0]

            return Items(tuple(rebuilt(v, iter([self.take(part) for part in parts(v)])) for v in x.values), x.dtype, whole)
        inner = rebuilt(x, iter([self.take(v) for v in parts(x)]))
        if isinstance(x, Packed):
            self.packed.append((inner, x))
        return inner

    def forget(self, x: Packed) -> None:
        """Takes no more what nothing that the body computes asks for: neither its elements nor its sizes."""
        graph = self.graph
        nodes = reachable(graph)
        touched = {v.storage for node in nodes for v in node.inputs()} | {r.value.storage for r in graph.reads.values()}
        touched |= {v.storage for _, v in graph.outputs}
        asked = {s for node in nodes for s in symbols_of(node)} | symbols_in([v.shape for _, v in graph.outputs])
        elements = parts(x.elements)
        hidden = symbols_in([v.shape for v in elements])
        if not (hidden & asked or touched & {v.storage for v in elements}):  # what was checked of longer ones that nobody makes
            graph.checks = [c for c in graph.checks if not hidden & symbols_in([c[0]])]
        asked |= symbols_in([c for c, _ in graph.checks])
        idle = {v.storage for v in parts(x) if v.storage not in touched and not symbols_in([v.shape]) & asked}
        keep = [k for k, (_, value) in enumerate(graph.inputs) if value.storage not in idle]
        self.taken = [self.taken[k - self.lead] for k in keep if k >= self.lead]
        graph.inputs = [graph.inputs[k] for k in keep]

    def _named(self, name: str, x: Value, named: Value) -> Value:
        """An input of the model that only bodies read, or what is made of it, with the sizes that its axes' names stand for where the
        body knows them."""
        sizes: list[DimLike] = []
        for axis, (have, want) in enumerate(zip(x.shape, named.shape, strict=True)):
            known = self.symbols.get(want) if isinstance(want, Dim) else None
            sizes.append(have if known is None else known)
            if known is not None:
                said = f"input {name!r}: axis {axis} must be {want}, as {want} is bound by another input"
                self.graph.check(dims.eq(have, known), said)
        return Value(x.storage, x.dtype, sizes)

    def trace(self, formal: Sequence[Any], given: Mapping[str, Any] | None = None) -> list[Any]:
        """What the body computes, given values for its own inputs, and others by name; :meth:`give` makes it outputs."""
        names: dict[str, Any] = {}
        later: list[tuple[str, Value]] = []
        seen: dict[tuple[Storage, Any], Value] = {}
        for name in self.body.captures or ():
            if name not in self.ctx.names:
                continue
            value = self.ctx.names[name]
            if value is None:
                names[name] = None
            elif isinstance(value, COMPOUND):
                names[name] = self.take_whole(value)
            elif isinstance(value, Strings):
                names[name] = rebuilt(value, iter([self.bring(v) for v in parts(value)]))
            elif value.storage.const and (fixed := self._constant(value)) is not None:
                names[name] = fixed
            elif _sizes(value) is not None:
                later.append((name, value))
            else:
                key = (value.storage, (value.dtype, value.offset, value.shape, value.strides))
                if key not in seen:
                    seen[key] = self.take(value)
                names[name] = seen[key]
        for name, (of, named) in self.ctx.tracer.apart.items():
            if name in names and self.ctx.names.get(name) is self.ctx.tracer.names[name]:
                names[name] = self._named(of, names[name], named)
        for name, value in later:
            known = _sizes(value)
            assert known is not None
            if all(isinstance(k, int) or k in self.symbols for k in known):
                with self.graph:
                    flat = literal([self.size(k) for k in known], value.dtype)
                    names[name] = reshape(flat, value.shape)
            else:
                names[name] = self.take(value)
        if len(formal) != len(self.body.inputs):
            raise IRError(f"the body takes {len(self.body.inputs)} inputs, it is given {len(formal)}")
        names.update({info.name: value for info, value in zip(self.body.inputs, formal, strict=True)})
        names.update(given or {})
        with self.graph:
            self.graph.origin = self.graph.outer.origin if self.graph.outer else ""
            self.ctx.tracer.run(self.body, names)
        found = []
        for info in self.body.outputs:
            if info.name not in names:
                raise IRError(f"output {info.name!r} of the body is computed by no node")
            found.append(names[info.name])
        return found

    def give(self, values: Sequence[Any], forms: Sequence[Form | None]) -> list[Value]:
        """Makes what the body computes outputs: of compound values, in a form each, the tensors."""
        with self.graph:
            whole = [v if form is None else formed(v, form) for v, form in zip(values, forms, strict=True)]
        outputs = list(tensors(whole))
        self.graph.outputs = [(f"out{k}", v) for k, v in enumerate(outputs)]
        return outputs

    @staticmethod
    def _constant(value: Value) -> Value | None:
        """A constant as the body has it; None where the init Program computes it and it is large, or a size of it is none of the body's."""
        if not all(isinstance(n, int) for n in (*value.shape, *value.strides, value.offset)):
            return None
        if value.storage.kind == "const":
            return value
        size = value.size
        folded = Graph.current().fold(value) if isinstance(size, int) and size <= FOLDED and value.dtype in COMPUTED else None
        return None if folded is None else constant(folded.astype(to_numpy(value.dtype)), value.dtype)


def _sizes(value: Value) -> list[DimLike] | None:
    """The elements of a small integer tensor where all are known as sizes."""
    if not value.dtype.is_int or value.rank > 1:
        return None
    known = content(value)
    if known is None or not known.size or any(not isinstance(e, (int, np.integer, Dim)) for e in known.reshape(-1)):
        return None
    return [int(e) if isinstance(e, np.integer) else e for e in known.reshape(-1)]


def emit(
    name: str,
    outlines: Sequence[Outline],
    ins: Sequence[Value],
    outs: Sequence[tuple[DType, Sequence[DimLike | None]]],
    notation: Mapping[str, Notation] | None = None,
    **steer: Any,
) -> list[Value]:
    """Emits a branch or a loop into the current graph. Sizes that are None are known behind it; ``notation`` is that of ``steer``."""
    graph = Graph.current()
    control = Control(name, len(outs), notation)
    blank: dict[str, tuple[DType, Sequence[Any]]] = {
        f"y{k}": (dtype, [0 if s is None else s for s in shape]) for k, (dtype, shape) in enumerate(outs)
    }
    params = {"bodies": [o.graph for o in outlines], "trips": 0, **steer}
    made = control(blank, {"x": list(ins)}, **params)
    values = list(made) if isinstance(made, tuple) else [made]
    if values[0].producer is not None:
        values[0].producer.const = False
    found = []
    for value, (dtype, shape) in zip(values, outs, strict=True):
        sizes: Shape = tuple(graph.size_of(value, axis) if s is None else s for axis, s in enumerate(shape))
        value.storage.size = dims.product(sizes)
        whole = Value(value.storage, dtype, sizes)
        assert value.producer is not None
        for spec, out in value.producer.outs.items():
            if out is value:
                value.producer.outs[spec] = whole
        found.append(whole)
    return found
