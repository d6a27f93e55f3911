"""Constant operands of products, and tables whose rows are picked, give way to smaller ones: codes in blocks, or halves."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..dtypes import DType
from ..ir import Graph, Node, Storage, Value, dims
from ..ops.blocks import MATMUL_NBITS, rows
from ..ops.gather import GATHER
from ..ops.matmul import MATMUL
from ..tensor import COPY, HALVES, cast, constant, contiguous, reshape
from .rewrite import Rewriter, derived

LEAST = 16  # rows shorter than this fill no block


@dataclass(eq=False)
class Operand:
    """A constant that can be held smaller.

    Attributes:
        name: of the initializer, or of the node that reads it.
        rows: the constant as float [n, k], the way blocks lie along it.
        home: the graph in which it can be evaluated.
        held: bytes of the constants that it is made of.
        uses: the graphs and the nodes that read it.
    """

    name: str
    rows: Value
    home: Graph
    held: int
    uses: list[tuple[Graph, Node]] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, int]:
        n, k = (int(s) for s in self.rows.shape)
        return n, k


@dataclass(eq=False)
class Small:
    """What an operand is held as: bytes of codes [n, ...] with ``scale`` and ``shift``, as :mod:`~pyonnx_wasm.ops.blocks` says; or halves,
    those of bfloat16 as their bits."""

    codes: np.ndarray
    scale: np.ndarray | None
    shift: np.ndarray | None
    bits: int
    block: int
    dtype: DType

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.codes, self.scale, self.shift) if a is not None)

    @cached_property
    def key(self) -> bytes:
        """The same for the same contents."""
        told = hashlib.blake2b(f"{self.dtype.name} {self.bits} {self.codes.shape}".encode())
        for part in (self.codes, self.scale, self.shift):
            told.update(b"-" if part is None else np.ascontiguousarray(part).data)
        return told.digest()


def operands(graph: Graph) -> list[Operand]:
    """What can be narrowed, of the graphs within this one too; not what is of bytes already, or read by others as well."""
    found: dict[object, Operand] = {}
    others: set[Storage] = set()
    for each in _graphs(graph):
        others |= each.output_storages()
        for node in each.nodes:
            value = None if node.const else _rows_of(node)
            if value is None:
                others.update(v.storage for v in node.inputs() if not node.const)
                continue
            others.update(v.storage for v in node.inputs() if v.storage is not value.storage)
            key = (value.storage, value.offset, value.shape, value.strides)
            if key not in found:
                sources = _sources(value.storage)
                if any(s.dtype.bits <= 8 for s in sources if _count(s) >= _count(value.storage) // 8):
                    others.add(value.storage)
                    continue
                names = [s.name for s in sources if s.name]
                name = names[0] if len(names) == 1 else node.origin
                found[key] = Operand(name, value, each, sum(s.dtype.nbytes(_count(s)) for s in sources))
            found[key].uses.append((each, node))
    return [o for o in found.values() if o.rows.storage not in others]


def sources_of(operand: Operand) -> list[str]:
    """Names by which a user may know an operand: initializers, and the nodes that read it."""
    return [s.name for s in _sources(operand.rows.storage) if s.name] + [o for _, n in operand.uses for o in n.origin.split(" + ")]


def narrow(graph: Graph, chosen: Mapping[Operand, Small]) -> None:
    """Puts small operands in the place of others; those of the same contents are stored once."""
    made: dict[object, tuple[Value, Value | None, Value | None]] = {}
    wanted = {node: small for operand, small in chosen.items() for _, node in operand.uses}
    for each in {g: None for operand in chosen for g, _ in operand.uses}:
        with each, Rewriter(each) as rewriter:
            for node in rewriter.nodes():
                small = wanted.get(node)
                if small is None:
                    continue
                if small.key not in made:
                    scale, shift = (None if a is None else constant(a) for a in (small.scale, small.shift))
                    made[small.key] = constant(small.codes, small.dtype), scale, shift
                with rewriter.emitted(node.origin) as fresh:
                    (_pick if node.kernel is GATHER else _multiply)(node, small, *made[small.key])
                rewriter.replace([node], fresh)


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for body in graph.bodies():
        yield from _graphs(body)


def _count(storage: Storage) -> int:
    return storage.size if isinstance(storage.size, int) else 0


def _sources(storage: Storage) -> list[Storage]:
    """The constants that a constant is made of, the small ones left out where there are others."""
    found: dict[Storage, None] = {}
    todo = [storage]
    while todo:
        at = todo.pop()
        if at.producer is None:
            found[at] = None
        else:
            todo += [v.storage for v in at.producer.inputs()]
    most = max((_count(s) for s in found), default=0)
    return [s for s in found if _count(s) * 64 >= most]


def _rows_of(node: Node) -> Value | None:
    """The constant of a call that may be held smaller, as [n, k]."""
    if node.kernel is MATMUL:
        b: Value = node.ins["b"]
        value = b.view([b.shape[-1], b.shape[-2]], b.offset, [b.strides[-1], b.strides[-2]])
        flat = b.storage.const and all(dims.same(s, 0) or dims.same(d, 1) for s, d in zip(b.strides[:-2], b.shape[:-2], strict=True))
        if not flat or b.dtype is not DType.float32 or not _flat(node):
            return None
    elif node.kernel is GATHER:
        value = node.ins["x"]
        if not value.storage.const or value.rank != 2 or value.dtype not in (DType.float32, *HALVES):
            return None
        if node.params["outer"] != 1 or not dims.same(node.params["n"], value.shape[0]):
            return None
    else:
        return None
    fixed = all(isinstance(i, int) for i in (*value.shape, value.offset, *value.strides))
    return value if fixed and math.prod(value.shape) and value.shape[1] >= LEAST else None  # type: ignore[arg-type]


def _flat(node: Node) -> bool:
    """Whether the rows of all leading axes can be taken as those of one."""
    y, bias, residual = node.out, node.ins.get("bias"), node.ins.get("residual")
    if y.rank == 2:
        return bool(dims.same(y.strides[-1], 1))
    even = residual is None or (residual.contiguous and residual.shape == y.shape)
    return y.contiguous and even and (bias is None or dims.same(bias.strides[-2], 0))


def _multiply(node: Node, small: Small, codes: Value, scale: Value | None, shift: Value | None) -> None:
    y, a = node.out, node.ins["a"]
    m, n = dims.product(y.shape[:-1]), y.shape[-1]
    a = contiguous(a) if a.rank > 2 or not dims.same(a.strides[-1], 1) else a
    ins = {"a": reshape(a, [m, a.shape[-1]]) if a.rank > 2 else a, "b": _words(codes, small), "scale": scale, "shift": shift}
    for name in ("bias", "residual"):
        value: Value | None = node.ins.get(name)
        if value is not None and y.rank > 2:
            value = value.view([m, n], value.offset, [0 if name == "bias" else n, value.strides[-1]])
        ins[name] = value
    MATMUL_NBITS(
        {"y": (y.dtype, [m, n])}, ins, bits=small.bits, block=small.block, rounded=2 if small.bits < 16 else 0, **node.params
    )  # fmt: skip
    made = Graph.current().nodes[-1]
    made.outs = {"y": y if y.rank == 2 else Value(y.storage, y.dtype, [m, n], y.offset)}


def _words(codes: Value, small: Small) -> Value:
    if small.bits == 16:
        return codes
    n = int(codes.shape[0])
    return Value(codes.storage, DType.uint32, [n, small.codes.nbytes // n // 4])


def _pick(node: Node, small: Small, codes: Value, scale: Value | None, shift: Value | None) -> None:
    y, k = node.out, int(node.ins["x"].shape[1])
    found = rows(codes, scale, shift, node.ins["indices"], k, small.bits, small.block)
    found = cast(found, y.dtype)
    nodes = Graph.current().nodes
    last = found.producer
    if last is None or last is not nodes[-1] or len(last.outs) != 1 or not found.whole or last.kernel is GATHER:
        COPY({"y": (y.dtype, found.shape)}, {"x": found})
        last = nodes[-1]
    nodes[-1] = other = derived(last)
    other.outs = {"y": Value(y.storage, y.dtype, last.out.shape)}
