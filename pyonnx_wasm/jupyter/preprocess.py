"""From a picture to a model's input, declared once and computed alike in Python and in the browser."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

Filter = Literal["nearest", "box", "bilinear", "bicubic", "lanczos"]
Fit = Literal["stretch", "cover", "contain"]
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocess:
    """The steps from 8-bit pixels to a tensor, in the order of the attributes.

    Sizes are resampled as Pillow does, in integers, so the browser's numbers equal Python's bit for bit.

    Attributes:
        trim: cut to what differs from the background (black, or white when inverted), with this margin as a share of the longer
            side, on a square; None: the whole picture.
        resize: (height, width), or the length that the shorter side gets; None: as it is.
        fit: for (height, width): ``stretch``, ``cover`` (the middle is kept) or ``contain`` (``fill`` around it).
        filter: Pillow's name of the resampling filter.
        fill: grey level, 0 to 255, around a picture that is contained, and behind transparent pixels.
        crop: (height, width) or side of the middle part that is kept.
        color: ``RGB``, ``BGR`` or ``L`` (luma by ITU-R 601, as Pillow's).
        invert: 255 - value.
        scale, mean, std: value * scale, then (value - mean) / std, per channel or one for all; computed in float64.
        layout: order of the axes, of N, C, H and W; without N there is no batch axis.
        dtype: of the tensor; integers are rounded half to even and clamped.
    """

    trim: float | None = None
    resize: int | tuple[int, int] | None = None
    fit: Fit = "stretch"
    filter: Filter = "bilinear"
    fill: int = 0
    crop: int | tuple[int, int] | None = None
    color: Literal["RGB", "BGR", "L"] = "RGB"
    invert: bool = False
    scale: float = 1 / 255
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    layout: str = "NCHW"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if sorted(self.layout.replace("N", "", 1)) not in (sorted("CHW"), sorted("HW")):
            raise ValueError(f"layout {self.layout!r}: an order of H, W, and where the tensor has them N and C, such as 'NCHW'")
        if "C" not in self.layout and self.color != "L":
            raise ValueError(f"layout {self.layout!r} has no channels: use color='L'")
        for name in ("mean", "std"):
            given = getattr(self, name)
            if not isinstance(given, (int, float)) and len(given) != self.channels:
                raise ValueError(f"{name} has {len(given)} values, {self.color} has {self.channels} channels")
        if 0 in np.atleast_1d(self.std):
            raise ValueError("std is 0: it divides the values")

    @property
    def channels(self) -> int:
        return 1 if self.color == "L" else 3

    @classmethod
    def imagenet(cls, size: int = 224, resize: int = 256, **changes: Any) -> Preprocess:
        """What torchvision's classifiers were trained with: shorter side to ``resize``, the middle, ImageNet's mean and std."""
        return replace(cls(resize=resize, crop=size, mean=_MEAN, std=_STD), **changes)

    @classmethod
    def letterbox(cls, height: int = 640, width: int = 640, **changes: Any) -> Preprocess:
        """What YOLO detectors take: contained in (height, width), grey around it, values from 0 to 1."""
        return replace(cls(resize=(height, width), fit="contain", fill=114), **changes)

    def pixels(self, image: Image.Image | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The 8-bit pixels after all geometry, [height, width, channels]; the layout, scale, mean and std come after."""
        picture = _opaque(image, self.fill)
        if self.trim is not None:
            picture = _trim(picture, self.trim, self.invert)
        if self.resize is not None:
            picture = self._resized(picture)
        if self.crop is not None:
            height, width = _pair(self.crop)
            picture = _middle(picture, height, width, self.fill)
        return np.asarray(picture)

    def _resized(self, picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        h, w = picture.shape[:2]
        if isinstance(self.resize, int):
            short = self.resize
            size = (short, max(1, int(short * w / h))) if h <= w else (max(1, int(short * h / w)), short)
            return _sample(picture, *size, self.filter)
        assert self.resize is not None
        height, width = self.resize
        if self.fit == "stretch":
            return _sample(picture, height, width, self.filter)
        ratio = (max if self.fit == "cover" else min)(height / h, width / w)
        size = max(1, int(h * ratio + 0.5)), max(1, int(w * ratio + 0.5))
        return _middle(_sample(picture, *size, self.filter), height, width, self.fill)

    def __call__(self, image: Image.Image | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The tensor of an image: a Pillow image, or uint8 [height, width], [height, width, 3] or [height, width, 4]."""
        values = self.pixels(image)
        if self.color == "L":
            r, g, b = (values[..., c].astype(np.int64) for c in range(3))
            values = ((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16)[..., None]
        elif self.color == "BGR":
            values = values[..., ::-1]
        scaled = (255 - values if self.invert else values).astype(np.float64) * self.scale
        scaled = (scaled - np.asarray(self.mean, np.float64)) / np.asarray(self.std, np.float64)
        dtype = np.dtype(self.dtype)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            scaled = np.clip(np.rint(scaled), limits.min, limits.max)
        tensor = scaled.astype(dtype)
        axes = {"H": 0, "W": 1, "C": 2}
        if "C" not in self.layout:
            tensor, axes = tensor[..., 0], {"H": 0, "W": 1}
        tensor = tensor.transpose([axes[a] for a in self.layout if a != "N"])
        return np.ascontiguousarray(np.expand_dims(tensor, self.layout.index("N")) if "N" in self.layout else tensor)

    def spec(self) -> dict[str, Any]:
        """The declaration as JSON, which the browser reads."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _opaque(image: Image.Image | np.ndarray[Any, Any], fill: int) -> np.ndarray[Any, Any]:
    """uint8 [height, width, 3]; transparent pixels lie on the fill."""
    if not isinstance(image, np.ndarray):
        from PIL import ImageOps

        upright = ImageOps.exif_transpose(image)
        image = np.asarray(upright.convert("RGBA"))
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)) or 0 in image.shape:
        raise ValueError(f"an image is uint8 [height, width] or [height, width, 1, 3 or 4], not {image.dtype} {list(image.shape)}")
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[2] == 1:
        image = np.repeat(image, 3, 2)
    if image.shape[2] == 3:
        return np.ascontiguousarray(image)
    color, alpha = image[..., :3].astype(np.int64), image[..., 3:].astype(np.int64)
    return ((color * alpha + fill * (255 - alpha) + 127) // 255).astype(np.uint8)


def _sample(picture: np.ndarray[Any, Any], height: int, width: int, kind: Filter) -> np.ndarray[Any, Any]:
    if picture.shape[:2] == (height, width):
        return picture
    from PIL import Image

    method = Image.Resampling[kind.upper()]
    if kind == "nearest":
        return np.asarray(Image.fromarray(picture).resize((width, height), method))
    # Each pass rounds, and which comes first differs between versions of Pillow.
    return np.asarray(Image.fromarray(picture).resize((width, picture.shape[0]), method).resize((width, height), method))


def _middle(picture: np.ndarray[Any, Any], height: int, width: int, fill: int) -> np.ndarray[Any, Any]:
    """The middle [height, width], with `fill` where the picture does not reach; an odd pixel goes to the right and below."""
    h, w = picture.shape[:2]
    out = np.full((height, width, 3), fill, np.uint8)
    top, left = (height - h) // 2, (width - w) // 2
    rows, columns = range(max(top, 0), min(top + h, height)), range(max(left, 0), min(left + w, width))
    if rows and columns:
        out[rows.start : rows.stop, columns.start : columns.stop] = picture[
            rows.start - top : rows.stop - top, columns.start - left : columns.stop - left
        ]
    return out


def _trim(picture: np.ndarray[Any, Any], margin: float, inverted: bool) -> np.ndarray[Any, Any]:
    """A square around the ink: pixels whose brightest (inverted: darkest) channel is past a quarter of the range."""
    ink = picture.min(2) < 192 if inverted else picture.max(2) > 63
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    if not len(rows):
        return picture
    top, bottom, left, right = int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1
    longer = max(bottom - top, right - left)
    side = longer + 2 * int(longer * margin + 0.5)
    return _middle(picture[top:bottom, left:right], side, side, 255 if inverted else 0)
