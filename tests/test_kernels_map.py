"""The ``map`` kernel: every instruction on every type, every cast, and views of all shapes, against numpy."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from assembler import ARENA, INPUT, OUTPUT, Asm
from kernel_call import Array, offset, refused, run, sample, steps, words

from pyonnx_wasm.dtypes import DType, from_numpy
from pyonnx_wasm.runtimes.core import Core
from pyonnx_wasm.tensor.scalar import INSTRUCTIONS

FLOATS = ["float32", "float64"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
EVERY = [*NUMBERS, "bool"]
SIZES = [1, 3, 15, 17, 1000]
Code = Sequence[tuple[Any, ...]]  # name, operand type, dst, a, b, c


def bits(dtype: str, value: float) -> int:
    """An immediate as ``const`` takes it."""
    raw = struct.pack("<d", value) if dtype.startswith("float") else struct.pack("<Q", int(value) & (1 << 64) - 1)
    return int(struct.unpack("<q", raw)[0])


def tail(views: Sequence[tuple[int, Sequence[int]]], code: Code) -> list[int]:
    out: list[int] = []
    for off, strides in views:
        out += [off, *strides, *[0] * (8 - len(strides))]
    for name, dtype, *operands in code:
        out += [INSTRUCTIONS[name].code, int(dtype if isinstance(dtype, int) else from_numpy(np.dtype(dtype)))]
        out += [*operands, *[0] * (4 - len(operands))]
    return out


def params(shape: Sequence[int], ystride: Sequence[int], views: Sequence[tuple[int, Sequence[int]]], code: Code) -> dict[str, Any]:
    return {
        "rank": len(shape), "n_in": len(views), "n_code": len(code), "shape": shape, "ystride": ystride, "tail": tail(views, code)
    }  # fmt: skip


def flat(code: Code, result: str, *ins: Array, threads: int = 1) -> Array:
    """A program over arrays of one shape."""
    n = ins[0].size
    y: Array = run("map", [(result, [n])], ins, threads, **params([n], [1], [(0, [1])] * len(ins), code))
    return y


def hostile(rng: np.random.Generator, dtype: str, n: int) -> Array:
    """Values of all magnitudes, with the special ones strewn in."""
    if dtype == "bool":
        return sample(rng, dtype, [n])
    if dtype in FLOATS:
        x = (rng.standard_normal(n) * rng.choice([0.1, 1, 10, 100], n)).astype(dtype)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -2, 2, 3e38, -3e38, 1e-40, 1e-30]
    else:
        info = np.iinfo(dtype)
        x = np.where(rng.integers(0, 3, n) == 0, sample(rng, dtype, [n]), rng.integers(-12 if info.min else 0, 13, n)).astype(dtype)
        special = [info.min, info.max, 0]
    at = rng.integers(0, n, max(1, n // 8))
    x[at] = np.array(special, dtype)[rng.integers(0, len(special), at.size)]
    return x


# ---- what the instructions mean ----


def objects(fn: Callable[..., int]) -> Callable[..., Array]:
    """Integers without bounds, wrapped to the operands' type."""

    def apply(*args: Array) -> Array:
        size = args[0].dtype.itemsize
        values = [fn(*map(int, row), *([size * 8] if fn in (shl, shr) else [])) & ((1 << size * 8) - 1) for row in zip(*args, strict=True)]
        return np.array(values, f"u{size}").view(args[0].dtype)

    return apply


def by_kind(floats: Callable[..., Any], ints: Callable[..., int]) -> Callable[..., Any]:
    return lambda *args: (floats if args[0].dtype.kind == "f" else objects(ints))(*args)


def shl(a: int, b: int, width: int) -> int:
    return a << b if 0 <= b < width else 0


def shr(a: int, b: int, width: int) -> int:
    return a >> b if 0 <= b < width else -(a < 0)


def truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def clamp(x: Any, lo: Any, hi: Any) -> Any:
    y = np.where(x < lo, lo, x)
    return np.where(y > hi, hi, y)


UNARY: dict[str, tuple[list[str], Callable[..., Any]]] = {
    "neg": (NUMBERS, by_kind(np.negative, lambda a: -a)),
    "abs": (NUMBERS, by_kind(np.abs, abs)),
    "sign": (NUMBERS, np.sign),
    "relu": (NUMBERS, lambda x: np.where(x < 0, x.dtype.type(0), x)),
    "bitnot": (INTS, np.invert),
    "not": (["bool"], np.invert),
    "isnan": (FLOATS, np.isnan),
    "round": (FLOATS, np.rint),
    "rsqrt": (FLOATS, lambda x: 1 / np.sqrt(x)),
    "recip": (FLOATS, lambda x: 1 / x),
    "erf": (FLOATS, np.vectorize(math.erf, otypes=[float])),
    "sigmoid": (FLOATS, sigmoid),
    "silu": (FLOATS, lambda x: x * sigmoid(x)),
    "gelu": (FLOATS, lambda x: 0.5 * x * np.vectorize(math.erfc, otypes=[float])(-x * math.sqrt(0.5))),
    "gelu_tanh": (FLOATS, lambda x: x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "softplus": (FLOATS, lambda x: np.logaddexp(0, x)),
    "hardswish": (FLOATS, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    **{name: (FLOATS, getattr(np, name)) for name in ("floor", "ceil", "trunc", "sqrt", "exp", "log", "sin", "cos", "tan")},
    **{name: (FLOATS, getattr(np, name)) for name in ("sinh", "cosh", "tanh")},
    **{name: (FLOATS, getattr(np, "arc" + name[1:])) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
}
BINARY: dict[str, tuple[list[str], Callable[..., Any]]] = {
    "add": (NUMBERS, np.add),
    "sub": (NUMBERS, np.subtract),
    "mul": (NUMBERS, np.multiply),
    "div": (NUMBERS, by_kind(np.divide, truncated)),
    "mod": (NUMBERS, by_kind(np.mod, lambda a, b: a % b if b else 0)),
    "fmod": (NUMBERS, by_kind(np.fmod, lambda a, b: a - b * truncated(a, b) if b else 0)),
    "min": (NUMBERS, np.minimum),
    "max": (NUMBERS, np.maximum),
    "and": (["bool"], np.logical_and),
    "or": (["bool"], np.logical_or),
    "xor": (["bool"], np.logical_xor),
    "bitand": (INTS, np.bitwise_and),
    "bitor": (INTS, np.bitwise_or),
    "bitxor": (INTS, np.bitwise_xor),
    "shl": (INTS, objects(shl)),
    "shr": (INTS, objects(shr)),
    "eq": (EVERY, np.equal),
    "lt": (EVERY, np.less),
    "le": (EVERY, np.less_equal),
    "prelu": (NUMBERS, lambda a, b: np.where(a < 0, a * b, a)),
    "elu": (FLOATS, lambda a, b: np.where(a < 0, b * np.expm1(np.minimum(a, 0)), a)),
}
TERNARY: dict[str, tuple[list[str], Callable[..., Any]]] = {
    "where": (EVERY, np.where),
    "clamp": (NUMBERS, clamp),
    "fma": (NUMBERS, lambda a, b, c: a * b + c),
}
ALL = {**UNARY, **BINARY, **TERNARY}
BOOLEAN = {"isnan", "isinf", "eq", "lt", "le"}
EXACT = {"neg", "abs", "sign", "relu", "floor", "ceil", "trunc", "round", "add", "sub", "mul", "div", "min", "max", "mod", "fmod", "clamp"}
ABSOLUTE = {"gelu": 2e-7, "gelu_tanh": 2e-7, "hardswish": 2e-7, "silu": 1e-36}  # float32, where the value vanishes


def assert_close(name: str, got: Array, want: Array, inputs: Sequence[Array]) -> None:
    """Within 5 units in the last place; what rounds to less than the smallest normal number may be 0."""
    if got.dtype.kind != "f" or name in EXACT:
        np.testing.assert_array_equal(got, want)
        return
    info = np.finfo(got.dtype)
    slack = 5 * float(info.eps) * np.abs(want.astype(float)) + float(info.tiny)
    if name in ABSOLUTE:
        slack = slack + (ABSOLUTE[name] if got.dtype == np.float32 else 1e-14)
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf
        if name == "fma":  # fused or not
            slack = slack + float(info.eps) * np.abs(inputs[0].astype(float) * inputs[1])
        ok = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got.astype(float) - want.astype(float)) <= slack)
    assert ok.all(), [(*(x[i] for x in inputs), got[i], want[i]) for i in np.flatnonzero(~ok)[:5]]


def expected(name: str, inputs: Sequence[Array]) -> Array:
    last = inputs[-1]
    wide = [x.astype(float) if x.dtype == np.float32 and name not in EXACT else x for x in inputs]
    with np.errstate(all="ignore"):
        want = np.asarray(ALL[name][1](*wide))
        if name in ("silu", "gelu", "gelu_tanh", "hardswish"):  # -inf * 0
            want = np.where(np.isneginf(last), np.nan, want)
        return want.astype(bool if name in BOOLEAN else last.dtype)


def operands(rng: np.random.Generator, name: str, dtype: str, n: int) -> list[Array]:
    count = 1 if name in UNARY else 2 if name in BINARY else 3
    ins = [hostile(rng, "bool" if name == "where" and i == 0 else dtype, n) for i in range(count)]
    if name in ("shl", "shr"):
        width = ins[1].dtype.itemsize * 8
        ins[1] = rng.integers(-2 if dtype in SIGNED else 0, width + 2, n).astype(dtype)
    return ins


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, (dtypes, _) in ALL.items() for dtype in dtypes])
def test_instruction(name: str, dtype: str) -> None:
    rng = np.random.default_rng(len(name))
    for n in SIZES:
        ins = operands(rng, name, dtype, n)
        k = len(ins)
        got = flat([(name, dtype, k, *range(k))], "bool" if name in BOOLEAN else dtype, *ins)
        assert_close(name, got, expected(name, ins), ins)


@pytest.mark.parametrize("name", ["log", "asinh", "acosh"])
def test_logarithms_of_doubles(name: str) -> None:
    rng = np.random.default_rng(5)
    wide, near = 2.0 ** rng.uniform(-1074, 1024, 4000), 1 + rng.uniform(-1, 1, 4000) * 2.0 ** rng.uniform(-52, 0, 4000)
    x = np.concatenate([wide, near, [2.0**28, np.nextafter(2.0**28, np.inf), 5e-324, np.sqrt(0.5), np.sqrt(2)]])
    x = np.maximum(x, 1) if name == "acosh" else np.concatenate([x, -x]) if name == "asinh" else x
    want = UNARY[name][1](x)
    assert np.all(np.abs(flat([(name, "float64", 1, 0, 0, 0)], "float64", x) - want) <= 4 * np.spacing(np.abs(want)))


def test_every_instruction_has_a_case() -> None:
    assert set(INSTRUCTIONS) == {*ALL, "const", "index", "cast", "pow", "isinf"}


@pytest.mark.parametrize("name", ["sqrt", "exp", "tanh", "add", "max", "relu", "prelu", "clamp", "where"])
@pytest.mark.parametrize("n", [1, 17, 5000])
def test_in_place(name: str, n: int) -> None:
    ins = operands(np.random.default_rng(n), name, "float32", n)
    k, at = len(ins), len(ins) - 1
    want = flat([(name, "float32", k, *range(k))], "float32", *ins)
    a, bufs = Asm(), []
    for i, x in enumerate(ins):
        a.input(from_numpy(x.dtype), 1)
        a.inputs[i][2] = a.buffer(a.storage(INPUT, x.nbytes, i), from_numpy(x.dtype))
        bufs.append(a.inputs[i][2])
    here, out = a.buffer(a.storage(ARENA, 4 * n, 0, 0, 2)), a.buffer(a.storage(OUTPUT, 4 * n))
    a.output([n], out)
    a.copy(here, bufs[at], n)
    bufs[at] = here
    a.step("map", [here, *bufs], words("map", params([n], [1], [(0, [1])] * k, [(name, "float32", k, *range(k))])))
    a.copy(out, here, n)
    core, y = Core(a.pack(), [], [], ["node"]), np.empty(n, np.float32)
    core.bind([n] * k, ins)
    core.run(ins, [y])
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("dtype", FLOATS)
def test_isinf(dtype: str) -> None:
    x = hostile(np.random.default_rng(0), dtype, 300)
    for signs in range(4):
        want = (np.isposinf(x) & bool(signs & 1)) | (np.isneginf(x) & bool(signs & 2))
        np.testing.assert_array_equal(flat([("isinf", dtype, 1, 0, signs)], "bool", x), want)


# ---- pow ----


def integer_power(base: int, e: int) -> int:
    if e < 0:
        return 1 if base == 1 else (-1) ** (e & 1) if base == -1 else 0
    return pow(base, e, 1 << 64)


@pytest.mark.parametrize("base", NUMBERS)
@pytest.mark.parametrize("exponent", NUMBERS)
def test_pow(base: str, exponent: str) -> None:
    rng = np.random.default_rng(3)
    a, b = hostile(rng, base, 500), hostile(rng, exponent, 500)
    with np.errstate(all="ignore"):
        if base in INTS and exponent in INTS:
            want = objects(integer_power)(a, b)
        elif base in INTS:
            a = (a % 10).astype(base)
            b = np.array([0, 1, 2, 0.5], exponent)[rng.integers(0, 4, 500)]
            want = np.power(a.astype(float), b).astype(np.int64).astype(base)
        else:
            want = np.power(a.astype(float), b.astype(base if exponent in INTS else exponent).astype(float)).astype(base)
    assert_close("pow", flat([("pow", base, 2, 0, 1, from_numpy(np.dtype(exponent)))], base, a, b), want, [a, b])


@pytest.mark.parametrize("e", [0, 1, 2, 3, -1, -2, 0.5, 1.5])
def test_pow_of_a_constant(e: float) -> None:
    x = hostile(np.random.default_rng(4), "float32", 999)
    x[0] = -np.inf
    got = flat([("const", "float32", 1, bits("float32", e)), ("pow", "float32", 2, 0, 1, DType.float32)], "float32", x)
    with np.errstate(all="ignore"):
        want = np.array([math.inf if v == -math.inf and e == 0.5 else v**e for v in x.astype(float)]).astype(np.float32)
    assert_close("pow", got, want, [x])


# ---- casts ----

SMALL = {
    DType.bfloat16: ml_dtypes.bfloat16,
    DType.float16: np.float16,
    DType.float8e4m3fn: ml_dtypes.float8_e4m3fn,
    DType.float8e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    DType.float8e5m2: ml_dtypes.float8_e5m2,
    DType.float8e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}


def cast(x: Array, source: DType, target: DType, mode: int = 0) -> Array:
    """Small floats travel as their bits."""
    n, out = x.size, SMALL.get(target)
    a = Asm()
    raw = x.view(f"u{x.itemsize}") if source in SMALL else x
    y = np.empty(n, f"u{np.dtype(out).itemsize}" if out else to_numpy(target))
    a.input(source, 1)
    a.inputs[0][2] = a.buffer(a.storage(INPUT, raw.nbytes), source)
    there = a.buffer(a.storage(OUTPUT, y.nbytes), target)
    a.output([n], there, target)
    a.step("map", [there, a.inputs[0][2]], words("map", params([n], [1], [(0, [1])], [("cast", source, 1, 0, target, mode)])))
    core = Core(a.pack(), [], [], ["node"])
    core.bind([n], [raw])
    core.run([raw], [y])
    return y.view(out) if out else y


def to_numpy(dtype: DType) -> np.dtype[Any]:
    return next(np.dtype(t) for t in EVERY if from_numpy(np.dtype(t)) == dtype)


def cast_source(dtype: DType) -> Array:
    rng = np.random.default_rng(5)
    if dtype in SMALL:
        size = np.dtype(SMALL[dtype]).itemsize
        return np.arange(1 << 8 * size, dtype=f"u{size}").view(SMALL[dtype])
    x = hostile(rng, to_numpy(dtype).name, 3000)
    if dtype is not DType.float32:
        return x
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    return np.concatenate([x, halves, halves * np.float32(1.0004883), rng.integers(0, 1 << 32, 20000, np.uint32).view(np.float32)])


def to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """NaN gives 0, what 64 bits cannot hold their minimum; the rest is truncated and wraps."""
    unsigned = dtype == np.uint64
    values = [0 if v != v else int(v) if -(2.0**63) <= v < 2.0 ** (64 if unsigned else 63) else -(1 << 63) for v in x.astype(float)]
    size = dtype.itemsize
    return np.array([v & ((1 << 8 * size) - 1) for v in values], f"u{size}").view(dtype)


@pytest.mark.parametrize("source", [*(from_numpy(np.dtype(t)) for t in EVERY), *SMALL])
@np.errstate(all="ignore")
def test_cast(source: DType) -> None:
    x = cast_source(source)
    wide = x.astype(np.float32) if source in SMALL else x
    for target in [*(from_numpy(np.dtype(t)) for t in EVERY), *SMALL]:
        got = cast(x, source, target, mode=1)
        if target in SMALL:
            want = wide.astype(SMALL[target])
            equal = got.view(f"u{got.itemsize}") == want.view(f"u{got.itemsize}")
            equal |= np.isnan(got.astype(float)) & np.isnan(want.astype(float))
            assert equal.all(), (target, x[~equal][:5], got[~equal][:5], want[~equal][:5])
        elif wide.dtype.kind == "f" and got.dtype.kind in "iu":
            np.testing.assert_array_equal(got, to_integer(wide, got.dtype), str(target))
        else:
            np.testing.assert_array_equal(got, wide.astype(got.dtype), str(target))


@pytest.mark.parametrize(("target", "most"), [(DType.float8e4m3fn, 448), (DType.float8e4m3fnuz, 240), (DType.float8e5m2, 57344)])
def test_cast_saturates(target: DType, most: float) -> None:
    x = np.array([1e9, -1e9, np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(cast(x, DType.float32, target).astype(np.float32), [most, -most, most, -most, np.nan])


# ---- shapes and views ----


def any_view(rng: np.random.Generator, dtype: str, shape: Sequence[int], broadcast: bool) -> tuple[Array, Array]:
    """A view of that shape (some axes of size 1 when it may broadcast) and the array that holds it."""
    shape = [1 if broadcast and rng.random() < 0.3 else n for n in shape]
    order = rng.permutation(len(shape)) if rng.random() < 0.5 else np.arange(len(shape))
    step = rng.choice([1, 1, 1, 2, -1], len(shape))
    base = hostile(rng, dtype, max(1, math.prod(shape[a] * abs(int(step[a])) + 1 for a in order)))
    holder = base[: math.prod(shape[a] * abs(int(step[a])) + 1 for a in order)].reshape([shape[a] * abs(int(step[a])) + 1 for a in order])
    view = holder[(*(slice(None, None, int(step[a])) for a in order), ...)][(*(slice(0, shape[a]) for a in order), ...)]
    return view.transpose(np.argsort(order)), base


def strides(view: Array) -> list[int]:
    return [0 if n == 1 else s for n, s in zip(view.shape, steps(view), strict=True)]


@pytest.mark.parametrize("seed", range(300))
def test_views(seed: int) -> None:
    """Sums of up to three operands and a coordinate, over any views, into any view."""
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(["float32", "int64", "uint8", "int16"]))
    rank = int(rng.integers(0, 6))
    shape = [int(n) for n in rng.choice([1, 2, 3, 5, 7, 16, 17, 33, 64] if rank < 4 else [1, 2, 3, 4], rank)]
    if rank == 1:
        shape = [int(rng.choice([0, 1, 511, 512, 513, 1025, 2049, 5000]))]
    if rank and rng.random() < 0.03:
        shape[0] = 0
    views = [any_view(rng, dtype, shape, True) for _ in range(rng.integers(1, 4))]
    k = len(views)
    code: list[tuple[Any, ...]] = []
    want = np.broadcast_to(views[0][0], shape)
    with np.errstate(all="ignore"):
        for i in range(1, k):
            code.append(("add", dtype, 8, 8 if i > 1 else 0, i))
            want = want + views[i][0]
        if rank and k > 1:
            axis = int(rng.integers(rank))
            code += [("index", dtype, 9, axis), ("const", dtype, 10, bits(dtype, 3)), ("mul", dtype, 9, 9, 10), ("add", dtype, 11, 8, 9)]
            want = want + np.arange(shape[axis]).astype(dtype).reshape([-1 if a == axis else 1 for a in range(rank)]) * np.array(3, dtype)
    order = rng.permutation(rank) if rng.random() < 0.5 else np.arange(rank)
    place = np.empty([shape[a] for a in order], dtype).transpose(np.argsort(order))
    ins = [base for _, base in views]
    y = run(
        "map",
        [(dtype, [place.size])],
        ins,
        int(rng.integers(1, 5)),
        **params(shape, steps(place), [(offset(v, b), strides(v)) for v, b in views], code),
    )
    np.testing.assert_array_equal(y.reshape([shape[a] for a in order]).transpose(np.argsort(order)), want)


@pytest.mark.parametrize(
    ("dtype", "code", "want"),
    [
        ("float32", ("const", "float32", 0, bits("float32", 1.5)), np.full((37, 45), 1.5)),
        ("int64", ("index", "int64", 0, 0), np.indices((37, 45))[0]),
        ("float64", ("index", "float64", 0, 1), np.indices((37, 45))[1]),
    ],
)
def test_no_inputs(dtype: str, code: tuple[Any, ...], want: Array) -> None:
    np.testing.assert_array_equal(run("map", [(dtype, [37, 45])], [], **params([37, 45], [45, 1], [], [code])), want)


def test_registers_can_be_overwritten() -> None:
    """A result of another element size does not run over the operand that it replaces."""
    x = np.arange(-500, 500, dtype=np.float32)
    code = [
        ("const", "float32", 1, 0),
        ("lt", "float32", 2, 0, 1),
        ("cast", "bool", 2, 2, DType.int64),
        ("cast", "int64", 2, 2, DType.float64),
        ("cast", "float64", 2, 2, DType.float32),
        ("sub", "float32", 0, 0, 2),
        ("add", "float32", 0, 0, 0),
    ]
    np.testing.assert_array_equal(flat(code, "float32", x), 2 * (x - (x < 0)))


def test_more_than_a_tile_of_constants_and_registers() -> None:
    x = np.arange(3000, dtype=np.float32)
    code = [("const", "float32", 1 + i, bits("float32", i)) for i in range(31)] + [("add", "float32", 0, 0, 1 + i) for i in range(31)]
    np.testing.assert_array_equal(flat(code, "float32", x, threads=3), x + sum(range(31)))


# ---- what it refuses ----

ONE = [(0, [1])]


@pytest.mark.parametrize(
    ("shape", "ystride", "views", "code"),
    [
        pytest.param([8], [1], ONE, [("add", "float32", 1, 0, 5)], id="undefined register"),
        pytest.param([8], [1], ONE, [("add", "int32", 1, 0, 0)], id="operand type"),
        pytest.param([8], [1], ONE, [("add", "float32", 32, 0, 0)], id="register number"),
        pytest.param([8], [1], ONE, [("add", "float32", 1, 0, -1)], id="negative register"),
        pytest.param([8], [1], ONE, [("isnan", "float32", 1, 0)], id="result type"),
        pytest.param([8], [1], ONE, [("not", "float32", 1, 0)], id="instruction without that type"),
        pytest.param([8], [1], ONE, [("cast", "float32", 1, 0, 22)], id="packed type"),
        pytest.param([8], [1], ONE, [("cast", "float32", 1, 0, 8)], id="string"),
        pytest.param([8], [1], ONE, [("index", "float32", 1, 1)], id="axis"),
        pytest.param([8], [1], ONE, [("pow", "float32", 1, 0, 0, 6)], id="exponent type"),
        pytest.param([8], [1], [], [], id="no result"),
        pytest.param([9], [1], ONE, [], id="too long"),
        pytest.param([8], [2], ONE, [], id="output stride"),
        pytest.param([8], [1], [(1, [1])], [], id="input offset"),
        pytest.param([8], [1], [(0, [-1])], [], id="negative stride"),
        pytest.param([8], [1], [(0, [1 << 62])], [], id="overflowing stride"),
        pytest.param([1 << 40, 1 << 40], [0, 0], [(0, [0, 0])], [], id="overflowing size"),
        pytest.param([-1], [1], ONE, [], id="negative size"),
    ],
)
def test_refuses(shape: list[int], ystride: list[int], views: list[tuple[int, list[int]]], code: Code) -> None:
    refused("map", [("float32", [8])], [np.zeros(8, np.float32)] * len(views), **params(shape, ystride, views, code))


def test_exponentials_go_down_to_the_smallest_number() -> None:
    x = np.linspace(-104.5, -86, 5001).astype(np.float32)
    for name, dtype in (("exp", "float32"), ("softplus", "float32"), ("exp", "float64")):
        limits, at = np.finfo(dtype), x.astype(dtype) * (1 if dtype == "float32" else 7.1)
        got, want = flat([(name, dtype, 1, 0)], dtype, at), np.exp(at.astype(np.longdouble))
        unit = np.maximum(np.abs(want) * limits.eps, np.longdouble(limits.smallest_subnormal))
        assert np.max(np.abs(got - want) / unit) <= 1.0, (name, dtype)
        assert (got[want > limits.smallest_subnormal] > 0).all()
