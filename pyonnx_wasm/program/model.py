"""Programs in memory, the weights that they share, and the compiled model that they make up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..callbacks import Callback
from ..dtypes import DType
from ..ir import Face, Graph, Node, Value

if TYPE_CHECKING:
    from .section import GpuProgram

MAGIC, VERSION = 0x50585057, 2
HEADER_WORDS = 24
TABLES = {
    name: 3 + 2 * i for i, name in enumerate(["kernels", "inputs", "outputs", "registers", "storages", "buffers", "steps"])
}  # the header's word with the number of rows; the next holds where the table begins
TABLES |= {"stages": 18, "programs": 20, "slots": 22}
REGISTER_WORDS, STORAGE_WORDS, BUFFER_WORDS, STAGE_WORDS = 4, 6, 4, 2
ARENA, WEIGHT, INPUT, OUTPUT, SLOT = range(5)
STATE = 16  # flags of an output that grows: the input that tells of it, plus one, times this, plus the axis
SHAPE_OPS = {
    name: code
    for code, name in enumerate(
        "const dim elem add sub mul floordiv ceildiv mod min max eq lt le select check read size".split()  # noqa: SIM905
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
        return self.dtype.nbytes(math.prod(self.shape))


@dataclass
class Program:
    """One flat array of words with the texts that its numbers refer to."""

    name: str
    code: np.ndarray
    messages: list[str]
    origins: list[str]
    nodes: list[Node] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)
    told: list[Value] = field(default_factory=list)  # inputs of two dims each, that tell of each state's room and rows in place


def homes(weights: Sequence[Weight]) -> list[int]:
    """The weight whose memory each has: the end of its ``over`` chain, itself where it has memory of its own.

    Raises:
        ValueError: a weight does not fit there, or the chain has no end.
    """
    found = []
    for k, weight in enumerate(weights):
        home, hops = k, 0
        while (over := weights[home].over) is not None:
            home, hops = over, hops + 1
            if hops > len(weights):
                raise ValueError(f"weight {weight.name!r} takes over the memory of itself")
        if weights[home].nbytes < weight.nbytes:
            raise ValueError(f"weight {weight.name!r} does not fit in the memory of weight {weights[home].name!r}")
        found.append(home)
    return found


@dataclass(frozen=True)
class Signature:
    """One input or output: dims are sizes, or symbols and expressions as text."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]

    @property
    def parts(self) -> int:
        """How many tensors of the Program it is: strings are spans and a pool."""
        return 2 if self.dtype is DType.string else 1


@dataclass
class Compiled:
    """A compiled model in memory; :mod:`.file` writes and reads it.

    Attributes:
        weights: in the order of the Programs' weight table.
        files: the source file and its external data, for thin files.
        gpu: the same model lowered for GPUs, over the same weights.
        faces: the model's inputs and outputs where some are sequences or optionals; ``inputs`` and ``outputs`` are their tensors.
        on_core: why the core runs it where a GPU is wanted, "" where nothing stands against one.
        narrowed: the ``narrow.Report`` of this compilation, where smaller weights were asked for.
    """

    inputs: list[Signature]
    outputs: list[Signature]
    main: Program
    init: Program | None
    weights: list[Weight]
    provenance: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    model: Any = None  # keeps mapped weights alive
    graph: Graph | None = None
    gpu: GpuProgram | None = None
    on_core: str = ""
    faces: tuple[list[Face], list[Face]] | None = None
    narrowed: Any = None
