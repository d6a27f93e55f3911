"""``InferenceSession(..., providers=["browser"])``: compiled in the kernel, run in the browser that shows the notebook."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import interface
from ..options import RunOptions, SessionOptions
from ..program import Compiled
from ..providers import paired
from ..runtimes.profile import Profile, StepTime, combined
from ..session import InferenceSession
from .bridge import RemoteModel, bridge
from .rpc import STALL_SECONDS, Call, Reply
from .wait import wait, wait_async
from .wire import Tensor

BACKENDS = ("webgpu", "wasm")
IN_FLIGHT = 4


class BrowserSession(InferenceSession):
    """A session whose runs happen in the browser. Runs block the cell, not the kernel's connection; ``run_async`` does neither.

    A run finds its page when it starts: after a reload the model is opened again, from the browser's cache. Pages open the model as
    soon as they can, so the first run waits for what is left of the transfer.

    Args:
        providers: ``["browser"]``, or ``[("browser", {"backends": ["wasm"]})]`` to say which backends to try there, in order; by default
            ``webgpu``, then ``wasm``; ``stall_seconds`` is how long the page may take from one sign of progress to the next (600).
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **others: Any,
    ) -> None:
        self._backends, self._stall = _options(paired(providers, provider_options))
        self._bridge = bridge()
        self._stats: dict[str, Any] = {}
        super().__init__(path_or_bytes, sess_options, providers, provider_options, **others)

    def _executor(self, compiled: Compiled) -> Any:
        return self._bridge.open(compiled, self._backends, self._stall)

    @property
    def bridge(self) -> Any:
        """The widget to display: a badge that shows where and how models run. Some front ends connect only once it is displayed."""
        return self._bridge.widget

    @property
    def browser(self) -> dict[str, Any] | None:
        """What the browser can do: adapter with limits and features, isolation, secure context; None before it connected."""
        return self._bridge.info

    @property
    def providers(self) -> list[str]:
        """``browser``, and the backend there once something ran."""
        return ["browser", *([self._stats["backend"]] if "backend" in self._stats else [])]

    @property
    def last_run(self) -> dict[str, Any]:
        """Of the latest run: its backend with the reason for a ``fallback``, threads, and ``ms`` in the browser."""
        return dict(self._stats)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None) -> list[Any]:
        """As :meth:`InferenceSession.run`; also raises NoBrowser where no page answers, RemoteError where the browser refuses."""
        return self._results(wait(self._start(output_names, input_feed)))

    def run_values(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        keep: Collection[str],
        run_options: RunOptions | None = None,
        away: Collection[str] = (),
    ) -> dict[str, Any]:
        """As :meth:`run`, by name; all come here."""
        names = list(output_names or self._names[1])
        return dict(zip(names, self.run(names, input_feed, run_options), strict=True))

    async def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """As :meth:`run`, for ``await`` in a cell."""
        return self._results(await wait_async(self._start(output_names, input_feed)))

    def profile(self, input_feed: Mapping[str, Any], runs: int | None = None) -> Profile:
        """As :meth:`InferenceSession.profile`, measured in the browser; the way there and back is not in it."""
        if runs is not None and runs < 1:
            raise ValueError(f"runs must be at least 1, not {runs}")
        model, feeds, _ = self._prepared(None, input_feed)
        found = wait(model.profile(feeds, runs)).json
        measured = [_steps(found["steps"], row) for row in found["times"]]
        return Profile(combined(measured), str(model.ref["name"]), len(measured), float(found["first"]))

    def map(self, feeds: Iterable[Mapping[str, Any]], output_names: Sequence[str] | None = None, in_flight: int = IN_FLIGHT) -> Results:
        """Runs many inputs, several under way at a time; results come in order, by ``for`` or ``async for``.

        Args:
            feeds: what ``run`` takes, one after the other; read as results are taken.
            in_flight: runs under way at most.
        """
        if in_flight < 1:
            raise ValueError(f"in_flight must be at least 1, not {in_flight}")
        return Results(self, iter(feeds), output_names, in_flight)

    def _start(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> Call:
        model, feeds, wanted = self._prepared(output_names, input_feed)
        faces = {face.name: face for face in self._faces[1]}
        return model.run(feeds, [s.name for s in interface.signatures([faces[name] for name in wanted])])

    def _prepared(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> tuple[RemoteModel, list[Tensor], list[str]]:
        """The compiled model for these inputs, the inputs as they travel, and the names of the outputs wanted."""
        arrays, wanted = self._request(output_names, input_feed)
        with self._lock:
            model: RemoteModel = self._variant(arrays)  # type: ignore[assignment]
        feeds = [Tensor.of(a, s.name, s.dtype, "input") for a, s in zip(arrays, self._inputs, strict=True)]
        return model, feeds, wanted

    def _results(self, reply: Reply) -> list[Any]:
        self._stats = dict(reply.json) if isinstance(reply.json, dict) else {}
        first = {face.tensors()[0][0]: face for face in self._faces[1]}
        given = [first[t.name] for t in reply.tensors if t.name in first]
        return list(interface.to_values(given, [t.numpy() for t in reply.tensors]).values())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "provider": ("browser", {"backends": self._backends, "stall_seconds": self._stall})}


class Results:
    """The results of :meth:`BrowserSession.map`, in order."""

    def __init__(self, session: BrowserSession, feeds: Iterator[Mapping[str, Any]], output_names: Sequence[str] | None, most: int) -> None:
        self._session, self._feeds, self._names, self._most = session, feeds, output_names, most
        self._calls: deque[Call] = deque()

    def _fill(self) -> Call | None:
        """Starts what may be under way; the call whose result is next."""
        while len(self._calls) < self._most:
            feed = next(self._feeds, None)
            if feed is None:
                break
            self._calls.append(self._session._start(self._names, feed))
        return self._calls.popleft() if self._calls else None

    def __iter__(self) -> Iterator[list[Any]]:
        try:
            while call := self._fill():
                yield self._session._results(wait(call, self._calls))
        finally:
            self._stop()

    async def __aiter__(self) -> AsyncIterator[list[Any]]:
        try:
            while call := self._fill():
                yield self._session._results(await wait_async(call, self._calls))
        finally:
            self._stop()

    def _stop(self) -> None:
        while self._calls:
            self._calls.pop().cancel()


def _steps(steps: Sequence[Mapping[str, Any]], times: Sequence[float]) -> list[StepTime]:
    return [StepTime(s["name"], s["kernel"], s["backend"], 0.0, float(ms), int(s["bytes"])) for s, ms in zip(steps, times, strict=True)]


def _options(providers: Sequence[str | tuple[str, Any]] | None) -> tuple[list[str], float]:
    options: dict[str, Any] = next((p[1] for p in providers or () if not isinstance(p, str) and p[0] == "browser"), {})
    if unknown := set(options) - {"backends", "stall_seconds"}:
        raise ValueError(f"the browser has no option {', '.join(sorted(unknown))}; it has backends and stall_seconds")
    chosen, stall = list(options.get("backends", BACKENDS)), options.get("stall_seconds", STALL_SECONDS)
    if not chosen or not set(chosen) <= set(BACKENDS):
        raise ValueError(f"backends of the browser are {', '.join(BACKENDS)}, not {chosen}")
    if not isinstance(stall, (int, float)) or not stall > 0:
        raise ValueError(f"stall_seconds is a number of seconds above 0, not {stall!r}")
    return chosen, float(stall)
