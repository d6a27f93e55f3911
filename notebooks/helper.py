"""The functions of ``onnx.helper`` that the notebooks use, for Pyodide, which has no ``onnx``: each gives its message in bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


class TensorProto:
    """Element types."""

    FLOAT, INT64 = 1, 7


DTYPES = {TensorProto.FLOAT: np.dtype("<f4"), TensorProto.INT64: np.dtype("<i8")}


class Message(bytes):
    def SerializeToString(self) -> bytes:
        return bytes(self)


def number(value: int) -> bytes:
    out, value = bytearray(), value & (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def part(field: int, *values: Any) -> bytes:
    """A field, once for each value: an int is a varint, a float has 32 bits, text and bytes say their length."""
    found = b""
    for value in values:
        if isinstance(value, int):
            found += number(field << 3) + number(value)
        elif isinstance(value, float):
            found += number(field << 3 | 5) + struct.pack("<f", value)
        else:
            value = value.encode() if isinstance(value, str) else value
            found += number(field << 3 | 2) + number(len(value)) + value
    return found


def attribute(name: str, value: Any) -> bytes:
    """An AttributeProto: the field and the type of what it holds."""
    several = isinstance(value, (list, tuple))
    one = value[0] if several else value
    kind = 2 if isinstance(one, int) else 1 if isinstance(one, float) else 3 if isinstance(one, str) else 4  # INT, FLOAT, STRING, TENSOR
    field = {1: 2, 2: 3, 3: 4, 4: 5}[kind] + 5 * several
    return part(1, name) + part(field, *(value if several else [value])) + part(20, kind + 5 * several)


def make_node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", domain: str = "", **attributes: Any) -> Message:
    found = part(1, *inputs) + part(2, *outputs) + (part(3, name) if name else b"") + part(4, op_type)
    found += part(5, *(attribute(*item) for item in sorted(attributes.items())))
    return Message(found + (part(7, domain) if domain else b""))


def make_tensor(name: str, data_type: int, dims: Sequence[int], vals: Any, raw: bool = False) -> Message:
    data = vals if raw else np.asarray(vals, DTYPES[data_type]).tobytes()
    return Message(part(1, *dims) + part(2, data_type) + part(8, name) + part(9, data))


def make_tensor_value_info(name: str, elem_type: int, shape: Sequence[int | str]) -> Message:
    dims = part(1, *(part(1 if isinstance(d, int) else 2, d) for d in shape))
    return Message(part(1, name) + part(2, part(1, part(1, elem_type) + part(2, dims))))


def make_empty_tensor_value_info(name: str) -> Message:
    return Message(part(1, name))


def make_opsetid(domain: str, version: int) -> Message:
    return Message(part(1, domain) + part(2, version))


def make_graph(
    nodes: Iterable[bytes], name: str, inputs: Iterable[bytes], outputs: Iterable[bytes], initializer: Iterable[bytes] = ()
) -> Message:
    return Message(part(1, *nodes) + part(2, name) + part(5, *initializer) + part(11, *inputs) + part(12, *outputs))


def make_function(
    domain: str, fname: str, inputs: Sequence[str], outputs: Sequence[str], nodes: Iterable[bytes], opset_imports: Iterable[bytes]
) -> Message:
    return Message(part(1, fname) + part(4, *inputs) + part(5, *outputs) + part(7, *nodes) + part(9, *opset_imports) + part(10, domain))


def make_model(graph: bytes, opset_imports: Iterable[bytes], ir_version: int, functions: Iterable[bytes] = ()) -> Message:
    return Message(part(1, ir_version) + part(7, graph) + part(8, *opset_imports) + part(25, *functions))
