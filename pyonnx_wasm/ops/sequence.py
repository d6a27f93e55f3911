"""Sequences and optionals: settled when the model is compiled where their structure is known, else tensors (:mod:`.ragged`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import Graph, IRError, Items, Maybe, Packed, Strings, Undecided, Value, dims
from ..ir.dims import DimLike
from ..onnxfile.graph import Node, captured
from ..registry import Context, op
from ..tensor import axis_of, cast, concat, constant, content, dims_of, literal, reshape, slice_, squeeze, strings, unsqueeze
from ..tensor import split as pieces_of
from . import ragged
from .bodies import Outline
from .control import either, map_sequences, subgraph

MANY = 64  # pieces of an axis that are told apart when the model is compiled


@op()
def SequenceEmpty(*, dtype: int = 1) -> Items:
    return Items((), DType(dtype))


@op()
def SequenceConstruct(*inputs: Value | Strings) -> Items:
    return Items(inputs)


@op()
def SequenceLength(input_sequence: Items | Packed) -> Value:
    return reshape(literal([ragged.length(_sequence(input_sequence))]), [])


@op()
def SequenceAt(input_sequence: Items | Packed, position: Value, *, ctx: Context) -> Value | Strings:
    sequence = _sequence(input_sequence)
    index = ragged.place(position, ragged.length(sequence))
    if isinstance(sequence, Items) and isinstance(index, int):
        return sequence.values[index]
    packed = ragged.pack(sequence)
    if packed.ranks is None or len(packed.ranks) < 2:
        return ragged.at(packed, index)
    raise Undecided(ragged.mixed(packed), lambda rest: _by_rank(ctx, packed, index, rest))


def _by_rank(ctx: Context, x: Packed, position: DimLike, rest: Any) -> Sequence[Any]:
    """All that comes behind a node which takes a tensor out of a sequence: for the least rank that it may have, or for the others."""
    assert x.ranks is not None
    least = min(x.ranks)
    names = [f"{ctx.outputs[0]}/{what}" for what in ("sequence", "position")]
    node = Node("SequenceAt", "", ctx.node, "", tuple(names), ctx.outputs, {}, 0)
    body = captured(replace(rest, nodes=[node, *rest.nodes]))
    where = literal([position])

    def way(ranks: frozenset[int]) -> Callable[[Outline], Mapping[str, Any]]:
        return lambda o: dict(zip(names, (o.take_whole(replace(x, ranks=ranks, grew=None)), o.take(where)), strict=True))

    ways = [(body, way(ranks)) for ranks in (frozenset([least]), x.ranks - {least})]
    return either(ctx, dims.eq(ragged.rank_at(x, position), least), ways, True)


@op()
def SequenceInsert(input_sequence: Items | Packed, tensor: Value | Strings, position: Value | None = None) -> Items | Packed:
    sequence = _sequence(input_sequence)
    count = ragged.length(sequence)
    index = count if position is None else ragged.place(position, count, 1)
    if isinstance(sequence, Items) and isinstance(index, int):
        return Items((*sequence.values[:index], tensor, *sequence.values[index:]), sequence.dtype)
    return ragged.insert(ragged.pack(sequence, tensor.dtype), tensor, index)


@op()
def SequenceErase(input_sequence: Items | Packed, position: Value | None = None) -> Items | Packed:
    sequence = _sequence(input_sequence)
    index = ragged.place(constant(np.int64(-1)) if position is None else position, ragged.length(sequence))
    if isinstance(sequence, Items) and isinstance(index, int):
        return Items((*sequence.values[:index], *sequence.values[index + 1 :]), sequence.values[index].dtype)
    return ragged.erase(ragged.pack(sequence), index)


def _sequence(x: Any) -> Items | Packed:
    if isinstance(x, (Items, Packed)):
        return x
    raise IRError(f"{'an optional' if isinstance(x, Maybe) else 'a tensor'} stands where a sequence is needed")


@op()
def ConcatFromSequence(input_sequence: Items | Packed, *, axis: int, new_axis: int = 0) -> Value | Strings:
    sequence = _sequence(input_sequence)
    if isinstance(sequence, Packed):
        return ragged.joined(sequence, axis, bool(new_axis))
    values = sequence.values
    if not values:
        raise IRError("the sequence is empty")
    at = axis_of(axis, values[0].rank + new_axis)
    return strings.moved(lambda *vs: concat([unsqueeze(v, [at]) for v in vs] if new_axis else vs, at), *values)  # type: ignore[no-any-return]


@op()
def SplitToSequence(input: Value | Strings, split: Value | None = None, *, axis: int = 0, keepdims: int = 1) -> Items | Packed:
    at = axis_of(axis, input.rank)
    x, pool = (input.spans, input.pool) if isinstance(input, Strings) else (input, None)

    def settled(pieces: Sequence[Value]) -> Items:
        return Items(tuple(p if pool is None else Strings(p, pool) for p in pieces), input.dtype)

    size, keep = input.shape[at], split is not None or bool(keepdims)
    if split is not None and split.rank == 1:
        known = content(split)
        if known is not None and len(known) <= MANY:
            return settled(pieces_of(x, at, dims_of(split, "split")))
        return ragged.divided(input, at, cast(split, DType.int64))
    each = 1 if split is None else dims_of(reshape(split, [1]), "split")[0]
    if isinstance(size, int) and isinstance(each, int) and each >= 1 and size <= MANY * each:
        pieces = [slice_(x, at, start, min(each, size - start)) for start in range(0, size, each)]
        return settled(pieces if keep else [squeeze(p, [at]) for p in pieces])
    return ragged.divided(input, at, ragged.even(x, at, each), keep)


@op()
def SequenceMap(
    input_sequence: Items | Packed, *additional_inputs: Value | Strings | Items | Packed, body: Any, ctx: Context
) -> tuple[Any, ...]:
    """The body on each element; further sequences go along, tensors are the same for all."""
    count = ragged.length(_sequence(input_sequence))
    inputs = [input_sequence, *additional_inputs]
    for other in inputs[1:]:
        if isinstance(other, (Items, Packed)):
            have = ragged.length(other)
            Graph.current().check(dims.eq(count, have), f"the sequences have {count} and {have} elements")
    if not isinstance(count, int) or not count or any(isinstance(v, Packed) for v in inputs):
        return map_sequences(ctx, body, count, inputs)
    rows = [subgraph(ctx, body, [v.values[i] if isinstance(v, Items) else v for v in inputs]) for i in range(count)]
    return tuple(Items(tuple(row[k] for row in rows)) for k in range(len(body.outputs)))


@op()
def Optional(input: Value | Strings | Items | Packed | None = None, *, type: Any = None) -> Any:
    return input


@op()
def OptionalHasElement(input: Value | Strings | Items | Packed | None = None) -> Value:
    return input.present if isinstance(input, Maybe) else constant(np.array(input is not None))


@op()
def OptionalGetElement(input: Value | Strings | Items | Packed | None = None) -> Any:
    if input is None:
        raise IRError("the optional has no value")
    return ragged.there(input) if isinstance(input, Maybe) else input
