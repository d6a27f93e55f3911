"""Files of every architecture with random weights, and, as a script, what transformers computes of them.

python tests/gguf_architectures.py FOLDER tests/data/gguf_architectures.npz    # with gguf, torch, transformers 4.57 and accelerate
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

CHECKED = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2")  # what transformers reads of GGUF
WIDTH, HEADS, SHOWN = 64, 4, 64
IDS = np.random.default_rng(1).integers(0, SHOWN, 11)


def write(name: str, path: Path) -> Path:
    """Sizes are those that transformers takes for granted: GPT-2's length and width inside, Gemma's and Qwen's heads, Phi's words."""
    rng = np.random.default_rng(0)
    words = 32064 if name == "phi3" else SHOWN
    size = 256 if "gemma" in name else 128 if name == "qwen3" else 16
    length, inside = (1024, 256) if name == "gpt2" else (64, 96)
    layer_norm = name == "gpt2"
    kv, layers = (HEADS if layer_norm else 2), (7 if name == "gemma3" else 2)
    w = gguf.GGUFWriter(path, name)
    for add, value in (
        (w.add_context_length, length), (w.add_embedding_length, WIDTH), (w.add_block_count, layers), (w.add_feed_forward_length, inside),
        (w.add_head_count, HEADS), (w.add_head_count_kv, kv), (w.add_vocab_size, words), (w.add_bos_token_id, 0), (w.add_eos_token_id, 1),
        (w.add_unk_token_id, 0), (w.add_layer_norm_eps if layer_norm else w.add_layer_norm_rms_eps, 1e-5),
        (w.add_tokenizer_model, "llama" if "gemma" in name else "gpt2"), (w.add_token_list, [f"t{i}" for i in range(words)]),
        (w.add_token_merges, []), (w.add_token_scores, [0.0] * words), (w.add_token_types, [1] * words),
    ):  # fmt: skip
        add(value)
    if not layer_norm:
        w.add_rope_dimension_count(size)
        w.add_rope_freq_base(1e6 if name == "gemma3" else 10000.0)
    if name in ("qwen3", "gemma2", "gemma3"):
        w.add_key_length(size)
        w.add_value_length(size)
    if name == "gemma2":
        w.add_attn_logit_softcapping(50.0)
        w.add_final_logit_softcapping(30.0)
    if name in ("gemma2", "gemma3"):
        w.add_sliding_window(4)

    def add_tensor(key: str, *shape: int, around: float = 0.0) -> None:
        w.add_tensor(key, (around + 0.2 * rng.standard_normal(shape)).astype(np.float32))

    def norm(key: str, features: int = WIDTH) -> None:
        add_tensor(f"{key}.weight", features, around=1.0)
        if layer_norm:
            add_tensor(f"{key}.bias", features)

    def linear(key: str, outside: int, within: int, bias: bool = layer_norm) -> None:
        add_tensor(f"{key}.weight", outside, within)
        if bias:
            add_tensor(f"{key}.bias", outside)

    linear("token_embd", words, WIDTH, False)
    norm("output_norm")
    if layer_norm:
        linear("position_embd", length, WIDTH, False)
    if "gemma" not in name:
        linear("output", words, WIDTH, False)
    for i in range(layers):
        p = f"blk.{i}."
        norm(p + "attn_norm")
        if name in ("gpt2", "phi3"):
            linear(p + "attn_qkv", (HEADS + 2 * kv) * size, WIDTH)
        else:
            for part, heads in (("q", HEADS), ("k", kv), ("v", kv)):
                linear(p + f"attn_{part}", heads * size, WIDTH, name == "qwen2")
        if name in ("qwen3", "gemma3"):
            norm(p + "attn_q_norm", size)
            norm(p + "attn_k_norm", size)
        linear(p + "attn_output", WIDTH, HEADS * size)
        if name in ("gemma2", "gemma3"):
            norm(p + "post_attention_norm")
            norm(p + "post_ffw_norm")
        norm(p + "ffn_norm")
        linear(p + "ffn_up", 2 * inside if name == "phi3" else inside, WIDTH)
        if name not in ("gpt2", "phi3"):
            linear(p + "ffn_gate", inside, WIDTH)
        linear(p + "ffn_down", WIDTH, inside)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def main(folder: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    found: dict[str, Any] = {}
    for name in CHECKED:
        (folder / name).mkdir(parents=True, exist_ok=True)
        write(name, folder / name / "model.gguf")
        model = AutoModelForCausalLM.from_pretrained(folder / name, gguf_file="model.gguf", attn_implementation="eager").eval().float()
        with torch.no_grad():
            found[name] = model(torch.tensor(IDS[None])).logits[0, :, :SHOWN].numpy()
    np.savez_compressed(target, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
