"""Where the time of a run goes, step by step, in the trace-event format that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

COARSE = 4  # ticks of a clock below which a median says little


@dataclass(frozen=True)
class StepTime:
    """What one step, or one copy between the core and a GPU, took.

    Attributes:
        name: the ONNX nodes behind it; ``"upload"`` or ``"download"`` for a copy.
        kernel: the kernel; ``"copy"`` for a copy.
        backend: ``"cpu"``, ``"gpu"``, or ``"copy"`` between them.
        start_ms, ms: when it began, from the first step, and how long it took: over several runs the median, or the mean where the clock
            is too coarse for a median.
        bytes: of its buffers, or copied.
        low_ms, high_ms: between these lay four runs of five; 0 if there was one run only.
    """

    name: str
    kernel: str
    backend: str
    start_ms: float
    ms: float
    bytes: int
    low_ms: float = 0.0
    high_ms: float = 0.0


def combined(runs: Sequence[Sequence[StepTime]]) -> list[StepTime]:
    """The steps of several runs as one; of runs that took different steps, the last."""
    last = list(runs[-1])
    if len(runs) == 1 or any(len(run) != len(last) for run in runs):
        return last
    tick = min((step.ms for run in runs for step in run if step.ms > 0), default=0.0)
    found: list[StepTime] = []
    start = 0.0
    for steps in zip(*runs, strict=True):
        times = sorted(step.ms for step in steps)
        ms = median(times)
        if ms < COARSE * tick:  # most readings are one tick or none: their mean says more; a tenth is left out for what disturbs
            kept = times[: max(1, len(times) * 9 // 10)]
            ms = sum(kept) / len(kept) or sum(times) / len(times)
        low, high = times[len(times) // 10], times[-1 - len(times) // 10]
        found.append(replace(steps[-1], start_ms=start, ms=ms, low_ms=low, high_ms=high))
        start += ms
    return found


class Enough:
    """When a profile has run often enough: at least ``LEAST`` runs and ``LEAST_SECONDS``, at most ``MOST`` or ``MOST_SECONDS``."""

    LEAST, MOST = 5, 100
    LEAST_SECONDS, MOST_SECONDS = 0.25, 2.0

    def __init__(self, runs: int | None) -> None:
        if runs is not None and runs < 1:
            raise ValueError(f"runs must be at least 1, not {runs}")
        self.runs, self.begin, self.done = runs, time.perf_counter(), 0

    def again(self) -> bool:
        """Whether to run once more; counts it."""
        passed = time.perf_counter() - self.begin
        more = self.done < self.runs if self.runs is not None else self._more(passed)
        self.done += more
        return more

    def _more(self, passed: float) -> bool:
        if self.done == 0:
            return True
        return passed < self.MOST_SECONDS and self.done < self.MOST and (self.done < self.LEAST or passed < self.LEAST_SECONDS)


class Profile(Sequence[StepTime]):
    """The steps of a model, in order.

    Attributes:
        runs: over how many their times are taken. first_ms: what the run before those took as a whole, which warms up; 0 if there was none.
    """

    def __init__(self, steps: Sequence[StepTime], model: str = "", runs: int = 1, first_ms: float = 0.0) -> None:
        self.steps, self.model, self.runs, self.first_ms = list(steps), model, runs, first_ms

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: Any) -> Any:
        return self.steps[index]

    def __iter__(self) -> Iterator[StepTime]:
        return iter(self.steps)

    @property
    def ms(self) -> float:
        return sum(s.ms for s in self.steps)

    def rows(self) -> list[dict[str, Any]]:
        """The steps as dictionaries."""
        return [asdict(s) for s in self.steps]

    def trace(self) -> dict[str, Any]:
        """Trace events, one row per backend (Trace Event Format, "JSON Object Format"); times in microseconds."""
        backends = list(dict.fromkeys(s.backend for s in self.steps))
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": i + 1, "args": {"name": b}} for i, b in enumerate(backends)
        ]
        events.insert(0, {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": self.model or "pyonnx-wasm"}})
        for s in self.steps:
            events.append(
                {
                    "ph": "X",
                    "name": s.kernel if s.backend != "copy" else s.name,
                    "cat": s.backend,
                    "pid": 1,
                    "tid": backends.index(s.backend) + 1,
                    "ts": round(s.start_ms * 1e3, 3),
                    "dur": round(s.ms * 1e3, 3),
                    "args": {"nodes": s.name, "bytes": s.bytes, "backend": s.backend},
                }
            )
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace as JSON."""
        with open(path, "w", encoding="utf-8") as f:
            json.dump(self.trace(), f)

    def __repr__(self) -> str:
        slow = sorted(self.steps, key=lambda s: -s.ms)[:10]
        over = f", over {self.runs} runs after a first of {self.first_ms:.3f} ms" if self.runs > 1 else ""
        lines = [f"{len(self.steps)} steps, {self.ms:.3f} ms{over}; the slowest:"]
        lines += [f"  {s.ms:9.3f} ms  {s.backend:5} {s.kernel:12} {s.bytes:>12,} bytes  {s.name[:60]}" for s in slow]
        return "\n".join(lines)
