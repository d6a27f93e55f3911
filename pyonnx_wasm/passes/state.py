"""Lets what a model is given and gives back longer, as the cache of a decoder, stay where it is from run to run.

An input that a concatenation extends into an output is a pair ``past -> present``: the output's memory may have room behind its rows, so
that the next run finds the rows of its past in their place and writes the new ones behind them. How many rows there is room for, and how
many are there already, are the dims of a further input; a host that knows nothing of them gives 0 for both, and the past is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..dtypes import DType
from ..ir import Graph, Node, Shape, Storage, Value, dims, row_major, symbols_in
from ..ir.dims import DimLike
from ..tensor import CONCAT

MOST_RANK = 8


@dataclass(frozen=True)
class Pair:
    """An input that an output extends.

    Attributes:
        past: the name of the graph's input.
        out: the output where its memory is as long as its rows.
        axis: that it is longer along.
        told: the further input: its dims are the rows that there is room for, and the rows of the past that are in place.
        home: the output where its memory has room.
    """

    past: str
    out: Value
    axis: int
    told: Value
    home: Value

    @property
    def room(self) -> DimLike:
        """Rows of the output's memory."""
        return dims.dmax(self.told.shape[0], self.out.shape[self.axis])

    def strides(self, v: Value) -> Shape | None:
        """Those of a view of ``out`` in ``home``; None where no strides say it."""
        return _pitched(v, self.out, self.axis, self.room)


@dataclass
class Kept:
    """A graph's nodes and outputs over memory with room, and what has to hold besides."""

    nodes: list[Node]
    outputs: list[tuple[str, Value]]
    pairs: list[Pair]
    checks: list[tuple[DimLike, str]]


def keep_state(graph: Graph, nodes: Sequence[Node], inner: set[Storage], bits: int = 8) -> Kept:
    """The pairs of a graph, laid out.

    Args:
        nodes: those of the graph that run for each set of inputs, in order.
        inner: storages that branches and loops read.
        bits: of an element, at least.
    """
    readers: dict[Storage, list[Node]] = {}
    for node in nodes:
        for storage in {v.storage for v in node.inputs()}:
            readers.setdefault(storage, []).append(node)
    read = inner | {r.value.storage for r in graph.reads.values()}
    inputs = {value.storage: name for name, value in graph.inputs if value.storage not in read}
    outputs: dict[Storage, list[Value]] = {}
    for _, value in graph.outputs:
        outputs.setdefault(value.storage, []).append(value)
    pairs: dict[Storage, Pair] = {}
    for node in nodes:
        if (
            node.kernel is CONCAT
            and node.out.storage not in read
            and _plain(node.out, outputs.get(node.out.storage, ()))
            and node.out.dtype.bits >= bits
            and _fits(node, inputs, readers, graph.reads)
        ):
            pairs[node.out.storage] = _pair(graph, node, inputs)
    if not pairs:
        return Kept(list(nodes), graph.outputs, [], [])
    checks: list[tuple[DimLike, str]] = []
    for pair in pairs.values():
        past = next(value for name, value in graph.inputs if name == pair.past)
        checks.append(
            (dims.le(pair.told.shape[1], past.shape[pair.axis]), f"input {pair.past!r} has fewer rows than are said to be in place")
        )
    laid = [(name, pairs[value.storage].home if value.storage in pairs else value) for name, value in graph.outputs]
    return Kept([_rewritten(node, pairs) for node in nodes], laid, [*pairs.values()], checks)


def _fits(node: Node, inputs: Mapping[Storage, str], readers: Mapping[Storage, list[Node]], data: Collection[str]) -> bool:
    """Whether a concatenation extends an input that nothing else reads, and all that reads its result takes strides.

    Args:
        data: sizes that are known in the run alone.
    """
    past, out, axis = node.ins["x"][0], node.out, node.params["axis"]
    return (
        past.storage in inputs
        and past.whole
        and readers[past.storage] == [node]
        and sum(x.storage is past.storage for x in node.ins["x"]) == 1
        and out.whole
        and out.rank <= MOST_RANK
        and not isinstance(past.shape[axis], int)
        and symbols_in([out.shape]).isdisjoint(data)
        and all(
            "strided" in reader.kernel.traits and _pitched(v, out, axis, out.shape[axis]) is not None
            for reader in readers.get(out.storage, ())
            for v in reader.inputs()
            if v.storage is out.storage
        )
    )


def _plain(out: Value, outputs: Collection[Value]) -> bool:
    """Whether a result is given back, and in its own shape alone."""
    same = (v.rank == out.rank and all(map(dims.same, v.shape, out.shape)) for v in outputs)
    return bool(outputs) and all(same)


def _pair(graph: Graph, node: Node, inputs: Mapping[Storage, str]) -> Pair:
    axis, out = node.params["axis"], node.out
    capacity, held = graph.fresh(), graph.fresh()
    shape = (*out.shape[:axis], dims.dmax(capacity, out.shape[axis]), *out.shape[axis + 1 :])
    home = Storage(out.dtype, dims.product(shape), "temp", producer=node)
    told = Value(Storage(DType.uint8, capacity * held, "input"), DType.uint8, (capacity, held))
    return Pair(inputs[node.ins["x"][0].storage], out, axis, told, Value(home, out.dtype, out.shape, 0, row_major(shape)))


def _pitched(v: Value, out: Value, axis: int, room: DimLike) -> Shape | None:
    """The strides of a view of ``out`` when that has ``room`` rows along ``axis``."""
    if v.dtype is not out.dtype or not (isinstance(v.offset, int) and v.offset == 0):
        return None
    old, new = row_major(out.shape), row_major((*out.shape[:axis], room, *out.shape[axis + 1 :]))
    found: list[DimLike] = []
    for size, stride in zip(v.shape, v.strides, strict=True):
        if (isinstance(stride, int) and stride == 0) or (isinstance(size, int) and size == 1):
            found.append(stride)
            continue
        at = next((a for a in range(out.rank) if dims.same(stride, old[a]) and (a < axis or _within(size, out.shape[a]))), None)
        if at is None:
            return None
        found.append(new[at])
    return tuple(found)


def _within(size: DimLike, most: DimLike) -> bool:
    return dims.same(size, most) or dims.known(dims.le(size, most)) == 1


def _rewritten(node: Node, pairs: Mapping[Storage, Pair]) -> Node:
    """The node over memory with room."""
    pair = pairs.get(node.out.storage)
    if pair is None and not any(v.storage in pairs for v in node.inputs()):
        return node

    def view(v: Value) -> Value:
        into = pairs.get(v.storage)
        return v if into is None else Value(into.home.storage, v.dtype, v.shape, v.offset, into.strides(v))

    fresh = Node(node.kernel, dict(node.ins), dict(node.params), node.origin)
    fresh.replace(view)
    fresh.outs = dict(node.outs)
    if pair is not None:
        axis, held = pair.axis, pair.told.shape[1]
        past, *new = node.ins["x"]
        rest = (*past.shape[:axis], past.shape[axis] - held, *past.shape[axis + 1 :])
        starts: list[DimLike] = [held, past.shape[axis]]
        for x in new[:-1]:
            starts.append(starts[-1] + x.shape[axis])
        fresh.ins["x"] = [past.view(rest, held * past.strides[axis], past.strides), *map(view, new)]
        fresh.params["starts"] = tuple(starts)
        fresh.outs = {"y": pair.home}
    return fresh
