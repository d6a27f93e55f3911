"""Branches and loops over Programs on the GPU (``PROGRAM.md`` section 2)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..callbacks import Asked
from ..dtypes import DType, to_numpy
from .errors import BAD_DATA, LIMIT, core_error
from .profile import StepTime
from .wgpu_device import DISPATCH, Data
from .wgpu_model import Tensor
from .wgpu_program import GpuProgram, Run

TRUE = np.ones(1, np.uint8)
UNREAD = 64  # stacked tensors that wait for their way here


def control(program: GpuProgram, run: Run, step: int) -> None:
    """Runs a control step; what it gives goes to the slots."""
    row = program.steps[step]
    n_outputs, first, other, n_first, condition, trips, *dims = (
        int(run.registers[r]) for r in row.params
    )  # a loop's `other` is what it stacks
    start, before = time.perf_counter(), _clock(run)
    if row.kernel == "host":
        results = _answered(program, run, step, first, dims)
    elif row.kernel == "if":
        chosen = first if condition else other
        given = _operands(program, run, step, [program.bodies[first], program.bodies[other]], dims)
        results = _body(program, program.bodies[chosen], step, given[:n_first] if condition else given[n_first:], run.times)
    else:
        given = _operands(program, run, step, [program.bodies[first]], dims, 2)
        results = _Loop(program, program.bodies[first], step, n_first, other, n_outputs).run(given, bool(condition), trips, run.times)
    for slot, result in zip(row.slots, results, strict=True):
        if slot >= 0:
            run.slots[slot] = result
        else:
            program.gpu.give(result.data.buffer)
    if run.times is not None:
        name, kernel, _ = program.describe(run, step)
        own = (time.perf_counter() - start) * 1e3 - (_clock(run) - before)
        run.times.append(StepTime(name, kernel, "cpu", _clock(run), max(0.0, own), 0))


def _answered(program: GpuProgram, run: Run, step: int, number: int, words: Sequence[int]) -> list[Tensor]:
    """What the host gives for a step, whose inputs come here."""
    row, slots = program.steps[step], program.view.slots
    on_core, left, inputs, dtypes = program.plan.steps[step]["on_core"], iter(words), list[np.ndarray](), list[DType]()
    for k, buffer in enumerate(row.buffers):
        dims = [next(left) for _ in range(next(left))]
        dtype = DType(program.buffers[buffer].dtype)
        raw = program.operand(run, buffer, k in on_core).here(program.gpu)
        inputs.append(raw[: dtype.nbytes(math.prod(dims))].view(to_numpy(dtype)).reshape(dims))
        dtypes.append(dtype)
    wanted = [None if slot < 0 else (DType(slots[slot].dtype), slots[slot].rank) for slot in row.slots]
    program.gpu.flush()
    found: list[Tensor] = []
    for array, want in zip(program.model.host.answer(Asked(number, inputs, wanted, dtypes)), wanted, strict=True):
        if array is None or want is None:
            found.append(Tensor(Data(0), DType.uint8, ()))
        else:
            found.append(Tensor(Data(array.nbytes, array.reshape(-1).view(np.uint8)), want[0], array.shape))
    return found


def _clock(run: Run) -> float:
    return run.times[-1].start_ms + run.times[-1].ms if run.times else 0.0


def _refusal(program: GpuProgram, step: int, code: int, text: str) -> Exception:
    """As the core tells it."""
    said = f"step {step} ({program.steps[step].kernel}): {text}"
    return core_error(code, step, -1, said, program.view, program.model.messages, program.model.origins)


def _body(program: GpuProgram, body: GpuProgram, step: int, given: Sequence[Tensor], times: list[StepTime] | None) -> list[Tensor]:
    results = body.run(given, times)
    model = program.model
    model.left -= body.operations
    program.gpu.pace(DISPATCH * len(body.steps))
    if model.left < 0:
        text = f"takes more than {model.limits.max_operations} operations, the limit (max_operations)"
        raise _refusal(program, step, LIMIT, text)
    return results


def _operands(program: GpuProgram, run: Run, step: int, bodies: Sequence[GpuProgram], dims: Sequence[int], lead: int = 0) -> list[Tensor]:
    """What the bodies take, one after the other; ``lead`` inputs of each come from elsewhere."""
    wanted = [row for body in bodies for row in body.view.inputs[lead:]]
    on_core, at, present, found = program.plan.steps[step]["on_core"], 0, 0, []
    for row, buffer in zip(wanted, program.steps[step].buffers, strict=True):
        data = Data(0)
        if buffer >= 0:
            data = program.operand(run, buffer, present in on_core)
            present += 1
        found.append(Tensor(data, DType(row.dtype), tuple(dims[at : at + row.rank])))
        at += row.rank
    return found


class _Loop:
    def __init__(self, program: GpuProgram, body: GpuProgram, step: int, carried: int, stacked: int, outputs: int) -> None:
        self.program, self.body, self.step, self.carried = program, body, step, carried
        self.stacks = [Stack(program, step, o < stacked) for o in range(carried, outputs)]

    def lead(self, trip: int) -> list[Tensor]:
        """The number of a step and the condition."""
        ranks = [row.rank for row in self.body.view.inputs[:2]]
        number = Data(8, np.array([trip], np.int64).view(np.uint8))
        return [Tensor(number, DType.int64, (1,) * ranks[0]), Tensor(Data(1, TRUE), DType.bool, (1,) * ranks[1])]

    def run(self, given: list[Tensor], go: bool, most: int, times: list[StepTime] | None) -> list[Tensor]:
        program, body, n, trip = self.program, self.body, self.carried, 0
        gpu = program.gpu
        own: list[Tensor] = []  # carried values that a step gave
        carried, others = given[:n], given[n:]
        while go and trip < most:
            lead = self.lead(trip)
            condition, *results = _body(program, body, self.step, [*lead, *carried, *others], times)
            for tensor in [*own, *lead]:
                gpu.give(tensor.data.buffer)
            carried = own = results[:n]
            if condition.data.nbytes != 1:
                raise _refusal(program, self.step, BAD_DATA, "its condition is no single value")
            for stack, result in zip(self.stacks, results[n:], strict=True):
                stack.push(result)
            go = body.plan.goes_on or bool(condition.data.here(gpu)[0])
            gpu.give(condition.data.buffer)
            trip += 1
        if not trip:
            shapes = self.told(carried, others)
            for stack, shape, row in zip(self.stacks, shapes, body.view.outputs[n + 1 :], strict=True):
                stack.dtype, stack.dims = DType(row.dtype), shape if stack.axis else shape[1:]
            carried = [self.own(tensor) for tensor in carried]
        return [*carried, *(stack.result() for stack in self.stacks)]

    def own(self, tensor: Tensor) -> Tensor:
        """A copy: what a loop was given lies where later stages lay other things."""
        data = tensor.data
        if data.buffer is None:
            return tensor
        buffer = self.program.gpu.take(data.nbytes, "what a loop passes on")
        self.program.gpu.copy(data.buffer, buffer, 0, -(-data.nbytes // 4) * 4)
        return Tensor(Data(data.nbytes, buffer=buffer), tensor.dtype, tensor.dims)

    def told(self, carried: Sequence[Tensor], others: Sequence[Tensor]) -> list[tuple[int, ...]]:
        """The shapes of what would be stacked, as far as sizes alone tell them."""
        rows = self.body.view.outputs[self.carried + 1 :]
        try:
            shapes = self.body.shapes(self.body.evaluate([*self.lead(0), *carried, *others]))
        except Exception:
            shapes = [None] * len(self.body.view.outputs)
        return [shape or (0,) * row.rank for shape, row in zip(shapes[self.carried + 1 :], rows, strict=True)]


class Stack:
    """What the steps of a loop give, one behind the other, on the GPU as long as each fills words: along a new first axis, or else
    appended along the first axis that is there."""

    def __init__(self, program: GpuProgram, step: int, axis: bool) -> None:
        self.program, self.gpu, self.step, self.axis = program, program.gpu, step, axis
        self.dtype, self.dims = DType.uint8, tuple[int, ...]()  # of one; appended: but for the first axis
        self.along = self.nbytes = 0
        self.buffer: Any = None
        self.arrays: list[np.ndarray] = []
        self.unread: list[Data] = []

    def push(self, tensor: Tensor) -> None:
        dims = tensor.dims if self.axis else tensor.dims[1:]
        if self.along and dims != self.dims:
            raise _refusal(self.program, self.step, BAD_DATA, "what is stacked or appended changes its shape from step to step")
        self.dtype, self.dims = tensor.dtype, dims
        self.along += 1 if self.axis else tensor.dims[0]
        data, before = tensor.data, self.nbytes
        self.nbytes += data.nbytes
        most = self.program.model.limits.max_memory
        if self.nbytes > most:
            text = f"what is stacked or appended takes more than {most} bytes, the limit (max_memory)"
            raise _refusal(self.program, self.step, LIMIT, text)
        if data.buffer is not None and data.nbytes % 4 == 0 and not self.arrays and not self.unread:
            self.grow(before)
            self.gpu.copy(data.buffer, self.buffer, before, data.nbytes)
            self.gpu.give(data.buffer)
            return
        if self.buffer is not None:
            self.unread.append(Data(before, buffer=self.buffer))
            self.buffer = None
        self.unread.append(Data(data.nbytes, data.here(self.gpu).copy()) if data.buffer is None else data)
        if len(self.unread) >= UNREAD:
            self.read()

    def grow(self, before: int) -> None:
        if self.buffer is not None and self.buffer.size >= self.nbytes:
            return
        wider = self.gpu.take(max(self.nbytes, 2 * (self.buffer.size if self.buffer is not None else 0)), "what a loop stacks")
        if self.buffer is not None:
            self.gpu.copy(self.buffer, wider, 0, before)
            self.gpu.give(self.buffer)
        self.buffer = wider

    def read(self) -> None:
        away = [data for data in self.unread if data.array is None]
        for data, raw in zip(away, self.gpu.read([(data.buffer, 0, data.nbytes) for data in away]), strict=True):
            data.array = raw
            self.gpu.give(data.buffer)
        self.arrays += [data.here(self.gpu) for data in self.unread]
        self.unread.clear()

    def result(self) -> Tensor:
        dims = (self.along, *self.dims)
        if self.buffer is not None:
            return Tensor(Data(self.nbytes, buffer=self.buffer), self.dtype, dims)
        self.read()
        joined = np.concatenate(self.arrays) if self.arrays else np.empty(0, np.uint8)
        return Tensor(Data(self.nbytes, joined), self.dtype, dims)
