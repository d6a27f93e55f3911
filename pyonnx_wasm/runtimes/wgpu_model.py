"""What the Programs of a model on the GPU share, and how registers become uniforms, elements registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..program import Weight
from . import UNLIMITED, Limits
from .host import Host
from .wgpu_device import Data, Gpu, GpuError, Pipeline

UNIFORM_ALIGN = 256
I32_MIN, U32_MAX = -(1 << 31), (1 << 32) - 1


@dataclass
class Tensor:
    """What goes into a Program, and comes out of it."""

    data: Data
    dtype: DType
    dims: tuple[int, ...]


@dataclass
class Model:
    """What the Programs of a model share.

    Attributes:
        arrays: the weights.
        buffers: those that the GPU has, by index.
        host: does what the Programs ask of it.
        left: elementary operations that the run may still take.
    """

    gpu: Gpu
    pipelines: list[Pipeline]
    arrays: Sequence[np.ndarray]
    table: Sequence[Weight]
    messages: Sequence[str]
    origins: Sequence[str]
    limits: Limits = UNLIMITED
    host: Host = field(default_factory=Host)
    buffers: dict[int, Any] = field(default_factory=dict)
    left: int = 0


class Uniforms:
    """The uniforms of a stage's steps, for several sizes: a place per step in each of so many slots.

    Args:
        blocks: bytes of each step's.
    """

    def __init__(self, gpu: Gpu, blocks: Sequence[int], slots: int) -> None:
        self.gpu, self.slots = gpu, slots
        self._places = [0, *accumulate(-(-size // UNIFORM_ALIGN) * UNIFORM_ALIGN for size in blocks)]
        self._buffer: Any = None

    @property
    def buffer(self) -> Any:
        import wgpu

        if self._buffer is None:
            size = max(self.slots * self._places[-1], UNIFORM_ALIGN)
            self._buffer = self.gpu.device.create_buffer(size=size, usage=wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST)
        return self._buffer

    def place(self, slot: int, step: int) -> int:
        """Where the uniforms of a step begin."""
        return slot * self._places[-1] + self._places[step]

    def write(self, slot: int, blocks: Sequence[bytes]) -> None:
        """Fills a slot, behind what is pending."""
        self.gpu.flush()
        data = b"".join(block.ljust(end - at, b"\0") for block, at, end in zip(blocks, self._places, self._places[1:], strict=False))
        if data:
            self.gpu.device.queue.write_buffer(self.buffer, self.place(slot, 0), data)


def element(raw: np.ndarray, dtype: DType) -> int:
    """An element as a register holds it: an integer, or the bits of an f64."""
    bits = np.frombuffer(raw.tobytes(), to_numpy(dtype))
    if dtype is DType.bfloat16:
        bits = (bits.astype(np.uint32) << 16).view(np.float32)
    return int(bits.astype(np.float64).view(np.int64)[0]) if dtype.is_float else int(bits.astype(np.int64)[0])


def uniform_block(kernel: str, head: Sequence[int], numbers: Sequence[int], registers: np.ndarray) -> bytes:
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
