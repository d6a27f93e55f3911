"""Keeps in float32 what becomes float16 or bfloat16 only for readers that widen it again.

An operator of halves computes in float32 and rounds, because its type says so; the next one widens what it is given. Where nobody reads
the halves as such, and nothing behind them tells neighbours apart, they stay float32: one rounding less after every operator, and later
passes see products, norms and attention of float32. What a Cast of the model rounds stays rounded.
"""

from __future__ import annotations

from ..dtypes import DType
from ..ir import Graph, Node, Storage, Value
from ..ops.gather import GATHER
from ..tensor import CONCAT, COPY, HALVES, MAP
from .copies import drop_copies
from .rewrite import Rewriter, derived

#: They give numbers of ``x`` as they are.
MOVES = (COPY, GATHER, CONCAT)
#: What they give jumps between neighbours.
STEPS = frozenset(["sign", "floor", "ceil", "round", "trunc", "isnan", "isinf", "mod", "fmod", "eq", "lt", "le"])


def keep_wide(graph: Graph) -> None:
    with Rewriter(graph) as rewriter:
        wide = _wide(rewriter)
        if not wide:
            return
        fresh = {old: Storage(DType.float32, old.size, "temp") for old in wide}
        for node in reversed(list(rewriter.nodes())):  # a storage goes when all that read it are gone
            ins, params = node.ins, node.params
            if any(v.storage in wide for v in node.inputs()):
                moved = [_moved(v, fresh) for v in _sources(node)]
                ins = {**ins, "x": moved if isinstance(ins["x"], list) else moved[0]}
            if node.kernel is MAP and (ins is not node.ins or node.out.storage in wide):
                params = {"code": ()}
            if ins is node.ins and params is node.params:
                continue
            more = derived(node, ins, params)
            if node.out.storage in wide:
                more.outs = {"y": _moved(node.out, fresh)}
            rewriter.replace([node], [more])
    drop_copies(graph)


def _moved(v: Value, fresh: dict[Storage, Storage]) -> Value:
    return Value(fresh[v.storage], DType.float32, v.shape, v.offset, v.strides)


def _wide(rewriter: Rewriter) -> set[Storage]:
    """Storages of halves that nobody reads as such, and that only such are moved into."""
    fixed: set[Storage] = set()
    while True:
        found: set[Storage] = set()
        for node in reversed(rewriter.graph.nodes):
            if not node.const and (_rounds(node) or (node.kernel in MOVES and node.out.dtype in HALVES)):
                storage = node.out.storage
                readers = rewriter.readers.get(storage, {})
                free = storage not in rewriter.kept and storage not in fixed
                if free and readers and all(_takes(rewriter, reader, found) for reader in readers):
                    found.add(storage)
        moves = [n for n in rewriter.graph.nodes if n.kernel in MOVES and n.out.storage in found]
        mixed = {n.out.storage for n in moves if any(v.storage not in found for v in _sources(n))}
        if not mixed:
            return found
        fixed |= mixed


def _sources(node: Node) -> list[Value]:
    x = node.ins["x"]
    return x if isinstance(x, list) else [x]


def _takes(rewriter: Rewriter, reader: Node, wide: set[Storage]) -> bool:
    """Whether a reader of halves may as well read float32."""
    if reader.kernel in MOVES:
        return reader.out.storage in wide
    return _widens(reader) and all(_smooth(node) for node in rewriter.readers.get(reader.out.storage, {}))


def _smooth(node: Node) -> bool:
    if node.kernel is not MAP:
        return "smooth" in node.kernel.traits or node.kernel in MOVES
    return all(name not in STEPS and (name != "cast" or DType(target).is_float) for name, _, _, _, target, *_ in node.params["code"])


def _rounds(node: Node) -> bool:
    """float32 as halves, because an operator's type says so."""
    return _casts(node) and node.out.dtype in HALVES and node.ins["x"][0].dtype is DType.float32 and not node.out.storage.asked


def _widens(node: Node) -> bool:
    return _casts(node) and node.ins["x"][0].dtype in HALVES and node.out.dtype is DType.float32 and node.out.whole


def _casts(node: Node) -> bool:
    """It casts and does nothing else."""
    return node.kernel is MAP and len(node.ins["x"]) == 1 and len(node.params["code"]) == 1 and node.params["code"][0][0] == "cast"
