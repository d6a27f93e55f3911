"""The reader of a Program's words: every other module asks it and counts no words itself (``PROGRAM.md`` section 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .model import BUFFER_WORDS, OUTPUT, REGISTER_WORDS, SHAPE_OPS, STAGE_WORDS, STATE, STORAGE_WORDS, TABLES

CONTROL = ("if", "loop", "host")  # steps that give slots


class KernelRow(NamedTuple):
    """A kernel that the Program names, with the hash of the declaration it was compiled against."""

    name: str
    abi: int


class InputRow(NamedTuple):
    """An input: the code of its dtype, its rank, its buffer (-1: only its dims are used; -2 - i: its dims tell of input i's state)."""

    dtype: int
    rank: int
    buffer: int


class OutputRow(NamedTuple):
    """An output; ``dims`` are registers."""

    dtype: int
    rank: int
    buffer: int
    dims: tuple[int, ...]


class RegisterRow(NamedTuple):
    """The instruction that writes a register; ``op`` is a code of ``SHAPE_OPS``."""

    op: int
    a: int
    b: int
    c: int


class StorageRow(NamedTuple):
    """A storage: of weight, input or output ``slot`` by kind; ``size`` is the register of its bytes, ``first`` and ``last`` its life."""

    kind: int
    slot: int
    size: int
    first: int
    last: int
    flags: int


class StateRow(NamedTuple):
    """An output that may stay in place for the next run, which is given it as ``past``.

    Attributes:
        told: the input whose dims are the rows that there is room for, and the rows that are in place already.
        axis: that it grows along.
    """

    past: int
    output: int
    told: int
    axis: int


class BufferRow(NamedTuple):
    """A range of a storage; ``offset`` and ``size`` are registers that hold bytes."""

    storage: int
    offset: int
    size: int
    dtype: int


class StepRow(NamedTuple):
    """A call of a kernel.

    Attributes:
        kernel: its name.
        elsewhere: True when the core checks the buffers of the step and does not run it.
        origin: index of the text that names the ONNX nodes behind it.
        buffers: buffer indices, -1 where one is absent.
        params: registers.
        slots: what a branch or a loop gives, -1 where that is not needed.
    """

    kernel: str
    elsewhere: bool
    origin: int
    buffers: tuple[int, ...]
    params: tuple[int, ...]
    slots: tuple[int, ...] = ()

    @property
    def present(self) -> list[int]:
        """The buffers that are there."""
        return [b for b in self.buffers if b >= 0]


class StageRow(NamedTuple):
    """Where the registers and the steps of a stage end."""

    registers: int
    steps: int


class SlotRow(NamedTuple):
    """What a control step gives."""

    dtype: int
    rank: int


class ProgramView:
    """The tables of a Program that the core has verified, each read when it is first asked for.

    Args:
        words: the Program's words, int32.
    """

    def __init__(self, words: np.ndarray) -> None:
        self.words = words

    def count(self, table: str) -> int:
        """How many rows a table of ``TABLES`` has."""
        return int(self.words[TABLES[table]])

    @cached_property
    def kernels(self) -> list[KernelRow]:
        w, at, rows = self.words, self._start("kernels"), []
        for _ in range(self.count("kernels")):
            length = int(w[at + 1])
            end = at + 2 + (length + 3) // 4
            rows.append(KernelRow(w[at + 2 : end].tobytes()[:length].decode(), int(w[at]) & 0xFFFFFFFF))
            at = end
        return rows

    @cached_property
    def inputs(self) -> list[InputRow]:
        return [InputRow(*row) for row in self._fixed("inputs", 3)]

    @cached_property
    def outputs(self) -> list[OutputRow]:
        at, rows = self._start("outputs"), []
        for _ in range(self.count("outputs")):
            dtype, rank, buffer = self.words[at : at + 3].tolist()
            rows.append(OutputRow(dtype, rank, buffer, tuple(self.words[at + 3 : at + 3 + rank].tolist())))
            at += 3 + rank
        return rows

    @cached_property
    def registers(self) -> list[RegisterRow]:
        return [RegisterRow(*row) for row in self._fixed("registers", REGISTER_WORDS)]

    @cached_property
    def storages(self) -> list[StorageRow]:
        return [StorageRow(*row) for row in self._fixed("storages", STORAGE_WORDS)]

    @cached_property
    def states(self) -> list[StateRow]:
        found = []
        for row in self.storages:
            if row.kind == OUTPUT and row.flags:
                told = row.flags // STATE - 1
                found.append(StateRow(-2 - self.inputs[told].buffer, row.slot, told, row.flags % STATE))
        return sorted(found, key=lambda state: state.told)

    @cached_property
    def buffers(self) -> list[BufferRow]:
        return [BufferRow(*row) for row in self._fixed("buffers", BUFFER_WORDS)]

    @cached_property
    def stages(self) -> list[StageRow]:
        return [StageRow(*row) for row in self._fixed("stages", STAGE_WORDS)]

    @cached_property
    def slots(self) -> list[SlotRow]:
        return [SlotRow(*row) for row in self._fixed("slots", STAGE_WORDS)]

    @cached_property
    def programs(self) -> list[np.ndarray]:
        """The words of the Programs within."""
        return [self.words[at : at + count] for at, count in self._fixed("programs", STAGE_WORDS)]

    @cached_property
    def steps(self) -> list[StepRow]:
        names, rows = [k.name for k in self.kernels], []
        for at, kernel, n_bufs, n_params, origin in self._step_heads():
            words = self.words[at : at + n_bufs + n_params].tolist()
            name = names[kernel if kernel >= 0 else ~kernel]
            given = self.registers[words[n_bufs]].a if name in CONTROL else 0
            rows.append(StepRow(name, kernel < 0, origin, tuple(words[given:n_bufs]), tuple(words[n_bufs:]), tuple(words[:given])))
        return rows

    def origin(self, step: int) -> int:
        """Index of the text that names a step; also of the step that the core refused, when those before it are sound."""
        return next(head[-1] for i, head in enumerate(self._step_heads()) if i == step)

    @cached_property
    def reads_contents(self) -> bool:
        """Whether sizes depend on what the inputs hold, not on their dims alone."""
        return SHAPE_OPS["elem"] in self._matrix("registers", REGISTER_WORDS)[:, 0]

    def step_bytes(self, registers: np.ndarray | Sequence[float]) -> list[int]:
        """Bytes of each step's buffers, each storage once, given the values of all registers."""
        found = []
        for step in self.steps:
            rows = [self.buffers[b] for b in step.present]
            found.append(sum({row.storage: int(registers[row.size]) for row in rows}.values()))
        return found

    def _start(self, table: str) -> int:
        return int(self.words[TABLES[table] + 1])

    def _matrix(self, table: str, width: int) -> np.ndarray:
        at = self._start(table)
        return self.words[at : at + width * self.count(table)].reshape(-1, width)

    def _fixed(self, table: str, width: int) -> list[list[int]]:
        found: list[list[int]] = self._matrix(table, width).tolist()
        return found

    def _step_heads(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Of each step: where its buffers begin, its kernel's index, its counts of buffers and parameters, its origin."""
        at = self._start("steps")
        for _ in range(self.count("steps")):
            kernel, n_bufs, n_params, origin = self.words[at : at + 4].tolist()
            yield at + 4, kernel, n_bufs, n_params, origin
            at += 4 + n_bufs + n_params
