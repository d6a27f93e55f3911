"""``Chat``: a conversation with a language model in the notebook, written in the browser."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import traitlets

from ..generate import Generator, Sampling
from ..generate import exports as found_beside
from ..gguf.hints import KEY
from .panels import _contents
from .rpc import Reply
from .wait import wait_async
from .widget import BACKENDS, Model, ModelWidget

PATIENCE = 600.0  # seconds for one answer
_SPEAKERS = {"user": "You", "assistant": "Model"}
_SETTINGS = {"max_new_tokens": 256, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.1, "seed": None}


class Chat(ModelWidget):
    """Talks with a language model: messages, answers that come word by word, stop, another answer. Runs in the browser.

    What is written stays in the browser until an answer has ended; then ``messages`` has it, in the kernel's memory. Into the notebook, and
    onto a disk it goes with ``still=True`` alone, or where JupyterLab is set to save the state of all widgets, which it is not at first.

    ``Chat("model.gguf", system="You are brief.")``

    Args:
        model: a ``.gguf`` file, an ``.onnx`` or ``.ponnx`` file of a decoder with a cache, the folder of an export, or a ``Generator``.
        tokenizer: of ``tokenizers`` or ``transformers``, or the path or contents of a ``tokenizer.json``; None: the one that belongs to
            the model.
        template: of chats, in Jinja; None: the model's own. A model that has none goes on with the text of all messages.
        system: what the model is told first.
        messages: to begin with.
        settings: of the answers: ``max_new_tokens``, and the fields of ``generate.Sampling`` by name.
        backends: where to run, in order of preference: ``webgpu`` and ``wasm``.
        still: keep a picture of the conversation, and its text, in the notebook, for whoever opens it without a kernel. The system prompt
            is not in it, and of long conversations the picture shows the newest messages. "New chat" takes both away.
        title: shown above; by default the file's name.
    Attributes:
        messages: dicts of ``role`` (``user`` or ``assistant``) and ``content``; may be set.
        system, settings: may be set, for answers to come.
        value: the latest answer, "" before. ``w.observe(fn, names="value")`` tells of new ones.
    Raises:
        ValueError: the model has no tokenizer, messages or settings are not of these forms.
    """

    messages: traitlets.List[Any] = traitlets.List().tag(sync=True)
    system = traitlets.Unicode().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)
    value = traitlets.Unicode(read_only=True)

    def __init__(
        self,
        model: Model | Generator,
        *,
        tokenizer: Any = None,
        template: str | None = None,
        system: str = "",
        messages: Sequence[Mapping[str, str]] = (),
        settings: Mapping[str, Any] | None = None,
        backends: Sequence[str] = BACKENDS,
        still: bool = False,
        title: str | None = None,
    ) -> None:
        if not backends or set(backends) - set(BACKENDS):
            raise ValueError(f"backends {list(backends)}: choose from 'webgpu' and 'wasm'; in the kernel a Generator writes")
        about, ends = found_beside.Export(Path()), None
        if isinstance(model, Generator):
            about.tokenizer, about.template, about.context, ends = model.tokenizer, model.template, model.context, sorted(model.ends)
            model = model.decoder.session
        elif isinstance(model, str | os.PathLike):
            about = found_beside.found(model)
            model, ends = about.model, sorted(about.ends) or None
        tokenizer = about.tokenizer if tokenizer is None else tokenizer
        if tokenizer is None:
            raise ValueError("a chat needs a tokenizer: give the path of its tokenizer.json, as in tokenizer='tokenizer.json'")
        super().__init__(model, "chat", {}, tuple(backends), title, still)
        hints = json.loads(self._compiled.provenance.get("model", {}).get("metadata", {}).get(KEY, "{}"))
        if about.context is not None:
            hints = {"context_length": about.context, **hints}
        spec = {
            **self.spec,
            "tokenizer": self._keep("tokenizer", _contents(tokenizer)),
            "template": template or about.template or hints.pop("chat_template", None),
            "hints": hints | ({} if ends is None else {"ends": ends}),
        }
        self.set_trait("spec", spec)
        self.messages, self.system, self.settings = list(messages), system, dict(settings or {})

    @traitlets.validate("messages")
    def _messages(self, proposal: Any) -> list[dict[str, str]]:
        given = [dict(m) for m in proposal["value"]]
        for i, message in enumerate(given):
            if set(message) != {"role", "content"} or message["role"] not in _SPEAKERS or not isinstance(message["content"], str):
                raise ValueError(f"messages[{i}] must have a role, 'user' or 'assistant', and a content that is text")
        return given

    @traitlets.validate("settings")
    def _checked(self, proposal: Any) -> dict[str, Any]:
        given = {**_SETTINGS, **proposal["value"]}
        if unknown := set(given) - set(_SETTINGS):
            raise ValueError(f"settings {sorted(unknown)} are not known; {', '.join(_SETTINGS)} are")
        limit = given["max_new_tokens"]
        if not isinstance(limit, int) or limit < 1:
            raise ValueError(f"max_new_tokens is {limit}; it must be 1 or more")
        Sampling(**{name: v for name, v in given.items() if name != "max_new_tokens"})
        return given

    @traitlets.observe("messages")
    def _told(self, change: Any) -> None:
        last = change["new"][-1] if change["new"] else {}
        if last.get("role") == "assistant":
            self.set_trait("value", last["content"])

    async def ask(self, text: str) -> str:
        """Says something as the user would; the answer, once it has ended.

        Raises:
            NoBrowser: no page answers. RemoteError: the widget is not displayed, or the answer fails.
        """
        return self._take(await wait_async(self._rpc.call("ask", {"text": text}, stall=PATIENCE)))

    async def result(self) -> str:
        """The answer that is being written, once it has ended, or the latest; ``messages`` has it too.

        Raises:
            NoBrowser: no page answers. RemoteError: the widget is not displayed.
        """
        return self._take(await wait_async(self._rpc.call("current", stall=PATIENCE)))

    def _take(self, reply: Reply) -> str:
        self.messages = reply.json["messages"]
        return self.value

    def _text(self) -> str:
        said = "\n\n".join(f"{_SPEAKERS[m['role']]}: {m['content']}" for m in self.messages)
        return f"{self!r}\n\n{said}".rstrip()

    def __repr__(self) -> str:
        return f"Chat with {self.spec.get('title', 'model')}: {len(self.messages)} messages"


__all__ = ["Chat"]
