"""Gradients against central differences of the reference's float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from pyonnx_wasm import InferenceSession, SessionOptions
from pyonnx_wasm.ops import load_all
from pyonnx_wasm.registry import ADJOINTS

load_all()
Array = np.ndarray[Any, Any]
DOMAIN = "ai.onnx.preview.training"


def f64(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng((7, *shape)).uniform(low, high, shape)


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), f"the_{op}", **attributes)


def model(
    nodes: list[onnx.NodeProto],
    feeds: dict[str, Array],
    constants: dict[str, Array],
    symbols: bool = False,
    gradient: bool = True,
    given: str = "",
    xs: str = "",
    opset: int = 18,
) -> bytes:
    """The nodes, and the gradients of ``y`` by the inputs that are floats, or by ``xs``."""
    by = xs.split() or [n for n, v in feeds.items() if v.dtype == np.float64]
    infos = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(v.dtype), [f"{n}{a}" for a in range(v.ndim)] if symbols else v.shape
        )
        for n, v in feeds.items()
    ]
    stored = [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()]
    outputs, every = ["y"], list(nodes)
    if gradient:
        outputs = [f"d{x}" for x in by]
        every.append(helper.make_node("Gradient", given.split() or by, outputs, "the_gradient", domain=DOMAIN, xs=by, y="y"))
    graph = helper.make_graph(every, "g", infos, [helper.make_tensor_value_info(o, TensorProto.DOUBLE, None) for o in outputs], stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def differences(data: bytes, feeds: dict[str, Array], by: list[str], h: float = 1e-6) -> list[Array]:
    """Of the sum of what a model gives, by each element of some inputs."""
    forward = ReferenceEvaluator(onnx.load_from_string(data))

    def total(changed: dict[str, Array]) -> float:
        return float(np.sum(forward.run(None, changed)[0]))

    found = []
    for name in by:
        slope = np.zeros_like(feeds[name])
        for at in np.ndindex(slope.shape):
            up, down = feeds[name].copy(), feeds[name].copy()
            up[at] += h
            down[at] -= h
            slope[at] = (total({**feeds, name: up}) - total({**feeds, name: down})) / (2 * h)
        found.append(slope)
    return found


def check(nodes: list[onnx.NodeProto], feeds: dict[str, Array], constants: dict[str, Array] | None = None, opset: int = 18) -> None:
    """With declared sizes and with symbols, optimised and not."""
    by = [n for n, v in feeds.items() if v.dtype == np.float64]
    want = differences(model(nodes, feeds, constants or {}, gradient=False, opset=opset), feeds, by)
    for symbols in (False, True):
        data = model(nodes, feeds, constants or {}, symbols, opset=opset)
        for optimise in (True, False):
            session = InferenceSession(data, SessionOptions(enable_optimisation=optimise))
            for got, right in zip(session.run(None, feeds), want, strict=True):
                assert got.shape == right.shape
                np.testing.assert_allclose(got, right, 1e-4, 1e-6)


def weighted(op: str, inputs: str, **attributes: Any) -> list[onnx.NodeProto]:
    """The operator, and its result times weights, so that the gradient that comes back to it differs from element to element."""
    return [node(op, inputs, "t", **attributes), node("Sin", "t", "s"), node("Mul", "t s")]


POSITIVE = {"Sqrt", "Log", "Reciprocal"}
RANGES = {"Acosh": (1.2, 3.0), "Asin": (-0.8, 0.8), "Acos": (-0.8, 0.8), "Atanh": (-0.8, 0.8), "Tan": (-1.0, 1.0)}
UNARY = [
    "Neg", "Identity", "Abs", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh",
    "Asinh", "Acosh", "Atanh", "Sigmoid", "Softplus", "Relu", "Sign", "Floor", "Ceil", "Round", "LeakyRelu", "Elu",
]  # fmt: skip
BROADCASTS = [((2, 3), (2, 3)), ((2, 3), (3,)), ((1, 3), (2, 1)), ((), (2, 3)), ((4, 1, 2), (3, 1))]
AXES = np.array([0, -1])
CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, Array], dict[str, Array]]] = {
    **{f"{op} {i}": (weighted(op, "a b"), {"a": f64(*a), "b": f64(*b, low=0.5)}, {})
       for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum") for i, (a, b) in enumerate(BROADCASTS)},
    "Pow": (weighted("Pow", "a b"), {"a": f64(2, 3, low=0.5), "b": f64(3)}, {}),
    "Pow of a constant": (weighted("Pow", "a n"), {"a": f64(2, 3)}, {"n": np.array([2, 3, 0])}),
    "Where": (weighted("Where", "c a b"), {"c": np.array([True, False, True]), "a": f64(2, 1), "b": f64(3)}, {}),
    "MatMul": (weighted("MatMul", "a b"), {"a": f64(3, 4), "b": f64(4, 2)}, {}),
    "MatMul of batches": (weighted("MatMul", "a b"), {"a": f64(2, 1, 3, 4), "b": f64(3, 4, 2)}, {}),
    "MatMul of a vector": (weighted("MatMul", "a b"), {"a": f64(4), "b": f64(2, 4, 2)}, {}),
    "MatMul by a vector": (weighted("MatMul", "a b"), {"a": f64(2, 3, 4), "b": f64(4)}, {}),
    "MatMul of vectors": (weighted("MatMul", "a b"), {"a": f64(4), "b": f64(4)}, {}),
    **{f"Gemm {a}{b}": (weighted("Gemm", "a b c", alpha=0.5, beta=-2.0, transA=a, transB=b),
                        {"a": f64(*((4, 3) if a else (3, 4))), "b": f64(*((2, 4) if b else (4, 2))), "c": f64(2)}, {})
       for a in (0, 1) for b in (0, 1)},
    **{f"{op} keepdims={k}": (weighted(op, "a", axes=[1, -1], keepdims=k), {"a": f64(2, 3, 4)}, {})
       for op in ("ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMin") for k in (0, 1)},
    "ReduceSum by an input": (weighted("ReduceSum", "a axes", keepdims=0), {"a": f64(2, 3, 4)}, {"axes": AXES}),
    "ReduceSum of all": (weighted("ReduceSum", "a"), {"a": f64(2, 3)}, {}),
    "Softmax": (weighted("Softmax", "a", axis=1), {"a": f64(2, 3, 2)}, {}),
    "LogSoftmax": (weighted("LogSoftmax", "a"), {"a": f64(2, 3)}, {}),
    "Reshape": (weighted("Reshape", "a size"), {"a": f64(2, 6)}, {"size": np.array([3, -1])}),
    "Flatten": (weighted("Flatten", "a", axis=2), {"a": f64(2, 3, 2, 1)}, {}),
    "Unsqueeze": (weighted("Unsqueeze", "a axes"), {"a": f64(2, 3)}, {"axes": np.array([1])}),
    "Squeeze": ([node("Unsqueeze", "a axes", "u"), *weighted("Squeeze", "u axes")], {"a": f64(2, 3)}, {"axes": np.array([1])}),
    "Transpose": (weighted("Transpose", "a", perm=[2, 0, 1]), {"a": f64(2, 3, 4)}, {}),
    "Transpose, reversed": (weighted("Transpose", "a"), {"a": f64(2, 3)}, {}),
    "Expand": (weighted("Expand", "a size"), {"a": f64(3, 1)}, {"size": np.array([2, 1, 4])}),
    "Concat": (weighted("Concat", "a b a", axis=1), {"a": f64(2, 3), "b": f64(2, 1)}, {}),
    "Split": ([node("Split", "a s", "p q", axis=1), node("Exp", "q", "r"), node("Sin", "r")], {"a": f64(2, 5)}, {"s": np.array([2, 3])}),
    "Cast": ([node("Cast", "a", "f", to=TensorProto.DOUBLE), node("Sin", "f")], {"a": f64(2, 3)}, {}),
    "Two ways": ([node("Mul", "a a", "b"), node("Add", "a b", "c"), node("Mul", "b c")], {"a": f64(5)}, {}),
    "A constant beside": ([node("Exp", "k", "e"), node("Mul", "a e")], {"a": f64(3)}, {"k": f64(3)}),
    "What y does not depend on": ([node("Floor", "a", "b"), node("Add", "b a", "c"), node("Sin", "c")], {"a": f64(3), "z": f64(2)}, {}),
    "A network": (
        [node("Gemm", "x w b", "h"), node("Relu", "h", "r"), node("MatMul", "r v", "l"), node("LogSoftmax", "l", "p"),
         node("Mul", "p t", "q"),
         node("ReduceSum", "q", "s", keepdims=0), node("Neg", "s")],
        {"x": f64(4, 3), "w": f64(3, 5), "b": f64(5), "v": f64(5, 2), "t": f64(4, 2, low=0)}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_functions(op: str) -> None:
    low, high = RANGES.get(op, (0.3, 2.0) if op in POSITIVE else (-2.0, 2.0))
    check(weighted(op, "a"), {"a": f64(3, 4, low=low, high=high)})


def test_erf() -> None:
    """Its slope as the books have it: the reference computes Erf in float32."""
    a = f64(3, 4)
    (got,) = InferenceSession(model([node("Erf", "a")], {"a": a}, {})).run(None, {"a": a})
    np.testing.assert_allclose(got, 2 / np.sqrt(np.pi) * np.exp(-a * a), 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str) -> None:
    nodes, feeds, constants = CASES[name]
    check(nodes, feeds, constants, 13 if name.startswith("Reduce") and "keepdims=" in name else 18)


def test_every_rule_is_tested() -> None:
    tested = {n.op_type for nodes, *_ in CASES.values() for n in nodes} | {*UNARY, "Erf"}
    assert set(ADJOINTS) <= tested


def test_sizes_that_turn_out_to_be_one() -> None:
    """What is broadcast shows when shapes are bound: one session, several."""
    nodes = weighted("Mul", "a b")
    session = InferenceSession(model(nodes, {"a": f64(2, 3), "b": f64(2, 3)}, {}, True))
    for a, b in (((2, 3), (2, 3)), ((1, 3), (2, 3)), ((2, 3), (1, 1)), ((4, 1), (1, 5))):
        feeds = {"a": f64(*a), "b": f64(*b, low=0.5)}
        want = differences(model(nodes, feeds, {}, gradient=False), feeds, ["a", "b"])
        for got, right in zip(session.run(None, feeds), want, strict=True):
            np.testing.assert_allclose(got, right, 1e-4, 1e-6)


def test_by_what_is_computed_and_at_other_values() -> None:
    """By a tensor on the way; and where another takes its place, with what follows from that."""
    nodes = [node("Exp", "a", "h"), node("Mul", "h b", "t"), node("Sin", "t")]
    a, b, other = f64(3), f64(3, low=0.5), f64(3, low=1)
    feeds = {"a": a, "b": b, "other": other}
    (dh,) = InferenceSession(model(nodes, feeds, {}, xs="h")).run(None, feeds)
    np.testing.assert_allclose(dh, b * np.cos(np.exp(a) * b))
    (dh,) = InferenceSession(model(nodes, feeds, {}, xs="h", given="other")).run(None, feeds)
    np.testing.assert_allclose(dh, b * np.cos(other * b))
    dh, db = InferenceSession(model(nodes, feeds, {}, xs="h b", given="other a")).run(None, feeds)
    np.testing.assert_allclose(dh, a * np.cos(other * a))
    np.testing.assert_allclose(db, other * np.cos(other * a))


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        (
            [node("CumSum", "a k", "t"), node("Sin", "t")],
            r"node 'the_gradient'.*node 'the_CumSum' \(CumSum\) cannot be differentiated here",
        ),
        ([node("Sin", "a", "z")], "y 'y' is computed by no node"),
        ([node("ReduceSum", "a k", "t"), node("Sin", "t")], "its axes are data"),
    ],
)
def test_what_cannot_be_differentiated_names_the_node(nodes: list[onnx.NodeProto], told: str) -> None:
    feeds: dict[str, Array] = {"a": f64(3), "k": np.array([0])}
    with pytest.raises(ValueError, match=told):
        InferenceSession(model(nodes, feeds, {}, xs="a"))


def test_softmax_before_opset_13_is_refused() -> None:
    with pytest.raises(ValueError, match=r"node 'the_Softmax' \(Softmax\) cannot be differentiated: before opset 13"):
        InferenceSession(model([node("Softmax", "a")], {"a": f64(2, 3)}, {}, opset=12))
