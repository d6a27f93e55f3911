"""A tiny assembler of Programs, and what tests do with one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyonnx_wasm import toolchain
from pyonnx_wasm.runtimes.core import Core

KERNELS = toolchain.declared()
ARENA, WEIGHT, INPUT, OUTPUT, SLOT = range(5)
CONTROL = {"if": 1, "loop": 2}
F32, I32, I64, BOOL = 1, 6, 7, 9
OPS = "const dim elem add sub mul floordiv ceildiv mod min max eq lt le select check read size".split()  # noqa: SIM905


class Reg(int):
    """A register, where a plain int means a constant."""


class Asm:
    def __init__(self) -> None:
        self.kernels: list[str] = []
        self.inputs: list[list[int]] = []
        self.outputs: list[list[int]] = []
        self.code: list[list[int]] = []
        self.storages: list[list[int]] = []
        self.buffers: list[list[int]] = []
        self.steps: list[list[int]] = []
        self.stages: list[tuple[int, int]] = []
        self.parts: list[Asm] = []
        self.slots: list[tuple[int, int]] = []
        self.n_weights = 0

    def reg(self, value: int) -> Reg:
        if isinstance(value, Reg):
            return value
        return self.emit("const", *struct.unpack("<ii", struct.pack("<q", value)))

    def emit(self, op: str, a: int = 0, b: int = 0, c: int = 0) -> Reg:
        self.code.append([OPS.index(op), a, b, c])
        return Reg(len(self.code) - 1)

    def input(self, dtype: int, rank: int) -> int:
        self.inputs.append([dtype, rank, -1])
        return len(self.inputs) - 1

    def storage(self, kind: int, size: int, index: int = 0, first: int = 0, last: int = 0) -> int:
        self.storages.append([kind, index, self.reg(size), first, last, 0])
        return len(self.storages) - 1

    def buffer(self, storage: int, dtype: int = F32, offset: int = 0, size: int | None = None) -> int:
        self.buffers.append([storage, self.reg(offset), self.storages[storage][2] if size is None else self.reg(size), dtype])
        return len(self.buffers) - 1

    def output(self, dims: Sequence[int], buffer: int, dtype: int = F32) -> None:
        self.outputs.append([dtype, len(dims), buffer, *map(self.reg, dims)])

    def step(self, kernel: str, bufs: Sequence[int], params: Sequence[int]) -> None:
        if kernel not in self.kernels:
            self.kernels.append(kernel)
        self.steps.append([self.kernels.index(kernel), len(bufs), len(params), 0, *bufs, *map(self.reg, params)])

    def stage(self) -> None:
        """What follows belongs to the next stage."""
        self.stages.append((len(self.code), len(self.steps)))

    def part(self, program: Asm) -> int:
        """A Program that control steps run."""
        self.parts.append(program)
        return len(self.parts) - 1

    def slot(self, dtype: int, rank: int) -> int:
        """What a control step gives."""
        self.slots.append((dtype, rank))
        return len(self.slots) - 1

    def copy(self, y: int, x: int, n: int, xoff: int = 0, yoff: int = 0, xstride: int = 1, ystride: int = 1) -> None:
        pad = [0] * 7
        self.step("copy", [y, x], [1, xoff, yoff, n, *pad, xstride, *pad, ystride, *pad])

    def pack(self) -> np.ndarray:
        names: list[int] = []
        for name in self.kernels:
            text = name.encode()
            text = text.ljust(-(-len(text) // 4) * 4, b"\0")
            abi = KERNELS[name].abi if name in KERNELS else CONTROL.get(name, 0)
            names += [abi - (1 << 32) if abi >> 31 else abi, len(name), *struct.unpack(f"<{len(text) // 4}i", text)]
        flat = lambda rows: [int(word) for row in rows for word in row]  # noqa: E731
        tables = [
            (self.kernels, names),
            *((t, flat(t)) for t in (self.inputs, self.outputs, self.code, self.storages, self.buffers, self.steps)),
        ]
        head, body = [0x50585057, 2, 0], list[int]()
        for rows, words in tables:
            head += [len(rows), 24 + len(body)]
            body += words
        stages = [*self.stages, (len(self.code), len(self.steps))]
        head += [self.n_weights, len(stages), 24 + len(body)]
        body += flat(stages)
        places = []
        for part in self.parts:
            part.n_weights = self.n_weights
            within = part.pack().tolist()
            places.append((24 + len(body), len(within)))
            body += within
        for rows in (places, self.slots):
            head += [len(rows), 24 + len(body)]
            body += flat(rows)
        words = [*head, *body]
        words[2] = len(words)
        return np.array(words, np.int32)


def chain(n: int | None = None, links: int = 3) -> Asm:
    """input [n] float32, copied link by link through the arena to the output; n is symbolic by default."""
    a = Asm()
    a.input(F32, 1)
    count = a.emit("dim", 0, 0) if n is None else a.reg(n)
    size = a.emit("mul", count, a.reg(4))
    here = a.buffer(a.storage(INPUT, size))
    a.inputs[0][2] = here
    for i in range(links):
        last = i == links - 1
        there = a.buffer(a.storage(OUTPUT, size) if last else a.storage(ARENA, size, 0, i, i + 1))
        a.copy(there, here, count)
        here = there
    a.output([count], here)
    return a


def start(a: Asm, weights: Sequence[np.ndarray | None] = (), **options: Any) -> Core:
    a.n_weights = len(weights)
    return Core(a.pack(), weights, ["message 0", "message 1"], ["node"], **options)


def call(c: Core, *inputs: np.ndarray, dtypes: Sequence[Any] = (np.float32,)) -> list[np.ndarray]:
    shapes = c.bind([d for x in inputs for d in x.shape], inputs)
    outs = [np.full(s, 77, t) for s, t in zip(shapes, dtypes, strict=True)]
    c.run(inputs, outs)
    return outs


def floats(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)
