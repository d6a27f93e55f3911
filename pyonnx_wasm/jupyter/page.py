"""A playground as one page that needs nothing else: the model, the core and the widget's script lie in its text."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from .. import __version__
from . import feed
from .bridge import script

TEMPLATE = Path(__file__).with_name("page.html")
PIECE = 12 << 20  # characters of one element: browsers bound the length of a text
LEAST = 1 << 24  # files larger than this are compressed in haste: weights hardly shrink
LARGEST = 1 << 30


def pieces(spec: Mapping[str, Any], model: feed.Blob, files: Mapping[str, bytes], title: str, text: str) -> Iterator[str]:
    """The page's text, in pieces. Names and texts of the model are text in it, never markup.

    Raises:
        ValueError: the model is too large for a page.
    """
    if model.nbytes > LARGEST:
        raise ValueError(f"the model has {model.nbytes:,} bytes; a page holds at most {LARGEST:,}: serve it beside one")
    sources = {model.sha256: model, **{name: feed.asset(name) for name in feed.ASSETS}}
    sources |= {name: feed.Blob(feed.Bytes(data)) for name, data in files.items()}
    filled: dict[str, Iterator[str]] = {
        "GENERATOR": iter([f"pyonnx_wasm {__version__}"]),
        "TEXT": iter([f"<p>{escape(text)}</p>\n" if text else ""]),
        "SIZE": iter([f"A model of {_size(model.nbytes)}"]),
        "SPEC": iter([json.dumps(dict(spec)).replace("<", "\\u003c")]),
        "FILES": (piece for name, blob in sources.items() for piece in _file(name, blob)),
        "SCRIPT": iter([script("playground").replace("</script", "<\\/script").replace("<!--", "<\\!--")]),
    }
    head, *rest = TEMPLATE.read_text(encoding="utf-8").split("{{")
    yield head
    for part in rest:
        name, _, tail = part.partition("}}")
        yield from [escape(title)] if name == "TITLE" else filled[name]
        yield tail


def _file(name: str, blob: feed.Blob) -> Iterator[str]:
    """A file as elements of base64 text, compressed with gzip."""
    head = f'<script type="application/octet-stream" data-file="{escape(name)}" data-bytes="{blob.nbytes}">'
    waiting = bytearray()
    most = PIECE // 4 * 3
    for data in _compressed(blob):
        waiting += data
        while len(waiting) >= most:
            yield f"{head}{base64.b64encode(waiting[:most]).decode()}</script>\n"
            del waiting[:most]
    yield f"{head}{base64.b64encode(waiting).decode()}</script>\n"


def _compressed(blob: feed.Blob) -> Iterator[bytes]:
    packer = zlib.compressobj(1 if blob.nbytes > LEAST else 9, wbits=31)
    for start in range(0, blob.nbytes, feed.STEP):
        for tensor in blob.read(start, min(start + feed.STEP, blob.nbytes)):
            yield packer.compress(tensor.data)
    yield packer.flush()


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 1e6 else f"{nbytes / 1e3:.0f} KB"
