"""The protobuf wire format as far as ONNX needs it: a scan that locates the fields of a message without building them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from mmap import mmap

    Buffer = bytes | memoryview | mmap

Field = tuple[int, int, int]
"""Key (``number << 3 | wire type``) and two numbers: the value and its position for a varint (wire type 0), else the
first byte of the payload and the one after its last."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class ReadError(ValueError):
    """A file that is no usable model; the text names the file, the byte, tensor or node, and the cure."""


def varint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """The unsigned 64-bit varint at ``pos`` and the position after it."""
    value = shift = 0
    start = pos
    while pos < end:
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, pos
        shift += 7
        if shift > 63:
            raise ReadError(f"byte {start}: a varint of more than 10 bytes; the file is damaged")
    raise ReadError(f"byte {start}: the file or message ends inside a number; the file is truncated or damaged")


def scan(buf: Buffer, pos: int, end: int) -> list[Field]:
    """Locates the fields of the message in ``buf[pos:end]``, in file order, known or not."""
    fields: list[Field] = []
    add = fields.append
    while pos < end:
        start = pos
        key = buf[pos]
        pos += 1
        if key >= 128:
            key, pos = varint(buf, start, end)
        if key < 8:
            raise ReadError(f"byte {start}: field number 0; the file is damaged or no ONNX model")
        wire = key & 7
        if wire == BYTES:
            size, pos = (buf[pos], pos + 1) if pos < end and buf[pos] < 128 else varint(buf, pos, end)
            stop = pos + size
        elif wire == VARINT:
            if pos < end and buf[pos] < 128:
                add((key, buf[pos], start))
                pos += 1
            else:
                value, pos = varint(buf, pos, end)
                add((key, value, start))
            continue
        elif wire == FIXED32:
            stop = pos + 4
        elif wire == FIXED64:
            stop = pos + 8
        else:
            raise ReadError(f"byte {start}: wire type {wire}, which ONNX does not use; the file is damaged or no ONNX model")
        if stop > end:
            raise ReadError(
                f"byte {start}: field {key >> 3} needs {stop - pos} bytes where {end - pos} are left; the file is truncated or damaged"
            )
        add((key, pos, stop))
        pos = stop
    return fields


def signed(value: int) -> int:
    """A varint read as int64 (or as int32, which travels sign-extended)."""
    return value - (1 << 64) if value >> 63 else value


def text(buf: Buffer, pos: int, end: int) -> str:
    """A string field."""
    try:
        return str(buf[pos:end], "utf-8")
    except UnicodeDecodeError:
        raise ReadError(f"byte {pos}: a name that is not UTF-8; the file is damaged or no ONNX model") from None


def varints(buf: Buffer, pos: int, end: int) -> npt.NDArray[np.uint64]:
    """All varints of a packed field."""
    if pos == end:
        return np.empty(0, np.uint64)
    data = np.frombuffer(buf, np.uint8, end - pos, pos)
    ends = np.flatnonzero(data < 128)
    if ends.size == data.size:
        return data.astype(np.uint64)
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    if not ends.size or ends[-1] != data.size - 1 or sizes.max() > 10:
        raise ReadError(f"byte {pos}: a packed field with a broken number; the file is truncated or damaged")
    values = np.zeros(ends.size, np.uint64)
    for k in range(int(sizes.max())):
        live = np.flatnonzero(sizes > k)
        values[live] |= (data[starts[live] + k] & 127).astype(np.uint64) << np.uint64(7 * k)
    return values


def repeated(buf: Buffer, field: Field) -> list[int]:
    """The int64 values of one occurrence of a repeated field, packed or not."""
    key, a, b = field
    if key & 7 == VARINT:
        return [signed(a)]
    if b - a > 64:
        return [signed(v) for v in varints(buf, a, b).tolist()]
    values: list[int] = []
    while a < b:
        value, a = varint(buf, a, b)
        values.append(signed(value))
    return values
