"""Writes what train_write.py trained as GGUF, in each precision, the page's model and the held-out text.

    python tests/models/export_write.py kjv build/write
    python -m pyonnx_wasm.generate.perplexity build/write/write-f32.gguf tests/data/write_held_out.txt

The page's model has weights of 4 bits (Q4_0, scales searched for the least error), its embeddings, which the output shares, of 8 (Q8_0).
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
from train_write import BEGIN, chapters, split

PAGE = Path(__file__).parents[2] / "js/pages/write"
NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "q_proj.weight": "attn_q", "k_proj.weight": "attn_k",
    "v_proj.weight": "attn_v", "o_proj.weight": "attn_output", "gate_proj.weight": "ffn_gate", "up_proj.weight": "ffn_up",
    "down_proj.weight": "ffn_down",
}  # fmt: skip
KIND = gguf.GGMLQuantizationType


def q4_0(weights: np.ndarray) -> np.ndarray:
    """Blocks of 32 codes of 4 bits; of the scales that put the largest weight at the end of the range or near it, the best."""
    blocks = weights.reshape(-1, 32)
    most = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    best = np.full(len(blocks), np.inf)
    scales = np.zeros((len(blocks), 1), np.float16)
    for end in np.arange(-9.5, -5.9, 0.1):
        scale = (most / end).astype(np.float16)
        wide = scale.astype(np.float32)
        codes = np.clip(np.rint(np.divide(blocks, wide, out=np.zeros_like(blocks), where=wide != 0)), -8, 7)
        error = ((codes * wide - blocks) ** 2).sum(1)
        better = error < best
        best[better], scales[better] = error[better], scale[better]
    wide = scales.astype(np.float32)
    codes = np.clip(np.rint(np.divide(blocks, wide, out=np.zeros_like(blocks), where=wide != 0)), -8, 7).astype(np.int8) + 8
    packed = (codes[:, :16] | codes[:, 16:] << 4).astype(np.uint8)
    rows = np.concatenate([scales.view(np.uint8), packed], 1)
    return rows.reshape(weights.shape[0], -1)


def pairs(weight: np.ndarray, size: int) -> np.ndarray:
    """Rows of queries or keys, so that what turns together lies together: halves of a head become neighbours."""
    return weight.reshape(-1, 2, size // 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def tensors(state: dict[str, torch.Tensor], size: int) -> dict[str, np.ndarray]:
    """By the names that GGUF has for them."""
    found = {"token_embd.weight": state["embed_tokens.weight"].numpy(), "output_norm.weight": state["norm"].numpy()}
    for name, tensor in state.items():
        if name.startswith("layers."):
            _, layer, part = name.split(".", 2)
            array = tensor.numpy()
            array = pairs(array, size) if part in ("q_proj.weight", "k_proj.weight") else array
            found[f"blk.{layer}.{NAMES[part]}.weight"] = array
    return found


def write(path: Path, config: dict, weights: dict[str, np.ndarray], words: dict, kind: str, table: str) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Write on")
    writer.add_description("A decoder trained on the King James Bible (1611, in the public domain)")
    writer.add_license("CC0-1.0")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    model = words["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if t == BEGIN else 1 for t in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    writer.add_eos_token_id(model["vocab"][BEGIN])
    writer.add_add_bos_token(False)
    for name, array in weights.items():
        number = KIND["F32" if array.ndim == 1 else table if name == "token_embd.weight" else kind]
        wide = np.ascontiguousarray(array, np.float32)
        data = q4_0(wide) if number is KIND.Q4_0 else gguf.quants.quantize(wide, number)
        writer.add_tensor(name, data, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kjv", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="model.pt", help="a checkpoint of the folder")
    args = parser.parse_args()
    saved = torch.load(args.folder / args.model)
    config = json.loads((args.folder / "config.json").read_text())
    words = json.loads((args.folder / "tokenizer.json").read_text())
    weights = tensors(saved["model"], config["head_dim"])
    for kind, table in (("F32", "F32"), ("F16", "F16"), ("Q8_0", "Q8_0"), ("Q4_0", "Q8_0")):
        write(args.folder / f"write-{kind.split('_')[0].lower()}.gguf", config, weights, words, kind, table)
    shutil.copy(args.folder / "write-q4.gguf", PAGE / "write.gguf")
    (PAGE.parents[2] / "tests/data/write_held_out.txt").write_text("\n".join(split(chapters(args.kjv))[1]))


if __name__ == "__main__":
    main()
