"""Lowering: from the IR to Programs (``PROGRAM.md``) and the weights that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir import Graph, IRError, Node, Storage, Value, reachable
from ..tensor import COPY
from ..tensor.packed import bytes_of
from .assemble import Assembler
from .model import Program, Weight


@dataclass
class Lowered:
    main: Program
    init: Program | None
    weights: list[Weight]
    other: Any = None  # what `also` returned


def lower(
    graph: Graph,
    optimise: bool = True,
    *,
    also: Callable[[Sequence[Node], dict[Storage, int]], Any] | None = None,
    finish: Callable[[Graph], None] | None = None,
) -> Lowered:
    """Splits constant arithmetic off into the init Program and assembles both.

    Args:
        optimise: reuse memory in place.
        also: lowers the nodes for another target over the same weights, before ``finish``.
        finish: passes for the core alone.
    """
    normalise_outputs(graph)
    live = reachable(graph)
    init = [n for n in live if n.const]
    main = [n for n in live if not n.const]
    if len({n for n, _ in graph.inputs}) != len(graph.inputs):
        raise IRError("two inputs have one name")
    weights: dict[Storage, int] = {}
    table: list[Weight] = []
    for node in [*init, *main]:
        for value in (*node.inputs(), *node.outs.values()):
            storage = value.storage
            if storage.const and storage not in weights:
                weights[storage] = len(table)
                size = storage.size if isinstance(storage.size, int) else 0
                table.append(
                    Weight(
                        storage.name or f"computed_{len(table)}",
                        storage.dtype,
                        (size,),
                        storage.source if storage.kind == "const" else None,
                    )
                )
    other = also(main, weights) if also else None
    if finish:
        finish(graph)
        main = [n for n in reachable(graph) if not n.const]
    if optimise:
        _take_over(init, main, weights, table)
    first = Assembler("init", init, [], [], weights, False).assemble() if init else None
    second = Assembler("main", main, graph.inputs, graph.outputs, weights, optimise, graph.checks).assemble()
    return Lowered(second, first, table, other)


def normalise_outputs(graph: Graph) -> None:
    """Gives every output a storage of its own that one node of the main Program writes whole."""
    taken: set[Storage] = set()
    fixed: list[tuple[str, Value]] = []
    with graph:
        for name, value in graph.outputs:
            node = value.producer
            if node is None or node.const or not value.whole or value.storage in taken or value.storage.const:
                graph.origin = name
                plain = bytes_of(value) if value.dtype.bits < 8 else value
                copy = COPY({"y": (plain.dtype, plain.shape)}, {"x": plain})
                copy.storage.const = False
                value = Value(copy.storage, value.dtype, value.shape)
            taken.add(value.storage)
            fixed.append((name, value))
    graph.outputs = fixed


def _take_over(init: Sequence[Node], main: Sequence[Node], weights: dict[Storage, int], table: list[Weight]) -> None:
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
                and len(reads) == 1
                and v.whole
                and out.whole
                and v.dtype is out.dtype
                and v.shape == out.shape
                and table[k].nbytes >= 4096
            ):
                table[weights[out.storage]].over = k
                break
