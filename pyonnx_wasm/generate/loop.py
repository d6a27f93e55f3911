"""The order of things, without a model: what is fed next, which token follows, when it ends, which text may be shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import leading
from .leading import Leading
from .sampling import Sampling, choose, largest, share

Array = np.ndarray[Any, Any]
Row = Array | Leading  # the logits of one token, [vocabulary], or the largest of them
Rows = Sequence[Row]


class ContextError(ValueError):
    """The text is longer than the model can read."""


@dataclass(frozen=True)
class Token:
    """One token as it came.

    Attributes:
        text: what it adds to the text that may be shown; "" while a character or a stop string is incomplete.
        probability: that the model gave it, before sampling's settings and whatever is never chosen.
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
        told: of so many of its largest logits the model tells by itself; 0: it does not.
        words: how many logits there are; None: any number.
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
    told: int = 0
    words: int | None = None
    ahead: Callable[[list[int], int, int], list[int]] | None = None

    def forbidden(self, first: bool) -> tuple[int, ...]:
        """Tokens that are not to be chosen next."""
        return self.never + self.never_first if first else self.never


def needs(how: Sampling, told: int, words: int | None, likely: int = 0, never: int = 0) -> str:
    """What of the logits of the next token is to be asked of a model that tells ``told`` of the largest of ``words``; see :class:`Feed`."""
    some = 1 if how.temperature == 0 else how.top_k
    sure = some and how.repetition_penalty == 1
    return needed(told, words, max(some, likely) + never if sure else None, likely)


def needed(told: int, words: int | None, enough: int | None, least: int = 0) -> str:
    """As :func:`needs`, where so many of the largest are enough (None: that hangs on what they are) and fewer than ``least`` never."""
    if words is not None and told >= words and enough != 1:
        return "choice"
    if told < max(least, 1):
        return "logits"
    if enough == 1:
        return "first"
    return "choice" if enough is not None and told >= enough else "both"


def together(wishes: set[str]) -> str:
    """What meets the needs of several texts that are read at once."""
    return wishes.pop() if len(wishes) == 1 else "choice" if wishes <= {"first", "choice"} else "both"


@dataclass(frozen=True)
class Feed:
    """Tokens that the model shall read behind the first ``keep`` of those that its cache holds; asks for the last ``want`` ones' logits.

    Attributes:
        needs: ``"logits"``: all of them; ``"choice"``: what a model tells of them itself; ``"first"``: that of the largest alone;
            ``"both"``: what it tells, and all of them later perhaps.
    """

    keep: int
    ids: list[int]
    want: int = 1
    needs: str = "logits"


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


def run(plan: Plan, progress: Progress, cached: list[int]) -> Generator[Feed | Token, Rows | None, None]:
    """Yields what to feed, and is sent the logits, row by row; yields tokens as they come.

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
        never = plan.forbidden(not numbers.new_tokens)
        what = needs(plan.sampling, plan.told, plan.words, plan.likely, len(never))
        rows = yield from read(window, guess, keep, plan.chunk, what)
        for given, after in zip(rows, [*guess, -1], strict=True):
            token, row = chosen(given, plan.sampling, plan.seed, len(progress.ids), window, never)
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
            yield told(token, fresh, row, plan.likely, never)
            if progress.reason is not None:
                return
            begin = time.perf_counter()
            longer = fitted([*window, token], plan.context, plan.head)
            keep = len(longer) - 1 if len(longer) > len(window) else 0
            window = longer
            if token != after or not keep:
                break


def chosen(row: Row, how: Sampling, seed: int, position: int, before: Sequence[int], never: tuple[int, ...] = ()) -> tuple[int, Row]:
    """The next token, and by what it was chosen: the largest logits where they are enough, else all of them."""
    if isinstance(row, Leading):
        few = row.without(never)
        token = leading.choose(few, how, seed, position, before)
        if token is not None:
            return token, few
        row = row.every()
    return choose(without(row, never), how, seed, position, before), row


def told(token: int, text: str, row: Row, likely: int, never: tuple[int, ...]) -> Token:
    if isinstance(row, Leading):
        ids, _ = row.allowed()
        if row.whole or len(ids) >= likely:
            return Token(token, text, row.share(token), tuple((int(i), row.share(i)) for i in ids[:likely]))
        row = row.every()
    first = [int(i) for i in largest(without(row, never), likely)] if likely else []
    of, *shares = share(row, [token, *first])
    return Token(token, text, of, tuple(zip(first, shares, strict=True)))


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


def read(window: list[int], guess: list[int], keep: int, chunk: int, what: str) -> Generator[Feed, Rows | None, Rows]:
    """Has the model read a text behind its first tokens, in chunks, and what may follow it; the logits of its end and of that."""
    while len(window) - keep > chunk:
        yield Feed(keep, window[keep : keep + chunk], needs=what)
        keep += chunk
    rows = yield Feed(keep, window[keep:] + guess, 1 + len(guess), what)
    assert rows is not None
    return rows


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
