"""Element-wise maps: one instruction over broadcast operands, casts, coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..ir import Content, IRError, Node, Shape, Value
from ..ir.dims import Dim, DimLike
from ..registry import Kernel
from . import expression, scalar
from .content import CONTENT_LIMIT, constant, single, together
from .views import MAX_RANK, broadcast, coalesced, ints, same_view

HALVES = (DType.float16, DType.bfloat16)
FLOAT8 = frozenset(d for d in DType if d.is_float and d.bits == 8)


def map_(name: str, *args: Value, out: DType | None = None, via: DType | None = None, mode: int = 0) -> Value:
    """One instruction over broadcast operands.

    Args:
        name: of :data:`scalar.INSTRUCTIONS`.
        args: operands of one dtype (``where``: bool, then two of one dtype; ``pow``: base and exponent of any).
        out: the target of a ``cast``.
        via: dtype to compute in; default the operands' own, float32 for the halves.
        mode: of a ``cast`` to 8-bit floats: bit 0 lets overflow become infinity or NaN, the bits above round float8e8m0.
    """
    instruction = scalar.INSTRUCTIONS[name]
    dtype = args[-1].dtype if name == "where" else args[0].dtype
    if name == "where" and dtype in FLOAT8 and args[1].dtype is dtype:  # no more than moved
        return _as(map_(name, args[0], *(_as(a, DType.uint8) for a in args[1:])), dtype)
    _demand_dtypes(name, args)
    compute = via or (DType.float32 if dtype in HALVES and name != "cast" else dtype)
    if compute is not dtype:
        args = tuple(a if a.dtype is DType.bool and name == "where" and i == 0 else cast(a, compute) for i, a in enumerate(args))
        return cast(map_(name, *args), DType.bool if instruction.result == "bool" else dtype)
    result = {"same": dtype, "bool": DType.bool, "cast": out or dtype}[instruction.result]
    known = [single(a) for a in args]
    if len(args) > 1:
        args = tuple(broadcast(*args))
    shape = args[0].shape
    xs, code = _code(name, args, known, result, mode)
    y: Value = MAP({"y": (result, shape)}, {"x": xs}, code=code)
    y._content = _mapped(name, args, result, shape)
    return y


def _as(x: Value, dtype: DType) -> Value:
    """The same bits read as another dtype of the same width."""
    return Value(x.storage, dtype, x.shape, x.offset, x.strides)


def _demand_dtypes(name: str, args: Sequence[Value]) -> None:
    if name == "cast":
        return
    if name == "where" and args[0].dtype is not DType.bool:
        raise IRError(f"the condition is {args[0].dtype.name}, it must be bool")
    numbers = args[1:] if name == "where" else args
    if name != "pow" and any(a.dtype is not numbers[0].dtype for a in numbers):
        raise IRError(f"operands have dtypes {' and '.join(dict.fromkeys(a.dtype.name for a in numbers))}; insert a Cast")
    for a in numbers:
        if not scalar.takes(name, DType.float32 if a.dtype in HALVES else a.dtype):
            raise IRError(f"{name} of {a.dtype.name} is not supported; insert a Cast")


def _code(
    name: str, args: Sequence[Value], known: Sequence[Any], result: DType, mode: int = 0
) -> tuple[list[Value], tuple[tuple[Any, ...], ...]]:
    """Inputs and instructions of a one-instruction map; operands of one known element become ``const`` instructions."""
    xs: list[Value] = []
    for arg, value in zip(args, known, strict=True):
        if value is None and not any(same_view(arg, x) for x in xs):
            xs.append(arg)
    code: list[tuple[Any, ...]] = []
    operands: list[int] = []
    free = len(xs)
    for arg, value in zip(args, known, strict=True):
        if value is None:
            operands.append(next(i for i, x in enumerate(xs) if same_view(arg, x)))
            continue
        if isinstance(value, Dim) and arg.dtype.is_float:
            code.append(("const", DType.int64, free, value, 0, 0))
            code.append(("cast", DType.int64, free + 1, free, int(arg.dtype), 0))
            free += 1
        else:
            code.append(("const", arg.dtype, free, value, 0, 0))
        operands.append(free)
        free += 1
    dtype = args[-1].dtype if name == "where" else args[0].dtype
    operands += [0] * (3 - len(operands))
    if name == "cast":
        operands[1:] = [int(result), mode]
    if name == "pow":
        operands[2] = int(args[1].dtype)
    code.append((name, dtype, free, *operands))
    return xs, tuple(code)


def _mapped(name: str, args: Sequence[Value], result: DType, shape: Shape) -> Callable[[], Content | None] | None:
    fixed = ints(shape)
    if fixed is None or math.prod(fixed) > CONTENT_LIMIT:
        return None

    dtype = args[-1].dtype if name == "where" else args[0].dtype

    def compute() -> Content | None:
        known = together(args)
        if known is None:
            return None
        out = np.empty(fixed, object)
        for at in np.ndindex(*fixed):
            items = [k[at] for k in known]
            if name == "cast":
                out[at] = None if items[0] is None else scalar.cast(items[0], result)
            else:
                out[at] = scalar.evaluate(name, items, dtype)
        return None if any(e is None for e in out.reshape(-1)) else out

    return compute


def cast(x: Value, dtype: DType, mode: int = 0) -> Value:
    return x if x.dtype is dtype else map_("cast", x, out=dtype, mode=mode)


def like(x: Value, number: float) -> Value:
    """A scalar of the same dtype, as a Cast to it gives it."""
    if x.dtype is DType.bfloat16:
        return cast(constant(np.float32(number)), DType.bfloat16)
    return constant(np.array(scalar.cast(number, x.dtype), to_numpy(x.dtype)), x.dtype)


def index(axis: int, shape: Sequence[DimLike], dtype: DType = DType.int64) -> Value:
    """The coordinate along an axis."""
    shape = tuple(shape)
    y: Value = MAP({"y": (dtype, shape)}, {"x": []}, code=(("index", dtype, 0, axis, 0, 0),))
    fixed = ints(shape)
    if fixed is not None and math.prod(fixed) <= CONTENT_LIMIT:
        y._content = np.indices(fixed)[axis].astype(object) if fixed else None
    return y


def _map_params(node: Node) -> dict[str, Any]:
    """Strides from the values; constant scalars of one element become ``const`` instructions in the fusion pass."""
    y, xs = node.out, list(node.ins["x"])
    if y.rank > MAX_RANK:
        y, xs = coalesced(y, xs)
    tail: list[DimLike | float] = []
    for x in xs:
        tail += [x.offset, *x.strides, *[0] * (MAX_RANK - x.rank)]
    code = expression.allocate(node.params["code"], len(xs))
    if code is None:
        raise IRError("an element-wise chain needs too many registers")
    for name, dtype, dst, a, b, c in code:
        if name == "const" and dtype is DType.uint64 and isinstance(a, int):
            a = scalar.cast(a, DType.int64)  # its bits: registers are signed
        tail += [scalar.INSTRUCTIONS[name].code, int(dtype), dst, a, b, c]
    return {
        "rank": y.rank, "n_in": len(xs), "n_code": len(code), "yoff": y.offset, "shape": y.shape, "ystride": y.strides, "tail": tail
    }  # fmt: skip


MAP = Kernel(
    "map",
    ">y x*",
    "rank n_in n_code yoff shape[8] ystride[8] tail[*]",
    _map_params,
    ("strided", "elementwise", "inplace"),
    {"tail": scalar.OPCODES},
    {"code": (expression.write_code, expression.read_code)},
)
