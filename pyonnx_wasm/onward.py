"""Tells the runs of a session that go on where its last one ended from all others: a decoder's, token by token."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import DType
from .feeds import empty
from .options import RunOptions
from .program import Signature
from .runtimes.state import Held
from .values import OrtValue, plain

if TYPE_CHECKING:
    from .session import InferenceSession

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


class Onward:
    """The short way through a session, for runs that are fed what the last one gave."""

    def __init__(self) -> None:
        self._last: _Last | None = None

    def remember(self, session: InferenceSession, executor: Any, asked: Asked, feed: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Has seen a run that went the whole way."""
        self._last = None
        states = executor.states if hasattr(executor, "onward") and session.runs_plainly(executor) else ()
        if not states:
            return
        (names, gives), (inputs, outputs) = session.names, session.signature()
        presents = [gives[state.output] for state in states]
        held = [weakref.ref(h) for name in presents if isinstance(h := found.get(name), Held)]
        pasts = {state.past for state in states}
        others = {i: s for i, s in enumerate(inputs) if i not in pasts}
        packed = any(s.dtype is DType.string or s.dtype.bits < 8 for s in (*others.values(), *outputs))
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
        arrays = [session.checked(s, plain({s.name: feed[s.name]})) for s in last.others.values()]
        given = {i: np.ascontiguousarray(array).reshape(array.shape) for i, array in zip(last.others, arrays, strict=True)}
        outputs = session.signature()[1]
        with (options or RunOptions()).ending(getattr(last.executor, "cancel", None)):
            found = last.runs.run(given, [h.room for h in held], last.wanted, lambda i, shape: empty(shape, outputs[i].dtype))
        if found is None:
            return None
        by_name = dict(zip(session.names[1], found, strict=True))
        last.held = [weakref.ref(h) for name in last.presents if isinstance(h := by_name[name], Held)]
        return {name: by_name[name] for name in asked[0]}
