"""Maps that make bytes of other maps of one tensor of bytes read that tensor alone: they are functions of a byte."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Graph, Node, Storage, Value
from ..ops.quantized import BYTES
from ..tensor import MAP, expression
from ..tensor.expression import Expression, Pool
from .rewrite import Rewriter, derived, joined


@dataclass
class Chain:
    """What a map makes of each byte of a tensor, through others: ``expression`` over ``bytes`` as its one input."""

    bytes: Value
    expression: Expression
    origins: list[str]


def read_bytes(graph: Graph) -> None:
    pool: Pool = {}
    chains: dict[Storage, Chain] = {}
    with Rewriter(graph) as rewriter:
        for node in rewriter.nodes():
            chain = None if node.kernel is not MAP or node.const or not node.out.whole else _chain(node, chains, pool)
            if chain is None:
                continue
            chains[node.out.storage] = chain
            if node.out.dtype in BYTES and any(x.storage is not chain.bytes.storage for x in node.ins["x"]):
                code = expression.code(chain.expression, 1)
                rewriter.replace([node], [derived(node, {"x": [chain.bytes]}, {"code": code}, joined(chain.origins))])


def _chain(node: Node, chains: dict[Storage, Chain], pool: Pool) -> Chain | None:
    """What a map makes of the bytes that all its inputs are made of; None where they are not of one tensor, or code would be too long."""
    xs = node.ins["x"]
    if any(not x.whole or x.shape != node.out.shape or x.dtype is not x.storage.dtype for x in xs):
        return None
    of_first = chains.get(xs[0].storage) if xs else None
    for root in ([xs[0]] if xs and xs[0].dtype in BYTES else []) + ([of_first.bytes] if of_first else []):
        own = Chain(root, expression.make(pool, "in", root.dtype, (), [0]), [])
        found = [own if x.storage is root.storage else chains.get(x.storage) for x in xs]
        parts = [c for c in found if c is not None and c.bytes.storage is root.storage]
        if len(parts) == len(xs):
            e = expression.of(node, pool, [c.expression for c in parts])
            return None if _too_long(e) else Chain(root, e, [*(o for c in parts for o in c.origins), node.origin])
    return None


def _too_long(e: Expression) -> bool:
    code = expression.code(e, 1)
    held = expression.held(code, 1) + 1
    return len(code) > expression.MAX_CODE or held > expression.REGISTERS or any(n.name == "index" for n in expression.nodes(e))
