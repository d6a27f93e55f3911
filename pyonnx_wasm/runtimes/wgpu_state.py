"""What stays on a GPU from run to run (:mod:`.state`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from .state import Held, Shape
from .wgpu_device import Gpu


class GpuRoom:
    """A buffer for the rows of one tensor, made or given; its bytes are read, and copied, by runs of rows."""

    def __init__(self, gpu: Gpu, shape: Shape, dtype: DType, axis: int, what: str, memory: Any = None) -> None:
        self.gpu, self.shape, self.dtype, self.axis, self.rows = gpu, shape, dtype, axis, 0
        self.memory = memory or gpu.buffer(dtype.nbytes(math.prod(shape)), what)  # of zeros: WebGPU's buffers begin so
        self.owner: object = None

    def _runs(self, rows: int) -> list[tuple[int, int]]:
        """Where runs of rows begin, and their bytes."""
        row = self.dtype.nbytes(math.prod(self.shape[self.axis + 1 :]))
        return [(k * self.shape[self.axis] * row, rows * row) for k in range(math.prod(self.shape[: self.axis]))]

    def array(self, rows: int) -> np.ndarray:
        with self.gpu.lock:
            read = self.gpu.read([(self.memory, at, nbytes) for at, nbytes in self._runs(rows)])
        shape = (*self.shape[: self.axis], rows, *self.shape[self.axis + 1 :])
        return np.concatenate(read or [np.empty(0, np.uint8)]).view(to_numpy(self.dtype)).reshape(shape)

    def take(self, held: Held) -> int:
        room, runs = held.room, self._runs(held.rows)
        if isinstance(room, GpuRoom) and room.gpu is self.gpu and room.axis == self.axis:
            for (first, nbytes), (at, _) in zip(room._runs(held.rows), runs, strict=True):
                self.gpu.copy(room.memory, self.memory, at, nbytes, first)
            self.gpu.flush()
        else:
            whole: Any = np.zeros(self.shape, to_numpy(self.dtype))
            whole[(slice(None),) * self.axis + (slice(held.rows),)] = held.array()
            self.gpu.write(self.memory, whole)
        self.rows = held.rows
        return sum(nbytes for _, nbytes in runs)
