"""What a playground takes for granted: detectors by names and shapes of their outputs (YOLO's heads, SSD's, DETR's), and hints that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..program import Signature
from .hints import Hints
from .panels import FLOATS, Boxes, Choices, Image, class_map, picture_layout, role_of
from .preprocess import Preprocess

FEWEST = 100  # candidates of a detector's head
MOST_CLASSES = 1300
FOUND = 6  # numbers of a box that was chosen in the model: four, score, class


def detector(outputs: Sequence[Signature], labels: Sequence[str], task: str = "") -> tuple[dict[str, Boxes], set[str]]:
    """Boxes by output, and the outputs that they take along; nothing where it is not plain that they are boxes.

    Heads of one output: [n, 4 + classes, candidates] (YOLO 8 and newer), [n, candidates, 5 + classes] (YOLO 5 to 7, with objectness),
    [n, found, 6] (end to end). Several: one named for boxes with a last axis of 4, and those of scores, classes and their number.
    """
    found = _split(outputs, labels)
    if found is not None:
        return found
    heads = [(s, b) for s in outputs if (b := _head(s, labels, task)) is not None]
    return ({heads[0][0].name: heads[0][1]}, set()) if len(heads) == 1 else ({}, set())


def completed(given: Choices, hints: Hints, inputs: Sequence[Signature], outputs: Sequence[Signature]) -> tuple[Choices, list[str]]:
    """What the user gave, with what is known besides, where it fits the model; and what that was, for people."""
    found = list(hints.found)
    pictures = [s for s in inputs if picture_layout(s) or isinstance(given.inputs.get(s.name), Image)]
    if given.labels or not _fit(hints.labels, outputs):
        hints, found = replace(hints, labels=()), [f for f in found if not f.startswith("labels")]
    labels = given.labels or hints.labels
    boxes, hidden = detector(outputs, labels, hints.task) if pictures else ({}, set())
    boxes = {name: panel for name, panel in boxes.items() if name not in given.outputs}
    if boxes:
        found.append("boxes by the shape of the outputs")
    preprocess = given.preprocess
    if preprocess is None and len(pictures) == 1:
        preprocess = _prepared(pictures[0], hints.preprocess, bool(boxes))
    if preprocess is None or given.preprocess is not None:
        found = [f for f in found if not f.startswith("preprocessing")]
    ids = any(role_of(s.name) == "ids" and s.name not in given.inputs for s in inputs)
    if given.tokenizer is not None or not ids:
        hints, found = replace(hints, tokenizer=None), [f for f in found if f != "tokenizer.json"]
    tokenizer = given.tokenizer if given.tokenizer is not None else hints.tokenizer
    return replace(given, labels=labels, preprocess=preprocess, tokenizer=tokenizer, boxes=boxes, hidden=hidden if boxes else ()), found


def _fit(labels: Sequence[str], outputs: Sequence[Signature]) -> bool:
    """Whether there is an output with as many classes, or one whose classes are not counted by its shape."""
    n = len(labels)
    dims = {d for s in outputs for d in s.shape}
    counted = bool(dims & {n, n + 1, n + 4, n + 5, n + 36, FOUND, 4})
    return n > 0 and (counted or any(class_map(s) or not isinstance(s.shape[-1], int) for s in outputs if s.shape))


def _prepared(s: Signature, hint: Preprocess | None, boxes: bool) -> Preprocess | None:
    """The hint in the model's layout and dtype; for a detector without one, the whole picture with grey around it."""
    layout = picture_layout(s) or "NCHW"
    sizes = dict(zip(layout, s.shape, strict=True))
    height, width = sizes["H"], sizes["W"]
    size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    if hint is None:
        if not boxes:
            return None
        chosen = Preprocess.letterbox(*(size or (640, 640)))
    else:
        chosen = hint
        given = chosen.crop or chosen.resize
        if size is not None and given not in (size, size[0] if size[0] == size[1] else None):
            chosen = replace(chosen, resize=size, crop=None)
    if sizes["C"] == 1:
        if not isinstance(chosen.mean, float) or not isinstance(chosen.std, float):
            return None
        chosen = replace(chosen, color="L")
    if s.dtype.name == "uint8":
        chosen = replace(chosen, scale=1.0, mean=0.0, std=1.0)
    return replace(chosen, layout=layout, dtype=s.dtype.name)


def _head(s: Signature, labels: Sequence[str], task: str) -> Boxes | None:
    if len(s.shape) != 3 or s.dtype.name not in FLOATS:
        return None
    _, first, second = s.shape
    if second == FOUND and (task == "detect" or "det" in s.name.lower() or (isinstance(first, int) and first >= FEWEST)):
        return Boxes(layout="rows", format="xyxy", normalized=None, labels=labels)
    if task and task not in ("detect", "segment"):
        return None
    if _candidates(second, first) and _classes(first, 4, labels, task):
        return Boxes(layout="yolo", format="cxcywh", normalized=None, labels=labels)
    if _candidates(first, second) and _classes(second, 5, labels, task):
        return Boxes(layout="objectness", format="cxcywh", normalized=None, labels=labels)
    if _candidates(first, second) and _classes(second, 4, labels, task):
        return Boxes(layout="rows", format="cxcywh", normalized=None, labels=labels)
    return None


def _candidates(count: Any, parts: Any) -> bool:
    return isinstance(parts, int) and (not isinstance(count, int) or (count >= FEWEST and count >= 3 * parts))


def _classes(parts: Any, before: int, labels: Sequence[str], task: str) -> bool:
    """Whether so many numbers are a box with its classes: as many as there are labels, or plausible where a detector is plain."""
    if not isinstance(parts, int) or not before < parts <= before + MOST_CLASSES:
        return False
    if labels:
        return parts - before == len(labels) or (task == "segment" and parts - before == len(labels) + 32)
    return task == "detect" or parts - before in (1, 20, 80, 91)


def _split(outputs: Sequence[Signature], labels: Sequence[str]) -> tuple[dict[str, Boxes], set[str]] | None:
    def named(words: Sequence[str], *last: int) -> Signature | None:
        fits = [s for s in outputs if any(w in s.name.lower() for w in words) and (not last or s.shape[-1:] == last)]
        return fits[0] if len(fits) == 1 else None

    boxes = named(("box",), 4)
    scores = named(("score", "prob", "conf", "logit"))
    if boxes is None or scores is None or boxes is scores or len(boxes.shape) not in (2, 3):
        return None
    classes = named(("class", "label")) if len(scores.shape) < len(boxes.shape) else None
    taken = {s.name for s in (scores, classes, named(("num_det", "num_box", "valid_det"))) if s is not None and s is not boxes}
    tensorflow, transformer = boxes.name.startswith("detection_boxes"), "pred_boxes" in boxes.name
    return {
        boxes.name: Boxes(
            layout="split",
            format="yxyx" if tensorflow else "cxcywh" if transformer else "xyxy",
            scores=scores.name,
            classes=classes.name if classes else None,
            normalized=True if tensorflow or transformer else None,
            background="last" if transformer else "first" if len(scores.shape) == 3 and not classes else None,
            labels=labels,
        )
    }, taken


__all__ = ["completed", "detector"]
