"""Serves files to pages, piece by piece, by content hash: the core and compiled models."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from ..program import Compiled
from ..program import file as ponnx
from .rpc import Reply, Request, Rpc
from .wire import MAX_FRAME_BYTES, Tensor

LIB = Path(__file__).resolve().parents[1] / "lib"
ASSETS = ("core.wasm", "core-relaxed.wasm")
STEP = 8 << 20
JOIN = 1 << 16  # pieces smaller than this are copied together, not sent one by one


class Source(Protocol):
    """What a blob is read from: a :class:`ponnx.Layout`, for one."""

    nbytes: int

    def read(self, start: int, end: int) -> Iterator[Any]: ...


class Blob:
    """A file that pages may read. It is served for as long as somebody holds it.

    Attributes:
        sha256: of the whole, in hex; pages keep the file under it.
        nbytes: its size.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.nbytes = source, source.nbytes
        digest = hashlib.sha256()
        for start in range(0, self.nbytes, STEP):
            for piece in source.read(start, min(start + STEP, self.nbytes)):
                digest.update(piece)
        self.sha256 = digest.hexdigest()
        with _lock:
            _blobs[self.sha256] = self

    @property
    def ref(self) -> dict[str, Any]:
        """What a page needs to fetch it."""
        return {"sha256": self.sha256, "bytes": self.nbytes}

    def read(self, start: int, end: int) -> list[Tensor]:
        """The bytes from ``start`` to ``end`` as tensors; long pieces are views of where they lie."""
        found: list[Tensor] = []
        small = bytearray()
        for piece in self.source.read(start, end):
            if len(piece) < JOIN:
                small += piece
                continue
            if small:
                found.append(Tensor.of_bytes(small))
                small = bytearray()
            found.append(Tensor.of_bytes(piece))
        return [*found, Tensor.of_bytes(small)] if small else found


_lock = threading.Lock()
_blobs: WeakValueDictionary[str, Blob] = WeakValueDictionary()


def model(compiled: Compiled) -> Blob:
    """A compiled model as a file: header and weights straight from where they are mapped."""
    return Blob(ponnx.layout(compiled))


@cache
def asset(name: str) -> Blob:
    """A file of the package.

    Raises:
        LookupError: there is no such asset, or it is not built.
    """
    if name not in ASSETS:
        raise LookupError(f"there is no asset {name!r}")
    for path in (LIB / "player" / name, LIB / name):
        if path.is_file():
            return Blob(Bytes(path.read_bytes()))
    raise LookupError(f"{LIB / name} is missing: run `make build` in a checkout, or install a wheel")


def serve(rpc: Rpc) -> None:
    """Lets pages ask for ``asset`` (name → hash and size) and ``read`` (hash, start, end → bytes)."""
    rpc.handle("asset", lambda request: asset(str(_field(request, "name"))).ref)
    rpc.handle("read", _read)


def _read(request: Request) -> Reply:
    blob = _blobs.get(_field(request, "sha256"))
    start, end = _field(request, "start"), _field(request, "end")
    if blob is None:
        raise LookupError("the kernel has no such file any more: create the session again")
    if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end <= blob.nbytes and end - start <= MAX_FRAME_BYTES):
        raise ValueError(f"bytes {start} to {end} of a file of {blob.nbytes} cannot be read at once")
    return Reply(None, blob.read(start, end))


def _field(request: Request, key: str) -> Any:
    if not isinstance(request.json, dict) or key not in request.json:
        raise ValueError(f"{request.op} needs {key!r}")
    return request.json[key]


class Bytes:
    """Bytes in memory as a source."""

    def __init__(self, data: bytes) -> None:
        self.data, self.nbytes = memoryview(data), len(data)

    def read(self, start: int, end: int) -> Iterator[Any]:
        yield self.data[start:end]
