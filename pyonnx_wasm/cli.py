"""The command line: ``pyonnx-wasm compile | run | inspect | serve | bench``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from . import __version__, compiler, narrow, session
from .dtypes import to_numpy
from .gguf.decoder import Several
from .ir import IRError, NeedsShape, NeedsSizes
from .onnxfile.reader import ReadError
from .options import SessionOptions
from .program import Signature
from .program import file as ponnx
from .program.file import FileError
from .runtimes.core import CoreError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; errors of the user's making are one line on stderr and exit code 1."""
    args = _parser().parse_args(argv)
    try:
        args.command(args)
    except (IRError, ReadError, FileError, CoreError, OSError, ValueError, ImportError) as error:
        if os.environ.get("PYONNX_WASM_TRACEBACK"):
            raise
        print(f"pyonnx-wasm {args.name}: {_told(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _told(error: Exception) -> str:
    """An error with the option of the command line that Python's stands for."""
    if isinstance(error, NeedsShape):
        return str(error).replace(error.option, " ".join(f"--shape {name}=D,D,..." for name in error.inputs))
    if isinstance(error, NeedsSizes):
        return str(error).replace(error.option, " ".join(f"--size {name}=SIZE" for name in error.symbols))
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pyonnx-wasm", description="Compile ONNX models once, run them natively and in the browser.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    sub = parser.add_subparsers(dest="name", required=True, metavar="command")

    def command(name: str, fn: Any, text: str) -> argparse.ArgumentParser:
        p = sub.add_parser(name, help=text, description=text)
        p.set_defaults(command=fn)
        return p

    def model(p: argparse.ArgumentParser) -> None:
        p.add_argument("model", type=Path, help="an .onnx, .gguf or .ponnx file")
        p.add_argument("--shape", action="append", default=[], metavar="INPUT=D,D,...", help="replaces an input's shape; names are symbols")
        p.add_argument("--size", action="append", default=[], metavar="SYMBOL=SIZE", help="compiles a symbolic dimension as this size")
        p.add_argument("--no-optimise", action="store_true", help="lower each operator as it stands")
        p.add_argument("--json", action="store_true", help="print JSON")

    p = command("compile", _compile, "Compile model.onnx into model.ponnx, which pages run without Python.")
    model(p)
    p.add_argument("-o", "--output", type=Path, help="default: the model's name with .ponnx")
    p.add_argument("--thin", action="store_true", help="leave the weights in the source file, which must stay beside it")
    p.add_argument("--no-gpu", action="store_true", help="leave out the part for GPUs")
    p.add_argument("--several", action="store_true", help="a .gguf file as the decoder of several texts at a time")
    p.add_argument(
        "--choice", type=int, nargs="?", const=64, default=0, metavar="K", help="tell a language model's most likely tokens (64)"
    )
    p.add_argument("--weights", choices=tuple(narrow.LADDER), help="hold weights in as few bits, or wider where outputs would suffer")
    p.add_argument("--keep", nargs="+", action="extend", default=[], metavar="NAME", help="weights or nodes to leave alone; * and ? match")
    p.add_argument("--inputs", type=Path, metavar="FILE.npz", help="contents on which --weights measures errors; others are made up")
    p.add_argument("-d", "--dim", action="append", default=[], metavar="SYMBOL=SIZE", help="a size of made-up inputs of --weights")
    p.add_argument("--error", type=float, metavar="BOUND", help="most relative error of an output that --weights may cost")
    p = command("run", _run, "Run a model natively on given or random inputs and describe the outputs.")
    model(p)
    p.add_argument("-d", "--dim", action="append", default=[], metavar="SYMBOL=SIZE", help="size of a symbolic dimension (default 1)")
    p.add_argument("-i", "--input", action="append", default=[], metavar="NAME=FILE.npy", help="contents of an input; others are random")
    p.add_argument("-o", "--output", type=Path, help="write the outputs to this .npz file")
    p.add_argument("--threads", type=int, default=0, help="threads of one run (default: one per core)")
    p.add_argument("--backend", choices=("cpu", "gpu"), default="cpu", help="where to run (default: cpu)")
    p.add_argument("--profile", type=Path, metavar="OUT.json", help="write what each step took, for Perfetto or chrome://tracing")
    p.add_argument("--repeat", type=int, default=1, help="run so many times and report the median")
    p = command("inspect", _inspect, "Show a model's signature, its IR, what the passes do to it, and its Program.")
    model(p)
    p.add_argument("--passes", action="store_true", help="node counts after each pass")
    p.add_argument("--ir", action="store_true", help="the IR after the passes")
    p.add_argument("--program", action="store_true", help="the Program: steps, storages, shape code")
    p = command("operators", _operators, "List the supported operators and opsets.")
    p.add_argument("--json", action="store_true", help="print JSON")
    p = command(
        "serve", _serve, "Serve a directory with the headers that threads in WebAssembly need, or a language model as OpenAI's API."
    )
    p.add_argument("directory", type=Path, nargs="?", help="what is served, with everything in it")
    p.add_argument("--model", type=Path, metavar="MODEL", help="a language model (.gguf, an export or its folder) instead of a directory")
    p.add_argument("--name", help="of the model, as clients ask for it (default: its file's)")
    p.add_argument("--backend", choices=("cpu", "gpu"), default="cpu", help="where the model runs (default: cpu)")
    p.add_argument("--at-once", type=int, default=8, metavar="N", help="texts that are written together (default: 8)")
    p.add_argument("--queue", type=int, default=32, metavar="N", help="texts that may wait; more are answered 429 (default: 32)")
    p.add_argument("--host", default="127.0.0.1", help="where to listen; 0.0.0.0 lets other machines in (default: this one alone)")
    p.add_argument("--port", type=int, default=8000)
    p.add_argument("--not-isolated", action="store_true", help="leave out the cross-origin isolation headers")
    p = command("bench", _bench, "Compare with onnxruntime-web in one Chromium, or with onnxruntime natively.")
    from . import bench

    bench.arguments(p)
    p = command("parity", _parity, "Run one model on every backend and compare the results, number by number.")
    from .parity import command as parity

    parity.arguments(p)
    return parser


@contextmanager
def _progress(enabled: bool, text: str) -> Iterator[Any]:
    with tqdm(total=100, desc=text, disable=not enabled, bar_format="{desc:<28}{bar}{percentage:3.0f}%", leave=False) as bar:

        def tell(phase: str, share: float) -> None:
            bar.set_description_str(f"{text}: {phase}")
            bar.update(max(0.0, round(share * 100) - bar.n))

        yield tell


def _shapes(items: Sequence[str]) -> dict[str, list[int | str]]:
    shapes: dict[str, list[int | str]] = {}
    for item in items:
        name, sep, dims = item.partition("=")
        if not sep:
            raise ValueError(f"--shape {item!r} must look like input=1,3,height,width")
        shapes[name] = [int(d) if d.lstrip("-").isdigit() else d for d in dims.split(",") if d]
    return shapes


def _wish(args: argparse.Namespace) -> narrow.Wish | None:
    """What ``--weights`` and what goes with it say."""
    given = {"--keep": args.keep, "--inputs": args.inputs, "--dim": args.dim, "--error": args.error}
    if args.weights is None:
        if unused := [name for name, value in given.items() if value not in (None, [])]:
            raise ValueError(f"{unused[0]} goes with --weights")
        return None
    if session.is_compiled(args.model):
        raise ValueError("--weights needs the .onnx model: a compiled one has its weights")
    feed = dict(np.load(args.inputs)) if args.inputs else {}
    return narrow.Wish(args.weights, args.keep, feed, _sizes("--dim", args.dim), args.error)


def _sizes(option: str, items: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for item in items:
        name, _, size = item.rpartition("=")
        if not name or not size.isdigit():
            raise ValueError(f"{option} {item!r} must look like symbol=size")
        sizes[name] = int(size)
    return sizes


def _compile(args: argparse.Namespace) -> None:
    start = time.perf_counter()
    wish = _wish(args)
    if args.several and args.model.suffix != ".gguf":
        raise ValueError("--several is for .gguf files: an export reads several texts where its input_ids have a batch of any size")
    if args.choice and session.is_compiled(args.model):
        raise ValueError("--choice needs the model as it was before it was compiled")
    if session.is_compiled(args.model):
        compiled = ponnx.load(args.model)
    else:
        source = Several(str(args.model)) if args.several else args.model
        with _progress(sys.stderr.isatty() and not args.json, args.model.name) as tell:
            compiled = compiler.compile(
                source, shapes=_shapes(args.shape), sizes=_sizes("--size", args.size), optimise=not args.no_optimise,
                gpu=not args.no_gpu, weights=wish, choice=args.choice, progress=tell,
            )  # fmt: skip
    target = args.output or args.model.with_suffix(".ponnx")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _progress(sys.stderr.isatty() and not args.json, target.name) as tell:
        size = ponnx.save(compiled, target, thin=args.thin, progress=lambda share: tell("write", share))
    seconds = time.perf_counter() - start
    report = {
        "output": str(target),
        "bytes": size,
        "seconds": round(seconds, 3),
        "steps": len(compiled.main.nodes),
        "gpu_steps": compiled.gpu.section.on_gpu if compiled.gpu else None,
        "init_steps": len(compiled.init.nodes) if compiled.init else 0,
        "weights": len(compiled.weights),
        **({"narrowed": compiled.narrowed.json()} if compiled.narrowed else {}),
    }
    text = f"{target}: {size:,} bytes, {report['steps']} steps, {report['weights']} weights, {seconds:.2f} s"
    if compiled.narrowed and not args.json:
        print(compiled.narrowed.table())
    print(json.dumps(report) if args.json else text)


def _random(s: Signature, known: Sequence[int | str], dims: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    shape = [d if isinstance(d, int) else dims.get(d, 1) for d in known]
    if s.dtype.is_float:
        return rng.standard_normal(shape).astype(to_numpy(s.dtype))
    return rng.integers(0, 2, shape).astype(to_numpy(s.dtype))


def _feed(args: argparse.Namespace, s: session.InferenceSession, given: dict[str, str]) -> dict[str, np.ndarray]:
    """The files that are ``given``, which it takes away, and random contents of the other inputs."""
    dims = _sizes("--size", args.size) | _sizes("--dim", args.dim)
    shapes, rng = _shapes(args.shape), np.random.default_rng(0)
    unknown = [i.name for i in s.signature()[0] if i.name in s.unranked and i.name not in given and i.name not in shapes]
    if unknown:
        raise NeedsShape(unknown)
    return {
        i.name: np.load(given.pop(i.name)) if i.name in given else _random(i, shapes.get(i.name, i.shape), dims, rng)
        for i in s.signature()[0]
    }


def _run(args: argparse.Namespace) -> None:
    options = SessionOptions(intra_op_num_threads=args.threads, enable_optimisation=not args.no_optimise)
    s = session.InferenceSession(args.model, options, [args.backend])
    given = dict(item.split("=", 1) for item in args.input)
    feed = _feed(args, s, given)
    if given:
        raise ValueError(f"no input is named {sorted(given)[0]!r}")
    times = []
    for _ in tqdm(range(args.repeat), disable=args.json or args.repeat < 2 or not sys.stderr.isatty(), leave=False):
        start = time.perf_counter()
        outputs = s.run(None, feed)
        times.append((time.perf_counter() - start) * 1e3)
    if args.profile:
        profile = s.profile(feed)
        profile.save(args.profile)
        if not args.json:
            print(profile)
    named = {o.name: a for o, a in zip(s.get_outputs(), outputs, strict=True)}
    if args.output:
        np.savez(args.output, **named)
    rows = [_described(n, a) for n, a in named.items()]
    if args.json:
        print(json.dumps({"backend": s.providers[0], "median_ms": float(np.median(times)), "outputs": rows}))
        return
    for row in rows:
        print(f"{row['name']}: {row['dtype']} {row['shape']}  min {row['min']}  mean {row['mean']}  max {row['max']}")
    print(f"{s.providers[0]}: {np.median(times):.3f} ms" + (f" (median of {args.repeat})" if args.repeat > 1 else ""))


def _described(name: str, a: np.ndarray) -> dict[str, Any]:
    numeric = a.size > 0 and a.dtype.kind in "fiub"
    stats = {
        k: float(f"{fn(a.astype(np.float64)):.6g}") if numeric else None for k, fn in (("min", np.min), ("mean", np.mean), ("max", np.max))
    }
    return {"name": name, "dtype": str(a.dtype), "shape": list(a.shape), **stats}


def _inspect(args: argparse.Namespace) -> None:
    from . import inspect

    everything = not (args.passes or args.ir or args.program)
    report = inspect.report(
        args.model,
        shapes=_shapes(args.shape),
        sizes=_sizes("--size", args.size),
        optimise=not args.no_optimise,
        passes=args.passes or everything,
        ir=args.ir or everything,
        program=args.program or everything,
    )
    print(json.dumps(report) if args.json else inspect.render(report))


def _operators(args: argparse.Namespace) -> None:
    from . import ops
    from .registry import OPERATORS

    ops.load_all()
    rows = [
        {"domain": domain or "ai.onnx", "operator": name, "since": min(v.since for v in versions)}
        for (domain, name), versions in sorted(OPERATORS.items())
    ]
    if args.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['domain']:<14} {row['operator']:<34} opset {row['since']} and newer")
    print(f"{len(rows)} operators")


def _serve(args: argparse.Namespace) -> None:
    if (args.directory is None) == (args.model is None):
        raise ValueError("say what is served: a directory, or --model and a language model")
    if args.model is not None:
        return _serve_model(args)
    from .server import Server

    with Server(args.directory, args.host, args.port, isolated=not args.not_isolated) as server:
        print(f"serving {args.directory} at {server.url}  (Ctrl-C stops)", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print("stopped")


def _serve_model(args: argparse.Namespace) -> None:
    from . import endpoint
    from .generate import Generator

    name = args.name or args.model.name.removesuffix(".gguf")
    generator = Generator(args.model, providers=[args.backend], several=True)
    print(f"serving {name} at http://{args.host}:{args.port}/v1  (Ctrl-C stops)", flush=True)
    endpoint.run(generator, name, args.host, args.port, args.at_once, args.queue)


def _parity(args: argparse.Namespace) -> None:
    from .parity import command as parity

    with _progress(sys.stderr.isatty() and not args.json, args.model.name) as tell:
        parity.run(args, tell)


def _bench(args: argparse.Namespace) -> None:
    from . import bench

    bench.run(args)
