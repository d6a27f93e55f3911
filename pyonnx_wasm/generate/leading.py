"""Chooses among a model's largest logits alone, where these decide: the token that all logits would give, or none.

(``js/player/generate/leading.ts`` holds the same steps.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .sampling import Sampling, damaged, drawn, drawn_of_more, penalised, uniform

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Leading:
    """The largest of one token's logits.

    Attributes:
        ids: int64 [k], whose logits they are.
        logits: float64 [k], the largest first, of equal ones that of the lower id.
        sum: logarithm of the sum of all logits' powers, as float32 sums it.
        words: how many logits there are; None: any number.
        every: reads all of them, float32 [words].
        never: tokens that are not to be chosen.
    """

    ids: Array
    logits: Array
    sum: float
    words: int | None
    every: Callable[[], Array]
    never: tuple[int, ...] = ()

    def check(self) -> None:
        """Raises FloatingPointError where there are NaNs among all logits, or none is above minus infinity."""
        if not self.logits[0] > -np.inf or np.isnan(self.sum):
            raise damaged()

    @property
    def whole(self) -> bool:
        """Whether there are no others."""
        return self.words is not None and len(self.ids) >= self.words

    def without(self, tokens: Sequence[int]) -> Leading:
        return replace(self, never=(*self.never, *tokens)) if tokens else self

    def allowed(self) -> tuple[Array, Array]:
        """Ids and logits of those that may be chosen, in order; where there are no others, those that may not be are at minus infinity."""
        out = np.isin(self.ids, self.never)
        return _sorted(self.ids, np.where(out, -np.inf, self.logits)) if self.whole else (self.ids[~out], self.logits[~out])

    def share(self, token: int) -> float:
        """The probability of one of them."""
        logit = self.logits[self.ids == token][0]
        if self.sum == np.inf:
            return float(logit == np.inf) / np.count_nonzero(self.logits == np.inf)
        return float(np.exp(logit - self.sum))


def _sorted(ids: Array, values: Array) -> tuple[Array, Array]:
    order = np.lexsort((ids, -values))
    return ids[order], values[order]


def rows_of(told: Array, words: int | None, every: Callable[[int], Array]) -> list[Leading]:
    """What a model's output ``choice`` [rows, 2k + 1] tells, row by row; ``every`` reads all logits of one."""
    wide = told.astype(np.float64)
    k = wide.shape[-1] // 2
    return [Leading(row[:k].astype(np.int64), row[k:-1], float(row[-1]), words, partial(every, i)) for i, row in enumerate(wide)]


def choose(few: Leading, how: Sampling, seed: int, position: int, before: Iterable[int]) -> int | None:
    """As :func:`.sampling.choose`; None where all logits are needed."""
    few.check()
    ids, values = few.allowed()
    count, least, penalty = len(ids), few.logits[-1], how.repetition_penalty
    if penalty != 1:
        marked = np.isin(ids, np.fromiter(set(before), np.int64))
        if marked.any() or penalty < 1:
            values = np.where(marked, penalised(values, penalty), values)
            ids, values = _sorted(ids, values)
            # What is not among the leading ones may be as large as the least of them, or what a penalty below 1 makes of it.
            bound = max(least, penalised(least, penalty)) if penalty < 1 else least
            count = count if few.whole else int(np.count_nonzero(values > bound))
    if not count:
        return None
    if not values[0] > -np.inf:
        raise damaged()
    if how.temperature == 0:
        return int(ids[0])
    at = uniform(seed, position)
    if few.whole or 0 < how.top_k <= count:
        some = values[: how.top_k or None]
        return int(ids[drawn(some, how, at)])
    if penalty < 1:
        return None
    place = drawn_of_more(values[:count], *_total(few, values, count, how), how, at)
    return None if place is None else int(ids[place])


def _total(few: Leading, values: Array, count: int, how: Sampling) -> tuple[float, float]:
    """Between which bounds the sum of the powers of all that may be chosen lies, that of the first of ``values`` being 1; of ``values``
    the first ``count`` are the largest of all in order."""
    first, p = values[0], 1 / how.temperature
    with np.errstate(all="ignore"):
        sure = float(np.exp((values[:count] - first) * p).sum())
        more = float(np.exp((values[count:] - first) * p).sum())
        least = float(np.exp(few.logits[-1] - first))
        everything, known = float(np.exp(few.sum - first)), float(np.exp(few.logits - first).sum())
        # float32's error of the sum: runs of 256 additions at most, of powers that are good to a few units in the last place, 2^-24 each;
        # and of its logarithm, which is rounded by as much of itself.
        error = everything * (2.0**-14 + abs(few.sum) * 2.0**-22)
        others = np.inf if few.words is None else few.words - len(few.ids)
        most_s, least_s = max(everything - known, 0.0) + error, max(everything - known - error, 0.0)
        # At this temperature powers x become x^p. Of those of the others, which have a sum s and are at most `least`, the sum is then
        # on one side of least^(p - 1) s, and on the other of what equal ones would come to.
        sides = [(np.power(least, p - 1) * s, np.power(others, 1 - p) * np.power(s, p)) for s in (least_s, most_s)]
        high = min(max(sides[1]), others * np.power(least, p))
        low = 0.0 if how.repetition_penalty != 1 or few.never or least_s == 0 else min(sides[0])
    most = (sure + more + high) * (1 + 1e-9)
    return (sure if how.top_k else max(sure, (sure + more + low) * (1 - 1e-9))), most
