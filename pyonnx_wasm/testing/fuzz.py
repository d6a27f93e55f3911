"""Fuzzes compiled models: ``python -m pyonnx_wasm.testing.fuzz model.ponnx ... --count 10000 --seed 0``.

Each case is one mutation of one file, decided by (seed, case): words of a Program, tokens of the header, bytes anywhere or
of the file's own WebAssembly modules, or a cut. A case must end in a result or in an exception. It runs in a child process,
on the guard build of the core where there is one (every buffer beside an unmapped page, inputs read-only), so that a read or
write outside a buffer is a signal, and the parent names the case that caused it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from tqdm import tqdm

from ..callbacks import CallbackError
from ..dtypes import to_numpy
from ..program import Compiled
from ..program import file as ponnx
from ..runtimes import UNLIMITED, Limits, call
from ..runtimes.core import CoreError
from ..runtimes.cpu import Executor
from ..runtimes.library import load, open_library

GUARD = Path(__file__).parents[2] / "build" / "guard"
PATIENCE = 20.0  # seconds; a case that runs longer is ended and counted as "long": sizes may ask for any amount of work
LARGEST = 1 << 24  # elements of an output that is still allocated
WITH_MODULES = Limits(1 << 28, 1 << 22)  # a module may do anything, and loops without end as well
EXTREMES = (0, 1, -1, 2, 7, 255, 256, 65535, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 30, 15)


@dataclass
class Report:
    """What the cases ended in; ``crashes`` and ``long`` name (case, why)."""

    outcomes: Counter[str] = field(default_factory=Counter)
    crashes: list[tuple[int, str]] = field(default_factory=list)
    long: list[tuple[int, str]] = field(default_factory=list)
    guarded: bool = False


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """One mutation of a compiled model."""
    kind = rng.random()
    if kind < 0.05:
        return data[: int(rng.integers(0, len(data)))]
    if kind < 0.15:
        return _bytes(data, rng)
    if kind < 0.35:
        return _header(data, rng)
    if kind < 0.65 and (modules := _parsed(data).get("wasm")):
        return _module(data, modules, rng)
    return _words(data, rng)


def _bytes(data: bytes, rng: np.random.Generator) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        out[int(rng.integers(0, len(out)))] = int(rng.integers(0, 256))
    return bytes(out)


def _header(data: bytes, rng: np.random.Generator) -> bytes:
    """A number or a word of the JSON header becomes another; the length of the header follows."""
    length = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + length].decode()
    tokens = list(re.finditer(r"-?\d+|\"\w+\"|null", text))
    token = tokens[int(rng.integers(0, len(tokens)))]
    other = tokens[int(rng.integers(0, len(tokens)))].group() if rng.random() < 0.5 else str(int(rng.choice(EXTREMES)))
    changed = (text[: token.start()] + other + text[token.end() :]).rstrip().encode()
    changed += b" " * (-(len(changed) + 8) % ponnx.ALIGN)
    return len(changed).to_bytes(8, "little") + changed + data[8 + length :]


def _parsed(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header


def _module(data: bytes, modules: list[list[int]], rng: np.random.Generator) -> bytes:
    """Bytes of a WebAssembly module replaced, by others of it or by any."""
    offset, nbytes = modules[int(rng.integers(0, len(modules)))]
    first = 8 + int.from_bytes(data[:8], "little") + offset
    out = bytearray(data)
    for _ in range(1 + int(rng.exponential(1.0))):
        at, other, count = (int(rng.integers(0, nbytes)) for _ in range(3))
        count = min(count % 8 + 1, nbytes - at, nbytes - other)
        piece = rng.integers(0, 256, 1, np.uint8).tobytes() if rng.random() < 0.6 else data[first + other : first + other + count]
        out[first + at : first + at + len(piece)] = piece
    return bytes(out)


def _words(data: bytes, rng: np.random.Generator) -> bytes:
    """Words of a Program replaced by extremes, neighbours or each other."""
    length = int.from_bytes(data[:8], "little")
    programs = _parsed(data)["programs"]
    offset, nbytes = programs[int(rng.integers(0, len(programs)))]["code"]
    out = bytearray(data)
    words = np.frombuffer(out, np.int32, nbytes // 4, 8 + length + offset)
    for _ in range(1 + int(rng.exponential(1.0))):
        at = int(rng.integers(0, len(words)))
        how = rng.random()
        if how < 0.4:
            words[at] = rng.choice(EXTREMES)
        elif how < 0.6:
            words[at] = words[int(rng.integers(0, len(words)))]
        elif how < 0.8:
            words[at] += np.int32(rng.choice([-1, 1, 4, -4]))
        else:
            words[at] ^= np.int32(1 << int(rng.integers(0, 31)))
    return bytes(out)


class TooLarge(Exception):
    """An output that is not allocated."""


def run_case(data: bytes, rng: np.random.Generator, library: ctypes.CDLL | None = None) -> str:
    """Loads, binds and runs a possibly damaged model twice, at two sizes; the name of what it ended in."""
    try:
        compiled = ponnx.load(data)
        if sum(w.nbytes for w in compiled.weights) > 1 << 28:
            return "too large"
        limits = WITH_MODULES if any(c.wasm for c in compiled.main.callbacks) else UNLIMITED
        executor = Executor(compiled.main, compiled.init, compiled.weights, library=library, limits=limits)
        for size in (2, 3):
            shapes = [tuple(d if isinstance(d, int) else size for d in s.shape) for s in compiled.inputs]
            if any(int(np.prod(np.array(s, dtype=object), initial=1)) > LARGEST or min(s, default=0) < 0 for s in shapes):
                return "too large"
            feed = [rng.integers(0, 5, s).astype(to_numpy(i.dtype)) for s, i in zip(shapes, compiled.inputs, strict=True)]

            def empty(i: int, shape: tuple[int, ...], compiled: Compiled = compiled) -> np.ndarray:
                if math.prod(shape) > LARGEST:
                    raise TooLarge
                return np.empty(shape, to_numpy(compiled.outputs[i].dtype))

            call(executor, shapes, feed, empty)
    except TooLarge:
        return "too large"
    except CoreError as error:
        return f"core error {error.code}"
    except (ValueError, TypeError, MemoryError, OverflowError, CallbackError) as error:
        return type(error).__name__
    return "ran"


def child(paths: Sequence[Path], seed: int, first: int, last: int, guard: bool) -> None:
    """Runs cases and prints ``case outcome`` for each."""
    library = open_library(_guard_library()) if guard else None
    files = [p.read_bytes() for p in paths]
    for case in range(first, last):
        print(case, end=" ", flush=True)
        rng = np.random.default_rng((seed, case))
        print(run_case(mutate(files[case % len(files)], rng), rng, library), flush=True)


def _guard_library() -> Path:
    """The guard build of the variant that this machine runs."""
    return GUARD / Path(load()._name).name


def fuzz(paths: Sequence[Path], count: int, seed: int, *, progress: bool = True) -> Report:
    """Runs ``count`` cases over the files in child processes that are replaced when one dies."""
    guard = _guard_library().is_file()
    report = Report(guarded=guard)
    at = 0
    with tqdm(total=count, disable=not progress, desc="fuzz", leave=False) as bar:
        while at < count:
            command = [sys.executable, "-m", "pyonnx_wasm.testing.fuzz", *map(str, paths), "--seed", str(seed)]
            command += ["--child", str(at), str(count), *(["--guard"] if guard else [])]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                assert process.stdout is not None
                case, outcome = _follow(process, process.stdout, report, bar)
            at = case + 1
            if outcome:
                report.outcomes[outcome] += 1
                (report.long if outcome == "long" else report.crashes).append((case, outcome))
    return report


def _follow(process: subprocess.Popen[bytes], out: IO[bytes], report: Report, bar: Any) -> tuple[int, str]:
    """Reads a child's lines until it ends; the last case that it began and, when that did not end, why."""
    pending, case, since = b"", -1, time.monotonic()
    begun = -1
    while True:
        ready, _, _ = select.select([out], [], [], 1.0)
        if ready:
            piece = os.read(out.fileno(), 65536)
            if not piece:
                break
            pending += piece
            since = time.monotonic()
            *lines, pending = pending.split(b"\n")
            for line in lines:
                number, _, outcome = line.decode().partition(" ")
                case = int(number)
                report.outcomes[outcome.strip()] += 1
                bar.update()
            begun = int(pending.split()[0]) if pending.split() else case
        elif time.monotonic() - since > PATIENCE:
            process.kill()
            process.wait()
            return begun, "long"
    code = process.wait()
    if code == 0:
        return case, ""
    return max(begun, case + 1), signal.Signals(-code).name if code < 0 else f"exit code {code}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyonnx_wasm.testing.fuzz", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path, help=".ponnx files")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--guard", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        first, last = args.child
        child(args.models, args.seed, first, last, args.guard)
        return 0
    report = fuzz(args.models, args.count, args.seed, progress=sys.stderr.isatty())
    where = "guard build" if report.guarded else "plain build (for guard pages: python -m pyonnx_wasm.toolchain native --guard)"
    print(f"{args.count} mutations, seed {args.seed}, {where}")
    for outcome, n in report.outcomes.most_common():
        print(f"  {n:6} {outcome}")
    for case, why in (*report.crashes, *report.long):
        print(f"case {case}: {why}")
    return 1 if report.crashes else 0


if __name__ == "__main__":
    raise SystemExit(main())
