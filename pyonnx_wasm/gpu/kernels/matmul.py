"""Matrix products: large ones through tiles, thin ones in a sweep over the large operand, the rest one output per lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import dims
from ...dims import DimLike
from ...dtypes import DType
from .. import F32, WORKGROUP, Call, Case
from ..epilogue import epilogue
from ..tiles import tiles

THIN = 8  # rows or columns up to which a product is a sweep over the other operand
SHORT = 64  # sums up to this length of thin products take one lane per output
INTEGERS = (DType.int32, DType.uint32, DType.int64, DType.uint64)


def cases(call: Call) -> list[Case]:
    numbers = {p.name: call.params[p.name] for p in call.kernel.params} | {"count": dims.product([*call.batch[: call.nb], call.m, call.n])}
    defines = {"batched"} if call.nb else set()
    holes = {"nb": str(call.nb)}
    small = Case((dims.ceildiv(numbers["count"], WORKGROUP),), 1, frozenset(defines), holes, numbers)
    if call.dtype("y") in INTEGERS:
        if call.act or call.alpha != 1:
            return []
        wide = {"wide"} if call.dtype("y") in (DType.int64, DType.uint64) else set()
        return [Case(small.grid, 1, frozenset(defines | wide), holes, numbers)]
    if not call.computes(F32):
        return []
    switches, activation = epilogue(call)
    numbers |= activation
    defines |= switches | ({"scaled"} if call.alpha != 1 else set())
    thin_rows, thin_columns = dims.le(call.m, THIN), dims.le(call.n, THIN)
    tiny = dims.product([thin_rows, thin_columns, dims.le(call.k, SHORT)])
    return [
        Case(small.grid, tiny, frozenset(defines), holes, numbers),
        *_sweep(call, numbers, defines, holes, thin_rows, rows=True),
        *_sweep(call, numbers, defines, holes, thin_columns, rows=False),
        *_tiled(call, numbers, defines, holes),
    ]


def _fours(*numbers: DimLike) -> bool:
    """Whether all are multiples of 4, for any sizes."""
    return all(dims.known(n % 4) == 0 for n in numbers)


def _is_one(d: DimLike) -> bool:
    return isinstance(d, int) and d == 1


def _steps(call: Call, name: str) -> Sequence[DimLike]:
    """Where a buffer starts, and its steps along the batch."""
    return [call.starts[name], *call.params[f"{name}batch"][: call.nb]]


def _sweep(call: Call, numbers: dict[str, Any], defines: set[str], holes: dict[str, str], guard: DimLike, *, rows: bool) -> list[Case]:
    """Few rows of ``a`` against all columns of ``b``, or few columns of ``b`` against all rows of ``a``."""
    if dims.known(guard) == 0:
        return []
    a = ("a", call.m, call.a_rs, call.a_cs, call.aoff)
    b = ("b", call.n, call.b_cs, call.b_rs, call.boff)
    (thin, lines, thin_step, thin_k, thin_at), (large, length, step, large_k, at) = (a, b) if rows else (b, a)
    numbers = numbers | {
        "lines": lines, "length": length, "thin_step": thin_step, "thin_k": thin_k, "large_step": step, "large_k": large_k
    }  # fmt: skip
    across = _is_one(step) and not _is_one(large_k)
    vec4 = set()
    if across:
        wide = _fours(length, large_k, at, *_steps(call, large))
    else:
        wide = _is_one(large_k) and _fours(call.k, step, at, *_steps(call, large))
        if wide and _is_one(thin_k) and _fours(thin_step, thin_at, *_steps(call, thin)):
            vec4.add(thin)
    vec4 |= {large} if wide else set()
    defines = defines | {"sweep"} | ({"rows"} if rows else set()) | ({"across"} if across else set())
    defines |= ({"wide"} if wide else set()) | ({"thin4"} if thin in vec4 else set())
    found = []
    for block, fits in ((1, dims.eq(lines, 1)), (4, guard)):
        text = {"lines": block, "large": large, "thin": thin, "wide": 4 if wide else 1, "part": "vec4<f32>" if wide else "f32"}
        grid = (dims.ceildiv(length, 32 if across else 8), dims.ceildiv(lines, block), dims.product(call.batch[: call.nb]))
        found.append(Case(grid, fits, frozenset(defines), holes | {n: str(v) for n, v in text.items()}, numbers, vec4=frozenset(vec4)))
    return found


def _tiled(call: Call, numbers: dict[str, Any], defines: set[str], holes: dict[str, str]) -> list[Case]:
    aligned = {
        "a": _is_one(call.a_cs) and _fours(call.k, call.a_rs, call.aoff, *_steps(call, "a")),
        "b": _is_one(call.b_cs) and _fours(call.n, call.b_rs, call.boff, *_steps(call, "b")),
        "y": _fours(call.n, call.y_rs, call.yoff, *_steps(call, "y")),
    }
    vec4 = frozenset(name for name, holds in aligned.items() if holds)
    defines = defines | {"tiled"} | {f"{name}4" for name in vec4}
    defines |= {"a_columns"} if _is_one(call.a_rs) and not _is_one(call.a_cs) else set()
    defines |= {"b_columns"} if _is_one(call.b_rs) and not _is_one(call.b_cs) else set()
    found = []
    for tile, busy in tiles():
        grid = (dims.ceildiv(call.n, tile.bn), dims.ceildiv(call.m, tile.bm), dims.product(call.batch[: call.nb]))
        switches = defines | ({"sliced"} if tile.slices > 1 else set())
        found.append(Case(grid, 1, frozenset(switches), holes | tile.holes, numbers, vec4=vec4, busy=busy))
    return found
