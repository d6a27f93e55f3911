"""Beam search, as transformers' ``generate(num_beams=...)`` does it: the same candidates, scores and ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cache import Decoder
from .loop import read, without
from .several import Joined, many

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Beams:
    """One text that was found.

    Attributes:
        ids: behind the prompt, with the token that ended it.
        score: sum of the tokens' log probabilities over their number to the power of the length penalty.
        ended: the model ended it.
    """

    ids: list[int]
    text: str
    score: float
    ended: bool


@dataclass
class Search:
    """Texts that go on and texts that have ended, each with the sum of its log probabilities, the best first."""

    ends: frozenset[int]
    width: int
    limit: int
    penalty: float
    early: bool | str
    never: tuple[int, ...] = ()
    never_first: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, ok, want in (
            ("num_beams", self.width >= 1, "1 or more"),
            ("max_new_tokens", self.limit >= 1, "1 or more"),
            ("early_stopping", self.early in (True, False, "never"), "True, False or 'never'"),
        ):
            if not ok:
                raise ValueError(f"{name} is out of range; it must be {want}")
        self.going: list[tuple[float, list[int]]] = [(0.0, [])]
        self.ended: list[tuple[float, list[int]]] = []

    def advance(self, logits: Array) -> list[int]:
        """Takes the next tokens' logits [texts, vocabulary]; returns which texts go on, by number, as they now stand."""
        wide = logits.astype(np.float64)
        if np.isnan(wide).any():
            raise FloatingPointError("the model's logits are not numbers; its weights or inputs are damaged")
        logs = wide - wide.max(-1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
        logs = without(logs, self.never if self.going[0][1] else self.never + self.never_first)
        sums = logs + np.array([score for score, _ in self.going])[:, None]
        words = sums.shape[1]
        best = np.argsort(-sums.ravel(), kind="stable")[: (1 + max(1, len(self.ends))) * self.width]
        going, origin = list[tuple[float, list[int]]](), list[int]()
        for place, flat in enumerate(best.tolist()):
            text, token = divmod(flat, words)
            ids, score = [*self.going[text][1], token], float(sums[text, token])
            if token in self.ends or len(ids) >= self.limit:
                if place < self.width:
                    self.ended.append((score / len(ids) ** self.penalty, ids))
            elif len(going) < self.width:
                going.append((score, ids))
                origin.append(text)
        self.ended = sorted(self.ended, key=lambda e: -e[0])[: self.width]
        self.going = going
        return origin

    @property
    def done(self) -> bool:
        if not self.going:
            return True
        if len(self.ended) < self.width:
            return False
        if self.early is True:
            return True
        length = self.limit if self.early == "never" and self.penalty > 0 else len(self.going[0][1])
        return bool(self.going[0][0] / length**self.penalty <= self.ended[-1][0])


def beams(
    decoder: Decoder, ids: list[int], source: Array | None, search: Search, decode: Callable[[Sequence[int]], str], chunk: int, count: int
) -> list[Beams]:
    if not 1 <= count <= search.width:
        raise ValueError("num_return is out of range; it must be 1 or more, at most num_beams")
    if search.width > 1 and not many(decoder.session):
        raise ValueError("the model reads one text at a time (its input_ids have a batch of 1): export it with a batch of any size")
    reading, joined = read(ids, [], 0, chunk), Joined(decoder)
    decoder.listen(source)
    decoder.forget(0)
    logits: Array | None = None
    try:
        while True:
            feed = reading.send(logits)
            logits = decoder.step(feed.ids)
    except StopIteration as end:
        logits = end.value
    joined.hear(decoder)
    joined.lay([{name: v.numpy() for name, v in decoder.memory.values.items()}])
    decoder.forget(0)
    while True:
        assert logits is not None
        origin = search.advance(logits)
        if search.done:
            break
        joined.select(origin)
        logits = joined.step([text[-1] for _, text in search.going])
    return [Beams(text, decode(text), score, text[-1] in search.ends) for score, text in search.ended[:count]]
