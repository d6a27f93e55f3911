"""GGUF files with random weights, written by the format's own package, and what the decoder in them computes, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray[Any, Any]
QUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
#: Types that the package only reads: where each block's float16 factors lie.
FACTORS = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,)}


def blocks(kind: str, rows: int, columns: int, rng: np.random.Generator) -> Array:
    """Random blocks, as bytes [rows, bytes]; for the type's quantiser, where there is one, of normal numbers."""
    number = gguf.GGMLQuantizationType[kind]
    if kind not in FACTORS:
        return gguf.quants.quantize((rng.standard_normal((rows, columns)) * 0.1).astype(np.float32), number)
    per, size = gguf.GGML_QUANT_SIZES[number]
    made = rng.integers(0, 256, (rows, columns // per, size)).astype(np.uint8)
    for at in FACTORS[kind]:
        made[..., at : at + 2] = (rng.standard_normal(made.shape[:2]) * 1e-4).astype(np.float16)[..., None].view(np.uint8)
    return made.reshape(rows, -1)


ALPHABET = [*"abcdefghijklmnopqrstuvwxyz.:", "Ġ"]
TEMPLATE = "{{ raise_exception('no') if not messages }}{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
#: Metadata of a model of letters that talks.
TALKS: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": ["<s>", "</s>", *ALPHABET, "th", "the"],
    "tokenizer.ggml.merges": ["t h", "th e"], "tokenizer.ggml.token_type": [3, 3] + [1] * (len(ALPHABET) + 2),
    "tokenizer.chat_template": TEMPLATE,
}  # fmt: skip


def talking(path: Path, **sizes: Any) -> Path:
    return Tiny("Q8_0", words=len(TALKS["tokenizer.ggml.tokens"]), **sizes).write(path, TALKS)


@dataclass
class Tiny:
    """A Llama decoder: 4 heads over 2 of 16 features, which turn pair by pair; the larger ``sharp``, the surer of its tokens."""

    kind: str
    width: int = 64
    inside: int = 96
    words: int = 50
    layers: int = 2
    tied: bool = False
    context: int = 32
    sharp: float = 1.0
    weights: dict[str, Array] = field(default_factory=dict)

    def write(self, path: Path, extra: dict[str, Any] | None = None) -> Path:
        if self.kind in ("Q4_K", "Q5_K", "Q6_K"):
            self.width = self.inside = 256
        size, rng = self.width // 4, np.random.default_rng(7)
        w = gguf.GGUFWriter(path, "llama")
        for add, value in (
            (w.add_context_length, self.context), (w.add_embedding_length, self.width), (w.add_block_count, self.layers),
            (w.add_feed_forward_length, self.inside), (w.add_head_count, 4), (w.add_head_count_kv, 2), (w.add_layer_norm_rms_eps, 1e-5),
            (w.add_rope_dimension_count, size), (w.add_eos_token_id, 1), (w.add_bos_token_id, 0),
        ):  # fmt: skip
            add(value)
        for key, value in (extra or {}).items():
            w.add_array(key, value) if isinstance(value, list) else w.add_string(key, value)
        shapes = {"token_embd": (self.words, self.width), "output_norm": (self.width,)}
        shapes |= {} if self.tied else {"output": (self.words, self.width)}
        for i in range(self.layers):
            shapes |= {f"blk.{i}.{n}": s for n, s in {
                "attn_norm": (self.width,), "attn_q": (self.width, self.width), "attn_k": (2 * size, self.width),
                "attn_v": (2 * size, self.width), "attn_output": (self.width, self.width), "ffn_norm": (self.width,),
                "ffn_gate": (self.inside, self.width), "ffn_up": (self.inside, self.width), "ffn_down": (self.width, self.inside),
            }.items()}  # fmt: skip
        number = gguf.GGMLQuantizationType[self.kind]
        for name, shape in shapes.items():
            if len(shape) == 1:
                data = (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)
                self.weights[name] = data = data * np.float32(self.sharp if name == "output_norm" else 1)
                w.add_tensor(f"{name}.weight", data)
                continue
            data = blocks(self.kind, *shape, rng)
            self.weights[name] = gguf.quants.dequantize(data, number).reshape(shape).astype(np.float64)
            w.add_tensor(f"{name}.weight", data, raw_dtype=number)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        return path

    def logits(self, ids: Array) -> Array:
        """[n, words] of n tokens."""
        r, n, size = self.weights, len(ids), self.width // 4
        angle = np.outer(np.arange(n), 10000.0 ** (-np.arange(size // 2) / (size // 2)))[:, None]

        def normed(x: Array, name: str) -> Array:
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * r[name]

        def turned(x: Array) -> Array:
            a, b = x[..., 0::2], x[..., 1::2]
            return np.stack([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1).reshape(x.shape)

        x = r["token_embd"][ids]
        for i in range(self.layers):
            h = normed(x, f"blk.{i}.attn_norm")
            q, k, v = ((h @ r[f"blk.{i}.attn_{p}"].T).reshape(n, -1, size) for p in "qkv")
            q, k, v = turned(q), turned(k).repeat(2, 1), v.repeat(2, 1)
            scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(size)
            scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
            share = np.exp(scores - scores.max(-1, keepdims=True))
            y = np.einsum("hts,shd->thd", share / share.sum(-1, keepdims=True), v).reshape(n, -1)
            x = x + y @ r[f"blk.{i}.attn_output"].T
            h = normed(x, f"blk.{i}.ffn_norm")
            gate = h @ r[f"blk.{i}.ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ r[f"blk.{i}.ffn_up"].T)) @ r[f"blk.{i}.ffn_down"].T
        return normed(x, "output_norm") @ r["token_embd" if self.tied else "output"].T
