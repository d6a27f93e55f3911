"""What executes Programs: the C++ core in this process, or in WebAssembly beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Runtime(Protocol):
    """A model ready to run on one backend. Not re-entrant: its owner serialises calls."""

    def bind(self, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
        """Fixes the input shapes; returns the output shapes."""

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Runs the bound Program; inputs and outputs are contiguous and of the bound shapes."""
