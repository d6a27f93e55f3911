"""One Program on the GPU, stage by stage (``PROGRAM.md`` section 7); the Programs within it are others of these."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from ..dtypes import DType
from ..gpu.split import BINDING_BYTES
from ..program import ARENA, INPUT, OUTPUT, SHAPE_OPS, SLOT, WEIGHT, GpuPlan, ProgramView
from ..program.view import StepRow
from .core import Core
from .profile import StepTime
from .wgpu_device import Data
from .wgpu_model import Model, Tensor, element
from .wgpu_stage import BINDINGS, Bound, Placement, Stage

GROUPS = 8  # bind groups per step, on average
MAX_QUERIES = 4096


@dataclass
class Run:
    """One run under way: where the storages are that live."""

    inputs: Sequence[Tensor]
    registers: np.ndarray
    slots: list[Tensor | None]
    times: list[StepTime] | None
    rooms: Mapping[int, Any]
    bound: Bound | None = None
    stage: int = 0
    placement: Placement | None = None
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
        ranges = list(zip([0, *(s.steps for s in self.view.stages)], [s.steps for s in self.view.stages], strict=False))
        self.reads = self._reads()
        self.groups: dict[tuple[Any, ...], tuple[list[Any], Any]] = {}
        self.rooms: list[Any] = []
        self.version = 0  # rises when a room is replaced
        self.memory: list[np.ndarray] = []
        large = set[int]()
        for i in sorted(self.on_gpu):
            slot = self.storages[i].slot
            if self.storages[i].kind == WEIGHT and slot not in model.buffers:
                data = model.arrays[slot]
                model.buffers[slot] = self.gpu.buffer(data.nbytes, f'weight "{model.table[slot].name}"', data.nbytes > BINDING_BYTES)
                self.gpu.write(model.buffers[slot], data)
            if self.storages[i].kind == WEIGHT and model.arrays[slot].nbytes > BINDING_BYTES:
                large.add(i)
        ends = [s.registers for s in self.view.stages]
        self.stages = [
            Stage(model, self.view, plan, steps, end, known, self.on_gpu, self.on_core, large, self.origin)
            for steps, end, known in zip(ranges, ends, self._known(ranges), strict=True)
        ]
        #: It has one stage and nothing runs on the core: dims tell all about a run.
        self.simple = len(ranges) == 1 and None not in plan.steps and not self.view.reads_contents
        self.evaluated: OrderedDict[Hashable, tuple[np.ndarray, int]] = OrderedDict()
        self.taken = 0  # an estimate of the operations of the last run
        self.output_rows = [(self.buffers[row.buffer].storage, DType(row.dtype), len(row.dims)) for row in self.view.outputs]
        self.output_dims = np.array([r for row in self.view.outputs for r in row.dims], np.intp)
        self.bodies = [
            GpuProgram(model, part, body, control, threads, (self, i))
            for i, (part, body) in enumerate(zip(self.view.programs, plan.bodies, strict=True))
        ]

    @property
    def operations(self) -> int:
        """An estimate of what the last run took, and of what each of its steps takes by itself."""
        return self.taken + len(self.steps) + self.view.count("registers") + 1

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

    def _known(self, ranges: Sequence[tuple[int, int]]) -> list[list[int]]:
        """The storages that each stage makes ready: where the size is known and, but for inputs and outputs, the first step is."""
        found: list[list[int]] = [[] for _ in ranges]
        ends = [s.registers for s in self.view.stages]
        for i, row in enumerate(self.storages):
            stage = next(s for s, end in enumerate(ends) if row.size < end)
            if row.kind in (ARENA, SLOT):
                stage = max(stage, next(s for s, (_, last) in enumerate(ranges) if row.first < last or s + 1 == len(ranges)))
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

    def evaluate(self, inputs: Sequence[Tensor], told: Sequence[int] | None = None) -> np.ndarray:
        """The registers of the first stage."""
        key = self._key(inputs, told)
        if key in self.evaluated:
            self.evaluated.move_to_end(key)
            registers, self.taken = self.evaluated[key]
            return registers
        arrays = [x.data.here(self.gpu) for x in inputs] if self.view.reads_contents else []
        registers = self.core.evaluate([d for x in inputs for d in x.dims], arrays, self.view.count("registers"), told)
        self.taken = self.core.operations
        if key is not None:
            self.evaluated[key] = registers, self.taken
            if len(self.evaluated) > BINDINGS:
                self.evaluated.popitem(last=False)
        return registers

    def _key(self, inputs: Sequence[Tensor], told: Sequence[int] | None) -> Hashable:
        """Tells the registers, where dims do."""
        return (tuple(x.dims for x in inputs), tuple(told or ())) if self.simple else None

    def shapes(self, registers: np.ndarray) -> list[tuple[int, ...] | None]:
        """The shapes of the outputs, None for those that later stages tell."""
        end = self.view.stages[0].registers
        shapes = self._dims(registers)
        return [shape if all(r < end for r in row.dims) else None for shape, row in zip(shapes, self.view.outputs, strict=True)]

    def _dims(self, registers: np.ndarray) -> list[tuple[int, ...]]:
        left = iter(registers[self.output_dims].tolist())
        return [tuple(islice(left, rank)) for _, _, rank in self.output_rows]

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
        self._begin(run, 0, self._key(inputs, told))
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
        dims = self._dims(run.registers)
        return [Tensor(self._output(run, i), row[1], dims[i]) for i, row in enumerate(self.output_rows)]

    def _output(self, run: Run, index: int) -> Data:
        storage = self.output_rows[index][0]
        size = run.sizes[storage]
        if index in self.plan.on_core:
            return Data(size, array=run.here[storage])
        return Data(size, buffer=run.there.get(storage), array=None if storage in run.there else np.zeros(size, np.uint8))

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
        self.taken = self.core.operations
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

    def _begin(self, run: Run, stage: int, key: Hashable = None) -> None:
        """Finds or makes what the sizes of a stage lead to, and memory for them."""
        steps = self.stages[stage]
        bound = run.bound = steps.bind(run.registers, key)
        run.stage = stage
        run.sizes |= bound.sizes
        run.placement = self._placed(steps, run.placement, bound.sizes)
        run.there |= run.placement.buffers
        for i, place in run.placement.here.items():
            run.here[i] = self._memory(place, bound.sizes[i])
        for i in steps.given:
            self._stage(run, i)
        self._prepare(run)

    def _placed(self, steps: Stage, before: Placement | None, sizes: Mapping[int, int]) -> Placement:
        """The placement of before, as long as what it places fits into the rooms that there are; else one for these sizes."""
        found = steps.placement
        if found is None or found.before is not before or not self._fits(found, sizes):
            found = steps.place(before, sizes)
            for i, place in found.there.items():
                self._room(place, sizes[i], self.storages[i].first)
            for i, place in found.here.items():
                self._memory(place, sizes[i])
            steps.placement = found
        if found.version != self.version:
            found.buffers = {i: self.rooms[place] for i, place in found.there.items()}
            found.buffers |= {i: self.model.buffers[self.storages[i].slot] for i in steps.weights}
            found.version = self.version
        return found

    def _fits(self, placed: Placement, sizes: Mapping[int, int]) -> bool:
        rooms, memory = self.rooms, self.memory
        there = all((room := rooms[place]) is not None and room.size >= sizes[i] for i, place in placed.there.items())
        return there and all(memory[place].size >= sizes[i] for i, place in placed.here.items())

    def _stage(self, run: Run, storage: int) -> None:
        """Puts inputs and slots where they are read, and makes room for outputs."""
        row, size = self.storages[storage], run.sizes[storage]
        data = self._given(run, storage)
        if storage in self.on_gpu:
            if data is not None and data.buffer is not None:
                run.there[storage] = data.buffer
            elif row.kind == OUTPUT and row.slot in run.rooms:
                run.there[storage] = run.rooms[row.slot]
            else:
                what = f"{'output' if row.kind == OUTPUT else 'input'} {row.slot}"
                run.there[storage] = self.gpu.take(size, what) if data is None else data.there(self.gpu, what)
        if storage in self.on_core:
            run.here[storage] = np.zeros(size, np.uint8) if data is None else data.here(self.gpu)

    def _prepare(self, run: Run) -> None:
        """Finds the bind groups; only steps whose buffers are others than in the last run are looked at."""
        steps, bound = self.stages[run.stage], run.bound
        assert bound is not None
        choice = bound.choice
        if choice.there == run.there:
            return
        before = choice.there
        changed = [i for i, buffer in run.there.items() if before.get(i) is not buffer]
        choice.there = {}
        for k in dict.fromkeys(k for i in changed for k in steps.touching.get(i, ())):
            if choice.pipelines[k] is not None:
                choice.groups[k] = self._group(run, steps, k)
        choice.there = dict(run.there)

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
            self.version += 1
        return self.rooms[place]

    def _memory(self, place: int, size: int) -> np.ndarray:
        self.memory += [np.empty(0, np.uint8)] * (place + 1 - len(self.memory))
        if self.memory[place].size < size:
            self.memory[place] = np.zeros(size, np.uint8)
        return self.memory[place][:size]

    def origin(self, step: int) -> str:
        origin = self.steps[step].origin
        return self.model.origins[origin] if origin < len(self.model.origins) else f"step {step}"

    def _group(self, run: Run, steps: Stage, k: int) -> Any:
        """The bind group of the step with a number in the stage."""
        assert run.bound is not None
        choice = run.bound.choice
        layout, parts = choice.layouts[k], choice.parts[k]
        buffers = [run.there[storage] for storage in steps.touched[k]]
        key = (steps.first + k, id(layout), *map(id, buffers), *parts)
        found = self.groups.get(key)
        if found is None:
            if len(self.groups) >= GROUPS * len(self.steps):
                self.groups.clear()
            entries = [{"binding": 0, "resource": {"buffer": steps.uniforms, "offset": 0, "size": steps.blocks[k]}}]
            for n, (buffer, part) in enumerate(zip(buffers, parts, strict=True)):
                first, size = part or (0, buffer.size)
                entries.append({"binding": n + 1, "resource": {"buffer": buffer, "offset": first, "size": size}})
            group = self.gpu.device.create_bind_group(layout=layout, entries=entries, label=choice.pipelines[k].kernel)
            found = self.groups[key] = [*buffers, layout], group
        return found[1]

    def _on_gpu(self, run: Run, steps: range) -> None:
        """Runs steps; long ones in pieces, between which the run can be given up."""
        if run.times is not None:
            self._timed(run, steps, run.times)
            return
        each = self.taken // max(len(self.steps), 1) + 1
        many = max(1, self.gpu.slice // each)
        for first in range(steps.start, steps.stop, many):
            piece = range(first, min(first + many, steps.stop))
            self._encode(run, piece)
            self.gpu.pace(each * len(piece))

    def _encode(self, run: Run, steps: range, encoder: Any = None, marks: Any = None) -> None:
        assert run.bound is not None
        stage, bound, choice = self.stages[run.stage], run.bound, run.bound.choice
        piece = slice(steps.start - stage.first, steps.stop - stage.first)
        encoder = encoder or self.gpu.encoder
        compute = encoder.begin_compute_pass(timestamp_writes=marks) if marks else encoder.begin_compute_pass()
        last = None
        rows = choice.pipelines[piece], choice.groups[piece], stage.offsets[bound.slot][piece], bound.workgroups[piece]
        for pipeline, group, at, (x, y) in zip(*rows, strict=True):
            if pipeline is None:
                continue
            if pipeline is not last:
                compute.set_pipeline(pipeline.pipeline)
                last = pipeline
            compute.set_bind_group(0, group, at)
            compute.dispatch_workgroups(x, y)
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
