"""Tokenizers (Hugging Face's ``tokenizers``) and chat templates (``jinja2``, sandboxed), from files beside a model or of a GGUF file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..gguf import file as gguf
from .vocabulary import Document, TextError, described


def opened(document: Document | str) -> Any:
    """A tokenizer by its ``tokenizer.json``, or the text of that: one of ``tokenizers``, or under Pyodide, which has none, of its sister in
    JavaScript with the same methods.

    Raises:
        TextError: there is no library here, or it cannot use the document.
    """
    text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
    try:
        import tokenizers
    except ImportError:
        if sys.platform != "emscripten":
            raise TextError("text needs a tokenizer: pip install tokenizers, or give token ids and set tokenizer=False") from None
        from .javascript import Tokenizer

        return Tokenizer(text)
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises no narrower one
        raise TextError(f"the tokenizer cannot be used: {error}") from None


def from_files(folder: Path) -> Any:
    """The tokenizer beside a model, or None."""
    path = folder / "tokenizer.json"
    return opened(path.read_text(encoding="utf-8")) if path.exists() else None


def from_gguf(file: gguf.File) -> Any:
    """The tokenizer that a GGUF file describes.

    Raises:
        TextError: it describes none, or one of a kind that is not known.
    """
    return opened(described(file.metadata))


class Template:
    """A chat's template, as models ship it: Jinja, run in a sandbox.

    Args:
        source: the template's text.
        tokens: texts of special tokens by name (``bos_token``, ``eos_token``).
    Raises:
        TextError: it does not parse.
    """

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None) -> None:
        try:
            from jinja2 import TemplateError
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise TextError("chat templates need jinja2: pip install jinja2, or write the prompt yourself") from None

        def refuse(message: str) -> None:
            raise TextError(f"the chat template says: {message}")

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
        environment.globals["raise_exception"] = refuse
        self._error, self._tokens = TemplateError, dict(tokens or {})
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise TextError(f"the chat template does not parse: {error}") from None

    def __call__(self, messages: Sequence[Mapping[str, Any]], continues: bool = False) -> str:
        """The prompt for an answer to messages (``role`` and ``content`` each).

        Raises:
            TextError: the template fails on them.
        """
        try:
            text: str = self._template.render(messages=list(messages), add_generation_prompt=not continues, **self._tokens)
        except (self._error, TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            if isinstance(error, TextError):
                raise
            raise TextError(f"the chat template fails on these messages: {type(error).__name__}: {error}") from None
        return text
