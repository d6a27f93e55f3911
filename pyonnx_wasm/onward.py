"""The short ways through a session: for runs that go on where its last one ended, a decoder's, and for those that are like it."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import c_int64, c_void_p
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import DType, to_numpy
from .feeds import empty
from .options import RunOptions
from .program import Signature
from .runtimes.core import Core
from .runtimes.cpu import Executor
from .runtimes.onward import InRooms
from .runtimes.state import Held, Room
from .values import OrtValue, plain

if TYPE_CHECKING:
    from .session import InferenceSession

MOST_SHAPES = 64  # that a session remembers at a time
Asked = tuple[list[str], list[str]]  # the outputs that are wanted, and those of them that are to stay


@dataclass
class _Last:
    """A run that others can go on from.

    Attributes:
        wanted: outputs that are asked for, by number.
        pasts, presents: names of the states' inputs and outputs.
        held: what it gave of them; a value that nobody has any more does not stay for a next run.
        others: the inputs that are no pasts, by number.
    """

    asked: Asked
    feed: set[str]
    wanted: set[int]
    executor: Any
    pasts: list[str]
    presents: list[str]
    held: list[weakref.ref[Held]]
    others: dict[int, Signature]
    runs: Any = None


def _fits(value: Any, s: Signature) -> bool:
    """Whether it is an array that can be taken as it is."""
    if type(value) is not np.ndarray or value.ndim != len(s.shape) or value.dtype != to_numpy(s.dtype) or not value.flags.c_contiguous:
        return False
    return all(want == have or not isinstance(want, int) for have, want in zip(value.shape, s.shape, strict=True))


def _further(
    session: InferenceSession,
    last: _Last,
    rooms: Sequence[Room],
    wanted: Collection[int],
    feed: Mapping[str, Any],
    options: RunOptions | None,
    *tell: bool,
) -> list[Any] | None:
    """All outputs of a run that goes on in these rooms; None: it cannot."""
    given: dict[int, np.ndarray] = {}
    for i, s in last.others.items():
        array = feed[s.name]
        if not _fits(array, s):
            array = session.checked(s, plain({s.name: array}, inputs=[s]))
            array = np.ascontiguousarray(array).reshape(array.shape)
        given[i] = array
    outputs = session.signature()[1]
    with nullcontext() if options is None else options.ending(getattr(last.executor, "cancel", None)):
        found: list[Any] | None = last.runs.run(given, rooms, wanted, lambda i, shape: empty(shape, outputs[i].dtype), *tell)
    return found


class Chain:
    """Runs one after the other, each of which goes on where the one before ended. What they remember is theirs until it is asked for."""

    def __init__(self, session: InferenceSession, lock: AbstractContextManager[Any], last: _Last, rooms: Sequence[Room]) -> None:
        self.session, self._lock, self._last, self._rooms = session, lock, last, rooms
        self._keeper = rooms[0].owner
        for room in rooms:
            room.owner = self
        #: The inputs that are no pasts.
        self.others = list(last.others.values())
        self._places = {name: i for i, name in enumerate(session.names[1])}

    def run(self, names: Sequence[str], feed: Mapping[str, Any], options: RunOptions | None = None) -> list[np.ndarray] | None:
        """Outputs that are no presents; None, and nothing has happened, where no run can go on here any more.

        Args:
            feed: the other inputs.
        """
        places = [self._places[name] for name in names]
        with self._lock:
            if not self.session.runs_plainly(self._last.executor):
                return None
            found = _further(self.session, self._last, self._rooms, places, feed, options, False)
        return None if found is None else [found[i] for i in places]

    @property
    def mark(self) -> Any:
        """Where the last run ended; set, the next one goes on from there."""
        return self._last.runs.rows

    @mark.setter
    def mark(self, mark: Any) -> None:
        self._last.runs.rows = mark

    def end(self) -> dict[str, Held]:
        """What the last run gave of the states, by output. There are no further ones."""
        for room, rows in zip(self._rooms, self.mark[: len(self._rooms)].tolist(), strict=True):
            room.rows, room.owner = rows, self._keeper
        return {name: Held(room, room.rows) for name, room in zip(self._last.presents, self._rooms, strict=True)}


class Alike:
    """Runs in this process, without states, of arrays of the dtypes and shapes of ones before: what is the same is not looked at again.

    As little of Python as may be: after a run of the core none of it is in the processor's caches, and each line waits for memory.
    """

    def __init__(self, core: Core, names: tuple[list[str], list[str]], dtypes: Sequence[DType]) -> None:
        self.core, self._names = core, names[1]
        self._inputs = [(name, dtype, to_numpy(dtype)) for name, dtype in zip(names[0], dtypes, strict=True)]
        self._ins, self._outs = (c_void_p * len(names[0]))(), (c_void_p * len(names[1]))()
        #: By the shapes of the inputs: their dims, shapes and dtypes of the outputs.
        self._seen: dict[tuple[tuple[int, ...], ...], tuple[Any, list[tuple[tuple[int, ...], np.dtype[Any]]]]] = {}
        self.brief = True

    def learn(self, shapes: Sequence[tuple[int, ...]], outputs: Sequence[np.ndarray]) -> None:
        """Has seen what a run of these inputs gave."""
        if len(self._seen) >= MOST_SHAPES:
            self._seen.clear()
        dims = [size for shape in shapes for size in shape]
        self._seen[tuple(shapes)] = (c_int64 * len(dims))(*dims), [(array.shape, array.dtype) for array in outputs]

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any]) -> dict[str, Any] | None:
        """All outputs; None, and nothing has happened, where fewer are asked for, or arrays are others."""
        if (names and list(names) != self._names) or len(feed) != len(self._inputs):
            return None
        ins, outs, ndarray = self._ins, self._outs, np.ndarray
        shapes: list[tuple[int, ...]] = []
        for i, (name, onnx, dtype) in enumerate(self._inputs):
            array = feed.get(name)
            if type(array) is not ndarray:
                array = array.own(onnx) if type(array) is OrtValue else None
            if array is None or array.dtype != dtype or not array.flags.c_contiguous:
                return None
            shapes.append(array.shape)
            ins[i] = array.__array_interface__["data"][0]
        seen = self._seen.get(tuple(shapes))
        if seen is None:
            return None
        dims, made = seen
        found: list[np.ndarray] = []
        for shape, dtype in made:
            array = np.empty(shape, dtype)
            outs[len(found)] = array.__array_interface__["data"][0]
            found.append(array)
        self.brief = self.core.again(dims, ins, outs)
        return dict(zip(self._names, found, strict=True))


class Onward:
    """What a session remembers of its last run."""

    def __init__(self) -> None:
        self._last: _Last | None = None
        self._alike: Alike | None = None

    def again(self, lock: AbstractContextManager[Any], names: Sequence[str] | None, feed: Mapping[str, Any]) -> dict[str, Any] | None:
        """The outputs of a run that has the shapes of one before; None, and nothing has happened, where it is another."""
        if self._alike is None:
            return None
        with lock:
            alike = self._alike
            found = alike.run(names, feed) if alike is not None else None
            if found is not None and not alike.brief:
                self._alike = None  # so that Ctrl-C ends the next one
        return found

    def remember(self, session: InferenceSession, executor: Any, asked: Asked, feed: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Has seen a run that went the whole way."""
        self._last = None
        if not hasattr(executor, "onward") or not session.runs_plainly(executor):
            return
        states = executor.states
        if not states and not (isinstance(executor, Executor) and executor.core.plain):
            return
        (names, gives), (inputs, outputs) = session.names, session.signature()
        presents = [gives[state.output] for state in states]
        held = [weakref.ref(h) for name in presents if isinstance(h := found.get(name), Held)]
        pasts = {state.past for state in states}
        others = {i: s for i, s in enumerate(inputs) if i not in pasts}
        packed = any(s.dtype is DType.string or s.dtype.bits < 8 for s in (*others.values(), *outputs))
        if not states and not packed:
            self._compare(executor.core, session, feed, found)
        if len(pasts) == len(held) == len(states) and not packed:
            self._last = _Last(
                asked, set(feed), session.places_of(asked[0]), executor, [names[s.past] for s in states], presents, held, others
            )

    def run(self, session: InferenceSession, asked: Asked, feed: Mapping[str, Any], options: RunOptions | None) -> dict[str, Any] | None:
        """Outputs by name, as :meth:`InferenceSession.run_values` gives them; None: the run is another, and nothing has happened."""
        last = self._last
        if last is None or last.asked != asked or feed.keys() != last.feed:
            return None
        values = [feed[name] for name in last.pasts]
        held = [v.held for v in values if isinstance(v, OrtValue) and v.held is not None]
        if held != [ref() for ref in last.held]:
            return None
        if last.runs is None:
            last.runs = last.executor.onward(held, session.shared_axes())
        found = _further(session, last, [h.room for h in held], last.wanted, feed, options)
        if found is None:
            return None
        by_name = dict(zip(session.names[1], found, strict=True))
        if not last.pasts:
            self._compare(last.executor.core, session, feed, by_name)
        last.held = [weakref.ref(h) for name in last.presents if isinstance(h := by_name[name], Held)]
        return {name: by_name[name] for name in asked[0]}

    def _compare(self, core: Core, session: InferenceSession, feed: Mapping[str, Any], found: Mapping[str, np.ndarray]) -> None:
        """Has seen a run without states: later ones may be like it."""
        (names, gives), inputs = session.names, session.signature()[0]
        arrays = [value.own(s.dtype) if type(value := feed[s.name]) is OrtValue else value for s in inputs]
        outputs = [found[name] for name in gives]
        shapes = [array.shape for array, s in zip(arrays, inputs, strict=True) if array is not None and _fits(array, s)]
        fit = len(shapes) == len(inputs) and all(type(array) is np.ndarray for array in outputs)
        if fit and core.brief and not session.get_session_options().enable_profiling:
            if self._alike is None or self._alike.core is not core:
                self._alike = Alike(core, (names, gives), [s.dtype for s in inputs])
            self._alike.learn(shapes, outputs)

    def chain(self, session: InferenceSession, lock: AbstractContextManager[Any], values: Mapping[str, OrtValue]) -> Chain | None:
        """Runs that go on from the last one; None where this backend has none, or where these are not all that it gave.

        Args:
            values: of the states, by output.
        """
        last = self._last
        if last is None or not last.presents or values.keys() != set(last.presents):
            return None
        held = [v.held for name in last.presents if (v := values[name]).held is not None]
        if held != [ref() for ref in last.held]:
            return None
        runs = last.executor.onward(held, session.shared_axes())
        if not isinstance(runs, InRooms):
            return None
        self._last = None  # what was given so far is of the chain's rooms, in which only the chain goes on
        return Chain(session, lock, replace(last, runs=runs), [h.room for h in held])
