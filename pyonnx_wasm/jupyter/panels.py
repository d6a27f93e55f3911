"""How a playground shows a model's inputs and outputs: declared, or chosen from the signature."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from ..program import Signature
from .preprocess import Preprocess

FLOATS = ("float32", "float16", "float64", "bfloat16")
WIDEST_TABLE = 32
ROLES = {
    "ids": ("input_ids", "ids", "tokens", "token_ids"),
    "mask": ("attention_mask", "mask", "input_mask"),
    "types": ("token_type_ids", "segment_ids"),
    "positions": ("position_ids",),
}
# Keeps a file and gives the name by which the page asks for it.
Keep = Callable[[str, bytes], str]


@dataclass(frozen=True)
class Panel:
    """What shows an input or an output. ``inputs`` and ``output`` name what it serves; they are filled in by the playground."""

    kind: ClassVar[str]

    def spec(self, keep: Keep) -> dict[str, Any]:
        """The declaration as JSON, which the browser reads."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Image(Panel):
    """A picture in.

    Attributes:
        preprocess: from pixels to the tensor; None: to the model's size, values from 0 to 1.
        sources: what is offered, of ``file`` (also drop and paste), ``camera`` and ``draw``; the drawing area comes first if it is there.
        examples: paths, bytes, or Pillow images, by name or in a list.
    """

    kind = "image"
    preprocess: Preprocess | None = None
    sources: Sequence[Literal["file", "camera", "draw"]] = ("file", "camera")
    examples: Mapping[str, Any] | Sequence[Any] = ()

    def spec(self, keep: Keep) -> dict[str, Any]:
        assert self.preprocess is not None
        named = self.examples if isinstance(self.examples, Mapping) else {_name(e, i): e for i, e in enumerate(self.examples)}
        examples = [{"name": str(name), "asset": keep(f"example {name}", _encoded(e))} for name, e in named.items()]
        return {"kind": "image", "preprocess": self.preprocess.spec(), "sources": list(self.sources), "examples": examples}


@dataclass(frozen=True)
class Text(Panel):
    """Text in, or out.

    Attributes:
        tokenizer: path of a Hugging Face ``tokenizer.json`` or of its folder, its contents as bytes or dict, or a tokenizer of
            ``tokenizers`` or ``transformers``.
        value: the text to begin with. examples: texts to choose from.
        max_length: tokens beyond it are cut, but for the last.
        pad: id that fills up inputs of fixed length.
    """

    kind = "text"
    tokenizer: Any = None
    value: str = ""
    examples: Sequence[str] = ()
    max_length: int = 512
    pad: int | None = None

    def spec(self, keep: Keep) -> dict[str, Any]:
        if self.tokenizer is None:
            raise ValueError('text needs a tokenizer: give the path of its tokenizer.json, as in Text(tokenizer="tokenizer.json")')
        return {**asdict(replace(self, tokenizer=None)), "kind": "text", "tokenizer": keep("tokenizer", _contents(self.tokenizer))}


def _number(value: Any, column: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"a table holds numbers: column {column!r} has {value!r}; turn it into numbers first") from None


@dataclass(frozen=True)
class Table(Panel):
    """A table of numbers, in or out: ``columns`` are names; ``rows`` what an input begins with. A pandas data frame may be its ``rows``."""

    kind = "table"
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        if hasattr(self.rows, "columns"):
            object.__setattr__(self, "columns", self.columns or [str(c) for c in self.rows.columns])
            object.__setattr__(self, "rows", self.rows.to_numpy().tolist())  # type: ignore[attr-defined]

    def spec(self, keep: Keep) -> dict[str, Any]:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row of a table of {len(self.columns)} columns has another count of values")
        rows = [[_number(v, c) for c, v in zip(self.columns, row, strict=True)] for row in self.rows]
        return {"kind": "table", "columns": [str(c) for c in self.columns], "rows": rows}


@dataclass(frozen=True)
class Slider(Panel):
    """One number in."""

    kind = "slider"
    min: float = 0
    max: float = 1
    step: float = 0.01
    value: float = 0


@dataclass(frozen=True)
class Tensor(Panel):
    """Any tensor: in, filled with zeros, ones, random values of a seed or from a .npy file; out, its figures, histogram and first slice."""

    kind = "tensor"
    fill: Literal["zeros", "ones", "random", "file"] = "random"
    seed: int = 0


@dataclass(frozen=True)
class Audio(Panel):
    """Sound in, one channel: [..., samples], of which a fixed count is filled with silence or cut.

    Attributes:
        rate: samples a second that the model takes; files and recordings are resampled.
        scale: samples lie between -1 and 1 before it: 32768 for models of 16-bit samples.
        sources: what is offered, of ``file`` (also drop) and ``microphone``.
    """

    kind = "audio"
    rate: int = 16_000
    scale: float = 1
    sources: Sequence[Literal["file", "microphone"]] = ("file", "microphone")


@dataclass(frozen=True)
class Sound(Panel):
    """Sound out, with samples between -1 and 1: its wave, and a player; ``rate`` are samples a second."""

    kind = "sound"
    rate: int = 16_000


@dataclass(frozen=True)
class TopK(Panel):
    """The ``k`` greatest values with their labels; ``activation`` ``auto`` takes probabilities as they are and others through softmax."""

    kind = "topk"
    labels: Sequence[str] = ()
    k: int = 5
    activation: Literal["auto", "none", "softmax", "sigmoid"] = "auto"


@dataclass(frozen=True)
class Picture(Panel):
    """A picture out; ``range`` are the values of black and white, None: guessed from them."""

    kind = "image"
    range: tuple[float, float] | None = None
    layout: Literal["NCHW", "NHWC"] = "NCHW"


@dataclass(frozen=True)
class HeatMap(Panel):
    """The last two axes in colours; of several channels the greatest's number, as of a segmentation; int64 and int32
    without a ``range`` are such numbers. ``overlay`` lays it on the picture."""

    kind = "heatmap"
    range: tuple[float, float] | None = None
    overlay: bool = False
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Boxes(Panel):
    """What a detector finds, drawn on the picture; boxes of a class that overlap a better one by more than ``iou`` are left out.

    Attributes:
        layout: ``yolo``: [1, 4 + classes, n]; ``rows``: [1, n, 4 + score + class] or [1, n, 4 + classes]; ``objectness``: [1, n, 4 +
            objectness + classes], whose product is the score; ``split``: [1, n, 4]. Without the first axis, too.
        format: what the four numbers are: ``cxcywh`` has the centre first.
        scores, classes: for ``split``, the outputs that hold them: [1, n] or [1, n, classes], and [1, n].
        background: for scores [1, n, classes] that have a class for nothing, where it is; they go through softmax unless they are shares.
        normalized: from 0 to 1, rather than pixels of the model's input; None: told from the numbers.
        threshold: least score shown at first; limit: most boxes shown.
    """

    kind = "boxes"
    layout: Literal["yolo", "rows", "objectness", "split"] = "yolo"
    format: Literal["xyxy", "xywh", "cxcywh", "yxyx"] = "cxcywh"
    scores: str | None = None
    classes: str | None = None
    background: Literal["first", "last"] | None = None
    normalized: bool | None = False
    threshold: float = 0.25
    iou: float = 0.5
    limit: int = 100
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Choices:
    """What :func:`choose` is given: panels by name, and what fills in the others."""

    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Panel | Sequence[Panel]] = field(default_factory=dict)
    preprocess: Preprocess | None = None
    labels: Sequence[str] = ()
    tokenizer: Any = None
    examples: Mapping[str, Any] | Sequence[Any] = ()
    boxes: Mapping[str, Boxes] = field(default_factory=dict)
    """By output, where a detector was recognised."""
    hidden: Collection[str] = ()
    """Outputs that others show."""


def choose(inputs: Sequence[Signature], outputs: Sequence[Signature], given: Choices, keep: Keep) -> tuple[list[Any], list[Any]]:
    """The panels' declarations, for inputs and for outputs.

    Raises:
        ValueError: a panel is for a name that the model does not have, or does not suit its tensor.
    """
    for kind, names, known in (("input", given.inputs, inputs), ("output", given.outputs, outputs)):
        for name in names:
            if name not in [s.name for s in known]:
                raise ValueError(f"the model has no {kind} {name!r}; it has {', '.join(repr(s.name) for s in known)}")
    texts = _text(inputs, given)
    panels = [{**p.spec(keep), "inputs": list(roles), "roles": roles} for p, roles in texts]
    taken = {name for _, roles in texts for name in roles}
    for s in inputs:
        if s.name not in taken:
            panels.append({**_input(s, given).spec(keep), "inputs": [s.name], **_extra(s)})
    images = any(p["kind"] == "image" for p in panels)
    shown = [s for s in outputs if s.name in given.outputs or s.name not in given.hidden]
    shows = [{**p.spec(keep), "output": s.name} for s in shown for p in _outputs(s, given, images)]
    return panels, shows


def _input(s: Signature, given: Choices) -> Panel:
    panel = given.inputs.get(s.name)
    image = isinstance(panel, Image) or (panel is None and picture_layout(s) is not None)
    if image:
        chosen = panel if isinstance(panel, Image) else Image(examples=given.examples)
        return replace(chosen, preprocess=_preprocess(s, chosen.preprocess or given.preprocess))
    if panel is None:
        panel = _guess(s)
    elif not isinstance(panel, Panel) and hasattr(panel, "to_numpy"):
        panel = Table(rows=panel)
    if isinstance(panel, Table) and not panel.columns:
        width = s.shape[1] if len(s.shape) == 2 else None
        if not isinstance(width, int):
            raise ValueError(f"input {s.name!r} takes {list(s.shape)}: name the columns of its table")
        panel = replace(panel, columns=[str(i + 1) for i in range(width)])
    if isinstance(panel, Table) and not panel.rows:
        rows = s.shape[0] if isinstance(s.shape[0], int) else 1
        panel = replace(panel, rows=[[0.0] * len(panel.columns)] * rows)
    return panel


def _guess(s: Signature) -> Panel:
    if all(d == 1 for d in s.shape):
        return Slider() if s.dtype.name in FLOATS else Slider(max=1 if s.dtype.name == "bool" else 10, step=1)
    if len(s.shape) == 2 and s.dtype.name in FLOATS and isinstance(s.shape[1], int) and 0 < s.shape[1] <= WIDEST_TABLE:
        return Table()
    role = role_of(s.name)
    return Tensor(fill="ones" if role == "mask" else "random" if s.dtype.name in FLOATS or role == "ids" else "zeros")


def role_of(name: str) -> str | None:
    """What an input of a language model is for, by its name: a key of ``ROLES``."""
    return next((role for role, names in ROLES.items() if name.rsplit(".", 1)[-1] in names), None)


def picture_layout(s: Signature) -> str | None:
    """``NCHW`` or ``NHWC`` for what looks like pictures: rank 4, with 1 or 3 channels."""
    if len(s.shape) != 4 or s.dtype.name not in (*FLOATS, "uint8") or s.dtype.name == "bfloat16":
        return None
    if s.shape[1] in (1, 3):
        return "NCHW"
    return "NHWC" if s.shape[3] in (1, 3) else None


def class_map(s: Signature) -> bool:
    """Whether it looks like the number of a class for each pixel, as of a segmentation that ends in ArgMax."""
    return s.dtype.name in ("int64", "int32") and (len(s.shape) == 3 or (len(s.shape) == 4 and s.shape[1] == 1))


def _preprocess(s: Signature, given: Preprocess | None) -> Preprocess:
    layout = picture_layout(s) or "NCHW"
    sizes = dict(zip(layout, s.shape, strict=True)) if len(s.shape) == 4 else {}
    chosen = given
    if chosen is None:
        height, width = ((d if isinstance(d, int) else 224) for d in (sizes.get("H", 224), sizes.get("W", 224)))
        chosen = Preprocess(
            resize=(height, width),
            fit="cover",
            layout=layout,
            color="L" if sizes.get("C") == 1 else "RGB",
            dtype=s.dtype.name,
            scale=1 if s.dtype.name == "uint8" else 1 / 255,
        )
    if chosen.dtype != s.dtype.name:
        raise ValueError(f"input {s.name!r} takes {s.dtype.name}, its Preprocess gives {chosen.dtype}")
    if len(chosen.layout) != len(s.shape):
        raise ValueError(f"input {s.name!r} takes {list(s.shape)}, its Preprocess gives {chosen.layout}")
    channels = dict(zip(chosen.layout, s.shape, strict=True)).get("C", 1)
    if isinstance(channels, int) and channels != chosen.channels:
        raise ValueError(f"input {s.name!r} takes {channels} channels, its Preprocess gives {chosen.channels}: set color")
    return chosen


def _extra(s: Signature) -> dict[str, Any]:
    first = s.shape[0] if s.shape else 1
    return {"batch": first if isinstance(first, int) else 1}


def _text(inputs: Sequence[Signature], given: Choices) -> list[tuple[Text, dict[str, str]]]:
    """Text panels with the inputs that each serves, and what each of those takes."""
    declared = {name: p for name, p in given.inputs.items() if isinstance(p, Text)}
    integers = [s for s in inputs if s.dtype.name in ("int64", "int32") and len(s.shape) in (1, 2) and s.name not in given.inputs]
    roles = {s.name: role for s in integers if (role := role_of(s.name)) is not None}
    if not declared and given.tokenizer is not None:
        ids = next((name for name, role in roles.items() if role == "ids"), None)
        if ids is None:
            raise ValueError(
                f"a tokenizer was given, but no input is called {' or '.join(ROLES['ids'])}: declare which, as inputs={{name: Text(...)}}"
            )
        texts = [e for e in given.examples if isinstance(e, str)] if not isinstance(given.examples, Mapping) else []
        declared = {ids: Text(given.tokenizer, value=texts[0] if texts else "", examples=texts)}
    if not declared:
        return []
    first, *others = [
        (replace(p, tokenizer=p.tokenizer if p.tokenizer is not None else given.tokenizer), {name: "ids"}) for name, p in declared.items()
    ]
    first[1].update({name: role for name, role in roles.items() if role != "ids"})
    return [first, *others]


def _outputs(s: Signature, given: Choices, images: bool) -> list[Panel]:
    declared = given.outputs.get(s.name)
    if declared is not None:
        panels = [declared] if isinstance(declared, Panel) else list(declared)
        return [_with_tokenizer(p, given) for p in panels]
    if s.name in given.boxes:
        return [given.boxes[s.name]]
    width = s.shape[-1] if s.shape else None
    if s.dtype.name in FLOATS and len(s.shape) in (1, 2) and isinstance(width, int) and width > 1 and (images or given.labels):
        return [TopK(labels=given.labels, k=min(5, width))]
    if picture_layout(s) and images:
        layout = picture_layout(s)
        return [HeatMap() if layout == "NCHW" and s.shape[1] == 1 else Picture(layout=layout)]  # type: ignore[arg-type]
    if images and len(s.shape) == 4 and s.dtype.name in FLOATS and isinstance(s.shape[1], int):
        return [HeatMap(overlay=True, labels=given.labels)]
    if images and class_map(s):
        return [HeatMap(overlay=True, labels=given.labels)]
    if len(s.shape) == 2 and isinstance(width, int) and width <= WIDEST_TABLE:
        return [Table(columns=given.labels if len(given.labels) == width else ())]
    return [Tensor()]


def _with_tokenizer(panel: Panel, given: Choices) -> Panel:
    if isinstance(panel, Text) and panel.tokenizer is None:
        return replace(panel, tokenizer=given.tokenizer)
    return panel


def _name(example: Any, index: int) -> str:
    return Path(example).stem if isinstance(example, (str, Path)) else f"{index + 1}"


def _contents(source: Any) -> bytes:
    source = getattr(source, "backend_tokenizer", source)  # transformers' fast tokenizers
    if hasattr(source, "to_str"):  # tokenizers' own
        return str(source.to_str()).encode()
    if hasattr(source, "vocab_size") or hasattr(source, "convert_tokens_to_ids"):
        raise ValueError(f"{type(source).__name__} is written in Python, which the page cannot run: load its fast form (use_fast=True)")
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        source = Path(source) / "tokenizer.json"
    if isinstance(source, Mapping):
        return json.dumps(source).encode()
    return bytes(source) if isinstance(source, (bytes, bytearray, memoryview)) else Path(source).read_bytes()


def _encoded(example: Any) -> bytes:
    """An example as an image file."""
    if hasattr(example, "save") or hasattr(example, "__array_interface__"):
        import io

        from PIL import Image as Pillow

        picture = example if hasattr(example, "save") else Pillow.fromarray(example)
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        return buffer.getvalue()
    return _contents(example)
