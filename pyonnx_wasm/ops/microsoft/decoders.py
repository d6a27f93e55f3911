"""The subgraphs of searches: what a decoder takes beside the tokens, and what of it passes from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtypes import DType
from ...ir import Graph, IRError, Value, dims
from ...ir.dims import DimLike
from ...registry import Context
from ...tensor import (
    broadcast_to,
    cast,
    concat,
    constant,
    contiguous,
    dims_of,
    fill,
    index,
    like,
    literal,
    map_,
    reduce,
    reshape,
    slice_,
    unsqueeze,
)
from ..control import subgraph
from ..gather import Gather
from ..ragged import at_node
from ..reduction import CumSum

CACHES = ("past_sequence_length", "beam_width", "cache_indirection", "past_seq_len", "num_beams")
ONE = np.array(1, np.int64)


def beamed(x: Value, beams: DimLike) -> Value:
    """Each row so often: [batch * beams, ...]."""
    whole = broadcast_to(unsqueeze(x, [1]), [x.shape[0], beams, *x.shape[1:]])
    return reshape(contiguous(whole), [x.shape[0] * beams, *x.shape[1:]])


def scores_of(logits: Value, words: int) -> Value:
    """The last position of [rows, length, words], float32 [rows, words]; ``words``: -1 for all."""
    last = slice_(logits, 1, logits.shape[1] - 1, 1)
    last = reshape(contiguous(last), [logits.shape[0], logits.shape[2]])
    return cast(last if words < 0 else slice_(last, 1, 0, words), DType.float32)


def number(x: Value | None, what: str) -> DimLike:
    """An integer input of one element."""
    if x is None:
        raise IRError(f"input {what!r} is missing")
    return dims_of(reshape(x, [1]), what)[0]


def check_room(most: DimLike, length: DimLike) -> None:
    Graph.current().check(dims.gt(most, length), at_node("max_length must exceed the number of tokens that there are"))


def _known(names: Sequence[str]) -> None:
    for name in names:
        if name in CACHES:
            raise IRError(
                f"the decoder's input {name!r} belongs to DecoderMasked(Self|MultiHead)Attention, which onnxruntime has for CUDA alone;"
                " convert the model without --use_decoder_masked_attention and without --past_present_share_buffer"
            )


@dataclass(frozen=True)
class Causal:
    """A decoder with a past, as of GPT-2: tokens, positions, an attention mask and past_i; it gives logits and present_i."""

    body: Any
    words: int = -1

    def begin(self, ids: Value, mask: Value | None, pad: int, beams: DimLike) -> list[Value]:
        """What the first step takes, then the position of what follows."""
        if len(self.body.inputs) < 4:
            raise IRError(f"the decoder takes {len(self.body.inputs)} inputs; tokens, positions, a mask and at least one past are needed")
        _known([i.name for i in self.body.inputs])
        kinds = [i.type.dtype for i in self.body.inputs]
        real = cast(map_("not", map_("eq", ids, like(ids, pad))), DType.int64)
        sums: Value = CumSum(real, constant(ONE))  # positions are those of tokens that are not padding, whatever the mask says
        places = map_("where", map_("eq", real, like(real, 0)), like(sums, 0), map_("sub", sums, like(sums, 1)))
        mask = real if mask is None else mask
        start = [cast(beamed(v, beams), k) for v, k in zip((ids, places, mask), kinds, strict=False)]
        following = cast(beamed(reduce("sum", real, [1], True), beams), kinds[1])
        return [*start, *self._empty(ids.shape[0] * beams), following]

    def _empty(self, rows: DimLike) -> list[Value]:
        pasts = []
        for k, info in enumerate(self.body.inputs[3:]):
            shape: Sequence[Any] = info.type.shape or (self.body.outputs[1 + k].type.shape or ())
            if len(shape) != 5 or not all(isinstance(shape[a], int) for a in (2, 4)):
                raise IRError(
                    f"the decoder's input {info.name!r} must be declared as [2, batch, heads, length, size of a head], it is {shape}"
                )
            pasts.append(fill([2, rows, shape[2], 0, shape[4]], 0, info.type.dtype))
        return pasts

    def inside(self, outline: Any) -> Causal:
        """The same in the body of a loop."""
        return self

    def fed(self, outline: Any, sequences: Value, carried: Sequence[Value]) -> Sequence[Value]:
        """The decoder's inputs by place."""
        return carried[: len(self.body.inputs)]

    def next(self, carried: Sequence[Value], given: Sequence[Value], tokens: Value, rows: Value | None) -> list[Value]:
        """What the next step takes: tokens [rows, 1], and of what the decoder gave the chosen ``rows``."""
        ids, _, mask, *_, place = carried
        mask = concat([mask, fill([mask.shape[0], 1], 1, mask.dtype)], 1)
        pasts = [p if rows is None else Gather(p, rows, axis=1) for p in given[1:]]
        return [cast(tokens, ids.dtype), place, mask, *pasts, map_("add", place, like(place, 1))]

    @property
    def vocabulary(self) -> int:
        shape = self.body.outputs[0].type.shape
        size = self.words if self.words >= 0 else shape[2] if shape and len(shape) == 3 else None
        if not isinstance(size, int):
            raise IRError("the number of words is not known; give vocab_size, or declare the shape of the decoder's logits")
        return size


@dataclass(frozen=True)
class Crossed:
    """A decoder behind an encoder, as of T5 and Whisper: tokens, what the encoder gives by name, and its own past.

    ``memory`` holds what stays the same: the encoder's mask, its hidden states and the pasts of cross attention.
    """

    body: Any
    memory: dict[str, Value]
    words: int = -1

    def names(self) -> list[str]:
        return [i.name for i in self.body.inputs]

    @property
    def grown(self) -> list[str]:
        """Its inputs that pass from step to step."""
        return [n for n in self.names() if n.startswith("past_") and "_self_" in n]

    @property
    def whole(self) -> bool:
        """Whether it takes all tokens at each step."""
        shape = self.body.inputs[0].type.shape
        return shape is None or len(shape) < 2 or shape[1] != 1

    def inside(self, outline: Any) -> Crossed:
        return Crossed(self.body, {n: outline.bring(v) for n, v in self.memory.items()}, self.words)

    def fed(self, outline: Any, sequences: Value, carried: Sequence[Value]) -> list[Value]:
        """The decoder's inputs by place."""
        tokens, *pasts = carried
        given = dict(zip(self.grown, pasts, strict=True)) | self.memory
        with outline.graph:
            ids = cast(sequences if self.whole else tokens, self.body.inputs[0].type.dtype)
        return [ids, *(given[n] for n in self.names()[1:])]

    def next(self, carried: Sequence[Value], given: Sequence[Value], tokens: Value, rows: Value) -> list[Value]:
        """What the next step takes: tokens [rows, 1], and of what the decoder gave the chosen ``rows``."""
        found = dict(zip([o.name for o in self.body.outputs], given, strict=True))
        return [tokens, *(Gather(found[n.replace("past_", "present_", 1)], rows) for n in self.grown)]


def encoded(
    ctx: Context, encoder: Any, body: Any, inputs: Sequence[Value], beams: DimLike, words: int
) -> tuple[Crossed, list[Value], list[Value] | None]:
    """Runs an encoder: the decoder behind it, the first pasts of its own attention, and what the decoder would give at its first step where
    the encoder gives that."""
    names = [i.name for i in body.inputs]
    _known(names)
    if len(encoder.inputs) > len(inputs):
        raise IRError(f"the encoder takes {len(encoder.inputs)} inputs, {len(inputs)} are known")
    given = [cast(v, i.type.dtype) for v, i in zip(inputs, encoder.inputs, strict=False)]
    found = dict(zip([o.name for o in encoder.outputs], subgraph(ctx, encoder, given), strict=True))
    memory: dict[str, Value] = {}
    pasts: list[Value] = []
    for info in body.inputs[1:]:
        name = info.name
        if name == "encoder_attention_mask":
            memory[name] = beamed(cast(inputs[1], info.type.dtype), beams)
        elif name.replace("past_", "present_", 1) in found:
            value = beamed(found[name.replace("past_", "present_", 1)], beams)
            if "_self_" in name:
                pasts.append(value)
            else:
                memory[name] = value
        elif name.startswith("past_") and "_self_" in name:
            shape: Sequence[Any] = info.type.shape or ()
            if len(shape) != 4 or not all(isinstance(shape[a], int) for a in (1, 3)):
                raise IRError(f"the decoder's input {name!r} must be declared as [batch, heads, length, size of a head], it is {shape}")
            pasts.append(fill([inputs[0].shape[0] * beams, shape[1], 0, shape[3]], 0, info.type.dtype))
        else:
            raise IRError(f"the encoder gives nothing for the decoder's input {name!r}; it gives {', '.join(found)}")
    first = [beamed(found[o.name], beams) for o in body.outputs] if "logits" in found else None
    return Crossed(body, memory, words), pasts, first


def encoder_mask(ids: Value, pad: int) -> Value:
    """0 for padding on the left, 1 from the first token on."""
    real = cast(map_("not", map_("eq", ids, like(ids, pad))), DType.int64)
    return cast(map_("lt", like(real, 0), CumSum(real, constant(ONE))), DType.int32)


def flat_rows(chosen: Value, count: DimLike) -> Value:
    """Of positions [batch, n] in rows of ``count`` each, those in all: [batch * n]."""
    base = map_("mul", index(0, chosen.shape), broadcast_to(reshape(literal([count]), [1, 1]), chosen.shape))
    return reshape(map_("add", base, chosen), [chosen.size])
