"""Decoders of pictures, for the operator that the host runs."""

from __future__ import annotations

from typing import Any

import numpy as np

FORMATS = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


def decode(stream: np.ndarray[Any, Any], *, pixel_format: str = "RGB") -> np.ndarray[Any, Any]:
    """Pixels [height, width, channels] of a file's bytes, with Pillow.

    Raises:
        ImportError: there is no Pillow.
        OSError: the bytes are no picture that it knows.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("pictures are decoded with Pillow: pip install 'pyonnx-wasm[image]'") from None
    import io

    with Image.open(io.BytesIO(stream.tobytes())) as picture:
        pixels = np.asarray(picture.convert(FORMATS[pixel_format]))
    if pixels.ndim == 2:
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels
