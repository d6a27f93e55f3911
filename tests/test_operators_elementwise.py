"""Element-wise operators: special values, every dtype of the schema, and what is no operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from operator_case import Array, Feed, check, model, normal, same, sessions, whole

from pyonnx_wasm import InferenceSession
from pyonnx_wasm.ir import IRError

SPECIAL = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2.5, 1e-30, -1e-30, 1e30, -1e30, 3e38, np.inf, -np.inf, np.nan]
SIZES = [(3, 5), (0, 5), (1, 1)]
INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def special(dtype: str) -> Array:
    return np.array(SPECIAL, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Less", "Equal", "PRelu", "Mod"])
def test_constants_fold_as_they_run(op: str, dtype: str) -> None:
    """Two constants, one constant on either side and none: the same numbers."""
    values = special(dtype)
    given = {"fmod": 1} if op == "Mod" else {}
    a, b = (v.reshape(-1) for v in np.meshgrid(values, values))
    run = InferenceSession(model(op, [{"a": a, "b": b}], **given)).run(None, {"a": a, "b": b})[0]
    for k in range(0, a.size, 3):
        for ins, held in ((["a"], ["b"]), (["b"], ["a"]), ([], ["a", "b"])):
            pair = {"a": a[k : k + 1], "b": b[k : k + 1]}
            data = model(op, [{n: pair[n] for n in ins}], constants={n: pair[n] for n in held}, inputs=["a", "b"], **given)
            for optimise, session in sessions(data):
                got = session.run(None, {n: pair[n] for n in ins})[0]
                what = f"{op}({pair['a']}, {pair['b']}), constant {held}, optimise={optimise}"
                np.testing.assert_allclose(got, run[k : k + 1], 1e-6, 0, err_msg=what)
                if op not in ("PRelu", "Min", "Max") and got[0] == 0:
                    assert np.signbit(got[0]) == np.signbit(run[k]), what


@pytest.mark.parametrize("op", ["Log", "Reciprocal", "Sqrt", "Sign", "Neg", "Abs", "Exp", "Floor", "Ceil", "Round", "Relu", "Sin"])
def test_functions_of_constants(op: str) -> None:
    values = special("float32")
    values = values[~(np.abs(values) > 1e6) | ~np.isfinite(values)] if op == "Sin" else values
    want = InferenceSession(model(op, [{"x": values}])).run(None, {"x": values})[0]
    check(op, [{"x": values}], rtol=1e-6, atol=1e-38)
    for k in range(values.size):
        for _, session in sessions(model(op, [{}], constants={"x": values[k : k + 1]})):
            got = session.run(None, {})[0]
            np.testing.assert_allclose(got, want[k : k + 1], 1e-6, 1e-38, err_msg=f"{op}({values[k]})")
            assert op == "Sin" or np.signbit(got[0]) == np.signbit(want[k]) or np.isnan(want[k]), f"{op}({values[k]})"


@pytest.mark.parametrize("alpha", [1.0, 0.3, 1e-38, 1e30, -0.7, -2.0])
def test_celu(alpha: float) -> None:
    x = np.float32([0, 1, -1, 0.3, -0.3, 5, -5, 1e-6, -1e-6, 1e38, -1e38, np.inf, -np.inf, np.nan, 88, -60])
    wide = np.float64(np.float32(alpha))

    def celu(feed: Feed) -> Sequence[Array]:
        v = feed["x"].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            return [np.where(v < 0, wide * np.expm1(v / wide), v).astype(np.float32)]

    check("Celu", [{"x": x}, {"x": x[:0]}, {"x": x[:3]}], alpha=alpha, oracle=celu, rtol=1e-5, atol=1e-38)


@pytest.mark.parametrize("dtype", [*INTS, "float32", "float16", "float64"])
def test_shrink(dtype: str) -> None:
    """The bias counts unrounded, and the bounds may lie outside the type."""
    x = whole(0, 12, 4, 7).astype(dtype) if dtype.startswith("u") else whole(-12, 12, 4, 7).astype(dtype)
    for bias, bound in ((0.0, 0.5), (1.5, 1.5), (-0.7, 2.0), (2.5, -1.0), (0.5, 300.0)):

        def shrunk(feed: Feed, bias: float = bias, bound: float = bound) -> Sequence[Array]:
            v = feed["x"].astype(np.float64)
            b = float(np.float32(bias))
            y = np.where(v < -bound, v + b, np.where(v > bound, v - b, 0))
            return [(np.trunc(y).astype(np.int64) if dtype in INTS else y).astype(dtype)]

        check("Shrink", [{"x": x}, {"x": x[:0]}], bias=bias, lambd=bound, oracle=shrunk, rtol=1e-3)


@pytest.mark.parametrize("dtype", INTS)
def test_erf_of_integers(dtype: str) -> None:
    x = np.arange(-3 if not dtype.startswith("u") else 0, 9).astype(dtype)
    check("Erf", [{"x": x}, {"x": x[:0]}], oracle=lambda feed: [np.sign(feed["x"].astype(np.int64)).astype(dtype) * (feed["x"] > 5)])


@pytest.mark.parametrize("op", ["IsNaN", "IsInf"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_classes_of_narrow_floats(op: str, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    codes = np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}")[:: 1 if kind.itemsize == 1 else 7]
    x = codes.view(kind)
    fn = np.isnan if op == "IsNaN" else np.isinf
    check(op, [{"x": x}, {"x": x[:0]}, {"x": x[-3:]}], opset=20, oracle=lambda feed: [fn(feed["x"].astype(np.float32))])


@pytest.mark.parametrize("exponent", ["float32", "float64", "float16", *INTS])
@pytest.mark.parametrize("base", ["float32", "float64", "int32", "int64"])
def test_powers(base: str, exponent: str) -> None:
    """The exponent has a type of its own, as input, as constant of one element and as constant of many."""
    x = (np.abs(normal(3, 4)) * 4).astype(base)
    y = whole(0, 4, 3, 4).astype(exponent)

    def wanted(f: Feed) -> Sequence[Array]:
        return [np.power(f["x"].astype(np.float64), f.get("e", y[:1, :1]).astype(np.float64)).astype(base)]

    tolerance = {"rtol": 1e-5, "atol": 0.0}
    check("Pow", [{"x": x, "e": y}, {"x": x[:0], "e": y[:0]}, {"x": x[:1, :1], "e": y[:1, :1]}], oracle=wanted, **tolerance)
    check("Pow", [{"x": x}, {"x": x[:0]}, {"x": x[:2]}], constants={"e": y[:1, :1]}, oracle=wanted, **tolerance)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("base", ["float16", "float32", "float64", "bfloat16"])
def test_powers_by_integers_that_floats_round(base: str, dtype: str, stored: bool) -> None:
    """What is odd stays odd: below 2^53 numpy has them exactly."""
    x = np.array([-1.5, -1, 1, -0.5, 2, np.nan]).astype(np.dtype(base))
    for exponent in (2**31 - 1, 2**31 - 2, 3, 2, 1, 0, *([2**32 - 1, 2**32 - 2] if dtype != "int32" else [])):
        y = np.full(x.shape, exponent, dtype)
        feeds, held = ({"x": x}, {"e": y}) if stored else ({"x": x, "e": y}, {})
        got = InferenceSession(model("Pow", [feeds], constants=held)).run(None, feeds)[0].view(x.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            want = np.power(x.astype(np.float64), exponent).astype(x.dtype)
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), str(exponent))


def test_powers_of_minus_infinity() -> None:
    x = np.float32([-np.inf, np.inf, -0.0, 0.0, 4, np.nan])
    for exponent in (0.5, 2.0, -1.0, 3.0, 1.0, 0.0):
        with np.errstate(divide="ignore", invalid="ignore"):
            want = np.power(x, np.full(x.shape, exponent, np.float32))
        for constants in ({"e": np.float32(exponent)}, {}):
            feed = {"x": x} | ({} if constants else {"e": np.full(x.shape, exponent, np.float32)})
            check("Pow", [feed], constants=constants, oracle=lambda _, want=want: [want], rtol=1e-6, atol=0.0)


def test_powers_with_a_size_as_exponent() -> None:
    nodes = [helper.make_node("Shape", ["x"], ["n"]), helper.make_node("Pow", ["x", "n"], ["y"])]
    for k, dtype in ((1, np.float32), (1, np.int64)):
        info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), ["n"] * k)
        graph = helper.make_graph(nodes, "g", [info], [helper.make_empty_tensor_value_info("y")])
        data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
        for _, session in sessions(data):
            for n in (3, 1, 0, 2):
                x = np.arange(1, n + 1).astype(dtype)
                same(session.run(None, {"x": x})[0], (x.astype(np.float64) ** n).astype(dtype), 1e-6, 0.0)


@pytest.mark.parametrize("op", ["Mod", "Min", "Max", "Add", "Less", "BitShift", "BitwiseAnd", "PRelu", "Sum", "Where"])
def test_operands_of_two_types_are_refused(op: str) -> None:
    feeds: Feed = {"a": whole(0, 4, 3, dtype=np.uint32), "b": whole(0, 4, 3, dtype=np.uint64)}
    feeds = ({"c": np.array([True])} if op == "Where" else {}) | dict(feeds)
    given = {"direction": "LEFT"} if op == "BitShift" else {}
    with pytest.raises(IRError, match="uint32 and uint64; insert a Cast"):
        InferenceSession(model(op, [feeds], **given))


@pytest.mark.parametrize(
    ("op", "dtype"), [("Sqrt", "int32"), ("And", "int32"), ("BitwiseNot", "float32"), ("Not", "uint8"), ("Abs", "bool")]
)
def test_what_no_kernel_computes_is_refused_by_name(op: str, dtype: str) -> None:
    x = np.zeros(3, dtype)
    with pytest.raises(IRError, match=f"{dtype} is not supported"):
        InferenceSession(model(op, [{"a": x, "b": x} if op == "And" else {"a": x}]))


@pytest.mark.parametrize("dtype", INTS)
def test_constants_of_all_integers(dtype: str) -> None:
    """Single and many, at the ends of the type."""
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.max, info.max // 2 + 1, 1], dtype)
    x = np.array([info.max, 3, info.min, 0], dtype)
    for held in (ends, *(ends[k : k + 1] for k in range(4))):
        with np.errstate(over="ignore"):
            for op, fn in (("Add", np.add), ("Mul", np.multiply), ("Equal", np.equal), ("Greater", np.greater), ("Max", np.maximum)):
                check(
                    op,
                    [{"x": x}, {"x": x[:0]} if held.size == 1 else {"x": x}],
                    constants={"b": held},
                    oracle=lambda f, fn=fn, held=held: [fn(f["x"], held)],
                )
        every: Any = InferenceSession(model("Identity", [{}], constants={"b": held})).run(None, {})[0]
        np.testing.assert_array_equal(every, held)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64", "float32", "float64"])
def test_gemm_of_any_factors(dtype: str) -> None:
    a, b, c = (whole(0, 9, *s).astype(dtype) for s in ((3, 4), (4, 5), (3, 5)))
    for alpha, beta in ((1.0, 1.0), (2.0, 3.0), (-1.0, 1.0), (0.5, 1.5), (1.0, -2.0), (-0.25, 0.0)):

        def product(feed: Feed, alpha: float = alpha, beta: float = beta) -> Sequence[Array]:
            y = feed["a"].astype(np.float64) @ b.astype(np.float64) * alpha + c.astype(np.float64) * beta
            return [(np.trunc(y).astype(np.int64) if dtype[0] != "f" else y).astype(dtype)]

        check("Gemm", [{"a": a}], constants={"b": b, "c": c}, alpha=alpha, beta=beta, oracle=product, rtol=1e-6)


def test_attributes_left_out_are_float32() -> None:
    """A default is what the attribute would hold, in float64 too."""
    x = np.random.default_rng(3).standard_normal((2, 3, 4))
    parts = {n: np.random.default_rng(k).random(3) for k, n in enumerate("sbmv")}
    check("BatchNormalization", [{"x": x}], constants=parts, rtol=1e-14, atol=1e-15)
    for op in ("LeakyRelu", "Elu", "Selu", "ThresholdedRelu", "HardSigmoid"):
        check(op, [{"x": x}], oracle="reference", rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("step", [0, 3])
def test_optimisers_keep_float64(step: int) -> None:
    rng = np.random.default_rng(0)
    x, g, v, h = (rng.random((3, 4)) for _ in range(4))
    rate = np.array(0.1)
    a, b, eps = (float(np.float32(k)) for k in (0.9, 0.999, 1e-6))

    def adam(feed: Feed) -> Sequence[Array]:
        x, g, v, h = (feed[k] for k in "xgvh")
        v, h = a * v + (1 - a) * g, b * h + (1 - b) * g * g
        r = feed["r"] * np.sqrt(1 - b**step) / (1 - a**step) if step else feed["r"]
        return [x - r * v / (np.sqrt(h) + eps), v, h]

    feeds = [{"r": rate, "t": np.array(step), "x": x[:n], "g": g[:n], "v": v[:n], "h": h[:n]} for n in (3, 1, 0)]
    check("Adam", feeds, outputs=["y", "v1", "h1"], domain="ai.onnx.preview.training", oracle=adam, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bounds", [{}, {"min": -1.0}, {"max": 2.0}, {"min": -1.0, "max": 2.0}])
def test_bounds_of_clip_before_opset_11_are_float32s_largest(bounds: dict[str, float], dtype: str) -> None:
    x = np.array([-np.inf, -1e38, -2, np.nan, 0, 3, 1e38, np.inf]).astype(dtype)
    most = float(np.finfo(np.float32).max)
    low, high = (np.float32(bounds.get(k, v)).astype(dtype) for k, v in (("min", -most), ("max", most)))
    check("Clip", [{"x": x}], opset=10, oracle=lambda f: [np.minimum(np.maximum(f["x"], low), high)], **bounds)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("x", [np.float32(3), np.float32([-4, 2, 9])])
def test_bounds_of_clip_that_hold_one_number_leave_the_shape(shape: tuple[int, ...], x: np.ndarray) -> None:
    """The standard asks for scalars; exporters write vectors of one as well."""
    bounds = {"min": np.full(shape, -1, np.float32), "max": np.full(shape, 4, np.float32)}
    data = model("Clip", [{"x": np.asarray(x)}], constants=bounds, inputs=["x", "min", "max"])
    for _, session in sessions(data):
        (y,) = session.run(None, {"x": np.asarray(x)})
        assert y.shape == x.shape
        np.testing.assert_array_equal(y, np.clip(x, -1, 4))
