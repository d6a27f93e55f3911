"""A small T5 with random weights in files as optimum has them, and what transformers writes with it, as a script.

python tests/encoder_decoder.py tests/data/t5    # with torch, transformers, onnx and onnxscript
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SOURCES = [[5, 9, 3, 7, 1], [60, 2, 33, 1], [11]]
HOW: list[dict[str, Any]] = [
    {"num_beams": 1},
    {"num_beams": 3},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
    {"num_beams": 2, "early_stopping": "never"},
]
LAYERS, END, LIMIT = 2, 10, 12


def names(what: str, *whose: str) -> list[str]:
    return [f"{what}.{layer}.{w}.{part}" for layer in range(LAYERS) for w in whose for part in ("key", "value")]


def main(folder: Path) -> None:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=24, num_layers=LAYERS, num_decoder_layers=LAYERS, num_heads=2, pad_token_id=0,
        relative_attention_num_buckets=8, decoder_start_token_id=0, eos_token_id=END, attn_implementation="eager",
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.35)

    class Encoder(torch.nn.Module):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return model.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    def decoded(ids: Any, hidden: Any, mask: Any, cache: Any, *kept: Any) -> Any:
        states = (model.decoder(input_ids=ids, encoder_hidden_states=hidden, encoder_attention_mask=mask, past_key_values=cache)
                  .last_hidden_state)  # fmt: skip
        scaled = states * config.d_model**-0.5 if config.scale_decoder_outputs else states
        values = [v for i in range(LAYERS) for part in kept for v in (part.layers[i].keys, part.layers[i].values)]
        return (model.lm_head(scaled), *values)

    class First(torch.nn.Module):
        def forward(self, mask: Any, ids: Any, hidden: Any) -> Any:
            own, cross = DynamicCache(), DynamicCache()
            return decoded(ids, hidden, mask, EncoderDecoderCache(own, cross), own, cross)

    class Next(torch.nn.Module):
        def forward(self, mask: Any, ids: Any, *past: Any) -> Any:
            own, cross = DynamicCache(), DynamicCache()
            for i in range(LAYERS):
                own.update(past[4 * i], past[4 * i + 1], i)
                cross.update(past[4 * i + 2], past[4 * i + 3], i)
            cache = EncoderDecoderCache(own, cross)
            cache.is_updated.update(dict.fromkeys(range(LAYERS), True))
            return decoded(ids, torch.zeros(*mask.shape, config.d_model), mask, cache, own)

    def export(name: str, module: Any, given: tuple[Any, ...], inputs: list[str], outputs: list[str], length: str) -> None:
        def axes(value: str) -> dict[int, str]:
            if "past" in value or "present" in value:
                own = "past_decoder_sequence_length" if value.startswith("past") else "total_decoder_sequence_length"
                return {0: "batch_size", 2: own if ".decoder." in value else "encoder_sequence_length"}
            reads = value in ("input_ids", "logits") and module is not encoder
            return {0: "batch_size"} | ({1: length} if reads and length else {} if reads else {1: "encoder_sequence_length"})

        torch.onnx.export(
            module, given, str(folder / f"{name}.onnx"), input_names=inputs, output_names=outputs, opset_version=18, dynamo=False,
            dynamic_axes={value: axes(value) for value in (*inputs, *outputs)},
        )  # fmt: skip

    folder.mkdir(parents=True, exist_ok=True)
    encoder = Encoder()
    ids, begun = torch.tensor([SOURCES[0]] * 2), torch.tensor([[0, 4, 6]] * 2)
    mask = torch.ones_like(ids)
    hidden = encoder(ids, mask)
    _, *past = First()(mask, begun, hidden)
    own, both = names("present", "decoder"), names("present", "decoder", "encoder")
    told, asked = ["encoder_attention_mask", "input_ids"], names("past_key_values", "decoder", "encoder")
    export("encoder_model", encoder, (ids, mask), ["input_ids", "attention_mask"], ["last_hidden_state"], "")
    first = (mask, begun, hidden)
    export("decoder_model", First(), first, [*told, "encoder_hidden_states"], ["logits", *both], "decoder_sequence_length")
    export("decoder_with_past_model", Next(), (mask, begun[:, :1], *past), [*told, *asked], ["logits", *own], "")
    (folder / "config.json").write_text(json.dumps(config.to_dict(), indent=1) + "\n")
    found = []
    for source in SOURCES:
        for how in HOW:
            count = how["num_beams"]
            more = {} if count == 1 else {"num_return_sequences": count, "return_dict_in_generate": True, "output_scores": True}
            given = torch.tensor([source])
            made: Any = model.generate(
                given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=LIMIT, **how, **more
            )  # fmt: skip
            rows = (made if count == 1 else made.sequences)[:, 1:].tolist()
            scores = None if count == 1 else [round(float(s), 5) for s in made.sequences_scores]
            ids_ = [row[: row.index(END) + 1] if END in row else row for row in rows]
            found.append({"source": source, "how": how, "ids": ids_, "scores": scores})
    (folder / "found.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
