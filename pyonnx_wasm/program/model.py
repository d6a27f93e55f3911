"""Programs in memory, and the weights that they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import Node

MAGIC, VERSION = 0x50585057, 1
HEADER_WORDS = 19
ARENA, WEIGHT, INPUT, OUTPUT = range(4)
SHAPE_OPS = {
    name: code
    for code, name in enumerate(
        ["const", "dim", "elem", "add", "sub", "mul", "floordiv", "ceildiv", "mod", "min", "max", "eq", "lt", "le", "select", "check"]
    )
}


@dataclass
class Weight:
    """A constant of the model, or what init computes from constants.

    Attributes:
        source: the reader's tensor or an array; None when init computes it.
        over: the weight whose memory this one takes over, in place.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    source: Any = None
    over: int | None = None

    @property
    def nbytes(self) -> int:
        return self.dtype.nbytes(int(np.prod(self.shape, dtype=np.int64)))


@dataclass
class Program:
    """One flat array of words with the texts that its numbers refer to."""

    name: str
    code: np.ndarray
    messages: list[str]
    origins: list[str]
    nodes: list[Node] = field(default_factory=list)


@dataclass
class Lowered:
    main: Program
    init: Program | None
    weights: list[Weight]
    other: Any = None  # what `also` returned
