"""Trains the digits model and writes `js/pages/digits/digits.onnx`: `python tests/models/train_digits.py`.

Needs the extra `train`. The UCI images are counts of ink in 4×4 blocks of a 32×32 bitmap. Augmentation undoes that roughly
(bilinear, 32×32), bends and thickens the strokes, thresholds to a bitmap and counts again, so a digit drawn on a
canvas and counted the same way looks like the training data.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

TARGET = Path(__file__).parents[2] / "js/pages/digits/digits.onnx"
sys.path.insert(0, str(TARGET.parent))
from demo import digits  # noqa: E402


class Digits(nn.Module):
    """Ink per cell `[batch, 1, 8, 8]`, 0 to 16, to logits `[batch, 10]`."""

    def __init__(self) -> None:
        super().__init__()

        def block(i: int, o: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

        self.features = nn.Sequential(block(1, 16), block(16, 24), nn.MaxPool2d(2), block(24, 40), nn.Dropout(0.2))
        self.head = nn.Linear(40 * 16, 10)

    def forward(self, ink: Tensor) -> Tensor:
        return self.head(self.features(ink / 16).flatten(1))


class Probabilities(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ink: Tensor) -> Tensor:
        return self.model(ink).softmax(1)


def augment(ink: Tensor) -> Tensor:
    n = len(ink)

    def uniform(low: float, high: float) -> Tensor:
        return torch.empty(n).uniform_(low, high)

    angle, shear = uniform(-0.25, 0.25), uniform(-0.2, 0.2)
    sx, sy = uniform(0.85, 1.15), uniform(0.88, 1.1)
    zero = torch.zeros(n)
    rotate = torch.stack([angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero], 1).view(n, 2, 3)
    scale = torch.stack([sx, shear, uniform(-0.15, 0.15), zero, sy, uniform(-0.1, 0.1)], 1).view(n, 2, 3)
    affine = torch.cat([rotate[:, :, :2] @ scale[:, :, :2], scale[:, :, 2:]], 2)
    grid = F.affine_grid(affine, [n, 1, 32, 32], align_corners=False)
    wobble = F.interpolate(torch.randn(n, 2, 4, 4) * 0.04, (32, 32), mode="bicubic").permute(0, 2, 3, 1)
    fine = F.grid_sample(ink / 16, grid + wobble, align_corners=False)
    fine = fine + F.interpolate(torch.randn(n, 1, 8, 8) * 0.06, (32, 32), mode="bilinear")
    bitmap = (fine > uniform(0.25, 0.65).view(n, 1, 1, 1)).float()
    return torch.where(torch.rand(n, 1, 1, 1) < 0.25, ink, F.avg_pool2d(bitmap, 4) * 16)


def train(epochs: int) -> tuple[nn.Module, float]:
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    images, labels, held_out = digits()
    x, y = torch.from_numpy(images[~held_out]), torch.from_numpy(labels[~held_out])
    model = Digits()
    batch = 64
    steps = epochs * -(-len(x) // batch)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    for epoch in range(epochs):
        total = 0.0
        for pick in torch.randperm(len(x)).split(batch):
            loss = F.cross_entropy(model(augment(x[pick])), y[pick], label_smoothing=0.01)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(pick)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {total / len(x):.3f}", flush=True)
    model.eval()
    with torch.no_grad():
        guess = model(torch.from_numpy(images[held_out])).argmax(1).numpy()
    return model, float(np.mean(guess == labels[held_out]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--output", type=Path, default=TARGET)
    options = parser.parse_args()
    model, accuracy = train(options.epochs)
    print(f"held-out accuracy {accuracy:.4f}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Probabilities(model).eval(),
            (torch.zeros(2, 1, 8, 8),),
            str(options.output),
            input_names=["ink"],
            output_names=["probabilities"],
            dynamic_axes={"ink": {0: "batch"}, "probabilities": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
    print(f"{options.output}: {options.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
