"""Runs many cases: in worker processes that may end or hang, with a bar; collects, shrinks and prints what is wrong."""

from __future__ import annotations

import multiprocessing as mp
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from tqdm import tqdm

from . import backends, cases, emit, judge
from .shrink import shrink
from .sketch import Case

PATIENCE = 60.0  # seconds that a case may take
CHUNK = 2048
ORACLES = ("onnxruntime", "reference", "wide")


@dataclass(frozen=True)
class Finding:
    """A case that is wrong."""

    index: int
    name: str
    status: str
    detail: str

    @property
    def group(self) -> tuple[str, str, str]:
        return self.status, self.name, judge.kind(self.detail)


@dataclass
class Report:
    """What the cases ended in, by kind of case and status; the findings by group; what else is worth a look."""

    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    findings: dict[tuple[str, str, str], list[Finding]] = field(default_factory=lambda: defaultdict(list))
    others: dict[tuple[str, str, str], list[Finding]] = field(default_factory=lambda: defaultdict(list))

    def take(self, found: Finding) -> bool:
        """Counts what a case ended in; true for a finding."""
        kind = "bait" if found.name.startswith("bait.") else "graph" if found.name == "graph" else "operator"
        self.counts[kind][found.status] += 1
        if found.status in ("wrong", "refused", "failed", "crash", "hang", "error"):
            self.findings[found.group].append(found)
            return True
        if found.status != "agrees":
            self.others[found.group].append(found)
        return False

    @property
    def total(self) -> int:
        return sum(sum(c.values()) for c in self.counts.values())

    def table(self) -> str:
        """Counts by kind, and one line per group of findings with its first cases."""
        lines = []
        for kind, counts in sorted(self.counts.items()):
            lines.append(f"{kind:9} {sum(counts.values()):7,}: " + ", ".join(f"{n:,} {s}" for s, n in counts.most_common()))
        for group, found in sorted(self.findings.items(), key=lambda kv: (kv[0][0], kv[0][1])):
            lines.append(f"{len(found):6}  {' · '.join(group)}  [{', '.join(str(f.index) for f in found[:4])}]")
        return "\n".join(lines)


def run_one(seed: int, index: int, only: str, answers: judge.Answers, backend: str = "cpu") -> Finding:
    """One case, judged."""
    name = "?"
    try:
        case = cases.for_backend(cases.case(seed, index, only), backend)
        name = case.name
        verdict = judge.judge(case, answers(case), backend)
    except Exception as error:
        return Finding(index, name, "error", f"{judge.plain(error)} {traceback.format_exc()[-400:]}")
    return Finding(index, name, verdict.status, verdict.detail)


def run_here(seed: int, indices: Iterable[int], backend: str, only: str = "") -> Report:
    """Runs cases in this process."""
    report = Report(seed)
    with backends.opened(backend) as answers:
        for index in indices:
            report.take(run_one(seed, index, only, answers, backend))
    return report


def run(seed: int, indices: Sequence[int], backend: str = "cpu", only: str = "", jobs: int = 1, progress: bool = True) -> Report:
    """Runs cases in ``jobs`` processes and tells each finding as it comes, with a bar on a terminal.

    A case that ends its process is a crash, one that takes too long a hang; Ctrl-C ends early.
    """
    report = Report(seed)
    bar = tqdm(total=len(indices), unit="case", disable=None if progress else True, smoothing=0.05)
    try:
        for found in _work(seed, list(indices), backend, only, jobs):
            bar.update()
            if report.take(found) and progress:
                bar.write(f"{found.index:8}  {found.status} · {found.name} · {found.detail.splitlines()[0][:200]}")
                sys.stdout.flush()
            if bar.disable and progress and report.total % 5000 == 0:
                print(f"{report.total:8,} cases", flush=True)
    except KeyboardInterrupt:
        print(f"ended after {report.total:,} cases")
    bar.close()
    return report


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    left: list[int]
    since: float
    where: str = "start"


def _work(seed: int, indices: list[int], backend: str, only: str, jobs: int) -> Iterator[Finding]:
    context = mp.get_context("spawn")
    chunks = [indices[i : i + CHUNK] for i in range(0, len(indices), CHUNK)][::-1]
    workers: list[_Worker] = []

    def start(left: list[int]) -> None:
        ours, theirs = context.Pipe()
        process = context.Process(target=_child, args=(seed, left, backend, only, theirs), daemon=True)
        process.start()
        theirs.close()
        workers.append(_Worker(process, ours, list(left), time.monotonic()))

    while chunks or workers:
        while chunks and len(workers) < jobs:
            start(chunks.pop())
        ready = wait([w.pipe for w in workers], timeout=1.0)
        for worker in list(workers):
            status = ""
            if worker.pipe in ready:
                try:
                    told = worker.pipe.recv()
                    worker.since = time.monotonic()
                    if isinstance(told, str):
                        worker.where = told
                        continue
                    worker.left.remove(told.index)
                    worker.where = "cases"
                    yield told
                except (EOFError, OSError):
                    worker.process.join(5)
                    status = "crash" if worker.left else "done"
            elif time.monotonic() - worker.since > PATIENCE + (60 if worker.where == "start" else 0):
                status = "hang"
            if status:
                worker.process.kill()
                workers.remove(worker)
                if status != "done":
                    index = worker.left.pop(0)
                    text = f"{status} in {worker.where}, exit code {worker.process.exitcode}"
                    ours = worker.where not in ORACLES
                    yield Finding(index, _name(seed, index, only), status if ours else "unjudged", text)
                    if worker.left:
                        chunks.append(worker.left)


def _name(seed: int, index: int, only: str) -> str:
    try:
        return cases.case(seed, index, only).name
    except Exception:
        return "?"


def _child(seed: int, indices: list[int], backend: str, only: str, pipe: Connection) -> None:
    """A worker: tells where it is, and what each case ended in."""
    import os
    import sys

    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    from . import oracles

    for name in ORACLES:
        setattr(oracles, name, _told(name, getattr(oracles, name), pipe))
    with backends.opened(backend) as answers:
        told = _told(backend, answers, pipe)
        for index in indices:
            pipe.send(run_one(seed, index, only, told, backend))
    pipe.close()
    os._exit(0)  # an oracle's std::thread that still runs when destructors do would end the process by std::terminate


def _told(name: str, call: Any, pipe: Connection) -> Any:
    def telling(*args: Any) -> Any:
        pipe.send(name)
        return call(*args)

    return telling


def smallest(case: Case, backend: str, status: str, seconds: float = 40.0) -> Case:
    """The case made small, as long as it ends in the same status for the same kind of reason."""
    with backends.opened(backend) as answers:
        first = judge.judge(case, answers(case), backend)

        def fails(candidate: Case) -> bool:
            verdict = judge.judge(candidate, answers(candidate), backend)
            alike = judge.kind(verdict.detail) == judge.kind(first.detail) if status in ("refused", "failed") else True
            return verdict.status == status and verdict.by == first.by and alike

        return shrink(case, fails, seconds)


def shown(seed: int, found: Finding, backend: str, only: str = "", small: bool = True) -> str:
    """A finding as a test, made small."""
    case = cases.for_backend(cases.case(seed, found.index, only), backend)
    if small and found.status in ("wrong", "refused", "failed"):
        case = smallest(case, backend, found.status)
    title = f"{found.status}, seed {seed}, case {found.index}: {found.detail.splitlines()[0][:200]}"
    return emit.text_of(case, title, backend)
