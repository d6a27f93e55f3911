"""What must hold of a graph between passes."""

from __future__ import annotations

from ..ir import Graph, Storage, Value


def verify(graph: Graph, after: str) -> None:
    """Raises AssertionError, naming the pass, when a node reads what is not written before it or a buffer is amiss."""
    written: set[Storage] = {v.storage for _, v in graph.inputs}
    for node in graph.nodes:
        for value in node.inputs():
            if value.storage not in written and value.storage.kind == "temp":
                raise AssertionError(f"after {after}: {node.kernel.name} ({node.origin}) reads {value} before it is written")
        for spec in node.kernel.buffers:
            got = node.outs.get(spec.name) if spec.output else node.ins.get(spec.name)
            if got is None and not spec.optional and not spec.variadic:
                raise AssertionError(f"after {after}: {node.kernel.name} ({node.origin}) lacks {spec.name}")
            if isinstance(got, Value) and spec.variadic:
                raise AssertionError(f"after {after}: {node.kernel.name} ({node.origin}): {spec.name} takes a list")
        written.update(v.storage for v in node.outs.values())
    for name, value in graph.outputs:
        if value.storage.kind == "temp" and value.storage not in written:
            raise AssertionError(f"after {after}: output {name} is never written")
