"""What kernels share whose lanes write one element each: the cases, and the text that finds coordinates and addresses."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ..dtypes import DType
from ..ir import Value, dims, row_major
from ..ir.dims import DimLike
from . import WORKGROUP, Call, Case, nested

FORMATS = {DType.float64: "d", DType.float32: "f", DType.float16: "e"}


def elements(
    call: Call,
    uniforms: Mapping[str, Any],
    *,
    y: Value | None = None,
    n: DimLike | None = None,
    guard: DimLike = 1,
    defines: frozenset[str] = frozenset(),
    holes: Mapping[str, str] | None = None,
    raw: Sequence[str] = (),
    rounds: DimLike = 0,
) -> list[Case]:
    """Cases of a source that defines ``element(i) -> y_t`` and includes ``elements``: ``y[i] = element(i)`` for i < n.

    Elements under 32 bits are written by words where ``y`` is a storage of its own. Empty when ``y`` has gaps.
    """
    y = call.values["y"] if y is None else y
    if not linear(y, y):
        return []
    n = dims.product(y.shape) if n is None else n
    numbers = {"n": n, "y_off": y.offset, **uniforms}
    if y.dtype.bits < 32 and call.values["y"].whole:
        per = 32 // y.dtype.bits
        return [
            Case(
                (dims.ceildiv(n, per * WORKGROUP),), guard, defines | {"words"}, {**(holes or {}), "per": str(per)}, numbers,
                frozenset(raw), words=frozenset({"y"}), rounds=nested(per, rounds),
            )
        ]  # fmt: skip
    return [Case((dims.ceildiv(n, WORKGROUP),), guard, defines, {**(holes or {}), "per": "1"}, numbers, frozenset(raw), rounds=rounds)]


def linear(x: Value, y: Value) -> bool:
    """True when element i of ``y``, in row-major order, is element i of the buffer from the offset of ``x`` on."""
    return all(a == b or s == 1 for a, b, s in zip(x.strides, row_major(y.shape), y.shape, strict=True))


def coordinates(rank: int, shape: str = "shape") -> list[str]:
    """Lines that split the flat index ``i`` into ``c0``, ``c1``, ... over the sizes in a uniform."""
    lines = ["  var rest = i;"] if rank else []
    for d in range(rank - 1, -1, -1):
        lines.append(f"  let c{d} = i32(rest % u32(${shape}[{d}]));" if d else "  let c0 = i32(rest);")
        if d:
            lines.append(f"  rest /= u32(${shape}[{d}]);")
    return lines


def address(name: str, strides: Sequence[DimLike], at: str = "c", instead: Mapping[int, str] | None = None) -> str:
    """The place of those coordinates in a view whose strides are the uniform ``name``; ``instead`` names others for some axes."""
    names = {d: f"{at}{d}" for d in range(len(strides))} | dict(instead or {})
    terms = [names[d] if _is(s, 1) else f"{names[d]} * ${name}[{d}]" for d, s in enumerate(strides) if not _is(s, 0)]
    return f"u32({' + '.join(terms) or '0'})"


def _is(d: DimLike, value: int) -> bool:
    return isinstance(d, int) and d == value


def bits_of(dtype: DType, value: Any) -> int | None:
    """An element's bits; None where they are not known or the type has no plain form."""
    if not isinstance(value, int | float):
        return None
    if dtype in FORMATS:
        return int.from_bytes(struct.pack("<" + FORMATS[dtype], value), "little")
    if dtype is DType.bfloat16:
        return int.from_bytes(struct.pack("<f", value), "little") >> 16
    if dtype is DType.bool:
        return int(value != 0)
    return int(value) & (1 << dtype.bits) - 1 if dtype.is_int else None


def scattered(call: Call, numbers: Mapping[str, Any], rounds: DimLike, body: str = "") -> list[Case]:
    """Cases of a scatter, whose lanes each look for the updates of one element: no two write one place, and the order is the core's."""
    from ..ops.gather import SCATTERS

    op, dtype = SCATTERS[call.op], call.values["y"].dtype
    raw = op == "none"
    if not raw and (dtype is DType.float64 or not (dtype in (DType.float32, DType.bool) or dtype.is_int)):
        return []
    defines = {{"none": "replace", "max": "most", "min": "least"}.get(op, op)}
    if op in ("add", "max"):
        defines.add("either")
    if dtype.bits == 64:
        defines.add("wide")
    offsets = {f"{name}_off": value.offset for name, value in call.values.items() if name != "y"}
    return elements(
        call,
        {**numbers, **offsets},
        defines=frozenset(defines),
        holes={"body": body},
        raw=("x", "y", "updates") if raw else (),
        rounds=rounds,
    )
