"""Element-wise operators in every dtype that the standard gives them, against the core."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from gpu_model import assert_same, both, graph, node

OPSET = 22
ON_GPU = ["float32", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
UNARY: dict[str, dict[str, Any]] = {
    "Abs": {}, "Neg": {}, "Sign": {}, "Floor": {}, "Ceil": {}, "Round": {}, "Sqrt": {}, "Reciprocal": {}, "Exp": {}, "Log": {}, "Sin": {},
    "Cos": {}, "Tanh": {}, "Erf": {}, "Sigmoid": {}, "Relu": {}, "Softplus": {}, "HardSwish": {}, "Not": {}, "BitwiseNot": {}, "IsNaN": {},
    "IsInf": {"detect_negative": 0}, "Elu": {"alpha": 0.5}, "LeakyRelu": {"alpha": 0.2}, "HardSigmoid": {}, "Selu": {}, "Celu": {},
    "ThresholdedRelu": {"alpha": 0.4}, "Gelu": {"approximate": "tanh"}, "Mish": {}, "Softsign": {},
}  # fmt: skip
BINARY: dict[str, dict[str, Any]] = {
    "Add": {}, "Sub": {}, "Mul": {}, "Div": {}, "Max": {}, "Min": {}, "Less": {}, "LessOrEqual": {}, "Greater": {}, "Equal": {}, "And": {},
    "Or": {}, "Xor": {}, "BitwiseAnd": {}, "BitwiseOr": {}, "BitwiseXor": {}, "BitShift": {"direction": "LEFT"}, "Mod": {"fmod": 1},
    "PRelu": {}, "Pow": {},
}  # fmt: skip


def takes(op: str) -> list[str]:
    """The dtypes that the standard gives an operator's first input, of those that run on a GPU."""
    schema = onnx.defs.get_schema(op, OPSET)
    spelled = {"float": "float32"}
    types = [t[len("tensor(") : -1] for t in schema.inputs[0].types if t.startswith("tensor(")]
    return sorted(t for t in (spelled.get(t, t) for t in types) if t in ON_GPU)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def draw(name: str, n: int, seed: int, whole: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = dtype_of(name)
    if name == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.kind not in "iu":
        return (rng.standard_normal(n) * 3).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min if whole else 0, info.max if whole else 7, n, dtype, endpoint=True)


def bits(op: str, feeds: dict[str, np.ndarray], **attributes: Any) -> bytes:
    """The node between casts, where its dtype is one that numpy lacks."""
    if not any(x.dtype == ml_dtypes.bfloat16 for x in feeds.values()):
        return node(op, feeds, opset=OPSET, **attributes)
    steps = [onnx.helper.make_node("Cast", [name], [f"{name}_"], to=onnx.TensorProto.BFLOAT16) for name in feeds]
    steps.append(onnx.helper.make_node(op, [f"{name}_" for name in feeds], ["out"], **attributes))
    steps.append(onnx.helper.make_node("Cast", ["out"], ["y0"], to=onnx.TensorProto.FLOAT))
    return graph(steps, {name: x.astype(np.float32) for name, x in feeds.items()}, opset=OPSET)


def check(op: str, name: str, feeds: dict[str, np.ndarray], **attributes: Any) -> None:
    model = bits(op, feeds, **attributes)
    given = {k: x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x for k, x in feeds.items()}
    for pairs in both(model, given, {k: x[:1] for k, x in given.items()}):
        assert_same(pairs, rtol=1e-4 if name != "bfloat16" else 1e-2, atol=1e-5 if name != "bfloat16" else 1e-3)


@pytest.mark.parametrize(("op", "dtype"), [(op, t) for op in UNARY for t in takes(op)])
def test_unary(op: str, dtype: str) -> None:
    x = draw(dtype, 61, 1)
    if op in ("Log", "Sqrt") and x.dtype.kind not in "iub":
        x = np.abs(x)
    check(op, dtype, {"x": x}, **UNARY[op])


@pytest.mark.parametrize(("op", "dtype"), [(op, t) for op in BINARY for t in takes(op)])
def test_binary(op: str, dtype: str) -> None:
    a, b = draw(dtype, 61, 2), draw(dtype, 61, 3, whole=op not in ("BitShift", "Pow"))
    if op == "Pow" and a.dtype.kind not in "iub":
        a = np.abs(a)
    check(op, dtype, {"a": a, "b": b}, **BINARY[op])


@pytest.mark.parametrize("dtype", [t for t in ON_GPU if t != "bfloat16"])
def test_where_and_clip(dtype: str) -> None:
    n = 37
    feeds = {"c": draw("bool", n, 4), "a": draw(dtype, n, 5), "b": draw(dtype, n, 6)}
    check("Where", dtype, feeds)
    if dtype != "bool":
        low, high = np.sort(draw(dtype, 2, 7))
        feeds = {"x": draw(dtype, n, 8), "low": low.reshape(()), "high": high.reshape(())}
        for pairs in both(node("Clip", feeds), feeds):
            assert_same(pairs)


@pytest.mark.parametrize("source", [t for t in ON_GPU if t != "bfloat16"])
def test_casts(source: str) -> None:
    """To every dtype; what does not fit a float's integer target is left to the platform."""
    x = draw(source, 61, 9)
    if x.dtype.kind == "f":
        x[:8] = [0, -0.0, 0.5, 1.5, -1.5, 2.5, 100, -100]
    targets = [onnx.helper.np_dtype_to_tensor_dtype(dtype_of(t)) for t in ON_GPU if t != "bfloat16"]
    steps = []
    for k, to in enumerate(targets):
        source_name = "x"
        if x.dtype.kind == "f" and to in (
            onnx.TensorProto.UINT8,
            onnx.TensorProto.UINT16,
            onnx.TensorProto.UINT32,
            onnx.TensorProto.UINT64,
        ):
            steps.append(onnx.helper.make_node("Abs", ["x"], [f"a{k}"]))
            source_name = f"a{k}"
        steps.append(onnx.helper.make_node("Cast", [source_name], [f"y{k}"], to=to))
    steps.append(onnx.helper.make_node("Cast", ["x"], ["b"], to=onnx.TensorProto.BFLOAT16))
    steps.append(onnx.helper.make_node("Cast", ["b"], [f"y{len(targets)}"], to=onnx.TensorProto.FLOAT))
    for pairs in both(graph(steps, {"x": x}, len(targets) + 1), {"x": x}, {"x": x[:3]}):
        assert_same(pairs)
