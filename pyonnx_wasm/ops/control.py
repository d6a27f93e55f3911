"""Branches and loops: settled when the model is compiled where what steers them is known and small, else run by the core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..dtypes import DType
from ..ir import (
    Form,
    Graph,
    IRError,
    Items,
    NeedsShape,
    NeedsSizes,
    Packed,
    Single,
    Strings,
    TooManyWays,
    Undecided,
    Value,
    dims,
    form_of,
    parts,
    rebuilt,
    type_text,
)
from ..ir.dims import DimLike
from ..onnxfile.graph import captured
from ..registry import Context, op
from ..tensor import (
    axis_of,
    between,
    concat,
    constant,
    dims_of,
    fill,
    literal,
    map_,
    reshape,
    slice_,
    squeeze,
    strings,
    transpose,
    unsqueeze,
)
from .bodies import ANY_TRIPS, Outline, emit
from .gather import Gather
from .loops import run_loop
from .ragged import at, extend, flat, pack, row_of, run_of, shaped

STEPS = 1024  # most that are settled one after another
FEW = 8  # settled where they could be run by the core as well
T = TypeVar("T")


class Unsettled(Exception):
    """What steers a loop is data."""


def subgraph(ctx: Context, body: Any, inputs: Sequence[Any]) -> list[Any]:
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


def _attempt(settle: Callable[[], T]) -> T | None:
    """What can be settled now; None, and the graph as it was, where contents would have to be known."""
    graph = Graph.current()
    nodes, checks, reads = len(graph.nodes), len(graph.checks), dict(graph.reads)
    try:
        return settle()
    except Unsettled:
        del graph.nodes[nodes:], graph.checks[checks:]
        graph.reads = reads
        return None


def _steered(x: Value | Single | None, what: str, default: DimLike) -> DimLike:
    x = x.value if isinstance(x, Single) else x
    return default if x is None else dims_of(reshape(x, [1]), what)[0]


@op()
def If(cond: Value, *, then_branch: Any, else_branch: Any, ctx: Context) -> tuple[Any, ...]:
    condition = _steered(cond, "the condition of If", 1)

    def run(branches: Sequence[Any], anyway: bool) -> tuple[Any, ...]:
        if isinstance(condition, int):
            return tuple(subgraph(ctx, branches[0 if condition else 1], []))
        return either(ctx, condition, [(b, None) for b in branches], anyway)

    try:
        return run([then_branch, else_branch], False)
    except Undecided as error:
        why = str(error)
    raise Undecided(why, lambda rest: run([followed(b, ctx.outputs, rest) for b in (then_branch, else_branch)], True))


def followed(branch: Any, names: Sequence[str], rest: Any) -> Any:
    """A branch with all that comes behind it, where its outputs have other names.

    Raises:
        IRError: names of the branch stand for something else behind it.
    """
    own = {*branch.initializers, *(name for node in branch.nodes for name in node.outputs)}
    taken = sorted(own & ({*(rest.captures or ())} - {*names}))
    if taken:
        raise IRError(f"{taken[0]!r} stands for two values, in a branch and behind it; give one another name")
    first = branch.nodes[0] if branch.nodes else rest.nodes[0]
    renamed = [
        replace(first, op_type="Identity", domain="", name="", inputs=(info.name,), outputs=(name,), attrs={}, opset=None)
        for info, name in zip(branch.outputs, names, strict=False)
        if name and name != info.name
    ]
    return captured(replace(branch, nodes=[*branch.nodes, *renamed, *rest.nodes], outputs=rest.outputs))


Way = tuple[Any, Callable[[Outline], Mapping[str, Any]] | None]  # a body, and what gives further values in it by name


def either(ctx: Context, condition: DimLike, ways: Sequence[Way], anyway: bool) -> tuple[Any, ...]:
    """One of two bodies, as a condition tells that is data.

    Args:
        anyway: a body that cannot be compiled is an error when it is run, not before.
    """
    outlines = [Outline(ctx, body) for body, _ in ways]
    traced = [_traced(o, given, anyway) for o, (_, given) in zip(outlines, ways, strict=True)]
    wrong = [t for t in traced if isinstance(t, IRError)]
    if len(wrong) == len(traced):
        raise wrong[0]
    for k, other in enumerate(traced):
        if isinstance(other, IRError):
            outlines[k] = Outline(ctx, ways[k][0])
            traced[k] = _impossible(outlines[k], str(other), outlines[1 - k], traced[1 - k])
    found = [t for t in traced if not isinstance(t, IRError)]
    if len(found[0]) != len(found[1]):
        raise IRError(f"one branch gives {len(found[0])} values, the other {len(found[1])}")
    _demand_sizes(ctx, condition, found)
    grown = _pieces(outlines, found)
    forms = [_common(a, b, "the branches give") for a, b in zip(*found, strict=True)]
    given = [outline.give(values, forms) for outline, values in zip(outlines, found, strict=True)]
    outs: list[tuple[DType, list[DimLike | None]]] = []
    for a, b in zip(*given, strict=True):
        sizes = [(outlines[0].back(s), outlines[1].back(t)) for s, t in zip(a.shape, b.shape, strict=True)]
        outs.append((a.dtype, [s if s is not None and t is not None and dims.same(s, t) else None for s, t in sizes]))
    for outline in outlines:
        for inner, around in outline.packed:
            if any(around is whole for whole in grown.values()):
                outline.forget(inner)
    first = len(outlines[0].taken)
    made = emit("if", outlines, [*outlines[0].taken, *outlines[1].taken], outs, first=first, condition=condition) if outs else []
    return tuple(extend(grown[k], v) if k in grown else v for k, v in enumerate(_like(found[0], forms, iter(made))))


def _pieces(outlines: Sequence[Outline], found: Sequence[list[Any]]) -> dict[int, Packed]:
    """The results in which both branches put something, or nothing, behind one sequence around them: by number, that sequence.

    There the branches give what they put, so that a branch copies no sequence, and a loop around it carries none.
    """
    grown: dict[int, Packed] = {}
    for k, both in enumerate(zip(*found, strict=True)):
        (one, puts), (other, others) = (_behind(outline, v) for outline, v in zip(outlines, both, strict=True))
        if one is None or one is not other or not (puts or others):
            continue
        grown[k] = one
        for outline, values, put in zip(outlines, found, (puts, others), strict=True):
            with outline.graph:
                values[k] = run_of(put, one.dtype)
    return grown


def _behind(outline: Outline, value: Any) -> tuple[Packed | None, tuple[Any, ...]]:
    """The sequence around a branch that a value of it begins with, and what the branch put behind it."""
    root, put = (value.grew or (value, ())) if isinstance(value, Packed) else (None, ())
    return next((around for inner, around in outline.packed if inner is root), None), put


def _traced(outline: Outline, given: Callable[[Outline], Mapping[str, Any]] | None, anyway: bool) -> list[Any] | IRError:
    try:
        return outline.trace([], None if given is None else given(outline))
    except (Undecided, TooManyWays, NeedsShape, NeedsSizes):
        raise
    except IRError as error:
        if not anyway:
            raise
        return error


def _impossible(outline: Outline, why: str, other: Outline, values: Any) -> list[Any]:
    """What a body gives in the place of values of another one: nothing, as it is an error to run it."""
    around = {s: other.back(s) for v in values if v is not None for part in parts(v) for s in part.shape}
    known = [s for s in dict.fromkeys(around.values()) if s is not None]
    told = outline.take(literal([0, *known]))
    with outline.graph:
        never, *sizes = dims_of(told, "what cannot be run")
        outline.graph.check(dims.eq(never, 1), why)
        inside: dict[DimLike | None, DimLike] = {}
        for size, read in zip(known, sizes, strict=True):
            inside[size] = read
            outline.know(size, read)

        def blank(part: Value) -> Value:
            return fill([inside.get(around[s], 0) for s in part.shape], 0, part.dtype)

        return [None if v is None else rebuilt(v, iter([blank(part) for part in parts(v)])) for v in values]


def _demand_sizes(ctx: Context, condition: DimLike, found: Sequence[Sequence[Any]]) -> None:
    """Branches of different ranks are settled where sizes of inputs alone choose: PyTorch writes ``squeeze`` of a symbolic axis so."""
    for a, b in zip(*found, strict=True):
        if isinstance(a, (Value, Strings)) and isinstance(b, (Value, Strings)) and a.rank != b.rank:
            sizes = {name for size in ctx.tracer.symbols.values() for name in dims.symbols(size)}
            if sizes.issuperset(dims.symbols(condition)):
                both = " and ".join(type_text(v.dtype, v.shape) for v in (a, b))
                raise NeedsSizes(dims.symbols(condition), f"the branches give {both}")


def _common(a: Any, b: Any, what: str) -> Form | None:
    """The form in which both pass; None where both are absent."""
    if a is None and b is None:
        return None
    told = isinstance(a, (Value, Strings)) and isinstance(b, (Value, Strings))
    single = isinstance(a, Value) and isinstance(b, Value) and all(size == 1 for size in (*a.shape, *b.shape))
    if told and (a.dtype is not b.dtype or (a.rank != b.rank and not single)):
        both = " and ".join(type_text(v.dtype, v.shape) for v in (a, b))
        text = f"{what} {both}: dtype and rank must agree where the condition is data"
        raise Undecided(f"{text}; Reshape both to one rank") if a.dtype is b.dtype else IRError(text)
    return form_of(a) | form_of(b)


def _like(values: Sequence[Any], forms: Sequence[Form | None], made: Iterator[Value]) -> list[Any]:
    """The values that tensors make up."""
    return [None if form is None else shaped(form, made) for _, form in zip(values, forms, strict=True)]


@op()
def Loop(
    M: Value | None = None, cond: Value | None = None, *v_initial: Value | Strings | Items | Packed | None, body: Any, ctx: Context
) -> tuple[Any, ...]:
    """Carried values pass from step to step; what a step yields beyond them is stacked along a new first axis."""
    trips, condition = _steered(M, "the trip count of Loop", ANY_TRIPS), _steered(cond, "the condition of Loop", 1)
    if isinstance(trips, int) and trips <= FEW and isinstance(condition, int):
        settled = _attempt(lambda: _settled(trips, condition, v_initial, body, ctx))
        if settled is not None:
            return settled
    ranks = [len(info.type.shape or ()) for info in body.inputs[:2]]
    return run_loop(ctx, body, trips, condition, v_initial, lambda o, step, go, carried: o.trace([step, go, *carried]), ranks)


def map_sequences(ctx: Context, body: Any, count: DimLike, inputs: Sequence[Any]) -> tuple[Packed, ...]:
    """A body on the elements of sequences, one after the other; other values are the same for all."""
    known: list[Value | Strings] = []

    def trace(outline: Outline, step: Value, going: Value, carried: Sequence[Any]) -> list[Any]:
        taken = [outline.take_whole(pack(v)) if isinstance(v, (Items, Packed)) else outline.take_whole(v) for v in inputs]
        with outline.graph:
            position = dims_of(reshape(step, [1]), "the position")[0]
            items = [at(v, position) if isinstance(v, Packed) else v for v in taken]
        known[:] = outline.trace(items)
        with outline.graph:
            rows = [literal([*row_of(v)]) for v in known]
            return [constant(np.array(True)), *rows, *map(flat, known)]

    made = run_loop(ctx, body, count, 1, [], trace, [0, 0], len(body.outputs))
    rows, runs = made[: len(known)], made[len(known) :]
    return tuple(Packed(run, row, frozenset([v.rank])) for run, row, v in zip(runs, rows, known, strict=True))


def _settled(trips: int, condition: int, v_initial: Sequence[Any], body: Any, ctx: Context) -> tuple[Any, ...]:
    """A loop whose steps are known: one after another."""
    go = bool(condition)
    carried: Sequence[Any] = v_initial
    count = len(carried)
    stacked: list[list[Value]] = [[] for _ in body.outputs[1 + count :]]
    step = 0
    while go and step < trips:
        go_on, *results = subgraph(ctx, body, [constant(np.int64(step)), constant(np.array(True)), *carried])
        carried = results[:count]
        for row, value in zip(stacked, results[count:], strict=True):
            row.append(value)
        step += 1
        if step < trips:
            known = dims_of(reshape(go_on, [1]), "the condition of Loop")[0]
            if not isinstance(known, int):
                raise Unsettled
            go = bool(known)
    if stacked and not step:
        _, *results = subgraph(ctx, body, [constant(np.int64(0)), constant(np.array(True)), *carried])
        return (*carried, *(_none_of(value) for value in results[count:]))
    return (*carried, *map(_stack, stacked))


def _stack(rows: Sequence[Value | Strings]) -> Value | Strings:
    """Values of one shape along a new first axis."""
    if isinstance(rows[0], Strings):
        spans, pool = strings.common(*(row for row in rows if isinstance(row, Strings)))
        return Strings(concat([unsqueeze(row, [0]) for row in spans], 0), pool)
    return concat([unsqueeze(row, [0]) for row in rows if isinstance(row, Value)], 0)


def _none_of(value: Value | Strings) -> Value | Strings:
    if isinstance(value, Strings):
        return Strings(fill([0, *value.shape], 0, DType.int64), value.pool)
    return fill([0, *value.shape], 0, value.dtype)


@op(since=9)
def Scan(
    *inputs: Value | Strings,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
    ctx: Context,
) -> tuple[Value | Strings, ...]:
    count = len(inputs) - num_scan_inputs
    state, scanned = list(inputs[:count]), inputs[count:]
    axes = [axis_of(a, x.rank) for a, x in zip(scan_input_axes or [0] * num_scan_inputs, scanned, strict=True)]
    backwards = scan_input_directions or [0] * num_scan_inputs
    steps = scanned[0].shape[axes[0]]
    for x, axis in zip(scanned, axes, strict=True):
        Graph.current().check(dims.eq(x.shape[axis], steps), f"scanned axes have {x.shape[axis]} and {steps} elements")
    if not isinstance(steps, int) or steps > FEW or steps == 0:
        results = _run_scan(ctx, body, steps, state, scanned, axes, backwards)
        state, rows = list(results[:count]), list(results[count:])
    else:
        state, rows = _settled_scan(ctx, body, steps, state, scanned, axes, backwards)
    outputs = []
    for k, row in enumerate(rows):
        if (scan_output_directions or [0] * len(rows))[k]:
            row = strings.moved(lambda v: between(v, 0, -1, -dims.MAX_SIZE, -1), row)
        axis = axis_of((scan_output_axes or [0] * len(rows))[k], row.rank)
        order = [*range(1, axis + 1), 0, *range(axis + 1, row.rank)]
        outputs.append(strings.moved(lambda v, order=order: transpose(v, order), row))
    return (*state, *outputs)


def _run_scan(
    ctx: Context,
    body: Any,
    steps: DimLike,
    state: Sequence[Value | Strings],
    scanned: Sequence[Value | Strings],
    axes: Sequence[int],
    backwards: Sequence[int],
) -> tuple[Any, ...]:
    def trace(outline: Outline, step: Value, going: Value, carried: Sequence[Any]) -> list[Any]:
        slices = []
        for x, axis, back in zip(scanned, axes, backwards, strict=True):
            whole = outline.take_whole(x)
            with outline.graph:
                last = reshape(literal([whole.shape[axis] - 1]), ())
                place = map_("sub", last, step) if back else step
                slices.append(strings.moved(lambda v, place=place, axis=axis: Gather(v, place, axis=axis), whole))
        results = outline.trace([*carried, *slices])
        with outline.graph:
            return [constant(np.array(True)), *results]

    return run_loop(ctx, body, steps, 1, state, trace, [0, 0])


def _settled_scan(
    ctx: Context,
    body: Any,
    steps: int,
    state: Sequence[Value | Strings],
    scanned: Sequence[Value | Strings],
    axes: Sequence[int],
    backwards: Sequence[int],
) -> tuple[list[Any], list[Any]]:
    count = len(state)
    stacked: list[list[Value | Strings]] = [[] for _ in body.outputs[count:]]
    for step in range(steps):
        at = [steps - 1 - step if back else step for back in backwards]
        slices = [strings.moved(lambda v, a=a, i=i: squeeze(slice_(v, a, i, 1), [a]), x) for x, a, i in zip(scanned, axes, at, strict=True)]
        results = subgraph(ctx, body, [*state, *slices])
        state = results[:count]
        for row, value in zip(stacked, results[count:], strict=True):
            row.append(value)
    return list(state), [_stack(row) for row in stacked]


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
