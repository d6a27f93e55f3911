"""From a model to what executors take: reads, traces, runs the passes, lowers."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from . import narrow as narrowing
from . import passes
from . import source as files
from .dtypes import DType
from .gpu.lower import lower_gpu, on_core
from .ir import Graph, Value
from .onnxfile import reader
from .program import Compiled, Signature
from .program.lower import lower, partition
from .trace import trace

Progress = Callable[[str, float], None]  # phase, share done in [0, 1]


def compile(
    source: str | os.PathLike[str] | bytes | memoryview,
    *,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    initializers: Mapping[str, np.ndarray] | None = None,
    external: Mapping[str, bytes | memoryview] | None = None,
    optimise: bool = True,
    gpu: bool = False,
    weights: str | narrowing.Wish | None = None,
    keep: Sequence[str] = (),
    choice: int = 0,
    progress: Progress | None = None,
) -> Compiled:
    """Compiles a model.

    Args:
        source: path of an ``.onnx`` or ``.gguf`` file, or its bytes.
        shapes: input shapes that replace the declared ones; text names a symbol, None keeps an axis as declared.
        constants: input contents to fix at compile time, where structure depends on them.
        outputs: names of the values to give, intermediate ones too, in place of the model's outputs.
        sizes: of symbolic dimensions by name; names that the model lacks are ignored.
        initializers: arrays in the place of the model's own, by name.
        external: contents of external data files by their locations, looked up before the model's directory.
        optimise: run the fusing passes; without them each operator is lowered as it stands.
        gpu: lower for GPUs as well.
        weights: ``"f16"``, ``"bf16"``, ``"int8"`` or ``"q4"``: hold constant operands of products and tables in as few bits, or wider
            where that would cost an output too much; a :class:`narrow.Wish` says on which inputs, and how much. What was done is
            ``Compiled.narrowed``.
        keep: names of weights, or of nodes, whose weights stay as they are; ``*`` and ``?`` stand for others.
        choice: of a language model, adds the output ``choice``, float32 [..., 2 * choice + 1]: so many of the most likely tokens (no more
            than there are), their logits, and the logarithm of the sum of all logits' powers, so that a GPU need not give all logits to
            who chooses among these; and, above 1, ``first`` [..., 3], the same of the most likely one alone.
    Raises:
        ValueError: no such ``weights``, no weight of a name to ``keep``, or ``choice`` is below 0.
        ReadError: the file is no model that can be read.
        ir.IRError: the model cannot be compiled; names the node.
    """
    if choice < 0:
        raise ValueError(f"choice is {choice}; it must be 0 or more")
    tell = progress or (lambda phase, share: None)
    tell("read", 0.0)
    with _uncollected():
        model = files.read(source, external=external, replaced=list(initializers or {}))
        tell("trace", 0.1)
        graph = trace(model, shapes=shapes, constants=constants, outputs=outputs, sizes=sizes, initializers=initializers, choice=choice)
        tell("optimise", 0.6)
        passes.run(graph, passes.PIPELINE if optimise else passes.PLAIN)
        narrowed = _narrowed(graph, weights, keep, model, tell)
        tell("lower", 0.8)
        parts = partition(graph)
        core = lower(parts, optimise)
        on_gpu = lower_gpu(parts, optimise) if gpu else None
        if on_gpu is not None:
            on_gpu.init = core.shared
    tell("done", 1.0)
    return Compiled(
        _signatures(graph, graph.inputs, graph.strings[0]),
        _signatures(graph, graph.outputs, graph.strings[1]),
        core.main,
        core.init,
        core.weights,
        {
            "source": os.path.basename(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else "",
            "opset": dict(model.opsets),
            "ir_version": model.ir_version,
            "producer": model.producer,
            "model": {
                "graph": model.graph.name,
                "domain": model.domain,
                "description": model.description,
                "version": model.version,
                "metadata": model.metadata,
            },
            **({"weights": narrowed.json()} if narrowed else {}),
        },
        list(model.files),
        model,
        graph,
        on_gpu,
        on_core(graph) or "no step of it has a shader" if gpu and on_gpu is None else "",
        None if all(face.plain for faces in graph.faces for face in faces) else graph.faces,
        narrowed,
    )


def _narrowed(
    graph: Graph, weights: str | narrowing.Wish | None, keep: Sequence[str], model: reader.Model, tell: Progress
) -> narrowing.Report | None:
    if weights is None:
        if keep:
            raise ValueError("keep says which weights stay as they are: it goes with weights")
        return None
    wish = weights if isinstance(weights, narrowing.Wish) else narrowing.Wish(weights, keep)
    inputs, outputs = _signatures(graph, graph.inputs, graph.strings[0]), _signatures(graph, graph.outputs, graph.strings[1])
    return narrowing.apply(graph, wish, inputs, outputs, model.graph, tell)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collections: a graph grows and stays whole until it is lowered, and each collection would walk all of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _signatures(graph: Graph, values: Sequence[tuple[str, Value]], strings: set[str]) -> list[Signature]:
    """Those of inputs or outputs; ``strings`` names the values that are spans, which the pool follows."""
    found, k = [], 0
    while k < len(values):
        name, value = values[k]
        text = name in strings
        found.append(Signature(name, DType.string if text else value.dtype, graph.shown(name, value.shape)))
        k += 2 if text else 1
    return found
