"""Messages between kernel and page as frames of JSON and bytes: ``WIRE.md``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..dtypes import DType, from_numpy, to_numpy
from ..onnxfile.strings import decode as decode_strings
from ..onnxfile.strings import encode as encode_strings
from ..onnxfile.tensor import pack, unpack

VERSION = 1
FRAME_BYTES = 8 << 20  # of one frame to the page
MAX_FRAME_BYTES = 16 << 20
MAX_BYTES = 4 << 30
MAX_TENSORS = 4096
WINDOW = 4
KINDS = frozenset(("hello", "who", "ping", "pong", "bye", "call", "result", "error", "progress", "ack", "cancel"))
CARRIERS = frozenset(("call", "result"))


class WireError(ValueError):
    """A frame that cannot be taken; the text says what is wrong with it."""


@dataclass(frozen=True)
class Tensor:
    """A tensor on the wire: ``data`` are its packed little-endian bytes, row-major; of strings their spans, then the pool."""

    name: str
    dtype: DType
    dims: tuple[int, ...]
    data: memoryview

    @classmethod
    def of(cls, array: np.ndarray, name: str = "", dtype: DType | None = None, what: str = "tensor") -> Tensor:
        """A numpy array as it travels; without a copy where it is contiguous."""
        if dtype is DType.string or (dtype is None and array.dtype.kind in "OUS"):
            spans, pool = encode_strings(array, f"{what} {name!r}")
            return cls(name, DType.string, array.shape, memoryview(spans.tobytes() + pool.tobytes()))
        dtype = dtype or from_numpy(array.dtype)
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
        flat = array.reshape(-1).view(np.uint8)
        return cls(name, dtype, array.shape, (pack(flat, dtype.bits) if dtype.bits < 8 else flat).data)

    @classmethod
    def of_bytes(cls, data: Any, name: str = "") -> Tensor:
        """Plain bytes as a tensor of uint8."""
        view = memoryview(data).cast("B")
        return cls(name, DType.uint8, (len(view),), view)

    def numpy(self) -> np.ndarray:
        """The contents, shaped and writeable; elements below 8 bits come one per byte."""
        data = self.data if not self.data.readonly else bytearray(self.data)
        flat = np.frombuffer(data, np.uint8)
        if self.dtype is DType.string:
            spans, pool = np.split(flat, [8 * math.prod(self.dims)])
            return decode_strings(spans.view(np.int64).reshape(self.dims), pool, f"tensor {self.name!r}")
        if self.dtype.bits < 8:
            return unpack(flat, self.dtype.bits, math.prod(self.dims)).reshape(self.dims)
        return flat.view(to_numpy(self.dtype)).reshape(self.dims)


@dataclass(frozen=True)
class Message:
    """What one side says to the other, whole. Which fields mean something depends on ``kind``."""

    kind: str
    id: str
    peer: str = ""
    op: str = ""
    json: Any = None
    tensors: Sequence[Tensor] = ()
    error: tuple[str, str] | None = None  # name, message
    seq: int = 0
    nbytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", sum(len(t.data) for t in self.tensors))


Frame = tuple[dict[str, Any], list[memoryview]]


def encode(message: Message, frame_bytes: int = FRAME_BYTES) -> Iterator[Frame]:
    """The frames of a message; buffers are views of its tensors."""
    head: dict[str, Any] = {"v": VERSION, "kind": message.kind, "id": message.id, "peer": message.peer}
    if message.kind not in CARRIERS:
        if message.kind in ("progress", "hello"):
            head["json"] = message.json
        if message.kind in ("ping", "pong") and message.json is not None:
            head["json"] = message.json
        if message.error is not None:
            head["error"] = {"name": message.error[0], "message": message.error[1]}
        if message.kind == "ack":
            head["seq"] = message.seq
        yield head, []
        return
    first = {"json": message.json, "tensors": _rows(message.tensors)}
    if message.kind == "call":
        first["op"] = message.op
    pieces = list(_pieces(message.tensors, frame_bytes)) or [[]]
    for seq, piece in enumerate(pieces):
        yield {**head, "seq": seq, "last": seq == len(pieces) - 1, **(first if seq == 0 else {})}, piece


def _rows(tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
    rows, offset = [], 0
    for t in tensors:
        rows.append({"name": t.name, "dtype": t.dtype.name, "dims": list(t.dims), "offset": offset, "length": len(t.data)})
        offset += len(t.data)
    return rows


def _pieces(tensors: Sequence[Tensor], most: int) -> Iterator[list[memoryview]]:
    piece: list[memoryview] = []
    room = most
    for t in tensors:
        at = 0
        while at < len(t.data):
            piece.append(t.data[at : at + room])
            at += len(piece[-1])
            room -= len(piece[-1])
            if room == 0:
                yield piece
                piece, room = [], most
    if piece:
        yield piece


class Assembler:
    """Puts the frames of many messages together, each in its order."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str, str], _Stream] = {}

    def push(self, header: Any, buffers: Sequence[Any]) -> Message | None:
        """Takes a frame; returns the message that it completes.

        Raises:
            WireError: the frame is not as WIRE.md says; the message it belongs to is given up.
        """
        head = _Header(header)
        views = [memoryview(b).cast("B") for b in buffers]
        if head.kind not in CARRIERS:
            if views:
                raise WireError(f"{head.kind} {head.id!r} carries {len(views)} buffers, it takes none")
            return head.message()
        key = (head.peer, head.id, head.kind)
        stream = self._streams.pop(key, None)
        seq, last = head.integer("seq"), head.get("last", bool)
        expected = stream.seq if stream else 0
        if seq != expected:
            raise WireError(f"frame {seq} of {head.kind} {head.id!r} came where frame {expected} was expected")
        stream = stream or _Stream(head.message(), head.rows(), views if last else None)
        stream.take(views, last)
        if last:
            return stream.message()
        self._streams[key] = stream
        return None

    def arriving(self, peer: str) -> set[str]:
        """Ids of calls of which something came, but not all."""
        return {key[1] for key in self._streams if key[0] == peer}

    def drop(self, peer: str, id: str | None = None) -> None:
        """Forgets what came of a call, or of everything from a page."""
        for key in [k for k in self._streams if k[0] == peer and id in (None, k[1])]:
            del self._streams[key]


class _Stream:
    """A message under way; ``whole`` are its buffers if one frame is all of it."""

    def __init__(self, start: Message, rows: list[tuple[str, DType, tuple[int, ...], int]], whole: list[memoryview] | None) -> None:
        self.start, self.rows, self.seq = start, rows, 0
        lengths = [row[3] for row in rows]
        self.total, self.have = sum(lengths), 0
        self.data: Sequence[memoryview | bytearray] | None = None
        if whole is not None:
            parts = iter(whole)
            empty = memoryview(b"")
            if [len(p) for p in whole] == [n for n in lengths if n]:
                self.data = [next(parts) if n else empty for n in lengths]
        self.ready = self.data is not None
        if self.data is None:
            self.data = [bytearray() for _ in lengths]  # they grow as bytes arrive, whatever the header says
        self.tensor = 0

    def take(self, views: list[memoryview], last: bool) -> None:
        name = f"{self.start.kind} {self.start.id!r}"
        got = sum(map(len, views))
        if got > MAX_FRAME_BYTES:
            raise WireError(f"frame {self.seq} of {name} has {got} bytes; at most {MAX_FRAME_BYTES} are taken")
        self.have += got
        if self.have > self.total or (last and self.have < self.total):
            raise WireError(f"{name} has {self.have} bytes, its tensors need {self.total}")
        if not last and not got:
            raise WireError(f"frame {self.seq} of {name} is empty")
        self.seq += 1
        if not self.ready:
            for view in views:
                self._fill(view)

    def _fill(self, view: memoryview) -> None:
        assert self.data is not None
        while view:
            target, length = self.data[self.tensor], self.rows[self.tensor][3]
            assert isinstance(target, bytearray)
            count = min(len(view), length - len(target))
            target += view[:count]
            view = view[count:]
            if len(target) == length:
                self.tensor += 1

    def message(self) -> Message:
        assert self.data is not None
        tensors = [Tensor(name, dtype, dims, memoryview(data)) for (name, dtype, dims, _), data in zip(self.rows, self.data, strict=True)]
        s = self.start
        return Message(s.kind, s.id, s.peer, s.op, s.json, tensors)


class _Header:
    """The checked header of a frame."""

    def __init__(self, header: Any) -> None:
        if not isinstance(header, Mapping):
            raise WireError(f"a frame's header must be an object, not {type(header).__name__}")
        self.header = header
        if header.get("v") != VERSION or isinstance(header.get("v"), bool):
            raise WireError(
                f"the frame has wire version {header.get('v')!r}, this side speaks {VERSION}: reload the page, restart the kernel"
            )
        self.kind, self.id, self.peer = self.get("kind", str), self.get("id", str), self.get("peer", str)
        if self.kind not in KINDS:
            raise WireError(f"unknown kind of frame {self.kind[:40]!r}")
        if not 0 < len(self.id) <= 128 or len(self.peer) > 128:
            raise WireError("id and peer must be short texts")

    def get(self, key: str, kind: type, of: Mapping[str, Any] | None = None) -> Any:
        value = (self.header if of is None else of).get(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            said = {str: "text", int: "an integer >= 0", bool: "true or false", list: "a list", dict: "an object"}[kind]
            raise WireError(f"field {key!r} must be {said}")
        return value

    def integer(self, key: str, of: Mapping[str, Any] | None = None) -> int:
        value: int = self.get(key, int, of)
        if not 0 <= value <= 2**53:
            raise WireError(f"field {key!r} must be an integer >= 0")
        return value

    def message(self) -> Message:
        error = None
        if self.kind == "error":
            row = self.get("error", dict)
            error = (self.get("name", str, row), self.get("message", str, row))
        op = self.get("op", str) if self.kind == "call" and self.header.get("seq") == 0 else ""
        seq = self.integer("seq") if self.kind == "ack" else 0
        return Message(self.kind, self.id, self.peer, op, self.header.get("json"), (), error, seq)

    def rows(self) -> list[tuple[str, DType, tuple[int, ...], int]]:
        rows, offset = [], 0
        given = self.get("tensors", list)
        if len(given) > MAX_TENSORS:
            raise WireError(f"{len(given)} tensors in one message; at most {MAX_TENSORS} are taken")
        for k, row in enumerate(given):
            if not isinstance(row, Mapping):
                raise WireError(f"tensor {k} must be an object")
            name, dtype = self.get("name", str, row), self.get("dtype", str, row)
            if dtype not in DType.__members__:
                raise WireError(f"tensor {name!r} has dtype {dtype[:40]!r}, which does not travel")
            dims = self.get("dims", list, row)
            if any(not isinstance(d, int) or isinstance(d, bool) or not 0 <= d <= 2**53 for d in dims):
                raise WireError(f"tensor {name!r}: dims must be integers >= 0")
            length = self.integer("length", row)
            if length < 8 * math.prod(dims) if DType[dtype] is DType.string else length != DType[dtype].nbytes(math.prod(dims)):
                raise WireError(f"tensor {name!r}: {dims} of {dtype} is not {length} bytes")
            if self.integer("offset", row) != offset:
                raise WireError(f"tensor {name!r} lies at {row['offset']}, not at {offset} behind the one before it")
            rows.append((name, DType[dtype], tuple(dims), length))
            offset += length
        if offset > MAX_BYTES:
            raise WireError(f"{offset} bytes in one message; at most {MAX_BYTES} are taken")
        return rows
