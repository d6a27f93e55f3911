"""Statistics, the machine, and the table."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]

LEAST_PAIRS = 9  # of few a neighbour on the machine decides the median
MOST_REPEATS = 1000  # of a run within a block: a clock that saw nothing says nothing of how many fit


def machine() -> dict[str, Any]:
    """Processor, cores and system, as far as the system tells."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.platform(terse=True), "python": platform.python_version()}


@dataclass(frozen=True)
class Limits:
    """How long a case is measured: pairs at most, seconds for them, seconds of warm-up."""

    runs: int
    seconds: float
    warm_up: float


def pairs(sides: Sequence[Callable[[int], float]], limits: Limits, block_ms: float = 50.0) -> list[list[float]]:
    """Milliseconds per run of each side, from pairs of blocks whose order alternates.

    A side takes how often to run and returns its mean. The warm-up alternates too: browsers optimise code that ran for a while. Each block
    follows a run that does not count: threads of the other side may still wait for work in a loop, and caches hold the other's weights.
    """
    last = [run(1) for run in sides]
    end = time.perf_counter() + limits.warm_up
    while time.perf_counter() < end:
        last = [min(run(1), ms) for run, ms in zip(sides, last, strict=True)]
    repeats = [_repeats(run, ms, block_ms) for run, ms in zip(sides, last, strict=True)]
    times: list[list[float]] = [[] for _ in sides]
    end = time.perf_counter() + limits.seconds
    for i in range(limits.runs):
        if i >= LEAST_PAIRS and time.perf_counter() >= end:
            break
        for k in range(len(sides)) if i % 2 == 0 else reversed(range(len(sides))):
            sides[k](1)
            times[k].append(sides[k](repeats[k]))
    return times


def _repeats(run: Callable[[int], float], ms: float, block_ms: float) -> int:
    """How many runs fill a block; one run alone, as long as ``ms``, may be mostly what the clock itself costs."""
    repeat = 1
    while (fits := min(max(1, round(block_ms / max(ms, 1e-6))), MOST_REPEATS)) > 2 * repeat:
        repeat = fits
        ms = run(repeat)
    return repeat


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Medians in ms and the median of the ratios pair by pair; above 1 we are faster."""
    return {
        "ours_ms": round(statistics.median(ours), 4),
        "theirs_ms": round(statistics.median(theirs), 4),
        "ratio": round(statistics.median(b / max(a, 1e-9) for a, b in zip(ours, theirs, strict=True)), 4),
        "pairs": len(ours),
    }


def difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> dict[str, Any]:
    """Greatest error relative to each output's scale, and whether all agree (rtol 1e-3, atol 1e-4 of the scale)."""
    error, agree = 0.0, len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=False):
        if a.shape != b.shape or a.dtype != b.dtype:
            return {"error": None, "agree": False}
        x, y = a.astype(np.float64), b.astype(np.float64)
        scale = float(np.max(np.abs(y), where=np.isfinite(y), initial=0.0))
        with np.errstate(invalid="ignore"):
            distance = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
            close = np.isfinite(distance) & (distance <= 1e-4 * scale + 1e-3 * np.abs(y))
        agree = agree and bool(np.all(close | (distance == 0)))
        error = max(error, float(np.max(np.nan_to_num(distance, nan=math.inf, posinf=math.inf), initial=0.0)) / (scale or 1.0))
    return {"error": error if math.isfinite(error) else None, "agree": agree}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Geometric means of the ratios, of runs and of starts, over f32 models whose outputs agree, and the worst of the runs."""
    counted = [row for row in rows if row.get("agree") and not row["quantised"]]
    if not counted:
        return {"cases": 0, "geomean": None, "start_geomean": None, "worst": None}
    worst = min(counted, key=lambda row: float(row["ratio"]))

    def mean(key: str) -> float | None:
        logs = [math.log(row[key]) for row in counted if row.get(key)]
        return round(math.exp(statistics.fmean(logs)), 4) if logs else None

    return {
        "cases": len(counted),
        "geomean": mean("ratio"),
        "start_geomean": mean("start_ratio"),
        "worst": worst["case"],
        "worst_ratio": worst["ratio"],
    }


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Aligned columns: the first to the left, the others to the right."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    lines = [heads, *([row.get(head, "") for head in heads] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]

    def text(line: Sequence[str]) -> str:
        return "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))]).rstrip()

    return "\n".join([text(lines[0]), "  ".join("-" * w for w in widths), *map(text, lines[1:])])


def milliseconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def gflops(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def mebibytes(value: float) -> str:
    return f"{value / 2**20:.1f}" if value < 100 * 2**20 else f"{value / 2**20:.0f}"


def steps(row: Row) -> list[str]:
    """The slowest steps of a case, a line each; a fused step is named by its first node."""

    def name(nodes: str) -> str:
        first, *rest = nodes.split(" + ")
        return f"{first} + {len(rest)} more" if rest else first

    return [f"    {s['ms']:9.3f} ms {s['share']:4.0%}  {s['kernel']:<14} {name(s['name'])}" for s in row.get("steps", ())]


def slowest(times: Sequence[tuple[str, str, float]], count: int) -> list[Row]:
    """The slowest ``(kernel, name, ms)`` with their share of the whole."""
    whole = sum(ms for _, _, ms in times) or 1.0
    ranked = sorted(times, key=lambda step: -step[2])[:count]
    return [{"kernel": kernel, "name": name, "ms": round(ms, 4), "share": round(ms / whole, 4)} for kernel, name, ms in ranked]
