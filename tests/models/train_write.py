"""Trains the language model of js/pages/write: a decoder of the Llama kind on the King James Bible (1611, in the public domain) as Debian's
packages bible-kjv and bible-kjv-text carry it.

    apt-get download bible-kjv bible-kjv-text; dpkg -x each into kjv
    pip install torch==2.13.0 tokenizers==0.23.3 numpy
    python tests/models/train_write.py kjv build/write            # about half an hour on one core of 2024

Deterministic: one thread, one seed, batches drawn by the number of their step; a run that was stopped goes on from its checkpoint to
the same weights. The rate is constant until 70 % of the steps, so a checkpoint before that may be trained to its end with another --steps.
build/write/model.pt and tokenizer.json are what export_write.py takes. Every 30th chapter is held out.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F

CONFIG = {"vocab_size": 2048, "hidden_size": 320, "intermediate_size": 896, "num_hidden_layers": 4, "num_attention_heads": 10}
CONFIG |= {"num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 256}
BATCH, BEGIN = 16, "<|begin|>"


def chapters(kjv: Path) -> list[str]:
    """The text by chapters: a heading, then a line per verse, without numbers."""
    command = [str(kjv / "usr/bin/bible"), "-p", str(kjv / "usr/lib"), "-l9999", "gen1:1-rev22:21"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: list[list[str]] = []
    for line in text.splitlines():
        if verse := re.match(r"\s+\d+ (.*)", line):
            found[-1].append(verse[1].strip())
        elif line.strip():
            found.append([line.strip()])
    return ["\n".join(lines) + "\n" for lines in found]


def split(texts: list[str]) -> tuple[list[str], list[str]]:
    """What is trained on, what is held out."""
    return [t for i, t in enumerate(texts) if i % 30 != 17], texts[17::30]


def tokenizer(texts: list[str]) -> tokenizers.Tokenizer:
    """Byte-level BPE, so that any text can be written."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=[BEGIN], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    return made


class Block(torch.nn.Module):
    def __init__(self, c: dict) -> None:
        super().__init__()
        d, kv = c["hidden_size"], c["num_key_value_heads"] * c["head_dim"]
        self.heads, self.groups, self.eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
        self.input_layernorm, self.post_attention_layernorm = (torch.nn.Parameter(torch.ones(d)) for _ in range(2))
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (torch.nn.Linear(d, n, bias=False) for n in (d, kv, kv, d))
        self.gate_proj, self.up_proj = (torch.nn.Linear(d, c["intermediate_size"], bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(c["intermediate_size"], d, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        h = F.rms_norm(x, (d,), self.input_layernorm, self.eps)
        q = self.q_proj(h).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = (p(h).view(b, t, self.groups, -1).transpose(1, 2) for p in (self.k_proj, self.v_proj))
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.o_proj(a.transpose(1, 2).reshape(b, t, d))
        h = F.rms_norm(x, (d,), self.post_attention_layernorm, self.eps)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions over halves."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Llama(torch.nn.Module):
    def __init__(self, c: dict) -> None:
        super().__init__()
        self.config = c
        self.embed_tokens = torch.nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = torch.nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.norm = torch.nn.Parameter(torch.ones(c["hidden_size"]))
        for p in self.parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, std=0.02)
        for layer in self.layers:
            for p in (layer.o_proj.weight, layer.down_proj.weight):
                torch.nn.init.normal_(p, std=0.02 / math.sqrt(2 * c["num_hidden_layers"]))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        c, half = self.config, self.config["head_dim"] // 2
        angles = torch.outer(torch.arange(ids.shape[1]).float(), c["rope_theta"] ** (-torch.arange(half) / half))
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin())
        return F.rms_norm(x, (c["hidden_size"],), self.norm, c["rms_norm_eps"]) @ self.embed_tokens.weight.T


def loss_of(model: Llama, ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())


def held_out_loss(model: Llama, ids: torch.Tensor) -> float:
    """The mean over whole windows of the held-out text, in nats per token."""
    with torch.no_grad():
        return sum(loss_of(model, w).item() for w in ids.split(BATCH)) / math.ceil(len(ids) / BATCH)


def windows(made: tokenizers.Tokenizer, texts: list[str], length: int) -> torch.Tensor:
    begin = made.token_to_id(BEGIN)
    ids = np.concatenate([[begin, *made.encode(t).ids] for t in texts])
    return torch.from_numpy(ids[: len(ids) // length * length].reshape(-1, length))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kjv", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    torch.manual_seed(1611)
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    texts, held_out = split(chapters(args.kjv))
    made = tokenizer(texts)
    made.save(str(args.out / "tokenizer.json"))
    (args.out / "config.json").write_text(json.dumps(CONFIG))
    length = CONFIG["max_position_embeddings"]
    flat, tests = windows(made, texts, 1).flatten(), windows(made, held_out, length)
    model = Llama(CONFIG)
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    optimisers = [
        torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="original"),
        torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    rates, first = [o.param_groups[0]["lr"] for o in optimisers], 0
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(flat):,} tokens, {tests.numel():,} held out", flush=True)
    if (saved := args.out / "checkpoint.pt").exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        for o, s in zip(optimisers, state["optimisers"], strict=True):
            o.load_state_dict(s)
        first = state["step"]
    start, running = time.perf_counter(), 0.0
    for step in range(first, args.steps):
        scale = min(1.0, (step + 1) / 40, (args.steps - step) / (0.3 * args.steps))
        for o, rate in zip(optimisers, rates, strict=True):
            o.param_groups[0]["lr"] = rate * scale
        at = np.random.default_rng((1611, step)).integers(0, len(flat) - length - 1, BATCH)
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, torch.stack([flat[a : a + length + 1] for a in at]))
        loss.backward()
        for o in optimisers:
            o.step()
            o.zero_grad()
        running = loss.item() if step == first else 0.95 * running + 0.05 * loss.item()
        if (step + 1) % 25 == 0 or step + 1 == args.steps:
            spent = (time.perf_counter() - start) / (step + 1 - first)
            print(f"step {step + 1}: training {running:.3f}, held out {held_out_loss(model, tests):.4f}, {spent:.2f} s a step", flush=True)
            state = {"model": model.state_dict(), "optimisers": [o.state_dict() for o in optimisers], "step": step + 1}
            torch.save(state, args.out / "checkpoint.part")
            (args.out / "checkpoint.part").replace(saved)
    torch.save({"model": model.state_dict()}, args.out / "model.pt")


if __name__ == "__main__":
    main()
