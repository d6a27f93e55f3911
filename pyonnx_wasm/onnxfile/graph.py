"""The graph of an ONNX file as the reader hands it out: functions inlined, nodes in an order that can be run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..dtypes import DType
from .protobuf import ReadError
from .tensor import Tensor

MIN_OPSET, MAX_OPSET = 1, 28
MAX_CALL_DEPTH = 64
MAX_NESTING = 128  # after inlining
MAX_INLINED_NODES = 1 << 20

FunctionKey = tuple[str, str, str]  # domain, name, overload


@dataclass(slots=True)
class TypeInfo:
    """A type as declared.

    Attributes:
        kind: ``"tensor"``, ``"sequence"``, ``"optional"``, ``"map"``, ``"sparse"`` or ``"opaque"``.
        dtype: element type, the key's for a map; None: not declared.
        shape: per axis a size, a symbol's name, or None (unknown); None altogether: unknown rank.
        elem: what a sequence, optional or map holds.
    """

    kind: str
    dtype: DType | None = None
    shape: tuple[int | str | None, ...] | None = None
    elem: TypeInfo | None = None


@dataclass(slots=True)
class ValueInfo:
    name: str
    type: TypeInfo


@dataclass(slots=True)
class AttributeRef:
    """Stands, inside a function, for an attribute of the call; gone after inlining."""

    name: str


@dataclass(slots=True)
class Node:
    """One operator call.

    Attributes:
        domain: ``""`` for ai.onnx.
        inputs: names; ``""`` is an absent optional input. The same holds for ``outputs``.
        attrs: int, float, str, :class:`Tensor`, ``SparseTensor``, :class:`Graph`, :class:`TypeInfo`, or a list of one of them.
        index: position in the file's list of nodes; nodes from a function have that of their call.
        opset: version of ``domain`` where it is not the model's, as a function may import another.
    """

    op_type: str
    domain: str
    name: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]
    index: int
    opset: int | None = None

    def __str__(self) -> str:
        named = f" {self.name!r}" if self.name else ""
        return f"node {self.index}{named} ({f'{self.domain}.' if self.domain else ''}{self.op_type})"

    def graphs(self) -> Iterator[Graph]:
        """The graphs among the attributes."""
        for value in self.attrs.values():
            if type(value) is Graph:
                yield value
            elif type(value) is list and value and type(value[0]) is Graph:
                yield from value


@dataclass(slots=True)
class Graph:
    """A graph whose nodes are in topological order.

    Attributes:
        inputs: what has to be fed.
        overridable: initializers that may be fed instead (they are listed as inputs and the model has IR version 4 or newer).
        captures: names taken from the enclosing graphs, each with the node that reads it first.
    """

    name: str
    nodes: list[Node]
    inputs: list[ValueInfo]
    outputs: list[ValueInfo]
    initializers: dict[str, Tensor]
    value_info: dict[str, TypeInfo]
    overridable: list[ValueInfo] = field(default_factory=list)
    captures: dict[str, str] | None = None


@dataclass(slots=True)
class Function:
    name: str
    inputs: list[str]
    outputs: list[str]
    defaults: dict[str, Any]
    nodes: list[Node]
    opsets: dict[str, int]


def check_opset(version: int, what: str) -> None:
    if not MIN_OPSET <= version <= MAX_OPSET:
        raise ReadError(f"{what} opset {version}; opsets {MIN_OPSET} to {MAX_OPSET} are supported (onnx.version_converter converts)")


def order(graph: Graph, heights: dict[int, int] | None = None, level: int = 1) -> int:
    """Sorts the nodes topologically (and those of subgraphs), where they are not, and finds what the graph captures.

    Returns the height: how many graphs, itself included, nest in it. ``heights`` holds those that are done, by identity, as
    a graph may occur more than once; ``level`` is its depth.

    Raises:
        ReadError: a name is defined twice, or nodes depend on each other in a cycle.
    """
    heights = {} if heights is None else heights
    height = heights.get(id(graph), 0)
    if level + max(height, 1) - 1 > MAX_NESTING:
        raise ReadError(f"with functions inlined, graphs nest deeper than {MAX_NESTING}")
    if height:
        return height
    height = 1
    seen = {*graph.initializers, *(i.name for i in graph.inputs)}
    missing: dict[str, str] = {}
    for node in graph.nodes:
        for name in node.inputs:
            if name and name not in seen:
                missing.setdefault(name, str(node))
        for sub in node.graphs():
            height = max(height, 1 + order(sub, heights, level + 1))
            for name, reader in (sub.captures or {}).items():
                if name not in seen:
                    missing.setdefault(name, reader if " inside " in reader else f"{reader} inside {node}")
        for name in node.outputs:
            if name in seen:
                raise ReadError(f"{node} defines {name!r}, which is already defined; every name may be defined once")
            if name:
                seen.add(name)
    if not missing.keys().isdisjoint(seen):
        graph.nodes = _sorted(graph)
    for info in graph.outputs:
        if info.name not in seen:
            missing.setdefault(info.name, f"the output list of graph {graph.name!r}")
    graph.captures = {name: reader for name, reader in missing.items() if name not in seen}
    heights[id(graph)] = height
    return height


def behind(graph: Graph, node: Node, also: Sequence[Node] = ()) -> Graph:
    """What depends on a node, or is to go with that, as a graph of its own, which captures the rest."""
    defined = set(node.outputs) - {""}
    nodes: list[Node] = []
    with_it = {id(n) for n in also}
    place = next(k for k, n in enumerate(graph.nodes) if n is node)
    for later in graph.nodes[place + 1 :]:
        if id(later) in with_it or not defined.isdisjoint(_read_by(later)):
            nodes.append(later)
            defined.update(later.outputs)
    outputs = [info for info in graph.outputs if info.name in defined]
    return captured(Graph(graph.name, nodes, [], outputs, {}, {}))


def captured(graph: Graph) -> Graph:
    """The graph, whose nodes are sorted, with what it captures."""
    seen, missing = {*graph.initializers, *(i.name for i in graph.inputs)}, dict[str, str]()
    for node in graph.nodes:
        missing.update({name: str(node) for name in _read_by(node) if name not in seen})
        seen.update(node.outputs)
    missing.update({info.name: f"the output list of graph {graph.name!r}" for info in graph.outputs if info.name not in seen})
    graph.captures = missing
    return graph


def _read_by(node: Node) -> set[str]:
    """The names that a node takes, and those that its graphs capture."""
    names = {name for name in node.inputs if name}
    return names.union(*(sub.captures or () for sub in node.graphs()))


def _sorted(graph: Graph) -> list[Node]:
    nodes = graph.nodes
    producer = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    needs = [{producer[n] for n in (*node.inputs, *_captured(node)) if n in producer} for node in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for i, before in enumerate(needs):
        for j in before:
            users[j].append(i)
    waiting = [len(before) for before in needs]
    ready = [i for i, n in enumerate(waiting) if not n]
    done: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        done.append(i)
        for j in users[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, j)
    if len(done) == len(nodes):
        return [nodes[i] for i in done]
    at = next(i for i, n in enumerate(waiting) if n)
    path: dict[int, int] = {}
    while at not in path:
        path[at] = len(path)
        at = next(j for j in needs[at] if waiting[j])
    cycle = list(path)[path[at] :][::-1]
    first = cycle.index(min(cycle))
    shown = " -> ".join(str(nodes[i]) for i in (cycle[first:] + cycle[:first])[:6]) + (" -> ..." if len(cycle) > 6 else "")
    raise ReadError(f"the graph is cyclic: {shown} -> {nodes[cycle[first]]}")


def _captured(node: Node) -> Iterator[str]:
    for sub in node.graphs():
        yield from sub.captures or ()


class Inliner:
    """Replaces calls of a model's own functions by their bodies."""

    def __init__(self, functions: Mapping[FunctionKey, Function], opsets: Mapping[str, int], graph: Graph) -> None:
        self.functions = functions
        self.opsets = opsets
        self.used = set(_names(graph))
        self.prefixes: dict[str, int] = {}
        self.done: set[int] = set()
        self.count = 0

    def expand(self, nodes: list[Node], calls: tuple[FunctionKey, ...] = (), level: int = 1) -> list[Node]:
        """The nodes with every call, also in subgraphs and in function bodies, replaced."""
        if level > MAX_NESTING:
            raise ReadError(f"function calls and graphs nest deeper than {MAX_NESTING}")
        expanded: list[Node] = []
        for node in nodes:
            for sub in node.graphs():
                if id(sub) not in self.done:
                    self.done.add(id(sub))
                    sub.nodes = self.expand(sub.nodes, calls, level + 1)
            key = (node.domain, node.op_type, node.overload)
            function = self.functions.get(key)
            if function is None:
                expanded.append(node)
                continue
            if key in calls:
                raise ReadError(f"{node}: function {function.name!r} calls itself")
            if len(calls) == MAX_CALL_DEPTH:
                raise ReadError(f"{node}: function calls nest deeper than {MAX_CALL_DEPTH}")
            expanded += self.expand(self._body(node, function), (*calls, key), level + 1)
        return expanded

    def _body(self, call: Node, function: Function) -> list[Node]:
        if len(call.inputs) > len(function.inputs) or len(call.outputs) > len(function.outputs):
            raise ReadError(
                f"{call}: {len(call.inputs)} inputs and {len(call.outputs)} outputs given to function {function.name!r}, "
                f"which has {len(function.inputs)} and {len(function.outputs)}"
            )
        if "" in function.opsets:
            check_opset(function.opsets[""], f"function {function.name!r} imports")
        prefix = call.name or call.op_type
        repeat = self.prefixes[prefix] = self.prefixes.get(prefix, -1) + 1
        names = {name: call.inputs[i] if i < len(call.inputs) else "" for i, name in enumerate(function.inputs)}
        body = _Body(self, call, function, f"{prefix}_{repeat}/" if repeat else f"{prefix}/", names)
        aliases: list[Node] = []
        for name, actual in zip(function.outputs, call.outputs, strict=False):
            if not actual:
                continue
            if name in names:
                version = body.opset("")
                aliases.append(Node("Identity", "", body.prefix + name, "", (names[name],), (actual,), {}, call.index, version))
            else:
                names[name] = actual
        return [*map(body.node, function.nodes), *aliases]


@dataclass(slots=True)
class _Body:
    """One copy of a function's body: names made unique, attribute references replaced."""

    inliner: Inliner
    call: Node
    function: Function
    prefix: str
    names: dict[str, str]

    def name(self, name: str) -> str:
        if not name:
            return ""
        new = self.names.get(name)
        if new is None:
            new, k = self.prefix + name, 0
            while new in self.inliner.used:
                k += 1
                new = f"{self.prefix}{name}_{k}"
            self.inliner.used.add(new)
            self.names[name] = new
        return new

    def opset(self, domain: str) -> int | None:
        version = self.function.opsets.get(domain)
        return None if version == self.inliner.opsets.get(domain) else version

    def node(self, node: Node) -> Node:
        self.inliner.count += 1
        if self.inliner.count > MAX_INLINED_NODES:
            raise ReadError(f"{self.call}: its functions expand to more than {MAX_INLINED_NODES} nodes")
        attrs = {}
        for key, value in node.attrs.items():
            if type(value) is AttributeRef:
                given = self.call.attrs.get(value.name, self.function.defaults.get(value.name))
                if given is not None:
                    attrs[key] = given
            elif type(value) is Graph:
                attrs[key] = self.graph(value)
            elif type(value) is list and value and type(value[0]) is Graph:
                attrs[key] = [self.graph(g) for g in value]
            else:
                attrs[key] = value
        return Node(
            node.op_type,
            node.domain,
            self.prefix + node.name if node.name else "",
            node.overload,
            tuple(map(self.name, node.inputs)),
            tuple(map(self.name, node.outputs)),
            attrs,
            self.call.index,
            self.opset(node.domain),
        )

    def graph(self, graph: Graph) -> Graph:
        return Graph(
            graph.name,
            [self.node(n) for n in graph.nodes],
            [ValueInfo(self.name(i.name), i.type) for i in graph.inputs],
            [ValueInfo(self.name(o.name), o.type) for o in graph.outputs],
            {self.name(n): replace(t, name=self.name(n)) for n, t in graph.initializers.items()},
            {self.name(n): t for n, t in graph.value_info.items()},
            [ValueInfo(self.name(i.name), i.type) for i in graph.overridable],
        )


def _names(graph: Graph) -> Iterator[str]:
    yield from graph.initializers
    yield from (i.name for i in graph.inputs)
    for node in graph.nodes:
        yield from node.inputs
        yield from node.outputs
        for sub in node.graphs():
            yield from _names(sub)
