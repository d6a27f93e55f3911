"""One model on every backend, compared number by number."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from .. import compiler
from .. import source as files
from ..compiler import Progress
from ..inputs import generate
from ..narrow import Wish
from ..program import Compiled, Signature
from ..program import file as ponnx
from ..session import is_compiled
from . import backends as backend_table
from . import html, text
from . import layers as layer_table
from .backends import Arrays, Backend, Unavailable
from .compare import Difference, Tolerance, difference, failed, sample
from .layers import Layer
from .oracle import Onnxruntime
from .report import Findings, Output

Start = Callable[[str], Backend]


class Report(Findings):
    """What a comparison found, and how it is told."""

    def table(self) -> str:
        """The report as a terminal shows it."""
        return text.table(self)

    def json(self) -> dict[str, Any]:
        """The report as plain data."""
        return text.document(self)

    def html(self) -> str:
        """The report as one page that needs nothing else."""
        return html.page(self)


def run(
    model: str | os.PathLike[str] | bytes | Any,
    inputs: Mapping[str, Any] | None = None,
    *,
    backends: Sequence[str] | None = None,
    against: str | None = None,
    layers: bool = False,
    sizes: Mapping[str, int] | None = None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    seed: int = 0,
    rtol: float = Tolerance.rtol,
    atol: float = Tolerance.atol,
    weights: str | None = None,
    start: Start | None = None,
    progress: Progress | None = None,
) -> Report:
    """Runs a model once per backend, all from one compiled file, and compares.

    Args:
        model: path or bytes of an ``.onnx`` or ``.ponnx`` file, or an ``onnx.ModelProto``.
        inputs: contents; inputs that are not given are made up.
        backends: names, see :func:`backends.start`; by default all four of those that can run here. Without ``against`` the
            first one is the reference.
        against: ``"onnxruntime"`` or a backend to take as the reference.
        layers: compare intermediate values as well; needs an ``.onnx`` model.
        sizes: of symbolic dimensions.
        ranges: half-open ranges of made-up integers, by input.
        weights: ``"f16"``, ``"bf16"``, ``"int8"`` or ``"q4"``: every backend runs the model with its weights in fewer bits; the report also
            says what that does to sizes and, on these inputs, to each output.
        start: starts a backend by name, for callers that keep them running; others are closed at the end.
    Raises:
        Unavailable: a backend that was asked for by name cannot run here.
        ValueError: the inputs do not fit, or there is nothing to compare.
    """
    tell = progress or (lambda phase, share: None)
    source = _source(model)
    if is_compiled(source) and (layers or against == Onnxruntime.name):
        raise ValueError("a compiled file holds no ONNX graph: give the .onnx model")
    if weights is not None and (is_compiled(source) or layers or against == Onnxruntime.name):
        raise ValueError("weights are held in fewer bits of an .onnx model, without layers and not against onnxruntime, which would differ")
    with ExitStack() as stack:
        tell("compile", 0.0)
        graph = None if is_compiled(source) else stack.enter_context(files.read(source))
        given = {name: np.asarray(array) for name, array in (inputs or {}).items()}
        feed, described = generate(_inputs(source), graph.graph if graph else None, given, sizes or {}, ranges or {}, seed)
        variants = layer_table.Variants(source)
        tell("start", 0.1)
        comparison = _Comparison(source, feed, Tolerance(rtol, atol), stack)
        skipped = comparison.start(backends, against, start or (lambda name: stack.enter_context(backend_table.start(name))))
        variants.gpu = any("gpu" in backend.name.partition(":")[0] for backend in comparison.running)
        wish = None if weights is None else Wish(weights, inputs=feed)
        compiled = variants.compile(weights=wish) if graph else ponnx.load(source)
        tell("run", 0.2)
        outputs = [Output(s.name, s.dtype) for s in compiled.outputs]
        got = comparison.run(compiled, {o.name: o for o in outputs})
        found: list[Layer] | None = None
        if graph and layers:
            found = layer_table.find(graph)
            parts = list(layer_table.groups(found))
            for i, part in enumerate(parts):
                tell(f"layers {i + 1}/{len(parts)}", 0.3 + 0.7 * i / len(parts))
                comparison.run(variants.compile([x.value for x in part]), {x.value: x for x in part}, intermediate=True)
            found = [layer for layer in found if layer.differences]
        tell("done", 1.0)
        name = os.path.basename(source) if isinstance(source, str) else f"a model of {len(source):,} bytes"
        worst = comparison.worst(outputs, got)
        return Report(
            name, comparison.reference, comparison.compared, skipped, described, outputs, found, comparison.tolerance, seed, worst,
            compiled.narrowed,
        )  # fmt: skip


class _Comparison:
    """Backends at work on one feed."""

    def __init__(self, source: str | bytes, feed: Mapping[str, np.ndarray], tolerance: Tolerance, stack: ExitStack) -> None:
        self.source, self.feed, self.tolerance = source, feed, tolerance
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyonnx-wasm-parity-")))
        self.oracle: Onnxruntime | None = None
        self.running: list[Backend] = []

    def start(self, names: Sequence[str] | None, against: str | None, start: Start) -> dict[str, str]:
        """Starts what runs; returns why others do not."""
        self.oracle = Onnxruntime() if against == Onnxruntime.name else None
        skipped: dict[str, str] = {}
        chosen = list(names or backend_table.NAMES)
        if against and not self.oracle:
            chosen = [against, *(name for name in chosen if name != against)]
        for name in dict.fromkeys(chosen):
            try:
                self.running.append(start(name))
            except Unavailable as error:
                if names is not None or name == against:
                    raise
                skipped[name] = str(error)
        if len(self.running) < (1 if self.oracle else 2):
            reasons = "".join(f"; {text}" for text in skipped.values())
            raise ValueError(f"two sides are needed for a comparison: name another backend, or compare against onnxruntime{reasons}")
        return skipped

    @property
    def reference(self) -> str:
        return self.oracle.name if self.oracle else self.running[0].name

    @property
    def compared(self) -> list[str]:
        return [b.name for b in (self.running if self.oracle else self.running[1:])]

    def run(self, compiled: Compiled, rows: Mapping[str, Output | Layer], intermediate: bool = False) -> dict[str, Arrays]:
        """Runs everything once and notes in the rows how far each is off; returns all outputs."""
        file = self.folder / "model.ponnx"
        ponnx.save(compiled, file)
        got: dict[str, Arrays] = {}
        errors: dict[str, Difference] = {}
        if self.oracle:
            got[self.oracle.name] = self.oracle.run(self.source, self.feed, list(rows) if intermediate else None)
        for backend in self.running:
            try:
                got[backend.name] = backend.run(file, self.feed)
            except Exception as error:
                if backend.name == self.reference:
                    raise
                errors[backend.name] = failed(str(error).strip().partition("\n")[0])
        for name, expected in got[self.reference].items():
            row = rows[name]
            row.shape = expected.shape
            for other in self.compared:
                row.differences[other] = errors.get(other) or difference(got[other][name], expected, row.dtype, self.tolerance)
        return got

    def worst(self, outputs: Sequence[Output], got: Mapping[str, Arrays]) -> dict[str, Any] | None:
        """Plot data of the output that is furthest off."""
        rows = [(d.excess, backend, o) for o in outputs for backend, d in o.differences.items() if not d.failure and d.at is not None]
        if not rows:
            return None
        _, backend, output = max(rows, key=lambda row: row[0])
        data = sample(got[backend][output.name], got[self.reference][output.name], output.dtype, self.tolerance)
        return {"backend": backend, "output": output.name, **data}


def _inputs(source: str | bytes) -> list[Signature]:
    return ponnx.load(source).inputs if is_compiled(source) else compiler.compile(source).inputs


def _source(model: Any) -> str | bytes:
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if hasattr(model, "SerializeToString"):
        return bytes(model.SerializeToString())
    raise TypeError(f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}")
