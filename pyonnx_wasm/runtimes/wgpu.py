"""The GPU through wgpu-py: Vulkan, Metal or Direct3D 12. Runs the GPU section of a Program (``PROGRAM.md`` section 7)."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from ..dtypes import DType
from ..gpu.split import BINDING_BYTES
from ..program import ARENA, INPUT, OUTPUT, WEIGHT, GpuProgram, ProgramView, Weight
from ..program.section import MOST_WORKGROUPS
from . import UNLIMITED, Allocate, Limits
from .adapter import GpuError as GpuError
from .adapter import choose, describe
from .core import Core
from .profile import StepTime

BINDINGS = 4  # sizes whose buffers and bind groups are kept
PIPELINES = 1024  # compiled shaders that are kept for models to come
UNIFORM_ALIGN = 256
MAX_GROUPS = 65535
MAX_QUERIES = 4096
FEATURES = ("shader-f16", "subgroup", "timestamp-query")
NEEDS = {"subgroups": "subgroup"}  # WebGPU's names where wgpu has others
I32_MIN, U32_MAX = -(1 << 31), (1 << 32) - 1

_lock = threading.Lock()
_device: Any = None
_pipelines: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()  # pipeline and layout, by device, text and bindings


def device() -> Any:
    """The device, requested once with all the limits and features of the adapter.

    Raises:
        GpuError: wgpu is not installed, or no adapter computes rightly; says what to install.
    """
    global _device
    with _lock:
        if _device is not None and _alive(_device):
            return _device
        adapter = choose()
        features = [f for f in FEATURES if f in adapter.features]
        limits = {k: v for k, v in adapter.limits.items() if k in _WANTED}
        try:
            _device = adapter.request_device_sync(required_features=features, required_limits=limits)
        except Exception as error:
            raise GpuError(f"the GPU gives no device: {error}") from None
        return _device


def _alive(on: Any) -> bool:
    """Whether a device was not lost: one that was refuses buffers."""
    import wgpu

    try:
        on.create_buffer(size=16, usage=wgpu.BufferUsage.COPY_DST)
    except wgpu.GPUError:
        return False
    return True


def _explained(error: Exception, on: Any, what: str) -> GpuError:
    """What a failure on a device means; a device that was lost is asked for anew by the next session."""
    global _device
    text = " ".join(str(error).split())
    if "lost" not in text:
        return GpuError(f"{what}: {text}")
    with _lock:
        if _device is on:
            _device = None
        for key in [k for k in _pipelines if k[0] is on]:
            del _pipelines[key]
    return GpuError(f"the GPU was lost ({text}); its memory is gone with it: create the session again")


@contextmanager
def _explaining(on: Any, what: str) -> Iterator[None]:
    """Failures of wgpu become errors that say what was being done."""
    import wgpu

    try:
        yield
    except wgpu.GPUError as error:
        raise _explained(error, on, what) from None


_WANTED = {
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroups-per-dimension",
}


def adapter_name() -> str:
    """The adapter's name, for reports."""
    return describe(device().adapter)


def _workgroups(info: Mapping[str, Any]) -> int:
    """How many keep an adapter busy: WebGPU does not tell, but there is one that is the processor."""
    return min(os.cpu_count() or 1, MOST_WORKGROUPS) if info.get("adapter_type") == "CPU" else MOST_WORKGROUPS


@dataclass
class _Bound:
    """Everything that depends on sizes."""

    shapes: list[tuple[int, ...]]
    sizes: list[int]  # bytes of each storage
    buffers: dict[int, Any] = field(default_factory=dict)  # storage: GPU buffer
    dispatches: list[tuple[Any, Any, int] | None] = field(default_factory=list)  # per step: pipeline, bind group, workgroups


class GpuExecutor:
    """A model ready to run on the GPU. Not re-entrant: its owner serialises calls.

    Raises:
        GpuError: a shader does not compile, or a buffer is larger than the adapter's limits.
    """

    def __init__(
        self, gpu: GpuProgram, weights: Sequence[np.ndarray], table: Sequence[Weight], threads: int = 1, limits: Limits = UNLIMITED
    ) -> None:
        self.device = device()
        self.workgroups = _workgroups(self.device.adapter.info)
        self.section = gpu.section
        program = gpu.program
        self.core = Core(program.code, list(weights), program.messages, program.origins, threads, limits=limits)
        self.view = ProgramView(program.code)
        self.storages, self.buffers, self.steps = self.view.storages, self.view.buffers, self.view.steps
        self.origins = program.origins
        self.bound: OrderedDict[Any, _Bound] = OrderedDict()
        self.current: _Bound | None = None
        self.pipelines = [self._pipeline(row) for row in self.section.pipelines]
        self.on_gpu, self.on_core = self._readers()
        self.weights = {
            i: self._upload(weights[row.slot], table[row.slot].name)
            for i, row in enumerate(self.storages)
            if row.kind == WEIGHT and i in self.on_gpu
        }

    @property
    def kernels_on_core(self) -> tuple[str, ...]:
        """The kernels without a shader for their call, each once: the core runs them."""
        return tuple(sorted({s.kernel for s, cases in zip(self.steps, self.section.steps, strict=True) if cases is None}))

    def _readers(self) -> tuple[set[int], set[int]]:
        """The storages that steps on the GPU touch, and those that steps on the core touch."""
        gpu: set[int] = set()
        core: set[int] = set()
        for cases, step in zip(self.section.steps, self.steps, strict=True):
            (core if cases is None else gpu).update(self.buffers[b].storage for b in step.present)
        return gpu, core

    def _pipeline(self, row: dict[str, Any]) -> tuple[Any, Any, str]:
        import wgpu

        have = set(self.device.features)
        variant = next((v for v in row["variants"] if all(NEEDS.get(n, n) in have for n in v["needs"])), None)
        if variant is None:
            raise GpuError(f"kernel {row['kernel']}: this GPU has none of {', '.join('+'.join(v['needs']) for v in row['variants'])}")
        most = self.device.limits["max-storage-buffers-per-shader-stage"]
        if row["bindings"] > most:
            raise GpuError(f"kernel {row['kernel']} binds {row['bindings']} buffers, this GPU binds at most {most} in one shader")
        code = self.section.modules[variant["module"]]
        key = (self.device, code, row["outputs"], row["bindings"])
        with _lock:
            if key in _pipelines:
                _pipelines.move_to_end(key)
                return *_pipelines[key], row["kernel"]
        entries = [{"binding": 0, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "uniform"}}]
        for i in range(row["bindings"]):
            kind = "storage" if i < row["outputs"] else "read-only-storage"
            entries.append({"binding": i + 1, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}})
        try:
            layout = self.device.create_bind_group_layout(entries=entries)
            # wgpu has subgroups without this line and rejects it: https://github.com/gfx-rs/wgpu/issues/8202
            module = self.device.create_shader_module(code=code.replace("enable subgroups;", ""), label=row["kernel"])
            pipeline = self.device.create_compute_pipeline(
                layout=self.device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": "main"},
                label=row["kernel"],
            )
        except Exception as error:
            raise _explained(error, self.device, f"kernel {row['kernel']}: the shader does not compile") from None
        with _lock:
            _pipelines[key] = pipeline, layout
            while len(_pipelines) > PIPELINES:
                _pipelines.popitem(last=False)
        return pipeline, layout, row["kernel"]

    def _in_parts(self, buffer: int, sizes: Sequence[int]) -> bool:
        """Whether a buffer is bound by its own range: it is of a weight that few adapters bind whole."""
        storage = self.buffers[buffer].storage
        return bool(self.storages[storage].kind == WEIGHT and sizes[storage] > BINDING_BYTES)

    def _bindable(self, size: int, what: str) -> None:
        most = min(self.device.limits["max-storage-buffer-binding-size"], self.device.limits["max-buffer-size"])
        if size > most:
            raise GpuError(f"{what} needs {size} bytes in one buffer, this GPU binds at most {most}")

    def _buffer(self, nbytes: int, what: str, in_parts: bool = False) -> Any:
        import wgpu

        size = -(-max(nbytes, 16) // 16) * 16
        if not in_parts:
            self._bindable(size, what)
        elif size > self.device.limits["max-buffer-size"]:
            raise GpuError(f"{what} needs {size} bytes, a buffer of this GPU has at most {self.device.limits['max-buffer-size']}")
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        try:
            return self.device.create_buffer(size=size, usage=usage, label=what)
        except Exception as error:
            raise _explained(error, self.device, f"out of GPU memory: {what} needs {size} bytes") from None

    def _upload(self, data: np.ndarray, what: str) -> Any:
        buffer = self._buffer(data.nbytes, f'weight "{what}"', data.nbytes > BINDING_BYTES)
        with _explaining(self.device, "the model's weights"):
            self._write(buffer, data)
        return buffer

    def _write(self, buffer: Any, data: np.ndarray) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        whole = raw.size // 4 * 4
        if whole:
            self.device.queue.write_buffer(buffer, 0, raw[:whole])
        if whole < raw.size:
            self.device.queue.write_buffer(buffer, whole, np.pad(raw[whole:], (0, 4 - raw.size + whole)))

    def seed(self, seed: int) -> None:
        """Where the random numbers of later runs begin."""
        self.core.seed(seed)

    def bind(self, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
        """Fixes the input shapes; returns the output shapes."""
        flat = [d for shape in shapes for d in shape]
        registers = self.core.evaluate(flat, inputs, self.view.count("registers"))
        key = registers.tobytes()
        if key in self.bound:
            self.bound.move_to_end(key)
        else:
            while len(self.bound) >= BINDINGS:
                self.bound.popitem(last=False)
            with _explaining(self.device, "memory for these sizes"):
                self.bound[key] = self._bind(registers, [tuple(int(registers[r]) for r in row.dims) for row in self.view.outputs])
        self.current = self.bound[key]
        if any(step is None for step in self.section.steps):
            self.core.bind(flat, inputs)
        return self.current.shapes

    def _bind(self, registers: np.ndarray, shapes: list[tuple[int, ...]]) -> _Bound:
        import wgpu

        sizes = [int(registers[row.size]) for row in self.storages]
        bound = _Bound(shapes, sizes)
        bound.buffers = dict(self.weights)
        for i, storage in enumerate(self.storages):
            if storage.kind in (INPUT, OUTPUT) and i in self.on_gpu:
                bound.buffers[i] = self._buffer(sizes[i], f"{'input' if storage.kind == INPUT else 'output'} {storage.slot}")
        bound.buffers |= self._slabs(sizes)
        blocks: list[bytes] = []
        chosen: list[tuple[dict[str, Any], list[int], int] | None] = []
        for cases, step in zip(self.section.steps, self.steps, strict=True):
            if cases is None:
                chosen.append(None)
                continue
            case = next((c for c in cases if self._fits(c, registers)), None)
            if case is None:
                raise GpuError(f"{self._origin(len(chosen))}: no shader takes these sizes; run this shape on the cpu")
            grid = [int(registers[r]) for r in case["grid"]]
            groups = math.prod(grid)
            if not groups:
                chosen.append(None)
                continue
            present = step.present
            rows = [self.buffers[b] for b in present]
            offsets = [
                0 if self._in_parts(b, sizes) else int(registers[row.offset]) * 8 // DType(row.dtype).bits
                for b, row in zip(present, rows, strict=True)
            ]
            kernel = self.pipelines[case["pipeline"]][2]
            blocks.append(_uniforms(kernel, [*grid, *offsets], case["uniforms"], registers))
            chosen.append((case, present, groups))
        arena = b"".join(b.ljust(-(-len(b) // UNIFORM_ALIGN) * UNIFORM_ALIGN, b"\0") for b in blocks) or b"\0" * 16
        uniforms = self.device.create_buffer_with_data(data=arena, usage=wgpu.BufferUsage.UNIFORM)
        at, block_of = 0, iter(blocks)
        for found in chosen:
            if found is None:
                bound.dispatches.append(None)
                continue
            case, present, groups = found
            block = next(block_of)
            pipeline, layout, kernel = self.pipelines[case["pipeline"]]
            entries = [{"binding": 0, "resource": {"buffer": uniforms, "offset": at, "size": len(block)}}]
            for i, b in enumerate(present):
                row = self.buffers[b]
                buffer = bound.buffers[row.storage]
                first, size = 0, buffer.size
                if self._in_parts(b, sizes):
                    first, size = int(registers[row.offset]), -(-int(registers[row.size]) // 4) * 4
                    self._bindable(size, self._origin(len(bound.dispatches)))
                entries.append({"binding": i + 1, "resource": {"buffer": buffer, "offset": first, "size": size}})
            bound.dispatches.append((pipeline, self.device.create_bind_group(layout=layout, entries=entries, label=kernel), groups))
            at += -(-len(block) // UNIFORM_ALIGN) * UNIFORM_ALIGN
        return bound

    def _fits(self, case: dict[str, Any], registers: np.ndarray) -> bool:
        if case["guard"] >= 0 and not registers[case["guard"]]:
            return False
        return not case.get("busy") or math.prod(int(registers[r]) for r in case["grid"]) >= self.workgroups

    def _slabs(self, sizes: Sequence[int]) -> dict[int, Any]:
        """Buffers for the arena's storages: largest first, each into the first buffer that is free over its life."""
        slabs: list[tuple[Any, list[tuple[int, int]]]] = []
        found: dict[int, Any] = {}
        wanted = [i for i, row in enumerate(self.storages) if row.kind == ARENA and i in self.on_gpu]
        for i in sorted(wanted, key=lambda i: -sizes[i]):
            first, last = self.storages[i].first, self.storages[i].last
            slab = next((s for s in slabs if all(last < a or first > b for a, b in s[1])), None)
            if slab is None:
                slab = self._buffer(sizes[i], f"the output of {self._origin(first)}"), []
                slabs.append(slab)
            slab[1].append((first, last))
            found[i] = slab[0]
        return found

    def _origin(self, step: int) -> str:
        origin = self.steps[step].origin
        return self.origins[origin] if origin < len(self.origins) else f"step {step}"

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], more: Allocate | None = None) -> None:
        """Runs the bound Program; inputs and outputs are contiguous and of the bound shapes."""
        with _explaining(self.device, "running the model"):
            self._run(inputs, outputs, None)

    def profile(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], more: Allocate | None = None) -> list[StepTime]:
        """Like ``run``, each step in a pass of its own between two timestamps."""
        times: list[StepTime] = []
        with _explaining(self.device, "running the model"):
            self._run(inputs, outputs, times)
        return times

    def _run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], times: list[StepTime] | None) -> None:
        bound = self.current
        assert bound is not None
        for i, row in enumerate(self.storages):
            if row.kind == INPUT and i in self.on_gpu:
                self._write(bound.buffers[i], inputs[row.slot])
        zero = time.perf_counter()
        encoder: Any = None
        for action, *what in self.section.schedule:
            if action == "gpu":
                if times is None:
                    encoder = encoder or self.device.create_command_encoder()
                    self._encode(encoder, bound, range(*what))
                else:
                    self._timed(bound, range(*what), times)
                continue
            if encoder is not None:
                self.device.queue.submit([encoder.finish()])
                encoder = None
            for i in range(*what) if action == "core" else [-1]:
                start = time.perf_counter()
                if action == "core":
                    self.core.run_steps(inputs, outputs, i, i + 1)
                else:
                    self._copy(action, what[0], bound, outputs)
                if times is not None:
                    name, kernel, size = self._described(i) if i >= 0 else (action, "copy", sum(bound.sizes[s] for s in what[0]))
                    backend = "cpu" if i >= 0 else "copy"
                    times.append(StepTime(name, kernel, backend, (start - zero) * 1e3, (time.perf_counter() - start) * 1e3, size))
        left = [i for i, row in enumerate(self.storages) if row.kind == OUTPUT and row.slot not in self.section.on_core]
        read = self._read([(bound.buffers[i], bound.sizes[i]) for i in left], encoder)
        for i, raw in zip(left, read, strict=True):
            outputs[self.storages[i].slot].reshape(-1).view(np.uint8)[:] = raw

    def _copy(self, action: str, storages: Sequence[int], bound: _Bound, outputs: Sequence[np.ndarray]) -> None:
        if action == "download":
            read = self._read([(bound.buffers[s], bound.sizes[s]) for s in storages])
            for s, raw in zip(storages, read, strict=True):
                self._view(s, bound, outputs)[:] = raw
        else:
            for s in storages:
                self._write(bound.buffers[s], self._view(s, bound, outputs))

    def _described(self, step: int) -> tuple[str, str, int]:
        """The nodes, the kernel and the bytes of a step."""
        row = self.steps[step]
        assert self.current is not None
        touched = {self.buffers[b].storage for b in row.present}
        return self._origin(step) or row.kernel, row.kernel, sum(self.current.sizes[s] for s in touched)

    def _timed(self, bound: _Bound, steps: range, times: list[StepTime]) -> None:
        """Runs steps one by one, between timestamps where the adapter has them, else waiting for each."""
        import wgpu

        clock = times[-1].start_ms + times[-1].ms if times else 0.0
        taken: list[float] = []
        if "timestamp-query" in self.device.features and len(steps) <= MAX_QUERIES // 2:
            queries = self.device.create_query_set(type="timestamp", count=2 * len(steps))
            usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
            resolved = self.device.create_buffer(size=16 * len(steps), usage=usage)
            encoder = self.device.create_command_encoder()
            for k, i in enumerate(steps):
                marks = {"query_set": queries, "beginning_of_pass_write_index": 2 * k, "end_of_pass_write_index": 2 * k + 1}
                self._encode(encoder, bound, range(i, i + 1), marks)
            encoder.resolve_query_set(queries, 0, 2 * len(steps), resolved, 0)
            ticks = self._read([(resolved, 16 * len(steps))], encoder)[0].view(np.uint64).reshape(-1, 2).astype(np.int64)
            taken = [max(0, int(end - start)) / 1e6 for start, end in ticks]
        else:
            for i in steps:
                start = time.perf_counter()
                encoder = self.device.create_command_encoder()
                self._encode(encoder, bound, range(i, i + 1))
                self.device.queue.submit([encoder.finish()])
                self.device.queue.read_buffer(next(iter(bound.buffers.values())), 0, 16)
                taken.append((time.perf_counter() - start) * 1e3)
        for i, ms in zip(steps, taken, strict=True):
            name, kernel, size = self._described(i)
            times.append(StepTime(name, kernel, "gpu", clock, ms, size))
            clock += ms

    def _encode(self, encoder: Any, bound: _Bound, steps: range, marks: Any = None) -> None:
        compute = encoder.begin_compute_pass(timestamp_writes=marks) if marks else encoder.begin_compute_pass()
        last = None
        for i in steps:
            dispatch = bound.dispatches[i]
            if dispatch is None:
                continue
            pipeline, group, groups = dispatch
            if pipeline is not last:
                compute.set_pipeline(pipeline)
                last = pipeline
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(min(groups, MAX_GROUPS), -(-groups // MAX_GROUPS))
        compute.end()

    def _read(self, wanted: Sequence[tuple[Any, int]], encoder: Any = None) -> list[np.ndarray]:
        """Submits ``encoder`` with copies of the starts of buffers, and gives their bytes: one submission and one wait for all."""
        import wgpu

        places = [0, *accumulate(-(-size // 8) * 8 for _, size in wanted)]
        if places[-1] == 0:
            if encoder is not None:
                self.device.queue.submit([encoder.finish()])
            return [np.empty(0, np.uint8) for _ in wanted]
        staging = self.device.create_buffer(size=places[-1], usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
        encoder = encoder or self.device.create_command_encoder()
        for (buffer, size), at in zip(wanted, places, strict=False):
            if size:
                encoder.copy_buffer_to_buffer(buffer, 0, staging, at, -(-size // 4) * 4)
        self.device.queue.submit([encoder.finish()])
        staging.map_sync(wgpu.MapMode.READ)
        raw = np.frombuffer(staging.read_mapped(copy=True), np.uint8)
        staging.destroy()
        return [raw[at : at + size] for (_, size), at in zip(wanted, places, strict=False)]

    def _view(self, storage: int, bound: _Bound, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """A storage in the core's memory, as bytes."""
        row = self.storages[storage]
        if row.kind == OUTPUT:
            whole: np.ndarray = outputs[row.slot].reshape(-1).view(np.uint8)
            return whole
        return self.core.storage(storage, bound.sizes[storage])


def _uniforms(kernel: str, head: Sequence[int], numbers: Sequence[int], registers: np.ndarray) -> bytes:
    """The uniform block of a step: 32-bit integers, and float32 where the register holds an f64."""
    words = np.empty(-(-(len(head) + len(numbers)) // 4) * 4, np.uint32)
    values = [*head, *(int(registers[r]) if r >= 0 else 0 for r in numbers)]
    for i, value in enumerate(values):
        if not I32_MIN <= value <= U32_MAX:
            raise GpuError(f"kernel {kernel}: the size {value} does not fit in 32 bits; run this shape on the cpu")
        words[i] = value & U32_MAX
    for i, r in enumerate(numbers):
        if r < 0:
            words[len(head) + i] = registers[~r : ~r + 1].view(np.float64).astype(np.float32).view(np.uint32)[0]
    words[len(values) :] = 0
    return words.tobytes()
