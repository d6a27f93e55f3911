"""The model builder of onnxruntime-genai, from configurations and random weights on disk."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from case import Case, main
from inputs import feeds_of

os.environ["HF_HUB_OFFLINE"] = "1"
from onnxruntime_genai.models.builder import create_model, parse_extra_options
from tokenizers import Tokenizer
from tokenizers import models as kinds
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

TINY: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 96,
    "max_position_embeddings": 128, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "sliding_window": None,
    "tie_word_embeddings": False,
}  # fmt: skip
CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((kind, "fp32", {}) for kind in ("llama", "mistral", "qwen2", "qwen3", "gemma", "olmo", "granite")),
    *((kind, "int4", {}) for kind in ("llama", "qwen2")),
    ("mistral", "fp32", {"sliding_window": 4}),
    ("llama", "fp32", {"tie_word_embeddings": True}),
]  # fmt: skip
TOLERANCE = {"fp32": (1e-4, 1e-4), "int4": (0.0, 3e-2)}  # the builder asks onnxruntime for products by int8
SIZES: dict[str, Any] = {
    "batch_size": (1, 2), "sequence_length": (6, 1), "past_sequence_length": (0, 5), "total_sequence_length": (6, 6), "kv_cache_dim": 16,
        "below": 64,
    "attention_mask": (np.ones((1, 6), np.int64), np.ones((2, 6), np.int64)),
}  # fmt: skip


def built(kind: str, precision: str, given: dict[str, Any], feeds: list[dict[str, np.ndarray]]) -> bytes:
    torch.manual_seed(zlib.crc32(kind.encode()))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**{**TINY, **given}))
        source, out = Path(folder) / "source", Path(folder) / "out"
        model.save_pretrained(source)
        words = Tokenizer(kinds.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w3"))
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w3", pad_token="w0").save_pretrained(source)
        asked = (kind, str(source), str(out), precision, "cpu", str(Path(folder) / "cache"))
        create_model(*asked, **parse_extra_options(*asked, []))
        data = onnx.load(out / "model.onnx")
    feeds.extend(feeds_of(data, np.random.default_rng(6), SIZES))
    return data.SerializeToString()


def models(rng: np.random.Generator) -> Iterator[Case]:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for kind, precision, given in CASES:
        name = "-".join([kind, precision, *(f"{k}_{v}" for k, v in given.items())])
        feeds: list[dict[str, np.ndarray]] = []
        yield Case(name, partial(built, kind, precision, given, feeds), feeds, TOLERANCE[precision], precision)


if __name__ == "__main__":
    main(models)
