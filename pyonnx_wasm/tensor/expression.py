"""The code of a ``map`` as an expression, and back: what the element-wise passes reason about.

An expression is a tuple ``(name, dtype, *operands)``: leaves are ``("in", dtype, i)``, ``("const", dtype, value)`` and
``("index", dtype, axis)``; a cast is ``("cast", source dtype, operand, target, mode)``. Tuples compare by value, so equal
subexpressions are one register when they become code again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ..dtypes import DType
from ..ir import Node
from ..ir.dims import Dim
from .scalar import INSTRUCTIONS

Expression = tuple[Any, ...]
Code = tuple[tuple[Any, ...], ...]

MAX_INPUTS, MAX_CODE, REGISTERS = 8, 64, 32
LEAVES = ("in", "const", "index")


def of(node: Node) -> Expression:
    """The expression that a map node computes."""
    xs = node.ins["x"]
    registers: dict[int, Expression] = {i: ("in", x.dtype, i) for i, x in enumerate(xs)}
    last = registers.get(0)
    for name, dtype, dst, a, b, c in node.params["code"]:
        if name in ("const", "index"):
            last = (name, dtype, a)
        elif name == "cast":
            last = (name, dtype, registers[a], DType(b), c)
        else:
            operands = [registers[r] for r in (a, b, c)[: INSTRUCTIONS[name].arity]]
            last = (name, dtype, *operands) if name != "pow" else (name, dtype, *operands, c)
        registers[dst] = last
    assert last is not None
    return last


def operands(e: Expression) -> tuple[Expression, ...]:
    """The operands that are expressions themselves."""
    return tuple(o for o in e[2:] if isinstance(o, tuple)) if e[0] not in LEAVES else ()


def dtype(e: Expression) -> DType:
    """The element type of a result."""
    if e[0] == "cast":
        return e[3]  # type: ignore[no-any-return]
    return DType.bool if e[0] not in LEAVES and INSTRUCTIONS[e[0]].result == "bool" else e[1]


def rebuild(e: Expression, fn: Callable[[Expression], Expression]) -> Expression:
    """Applies ``fn`` to every subexpression, operands first; shared ones once."""
    return _rebuild(e, fn, {})


def _rebuild(e: Expression, fn: Callable[[Expression], Expression], done: dict[int, Expression]) -> Expression:
    if id(e) not in done:
        done[id(e)] = fn(e if e[0] in LEAVES else (e[0], e[1], *(_rebuild(o, fn, done) if isinstance(o, tuple) else o for o in e[2:])))
    return done[id(e)]


def replaced(e: Expression, old: Expression, new: Expression) -> Expression:
    """The expression with one subexpression, wherever it occurs, replaced once: what stands above it stays, equal or not."""
    done: dict[int, Expression] = {}

    def visit(x: Expression) -> Expression:
        if id(x) not in done:
            done[id(x)] = new if x == old else x if x[0] in LEAVES else (*x[:2], *(visit(o) if isinstance(o, tuple) else o for o in x[2:]))
        return done[id(x)]

    return visit(e)


def inputs(e: Expression) -> set[int]:
    """The inputs that an expression reads."""
    found: set[int] = set()
    seen: set[int] = set()
    todo = [e]
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if x[0] == "in":
            found.add(x[2])
        todo += operands(x)
    return found


def code(e: Expression, count: int) -> Code:
    """Instructions over SSA registers, inputs first; :func:`allocate` packs them into the register file."""
    out: list[tuple[Any, ...]] = []
    registers: dict[Any, int] = {("in", i): i for i in range(count)}
    keys: dict[int, Any] = {}

    def visit(x: Expression) -> int:
        if x[0] == "in":
            return int(x[2])
        key = keys.get(id(x))
        if key is None:
            if x[0] in ("const", "index"):
                value = x[2]
                key = (x[0], x[1], struct.pack("<d", value) if isinstance(value, float) else value)
            else:
                key = (x[0], x[1], *(visit(o) if isinstance(o, tuple) else ("=", o) for o in x[2:]))
            keys[id(x)] = key
        if key not in registers:
            registers[key] = count + len(out)
            if x[0] in ("const", "index"):
                args = [x[2], 0, 0]
            elif x[0] == "cast":
                args = [key[2], int(x[3]), x[4]]
            else:
                args = [k[1] if isinstance(k, tuple) else k for k in key[2:]]
                args += [0] * (3 - len(args))
            out.append((x[0], x[1], count + len(out), *args))
        return registers[key]

    top = visit(e)
    if out and out[-1][2] != top:
        raise AssertionError("the result must be the last instruction")
    return tuple(out)


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
        for r in set(reads):
            if last[r] == at and r >= count:
                free.append(home[r])
        if not free:
            return None
        home[dst] = free.pop()
        packed.append((name, kind, home[dst], *fresh))
    return packed


def _reads(name: str, args: Sequence[Any]) -> list[int]:
    return [] if name in ("const", "index") else list(args[: INSTRUCTIONS[name].arity])


def number(e: Expression) -> float | None:
    """The value of a constant leaf, if it is a plain number."""
    return e[2] if e[0] == "const" and not isinstance(e[2], Dim) else None
