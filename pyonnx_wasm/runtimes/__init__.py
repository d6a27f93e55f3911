"""What executes Programs: the C++ core in this process, or in WebAssembly beside it, and GPUs.

It imports ``program`` and ``dtypes``, and knows no operator and no kernel. A runtime is added as a module with an ``Executor`` that has
the methods of :class:`Runtime`, and its name in ``session.PROVIDERS``; ``PROGRAM.md`` says all that it has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

#: Makes the array for an output, given its number and its shape.
Allocate = Callable[[int, tuple[int, ...]], np.ndarray]


class Limits(NamedTuple):
    """What a run on the core may take; beyond is an error that names the step.

    Attributes:
        max_memory: bytes of intermediate tensors, scratch and outputs.
        max_operations: elementary operations, those of loops and branches included.
    """

    max_memory: int = 1 << 40
    max_operations: int = 1 << 48


UNLIMITED = Limits()  # but for what the core always bounds


class Runtime(Protocol):
    """A model ready to run on one backend. Not re-entrant: its owner serialises calls."""

    def bind(self, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> Sequence[tuple[int, ...] | None]:
        """Fixes the input shapes; returns the output shapes, None for those that are known only while the Program runs."""

    def run(self, inputs: Sequence[np.ndarray], outputs: list[Any], more: Allocate) -> None:
        """Runs the bound Program; inputs and outputs are contiguous and of the bound shapes.

        Args:
            outputs: None for each output that has no shape yet; filled in with what ``more`` makes.
        """


def call(runtime: Runtime, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray], empty: Allocate) -> list[np.ndarray]:
    """Binds and runs; returns the outputs, which ``empty`` makes."""
    bound = runtime.bind(shapes, inputs)
    outputs: list[Any] = [None if shape is None else empty(i, shape) for i, shape in enumerate(bound)]
    runtime.run(inputs, outputs, empty)
    return outputs
