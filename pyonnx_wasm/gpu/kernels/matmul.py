"""Matrix products: large ones through tiles, thin ones in a sweep over the large operand, the rest one output per lane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...dtypes import DType
from ...ir import Node, Storage, Value, dims
from ...ir.dims import DimLike
from .. import F32, WORKGROUP, Call, Case
from ..epilogue import epilogue
from ..split import is_large, pieces
from ..tiles import tilings

THIN = 8  # rows or columns up to which a product is a sweep over the other operand
SPAN = 32  # neighbours of a large operand that a workgroup sums; of a single line half or a quarter where that leaves too few workgroups
ENOUGH = 64  # workgroups for half as many
TURNS, FEWER_TURNS = 8, 4  # steps whose loads are on their way at once: those of one line over short segments, and others
SHORT = 64  # sums up to this length of thin products take one lane per output
INTEGERS = (DType.int32, DType.uint32, DType.int64, DType.uint64)
READS_HALVES = True


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
    one = dims.eq(lines, 1)
    narrow = dims.product([one, dims.le(ENOUGH, dims.ceildiv(length, SPAN // 2))])
    ways = [(1, one, SPAN), (1, narrow, SPAN // 2), (1, one, SPAN // 4), (4, guard, SPAN)] if across else [(1, one, 8), (4, guard, 8)]
    found = []
    for block, fits, span in ways:
        part = "vec4<f32>" if wide else "f32"
        turns = TURNS if across and block == 1 else FEWER_TURNS
        text = {"lines": block, "large": large, "thin": thin, "wide": 4 if wide else 1, "part": part, "span": span, "turns": turns}
        grid = (dims.ceildiv(length, span), dims.ceildiv(lines, block), dims.product(call.batch[: call.nb]))
        found.append(
            Case(
                grid, fits, frozenset(defines), holes | {n: str(v) for n, v in text.items()}, numbers, vec4=frozenset(vec4),
                busy=across and block == 1 and span == SPAN, again={thin: grid[0], large: grid[1]},
            )
        )  # fmt: skip
    return found


def _tiled(call: Call, numbers: dict[str, Any], defines: set[str], holes: dict[str, str]) -> list[Case]:
    along = _is_one(call.b_rs) and not _is_one(call.b_cs)
    aligned = {
        "a": _is_one(call.a_cs) and _fours(call.k, call.a_rs, call.aoff, *_steps(call, "a")),
        "b": _fours(*((call.k, call.b_cs) if along else (call.n, call.b_rs)), call.boff, *_steps(call, "b")),
        "y": not along and _fours(call.n, call.y_rs, call.yoff, *_steps(call, "y")),
    }
    aligned["b"] = aligned["b"] and (along or _is_one(call.b_cs))
    vec4 = frozenset(name for name, holds in aligned.items() if holds)
    defines = defines | {"tiled"} | {f"{name}4" for name in vec4} | ({"along"} if along else set())
    defines |= {"a_columns"} if _is_one(call.a_rs) and not _is_one(call.a_cs) else set()
    found = []
    for tile, grid, guard, busy in tilings(call.m, call.n, dims.product(call.batch[: call.nb])):
        switches = defines | ({"sliced"} if tile.slices > 1 else set())
        again = {"a": grid[0], "b": grid[1]}
        found.append(Case(grid, guard, frozenset(switches), holes | tile.holes, numbers, vec4=vec4, busy=busy, again=again))
    return found


def split(node: Node) -> list[Node]:
    """A product whose right operand is too large to be bound, by its columns or along the sum; nothing where neither can be."""
    if not is_large(node.ins["b"]):
        return []
    return list(_columns(node)) or list(_depth(node))


def _columns(node: Node) -> Iterator[Node]:
    """A product by columns of ``b``, whose columns must lie one behind the other."""
    b, y = node.ins["b"], node.out
    k, n, stride = b.shape[-2], b.shape[-1], b.strides[-1]
    lead = any(not (isinstance(s, int) and s == 0) for s in b.strides[:-2])
    if lead or b.offset != 0 or b.strides[-2] != 1 or not all(isinstance(v, int) for v in (k, n, stride)) or stride < k:
        return
    for first, last in pieces(n, stride * b.dtype.bits // 8):
        ins = dict(node.ins)
        for name in ("b", "bias", "residual"):
            value = ins.get(name)
            if value is not None:
                shape = [*value.shape[:-1], last - first if value.shape[-1] != 1 else 1]
                ins[name] = value.view(shape, value.offset + first * value.strides[-1], value.strides)
        part = Node(node.kernel, ins, node.params, node.origin)
        part.outs["y"] = Value(y.storage, y.dtype, [*y.shape[:-1], last - first], y.offset + first, y.strides)
        yield part


def _depth(node: Node) -> Iterator[Node]:
    """A product by rows of ``b``, each a part of the sum that goes on where the last one ended."""
    a, b, y = node.ins["a"], node.ins["b"], node.out
    k, n, stride = b.shape[-2], b.shape[-1], b.strides[-2]
    lead = any(not (isinstance(s, int) and s == 0) for s in b.strides[:-2])
    if lead or b.offset != 0 or b.strides[-1] != 1 or not all(isinstance(v, int) for v in (k, n, stride)) or stride < n:
        return
    residual = node.ins.get("residual")
    acts = node.params.get("act", ("none",))[0] != "none"
    if acts and residual is not None and not node.params.get("act_last"):
        return  # what is added last cannot be where the sum began
    for first, last in pieces(k, stride * b.dtype.bits // 8):
        ins = {
            "a": a.view([*a.shape[:-1], last - first], a.offset + first * a.strides[-1], a.strides),
            "b": b.view([*b.shape[:-2], last - first, n], first * stride, b.strides),
        }
        if residual is not None:
            ins["residual"] = residual
        if last == k:
            if "bias" in node.ins:
                ins["bias"] = node.ins["bias"]
            part = Node(node.kernel, ins, {**node.params, "act_last": acts}, node.origin)
            part.outs["y"] = y
        else:
            part = Node(node.kernel, ins, {"alpha": node.params.get("alpha", 1.0)}, node.origin)
            residual = part.outs["y"] = Value(Storage(y.dtype, y.size, "temp", producer=part), y.dtype, y.shape)
        yield part
