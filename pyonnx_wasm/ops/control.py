"""Branches and loops: settled when the model is compiled where what steers them is known and small, else run by the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..dtypes import DType
from ..ir import Graph, IRError, Items, NeedsContent, Value, dims, type_text
from ..ir.dims import DimLike
from ..op import Context, op
from ..tensor import (
    axis_of,
    between,
    concat,
    constant,
    dims_of,
    fill,
    ints_of,
    literal,
    map_,
    reshape,
    slice_,
    squeeze,
    transpose,
    unsqueeze,
)
from .bodies import ANY_TRIPS, Outline, emit, run_loop
from .gather import Gather

STEPS = 1024  # most that are settled one after another
FEW = 8  # settled where they could be run by the core as well
T = TypeVar("T")


def subgraph(ctx: Context, body: Any, inputs: Sequence[Value | None]) -> list[Value]:
    """Traces a body into the current graph; it sees the names around it."""
    if len(inputs) != len(body.inputs):
        raise IRError(f"the body takes {len(body.inputs)} inputs, it is given {len(inputs)}")
    names = dict(ctx.names)
    names.update({info.name: value for info, value in zip(body.inputs, inputs, strict=True)})
    ctx.tracer.run(body, names)
    for info in body.outputs:
        if info.name not in names:
            raise IRError(f"output {info.name!r} of the body is computed by no node")
    return [names[info.name] for info in body.outputs]


def _true(x: Value, what: str) -> bool:
    return bool(ints_of(reshape(x, [1]), what)[0])


def _attempt(settle: Callable[[], T]) -> T | None:
    """What can be settled now; None, and the graph as it was, where contents would have to be known."""
    graph = Graph.current()
    nodes, checks, reads = len(graph.nodes), len(graph.checks), dict(graph.reads)
    try:
        return settle()
    except NeedsContent:
        del graph.nodes[nodes:], graph.checks[checks:]
        graph.reads = reads
        return None


def _steered(x: Value | None, what: str, default: DimLike) -> DimLike:
    return default if x is None else dims_of(reshape(x, [1]), what)[0]


@op()
def If(cond: Value, *, then_branch: Any, else_branch: Any, ctx: Context) -> tuple[Any, ...]:
    condition = _steered(cond, "the condition of If", 1)
    if isinstance(condition, int):
        return tuple(subgraph(ctx, then_branch if condition else else_branch, []))
    outlines = [Outline(ctx, branch) for branch in (then_branch, else_branch)]
    given = [outline.trace([]) for outline in outlines]
    outs: list[tuple[DType, list[DimLike | None]]] = []
    for a, b in zip(*given, strict=True):
        if a.dtype is not b.dtype or a.rank != b.rank:
            both = " and ".join(type_text(v.dtype, v.shape) for v in (a, b))
            raise IRError(f"the branches give {both}: dtype and rank must agree where the condition is data")
        sizes = [(outlines[0].back(s), outlines[1].back(t)) for s, t in zip(a.shape, b.shape, strict=True)]
        outs.append((a.dtype, [s if s is not None and t is not None and dims.same(s, t) else None for s, t in sizes]))
    first = len(outlines[0].taken)
    return tuple(emit("if", outlines, [*outlines[0].taken, *outlines[1].taken], outs, first=first, condition=condition))


@op()
def Loop(
    M: Value | None = None, cond: Value | None = None, *v_initial: Value | Items | None, body: Any, ctx: Context
) -> tuple[Value | Items, ...]:
    """Carried values pass from step to step; what a step yields beyond them is stacked along a new first axis."""
    trips, condition = _steered(M, "the trip count of Loop", ANY_TRIPS), _steered(cond, "the condition of Loop", 1)
    items = any(isinstance(v, Items) for v in v_initial) or any(isinstance(ctx.names.get(n), Items) for n in body.captures or ())
    if items:
        return _settled(M, cond, v_initial, body, ctx)
    if isinstance(trips, int) and trips <= FEW and isinstance(condition, int):
        settled = _attempt(lambda: _settled(M, cond, v_initial, body, ctx))
        if settled is not None:
            return settled
    initial = [_present(v) for v in v_initial]  # type: ignore[arg-type]
    ranks = [len(info.type.shape or ()) for info in body.inputs[:2]]
    return run_loop(ctx, body, trips, condition, initial, lambda o, step, go, carried: o.trace([step, go, *carried]), ranks)


def _settled(
    M: Value | None, cond: Value | None, v_initial: Sequence[Value | Items | None], body: Any, ctx: Context
) -> tuple[Value | Items, ...]:
    """A loop whose steps are known: one after another."""
    limit = None if M is None else ints_of(reshape(M, [1]), "the trip count of Loop")[0]
    go = cond is None or _true(cond, "the condition of Loop")
    carried: Sequence[Any] = v_initial
    count = len(carried)
    stacked: list[list[Value]] = [[] for _ in body.outputs[1 + count :]]
    step = 0
    while go and (limit is None or step < limit):
        if step == STEPS:
            raise IRError(f"loops of more than {STEPS} steps over sequences are not supported")
        go_on, *results = subgraph(ctx, body, [constant(np.int64(step)), constant(np.array(True)), *carried])
        carried = results[:count]
        for row, value in zip(stacked, results[count:], strict=True):
            row.append(unsqueeze(value, [0]))
        step += 1
        go = (limit is None or step < limit) and _true(go_on, "the condition of Loop")
    if stacked and not step:
        _, *results = subgraph(ctx, body, [constant(np.int64(0)), constant(np.array(True)), *carried])
        stacked = [[fill([0, *value.shape], 0, value.dtype)] for value in results[count:]]
    return (*(_present(v) for v in carried), *(concat(row, 0) for row in stacked))


def _present(x: Value | None) -> Value:
    if x is None:
        raise IRError("a carried value is missing")
    return x


@op(since=9)
def Scan(
    *inputs: Value,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
    ctx: Context,
) -> tuple[Value, ...]:
    count = len(inputs) - num_scan_inputs
    state, scanned = list(inputs[:count]), inputs[count:]
    axes = [axis_of(a, x.rank) for a, x in zip(scan_input_axes or [0] * num_scan_inputs, scanned, strict=True)]
    backwards = scan_input_directions or [0] * num_scan_inputs
    steps = scanned[0].shape[axes[0]]
    for x, axis in zip(scanned, axes, strict=True):
        Graph.current().check(dims.eq(x.shape[axis], steps), f"scanned axes have {x.shape[axis]} and {steps} elements")
    many = not isinstance(steps, int) or steps > FEW or steps == 0
    if many and not any(isinstance(ctx.names.get(n), Items) for n in body.captures or ()):
        results = _run_scan(ctx, body, steps, state, scanned, axes, backwards)
        state, rows = list(results[:count]), list(results[count:])
    else:
        state, rows = _settled_scan(ctx, body, _length(steps), state, scanned, axes, backwards)
    outputs = []
    for k, row in enumerate(rows):
        if (scan_output_directions or [0] * len(rows))[k]:
            row = between(row, 0, -1, -dims.MAX_SIZE, -1)
        axis = axis_of((scan_output_axes or [0] * len(rows))[k], row.rank)
        outputs.append(transpose(row, [*range(1, axis + 1), 0, *range(axis + 1, row.rank)]))
    return (*state, *outputs)


def _run_scan(
    ctx: Context,
    body: Any,
    steps: DimLike,
    state: Sequence[Value],
    scanned: Sequence[Value],
    axes: Sequence[int],
    backwards: Sequence[int],
) -> tuple[Value, ...]:
    def trace(outline: Outline, step: Value, going: Value, carried: Sequence[Value]) -> list[Value]:
        slices = []
        for x, axis, back in zip(scanned, axes, backwards, strict=True):
            whole = outline.take(x)
            with outline.graph:
                last = reshape(literal([whole.shape[axis] - 1]), ())
                slices.append(Gather(whole, map_("sub", last, step) if back else step, axis=axis))
        results = outline.trace([*carried, *slices])
        go = constant(np.array(True))
        outline.graph.outputs.insert(0, ("go", go))
        return [go, *results]

    return run_loop(ctx, body, steps, 1, state, trace, [0, 0])


def _settled_scan(
    ctx: Context,
    body: Any,
    steps: int,
    state: Sequence[Value],
    scanned: Sequence[Value],
    axes: Sequence[int],
    backwards: Sequence[int],
) -> tuple[list[Value], list[Value]]:
    count = len(state)
    stacked: list[list[Value]] = [[] for _ in body.outputs[count:]]
    for step in range(steps):
        at = [steps - 1 - step if back else step for back in backwards]
        slices = [squeeze(slice_(x, a, i, 1), [a]) for x, a, i in zip(scanned, axes, at, strict=True)]
        results = subgraph(ctx, body, [*state, *slices])
        state = results[:count]
        for row, value in zip(stacked, results[count:], strict=True):
            row.append(unsqueeze(value, [0]))
    return list(state), [concat(row, 0) for row in stacked]


def _length(size: Any) -> int:
    if not isinstance(size, int):
        raise IRError(f"the length of the scanned axis must be known when the model is compiled, it is {size}")
    if size > STEPS:
        raise IRError(f"scans over more than {STEPS} elements are not supported, this one is over {size}")
    return size


@op("Scan", since=8, until=8)
def Scan_8(
    sequence_lens: Value | None = None,
    *inputs: Value,
    body: Any,
    num_scan_inputs: int,
    directions: Sequence[int] | None = None,
    ctx: Context,
) -> tuple[Value, ...]:
    """Every input has a batch axis before the scanned one; each element of the batch is a scan of its own."""
    if sequence_lens is not None:
        raise IRError("sequence_lens is not supported")
    runs = []
    for b in range(_length(inputs[0].shape[0])):
        one = [squeeze(slice_(x, 0, b, 1), [0]) for x in inputs]
        runs.append(Scan(*one, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions, ctx=ctx))
    return tuple(concat([unsqueeze(v, [0]) for v in parts], 0) for parts in zip(*runs, strict=True))
