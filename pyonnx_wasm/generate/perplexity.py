"""How well a model foretells a text: ``python -m pyonnx_wasm.generate.perplexity model.gguf text.txt``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .generator import Generator


def perplexity(generator: Generator, ids: Sequence[int], window: int | None = None) -> float:
    """e to the mean of -log p of a text's tokens, each window read on its own; the first token of a window is not counted.

    Args:
        window: tokens read at once; None: what the model reads at most, of which the last one is only foretold.
    """
    size = window or generator.context or 512
    decoder, loss, count = generator.decoder, 0.0, 0
    for start in range(0, len(ids), size):
        part = list(ids[start : start + size])
        if len(part) < 2:
            break
        decoder.forget(0)
        logits = decoder.every(part[:-1]).astype(np.float64)
        most = logits.max(-1)
        sums = most + np.log(np.exp(logits - most[:, None]).sum(-1))
        loss += float((sums - logits[np.arange(len(part) - 1), part[1:]]).sum())
        count += len(part) - 1
    if not count:
        raise ValueError("the text has less than two tokens")
    return math.exp(loss / count)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="pyonnx_wasm.generate.perplexity", description=__doc__)
    parser.add_argument("model", nargs="+", help="as Generator takes it")
    parser.add_argument("text", type=Path)
    parser.add_argument("--window", type=int, help="tokens read at once (default: what the model reads)")
    args = parser.parse_args(argv)
    text = args.text.read_text(encoding="utf-8")
    for path in args.model:
        generator = Generator(path)
        ids = generator.encode(text)
        print(f"{path}: {perplexity(generator, ids, args.window):.3f} over {len(ids):,} tokens", flush=True)


if __name__ == "__main__":
    main()
