"""``Profile``: where the time of a run goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from .rpc import Reply, Request
from .widget import BACKENDS, Model, ModelWidget
from .wire import Tensor


class Profile(ModelWidget):
    """Draws the timeline of a run in the browser: steps in time, by kernel, and a table of them.

    Args:
        model: path or bytes of a model, a compiled model, or a session.
        feeds: inputs; by default random ones of ``seed`` and ``dims``, which can be changed in the widget.
        trace: steps to show instead of running: see :attr:`trace`.
        backends: where to run, in order of preference. runs: how many are timed at least, after one that warms up; the median of each
            step is shown, the mean where the clock is too coarse for one.
    Attributes:
        value: the steps that ran in the browser, dicts of ``name`` (the ONNX nodes), ``kernel``, ``ms``, ``backend``.
        trace: steps from Python, shown when set: what ``session.profile(feeds)`` gives; dicts with ``ms`` and perhaps ``start``, ``bytes``,
            ``kernel`` and ``nodes`` or ``name``; or trace events (``ph: "X"`` with ``ts`` and ``dur`` in µs).
    Raises:
        ValueError: the trace or the feeds are not of these forms.
    """

    value: traitlets.List[Any] = traitlets.List(read_only=True)
    trace = traitlets.Any([]).tag(sync=True)

    def __init__(
        self,
        model: Model,
        *,
        feeds: Mapping[str, Any] | None = None,
        trace: Any = (),
        dims: Mapping[str, int] | None = None,
        seed: int = 0,
        backends: Sequence[str] = BACKENDS,
        runs: int = 5,
        title: str | None = None,
    ) -> None:
        spec = {"dims": dict(dims or {}), "seed": seed, "runs": runs, "live": not steps(trace), "given": feeds is not None}
        super().__init__(model, "profile", spec, tuple(backends), title)
        self._feeds = feed_tensors(self, feeds)
        self._rpc.handle("feeds", lambda request: Reply(None, self._feeds))
        self._rpc.handle("value", self._take)
        self.trace = trace

    @traitlets.validate("trace")
    def _steps(self, proposal: Any) -> list[dict[str, Any]]:
        return steps(proposal["value"])

    def _take(self, request: Request) -> None:
        self.set_trait("value", steps(request.json["steps"]))


def feed_tensors(widget: ModelWidget, feeds: Mapping[str, Any] | None) -> list[Tensor]:
    """Arrays for the page, checked against the inputs' names."""
    if feeds is None:
        return []
    inputs, _ = widget._signature()
    if set(feeds) != {s.name for s in inputs}:
        raise ValueError(f"feeds are for {sorted(feeds)}; the model takes {', '.join(s.name for s in inputs)}")
    return [Tensor.of(np.asarray(feeds[s.name]), s.name, s.dtype) for s in inputs]


def steps(trace: Any) -> list[dict[str, Any]]:
    """Steps as the page takes them, from a session's profile, dicts or Chrome trace events."""
    if hasattr(trace, "rows"):
        trace = trace.rows()
    if isinstance(trace, Mapping):
        trace = trace.get("traceEvents", ())
    if not isinstance(trace, Sequence) or not all(isinstance(e, Mapping) for e in trace):
        raise ValueError(f"a trace is what session.profile(...) gives, a list of dicts, or trace events, not {type(trace).__name__}")
    events = [e for e in trace if e.get("ph", "X") == "X"]
    origin = min((float(e["ts"]) for e in events if "ts" in e), default=0.0)
    found = []
    for e in events:
        start: float | None = None
        if "dur" in e:
            ms, start = float(e["dur"]) / 1000, (float(e["ts"]) - origin) / 1000
        elif "ms" in e:
            ms, start = float(e["ms"]), next((float(e[k]) for k in ("start", "start_ms") if k in e), None)
        else:
            raise ValueError(f"a step of a trace has 'ms', or 'ts' and 'dur': {e!r}")
        more = {**e.get("args", {}), **e}
        kernel = str(more.get("kernel") or (more.get("name") if "nodes" in more else more.get("cat")) or "step")
        nodes = more.get("nodes", more.get("origin", more.get("name", kernel)))
        step = {"name": nodes if isinstance(nodes, str) else ", ".join(map(str, nodes)), "kernel": kernel, "ms": ms}
        if start is not None:
            step["start"] = start
        if more.get("bytes"):
            step["bytes"] = int(more["bytes"])
        if "backend" in more:
            step["backend"] = str(more["backend"])
        found.append(step)
    return found


__all__ = ["Profile"]
