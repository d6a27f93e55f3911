"""What transformers' beam search finds, as a script.

python tests/beams.py tests/data/beams.json    # with gguf, torch, transformers and accelerate
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from gguf_architectures import write

PROMPTS = [[5, 9, 2], [7], [3, 1, 4, 1, 5, 9, 2, 6]]
HOW: list[dict[str, Any]] = [
    {"num_beams": 1},
    {"num_beams": 3},
    {"num_beams": 4, "length_penalty": 0.0},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
    {"num_beams": 5, "early_stopping": "never"},
    {"num_beams": 6, "length_penalty": -1.0},
]
ENDS = [1, 17, 30]  # so that texts end early and late
LIMIT = 10


def main(target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        path = write("llama", Path(folder) / "model.gguf")
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=path.name, attn_implementation="eager", dtype=torch.float32).eval()
    found = []
    for how in HOW:
        for prompt in PROMPTS:
            count = how["num_beams"]
            more = {} if count == 1 else {"num_return_sequences": count, "return_dict_in_generate": True, "output_scores": True}
            ids = torch.tensor([prompt])
            with torch.no_grad():
                made: Any = model.generate(
                    ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=LIMIT, eos_token_id=ENDS, pad_token_id=63,
                    **how, **more,
                )  # fmt: skip
            rows = made if count == 1 else made.sequences
            scores = None if count == 1 else [round(float(s), 5) for s in made.sequences_scores]
            texts = [[t for t in row[len(prompt) :].tolist() if t != 63] for row in rows]
            found.append({"how": how, "prompt": prompt, "ids": texts, "scores": scores})
    target.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
