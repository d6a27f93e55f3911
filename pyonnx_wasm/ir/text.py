"""The IR's text form, exact about all that a graph means: :func:`parse_graph` gives back what :func:`print_graph` wrote.

::

    graph(%x:f32[n, 4], %k:i64[1] = ['k{0}']) {
      symbol 'k{0}' in -4611686018427387904..4611686018427387904
      const @w:f32[4] = [1.0, 2.0, 3.0, 4.0]
      check n == 'k{0}' "k must be the batch"
      storage %1:f32[8*n]
      %0:f32[n, 4] = map(x=[%x:f32[n, 4], @w:f32[n, 4]@0(0, 1)]) {code=r2=add.f32(r0, r1)}  # node
      %1:f32[4, n]@0(2, 8) = copy(x=%0:f32[4, n]@0(1, 4))
      return y=%0:f32[n, 4]
    }

A value is ``storage:dtype[shape]``, with ``@offset(strides)`` unless it is all of its storage, row-major. A temporary storage is declared
only where the value that is written is not all of it. Constants of more than ``CONTENTS`` elements are named without their contents.
``init`` stands before calls that run once. Parameters are sizes, numbers, ``"texts"`` and lists, or what their kernel writes.
The graphs of branches and loops follow as ``body 0 graph(...)``; those are printed, not read, as is what a host is to call.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import DType, to_numpy
from . import dims, dims_text
from .dims import Dim
from .graph import Graph, Node, Read, Storage, Value, row_major

if TYPE_CHECKING:
    from ..registry import Kernel

CONTENTS = 16  # elements of a constant that are written out
_PLAIN = re.compile(r"[A-Za-z_][\w.]*\Z", re.ASCII)
_NAME = re.compile(r'([%@])(\d+|[A-Za-z_][\w.]*|"(?:[^"\\]|\\.)*")', re.ASCII)
_FLOAT = re.compile(r"-?\d+(\.\d*)?(e[-+]?\d+)?\Z")
_SHORT = {d.short: d for d in DType}


def print_graph(graph: Graph) -> str:
    return Printer(graph).text()


def parse_graph(text: str, kernels: Mapping[str, Kernel]) -> Graph:
    """Reads what :func:`print_graph` wrote. Raises ValueError, naming the line."""
    return Parser(kernels).graph(text)


def number_text(value: Any) -> str:
    """A float as it is read back, not-a-number and the infinities as ``float(nan)``."""
    return repr(value) if math.isfinite(value) else f"float({value})"


def read_number(text: str, names: Mapping[str, Any] | None = None) -> Any:
    """A float, or an integer that may be symbolic."""
    if text.startswith("float("):
        return float(text[6:-1])
    return float(text) if _FLOAT.match(text) and not text.lstrip("-").isdigit() else dims_text.parse(text, names)


def split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand outside of brackets and quotes, without surrounding spaces; none in an empty text."""
    parts, begin = [], 0
    for at, depth in _outside(text):
        if depth == 0 and at >= begin and text.startswith(separator, at):
            parts.append(text[begin:at].strip())
            begin = at + len(separator)
    parts.append(text[begin:].strip())
    return parts if parts != [""] else []


def _outside(text: str) -> Iterator[tuple[int, int]]:
    """Positions outside of quotes, and how many brackets are open there."""
    depth, at = 0, 0
    while at < len(text):
        c = text[at]
        if c in "\"'":
            yield at, depth + 1
            at += 1
            while at < len(text) and text[at] != c:
                at += 2 if text[at] == "\\" else 1
        else:
            depth -= c in ")]}"
            yield at, depth
            depth += c in "([{"
        at += 1


class Printer:
    """Numbers storages in order of appearance."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names: dict[Storage, str] = {}
        self.constants: dict[str, Storage] = {}
        self.symbols: dict[str, Dim] = {}
        self.bodies: list[Graph] = []
        self.count = 0

    def text(self) -> str:
        graph = self.graph
        inputs = [
            self.value(v) + (f" = {self.param(v.content.reshape(-1).tolist())}" if v.content is not None else "") for _, v in graph.inputs
        ]
        body = [f"check {self.param(c)} {json.dumps(text)}" for c, text in graph.checks]
        for node in graph.nodes:
            body += self.node(node)
        body += [f"{'size' if r.size else 'read'} {name!r} = {self.value(r.value)} [{r.index}]" for name, r in graph.reads.items()]
        body.append("return " + ", ".join(f"{self.label('', n)}={self.value(v)}" for n, v in graph.outputs))
        head = [f"symbol {d} in {'..'.join(map(str, dims.bounds(d)))}" for _, d in sorted(self.symbols.items())]
        head += [self.constant(name, storage) for name, storage in self.constants.items()]
        text = "\n".join([f"graph({', '.join(inputs)}) {{", *[f"  {line}" for line in head + body], "}"])
        return "\n".join([text, *[f"body {i} {print_graph(body)}" for i, body in enumerate(self.bodies)]])

    def name(self, storage: Storage) -> str:
        if storage in self.names:
            return self.names[storage]
        if storage.kind == "const":
            name = self.label("@", storage.name)
            if not storage.name or name in self.constants:
                name = f"@{sum(n[1].isdigit() for n in self.constants)}"
            self.constants[name] = storage
        elif storage.kind == "input":
            name = self.label("%", storage.name)
        else:
            name, self.count = f"%{self.count}", self.count + 1
        self.names[storage] = name
        return name

    @staticmethod
    def label(sign: str, name: str) -> str:
        return f"{sign}{name if _PLAIN.match(name) else json.dumps(name)}"

    def value(self, v: Value) -> str:
        text = f"{self.name(v.storage)}:{v.dtype.short}{self.param(v.shape)}"
        return text if v.whole and v.strides == row_major(v.shape) else f"{text}@{self.param(v.offset)}({self.param(v.strides)[1:-1]})"

    def node(self, node: Node) -> list[str]:
        lines, outs = [], []
        for name, v in node.outs.items():
            if not v.whole and v.storage not in self.names:
                lines.append(f"storage {self.name(v.storage)}:{v.storage.dtype.short}[{self.param(v.storage.size)}]")
            outs.append(self.value(v) if len(node.kernel.outputs) == 1 else f"{name}={self.value(v)}")
        ins = [
            f"{n}={self.value(v)}" if isinstance(v, Value) else f"{n}=[{', '.join(map(self.value, v))}]"
            for n, v in node.ins.items()
            if v is not None
        ]
        params = []
        for n, p in node.params.items():
            notation = node.kernel.notation.get(n)
            params.append(f"{n}={notation[0](p, self.param) if notation else self.param(p)}")
        text = f"{'init ' if node.const else ''}{', '.join(outs)} = {node.kernel.name}({', '.join(ins)})"
        text += f" {{{'; '.join(params)}}}" if params else ""
        return [*lines, text + (f"  # {node.origin}" if node.origin else "")]

    def param(self, value: Any) -> str:
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(map(self.param, value))}]"
        if isinstance(value, Graph):
            self.bodies.append(value)
            return f"body {len(self.bodies) - 1}"
        if isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, float):
            return number_text(value)
        if not isinstance(value, Dim):
            return str(int(value))
        for d in _symbols(value):
            if dims.bounds(d) != dims.bounds(dims.sym(d.name)):
                self.symbols[d.name] = d
        return str(value)

    @staticmethod
    def constant(name: str, storage: Storage) -> str:
        named = "" if name == Printer.label("@", storage.name) or not storage.name else f" {json.dumps(storage.name)}"
        text = f"const {name}{named}:{storage.dtype.short}[{storage.size}]"
        if storage.source is None or not isinstance(storage.size, int) or storage.size > CONTENTS or storage.dtype is DType.string:
            return text
        source = storage.source if isinstance(storage.source, np.ndarray) else storage.source.numpy()
        items = np.ascontiguousarray(source).reshape(-1).view(to_numpy(storage.dtype))
        return f"{text} = [{', '.join(number_text(float(str(i))) if i.dtype.kind == 'f' else str(int(i)) for i in items)}]"


def _symbols(d: Dim) -> list[Dim]:
    found, seen, todo = [], set(), [d]
    while todo:
        x = todo.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.op == "sym":
            found.append(x)
        todo += [a for a in x.args if isinstance(a, Dim)]
    return found


class Parser:
    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self.kernels = kernels
        self.storages: dict[str, Storage] = {}
        self.symbols: dict[str, Any] = {}
        self.built = Graph()

    def graph(self, text: str) -> Graph:
        lines = [line.strip() for line in text.strip().splitlines()]
        if not lines or not lines[0].startswith("graph(") or not lines[0].endswith(") {") or lines[-1] != "}":
            raise ValueError("a graph's text begins with `graph(...) {` and ends with `}`")
        for line in lines[1:-1]:  # the bounds of symbols come first: the inputs name them
            if line.startswith("symbol "):
                self.symbol(line)
        self.inputs(lines[0][len("graph(") : -len(") {")])
        for line in lines[1:-1]:
            word, _, rest = line.partition(" ")
            try:
                if word in ("const", "check", "storage", "read", "size"):
                    getattr(self, word)(rest)
                elif word == "return":
                    for item in split(rest, ","):
                        name, value = split(item, "=")
                        self.built.outputs.append((json.loads(name) if name.startswith('"') else name, self.value(value)))
                elif line and word != "symbol":
                    self.node(line)
            except (ValueError, KeyError, IndexError) as error:
                raise ValueError(f"cannot read {line!r}: {error}") from None
        return self.built

    def symbol(self, line: str) -> None:
        name, bounds = line[len("symbol ") :].rsplit(" in ", 1)
        low, high = bounds.split("..")
        d = dims_text.parse(name)
        assert isinstance(d, Dim)
        self.symbols[d.name] = dims.sym(d.name, lo=int(low), hi=int(high))

    def inputs(self, text: str) -> None:
        for item in split(text, ","):
            written, *content = split(item, "=")
            label, dtype, shape, _ = self.parts(written)
            name = self.unlabelled(label)
            self.storages[label] = Storage(dtype, dims.product(shape), "input", name)
            value = Value(self.storages[label], dtype, shape)
            if content:
                items = np.empty(len(self.param(content[0])), object)
                items[:] = self.param(content[0])
                value._content = items.reshape([int(s) for s in shape])
            self.built.inputs.append((name, value))

    def const(self, text: str) -> None:
        written, *content = split(text, "=")
        label, *rest = written.split(' "', 1)
        given, typed = f'"{rest[0]}'.rsplit(":", 1) if rest else (None, "")
        label, dtype, (size,), _ = self.parts(f"{label}:{typed}" if rest else written)
        name = json.loads(given) if given is not None else "" if label[1].isdigit() else self.unlabelled(label)
        source = np.array(self.param(content[0]), to_numpy(dtype)) if content else None
        self.storages[label] = Storage(dtype, size, "const", name, source)

    def check(self, text: str) -> None:
        at = next(i for i, depth in _outside(text) if text[i] == '"' and depth == 1)
        self.built.checks.append((self.dim(text[:at].strip()), json.loads(text[at:])))

    def storage(self, text: str) -> None:
        label, dtype, (size,), _ = self.parts(text)
        self.storages[label] = Storage(dtype, size, "temp")

    def size(self, text: str) -> None:
        self.read(text, True)

    def read(self, text: str, size: bool = False) -> None:
        name, value = split(text, "=")
        at = value.rindex("[")
        self.built.reads[name[1:-1]] = Read(self.value(value[:at].strip()), int(value[at + 1 : -1]), size)

    def node(self, line: str) -> None:
        at = next((i for i, depth in _outside(line) if depth == 0 and line.startswith("  # ", i)), len(line))
        origin, line = line[at + 4 :], line[:at].rstrip()
        init, line = line.startswith("init "), line.removeprefix("init ")
        equals = next(i for i, depth in _outside(line) if depth == 0 and line.startswith(" = ", i))
        call, params = line[equals + 3 :], ""
        opened = [i for i, depth in _outside(call) if depth == 0 and call[i] in "({"]
        if len(opened) > 1:
            call, params = call[: opened[1]].strip(), call[opened[1] + 1 : -1]
        kernel = self.kernels[call[: opened[0]]]
        node = Node(kernel, {}, {}, origin)
        for item in split(call[opened[0] + 1 : -1], ","):
            name, value = item.split("=", 1)
            node.ins[name] = [self.value(v) for v in split(value[1:-1], ",")] if value.startswith("[") else self.value(value)
        for item in split(params, ";"):
            name, value = item.split("=", 1)
            notation = kernel.notation.get(name)
            node.params[name] = notation[1](value, self.param) if notation else self.param(value)
        for item in split(line[:equals], ","):
            name, value = item.split("=", 1) if item[0] not in "%" else (kernel.outputs[0].name, item)
            node.outs[name] = self.value(value, node)
        node.const = init
        self.built.nodes.append(node)

    def value(self, text: str, producer: Node | None = None) -> Value:
        label, dtype, shape, layout = self.parts(text)
        if producer is not None:
            storage = self.storages.setdefault(label, Storage(dtype, dims.product(shape), "temp"))
            if storage.producer is not None or storage.kind != "temp":
                raise ValueError(f"{label} is written twice")
            storage.producer = producer
        elif label not in self.storages:
            raise ValueError(f"{label} is not written before it is read")
        return Value(self.storages[label], dtype, shape, *layout)

    def parts(self, text: str) -> tuple[str, DType, Sequence[Any], Sequence[Any]]:
        """Label, dtype and shape of ``label:dtype[shape]``, and offset and strides where they follow."""
        found = _NAME.match(text)
        if found is None or text[found.end() : found.end() + 1] != ":":
            raise ValueError(f"{text!r} is no value")
        short, rest = text[found.end() + 1 :].split("[", 1)
        end = next(i for i, depth in _outside("[" + rest) if depth == 0 and i and rest[i - 1] == "]") - 1
        shape = [self.dim(s) for s in split(rest[:end], ",")]
        if not rest[end + 1 :]:
            return found[0], _SHORT[short], shape, ()
        layout = rest[end + 2 :]
        begin = [i for i, depth in _outside(layout) if depth == 0 and layout[i] == "("][-1]
        return found[0], _SHORT[short], shape, (self.dim(layout[:begin]), [self.dim(s) for s in split(layout[begin + 1 : -1], ",")])

    @staticmethod
    def unlabelled(label: str) -> str:
        return str(json.loads(label[1:])) if label[1] == '"' else label[1:]

    def dim(self, text: str) -> Any:
        return dims_text.parse(text, self.symbols)

    def param(self, text: str) -> Any:
        if text.startswith("["):
            return tuple(self.param(t) for t in split(text[1:-1], ","))
        return json.loads(text) if text.startswith('"') else read_number(text, self.symbols)
