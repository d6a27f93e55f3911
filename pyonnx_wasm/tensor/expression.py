"""The code of a ``map`` as an expression, and back: what the element-wise passes reason about."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..dtypes import DType
from ..ir import Node
from ..ir.dims import Dim
from ..ir.text import split
from .scalar import INSTRUCTIONS

Code = tuple[tuple[Any, ...], ...]
Pool = dict[tuple[Any, ...], "Expression"]

MAX_INPUTS, MAX_CODE, REGISTERS = 8, 64, 32
LEAVES = ("in", "const", "index")


class Expression:
    """One operation on expressions. Within a pool equal ones are one object: ``is`` compares, and what is shared is there once.

    Attributes:
        name: of an instruction, or ``"in"``.
        dtype: of the operands; what it gives is ``result``.
        args: operands.
        extra: what an instruction holds beside registers: the value of a ``const``, the axis of an ``index``, the target and mode of a
            ``cast``, the dtype of the exponent of a ``pow``; the number of an input for ``"in"``. Three less the number of ``args``.
        reads: the inputs below it, as bits.
    """

    __slots__ = ("args", "dtype", "extra", "name", "pool", "reads")

    def __init__(self, pool: Pool, name: str, dtype: DType, args: tuple[Expression, ...], extra: tuple[Any, ...]) -> None:
        self.pool, self.name, self.dtype, self.args, self.extra = pool, name, dtype, args, extra
        self.reads = 1 << extra[0] if name == "in" and isinstance(extra[0], int) else 0
        for a in args:
            self.reads |= a.reads

    def make(self, name: str, dtype: DType, *args: Expression, extra: Iterable[Any] = ()) -> Expression:
        """An expression of the same pool."""
        return make(self.pool, name, dtype, args, extra)

    @property
    def result(self) -> DType:
        if self.name == "cast":
            return DType(self.extra[0])
        return DType.bool if self.args and INSTRUCTIONS[self.name].result == "bool" else self.dtype

    @property
    def number(self) -> float | None:
        """The value of a constant leaf, if it is a plain number."""
        return self.extra[0] if self.name == "const" and not isinstance(self.extra[0], Dim) else None


def make(pool: Pool, name: str, dtype: DType, args: Sequence[Expression] = (), extra: Iterable[Any] = ()) -> Expression:
    """The expression of a pool; it lives as long as the pool."""
    extra = (*extra, 0, 0, 0)[: 3 - len(args)]
    told = [struct.pack("<d", x) if isinstance(x, float) else x for x in extra] if name == "const" else extra
    key = (name, dtype, *args, *told)
    found = pool.get(key)
    if found is None:
        found = pool[key] = Expression(pool, name, dtype, tuple(args), extra)
    return found


def of(node: Node, pool: Pool | None = None, leaves: Sequence[Expression] | None = None) -> Expression:
    """The expression that a map node computes, over its inputs or over ``leaves`` of the pool in their place."""
    pool = {} if pool is None else pool
    registers = dict(enumerate(leaves or [make(pool, "in", x.dtype, (), [i]) for i, x in enumerate(node.ins["x"])]))
    last = registers.get(0)
    for name, dtype, dst, *operands in node.params["code"]:
        arity = INSTRUCTIONS[name].arity
        last = registers[dst] = make(pool, name, dtype, [registers[r] for r in operands[:arity]], operands[arity:])
    assert last is not None
    return last


def nodes(e: Expression) -> list[Expression]:
    """All subexpressions, each once, operands first."""
    found: dict[Expression, None] = {}
    todo = [e]
    while todo:
        missing = [] if todo[-1] in found else [a for a in todo[-1].args if a not in found]
        if missing:
            todo += reversed(missing)
        else:
            found[todo.pop()] = None
    return list(found)


def rebuild(e: Expression, fn: Callable[[Expression], Expression], pool: Pool | None = None) -> Expression:
    """The expression, in another pool if one is given, with ``fn`` applied to every subexpression once, operands first."""
    pool = e.pool if pool is None else pool
    done: dict[Expression, Expression] = {}
    for x in nodes(e):
        args = tuple([done[a] for a in x.args])
        done[x] = fn(x if args == x.args and pool is x.pool else make(pool, x.name, x.dtype, args, x.extra))
    return done[e]


def replaced(e: Expression, old: Expression, new: Expression) -> Expression:
    """The expression with another in place of one of its subexpressions; what stands above that stays, even if it equals ``old`` then."""
    done: dict[Expression, Expression] = {}
    for x in nodes(e):
        args = tuple([done[a] for a in x.args])
        done[x] = new if x is old else x if args == x.args else make(x.pool, x.name, x.dtype, args, x.extra)
    return done[e]


def inputs(e: Expression) -> list[int]:
    """The inputs that an expression reads, in order."""
    return [i for i in range(e.reads.bit_length()) if e.reads >> i & 1]


def code(e: Expression, count: int) -> Code:
    """Instructions over SSA registers, inputs first; :func:`allocate` packs them into the register file."""
    out: list[tuple[Any, ...]] = []
    registers: dict[Expression, int] = {}
    for x in nodes(e):
        if x.name == "in":
            registers[x] = x.extra[0]
        else:
            registers[x] = count + len(out)
            out.append((x.name, x.dtype, registers[x], *[registers[a] for a in x.args], *x.extra))
    return tuple(out)


def write_code(instructions: Code, param: Callable[[Any], str]) -> str:
    """Code as text: ``r2=add.f32(r0, r1) r3=cast.f32(r2, i64)``; what an instruction holds beside registers without zeros at its end."""
    texts = []
    for name, dtype, dst, *args in instructions:
        arity = INSTRUCTIONS[name].arity
        rest = args[arity:]
        while rest and arity and rest[-1] == 0:
            rest.pop()
        typed = [DType(rest.pop(0)).short] if name in ("cast", "pow") and rest else []
        shown = [f"r{r}" for r in args[:arity]] + typed + [param(x) for x in rest[: None if arity else 1]]
        texts.append(f"r{dst}={name}.{dtype.short}({', '.join(shown)})")
    return " ".join(texts)


def read_code(text: str, param: Callable[[str], Any]) -> Code:
    """What :func:`write_code` wrote."""
    types = {d.short: d for d in DType}
    found = []
    for item in split(text, " "):
        dst, call = item.split("=", 1)
        name, call = call.split(".", 1)
        short, inside = call[:-1].split("(", 1)
        args = [int(types[a]) if a in types else int(a[1:]) if a[0] == "r" and a[1:].isdigit() else param(a) for a in split(inside, ",")]
        found.append((name, types[short], int(dst[1:]), *args, *[0] * (3 - len(args))))
    return tuple(found)


def allocate(instructions: Code, count: int) -> list[tuple[Any, ...]] | None:
    """Packs SSA registers into the machine's; None when they do not fit."""
    last: dict[int, int] = {}
    for at, (name, _, _, *args) in enumerate(instructions):
        for r in _reads(name, args):
            last[r] = at
    home = {i: i for i in range(count)}
    free = list(range(REGISTERS - 1, count - 1, -1))
    packed: list[tuple[Any, ...]] = []
    for at, (name, kind, dst, *args) in enumerate(instructions):
        reads = _reads(name, args)
        fresh = [home[a] if i < len(reads) else a for i, a in enumerate(args)]
        for r in dict.fromkeys(reads):
            if last[r] == at and r >= count:
                free.append(home[r])
        if not free:
            return None
        home[dst] = free.pop()
        packed.append((name, kind, home[dst], *fresh))
    return packed


def held(instructions: Code, count: int) -> int:
    """How many results of instructions over SSA registers have to be kept at a time."""
    last = {r: at for at, (name, _, _, *args) in enumerate(instructions) for r in _reads(name, args)}
    most = live = 0
    for at, (name, _, _, *args) in enumerate(instructions):
        live += 1 - sum(last[r] == at and r >= count for r in set(_reads(name, args)))
        most = max(most, live)
    return most


def _reads(name: str, args: Sequence[Any]) -> list[int]:
    return list(args[: INSTRUCTIONS[name].arity])
