"""Models written byte by byte, or as text, for the tests of the reader."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper, parser


def number(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def part(field: int, payload: bytes | str | int) -> bytes:
    """One wire field: a varint for an int, else length-delimited."""
    if isinstance(payload, int):
        return number(field << 3) + number(payload)
    payload = payload.encode() if isinstance(payload, str) else payload
    return number(field << 3 | 2) + number(len(payload)) + payload


def wired(graph: bytes, ir: int = 10, opset: int = 21) -> bytes:
    return part(1, ir) + part(7, graph) + part(8, part(2, opset))


def parsed(source: str, *, ir: int = 10, opsets: str = '"": 21') -> ModelProto:
    return parser.parse_model(f"<ir_version: {ir}, opset_import: [{opsets}]>\n{source}")


def stored_outside(location: str, array: Any = None, **entries: Any) -> ModelProto:
    array = np.arange(4, dtype=np.float32) if array is None else array
    tensor = numpy_helper.from_array(array, "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(entry))
    proto = parsed("g () => () { }")
    proto.graph.initializer.append(tensor)
    return proto


FUNCTIONS = """
g (bool c, float[2] x) => (float[2] y, float[2] z) {
    y = lab.twice <k = 3.0> (x)
    t = lab.twice (y)
    unused, z = lab.choose <n = 2> (c, t, x)
}
<domain: "lab", opset_import: ["": 21, "lab": 1]>
twice <k: float = 5.0> (a) => (b) {
    f = Constant <value_float: float = @k> ()
    d = lab.scale (a, f)
    b = Add(d, a)
}
<domain: "lab", opset_import: ["": 21]>
scale (a, f) => (b) { t = Mul(a, f)  b = Identity(t) }
<domain: "lab", opset_import: ["": 21, "lab": 1]>
choose <n> (c, a, b) => (first, r) {
    first = Identity(a)
    r = If (c) <
        then_branch = t () => (u) { k = Constant <value_int: int = @n> ()  f = Cast <to = 1> (k)  u = lab.scale (first, f) },
        else_branch = e () => (u) { u = Sub(b, a) }>
}
"""
