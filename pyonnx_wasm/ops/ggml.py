"""Weights in ggml's blocks, as GGUF files hold them (domain ``org.ggml``).

Blocks are brought, once, into the form that ``matmul_nbits`` takes: codes of 4 or 8 bits, a float32 scale per group and, where a type has
minima, a shift. This is exact: a weight is ``scale * (code - middle)`` or ``scale * code - shift`` as ggml computes it.
Layouts: ``ggml-common.h`` of https://github.com/ggml-org/llama.cpp
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from ..dtypes import DType
from ..ir import Graph, IRError, Storage, Value
from ..registry import op
from ..tensor import broadcast_to, cast, concat, constant, contiguous, index, like, map_, reshape, slice_, unsqueeze
from .blocks import multiply, unpacked
from .gather import Gather

GGML = "org.ggml"
WIDE = DType.float32


@dataclass(frozen=True)
class Codes:
    """Weights [n, k] as ``matmul_nbits`` takes them: codes uint8 [n, k * bits / 8], scale and shift float32 or float16 [n, k / group]."""

    bits: int
    group: int
    codes: Value
    scale: Value
    shift: Value | None = None


def _bytes(x: Value, start: int, count: int) -> Value:
    """Bytes of each block: [n, blocks, count]."""
    return slice_(x, 2, start, count)


def _stored(x: Value, at: int) -> Value:
    """The float16 at byte ``at`` of each block, [n, blocks]."""
    n, blocks, size = x.shape
    halves = Value(x.storage, DType.float16, [n, blocks, size // 2])
    return reshape(contiguous(slice_(halves, 2, at // 2, 1)), [n, blocks])


def _half(x: Value, at: int) -> Value:
    """The same as float32."""
    return cast(_stored(x, at), WIDE)


def _and(x: Value, mask: int) -> Value:
    return map_("bitand", x, like(x, mask))


def _right(x: Value, bits: int) -> Value:
    return map_("shr", x, like(x, bits))


def _left(x: Value, bits: int) -> Value:
    return map_("shl", x, like(x, bits))


def _or(a: Value, b: Value) -> Value:
    return map_("bitor", a, b)


def _rows(x: Value) -> Value:
    """[n, blocks, per block] as [n, all]."""
    return reshape(x, [x.shape[0], x.shape[1] * x.shape[2]])


def _pairs(q: Value, parts: int = 1) -> Value:
    """Bytes whose low halves come before their high halves, in each of ``parts``, as bytes that hold neighbours."""
    each, found = int(q.shape[2]) // parts, []
    for start in range(0, each * parts, each):
        even, odd = (slice_(q, 2, start + k, each // 2, 2) for k in (0, 1))
        found += [_or(_and(even, 15), _left(odd, 4)), _or(_right(even, 4), _and(odd, 0xF0))]
    return _rows(concat(found, 2))


def _halves(q: Value, parts: int = 1) -> Value:
    """The same bytes as one code each."""
    each, found = int(q.shape[2]) // parts, []
    for start in range(0, each * parts, each):
        part = slice_(q, 2, start, each)
        found += [_and(part, 15), _right(part, 4)]
    return concat(found, 2)


def _bits(q: Value, width: int, bytes_each: int) -> Value:
    """Codes of 1 or 2 bits: every run of ``bytes_each`` bytes holds the lowest of its first codes, then of the next."""
    mask, found = (1 << width) - 1, []
    for start in range(0, int(q.shape[2]), bytes_each):
        part = slice_(q, 2, start, bytes_each)
        found += [_and(_right(part, shift), mask) for shift in range(0, 8, width)]
    return concat(found, 2)


def _fifth(q: Value) -> Value:
    """The fifth bits of 32 codes, which lie in order, as 16 in their place."""
    n, blocks, _ = q.shape
    shape = [n, blocks, 4, 8]
    ones = _and(map_("shr", broadcast_to(unsqueeze(q, [3]), shape), cast(index(3, shape), DType.uint8)), 1)
    return _left(reshape(ones, [n, blocks, 32]), 4)


def _q4_0(x: Value) -> Codes:
    return Codes(4, 32, _pairs(_bytes(x, 2, 16)), _stored(x, 0))


def _q4_1(x: Value) -> Codes:
    return Codes(4, 32, _pairs(_bytes(x, 4, 16)), _stored(x, 0), map_("neg", _half(x, 2)))


def _q5_0(x: Value) -> Codes:
    codes = _or(_halves(_bytes(x, 6, 16)), _fifth(_bytes(x, 2, 4)))
    return Codes(8, 32, _rows(map_("add", codes, like(codes, 128 - 16))), _stored(x, 0))


def _q5_1(x: Value) -> Codes:
    return Codes(8, 32, _rows(_or(_halves(_bytes(x, 8, 16)), _fifth(_bytes(x, 4, 4)))), _stored(x, 0), map_("neg", _half(x, 2)))


def _q8_0(x: Value) -> Codes:
    return Codes(8, 32, _rows(map_("bitxor", (q := _bytes(x, 2, 32)), like(q, 128))), _stored(x, 0))


def _six_bits(x: Value) -> list[Value]:
    """Scales and minima [n, blocks, 8] of the types with blocks of 256 and 12 bytes of both, from byte 4 on."""
    d, m, both = (_bytes(x, 4 + 4 * k, 4) for k in range(3))
    high = [_and(_right(part, 2), 0x30) for part in (d, m)]
    return [
        concat([_and(d, 63), _or(_and(both, 15), high[0])], 2),
        concat([_and(m, 63), _or(_right(both, 4), high[1])], 2),
    ]


def _grouped(factor: Value, numbers: Value) -> Value:
    """A block's factor times each of its groups' numbers: [n, groups]."""
    return _rows(map_("mul", unsqueeze(factor, [2]), cast(numbers, WIDE)))


def _q4_k(x: Value) -> Codes:
    scales, minima = _six_bits(x)
    return Codes(4, 32, _pairs(_bytes(x, 16, 128), 4), _grouped(_half(x, 0), scales), _grouped(_half(x, 2), minima))


def _q5_k(x: Value) -> Codes:
    scales, minima = _six_bits(x)
    codes = _or(_halves(_bytes(x, 48, 128), 4), _left(_bits(_bytes(x, 16, 32), 1, 32), 4))
    return Codes(8, 32, _rows(codes), _grouped(_half(x, 0), scales), _grouped(_half(x, 2), minima))


def _q6_k(x: Value) -> Codes:
    codes = _or(_halves(_bytes(x, 0, 128), 2), _left(_bits(_bytes(x, 128, 64), 2, 32), 4))
    scales = _bytes(x, 192, 16)
    signed = map_("sub", cast(map_("bitxor", scales, like(scales, 128)), WIDE), constant(np.float32(128)))
    return Codes(8, 16, _rows(map_("add", codes, like(codes, 128 - 32))), _grouped(_half(x, 208), signed))


_IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def _iq4_nl(x: Value) -> Codes:
    table = constant((_IQ4_NL + 128).astype(np.uint8))
    return Codes(8, 32, _rows(Gather(table, cast(_halves(_bytes(x, 2, 16)), DType.int32))), _stored(x, 0))


_TYPES: dict[str, tuple[int, Callable[[Value], Codes]]] = {
    "Q4_0": (18, _q4_0), "Q4_1": (20, _q4_1), "Q5_0": (22, _q5_0), "Q5_1": (24, _q5_1), "Q8_0": (34, _q8_0), "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k), "Q6_K": (210, _q6_k), "IQ4_NL": (18, _iq4_nl),
}  # fmt: skip


#: Of each graph what was opened: a table that is both read by rows and multiplied is brought into its form once.
_DONE: WeakKeyDictionary[Graph, dict[tuple[Storage, str], Codes]] = WeakKeyDictionary()


def _opened(blocks: Value, kind: str) -> Codes:
    done = _DONE.setdefault(Graph.current(), {})
    key = (blocks.storage, kind)
    if key not in done:
        done[key] = _open(blocks, kind)
    return done[key]


def _open(blocks: Value, kind: str) -> Codes:
    if kind not in _TYPES:
        raise IRError(f"block type {kind!r} is not one of {', '.join(_TYPES)}")
    size, opened = _TYPES[kind]
    if blocks.rank != 3 or blocks.shape[2] != size or blocks.dtype is not DType.uint8 or not blocks.whole:
        raise IRError(f"{kind} is uint8 [rows, blocks, {size}], not {blocks.dtype.name} {list(blocks.shape)}")
    found = opened(blocks)
    shift = None if found.shift is None else contiguous(found.shift)
    return Codes(found.bits, found.group, contiguous(found.codes), contiguous(found.scale), shift)


def _widened(x: Codes) -> Value:
    """float32 [n, k]."""
    n, groups = x.scale.shape
    k = x.codes.shape[1] * (8 // x.bits)
    codes = reshape(cast(unpacked(x.codes, x.bits, k), WIDE), [n, groups, x.group])
    scale = unsqueeze(cast(x.scale, WIDE), [2])
    if x.shift is None:
        return reshape(map_("mul", map_("sub", codes, like(codes, 1 << (x.bits - 1))), scale), [n, k])
    return reshape(map_("sub", map_("mul", codes, scale), unsqueeze(x.shift, [2])), [n, k])


@op(domain=GGML)
def Dequantize(blocks: Value, *, type: str) -> Value:
    """float32 [rows, columns] of blocks uint8 [rows, blocks, bytes]."""
    return _widened(_opened(blocks, type))


@op(domain=GGML)
def GetRows(blocks: Value, indices: Value, *, type: str) -> Value:
    """Rows of a table in blocks, widened to float32 when they are picked: [*indices, columns]."""
    x, at = _opened(blocks, type), reshape(indices, [indices.size])
    shift = None if x.shift is None else Gather(x.shift, at)
    rows = _widened(Codes(x.bits, x.group, contiguous(Gather(x.codes, at)), contiguous(Gather(x.scale, at)), shift))
    return reshape(rows, [*indices.shape, rows.shape[1]])


@op(domain=GGML)
def MatMul(A: Value, blocks: Value, *, type: str) -> Value:
    """A [..., columns] times the transpose of the weights [rows, columns], in float32; A may be rounded to 16 bits per row and group."""
    x = _opened(blocks, type)
    k = x.codes.shape[1] * (8 // x.bits)
    if A.shape[-1] != k:
        raise IRError(f"A has {A.shape[-1]} columns, the weights {k}")
    return multiply(A, x.codes, x.scale, x.shift, k, x.bits, x.group, rounded=2)
