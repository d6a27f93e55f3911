"""The host side of a run: memory for weights, the init Program, bind and run on the core."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..program import Program, Weight
from ..program.view import StateRow
from . import UNLIMITED, Allocate, Limits
from .blocks import Blocks
from .host import Host
from .interrupt import interruptible
from .onward import InRooms
from .profile import StepTime
from .state import Held, HostRoom, Keeper, Shape
from .weights import load_weights


class Stepwise:
    """A model on a core, this process's own or one in WebAssembly. Not re-entrant: its owner serialises calls."""

    backend: str
    core: Any
    keeper: Keeper

    def bind(self, shapes: Sequence[Sequence[int]], inputs: Sequence[np.ndarray]) -> list[tuple[int, ...] | None]:
        """Fixes the input shapes; returns the output shapes, None for those that are known only while the Program runs."""
        self._dims = [d for shape in shapes for d in shape]
        shapes_out: list[tuple[int, ...] | None] = self.core.bind(self._dims, inputs)
        return shapes_out

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] | list[np.ndarray | None], more: Allocate | None = None
    ) -> None:
        """Runs the bound Program; inputs and outputs are contiguous and of the bound shapes."""
        self.core.run(inputs, outputs, more)

    def run_held(
        self, shapes: Sequence[Sequence[int]], inputs: Sequence[Any], keep: Collection[int], wanted: Collection[int], empty: Allocate
    ) -> list[Any]:
        """Binds and runs; see :meth:`Keeper.run`."""
        return self.keeper.run(self.core, [d for shape in shapes for d in shape], inputs, keep, wanted, empty)

    def seed(self, seed: int) -> None:
        """Where the random numbers of later runs begin."""
        self.core.seed(seed)

    def cancel(self, on: bool = True) -> None:
        """From any thread: the run in progress, or else the next one, ends before its next step; ``on`` False takes that back."""
        self.core.cancel(on)

    def profile(self, inputs: Sequence[np.ndarray], outputs: list[np.ndarray | None], more: Allocate | None = None) -> list[StepTime]:
        """Like ``run``, one step after the other, and what each took."""
        view, origins = self.core.view, self.core.origins
        sizes = view.step_bytes(self.core.evaluate(self._dims, inputs, view.count("registers")))
        self.core.bind(self._dims, inputs)

        def steps() -> list[StepTime]:
            times: list[StepTime] = []
            at = 0.0
            for i, row in enumerate(view.steps):
                took = 1e3 * self.core.run_steps(inputs, outputs, i, i + 1, more)
                times.append(StepTime(origins[row.origin] or row.kernel, row.kernel, self.backend, at, took, sizes[i]))
                at += took
            return times

        return interruptible(steps, self.core.cancel)  # one thread for all of them: one for each step would cost more than most steps


class Executor(Stepwise):
    """A model ready to run on the native core."""

    backend = "cpu"

    def __init__(
        self,
        main: Program,
        init: Program | None,
        weights: Sequence[Weight],
        threads: int = 1,
        library: Any = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        from .core import Core

        memory = load_weights(init, weights, threads, library, limits, main)
        self.core: Core = Core(main.code, memory, main.messages, main.origins, threads, library, limits)
        self.core.host = Host(main.callbacks, limits)
        blocks, dtypes = Blocks(), [DType(row.dtype) for row in self.core.view.outputs]

        def room(shape: Shape, output: int, axis: int) -> HostRoom:
            dtype = to_numpy(dtypes[output])
            return HostRoom(blocks.take(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape), dtypes[output], axis)

        self.keeper = Keeper(self.core.states, room)  # which does not hold this: memory is given back with the last name of it

    @property
    def states(self) -> Sequence[StateRow]:
        """What of a run the next one can go on from."""
        return self.core.states

    def onward(self, held: Sequence[Held], alike: Iterable[Sequence[tuple[int, int]]]) -> InRooms:
        """Runs that all go on where the last one ended."""
        return InRooms(self.core, held, alike)
