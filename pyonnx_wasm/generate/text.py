"""Tokenizers (Hugging Face's ``tokenizers``) and chat templates (``jinja2``, sandboxed), from files beside a model or of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..gguf import file as gguf


class TextError(ValueError):
    """A tokenizer or template that cannot be used; the text says why."""


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise TextError("text needs a tokenizer: pip install tokenizers, or give token ids and set tokenizer=False") from None
    return tokenizers


def from_files(folder: Path) -> Any:
    """The tokenizer beside a model, or None."""
    path = folder / "tokenizer.json"
    return _tokenizers().Tokenizer.from_file(str(path)) if path.exists() else None


# What splits text before BPE, by the name that converters give it (``convert_hf_to_gguf.py`` of llama.cpp).
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "gpt-2": [_WORDS], "default": [_WORDS], "phi-2": [_WORDS], "llama-bpe": [_LLAMA3], "llama3": [_LLAMA3],
    "qwen2": [_LLAMA3.replace("{1,3}", "")], "smollm": [r"\p{N}", _WORDS], "starcoder": [r"\p{N}", _WORDS], "refact": [r"\p{N}", _WORDS],
}  # fmt: skip
_CONTROL, _UNKNOWN, _USER, _BYTE = 3, 2, 4, 6


def from_gguf(file: gguf.File) -> Any:
    """The tokenizer that a GGUF file describes.

    Raises:
        TextError: it describes none, or one of a kind that is not known.
    """
    metadata = file.metadata
    kind, words = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.tokens")
    if not isinstance(words, gguf.Texts):
        raise TextError("the file has no tokenizer (tokenizer.ggml.tokens): give one")
    if kind not in ("gpt2", "llama"):
        raise TextError(f"a tokenizer of the kind {kind!r} is not known (gpt2 and llama are): give one, as tokenizer.json has it")
    vocabulary = list(words)
    types = metadata.get("tokenizer.ggml.token_type")
    types = types if isinstance(types, list) and len(types) == len(vocabulary) else [1] * len(vocabulary)
    made = _bpe(metadata, vocabulary) if kind == "gpt2" else _pieces(metadata, vocabulary, types)
    tokenizers = _tokenizers()
    special = [t for t, k in zip(vocabulary, types, strict=True) if k in (_CONTROL, _UNKNOWN)]
    made.add_special_tokens([tokenizers.AddedToken(t, normalized=False) for t in special])
    made.add_tokens([tokenizers.AddedToken(t, normalized=False) for t, k in zip(vocabulary, types, strict=True) if k == _USER])
    return made


def _bpe(metadata: Mapping[str, Any], vocabulary: list[str]) -> Any:
    tokenizers = _tokenizers()
    name = metadata.get("tokenizer.ggml.pre", "default")
    if name not in _SPLITS:
        raise TextError(
            f"text split by the rules of {name!r} is not known ({', '.join(_SPLITS)} are): give a tokenizer, as tokenizer.json has it"
        )
    merges = [tuple(m.split(" ", 1)) for m in metadata.get("tokenizer.ggml.merges", ())]
    known = {t: i for i, t in enumerate(vocabulary)}
    whole = [m for m in merges if len(m) == 2 and all(p in known for p in (*m, "".join(m)))]
    if len(known) != len(vocabulary) or len(whole) != len(merges):
        raise TextError("the file's tokenizer has words twice, or joins what it has no words for")
    made = tokenizers.Tokenizer(tokenizers.models.BPE(known, whole, ignore_merges=name in ("llama-bpe", "llama3")))
    split, bytes_ = tokenizers.pre_tokenizers.Split, tokenizers.pre_tokenizers.ByteLevel
    cuts = [split(tokenizers.Regex(rule), "isolated") for rule in _SPLITS[name]]
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*cuts, bytes_(add_prefix_space=False, use_regex=False)])
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def _pieces(metadata: Mapping[str, Any], vocabulary: list[str], types: list[int]) -> Any:
    """SentencePiece's BPE: pairs join in the order of their scores."""
    tokenizers = _tokenizers()
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(vocabulary):
        raise TextError("the file's tokenizer lacks scores (tokenizer.ggml.scores)")
    known = {t: i for i, t in enumerate(vocabulary)}
    pairs = [
        (-scores[i], known[a], known[b], a, b)
        for i, word in enumerate(vocabulary)
        if types[i] == 1
        for a, b in ((word[:k], word[k:]) for k in range(1, len(word)))
        if a in known and b in known
    ]
    unknown = next((t for t, k in zip(vocabulary, types, strict=True) if k == _UNKNOWN), None)
    model = tokenizers.models.BPE(known, [(a, b) for *_, a, b in sorted(pairs)], unk_token=unknown, fuse_unk=True, byte_fallback=True)
    made = tokenizers.Tokenizer(model)
    space, first = "\u2581", metadata.get("tokenizer.ggml.add_space_prefix", True)
    rules = [tokenizers.normalizers.Prepend(space)] if first else []
    made.normalizer = tokenizers.normalizers.Sequence([*rules, tokenizers.normalizers.Replace(" ", space)])
    d = tokenizers.decoders
    strip = [d.Strip(" ", 1, 0)] if first else []
    made.decoder = d.Sequence([d.Replace(space, " "), d.ByteFallback(), d.Fuse(), *strip])
    return made


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
