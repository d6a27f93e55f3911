"""What is known of a model beside its graph: labels, preprocessing, a tokenizer; in its metadata or in files where it lies.

The files are those of Hugging Face's repositories (``config.json``, ``preprocessor_config.json``, ``tokenizer.json``; the model may lie in
``onnx/`` below them) and lists of labels; the metadata are Ultralytics' (``names``, ``imgsz``, ``task``) and plain ones.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .preprocess import Fit, Preprocess

LABEL_FILES = ("labels.txt", "classes.txt", "synset.txt", "imagenet_classes.txt", "coco.names")
LABEL_KEYS = ("names", "id2label", "labels", "classes", "class_names")
FILTERS: dict[int, Any] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}  # Pillow's numbers
LARGEST = 16 << 20  # bytes of a file that is read for a hint


@dataclass(frozen=True)
class Hints:
    """What was found, and where.

    Attributes:
        labels: of classes, in order.
        preprocess: its steps without ``layout`` and ``dtype``, which are the model's.
        tokenizer: path of a ``tokenizer.json``.
        task: ``detect``, ``segment``, ``classify``, or "" where nobody says.
        found: for people: "labels in config.json".
    """

    labels: tuple[str, ...] = ()
    preprocess: Preprocess | None = None
    tokenizer: Path | None = None
    task: str = ""
    found: tuple[str, ...] = ()


def look(path: Path | None, metadata: Mapping[str, str]) -> Hints:
    """Reads metadata first, then files; what cannot be read is passed over, since it is only a hint."""
    hints = Hints(task=metadata.get("task", ""))
    for key in LABEL_KEYS:
        if not hints.labels and (labels := _labels(_literal(metadata.get(key, "")))):
            hints = replace(hints, labels=labels, found=(*hints.found, f"labels in the model's metadata ({key})"))
    if hints.task in ("detect", "segment") and (size := _size(_literal(metadata.get("imgsz", "")))):
        hints = replace(hints, preprocess=Preprocess.letterbox(*size))
    if path is None:
        return hints
    for folder in _folders(path):
        if not hints.labels:
            hints = _with_labels(hints, folder)
        config = _json(folder / "preprocessor_config.json")
        if hints.preprocess is None and isinstance(config, Mapping) and (found := preprocessing(config)):
            hints = replace(hints, preprocess=found, found=(*hints.found, "preprocessing in preprocessor_config.json"))
        if hints.tokenizer is None and (folder / "tokenizer.json").is_file():
            hints = replace(hints, tokenizer=folder / "tokenizer.json", found=(*hints.found, "tokenizer.json"))
    return hints


def preprocessing(config: Mapping[str, Any]) -> Preprocess | None:
    """What a ``preprocessor_config.json`` says of pictures; None if it is of something else.

    Raises nothing: steps that are no numbers are passed over.
    """
    if not {"image_mean", "do_resize", "do_rescale", "do_normalize", "size"} & set(config):
        return None
    steps: dict[str, Any] = {"filter": FILTERS.get(config.get("resample", 2), "bilinear")}
    if config.get("do_resize", True):
        steps |= _resize(config.get("size"))
    if config.get("do_center_crop") and (crop := _size(config.get("crop_size"))):
        steps["crop"] = crop
    scale = config.get("rescale_factor", 1 / 255)
    steps["scale"] = float(scale) if config.get("do_rescale", True) and isinstance(scale, (int, float)) else 1.0
    if config.get("do_normalize", "image_mean" in config):
        steps |= {"mean": _three(config.get("image_mean"), 0.0), "std": _three(config.get("image_std"), 1.0)}
    return Preprocess(**steps)


def _resize(size: Any) -> dict[str, Any]:
    if isinstance(size, Mapping) and isinstance(size.get("shortest_edge"), int):
        return {"resize": size["shortest_edge"]}
    pair = _size(size)
    fit: Fit = "stretch"
    return {"resize": pair, "fit": fit} if pair else {}


def _size(size: Any) -> tuple[int, int] | None:
    """(height, width) of an int, a pair, or ``{"height": .., "width": ..}``."""
    if isinstance(size, Mapping):
        size = (size.get("height"), size.get("width"))
    if isinstance(size, int):
        size = (size, size)
    if isinstance(size, (list, tuple)) and len(size) == 2 and all(isinstance(v, int) and v > 0 for v in size):
        return size[0], size[1]
    return None


def _three(values: Any, otherwise: float) -> Any:
    fits = isinstance(values, (list, tuple)) and len(values) == 3 and all(isinstance(v, (int, float)) for v in values)
    return tuple(float(v) for v in values) if fits else otherwise


def _with_labels(hints: Hints, folder: Path) -> Hints:
    config = _json(folder / "config.json")
    if isinstance(config, Mapping) and (labels := _labels(config.get("id2label"))) and not _numbered(labels):
        return replace(hints, labels=labels, found=(*hints.found, "labels in config.json"))
    for name in LABEL_FILES:
        lines = _text(folder / name).splitlines()
        if labels := tuple(line.strip() for line in lines if line.strip()):
            return replace(hints, labels=labels, found=(*hints.found, f"labels in {name}"))
    return hints


def _numbered(labels: Iterable[str]) -> bool:
    """Names that say nothing, as transformers makes them where nobody gave any."""
    return all(label == f"LABEL_{i}" for i, label in enumerate(labels))


def _labels(found: Any) -> tuple[str, ...]:
    """Of a list, or of a dict by number; gaps are filled with the number."""
    if isinstance(found, Mapping):
        try:
            numbered = {int(k): str(v) for k, v in found.items()}
        except (TypeError, ValueError):
            return ()
        most = max(numbered, default=-1) + 1
        return tuple(numbered.get(i, str(i)) for i in range(most)) if min(numbered, default=0) >= 0 and most <= 1 << 20 else ()
    return tuple(map(str, found)) if isinstance(found, (list, tuple)) else ()


def _literal(text: str) -> Any:
    """A value written as JSON, as Python, or as words between commas or line breaks."""
    if not text or len(text) > LARGEST:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    separator = "\n" if "\n" in text else ","
    return [word.strip() for word in text.split(separator) if word.strip()] if separator in text else None


def _folders(path: Path) -> list[Path]:
    folder = path.resolve().parent
    return [folder, folder.parent] if folder.name == "onnx" else [folder]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8") if path.is_file() and path.stat().st_size <= LARGEST else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path) or "null")
    except ValueError:
        return None
