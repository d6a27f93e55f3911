"""Reads GGUF, versions 2 and 3: metadata, and tensors as byte ranges of the file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..dtypes import DType
from ..onnxfile.protobuf import ReadError
from ..onnxfile.tensor import Files, Tensor

if TYPE_CHECKING:
    from ..onnxfile.protobuf import Buffer

MAGIC = b"GGUF"
MAX_DEPTH, MAX_AXES, MAX_ELEMENTS = 8, 4, 1 << 40
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

#: Elements and bytes of a block, by the number that the file gives its type.
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 20: ("IQ4_NL", 32, 18),
    28: ("F64", 1, 8), 30: ("BF16", 1, 2),
}  # fmt: skip
PLAIN = {"F32": DType.float32, "F16": DType.float16, "F64": DType.float64, "BF16": DType.bfloat16}
_OTHERS = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


@dataclass(slots=True)
class Texts:
    """An array of strings, decoded when asked for."""

    spans: list[tuple[int, int]]
    _buffer: Buffer = field(repr=False)

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[str]:
        return (str(self._buffer[a:b], "utf-8", "replace") for a, b in self.spans)


@dataclass(slots=True)
class Blocks:
    """A tensor of the file.

    Attributes:
        kind: name of its block type: ``"Q4_0"``.
        shape: sizes, the slowest axis first; blocks lie along the last one.
        tensor: the elements, or of blocks the bytes ``[..., blocks, bytes of one]``.
    """

    kind: str
    shape: tuple[int, ...]
    tensor: Tensor


@dataclass(slots=True)
class File:
    """A GGUF file. Metadata values are int, float, bool, str, :class:`Texts` or lists of the numbers."""

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, Blocks]
    files: Files

    def number(self, key: str, default: float | None = None) -> float:
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ReadError(f"metadata {key!r} is {'missing' if value is None else repr(value)[:60]}; a number is needed")
        return value

    def count(self, key: str, default: int | None = None, most: int = 1 << 24) -> int:
        """A whole number from 1 to ``most``."""
        value = self.number(key, default)
        if value != int(value) or not 1 <= value <= most:
            raise ReadError(f"metadata {key!r} is {value}; 1 to {most} are supported")
        return int(value)


def read(source: str | os.PathLike[str] | bytes | memoryview) -> File:
    """Reads a file's metadata and finds its tensors.

    Raises:
        ReadError: the file is damaged or asks for what is not supported.
    """
    files = Files(os.fspath(source) if isinstance(source, str | os.PathLike) else source, None)
    buf = files.buffers[0]
    try:
        return _Reader(buf, files).file()
    except ReadError as error:
        files.close()
        shown = os.fspath(source) if isinstance(source, str | os.PathLike) else f"{len(buf)} bytes"
        message = f"{shown}: {error}"
    raise ReadError(message)


class _Reader:
    def __init__(self, buf: Buffer, files: Files) -> None:
        self.buf, self.end, self.files, self.pos, self.what = buf, len(buf), files, 0, "the header"

    def take(self, count: int) -> int:
        """Where ``count`` bytes begin; they are in the file."""
        start = self.pos
        if count > self.end - start:
            raise ReadError(f"byte {start}: {self.what} takes {count} bytes, the file ends at {self.end}; it is truncated or damaged")
        self.pos = start + count
        return start

    def scalar(self, code: str) -> Any:
        size = struct.calcsize(code)
        at = self.take(size)
        if code == "?":
            return self.buf[at] != 0
        return struct.unpack("<" + code, self.buf[at : at + size])[0]

    def span(self) -> tuple[int, int]:
        size = self.scalar("Q")
        start = self.take(size)
        return start, start + size

    def text(self) -> str:
        a, b = self.span()
        return str(self.buf[a:b], "utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth > MAX_DEPTH:
            raise ReadError(f"byte {self.pos}: {self.what} has type {kind}, which is not known, or nests too deep")
        inner, count = self.scalar("I"), self.scalar("Q")
        if inner in _SCALARS:
            code = _SCALARS[inner]
            at = self.take(count * struct.calcsize(code))
            return list(struct.unpack(f"<{count}{code}", self.buf[at : self.pos]))
        if count > (self.end - self.pos) // 8:
            raise ReadError(f"byte {self.pos}: {self.what} has {count} entries, more than the file has room for; it is damaged")
        if inner == _STRING:
            return Texts([self.span() for _ in range(count)], self.buf)
        return [self.value(inner, depth + 1) for _ in range(count)]

    def file(self) -> File:
        if bytes(self.buf[:4]) != MAGIC:
            raise ReadError("this is no GGUF file")
        self.take(4)
        version = self.scalar("I")
        if version in (2 << 24, 3 << 24):
            raise ReadError("a big-endian GGUF file; convert the model again on a little-endian machine")
        if version not in (2, 3):
            raise ReadError(f"GGUF version {version}; versions 2 and 3 are supported")
        tensors, entries = self.scalar("Q"), self.scalar("Q")
        for count, what, least in ((entries, "metadata entries", 13), (tensors, "tensors", 24)):
            if count > self.end // least:
                raise ReadError(f"{count} {what} are more than the file has room for; it is damaged")
        metadata: dict[str, Any] = {}
        for k in range(entries):
            self.what = f"metadata entry {k}"
            key = self.text()
            self.what = f"metadata {key!r}"
            if key in metadata:
                raise ReadError(f"metadata {key!r} is given twice")
            metadata[key] = self.value(self.scalar("I"))
        found: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        for k in range(tensors):
            self.what = f"the description of tensor {k}"
            name, spec = self.tensor()
            if name in found:
                raise ReadError(f"tensor {name!r} is described twice")
            found[name] = spec
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 8 or alignment & 7 or alignment > 1 << 20:
            raise ReadError(f"metadata 'general.alignment' is {alignment!r}; a multiple of 8 is needed")
        begin = -(-self.pos // alignment) * alignment
        return File(version, metadata, {n: self.located(n, begin, alignment, *spec) for n, spec in found.items()}, self.files)

    def tensor(self) -> tuple[str, tuple[str, tuple[int, ...], int, int]]:
        """Name, block type, shape, bytes and place behind the descriptions."""
        name = self.text()
        self.what = f"tensor {name!r}"
        axes = self.scalar("I")
        if axes > MAX_AXES:
            raise ReadError(f"tensor {name!r} has {axes} axes; {MAX_AXES} are supported")
        shape = tuple(self.scalar("Q") for _ in range(axes))[::-1]
        number, offset = self.scalar("I"), self.scalar("Q")
        if number not in TYPES:
            known = ", ".join(t for t, _, _ in TYPES.values())
            raise ReadError(f"tensor {name!r} has the block type {_OTHERS.get(number, number)}; {known} are supported")
        kind, per, size = TYPES[number]
        count = math.prod(shape)
        if not shape or min(shape) < 1 or count > MAX_ELEMENTS or shape[-1] % per:
            raise ReadError(f"tensor {name!r} has the impossible shape {list(shape)} for {kind} (blocks of {per})")
        return name, (kind, shape, count // per * size, offset)

    def located(self, name: str, begin: int, alignment: int, kind: str, shape: tuple[int, ...], nbytes: int, offset: int) -> Blocks:
        start = begin + offset
        if offset % alignment or start + nbytes > self.end:
            raise ReadError(
                f"tensor {name!r}: {kind} of shape {list(shape)} at bytes {start} to {start + nbytes}, the file ends at {self.end}"
                + (f"; places are multiples of {alignment}" if offset % alignment else "; it is truncated or damaged")
            )
        if kind in PLAIN:
            return Blocks(kind, shape, Tensor(name, PLAIN[kind], shape, nbytes, 0, start, self.buf))
        _, per, size = next(row for row in TYPES.values() if row[0] == kind)
        return Blocks(kind, shape, Tensor(name, DType.uint8, (*shape[:-1], shape[-1] // per, size), nbytes, 0, start, self.buf))
