"""What stays in a runtime's memory from run to run: the cache of a decoder (``PROGRAM.md``, "State"; how to use it: ``STATE.md``).

A :class:`Room` is memory for rows along one axis with place for more behind them. A run appends to it, and never writes a row that is
there already, so every :class:`Held` of it, also an older one, is what it was. The newest goes into a run as it is; what is fed again when
its room has gone on is copied to a room of its own first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType
from ..program.view import StateRow
from . import Allocate

LEAST_ROWS = 64

Shape = tuple[int, ...]


class Room:
    """Memory of a runtime for the rows of one tensor.

    Attributes:
        memory: whole of it, with as many rows along ``axis`` as there is room for.
        rows: how many the runs so far have filled.
        owner: the runtime whose memory it is.
    """

    def __init__(self, memory: np.ndarray, dtype: DType, axis: int, owner: object) -> None:
        self.memory, self.dtype, self.axis, self.owner, self.rows = memory, dtype, axis, owner, 0

    @property
    def capacity(self) -> int:
        return int(self.memory.shape[self.axis])

    def first(self, rows: int) -> np.ndarray:
        """A view of the rows up to a number."""
        return self.memory[(slice(None),) * self.axis + (slice(rows),)]


@dataclass(eq=False)
class Held:
    """A tensor in a room: its first ``rows`` rows."""

    room: Room
    rows: int

    @property
    def shape(self) -> Shape:
        return self.room.first(self.rows).shape

    @property
    def ndim(self) -> int:
        return self.room.memory.ndim

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> DType:
        return self.room.dtype

    def array(self) -> np.ndarray:
        """A copy of the elements, contiguous."""
        return self.room.first(self.rows).copy()


class Keeper:
    """Gives the runs of one core their rooms.

    Args:
        states: of the Program.
        make: an array of zeros in the core's memory, of a shape and for an output's number.
        dtypes: of the outputs.
    """

    def __init__(self, states: Sequence[StateRow], make: Callable[[Shape, int], np.ndarray], dtypes: Sequence[DType]) -> None:
        self.states, self.make, self.dtypes = states, make, dtypes
        #: Bytes of rows that were copied to another room.
        self.copied = 0

    def run(
        self,
        core: Any,
        dims: Sequence[int],
        inputs: Sequence[Any],
        keep: Collection[int],
        wanted: Collection[int],
        empty: Allocate,
    ) -> list[Any]:
        """Binds and runs.

        Args:
            dims: of all inputs, one after the other.
            inputs: arrays and :class:`Held`.
            keep: outputs that come as :class:`Held`, where they may stay.
            wanted: outputs that are asked for; others may be None.
            empty: makes the arrays of what does not stay.
        """
        pasts = {state.past for state in self.states}
        inputs = [given.array() if isinstance(given, Held) and i not in pasts else given for i, given in enumerate(inputs)]
        rooms: list[Room | None] = []
        for state in self.states:
            rooms.append(self._newest(state, inputs, rooms))
        contents = [given if isinstance(given, np.ndarray) else None for given in inputs]
        bound = core.bind(dims, contents, self._told(rooms, inputs))
        changed = False
        for k, state in enumerate(self.states):
            shape, given = bound[state.output], inputs[state.past]
            stays = state.output in keep and shape is not None
            room = rooms[k]
            short = room is not None and shape is not None and shape[state.axis] > room.capacity
            if short or (room is None and stays):
                rooms[k], changed = self._placed(state, shape, given), True
            elif (room is None or shape is None) and isinstance(given, Held):
                inputs[state.past], rooms[k] = given.array(), None
                changed = changed or room is not None
        if changed:
            bound = core.bind(dims, contents, self._told(rooms, inputs))
        taken = {state.output: room for state, room in zip(self.states, rooms, strict=True) if room is not None}
        outputs: list[Any] = [None if shape is None or i in taken else empty(i, shape) for i, shape in enumerate(bound)]
        for i, room in taken.items():
            outputs[i] = room.memory
        core.run([given.room.memory if isinstance(given, Held) else given for given in inputs], outputs, empty)
        for state in self.states:
            into = taken.get(state.output)
            if into is not None:
                rows = bound[state.output][state.axis]
                if state.output in keep:
                    outputs[state.output], into.rows = Held(into, rows), rows
                else:
                    outputs[state.output] = into.first(rows).copy() if state.output in wanted else None
        return outputs

    def _newest(self, state: StateRow, inputs: Sequence[Any], rooms: Sequence[Room | None]) -> Room | None:
        """The room of what is fed, where the run may go on in it: nothing was appended since, and nothing else in this run does."""
        given = inputs[state.past]
        if not isinstance(given, Held) or given.room.owner is not self or given.room.axis != state.axis or given.rows != given.room.rows:
            return None
        return None if given.room in rooms else given.room

    def _placed(self, state: StateRow, shape: Shape, given: Any) -> Room:
        """A room of its own for an output, with the past in it where that was held."""
        axis, most = state.axis, shape[state.axis]
        capacity = max(LEAST_ROWS, most + most // 2)
        memory = self.make((*shape[:axis], capacity, *shape[axis + 1 :]), state.output)
        room = Room(memory, self.dtypes[state.output], axis, self)
        if isinstance(given, Held):
            room.first(given.rows)[...] = given.room.first(given.rows) if given.room.axis == axis else given.array()
            room.rows = given.rows
            self.copied += given.room.first(given.rows).nbytes
        return room

    def _told(self, rooms: Sequence[Room | None], inputs: Sequence[Any]) -> list[int]:
        """Per state the rows that there is room for, and those of the past that are in place."""
        found: list[int] = []
        for state, room in zip(self.states, rooms, strict=True):
            given = inputs[state.past]
            found += (0, 0) if room is None else (room.capacity, given.rows if isinstance(given, Held) else 0)
        return found
