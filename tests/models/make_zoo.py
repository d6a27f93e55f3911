"""Builds the models that `pyonnx-wasm bench --zoo` measures: `python tests/models/make_zoo.py [folder]`.

Needs the extra `zoo`; takes a minute and 1 GB. Architectures are real; weights are random, but for MiniLM's where
`build/models/minilm.onnx` is there (`tests/models/export_minilm.py`).
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).parents[2]


def conv(i: int, o: int, kernel: int = 3, stride: int = 1, group: int = 1, act: type[nn.Module] | None = nn.SiLU) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=group, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, *([act()] if act else []))


class InvertedResidual(nn.Module):
    def __init__(self, i: int, o: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = i * expand
        self.residual = stride == 1 and i == o
        self.layers = nn.Sequential(
            *([conv(i, wide, 1, act=nn.ReLU6)] if expand > 1 else []),
            conv(wide, wide, 3, stride, wide, nn.ReLU6),
            conv(wide, o, 1, act=None),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """Sandler et al. 2018, table 2."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv(3, 32, 3, 2, act=nn.ReLU6)]
        width = 32
        for expand, o, count, stride in [
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ]:
            for k in range(count):
                layers.append(InvertedResidual(width, o, stride if k == 0 else 1, expand))
                width = o
        self.features = nn.Sequential(*layers, conv(width, 1280, 1, act=nn.ReLU6))
        self.head = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean([2, 3]))


class C2f(nn.Module):
    def __init__(self, i: int, o: int, count: int, residual: bool = True) -> None:
        super().__init__()
        half = o // 2
        self.split, self.join, self.residual = conv(i, o, 1), conv((2 + count) * half, o, 1), residual
        self.blocks = nn.ModuleList(nn.Sequential(conv(half, half), conv(half, half)) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.split(x).chunk(2, 1))
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.residual else y)
        return self.join(torch.cat(parts, 1))


class Detector(nn.Module):
    """The shape of YOLOv8n: C2f backbone, SPPF, a neck that goes up and down again, three heads."""

    def __init__(self) -> None:
        super().__init__()
        self.to8 = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), C2f(32, 32, 1), conv(32, 64, 3, 2), C2f(64, 64, 2))
        self.to16 = nn.Sequential(conv(64, 128, 3, 2), C2f(128, 128, 2))
        self.to32 = nn.Sequential(conv(128, 256, 3, 2), C2f(256, 256, 1))
        self.narrow, self.widen = conv(256, 128, 1), conv(512, 256, 1)
        self.up16, self.up8 = C2f(384, 128, 1, False), C2f(192, 64, 1, False)
        self.down16, self.mix16 = conv(64, 64, 3, 2), C2f(192, 128, 1, False)
        self.down32, self.mix32 = conv(128, 128, 3, 2), C2f(384, 256, 1, False)
        self.heads = nn.ModuleList(nn.Sequential(conv(c, 80), conv(80, 80), nn.Conv2d(80, 144, 1)) for c in (64, 128, 256))

    def forward(self, x: Tensor) -> Tensor:
        a = self.to8(x)
        b = self.to16(a)
        pools = [self.narrow(self.to32(b))]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        c = self.widen(torch.cat(pools, 1))
        u = self.up16(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        p8 = self.up8(torch.cat([F.interpolate(u, scale_factor=2.0), a], 1))
        p16 = self.mix16(torch.cat([self.down16(p8), u], 1))
        p32 = self.mix32(torch.cat([self.down32(p16), c], 1))
        return torch.cat([head(p).flatten(2) for head, p in zip(self.heads, (p8, p16, p32), strict=True)], 2).sigmoid()


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, past_k: Tensor, past_v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, seq, width = x.shape
        each = width // self.heads
        q, k, v = (t.reshape(batch, seq, self.heads, each).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, 2))
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        weights = (q @ k.transpose(2, 3) / each**0.5 + mask).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, seq, width))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh")), k, v


class GPT2(nn.Module):
    """GPT-2 small with its past as inputs and outputs."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 50257, positions: int = 1024) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        seq, before = ids.shape[1], past[0].shape[2]
        at = torch.arange(before, before + seq)
        mask = torch.where(torch.arange(before + seq)[None, :] <= at[:, None], 0.0, -1e9)
        x = self.tokens(ids) + self.positions(at)
        present: list[Tensor] = []
        for block, k, v in zip(self.blocks, past[::2], past[1::2], strict=True):
            x, *kv = block(x, k, v, mask)
            present += kv
        return (self.head(self.norm(x)), *present)


class Hidden(nn.Module):
    """A transformers model whose inputs are positional and whose output is one tensor."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True))).last_hidden_state


def export(module: nn.Module, args: tuple[Tensor, ...], path: Path, inputs: list[str], outputs: list[str], axes: dict[str, Any]) -> None:
    module.eval()
    with torch.no_grad():
        torch.onnx.export(module, args, path, input_names=inputs, output_names=outputs, dynamic_axes=axes, opset_version=17, dynamo=False)


def light(folder: Path) -> None:
    source = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for name in ("resnet50", "squeezenet"):
        shutil.copy(source / f"light_{name}.onnx", folder / f"{name}.onnx")


def mobilenetv2(folder: Path) -> None:
    batch = {"input": {0: "batch"}, "logits": {0: "batch"}}
    export(MobileNetV2(), (torch.randn(1, 3, 224, 224),), folder / "mobilenetv2.onnx", ["input"], ["logits"], batch)


def yolo_n(folder: Path) -> None:
    export(Detector(), (torch.randn(1, 3, 640, 640),), folder / "yolo_n.onnx", ["images"], ["preds"], {})


def vit_tiny(folder: Path) -> None:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768)
    model = Hidden(ViTModel(config, add_pooling_layer=False), ["pixel_values"])
    export(model, (torch.randn(1, 3, 224, 224),), folder / "vit_tiny.onnx", ["pixels"], ["hidden"], {"pixels": {0: "batch"}})


def minilm(folder: Path) -> None:
    if (real := ROOT / "build" / "models" / "minilm.onnx").exists():
        shutil.copy(real, folder / "minilm.onnx")
        return
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, attn_implementation="eager")
    names = ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.randint(0, 30000, (1, 32))
    axes = {name: {0: "batch", 1: "seq"} for name in [*names, "last_hidden_state"]}
    model = Hidden(BertModel(config), names)
    export(model, (ids, torch.ones_like(ids), torch.zeros_like(ids)), folder / "minilm.onnx", names, ["last_hidden_state"], axes)


def gpt2(folder: Path) -> None:
    model = GPT2()
    past = [f"past_{i}_{kind}" for i in range(len(model.blocks)) for kind in "kv"]
    present = [name.replace("past", "present") for name in past]
    axes = {"input_ids": {0: "batch", 1: "seq"}, "logits": {0: "batch", 1: "seq"}}
    axes |= {name: {0: "batch", 2: "past"} for name in past} | {name: {0: "batch", 2: "total"} for name in present}
    args = (torch.randint(0, 50257, (1, 4)), *(torch.randn(1, 12, 8, 64) for _ in past))
    export(model, args, folder / "gpt2.onnx", ["input_ids", *past], ["logits", *present], axes)


def quantised(folder: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    class Images(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            rng = np.random.default_rng(0)
            self.left: Iterator[dict[str, Any]] = iter([{"input": rng.standard_normal((1, 3, 224, 224)).astype(np.float32)}] * 2)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.left, None)

    quantize_static(
        folder / "mobilenetv2.onnx",
        folder / "mobilenetv2_qdq.onnx",
        Images(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    quantize_dynamic(folder / "minilm.onnx", folder / "minilm_int8.onnx", weight_type=QuantType.QInt8)
    four = MatMulNBitsQuantizer(onnx.load(folder / "gpt2.onnx"), block_size=32, is_symmetric=True)
    four.process()
    four.model.save_model_to_file(str(folder / "gpt2_q4.onnx"), False)


MODELS = (light, mobilenetv2, yolo_n, vit_tiny, minilm, gpt2, quantised)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "zoo", help="default: %(default)s")
    parser.add_argument("--only", choices=[build.__name__ for build in MODELS], action="append", help="build these alone")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for build in MODELS:
        if not options.only or build.__name__ in options.only:
            print(build.__name__, file=sys.stderr)
            torch.manual_seed(0)
            build(options.folder)
    for path in sorted(options.folder.glob("*.onnx")):
        print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
