"""Made-up pictures of shapes, with their boxes: what the detector of `js/pages/shapes` learns from and is judged by."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

KEPT = Path(__file__).parents[1] / "data/shapes.webp"
LABELS = ("circle", "square", "triangle", "star", "heart")
SIDE = 128
_FINE = 3  # drawn so much larger, then scaled down: soft edges


@dataclass
class Picture:
    """Pixels `[height, width, 3]` uint8, and of each shape its place in `LABELS` and its box (left, top, right, bottom) in pixels."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    boxes: NDArray[np.float32]


def outline(label: str) -> NDArray[np.float64]:
    """Corners `[n, 2]` within about one unit of the origin, y downwards."""
    if label == "heart":
        t = np.linspace(0, 2 * np.pi, 48, endpoint=False)
        y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
        return np.stack([16 * np.sin(t) ** 3, -y - 2], 1) / 16
    n = {"circle": 40, "square": 4, "triangle": 3, "star": 10}[label]
    angle = np.arange(n) / n * 2 * np.pi - np.pi / (4 if label == "square" else 2)
    radius = np.where(np.arange(n) % 2, 0.45, 1.0) if label == "star" else np.ones(n)
    return np.stack([np.cos(angle), np.sin(angle)], 1) * radius[:, None]


def place(rng: np.random.Generator, label: str, radius: float) -> NDArray[np.float64]:
    """Corners around the origin, turned, a little squeezed, and wavering as a hand does."""
    turn = rng.normal(0, 0.3) if label == "heart" or rng.random() < 0.5 else rng.uniform(0, 2 * np.pi)
    squeeze = np.diag(np.exp(rng.normal(0, 0.07, 2)))
    shear = np.array([[1, rng.normal(0, 0.08)], [0, 1]])
    c, s = np.cos(turn), np.sin(turn)
    corners = outline(label) @ squeeze @ np.array([[c, s], [-s, c]]) @ shear
    hand = rng.random() < 0.3
    return radius * (corners + (rng.normal(0, 0.03, corners.shape) if hand else 0))


def colour(rng: np.random.Generator) -> NDArray[np.float64]:
    grey = rng.random() < 0.3
    return np.repeat(rng.uniform(0, 255), 3) if grey else rng.uniform(0, 255, 3)


def background(rng: np.random.Generator) -> NDArray[np.float64]:
    """A plain, shaded, blotched or striped ground with a few lines and bars that are no shapes, `[SIDE, SIDE, 3]`."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    slope = rng.normal(0, 40, 2)
    ground = colour(rng) + (slope[0] * (y - 0.5) + slope[1] * (x - 0.5))[..., None]
    if rng.random() < 0.5:
        blots = Image.fromarray(rng.integers(0, 256, (rng.integers(2, 9), rng.integers(2, 9), 3), np.uint8))
        ground = ground + (np.asarray(blots.resize((SIDE, SIDE), Image.Resampling.BICUBIC)) - 128.0) * rng.uniform(0.05, 0.5)
    if rng.random() < 0.25:
        angle, pitch = rng.uniform(0, np.pi), rng.uniform(6, 40)
        ground = ground + np.sign(np.sin(pitch * (np.cos(angle) * x + np.sin(angle) * y)))[..., None] * rng.uniform(5, 30)
    picture = Image.fromarray(np.clip(ground, 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(picture)
    for _ in range(rng.integers(0, 5) if rng.random() < 0.6 else 0):
        a, b = rng.uniform(-0.1, 1.1, 2) * SIDE, rng.uniform(-0.1, 1.1, 2) * SIDE
        ink = tuple(int(v) for v in colour(rng))
        if rng.random() < 0.6:
            pen.line([*a, *b], fill=ink, width=int(rng.integers(1, 5)))
        else:  # a bar: no square
            long, thin = rng.uniform(50, 150), rng.uniform(3, 12)
            size = (long, thin) if rng.random() < 0.5 else (thin, long)
            pen.rectangle([*a, a[0] + size[0], a[1] + size[1]], fill=ink)
    return np.asarray(picture, np.float64)


def _free(box: NDArray[np.float64], boxes: list[NDArray[np.float64]]) -> bool:
    """Whether a box covers, and is covered, at most by a seventh."""
    for other in boxes:
        width, height = (min(box[i + 2], other[i + 2]) - max(box[i], other[i]) for i in (0, 1))
        smaller = min((b[2] - b[0]) * (b[3] - b[1]) for b in (box, other))
        if width > 0 and height > 0 and width * height > smaller / 7:
            return False
    return True


def _draw(rng: np.random.Generator, pixels: NDArray[np.float64], corners: NDArray[np.float64]) -> None:
    """Paints a shape over the pixels: filled, as an outline, or both."""
    left, top = np.maximum(np.floor(corners.min(0)).astype(int) - 6, 0)
    right, bottom = np.minimum(np.ceil(corners.max(0)).astype(int) + 6, SIDE)
    under = pixels[top:bottom, left:right]
    ground = under.mean((0, 1))
    inks = [ink for ink in (colour(rng) for _ in range(40)) if np.abs(ink - ground).max() > 45]
    points = [tuple(p) for p in (corners - (left, top)) * _FINE]
    size = np.ptp(corners, axis=0).max()
    kind = rng.random()
    for ink, fills in zip(inks, ([True, False] if kind > 0.9 else [kind > 0.35]), strict=False):
        mask = Image.new("L", ((right - left) * _FINE, (bottom - top) * _FINE))
        pen = ImageDraw.Draw(mask)
        if fills:
            pen.polygon(points, fill=255)
        else:
            width = rng.uniform(1.4, max(2.0, 0.09 * size))
            pen.line([*points, points[0], points[1]], fill=255, width=max(1, round(width * _FINE)), joint="curve")
        soft = np.asarray(mask.resize((right - left, bottom - top), Image.Resampling.BOX), np.float64)[..., None] / 255
        shade = ink + rng.normal(0, 12, 3) * np.linspace(-1, 1, bottom - top)[:, None, None]
        under[:] = under * (1 - soft) + shade * soft


def picture(rng: np.random.Generator) -> Picture:
    """One picture with up to six shapes, blurred and noisy as cameras see."""
    pixels = background(rng)
    boxes: list[NDArray[np.float64]] = []
    labels: list[int] = []
    largest = rng.uniform(14, 52)
    for _ in range(rng.integers(0, 7)):
        label = int(rng.integers(len(LABELS)))
        corners = place(rng, LABELS[label], float(rng.uniform(7, largest)))
        for _ in range(12):
            at = rng.uniform(0, SIDE, 2)
            box = np.concatenate([(corners + at).min(0), (corners + at).max(0)])
            if box.min() > 1 and box.max() < SIDE - 1 and _free(box, boxes):
                _draw(rng, pixels, corners + at)
                boxes.append(box)
                labels.append(label)
                break
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    if rng.random() < 0.4:
        image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 1.3))))
    noisy = np.asarray(image, np.float64) + rng.normal(0, rng.uniform(0, 12), (SIDE, SIDE, 3))
    return Picture(np.clip(noisy, 0, 255).astype(np.uint8), np.array(labels, np.int64), np.array(boxes, np.float32).reshape(-1, 4))


def overlap(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Intersection over union of boxes `[n, 4]` with boxes `[m, 4]`, `[n, m]`."""
    size = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    both = np.prod(np.maximum(size, 0), 2)
    areas = [np.prod(c[:, 2:] - c[:, :2], 1) for c in (a, b)]
    return np.asarray(both / (areas[0][:, None] + areas[1][None] - both), np.float32)


def keep(pictures: list[Picture], columns: int, path: Path = KEPT) -> None:
    """Writes pictures as one sheet, and beside it as JSON what they show."""
    sheet = Image.new("RGB", (columns * SIDE, -(-len(pictures) // columns) * SIDE))
    for i, p in enumerate(pictures):
        sheet.paste(Image.fromarray(p.pixels), (i % columns * SIDE, i // columns * SIDE))
    sheet.save(path, quality=85, method=6)
    shown = [[[LABELS[k], *map(float, np.round(box, 1))] for k, box in zip(p.labels, p.boxes, strict=True)] for p in pictures]
    path.with_suffix(".json").write_text("[\n" + ",\n".join(map(json.dumps, shown)) + "\n]\n")


def kept(path: Path = KEPT) -> list[Picture]:
    """What `keep` wrote."""
    with Image.open(path) as image:
        sheet = np.asarray(image.convert("RGB"))
    columns = sheet.shape[1] // SIDE
    found = []
    for i, shapes in enumerate(json.loads(path.with_suffix(".json").read_text())):
        top, left = i // columns * SIDE, i % columns * SIDE
        boxes = np.array([shape[1:] for shape in shapes], np.float32).reshape(-1, 4)
        labels = np.array([LABELS.index(shape[0]) for shape in shapes], np.int64)
        found.append(Picture(np.ascontiguousarray(sheet[top : top + SIDE, left : left + SIDE]), labels, boxes))
    return found


def matched(p: Picture, boxes: NDArray[np.float32], labels: NDArray[np.int64]) -> int:
    """Shapes of the picture that an answer of their own names rightly and covers by half."""
    over = overlap(p.boxes, boxes) if len(boxes) and len(p.boxes) else np.zeros((len(p.boxes), len(boxes)), np.float32)
    over = over * (p.labels[:, None] == labels[None])
    count = 0
    while over.size and over.max() >= 0.5:
        i, j = np.unravel_index(int(over.argmax()), over.shape)
        over[i], over[:, j] = 0, 0
        count += 1
    return count
