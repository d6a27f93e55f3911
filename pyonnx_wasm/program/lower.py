"""Lowering: from the IR to Programs (``PROGRAM.md``) and the weights that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir import Graph, IRError, Node, Storage, Value, reachable
from ..passes import Pair, channels_last, combine_bytes, keep_state, pack_blocks, pack_products, pack_weights, together, write_through
from ..tensor import COPY
from ..tensor.packed import bytes_of
from .assemble import Assembler
from .model import Program, Weight

LEAST_BYTES = 4096  # of a weight whose memory is worth having


@dataclass
class Parts:
    """A graph by when its nodes run; every target lowers ``main`` in its own way and leaves it as it is.

    Attributes:
        init: runs once, from constants alone.
        main: runs for each set of inputs.
        bodies: the same of the graphs that branches and loops run.
        weights: the row in ``table`` of each constant and of each result of init.
    """

    graph: Graph
    init: list[Node]
    main: list[Node]
    bodies: dict[Graph, list[Node]]
    weights: dict[Storage, int]
    table: list[Weight]


@dataclass
class Lowered:
    """The Programs of the core.

    Attributes:
        shared: of ``init`` what every target needs, the Program that runs before one for GPUs; ``init`` itself where there is no more.
    """

    main: Program
    init: Program | None
    weights: list[Weight]
    shared: Program | None


def partition(graph: Graph) -> Parts:
    """Splits constant arithmetic off and gathers the weights."""
    normalise_outputs(graph)
    if len({n for n, _ in graph.inputs}) != len(graph.inputs):
        raise IRError("two inputs have one name")
    parts = Parts(graph, [], _split(graph, init := list[Node](), bodies := dict[Graph, list[Node]]()), bodies, {}, [])
    parts.init += init
    read = [r.value for g in (graph, *bodies) for r in g.reads.values()]
    nodes = [*parts.init, *parts.main, *(node for body in bodies.values() for node in body)]
    for values in [*[(*node.inputs(), *node.outs.values()) for node in nodes], read]:
        for value in values:
            storage = value.storage
            if storage.const and storage not in parts.weights:
                parts.weights[storage] = len(parts.table)
                parts.table.append(_weight(storage, len(parts.table)))
    return parts


def _split(graph: Graph, init: list[Node], bodies: dict[Graph, list[Node]]) -> list[Node]:
    """The nodes of a graph that run with it; those of constants alone, of the graphs within it too, join ``init``."""
    live = reachable(graph)
    init += [n for n in live if n.const]
    main = [n for n in live if not n.const]
    for node in main:
        if "control" in node.kernel.traits:
            for body in node.params["bodies"]:
                normalise_outputs(body)
                bodies[body] = []
                bodies[body] += _split(body, init, bodies)
    return main


def _weight(storage: Storage, index: int) -> Weight:
    size = storage.size if isinstance(storage.size, int) else 0
    source = storage.source if storage.kind == "const" else None
    return Weight(storage.name or f"computed_{index}", storage.dtype, (size,), source)


def lower(parts: Parts, optimise: bool = True) -> Lowered:
    """Assembles the Programs of the core; with ``optimise`` memory is used in place."""
    graph, main, init = parts.graph, parts.main, list[Node]()
    bodies, outputs, pairs, checks = parts.bodies, graph.outputs, list[Pair](), list(graph.checks)
    if optimise:
        inner = {v.storage for nodes in bodies.values() for node in nodes for v in node.inputs()}
        kept = keep_state(graph, main, inner)
        main, outputs, pairs, checks = kept.nodes, kept.outputs, kept.pairs, [*checks, *kept.checks]
        main = channels_last(main, inner | graph.output_storages() | {r.value.storage for r in graph.reads.values()}, init)
        main = combine_bytes(pack_weights(main, init), init)
        read = {r.value.storage for g in (graph, *bodies) for r in g.reads.values()}
        bodies = {body: pack_weights(nodes, init) for body, nodes in bodies.items()}
        main, *rest = pack_blocks(pack_products([main, *bodies.values()], init, read), init, read)
        bodies = dict(zip(bodies, rest, strict=True))
        _enlist(parts, init)
        bodies = {body: write_through(nodes, body.output_storages(), body.reads) for body, nodes in bodies.items()}
        bodies = {body: together(nodes) for body, nodes in bodies.items()}
        main = together(write_through(main, graph.output_storages(), graph.reads))
        plain = [*parts.main, *(node for nodes in (*parts.bodies.values(), *bodies.values()) for node in nodes)]
        _take_over(parts.init, [*init, *main, *plain], read, parts.weights, parts.table)
        inner = {v.storage for nodes in bodies.values() for node in nodes for v in node.inputs()}
        _take_over(init, main, inner | read, parts.weights, parts.table)
    shared = _init(parts.init, parts.weights)
    first = _init([*parts.init, *init], parts.weights) if init else shared
    second = Assembler("main", main, graph.inputs, outputs, parts.weights, optimise, checks, graph.reads, bodies, pairs).assemble()
    return Lowered(second, first, parts.table, shared)


def _init(nodes: Sequence[Node], weights: dict[Storage, int]) -> Program | None:
    return Assembler("init", nodes, [], [], weights, False).assemble() if nodes else None


def _enlist(parts: Parts, nodes: Sequence[Node]) -> None:
    """Gives rows to what nodes of init write."""
    for node in nodes:
        for value in node.outs.values():
            parts.weights[value.storage] = len(parts.table)
            parts.table.append(_weight(value.storage, len(parts.table)))


def normalise_outputs(graph: Graph) -> None:
    """Gives every output a storage of its own that one kernel of the main Program writes whole."""
    taken: set[Storage] = set()
    fixed: list[tuple[str, Value]] = []
    with graph:
        for name, value in graph.outputs:
            node = value.producer
            if (
                node is None
                or node.const
                or "control" in node.kernel.traits
                or not value.whole
                or value.storage in taken
                or value.storage.const
            ):
                graph.origin = name
                plain = bytes_of(value) if value.dtype.bits < 8 else value
                copy = COPY({"y": (plain.dtype, plain.shape)}, {"x": plain})
                copy.producer.const = False
                value = Value(copy.storage, value.dtype, value.shape)
            taken.add(value.storage)
            fixed.append((name, value))
    graph.outputs = fixed


def _take_over(init: Sequence[Node], main: Sequence[Node], read: set[Storage], weights: dict[Storage, int], table: list[Weight]) -> None:
    """Lets an init result overwrite the constant it is made of, when nothing reads that constant later."""
    last: dict[Storage, int] = {}
    for i, node in enumerate([*init, *main]):
        for v in node.inputs():
            last[v.storage] = i
    for i, node in enumerate(init):
        if "inplace" not in node.kernel.traits or len(node.outs) != 1:
            continue
        out = node.out
        for v in node.inputs():
            k = weights[v.storage]
            reads = [x for x in node.inputs() if x.storage is v.storage]
            if (
                last[v.storage] == i
                and v.storage not in read
                and len(reads) == 1
                and v.whole
                and out.whole
                and v.dtype is out.dtype
                and v.shape == out.shape
                and table[k].nbytes >= LEAST_BYTES
            ):
                table[weights[out.storage]].over = k
                break
