"""Products of one value with weights in blocks become one step, which takes that value once: queries, keys and values; gate and up."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ..ir import Node, Value
from ..ops.blocks import MATMUL_NBITS, MATMULS_NBITS
from .rewrite import joined

MOST = 3
WEIGHTS = ("b", "scale", "shift", "bias")


def together(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with such products in the place of the first of them."""
    out: list[Node] = []
    places: dict[Hashable, int] = {}
    several: dict[int, list[Node]] = {}
    for node in nodes:
        if (key := _key(node)) is not None:
            place = places.get(key)
            if place is not None and len(several[place]) < MOST:
                several[place].append(node)
                continue
            places[key] = len(out)
            several[len(out)] = [node]
        out.append(node)
    for place, products in several.items():
        if len(products) > 1:
            out[place] = _one_step(products)
    return out


def _key(node: Node) -> Hashable | None:
    """What products have in common that may be one step; None of others. What one needs besides ``a`` is there from the start."""
    if node.kernel is not MATMUL_NBITS or node.ins.get("residual") is not None or not node.out.whole:
        return None
    if not all(v.storage.const for name in WEIGHTS if (v := node.ins.get(name)) is not None):
        return None
    a: Value = node.ins["a"]
    p = node.params
    same = (p["bits"], p["block"], int(p["rounded"]), p.get("packed", 0), node.ins.get("shift") is not None)
    return (a.storage, a.offset, a.shape, a.strides, *same)


def _one_step(products: Sequence[Node]) -> Node:
    first = products[0]
    ins: dict[str, Value] = {"a": first.ins["a"]}
    outs: dict[str, Value] = {}
    for i, node in enumerate(products):
        suffix = str(i or "")
        ins.update({name + suffix: node.ins[name] for name in WEIGHTS if node.ins.get(name) is not None})
        outs["y" + suffix] = node.out
    common: dict[str, Any] = {name: first.params[name] for name in ("bits", "block", "rounded", "packed") if name in first.params}
    given = [{name: node.params[name] for name in ("act", "act_last", "alpha") if name in node.params} for node in products]
    step = Node(MATMULS_NBITS, ins, {**common, "products": given}, joined(node.origin for node in products))
    step.outs = outs
    return step
