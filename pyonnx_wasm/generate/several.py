"""Several texts at a time: those that wait for one more token each share a run, however long they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..session import InferenceSession
from ..values import OrtValue
from . import loop
from .cache import Decoder, asked, fed, rows, wrapped
from .loop import Feed, Rows, Token

if TYPE_CHECKING:
    from .generator import Generation

Array = np.ndarray[Any, Any]
Row = Mapping[str, Array]  # keys and values [1, heads, length, size] of one text, by the name of the model's input
LEAST_SHARED = 4  # tokens that make a finished text's cache worth a copy


class Joined:
    """The caches of several texts in one, whose shorter ones begin with places that nothing looks at.

    Attributes:
        lengths: of the texts.
        told: what an encoder told of the source of all, with a first axis of 1, by the name of the model's input.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.session = decoder, decoder.session
        crossed = decoder.memory.crossed
        self.empty = {name: a for name, a in decoder.memory.empty.items() if name not in crossed}
        self.source = {out: name for out, name in decoder.memory.source.items() if name not in crossed}
        self.told: dict[str, Array] = {}
        self._spread: dict[str, OrtValue] = {}
        self.values: dict[str, OrtValue] = {}
        self.lengths: list[int] = []

    def lay(self, rows: Sequence[Row]) -> None:
        """Begins anew with these."""
        self.lengths = [row[next(iter(self.empty))].shape[2] for row in rows]
        most = max(self.lengths, default=0)
        for name, empty in self.empty.items():
            whole = np.zeros((len(rows), empty.shape[1], most, empty.shape[3]), empty.dtype)
            for i, (row, length) in enumerate(zip(rows, self.lengths, strict=True)):
                whole[i, :, most - length :] = row[name][0]
            self.values[name] = OrtValue(whole)

    def hear(self, decoder: Decoder) -> None:
        """All of them are about what this one is about."""
        crossed = {name: decoder.memory.values[name].numpy() for name in decoder.memory.crossed}
        self.told = {**(decoder.heard.feed if decoder.heard else {}), **crossed}

    def row(self, i: int) -> Row:
        most, length = max(self.lengths), self.lengths[i]
        return {name: v.numpy()[i : i + 1, :, most - length :] for name, v in self.values.items()}

    def select(self, order: Sequence[int]) -> None:
        """Goes on with these rows, which may come twice."""
        if list(order) != list(range(len(self.lengths))):
            self.lengths = [self.lengths[i] for i in order]
            self.values = {name: OrtValue(v.numpy()[list(order)]) for name, v in self.values.items()}

    def step(self, tokens: Sequence[int], needs: str = "logits") -> Rows:
        """Reads one token of each text; gives their logits, or what is needed of them (:class:`.loop.Feed`)."""
        most, lengths = max(self.lengths), np.array(self.lengths, np.int64)[:, None]
        everything = {
            "input_ids": np.array(tokens, np.int64)[:, None],
            "attention_mask": (np.arange(most + 1) >= most - lengths).astype(np.int64),
            "position_ids": lengths,
            "use_cache_branch": np.array([True]),
            "cache_position": np.array([most]),
            "num_logits_to_keep": np.int64(1),
        }
        everything["decoder_attention_mask"] = everything["attention_mask"]
        if self.told and (not self._spread or next(iter(self._spread.values())).shape()[0] != len(tokens)):
            self._spread = {name: OrtValue(np.repeat(a, len(tokens), 0)) for name, a in self.told.items()}
        names = [*asked(needs, self.decoder.told, self.decoder.single), *self.source]
        feed = fed(self.session.signature()[0], everything, {**self.values, **self._spread})
        results = self.session.run_with_ort_values(names, wrapped(feed))
        found = dict(zip(names, results, strict=True))
        self.values = {self.source[name]: found[name] for name in self.source}
        self.lengths = [n + 1 for n in self.lengths]
        return rows(found, self.decoder.words, lambda logits: logits[:, -1])


def many(session: InferenceSession) -> bool:
    """Whether a run may read several texts, by what the model says of its inputs."""
    inputs = {i.name: i for i in session.get_inputs()}
    return not isinstance(inputs["input_ids"].shape[0], int)


def apart(decoder: Decoder) -> bool:
    """Whether texts of several lengths do not disturb each other in one run: tried out, as exports say nothing of it."""
    inputs = {i.name for i in decoder.session.get_inputs()}
    whole = decoder.first is None and decoder.encoder is None and many(decoder.session)
    if not whole or not {"attention_mask", "position_ids"} <= inputs:
        return False
    joined, laid, want = Joined(decoder), list[Row](), list[Any]()
    for ids in ([0, 1, 2, 1], [1, 2], [2, 0, 1]):
        alone = Decoder(decoder.session)
        alone.step(ids[:-1])
        laid.append({name: v.numpy() for name, v in alone.memory.values.items()})
        want.append(alone.step(ids[-1:])[0])
    joined.lay(laid)
    try:
        found = joined.step([1, 2, 1])
    except (RuntimeError, ValueError):
        return False
    one, other = np.asarray(found), np.asarray(want)
    return bool(np.allclose(one, other, rtol=1e-3, atol=1e-3 * float(np.abs(other).max())))


class Member:
    """One of the texts: what it waits for, and its own cache while it is not joined."""

    def __init__(self, generation: Generation, decoder: Decoder) -> None:
        self.generation, self.decoder = generation, decoder
        self.steps = loop.run(generation.plan, generation._progress, decoder.ids)
        self.feed: Feed | None = None
        self.joined = False

    @property
    def single(self) -> bool:
        """Whether all it waits for is one token behind those of its cache."""
        feed = self.feed
        return feed is not None and len(feed.ids) == 1 and feed.keep == len(self.decoder.ids) > 0

    def go_on(self, logits: Rows | None) -> list[Token]:
        """To its next wish; the tokens that it told on the way."""
        told: list[Token] = []
        self.feed = None
        try:
            item = self.steps.send(logits)
            while isinstance(item, Token):
                told.append(item)
                item = self.steps.send(None)
            self.feed = item
        except StopIteration:
            pass
        except Exception as error:
            self.fail(error)
        return told

    def fail(self, error: Exception) -> None:
        self.feed = None
        self.generation.fail(error)


class Together:
    """Texts that are written at the same time over one model; for one thread.

    In each turn one of those that have more than a token to read reads a part, and all others get their next token in one run. Where
    the model cannot keep texts of several lengths apart in a run, each has its own.

    Args:
        at_once: how many texts are written; more of them wait.
        chunk: tokens of a prompt that are read in one turn.
    """

    def __init__(self, decoder: Decoder, at_once: int = 8) -> None:
        if at_once < 1:
            raise ValueError(f"at_once is {at_once}; it must be 1 or more")
        self.decoder, self.at_once = decoder, at_once
        self.waiting: list[Generation] = []
        self.members: list[Member] = []
        self.shares = apart(decoder)
        self._joined = Joined(decoder)
        self._rows: list[Member] = []
        self._kept: list[tuple[list[int], Row]] = []  # of texts that have ended, the newest last

    @property
    def busy(self) -> bool:
        return bool(self.members or self.waiting)

    def add(self, generation: Generation) -> None:
        generation._start()
        self.waiting.append(generation)

    def turn(self) -> list[tuple[Generation, Token]]:
        """One turn; the tokens that came."""
        self._clear()
        self._admit()
        told: list[tuple[Generation, Token]] = []
        reads = [m for m in self.members if not m.single]
        goes = [m for m in self.members if m.single]
        for member in reads[:1] + ([] if self.shares else goes):
            told += [(member.generation, t) for t in self._alone(member)]
        if self.shares and goes:
            told += self._step(goes)
        self._clear()
        return told

    def _clear(self) -> None:
        for member in [m for m in self.members if m.feed is None or m.generation.reason is not None]:
            self._leave(member)

    def _admit(self) -> None:
        self.waiting = [g for g in self.waiting if g.reason is None]
        while self.waiting and len(self.members) < self.at_once:
            generation = self.waiting.pop(0)
            member = Member(generation, self._decoder_for(generation.prompt))
            try:
                member.decoder.listen(generation.source)
                member.go_on(None)
            except Exception as error:
                member.fail(error)
            self.members.append(member)

    def _decoder_for(self, prompt: Sequence[int]) -> Decoder:
        """One that remembers what a text that has ended began with."""
        decoder = self.decoder.another()
        best = max(self._kept, key=lambda kept: loop.shared(kept[0], prompt), default=None)
        if best is not None and loop.shared(best[0], prompt) >= LEAST_SHARED:
            self._kept.remove(best)
            decoder.ids = list(best[0])
            decoder.memory.values = {name: OrtValue(a) for name, a in best[1].items()}
        return decoder

    def _alone(self, member: Member) -> list[Token]:
        feed, decoder = member.feed, member.decoder
        if feed is None:
            return []
        if member.joined:
            self._part(member)
        try:
            decoder.forget(feed.keep)
            logits = decoder.step(feed.ids, member.generation._options, feed.want, feed.needs)
        except Exception as error:
            decoder.forget(0)
            if member.generation.reason != "cancelled":
                member.fail(error)
            return []
        return member.go_on(logits)

    def _step(self, goes: list[Member]) -> list[tuple[Generation, Token]]:
        fresh = [m for m in goes if not m.joined]
        if fresh:
            before = [self._joined.row(i) for i in range(len(self._rows))]
            self._joined.lay([*before, *({n: v.numpy() for n, v in m.decoder.memory.values.items()} for m in fresh)])
            self._rows += fresh
            for member in fresh:
                member.joined, member.decoder.memory.values = True, {}
        feeds = [m.feed for m in self._rows if m.feed is not None]
        wishes = {feed.needs for feed in feeds}
        try:
            found = self._joined.step([feed.ids[0] for feed in feeds], loop.together(wishes))
        except Exception as error:
            for member in self._rows:
                member.fail(error)
                member.joined = False
                member.decoder.forget(0)
            self._rows = []
            return []
        told = []
        for member, row in zip(list(self._rows), found, strict=True):
            member.decoder.ids += member.feed.ids if member.feed else []
            told += [(member.generation, t) for t in member.go_on([row])]
        for member in [m for m in self._rows if m.feed is not None and not m.single]:
            self._part(member)
        return told

    def _part(self, member: Member) -> None:
        """Its cache is its own again."""
        at = self._rows.index(member)
        row = {name: np.ascontiguousarray(a) for name, a in self._joined.row(at).items()}
        member.decoder.memory.values = {name: OrtValue(a) for name, a in row.items()}
        self._joined.lay([self._joined.row(i) for i in range(len(self._rows)) if i != at])
        self._rows.remove(member)
        member.joined = False

    def _leave(self, member: Member) -> None:
        if member.joined:
            self._part(member)
        if len(member.decoder.ids) >= LEAST_SHARED and self.decoder.encoder is None:
            self._kept.append((member.decoder.ids, {n: v.numpy() for n, v in member.decoder.memory.values.items()}))
            del self._kept[: -self.at_once]
        self.members.remove(member)
