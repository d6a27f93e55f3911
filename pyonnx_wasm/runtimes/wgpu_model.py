"""What the Programs of a model on the GPU share, and how registers become uniforms, elements registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..program import Weight
from . import UNLIMITED, Limits
from .host import Host
from .wgpu_device import Data, Gpu, Pipeline

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


def element(raw: np.ndarray, dtype: DType) -> int:
    """An element as a register holds it: an integer, or the bits of an f64."""
    bits = np.frombuffer(raw.tobytes(), to_numpy(dtype))
    if dtype is DType.bfloat16:
        bits = (bits.astype(np.uint32) << 16).view(np.float32)
    return int(bits.astype(np.float64).view(np.int64)[0]) if dtype.is_float else int(bits.astype(np.int64)[0])
