"""What stays in a runtime's memory from run to run: the cache of a decoder (``PROGRAM.md``, "State"; how to use it: ``STATE.md``).

A :class:`Room` is memory for rows along one axis with place for more behind them. A run appends to it, and never writes a row that is
there already, so every :class:`Held` of it, also an older one, is what it was. The newest goes into a run as it is; what is fed again when
its room has gone on is copied to a room of its own first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np

from ..dtypes import DType
from ..program.view import StateRow
from . import Allocate

LEAST_ROWS = 64

Shape = tuple[int, ...]


class Room(Protocol):
    """Memory of a runtime for the rows of one tensor.

    Attributes:
        shape: with as many rows along ``axis`` as there is room for.
        memory: as the runtime takes it for an output.
        rows: how many the runs so far have filled.
        owner: who gave it; None: no run goes on in it.
    """

    shape: Shape
    dtype: DType
    axis: int
    memory: Any
    rows: int
    owner: object

    def array(self, rows: int) -> np.ndarray:
        """A copy of the first rows, contiguous."""

    def take(self, held: Held) -> int:
        """Begins with the rows of another room; returns the bytes that were copied."""


class HostRoom:
    """A room that numpy sees."""

    def __init__(self, memory: np.ndarray, dtype: DType, axis: int) -> None:
        self.memory, self.shape, self.dtype, self.axis, self.rows = memory, memory.shape, dtype, axis, 0
        self.owner: object = None

    def first(self, rows: int) -> np.ndarray:
        """A view of the first rows."""
        return self.memory[(slice(None),) * self.axis + (slice(rows),)]

    def array(self, rows: int) -> np.ndarray:
        return self.first(rows).copy()

    def take(self, held: Held) -> int:
        to = self.first(held.rows)
        to[...] = held.room.first(held.rows) if isinstance(held.room, HostRoom) and held.room.axis == self.axis else held.array()
        self.rows = held.rows
        return int(to.nbytes)


class Held:
    """A tensor in a room: its first ``rows`` rows."""

    __slots__ = ("__weakref__", "dtype", "room", "rows", "shape")

    def __init__(self, room: Room, rows: int, shape: Shape | None = None) -> None:
        self.room, self.rows, self.dtype = room, rows, room.dtype
        self.shape: Shape = (*room.shape[: room.axis], rows, *room.shape[room.axis + 1 :]) if shape is None else shape

    @property
    def ndim(self) -> int:
        return len(self.room.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def array(self) -> np.ndarray:
        """A copy of the elements, contiguous."""
        return self.room.array(self.rows)


class Keeper:
    """Gives the runs of one core their rooms.

    Args:
        states: of the Program.
        make: a room of zeros: of a shape, for the output of a number, along an axis.
    """

    def __init__(self, states: Sequence[StateRow], make: Callable[[Shape, int, int], Room]) -> None:
        self.states, self.make = states, make
        self._pasts = {state.past for state in states}
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
        inputs = [given.array() if isinstance(given, Held) and i not in self._pasts else given for i, given in enumerate(inputs)]
        rooms = self._newest(inputs)
        contents = [given if isinstance(given, np.ndarray) else None for given in inputs]
        bound = core.bind(dims, contents, self._told(rooms, inputs))
        changed = False
        for k, state in enumerate(self.states):
            room, shape = rooms[k], bound[state.output]
            short = room is not None and shape is not None and shape[state.axis] > room.shape[state.axis]
            if room is not None and shape is not None and not short:
                continue
            given, stays = inputs[state.past], state.output in keep and shape is not None
            if short or (room is None and stays):
                rooms[k], changed = self._placed(state, shape, given), True
            elif (room is None or shape is None) and isinstance(given, Held):
                inputs[state.past], rooms[k] = given.array(), None
                changed = changed or room is not None
        if changed:
            bound = core.bind(dims, contents, self._told(rooms, inputs))
        taken = [(state, room) for state, room in zip(self.states, rooms, strict=True) if room is not None]
        outputs: list[Any] = [None] * len(bound)
        for state, room in taken:
            outputs[state.output] = room.memory
            if isinstance(inputs[state.past], Held):
                inputs[state.past] = room.memory
        for i, shape in enumerate(bound):
            if shape is not None and outputs[i] is None:
                outputs[i] = empty(i, shape)
        core.run(inputs, outputs, empty)
        for state, room in taken:
            shape = bound[state.output]
            rows = shape[state.axis]
            if state.output in keep:
                outputs[state.output], room.rows = Held(room, rows, shape), rows
            else:
                outputs[state.output] = room.array(rows) if state.output in wanted else None
        return outputs

    def _newest(self, inputs: Sequence[Any]) -> list[Room | None]:
        """By state the room of what is fed, where a run may go on in it: nothing was appended since, and nothing else in the run does."""
        rooms: list[Room | None] = []
        before: set[int] = set()
        for past, _, _, axis in self.states:
            given = inputs[past]
            room: Room | None = given.room if isinstance(given, Held) else None
            if room is None or room.owner is not self or room.axis != axis or given.rows != room.rows or id(room) in before:
                rooms.append(None)
                continue
            before.add(id(room))
            rooms.append(room)
        return rooms

    def _placed(self, state: StateRow, shape: Shape, given: Any) -> Room:
        """A room of its own for an output, with the past in it where that was held."""
        axis, most = state.axis, shape[state.axis]
        capacity = max(LEAST_ROWS, most + most // 2)
        room = self.make((*shape[:axis], capacity, *shape[axis + 1 :]), state.output, axis)
        room.owner = self
        if isinstance(given, Held):
            self.copied += room.take(given)
        return room

    def _told(self, rooms: Sequence[Room | None], inputs: Sequence[Any]) -> list[int]:
        """Per state the rows that there is room for, and those of the past that are in place."""
        found: list[int] = []
        for state, room in zip(self.states, rooms, strict=True):
            given = inputs[state.past]
            found += (0, 0) if room is None else (room.shape[room.axis], given.rows if isinstance(given, Held) else 0)
        return found
