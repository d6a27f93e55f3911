"""The ONNX backend suite on every backend, with optimisation on and off, against a list of what is not supported.

``python -m pyonnx_wasm.testing.conformance`` runs it and reports, ``--update`` rewrites the list, ``--table`` the README's
support table, ``--epsilons`` prints how far off results are. The list is strict both ways: a case in it that passes is as wrong as
a case outside it that fails.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..options import SessionOptions
from ..session import InferenceSession
from . import tolerance
from .suite import KINDS, Case, Mismatch, Notes, cases, compare

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "conformance" / "unsupported.txt"
ON_CORE = ROOT / "tests" / "conformance" / "on_core.txt"
README = ROOT / "README.md"
CONFIGS = ("cpu", "cpu-plain", "wasm", "wasm-plain", "wasmtime", "webgpu", "gpu")  # plain: optimisation off
ON_GPU = ("webgpu", "gpu")  # what the core runs beside them is recorded, the same for both
NATIVE = ("cpu", "cpu-plain", "wasmtime")  # where contents may decide what fails first; pages compile before there are any
PEER = {"onnxruntime-web 1.30, wasm": 1493}  # measured in the same Chromium

WRONG = "wrong result"  # in the list, a cause may be written behind it by hand: it is kept
Results = dict[str, str]  # reason by the name of each case that fails
Watch = Callable[[Case, Exception | None], None]


def run_native(chosen: Sequence[Case], optimise: bool, watch: Watch, provider: str = "cpu", notes: Notes | None = None) -> None:
    """Runs cases through InferenceSession on ``cpu``, ``wasmtime`` or ``gpu``; tells ``watch`` each outcome, and ``notes`` the rest."""
    options = SessionOptions(intra_op_num_threads=1, enable_optimisation=optimise)
    for case in chosen:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "running on cpu: ", RuntimeWarning)
                session = InferenceSession(case.model, options, [provider])
            names = {i.name for i in session.get_inputs()}
            arrays = session.run(None, {n: a for n, a in case.feeds.items() if n in names})
            types = [o.type.rpartition("tensor(")[2].rstrip(")") for o in session.get_outputs()]
            spelled = {"float": "float32", "double": "float64"}
            off = compare(case, [(spelled.get(t, t), a) for t, a in zip(types, arrays, strict=True)], provider)
        except Exception as error:
            watch(case, error)
        else:
            watch(case, None)
            kernels = session.kernels_on_core() if provider == "gpu" else ()
            if notes is not None:
                notes.epsilons[case.name] = off
                if kernels:
                    notes.on_core[case.name] = kernels


def read_on_core(path: Path = ON_CORE) -> dict[str, tuple[str, ...]]:
    """Cases that pass on ``gpu``, but not without the core: the kernels it runs. Lines: name, kernels joined by commas."""
    lines = [line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#")] if path.exists() else []
    return {name: tuple(kernels.split(",")) for name, kernels in lines}


def write_on_core(found: Mapping[str, tuple[str, ...]], path: Path = ON_CORE) -> None:
    rows = sorted((kernels, name) for name, kernels in found.items())
    head = "# Cases of the ONNX backend suite that need the core beside a GPU: name, the kernels it runs.\n"
    path.write_text(head + "".join(f"{name}\t{','.join(kernels)}\n" for kernels, name in rows))


def run(config: str, chosen: Sequence[Case] | None = None, trace: bool = False, notes: Notes | None = None) -> Results:
    """Runs one configuration of :data:`CONFIGS`.

    Args:
        trace: print each failure as it happens, with the whole text.
        notes: is told more than that.
    Returns:
        A reason for each case that fails.
    """
    backend, _, mode = config.partition("-")
    chosen = cases() if chosen is None else chosen
    failed: Results = {}

    def watch(case: Case, error: Exception | None) -> None:
        if error is None:
            return
        failed[case.name] = reason(error)
        if trace:
            print(f"{config} {case.name}: {type(error).__name__}: {error}", flush=True)

    if backend in ("wasm", "webgpu"):
        from .browser import run_browser

        run_browser(chosen, mode != "plain", watch, [backend], notes)
    else:
        run_native(chosen, mode != "plain", watch, backend, notes)
    return failed


def reason(error: Exception) -> str:
    """Why a case fails, without what is particular to it."""
    if isinstance(error, Mismatch):
        return WRONG
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    text = re.sub(r"^(IRError|ReadError|CoreError|ValueError): ", "", text)  # as a page tells it
    text = re.sub(r"^(node '[^']*' \([\w.]*\)|[\w./]+_\d+): ", "", text)
    text = re.sub(r"^(input|output|constant) '[^']*': ", "", text)
    text = re.sub(r"^\d+ bytes: ", "", text)
    text = text.split("; supported operators")[0].split("; `pyonnx-wasm operators`")[0].replace("operator ai.onnx.", "operator ")
    known = type(error).__name__ in ("IRError", "ReadError", "CoreError", "PlayerError", "ValueError", "Error")
    return text if known else f"{type(error).__name__}: {text}"


def read_list(path: Path = LIST) -> dict[str, tuple[frozenset[str], str]]:
    """The support list: configurations and reason by case. Lines: name, configurations joined by commas or ``all``, reason."""
    listed = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        where = frozenset(CONFIGS) if fields[1:2] == ["all"] else frozenset(fields[1].split(",")) if len(fields) == 3 else frozenset()
        if len(fields) != 3 or not where <= set(CONFIGS) or fields[0] in listed:
            raise ValueError(f"{path.name}:{number}: {line!r} is not 'name<TAB>configurations<TAB>reason', or repeats a name")
        listed[fields[0]] = (where, fields[2])
    return listed


def write_list(results: Mapping[str, Results], path: Path = LIST) -> None:
    """Rewrites the list from results; configurations that were not run keep their lines."""
    before = read_list(path) if path.exists() else {}
    failing: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for name, (kept, why) in before.items():
        failing[name] |= {c: why for c in kept if c not in results}
    for config, failed in results.items():
        for name, why in failed.items():
            told = before.get(name, ((), ""))[1]
            failing[name][config] = told if why == WRONG and told.startswith(WRONG) else why
    rows = []
    for name, found in failing.items():
        if found:
            rows.append(
                (
                    found[next(c for c in CONFIGS if c in found)],
                    name,
                    "all" if set(found) == set(CONFIGS) else ",".join(c for c in CONFIGS if c in found),
                )
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as f:
        f.write("# Cases of the ONNX backend suite that do not pass: name, configurations, reason.\n")
        f.write("# Written by: python -m pyonnx_wasm.testing.conformance --update\n")
        last = None
        for why, name, where in sorted(rows):
            f.write("\n" * (why != last) + f"{name}\t{where}\t{why}\n")
            last = why


def against_list(config: str, failed: Results, names: Iterable[str]) -> list[str]:
    """What contradicts the list: one line per case that fails unlisted or for another reason, or is listed and passes."""
    reasons = {name: why for name, (where, why) in read_list().items() if config in where}
    listed = set(reasons)
    every = set(names)
    wrong = [f"{name} fails: {why}" for name, why in sorted(failed.items()) if name not in listed]
    wrong += [
        f"{name} fails: {why}; listed is: {reasons[name]}"
        for name, why in sorted(failed.items())
        if config in NATIVE and name in listed and why != reasons[name] and not (why == WRONG and reasons[name].startswith(WRONG))
    ]
    wrong += [f"{name} passes, but is listed" for name in sorted((listed & every) - set(failed))]
    return wrong + [f"{name} is listed, but is no case of the suite" for name in sorted(listed - {c.name for c in cases()})]


def against_on_core(found: Mapping[str, tuple[str, ...]], failed: Results, names: Iterable[str]) -> list[str]:
    """What contradicts the record of cases that need the core beside a GPU, among those that pass."""
    passed = set(names) - set(failed)
    told = {name: kernels for name, kernels in read_on_core().items() if name in passed}
    return [
        f"{name}: the core runs {', '.join(found.get(name, ())) or 'nothing'}, recorded is {', '.join(told.get(name, ())) or 'nothing'}"
        for name in sorted(told.keys() | found.keys())
        if told.get(name) != found.get(name)
    ]


def table() -> str:
    """The support table, from the list."""
    listed = read_list()
    every = cases()
    titles = {
        "cpu": "cpu", "cpu-plain": "cpu, not optimised", "wasm": "wasm in Chromium", "wasm-plain": "wasm, not optimised",
        "wasmtime": "wasm in wasmtime", "webgpu": "webgpu in Chromium", "gpu": "gpu, through wgpu",
    }  # fmt: skip
    lines = [f"| backend | {' | '.join(KINDS)} | passed of {len(every):,} | wholly on the GPU |", f"|---|{'---|' * (len(KINDS) + 2)}"]
    with_core = read_on_core()
    for config in CONFIGS:
        passed = [c for c in every if config not in listed.get(c.name, ((), ""))[0]]
        counts = [f"{sum(c.kind == k for c in passed):,}" for k in KINDS]
        wholly = f"{sum(c.name not in with_core for c in passed):,}" if config in ON_GPU else ""
        lines.append(f"| {titles[config]} | {' | '.join(counts)} | **{len(passed):,}** | {wholly} |")
    lines += [f"| {name} | {' | '.join([''] * len(KINDS))} | {count:,} | |" for name, count in PEER.items()]
    why = collections.Counter(text for _, text in listed.values())
    lines += ["", "The most frequent reasons: " + "; ".join(f"{text} ({n})" for text, n in why.most_common(8)) + "."]
    return "\n".join(lines)


Measured = Mapping[str, Mapping[str, float]]  # epsilons by case, by configuration


def rounding(case: Case) -> str:
    """The operators of a case that round, by which it is counted."""
    return "+".join(sorted(set(case.operators) - tolerance.EXACT)) or "none that round"


def needed(measured: Measured, chosen: Iterable[Case]) -> dict[str, dict[str, float]]:
    """The most epsilons that results of an operator are off, by operator and configuration; of models of several, by all of them."""
    found: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for case in chosen:
        mine = found[rounding(case)]
        for config, epsilons in measured.items():
            if case.name in epsilons:
                mine[config] = max(mine.get(config, 0.0), epsilons[case.name])
    return found


def needed_table(measured: Measured, chosen: Sequence[Case]) -> str:
    """A line per operator: what it may be off on the core and on GPUs, and what it is off in each configuration that was run."""
    may: dict[str, list[float]] = {}
    for case in chosen:
        allowed = [tolerance.epsilons(case.operators, backend) for backend in ("cpu", "gpu")]
        may[rounding(case)] = list(map(max, may.get(rounding(case), allowed), allowed))
    lines = [f"{'operators':44.44} {'may, core':>9} {'GPU':>5} " + " ".join(f"{c:>10}" for c in measured)]
    for name, found in sorted(needed(measured, chosen).items(), key=lambda kv: -max(kv[1].values(), default=0)):
        off = " ".join(f"{found.get(c, float('nan')):10.3g}" for c in measured)
        lines.append(f"{name:44.44} {may[name][0]:9g} {may[name][1]:5g} {off}")
    return "\n".join(lines)


def against_tolerances(measured: Measured, chosen: Iterable[Case]) -> list[str]:
    """What contradicts the table of tolerances, all configurations being run: a line per number that no result needs, or by far none."""
    found = needed(measured, chosen)
    wrong = []
    for row in tolerance.TABLE:
        for operator in row.operators.split():
            for where, may, on in (("core", row.core, set(CONFIGS) - set(ON_GPU)), ("GPUs", row.gpu, set(ON_GPU))):
                most = max((off for config, off in found.get(operator, {}).items() if config in on), default=0.0)
                if may > tolerance.DEFAULT and most <= max(tolerance.DEFAULT, may / 4):
                    wrong.append(f"{operator} may be {may:g} epsilons off on {where}, but is {most:.3g}")
    return wrong


def write_table(path: Path = README) -> None:
    text = path.read_text()
    marked = re.compile(r"(<!-- support -->\n).*?(<!-- /support -->)", re.S)
    if not marked.search(text):
        raise ValueError(f"{path.name} has no <!-- support --> … <!-- /support --> to fill")
    path.write_text(marked.sub(lambda m: m[1] + table() + "\n" + m[2], text))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Runs the ONNX backend suite.")
    parser.add_argument("pattern", nargs="?", default="", help="only cases whose name matches this regular expression")
    parser.add_argument("--config", action="append", choices=CONFIGS, help="default: all")
    parser.add_argument("--update", action="store_true", help="rewrite the list of unsupported cases")
    parser.add_argument("--table", action="store_true", help="only write the README's support table")
    parser.add_argument("--epsilons", action="store_true", help="print by operator how many epsilons results are off")
    parser.add_argument("--verbose", action="store_true", help="print every failure in full")
    args = parser.parse_args(argv)
    if args.table:
        write_table()
        return 0
    if args.update and args.pattern:
        parser.error("--update needs the whole suite, not a pattern")
    chosen = [c for c in cases() if re.search(args.pattern, c.name)]
    results, wrong = {}, []
    measured: dict[str, dict[str, float]] = {}
    for config in args.config or CONFIGS:
        start = time.perf_counter()
        notes = Notes()
        failed = results[config] = run(config, chosen, args.verbose, notes)
        beside, measured[config] = notes.on_core, notes.epsilons
        print(f"{config}: {len(chosen) - len(failed):,} of {len(chosen):,} pass, {time.perf_counter() - start:.0f} s", flush=True)
        if config in ON_GPU:
            print(f"{len(chosen) - len(failed) - len(beside):,} of them wholly on the GPU", flush=True)
            if args.update:
                write_on_core(beside)
            else:
                wrong += against_on_core(beside, failed, [c.name for c in chosen])
        wrong += [] if args.update else [f"{config}: {line}" for line in against_list(config, failed, [c.name for c in chosen])]
    if args.update:
        write_list(results)
    why = collections.Counter(text for failed in results.values() for text in failed.values())
    for text, n in why.most_common(12 if not args.verbose else None):
        print(f"{n:6}  {text}")
    if args.epsilons:
        print(needed_table(measured, chosen))
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
