"""``Generator``: prompts in, text out, token by token."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..options import RunOptions, SessionOptions
from ..session import InferenceSession
from . import exports, loop
from .cache import Decoder
from .loop import Feed, Plan, Progress, Statistics, Token
from .sampling import Sampling
from .text import Template, TextError

Messages = Sequence[Mapping[str, Any]]


class Generator:
    """Writes on from prompts, one text at a time.

    What a prompt has in common with the text before, prompt and answer, is not read again: a conversation goes on where it was.

    Args:
        model: a ``.gguf`` file, an ``.onnx`` or ``.ponnx`` file, the folder of an export (optimum's, merged or in two files, or the genai
            builder's, with its ``genai_config.json``), or a session over such a decoder.
        tokenizer: what has ``encode(text).ids`` and ``decode(ids)``, as ``tokenizers.Tokenizer``; None: the one that belongs to the
            model; False: prompts are token ids.
        template: of chats, in Jinja; None: the model's own.
        providers, sess_options: as ``InferenceSession`` takes them.
        context: how many tokens the model reads; None: as it says itself.
        overflow: ``"error"``: a longer text is a ``ContextError``; ``"slide"``: the model reads its last part, half a context long.
        chunk: tokens of a prompt that are read at once.
    Raises:
        ValueError: the model is no decoder with a cache.
        TextError: its tokenizer or template cannot be used.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | InferenceSession,
        tokenizer: Any = None,
        *,
        template: str | None = None,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        sess_options: SessionOptions | None = None,
        context: int | None = None,
        overflow: str = "error",
        chunk: int = 512,
    ) -> None:
        if overflow not in ("error", "slide"):
            raise ValueError(f"overflow is {overflow!r}; it must be 'error' or 'slide'")
        if chunk < 1:
            raise ValueError(f"chunk is {chunk}; it must be 1 or more")
        if isinstance(model, InferenceSession):
            about, session, first = exports.Export(Path()), model, None
        else:
            about = exports.found(model)
            session = InferenceSession(about.model, sess_options, providers)
            first = InferenceSession(about.first, sess_options, providers) if about.first else None
        exports.told(about, session)
        self.decoder = Decoder(session, first)
        self.tokenizer = about.tokenizer if tokenizer is None else tokenizer or None
        self.context, self.slides, self.chunk = context or about.context, overflow == "slide", chunk
        self.ends, self.begin = frozenset(about.ends), about.begin
        self._template = template or about.template
        self._chat: Template | None = None
        self._running: Generation | None = None

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, behind the token that begins texts where the model wants one."""
        if self.tokenizer is None:
            raise TextError("the model has no tokenizer: give one, or prompts as token ids")
        ids = list(self.tokenizer.encode(text).ids)
        return [self.begin, *ids] if self.begin is not None and ids[:1] != [self.begin] else ids

    def decode(self, ids: Sequence[int]) -> str:
        return "" if self.tokenizer is None else str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def prompt(self, messages: Messages) -> str:
        """The text that the model's template makes of a chat.

        Raises:
            TextError: there is no template, it does not parse, or fails.
        """
        if self._template is None:
            raise TextError("the model has no chat template: give one (template=), or a prompt as text")
        if self._chat is None:
            names = {"eos_token": min(self.ends, default=None), "bos_token": self.begin}
            words = {n: self.tokenizer.id_to_token(i) or "" for n, i in names.items() if i is not None and self.tokenizer is not None}
            self._chat = Template(self._template, words)
        return self._chat(messages)

    def generate(
        self,
        prompt: str | Sequence[int] | Messages,
        *,
        max_new_tokens: int = 128,
        stop: str | Sequence[str] = (),
        likely: int = 0,
        sampling: Sampling | None = None,
        **settings: Any,
    ) -> Generation:
        """Begins a text; nothing is computed before it is asked for tokens.

        Args:
            prompt: a text, token ids, or a chat's messages (``role`` and ``content``).
            max_new_tokens: at least 1.
            stop: texts before which it ends.
            likely: tells the probabilities of so many tokens at each place.
            sampling: how tokens are chosen; or its fields by name (``temperature=0.7``, ``seed=1``).
        Raises:
            ValueError: a setting is out of range, a token is none of the model's.
            ContextError: the prompt is longer than the model reads, and may not slide.
        """
        how = sampling or Sampling(**settings)
        if sampling is not None and settings:
            raise ValueError(f"{', '.join(settings)} beside sampling=: say it there")
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be 1 or more")
        ids = self._ids(prompt)
        seed = secrets.randbits(64) if how.seed is None else how.seed & (1 << 64) - 1
        head = (int(self.begin is not None and ids[0] == self.begin)) if self.slides else None
        loop.fitted(ids, self.context, head)
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        if stops and self.tokenizer is None:
            raise TextError("stop texts need a tokenizer")
        plan = Plan(max_new_tokens, how, seed, self.ends, stops, self.decode, self.context, head, self.chunk, likely)
        return Generation(self, plan, ids)

    def _ids(self, prompt: str | Sequence[int] | Messages) -> list[int]:
        given: Any = prompt
        if not isinstance(given, str) and len(given) and isinstance(given[0], Mapping):
            given = self.prompt(given)
        ids = self.encode(given) if isinstance(given, str) else [int(i) for i in given]
        if not ids:
            raise ValueError("the prompt is empty: give at least one token")
        shape = next(o.shape for o in self.decoder.session.get_outputs() if o.name == "logits")
        words = shape[-1] if isinstance(shape[-1], int) else None
        for i in ids:
            if i < 0 or (words is not None and i >= words):
                raise ValueError(f"token {i} is none of the model's {words or ''}")
        return ids

    def __call__(self, prompt: str | Sequence[int] | Messages, **settings: Any) -> str:
        """The whole text that follows a prompt; see :meth:`generate`."""
        made = self.generate(prompt, **settings)
        for _ in made:
            pass
        return made.text


class Generation:
    """One text as it comes: iterate over it, or ``async for``, for :class:`Token`.

    Attributes:
        plan, prompt: what was asked for.
    """

    def __init__(self, generator: Generator, plan: Plan, ids: list[int]) -> None:
        self._generator, self.plan, self.prompt = generator, plan, list(ids)
        self._progress = Progress(list(ids))
        self._options = RunOptions()
        self._begun = False

    @property
    def text(self) -> str:
        """What was told so far; whole when it has ended."""
        return self._progress.text

    @property
    def ids(self) -> list[int]:
        """The tokens behind the prompt."""
        return self._progress.ids[len(self.prompt) :]

    @property
    def reason(self) -> str | None:
        """Why it ended: ``"end"`` (the model said so), ``"stop"``, ``"length"``, ``"cancelled"``; None before."""
        return self._progress.reason

    @property
    def statistics(self) -> Statistics:
        return self._progress.statistics

    def cancel(self) -> None:
        """Ends it, from any thread: before the step that is under way on the core has ended."""
        self._progress.reason = self._progress.reason or "cancelled"
        self._options.terminate = True

    def _begin(self) -> Any:
        if self._begun:
            raise RuntimeError("this text has begun already: generate() makes another")
        self._begun = True
        if self._generator._running is not None and self._generator._running.reason is None:
            self._generator._running.cancel()
        self._generator._running = self
        return loop.run(self.plan, self._progress, self._generator.decoder.ids)

    def _failed(self, error: Exception) -> bool:
        """Whether a run ended because the text was cancelled; the cache is of no use then."""
        self._generator.decoder.forget(0)
        if self._options.terminate:
            return True
        self._progress.reason = f"error: {error}"
        return False

    def __iter__(self) -> Iterator[Token]:
        decoder, steps = self._generator.decoder, self._begin()
        sent: Any = None
        while self._progress.reason != "cancelled":
            try:
                item = steps.send(sent)
                sent = None
                if isinstance(item, Feed):
                    decoder.forget(item.keep)
                    sent = decoder.step(item.ids, self._options)
            except StopIteration:
                return
            except Exception as error:
                if self._failed(error):
                    return
                raise
            if isinstance(item, Token):
                yield item

    async def __aiter__(self) -> AsyncIterator[Token]:
        decoder, steps = self._generator.decoder, self._begin()
        sent: Any = None
        while self._progress.reason != "cancelled":
            try:
                item = steps.send(sent)
                sent = None
                if isinstance(item, Feed):
                    decoder.forget(item.keep)
                    sent = await decoder.step_async(item.ids, self._options)
            except StopIteration:
                return
            except Exception as error:
                if self._failed(error):
                    return
                raise
            if isinstance(item, Token):
                yield item
