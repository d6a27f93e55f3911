"""Tokens foretold cheaply, which the model then reads in one run and confirms or not: the text is the same, in fewer runs.

(Leviathan et al., 2023; here a token is confirmed where it is the one that is chosen at its place, which also holds for sampling, as the
random number of a place does not depend on how it was reached.)
"""

from __future__ import annotations

from collections.abc import Sequence

from .cache import Decoder
from .loop import chosen, needs, shared
from .sampling import Sampling


class Lookup:
    """What followed the last few tokens where they came before in the text (prompt look-up, Saxena, 2023).

    Args:
        count: tokens foretold at most.
        longest: so many last tokens are looked for at first, then fewer.
    """

    def __init__(self, count: int = 8, longest: int = 3) -> None:
        self.count, self.longest = count, longest

    def __call__(self, ids: Sequence[int], position: int, most: int) -> list[int]:
        for n in range(min(self.longest, len(ids) - 1), 0, -1):
            end = list(ids[-n:])
            for at in range(len(ids) - n - 1, -1, -1):
                if list(ids[at : at + n]) == end:
                    return list(ids[at + n : at + n + min(self.count, most)])
        return []


class Draft:
    """What a smaller model of the same tokens would write, by the same settings."""

    def __init__(self, decoder: Decoder, sampling: Sampling, seed: int, count: int = 4, context: int | None = None) -> None:
        self.decoder, self.sampling, self.seed, self.count, self.context = decoder, sampling, seed, count, context

    def __call__(self, ids: Sequence[int], position: int, most: int) -> list[int]:
        text, made = list(ids), list[int]()
        while len(made) < min(self.count, most) and (self.context is None or len(text) < self.context):
            keep = min(shared(self.decoder.ids, text), len(text) - 1)
            self.decoder.forget(keep)
            (row,) = self.decoder.step(text[keep:], needs=needs(self.sampling, self.decoder.told, self.decoder.words))
            token, _ = chosen(row, self.sampling, self.seed, position + len(made), text)
            made.append(token)
            text.append(token)
        return made
