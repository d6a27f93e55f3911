"""Feeds decoders, and keeps what they remember between the tokens: keys and values of every layer.

Exports differ in the names and in what they want beside the tokens; what a model wants is read from its inputs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType
from ..onward import Chain
from ..options import RunOptions
from ..program import Signature
from ..session import InferenceSession
from ..values import OrtValue
from .encoder import Encoder, Heard, same
from .leading import rows_of
from .loop import Row, Rows

Array = np.ndarray[Any, Any]
_NUMPY = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_PAST = re.compile(r"past(?:_key_values)?\.(\d+)\.(?:(decoder|encoder)\.)?(key|value)|past_(key|value)_(?:values_)?(\d+)")
_PRESENT = re.compile(r"present(?:_key_values)?\.(\d+)\.(?:(decoder|encoder)\.)?(key|value)|present_(key|value)_(?:values_)?(\d+)")


def _place(found: re.Match[str]) -> tuple[int, str, str]:
    layer, whose, part, other, number = found.groups()
    return int(layer or number), whose or "decoder", part or other


class Memory:
    """Keys and values [1, heads, length, size] of the tokens so far; of every layer, by the name of the model's input.

    Attributes:
        crossed: names of those of what an encoder has read, which come with a text's first tokens and stay.
    """

    def __init__(self, session: InferenceSession, first: InferenceSession | None = None) -> None:
        given_by = [*session.get_outputs(), *(first.get_outputs() if first else ())]
        outputs = {_place(m): o.name for o in given_by if (m := _PRESENT.fullmatch(o.name))}
        self.empty: dict[str, Array] = {}
        self.crossed: set[str] = set()
        self.source: dict[str, str] = {}  # an input's name by that of the output that follows it
        for given in session.get_inputs():
            if (found := _PAST.fullmatch(given.name)) is None:
                continue
            if given.type not in _NUMPY or len(given.shape) != 4 or _place(found) not in outputs:
                raise ValueError(f"input {given.name!r} of {given.type}{given.shape} is no cache that is known, or no output continues it")
            shape = [d if isinstance(d, int) else (1, 0, 0, 0)[axis] for axis, d in enumerate(given.shape)]
            if not shape[1] or not shape[3]:
                raise ValueError(f"input {given.name!r} does not say how many heads of which size it has: {given.shape}")
            self.empty[given.name] = np.zeros([1, shape[1], 0, shape[3]], _NUMPY[given.type])
            self.source[outputs[_place(found)]] = given.name
            if _place(found)[1] == "encoder":
                self.crossed.add(given.name)
        self._chain: Chain | None = None
        self._values: dict[str, OrtValue] = {}
        self.keep(0)

    @property
    def values(self) -> dict[str, OrtValue]:
        if self._chain is not None:
            self._values |= {self.source[name]: OrtValue(held) for name, held in self._chain.end().items()}
            self._chain = None
        return self._values

    @values.setter
    def values(self, values: dict[str, OrtValue]) -> None:
        self._values, self._chain = values, None

    def chain(self, session: InferenceSession) -> Chain | None:
        """Runs that go on from here, while `values` wait; None where a session holds nothing, or other runs have come between."""
        if self._chain is not None and self._chain.session is session:
            return self._chain
        if not self.crossed:
            self._chain = session.chain({out: self.values[name] for out, name in self.source.items()})
            if self._chain is not None:
                self._values = {}  # the chain's runs make others of them
        return self._chain

    def keep(self, length: int) -> None:
        """Forgets all but the first tokens."""
        if length == 0:
            self.values = {name: OrtValue(a) for name, a in self.empty.items()}
            return
        self.values = {
            name: v if v.shape()[2] == length or name in self.crossed else OrtValue(v.numpy()[:, :, :length])
            for name, v in self.values.items()
        }

    def take(self, results: Mapping[str, OrtValue]) -> None:
        self.values |= {self.source[name]: value for name, value in results.items() if name in self.source}


class Decoder:
    """A decoder and its cache, one text at a time.

    Args:
        session: reads ``input_ids`` and a past, and gives ``logits`` and a present.
        first: reads the beginning of a text where ``session`` does not: exports in two files.
        encoder: reads what the text is about.

    Attributes:
        words: how many logits there are; None: any number.
        told: of so many of its largest logits the model tells by itself.
        single: it tells of the largest alone, too.
    """

    def __init__(self, session: InferenceSession, first: InferenceSession | None = None, encoder: Encoder | None = None) -> None:
        self.session, self.first, self.encoder = session, first, encoder
        self.heard: Heard | None = None
        self.memory = Memory(session, first)
        if not self.memory.empty:
            names = ", ".join(i.name for i in session.get_inputs())
            raise ValueError(
                f"the model has no cache of keys and values (its inputs: {names}); export it with one (text-generation-with-past)"
            )
        self.ids: list[int] = []  # that the cache holds
        self._wants = {i.name for each in (session, first) if each is not None for i in each.get_inputs()}
        self.words, self.told = _told(session, first)
        self.single = all("first" in {o.name for o in s.get_outputs()} for s in (session, first) if s is not None)
        for each in filter(None, (session, first)):
            self._known(each)

    def another(self) -> Decoder:
        """One of the same model, with a cache of its own."""
        return Decoder(self.session, self.first, self.encoder)

    def _known(self, session: InferenceSession) -> None:
        known = {"input_ids", "attention_mask", "position_ids", "use_cache_branch", "num_logits_to_keep"}
        crossed = {"encoder_hidden_states", "encoder_attention_mask", "decoder_attention_mask", "cache_position"}
        for given in session.get_inputs():
            if given.name in crossed and self.encoder is None:
                raise ValueError(f"the model wants {given.name!r} of an encoder, which is missing: give one (encoder=)")
            if given.name not in known | crossed and not _PAST.fullmatch(given.name):
                raise ValueError(f"the model wants the input {given.name!r}, which is not known of decoders")
        if "logits" not in {o.name for o in session.get_outputs()}:
            raise ValueError("the model gives no output 'logits'")

    def listen(self, source: Array | None) -> None:
        """Has the encoder read what the next text is about, unless it is what it has read last."""
        if source is not None and self.encoder is not None and not same(self.heard, source):
            self.forget(0)
            self.heard = self.encoder.read(source)

    async def listen_async(self, source: Array | None) -> None:
        if source is not None and self.encoder is not None and not same(self.heard, source):
            self.forget(0)
            self.heard = await self.encoder.read_async(source)

    def forget(self, keep: int) -> None:
        """Goes back to the first tokens that it has read."""
        if keep < len(self.ids):
            del self.ids[keep:]
            self.memory.keep(keep)

    async def forget_async(self, keep: int) -> None:
        """As :meth:`forget`; what stays of a cache on the GPU of a page is read first."""
        if keep < len(self.ids):
            if keep:
                self.memory.values = {name: OrtValue(await v.numpy_async()) for name, v in self.memory.values.items()}
            self.forget(keep)

    def _everything(self, ids: list[int], want: int) -> dict[str, Any]:
        """All that this one may want beside a past."""
        past, end = len(self.ids), len(self.ids) + len(ids)
        made: dict[str, Callable[[], Any]] = {
            "input_ids": lambda: np.array([ids], np.int64),
            "attention_mask": lambda: np.ones((1, end), np.int64),
            "decoder_attention_mask": lambda: np.ones((1, end), np.int64),
            "position_ids": lambda: np.arange(past, end)[None],
            "cache_position": lambda: np.arange(past, end),
            "use_cache_branch": lambda: np.array([past > 0]),
            "num_logits_to_keep": lambda: np.int64(want),
        }
        heard: Mapping[str, Any] = self.heard.feed if self.heard else {}
        return {**{name: make() for name, make in made.items() if name in self._wants}, **heard}

    def request(self, ids: list[int], want: int = 1, needs: str = "logits") -> tuple[InferenceSession, list[str], dict[str, Any]]:
        """What to run so that it reads these tokens: session, outputs, inputs."""
        past = len(self.ids)
        session = self.first if self.first is not None and not past else self.session
        wanted = [name for name, given in self.memory.source.items() if not past or given not in self.memory.crossed]
        feed = fed(session.signature()[0], self._everything(ids, want), self.memory.values)
        return session, [*asked(needs, self.told, self.single), *wanted], feed

    def _further(self, ids: list[int], options: RunOptions | None, want: int, needs: str) -> Rows | None:
        """Reads tokens behind those that the session has read last; None: it was others."""
        chain = self.memory.chain(self.session) if self.ids else None
        if chain is None:
            return None
        names, past, mark = asked(needs, self.told, self.single), len(self.ids), chain.mark
        try:
            found = chain.run(names, fed(chain.others, self._everything(ids, want), {}), options)
            return None if found is None else self._taken(ids, dict(zip(names, found, strict=True)), found[0].shape[1], want)
        except BaseException:  # an interrupt, too, after which chain and tokens must agree
            chain.mark = mark
            del self.ids[past:]
            raise

    def parts(self, ids: list[int], want: int) -> list[tuple[list[int], int]]:
        """Tokens, and how many logits of them, run by run: decoders behind an encoder are exported for one token behind others."""
        if self.encoder is None or not self.ids or len(ids) == 1:
            return [(ids, want)]
        return [([token], 1) for token in ids]

    def every(self, ids: list[int]) -> Array:
        """Reads tokens; the logits [n, vocabulary] of all of them. What the cache then holds is of no further use."""
        session, _, feed = self.request(ids)
        feed |= {"num_logits_to_keep": np.int64(0)} if "num_logits_to_keep" in feed else {}
        self.forget(0)
        logits: Array = session.run(["logits"], feed)[0][0]
        return logits.astype(np.float32)

    def taken(self, ids: list[int], names: list[str], results: list[Any], want: int = 1) -> Rows:
        """Remembers what a run gave; returns the logits of the last tokens."""
        values = dict(zip(names, (v if isinstance(v, OrtValue) else OrtValue(v) for v in results), strict=True))
        found = self._taken(ids, values, values[names[0]].shape()[1], want)
        self.memory.take(values)
        return found

    def _taken(self, ids: list[int], values: Mapping[str, Any], told: int, want: int) -> Rows:
        if told < want:
            raise ValueError("the model gives the logits of the last token alone; nothing can be foretold for it (draft=None)")
        self.ids += ids
        return rows(values, self.words, lambda logits: logits[0, -want:])

    def step(self, ids: list[int], options: RunOptions | None = None, want: int = 1, needs: str = "logits") -> Rows:
        """Reads tokens; the logits of the last ones, or, where less is needed (:class:`.loop.Feed`), what the model tells of them."""
        found: list[Row] = []
        for part, count in self.parts(ids, want):
            if (more := self._further(part, options, count, needs)) is None:
                session, names, feed = self.request(part, count, needs)
                more = self.taken(part, names, session.run_with_ort_values(names, wrapped(feed), options), count)
            found += more
        return found[-want:]

    async def step_async(self, ids: list[int], options: RunOptions | None = None, want: int = 1, needs: str = "logits") -> Rows:
        """As :meth:`step`; nothing has changed where it is cancelled."""
        found: list[Row] = []
        for part, count in self.parts(ids, want):
            session, names, feed = self.request(part, count, needs)
            here = session.providers[0] in ("cpu", "gpu", "wasmtime")
            there = session.run_with_ort_values_async
            waiting = asyncio.to_thread(_run, session, names, feed, options) if here else there(names, feed, options)
            found += self.taken(part, names, await waiting, count)
        return found[-want:]


def _run(session: InferenceSession, names: list[str], feed: Mapping[str, Any], options: RunOptions | None) -> list[Any]:
    """What a run gives, of which the first output has been waited for."""
    results = session.run_with_ort_values(names, wrapped(feed), options)
    results[0].numpy()
    return results


def _told(*sessions: InferenceSession | None) -> tuple[int | None, int]:
    """How many logits there are, and of how many of the largest all of these tell."""
    shapes = [{o.name: o.shape for o in session.get_outputs()} for session in sessions if session is not None]
    words, *_ = (shape["logits"][-1] for shape in shapes)
    sizes = [shape["choice"][-1] if "choice" in shape else 1 for shape in shapes]
    return words if isinstance(words, int) else None, min(size // 2 if isinstance(size, int) else 0 for size in sizes)


def asked(needs: str, told: int, single: bool) -> list[str]:
    """The outputs that give what is needed of the logits."""
    first = "first" if single else "choice"
    return {"first": [first], "choice": ["choice"], "both": ["choice", "logits"]}.get(needs if told else "", ["logits"])


def rows(values: Mapping[str, Any], words: int | None, last: Callable[[Array], Array]) -> Rows:
    """What a run gave of the logits, as arrays or ``OrtValue``, row by row; ``last`` takes those of the tokens that are wanted."""
    told, whole = values.get("choice", values.get("first")), values.get("logits")

    def logits() -> Array:
        assert whole is not None
        return last(np.asarray(whole)).astype(np.float32, copy=False)

    return list(logits()) if told is None else rows_of(last(np.asarray(told)), words, lambda i: logits()[i])


def fed(inputs: Sequence[Signature], everything: Mapping[str, Any], past: Mapping[str, OrtValue]) -> dict[str, Any]:
    """Of all that decoders may want what these inputs do, in their types."""
    return {
        i.name: past[i.name] if i.name in past else everything[i.name].astype(np.int32) if i.dtype is DType.int32 else everything[i.name]
        for i in inputs
    }


def wrapped(feed: Mapping[str, Any]) -> dict[str, OrtValue]:
    return {n: v if isinstance(v, OrtValue) else OrtValue(np.asarray(v)) for n, v in feed.items()}
