"""Tensors of an ONNX file: located when the file is read, materialised when asked for."""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType, from_numpy, to_numpy
from .protobuf import BYTES, FIXED32, FIXED64, VARINT, Field, ReadError, repeated, scan, text, varints

if TYPE_CHECKING:
    from .protobuf import Buffer

MAX_ELEMENTS = 1 << 47
MAX_RANK = 32
MAX_DENSE_BYTES = 1 << 31

_FLOAT, _INT32, _STRING, _INT64, _RAW, _DOUBLE, _UINT64 = 4, 5, 6, 7, 9, 10, 11
_FIELD_NAMES = {_FLOAT: "float_data", _INT32: "int32_data", _STRING: "string_data", _INT64: "int64_data", _DOUBLE: "double_data",
                _UINT64: "uint64_data"}  # fmt: skip
_UNPACKED_WIRE = {_FLOAT: FIXED32, _INT32: VARINT, _STRING: BYTES, _INT64: VARINT, _DOUBLE: FIXED64, _UINT64: VARINT}
_FIELD_OF = {DType.float32: _FLOAT, DType.complex64: _FLOAT, DType.float64: _DOUBLE, DType.complex128: _DOUBLE, DType.int64: _INT64,
             DType.uint32: _UINT64, DType.uint64: _UINT64, DType.string: _STRING}  # fmt: skip
_INFERRED = {_FLOAT: DType.float32, _INT32: DType.int32, _STRING: DType.string, _INT64: DType.int64, _DOUBLE: DType.float64,
             _UINT64: DType.uint64}  # fmt: skip
_DTYPES = {int(d): d for d in DType}


@dataclass(slots=True, eq=False)
class Tensor:
    """A constant.

    Attributes:
        dtype: element type.
        shape: sizes, in elements.
        nbytes: bytes of the packed little-endian data; 0 for strings.
        file: which of ``Model.files`` holds the data; 0 is the model file.
        offset: where in that file the packed little-endian data begins, at any alignment; None when the data has to be
            decoded or computed.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    file: int = 0
    offset: int | None = None
    _buffer: Buffer = field(default=b"", repr=False)
    _decode: Callable[[], npt.NDArray[Any]] | None = field(default=None, repr=False)  # packed bytes, or an object array of strings

    @classmethod
    def of(cls, array: npt.ArrayLike, name: str = "") -> Tensor:
        """A tensor with the contents of a numpy array (objects: strings)."""
        data = np.asarray(array)
        if data.dtype.kind in "OU":
            return cls(name, DType.string, data.shape, 0, _decode=lambda: data.astype(object).reshape(-1))
        dtype = from_numpy(data.dtype)
        flat = np.ascontiguousarray(data, data.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
        packed = pack(flat, dtype.bits) if dtype.bits < 8 else flat
        return cls(name, dtype, data.shape, packed.size, _decode=lambda: packed)

    def raw(self) -> memoryview:
        """The packed little-endian bytes, as ONNX ``raw_data`` holds them; a view into the file where they are stored so."""
        if self.dtype is DType.string:
            raise ReadError(f"tensor {self.name!r} holds strings, which have no raw form; use numpy()")
        if self.offset is not None:
            return memoryview(self._buffer)[self.offset : self.offset + self.nbytes]
        return self._decode().data.cast("B") if self._decode and self.nbytes else memoryview(b"")

    def numpy(self) -> npt.NDArray[Any]:
        """The contents, shaped; a read-only view into the file where possible.

        bfloat16 and 8-bit floats come as bit patterns (``uint16``, ``uint8``), 2-, 4- and 6-bit types as one ``uint8`` per
        element without sign extension, strings as an object array of ``str``.
        """
        if self.dtype is DType.string:
            return self._decode().reshape(self.shape) if self._decode else np.empty(self.shape, object)
        if not self.nbytes:
            return np.empty(self.shape, to_numpy(self.dtype))
        if self.dtype.bits < 8:
            return unpack(np.frombuffer(self.raw(), np.uint8), self.dtype.bits, math.prod(self.shape)).reshape(self.shape)
        return np.frombuffer(self.raw(), to_numpy(self.dtype).newbyteorder("<")).reshape(self.shape)


@dataclass(slots=True, eq=False)
class SparseTensor:
    """A constant of which only ``values`` at ``indices`` (linear ``[n]``, or coordinates ``[n, rank]``) are not zero."""

    values: Tensor
    indices: Tensor
    dims: tuple[int, ...]

    def densify(self) -> Tensor:
        """The dense tensor; computed when its contents are asked for, where indices out of bounds raise :class:`ReadError`."""
        count = math.prod(self.dims)
        dtype, name = self.values.dtype, self.values.name
        if count * max(dtype.bits // 8, 1 if dtype.bits else 8) > MAX_DENSE_BYTES:
            raise ReadError(f"sparse tensor {name!r} of shape {self.dims} is too large to be made dense")
        return Tensor(name, dtype, self.dims, dtype.nbytes(count), _decode=self._dense)

    def _dense(self) -> npt.NDArray[Any]:
        name, values, indices = self.values.name, self.values.numpy().reshape(-1), self.indices.numpy()
        sizes = np.array(self.dims, np.int64)
        coordinates = indices if indices.ndim == 2 else indices.reshape(-1, 1)
        limits = sizes if indices.ndim == 2 else np.array([math.prod(self.dims)])
        bad = np.flatnonzero(((coordinates < 0) | (coordinates >= limits)).any(axis=1))
        if bad.size:
            raise ReadError(f"sparse tensor {name!r}: index {coordinates[bad[0]].tolist()} is outside its shape {list(self.dims)}")
        strides = np.array([math.prod(self.dims[i + 1 :]) for i in range(len(self.dims))], np.int64)
        linear = indices @ strides if indices.ndim == 2 else indices
        dense = np.full(math.prod(self.dims), "", object) if values.dtype == object else np.zeros(math.prod(self.dims), values.dtype)
        dense[linear] = values
        if values.dtype == object:
            return dense
        return pack(dense, self.values.dtype.bits) if self.values.dtype.bits < 8 else dense.view(np.uint8)


def unpack(packed: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """One byte per 2-, 4- or 6-bit element of a stream that is filled from the low bits up."""
    if bits == 6:
        groups = np.zeros((-(-packed.size // 3), 3), np.uint8)
        groups.reshape(-1)[: packed.size] = packed
        words = groups.astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32)
        return (words[:, None] >> np.arange(0, 24, 6, dtype=np.uint32) & 63).astype(np.uint8).reshape(-1)[:count]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes: npt.NDArray[np.uint8] = packed[:, None] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(-1)[:count]


def pack(codes: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """The inverse of :func:`unpack`."""
    group = 3 if bits == 6 else 1
    per = 8 * group // bits
    padded = np.zeros((-(-codes.size // per), per), np.uint32)
    padded.reshape(-1)[: codes.size] = codes & ((1 << bits) - 1)
    words = np.bitwise_or.reduce(padded << np.arange(0, 8 * group, bits, dtype=np.uint32), axis=1).astype("<u4")
    return np.ascontiguousarray(words.view(np.uint8).reshape(-1, 4)[:, :group]).reshape(-1)[: (codes.size * bits + 7) // 8]


class Files:
    """The model file and the external data files, mapped; file 0 is the model."""

    def __init__(
        self, source: str | bytes | memoryview, external: Mapping[str, bytes | memoryview] | None, replaced: Collection[str] = ()
    ) -> None:
        self.replaced = replaced
        self.external = {os.path.normpath(k): v for k, v in (external or {}).items()}
        self.path = source if isinstance(source, str) else None
        self.paths = [self.path or ""]
        self.buffers: list[Buffer] = [_open(source, source) if isinstance(source, str) else source]
        self._found: dict[str, int] = {}

    def close(self) -> None:
        """Unmaps the files; a map that arrays still look into goes when they do."""
        for buffer in self.buffers:
            if hasattr(buffer, "close"):
                with contextlib.suppress(BufferError):
                    buffer.close()

    def read_ahead(self, wanted: bool) -> None:
        """Whether touching a page of the model file loads its neighbours: no while indexing, which skips over the weights."""
        buffer = self.buffers[0]
        if hasattr(buffer, "madvise"):
            from mmap import MADV_NORMAL, MADV_RANDOM

            buffer.madvise(MADV_NORMAL if wanted else MADV_RANDOM)

    def find(self, location: str) -> int:
        """The number of an external data file."""
        number = self._found.get(location)
        if number is None:
            path, data = self._load(location)
            number = self._found[location] = len(self.paths)
            self.paths.append(path)
            self.buffers.append(data)
        return number

    def _load(self, location: str) -> tuple[str, Buffer]:
        shown = f"external data {location!r}"
        if not location or "\0" in location:
            raise ReadError(f"{shown} is no file name")
        if location[0] in "/\\" or re.match(r"[A-Za-z]:", location):
            raise ReadError(f"{shown} is an absolute path; it must be relative to the model's directory")
        if ".." in re.split(r"[/\\]", location):
            raise ReadError(f"{shown} leaves the model's directory; move the data beside the model and save it with a plain name")
        data = self.external.get(os.path.normpath(location))
        if data is not None:
            return location, data
        if self.path is None:
            raise ReadError(f"{shown} is needed: pass external={{{location!r}: bytes}} or read the model by its path")
        folder = os.path.dirname(self.path)
        path = os.path.join(folder, location)
        real = os.path.realpath(path)
        roots = {os.path.realpath(folder or "."), os.path.dirname(os.path.realpath(self.path))}
        if not any(real.startswith(os.path.join(root, "")) for root in roots):
            raise ReadError(f"{shown} is a link to {real}, outside the model's directory; put the file itself there")
        if not os.path.exists(real):
            raise ReadError(f"{shown} is missing: there is no file {path}; put it beside the model")
        try:
            return path, _open(real, path)
        except OSError as error:
            raise ReadError(f"{shown} cannot be read: {error}") from None


def _open(path: str, shown: str) -> Buffer:
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        models = sorted(n for n in os.listdir(path) if n.endswith(".onnx"))
        raise ReadError(f"{shown} is a directory; name the model file in it" + (f", such as {models[0]}" if models else ""))
    if not stat.S_ISREG(mode):
        raise ReadError(f"{shown} is not a regular file")
    with open(path, "rb") as stream:
        try:
            from mmap import ACCESS_READ, mmap

            return mmap(stream.fileno(), 0, access=ACCESS_READ)
        except (ImportError, OSError, ValueError):
            return stream.read()


def dtype_of(code: int, what: str) -> DType:
    """The element type of an ONNX code."""
    dtype = _DTYPES.get(code)
    if dtype is None:
        raise ReadError(f"{what} has element type {code}, which is not known (1 to {max(_DTYPES)} are)")
    return dtype


def read_tensor(files: Files, pos: int, end: int) -> Tensor:
    """The TensorProto at ``pos`` of the model file; its data is checked against its shape but not read."""
    buf = files.buffers[0]
    dims: list[int] = []
    code = location = 0
    name = ""
    raw: tuple[int, int] | None = None
    typed: dict[int, list[Field]] = {}
    external: dict[str, str] = {}
    segment = False
    for item in scan(buf, pos, end):
        key, a, b = item
        number, wire = key >> 3, key & 7
        if number == 1 and wire in (VARINT, BYTES):
            dims += repeated(buf, item)
        elif key == 0x10:
            code = a
        elif key == 0x42:
            name = text(buf, a, b)
        elif key == 0x4A:
            raw = a, b
        elif number in _FIELD_NAMES and wire in (BYTES, _UNPACKED_WIRE[number]):
            typed.setdefault(number, []).append(item)
        elif key == 0x6A:
            entry = {k: text(buf, x, y) for k, x, y in scan(buf, a, b) if k in (0x0A, 0x12)}
            external[entry.get(0x0A, "")] = entry.get(0x12, "")
        elif key == 0x70:
            location = a
        elif key == 0x1A:
            segment = True
    shown = f"tensor {name!r} at byte {pos}"
    shape = tuple(dims)
    _check_shape(shape, shown)
    if segment:
        raise ReadError(f"{shown} is stored in segments, which no writer uses; save the model again")
    dtype = _INFERRED[next(iter(typed))] if not code and len(typed) == 1 else dtype_of(code, shown)
    count = math.prod(dims)
    tensor = Tensor(name, dtype, shape, dtype.nbytes(count))
    if location == 1:
        if dtype is DType.string:
            raise ReadError(f"{shown} holds strings in external data, which ONNX does not allow")
        _locate_external(tensor, files, external, shown)
    elif location:
        raise ReadError(f"{shown} has data location {location}, which is not known (0 and 1 are)")
    elif raw and (raw[1] > raw[0] or not typed):
        if dtype is DType.string:
            raise ReadError(f"{shown} holds strings in raw_data; ONNX stores them in string_data")
        if raw[1] - raw[0] != tensor.nbytes:
            raise ReadError(f"{shown}: {dtype.name} of shape {_short(shape)} takes {tensor.nbytes} bytes, raw_data has {raw[1] - raw[0]}")
        tensor._buffer, tensor.offset = buf, raw[0]
    else:
        _locate_typed(tensor, buf, typed, count, shown)
    return tensor


def _check_shape(shape: tuple[int, ...], shown: str) -> None:
    if len(shape) > MAX_RANK:
        raise ReadError(f"{shown} has {len(shape)} axes; {MAX_RANK} are supported")
    if min(shape, default=0) < 0 or math.prod(max(d, 1) for d in shape) > MAX_ELEMENTS:
        raise ReadError(f"{shown} has the impossible shape {_short(shape)}")


def _short(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape[:8]))}{', ...' if len(shape) > 8 else ''}]"


def _locate_external(tensor: Tensor, files: Files, entries: dict[str, str], shown: str) -> None:
    for key in ("offset", "length"):
        if not re.fullmatch(r"[0-9]{0,18}", entries.get(key, ""), re.ASCII):
            raise ReadError(f"{shown}: external data {key} {entries[key]!r} is no number of bytes")
    if "location" not in entries:
        raise ReadError(f"{shown} is external data without a location")
    try:
        number = files.find(entries["location"])
    except ReadError as error:
        if tensor.name in files.replaced:
            return
        raise ReadError(f"{shown}: {error}") from None
    offset, size = int(entries.get("offset") or 0), len(files.buffers[number])
    length = int(entries.get("length") or tensor.nbytes)
    if length != tensor.nbytes:
        raise ReadError(
            f"{shown}: {tensor.dtype.name} of shape {_short(tensor.shape)} takes {tensor.nbytes} bytes, its external data has {length}"
        )
    if offset + length > size:
        raise ReadError(
            f"{shown}: bytes {offset} to {offset + length} of external data {entries['location']!r}, which ends at {size}; "
            "the file is truncated or belongs to another model"
        )
    tensor.file, tensor.offset, tensor._buffer = number, offset, files.buffers[number]


def _locate_typed(tensor: Tensor, buf: Buffer, typed: dict[int, list[Field]], count: int, shown: str) -> None:
    dtype = tensor.dtype
    number = _FIELD_OF.get(dtype, _INT32)
    expected = tensor.nbytes if dtype.bits in (2, 4) else 2 * count if dtype.name.startswith("complex") else count
    others = [n for n in typed if n != number]
    if others:
        raise ReadError(f"{shown}: {dtype.name} belongs in {_FIELD_NAMES[number]} or raw_data, this has {_FIELD_NAMES[others[0]]}")
    fields = typed.get(number, [])
    if number in (_FLOAT, _DOUBLE):
        found = sum(b - a for _, a, b in fields) / (4 if number == _FLOAT else 8)
    elif number == _STRING:
        found = len(fields)
    else:
        found = sum(1 if k & 7 == VARINT else int(np.count_nonzero(_bytes(buf, a, b) < 128)) for k, a, b in fields)
    if found != expected:
        given = f"{_FIELD_NAMES[number]} has {found:.17g}" if fields else "it has no data"
        raise ReadError(f"{shown}: {dtype.name} of shape {_short(tensor.shape)} takes {expected} values, {given}")
    if number in (_FLOAT, _DOUBLE) and len(fields) == 1:
        tensor._buffer, tensor.offset = buf, fields[0][1]
    elif fields:
        tensor._decode = partial(_decode, buf, dtype, number, fields)


def _bytes(buf: Buffer, a: int, b: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buf, np.uint8, b - a, a) if b > a else np.empty(0, np.uint8)


def _decode(buf: Buffer, dtype: DType, number: int, fields: list[Field]) -> npt.NDArray[Any]:
    if number == _STRING:
        strings = np.empty(len(fields), object)
        strings[:] = [str(buf[a:b], "utf-8", "surrogateescape") for _, a, b in fields]
        return strings
    if number in (_FLOAT, _DOUBLE):
        return np.concatenate([_bytes(buf, a, b) for _, a, b in fields])
    values: npt.NDArray[np.uint64]
    if all(key & 7 == VARINT for key, _, _ in fields):
        values = np.array([a for _, a, _ in fields], np.uint64)
    else:
        values = np.concatenate([np.array([a], np.uint64) if k & 7 == VARINT else varints(buf, a, b) for k, a, b in fields])
    if dtype is DType.bool:
        values = np.minimum(values, np.uint64(1))
    if dtype.bits == 6:
        return pack((values & np.uint64(63)).astype(np.uint8), 6)
    words: npt.NDArray[Any] = values.astype(f"<u{max(dtype.bits // 8, 1)}")
    packed: npt.NDArray[np.uint8] = words.view(np.uint8)
    return packed


def read_sparse(files: Files, pos: int, end: int) -> SparseTensor:
    """The SparseTensorProto at ``pos`` of the model file."""
    buf = files.buffers[0]
    parts: dict[int, Tensor] = {}
    dims: list[int] = []
    for item in scan(buf, pos, end):
        key, a, b = item
        if key in (0x0A, 0x12):
            parts[key] = read_tensor(files, a, b)
        elif key in (0x18, 0x1A):
            dims += repeated(buf, item)
    if len(parts) != 2:
        raise ReadError(f"sparse tensor at byte {pos} lacks its values or its indices")
    values, indices = parts[0x0A], parts[0x12]
    shown = f"sparse tensor {values.name!r} at byte {pos}"
    _check_shape(tuple(dims), shown)
    nnz = math.prod(values.shape)
    if indices.dtype is not DType.int64 or len(values.shape) != 1 or indices.shape not in ((nnz,), (nnz, len(dims))):
        raise ReadError(
            f"{shown}: {_short(values.shape)} values at {indices.dtype.name} indices of shape {_short(indices.shape)}; "
            f"int64 [{nnz}] or [{nnz}, {len(dims)}] is needed"
        )
    return SparseTensor(values, indices, tuple(dims))
