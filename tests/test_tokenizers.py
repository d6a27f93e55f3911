"""Hugging Face's two libraries, in Rust and in JavaScript, over the documents that GGUF files become."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from pyonnx_wasm.generate.javascript import unlike
from pyonnx_wasm.generate.text import opened
from pyonnx_wasm.generate.vocabulary import SPLITS, Document, TextError, described
from pyonnx_wasm.gguf import file as gguf

NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
ADDED = [
    ("<|end|>", CONTROL), ("<s>", CONTROL), ("  ", USER), ("<think>", USER), ("\u0120quirk", USER), ("\u2581the", USER), ("e\u0301e", USER),
]  # fmt: skip
TEXTS = [
    "", " ", "   ", "a", "the cat sat.", "The  QUICK   brown\tfox\r\n\r\n  jumps!\n", " leading", "trailing ", "\u2581the \u2581",
    "\u0120quirk", "it's IT'S it'\u017f we'LL they'Re I'd 'tis o'clock '\ufb06 '\u212a", "thethethethe the\nthe", "<0x0A><0xE6>",
    "0123456789 3.14159 1,000,000 \u0661\u0662\u0663 \u2167 \u00bd x2 2x", "👍🏽👩\u200d👧\u200d👦🇫🇷 \U0001f9d1\u200d\U0001f680 ",
    "e\u0301e\u0301 \u0e33\u0e49 \u0939\u093f\u0928\u094d\u0926\u0940 z\u0351\u036b\u0343\u036a", "日本語のテキスト、中文。한국어",
    "a" * 300 + " " * 300, "\x00\x01\x7f\x80\x85\xa0\xad\ufeff\u200b\u2028\u2029\u3000\ufffd\ufffe\U0010ffff", "x\x85y\u00a0z\ufeffw",
    "<|end|>the<|end|><s> <s>the", "<|end|", "<think> the </think>", "$& $1 \\ ^[]{}()*+?.|/", "__proto__ constructor toString",
    "\n\n\n", " \n \n", "!!! ... ---", "\u0130\u0131\u00df\u1e9e \ufb00", "مرحبا بالعالم \u202e",
]  # fmt: skip
HALVES = ["\ud800", "a\udc00b", "\udfff\ud800"]


def split(rule: str, lacks: str = "") -> Document:
    """A byte-level vocabulary, trained on the texts; ``lacks``: letters that it has no token for."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    level = trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=420, initial_alphabet=level.alphabet(), show_progress=False)
    trained.train_from_iterator([t for t in TEXTS if len(t) < 200] * 2, trainer)
    model = json.loads(trained.to_str())["model"]
    words = [(w, NORMAL) for w in model["vocab"] if not set(w) & set(lacks)]
    merges = [f"{a} {b}" for a, b in model["merges"] if not set(a + b) & set(lacks)]
    return document("gpt2", words + ADDED, pre=rule, merges=merges)


def pieces(with_bytes: bool, unknown: bool, prefix: bool) -> Document:
    """Parts of the texts as SentencePiece has them, in an order that is none of their lengths."""
    rng = random.Random(3)
    shown = [("\u2581" + t.replace(" ", "\u2581"))[:60] for t in TEXTS]
    parts = {p[i : i + n] for p in shown for n in range(1, 6) for i in range(0, len(p) - n + 1, n)}
    rows = [(p, NORMAL) for p in sorted(parts) if not set(p) & set("日本語👍é") and p not in dict(ADDED)]
    rows += [(f"<0x{b:02X}>", BYTE) for b in range(256)] if with_bytes else []
    rows += [*([("<unk>", UNKNOWN)] if unknown else []), *ADDED]
    return document("llama", rows, scores=[rng.uniform(-9, 0) for _ in rows], add_space_prefix=prefix)


def document(kind: str, rows: list[tuple[str, int]], **more: Any) -> Document:
    data = [w.encode() for w, _ in rows]
    ends = list(accumulate(map(len, data)))
    tokens = gguf.Texts(list(zip([0, *ends], ends, strict=False)), b"".join(data))
    found = {"model": kind, "tokens": tokens, "token_type": [k for _, k in rows], **more}
    return described({f"tokenizer.ggml.{name}": value for name, value in found.items()})


def _pieces(flags: tuple[bool, bool, bool]) -> tuple[str, Callable[[], Document]]:
    told = [n for n, on in zip(("with bytes", "with unknown", "with a space before"), flags, strict=True) if on]
    return " ".join(["pieces", *told]), lambda: pieces(*flags)


def _split(rule: str) -> tuple[str, Callable[[], Document]]:
    return rule, lambda: split(rule)


MADE = dict(map(_split, SPLITS)) | {"lacks letters": lambda: split("gpt-2", "e\u0120\u00c3")}
MADE |= dict(map(_pieces, product((True, False), repeat=3)))


def random_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    parts = [t for t in TEXTS if t] + [w for w, _ in ADDED] + list("the cat'sST 09\n\r\t  .,!é👍日\u0301\u200d\u0085\ufeff")
    return [
        "".join(p[rng.randrange(len(p)) :][: rng.randint(1, 6)] for p in rng.choices(parts, k=rng.randint(1, 12))) for _ in range(count)
    ]


class Both:
    """What the two libraries make of the same."""

    def __init__(self, folder: Path, names: list[str], texts: list[str], seed: int = 0) -> None:
        documents = [json.dumps(MADE[name](), ensure_ascii=False) for name in names]
        self.texts = texts
        self.rust = dict(zip(names, map(tokenizers.Tokenizer.from_str, documents), strict=True))
        rng = random.Random(seed)
        most = max(t.get_vocab_size() for t in self.rust.values()) + 5
        self.ids = [[rng.randrange(most) for _ in range(rng.randint(0, 12))] for _ in texts]
        for rust in self.rust.values():  # bytes that are no whole characters
            named = [rust.token_to_id(f"<0x{b:02X}>") for text in ("\ufeffé", "日👍", "a\ufffd") for b in text.encode()]
            self.ids += [named[at:] for at in range(0, len(named), 2) if None not in named]
        asked = {"documents": documents, "texts": texts, "ids": self.ids, "halves": HALVES}
        (folder / "asked.json").write_text(json.dumps(asked))
        command = ["node", str(Path(__file__).with_name("tokenizer.mjs")), str(folder / "asked.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        self.javascript = dict(zip(names, json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("tokens"), list(MADE), TEXTS + random_texts(150, 7))


@pytest.mark.parametrize("name", MADE)
def test_both_libraries_give_the_same_tokens_and_texts(both: Both, name: str) -> None:
    rust, found = both.rust[name], both.javascript[name]
    for text, ids in zip(both.texts, found["ids"], strict=True):
        assert ids == rust.encode(text).ids, text
    for ids, (skipped, whole) in zip(both.ids, found["texts"], strict=True):
        assert [skipped, whole] == [rust.decode(ids, skip_special_tokens=skip) for skip in (True, False)], ids
    assert all(told.startswith("the text has half a surrogate pair at ") for told in found["halves"])


CUT = {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "MergedWithPrevious", "invert": False}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"truncation": {"max_length": 3}}, r"truncation \(set it to null\)"),
        ({"padding": {"length": 3}}, "padding"),
        ({"added_tokens": [{"id": 0, "content": "a", "single_word": True}]}, "single_word"),
        ({"model": {"type": "BPE", "dropout": 0.5}}, "dropout"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [CUT]}}, "a Split whose pieces are MergedWithPrevious"),
        ({"pre_tokenizer": {**CUT, "behavior": "Isolated", "invert": True}}, "inverted"),
        ({}, "^$"),
    ],
)
def test_what_javascript_does_otherwise_is_told(change: Document, told: str) -> None:
    assert re.search(told, unlike(split("gpt-2") | change))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": {"type": "BPE"}}'])
def test_what_is_no_document_is_told(text: str) -> None:
    with pytest.raises(TextError, match="the tokenizer cannot be used: "):
        opened(text)
