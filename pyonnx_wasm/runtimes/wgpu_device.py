"""The device of the backend ``gpu``, with the pipelines made on it, its buffers, and the commands on their way to it."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np

from ..program.section import MOST_ROUNDS, MOST_WORKGROUPS
from .adapter import GpuError as GpuError
from .adapter import choose, describe
from .errors import CANCELLED, CoreError

PIPELINES = 1024  # compiled shaders that are kept for models to come
IDLE_RUNS = 2  # that a buffer waits for its next use
MOST_PENDING = 256  # passes in one submission
SLICE_S = 0.1  # seconds of a run until it waits for the GPU and looks whether it was given up; as operations they depend on the GPU
FIRST_SLICE, MOST_SLICE = 1 << 30, 1 << 50
DISPATCH = 1 << 16  # what a dispatch takes in time besides its operations
FEATURES = ("shader-f16", "subgroup", "timestamp-query")
NEEDS = {"subgroups": "subgroup"}  # WebGPU's names where wgpu has others
NO_BYTES = np.empty(0, np.uint8)

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


def explained(error: Exception, on: Any, what: str) -> GpuError:
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
def explaining(on: Any, what: str) -> Iterator[None]:
    """Failures of wgpu become errors that say what was being done."""
    import wgpu

    try:
        yield
    except wgpu.GPUError as error:
        raise explained(error, on, what) from None


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


class Pipeline:
    """A compiled shader."""

    def __init__(self, kernel: str, pipeline: Any, layout: Any) -> None:
        self.kernel, self.pipeline, self.layout = kernel, pipeline, layout


class Gpu:
    """A device as one model uses it: commands gather until something has to be submitted.

    Raises:
        GpuError: there is no device.
    """

    def __init__(self) -> None:
        self.device = device()
        self.lock = threading.RLock()  # one thread at a time gathers commands
        self.workgroups = _workgroups(self.device.adapter.info)
        self.most_rounds = MOST_ROUNDS if "llvmpipe" in str(self.device.adapter.info.get("device")) else 1 << 62
        self._encoder: Any = None
        self._pending = 0
        self._idle: list[tuple[Any, int]] = []  # buffers, and the run that gave them
        self._taken: dict[int, Any] = {}
        self._run = 0
        self._ahead, self.slice = 0, FIRST_SLICE
        self._since: float | None = None  # when the first command came that is ahead: shaders that a run compiles before are none
        self.given_up = False

    def pipeline(self, row: dict[str, Any], modules: Sequence[str]) -> Pipeline:
        """The pipeline of a row of the section.

        Raises:
            GpuError: the adapter lacks what it needs, or the shader does not compile.
        """
        import wgpu

        have = set(self.device.features) | set(wgpu.gpu.wgsl_language_features)
        variant = next((v for v in row["variants"] if all(NEEDS.get(n, n) in have for n in v["needs"])), None)
        if variant is None:
            raise GpuError(f"kernel {row['kernel']}: this GPU has none of {', '.join('+'.join(v['needs']) for v in row['variants'])}")
        most = self.device.limits["max-storage-buffers-per-shader-stage"]
        if row["bindings"] > most:
            raise GpuError(f"kernel {row['kernel']} binds {row['bindings']} buffers, this GPU binds at most {most} in one shader")
        code = modules[variant["module"]]
        key = (self.device, code, row["outputs"], row["bindings"])
        with _lock:
            if key in _pipelines:
                _pipelines.move_to_end(key)
                return Pipeline(row["kernel"], *_pipelines[key])
        uniforms = {"type": "uniform", "has_dynamic_offset": True}
        entries = [{"binding": 0, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": uniforms}]
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
            raise explained(error, self.device, f"kernel {row['kernel']}: the shader does not compile") from None
        with _lock:
            _pipelines[key] = pipeline, layout
            while len(_pipelines) > PIPELINES:
                _pipelines.popitem(last=False)
        return Pipeline(row["kernel"], pipeline, layout)

    @property
    def most_bytes(self) -> int:
        """Bytes of a binding, at most."""
        return int(min(self.device.limits["max-storage-buffer-binding-size"], self.device.limits["max-buffer-size"]))

    def bindable(self, size: int, what: str) -> None:
        """Raises GpuError where no binding can be so large."""
        if size > self.most_bytes:
            raise GpuError(f"{what} needs {size} bytes in one buffer, this GPU binds at most {self.most_bytes}")

    def buffer(self, nbytes: int, what: str, in_parts: bool = False) -> Any:
        """A buffer for so many bytes; what is bound ``in_parts`` may be larger than a binding."""
        import wgpu

        size = -(-max(nbytes, 16) // 16) * 16
        if not in_parts:
            self.bindable(size, what)
        elif size > self.device.limits["max-buffer-size"]:
            raise GpuError(f"{what} needs {size} bytes, a buffer of this GPU has at most {self.device.limits['max-buffer-size']}")
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        try:
            return self.device.create_buffer(size=size, usage=usage, label=what)
        except Exception as error:
            raise explained(error, self.device, f"out of GPU memory: {what} needs {size} bytes") from None

    def begin(self) -> None:
        """Begins a run: what the last runs left is given back."""
        self._run += 1
        self._encoder, self._pending = None, 0
        self._ahead, self._since = 0, None
        for buffer in self._taken.values():
            buffer.destroy()
        self._taken.clear()
        for buffer, since in self._idle:
            if since + IDLE_RUNS < self._run:
                buffer.destroy()
        self._idle = [(b, since) for b, since in self._idle if since + IDLE_RUNS >= self._run]

    def pace(self, operations: int) -> None:
        """Counts what commands take; where that is much they are waited for.

        Raises:
            CoreError: ``CANCELLED``: the run was given up.
        """
        self._ahead += operations
        since = self._since = time.monotonic() if self._since is None else self._since
        if self._ahead >= self.slice or time.monotonic() - since >= SLICE_S:
            self.wait()
            taken = time.monotonic() - since
            if taken < SLICE_S / 2:
                self.slice = min(4 * self.slice, MOST_SLICE)
            elif taken > 2 * SLICE_S:
                self.slice = max(self.slice // 2, 1)
            self._ahead, self._since = 0, None
        if self.given_up:
            raise CoreError(CANCELLED, -1, "", "the run was cancelled")

    def wait(self) -> None:
        """Submits what is pending and waits for it; wgpu 0.32's own wait passes a callback of the wrong type and fails."""
        import wgpu

        mark = self.device.create_buffer(size=4, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
        self.encoder.clear_buffer(mark, 0, 4)
        self.flush()
        mark.map_sync(wgpu.MapMode.READ)
        mark.destroy()

    def end(self) -> None:
        """Ends a run: all buffers that it took serve the next ones."""
        for buffer in list(self._taken.values()):
            self.give(buffer)

    def take(self, nbytes: int, what: str) -> Any:
        """A buffer until it is given back, or the run ends; one that served before, where one has the size."""
        size = -(-max(nbytes, 16) // 16) * 16
        at = next((i for i, (b, _) in enumerate(self._idle) if b.size == size), -1)
        buffer = self._idle.pop(at)[0] if at >= 0 else self.buffer(size, what)
        self._taken[id(buffer)] = buffer
        return buffer

    def give(self, buffer: Any) -> None:
        """Takes a buffer back that ``take`` gave; others are left alone."""
        if self._taken.pop(id(buffer), None) is not None:
            self._idle.append((buffer, self._run))

    def part_with(self, buffer: Any) -> bool:
        """Leaves a buffer that ``take`` gave to who has it, for good; False where it is none, or was given back."""
        return self._taken.pop(id(buffer), None) is not None

    @property
    def encoder(self) -> Any:
        """Takes commands, which run in their order."""
        if self._pending >= MOST_PENDING:
            self.flush()
        if self._encoder is None:
            self._encoder = self.device.create_command_encoder()
        self._pending += 1
        return self._encoder

    def flush(self) -> None:
        """Submits what is pending."""
        if self._encoder is not None:
            self.device.queue.submit([self._encoder.finish()])
            self._encoder, self._pending = None, 0

    def write(self, buffer: Any, data: np.ndarray) -> None:
        """Writes any number of bytes to the start of a buffer, behind what is pending."""
        self.flush()
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        whole = raw.size // 4 * 4
        if whole:
            self.device.queue.write_buffer(buffer, 0, raw[:whole])
        if whole < raw.size:
            self.device.queue.write_buffer(buffer, whole, np.pad(raw[whole:], (0, 4 - raw.size + whole)))

    def copy(self, source: Any, target: Any, at: int, nbytes: int, first: int = 0) -> None:
        """Copies bytes from ``first`` on of a buffer to byte ``at`` of another; all numbers are multiples of 4."""
        if nbytes:
            self.encoder.copy_buffer_to_buffer(source, first, target, at, nbytes)

    def read(self, wanted: Sequence[tuple[Any, int, int]]) -> list[np.ndarray]:
        """The bytes of ranges (buffer, offset, bytes) behind what is pending: one submission and one wait for all."""
        import wgpu

        begins = [offset // 4 * 4 for _, offset, _ in wanted]
        ends = [-(-(offset + size) // 4) * 4 if size else begin for begin, (_, offset, size) in zip(begins, wanted, strict=True)]
        places = [0, *accumulate(-(-(end - begin) // 8) * 8 for begin, end in zip(begins, ends, strict=True))]
        if places[-1] == 0:
            self.flush()
            return [NO_BYTES for _ in wanted]
        staging = self.device.create_buffer(size=places[-1], usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
        for (buffer, _, _), begin, end, at in zip(wanted, begins, ends, places, strict=False):
            if end > begin:
                self.encoder.copy_buffer_to_buffer(buffer, begin, staging, at, end - begin)
        self.flush()
        staging.map_sync(wgpu.MapMode.READ)
        raw = np.frombuffer(staging.read_mapped(copy=True), np.uint8)
        staging.destroy()
        return [raw[at + offset % 4 :][:size] for (_, offset, size), at in zip(wanted, places, strict=False)]


class Data:
    """Bytes in this process, on the GPU, or on both; they do not change."""

    def __init__(self, nbytes: int, array: np.ndarray | None = None, buffer: Any = None) -> None:
        self.nbytes, self.array, self.buffer = nbytes, array, buffer

    def here(self, gpu: Gpu) -> np.ndarray:
        if self.array is None:
            self.array = gpu.read([(self.buffer, 0, self.nbytes)])[0] if self.buffer is not None else NO_BYTES
        return self.array

    def there(self, gpu: Gpu, what: str) -> Any:
        if self.buffer is None:
            self.buffer = gpu.take(self.nbytes, what)
            gpu.write(self.buffer, NO_BYTES if self.array is None else self.array)
        return self.buffer
