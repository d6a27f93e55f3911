"""The GPU through wgpu-py: Vulkan, Metal or Direct3D 12. Runs the GPU section of a Program (``PROGRAM.md`` section 7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType
from ..program import GpuProgram as Lowered
from ..program import Weight
from . import UNLIMITED, Allocate, Limits
from .host import Host
from .profile import StepTime
from .state import Held, Keeper
from .wgpu_control import control
from .wgpu_device import NO_BYTES, Data, Gpu, explaining
from .wgpu_device import GpuError as GpuError
from .wgpu_device import adapter_name as adapter_name
from .wgpu_device import device as device
from .wgpu_model import Model, Tensor
from .wgpu_program import GpuProgram
from .wgpu_state import GpuRoom


class GpuExecutor:
    """A model ready to run on the GPU. Not re-entrant: its owner serialises calls.

    Raises:
        GpuError: a shader does not compile, or a buffer is larger than the adapter's limits.
    """

    reads = True  # reading an output costs

    def __init__(
        self, lowered: Lowered, weights: Sequence[np.ndarray], table: Sequence[Weight], threads: int = 1, limits: Limits = UNLIMITED
    ) -> None:
        self.section, program = lowered.section, lowered.program
        self.gpu = Gpu()
        pipelines = [self.gpu.pipeline(row, self.section.modules) for row in self.section.pipelines]
        self.model = Model(self.gpu, pipelines, weights, table, program.messages, program.origins, limits, Host(program.callbacks, limits))
        with explaining(self.gpu.device, "the model's weights"):
            self.program = GpuProgram(self.model, program.code, self.section, control, threads)
        self._shapes: list[tuple[int, ...]] = []
        self._nothing = self.gpu.buffer(16, "nothing")
        gpu, rows = self.gpu, self.program.view.outputs

        def room(shape: tuple[int, ...], output: int, axis: int) -> GpuRoom:
            return GpuRoom(gpu, shape, DType(rows[output].dtype), axis, f"the state of output {output}")

        self.keeper = Keeper(self.program.view.states, room)  # which does not hold this: its buffers go with the last name of it

    @property
    def kernels_on_core(self) -> tuple[str, ...]:
        """The kernels without a shader for their call, each once: the core runs them."""
        return tuple(sorted(self.section.kernels_on_core(self.program.view)))

    def cancel(self, on: bool = True) -> None:
        """From any thread: the run in progress, or else the next one, ends with :class:`CoreError` ``CANCELLED``."""
        self.gpu.given_up = on
        if on:
            self.model.host.cancel()

    def seed(self, seed: int) -> None:
        """Where the random numbers of later runs begin."""
        self.program.core.seed(seed)

    def bind(self, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> list[tuple[int, ...] | None]:
        """Fixes the input shapes; returns the output shapes, None for those that the run tells."""
        self._shapes = [tuple(shape) for shape in shapes]
        return self.program.shapes(self.program.evaluate(self._tensors(inputs)))

    def run(self, inputs: Sequence[np.ndarray], outputs: list[Any], more: Allocate | None = None) -> None:
        """Runs the bound Program; inputs and outputs are contiguous and of the bound shapes."""
        self._run(self._tensors(inputs), outputs, more)

    def run_held(
        self,
        shapes: Sequence[Sequence[int]],
        inputs: Sequence[Any],
        keep: Collection[int],
        wanted: Collection[int],
        empty: Allocate,
        away: Collection[int] = (),
    ) -> list[Any]:
        """Binds and runs; see :meth:`Keeper.run`. Outputs in ``keep`` and ``away`` that no run goes on from come as :class:`Held` too, and
        are read when they are asked for; others that are not wanted are not read."""
        keep = {*keep, *away}
        self._shapes = [tuple(shape) for shape in shapes]
        with self.gpu.lock, explaining(self.gpu.device, "running the model"):
            return self.keeper.run(_Bound(self, keep, wanted), [d for shape in shapes for d in shape], inputs, keep, wanted, empty)

    def profile(self, inputs: Sequence[np.ndarray], outputs: list[Any], more: Allocate | None = None) -> list[StepTime]:
        """Like ``run``, each step in a pass of its own between two timestamps."""
        times: list[StepTime] = []
        self._run(self._tensors(inputs), outputs, more, times)
        return times

    def _tensors(self, inputs: Sequence[Any]) -> list[Tensor]:
        """What is given; in the place of what is held, which nothing reads, an empty buffer."""
        found = []
        for x, row, shape in zip(inputs, self.program.view.inputs, self._shapes, strict=False):
            if isinstance(x, np.ndarray):
                raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
                data = Data(raw.nbytes, raw)
            else:
                data = Data(0, NO_BYTES, self._nothing)
            found.append(Tensor(data, DType(row.dtype), shape))
        return found

    def _run(
        self,
        inputs: Sequence[Tensor],
        outputs: list[Any],
        more: Allocate | None,
        times: list[StepTime] | None = None,
        told: Sequence[int] | None = None,
        keep: Collection[int] = (),
        wanted: Collection[int] | None = None,
    ) -> None:
        rooms = {i: out for i, out in enumerate(outputs) if out is not None and not isinstance(out, np.ndarray)}
        with self.gpu.lock, explaining(self.gpu.device, "running the model"):
            results = self._results(inputs, times, told, rooms)
            stay = {i: held for i in set(keep).difference(rooms) if (held := self._held(results[i], i)) is not None}
            left = {i for i in range(len(results)) if wanted is not None and i not in wanted} | stay.keys() | rooms.keys()
            away = [i for i, result in enumerate(results) if result.data.array is None and i not in left]
            read = self.gpu.read([(results[i].data.buffer, 0, results[i].data.nbytes) for i in away])
            for i, raw in zip(away, read, strict=True):
                results[i].data.array = raw
            self.gpu.end()
        for i, result in enumerate(results):
            if i in left:
                outputs[i] = outputs[i] if i in rooms else stay.get(i)
                continue
            if outputs[i] is None:
                if more is None:
                    raise ValueError(f"output {i} has a shape that is data: give `more`, which makes its array")
                outputs[i] = more(i, result.dims)
            outputs[i].reshape(-1).view(np.uint8)[:] = result.data.here(self.gpu)

    def _held(self, result: Tensor, output: int) -> Held | None:
        """An output in the buffer where it is, which no later run takes."""
        if result.data.array is not None or not result.dims or result.dtype.bits < 8 or not self.gpu.part_with(result.data.buffer):
            return None
        room = GpuRoom(self.gpu, result.dims, result.dtype, 0, f"output {output}", result.data.buffer)
        room.rows = result.dims[0]
        return Held(room, room.rows)

    def _results(
        self, inputs: Sequence[Tensor], times: list[StepTime] | None, told: Sequence[int] | None, rooms: Mapping[int, Any]
    ) -> list[Tensor]:
        self.gpu.begin()
        self.model.left = self.model.limits.max_operations
        try:
            return self.program.run(inputs, times, told, rooms)
        finally:
            self.gpu.given_up = False


class _Bound:
    """A model as a keeper binds and runs it."""

    def __init__(self, executor: GpuExecutor, keep: Collection[int], wanted: Collection[int]) -> None:
        self.executor, self.keep, self.wanted = executor, keep, wanted

    def bind(self, dims: Sequence[int], contents: Sequence[Any], told: Sequence[int]) -> list[tuple[int, ...] | None]:
        self.told, program = told, self.executor.program
        return program.shapes(program.evaluate(self.executor._tensors(contents), told))

    def run(self, feeds: Sequence[Any], outputs: list[Any], more: Allocate) -> None:
        self.executor._run(self.executor._tensors(feeds), outputs, more, None, self.told, self.keep, self.wanted)
