"""Where the time of a run goes, step by step, in the trace-event format that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class StepTime:
    """What one step, or one copy between the core and a GPU, took.

    Attributes:
        name: the ONNX nodes behind it; ``"upload"`` or ``"download"`` for a copy.
        kernel: the kernel; ``"copy"`` for a copy.
        backend: ``"cpu"``, ``"gpu"``, or ``"copy"`` between them.
        start_ms, ms: when it began, from the first step, and how long it took.
        bytes: of its buffers, or copied.
    """

    name: str
    kernel: str
    backend: str
    start_ms: float
    ms: float
    bytes: int


class Profile(Sequence[StepTime]):
    """The steps of one run, in order."""

    def __init__(self, steps: Sequence[StepTime], model: str = "") -> None:
        self.steps, self.model = list(steps), model

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
        lines = [f"{len(self.steps)} steps, {self.ms:.3f} ms; the slowest:"]
        lines += [f"  {s.ms:9.3f} ms  {s.backend:5} {s.kernel:12} {s.bytes:>12,} bytes  {s.name[:60]}" for s in slow]
        return "\n".join(lines)
