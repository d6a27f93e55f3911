"""Control flow that is settled when the model is compiled: the branch taken, the steps of a loop one after another.

What steers it must be known: a constant, a size, or an input whose content the session fixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import IRError, Items, Value
from ..op import Context, op
from ..tensor import axis_of, concat, constant, fill, ints_of, reshape, slice_, squeeze, unsqueeze

STEPS = 1024


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


@op()
def If(cond: Value, *, then_branch: Any, else_branch: Any, ctx: Context) -> tuple[Value, ...]:
    return tuple(subgraph(ctx, then_branch if _true(cond, "the condition of If") else else_branch, []))


@op()
def Loop(
    M: Value | None = None, cond: Value | None = None, *v_initial: Value | Items | None, body: Any, ctx: Context
) -> tuple[Value | Items, ...]:
    """Carried values pass from step to step; what a step yields beyond them is stacked along a new first axis."""
    limit = None if M is None else ints_of(reshape(M, [1]), "the trip count of Loop")[0]
    go = cond is None or _true(cond, "the condition of Loop")
    carried: Sequence[Any] = v_initial
    count = len(carried)
    stacked: list[list[Value]] = [[] for _ in body.outputs[1 + count :]]
    step = 0
    while go and (limit is None or step < limit):
        if step == STEPS:
            raise IRError(f"loops of more than {STEPS} steps are not supported")
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
    steps = _length(scanned[0].shape[axes[0]])
    stacked: list[list[Value]] = [[] for _ in body.outputs[count:]]
    for step in range(steps):
        at = [steps - 1 - step if back else step for back in backwards]
        slices = [squeeze(slice_(x, a, i, 1), [a]) for x, a, i in zip(scanned, axes, at, strict=True)]
        results = subgraph(ctx, body, [*state, *slices])
        state = results[:count]
        for row, value in zip(stacked, results[count:], strict=True):
            row.append(value)
    outputs = []
    for k, row in enumerate(stacked):
        if not row:
            raise IRError("a Scan over no elements is not supported")
        axis = axis_of((scan_output_axes or [0] * len(stacked))[k], row[0].rank + 1)
        parts = row[::-1] if (scan_output_directions or [0] * len(stacked))[k] else row
        outputs.append(concat([unsqueeze(v, [axis]) for v in parts], axis))
    return (*state, *outputs)


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
