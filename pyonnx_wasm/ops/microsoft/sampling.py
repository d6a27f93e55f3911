"""Tokens by chance: those of the most probable words that together have a probability (top-p), by the generator of ``ops.random``."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...dtypes import DType
from ...ir import Value
from ...ir.dims import DimLike
from ...tensor import cast, constant, dims_of, index, like, literal, map_, reshape
from ..gather import Gather, ScatterElements
from ..normalization import softmax
from ..random import chosen, uniform
from ..reduction import CumSum, topk


@dataclass(frozen=True)
class Chance:
    """How a token is drawn.

    Attributes:
        top_p: the probability that the kept words have together.
        least: so many words are kept at least.
        refused: the score of the others.
        custom: the word that passes the probability is the last that is kept, as onnxruntime has it with ``custom``.
        numbers: float64 [steps, batch, 1], uniform in [0, 1).
    """

    top_p: float
    least: int
    refused: float
    custom: bool
    numbers: Value

    def inside(self, outline: Any) -> Chance:
        return replace(self, numbers=outline.bring(self.numbers))

    def kept(self, scores: Value) -> Value:
        """Scores [batch, words], where those of words that are not kept are ``refused``."""
        batch, words = scores.shape
        values, places = topk(scores, words, 1, int(self.custom))
        sums: Value = CumSum(softmax(values, 1), constant(np.int64(1)), exclusive=int(self.custom))
        if self.custom:
            out = map_("lt", like(sums, self.top_p), sums)
        else:
            few = map_("lt", index(1, [batch, words]), reshape(literal([words - self.least]), ()))
            out = map_("and", map_("le", sums, like(sums, float(1 - np.float32(self.top_p)))), few)
        y: Value = ScatterElements(scores, places, map_("where", out, like(values, self.refused), values), axis=1)
        return y

    def drawn(self, scores: Value, step: Value) -> Value:
        """A word of each row, int64 [batch, 1]."""
        return chosen(scores, Gather(self.numbers, step, axis=0))


def numbers(steps: DimLike, batch: DimLike, seed: Value | None) -> Value:
    """What tokens are drawn by; without a seed they go on from the session's."""
    if seed is None:
        return uniform([steps, batch, 1], DType.float64, None)
    told = dims_of(reshape(cast(seed, DType.int64), [1]), "seed")[0]
    if isinstance(told, int):  # its bits are the seed, as where data tell it
        return uniform([steps, batch, 1], DType.float64, struct.unpack("<d", struct.pack("<q", told))[0])
    return uniform([steps, batch, 1], DType.float64, told)
