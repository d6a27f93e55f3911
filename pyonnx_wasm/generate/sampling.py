"""Chooses tokens: the same ones for a seed in Python and in JavaScript (``js/generate/sampling.ts`` holds the same steps)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_MASK = (1 << 32) - 1
FIRST = 256  # so many of the largest logits are tried first: sorting all takes about as long as making them


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. In this order: penalty, temperature, ``top_k``, ``top_p``, ``min_p``.

    Attributes:
        temperature: logits are divided by it; 0 takes the most likely token, whatever follows says.
        top_k: keeps so many of the most likely tokens; 0: all.
        top_p: keeps the fewest of the most likely tokens that have this share together (Holtzman et al., 2020); 1: all.
        min_p: keeps tokens at least so likely as this share of the most likely one (Nguyen et al., 2024); 0: all.
        repetition_penalty: divides positive logits of tokens that came before, and multiplies negative ones (CTRL, Keskar et al., 2019).
        seed: of the random numbers: that at position n is word pair n of Threefry-2x32 under the seed; None: one that nobody knows.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, ok, want in (
            ("temperature", self.temperature >= 0, "0 or more"),
            ("top_k", self.top_k >= 0 and int(self.top_k) == self.top_k, "a whole number, 0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "0 to 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0"),
        ):
            if not ok:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {want}")


def uniform(seed: int, position: int) -> float:
    """In [0, 1), from 53 bits of Threefry-2x32 with 20 rounds (Salmon et al., 2011) of the counter (position, 0)."""
    low, high = seed & _MASK, seed >> 32 & _MASK
    key = (low, high, 0x1BD11BDA ^ low ^ high)
    a, b = (position + key[0]) & _MASK, key[1]
    for group in range(1, 6):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[(group + 1) & 1]:
            a = (a + b) & _MASK
            b = ((b << turn | b >> (32 - turn)) & _MASK) ^ a
        a, b = (a + key[group % 3]) & _MASK, (b + key[(group + 1) % 3] + group) & _MASK
    return ((a >> 5) * (1 << 26) + (b >> 6)) * 2.0**-53


def damaged() -> FloatingPointError:
    return FloatingPointError("the model's logits are not numbers; its weights or inputs are damaged")


def probabilities(logits: Array) -> Array:
    """float64 [vocabulary] of logits, before any choice.

    Raises:
        FloatingPointError: there are NaNs among them, or none is above minus infinity.
    """
    wide = logits.astype(np.float64)
    most = wide.max()
    if not most > -np.inf:
        raise damaged()
    powers = np.exp(wide - most) if most < np.inf else (wide == np.inf).astype(np.float64)
    shares: Array = powers / powers.sum()
    return shares


def share(logits: Array, ids: Sequence[int]) -> list[float]:
    """The probabilities of some, to 1e-6 of each; a token has as many logits as there are words, and float32 is enough to sum their powers.

    Raises:
        FloatingPointError: as :func:`probabilities`.
    """
    most = logits.max()
    if not most > -np.inf:
        raise damaged()
    if most == np.inf:
        return [float(x) for x in probabilities(logits)[list(ids)]]
    total = float(np.exp(logits - most, dtype=np.float32).sum(dtype=np.float64))
    return [float(np.exp(np.float64(logits[i]) - np.float64(most))) / total for i in ids]


def largest(values: Array, count: int) -> Array:
    """The places of so many of the largest, the largest first, of equals the first."""
    if count >= len(values):
        return _sorted(values) if values.dtype == np.float32 else np.argsort(-values, kind="stable")
    least = np.partition(values, len(values) - count)[len(values) - count]
    some = np.flatnonzero(~(values < least))  # NaN is among the largest to partition, and last here
    return some[np.argsort(-values[some], kind="stable")][:count]


def _sorted(values: Array) -> Array:
    """The places of all, the largest first, by numbers that are ordered like the bits of float32, which sort much faster than places."""
    bits = (values + np.float32(0)).view(np.uint32)  # which makes 0 of -0
    ordered = bits ^ np.where(bits >> 31, np.uint32(_MASK), np.uint32(1 << 31))
    keys = (~ordered).astype(np.uint64) << np.uint64(32) | np.arange(len(values), dtype=np.uint64)
    keys.sort()
    return (keys & np.uint64(_MASK)).astype(np.int64)


def penalised(logits: Array, penalty: float) -> Array:
    """Logits of tokens that came before."""
    return np.where(logits > 0, logits / penalty, logits * penalty)


def choose(logits: Array, how: Sampling, seed: int, position: int, before: Iterable[int]) -> int:
    """The token at ``position``, whose number of tokens lies before it; ``before`` are those that are penalised."""
    first = int(logits.argmax())
    if not logits[first] > -np.inf:
        raise damaged()
    wide = logits
    if how.repetition_penalty != 1:
        wide = logits.astype(np.float64)
        at = np.fromiter({t for t in before if t < len(wide)}, np.int64)
        wide[at] = penalised(wide[at], how.repetition_penalty)
        first = int(wide.argmax())
    if how.temperature == 0:
        return first
    draw = uniform(seed, position)
    if not how.top_k and len(wide) > FIRST:
        order = largest(wide, FIRST)
        values = wide[order].astype(np.float64)
        with np.errstate(invalid="ignore"):
            total = float(np.exp((wide.astype(np.float64) - values[0]) / how.temperature).sum())
        place = drawn_of_more(values, total * (1 - 1e-9), total * (1 + 1e-9), how, draw)
        if place is not None:
            return int(order[place])
    order = largest(wide, how.top_k or len(wide))
    return int(order[drawn(wide[order].astype(np.float64), how, draw)])


def drawn(values: Array, how: Sampling, at: float) -> int:
    """The place of one among logits, the largest first, by a number in [0, 1)."""
    powers = np.exp((values - values[0]) / how.temperature)
    sums = np.cumsum(powers)
    kept = int(np.searchsorted(sums, how.top_p * sums[-1])) + 1 if how.top_p < 1 else len(values)
    kept = min(kept, int(np.count_nonzero(powers >= how.min_p * powers[0])), len(values))
    return min(int(np.searchsorted(sums[:kept], at * sums[kept - 1], side="right")), kept - 1)


def drawn_of_more(values: Array, low: float, high: float, how: Sampling, at: float) -> int | None:
    """As :func:`drawn` of more than ``values``, the largest, where the sum of all powers is ``low`` to ``high``; None where it
    hangs on the others."""
    if not np.isfinite([low, high]).all():
        return None
    n = len(values)
    powers = np.exp((values - values[0]) / how.temperature)
    sums = np.cumsum(powers)
    likely = int(np.count_nonzero(powers >= how.min_p * powers[0]))
    enough = [n + 1 if how.top_p == 1 else int(np.searchsorted(sums, how.top_p * total)) + 1 for total in (low, high)]
    least, most = min(enough[0], likely), min(enough[1], likely if likely < n else n + 1)
    lower = max(sums[-1], how.top_p * low) if how.min_p == 0 and enough[0] > n else sums[least - 1]
    upper = sums[most - 1] if most <= n else high
    first, last = (int(np.searchsorted(sums, at * total, side="right")) for total in (lower, upper))
    if least == most <= n:
        return min(first, most - 1)
    return first if first == last and first < least else None
