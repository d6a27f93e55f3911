"""Ours against onnxruntime in one process."""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import compiler
from ..dtypes import to_numpy
from ..options import SessionOptions
from ..program import Compiled
from ..runtimes import call
from ..runtimes.cpu import Executor
from ..session import InferenceSession
from ..testing.peer import exact
from . import parts, report
from .cases import Case

REBINDS = 64


def versions() -> dict[str, str]:
    """Raises ValueError where onnxruntime is missing."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ValueError("--native compares with onnxruntime: pip install onnxruntime") from error
    return {"onnxruntime": onnxruntime.__version__}


def measure(case: Case, *, threads: int, limits: report.Limits, cpu_time: bool, steps: int, tell: Callable[[str], None]) -> report.Row:
    """One row: times of both sides, of compiling, of creating, and of binding to new sizes."""
    import onnxruntime

    tell("compile")
    start = time.perf_counter()
    compiled = compiler.compile(case.path)
    compile_ms = (time.perf_counter() - start) * 1e3
    feed = case.feed(compiled.inputs)
    row: report.Row = {"case": case.name, "quantised": case.quantised, "compile_ms": round(compile_ms, 1)}
    row.update(inside(compiled, case, feed, threads, steps))
    del compiled

    tell("create")
    options = SessionOptions(intra_op_num_threads=threads)
    start = time.perf_counter()
    ours = InferenceSession(case.path, options)
    row["ours_create_ms"] = round((time.perf_counter() - start) * 1e3, 1)
    their_options = onnxruntime.SessionOptions()
    their_options.intra_op_num_threads = threads
    their_options.log_severity_level = 3
    their_options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    start = time.perf_counter()
    theirs = onnxruntime.InferenceSession(case.path, their_options, providers=["CPUExecutionProvider"])
    row["theirs_create_ms"] = round((time.perf_counter() - start) * 1e3, 1)

    tell("run")
    row.update(difference(case, feed, ours))
    clock = time.process_time if cpu_time else time.perf_counter
    sides = [partial(block, partial(run, None, feed), clock) for run in (ours.run, theirs.run)]
    row.update(report.paired(*report.pairs(sides, limits)))
    if case.flops:
        row["ours_gflops"], row["theirs_gflops"] = (round(case.flops / row[f"{k}_ms"] / 1e6, 1) for k in ("ours", "theirs"))
    return row


def difference(case: Case, feed: dict[str, np.ndarray], ours: InferenceSession) -> dict[str, Any]:
    """How far the outputs differ, by parts where the model quantises what it computes."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        found = parts.cut(case, feed, Path(folder))
        each, given, count = found or (case, feed, 0)
        options = exact(onnxruntime.SessionOptions())
        options.log_severity_level = 3
        sides = (
            InferenceSession(each.path) if found else ours,
            onnxruntime.InferenceSession(each.path, options, providers=["CPUExecutionProvider"]),
        )
        return {**report.difference(*(side.run(None, given) for side in sides)), **({"parts": count} if found else {})}


def block(run: Callable[[], Any], clock: Callable[[], float], repeat: int) -> float:
    """Milliseconds per run."""
    start = clock()
    for _ in range(repeat):
        run()
    return (clock() - start) / repeat * 1e3


def inside(compiled: Compiled, case: Case, feed: dict[str, np.ndarray], threads: int, steps: int) -> dict[str, Any]:
    """What only the core can tell: bytes that weights and activations take, time to bind to new sizes, time per step."""
    executor = Executor(compiled.main, compiled.init, compiled.weights, threads)
    arrays = [feed[s.name] for s in compiled.inputs]
    outputs = call(executor, [a.shape for a in arrays], arrays, lambda i, shape: np.empty(shape, to_numpy(compiled.outputs[i].dtype)))
    found: dict[str, Any] = {"needed_bytes": needed(executor, compiled, arrays, sum(o.nbytes for o in outputs))}
    if steps:
        kernels = [node.kernel.name for node in compiled.main.nodes] or [""] * executor.core.steps
        best = [math.inf] * executor.core.steps
        for _ in range(5):
            timed = executor.core.time_steps(arrays, outputs)
            best = [min(b, ns / 1e6) for b, (_, ns) in zip(best, timed, strict=True)]
        found["steps"] = report.slowest(list(zip(kernels, (origin for origin, _ in timed), best, strict=True)), steps)
    found["rebind_us"] = rebind(executor, compiled, case)
    executor.core.close()
    return found


def needed(executor: Executor, compiled: Compiled, inputs: list[np.ndarray], output_bytes: int) -> int:
    """Bytes of weights, intermediate tensors, inputs and outputs of the current binding."""
    weights = sum(w.nbytes for w in compiled.weights if w.over is None)
    return weights + executor.core.arena_bytes + sum(a.nbytes for a in inputs) + output_bytes


def rebind(executor: Executor, compiled: Compiled, case: Case) -> float | None:
    """Median microseconds to bind to sizes never met before: the last of the case's symbols grows by one each time."""
    symbols = [d for s in compiled.inputs for d in s.shape if isinstance(d, str) and d.isidentifier()]
    symbol = next((name for name in reversed(list(case.dims)) if name in symbols), symbols[-1] if symbols else None)
    if symbol is None:
        return None
    times = []
    for grown in range(1, REBINDS + 1):
        larger = dataclasses.replace(case, dims={**case.dims, symbol: case.dims.get(symbol, 1) + grown})
        dims = [d for s in compiled.inputs for d in larger.shape(s)]
        start = time.perf_counter_ns()
        executor.core.bind(dims, [])
        times.append((time.perf_counter_ns() - start) / 1e3)
    return round(statistics.median(times), 1)
