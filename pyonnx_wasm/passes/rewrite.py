"""What rewriting passes share: new nodes in place of old ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..ir import Graph, Node


@contextmanager
def emitted(graph: Graph, origin: str) -> Iterator[list[Node]]:
    """Collects the nodes emitted inside the block instead of appending them to the graph."""
    kept, graph.nodes = graph.nodes, []
    before, graph.origin = graph.origin, origin
    fresh = graph.nodes
    try:
        yield fresh
    finally:
        graph.nodes, graph.origin = kept, before


def splice(graph: Graph, before: dict[Node, list[Node]], gone: set[Node]) -> None:
    """Inserts nodes in front of others and drops those that are gone."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += before.get(node, [])
        if node not in gone:
            nodes.append(node)
    graph.nodes = nodes
