"""The IR's text form: one line per kernel call, readable and exact about shapes, views and symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import Graph, Node, Storage, Value, type_text


class Printer:
    """Numbers storages in order of appearance."""

    def __init__(self) -> None:
        self.names: dict[Storage, str] = {}
        self.count = 0

    def name(self, storage: Storage) -> str:
        if storage not in self.names:
            if storage.kind == "input":
                self.names[storage] = f"%{storage.name}"
            elif storage.kind == "const":
                self.names[storage] = f"@{storage.name or self.number()}"
            else:
                self.names[storage] = f"%{self.number()}"
        return self.names[storage]

    def number(self) -> int:
        self.count += 1
        return self.count - 1

    def value(self, v: Value) -> str:
        text = f"{self.name(v.storage)}:{type_text(v.dtype, v.shape)}"
        if v.whole:
            return text
        return f"{text}@{v.offset}({', '.join(map(str, v.strides))})"

    def node(self, node: Node) -> str:
        outs = ", ".join(self.value(v) for v in node.outs.values())
        ins = ", ".join(
            f"{n}={self.value(v)}" if isinstance(v, Value) else f"{n}=[{', '.join(map(self.value, v))}]"
            for n, v in node.ins.items()
            if v is not None
        )
        params = "; ".join(f"{n}={self.param(n, p)}" for n, p in node.params.items())
        return f"{outs} = {node.kernel.name}({ins})" + (f" {{{params}}}" if params else "") + (f"  # {node.origin}" if node.origin else "")

    def param(self, name: str, value: Any) -> str:
        if name == "code":
            return " ".join(self.instruction(i) for i in value)
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(map(str, value))}]"
        return str(value)

    @staticmethod
    def instruction(i: Sequence[Any]) -> str:
        from ..tensor.scalar import INSTRUCTIONS

        name, dtype, dst, a, b, c = i
        if name in ("const", "index"):
            args = str(a)
        elif name == "cast":
            from ..dtypes import DType

            args = f"r{a}, {DType(b).short}"
        else:
            args = ", ".join(f"r{r}" for r in (a, b, c)[: INSTRUCTIONS[name].arity])
        return f"r{dst}={name}.{dtype.short}({args})"


def print_graph(graph: Graph) -> str:
    """The whole graph as text."""
    p = Printer()
    ins = ", ".join(f"%{n}:{type_text(v.dtype, v.shape)}" for n, v in graph.inputs)
    lines = [f"graph({ins}) {{"]
    lines += [f"  check {c}  # {text}" for c, text in graph.checks]
    lines += [f"  {p.node(n)}" for n in graph.nodes]
    lines.append(f"  return {', '.join(f'{n}={p.value(v)}' for n, v in graph.outputs)}")
    return "\n".join([*lines, "}"])
