"""Exports narrow versions of well-known architectures into tests/data: real exporter patterns in a few hundred KB.

Needs ``pip install torch==2.13.0 onnx==1.23.2``; deterministic. Run: ``python tests/models/export_small.py``.
"""

import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TARGET = Path(__file__).parents[1] / "data"


def conv(i: int, o: int, k: int = 3, s: int = 1, groups: int = 1, act: type[nn.Module] = nn.SiLU) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o), act())


class InvertedResidual(nn.Module):
    def __init__(self, i: int, o: int, stride: int, expand: int) -> None:
        super().__init__()
        self.skip = stride == 1 and i == o
        hidden = i * expand
        self.body = nn.Sequential(
            conv(i, hidden, 1, act=nn.ReLU6), conv(hidden, hidden, 3, stride, hidden, act=nn.ReLU6), conv(hidden, o, 1, act=nn.Identity)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.skip else self.body(x)


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(3, 8, 3, 2, act=nn.ReLU6), InvertedResidual(8, 8, 1, 2), InvertedResidual(8, 12, 2, 6), InvertedResidual(12, 12, 1, 6)
        )
        self.head = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean([2, 3]))


class C2f(nn.Module):
    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.a, self.b = conv(i, o, 1), conv(2 * o, o, 1)
        self.m = nn.ModuleList(nn.Sequential(conv(o // 2, o // 2), conv(o // 2, o // 2)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.a(x).chunk(2, 1))
        for m in self.m:
            parts.append(parts[-1] + m(parts[-1]))
        return self.b(torch.cat(parts, 1))


class Detector(nn.Module):
    """Backbone, spatial pyramid pooling, upsampling neck and two heads, as YOLOv8 has them."""

    def __init__(self) -> None:
        super().__init__()
        self.s1, self.s2 = nn.Sequential(conv(3, 8, 3, 2), C2f(8, 8)), nn.Sequential(conv(8, 16, 3, 2), C2f(16, 16))
        self.p, self.n = conv(48, 16, 1), C2f(24, 8)
        self.heads = nn.ModuleList(nn.Sequential(conv(c, 8), nn.Conv2d(8, 6, 1)) for c in (8, 16))

    def forward(self, x: Tensor) -> Tensor:
        a = self.s1(x)
        b = self.s2(a)
        y = F.max_pool2d(b, 5, 1, 2)
        b = self.p(torch.cat([b, y, F.max_pool2d(y, 5, 1, 2)], 1))
        u = self.n(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))
        return torch.cat([h(t).flatten(2) for h, t in zip(self.heads, (u, b), strict=True)], 2).sigmoid()


class Block(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.l1, self.l2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o, self.f1, self.f2 = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def attend(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        b, t, d = x.shape
        q, k, v = (p.reshape(b, t, self.heads, d // self.heads).transpose(1, 2) for p in self.qkv(self.l1(x)).split(d, 2))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        scores = (q @ k.transpose(2, 3)) / (d // self.heads) ** 0.5
        scores = scores if mask is None else scores + mask
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
        return x, k, v

    def forward(self, x: Tensor) -> Tensor:
        x, _, _ = self.attend(x)
        return x + self.f2(F.gelu(self.f1(self.l2(x))))


class VisionTransformer(nn.Module):
    def __init__(self, d: int = 24) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, d, 8, 8)
        self.token, self.position = nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.randn(1, 17, d))
        self.blocks = nn.Sequential(Block(d, 3), Block(d, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.blocks(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position)


class Decoder(nn.Module):
    """GPT-2 with its cache as inputs and outputs."""

    def __init__(self, layers: int = 2, d: int = 32, heads: int = 4, words: int = 97) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, d), nn.Embedding(64, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.last, self.out = nn.LayerNorm(d), nn.Linear(d, words, bias=False)

    def forward(self, ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        t, p = ids.shape[1], past[0].shape[2]
        here = torch.arange(p, p + t)
        x = self.words(ids) + self.places(here)
        mask = torch.where(torch.arange(p + t)[None, :] <= here[:, None], 0.0, -1e9)
        cache = []
        for i, block in enumerate(self.blocks):
            x, k, v = block.attend(x, (past[2 * i], past[2 * i + 1]), mask)
            x = x + block.f2(F.gelu(block.f1(block.l2(x)), approximate="tanh"))
            cache += [k, v]
        return (self.out(self.last(x)), *cache)


def export(model: nn.Module, args: tuple[Tensor, ...], name: str, ins: list[str], outs: list[str], axes: dict[str, dict[int, str]]) -> None:
    model.eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = TARGET / f"{name}.onnx"
        torch.onnx.export(model, args, str(path), input_names=ins, output_names=outs, dynamic_axes=axes, opset_version=17, dynamo=False)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def main() -> None:
    torch.manual_seed(0)
    TARGET.mkdir(exist_ok=True)
    image = {0: "batch"}
    export(MobileNet(), (torch.randn(1, 3, 32, 32),), "mobilenet", ["x"], ["y"], {"x": {0: "batch", 2: "height", 3: "width"}, "y": image})
    export(
        Detector(),
        (torch.randn(1, 3, 32, 32),),
        "detector",
        ["x"],
        ["y"],
        {"x": {0: "batch", 2: "height", 3: "width"}, "y": {0: "batch", 2: "cells"}},
    )
    export(VisionTransformer(), (torch.randn(1, 3, 32, 32),), "vit", ["x"], ["y"], {"x": image, "y": image})
    past = [torch.randn(1, 4, 3, 8) for _ in range(4)]
    names = [f"past_{i}_{kv}" for i in range(2) for kv in "kv"]
    present = [n.replace("past", "present") for n in names]
    axes = {"ids": {0: "batch", 1: "seq"}, "logits": {0: "batch", 1: "seq"}}
    axes |= {n: {0: "batch", 2: "past"} for n in names} | {n: {0: "batch", 2: "total"} for n in present}
    export(Decoder(), (torch.randint(0, 97, (1, 2)), *past), "decoder", ["ids", *names], ["logits", *present], axes)


if __name__ == "__main__":
    main()
