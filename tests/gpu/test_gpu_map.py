"""Element-wise chains on the GPU."""

import numpy as np
import pytest
from gpu_model import assert_same, both, node

UNARY = ["Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tanh", "Erf", "Sigmoid", "Relu",
         "Softplus", "HardSwish", "Sinh", "Cosh", "Asinh", "Atan", "Mish", "Softsign"]  # fmt: skip
SPECIAL = np.array([0, -0.0, 1, -1, 0.5, -0.5, 1e-7, 88, -88, 1e30, -1e30, np.inf, -np.inf, np.nan, 3.7, -3.7], np.float32)


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal(53).astype(np.float32) * 3, SPECIAL])
    if op in ("Sin", "Cos"):
        x = x[np.abs(x) < 100]
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
