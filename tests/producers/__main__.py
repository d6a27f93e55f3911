"""Makes the environments, exports, runs and tells: see the package."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import pyonnx_wasm

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "producers"


def producers() -> list[str]:
    return sorted(p.stem for p in (HERE / "requirements").glob("*.txt"))


def environment(name: str) -> Path:
    """The Python of a producer, made where its requirements changed; those with the same requirements share one."""
    wanted = (HERE / "requirements" / f"{name}.txt").read_bytes()
    digest = hashlib.sha256(wanted).hexdigest()[:12]
    folder = next((p.parent for p in BUILD.glob(f"venv-*-{digest}/done")), BUILD / f"venv-{name}-{digest}")
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / "requirements" / f"{name}.txt"], check=True)
        (folder / "done").touch()
    return python


def export(name: str, only: str) -> Path:
    """The folder with the exports of a producer, of which those are made whose name a pattern is found in."""
    folder = BUILD / "models" / name
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    subprocess.run([environment(name), HERE / f"{name}.py", folder, only], check=True, cwd=HERE, env=quiet)
    return folder


def outcomes(folder: Path, backend: str, only: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Group, name, verdict and reason of each export."""
    for row in json.loads((folder / "index.json").read_text()):
        if not re.search(only, row["name"]):
            continue
        told = row.get("group", ""), row["name"]
        if "export" in row:
            yield *told, "not exported", row["export"]
            continue
        data = (folder / f"{row['name']}.onnx").read_bytes()
        feeds = [dict(np.load(p, allow_pickle=True)) for p in sorted(folder.glob(f"{row['name']}.?.npz"))]
        yield *told, *judged(data, feeds, backend, *row["tolerance"])


def judged(data: bytes, feeds: Sequence[dict[str, Any]], backend: str, rtol: float, atol: float) -> tuple[str, str]:
    """Whether a model gives what onnxruntime gives, with its own fusions or without, at all inputs in one session.

    Where onnxruntime's two answers differ from each other, and ours from both, there is no oracle."""
    try:
        wanted = oracle(data, feeds, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    except Exception as error:
        return "no oracle", str(error)[:160]
    try:
        session = pyonnx_wasm.InferenceSession(data, providers=[backend])
        found = [session.run(None, feed) for feed in feeds]
    except Exception as error:
        return "refused", f"{type(error).__name__}: {error}"[:160]
    told = differences(found, wanted, rtol, atol)
    if told:  # some fusions round more than what they replace, as products of blocks do by int8
        plain = oracle(data, feeds, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
        own = differences(wanted, plain, rtol, atol)
        told = differences(found, plain, rtol, atol) and told
        if told and own:  # of scores that tie, rounding says which comes first
            return "no oracle", f"onnxruntime's own two answers differ ({own}), ours from the first: {told}"
    return ("differs", told) if told else ("passes", "")


def oracle(data: bytes, feeds: Sequence[dict[str, Any]], level: Any) -> list[list[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, level
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


def differences(found: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]], rtol: float, atol: float) -> str:
    pairs = [pair for outs in zip(found, wanted, strict=True) for pair in zip(*outs, strict=True)]
    return next(filter(None, (difference(g, w, rtol, atol) for g, w in pairs)), "")


def difference(got: Any, want: Any, rtol: float, atol: float) -> str:
    """What differs, or nothing: labels exactly, floats within the tolerance of their scale."""
    if isinstance(want, list) and want and not isinstance(want[0], dict):
        if len(got) != len(want):
            return f"{len(got)} tensors, onnxruntime gives {len(want)}"
        return next(filter(None, (difference(g, w, rtol, atol) for g, w in zip(got, want, strict=True))), "")
    if isinstance(want, list):  # of maps
        if [list(g) for g in got] != [list(w) for w in want]:
            return "other keys"
        return difference(*(np.array([list(m.values()) for m in v], np.float32) for v in (got, want)), rtol, atol) if want else ""
    if got.shape != want.shape or (got.dtype != want.dtype and want.dtype != object):
        return f"{got.dtype}{list(got.shape)}, onnxruntime gives {want.dtype}{list(want.shape)}"
    if want.dtype.kind != "f":
        wrong = int((got != want).sum())
        return f"{wrong} of {want.size} labels" if wrong else ""
    scale = float(np.abs(want[np.isfinite(want)]).max(initial=0))
    close = np.isclose(got, want, rtol, atol * max(scale, 1e-3), equal_nan=True)
    return (
        ""
        if close.all()
        else f"{int((~close).sum())} of {want.size} numbers, most {float(np.nanmax(np.abs(got - want))):.2g} of {scale:.2g}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description="Exports of other tools against onnxruntime.")
    options.add_argument("names", nargs="*", help=f"of {', '.join(producers())}; default: all")
    options.add_argument("--backend", default="cpu", help="cpu, wasmtime or gpu")
    options.add_argument("--kept", action="store_true", help="run what was exported before")
    options.add_argument("--only", default="", help="a pattern that is found in the names of the models to take")
    options.add_argument("--least", type=float, default=0.97, help="share of what is exported that must pass")
    given = options.parse_args(argv)
    every: Counter[str] = Counter()
    failed: list[str] = []
    for name in given.names or producers():
        try:
            folder = BUILD / "models" / name if given.kept else export(name, given.only)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"  {name}: not run: exit status {error.returncode}", flush=True)
            continue
        groups: dict[str, Counter[str]] = {}
        for group, case, verdict, reason in outcomes(folder, given.backend, given.only):
            groups.setdefault(group, Counter())[verdict] += 1
            if verdict != "passes":
                print(f"  {name} {case}: {verdict}: {reason}", flush=True)
        for group, counts in groups.items():
            print(f"{name} {group}".strip() + f": {counts['passes']} of {run(counts)} pass on {given.backend}; {dict(counts)}", flush=True)
            every += counts
    print(f"all: {every['passes']} of {run(every)} pass")
    return int(bool(failed) or every["passes"] < given.least * run(every))


def run(counts: Counter[str]) -> int:
    """Of how many models it was asked whether they run: exported, and run by onnxruntime."""
    return counts.total() - counts["not exported"] - counts["no oracle"]


if __name__ == "__main__":
    sys.exit(main())
