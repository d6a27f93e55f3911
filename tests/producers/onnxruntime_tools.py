"""What onnxruntime's own tools write: fused transformers, saved optimised graphs, float16, integers, blocks of few bits."""

from __future__ import annotations

import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from case import Case, main
from inputs import feeds_of
from torch import nn

os.environ["HF_HUB_OFFLINE"] = "1"
from hugging_face import MODELS, instance
from onnxruntime import quantization as q
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from onnxruntime.quantization.matmul_nbits_quantizer import HQQWeightOnlyQuantConfig, MatMulNBitsQuantizer
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.fusion_options import FusionOptions
from optimum.exporters.onnx import onnx_export_from_model

EXACT, HALF, INTEGERS = (1e-4, 1e-4), (5e-3, 5e-3), (0.0, 3e-2)


class Separable(nn.Sequential):
    """A little of everything that convolutional networks have."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Hardswish(),
            nn.Conv2d(16, 24, 1), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(24, 24, 3, 1, 1), nn.Sigmoid(), nn.AvgPool2d(2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10), nn.Softmax(-1))  # fmt: skip


class Residual(nn.Module):
    """Additions, products, concatenations, enlarged pictures between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 16, 3, 1, 1), nn.Conv2d(32, 8, 1)
        self.gate, self.up, self.head = nn.Conv2d(16, 16, 1), nn.ConvTranspose2d(8, 8, 2, 2), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x).relu()
        b = (self.b(a) + a).relu()
        b = b * self.gate(b.mean((2, 3), keepdim=True)).sigmoid()
        y = self.c(torch.cat([a, b], 1)).clamp(0, 6)
        y = nn.functional.interpolate(self.up(y), scale_factor=2.0)
        return self.head(y.mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(8, 16, 2, bidirectional=True), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0])


class Perceptron(nn.Sequential):
    """Products wide enough for blocks of 128."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(128, 96, bias=False), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 160), nn.ReLU(), nn.Linear(160, 12, bias=False)
        )


TORCH: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[int, tuple[int, int]]]] = {
    "separable": (Separable, (1, 3, 32, 32), {0: (1, 3)}), "residual": (Residual, (1, 3, 16, 16), {0: (1, 2), 2: (16, 20)}),
    "lstm": (Recurrent, (5, 2, 8), {0: (5, 9), 1: (2, 3)}), "perceptron": (Perceptron, (2, 128), {0: (2, 5)}),
}  # fmt: skip
HUGGING: dict[str, tuple[str, str, str]] = {
    "bert": ("bert", "feature-extraction", "model"), "distilbert": ("distilbert", "text-classification", "model"), "roberta": ("roberta",
        "fill-mask", "model"),
    "gpt2": ("gpt2", "text-generation-with-past", "model"), "vit": ("vit", "image-classification", "model"), "llama": ("llama",
        "text-generation-with-past", "model"),
    "swin": ("swin", "image-classification", "model"), "clip": ("clip", "feature-extraction", "model"), "bart": ("bart",
        "text2text-generation-with-past", "encoder_model"),
    "bart_decoder": ("bart", "text2text-generation-with-past", "decoder_model"), "t5": ("t5", "text2text-generation-with-past",
        "encoder_model"), "t5_decoder": ("t5", "text2text-generation-with-past", "decoder_with_past_model"),
    "whisper": ("whisper", "automatic-speech-recognition-with-past", "encoder_model"), "convnext": ("convnext", "image-classification",
        "model"), "segformer": ("segformer", "semantic-segmentation", "model"),
    "wav2vec2": ("wav2vec2", "automatic-speech-recognition", "model"), "deberta": ("deberta-v2", "feature-extraction", "model"),
        "phi": ("phi", "text-generation-with-past", "model"),
}  # fmt: skip
Sized = tuple[onnx.ModelProto, dict[str, Any]]


@cache
def source(name: str) -> Sized:
    """A model in float32 and the sizes of its axes."""
    torch.manual_seed(7)
    if name in TORCH:
        kind, shape, free = TORCH[name]
        file = io.BytesIO()
        axes = {i: f"d{a}_{b}" for i, (a, b) in free.items()}
        torch.onnx.export(
            kind().eval(),
            (torch.randn(shape),),
            file,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": axes},
            opset_version=17,
        )
        return onnx.load_from_string(file.getvalue()), {axes[i]: pair for i, pair in free.items()}
    kind, task, stem = HUGGING[name]
    config, sizes = next(row[2:] for row in MODELS if row[:2] == (kind, task))
    with tempfile.TemporaryDirectory() as folder:
        onnx_export_from_model(instance(kind, task, config), folder, task=task, do_validation=False, device="cpu", monolith=False, opset=17)
        return onnx.load(Path(folder) / f"{stem}.onnx"), {"below": 19 if "conv_dim" in config else 50, **sizes}


Change = Callable[[Path, Path, list[dict[str, np.ndarray]]], None]
CASES: list[tuple[str, str, str, Change, tuple[float, float]]] = []  # group, name, source, change, tolerance


def add(group: str, name: str, sources: str, change: Change, tolerance: tuple[float, float] = EXACT) -> None:
    CASES.extend((group, f"{group}-{name}-{s}", s, change, tolerance) for s in sources.split())


def fused(kind: str, half: bool, options: dict[str, Any], old: Path, new: Path, feeds: object) -> None:
    chosen = FusionOptions(kind)
    for key, value in options.items():
        setattr(chosen, key, value)
    model = optimizer.optimize_model(str(old), kind, num_heads=4, hidden_size=32, opt_level=0, optimization_options=chosen, use_gpu=half)
    if half:
        model.convert_float_to_float16(keep_io_types=True)
    model.save_model_to_file(str(new))


for kind, sources in {
    "bert": "bert distilbert roberta deberta whisper wav2vec2", "gpt2": "gpt2 llama", "vit": "vit swin convnext segformer",
        "clip": "clip", "bart": "bart bart_decoder whisper",
    "t5": "t5 t5_decoder", "phi": "phi", "swin": "swin", "unet": "residual",
}.items():  # fmt: skip
    add("optimizer", kind, sources, partial(fused, kind, False, {}))
    add("optimizer", f"{kind}_half", sources.split()[0], partial(fused, kind, True, {}), HALF)
add("optimizer", "bert_mha", "bert", partial(fused, "bert", False, {"use_multi_head_attention": True}))
add("optimizer", "bert_fast_gelu", "bert distilbert", partial(fused, "bert", False, {"enable_gelu_approximation": True}))
add("optimizer", "bert_raw_mask", "bert", partial(fused, "bert", False, {"attention_mask_format": 3}))
add("optimizer", "bert_no_mask", "bert", partial(fused, "bert", False, {"attention_mask_format": 0}))


def saved(level: str, old: Path, new: Path, feeds: object) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(new)
    options.log_severity_level = 4
    ort.InferenceSession(old, options, providers=["CPUExecutionProvider"])


EVERY = "separable residual lstm perceptron bert gpt2 vit t5_decoder"
for level in ("BASIC", "EXTENDED", "ALL"):
    add("saved", level.lower(), EVERY, partial(saved, f"ORT_ENABLE_{level}"))


def halved(keep: bool, old: Path, new: Path, feeds: list[dict[str, np.ndarray]]) -> None:
    onnx.save(convert_float_to_float16(onnx.load(old), keep_io_types=keep), new)
    if not keep:
        for feed in feeds:
            feed.update({k: v.astype(np.float16) for k, v in feed.items() if v.dtype == np.float32})


add("float16", "kept", "separable residual lstm perceptron bert gpt2 vit llama t5 clip whisper", partial(halved, True), HALF)
add("float16", "whole", "separable residual perceptron bert llama", partial(halved, False), HALF)


def dynamic(options: dict[str, Any], first: Change | None, old: Path, new: Path, feeds: list[dict[str, np.ndarray]]) -> None:
    if first:
        first(old, old, feeds)
    q.quantize_dynamic(old, new, **options)


add(
    "dynamic",
    "u8",
    "bert gpt2 vit lstm perceptron llama t5 bart_decoder",
    partial(dynamic, {"weight_type": q.QuantType.QUInt8}, None),
    INTEGERS,
)
add("dynamic", "s8", "bert gpt2 lstm perceptron separable", partial(dynamic, {"weight_type": q.QuantType.QInt8}, None), INTEGERS)
add(
    "dynamic",
    "per_channel",
    "bert lstm perceptron separable",
    partial(dynamic, {"weight_type": q.QuantType.QInt8, "per_channel": True}, None),
    INTEGERS,
)
add("dynamic", "reduced", "perceptron", partial(dynamic, {"per_channel": True, "reduce_range": True}, None), INTEGERS)
FUSED = {"extra_options": {"DefaultTensorType": onnx.TensorProto.FLOAT}}  # of what shape inference does not know
add("dynamic", "fused_bert", "bert distilbert", partial(dynamic, FUSED, partial(fused, "bert", False, {})), INTEGERS)
add("dynamic", "fused_gpt2", "gpt2", partial(dynamic, {**FUSED, "per_channel": True}, partial(fused, "gpt2", False, {})), INTEGERS)


class Reader(q.CalibrationDataReader):
    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self.feeds = iter(feeds[:1] * 2)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def static(options: dict[str, Any], old: Path, new: Path, feeds: list[dict[str, np.ndarray]]) -> None:
    q.quantize_static(old, new, Reader(feeds), **options)


U8, S8, U16, S16, S4, U4 = (getattr(q.QuantType, n) for n in ("QUInt8", "QInt8", "QUInt16", "QInt16", "QInt4", "QUInt4"))
QDQ, OPERATOR = q.QuantFormat.QDQ, q.QuantFormat.QOperator
for label, form, a, w, per, sources in (
    ("qdq_u8s8", QDQ, U8, S8, False, "separable residual perceptron bert vit gpt2"), ("qdq_u8u8", QDQ, U8, U8, False,
        "separable residual perceptron"),
    ("qdq_s8s8_per", QDQ, S8, S8, True, "separable residual perceptron bert vit"), ("qdq_u16s8", QDQ, U16, S8, False,
        "separable perceptron"),
    ("qdq_s16s16", QDQ, S16, S16, False, "perceptron"), ("qdq_u8s4_per", QDQ, U8, S4, True, "perceptron"), ("qdq_u8u4", QDQ, U8, U4,
        False, "perceptron"),
    ("operator_u8s8", OPERATOR, U8, S8, False, "separable residual perceptron bert vit"), ("operator_u8u8", OPERATOR, U8, U8, False,
        "separable residual perceptron"),
    ("operator_s8s8_per", OPERATOR, S8, S8, True, "separable residual perceptron"),
):  # fmt: skip
    given = {"quant_format": form, "activation_type": a, "weight_type": w, "per_channel": per}
    add("static", label, sources, partial(static, given), INTEGERS)
add("static", "entropy", "separable", partial(static, {"calibrate_method": q.CalibrationMethod.Entropy}), INTEGERS)
add(
    "static",
    "symmetric",
    "residual",
    partial(static, {"activation_type": S8, "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}}),
    INTEGERS,
)


def blocks(options: dict[str, Any], old: Path, new: Path, feeds: object) -> None:
    quantizer = MatMulNBitsQuantizer(onnx.load(old), **options)
    quantizer.process()
    quantizer.model.save_model_to_file(str(new))


def bnb(kind: int, old: Path, new: Path, feeds: object) -> None:
    quantizer = MatMulBnb4Quantizer(onnx.load(old), kind, 32)
    quantizer.process()
    quantizer.model.save_model_to_file(str(new))


for label, options in {
    "4": {"block_size": 32, "is_symmetric": True}, "4_zero": {"block_size": 32, "is_symmetric": False}, "4_128": {"block_size": 128,
        "is_symmetric": False},
    "4_16_level4": {"block_size": 16, "is_symmetric": True, "accuracy_level": 4}, "8": {"bits": 8, "block_size": 32,
        "is_symmetric": False}, "4_qdq": {"block_size": 32, "is_symmetric": True, "quant_format": QDQ},
    "hqq": {"algo_config": HQQWeightOnlyQuantConfig(block_size=32)},
}.items():  # fmt: skip
    add(
        "blocks",
        label,
        "perceptron llama" if label in ("4", "4_zero", "8") else "perceptron",
        partial(blocks, options),
        INTEGERS if "level4" in label else (1e-3, 1e-3),
    )
add(
    "blocks",
    "gather",
    "bert gpt2",
    partial(
        blocks,
        {
            "block_size": 32,
            "is_symmetric": False,
            "op_types_to_quantize": ("MatMul", "Gather"),
            "quant_axes": (("MatMul", 0), ("Gather", 1)),
        },
    ),
    (1e-3, 1e-3),
)
add("blocks", "fp4", "perceptron", partial(bnb, 0), (1e-3, 1e-3))
add("blocks", "nf4", "perceptron llama", partial(bnb, 1), (1e-3, 1e-3))


def changed(name: str, change: Change, feeds: list[dict[str, np.ndarray]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, sizes = source(name)
        feeds.extend(feeds_of(model, np.random.default_rng(4), sizes))
        old, new = Path(folder) / "old.onnx", Path(folder) / "new.onnx"
        onnx.save(model, old)
        change(old, new, feeds)
        return onnx.load(new).SerializeToString()


def models(rng: np.random.Generator) -> Iterator[Case]:
    logging.disable(logging.WARNING)
    ort.set_default_logger_severity(4)
    torch.set_num_threads(1)
    for group, name, of, change, tolerance in CASES:
        feeds: list[dict[str, np.ndarray]] = []
        yield Case(name, partial(changed, of, change, feeds), feeds, tolerance, group)


if __name__ == "__main__":
    main(models)
