"""Pictures: decoded by the host, with Pillow in Python and by the browser in a page."""

from __future__ import annotations

from ..callbacks import Callback
from ..dtypes import DType
from ..ir import Graph, IRError, Value
from ..pictures import FORMATS
from ..registry import op
from .callbacks import call


@op(since=20)
def ImageDecoder(encoded_stream: Value, *, pixel_format: str = "RGB") -> Value:
    """Pixels [height, width, channels] of a file's bytes."""
    if pixel_format not in FORMATS:
        raise IRError(f"pixel_format {pixel_format!r} is not one of {', '.join(FORMATS)}")
    if encoded_stream.dtype is not DType.uint8 or encoded_stream.rank != 1:
        raise IRError(f"the encoded picture is {encoded_stream}, it must be uint8 of rank 1")
    callback = Callback("", "ImageDecoder", Graph.current().origin, (True,), {"pixel_format": pixel_format})
    (pixels,) = call(callback, [encoded_stream], [(DType.uint8, [None] * 3)])
    return pixels
