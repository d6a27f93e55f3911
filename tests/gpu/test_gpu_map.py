"""Element-wise chains on the GPU."""

import math

import numpy as np
import pytest
from gpu_model import assert_same, both, graph, node
from onnx import helper

UNARY = ["Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tanh", "Erf", "Sigmoid", "Relu",
         "Softplus", "HardSwish", "Asin", "Acos", "Gelu", "Sinh", "Cosh", "Asinh", "Atan", "Mish", "Softsign"]  # fmt: skip
SPECIAL = np.array([0, -0.0, 1, -1, 0.5, -0.5, 1e-7, 88, -88, 1e30, -1e30, np.inf, -np.inf, np.nan, 3.7, -3.7], np.float32)


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal(53).astype(np.float32) * 3, SPECIAL])
    if op in ("Asin", "Acos"):
        x = np.concatenate([x, np.linspace(-1, 1, 201, dtype=np.float32), np.float32([1e-20, -1e-20, 0.99999994, -0.99999994])])
    if op == "Gelu":
        x = np.concatenate([x[x != -np.inf], np.float32([3e38, -3e38, 100, -100, 6, -6])])
    if op == "Log":
        x = np.concatenate([x, np.float32([1e-40, 1.4e-45, 1.1754942e-38, 1.1754944e-38, 3e38])])
    if op in ("Sin", "Cos"):
        far = np.exp(np.linspace(np.log(1e-6), np.log(3e38), 400)) * np.resize([1, -1], 400)
        x = np.concatenate([x, far.astype(np.float32), np.float32([32767.998, 32768, 3.4e38])])
    if op in ("Mish", "Sinh", "Cosh"):
        x = x[np.abs(x) < 80]
    for pairs in both(node(op, {"x": x}, opset=22), {"x": x}, {"x": x[:1]}, {"x": x[:0]}):
        assert_same(pairs)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "uint8", "int8", "uint64", "uint32", "int16"])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Less", "Equal"])
def test_binary(op: str, dtype: str) -> None:
    rng = np.random.default_rng(2)
    info = None if dtype.startswith("f") else np.iinfo(dtype)

    def draw(*shape: int) -> np.ndarray:
        if info is None:
            return rng.standard_normal(shape).astype(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)

    feeds = {"a": draw(3, 1, 7), "b": draw(1, 5, 7)}
    others = {"a": draw(2, 1, 1), "b": draw(2, 3, 65)}, {"a": draw(1, 0, 2), "b": draw(1, 1, 2)}
    for pairs in both(node(op, feeds), feeds, *others):
        assert_same(pairs)


EXACTLY = {
    "Div": (np.divide, 0), "Reciprocal": (np.reciprocal, 0), "Mod": (np.fmod, 0), "Log": (np.log, 2), "Asinh": (np.arcsinh, 3),
    "Erf": (np.vectorize(math.erf), 3), "Atanh": (np.arctanh, 4), "Pow": (np.power, 8),
}  # fmt: skip


@pytest.mark.parametrize("op", EXACTLY)
def test_units_in_the_last_place(op: str) -> None:
    """Where what follows rounds to integers, as quantisation does, one is enough for another result."""
    rng = np.random.default_rng(6)
    x = (rng.standard_normal(20000) * np.exp2(rng.integers(-18, 12, 20000))).astype(np.float32)
    y = (rng.standard_normal(20000) * np.exp2(rng.integers(-2, 5, 20000))).astype(np.float32)
    whole = rng.integers(1, 60, 20000).astype(np.float32)
    feeds = {"a": x}
    if op == "Div":
        feeds = {"a": x, "b": y}
    elif op == "Mod":
        feeds = {"a": np.concatenate([x, y, whole * 7]), "b": np.concatenate([y + np.copysign(1, y), y * 3, whole])}
    elif op == "Pow":
        feeds = {"a": np.abs(x) + 2.0**-10, "b": np.clip(y, -6, 6)}
    elif op == "Log":
        feeds = {"a": np.concatenate([np.abs(x), 1 + x / 2**16])}
    elif op == "Atanh":
        feeds = {"a": x / 2**15}
    function, units = EXACTLY[op]
    exact = function(*(v.astype(np.float64) for v in feeds.values())).astype(np.float32)
    [[(_, got)]] = both(node(op, feeds, **({"fmod": 1} if op == "Mod" else {})), feeds)
    assert np.all(np.abs(got - exact) <= units * np.spacing(np.abs(exact)))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_value_less_itself(dtype: str) -> None:
    """NaN where the value is not finite, whatever compilers of shaders make of x - x."""
    with np.errstate(over="ignore"):
        feeds = {"a": SPECIAL.astype(dtype)}
    for pairs in both(graph([helper.make_node("Sub", ["a", "a"], ["y0"])], feeds), feeds):
        assert_same(pairs)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_division_by_a_zero_that_is_written_down(zero: float) -> None:
    feeds = {"a": SPECIAL}
    for pairs in both(graph([helper.make_node("Div", ["a", "z"], ["y0"])], feeds, weights={"z": np.array([zero], np.float32)}), feeds):
        assert_same(pairs)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("operands", [["a", "z"], ["z", "a"]])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_product_with_a_zero_that_is_written_down(zero: float, operands: list[str], dtype: str) -> None:
    """NaN for what is not finite, and the sign of both."""
    with np.errstate(over="ignore"):
        feeds = {"a": SPECIAL.astype(dtype)}
    for pairs in both(graph([helper.make_node("Mul", operands, ["y0"])], feeds, weights={"z": np.array([zero], dtype)}), feeds):
        assert_same(pairs)
        for want, got in pairs:
            assert np.array_equal(np.signbit(want) & (want == 0), np.signbit(got) & (got == 0))


@pytest.mark.parametrize("op", ["Max", "Min", "Less", "LessOrEqual", "Equal", "Greater", "PRelu"])
def test_special_operands(op: str) -> None:
    """What WGSL leaves open is said: a NaN wins over every number, and compares with none."""
    a, b = (v.reshape(-1) for v in np.meshgrid(SPECIAL, SPECIAL))
    if op == "PRelu":
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(a * b) | np.isnan(a) | (a >= 0)
        a, b = a[finite], b[finite]
    feeds = {"a": a, "b": b}
    for pairs in both(node(op, feeds), feeds):
        assert_same(pairs)


def test_clip_of_special_values() -> None:
    feeds = {"x": SPECIAL, "low": np.array(-1, np.float32), "high": np.array(2, np.float32)}
    for pairs in both(node("Clip", feeds), feeds):
        assert_same(pairs)
    for op in ("Relu", "Sign", "LeakyRelu", "HardSigmoid", "ThresholdedRelu"):
        for pairs in both(node(op, {"x": SPECIAL}), {"x": SPECIAL}):
            assert_same(pairs)


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_remainders_of_negative_numbers(dtype: str, fmod: int) -> None:
    info = np.iinfo(dtype)
    values = np.array([0, 1, -1, 2, -2, 3, -3, 7, -7, 100, -100, info.min, info.max, info.min + 1], dtype)
    a, b = (v.reshape(-1) for v in np.meshgrid(values, values))
    feeds = {"a": a, "b": b}
    for pairs in both(node("Mod", feeds, fmod=fmod), feeds):
        assert_same(pairs)
    for pairs in both(node("Div", feeds), feeds):
        assert_same(pairs)


@pytest.mark.parametrize("far", [(7.9e-31, 8.7e-19), (1.3e30, 1.1e9), (1e-30, -1e-20, 1e38), (3.4e38, 1e-38, 1e30), (1e-18, 1e9)])
def test_numbers_far_from_1_are_multiplied_in_their_order(far: tuple[float, ...]) -> None:
    """Drivers may multiply what is written in a shader beforehand: that leaves float32."""
    x = np.float32([1.65e38, -1, 1e-3, 1e-37, 0, -0.0])
    names = ["x", *(f"v{k}" for k in range(len(far) - 1)), "y0"]
    nodes = [helper.make_node("Mul", [names[k], f"c{k}"], [names[k + 1]]) for k in range(len(far))]
    model = graph(nodes, {"x": x}, weights={f"c{k}": np.float32(c) for k, c in enumerate(far)})
    for pairs in both(model, {"x": x}, {"x": x[:2]}):
        assert_same(pairs)
