"""Maps that make bytes read bytes: what is made of one tensor of them, through other maps, is a function of that tensor alone, and what is
made of several that were dequantised, or of views of such, dequantises them itself."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Graph, Node, Storage, Value
from ..ops.quantized import BYTES
from ..tensor import MAP, expression
from ..tensor.expression import Expression, Pool
from .rewrite import Rewriter, derived, joined

CHEAP = frozenset(("in", "const", "cast", "sub", "mul"))  # what dequantises


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
            if node.kernel is not MAP or node.const or not node.out.whole:
                continue
            chain = _chain(node, chains, pool)
            if chain is not None:
                chains[node.out.storage] = chain
                code, xs, origins = expression.code(chain.expression, 1), [chain.bytes], chain.origins
            elif (found := _dequantising(node, chains)) is not None:
                code, xs, origins = found
            else:
                continue
            if node.out.dtype in BYTES and [x.storage for x in xs] != [x.storage for x in node.ins["x"]]:
                rewriter.replace([node], [derived(node, {"x": xs}, {"code": code}, joined(origins))])


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
            return None if _too_long(e) else Chain(_whole(root, node), e, [*(o for c in parts for o in c.origins), node.origin])
    return None


def _dequantising(node: Node, chains: dict[Storage, Chain]) -> tuple[expression.Code, list[Value], list[str]] | None:
    """Code, inputs and origins of a map of dequantised operands over the bytes that these are made of; None where it has others."""
    pool: Pool = {}
    inputs: dict[tuple[object, ...], tuple[Expression, Value]] = {}

    def leaf(v: Value) -> Expression:
        key = (v.storage, v.dtype, v.offset, v.shape, v.strides)
        return inputs.setdefault(key, (expression.make(pool, "in", v.dtype, (), [len(inputs)]), v))[0]

    operands, origins = [], [node.origin]
    for x in node.ins["x"]:
        chain = chains.get(x.storage) if x.dtype is x.storage.dtype and x.dtype not in BYTES and x.shape == node.out.shape else None
        if chain is None or any(n.name not in CHEAP for n in expression.nodes(chain.expression)):
            operands.append(leaf(x))
            continue
        operands.append(_over(chain.expression, leaf(Value(chain.bytes.storage, chain.bytes.dtype, x.shape, x.offset, x.strides))))
        origins = chain.origins + origins
    xs = [v for _, v in inputs.values()]
    if len(origins) == 1 or any(v.dtype not in BYTES for v in xs):
        return None
    code = expression.code(expression.of(node, pool, operands), len(xs))
    fits = len(code) <= expression.MAX_CODE and expression.held(code, len(xs)) + len(xs) <= expression.REGISTERS
    return (code, xs, origins) if fits else None


def _whole(x: Value, node: Node) -> Value:
    """A whole tensor in the shape of what a map gives."""
    return Value(x.storage, x.dtype, node.out.shape)


def _over(e: Expression, leaf: Expression) -> Expression:
    return expression.rebuild(e, lambda n: leaf if n.name == "in" else n, leaf.pool)


def _too_long(e: Expression) -> bool:
    code = expression.code(e, 1)
    held = expression.held(code, 1) + 1
    return len(code) > expression.MAX_CODE or held > expression.REGISTERS or any(n.name == "index" for n in expression.nodes(e))
