"""One Program on the GPU, stage by stage (``PROGRAM.md`` section 7); the Programs within it are others of these."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..dtypes import DType
from ..gpu.split import BINDING_BYTES
from ..program import ARENA, INPUT, OUTPUT, SHAPE_OPS, SLOT, WEIGHT, GpuPlan, ProgramView
from ..program.view import StepRow
from .core import Core
from .profile import StepTime
from .wgpu_device import Data, GpuError, Pipeline
from .wgpu_model import Model, Tensor, Uniforms, element, uniform_block

BINDINGS = 4  # sizes of a stage whose uniforms and bind groups are kept
GROUPS = 8  # bind groups per step, on average
MAX_GROUPS = 65535
MAX_QUERIES = 4096


@dataclass
class _Chosen:
    """How a step runs: its pipeline and its workgroups; per buffer what is bound where that is not the whole."""

    pipeline: Pipeline
    workgroups: int
    parts: list[tuple[int, int] | None]


@dataclass
class _Bound:
    """What the sizes of a stage lead to. Places are those of the arena, on the GPU and in the core's memory; ``lives`` who is in them;
    ``slot`` is which of the stage's uniforms are theirs."""

    sizes: dict[int, int]
    there: dict[int, int]
    here: dict[int, int]
    lives: tuple[list[list[tuple[int, int]]], list[list[tuple[int, int]]]]
    slot: int
    chosen: list[_Chosen | None]


@dataclass
class Run:
    """One run under way: where the storages are that live."""

    inputs: Sequence[Tensor]
    registers: np.ndarray
    slots: list[Tensor | None]
    times: list[StepTime] | None
    rooms: Mapping[int, Any]
    bound: list[_Bound] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    there: dict[int, Any] = field(default_factory=dict)
    here: dict[int, np.ndarray] = field(default_factory=dict)


Control = Callable[["GpuProgram", Run, int], None]


class GpuProgram:
    """A Program with the plan of how a GPU runs it."""

    def __init__(
        self, model: Model, words: np.ndarray, plan: GpuPlan, control: Control, threads: int, outer: tuple[GpuProgram, int] | None = None
    ) -> None:
        self.model, self.gpu, self.plan, self.control = model, model.gpu, plan, control
        within: tuple[Core, int] | None = (outer[0].core, outer[1]) if outer else None
        self.core: Core = Core(words, list(model.arrays), model.messages, model.origins, threads, limits=model.limits, outer=within)
        self.view = ProgramView(words)
        self.storages, self.buffers, self.steps = self.view.storages, self.view.buffers, self.view.steps
        self.on_gpu, self.on_core = self._readers()
        self.stages = list(zip([0, *(s.steps for s in self.view.stages)], [s.steps for s in self.view.stages], strict=False))
        self.known = self._known()
        self.reads = self._reads()
        self.bound: list[OrderedDict[bytes, _Bound]] = [OrderedDict() for _ in self.stages]
        self.uniforms = [Uniforms(self.gpu, [self._block(i) for i in range(*stage)], BINDINGS) for stage in self.stages]
        self.groups: dict[tuple[Any, ...], tuple[list[Any], Any]] = {}
        self.rooms: list[Any] = []
        self.memory: list[np.ndarray] = []
        for i in sorted(self.on_gpu):
            slot = self.storages[i].slot
            if self.storages[i].kind == WEIGHT and slot not in model.buffers:
                data = model.arrays[slot]
                model.buffers[slot] = self.gpu.buffer(data.nbytes, f'weight "{model.table[slot].name}"', data.nbytes > BINDING_BYTES)
                self.gpu.write(model.buffers[slot], data)
        self.bodies = [
            GpuProgram(model, part, body, control, threads, (self, i))
            for i, (part, body) in enumerate(zip(self.view.programs, plan.bodies, strict=True))
        ]

    @property
    def operations(self) -> int:
        """An estimate of what the last run took, and of what each of its steps takes by itself."""
        return self.core.operations + len(self.steps) + self.view.count("registers") + 1

    def _readers(self) -> tuple[set[int], set[int]]:
        """The storages that steps on the GPU touch, with the weights that stages read, and those that steps on the core touch."""
        gpu: set[int] = set()
        core: set[int] = set()
        for found, step in zip(self.plan.steps, self.steps, strict=True):
            touched = {self.buffers[b].storage for b in step.present}
            if isinstance(found, dict):
                gpu |= {s for s in touched if self.storages[s].kind == WEIGHT}
            else:
                (core if found is None else gpu).update(touched)
        rows = [self.buffers[buffer].storage for stage in self._reads() for _, is_size, buffer, _ in stage if not is_size]
        return gpu | {s for s in rows if self.storages[s].kind == WEIGHT}, core

    def _known(self) -> list[list[int]]:
        """The storages that each stage makes ready: where the size is known and, but for inputs and outputs, the first step is."""
        found: list[list[int]] = [[] for _ in self.stages]
        ends = [s.registers for s in self.view.stages]
        for i, row in enumerate(self.storages):
            stage = next(s for s, end in enumerate(ends) if row.size < end)
            if row.kind in (ARENA, SLOT):
                stage = max(stage, next(s for s, (_, last) in enumerate(self.stages) if row.first < last or s + 1 == len(self.stages)))
            found[stage].append(i)
        return found

    def _reads(self) -> list[list[tuple[int, bool, int, int]]]:
        """Per stage the registers that read: register, whether it is a size, and its operands."""
        reads, sizes = SHAPE_OPS["read"], SHAPE_OPS["size"]
        found, first = [], 0
        for stage in self.view.stages:
            rows = enumerate(self.view.registers[first : stage.registers], first)
            found.append([(r, row.op == sizes, row.a, row.b) for r, row in rows if row.op in (reads, sizes)])
            first = stage.registers
        return found

    def _block(self, step: int) -> int:
        """Bytes of a step's uniforms, whichever case runs."""
        cases = self.plan.steps[step]
        numbers = max((len(case["uniforms"]) for case in cases), default=0) if isinstance(cases, list) else 0
        return -(-(3 + len(self.steps[step].present) + numbers) // 4) * 16

    def evaluate(self, inputs: Sequence[Tensor], told: Sequence[int] | None = None) -> np.ndarray:
        """The registers of the first stage."""
        arrays = [x.data.here(self.gpu) for x in inputs] if self.view.reads_contents else []
        return self.core.evaluate([d for x in inputs for d in x.dims], arrays, self.view.count("registers"), told)

    def shapes(self, registers: np.ndarray) -> list[tuple[int, ...] | None]:
        """The shapes of the outputs, None for those that later stages tell."""
        end = self.view.stages[0].registers
        return [tuple(int(registers[r]) for r in row.dims) if all(r < end for r in row.dims) else None for row in self.view.outputs]

    def run(
        self,
        inputs: Sequence[Tensor],
        times: list[StepTime] | None = None,
        told: Sequence[int] | None = None,
        rooms: Mapping[int, Any] | None = None,
    ) -> list[Tensor]:
        """Runs; what the outputs lie in is theirs until the run of the model ends, or it is given back.

        Args:
            told: per state the rows that there is room for, and those that are in place.
            rooms: buffers of outputs that stay, by output.
        """
        run = Run(inputs, self.evaluate(inputs, told), [None] * len(self.view.slots), times, rooms or {})
        self._begin(run, 0)
        for action, *what in self.plan.schedule:
            if action == "gpu":
                self._on_gpu(run, range(*what))
            elif action == "core":
                self._on_core(run, range(*what))
            elif action == "control":
                self.control(self, run, what[0])
            elif action == "stage":
                self._next(run, *what)
            else:
                self._copy(run, action, what[0])
        for slot in run.slots:
            if slot is not None:
                self.gpu.give(slot.data.buffer)
        return [self._output(run, i) for i in range(len(self.view.outputs))]

    def _output(self, run: Run, index: int) -> Tensor:
        row = self.view.outputs[index]
        storage = self.buffers[row.buffer].storage
        size = run.sizes[storage]
        if index in self.plan.on_core:
            data = Data(size, array=run.here[storage])
        else:
            data = Data(size, buffer=run.there.get(storage), array=None if storage in run.there else np.zeros(size, np.uint8))
        return Tensor(data, DType(row.dtype), tuple(int(run.registers[r]) for r in row.dims))

    def _next(self, run: Run, stage: int, on_core: Sequence[int]) -> None:
        """Goes on to a stage, when those elements are read that it asks for."""
        values: list[int] = []
        away: list[tuple[int, DType, tuple[Any, int, int]]] = []
        for register, is_size, a, b in self.reads[stage]:
            values.append(0)
            if is_size:
                slot = run.slots[a]
                assert slot is not None
                values[-1] = slot.dims[b]
                continue
            row = self.buffers[a]
            dtype = DType(row.dtype)
            each, at = dtype.bits // 8, int(run.registers[row.offset])
            if (b + 1) * each > int(run.registers[row.size]):
                continue  # which the core refuses
            at += b * each
            array, buffer = self._where(run, row.storage, register in on_core)
            if array is not None:
                values[-1] = element(array[at : at + each], dtype)
            elif buffer is not None:
                away.append((len(values) - 1, dtype, (buffer, at, each)))
        for (k, dtype, _), raw in zip(away, self.gpu.read([place for _, _, place in away]) if away else [], strict=True):
            values[k] = element(raw, dtype)
        slot_bytes = [0 if slot is None else slot.data.nbytes for slot in run.slots]
        run.registers = self.core.evaluate_stage(stage, values, slot_bytes, self.view.count("registers"))
        self._begin(run, stage)

    def _where(self, run: Run, storage: int, on_core: bool) -> tuple[np.ndarray | None, Any]:
        data = self._given(run, storage)
        if data is not None:
            return data.array, data.buffer
        return (run.here[storage], None) if on_core else (None, run.there.get(storage))

    def _given(self, run: Run, storage: int) -> Data | None:
        """What is in a storage of an input or a slot."""
        row = self.storages[storage]
        tensor = run.inputs[row.slot] if row.kind == INPUT else run.slots[row.slot] if row.kind == SLOT else None
        return None if tensor is None else tensor.data

    def operand(self, run: Run, buffer: int, on_core: bool) -> Data:
        """What a branch or a loop takes."""
        row = self.buffers[buffer]
        size, at = int(run.registers[row.size]), int(run.registers[row.offset])
        data = self._given(run, row.storage)
        if data is None:
            on = self.storages[row.storage]
            if on.kind == WEIGHT:
                data = Data(run.sizes[row.storage], self.model.arrays[on.slot].reshape(-1).view(np.uint8), self.model.buffers[on.slot])
            else:
                data = Data(
                    run.sizes[row.storage], run.here.get(row.storage) if on_core else None, None if on_core else run.there.get(row.storage)
                )
        if at or size != data.nbytes:
            data = Data(size, data.here(self.gpu)[at : at + size])
        return data

    def _begin(self, run: Run, stage: int) -> None:
        """Finds or makes what the sizes of a stage lead to, and memory for them."""
        key = run.registers[: self.view.stages[stage].registers].tobytes()
        kept = self.bound[stage]
        if key in kept:
            kept.move_to_end(key)
        else:
            slot = len(kept) if len(kept) < BINDINGS else kept.popitem(last=False)[1].slot
            kept[key] = self._bind(run, stage, slot)
        bound = kept[key]
        run.bound.append(bound)
        run.sizes |= bound.sizes
        for i in bound.there:
            run.there[i] = self._room(bound.there[i], bound.sizes[i], self.storages[i].first)
        for i in bound.here:
            run.here[i] = self._memory(bound.here[i], bound.sizes[i])
        for i in self.known[stage]:
            self._stage(run, i)

    def _stage(self, run: Run, storage: int) -> None:
        """Puts inputs and slots where they are read, and makes room for outputs."""
        row, size = self.storages[storage], run.sizes[storage]
        what = f"{'output' if row.kind == OUTPUT else 'input'} {row.slot}"
        data = self._given(run, storage)
        if storage in self.on_gpu and row.kind != ARENA:
            if data is not None:
                run.there[storage] = data.there(self.gpu, what)
            else:
                kept = self.model.buffers if row.kind == WEIGHT else run.rooms if row.kind == OUTPUT else {}
                run.there[storage] = kept[row.slot] if row.slot in kept else self.gpu.take(size, what)
        if storage in self.on_core and row.kind in (INPUT, SLOT, OUTPUT):
            run.here[storage] = np.zeros(size, np.uint8) if data is None else data.here(self.gpu)

    def _bind(self, run: Run, stage: int, slot: int) -> _Bound:
        registers = run.registers
        sizes = {i: int(registers[self.storages[i].size]) for i in self.known[stage]}
        every = run.sizes | sizes
        before = run.bound[-1].lives if run.bound else ([], [])
        lives = ([list(x) for x in before[0]], [list(x) for x in before[1]])
        arena = [i for i in self.known[stage] if self.storages[i].kind == ARENA]
        begin = self.stages[stage][0]
        there = self._places([i for i in arena if i in self.on_gpu], sizes, lives[0], begin)
        here = self._places([i for i in arena if i in self.on_core], sizes, lives[1], begin)
        blocks: list[bytes] = []
        chosen: list[_Chosen | None] = []
        for i in range(*self.stages[stage]):
            cases = self.plan.steps[i]
            if not isinstance(cases, list):
                chosen.append(None)
                blocks.append(b"")
                continue
            case = next((c for c in cases if self._fits(c, registers)), None)
            if case is None:
                raise GpuError(f"{self.origin(i)}: no shader takes these sizes; run this shape on the cpu")
            grid = [int(registers[r]) for r in case["grid"]]
            if not math.prod(grid):
                chosen.append(None)
                blocks.append(b"")
                continue
            parts = [self._part(b, every, registers, i) for b in self.steps[i].present]
            rows = [self.buffers[b] for b in self.steps[i].present]
            offsets = [
                0 if part else int(registers[row.offset]) * 8 // DType(row.dtype).bits for part, row in zip(parts, rows, strict=True)
            ]
            pipeline = self.model.pipelines[case["pipeline"]]
            blocks.append(uniform_block(pipeline.kernel, [*grid, *offsets], case["uniforms"], registers))
            chosen.append(_Chosen(pipeline, math.prod(grid), parts))
        self.uniforms[stage].write(slot, blocks)
        return _Bound(sizes, there, here, lives, slot, chosen)

    def _fits(self, case: Mapping[str, Any], registers: np.ndarray) -> bool:
        if case["guard"] >= 0 and not registers[case["guard"]]:
            return False
        return not case.get("busy") or math.prod(int(registers[r]) for r in case["grid"]) >= self.gpu.workgroups

    def _part(self, buffer: int, sizes: Mapping[int, int], registers: np.ndarray, step: int) -> tuple[int, int] | None:
        """The range of a weight that few adapters bind whole."""
        row = self.buffers[buffer]
        if self.storages[row.storage].kind != WEIGHT or sizes[row.storage] <= BINDING_BYTES:
            return None
        size = -(-int(registers[row.size]) // 4) * 4
        self.gpu.bindable(size, self.origin(step))
        return int(registers[row.offset]), size

    def _places(self, wanted: Sequence[int], sizes: Mapping[int, int], lives: list[list[tuple[int, int]]], begin: int) -> dict[int, int]:
        """A place for each storage: largest first, each into the first that is free over its life, and not in use when the stage begins."""
        found = {}
        in_use = {k for k, taken in enumerate(lives) if any(last >= begin for _, last in taken)}
        for i in sorted(wanted, key=lambda i: -sizes[i]):
            first, last = self.storages[i].first, self.storages[i].last
            free = (k for k, taken in enumerate(lives) if k not in in_use and all(last < a or first > b for a, b in taken))
            place = next(free, len(lives))
            if place == len(lives):
                lives.append([])
            lives[place].append((first, last))
            found[i] = place
        return found

    def _room(self, place: int, size: int, step: int) -> Any:
        self.rooms += [None] * (place + 1 - len(self.rooms))
        room = self.rooms[place]
        if room is None or room.size < size:
            what, half_more = f"the output of {self.origin(step)}", 0
            if room is not None:
                self.gpu.flush()
                self.groups = {key: found for key, found in self.groups.items() if room not in found[0]}
                half_more = min(room.size + room.size // 2, self.gpu.most_bytes)
                room.destroy()
                self.rooms[place] = None
            self.rooms[place] = self.gpu.buffer(max(size, half_more), what)
        return self.rooms[place]

    def _memory(self, place: int, size: int) -> np.ndarray:
        self.memory += [np.empty(0, np.uint8)] * (place + 1 - len(self.memory))
        if self.memory[place].size < size:
            self.memory[place] = np.zeros(size, np.uint8)
        return self.memory[place][:size]

    def origin(self, step: int) -> str:
        origin = self.steps[step].origin
        return self.model.origins[origin] if origin < len(self.model.origins) else f"step {step}"

    def _group(self, run: Run, step: int) -> tuple[_Chosen, Any, int] | None:
        """What a step dispatches, and where its uniforms are."""
        stage = len(run.bound) - 1
        bound = run.bound[stage]
        chosen = bound.chosen[step - self.stages[stage][0]]
        if chosen is None:
            return None
        buffers = [run.there[self.buffers[b].storage] for b in self.steps[step].present]
        key = (step, id(chosen.pipeline.layout), *map(id, buffers), *chosen.parts)
        found = self.groups.get(key)
        if found is None:
            if len(self.groups) >= GROUPS * len(self.steps):
                self.groups.clear()
            uniforms = self.uniforms[stage]
            entries = [{"binding": 0, "resource": {"buffer": uniforms.buffer, "offset": 0, "size": self._block(step)}}]
            for k, (buffer, part) in enumerate(zip(buffers, chosen.parts, strict=True)):
                first, size = part or (0, buffer.size)
                entries.append({"binding": k + 1, "resource": {"buffer": buffer, "offset": first, "size": size}})
            layout = chosen.pipeline.layout
            group = self.gpu.device.create_bind_group(layout=layout, entries=entries, label=chosen.pipeline.kernel)
            found = self.groups[key] = [*buffers, layout], group
        return chosen, found[1], self.uniforms[stage].place(bound.slot, step - self.stages[stage][0])

    def _on_gpu(self, run: Run, steps: range) -> None:
        """Runs steps; long ones in pieces, between which the run can be given up."""
        if run.times is not None:
            self._timed(run, steps, run.times)
            return
        each = self.core.operations // max(len(self.steps), 1) + 1
        many = max(1, self.gpu.slice // each)
        for first in range(steps.start, steps.stop, many):
            piece = range(first, min(first + many, steps.stop))
            self._encode(run, piece)
            self.gpu.pace(each * len(piece))

    def _encode(self, run: Run, steps: range, encoder: Any = None, marks: Any = None) -> None:
        groups = [self._group(run, i) for i in steps]
        encoder = encoder or self.gpu.encoder
        compute = encoder.begin_compute_pass(timestamp_writes=marks) if marks else encoder.begin_compute_pass()
        last = None
        for found in groups:
            if found is None:
                continue
            chosen, group, at = found
            if chosen.pipeline is not last:
                compute.set_pipeline(chosen.pipeline.pipeline)
                last = chosen.pipeline
            compute.set_bind_group(0, group, [at])
            compute.dispatch_workgroups(min(chosen.workgroups, MAX_GROUPS), -(-chosen.workgroups // MAX_GROUPS))
        compute.end()

    def _on_core(self, run: Run, steps: range) -> None:
        self.gpu.flush()
        memory = [run.here.get(i) for i in range(len(self.storages))]
        for i in steps:
            start = time.perf_counter()
            self.core.run_step(i, memory)
            self._note(run, self.describe(run, i), "cpu", start)

    def _copy(self, run: Run, action: str, storages: Sequence[int]) -> None:
        start = time.perf_counter()
        if action == "download":
            for s, raw in zip(storages, self.gpu.read([(run.there[s], 0, run.sizes[s]) for s in storages]), strict=True):
                run.here[s][:] = raw
        else:
            for s in storages:
                self.gpu.write(run.there[s], run.here[s])
        self._note(run, (action, "copy", sum(run.sizes[s] for s in storages)), "copy", start)

    @staticmethod
    def _note(run: Run, described: tuple[str, str, int], backend: str, start: float) -> None:
        if run.times is not None:
            name, kernel, size = described
            clock = run.times[-1].start_ms + run.times[-1].ms if run.times else 0.0
            run.times.append(StepTime(name, kernel, backend, clock, (time.perf_counter() - start) * 1e3, size))

    def describe(self, run: Run, step: int) -> tuple[str, str, int]:
        """The nodes, the kernel and the bytes of a step."""
        row: StepRow = self.steps[step]
        touched = {self.buffers[b].storage for b in row.present}
        return self.origin(step) or row.kernel, row.kernel, sum(run.sizes[s] for s in touched)

    def _timed(self, run: Run, steps: range, times: list[StepTime]) -> None:
        """Runs steps one by one, between timestamps where the adapter has them, else waiting for each."""
        import wgpu

        device = self.gpu.device
        clock = times[-1].start_ms + times[-1].ms if times else 0.0
        taken: list[float] = []
        self.gpu.flush()
        if "timestamp-query" in device.features and len(steps) <= MAX_QUERIES // 2:
            queries = device.create_query_set(type="timestamp", count=2 * len(steps))
            resolved = device.create_buffer(size=16 * len(steps), usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)
            encoder = self.gpu.encoder
            for k, i in enumerate(steps):
                marks = {"query_set": queries, "beginning_of_pass_write_index": 2 * k, "end_of_pass_write_index": 2 * k + 1}
                self._encode(run, range(i, i + 1), encoder, marks)
            encoder.resolve_query_set(queries, 0, 2 * len(steps), resolved, 0)
            ticks = self.gpu.read([(resolved, 0, 16 * len(steps))])[0].view(np.uint64).reshape(-1, 2).astype(np.int64)
            taken = [max(0, int(end - start)) / 1e6 for start, end in ticks]
        else:
            for i in steps:
                start = time.perf_counter()
                self._encode(run, range(i, i + 1), self.gpu.encoder)
                self.gpu.wait()
                taken.append((time.perf_counter() - start) * 1e3)
        for i, ms in zip(steps, taken, strict=True):
            times.append(StepTime(*self.describe(run, i)[:2], "gpu", clock, ms, self.describe(run, i)[2]))
            clock += ms
