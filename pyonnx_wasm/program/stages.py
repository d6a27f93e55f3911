"""What of a graph runs when: nodes, checks and outputs by the stage in which the sizes that they need are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..ir import IRError, Node, Read, Storage, Value, symbols_in, symbols_of
from ..ir.dims import DimLike


@dataclass
class Stage:
    """A run of nodes.

    Attributes:
        reads: the symbols that its registers read, from what earlier stages wrote.
        outputs: indices of the outputs whose sizes it knows first.
    """

    reads: list[tuple[str, Read]] = field(default_factory=list)
    checks: list[tuple[DimLike, str]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


def staged(
    nodes: Sequence[Node], outputs: Sequence[tuple[str, Value]], checks: Sequence[tuple[DimLike, str]], reads: dict[str, Read]
) -> list[Stage]:
    """The stages of a graph; the order of nodes within one is that of the graph.

    Raises:
        IRError: a size depends on a tensor that needs this size.
    """
    if not reads and not any("control" in node.kernel.traits for node in nodes):
        return [Stage([], list(checks), list(range(len(outputs))), list(nodes))]
    known = _symbols(nodes, reads)
    of_node = _nodes(nodes, known)

    def of(params: object) -> int:
        return max((known.get(s, 0) for s in symbols_in(params)), default=0)

    count = 1 + max([*known.values(), *of_node.values(), 0])
    stages = [Stage() for _ in range(count)]
    for name, read in reads.items():
        stages[known[name]].reads.append((name, read))
    for check in checks:
        stages[of(check[0])].checks.append(check)
    for i, (_, value) in enumerate(outputs):
        stages[of([value.shape])].outputs.append(i)
    for node in nodes:
        stages[of_node[node]].nodes.append(node)
    return stages


def _symbols(nodes: Sequence[Node], reads: dict[str, Read]) -> dict[str, int]:
    """The stage in which each symbol that is data is known."""
    known = {name: 0 if read.value.storage.kind == "input" else 1 for name, read in reads.items()}
    wrote: dict[Storage, list[Node]] = {}
    for node in nodes:
        for value in node.outs.values():
            wrote.setdefault(value.storage, []).append(node)
    for _ in range(len(reads) + 1):
        of_node, settled = _nodes(nodes, known), True
        for name, read in reads.items():
            if read.value.storage.kind == "input":
                continue
            ready = [1 + of_node[n] + (("control" in n.kernel.traits) and not read.size) for n in wrote.get(read.value.storage, [])]
            ready += [1 + known.get(s, 0) for s in symbols_in([read.value.offset, read.value.strides])]
            stage = max([1, *ready])
            settled &= stage == known[name]
            known[name] = stage
        if settled:
            return known
    raise IRError("a size depends on a tensor that needs this size")


def _nodes(nodes: Sequence[Node], known: dict[str, int]) -> dict[Node, int]:
    found: dict[Node, int] = {}
    written: dict[Storage, int] = {}
    for node in nodes:
        stage = max((known.get(s, 0) for s in symbols_of(node)), default=0)
        found[node] = max([stage, *[written.get(v.storage, 0) for v in node.inputs()]])
        for value in node.outs.values():
            written[value.storage] = max(written.get(value.storage, 0), found[node] + ("control" in node.kernel.traits))
    return found
