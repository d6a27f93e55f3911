"""Trains the detector of `js/pages/shapes` on made-up pictures: `python tests/models/train_shapes.py`.

Needs the extra `train`. A single-shot network without anchors: at every eighth pixel a score per label and the distances to the sides of
the box whose middle is near, over features of three scales. The written model takes pixels as a canvas gives them and ends in
NonMaxSuppression, so that the sizes of its outputs come from the picture.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from shape_pictures import LABELS, Picture, keep, kept, matched, picture
from torch import Tensor, nn

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "js/pages/shapes/shapes.onnx"
STRIDE = 8
THRESHOLD = 0.4
IOU = 0.45


def conv(i: int, o: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


def separable(i: int, o: int, stride: int = 1) -> nn.Sequential:
    depthwise = nn.Conv2d(i, i, 5, stride, 2, groups=i, bias=False)
    return nn.Sequential(depthwise, nn.BatchNorm2d(i), nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Block(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.body = separable(c, c)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Shapes(nn.Module):
    """Pixels `[n, 3, height, width]` from 0 to 1 to logits `[n, labels, cells]` and boxes `[n, cells, 4]` in pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(conv(3, 16), conv(16, 24), conv(24, 40), Block(40), Block(40))
        self.middle = nn.Sequential(separable(40, 56, 2), Block(56), Block(56))
        self.coarse = nn.Sequential(separable(56, 72, 2), Block(72), Block(72))
        self.down, self.merge = nn.Conv2d(72, 56, 1), Block(56)
        self.narrow, self.last = nn.Conv2d(56, 40, 1), nn.Sequential(Block(40), separable(40, 48))
        self.head = nn.Conv2d(48, len(LABELS) + 4, 1)
        with torch.no_grad():
            self.head.bias[: len(LABELS)].fill_(-4.0)
            self.head.bias[len(LABELS) :].fill_(1.0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        fine = self.fine(x)
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        merged = self.merge(middle + F.interpolate(self.down(coarse), middle.shape[2:], mode="nearest"))
        merged = self.last(fine + F.interpolate(self.narrow(merged), fine.shape[2:], mode="nearest"))
        logits, sides = self.head(merged).split([len(LABELS), 4], 1)
        sides = (sides.clamp(-3, 4).exp() * STRIDE).flatten(2).transpose(1, 2)
        y, x = (STRIDE * (torch.arange(merged.shape[axis]) + 0.5) for axis in (2, 3))
        centre = torch.stack([0 * y[:, None] + x, y[:, None] + 0 * x], -1).view(1, -1, 2)
        return logits.flatten(2), torch.cat([centre - sides[..., :2], centre + sides[..., 2:]], 2)


def targets(pictures: list[Picture], cells: int) -> tuple[Tensor, Tensor, Tensor]:
    """Labels per cell `[n, labels, cells, cells]`, boxes `[n, cells, cells, 4]` and which cells answer for a box."""
    n = len(pictures)
    wanted, boxes = torch.zeros(n, len(LABELS), cells, cells), torch.zeros(n, cells, cells, 4)
    near = torch.zeros(n, cells, cells, dtype=torch.bool)
    centre = STRIDE * (np.arange(cells) + 0.5)
    for i, p in enumerate(pictures):
        order = np.argsort(-np.prod(p.boxes[:, 2:] - p.boxes[:, :2], 1))  # small ones last: they win a cell that two claim
        for label, box in zip(p.labels[order], p.boxes[order], strict=True):
            reach = np.maximum(0.2 * (box[2:] - box[:2]), STRIDE / 2)
            middle = (box[2:] + box[:2]) / 2
            column, row = (np.flatnonzero(np.abs(centre - middle[k]) <= reach[k]) for k in (0, 1))
            at = np.ix_(row, column)
            wanted[i][:, row[:, None], column[None]] = 0
            wanted[i][int(label)][at], near[i][at] = 1, True
            boxes[i][row[:, None], column[None]] = torch.from_numpy(box)
    return wanted, boxes, near


def loss_of(logits: Tensor, boxes: Tensor, wanted: Tensor, truth: Tensor, near: Tensor) -> Tensor:
    p = logits.sigmoid()
    wrong = torch.where(wanted > 0, 1 - p, p)
    score = (wrong**2 * F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")).sum()
    a, b = boxes[near], truth[near]
    inner = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    outer = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inner
    giou = inner / union - (outer - union) / outer
    return (2 * score + (1 - giou).sum()) / max(1, int(near.sum()))


def varied(x: Tensor) -> Tensor:
    """Lighter or darker, stronger or weaker, with channels in another order."""
    gain, shift = (torch.rand(len(x), 1, 1, 1) for _ in range(2))
    return ((x[:, torch.randperm(3)] - 0.5) * (0.6 + 0.6 * gain) + 0.5 + 0.3 * (shift - 0.5)).clamp(0, 1)


def mirrored(p: Picture) -> Picture:
    boxes = p.boxes.copy()
    boxes[:, [0, 2]] = p.pixels.shape[1] - p.boxes[:, [2, 0]]
    return Picture(np.ascontiguousarray(p.pixels[:, ::-1]), p.labels, boxes)


def train(count: int, steps: int, batch: int) -> Shapes:
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    pictures = [picture(rng) for _ in range(count)]
    print(f"{count} pictures made", flush=True)
    model = Shapes().to(memory_format=torch.channels_last)  # half the time on a processor
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps, pct_start=0.15)
    recent = 0.0
    for step in range(steps):
        picked = [pictures[i] if rng.random() < 0.5 else mirrored(pictures[i]) for i in rng.integers(count, size=batch)]
        x = torch.from_numpy(np.stack([p.pixels for p in picked])).permute(0, 3, 1, 2) / 255
        wanted, truth, near = targets(picked, x.shape[2] // STRIDE)
        logits, boxes = model(varied(x).contiguous(memory_format=torch.channels_last))
        loss = loss_of(logits, boxes, wanted.flatten(2), truth.flatten(1, 2), near.flatten(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        recent = loss.item() if not step else 0.98 * recent + 0.02 * loss.item()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {recent:.3f}", flush=True)
    return model.eval()


class FromCanvas(nn.Module):
    """Pixels `[height, width, 4]` uint8, as `getImageData` gives them, to boxes `[1, cells, 4]` and scores `[1, labels, cells]`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        logits, boxes = self.model(image[:, :, :3].float().permute(2, 0, 1)[None] / 255)
        return boxes, logits.sigmoid()


def export(model: nn.Module, path: Path) -> None:
    """Writes the model with NonMaxSuppression at its end: boxes `[found, 4]`, labels and scores `[found]`, best first.

    What labels are called is the metadata's key `labels`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            FromCanvas(model).eval(),
            (torch.zeros(64, 96, 4, dtype=torch.uint8),),
            str(path),
            input_names=["image"],
            output_names=["all_boxes", "all_scores"],
            dynamic_axes={"image": {0: "height", 1: "width"}, "all_boxes": {1: "cells"}, "all_scores": {2: "cells"}},
            opset_version=17,
            dynamo=False,
        )
    written = onnx.load(path)
    graph = written.graph

    def node(kind: str, inputs: list[str], outputs: list[str], **attributes: object) -> None:
        graph.node.append(helper.make_node(kind, inputs, outputs, name=f"/{outputs[0]}", **attributes))

    constants = {
        "most": np.array(100, np.int64), "iou": np.array(IOU, np.float32), "third": np.array(2, np.int64),
        "flat": np.array([-1], np.int64), "first": np.array([0], np.int64),
    }  # fmt: skip
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    node("ReduceMax", ["all_scores"], ["best_scores"], axes=[1], keepdims=1)
    node("ArgMax", ["all_scores"], ["best_labels"], axis=1, keepdims=0)
    node("NonMaxSuppression", ["all_boxes", "best_scores", "most", "iou", "threshold"], ["selected"])
    node("Gather", ["selected", "third"], ["cell"], axis=1)
    node("Squeeze", ["all_boxes", "first"], ["boxes_of_cells"])
    node("Gather", ["boxes_of_cells", "cell"], ["boxes"], axis=0)
    node("Reshape", ["best_scores", "flat"], ["scores_of_cells"])
    node("Gather", ["scores_of_cells", "cell"], ["scores"], axis=0)
    node("Reshape", ["best_labels", "flat"], ["labels_of_cells"])
    node("Gather", ["labels_of_cells", "cell"], ["labels"], axis=0)
    graph.input.append(helper.make_tensor_value_info("threshold", TensorProto.FLOAT, []))
    del graph.output[:]
    for name, kind, dims in (
        ("boxes", TensorProto.FLOAT, ["found", 4]),
        ("labels", TensorProto.INT64, ["found"]),
        ("scores", TensorProto.FLOAT, ["found"]),
    ):
        graph.output.append(helper.make_tensor_value_info(name, kind, dims))
    helper.set_model_props(written, {"labels": json.dumps(LABELS)})
    onnx.checker.check_model(written, full_check=True)
    onnx.save(written, path)


def judge(path: Path, pictures: list[Picture]) -> tuple[int, int, int]:
    """How many shapes were found and rightly named, how many there are, and how many answers were wrong."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    right = answers = 0
    for p in pictures:
        image = np.concatenate([p.pixels, np.full((*p.pixels.shape[:2], 1), 255, np.uint8)], 2)
        boxes, labels, _ = session.run(None, {"image": image, "threshold": np.array(THRESHOLD, np.float32)})
        right += matched(p, boxes, labels)
        answers += len(labels)
    return right, sum(len(p.labels) for p in pictures), answers - right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--output", type=Path, default=TARGET)
    options = parser.parse_args()
    model = train(options.pictures, options.steps, options.batch)
    export(model, options.output)
    rng = np.random.default_rng(1)
    held_out = [picture(rng) for _ in range(200)]
    keep(held_out[:36], 6)
    for name, pictures in (("200 held-out pictures", held_out), ("the 36 of them that are kept", kept())):
        right, there, wrong = judge(options.output, pictures)
        print(f"{name}: {right} of {there} shapes found ({right / there:.4f}), {wrong} wrong answers")
    print(f"{options.output}: {options.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
