"""Makes `hub/`: transformers' architectures as the hub has them for transformers.js, tiny and with random weights.

Runs in the environment of the producer `hugging_face` (`python -m tests.producers hugging_face` makes it):
`build/producers/venv-hugging_face-*/bin/python tests/packaging/transformers_js/make_hub.py`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2] / "producers"))

import onnx
import torch
from hugging_face import SMALL, instance
from optimum.exporters.onnx import onnx_export_from_model
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PretrainedConfig
from variants import DTYPES, make

HUB = Path(__file__).parent / "hub"
WORDS = [
    *("the", "a", "cat", "dog", "sat", "ran", "on", "under", "with", "mat", "red", "big", "small", "paris", "london", "bert", "sings"),
    *("##s", "##ing", "example", "this", "is", "of", "text", "label"),
]
ONE_LAYER = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *WORDS]
STAMPS = [f"<|{0.02 * i:.2f}|>" for i in range(1501)]
WHISPER_CONTROL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>"]
PICTURE = {
    "do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255, "resample": 2,
    "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.5, 0.25],
}  # fmt: skip
SEQUENCE_TO_SEQUENCE = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
                        "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}  # fmt: skip


def write(folder: Path, name: str, content: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def bert_tokenizer(folder: Path) -> None:
    tokens = {token: i for i, token in enumerate(BERT_TOKENS)}
    tokenizer = Tokenizer(models.WordPiece(tokens, unk_token="[UNK]"))
    tokenizer.add_special_tokens(BERT_TOKENS[:5])
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pairs = [(token, tokens[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=pairs
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    write(folder, "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "model_max_length": 64, "do_lower_case": True, **names})


def byte_tokenizer(folder: Path, kind: str, control: list[str], more: dict[str, Any]) -> int:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("a", "t"), ("Ġ", "the"), ("Ġ", "a")]
    tokens = {token: i for i, token in enumerate([*alphabet, *(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(tokens, merges))
    tokenizer.add_special_tokens([token for token in control if token not in STAMPS])
    tokenizer.add_tokens([token for token in control if token in STAMPS])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write(folder, "tokenizer_config.json", {"tokenizer_class": kind, "model_max_length": 64, **more})
    return tokenizer.get_vocab_size()


def export(folder: Path, model: Any, task: str) -> None:
    for parameter in model.parameters():  # random models say the same to everything: wider weights make answers differ
        if parameter.dim() > 1:
            parameter.data.mul_(4)
            if not parameter.data.any() and model.config.model_type != "vits":  # whose durations are exponentials
                torch.nn.init.normal_(parameter.data)
    with tempfile.TemporaryDirectory() as made:
        onnx_export_from_model(model, made, task=task, do_validation=False, device="cpu")
        kept = [p for p in Path(made).glob("*.onnx") if not (Path(made) / "decoder_model_merged.onnx").exists() or "decoder" not in p.stem]
        for path in [*kept, *Path(made).glob("decoder_model_merged.onnx")]:
            (folder / "onnx").mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / "onnx")
    write(folder, "config.json", model.config.to_dict())
    if model.can_generate():
        write(folder, "generation_config.json", model.generation_config.to_dict())


def build(name: str, kind: str, task: str, given: dict[str, Any]) -> Path:
    folder = HUB / name
    torch.manual_seed(zlib.crc32(name.encode()))
    folder.mkdir(parents=True, exist_ok=True)
    export(folder, instance(kind, task, given), task)
    return folder


def texts() -> None:
    bert = {**ONE_LAYER, "vocab_size": len(BERT_TOKENS)}
    labels = {"num_labels": 3}
    meanings = ["contradiction", "neutral", "entailment"]
    named = {"id2label": dict(enumerate(meanings)), "label2id": {name: i for i, name in enumerate(meanings)}}
    for name, task, more in (
        ("features", "feature-extraction", {}), ("fill", "fill-mask", {}),
        ("tokens", "token-classification", {**labels, "id2label": {0: "O", 1: "B-PER", 2: "B-LOC"}}),
        ("entailment", "text-classification", {**labels, **named}),
    ):  # fmt: skip
        bert_tokenizer(build(name, "bert", task, {**bert, **more}))
    make(HUB / "features" / "onnx" / "model.onnx")
    folder = HUB / "writer"
    folder.mkdir(parents=True, exist_ok=True)
    control = ["<|endoftext|>", "<|user|>"]
    template = "{% for message in messages %}<|user|>{{ message['content'] }}{% endfor %}"
    size = byte_tokenizer(folder, "GPT2Tokenizer", control, {"eos_token": control[0], "bos_token": control[0], "chat_template": template})
    given = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": size, "eos_token_id": size - 2,
             "bos_token_id": size - 2, "pad_token_id": size - 2}  # fmt: skip
    build("writer", "llama", "text-generation-with-past", given)
    make(folder / "onnx" / "model.onnx", [suffix for suffix in DTYPES if suffix not in ("int8", "uint8")])


def hearing() -> None:
    folder = HUB / "hearing"
    folder.mkdir(parents=True, exist_ok=True)
    names = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    size = byte_tokenizer(folder, "WhisperTokenizer", [*WHISPER_CONTROL, *STAMPS], names)
    first = size - len(STAMPS) - len(WHISPER_CONTROL)
    end, start, english, translate, transcribe, silent = range(first, first + len(WHISPER_CONTROL))
    given = {**SEQUENCE_TO_SEQUENCE, "vocab_size": size, "num_mel_bins": 80, "max_source_positions": 1500, "eos_token_id": end,
             "pad_token_id": end, "bos_token_id": end, "decoder_start_token_id": start, "begin_suppress_tokens": [end]}  # fmt: skip
    build("hearing", "whisper", "automatic-speech-recognition-with-past", given)
    generation = json.loads((folder / "generation_config.json").read_text())
    generation |= {
        "is_multilingual": True, "lang_to_id": {"<|en|>": english}, "task_to_id": {"translate": translate, "transcribe": transcribe},
        "no_timestamps_token_id": silent, "return_timestamps": False, "max_length": 40, "max_initial_timestamp_index": 50,
    }  # fmt: skip
    write(folder, "generation_config.json", generation)
    features = {"feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "WhisperProcessor", "chunk_length": 30,
                "feature_size": 80, "hop_length": 160, "n_fft": 400, "n_samples": 480000, "nb_max_frames": 3000,
                "sampling_rate": 16000, "padding_value": 0.0}  # fmt: skip
    write(folder, "preprocessor_config.json", features)


def soften(path: Path) -> None:
    """Makes the decoder's weights small enough that a wave is more than the signs of what its last tanh takes."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name.startswith("decoder.") and len(tensor.dims) > 1:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) / 8, tensor.name))
    onnx.save(model, path)


def speaking() -> None:
    letters = ["_", "'", *"abcdefghijklmnopqrstuvwxyz "]
    given = {
        "vocab_size": len(letters), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 24, "flow_size": 8,
        "spectrogram_bins": 17, "upsample_initial_channel": 16, "upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8],
        "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]], "prior_encoder_num_flows": 2,
        "prior_encoder_num_wavenet_layers": 1, "posterior_encoder_num_wavenet_layers": 1, "duration_predictor_num_flows": 2,
        "duration_predictor_filter_channels": 16, "depth_separable_num_layers": 2, "noise_scale": 0.0, "noise_scale_duration": 0.0,
    }  # fmt: skip
    folder = HUB / "speaking"
    folder.mkdir(parents=True, exist_ok=True)
    soften(build("speaking", "vits", "text-to-audio", given) / "onnx" / "model.onnx")
    tokens = {letter: i for i, letter in enumerate(letters)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None, "decoder": None,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"Regex": "(?=.)|(?<!^)$"}, "content": "_"},
        ]},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False},
        "model": {"type": "WordLevel", "vocab": tokens, "unk_token": "_"},
    }  # fmt: skip
    write(folder, "tokenizer.json", tokenizer)
    write(folder, "tokenizer_config.json", {"tokenizer_class": "VitsTokenizer", "pad_token": "_", "unk_token": "_"})


def seeing() -> None:
    square = {**PICTURE, "size": {"height": 32, "width": 32}}
    wide = {**PICTURE, "size": {"height": 64, "width": 96}}
    tower = {k: SMALL[k] for k in ("num_hidden_layers", "num_attention_heads")} | ONE_LAYER
    cases: list[tuple[str, str, str, dict[str, Any], str, dict[str, Any]]] = [
        ("classes", "vit", "image-classification", {**ONE_LAYER, "id2label": {i: f"class {i}" for i in range(5)}},
         "ViTImageProcessor", square),
        ("regions", "segformer", "semantic-segmentation",
         {"hidden_sizes": [8, 16], "depths": [1, 1], "num_encoder_blocks": 2, "num_attention_heads": [1, 2], "sr_ratios": [4, 2],
          "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 16,
          "id2label": {i: f"region {i}" for i in range(4)}}, "SegformerImageProcessor", wide),
        ("depth", "glpn", "depth-estimation",
         {"hidden_sizes": [8, 16, 16, 24], "depths": [1] * 4, "num_attention_heads": [1, 2, 2, 2], "decoder_hidden_size": 8},
         "GLPNFeatureExtractor", {**PICTURE, "do_resize": True, "size_divisor": 32}),
        ("objects", "yolos", "object-detection",
         {**ONE_LAYER, "image_size": [32, 48], "num_detection_tokens": 12, "id2label": {i: f"thing {i}" for i in range(3)}},
         "YolosImageProcessor", {**PICTURE, "size": {"shortest_edge": 32, "longest_edge": 48}, "do_pad": False}),
        ("pairs", "clip", "zero-shot-image-classification",
         {"text_config": {**tower, "vocab_size": 263, "max_position_embeddings": 32, "bos_token_id": 261, "eos_token_id": 262},
          "vision_config": {**tower, "image_size": 32, "patch_size": 8}, "projection_dim": 16}, "CLIPImageProcessor",
         {**square, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True}),
    ]  # fmt: skip
    for name, kind, task, given, processor, settings in cases:
        folder = build(name, kind, task, given)
        write(folder, "preprocessor_config.json", {"image_processor_type": processor, **settings})
    control = ["<|startoftext|>", "<|endoftext|>"]
    byte_tokenizer(
        HUB / "pairs",
        "CLIPTokenizer",
        control,
        {"bos_token": control[0], "eos_token": control[1], "pad_token": control[1], "unk_token": control[1]},
    )
    torch.manual_seed(1)
    matte = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.InstanceNorm2d(8, affine=True), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, 1, 1),
        torch.nn.Upsample(scale_factor=2, mode="bilinear"), torch.nn.Conv2d(8, 1, 3, 1, 1), torch.nn.Sigmoid(),
    ).eval()  # fmt: skip
    folder = HUB / "matte"
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    axes = {0: "batch_size", 2: "height", 3: "width"}
    torch.onnx.export(
        matte, torch.zeros(1, 3, 32, 32), folder / "onnx/model.onnx", input_names=["input"], output_names=["output"],
        dynamic_axes={"input": axes, "output": axes}, dynamo=False, opset_version=17,
    )  # fmt: skip
    write(folder, "config.json", PretrainedConfig(architectures=["MODNet"]).to_dict() | {"model_type": "modnet"})
    write(
        folder,
        "preprocessor_config.json",
        {"image_processor_type": "ImageFeatureExtractor", **PICTURE, "size": {"shortest_edge": 32}, "size_divisibility": 32},
    )


def narrowing() -> None:
    """What of the other dtypes tests do not make themselves."""
    for name in ("fill", "tokens", "entailment", "classes", "objects", "pairs"):
        make(HUB / name / "onnx" / "model.onnx", ["q4", "fp16"])
    make(HUB / "classes" / "onnx" / "model.onnx", ["bnb4", "q4f16"])
    for name in ("regions", "depth", "matte", "speaking"):
        make(HUB / name / "onnx" / "model.onnx", ["q4"])
    for part in ("encoder_model", "decoder_model_merged"):
        make(HUB / "hearing" / "onnx" / f"{part}.onnx", ["q4"])


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for part in (texts, hearing, speaking, seeing, narrowing):
        if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
            part()


if __name__ == "__main__":
    main()
