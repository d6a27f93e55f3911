"""Quantised operators of com.microsoft, every quantum against onnxruntime, at three shapes in one session."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from operator_case import Array, Feed, Oracle, check, model, outputs_of, sessions, whole

KINDS = (np.uint8, np.int8)
DOMAIN = "com.microsoft"


def codes(*shape: int, dtype: Any) -> Array:
    low, high = (-128, 128) if dtype is np.int8 else (0, 256)
    return whole(low, high, *shape, dtype=dtype)


def scales(dtype: Any, *names: str, zeros: str = "", seed: int = 0) -> dict[str, Array]:
    """A scale under each name, and under the names of ``zeros`` a zero point."""
    rng = np.random.default_rng(seed)
    made = {n: np.float32(rng.uniform(0.01, 0.2)) for n in names}
    low = 0 if dtype is np.uint8 else -128
    points = {n: dtype(rng.integers(low + 80, low + 176)) for n in zeros.split()}
    return {k: np.asarray(v) for k, v in (made | points).items()}


def with_zeros(op: str, given: list[Feed], constants: Feed, names: list[str], dtype: Any, **attributes: Any) -> Oracle:
    """onnxruntime with zero points of 0 in the place of absent ones, which it refuses."""
    full = dict(constants) | {n: np.asarray(dtype(0)) for n in names if n not in constants and n not in given[0]}
    data = model(op, given, ["out"], full, DOMAIN, inputs=names, **attributes)
    return lambda feed: outputs_of(data, feed, "onnxruntime")


def feeds(dtype: Any, *sizes: tuple[int, ...], name: str = "x") -> list[Feed]:
    return [{name: codes(*s, dtype=dtype)} for s in sizes]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("zeros", ["az bz cz", "az cz", ""])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_binary(op: str, dtype: Any, zeros: str) -> None:
    """Operands that broadcast, zero points absent and present; 8 steps fit every ratio of scales."""
    constants = scales(dtype, "as", "bs", "cs", zeros=zeros) | {"cs": np.asarray(np.float32(0.31))}
    names = ["x", "as", "az", "y", "bs", "bz", "cs", "cz"]
    inputs = [n if n in ("x", "y") or n in constants else "" for n in names]
    given = [{"x": codes(*a, dtype=dtype), "y": codes(*b, dtype=dtype)} for a, b in (((3, 5), (5,)), ((4, 7), (7,)), ((1, 2), (2,)))]
    oracle = with_zeros(op, given, constants, names, dtype)
    check(op, given, constants=constants, inputs=inputs, outputs=["out"], domain=DOMAIN, oracle=oracle)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("zero", ["xz yz", "yz", ""])
@pytest.mark.parametrize(("op", "attributes"), [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.2}), ("QLinearLeakyRelu", {})])
def test_unary(op: str, attributes: dict[str, Any], dtype: Any, zero: str) -> None:
    constants = scales(dtype, "xs", "ys", zeros=zero)
    if op == "QLinearSigmoid":
        constants["ys"] = np.asarray(np.float32(0.0071))
    names = ["x", "xs", "xz", "ys", "yz"]
    inputs = [n if n == "x" or n in constants else "" for n in names]
    every = [{"x": np.arange(256, dtype=np.uint8).view(dtype).reshape(s)} for s in ((16, 16), (8, 32), (256, 1))]
    oracle = with_zeros(op, every, constants, names, dtype, **attributes)
    check(op, every, constants=constants, inputs=inputs, outputs=["out"], domain=DOMAIN, oracle=oracle, **attributes)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (13, 1), (13, None), (12, 1), (12, 2), (12, None)])
def test_softmax(dtype: Any, opset: int, axis: int | None) -> None:
    """``opset`` is an attribute here."""
    zero = -128 if dtype is np.int8 else 0
    plain = {"xs": np.float32(0.07), "xz": dtype(zero + 100), "ys": np.float32(1 / 256), "yz": dtype(zero)}
    given = feeds(dtype, (2, 3, 5), (1, 4, 17), (3, 2, 9))
    constants = {k: np.asarray(v) for k, v in plain.items()}
    made = onnx.load_from_string(
        model("QLinearSoftmax", given, constants=constants, domain=DOMAIN, **({} if axis is None else {"axis": axis}))
    )
    made.graph.node[0].attribute.append(helper.make_attribute("opset", opset))
    data = made.SerializeToString()
    for _, session in sessions(data):
        for feed in given:
            np.testing.assert_array_equal(session.run(None, feed)[0], outputs_of(data, feed, "onnxruntime")[0])


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("last", [0, 1])
def test_global_average_pool(dtype: Any, last: int) -> None:
    constants = scales(dtype, "xs", zeros="xz") | scales(dtype, "ys", zeros="yz", seed=3)
    given = feeds(dtype, (2, 3, 5, 7), (1, 3, 4, 4), (3, 3, 2, 9)) if not last else feeds(dtype, (2, 5, 7, 3), (1, 4, 4, 3), (3, 2, 9, 3))
    check("QLinearGlobalAveragePool", given, constants=constants, domain=DOMAIN, channels_last=last)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 2]},
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ],
)
def test_average_pool(dtype: Any, last: int, attributes: dict[str, Any]) -> None:
    constants = scales(dtype, "xs", zeros="xz") | scales(dtype, "ys", zeros="yz", seed=5)
    given = feeds(dtype, (1, 3, 6, 7), (2, 3, 9, 5), (1, 3, 4, 4))
    if last:
        given = [{"x": np.ascontiguousarray(f["x"].transpose(0, 2, 3, 1))} for f in given]
    check("QLinearAveragePool", given, constants=constants, domain=DOMAIN, channels_last=last, **attributes)


@pytest.mark.parametrize("dtype", KINDS)
def test_concat(dtype: Any) -> None:
    """Parts with the scale of the result and with others."""
    constants = scales(dtype, "ys", "as", "bs", zeros="yz az bz") | {"cs": np.asarray(np.float32(0.1))}
    constants |= {"cs": constants["ys"], "cz": constants["yz"]}
    given = [{k: codes(2, n, dtype=dtype) for k in "abc"} for n in (3, 1, 8)]
    inputs = ["ys", "yz", "a", "as", "az", "b", "bs", "bz", "c", "cs", "cz"]
    check("QLinearConcat", given, constants=constants, inputs=inputs, domain=DOMAIN, axis=1)


@pytest.mark.parametrize("dtype", KINDS)
def test_where(dtype: Any) -> None:
    constants = scales(dtype, "xs", "ys", "zs", zeros="xz yz zz")
    given = [
        {"c": whole(0, 2, m, 1).astype(bool), "x": codes(m, n, dtype=dtype), "y": codes(n, dtype=dtype)}
        for m, n in ((3, 4), (2, 9), (1, 1))
    ]
    check(
        "QLinearWhere",
        given,
        constants=constants,
        inputs=["c", "x", "xs", "xz", "y", "ys", "yz", "zs", "zz"],
        outputs=["out"],
        domain=DOMAIN,
    )


@pytest.mark.parametrize(("a", "b"), [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
@pytest.mark.parametrize("y", ["float", "int"])
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("trans", [0, 1])
def test_gemm(a: Any, b: Any, y: str, column: bool, trans: int) -> None:
    """Scales per tensor and per column; C absent in half of the cases."""
    rng, n = np.random.default_rng(trans), 7
    w = codes(n, 11, dtype=b) if trans else codes(11, n, dtype=b)
    wide = (n,) if column else ()
    constants: dict[str, Array] = {
        "as": np.asarray(np.float32(0.03)), "az": np.asarray(a(17)), "B": w, "bs": rng.uniform(0.01, 0.1, wide).astype(np.float32),
        "bz": codes(*wide, dtype=b) if column else np.asarray(b(3)),
    }  # fmt: skip
    if column:
        constants["C"] = whole(-900, 900, n, dtype=np.int32)
    if y == "int":
        constants |= {"ys": np.asarray(np.float32(0.9)), "yz": np.asarray(a(50))}
    inputs = ["A", "as", "az", "B", "bs", "bz", "C" if column else "", *(["ys", "yz"] if y == "int" else [])]
    check(
        "QGemm", feeds(a, (4, 11), (1, 11), (9, 11), name="A"), constants=constants, inputs=inputs, domain=DOMAIN, transB=trans, alpha=0.7
    )


@pytest.mark.parametrize(("x", "y"), [(np.int16, np.int16), (np.uint16, np.uint16)])
def test_matmul_integer_16(x: Any, y: Any) -> None:
    low = 0 if x is np.uint16 else -300
    given = [{"A": whole(low, 300, 2, m, 5, dtype=x), "B": whole(low, 300, 5, n, dtype=y)} for m, n in ((3, 4), (1, 1), (7, 2))]
    oracle = "onnxruntime" if x is np.int16 else lambda f: [(f["A"].astype(np.int64) @ f["B"].astype(np.int64)).astype(np.uint32)]
    check("MatMulInteger16", given, domain=DOMAIN, oracle=oracle)


@pytest.mark.parametrize("dtype", [*KINDS, np.int16, np.uint16])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantize_and_dequantize(dtype: Any, axis: int | None) -> None:
    rng, wide = np.random.default_rng(1), (3,) if axis == 1 else ()
    info = np.iinfo(dtype)
    constants = {"s": rng.uniform(0.01, 0.3, wide).astype(np.float32), "z": rng.integers(info.min, info.max, wide).astype(dtype)}
    attributes = {} if axis is None else {"axis": axis}
    given: list[Feed] = [{"x": rng.normal(0, 100, (m, 3, n)).astype(np.float32)} for m, n in ((2, 4), (1, 1), (3, 7))]
    check("QuantizeLinear", given, constants=constants, domain=DOMAIN, **attributes)
    back: list[Feed] = [{"x": rng.integers(info.min, info.max, (m, 3, n)).astype(dtype)} for m, n in ((2, 4), (1, 1), (3, 7))]
    check("DequantizeLinear", back, constants=constants, domain=DOMAIN, **attributes)


def test_what_only_documents_define() -> None:
    """Operators without a kernel in onnxruntime's CPU provider, by their documentation."""
    given = [{"x": codes(3, m, 4, dtype=np.int8)} for m in (2, 5, 1)]
    check("ReduceSumInteger", given, domain=DOMAIN, axes=[1], keepdims=0, oracle=lambda f: [f["x"].astype(np.int32).sum(1, dtype=np.int32)])
    pair = [{"a": codes(m, 4, dtype=np.uint8), "b": codes(4, dtype=np.uint8)} for m in (2, 5, 1)]
    zero = {"az": np.asarray(np.uint8(9)), "bz": np.asarray(np.uint8(200))}
    check(
        "MulInteger", pair, domain=DOMAIN, constants=zero, inputs=["a", "az", "b", "bz"],
        oracle=lambda f: [(f["a"].astype(np.int32) - 9) * (f["b"].astype(np.int32) - 200)],
    )  # fmt: skip
    constants = {k: np.asarray(v) for k, v in {"s": np.float32(0.5), "z": np.int8(3), "rs": np.float32(0.25), "rz": np.int8(-7)}.items()}

    def mean(feed: Feed) -> list[Array]:
        real = ((feed["x"].astype(np.float64) - 3) * 0.5).mean((0, 2), keepdims=True)
        return [np.clip(np.round(real / 0.25) - 7, -128, 127).astype(np.int8)]

    check("QLinearReduceMean", given, domain=DOMAIN, constants=constants, axes=[0, 2], keepdims=1, oracle=mean)


@pytest.mark.parametrize("last", [0, 1])
def test_convolution(last: int) -> None:
    """The standard's, with channels in either place; a weight's zero point is 0, as quantisers write it."""
    rng = np.random.default_rng(last)
    constants = {
        "xs": np.asarray(np.float32(0.04)), "xz": np.asarray(np.uint8(120)), "w": rng.integers(-128, 128, (5, 3, 3, 2)).astype(np.int8),
        "ws": rng.uniform(0.01, 0.1, 5).astype(np.float32), "wz": np.zeros(5, np.int8), "ys": np.asarray(np.float32(0.8)),
        "yz": np.asarray(np.uint8(90)), "b": rng.integers(-500, 500, 5).astype(np.int32),
    }  # fmt: skip
    shapes = ((1, 3, 6, 7), (2, 3, 9, 5), (1, 3, 4, 4))
    given = feeds(np.uint8, *(((n, h, w, c) if last else (n, c, h, w)) for n, c, h, w in shapes))
    window: dict[str, Any] = {"pads": [1, 0, 1, 1], "strides": [2, 1]}

    def standard(feed: Feed) -> list[Array]:
        x = feed["x"].transpose(0, 3, 1, 2) if last else feed["x"]
        (y,) = outputs_of(model("QLinearConv", [{"x": x}], constants=constants, **window), {"x": x}, "onnxruntime")
        return [y.transpose(0, 2, 3, 1) if last else y]

    check("QLinearConv", given, constants=constants, domain=DOMAIN, oracle=standard, channels_last=last, **window)


def test_what_is_wrong_is_named() -> None:
    x, s, z = (helper.make_tensor_value_info(n, t, []) for n, t in (("x", 2), ("s", 1), ("z", 2)))
    node = helper.make_node("QLinearConcat", ["s", "z", "x", "s"], ["y"], "joined", domain=DOMAIN, axis=0)
    graph = helper.make_graph([node], "g", [x, s, z], [onnx.ValueInfoProto(name="y")])
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)])
    with pytest.raises(ValueError, match=r"joined.*threes"):
        next(sessions(made.SerializeToString()))
