"""Products of 8-bit integers: tiles of words of four bytes, or one output per lane where there are few."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...ir import dims
from ...ir.dims import DimLike
from .. import Call, Case, nested
from ..byte_tiles import DOT, byte_tilings
from ..elements import elements
from ..epilogue import epilogue

FEW = 256  # outputs that lanes for one each are better for


def cases(call: Call) -> list[Case]:
    y = call.values["y"]
    names = ("aoff", "a_rs", "a_cs", "boff", "b_rs", "b_cs", "batch", "abatch", "bbatch", "resbatch", "res_off", "res_rs")
    numbers: dict[str, Any] = {name: call.params[name] for name in names} | {"rows": call.m, "columns": call.n, "depth": call.k}
    for name, steps in (("azero", ("ms",)), ("bzero", ("ns",)), ("scale", ("ms", "ns")), ("bias", ("ms", "ns"))):
        if name in call.values:
            numbers |= {f"{name}_off": call.values[name].offset} | {f"{name}_{step}": call.params[f"{name}_{step}"] for step in steps}
    numbers |= {f"{name}_off": call.values[name].offset for name in ("yscale", "yzero") if name in call.values}
    defines = {"batched"} if call.nb else set()
    if "scale" in call.values:
        switches, activation = epilogue(call)
        numbers |= activation | {"alpha": float(call.alpha)}
        defines |= switches
    batches = dims.product(call.batch[: call.nb])
    holes = {"nb": str(call.nb)}
    few = elements(call, numbers, n=dims.product([batches, call.m, call.n]), defines=frozenset(defines), holes=holes, rounds=nested(call.k))
    if not few:
        return []
    enough = dims.le(FEW, dims.product([call.m, call.n]))
    return [*_tiled(call, numbers | {"y_off": y.offset}, defines | {"tiled"} | _words(call), holes, enough), *few]


def _tiled(
    call: Call, numbers: Mapping[str, Any], defines: Collection[str], holes: Mapping[str, str], enough: DimLike
) -> Iterator[Case]:  # fmt: skip
    y = call.values["y"]
    by_words = y.dtype.bits == 8 and y.whole
    for grid, guard, cut, sliced in byte_tilings(call.m, call.n, call.k, dims.product(call.batch[: call.nb])):
        for words in (True, False) if by_words else (False,):
            fits = dims.product([guard, enough, *([dims.eq(call.n % 4, 0)] if words else [])])
            switches = frozenset({*defines, *sliced, *(["words"] if words else [])})
            yield Case(grid, fits, switches, {**holes, **cut}, numbers, words=frozenset({"y"} if words else ()), needs=(DOT,))


def _words(call: Call) -> set[str]:
    """Which operands are read by whole words, and whether neighbouring lanes read neighbouring columns."""
    steps = {
        "a": (call.a_cs, call.a_rs, call.aoff, call.starts["a"], *call.abatch[: call.nb]),
        "b": (call.b_rs, call.b_cs, call.boff, call.starts["b"], *call.bbatch[: call.nb]),
    }
    found = {f"{name}4" for name, (along, *rest) in steps.items() if along == 1 and all(dims.known(n % 4) == 0 for n in rest)}
    return found | ({"across"} if call.b_cs == 1 and call.b_rs != 1 else set())
