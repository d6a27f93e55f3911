"""Drops nodes that no output depends on."""

from __future__ import annotations

from ..ir import Graph, reachable


def remove_dead_code(graph: Graph) -> None:
    graph.nodes = reachable(graph)
