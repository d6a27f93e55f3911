"""What rewriting passes share: the one place in which nodes of a graph give way to others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from ..ir import Graph, Node, Storage, Value
from ..tensor import expression
from ..tensor.expression import Expression

TINY = 2.0**-60


def moderate(factor: float) -> bool:
    """A factor that can be moved past others without infinities or zeros that were not there."""
    return TINY <= abs(factor) <= 1 / TINY


class Rewriter:
    """A graph while a pass rewrites it: ``with Rewriter(graph) as rewriter``.

    Nodes are never changed, only replaced by others, each once; who reads and who wrote a storage is true at any time.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.kept = graph.output_storages()
        self.slots = [[node] for node in graph.nodes]
        self.slot = {node: i for i, node in enumerate(graph.nodes)}
        self.readers: dict[Storage, dict[Node, None]] = {}
        for node in graph.nodes:
            self._reads(node)

    def __enter__(self) -> Rewriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.graph.nodes = [node for slot in self.slots for node in slot]

    def nodes(self) -> Iterator[Node]:
        """The nodes in order; those put where the loop stands come with the next pass."""
        for slot in self.slots:
            for node in list(slot):
                if node in self.slot:
                    yield node

    def alone(self, value: Value, reader: Node) -> bool:
        """Nothing but one view of one node reads what lies in the value's storage."""
        readers = self.readers.get(value.storage, {})
        once = sum(v.storage is value.storage for v in reader.inputs()) == 1
        return once and len(readers) == 1 and reader in readers and value.storage not in self.kept

    def only_reader(self, value: Value) -> Node | None:
        """The node that alone reads a value."""
        readers = list(self.readers.get(value.storage, ()))
        return readers[0] if len(readers) == 1 and self.alone(value, readers[0]) else None

    @contextmanager
    def emitted(self, origin: str) -> Iterator[list[Node]]:
        """Collects the nodes that are emitted inside the block, for :meth:`replace`."""
        graph = self.graph
        kept, origin_before, fresh = graph.nodes, graph.origin, list[Node]()
        graph.nodes, graph.origin = fresh, origin
        try:
            with graph:
                yield fresh
        finally:
            graph.nodes, graph.origin = kept, origin_before

    def replace(self, old: Sequence[Node], new: Sequence[Node]) -> None:
        """Puts ``new`` where the last of ``old`` stood. What only ``old`` wrote must have no other readers."""
        gone = next((node for node in old if node not in self.slot), None)
        if gone is not None:
            raise AssertionError(f"{gone.kernel.name} ({gone.origin}) has been replaced before")
        last = max(old, key=lambda n: (self.slot[n], self.slots[self.slot[n]].index(n)))
        at = self.slot[last]
        place = self.slots[at].index(last)
        self.slots[at][place:place] = new
        for node in old:
            self.slots[self.slot.pop(node)].remove(node)
            for value in node.inputs():
                self.readers[value.storage].pop(node, None)
        for node in new:
            self.slot[node] = at
            self._reads(node)
            for value in node.outs.values():
                value.storage.producer = node
            node.const = node.fixed()
        written = {v.storage for node in new for v in node.outs.values()}
        for value in (v for node in old for v in node.outs.values()):
            if value.storage not in written and (self.readers.get(value.storage) or value.storage in self.kept):
                raise AssertionError(f"{value}, which others read, would be written by nobody")

    def _reads(self, node: Node) -> None:
        for value in node.inputs():
            self.readers.setdefault(value.storage, {})[node] = None


def derived(node: Node, ins: dict[str, object] | None = None, params: dict[str, object] | None = None, origin: str = "") -> Node:
    """Another call of the same kernel, with some inputs or parameters of its own; it writes what ``node`` wrote."""
    other = Node(node.kernel, {**node.ins, **(ins or {})}, {**node.params, **(params or {})}, origin or node.origin)
    other.outs = dict(node.outs)
    return other


def computing(node: Node, e: Expression, xs: Sequence[Value]) -> Node:
    """A map in place of another, of an expression over ``xs``; inputs that it does not read are left out."""
    used = expression.inputs(e)
    place = {old: new for new, old in enumerate(used)}
    e = expression.rebuild(e, lambda x: x.make("in", x.dtype, extra=[place[x.extra[0]]]) if x.name == "in" else x, {})
    return derived(node, {"x": [xs[i] for i in used]}, {"code": expression.code(e, len(used))})


def joined(origins: Iterable[str]) -> str:
    """The origins of nodes that became one."""
    return " + ".join(dict.fromkeys(part for origin in origins if origin for part in origin.split(" + ")))
