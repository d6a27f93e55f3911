"""The host side of a run: memory for weights, the init Program, bind and run on the core."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..program import Program, Weight, homes
from ..program.file import weight_bytes
from ..program.view import StateRow
from . import UNLIMITED, Allocate, Limits
from .given_back import run_init
from .host import Host
from .interrupt import interruptible
from .onward import InRooms
from .profile import StepTime
from .state import Held, HostRoom, Keeper

LINE = 64  # bytes of a cache line


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
            zero = time.perf_counter()
            for i, row in enumerate(view.steps):
                start = time.perf_counter()
                self.core.run_steps(inputs, outputs, i, i + 1, more)
                end = time.perf_counter()
                name = origins[row.origin] or row.kernel
                times.append(StepTime(name, row.kernel, self.backend, (start - zero) * 1e3, (end - start) * 1e3, sizes[i]))
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

        memory = load_weights(init, weights, threads, library, limits)
        self.core: Core = Core(main.code, memory, main.messages, main.origins, threads, library, limits)
        self.core.host = Host(main.callbacks, limits)
        dtypes = [DType(row.dtype) for row in self.core.view.outputs]
        self.keeper = Keeper(self.core.states, lambda shape, i, axis: HostRoom(np.zeros(shape, to_numpy(dtypes[i])), dtypes[i], axis))

    @property
    def states(self) -> Sequence[StateRow]:
        """What of a run the next one can go on from."""
        return self.core.states

    def onward(self, held: Sequence[Held], alike: Iterable[Sequence[tuple[int, int]]]) -> InRooms:
        """Runs that all go on where the last one ended."""
        return InRooms(self.core, held, alike)


def load_weights(
    init: Program | None, weights: Sequence[Weight], threads: int = 1, library: Any = None, limits: Limits = UNLIMITED
) -> list[np.ndarray]:
    """The bytes of every weight, those that init computes included."""
    from .core import Core

    memory = _weights(weights)
    if init is not None:
        core = Core(init.code, memory, init.messages, init.origins, threads, library, limits)
        core.bind([], [])
        run_init(core, memory)
        core.close()
    for k, w in enumerate(memory):
        memory[k] = w.view()
        memory[k].flags.writeable = False  # only the init Program writes weights
    return memory


def _fresh(nbytes: int) -> np.ndarray:
    """Zeros that begin a cache line: vectors of what init packs lie in one each."""
    whole = np.zeros(nbytes + LINE, np.uint8)
    start = -whole.ctypes.data % LINE
    return whole[start : start + nbytes]


def _weights(weights: Sequence[Weight]) -> list[np.ndarray]:
    """One byte array per weight: constants as they are, mapped, and memory for what init computes, in place of what it computed before."""
    homes(weights)  # that each fits
    found = [weight_bytes(w) for w in weights]
    memory: list[np.ndarray] = []
    fresh: dict[int, np.ndarray] = {}
    for k in range(len(weights)):
        while found[k] is None and (over := weights[k].over) is not None and found[over] is None:
            k = over
        data = found[k]
        memory.append(fresh.setdefault(k, _fresh(weights[k].nbytes)) if data is None else data)
    return memory
