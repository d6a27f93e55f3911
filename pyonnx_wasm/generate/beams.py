"""Beam search, as transformers' ``generate(num_beams=...)`` does it: the same candidates, scores and ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cache import Decoder
from .leading import Leading
from .loop import Row, Rows, needed, read, without
from .sampling import damaged, largest
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

    @property
    def some(self) -> int:
        """How many texts are looked at in each step."""
        return (1 + max(1, len(self.ends))) * self.width

    @property
    def _never(self) -> tuple[int, ...]:
        return self.never if self.going[0][1] else self.never + self.never_first

    def needs(self, decoder: Decoder) -> str:
        return needed(decoder.told, decoder.words, self.some + len(self._never))

    def advance(self, given: Rows) -> list[int]:
        """Takes the next tokens' logits, a row for each text; returns which texts go on, by number, as they now stand."""
        rows, scores = list(given), [score for score, _ in self.going]
        while True:
            tokens, sums = zip(*(_continued(row, self._never, score) for row, score in zip(rows, scores, strict=True)), strict=True)
            ends = np.cumsum([len(part) for part in sums])
            best = largest(np.concatenate(sums), self.some)
            # What is not among a row's leading logits is behind the last of these: it matters where that is not the last of the best.
            early = best[: self.some - 1]
            short = [i for i, part in enumerate(sums) if not len(part) or ends[i] - 1 in early]
            partial = {i: row for i, row in enumerate(rows) if i in short and isinstance(row, Leading) and not row.whole}
            if not partial:
                break
            for i, row in partial.items():
                rows[i] = row.every()
        going, origin = list[tuple[float, list[int]]](), list[int]()
        for place, flat in enumerate(best.tolist()):
            text = int(np.searchsorted(ends, flat, side="right"))
            at = flat - int(ends[text])
            token, score = int(tokens[text][at]), float(sums[text][at])
            ids = [*self.going[text][1], token]
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


def _continued(row: Row, never: tuple[int, ...], score: float) -> tuple[Array, Array]:
    """Tokens behind a text, and the sums of log probabilities with them; the largest in order, or those of all tokens."""
    if isinstance(row, Leading):
        row.check()
        ids, logits = row.without(never).allowed()
        return ids, logits - row.sum + score
    wide = row.astype(np.float64)
    if np.isnan(wide).any():
        raise damaged()
    logs = wide - wide.max()
    logs -= np.log(np.exp(logs).sum())
    return np.arange(len(logs)), without(logs, never) + score


def beams(
    decoder: Decoder, ids: list[int], source: Array | None, search: Search, decode: Callable[[Sequence[int]], str], chunk: int, count: int
) -> list[Beams]:
    if not 1 <= count <= search.width:
        raise ValueError("num_return is out of range; it must be 1 or more, at most num_beams")
    if search.width > 1 and not many(decoder.session):
        raise ValueError(
            "the model reads one text at a time (its input_ids have a batch of 1): export it with a batch of any size, or compile a .gguf "
            "file with `pyonnx-wasm compile --several`"
        )
    reading, joined = read(ids, [], 0, chunk, search.needs(decoder)), Joined(decoder)
    decoder.listen(source)
    decoder.forget(0)
    rows: Rows | None = None
    try:
        while True:
            feed = reading.send(rows)
            rows = decoder.step(feed.ids, needs=feed.needs)
    except StopIteration as end:
        rows = end.value
    joined.hear(decoder)
    joined.lay([{name: v.numpy() for name, v in decoder.memory.values.items()}])
    decoder.forget(0)
    while True:
        assert rows is not None
        origin = search.advance(rows)
        if search.done:
            break
        joined.select(origin)
        rows = joined.step([text[-1] for _, text in search.going], search.needs(decoder))
    return [Beams(text, decode(text), score, text[-1] in search.ends) for score, text in search.ended[:count]]
