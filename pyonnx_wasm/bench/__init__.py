"""``pyonnx-wasm bench``: speed, size and memory beside onnxruntime-web's in one Chromium or Node.js, or onnxruntime's natively.

It may import whatever it measures; nothing imports it but the command line. A case is added as a row of ``zoo.json`` or in ``cases.py``,
a way to run both sides as a module beside ``web`` and ``native``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..ir import IRError
from ..narrow import LADDER
from ..onnxfile.reader import ReadError
from ..runtimes.core import CoreError
from . import cases, native, report
from .cases import Case

ZOO = Path("build/zoo")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="*", type=Path, help=f"ONNX models; without any: the zoo in {ZOO} if it is there, and the kernels")
    parser.add_argument("-d", "--dim", action="append", default=[], metavar="SYMBOL=SIZE", help="size of a symbolic dimension (default 1)")
    parser.add_argument("--zoo", type=Path, metavar="DIR", help="the models that tests/models/make_zoo.py built into this folder")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case of the zoo or of the kernels")
    parser.add_argument("--kernels", action="store_true", help="single operators, eight of each per run, in GFLOPS")
    parser.add_argument("--native", action="store_true", help="against onnxruntime in this process, not onnxruntime-web in Chromium")
    parser.add_argument("--pyodide", action="store_true", help="compile and run inside Pyodide, in Chromium; beside nothing")
    parser.add_argument("--bridge", action="store_true", help="the line between a Jupyter kernel and the browser, through JupyterLab")
    parser.add_argument(
        "--big", nargs="?", type=float, const=5.0, metavar="GB", help="a model of so many GB of generated weights (default 5) in Chromium"
    )
    parser.add_argument(
        "--raw", action="store_true", help=".onnx files given to pages: until the first results, first and second visit, and memory"
    )
    parser.add_argument(
        "--weights",
        action="append",
        default=[],
        choices=tuple(LADDER),
        help="our own with weights so narrow beside float32, in Chromium; of decoders a token with its cache kept; may be given again",
    )
    parser.add_argument(
        "--generate", action="store_true", help="decoders of 4 bits, tokens per second: beside transformers.js and wllama in Chromium; with"
        " --native beside llama-cpp-python and onnxruntime; with --ep webgpu --dawn or --native alone on a GPU. MODEL names sizes: 135m, 1b"
    )  # fmt: skip
    parser.add_argument("--peers", type=Path, default=Path(), metavar="DIR", help="with --generate: whose node_modules hold the others")
    parser.add_argument("--without", action="append", default=[], metavar="PEER", help="with --generate: leave this one out")
    parser.add_argument("--tokens", default="128,32", metavar="N,M", help="with --generate: of the prompt, and new (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help="how long compiling takes, of the models or of some made for it")
    parser.add_argument(
        "--count",
        action="store_true",
        help="dispatches, bytes, flops and barriers of a run, against the least; runs nothing; with --ep webgpu those of a GPU",
    )
    parser.add_argument("--ep", choices=("wasm", "webgpu"), default="wasm", help="backend of both sides in Chromium (default: %(default)s)")
    parser.add_argument("--real-gpu", action="store_true", help="with --ep webgpu: on the machine's GPU, not on SwiftShader")
    parser.add_argument("--dawn", action="store_true", help="with --ep webgpu: both in Node.js, through the npm package webgpu; no browser")
    parser.add_argument("--threads", type=int, default=1, help="threads of each side (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=100, help="pairs of runs at most (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for the pairs of a case (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=2.0, metavar="SECONDS", help="before the pairs (default: %(default)s)")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time, which a busy machine does not lengthen; one thread")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="also show our N slowest steps")
    parser.add_argument("--rate", type=float, default=0, metavar="MB/S", help="send pages each file no faster, as a network does")
    parser.add_argument("--in-page", action="store_true", help="run ours in the page itself, as onnxruntime-web does, not in a worker")
    parser.add_argument("--onnxruntime-web", type=Path, metavar="DIR", help="folder of the npm package (default: node_modules)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> None:
    """Measures and prints.

    Raises:
        ValueError: nothing to measure, something needed is not installed, or after all is printed: cases failed.
    """
    if args.bridge:
        from . import bridge

        return bridge.run(args.json)
    if args.big is not None:
        from . import big

        return big.run(args.big, args.threads, as_json=args.json)
    if args.compile:
        from . import compile

        return compile.run(args.model, as_json=args.json)
    for name in ("threads", "runs"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} must be at least 1, not {getattr(args, name)}")
    if not 0 <= args.rate < math.inf:
        raise ValueError(f"--rate must be a number of MB/s, not {args.rate}")
    without = [name for name in ("native", "dawn", "raw", "pyodide", "generate", "weights") if getattr(args, name)]
    if args.rate and without:
        raise ValueError(f"--rate is of both sides' pages: it goes without --{without[0]}")
    if args.real_gpu and args.ep != "webgpu":
        raise ValueError("--real-gpu needs --ep webgpu")
    if args.generate and args.ep == "webgpu" and args.native == args.dawn:
        raise ValueError("--generate --ep webgpu needs either --dawn, in Node.js, or --native, from Python")
    if args.generate:
        from . import generate

        return generate.run(
            [str(model) for model in args.model], on_core=args.native, threads=args.threads, peers=args.peers, rounds=min(args.runs, 8),
            tokens=args.tokens, without=args.without, in_page=args.in_page, as_json=args.json, on_gpu=args.ep == "webgpu",
            real_gpu=args.real_gpu,
        )  # fmt: skip
    if args.dawn and (args.ep != "webgpu" or args.threads > 1 or args.cpu_time or args.native or args.pyodide):
        raise ValueError("--dawn needs --ep webgpu and --threads 1, and goes without --cpu-time, --native and --pyodide")
    if args.cpu_time and (args.threads > 1 or not Path("/proc/self/schedstat").exists()):
        raise ValueError("--cpu-time needs --threads 1 and Linux")
    with ExitStack() as stack:
        chosen = _choose(args, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyonnx-wasm-bench-"))))
        if args.count:
            from . import count

            documents = [count.rows(case, args.ep == "webgpu") for case in chosen]
            print(json.dumps({"mode": "count", "cases": documents}) if args.json else "\n\n".join(map(count.render, documents)))
            return
        limits = report.Limits(args.runs, args.seconds, args.warm_up)
        measure: Callable[..., report.Row]
        if args.native:
            versions, measure = (
                native.versions(),
                partial(native.measure, threads=args.threads, limits=limits, cpu_time=args.cpu_time, steps=args.steps),
            )
        elif args.raw:
            from .raw import Raw

            pages = Raw(args.threads, args.onnxruntime_web, args.in_page, backend=args.ep, real_gpu=args.real_gpu)
            stack.enter_context(pages)
            versions, measure = pages.versions, partial(pages.visits, rounds=min(args.runs, 3))
        elif args.weights:
            from .narrow import Narrow, split

            pair = Narrow(args.threads, args.onnxruntime_web, args.in_page, backend=args.ep, real_gpu=args.real_gpu)
            stack.enter_context(pair)
            versions, measure = pair.versions, partial(pair.measure, limits=limits, steps=args.steps)
            chosen = split(chosen, args.weights)
        elif args.pyodide:
            from . import pyodide

            python = stack.enter_context(pyodide.opened(args.in_page))
            versions, measure = python.versions, partial(python.measure, limits=limits)
        else:
            from .dawn import Dawn
            from .web import Web

            web = stack.enter_context(
                Dawn(args.onnxruntime_web, args.real_gpu)
                if args.dawn
                else Web(args.threads, args.onnxruntime_web, args.in_page, args.cpu_time, args.ep, args.real_gpu, 1e6 * args.rate)
            )
            versions, measure = web.versions, partial(web.measure, limits=limits, steps=args.steps)
        rows = _measure_all(chosen, measure, quiet=args.json)
    document = _document(args, versions, rows)
    print(json.dumps(document) if args.json else render(document))
    if bad := [row["case"] for row in rows if not row.get("agree")]:
        raise ValueError(f"{len(bad)} of {len(rows)} cases failed: {', '.join(bad)}")


def _choose(args: argparse.Namespace, folder: Path) -> list[Case]:
    dims = {}
    for item in args.dim:
        name, _, size = item.partition("=")
        if not size.isdigit():
            raise ValueError(f"--dim {item!r} must look like symbol=size")
        dims[name] = int(size)
    for path in args.model:
        if not path.is_file():
            raise FileNotFoundError(f"there is no model {path}")
    chosen = [Case(path.stem, path, dims) for path in args.model]
    if args.pyodide and not (chosen or args.zoo):
        from . import pyodide

        return pyodide.chosen()
    nothing_named = not (args.model or args.zoo or args.kernels)
    if args.zoo or (nothing_named and ZOO.is_dir()):
        chosen += cases.zoo(args.zoo or ZOO, [] if args.kernels else args.case)
    if args.kernels or nothing_named:
        chosen += cases.kernels(folder)
    if args.case:
        known = [case.name for case in chosen]
        if missing := [name for name in args.case if name not in known]:
            raise ValueError(f"there is no case {missing[0]!r}; the cases are {', '.join(known)}")
        chosen = [case for case in chosen if case.name in args.case]
    return chosen


def _measure_all(chosen: Sequence[Case], measure: Callable[..., report.Row], quiet: bool) -> list[report.Row]:
    rows = []
    with tqdm(chosen, disable=quiet or not sys.stderr.isatty(), leave=False, unit="case") as bar:
        for case in bar:
            bar.set_description_str(case.name)
            try:
                rows.append(measure(case, tell=bar.set_postfix_str))
            except (IRError, ReadError, CoreError, RuntimeError, ValueError, MemoryError) as error:
                rows.append({"case": case.name, "quantised": case.quantised, "failure": str(error).strip().partition("\n")[0]})
            except Exception as error:
                # Playwright and onnxruntime raise types of their own, which are not at hand where they are not installed.
                if type(error).__module__.partition(".")[0] not in ("playwright", "onnxruntime"):
                    raise
                rows.append({"case": case.name, "quantised": case.quantised, "failure": str(error).strip().partition("\n")[0]})
    return rows


def _document(args: argparse.Namespace, versions: dict[str, str], rows: list[report.Row]) -> dict[str, Any]:
    from .. import __version__

    return {
        "mode": "raw"
        if args.raw
        else "narrow"
        if args.weights
        else "native"
        if args.native
        else "pyodide"
        if args.pyodide
        else "dawn"
        if args.dawn
        else "web",
        "against": _against(args),
        "backend": "native" if args.native else args.ep,
        "threads": args.threads,
        "clock": "cpu" if args.cpu_time else "wall",
        "machine": report.machine(),
        "versions": {"pyonnx-wasm": __version__, **versions},
        "cases": rows,
        "summary": report.summary([] if args.pyodide or args.raw or args.weights else rows),
    }


def _against(args: argparse.Namespace) -> str:
    if args.pyodide:
        return ""
    return "onnxruntime" if args.native else "float32" if args.weights else "onnxruntime-web"


def render(document: dict[str, Any]) -> str:
    """The document as a person reads it."""
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    machine, rows, against = document["machine"], document["cases"], document["against"]
    lines = [
        f"{versions}; {document['threads']} thread{'s' if document['threads'] > 1 else ''} each, {document['clock']} time",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}",
        "",
    ]
    good = [row for row in rows if "failure" not in row]
    if document["mode"] == "pyodide":
        from . import pyodide

        lines += pyodide.render(good)
    elif document["mode"] == "raw":
        from . import raw

        lines.append(report.table([raw.cells(row) for row in good]))
    elif document["mode"] == "narrow" and good:
        from . import narrow

        lines.append(report.table([narrow.cells(row) for row in good]))
    elif good:
        cells = [_native_cells(row, against) if document["mode"] == "native" else _web_cells(row, against) for row in good]
        lines.append(report.table(cells))
    for row in rows:
        if "steps" in row:
            lines += ["", f"  {row['case']}", *report.steps(row)]
        if "failure" in row:
            lines.append(f"{row['case']}: FAILED: {row['failure']}")
    if good and "downloads" in good[0]:
        ours, theirs = (good[0]["downloads"][side] for side in ("ours", "theirs"))
        lines += [
            "",
            f"Download before the model: ours {ours['bytes']:,} bytes ({ours['gzip']:,} gzip), "
            f"{against} {theirs['bytes']:,} ({theirs['gzip']:,} gzip)",
        ]
    found = document["summary"]
    if found["cases"] > 1:
        start = f", start {found['start_geomean']:.2f}×" if found["start_geomean"] else ""
        worst = f"{found['worst']} {found['worst_ratio']:.2f}×"
        lines.append(f"Geometric mean of {found['cases']} f32 cases: {found['geomean']:.2f}×{start}; worst: {worst}")
    return "\n".join(lines)


def _speed(row: report.Row, against: str) -> dict[str, str]:
    cells = {
        "case": row["case"],
        "ours ms": report.milliseconds(row["ours_ms"]),
        f"{against} ms": report.milliseconds(row["theirs_ms"]),
        "ratio": f"{row['ratio']:.2f}×",
    }
    if "ours_gflops" in row:
        cells["GFLOPS"] = f"{report.gflops(row['ours_gflops'])} : {report.gflops(row['theirs_gflops'])}"
    return cells


def _error(row: report.Row) -> str:
    found = ("" if row["agree"] else "WRONG ") + ("" if row["error"] is None else f"{row['error']:.0e}")
    return found + (f" in {row['parts']} parts" if "parts" in row else "")


def _native_cells(row: report.Row, against: str) -> dict[str, str]:
    return {
        **_speed(row, against),
        "compile ms": f"{row['compile_ms']:.0f}",
        "create ms": f"{row['ours_create_ms']:.0f} : {row['theirs_create_ms']:.0f}",
        "rebind µs": "" if row["rebind_us"] is None else f"{row['rebind_us']:.0f}",
        "error": _error(row),
    }


def _web_cells(row: report.Row, against: str) -> dict[str, str]:
    memory = f"{report.mebibytes(row['ours_wasm_bytes'])} : {report.mebibytes(row['theirs_wasm_bytes'])}"
    need, peaks = row["needed_bytes"], [row.get(f"{side}_peak_bytes") for side in ("ours", "theirs")]
    starts = [row.get(f"{side}_start_ms", {}).get("all") for side in ("ours", "theirs")]
    return {
        **_speed(row, against),
        "start ms": "" if None in starts else f"{starts[0]:.0f} : {starts[1]:.0f}",
        "start ratio": f"{row['start_ratio']:.1f}×" if "start_ratio" in row else "",
        "wasm MiB": memory,
        "÷ needed": "" if need is None else f"{row['ours_wasm_bytes'] / need:.2f}",
        "peak MiB": "" if None in peaks else " : ".join(report.mebibytes(peak or 0) for peak in peaks),
        "error": _error(row),
    }
