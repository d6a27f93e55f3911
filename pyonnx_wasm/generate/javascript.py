"""Hugging Face's tokenizers in JavaScript, for Pyodide, with the methods of ``tokenizers.Tokenizer`` that are used of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .vocabulary import Document, TextError

SCRIPT = Path(__file__).resolve().parents[1] / "lib" / "pyodide" / "tokenizer.js"


class Encoding(NamedTuple):
    """A text's tokens."""

    ids: list[int]


@cache
def _library() -> Any:
    """The library (``js/pyodide/tokenizer.ts``)."""
    from pyodide.code import run_js

    if not SCRIPT.exists():
        raise ImportError(f"{SCRIPT} is missing: this wheel is not the one that `make wheel` builds")
    return run_js(SCRIPT.read_text(encoding="utf-8"))


@contextmanager
def _told() -> Iterator[None]:
    from pyodide.ffi import JsException

    try:
        yield
    except JsException as error:
        raise TextError(f"the tokenizer cannot be used: {error.message}") from None


class Tokenizer:
    """A tokenizer by the text of its ``tokenizer.json``.

    In a pattern ``(?i:...)`` folds ASCII alone, and the tables of Unicode are the browser's; else it gives the tokens that the library in
    Rust gives, or is refused.

    Raises:
        TextError: the document holds what the library does not know or does otherwise.
    """

    def __init__(self, text: str) -> None:
        try:
            document = json.loads(text)
        except ValueError as error:
            raise TextError(f"the tokenizer cannot be used: it is no JSON: {error}") from None
        if not isinstance(document, dict):
            raise TextError("the tokenizer cannot be used: it is no JSON object")
        if told := unlike(document):
            raise TextError(f"the tokenizer has {told}, which the library in JavaScript does not do as the one in Rust does")
        self._text = text
        with _told():
            self._js = _library().open(text)

    def encode(self, text: str) -> Encoding:
        with _told():
            return Encoding([int(i) for i in _library().encode(self._js, text).to_py()])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        from pyodide.ffi import to_js

        with _told():
            return str(_library().decode(self._js, to_js(list(ids)), skip_special_tokens))

    def id_to_token(self, token: int) -> str | None:
        found: str | None = self._js.id_to_token(token)
        return found

    def token_to_id(self, word: str) -> int | None:
        found: int | None = self._js.token_to_id(word)
        return found

    def to_str(self) -> str:
        """Its ``tokenizer.json``."""
        return self._text


def unlike(document: Document) -> str:
    """What of a document the library in JavaScript takes without a word and does not do, or otherwise; "" for nothing."""
    for name in ("truncation", "padding"):
        if document.get(name) is not None:
            return f"{name} (set it to null)"
    if any(token.get("single_word") for token in document.get("added_tokens") or ()):
        return "added tokens that are whole words alone (single_word)"
    if (document.get("model") or {}).get("dropout"):
        return "dropout"
    for part in parts(document.get("pre_tokenizer")):
        behavior, inverted = str(part.get("behavior", "Isolated")).lower(), bool(part.get("invert"))
        if part.get("type") == "Split" and (behavior not in ("isolated", "removed") or (inverted and behavior != "removed")):
            return f"a Split whose pieces are {part['behavior']}{', inverted' if inverted else ''}"
    return ""


def parts(document: Any) -> Iterator[Document]:
    """A pre-tokenizer and those that it is made of."""
    if isinstance(document, dict):
        yield document
        for inner in document.get("pretokenizers") or ():
            yield from parts(inner)
