"""Folding against the kernels: every instruction on every dtype, over the special values of the dtype, gives what the core gives."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from test_kernels_map import flat

import pyonnx_wasm
from pyonnx_wasm.dtypes import DType, from_numpy
from pyonnx_wasm.ir import dims
from pyonnx_wasm.runtimes.core import CoreError
from pyonnx_wasm.tensor import scalar

FLOATS = ["float32", "float64"]
INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
EVERY = [*FLOATS, *INTS, "bool"]
NOT_FOLDED = {
    "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "silu", "gelu", "gelu_tanh",
    "softplus", "hardswish", "isinf", "elu",
}  # fmt: skip
FOLDED = [i for i in scalar.INSTRUCTIONS.values() if i.name not in {"const", "index", "cast"} | NOT_FOLDED]
LIBRARY = {"exp", "log", "sin", "cos", "pow", "rsqrt", "fma", "mod"}  # rounded by other algorithms than Python's


def special(dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTS:
        info = np.iinfo(dtype)
        some = [0, 1, 2, 3, 7, 63, 64, info.max, info.max - 1, info.min, info.min + 1, info.max // 2]
        return np.unique(np.array([*some, *([-1, -2, -3, -7] if info.min else [])], dtype))
    f = np.finfo(dtype)
    some = [0, 1, 0.5, 2, 3, 2.5, 1.5, 88.8, 1e-3, 1e30, f.max, f.tiny, np.inf, 2**31, 2**53, 0.1]
    return np.array([*some, *(-x for x in some), -0.0, np.nan], dtype)


def defined(name: str, dtype: str) -> bool:
    """Whether the core has the instruction for a dtype."""
    x = np.zeros(1, "bool" if name == "where" else dtype)
    operands = [x, *[np.zeros(1, dtype)] * (scalar.INSTRUCTIONS[name].arity - 1)]
    try:
        call(name, dtype, operands)
    except CoreError:
        return False
    return True


def call(name: str, dtype: str, operands: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    n = len(operands)
    kind = int(from_numpy(np.dtype(dtype)))
    rest = [*range(n), *[0] * (3 - n)]
    if name == "pow":
        rest[2] = int(from_numpy(operands[1].dtype))
    result = "bool" if scalar.INSTRUCTIONS[name].result == "bool" else dtype
    return flat([(name, kind, n, *rest)], result, *operands)


def close(got: list[Any], want: np.ndarray[Any, Any], exact: bool, what: str) -> None:
    assert None not in got, what
    folded = np.array(got, want.dtype)
    if exact or want.dtype.kind != "f":
        np.testing.assert_array_equal(folded, want, err_msg=what)
        np.testing.assert_array_equal(np.signbit(folded[want == 0]), np.signbit(want[want == 0]), err_msg=what)
    else:
        eps = np.finfo(want.dtype)
        np.testing.assert_allclose(folded, want, 4 * eps.eps, eps.tiny, err_msg=what)


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("name", [i.name for i in FOLDED])
def test_folding_is_the_kernel(name: str, dtype: str) -> None:
    assert defined(name, dtype) == scalar.takes(name, from_numpy(np.dtype(dtype)))
    if not defined(name, dtype):
        return
    arity = scalar.INSTRUCTIONS[name].arity
    values = special(dtype)
    pools = [special("bool") if name == "where" else values, *[values if arity < 3 else values[::3]] * (arity - 1)]
    if name in ("sin", "cos"):
        pools = [values[~(np.abs(values) > 1e5) | ~np.isfinite(values)]]
    tuples = list(itertools.product(*pools))
    operands = [np.array([t[k] for t in tuples], pools[k].dtype) for k in range(arity)]
    want = call(name, dtype, operands)
    kind = from_numpy(np.dtype(dtype))
    got = [scalar.evaluate(name, [o.item() for o in t], kind) for t in tuples]
    if name == "fma" and dtype in FLOATS:  # the compiler may contract it, or not: overflow of the product alone is either's
        keep = np.isfinite(want) & np.isfinite(np.array(got, dtype))
        got, want = [g for g, k in zip(got, keep, strict=True) if k], want[keep]
    close(got, want, name not in LIBRARY, f"{name} {dtype}")


@pytest.mark.parametrize("exponent", [*FLOATS, *INTS])
@pytest.mark.parametrize("base", [*FLOATS, *INTS])
def test_powers_of_mixed_types(base: str, exponent: str) -> None:
    tuples = list(itertools.product(special(base), special(exponent)))
    if (base in INTS and exponent in FLOATS) or base == "float32":  # float32 exponents beyond 2^24 lose their parity
        tuples = [t for t in tuples if not abs(float(t[1])) > 1e6]
    operands = [np.array([t[0] for t in tuples], base), np.array([t[1] for t in tuples], exponent)]
    want = call("pow", base, operands)
    got = [scalar.evaluate("pow", [o.item() for o in t], from_numpy(np.dtype(base))) for t in tuples]
    close(got, want, False, f"{base} ** {exponent}")


@pytest.mark.parametrize("target", [*EVERY, "float16", "bfloat16"])
@pytest.mark.parametrize("source", EVERY)
def test_casts(source: str, target: str) -> None:
    values = special(source)
    if source in FLOATS:
        rng = np.random.default_rng(1)
        halves = np.array([65504, 65519, 65520, 6e-8, 2.98e-8, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-40])
        values = np.concatenate(
            [values, halves.astype(source), (rng.standard_normal(200) * 10.0 ** rng.integers(-8, 8, 200)).astype(source)]
        )
    code = [("cast", int(from_numpy(np.dtype(source))), 1, 0, int(DType[target]), 0)]
    want = flat(code, target, values)
    got = [scalar.cast(v.item(), DType[target]) for v in values]
    if target == "bfloat16":
        np.testing.assert_array_equal(np.array(got, np.float32), np.asarray(want).view(ml_dtypes.bfloat16).astype(np.float32))
    else:
        close(got, want, True, f"{source} to {target}")


def test_every_instruction_is_either_folded_or_named() -> None:
    assert {i.name for i in scalar.INSTRUCTIONS.values() if i.numbers is None} == NOT_FOLDED | {"const", "index", "cast"}


@pytest.mark.parametrize("name", [i.name for i in FOLDED if i.sizes is not None])
def test_sizes_agree_with_numbers(name: str) -> None:
    """The meaning on symbolic sizes, evaluated afterwards, is the meaning on integers."""
    instruction = scalar.INSTRUCTIONS[name]
    kind = DType.bool if name in ("not", "and", "or", "xor") else DType.int64
    pool = (0, 1) if kind is DType.bool else (0, 1, 2, 3, 7, 100, -1, -2, -7)
    assert instruction.sizes is not None
    symbols = [dims.sym(f"%{k}", lo=-(2**62), hi=2**62) for k in range(instruction.arity)]
    for values in itertools.product(pool, repeat=instruction.arity):
        want = scalar.evaluate(name, list(values), kind)
        for shown in itertools.product((False, True), repeat=instruction.arity):
            args = [s if see else v for s, v, see in zip(symbols, values, shown, strict=True)]
            got = scalar.evaluate(name, args, kind)
            env = {f"%{k}": v for k, v in enumerate(values)}
            assert int(dims.evaluate(got, env) if not isinstance(got, bool) else got) == int(want), (name, values, shown)


ENDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8, np.uint16: TensorProto.UINT16, np.int32: TensorProto.INT32,
        np.uint32: TensorProto.UINT32, np.int64: TensorProto.INT64, np.uint64: TensorProto.UINT64}  # fmt: skip


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of integers: towards zero, and 0 where nothing divides."""
    return np.array([scalar.evaluate("div", [int(x), int(y)], DType.int64) for x, y in zip(a, b, strict=True)]).astype(a.dtype)


BINARY = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _quotient,
    "Mod": lambda a, b: np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))),
    "Max": np.maximum,
    "Min": np.minimum,
    "Less": np.less,
}


@pytest.mark.parametrize("optimise", [True, False], ids=["optimised", "plain"])
@pytest.mark.parametrize("dtype", ENDS, ids=lambda t: t.__name__)
@pytest.mark.parametrize("op", BINARY)
def test_elements_that_are_given_wrap_as_their_dtype_does(op: str, dtype: type, optimise: bool) -> None:
    """As scalars, which shapes may depend on, and as int64, where nothing wraps that wrapped before."""
    nodes = [helper.make_node(op, ["a", "b"], ["y"]), helper.make_node("Cast", ["y"], ["wide"], to=TensorProto.INT64)]
    inputs = [helper.make_tensor_value_info(n, ENDS[dtype], []) for n in "ab"]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info(n) for n in ("y", "wide")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = pyonnx_wasm.SessionOptions()
    level = pyonnx_wasm.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    session = pyonnx_wasm.InferenceSession(model.SerializeToString(), options)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for a, b in itertools.product([low, 0, 1, 3, high // 2 + 1, high], repeat=2):
        feeds = {"a": np.array(a, dtype), "b": np.array(b, dtype)}
        want = BINARY[op](feeds["a"].reshape(1), feeds["b"].reshape(1))[0]
        y, wide = session.run(None, feeds)
        assert (y, wide) == (want, want.astype(np.int64)), (a, b)
