"""The IR: a list of kernel calls over strided views of storages.

A :class:`Storage` is a flat run of elements with one meaning: a graph input, a constant, or what a node wrote. A
:class:`Value` is a strided view of one (offset, shape and strides in elements, each a ``DimLike``), so Transpose, Reshape,
Slice and Expand are views and cost nothing where the consumer takes strides. A :class:`Node` is one kernel call. Shape
parameters stay symbolic; the raw ABI parameters are derived from the values only when the graph is lowered, so passes see
what a call means and not how it is laid out.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..dtypes import DType
from . import dims
from .dims import Dim, DimLike
from .polynomial import LONGEST

if TYPE_CHECKING:
    from ..registry import Kernel
    from .compound import Face

Shape = tuple[DimLike, ...]
Content = np.ndarray  # of objects: int, float, bool or Dim


class IRError(ValueError):
    """A model that cannot be compiled; the text names the node and the cure."""


class NeedsShape(IRError):
    """The ranks of inputs must be known before the graph can be built."""

    def __init__(self, inputs: Iterable[str]) -> None:
        self.inputs = tuple(inputs)
        first = self.inputs[0]
        self.option = f"shapes={{{first!r}: (...)}}"
        super().__init__(f"input {first!r} has no declared shape; give one: {self.option}")


class NeedsSizes(IRError):
    """Sizes must be known before the graph can be built: they decide ranks, not only shapes."""

    def __init__(self, symbols: Iterable[str], why: str) -> None:
        self.symbols = tuple(symbols)
        self.option = "sizes={" + ", ".join(f"{name!r}: ..." for name in self.symbols) + "}"
        super().__init__(f"{why}: give the size on which it depends: {self.option}")


class Undecided(IRError):
    """What a node gives has a rank that is data.

    Attributes:
        resume: given all that comes behind the node, as a graph of the file, traces that for each rank by itself; the values of that
            graph's outputs. None: the branch or loop around the node is to.
    """

    def __init__(self, why: str, resume: Callable[[Any], Sequence[Any]] | None = None) -> None:
        self.resume = resume
        super().__init__(why)


class TooManyWays(IRError):
    """More values of ranks that are data, one behind the other, than are compiled for each rank."""


class Storage:
    """A flat run of ``size`` elements.

    Attributes:
        kind: ``"input"``, ``"const"`` (loaded) or ``"temp"`` (written by ``producer``).
        source: the reader's tensor or the array behind a constant.
        asked: the model casts to this dtype itself; no pass may compute it in a wider one.
    """

    __slots__ = ("asked", "dtype", "id", "kind", "name", "producer", "size", "source")
    _ids = itertools.count()

    def __init__(self, dtype: DType, size: DimLike, kind: str, name: str = "", source: Any = None, producer: Node | None = None) -> None:
        self.dtype, self.size, self.kind, self.name, self.source, self.producer = dtype, size, kind, name, source, producer
        self.asked = False
        self.id = next(Storage._ids)

    @property
    def const(self) -> bool:
        """The contents are a constant, or what init computes from constants."""
        return self.kind == "const" or (self.producer is not None and self.producer.const)


def _none_of(shape: Sequence[DimLike]) -> bool:
    return any(isinstance(n, int) and n == 0 for n in shape)


class Value:
    """A strided view of a storage: element ``index`` lies at ``offset + sum(index[d] * strides[d])``. One of no elements begins at 0."""

    __slots__ = ("_content", "dtype", "offset", "shape", "storage", "strides")

    def __init__(
        self,
        storage: Storage,
        dtype: DType,
        shape: Sequence[DimLike],
        offset: DimLike = 0,
        strides: Sequence[DimLike] | None = None,
        content: Content | Callable[[], Content | None] | None = None,
    ) -> None:
        self.storage, self.dtype, self.shape = storage, dtype, tuple(shape)
        self.offset = offset if isinstance(offset, int) or not _none_of(self.shape) else 0
        self.strides: Shape = row_major(self.shape) if strides is None else tuple(strides)
        self._content = content

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> DimLike:
        return dims.product(self.shape)

    @property
    def content(self) -> Content | None:
        """The elements, as an object array of numbers and Dims, where they are known at compile time; else None."""
        if callable(self._content):
            self._content = self._content()
        return self._content

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps (the offset may be anything)."""
        step: DimLike = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if stride is not step and stride != step and size != 1:
                return False
            step = step * size
        return True

    @property
    def whole(self) -> bool:
        """Exactly its storage: contiguous, from the first to the last element, of the same dtype."""
        storage = self.storage
        return self.dtype is storage.dtype and self.offset == 0 and self.contiguous and dims.same(self.size, storage.size)

    @property
    def producer(self) -> Node | None:
        return self.storage.producer

    def view(self, shape: Sequence[DimLike], offset: DimLike, strides: Sequence[DimLike], content: Any = None) -> Value:
        return Value(self.storage, self.dtype, shape, offset, strides, content)

    def __repr__(self) -> str:
        return f"%{self.storage.id}:{type_text(self.dtype, self.shape)}"


class Node:
    """One kernel call: ``ins`` and ``outs`` by buffer name, ``params`` by meaning; ``origin`` names the ONNX nodes behind it.

    Attributes:
        const: it belongs to the init Program, which it may if it is ``fixed()``.
    """

    __slots__ = ("const", "ins", "kernel", "origin", "outs", "params")

    def __init__(self, kernel: Kernel, ins: dict[str, Any], params: dict[str, Any], origin: str = "") -> None:
        self.kernel, self.ins, self.params, self.origin = kernel, ins, params, origin
        self.outs: dict[str, Value] = {}
        self.const = False

    def inputs(self) -> list[Value]:
        """Present inputs, in declaration order."""
        ins, found = self.ins, []
        for name in self.kernel.input_names:
            got = ins.get(name)
            if isinstance(got, Value):
                found.append(got)
            elif got is not None:
                found += got
        return found

    def replace(self, fn: Callable[[Value], Value]) -> None:
        """Rewrites every input; only of a call that is not yet part of a graph."""
        for name, got in self.ins.items():
            if isinstance(got, Value):
                self.ins[name] = fn(got)
            elif got is not None:
                self.ins[name] = [fn(v) for v in got]

    @property
    def out(self) -> Value:
        """The first output."""
        return next(iter(self.outs.values()))

    def fixed(self) -> bool:
        """True when it depends on constants alone, nothing about it is symbolic, and it gives the same each time."""
        if "chance" in self.kernel.traits:
            return False
        ins = self.inputs()
        for value in ins:
            if not value.storage.const:
                return False
        views = [[v.offset, v.shape, v.strides] for v in (*ins, *self.outs.values())]
        return not any(isinstance(p, Dim) for p in flatten([self.params, views]))


@dataclass(frozen=True)
class Read:
    """What a symbol stands for that is data: one element of a tensor that the graph computes.

    Attributes:
        value: contiguous, of static size.
        index: of the element, row-major; or of an axis.
        size: True for the size of that axis of what a branch or a loop gives.
    """

    value: Value
    index: int
    size: bool = False


class Graph:
    """Nodes in an order in which they can run, named inputs, named outputs.

    Args:
        evaluate: computes a value of this graph that is made of constants alone; without it nothing is folded.
    """

    _current: ClassVar[threading.local] = threading.local()

    def __init__(self, evaluate: Callable[[Graph, Value], np.ndarray] | None = None) -> None:
        self.evaluate = evaluate
        self.inputs: list[tuple[str, Value]] = []
        self.outputs: list[tuple[str, Value]] = []
        self.nodes: list[Node] = []
        self.checks: list[tuple[DimLike, str]] = []
        self.strings: tuple[set[str], set[str]] = set(), set()  # inputs, and outputs, that are spans: their pool is the next one
        self.reads: dict[str, Read] = {}  # by symbol
        self._asked: dict[Any, str] = {}
        self.outer: Graph | None = None  # of the body of a branch or a loop
        self._numbers = itertools.count()
        self.origin = ""
        self.named: dict[Dim, str] = {}  # sizes of outputs that data tell, as they are shown
        self.faces: tuple[list[Face], list[Face]] = ([], [])  # inputs and outputs of the model, of which the graph's are the tensors

    @staticmethod
    def current() -> Graph:
        return Graph._current.stack[-1]  # type: ignore[no-any-return]

    def __enter__(self) -> Graph:
        if not hasattr(Graph._current, "stack"):
            Graph._current.stack = []
        Graph._current.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Graph._current.stack.pop()

    def emit(self, node: Node, outs: dict[str, tuple[DType, Sequence[DimLike]]]) -> Any:
        """Appends a node and makes its outputs, each a whole storage of its own."""
        node.origin = node.origin or self.origin
        for name, (dtype, shape) in outs.items():
            storage = Storage(dtype, dims.product(shape), "temp", producer=node)
            node.outs[name] = Value(storage, dtype, shape)
        node.const = node.fixed()
        self.nodes.append(node)
        values = tuple(node.outs.values())
        return values[0] if len(values) == 1 else values

    def fold(self, x: Value) -> Content | None:
        """The elements of a value that is made of constants alone, or None."""
        if self.evaluate is None or not x.storage.const or not all(isinstance(n, int) for n in (*x.shape, x.offset, *x.strides)):
            return None
        x._content = self.evaluate(self, x).astype(object)
        return x.content

    def check(self, condition: DimLike, message: str) -> None:
        """Demands that a condition over sizes holds whenever shapes are bound."""
        known = dims.known(condition)
        if known == 0:
            raise IRError(message)
        if known is None:
            self.checks.append((condition, message))

    def uses(self) -> dict[Storage, list[Node]]:
        """The nodes that read each storage; a graph output counts as a use by no node."""
        found: dict[Storage, list[Node]] = {}
        for node in self.nodes:
            for storage in dict.fromkeys([v.storage for v in node.inputs()]):
                found.setdefault(storage, []).append(node)
        return found

    def read(self, x: Value, index: int) -> Dim:
        """The symbol of an element of a contiguous value: an integer, or where the dtype is a float the bits of a float64,
        which is no number to compute with but a kernel's parameter."""
        key = (x.storage, x.offset, x.shape, x.strides, index)
        if key not in self._asked:
            self._asked[key] = f"%{next(self._numbers)}{{}}"
        name = self._asked[key]
        self.reads.setdefault(name, Read(x, index))
        low, high = range_of(x.dtype)
        return dims.sym(name, lo=low, hi=high)

    def size_of(self, x: Value, axis: int) -> Dim:
        """The symbol of a size of what a branch or a loop gives."""
        name = f"%{next(self._numbers)}"
        self.reads[name] = Read(x, axis, True)
        return dims.sym(name)

    def fresh(self) -> Dim:
        """A new symbol of a size."""
        return dims.sym(f"~{next(self._numbers)}")

    def shown(self, name: str, sizes: Sequence[DimLike]) -> tuple[int | str, ...]:
        """The shape of an input or an output as text: sizes by the symbols of inputs, else by a name, at least by the place."""

        def text(axis: int, size: DimLike) -> int | str:
            if isinstance(size, int):
                return size
            plain = size.written <= LONGEST and not dims.told_by_data(size)
            return str(size) if plain else self.named.get(size, f"{name}[{axis}]")

        return tuple(text(axis, size) for axis, size in enumerate(sizes))

    def bodies(self) -> Iterator[Graph]:
        """The graphs that branches and loops of this one run."""
        for node in self.nodes:
            if "control" in node.kernel.traits:
                yield from node.params["bodies"]

    def output_storages(self) -> set[Storage]:
        """The storages that are read where no node shows: as outputs, or for sizes."""
        return {v.storage for _, v in self.outputs} | {r.value.storage for r in self.reads.values()}


def range_of(dtype: DType) -> tuple[int, int]:
    """The numbers that an element can be whose symbol shapes depend on; what is no integer is bits of 64."""
    if dtype is DType.bool:
        return 0, 1
    signed, bits = (dtype.is_signed, dtype.bits) if dtype.is_int and dtype.bits < 64 else (True, 64)
    low = -(1 << bits - 1) if signed else 0
    return low, low + (1 << bits) - 1


def row_major(shape: Sequence[DimLike]) -> Shape:
    """Strides of a contiguous tensor, in elements."""
    if not shape:
        return ()
    step: DimLike = 1
    strides: list[DimLike] = [step]
    for size in reversed(shape[1:]):
        step = step * size
        strides.append(step)
    strides.reverse()
    return tuple(strides)


def type_text(dtype: DType, shape: Sequence[DimLike]) -> str:
    return f"{dtype.short}[{', '.join(map(str, shape))}]"


def flatten(params: Any) -> Iterator[Any]:
    """All leaves of nested dicts, lists and tuples."""
    if isinstance(params, dict):
        params = params.values()
    elif not isinstance(params, (list, tuple)):
        yield params
        return
    for p in params:
        yield from flatten(p)


def symbols_of(node: Node) -> set[str]:
    """The symbols in a call's parameters and views; the sizes of what a branch or a loop gives are known behind it."""
    values = node.inputs() if "control" in node.kernel.traits else [*node.inputs(), *node.outs.values()]
    views = [[v.offset, v.shape, v.strides, v.storage.size] for v in values]
    return symbols_in([node.params, views])


def symbols_in(params: Any) -> set[str]:
    """The symbols in all leaves of nested dicts, lists and tuples."""
    return {s for leaf in flatten(params) if isinstance(leaf, Dim) for s in dims.symbols(leaf)}


def reachable(graph: Graph) -> list[Node]:
    """The nodes that an output depends on, by way of tensors or of sizes, in order. Reads that nothing needs are dropped."""
    wanted = {v.storage for _, v in graph.outputs}
    wrote = {v.storage: node for node in graph.nodes for v in node.outs.values()} if graph.reads else {}
    kept: set[Node] = set()
    asked: dict[str, None] = {}
    todo: list[Node] = []

    def need(storages: Iterable[Storage]) -> None:
        for storage in storages:
            if storage in wrote and wrote[storage] not in kept:
                kept.add(wrote[storage])
                todo.append(wrote[storage])

    def ask(symbols: set[str]) -> None:
        for name in symbols:
            if name in graph.reads and name not in asked:
                asked[name] = None
                read = graph.reads[name]
                need([read.value.storage])
                ask(symbols_in([read.value.shape, read.value.offset, read.value.strides]))

    if graph.reads:
        need(wanted)
        ask(symbols_in([[c for c, _ in graph.checks], [v.shape for _, v in graph.outputs]]))
        while todo:
            node = todo.pop()
            need(v.storage for v in (*node.inputs(), *node.outs.values()))
            ask(symbols_of(node))
        graph.reads = {n: r for n, r in graph.reads.items() if n in asked}
        return [n for n in graph.nodes if n in kept]
    found = []
    for node in reversed(graph.nodes):
        for value in node.outs.values():
            if value.storage in wanted:
                found.append(node)
                wanted.update([v.storage for v in node.inputs()])
                break
    return found[::-1]
