"""transformers' architectures through optimum-onnx, tiny and with random weights: encoders, decoders with a cache, pictures, sound."""

from __future__ import annotations

import inspect
import logging
import os
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from case import Case, main, wanted
from inputs import feeds_of

os.environ["HF_HUB_OFFLINE"] = "1"
from optimum.exporters.onnx import onnx_export_from_model
from optimum.exporters.tasks import TasksManager
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel

SMALL: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 64,
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_ctx": 64, "n_inner": 48, "d_model": 32, "d_ff": 48, "d_kv": 8,
        "num_layers": 2,
    "num_heads": 4, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "emb_dim": 32, "embedding_size": 32, "rotary_dim": 8,
        "ffn_dim": 48,
    "word_embed_proj_dim": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_key_value_heads": 2, "head_dim": 8, "num_kv_heads": 2, "n_embed": 32,
        "image_size": 32,
    "patch_size": 8, "num_labels": 5, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
        "num_mel_bins": 16,
    "max_source_positions": 50, "max_target_positions": 40, "ffn_hidden_size": 48, "sliding_window": 8,
}  # fmt: skip
TEXT, CHOICE, FILL, CAUSAL, CACHE, SEQ2SEQ = (
    "feature-extraction", "text-classification", "fill-mask", "text-generation", "text-generation-with-past",
        "text2text-generation-with-past",
)  # fmt: skip
PICTURE: dict[str, Any] = {"num_channels": 3, "height": 32, "width": 32, "batch_size": (1, 3)}
WAVES: dict[str, Any] = {"sequence_length": (400, 731), "batch_size": (1, 2)}
SOUND = {
    "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
    "feat_extract_norm": "group", "num_feat_extract_layers": 2, "vocab_size": 20,
}  # fmt: skip

# Architecture, task, what its configuration takes beyond SMALL, sizes of axes.
MODELS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    *((name, task, {}, {}) for name, task in (
        ("bert", TEXT), ("bert", FILL), ("bert", "question-answering"), ("distilbert", CHOICE), ("roberta", FILL), ("albert", TEXT),
            ("electra", "token-classification"),
        ("mpnet", TEXT), ("xlm-roberta", CHOICE), ("camembert", FILL), ("megatron-bert", TEXT), ("nystromformer", TEXT), ("ibert", TEXT),
            ("splinter", TEXT),
        ("roformer", TEXT), ("rembert", TEXT), ("data2vec-text", TEXT), ("layoutlm", TEXT), ("flaubert", TEXT), ("xlm",
            TEXT), ("modernbert", TEXT))),
    ("deberta", TEXT, {"relative_attention": True, "pos_att_type": "c2p|p2c"}, {}),
    ("deberta-v2", TEXT, {"relative_attention": True, "pos_att_type": "c2p|p2c"}, {}),
    ("mobilebert", TEXT, {"true_hidden_size": 16, "intra_bottleneck_size": 16}, {}),
    ("squeezebert", TEXT, {}, {}),
    ("convbert", TEXT, {"head_ratio": 2, "conv_kernel_size": 3}, {}),
    ("esm", FILL, {"position_embedding_type": "rotary", "mask_token_id": 4}, {}),
    *((name, CACHE, {}, {}) for name in (
        "gpt2", "gptj", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "opt", "bloom", "falcon", "codegen",
            "mpt",
        "stablelm", "granite", "olmo", "olmo2", "cohere", "nemotron", "gpt_bigcode")),
    ("gpt_neo", CACHE, {"attention_types": [[["global", "local"], 1]], "window_size": 4}, {}),
    ("phi", CACHE, {"num_key_value_heads": 4}, {}), ("gpt2", CAUSAL, {}, {}), ("llama", CHOICE, {}, {}),
    *((name, SEQ2SEQ, {}, {}) for name in ("t5", "mt5", "bart", "mbart", "marian", "pegasus", "m2m_100", "blenderbot", "longt5")),
    ("t5", "text2text-generation", {}, {}), ("whisper", "automatic-speech-recognition-with-past", {"max_source_positions": 1500},
        {"feature_size": 16}),
    *((name, "image-classification", {}, PICTURE) for name in ("vit", "beit", "mobilenet_v1", "mobilenet_v2", "vit_msn")),
    ("poolformer", "image-classification", {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
        PICTURE),
    ("resnet", "image-classification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}, PICTURE),
    ("regnet", "image-classification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8}, PICTURE),
    ("convnext", "image-classification", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4}, PICTURE),
    ("convnextv2", "image-classification", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4}, PICTURE),
    ("swin", "image-classification", {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "patch_size": 4, "window_size": 4}, PICTURE),
    ("swinv2", "image-classification", {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "patch_size": 4, "window_size": 4},
        PICTURE),
    ("mobilevit", "image-classification", {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32],
        "image_size": 64, "patch_size": 2}, {**PICTURE, "height": 64, "width": 64}),
    ("segformer", "semantic-segmentation", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_encoder_blocks": 2, "num_attention_heads": [1,
        2], "sr_ratios": [4, 2], "patch_sizes": [7, 3],
                                            "strides": [4, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 16}, {**PICTURE,
                                                "height": (64, 32)}),
    ("detr", "object-detection", {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "num_queries": 6,
                                  "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1,
                                      1], "layer_type": "basic", "out_features": ["stage2"]}},
     {**PICTURE, "height": (64, 96), "width": 64}),
    ("yolos", "object-detection", {"image_size": [32, 32], "num_detection_tokens": 5}, PICTURE),
    ("glpn", "depth-estimation", {"hidden_sizes": [8, 16, 16, 24], "depths": [1] * 4, "num_attention_heads": [1, 2, 2, 2],
        "decoder_hidden_size": 8}, {**PICTURE, "height": 64, "width": 64}),
    ("efficientnet", "image-classification", {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320}, {**PICTURE,
        "height": 64, "width": 64}),
    ("clip", TEXT, {"text_config": {k: SMALL[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size", "eos_token_id")},
                    "vision_config": {k: SMALL[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads",
                        "intermediate_size", "image_size", "patch_size")}, "projection_dim": 16},
     {**PICTURE, "text_batch_size": (2, 3), "image_batch_size": (1, 2)}),
    ("siglip", TEXT, {"text_config": {k: SMALL[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size")} | {"max_position_embeddings": 16},
                      "vision_config": {k: SMALL[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "image_size", "patch_size")}},
     {**PICTURE, "text_batch_size": (2, 3), "image_batch_size": (1, 2)}),
    ("wav2vec2", "automatic-speech-recognition", SOUND, WAVES), ("wav2vec2", "audio-classification", {**SOUND,
        "feat_extract_norm": "layer", "do_stable_layer_norm": True}, WAVES),
    ("hubert", TEXT, SOUND, WAVES), ("wavlm", TEXT, SOUND, WAVES), ("unispeech", TEXT, SOUND, WAVES), ("sew", TEXT, {**SOUND,
        "squeeze_factor": 2}, WAVES),
    ("wav2vec2-conformer", TEXT, {**SOUND, "position_embeddings_type": "rotary"}, WAVES), ("data2vec-audio", TEXT, {**SOUND,
        "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 3}, WAVES),
    ("audio-spectrogram-transformer", "audio-classification", {"max_length": 64, "patch_size": 8}, {"sequence_length": 64,
        "num_mel_bins": 16}),
    ("speech_to_text", "automatic-speech-recognition-with-past", {"input_feat_per_channel": 16, "conv_channels": 16}, {"feature_size": 16,
        "encoder_sequence_length": (40, 60)}),
]  # fmt: skip


def tiny(kind: str, given: dict[str, Any]) -> PretrainedConfig:
    takes = inspect.signature(CONFIG_MAPPING[kind].__init__).parameters
    return CONFIG_MAPPING[kind](**{**{k: v for k, v in SMALL.items() if k in takes}, **given})


def instance(kind: str, task: str, given: dict[str, Any]) -> PreTrainedModel:
    config = tiny(kind, given)
    made = TasksManager.get_model_class_for_task(task.removesuffix("-with-past"), framework="pt", model_type=config.model_type)
    model = made.from_config(config) if hasattr(made, "_model_mapping") else made(config)
    return model.eval()


def exports(kind: str, task: str, given: dict[str, Any], sizes: dict[str, Any]) -> Iterator[Case]:
    """The files that one export writes; when it fails, one case that says so."""
    name = f"{kind}-{task}"
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(zlib.crc32(name.encode()))
        try:
            onnx_export_from_model(instance(kind, task, given), folder, task=task, do_validation=False, device="cpu")
            files = sorted(Path(folder).glob("*.onnx"))
            models = [onnx.load(p) for p in files]
        except Exception as error:
            raised = error

            def fail() -> bytes:
                raise raised

            yield Case(name, fail, [], group=task)
            return
    for path, model in zip(files, models, strict=True):
        data = model.SerializeToString()
        rng = np.random.default_rng(0)
        merged = {"use_cache_branch": (np.array([False]), np.array([True]))} if "merged" in path.stem else {}
        yield Case(
            f"{name}-{path.stem}",
            lambda data=data: data,
            feeds_of(model, rng, {"below": 19 if "conv_dim" in given else 50, **sizes, **merged}),
            group=task,
        )


def models(rng: np.random.Generator) -> Iterator[Case]:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for kind, task, *rest in MODELS:
        if wanted(f"{kind}-{task}"):
            yield from exports(kind, task, *rest)


if __name__ == "__main__":
    main(models)
