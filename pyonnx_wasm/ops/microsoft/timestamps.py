"""The rules of Whisper's timestamps: in pairs, never going back, the first within a second, before words that are less probable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...dtypes import DType
from ...ir import Value
from ...tensor import cast, concat, constant, fill, index, like, literal, map_, reduce, reshape, slice_

LATEST_FIRST = 50  # steps of 20 ms
LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Timestamps:
    """Tokens of a tokenizer of Whisper.

    Attributes:
        first: the first timestamp; all behind it are timestamps.
        never: tokens that are never chosen.
        once: tokens that are not chosen behind a timestamp: those that begin a transcript.
    """

    eos: int
    first: int
    never: tuple[int, ...]
    once: tuple[int, ...]

    def __call__(self, scores: Value, sequences: Value) -> Value:
        """Scores [rows, words] of what follows sequences [rows, length]."""
        length = sequences.shape[1]
        lowest, word = like(scores, LOWEST), index(1, scores.shape)
        stamp, first = map_("le", _number(self.first), word), _number(self.first)
        tokens = cast(sequences, DType.int64)
        marks = map_("le", first, tokens)
        count = reshape(literal([length]), ())
        places = map_("where", marks, map_("add", index(1, tokens.shape), _number(1)), count)
        begin = reduce("min", places, [1], True)  # where what follows the first timestamp begins
        started = map_("lt", begin, count)
        last = slice_(marks, 1, length - 1, 1)
        padded = slice_(_with_zero(marks), 1, length - 1, 1)  # of the token before the last
        paired = map_("or", map_("not", started), cast(padded, DType.bool))
        refused = map_("or", _among(word, self.never), map_("and", _among(word, self.once), started))
        refused = map_("or", refused, map_("and", map_("and", last, paired), stamp))
        alone = map_("and", last, map_("not", paired))
        refused = map_("or", refused, map_("and", alone, map_("lt", word, _number(self.eos))))
        refused = map_("or", refused, map_("and", stamp, map_("lt", word, self._least(tokens, marks, alone))))
        late = map_("lt", _number(self.first + LATEST_FIRST), word)
        refused = map_("or", refused, map_("and", map_("not", started), late))
        scores = map_("where", refused, lowest, scores)
        return map_("where", map_("and", self._likelier(scores, stamp), map_("not", stamp)), lowest, scores)

    def _least(self, tokens: Value, marks: Value, alone: Value) -> Value:
        """The least timestamp that may follow: the last one, or the next where that is the second of a pair."""
        place = map_("where", marks, index(1, tokens.shape), _number(-1))
        newest = map_("eq", index(1, tokens.shape), reduce("max", place, [1], True))
        last = reduce("max", map_("where", map_("and", newest, marks), tokens, _number(-1)), [1], True)
        return map_("where", alone, last, map_("add", last, _number(1)))

    def _likelier(self, scores: Value, stamp: Value) -> Value:
        """Whether any timestamp is more probable than the most probable word: [rows, 1]."""
        lowest = like(scores, LOWEST)
        stamps, words = map_("where", stamp, scores, lowest), map_("where", stamp, lowest, scores)
        most = reduce("max", stamps, [1], True)
        shares = map_("where", map_("lt", lowest, stamps), map_("exp", map_("sub", stamps, most)), like(scores, 0))
        together = map_("add", map_("log", reduce("sum", shares, [1], True)), most)
        some = map_("lt", lowest, most)
        return map_("and", some, map_("lt", reduce("max", words, [1], True), together))


def _number(value: int) -> Value:
    return constant(np.int64(value))


def _with_zero(marks: Value) -> Value:
    return concat([fill([marks.shape[0], 1], 0, DType.int32), cast(marks, DType.int32)], 1)


def _among(word: Value, tokens: tuple[int, ...]) -> Value:
    found = map_("eq", word, _number(-1))
    for token in tokens:
        found = map_("or", found, map_("eq", word, _number(token)))
    return found
