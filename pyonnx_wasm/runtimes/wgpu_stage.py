"""A stage of a Program on the GPU: what its sizes lead to, and what is kept of that for the next sizes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from ..dtypes import DType
from ..program import ARENA, INPUT, OUTPUT, SLOT, WEIGHT, GpuPlan, ProgramView
from .wgpu_device import GpuError
from .wgpu_model import I32_MIN, U32_MAX, UNIFORM_ALIGN, Model

BINDINGS = 4  # sizes whose uniforms are kept, and choices whose bind groups are at hand
MAX_GROUPS = 65535
HEAD = 3  # words of a grid

Lives = list[list[tuple[int, int]]]
Part = tuple[int, int] | None


@dataclass(eq=False)
class Choice:
    """The shader of each step, and what follows from that whatever the sizes are.

    Attributes:
        pipelines: None where a step has nothing to do.
        parts: per step and buffer what is bound where that is not the whole.
        words: registers that become integers, and what their values are multiplied and divided by; then where they go.
        floats: registers that hold an f64, and where they go.
        groups: bind groups over the buffers ``there``.
    """

    pipelines: list[Any]
    layouts: list[Any]
    parts: list[list[Part]]
    words: tuple[np.ndarray, ...]
    floats: tuple[np.ndarray, ...]
    groups: list[Any]
    there: dict[int, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Bound:
    """What the sizes of a stage lead to; ``slot`` is which of the uniforms are theirs."""

    registers: np.ndarray
    sizes: dict[int, int]
    choice: Choice
    slot: int
    workgroups: list[tuple[int, int]]


@dataclass(eq=False)
class Placement:
    """Who lies where in the arena, on the GPU and in the core's memory, behind what lay there before; it serves all sizes that fit."""

    before: Placement | None
    there: dict[int, int]
    here: dict[int, int]
    lives: tuple[Lives, Lives]
    version: int = -1
    buffers: dict[int, Any] = field(default_factory=dict)


class _Cases:
    """The cases of a stage's steps, one behind the other."""

    def __init__(self, found: Sequence[Any]) -> None:
        self.rows = [case for cases in found if isinstance(cases, list) for case in cases]
        counts = [len(cases) if isinstance(cases, list) else 0 for cases in found]
        self.steps = np.array([k for k, n in enumerate(counts) if n], np.intp)
        self.begins = np.array([at for at, n in zip(accumulate(counts, initial=0), counts, strict=False) if n], np.intp)
        self.grids = np.array([case["grid"] for case in self.rows], np.intp).reshape(-1, HEAD)
        self.guards = np.array([case["guard"] for case in self.rows], np.intp)
        self.busy = np.array([bool(case.get("busy")) for case in self.rows], bool)
        self.rounds = np.array([case.get("rounds", -1) for case in self.rows], np.intp)

    def fitting(self, registers: np.ndarray, workgroups: int, most_rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """The first case that takes these sizes, of each step that has cases, its workgroups; number of the rows where there is none."""
        if not self.rows:
            return np.empty(0, np.intp), np.empty(0, np.int64)
        groups = registers[self.grids].astype(np.float64).prod(1)
        fits = ((self.guards < 0) | (registers[self.guards] != 0)) & (~self.busy | (groups >= workgroups))
        fits &= (self.rounds < 0) | (registers[self.rounds] <= most_rounds)
        first = np.minimum.reduceat(np.where(fits, np.arange(len(self.rows)), len(self.rows)), self.begins)
        return first, np.append(groups, 0).clip(0, 1 << 62).astype(np.int64)[first]


class Stage:
    """The steps ``first`` up to ``last`` of a Program, whose storages ``known`` they make ready.

    Args:
        on_gpu, on_core: storages that steps on either side touch.
        large: weights that are bound in parts.
        origin: what a step is called.
    """

    def __init__(
        self,
        model: Model,
        view: ProgramView,
        plan: GpuPlan,
        steps: tuple[int, int],
        end: int,
        known: Sequence[int],
        on_gpu: set[int],
        on_core: set[int],
        large: set[int],
        origin: Callable[[int], str],
    ) -> None:
        self.model, self.gpu, self.storages, self.buffers = model, model.gpu, view.storages, view.buffers
        self.first, self.last = steps
        self.end, self.origin, self.large = end, origin, large
        self.known = list(known)
        self.present = [step.present for step in view.steps[self.first : self.last]]
        self.touched = [[self.buffers[b].storage for b in present] for present in self.present]
        self.touching: dict[int, list[int]] = {}
        self._cases = _Cases(plan.steps[self.first : self.last])
        for k in self._cases.steps.tolist():
            for storage in set(self.touched[k]):
                self.touching.setdefault(storage, []).append(k)
        kinds = {i: self.storages[i].kind for i in self.known}
        self.arena = tuple([i for i in self.known if kinds[i] == ARENA and i in side] for side in (on_gpu, on_core))
        self.weights = [i for i in self.known if kinds[i] == WEIGHT and i in on_gpu]
        self.given = [i for i in self.known if kinds[i] in (INPUT, SLOT, OUTPUT) and (i in on_gpu or i in on_core)]
        self._sizes = np.array([self.storages[i].size for i in self.known], np.intp)
        numbers = [max((len(c["uniforms"]) for c in found), default=0) if isinstance(found, list) else 0 for found in plan.steps]
        self.blocks = [-(-(HEAD + len(p) + n) // 4) * 16 for p, n in zip(self.present, numbers[self.first : self.last], strict=True)]
        has = set(self._cases.steps.tolist())
        sizes = [-(-size // UNIFORM_ALIGN) * UNIFORM_ALIGN if k in has else 0 for k, size in enumerate(self.blocks)]
        self._places = [0, *accumulate(sizes)]
        self.offsets = [[[slot * self._places[-1] + at] for at in self._places[:-1]] for slot in range(BINDINGS)]
        self._bound: OrderedDict[Hashable, Bound] = OrderedDict()
        self._choices: OrderedDict[Hashable, Choice] = OrderedDict()
        self._uniforms: Any = None
        self.placement: Placement | None = None

    @property
    def uniforms(self) -> Any:
        """The uniforms of the steps, for several sizes: a place per step in each of so many slots."""
        import wgpu

        if self._uniforms is None:
            size = max(BINDINGS * self._places[-1], UNIFORM_ALIGN)
            self._uniforms = self.gpu.device.create_buffer(size=size, usage=wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST)
        return self._uniforms

    def bind(self, registers: np.ndarray, key: Hashable = None) -> Bound:
        """What the sizes lead to. ``key`` tells them; None: the registers do."""
        key = registers[: self.end].tobytes() if key is None else key
        found = self._bound.get(key)
        if found is not None:
            self._bound.move_to_end(key)
            return found
        if len(self._bound) == BINDINGS:
            self._bound.popitem(last=False)
        taken = {bound.slot for bound in self._bound.values()}
        slot = next(i for i in range(BINDINGS) if i not in taken)
        choice, groups = self._choose(registers)
        self._write(slot, choice, registers)
        workgroups = [(min(n, MAX_GROUPS), -(-n // MAX_GROUPS)) for n in groups]
        sizes = dict(zip(self.known, registers[self._sizes].tolist(), strict=True))
        bound = self._bound[key] = Bound(registers, sizes, choice, slot, workgroups)
        return bound

    def _choose(self, registers: np.ndarray) -> tuple[Choice, list[int]]:
        cases = self._cases
        chosen, groups = cases.fitting(registers, self.gpu.workgroups, self.gpu.most_rounds)
        if (chosen == len(cases.rows)).any():
            step = self.first + int(cases.steps[chosen == len(cases.rows)][0])
            raise GpuError(f"{self.origin(step)}: no shader takes these sizes; run this shape on the cpu")
        chosen = np.where(groups > 0, chosen, -1)
        workgroups = np.zeros(self.last - self.first, np.int64)
        workgroups[cases.steps] = groups
        parts = {b: self._part(b, registers, k) for k in self._large() for b in self.present[k]}
        key = chosen.tobytes(), tuple(parts.values())
        choice = self._choices.get(key)
        if choice is None:
            if len(self._choices) == BINDINGS:
                self._choices.popitem(last=False)
            choice = self._choices[key] = self._made(dict(zip(cases.steps.tolist(), chosen.tolist(), strict=True)), parts)
        self._choices.move_to_end(key)
        return choice, workgroups.tolist()

    def _large(self) -> list[int]:
        """Steps that bind weights in parts."""
        return sorted({k for storage in self.large for k in self.touching.get(storage, [])})

    def _part(self, buffer: int, registers: np.ndarray, step: int) -> Part:
        """The range of a weight that few adapters bind whole."""
        row = self.buffers[buffer]
        if row.storage not in self.large:
            return None
        size = -(-int(registers[row.size]) // 4) * 4
        self.gpu.bindable(size, self.origin(self.first + step))
        return int(registers[row.offset]), size

    def _made(self, chosen: Mapping[int, int], parts: Mapping[int, Part]) -> Choice:
        steps = self.last - self.first
        pipelines: list[Any] = [None] * steps
        layouts: list[Any] = [None] * steps
        bound: list[list[Part]] = [[] for _ in range(steps)]
        words: list[tuple[int, int, int, int]] = []
        floats: list[tuple[int, int]] = []
        for k, number in chosen.items():
            if number < 0:
                continue
            case, at = self._cases.rows[number], self._places[k] // 4
            pipeline = self.model.pipelines[case["pipeline"]]
            pipelines[k], layouts[k] = pipeline, pipeline.layout
            bound[k] = [parts.get(b) for b in self.present[k]]
            words += ((r, 1, 1, at + i) for i, r in enumerate(case["grid"]))
            rows = [self.buffers[b] for b in self.present[k]]
            words += (
                (row.offset, 8, DType(row.dtype).bits, at + HEAD + i)
                for i, (row, part) in enumerate(zip(rows, bound[k], strict=True))
                if not part
            )
            at += HEAD + len(rows)
            words += ((r, 1, 1, at + i) for i, r in enumerate(case["uniforms"]) if r >= 0)
            floats += ((~r, at + i) for i, r in enumerate(case["uniforms"]) if r < 0)
        whole = tuple(np.array(words, np.int64).reshape(-1, 4).T.copy())
        return Choice(pipelines, layouts, bound, whole, tuple(np.array(floats, np.int64).reshape(-1, 2).T.copy()), [None] * steps)

    def _write(self, slot: int, choice: Choice, registers: np.ndarray) -> None:
        """Writes the uniforms, behind what is pending: 32-bit integers, and float32 where the register holds an f64."""
        registers_of, times, over, places = choice.words
        values = registers[registers_of] * times // over
        beyond = (values < I32_MIN) | (values > U32_MAX)
        if beyond.any():
            at = 4 * int(places[beyond][0])
            pipeline = next(p for p, end in zip(choice.pipelines, self._places[1:], strict=True) if at < end)
            raise GpuError(
                f"kernel {pipeline.kernel}: the size {int(values[beyond][0])} does not fit in 32 bits; run this shape on the cpu"
            )
        self.gpu.flush()
        if self._places[-1]:
            block = np.zeros(self._places[-1] // 4, np.uint32)
            block[places] = values.astype(np.uint32)
            doubles, places = choice.floats
            block.view(np.float32)[places] = registers.view(np.float64)[doubles]
            self.gpu.device.queue.write_buffer(self.uniforms, slot * self._places[-1], block)

    def place(self, before: Placement | None, sizes: Mapping[int, int]) -> Placement:
        """A placement for these sizes: largest first, each into the first place that is free over its life and not in use already."""
        lives: tuple[Lives, Lives] = ([], [])
        if before is not None:
            lives = ([list(x) for x in before.lives[0]], [list(x) for x in before.lives[1]])
        there, here = (self._lay(arena, sizes, side) for arena, side in zip(self.arena, lives, strict=True))
        return Placement(before, there, here, lives)

    def _lay(self, wanted: Sequence[int], sizes: Mapping[int, int], lives: Lives) -> dict[int, int]:
        found = {}
        in_use = {k for k, taken in enumerate(lives) if any(last >= self.first for _, last in taken)}
        for i in sorted(wanted, key=lambda i: -sizes[i]):
            first, last = self.storages[i].first, self.storages[i].last
            free = (k for k, taken in enumerate(lives) if k not in in_use and all(last < a or first > b for a, b in taken))
            place = next(free, len(lives))
            if place == len(lives):
                lives.append([])
            lives[place].append((first, last))
            found[i] = place
        return found
