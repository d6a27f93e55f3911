"""From an ONNX graph to the IR: runs each node's operator function on the values that its inputs name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import ops, registry, tensor
from .dtypes import DType, from_numpy
from .fold import evaluate
from .ir import (
    COMPOUND,
    Face,
    Form,
    Graph,
    IRError,
    Map,
    Maps,
    NeedsShape,
    Single,
    Storage,
    Strings,
    TooManyWays,
    Undecided,
    Value,
    dims,
    face_of,
    form_of,
    members,
    parts,
    range_of,
)
from .ir.dims import DimLike
from .onnxfile import reader
from .onnxfile.graph import behind
from .ops import reduction
from .ops.ragged import formed, of_each_rank, ranked, shaped
from .tensor.packed import settled

ops.load_all()
#: Values one behind the other whose ranks are data: each doubles what is compiled.
MOST_UNDECIDED = 6
CHOICE = ("choice", "first")
SUPPORTED = frozenset(d for d in DType if d.bits in (2, 4, 8, 16, 32, 64) and d is not DType.complex64) | {DType.string}


def trace(
    model: reader.Model,
    *,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    initializers: Mapping[str, np.ndarray] | None = None,
    choice: int = 0,
) -> Graph:
    """Builds the IR of a model.

    Args:
        shapes: replaces the declared shapes of inputs (needed where the model leaves a rank unknown); None keeps an axis as declared.
        constants: inputs whose contents are fixed at compile time; they remain inputs and must then be fed these values.
        sizes: of symbolic dimensions by name; names that the model lacks are ignored.
        initializers: arrays in the place of the model's own, by name.
        outputs: names of the values to give in place of the model's outputs.
        choice: above 0, adds the outputs ``choice`` and ``first`` (``ops.reduction.choice``) of so many of the model's ``logits``.
    Raises:
        IRError: naming the node that cannot be compiled, and why; NeedsShape where ranks are missing.
    """
    registry.load_packages()
    graph = Graph(evaluate)
    tracer = Tracer(model, graph)
    tracer.symbols.update(sizes or {})
    with graph:
        for name, array in (initializers or {}).items():
            tracer.names[name] = _replacement(model, name, array)
        tracer.add_inputs(shapes or {}, constants or {})
        tracer.run(model.graph, tracer.names)
        declared = {info.name: info.type for info in model.graph.outputs}
        for name in [info.name for info in model.graph.outputs] if outputs is None else outputs:
            if name not in tracer.names:
                raise IRError(f"output {name!r} is computed by no node")
            graph.origin = name
            tracer.add_output(name, tracer.names[name], declared.get(name))
        if choice:
            if "logits" not in declared or not tracer.names.keys().isdisjoint(CHOICE):
                raise IRError(f"a choice is of an output 'logits', and no value of the model has the names {' and '.join(CHOICE)}")
            for graph.origin, value in zip(CHOICE, reduction.choice(tracer.names["logits"], choice), strict=False):
                tracer.add_output(graph.origin, value, None)
    return graph


def _replacement(model: reader.Model, name: str, array: np.ndarray) -> Value | Strings:
    stored = model.graph.initializers.get(name)
    if stored is None:
        raise IRError(f"the model has no initializer {name!r} to replace")
    dtype = DType.string if array.dtype.kind in "OUS" else from_numpy(array.dtype)
    if dtype is not stored.dtype or array.shape != tuple(stored.shape):
        raise IRError(f"initializer {name!r} is {stored.dtype.name}{list(stored.shape)}, its replacement {array.dtype}{list(array.shape)}")
    return tensor.strings.text(array, f"initializer {name!r}") if stored.dtype is DType.string else tensor.constant(array, stored.dtype)


class Tracer:
    """The state of one trace: which value each name stands for."""

    def __init__(self, model: reader.Model, graph: Graph) -> None:
        self.model, self.graph = model, graph
        self.names: dict[str, Any] = {}
        self.constants: dict[int, Value | Strings] = {}
        self.symbols: dict[str, DimLike] = {}
        self.operators: dict[tuple[str, str, int, bool], registry.Operator] = {}
        self.deep = 0  # values of a rank that is data, one behind the other
        #: Inputs with axes of their own, and what nodes make of one: that input, and the value as the names of axes say it.
        self.apart: dict[str, tuple[str, Value]] = {}
        self.handing: set[int] = set()  # nodes that make something of an input for branches alone

    def add_inputs(self, shapes: Mapping[str, Sequence[int | str | None]], constants: Mapping[str, np.ndarray]) -> None:
        """Declares the inputs. Axes of one name have one size, demanded before anything runs; that of an input which only branches
        read, it or what a node makes of its elements, is demanded by the branch that reads it: who feeds a model does not care for
        the sizes of what is not used."""
        inputs = [(_dense(i), _declared(i, shapes.get(i.name))) for i in self.model.graph.inputs]
        unranked = [i.name for i, shape in inputs if i.type.kind == "tensor" and shape is None]
        if unranked:
            raise NeedsShape(unranked)
        tensors = {i.name: (i.type.dtype, shape) for i, shape in inputs if i.type.kind == "tensor" and i.name not in constants}
        read = self.read(tensors)
        bound = {d for i, shape in inputs if i.name in read for d in shape or () if isinstance(d, str)}
        for info, shape in inputs:
            if (
                info.name in read
                or info.type.dtype is DType.string
                or shape is None
                or info.type.kind != "tensor"
                or info.name in constants
            ):
                self.add_input(info, shape, constants.get(info.name))
                continue
            own = [f"{info.name}[{axis}]" if d in bound else d for axis, d in enumerate(shape)]
            self.add_input(info, own, None)
            if own != shape:
                value = self.names[info.name]
                sizes = [self.size(d, f"{info.name}[{axis}]") for axis, d in enumerate(shape)]
                self.apart[info.name] = info.name, Value(value.storage, value.dtype, sizes)
            bound.update(d for d in shape if isinstance(d, str))

    def read(self, inputs: Mapping[str, tuple[DType | None, Sequence[int | str | None] | None]]) -> set[str]:
        """The names that more than branches read, given the inputs' dtypes and shapes; ``handing`` becomes what others read."""
        nodes, tensors = self.model.graph.nodes, dict(inputs)
        read = {o.name for o in self.model.graph.outputs}
        keeping = set[int]()
        if any(sub for node in nodes for sub in node.graphs()):
            for node in nodes:
                dtype, shape = tensors.get(node.inputs[0], (None, None)) if len(node.inputs) == 1 else (None, None)
                kept = None if dtype is None or shape is None else self.kept(node, dtype, len(shape))
                if kept:
                    keeping.add(id(node))
                    tensors.update({name: (made, shape) for name, made in zip(node.outputs, kept, strict=False)})
        for node in reversed(nodes):
            if id(node) in keeping and read.isdisjoint(node.outputs):
                self.handing.add(id(node))
            else:
                read.update(node.inputs)
        return read

    def kept(self, node: reader.Node, dtype: DType, rank: int) -> list[DType] | None:
        """The dtypes of what a node makes of a tensor, its one input, where all have the sizes of that, whatever they are."""
        if dtype not in SUPPORTED or dtype is DType.string or any(node.graphs()):
            return None
        with Graph(evaluate):
            sizes = [dims.sym(f"{axis}") for axis in range(rank)]
            value = Value(Storage(dtype, dims.product(sizes), "input", node.inputs[0]), dtype, sizes)
            try:
                results = self.call(node, {node.inputs[0]: value})
            except IRError:
                return None
        whole = all(isinstance(r, Value) and r.whole and r.shape == value.shape for r in results)
        return [r.dtype for r in results] if whole else None

    def add_compound(self, info: reader.ValueInfo, shape: Sequence[int | str | None] | None) -> None:
        """Declares a sequence, an optional or a map: the tensors that it is made of."""
        face = face_of(info, shape)
        if face.dtype not in SUPPORTED or 0 < face.dtype.bits < 8 or face.key not in (None, DType.int64, DType.string):
            keyed = f"maps from {face.key.name} to" if face.key is not None else "sequences and optionals of"
            raise IRError(f"input {info.name!r}: {keyed} {face.dtype.name} are not supported")
        if face.optional and not face.sequence and face.shape is None:
            raise NeedsShape([info.name])
        found: list[Any] = []
        for name, dtype, declared in face.tensors():
            sizes = [self.size(d, "") for d in declared]
            if dtype is DType.string:
                found.append(self.add_strings(name, sizes, None))
                continue
            value = Value(Storage(dtype, dims.product(sizes), "input", name), dtype, sizes)
            self.graph.inputs.append((name, value))
            found.append(value)
        self.graph.faces[0].append(face)
        if face.key is not None:
            self.names[info.name] = Map(*found)
            return
        ranks = None if face.shape is None else frozenset([len(face.shape)])
        form = Form(face.sequence, face.optional, face.dtype, ranks, info.name if ranks is None else "")
        self.names[info.name] = shaped(form, iter([part for v in found for part in parts(v)]))

    def add_output(self, name: str, value: Any, declared: reader.TypeInfo | None) -> None:
        if isinstance(value, (Value, Strings)) and (declared is None or declared.kind != "optional"):
            self.graph.outputs += self.output(name, value)
            self.name_sizes(name, value.shape, None if declared is None else declared.shape)
            self.graph.faces[1].append(_face(name, value.dtype, self.graph.shown(name, value.shape)))
            return
        if isinstance(value, Maps):
            self.graph.outputs.append((name, value.values))
            self.name_sizes(name, value.values.shape, None)
            face = _face(name, value.values.dtype, self.graph.shown(name, value.values.shape))
            self.graph.faces[1].append(replace(face, keys=value.keys))
            return
        form = form_of(value)
        if declared is not None and (declared.kind in ("sequence", "optional") or form.optional):
            told = face_of(reader.ValueInfo(name, declared), None)
            form = Form(told.sequence, told.optional, form.dtype or told.dtype, form.ranks or frozenset([len(told.shape or ())]))
        if form.dtype is None:
            raise IRError(f"output {name!r} is an optional without a value, of no declared type")
        whole = formed(value, form)
        one = form.ranks is not None and len(form.ranks) == 1
        shape = tuple(f"{name}[{a}]" for a in range(next(iter(form.ranks or ())))) if one else None
        face = Face(name, bool(form.sequence), form.optional, form.dtype, shape)
        self.graph.faces[1].append(face)
        for spec, member in zip(face.tensors(), members(whole), strict=True):
            self.graph.outputs += self.output(spec[0], member)

    def name_sizes(self, name: str, shape: Sequence[DimLike], declared: Sequence[int | str | None] | None) -> None:
        """What sizes that data tell are shown as: the name that the model gives them, unless that is of another size, or the place."""
        for axis, size in enumerate(shape):
            if isinstance(size, int) or not dims.told_by_data(size):
                continue
            said = declared[axis] if declared is not None and len(declared) == len(shape) else None
            free = isinstance(said, str) and said not in self.symbols and said not in self.graph.named.values()
            self.graph.named.setdefault(size, str(said) if free else f"{name}[{axis}]")

    def add_input(self, info: reader.ValueInfo, shape: Sequence[int | str | None] | None, fixed: np.ndarray | None) -> None:
        kind = info.type
        if kind.kind in ("sequence", "optional", "map"):
            return self.add_compound(info, shape)
        if kind.kind != "tensor" or kind.dtype is None:
            raise IRError(f"input {info.name!r}: values of type {kind.kind} are not supported, only tensors")
        if kind.dtype not in SUPPORTED:
            raise IRError(f"input {info.name!r}: dtype {kind.dtype.name} is not supported")
        declared = _declared(info, shape)
        if declared is None:
            raise NeedsShape([info.name])
        if len(declared) > tensor.MAX_RANK:
            raise IRError(f"input {info.name!r} has rank {len(declared)}; at most {tensor.MAX_RANK} are supported")
        sizes = [self.size(d, f"{info.name}[{axis}]") for axis, d in enumerate(declared)]
        self.graph.faces[0].append(_face(info.name, kind.dtype, self.graph.shown(info.name, sizes)))
        if kind.dtype is DType.string:
            self.names[info.name] = self.add_strings(info.name, sizes, fixed)
            return
        storage = Storage(kind.dtype, dims.product(sizes), "input", info.name)
        value = Value(storage, kind.dtype, sizes)
        self.graph.inputs.append((info.name, value))
        if fixed is not None:
            if from_numpy(fixed.dtype) is not kind.dtype:
                raise IRError(f"input {info.name!r} is {kind.dtype.name}, its constant value is {fixed.dtype}")
            value = tensor.constant(fixed, kind.dtype)
        elif (
            (kind.dtype.is_int or kind.dtype is DType.bool)
            and kind.dtype is not DType.uint64
            and len(sizes) <= 1
            and isinstance(storage.size, int)
            and storage.size <= tensor.CONTENT_LIMIT
        ):
            value._content = _elements(info.name, kind.dtype, sizes, storage.size)
        self.names[info.name] = value

    def add_strings(self, name: str, sizes: Sequence[DimLike], fixed: np.ndarray | None) -> Strings:
        """An input of strings: spans, and the pool as an input behind them."""
        graph, pool = self.graph, f"{name}.bytes"
        count = dims.sym(f"{name}[bytes]")
        spans = Value(Storage(DType.int64, dims.product(sizes), "input", name), DType.int64, sizes)
        held = Value(Storage(DType.uint8, count, "input", pool), DType.uint8, [count])
        graph.inputs += [(name, spans), (pool, held)]
        graph.strings[0].add(name)
        return Strings(spans, held, True) if fixed is None else tensor.strings.text(fixed, f"the constant value of input {name!r}")

    def output(self, name: str, value: Value | Strings) -> list[tuple[str, Value]]:
        """An output of the graph; strings are two, packed so that only their own bytes leave."""
        if isinstance(value, Value):
            return [(name, value)]
        self.graph.origin = name
        value = tensor.strings.join(value)
        self.graph.strings[1].add(name)
        return [(name, value.spans), (f"{name}.bytes", value.pool)]

    def size(self, declared: int | str | None, fallback: str) -> DimLike:
        if isinstance(declared, int):
            return declared
        name = declared or fallback
        return self.symbols.setdefault(name, dims.sym(name))

    def run(self, graph: reader.Graph, names: dict[str, Any]) -> None:
        """Traces the nodes of a graph; ``names`` holds the outer scope and receives what the nodes define."""
        for name, stored in graph.initializers.items():
            if name not in names:
                names[name] = self.constant(stored)
        into = Graph.current()
        outer = into.origin
        open_: list[tuple[reader.Node, Undecided]] = []  # nodes with results of a rank that is data
        later: set[int] = set()
        for node in graph.nodes:
            if id(node) in later:
                continue
            try:
                results = self.placed(node, lambda node: self.call(node, names))
            except Undecided as undecided:
                if undecided.resume is None:
                    raise
                open_.append((node, undecided))
                later = {id(n) for n in behind(graph, open_[0][0], [n for n, _ in open_[1:]]).nodes}
                continue
            for name, value in zip(node.outputs, results, strict=False):
                if name:
                    names[name] = value
                if name and id(node) in self.handing and node.inputs[0] in self.apart:
                    of, named = self.apart[node.inputs[0]]
                    self.apart[name] = of, Value(value.storage, value.dtype, named.shape)
        if open_:
            first, cause = open_[0]
            rest = behind(graph, first, [n for n, _ in open_[1:]])
            values = self.placed(first, lambda _: self.each_way(cause, rest))
            names.update(zip((info.name for info in rest.outputs), values, strict=True))
        into.origin = outer

    def each_way(self, cause: Undecided, rest: reader.Graph) -> Sequence[Any]:
        """All that comes behind a node, for each rank that the node's result may have."""
        if self.deep == MOST_UNDECIDED:
            raise TooManyWays(
                f"{cause}; {MOST_UNDECIDED} values before it have a rank that is data as well, and each doubles what is compiled: "
                "give one of them a single rank"
            )
        self.deep += 1
        try:
            return cause.resume(rest) if cause.resume else ()
        finally:
            self.deep -= 1

    def placed(self, node: reader.Node, run: Callable[[reader.Node], Sequence[Any]]) -> Sequence[Any]:
        """What is run for a node; errors say which it is."""
        into = Graph.current()
        into.origin = _origin(node)
        try:
            return run(node)
        except IRError as error:
            error.args = (f"node {into.origin!r} ({node.op_type}): {error}",) if not getattr(error, "placed", False) else error.args
            error.placed = True  # type: ignore[attr-defined]
            raise

    def constant(self, stored: reader.Tensor) -> Value | Strings:
        if id(stored) not in self.constants:
            size = math.prod(stored.shape)
            if stored.dtype not in SUPPORTED:
                raise IRError(f"constant {stored.name!r}: dtype {stored.dtype.name} is not supported")
            if stored.dtype is DType.string:
                self.constants[id(stored)] = tensor.strings.text(stored.numpy(), f"constant {stored.name!r}")
                return self.constants[id(stored)]
            storage = Storage(stored.dtype, size, "const", stored.name, stored)
            self.constants[id(stored)] = Value(storage, stored.dtype, stored.shape)
        return self.constants[id(stored)]

    def call(self, node: reader.Node, names: dict[str, Any]) -> Sequence[Any]:
        opset = node.opset or self.model.opsets.get(node.domain, 0)
        if not opset:
            raise IRError(f"domain {node.domain!r} is not imported by the model")
        inputs = [names[name] if id(node) in self.handing else self.lookup(name, names) for name in node.inputs]
        text = any(isinstance(v, Strings) for v in inputs)
        operator = self.operators.get((node.domain, node.op_type, opset, text))
        if operator is None:
            operator = self.operators[node.domain, node.op_type, opset, text] = registry.find(node.domain, node.op_type, opset, text)
        while inputs and inputs[-1] is None and not operator.variadic:
            inputs.pop()
        if not operator.variadic and len(inputs) > len(operator.params):
            raise IRError(f"takes at most {len(operator.params)} inputs, got {len(inputs)}")
        for k, param in operator.required:
            if k >= len(inputs) or inputs[k] is None:
                raise IRError(f"input {param!r} is missing")
        single = any(isinstance(v, Single) for v in inputs) and not (operator.takes_items and operator.takes_context)
        if single and text:
            raise IRError("the rank of an input is data: Reshape it to one rank")
        if not operator.takes_items and any(isinstance(v, COMPOUND) and not isinstance(v, Single) for v in inputs):
            raise IRError("a sequence or an optional stands where a tensor is needed")
        pool = _pooled(operator, inputs) if text else None
        attrs = {}
        for name, given in node.attrs.items():
            if name not in operator.attrs:
                raise IRError(f"attribute {name!r} is not known (has: {', '.join(operator.attrs) or 'none'})")
            attrs[name] = self.attribute(given)
        for name in operator.needed:
            if name not in attrs:
                raise IRError(f"attribute {name!r} is missing")
        if operator.takes_context:
            attrs["ctx"] = registry.Context(opset, tuple(node.outputs), node.name, self, names)
        if single:
            return ranked([_applied(operator, way, attrs) for way in itertools.product(*map(of_each_rank, inputs))])
        results = _applied(operator, inputs, attrs)
        if pool is not None:
            return [Strings(r, pool) for r in results]
        return [settled(r) if isinstance(r, Value) else r for r in results]

    def lookup(self, name: str, names: dict[str, Any]) -> Any:
        if not name:
            return None
        if name not in names:
            raise IRError(f"input {name!r} is defined nowhere before this node")
        of, named = self.apart.get(name, ("", None))
        if named is not None and names[name] is self.names[name]:
            for axis, (have, want) in enumerate(zip(names[name].shape, named.shape, strict=True)):
                Graph.current().check(dims.eq(have, want), f"input {of!r}: axis {axis} must be {want}, as {want} is bound by another input")
            return named
        return names[name]

    def attribute(self, given: Any) -> Any:
        if isinstance(given, reader.Tensor):
            return self.constant(given)
        if isinstance(given, reader.SparseTensor):
            return self.constant(given.densify())
        return given


def _applied(operator: registry.Operator, inputs: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    try:
        result: Any = operator.fn(*inputs, **attrs)
    except (IRError, reader.ReadError):
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:  # what no operator expects of a model
        raise IRError(f"{type(error).__name__}: {error}") from error
    return result if isinstance(result, (tuple, list)) else (result,)


def _pooled(operator: registry.Operator, inputs: list[Any]) -> Value | None:
    """Puts spans in the place of strings that an operator only moves; returns the pool that they share."""
    for k, value in enumerate(inputs):
        where = operator.params[k] if k < len(operator.params) else f"{k}"
        if isinstance(value, Strings) and not operator.takes_strings(k):
            raise IRError(f"input {where!r}: strings are not supported here")
        if isinstance(value, Value) and not operator.takes_tensors(k):
            raise IRError(f"input {where!r} takes strings, it is {value}")
    if not operator.moves:
        return None
    moved = [k for k, value in enumerate(inputs) if isinstance(value, Strings)]
    for k, value in enumerate(inputs):
        if isinstance(value, Value) and "Moved" in operator.kind(k):
            raise IRError(f"input {operator.params[k] if k < len(operator.params) else k!r} is {value}, others are strings")
    spans, pool = tensor.strings.common(*[inputs[k] for k in moved])
    for k, value in zip(moved, spans, strict=True):
        inputs[k] = value
    return pool


def _origin(node: reader.Node) -> str:
    return node.name or f"{node.op_type}_{node.index}"


def _dense(info: reader.ValueInfo) -> reader.ValueInfo:
    """An input of sparse tensors is fed with dense ones."""
    return replace(info, type=replace(info.type, kind="tensor")) if info.type.kind == "sparse" else info


def _declared(info: reader.ValueInfo, shape: Sequence[int | str | None] | None) -> list[int | str | None] | None:
    """The shape of an input where ``shape`` replaces axes of it; None: its rank is not known."""
    known = info.type.shape
    if shape is None:
        return None if known is None else list(known)
    return [k if d is None else d for d, k in zip(shape, known or [None] * len(shape), strict=True)]


def _face(name: str, dtype: DType, shape: tuple[int | str, ...]) -> Face:
    return Face(name, False, False, dtype, shape)


def _elements(name: str, dtype: DType, sizes: Sequence[DimLike], count: int) -> np.ndarray:
    items = np.empty(count, object)
    low, high = range_of(dtype)
    items[:] = [dims.sym(f"{name}{{{i}}}", lo=low, hi=high) for i in range(count)]
    return items.reshape([int(s) for s in sizes])
