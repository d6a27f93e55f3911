"""Networks over pictures: torchvision's, at small widths where they take one, and what it lacks."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import torchvision_ops  # noqa: F401  before torchvision
from networks import Feeds, Of, OfTwo, add, floats, network, on, spread
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import models as tv
from torchvision import ops

SMALL, OTHER = (1, 3, 64, 64), (2, 3, 96, 64)
BATCHES = (1, 3, 64, 64), (3, 3, 64, 64)

CLASSIFIERS = {
    "squeezenet1_1": tv.squeezenet1_1, "mobilenet_v2": tv.mobilenet_v2, "mobilenet_v3_small": tv.mobilenet_v3_small,
    "shufflenet_v2": tv.shufflenet_v2_x0_5, "mnasnet0_5": tv.mnasnet0_5, "efficientnet_b0": tv.efficientnet_b0,
    "regnet_y_400mf": tv.regnet_y_400mf, "resnet18": tv.resnet18, "densenet": partial(tv.DenseNet, 8, (2, 3, 2), 16),
    "resnext": partial(tv.ResNet, tv.resnet.Bottleneck, [1, 1, 1, 1], groups=8, width_per_group=4, num_classes=10),
}  # fmt: skip
for name, kind in CLASSIFIERS.items():
    add(name, on(lambda kind=kind: spread(kind()), SMALL, OTHER))

add("googlenet", on(lambda: spread(tv.googlenet(weights=None, aux_logits=False, init_weights=False)), BATCHES[0], BATCHES[1]))
add("convnext", on(lambda: tv.ConvNeXt([tv.convnext.CNBlockConfig(16, 32, 2), tv.convnext.CNBlockConfig(32, None, 2)]), SMALL, OTHER))
add("vit", on(lambda: tv.VisionTransformer(64, 16, 2, 4, 32, 64, num_classes=10), *BATCHES))
add("swin", on(lambda: tv.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10), *BATCHES))
add("swin_v2", on(
    lambda: tv.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10, block=tv.swin_transformer.SwinTransformerBlockV2,
                               downsample_layer=tv.swin_transformer.PatchMergingV2), *BATCHES))  # fmt: skip
add("maxvit", on(lambda: spread(tv.MaxVit((64, 64), 16, 2, [16, 32], [1, 1], 8, 0.0, num_classes=10)), *BATCHES))
add("video_r3d", on(
    lambda: spread(tv.video.VideoResNet(tv.video.resnet.BasicBlock, [tv.video.resnet.Conv3DSimple] * 4, [1, 1, 1, 1],
        tv.video.resnet.BasicStem)),
    (1, 3, 8, 32, 32), (2, 3, 4, 48, 32)))  # fmt: skip


class First(nn.Module):
    """A torchvision segmentation model, its ``out`` alone."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)["out"]


add("lraspp", on(lambda: spread(First(tv.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None))), SMALL, OTHER))
add("deeplabv3", on(lambda: spread(First(tv.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None))), SMALL, OTHER))


class Detector(nn.Module):
    """A torchvision detector on one picture: boxes, labels, scores."""

    def __init__(self, inner: nn.Module, *keys: str) -> None:
        super().__init__()
        self.inner, self.keys = inner, keys or ("boxes", "labels", "scores")

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = self.inner([x])
        found = found[1] if isinstance(found, tuple) else found
        return tuple(found[0][k] for k in self.keys)


def varied(module: nn.Module) -> nn.Module:
    """Heads whose scores lie apart, so that their order does not hang on the last bit."""
    generator = torch.Generator().manual_seed(2)
    for name, part in module.named_modules():
        if isinstance(part, nn.Conv2d | nn.Linear) and ("head" in name or "predictor" in name or "rpn" in name):
            part.weight.data.normal_(0, 0.05, generator=generator)
    return spread(module)


def detector(kind: type[nn.Module], *keys: str, **given: object) -> object:
    pictures: Feeds = [{"x": np.random.default_rng(i).random((3, 96, 96)).astype(np.float32)} for i in range(2)]
    return lambda rng: (Detector(varied(kind(weights=None, weights_backbone=None, min_size=96, max_size=128, **given)), *keys), pictures)


few = {"num_classes": 5, "box_score_thresh": 0.05, "box_detections_per_img": 20, "rpn_post_nms_top_n_test": 50}
add("faster_rcnn", detector(tv.detection.fasterrcnn_mobilenet_v3_large_320_fpn, **few), tolerance=(1e-3, 1e-3))
add("ssdlite", lambda rng: (
    Detector(varied(tv.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5, score_thresh=0.1))),
    [{"x": np.random.default_rng(i).random((3, 320, 320)).astype(np.float32)} for i in range(2)]), tolerance=(1e-3, 1e-3))  # fmt: skip


class ConvBlock(nn.Sequential):
    def __init__(self, i: int, o: int, stride: int = 1) -> None:
        super().__init__(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = ConvBlock(3, 8), ConvBlock(8, 16), ConvBlock(16, 16)
        self.up2, self.up1, self.head = ConvBlock(32, 8), ConvBlock(16, 8), nn.Conv2d(8, 2, 1)
        self.mode, self.transposed = mode, nn.ConvTranspose2d(16, 16, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        c = self.transposed(c) if self.mode == "transposed" else F.interpolate(c, size=b.shape[2:], mode=self.mode)
        c = self.up2(torch.cat([c, b], 1))
        return self.head(self.up1(torch.cat([F.interpolate(c, scale_factor=2.0, mode="nearest"), a], 1)))


for mode in ("nearest", "bilinear", "bicubic", "transposed"):
    add(f"unet_{mode}", on(lambda mode=mode: spread(UNet(mode)), (1, 3, 32, 32), (2, 3, 48, 32)))


class Yolo(nn.Module):
    """Anchors, a grid, and suppression of what overlaps, class by class."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(ConvBlock(3, 8, 2), ConvBlock(8, 16, 2), ConvBlock(16, 16, 2))
        self.head = nn.Conv2d(16, 4 + 3, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.head(self.body(x) * 4)
        _, _, h, w = y.shape
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack([columns, rows], -1).reshape(1, -1, 2).to(y.dtype)
        y = y.flatten(2).transpose(1, 2)
        middle, size = (y[..., :2].sigmoid() * 2 - 0.5 + grid) * 8, (y[..., 2:4].sigmoid() * 2) ** 2 * 16
        boxes, (scores, labels) = torch.cat([middle - size / 2, middle + size / 2], -1)[0], y[0, :, 4:].sigmoid().max(-1)
        kept = ops.nms(boxes + labels[:, None] * 1000.0, scores, 0.45)
        kept = kept[scores[kept] > 0.3]
        return boxes[kept], scores[kept], labels[kept]


add("yolo_nms", on(lambda: spread(Yolo()), (1, 3, 64, 64), (1, 3, 96, 64)))


class Ssd(nn.Module):
    """Prior boxes, decoded, of which the best k stay."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.boxes, self.scores = (
            nn.Sequential(ConvBlock(3, 8, 2), ConvBlock(8, 16, 2)),
            nn.Conv2d(16, 12, 3, 1, 1),
            nn.Conv2d(16, 9, 3, 1, 1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.body(x)
        boxes = self.boxes(y).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
        scores = self.scores(y).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 3).softmax(-1)
        best, places = scores[..., 1:].amax(-1).topk(20, 1)
        boxes = torch.cat([boxes[..., :2] - boxes[..., 2:].exp() / 2, boxes[..., :2] + boxes[..., 2:].exp() / 2], -1)
        return boxes.gather(1, places[..., None].expand(-1, -1, 4)).clamp(0, 1), best


add("ssd_topk", on(lambda: spread(Ssd()), (1, 3, 32, 32), (2, 3, 48, 32)))


@network()
def roi_head(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8 * 9, 5)

        def forward(self, x: Tensor, boxes: Tensor) -> Tensor:
            return self.linear(ops.roi_align(self.conv(x).relu(), [boxes], 3, 0.5, 2, True).flatten(1))

    feeds = [{"x": rng.normal(size=(1, 3, 32, 32)).astype(np.float32), "boxes": np.sort(rng.uniform(0, 30, (n, 2, 2)), 1).reshape(n,
        4).astype(np.float32)}
             for n in (3, 7)]  # fmt: skip
    return Head(), feeds


class Transformed(nn.Module):
    """A spatial transformer: a network that says where its own input is read."""

    def __init__(self, padding: str, mode: str) -> None:
        super().__init__()
        self.say, self.padding, self.mode = (
            nn.Sequential(nn.Conv2d(3, 4, 5, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 6)),
            padding,
            mode,
        )

    def forward(self, x: Tensor) -> Tensor:
        theta = self.say(x).reshape(-1, 2, 3) * 0.3 + torch.eye(2, 3)
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), self.mode, self.padding, align_corners=False)


for padding, mode in (("zeros", "bilinear"), ("border", "bilinear"), ("reflection", "nearest"), ("border", "bicubic")):
    add(f"spatial_transformer_{padding}_{mode}", on(partial(Transformed, padding, mode), (1, 3, 16, 16), (3, 3, 16, 16)))


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = (
            ConvBlock(3, 16),
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 4, 1), nn.ReLU(), nn.Conv2d(4, 16, 1), nn.Hardsigmoid()),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return F.hardswish(y * self.gate(y))


add("squeeze_excite", on(lambda: spread(SqueezeExcite()), (1, 3, 16, 16), (2, 3, 24, 16)))
add(
    "espcn",
    on(
        lambda: nn.Sequential(nn.Conv2d(1, 16, 5, 1, 2), nn.Tanh(), nn.Conv2d(16, 9, 3, 1, 1), nn.PixelShuffle(3)),
        (1, 1, 16, 16),
        (2, 1, 20, 16),
    ),
)
add("dcgan", on(lambda: spread(nn.Sequential(
    nn.ConvTranspose2d(16, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.LeakyReLU(0.2),
    nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1), nn.Tanh())), (1, 16, 1, 1), (3, 16, 1, 1)))  # fmt: skip
add("conv_mixer", on(lambda: spread(nn.Sequential(
    nn.Conv2d(3, 16, 4, 4), nn.GELU(), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 5, groups=16, padding="same"), nn.GELU(), nn.BatchNorm2d(16),
    nn.Conv2d(16, 16, 1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))), (1, 3, 32, 32), (2, 3, 48,
        40)))  # fmt: skip
add("styled", on(lambda: nn.Sequential(
    nn.ReflectionPad2d(2), nn.Conv2d(3, 8, 5), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.ReplicationPad2d(1), nn.Conv2d(8, 8, 3, 2),
    nn.GroupNorm(4, 8), nn.PReLU(8), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.ZeroPad2d(1), nn.Conv2d(8, 3, 3)),
    (1, 3, 16, 16), (2, 3, 24, 16)))  # fmt: skip
add("voxels", on(lambda: spread(nn.Sequential(
    nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2), nn.ConvTranspose3d(4, 2, 2, 2), nn.AvgPool3d(2))),
    (1, 1, 8, 8, 8), (2, 1, 12, 8, 8)))  # fmt: skip
add("pools", on(lambda: Of(lambda x: (
    F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.max_pool2d(x, 3, 2, 1, ceil_mode=True), F.lp_pool2d(x.abs() + 0.1, 2, 2),
        F.adaptive_max_pool2d(x, 4),
    F.avg_pool2d(x, (2, 3), count_include_pad=False))), (1, 3, 16, 16), (2, 3, 16, 16)))  # fmt: skip
add(
    "patches",
    on(
        lambda: Of(lambda x: F.fold(F.unfold(x, 3, padding=1, stride=2) * 2, (12, 12), 3, padding=1, stride=2)),
        (1, 3, 12, 12),
        (2, 3, 12, 12),
    ),
)
add(
    "local_response",
    on(
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, dilation=2), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2, dilation=1)),
        (1, 3, 16, 16),
        (2, 3, 20, 16),
    ),
)


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.tokens, self.channels = (
            nn.Conv2d(3, 16, 8, 8),
            nn.Linear(16, 16),
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)),
        )
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = y + self.tokens(self.norm1(y).transpose(1, 2)).transpose(1, 2)
        return (y + self.channels(self.norm2(y))).mean(1)


add("mlp_mixer", on(Mixer, (1, 3, 32, 32), (3, 3, 32, 32)))


class Diffusion(nn.Module):
    """A denoiser: a step's number as sines and cosines, attention in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.enter, self.down = (
            nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16)),
            nn.Conv2d(3, 16, 3, 1, 1),
            nn.Conv2d(16, 16, 3, 2, 1),
        )
        self.norm, self.attention, self.leave = (
            nn.GroupNorm(4, 16),
            nn.MultiheadAttention(16, 2, batch_first=True),
            nn.Conv2d(32, 3, 3, 1, 1),
        )

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        angles = step[:, None] * torch.exp(torch.arange(8) * (-4 / 8))
        h = self.enter(x) + self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        y = self.norm(self.down(F.silu(h)))
        n, c, a, b = y.shape
        flat = y.reshape(n, c, a * b).transpose(1, 2)
        y = (flat + self.attention(flat, flat, flat, need_weights=False)[0]).transpose(1, 2).reshape(n, c, a, b)
        return self.leave(torch.cat([F.interpolate(y, scale_factor=2.0), h], 1))


@network()
def diffusion(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    return Diffusion(), floats(rng, {"x": (1, 3, 16, 16), "step": (1,)}, {"x": (2, 3, 24, 16), "step": (2,)})


@network()
def siamese(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    net = spread(
        nn.Sequential(ConvBlock(3, 8, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(32, 8)))
    )

    class Pair(OfTwo):
        def __init__(self) -> None:
            super().__init__(lambda x, y: (F.cosine_similarity(self.net(x), self.net(y)), F.pairwise_distance(self.net(x), self.net(y))))
            self.net = net

    return Pair(), floats(rng, {"x": (2, 3, 16, 16), "y": (2, 3, 16, 16)}, {"x": (3, 3, 20, 16), "y": (3, 3, 20, 16)})


@network()
def vector_quantised(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.leave, self.book = nn.Conv2d(3, 8, 4, 4), nn.ConvTranspose2d(8, 3, 4, 4), nn.Parameter(torch.randn(32, 8))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.enter(x).permute(0, 2, 3, 1)
            code = torch.cdist(y.reshape(1, -1, 8), self.book[None]).argmin(-1).reshape(y.shape[:3])
            return self.leave(F.embedding(code, self.book).permute(0, 3, 1, 2)), code

    return Quantised(), floats(rng, {"x": (1, 3, 16, 16)}, {"x": (2, 3, 24, 16)})
