"""Smaller weights on request: which form each takes, by what that does to the outputs on given or generated inputs.

``encode`` makes arrays smaller, ``passes.narrow`` puts them into the graph, and here each is tried. It may import the compiler's parts and
what runs Programs, nothing above; a new form is an entry of ``encode.FORMS`` and of :data:`LADDER`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..dtypes import DType
from ..feeds import execute
from ..fold import executor as executor_here
from ..inputs import generate
from ..ir import Graph
from ..onnxfile import reader
from ..passes import run
from ..passes.dead_code import remove_dead_code
from ..passes.fuse_maps import fuse_maps
from ..passes.narrow import Operand, Small, narrow, operands, sources_of
from ..program import Signature
from ..program.lower import lower, partition
from .encode import encode

LADDER = {"q4": ("q4", "int8", "f16"), "int8": ("int8", "f16"), "bf16": ("bf16", "f16"), "f16": ("f16",)}
BOUNDS = {"f16": 0.005, "bf16": 0.03, "int8": 0.05, "q4": 0.25}  # of the relative error of an output, by form
Tell = Callable[[str, float], None]
WIDE = "float32"


@dataclass
class Row:
    """One weight: the form it has, its bytes before and after, and the error of the outputs when it alone is narrowed as asked."""

    name: str
    shape: tuple[int, int]
    form: str
    before: int
    after: int
    error: float | None = None
    why: str = ""


@dataclass
class Report:
    """What narrowing did.

    Attributes:
        errors: of each output, root mean square over that of the output itself; for integers the share that differs.
        before, after: bytes of all constants.
        bound: of the errors, within which forms were chosen.
    """

    form: str
    bound: float
    before: int
    after: int
    errors: dict[str, float]
    rows: list[Row] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        return {
            "weights": self.form, "bound": self.bound, "bytes_before": self.before, "bytes_after": self.after, "errors": self.errors,
            "layers": [{**row.__dict__, "shape": list(row.shape)} for row in self.rows],
        }  # fmt: skip

    def table(self, most: int = 12) -> str:
        """As a terminal shows it: the layers that suffer most, sizes, errors."""
        rows = sorted(self.rows, key=lambda r: -(r.error or 0))[:most]
        width = max([len(r.name) for r in rows] + [6])
        lines = [f"{'weight':<{width}}  {'shape':>14}  {'form':<8} {'bytes':>14}  {'now':>13}  error alone"]
        for r in rows:
            error = r.why or ("" if r.error is None else f"{r.error:.2e}")
            shape = "x".join(map(str, r.shape))
            lines.append(f"{r.name:<{width}}  {shape:>14}  {r.form:<8} {r.before:>14,}  {r.after:>13,}  {error}")
        if len(self.rows) > most:
            lines.append(f"and {len(self.rows) - most} more")
        share = self.after / self.before if self.before else 1
        lines.append(f"weights: {self.before:,} bytes, now {self.after:,} ({share:.0%})")
        worst = sorted(self.errors.items(), key=lambda item: -item[1])
        lines += [f"output {name}: relative error {error:.2e}" for name, error in worst[:8]]
        if len(worst) > 8:
            lines.append(f"and {len(worst) - 8} outputs with less")
        return "\n".join(lines)


@dataclass
class Wish:
    """What a user asks for.

    Attributes:
        form: of :data:`LADDER`.
        keep: names of initializers or of nodes, with ``*`` and ``?``, that stay as they are.
        inputs: contents on which errors are measured; what is not given is made up.
        sizes: of symbolic dimensions of what is made up.
        bound: of the relative error of every output; default: :data:`BOUNDS`.
        each: measure every weight alone; else only where the bound is not met.
    Raises:
        ValueError: there is no such form.
    """

    form: str
    keep: Sequence[str] = ()
    inputs: Mapping[str, np.ndarray] | None = None
    sizes: Mapping[str, int] | None = None
    bound: float | None = None
    each: bool = True

    def __post_init__(self) -> None:
        if self.form not in LADDER:
            raise ValueError(f"weights {self.form!r}: there are {', '.join(LADDER)}")


def apply(
    graph: Graph, wish: Wish, inputs: Sequence[Signature], outputs: Sequence[Signature], model: reader.Graph | None, tell: Tell
) -> Report:
    """Narrows the weights of a graph that the passes have left.

    Raises:
        ValueError: a name to keep is none, or an input must be given.
    """
    found = operands(graph)
    kept = _kept(found, wish.keep)
    rows = [Row(o.name, o.shape, WIDE, o.held, o.held, None, "kept" if o in kept else "") for o in found]
    smaller = _Choice(wish.form, [(o, row) for o, row in zip(found, rows, strict=True) if o not in kept])
    trial = _Trial(graph, inputs, outputs, wish, model) if smaller.entries else None
    if trial is None:
        size = _constants(graph)
        return Report(wish.form, _bound(wish), size, size, {}, rows)
    before = trial.constants
    smaller.encode(lambda share: tell("encode", share))
    alone = wish.each
    errors = trial.errors(smaller.chosen())
    while True:
        worst = max(errors.values(), default=0.0)
        if (alone or worst > _bound(wish)) and not smaller.measured:
            smaller.measure(trial, lambda share: tell("measure", share))
        if worst <= _bound(wish) or not smaller.widen(worst, _bound(wish)):
            break
        errors = trial.errors(smaller.chosen())
    chosen = smaller.chosen()
    narrow(graph, chosen)
    run(graph, [fuse_maps, remove_dead_code])
    return Report(wish.form, _bound(wish), before, _constants(graph), errors, rows)


def _bound(wish: Wish) -> float:
    return BOUNDS[wish.form] if wish.bound is None else wish.bound


def _kept(found: Sequence[Operand], keep: Sequence[str]) -> set[Operand]:
    kept: set[Operand] = set()
    for pattern in keep:
        matching = {o for o in found if any(fnmatchcase(name, pattern) or name == pattern for name in sources_of(o))}
        if not matching:
            names = ", ".join(repr(o.name) for o in found[:8])
            raise ValueError(f"keep {pattern!r}: no weight that can be narrowed has this name; there are {names or 'none'}")
        kept |= matching
    return kept


class _Choice:
    """The form of each weight, from the one that was asked for to wider ones."""

    def __init__(self, form: str, entries: list[tuple[Operand, Row]]) -> None:
        self.form, self.entries, self.measured = form, entries, False
        self.forms: dict[Operand, list[tuple[str, Small]]] = {}

    def encode(self, tell: Callable[[float], None]) -> None:
        total = sum(math.prod(o.shape) for o, _ in self.entries) or 1
        done = 0
        for operand, row in self.entries:
            values = _contents(operand)
            ladder = [(form, encode(values, form)) for form in LADDER[self.form][:1]]
            self.forms[operand] = [(form, small) for form, small in ladder if small is not None and small.nbytes < operand.held]
            if not self.forms[operand]:
                self._next(operand, row)
            self._tell(operand, row)
            done += math.prod(operand.shape)
            tell(done / total)

    def chosen(self) -> dict[Operand, Small]:
        return {operand: forms[-1][1] for operand, forms in self.forms.items() if forms}

    def measure(self, trial: _Trial, tell: Callable[[float], None]) -> None:
        """The error that each weight alone makes."""
        self.measured = True
        for i, (operand, row) in enumerate(self.entries):
            if self.forms[operand]:
                row.error = max(trial.errors({operand: self.forms[operand][-1][1]}).values(), default=0.0)
            tell((i + 1) / len(self.entries))

    def widen(self, worst: float, bound: float) -> bool:
        """Gives the weights that matter most a wider form, as many as should do; False where all are float32."""
        ranked = sorted([(row.error or 0.0, i) for i, (o, row) in enumerate(self.entries) if self.forms[o]], reverse=True)
        if not ranked:
            return False
        total = sum(e * e for e, _ in ranked if math.isfinite(e)) or 1.0
        over = total * (1 - min(1.0, (bound / worst) ** 2)) if math.isfinite(worst) else 0.0
        for e, i in ranked:
            operand, row = self.entries[i]
            self._next(operand, row)
            self._tell(operand, row)
            row.error = e / 16 if self.forms[operand] else row.error  # a guess until the next trial: four bits more
            over -= e * e
            if over <= 0:
                break
        return True

    def _next(self, operand: Operand, row: Row) -> None:
        """The next form of the ladder that holds this weight, in fewer bytes; float32 at its end."""
        tried = [form for form, _ in self.forms[operand]]
        at = LADDER[self.form].index(tried[-1]) + 1 if tried else 1
        self.forms[operand] = []
        for form in LADDER[self.form][at:]:
            small = encode(_contents(operand), form)
            if small is not None and small.nbytes < operand.held:
                self.forms[operand] = [(form, small)]
                return

    def _tell(self, operand: Operand, row: Row) -> None:
        forms = self.forms[operand]
        row.form, row.after = (forms[-1][0], forms[-1][1].nbytes) if forms else (WIDE, row.before)


class _Trial:
    """A graph that is lowered and run, as it is and with some weights narrowed."""

    def __init__(
        self, graph: Graph, inputs: Sequence[Signature], outputs: Sequence[Signature], wish: Wish, model: reader.Graph | None
    ) -> None:
        self.graph, self.inputs, self.outputs_of = graph, inputs, outputs
        try:
            feed, _ = generate(inputs, model, wish.inputs or {}, wish.sizes or {}, {}, 0)
        except ValueError as error:
            raise ValueError(f"{error} (weights are narrowed by what that does to the outputs)") from error
        self.feed = [feed[s.name] for s in inputs]
        self.constants = _constants(graph)
        self.wanted = self._run()

    def errors(self, chosen: Mapping[Operand, Small]) -> dict[str, float]:
        """How far each output is off with these weights; the graph is as it was afterwards."""
        graphs = [self.graph, *(g for o in chosen for g, _ in o.uses)]
        before = {g: (g.nodes, list(g.outputs)) for g in graphs}
        try:
            narrow(self.graph, chosen)
            got = self._run()
        finally:
            for g, (nodes, outputs) in before.items():
                g.nodes, g.outputs = nodes, outputs
                for node in nodes:
                    for value in node.outs.values():
                        value.storage.producer = node
        return {s.name: _error(a, b, s.dtype) for s, a, b in zip(self.outputs_of, got, self.wanted, strict=True)}

    def _run(self) -> list[np.ndarray]:
        outputs = list(self.graph.outputs)
        lowered = lower(partition(self.graph))
        self.graph.outputs = outputs
        runtime = executor_here()(lowered.main, lowered.init, lowered.weights)
        runtime.seed(0)
        return execute(runtime, self.feed, self.inputs, self.outputs_of)


def _contents(operand: Operand) -> np.ndarray:
    """float32 [n, k]."""
    rows, storage = operand.rows, operand.rows.storage
    if storage.producer is None and storage.dtype is rows.dtype:
        flat = storage.source.numpy().reshape(-1) if hasattr(storage.source, "numpy") else storage.source.reshape(-1)
        n, k = operand.shape
        width = flat.itemsize
        strides = [int(s) * width for s in rows.strides]
        found = np.lib.stride_tricks.as_strided(flat[int(rows.offset) :], (n, k), strides, writeable=False)
    else:
        assert operand.home.evaluate is not None
        found = operand.home.evaluate(operand.home, rows)
    return np.ascontiguousarray(_wide(found, rows.dtype), np.float32)


def _constants(graph: Graph) -> int:
    """Bytes of all constants that lowering would keep in the file."""
    outputs = list(graph.outputs)
    parts = partition(graph)
    graph.outputs = outputs
    return sum(w.nbytes for w in parts.table if w.source is not None)


def _error(got: np.ndarray, wanted: np.ndarray, dtype: DType) -> float:
    """Root mean square of the difference over that of what is wanted; for what is no float the share that differs."""
    if got.shape != wanted.shape:
        return math.inf
    if not dtype.is_float:
        return float(np.mean(got != wanted)) if wanted.size else 0.0
    a, b = (_wide(x, dtype) for x in (got, wanted))
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return math.inf
    size, off = (float(np.sqrt(np.square(x[finite]).sum())) for x in (b, np.subtract(a, b, where=finite, out=np.zeros_like(a))))
    return off / size if size else 0.0 if off == 0 else math.inf


def _wide(x: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype is DType.bfloat16:
        x = (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)


__all__ = ["BOUNDS", "LADDER", "Report", "Row", "Wish", "apply"]
