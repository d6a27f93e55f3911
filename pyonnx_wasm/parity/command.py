"""``pyonnx-wasm parity``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler import Progress
from ..narrow import LADDER
from .compare import Tolerance


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="an .onnx model; a .ponnx file where neither --layers nor onnxruntime is wanted")
    parser.add_argument(
        "--backends",
        metavar="NAME,NAME",
        help="cpu, wasm, webgpu, gpu; the first is the reference (default: all that run here). "
        "cpu:LIBRARY, wasm:FOLDER and wasm:fixed take other builds of the core",
    )
    parser.add_argument("--against", metavar="NAME", help="the reference: onnxruntime, or a backend")
    parser.add_argument("--layers", action="store_true", help="compare intermediate values too and name the first that diverges")
    parser.add_argument(
        "-i", "--input", action="append", default=[], metavar="NAME=FILE.npy", help="contents of an input; others are made up"
    )
    parser.add_argument("-d", "--dim", action="append", default=[], metavar="SYMBOL=SIZE", help="size of a symbolic dimension")
    parser.add_argument("--range", action="append", default=[], metavar="NAME=LOW:HIGH", help="made-up integers of an input, HIGH excluded")
    parser.add_argument("--seed", type=int, default=0, help="of the made-up inputs (default: %(default)s)")
    parser.add_argument("--rtol", type=float, default=Tolerance.rtol, help="of each element (default: %(default)s)")
    parser.add_argument("--atol", type=float, default=Tolerance.atol, help="of the tensor's largest element (default: %(default)s)")
    parser.add_argument(
        "--weights", choices=tuple(LADDER), help="run it with weights in as few bits, and show what that does to the outputs"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with plots, in one file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace, progress: Progress) -> None:
    """Compares and prints. Raises ValueError where backends diverge, after all is printed."""
    from .run import run as compare

    report = compare(
        args.model,
        {name: np.load(file) for name, file in _pairs(args.input, "--input", "NAME=FILE.npy")},
        backends=[name for name in args.backends.split(",") if name] if args.backends else None,
        against=args.against,
        layers=args.layers,
        sizes={name: _int(size, "--dim") for name, size in _pairs(args.dim, "--dim", "SYMBOL=SIZE")},
        ranges={name: _range(text) for name, text in _pairs(args.range, "--range", "NAME=LOW:HIGH")},
        seed=args.seed,
        rtol=args.rtol,
        atol=args.atol,
        weights=args.weights,
        progress=progress,
    )
    print(json.dumps(report.json()) if args.json else report.table())
    if args.html:
        args.html.parent.mkdir(parents=True, exist_ok=True)
        args.html.write_text(report.html(), encoding="utf-8")
        print(f"report: {args.html}", file=sys.stderr)
    if not report.agrees:
        raise ValueError("the backends diverge")


def _pairs(items: list[str], option: str, form: str) -> list[tuple[str, str]]:
    for item in items:
        if "=" not in item:
            raise ValueError(f"{option} {item!r} must look like {form}")
    return [(item.rpartition("=")[0], item.rpartition("=")[2]) for item in items]


def _int(text: str, option: str) -> int:
    if not text.removeprefix("-").isdigit():
        raise ValueError(f"{option}: {text!r} is no integer")
    return int(text)


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    bounds: Any = _int(low, "--range"), _int(high, "--range")
    if bounds[0] >= bounds[1]:
        raise ValueError(f"--range {text!r}: the upper bound must lie above the lower one")
    return bounds[0], bounds[1]
