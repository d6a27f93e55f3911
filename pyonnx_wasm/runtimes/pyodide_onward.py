"""Runs in a page that go on from what the last one left in the core, as :mod:`.onward` does it in this process."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from . import Allocate
from .onward import compared
from .state import Held, Room

if TYPE_CHECKING:
    from .pyodide import Executor

HELD = -1  # in place of bytes in a frame: what stays in the core, or is not to be copied out of it


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


class InLeft:
    """See :class:`.onward.InRooms`."""

    def __init__(self, executor: Executor, held: Sequence[Held], alike: Iterable[Sequence[tuple[int, int]]] = ()) -> None:
        self.executor, states = executor, executor.states
        begins = [0, *accumulate(2 + rank for rank in executor.ranks)]
        self._begins = begins
        self._words = np.zeros(begins[-1])
        for state, h in zip(states, held, strict=True):
            at = begins[state.past]
            self._words[at + 1 : at + 2 + h.ndim] = HELD, *h.shape
        self._numbers = np.array([begins[state.past] for state in states])
        self._rows = np.array([begins[state.past] + 2 + state.axis for state in states])
        self._stay = {state.output for state in states}
        self._text = json.dumps(sorted(self._stay))
        self._alike, self._first = compared([[begins[i] + 2 + axis for i, axis in group] for group in alike])

    def run(self, given: Mapping[int, np.ndarray], rooms: Sequence[Room], wanted: Collection[int], empty: Allocate) -> list[Any] | None:
        words, begins = self._words, self._begins
        for i, array in given.items():
            words[begins[i] : begins[i + 1]] = address(array), array.nbytes, *array.shape
        words[self._numbers] = [room.memory for room in rooms]
        words[self._rows] = [room.rows for room in rooms]
        if (words[self._alike] != words[self._first]).any():
            return None
        self.executor.place(words)
        return self.executor.run_placed(self._stay, self._text, wanted, empty)
