"""From nodes to the words of a Program."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..callbacks import Callback
from ..dtypes import DType
from ..ir import Graph, IRError, Node, Read, Storage, Value, dims, symbols_in, symbols_of
from ..ir.dims import Dim, DimLike
from ..passes import Pair
from ..registry import Kernel
from .model import ARENA, HEADER_WORDS, INPUT, MAGIC, OUTPUT, SHAPE_OPS, SLOT, STATE, TABLES, VERSION, WEIGHT, Program
from .stages import Stage, staged


class Step(NamedTuple):
    """A row of the step table: indices of the kernel, of the buffers (-1: absent) and of the origin, and registers."""

    kernel: int
    elsewhere: bool
    origin: int
    buffers: list[int]
    params: list[int]

    def words(self) -> list[int]:
        kernel = ~self.kernel if self.elsewhere else self.kernel
        return [kernel, len(self.buffers), len(self.params), self.origin, *self.buffers, *self.params]


Span = tuple[int, int, int]  # registers of the first byte and the bytes, dtype


class Assembler:
    """Collects registers, storages, buffers and steps of one Program.

    Calls that are alike but for the storages that they touch have the same parameters, which are derived once.
    """

    def __init__(
        self,
        name: str,
        nodes: Sequence[Node],
        inputs: Sequence[tuple[str, Value]],
        outputs: Sequence[tuple[str, Value]],
        weights: dict[Storage, int],
        inplace: bool,
        checks: Sequence[tuple[DimLike, str]] = (),
        reads: dict[str, Read] | None = None,
        bodies: Mapping[Graph, Sequence[Node]] | None = None,
        pairs: Sequence[Pair] = (),
    ) -> None:
        self.states = {pair.home.storage: (len(inputs) + k, pair.axis) for k, pair in enumerate(pairs)}
        self.pasts = [next(i for i, (name, _) in enumerate(inputs) if name == pair.past) for pair in pairs]
        inputs = [*inputs, *((f"the state of {pair.past}", pair.told) for pair in pairs)]
        self.stages = staged(nodes, outputs, checks, reads or {})
        nodes = [node for stage in self.stages for node in stage.nodes]
        self.name, self.nodes, self.inputs, self.outputs, self.weights = name, nodes, inputs, outputs, weights
        self.inplace, self.bodies = inplace, bodies or {}
        self.slots: dict[Storage, int] = {}  # what branches and loops give
        self.slot_rows: list[tuple[int, int]] = []
        self.programs: list[np.ndarray] = []
        self.inners: list[Assembler] = []
        self.read_storages = {r.value.storage for r in (reads or {}).values()}
        self.demanded: set[DimLike] = set()
        self.ends: list[tuple[int, int]] = []  # registers and steps behind each stage
        self.code: list[tuple[int, int, int, int]] = []
        self.registers: dict[Any, int] = {}
        self.messages: list[str] = []
        self.callbacks: list[Callback] = []  # of the Programs within, too
        self.origins: list[str] = []
        self.kernels: dict[Kernel, int] = {}
        self.storages: list[list[int]] = []
        self.storage_of: dict[Storage, int] = {}
        self.buffers: dict[Storage, int] = {}
        self.buffer_rows: list[tuple[int, int, int, int]] = []
        self.parts: dict[tuple[int, int, int, int], int] = {}
        self.rows_of: list[list[int]] = []  # buffers of each storage
        self.numbers: dict[int, int] = {}  # registers of integers
        self.layouts: dict[Any, tuple[int, Span | None]] = {}  # number and span of each way that a value lies in its storage
        self.calls: dict[Any, list[int]] = {}  # registers of the parameters of calls that are alike but for their storages

    def assemble(self) -> Program:
        self.bind_symbols()
        plain = len(self.inputs) - len(self.pasts)
        input_rows = [[int(v.dtype), v.rank, self.buffer(v.storage, INPUT, i)] for i, (_, v) in enumerate(self.inputs[:plain])]
        input_rows += [[int(v.dtype), v.rank, -2 - past] for past, (_, v) in zip(self.pasts, self.inputs[plain:], strict=True)]
        aliases = self.aliases() if self.inplace else {}
        steps: list[Step] = []
        for stage, after in zip(self.stages, [*self.stages[1:], Stage()], strict=True):
            for condition, text in stage.checks:
                self.check(condition, text)
            for i in stage.outputs:
                value = self.outputs[i][1]
                self.buffer(value.storage, OUTPUT, i)
                _ = [self.register(size) for size in value.shape]
            for node in stage.nodes:
                steps.append(self.step(len(steps), node, aliases))
            places = [
                (name, "size", self.slots[read.value.storage], read.index)
                if read.size
                else (name, "read", *self.place(read, len(steps) - 1))
                for name, read in after.reads
            ]
            self.ends.append((len(self.code), len(steps)))
            for name, how, buffer, index in places:
                self.registers[dims.sym(name)] = self.emit(how, buffer, index)
        output_rows = [[int(v.dtype), v.rank, self.buffers[v.storage], *map(self.register, v.shape)] for _, v in self.outputs]
        code, told = self.pack(input_rows, output_rows, steps), [v for _, v in self.inputs[plain:]]
        return Program(self.name, code, self.messages, self.origins, list(self.nodes), self.callbacks, told)

    def bind_symbols(self) -> None:
        """The first input axis that names a symbol defines it; every other axis is checked."""
        for i, (name, value) in enumerate(self.inputs):
            for axis, size in enumerate(value.shape):
                here = self.emit("dim", i, axis)
                if isinstance(size, Dim) and size not in self.registers:
                    self.registers[size] = here
                    continue
                want = self.register(size)
                said = f"input {name!r}: axis {axis} must be {size}" + (
                    "" if isinstance(size, int) else f", as {size} is bound by an earlier input"
                )
                self.emit("check", self.emit("eq", here, want), self.message(said))
        for i, (name, value) in enumerate(self.inputs):
            self.elements(i, name, value)
        homes = {value.storage: i for i, (_, value) in enumerate(self.inputs)}
        for name, read in self.stages[0].reads:
            offset, index = self.element(read)
            assert isinstance(offset, int)
            self.registers[dims.sym(name)] = self.emit("elem", homes[read.value.storage], offset + index)

    def check(self, condition: DimLike, text: str) -> None:
        if condition not in self.demanded:
            self.demanded.add(condition)
            self.emit("check", self.register(condition), self.message(text))

    @staticmethod
    def element(read: Read) -> tuple[DimLike, int]:
        """Where an element lies in its storage: the offset of a part, and the position in it."""
        value = read.value
        if value.contiguous:
            return value.offset, read.index
        at, rest = value.offset, read.index
        for size, stride in zip(reversed(value.shape), reversed(value.strides), strict=True):
            assert isinstance(size, int)
            at, rest = at + rest % size * stride, rest // size
        return at, 0

    def place(self, read: Read, at: int) -> tuple[int, int]:
        """The buffer and the position that a register reads when step ``at`` has run."""
        storage = read.value.storage
        index, each = self.touch(at, storage, {}), read.value.dtype.bits // 8
        offset, position = self.element(read)
        if isinstance(offset, int) and read.value.dtype is storage.dtype:
            return index, offset + position
        row = (self.storage_of[storage], self.register((offset + position) * each), self.register(each), int(read.value.dtype))
        return self.row(row), 0

    def elements(self, i: int, name: str, value: Value) -> None:
        """Content symbols that anything uses become ``elem`` reads."""
        if value.content is None:
            return
        used = self.used_symbols()
        for k, item in enumerate(value.content.reshape(-1)):
            if isinstance(item, Dim) and item.op == "sym" and item.name in used:
                self.registers[item] = self.emit("elem", i, k)

    def used_symbols(self) -> set[str]:
        if not hasattr(self, "_used"):
            reads = [[r.value.offset, r.value.strides] for stage in self.stages for _, r in stage.reads]
            checks = [c for stage in self.stages for c, _ in stage.checks]
            self._used = symbols_in([checks, reads, [v.shape for _, v in self.outputs]]).union(*map(symbols_of, self.nodes))
        return self._used

    def emit(self, name: str, a: int = 0, b: int = 0, c: int = 0) -> int:
        key = (name, a, b, c)
        found = self.registers.get(key) if name != "check" else None
        if found is None:
            found = self.registers[key] = len(self.code)
            self.code.append((SHAPE_OPS[name], a, b, c))
        return found

    def register(self, value: Any) -> int:
        """The register that holds a size, an integer or the bits of a float."""
        if isinstance(value, Dim):
            found = self.registers.get(value)
            if found is None:
                found = self.registers[value] = self.expression(value)
            return found
        number = struct.unpack("<q", struct.pack("<d", value))[0] if isinstance(value, float) else int(value)
        found = self.numbers.get(number)
        if found is None:
            found = self.numbers[number] = self.emit("const", *struct.unpack("<ii", struct.pack("<q", number)))
        return found

    def expression(self, value: Dim) -> int:
        if value.op == "sym":
            raise IRError(f"size {value} is bound by no input")
        args = [self.register(a) for a in value.args]
        out = args[0]
        if value.op == "select":
            return self.emit("select", *args)
        for arg in args[1:]:
            out = self.emit(value.op, out, arg)
        return out

    def message(self, text: str) -> int:
        self.messages.append(text)
        return len(self.messages) - 1

    def storage(self, storage: Storage, kind: int = ARENA, index: int = 0) -> int:
        at = self.storage_of.get(storage)
        if at is None:
            if storage in self.weights:
                kind, index = WEIGHT, self.weights[storage]
            elif storage in self.slots:
                kind, index = SLOT, self.slots[storage]
            size = self.register(nbytes(storage.dtype, storage.size))
            at = self.storage_of[storage] = len(self.storages)
            told, axis = self.states.get(storage, (-1, 0))
            self.storages.append([kind, index, size, -1, -1, STATE * (told + 1) + axis])
            self.rows_of.append([])
        return at

    def buffer(self, storage: Storage, kind: int = ARENA, index: int = 0) -> int:
        """The buffer that spans a storage."""
        found = self.buffers.get(storage)
        if found is None:
            at = self.storage(storage, kind, index)
            found = self.buffers[storage] = self.row((at, self.register(0), self.storages[at][2], int(storage.dtype)))
        return found

    def row(self, row: tuple[int, int, int, int]) -> int:
        self.rows_of[row[0]].append(len(self.buffer_rows))
        self.buffer_rows.append(row)
        return len(self.buffer_rows) - 1

    def window(self, at: int, value: Value, aliases: dict[Storage, Storage]) -> tuple[int, int]:
        """The buffer that a step sees a value through, one of its own for a part of a storage, and the number of the value's layout."""
        storage = value.storage
        index = self.touch(at, storage, aliases)
        key = (value.dtype, value.offset, value.shape, value.strides, storage.dtype, storage.size, storage.const)
        layout = self.layouts.get(key)
        if layout is None:
            layout = self.layouts[key] = len(self.layouts), self.span(value)
        number, span = layout
        if span is None:
            return index, number
        row = (self.storage_of[storage], *span)
        part = self.parts.get(row)
        if part is None:
            part = self.parts[row] = self.row(row)
        return part, number

    def span(self, value: Value) -> Span | None:
        """The part of its storage that a step sees of a value; None for the whole."""
        storage = value.storage
        if value.whole or (not value.contiguous and value.dtype is storage.dtype):
            return None
        if not value.contiguous:
            return self.register(0), self.register(nbytes(storage.dtype, storage.size)), int(value.dtype)
        each = value.dtype.bits // 8
        return self.register(value.offset * each), self.register(value.size * each), int(value.dtype)

    def within(self, value: Value) -> Value:
        """A value within the part of its storage that a step sees."""
        if value.contiguous and not value.whole:
            return Value(value.storage, value.dtype, value.shape, 0, value.strides)
        return value

    def aliases(self) -> dict[Storage, Storage]:
        """Outputs that may live where an input of the same layout dies."""
        last: dict[Storage, int] = {}
        for i, node in enumerate(self.nodes):
            for v in node.inputs():
                last[v.storage] = i
        found: dict[Storage, Storage] = {}
        kept = {v.storage for _, v in self.outputs} | self.read_storages
        for node in self.nodes:
            if "control" in node.kernel.traits:
                kept.update(v.storage for v in node.outs.values())
        taken: set[Storage] = set()
        for i, node in enumerate(self.nodes):
            if "inplace" not in node.kernel.traits or len(node.outs) != 1:
                continue
            out = node.out
            for v in node.inputs():
                s = v.storage
                once = sum(x.storage is s for x in node.inputs()) == 1
                if (
                    s.kind == "temp"
                    and not s.const
                    and s not in kept
                    and last[s] == i
                    and once
                    and v.whole
                    and out.whole
                    and s.dtype.bits == out.dtype.bits
                    and v.shape == out.shape
                    and out.storage not in found
                    and s not in taken
                ):
                    found[out.storage] = s
                    taken.add(s)
                    break
        return found

    def step(self, at: int, node: Node, aliases: dict[Storage, Storage]) -> Step:
        kernel = node.kernel
        if "control" in kernel.traits:
            return self.control(at, node)
        bufs: list[int] = []
        layouts: list[int] = []
        for spec in kernel.buffers:
            got = node.outs.get(spec.name) if spec.output else node.ins.get(spec.name)
            for value in (got,) if isinstance(got, Value) or got is None else got:
                index, layout = (-1, -1) if value is None else self.window(at, value, aliases)
                bufs.append(index)
                layouts.append(layout)
        self.call = (kernel, frozen(node.params), *layouts)
        params = self.calls.get(self.call)
        if params is None:
            params = self.calls[self.call] = [self.register(p) for p in kernel.raw_params(self.seen(node))]
        self.origins.append(node.origin)
        return Step(self.kernels.setdefault(kernel, len(self.kernels)), False, len(self.origins) - 1, bufs, params)

    def seen(self, node: Node) -> Node:
        """A call over its buffers instead of whole storages."""
        kernel = node.kernel

        def view(value: Value) -> Value:
            within = self.within(value)
            if "strided" not in kernel.traits and not within.contiguous:
                raise IRError(f"{kernel.name} ({node.origin}): {value} must be contiguous")
            return within

        seen = Node(kernel, dict(node.ins), node.params)
        seen.replace(view)
        seen.outs = {name: view(value) for name, value in node.outs.items()}
        return seen

    def control(self, at: int, node: Node) -> Step:
        """A branch or a loop: slots, what its Programs take, and the sizes of that."""
        bufs: list[int] = []
        for value in node.outs.values():
            self.slots[value.storage] = len(self.slot_rows)
            bufs.append(len(self.slot_rows))
            self.slot_rows.append((int(value.dtype), value.rank))
        sizes: list[DimLike] = []
        for value in node.ins["x"]:
            bufs.append(self.window(at, value, {})[0])
            sizes += [value.rank, *value.shape] if "callback" in node.params else value.shape
        registers = [self.register(x) for x in [len(node.outs), *self.steering(node), *sizes]]  # the Programs within have origins too
        self.origins.append(node.origin)
        return Step(self.kernels.setdefault(node.kernel, len(self.kernels)), False, len(self.origins) - 1, bufs, registers)

    def steering(self, node: Node) -> list[DimLike]:
        """The fixed parameters of a control step behind the first."""
        p = node.params
        if "callback" in p:
            self.callbacks.append(p["callback"])
            return [len(self.callbacks) - 1, 0, 0, 0, 0]
        first = len(self.programs)
        for body in node.params["bodies"]:
            self.programs.append(self.within_it(body))
        return [first, p.get("stacked", len(self.programs) - 1), p["first"], p["condition"], p["trips"]]

    def within_it(self, body: Graph) -> np.ndarray:
        """The words of a Program within this one: over its weights, with its texts."""
        inner = self.inner(body)
        self.inners.append(inner)
        inner.messages, inner.origins, inner.callbacks = self.messages, self.origins, self.callbacks
        words = inner.assemble().code
        for storage in inner.storage_of:
            if storage in self.weights:
                self.storage(storage)
        return words

    def inner(self, body: Graph) -> Assembler:
        return Assembler("", self.bodies[body], body.inputs, body.outputs, self.weights, self.inplace, body.checks, body.reads, self.bodies)

    def touch(self, at: int, storage: Storage, aliases: dict[Storage, Storage]) -> int:
        """The buffer of a storage, whose life is stretched to this step."""
        source = aliases.get(storage)
        if source is not None and storage not in self.buffers:
            home = self.storage_of[source]
            self.storage_of[storage] = home
            self.buffers[storage] = self.row((home, self.register(0), self.storages[home][2], int(storage.dtype)))
        elif source is not None and self.storages[self.storage_of[storage]][0] == OUTPUT and source in self.buffers:
            self.rehome(source, storage)
        index = self.buffer(storage)
        row = self.storages[self.storage_of[storage]]
        row[3] = at if row[3] < 0 else row[3]
        row[4] = at
        return index

    def rehome(self, source: Storage, output: Storage) -> None:
        """Moves an arena storage into the graph output that overwrites it in place."""
        old, new = self.storage_of[source], self.storage_of[output]
        if old == new or self.storages[old][0] != ARENA:
            return
        for i in self.rows_of[old]:
            self.buffer_rows[i] = (new, *self.buffer_rows[i][1:])
        self.rows_of[new] += self.rows_of[old]
        self.rows_of[old] = []
        for storage, at in self.storage_of.items():
            if at == old:
                self.storage_of[storage] = new
        self.storages[old] = [ARENA, 0, self.register(0), 0, 0, 0]

    def inside(self) -> list[tuple[int, int]]:
        """Where the Programs within this one lie: behind its header."""
        starts = itertools.accumulate((len(words) for words in self.programs), initial=HEADER_WORDS)
        return [(start, len(words)) for start, words in zip(starts, self.programs, strict=False)]

    def pack(self, inputs: list[list[int]], outputs: list[list[int]], steps: list[Step]) -> np.ndarray:
        kernels: list[int] = []
        for kernel in self.kernels:
            text = kernel.name.encode()
            count = (len(text) + 3) // 4
            kernels += [_signed(kernel.abi), len(text), *struct.unpack(f"<{count}i", text.ljust(4 * count, b"\0"))]
        for row in self.storages:
            row[3], row[4] = max(row[3], 0), max(row[4], 0)
        tables = {
            "kernels": (len(self.kernels), kernels),
            "inputs": (len(inputs), _words(inputs)),
            "outputs": (len(outputs), _words(outputs)),
            "registers": (len(self.code), _words(self.code)),
            "storages": (len(self.storages), _words(self.storages)),
            "buffers": (len(self.buffer_rows), _words(self.buffer_rows)),
            "steps": (len(steps), _words([step.words() for step in steps])),
            "stages": (len(self.ends), _words(self.ends)),
            "programs": (len(self.programs), _words(self.inside())),
            "slots": (len(self.slot_rows), _words(self.slot_rows)),
        }
        head = [0] * HEADER_WORDS
        body = [int(word) for words in self.programs for word in words]
        for name, at in TABLES.items():
            count, words = tables[name]
            head[at : at + 2] = count, HEADER_WORDS + len(body)
            body += words
        head[:3] = _signed(MAGIC), VERSION, HEADER_WORDS + len(body)
        head[17] = len(self.weights)
        return np.array(head + body, np.int32)


def nbytes(dtype: DType, size: DimLike) -> DimLike:
    """Bytes that ``size`` packed elements occupy."""
    return size * (dtype.bits // 8) if dtype.bits >= 8 else dims.ceildiv(size * dtype.bits, 8)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def _words(rows: Iterable[Sequence[int]]) -> list[int]:
    return [word for row in rows for word in row]


_PLAIN = frozenset({bool, int, str, type(None), DType, Dim})


def frozen(params: Any) -> Any:
    """Parameters of a call as a key. Floats stand for their bits, so that 0, 0.0 and -0.0 are different; what is no number, text or
    collection is like nothing else."""
    kind = type(params)
    if kind in _PLAIN:
        return params
    if kind is float:
        return struct.pack("<d", params)
    if kind is dict:
        return tuple([(name, frozen(value)) for name, value in params.items()])
    if kind is tuple or kind is list:
        return tuple(params) if _PLAIN.issuperset(map(type, params)) else tuple([frozen(p) for p in params])
    return object()
