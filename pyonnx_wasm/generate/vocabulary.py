"""The ``tokenizer.json`` of a GGUF file, which Hugging Face's libraries in Rust and JavaScript read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..gguf import file as gguf

Document = dict[str, Any]


class TextError(ValueError):
    """A text, tokenizer or template that cannot be used; the error says why."""


# What splits text before BPE, by the name that converters give it (``convert_hf_to_gguf.py`` of llama.cpp).
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# (?i:'s|'t|'re|'ve|'m|'ll|'d), of which libraries differ in what they fold; U+017F is a small s.
_ENDINGS = "'(?:[sS\u017f]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
_LLAMA3 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "gpt-2": [_WORDS], "default": [_WORDS], "phi-2": [_WORDS], "llama-bpe": [_LLAMA3], "llama3": [_LLAMA3],
    "qwen2": [_LLAMA3.replace("{1,3}", "")], "smollm": [r"\p{N}", _WORDS], "starcoder": [r"\p{N}", _WORDS], "refact": [r"\p{N}", _WORDS],
}  # fmt: skip
_UNKNOWN, _CONTROL, _USER = 2, 3, 4
_SPACE = "\u2581"


def described(metadata: Mapping[str, Any]) -> Document:
    """The tokenizer that a GGUF file describes.

    Raises:
        TextError: it describes none, or one of a kind that is not known.
    """
    kind, words = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.tokens")
    if not isinstance(words, gguf.Texts):
        raise TextError("the file has no tokenizer (tokenizer.ggml.tokens): give one")
    if kind not in ("gpt2", "llama"):
        raise TextError(f"a tokenizer of the kind {kind!r} is not known (gpt2 and llama are): give one, as tokenizer.json has it")
    vocabulary = list(words)
    types = metadata.get("tokenizer.ggml.token_type")
    types = types if isinstance(types, list) and len(types) == len(vocabulary) else [1] * len(vocabulary)
    known = {word: i for i, word in enumerate(vocabulary)}
    made = _bpe(metadata, vocabulary, known) if kind == "gpt2" else _pieces(metadata, vocabulary, known, types)
    added = {word: kind for word, kind in zip(vocabulary, types, strict=True) if word and kind in (_CONTROL, _UNKNOWN, _USER)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    rows = [{"id": known[word], "content": word, **flags, "special": kind != _USER} for word, kind in added.items()]
    rows.sort(key=lambda row: row["id"])
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": rows, "post_processor": None, **made}


def _model(vocabulary: Mapping[str, int], merges: list[tuple[str, str]], **settings: Any) -> Document:
    plain = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False}
    plain |= {"byte_fallback": False, "ignore_merges": False}
    return {"type": "BPE", **plain, **settings, "vocab": dict(vocabulary), "merges": [list(pair) for pair in merges]}


def _bpe(metadata: Mapping[str, Any], vocabulary: list[str], known: Mapping[str, int]) -> Document:
    name = metadata.get("tokenizer.ggml.pre", "default")
    if name not in SPLITS:
        raise TextError(
            f"text split by the rules of {name!r} is not known ({', '.join(SPLITS)} are): give a tokenizer, as tokenizer.json has it"
        )
    merges = [(a, b) for a, _, b in (m.partition(" ") for m in metadata.get("tokenizer.ggml.merges", ()))]
    if len(known) != len(vocabulary) or any(p not in known for a, b in merges for p in (a, b, a + b)):
        raise TextError("the file's tokenizer has words twice, or joins what it has no words for")
    cuts = [{"type": "Split", "pattern": {"Regex": rule}, "behavior": "Isolated", "invert": False} for rule in SPLITS[name]]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*cuts, bytes_]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _model(known, merges, ignore_merges=name in ("llama-bpe", "llama3")),
    }


def _pieces(metadata: Mapping[str, Any], vocabulary: list[str], known: Mapping[str, int], types: list[int]) -> Document:
    """SentencePiece's BPE: pairs join in the order of their scores."""
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(vocabulary):
        raise TextError("the file's tokenizer lacks scores (tokenizer.ggml.scores)")
    pairs = [
        (-scores[i], known[a], known[b], a, b)
        for i, word in enumerate(vocabulary)
        if types[i] == 1
        for a, b in ((word[:k], word[k:]) for k in range(1, len(word)))
        if a in known and b in known
    ]
    unknown = next((word for word, kind in zip(vocabulary, types, strict=True) if kind == _UNKNOWN), None)
    first = metadata.get("tokenizer.ggml.add_space_prefix", True)
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    restored = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if first else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*([{"type": "Prepend", "prepend": _SPACE}] if first else []), replaced]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [restored, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": _model(known, [(a, b) for *_, a, b in sorted(pairs)], unk_token=unknown, fuse_unk=True, byte_fallback=True),
    }
