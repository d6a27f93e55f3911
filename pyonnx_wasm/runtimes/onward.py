"""Runs of a core in this process that go on in the rooms where the last one ended (``STATE.md``).

What tells of a decoder's caches, sixty and more, is the same from token to token but for one number, and to look through it all again would
take as long as a fifth of the model: here it is kept as the core takes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from ctypes import POINTER, c_int64, c_void_p
from operator import gt
from typing import TYPE_CHECKING

import numpy as np

from . import Allocate
from .state import Held, Room

if TYPE_CHECKING:
    from .core import Core


def compared(groups: Iterable[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Where the members of groups are, and beside each where the first of its group is."""
    pairs = [(at, group[0]) for group in groups for at in group]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _fewer(group: Sequence[int], constant: Collection[int], dims: np.ndarray) -> list[int]:
    """Of axes those that may come to differ: of constants that are equal the first stands for all."""
    found: list[int] = []
    seen: set[int] = set()
    for at in group:
        if at not in constant:
            found.append(at)
        elif (size := int(dims[at])) not in seen:
            seen.add(size)
            found.append(at)
    return found


class InRooms:
    """Runs of a core whose states are all in place.

    Args:
        core: whose states they are.
        held: what the last run gave, by state. It must live when a run begins, and nothing else may have been appended to it.
        alike: groups of axes, as input and axis, that have one size in all of these runs.
    """

    def __init__(self, core: Core, held: Sequence[Held], alike: Iterable[Sequence[tuple[int, int]]] = ()) -> None:
        self.core = core
        inputs, outputs = core.spans
        states, ends = core.states, inputs[-1].end if inputs else 0
        self._dims = np.zeros(ends + 2 * len(states), np.int64)
        self._dims_at = self._dims.ctypes.data_as(POINTER(c_int64))
        told = np.arange(ends, len(self._dims), 2)
        past = np.array([inputs[state.past].begin + state.axis for state in states], np.int64)
        # Where the rows of each state are told, once as its past's and once as what is in place, and where those behind the run come.
        self._moving = np.concatenate([past, told + 1])
        self._present = np.array([outputs[state.output].begin + state.axis for state in states] * 2, np.int64)
        self._most = [h.room.shape[h.room.axis] for h in held]
        #: Of each state, so far, twice.
        self.rows = np.array([h.rows for h in held] * 2, np.int64)
        self._in_stages = core.view.count("stages") > 1
        self._ins, self._outs = (c_void_p * (len(inputs) + len(states)))(), (c_void_p * len(outputs))()
        self._contents = (c_void_p * len(inputs))()
        for state, h in zip(states, held, strict=True):
            span = inputs[state.past]
            self._dims[span.begin : span.end] = h.room.shape
            self._ins[state.past] = self._outs[state.output] = h.room.memory.ctypes.data
        self._dims[told] = self._most
        self._scratch: dict[int, np.ndarray] = {}
        taken = {state.output for state in states}
        self._others = [i for i in range(len(outputs)) if i not in taken]
        constant = {at for state in states for at in range(inputs[state.past].begin, inputs[state.past].end)} - set(past.tolist())
        groups = [[inputs[i].begin + axis for i, axis in group] for group in alike]
        self._alike, self._first = compared(_fewer(group, constant, self._dims) for group in groups)

    def run(
        self, given: Mapping[int, np.ndarray], rooms: Sequence[Room], wanted: Collection[int], empty: Allocate, tell: bool = True
    ) -> list[np.ndarray | Held] | None:
        """One run; None, and nothing has happened, where it does not fit in the rooms or is none of these after all.

        Args:
            given: the other inputs, contiguous.
            rooms: of the states.
            wanted: outputs that are asked for; what comes of others is of no meaning.
            empty: makes the arrays of the other outputs.
            tell: of the states, too; else they are in the rooms alone, which do not know of it.
        """
        core, dims, ins, outs = self.core, self._dims, self._ins, self._outs
        inputs, outputs = core.spans
        for i, array in given.items():
            for at, size in enumerate(array.shape, inputs[i].begin):
                self._dims_at[at] = size
            ins[i] = self._contents[i] = array.__array_interface__["data"][0]
        if self._most:
            dims[self._moving] = self.rows
        if self._alike.size and dims[self._alike].tobytes() != dims[self._first].tobytes():
            return None
        bound = core.bind_at(self._dims_at, self._contents)
        rows = bound[self._present] if self._most else self.rows
        sizes = bound.tolist()
        if (self._in_stages and min(sizes) < 0) or any(map(gt, rows.tolist(), self._most)):
            return None
        found: list[np.ndarray | Held] = [_NOTHING] * len(outputs)
        for i in self._others:
            shape = tuple(sizes[outputs[i].begin : outputs[i].end])
            found[i] = array = self._unread(i, shape, empty) if i not in wanted else empty(i, shape)
            outs[i] = array.__array_interface__["data"][0]
        core.run_at(ins, outs)
        self.rows = rows
        for state, room in zip(core.states, rooms, strict=True) if tell else ():
            span = outputs[state.output]
            room.rows = sizes[span.begin + state.axis]
            found[state.output] = Held(room, room.rows, tuple(sizes[span.begin : span.end]))
        return found

    def _unread(self, i: int, shape: tuple[int, ...], empty: Allocate) -> np.ndarray:
        """An array that nobody sees, for as long as it fits the one of the last run."""
        array = self._scratch.get(i)
        if array is None or array.shape != shape:
            array = self._scratch[i] = empty(i, shape)
        return array


_NOTHING = np.empty(0)
