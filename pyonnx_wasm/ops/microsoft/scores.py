"""What searches do to the scores of the next token before they choose one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...dtypes import DType
from ...ir import Value
from ...ir.dims import DimLike
from ...tensor import broadcast_to, cast, constant, contiguous, fill, index, like, literal, map_, reshape, unsqueeze
from ..gather import ScatterElements
from .tensors import repeats
from .timestamps import Timestamps

LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Rules:
    """Attributes and inputs of a search that change scores [rows, words], in the order in which they do.

    Attributes:
        repetition: float [], the penalty of words that a sequence has.
        ngram: no run of so many words may repeat; 0: any may.
        vocabulary: [words], 0 for words that are never chosen.
        prefix: [batch, words], 0 for words that are not chosen first.
        shortest: integer [], the length below which a sequence does not end.
        presence: [batch, words], times ``penalty`` taken from the scores.
        heat: float [], the temperature where it is an input.
    """

    eos: int
    ngram: int = 0
    temperature: float = 1.0
    penalty: float = 0.0
    repetition: Value | None = None
    vocabulary: Value | None = None
    prefix: Value | None = None
    shortest: Value | None = None
    presence: Value | None = None
    heat: Value | None = None
    timestamps: Timestamps | None = None

    def inside(self, outline: Any) -> Rules:
        """The same in the body of a loop."""
        names = ("repetition", "vocabulary", "prefix", "shortest", "presence", "heat")
        return replace(self, **{n: outline.bring(v) for n in names if (v := getattr(self, n)) is not None})

    def __call__(self, scores: Value, sequences: Value, first: Value) -> Value:
        """The scores of what follows sequences [rows, length]; ``first``: whether nothing was chosen yet."""
        lowest = like(scores, LOWEST)
        if self.repetition is not None:
            factor = cast(self.repetition, scores.dtype)
            worse = map_("where", map_("lt", scores, like(scores, 0)), map_("mul", scores, factor), map_("div", scores, factor))
            scores = map_("where", _among(sequences, scores.shape), worse, scores)
        if self.ngram > 0:
            scores = repeats(sequences, scores, self.ngram, LOWEST)
        if self.vocabulary is not None:
            scores = map_("where", _zero(self.vocabulary), lowest, scores)
        if self.prefix is not None:
            closed = map_("and", _zero(_per_row(self.prefix, scores.shape[0])), first)
            scores = map_("where", closed, lowest, scores)
        if self.shortest is not None:
            short = map_("lt", reshape(literal([sequences.shape[1]], self.shortest.dtype), ()), self.shortest)
            ending = map_("eq", index(1, scores.shape), constant(np.int64(self.eos)))
            scores = map_("where", map_("and", ending, short), lowest, scores)
        if self.temperature not in (0.0, 1.0):
            scores = map_("div", scores, like(scores, self.temperature))
        if self.heat is not None:
            scores = map_("div", scores, cast(self.heat, scores.dtype))
        if self.presence is not None and self.penalty:
            scores = map_("sub", scores, map_("mul", cast(self.presence, scores.dtype), like(scores, self.penalty)))
        return scores if self.timestamps is None else self.timestamps(scores, sequences)


def point(x: Value | None) -> Value | None:
    """An input of one element, as a scalar."""
    return None if x is None else reshape(x, ())


def _zero(mask: Value) -> Value:
    return map_("eq", mask, like(mask, 0))


def _per_row(mask: Value, rows: DimLike) -> Value:
    """A row per batch element as one for each of its beams."""
    batch, words = mask.shape
    return reshape(contiguous(broadcast_to(unsqueeze(mask, [1]), [batch, rows // batch, words])), [rows, words])


def _among(sequences: Value, shape: tuple[DimLike, ...]) -> Value:
    """Which words the sequences have, bool."""
    ones = fill(sequences.shape, 1, DType.int32)
    marks: Value = ScatterElements(fill(shape, 0, DType.int32), contiguous(sequences), ones, axis=1)
    return cast(marks, DType.bool)
