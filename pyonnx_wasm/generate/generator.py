"""``Generator``: prompts in, text out, token by token."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..gguf.decoder import Several
from ..options import RunOptions, SessionOptions
from ..session import InferenceSession
from . import exports, loop
from .ahead import Draft, Lookup
from .beams import Beams, Search, beams
from .cache import Array, Decoder
from .encoder import Encoder
from .loop import Feed, Plan, Progress, Statistics, Token
from .sampling import Sampling
from .several import Together, many
from .text import Template
from .vocabulary import TextError

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int] | Messages | Array


class Generator:
    """Writes on from prompts, one text at a time, or several with :meth:`generate_many`.

    What a prompt has in common with the text before, prompt and answer, is not read again: a conversation goes on where it was. Behind an
    encoder (T5, BART, Whisper), a prompt is what the encoder reads, once: a text, token ids, or an array, as features of sound are.

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
        draft: foretells tokens, which the model reads together; the text stays what it is: ``"prompt"`` looks for what followed the last
            words before, a smaller model with the same tokens (as ``model``, or its ``Generator``) writes them. None: one by one.
        ahead: how many tokens are foretold at most.
        encoder: a file or a session, of which the model writes; None: ``encoder_model.onnx`` beside it, where there is one.
        several: a GGUF file is opened in the form that reads several texts in a run, for one text too; else that is done when several
            are first asked for, beside the form for one.
    Raises:
        ValueError: the model is no decoder with a cache, a setting is out of range.
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
        draft: str | os.PathLike[str] | Generator | None = None,
        ahead: int = 4,
        encoder: str | os.PathLike[str] | InferenceSession | None = None,
        several: bool = False,
    ) -> None:
        if overflow not in ("error", "slide"):
            raise ValueError(f"overflow is {overflow!r}; it must be 'error' or 'slide'")
        for name, number in (("chunk", chunk), ("ahead", ahead)):
            if number < 1:
                raise ValueError(f"{name} is {number}; it must be 1 or more")
        if isinstance(model, InferenceSession):
            about, session, first = exports.Export(Path()), model, None
        else:
            about = exports.found(model)
            source = Several(str(about.model)) if several and about.gguf else about.model
            session = InferenceSession(source, sess_options, providers)
            first = InferenceSession(about.first, sess_options, providers) if about.first else None
        exports.told(about, session)
        reads = about.encoder if encoder is None else encoder
        if reads is not None and not isinstance(reads, InferenceSession):
            reads = InferenceSession(reads, sess_options, providers)
        self.decoder = Decoder(session, first, None if reads is None else Encoder(reads))
        self.starts, self.never, self.never_first = tuple(about.starts), about.never, about.never_first
        self.tokenizer = about.tokenizer if tokenizer is None else tokenizer or None
        self.context, self.slides, self.chunk = context or about.context, overflow == "slide", chunk
        self.ends, self.begin = frozenset(about.ends), about.begin
        self.template = template or about.template
        self._chat: Template | None = None
        self._running: Generation | None = None
        self._together: Together | None = None
        self.ahead = ahead
        self._draft = draft if draft is None or draft == "prompt" or isinstance(draft, Generator) else Generator(draft, False)
        self._wider: Decoder | None = None
        self._several = (lambda: InferenceSession(Several(str(about.model)), sess_options, providers)) if about.gguf else None

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, behind the token that begins texts where the model wants one.

        Raises:
            TextError: there is no tokenizer, or the text is not of characters alone.
        """
        if self.tokenizer is None:
            raise TextError("the model has no tokenizer: give one, or prompts as token ids")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TextError(f"the text has half a surrogate pair at {error.start}, which is no character") from None
        ids = list(self.tokenizer.encode(text).ids)
        if self.begin is None or self.decoder.encoder is not None or ids[:1] == [self.begin]:
            return ids
        return [self.begin, *ids]

    def decode(self, ids: Sequence[int]) -> str:
        return "" if self.tokenizer is None else str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def word(self, token: int) -> str:
        """The text of one token alone."""
        return "" if self.tokenizer is None else str(self.tokenizer.decode([token], skip_special_tokens=False))

    def prompt(self, messages: Messages) -> str:
        """The text that the model's template makes of a chat.

        Raises:
            TextError: there is no template, it does not parse, or fails.
        """
        if self.template is None:
            raise TextError("the model has no chat template: give one (template=), or a prompt as text")
        if self._chat is None:
            names = {"eos_token": min(self.ends, default=None), "bos_token": self.begin}
            words = {n: self.tokenizer.id_to_token(i) or "" for n, i in names.items() if i is not None and self.tokenizer is not None}
            self._chat = Template(self.template, words)
        return self._chat(messages)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        stop: str | Sequence[str] = (),
        likely: int = 0,
        sampling: Sampling | None = None,
        decoder_input_ids: Sequence[int] | None = None,
        **settings: Any,
    ) -> Generation:
        """Begins a text; nothing is computed before it is asked for tokens.

        Args:
            prompt: a text, token ids, or a chat's messages (``role`` and ``content``); behind an encoder also an array [...] or [1, ...].
            max_new_tokens: at least 1.
            stop: texts before which it ends.
            likely: tells the probabilities of so many tokens at each place.
            sampling: how tokens are chosen; or its fields by name (``temperature=0.7``, ``seed=1``).
            decoder_input_ids: what the text begins with behind an encoder; None: as the export says (a start, a language, a task).
        Raises:
            ValueError: a setting is out of range, a token is none of the model's.
            ContextError: the prompt is longer than the model reads, and may not slide.
        """
        plan, ids, source = self._planned(prompt, max_new_tokens, stop, likely, sampling, settings, decoder_input_ids)
        return Generation(self, plan, ids, source)

    def _planned(
        self, prompt: Prompt, limit: int, stop: str | Sequence[str], likely: int, sampling: Sampling | None,
        settings: Mapping[str, Any], begins: Sequence[int] | None,
    ) -> tuple[Plan, list[int], Array | None]:  # fmt: skip
        how = sampling or Sampling(**settings)
        if sampling is not None and settings:
            raise ValueError(f"{', '.join(settings)} beside sampling=: say it there")
        if limit < 1:
            raise ValueError(f"max_new_tokens is {limit}; it must be 1 or more")
        ids, source = self._read(prompt, begins)
        seed = secrets.randbits(64) if how.seed is None else how.seed & (1 << 64) - 1
        stays = len(ids) if source is not None else int(self.begin is not None and ids[0] == self.begin)
        head = stays if self.slides else None
        loop.fitted(ids, self.context, head)
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        if stops and self.tokenizer is None:
            raise TextError("stop texts need a tokenizer")
        ahead = self._foretold(how, seed)
        told, words = self.decoder.told, self.decoder.words
        plan = Plan(
            limit, how, seed, self.ends, stops, self.decode, self.context, head, self.chunk, likely, self.never, self.never_first,
            told, words, ahead,
        )  # fmt: skip
        return plan, ids, source

    def _read(self, prompt: Prompt, begins: Sequence[int] | None) -> tuple[list[int], Array | None]:
        """The tokens that a text begins with, and what it is about where an encoder reads that."""
        encoder = self.decoder.encoder
        if encoder is None:
            if begins is not None:
                raise ValueError("decoder_input_ids are for models with an encoder: this one has none")
            return self.ids(prompt), None
        if begins is None and not self.starts:
            raise ValueError("nothing says what the decoder's texts begin with (decoder_start_token_id): give decoder_input_ids")
        return self.ids(self.starts if begins is None else begins), encoder.source(self.ids(prompt) if encoder.reads_tokens else prompt)

    def _foretold(self, how: Sampling, seed: int) -> Lookup | Draft | None:
        if self._draft is None or isinstance(self._draft, str):
            return Lookup(self.ahead) if self._draft else None
        return Draft(self._draft.decoder, how, seed, self.ahead, self._draft.context)

    def together(self, at_once: int = 8) -> Together:
        """What writes several texts at a time: ``add`` generations to it, and ask it for turns until it is no longer ``busy``.

        Args:
            at_once: how many texts are written; more of them wait.
        """
        return Together(self._wide(), at_once)

    def _wide(self) -> Decoder:
        """The decoder that reads several texts in a run, where the model has such a form."""
        if self._several is None or many(self.decoder.session):
            return self.decoder
        if self._wider is None:
            self._wider = Decoder(self._several())
        return self._wider

    def generate_many(self, prompts: Sequence[Prompt], *, at_once: int = 8, **settings: Any) -> list[Generation]:
        """Writes on from several prompts at a time, each the text that it would get alone.

        Args:
            at_once: how many texts are written; the others wait.
            settings: as :meth:`generate` takes them.
        Raises:
            As :meth:`generate`, and what goes wrong in any of them.
        """
        made = [self.generate(prompt, **settings) for prompt in prompts]
        together = self._together if self._together is not None and self._together.at_once == at_once else self.together(at_once)
        self._together = together
        for generation in made:
            together.add(generation)
        while together.busy:
            together.turn()
        for generation in made:
            if generation.error is not None:
                raise generation.error
        return made

    def search(
        self, prompt: Prompt, *, num_beams: int = 4, max_new_tokens: int = 128, length_penalty: float = 1.0,
        early_stopping: bool | str = False, num_return: int = 1, decoder_input_ids: Sequence[int] | None = None,
    ) -> list[Beams]:  # fmt: skip
        """The most likely texts that beam search finds, the best first (as transformers' ``generate(num_beams=...)``).

        Args:
            prompt: as :meth:`generate` takes it.
            length_penalty: a text's sum of log probabilities is divided by its number of new tokens to this power.
            early_stopping: True: ends once ``num_beams`` texts have ended; False: once no better one is likely; ``"never"``: once there
                can be none.
            num_return: how many are given.
            decoder_input_ids: as :meth:`generate` takes them.
        Raises:
            ValueError: a setting is out of range, the model reads one text at a time.
            ContextError: the prompt and ``max_new_tokens`` are more than the model reads.
        """
        ids, source = self._read(prompt, decoder_input_ids)
        if self.context is not None:
            loop.fitted(ids, self.context, None)
            max_new_tokens = min(max_new_tokens, self.context - len(ids))
        search = Search(self.ends, num_beams, max_new_tokens, length_penalty, early_stopping, self.never, self.never_first)
        return beams(self._wide(), ids, source, search, self.decode, self.chunk, num_return)

    def ids(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt of any kind, checked.

        Raises:
            ValueError: there is none, or one that is none of the model's.
        """
        given: Any = prompt
        if not isinstance(given, str) and len(given) and isinstance(given[0], Mapping):
            given = self.prompt(given)
        if isinstance(given, np.ndarray) and given.dtype.kind not in "iu":
            raise ValueError(f"the model reads tokens, and was given an array of {given.dtype}")
        ids = self.encode(given) if isinstance(given, str) else [int(i) for i in given]
        if not ids:
            raise ValueError("the prompt is empty: give at least one token")
        words = self.decoder.words
        for i in ids:
            if i < 0 or (words is not None and i >= words):
                raise ValueError(f"token {i} is none of the model's {words or ''}")
        return ids

    def __call__(self, prompt: Prompt, **settings: Any) -> str:
        """The whole text that follows a prompt; see :meth:`generate`."""
        made = self.generate(prompt, **settings)
        for _ in made:
            pass
        return made.text


class Generation:
    """One text as it comes: iterate over it, or ``async for``, for :class:`Token`.

    Attributes:
        plan, prompt: what was asked for; behind an encoder, ``prompt`` is what the decoder's text begins with, and ``source`` what the
            encoder reads.
        error: what went wrong, where it is one of several.
    """

    error: Exception | None = None

    def __init__(self, generator: Generator, plan: Plan, ids: list[int], source: Array | None = None) -> None:
        self._generator, self.plan, self.prompt, self.source = generator, plan, list(ids), source
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

    def fail(self, error: Exception) -> None:
        """Ends it with what went wrong."""
        if self.reason is None:
            self._progress.reason, self.error = f"error: {error}", error

    def _start(self) -> None:
        if self._begun:
            raise RuntimeError("this text has begun already: generate() makes another")
        self._begun = True

    def _begin(self) -> None:
        self._start()
        if self._generator._running is not None and self._generator._running.reason is None:
            self._generator._running.cancel()
        self._generator._running = self

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Of a step: what was cancelled ends quietly, and the cache of a step that failed is of no use."""
        try:
            yield
        except Exception as error:
            self._generator.decoder.forget(0)
            if not self._options.terminate:
                self._progress.reason = f"error: {error}"
                raise

    def _turn(self, steps: Any, logits: Any) -> Feed | Token | None:
        """What comes next; None at the end."""
        item: Feed | Token | None = None
        with self._guarded():
            if self._progress.reason != "cancelled":
                with suppress(StopIteration):
                    item = steps.send(logits)
        return item

    def _steps(self) -> Any:
        return loop.run(self.plan, self._progress, self._generator.decoder.ids)

    def __iter__(self) -> Iterator[Token]:
        self._begin()
        with self._guarded():
            self._generator.decoder.listen(self.source)
        steps, logits = self._steps(), None
        while (item := self._turn(steps, logits)) is not None:
            logits = None
            if isinstance(item, Token):
                yield item
                continue
            with self._guarded():
                self._generator.decoder.forget(item.keep)
                logits = self._generator.decoder.step(item.ids, self._options, item.want, item.needs)

    async def __aiter__(self) -> AsyncIterator[Token]:
        self._begin()
        with self._guarded():
            await self._generator.decoder.listen_async(self.source)
        steps, logits = self._steps(), None
        while (item := self._turn(steps, logits)) is not None:
            logits = None
            if isinstance(item, Token):
                yield item
                continue
            with self._guarded():
                await self._generator.decoder.forget_async(item.keep)
                logits = await self._generator.decoder.step_async(item.ids, self._options, item.want, item.needs)
