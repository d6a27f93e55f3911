"""The order of things, without a model: what is fed next, which token follows, when it ends, which text may be shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .sampling import Sampling, choose, probabilities

Array = np.ndarray[Any, Any]


class ContextError(ValueError):
    """The text is longer than the model can read."""


@dataclass(frozen=True)
class Token:
    """One token as it came.

    Attributes:
        text: what it adds to the text that may be shown; "" while a character or a stop string is incomplete.
        probability: that the model gave it, before sampling's settings.
        likely: ids and probabilities of the most likely ones, as many as were asked for.
    """

    id: int
    text: str
    probability: float
    likely: tuple[tuple[int, float], ...] = ()


@dataclass
class Statistics:
    """Of one generation: tokens and seconds of its two phases."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_seconds: float = 0.0
    new_tokens: int = 0
    decode_seconds: float = 0.0

    def count(self, seconds: float) -> None:
        """One more token, which took so long."""
        if self.new_tokens:
            self.decode_seconds += seconds
        else:
            self.prefill_seconds = seconds
        self.new_tokens += 1

    @property
    def prefill_rate(self) -> float:
        """Tokens of the prompt per second, without those that the cache held already."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """New tokens per second, the first aside: it comes with the prompt."""
        return max(self.new_tokens - 1, 0) / self.decode_seconds if self.decode_seconds else 0.0


@dataclass
class Plan:
    """What one generation is asked for.

    Attributes:
        limit: how many tokens at most.
        ends: tokens that end the text and are not shown.
        context: how many tokens the model reads; None: any number.
        head: so many of the first tokens stay when the text slides; None: it does not slide.
        chunk: tokens of the prompt that the model is given at once.
        likely: of so many tokens the probabilities are told.
        never, never_first: tokens that are not chosen at all, and not as the first.
        ahead: foretells tokens behind those that the model reads: given these, their number with what slid away, and how many at most.
    """

    limit: int
    sampling: Sampling
    seed: int
    ends: frozenset[int]
    stop: tuple[str, ...]
    decode: Callable[[Sequence[int]], str]
    context: int | None = None
    head: int | None = None
    chunk: int = 512
    likely: int = 0
    never: tuple[int, ...] = ()
    never_first: tuple[int, ...] = ()
    ahead: Callable[[list[int], int, int], list[int]] | None = None


@dataclass(frozen=True)
class Feed:
    """Tokens that the model shall read behind the first ``keep`` of those that its cache holds; asks for the last ``want`` ones' logits."""

    keep: int
    ids: list[int]
    want: int = 1


@dataclass
class Progress:
    """How far a generation is.

    Attributes:
        ids: of the prompt and the text.
        reason: why it ended: ``"end"`` (the model said so), ``"stop"``, ``"length"``, ``"cancelled"``, or an error's text.
    """

    ids: list[int]
    text: str = ""
    reason: str | None = None
    statistics: Statistics = field(default_factory=Statistics)


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def fitted(ids: list[int], context: int | None, head: int | None) -> list[int]:
    """What the model reads of a text: all, or, where that is too much, the first ``head`` tokens and the last ones, half of the context.

    Raises:
        ContextError: it is too much, and the text does not slide.
    """
    if context is None or len(ids) < context:
        return ids
    if head is None:
        raise ContextError(f"the text has {len(ids)} tokens, the model reads {context}: shorten it, or let it slide (overflow='slide')")
    return ids[:head] + ids[len(ids) - max(context // 2 - head, 1) :]


def run(plan: Plan, progress: Progress, cached: list[int]) -> Generator[Feed | Token, Array | None, None]:
    """Yields what to feed, and is sent the logits [want, vocabulary]; yields tokens as they come.

    Args:
        cached: tokens that the model's cache holds.
    """
    numbers, shown = progress.statistics, Shown(plan.decode, plan.stop)
    numbers.prompt_tokens = len(progress.ids)
    window = list(fitted(progress.ids, plan.context, plan.head))
    keep = min(shared(cached, window), len(window) - 1)
    numbers.reused_tokens = keep
    while True:
        begin = time.perf_counter()
        guess = guessed(plan, progress, window)
        logits = yield from read(window, guess, keep, plan.chunk)
        for given, after in zip(logits, [*guess, -1], strict=True):
            row = without(given, plan.never if numbers.new_tokens else plan.never + plan.never_first)
            token = choose(row, plan.sampling, plan.seed, len(progress.ids), window)
            numbers.count(time.perf_counter() - begin)
            if token in plan.ends:
                progress.reason = "end"
                progress.text += shown.tell()
                return
            progress.ids.append(token)
            fresh = shown.add(token)
            if shown.stopped or numbers.new_tokens >= plan.limit:
                fresh += shown.tell()
                progress.reason = "stop" if shown.stopped else "length"
            progress.text += fresh
            yield told(token, fresh, row, plan.likely)
            if progress.reason is not None:
                return
            begin = time.perf_counter()
            longer = fitted([*window, token], plan.context, plan.head)
            keep = len(longer) - 1 if len(longer) > len(window) else 0
            window = longer
            if token != after or not keep:
                break


def without(logits: Array, tokens: Sequence[int]) -> Array:
    """Logits [..., vocabulary] by which these tokens are not chosen."""
    if not tokens:
        return logits
    made = logits.copy()
    made[..., [t for t in tokens if t < made.shape[-1]]] = -np.inf
    return made


def guessed(plan: Plan, progress: Progress, window: list[int]) -> list[int]:
    """Tokens that may follow, no more than there is room and need for."""
    if plan.ahead is None or not progress.statistics.new_tokens:
        return []
    most = plan.limit - progress.statistics.new_tokens - 1
    most = most if plan.context is None else min(most, plan.context - len(window) - 1)
    return plan.ahead(window, len(progress.ids), most)[:most] if most > 0 else []


def read(window: list[int], guess: list[int], keep: int, chunk: int) -> Generator[Feed, Array | None, Array]:
    """Has the model read a text behind its first tokens, in chunks, and what may follow it; the logits of its end and of that."""
    while len(window) - keep > chunk:
        yield Feed(keep, window[keep : keep + chunk])
        keep += chunk
    logits = yield Feed(keep, window[keep:] + guess, 1 + len(guess))
    assert logits is not None
    return logits


def told(token: int, text: str, logits: Array, likely: int) -> Token:
    shares = probabilities(logits)
    first = np.argsort(-shares, kind="stable")[:likely] if likely else ()
    return Token(token, text, float(shares[token]), tuple((int(i), float(shares[i])) for i in first))


class Shown:
    """Text that comes token by token: characters only when they are whole, nothing that a stop string may begin with."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        self.decode, self.stop = decode, tuple(s for s in stop if s)
        self.ids: list[int] = []
        self.settled, self.text, self.told = 0, "", 0
        self.stopped = False

    def add(self, token: int) -> str:
        """The text that may be shown now and could not before."""
        self.ids.append(token)
        start = max(self.settled - 4, 0)  # some decoders treat the first token of all in its own way
        fresh = self.decode(self.ids[start:])[len(self.decode(self.ids[start : self.settled])) :]
        if not fresh.endswith("\ufffd") or len(self.ids) - self.settled > 8:
            self.text, self.settled = self.text + fresh, len(self.ids)
        for s in self.stop:
            if (at := self.text.find(s, max(self.told - len(s), 0))) >= 0:
                self.text, self.stopped = self.text[:at], True
        held = 0 if self.stopped else max((k for s in self.stop for k in range(1, len(s)) if self.text.endswith(s[:k])), default=0)
        return self.tell(len(self.text) - held)

    def tell(self, end: int | None = None) -> str:
        """What was held back, up to ``end``."""
        if end is None and self.settled < len(self.ids) and not self.stopped:
            start = max(self.settled - 4, 0)
            self.text += self.decode(self.ids[start:])[len(self.decode(self.ids[start : self.settled])) :]
            self.settled = len(self.ids)
        end = len(self.text) if end is None else end
        fresh, self.told = self.text[self.told : end], max(end, self.told)
        return fresh
