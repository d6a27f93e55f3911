"""Sequences and optionals whose structure is settled when the model is compiled: lists of values in the tracer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import IRError, Items, Value
from ..op import Context, op
from ..tensor import axis_of, concat, constant, dims_of, ints_of, reshape, slice_, squeeze, unsqueeze
from ..tensor import split as pieces_of
from .control import subgraph


@op()
def SequenceEmpty(*, dtype: int = 1) -> Items:
    return Items(())


@op()
def SequenceConstruct(*inputs: Value) -> Items:
    return Items(inputs)


@op()
def SequenceLength(input_sequence: Items) -> Value:
    return constant(np.array(len(input_sequence.values), np.int64))


@op()
def SequenceAt(input_sequence: Items, position: Value) -> Value:
    return input_sequence.values[_position(position, len(input_sequence.values))]


@op()
def SequenceInsert(input_sequence: Items, tensor: Value, position: Value | None = None) -> Items:
    values = list(input_sequence.values)
    values.insert(len(values) if position is None else _position(position, len(values), 1), tensor)
    return Items(tuple(values))


@op()
def SequenceErase(input_sequence: Items, position: Value | None = None) -> Items:
    values = list(input_sequence.values)
    del values[len(values) - 1 if position is None else _position(position, len(values))]
    return Items(tuple(values))


def _position(at: Value, count: int, beyond: int = 0) -> int:
    """Counted from the end when negative; an insertion may be one behind the last."""
    index = ints_of(reshape(at, [1]), "the position")[0]
    if not -count <= index < count + beyond:
        raise IRError(f"position {index} is out of range for a sequence of {count}")
    return index + count if index < 0 else index


@op()
def ConcatFromSequence(input_sequence: Items, *, axis: int, new_axis: int = 0) -> Value:
    values = input_sequence.values
    if not values:
        raise IRError("the sequence is empty")
    at = axis_of(axis, values[0].rank + new_axis)
    return concat([unsqueeze(v, [at]) for v in values] if new_axis else values, at)


@op()
def SplitToSequence(input: Value, split: Value | None = None, *, axis: int = 0, keepdims: int = 1) -> Items:
    at = axis_of(axis, input.rank)
    if split is not None and split.rank == 1:
        return Items(tuple(pieces_of(input, at, dims_of(split, "split"))))
    each = 1 if split is None else ints_of(reshape(split, [1]), "split")[0]
    size = input.shape[at]
    if not isinstance(size, int) or each < 1:
        raise IRError(f"an axis of size {size} cannot be split into pieces of {each} when the model is compiled")
    pieces = [slice_(input, at, start, min(each, size - start)) for start in range(0, size, each)]
    return Items(tuple(squeeze(p, [at]) for p in pieces) if split is None and not keepdims else tuple(pieces))


@op()
def SequenceMap(input_sequence: Items, *additional_inputs: Value | Items, body: Any, ctx: Context) -> tuple[Items, ...]:
    """The body on each element; further sequences go along, tensors are the same for all."""
    count = len(input_sequence.values)
    rows = []
    for i in range(count):
        others = [v.values[i] if isinstance(v, Items) else v for v in additional_inputs]
        rows.append(subgraph(ctx, body, [input_sequence.values[i], *others]))
    return tuple(Items(tuple(row[k] for row in rows)) for k in range(len(body.outputs)))


@op()
def Optional(input: Value | Items | None = None, *, type: Any = None) -> Any:
    if input is None:
        raise IRError("an optional without a value is not supported")
    return input


@op()
def OptionalHasElement(input: Value | Items | None = None) -> Value:
    return constant(np.array(input is not None))


@op()
def OptionalGetElement(input: Value | Items) -> Any:
    return input
