"""Narrow types: 2- and 4-bit elements moved, quantisation in every precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from operator_case import Array, Feed, check, model, normal, outputs_of, same, sessions

from pyonnx_wasm import InferenceSession
from pyonnx_wasm.ir import IRError
from pyonnx_wasm.runtimes.core import CoreError

SMALL = {
    "uint4": (TensorProto.UINT4, ml_dtypes.uint4), "int4": (TensorProto.INT4, ml_dtypes.int4),
    "uint2": (TensorProto.UINT2, ml_dtypes.uint2),
    "int2": (TensorProto.INT2, ml_dtypes.int2), "float4e2m1": (TensorProto.FLOAT4E2M1, ml_dtypes.float4_e2m1fn),
}  # fmt: skip


def codes(kind: Any, *shape: int) -> Array:
    """Every bit pattern of a type, over and over."""
    bits = 2 if "2" in np.dtype(kind).name and "float" not in np.dtype(kind).name else 4
    return (np.arange(int(np.prod(shape))) * 7 % (1 << bits)).astype(np.uint8).reshape(shape)


def narrow(nodes: Sequence[onnx.NodeProto], kind: int, rank: int, constants: dict[str, Array] | None = None) -> bytes:
    """A model over a narrow input of symbolic sizes."""
    info = helper.make_tensor_value_info("x", kind, [f"d{a}" for a in range(rank)])
    stored = [onnx.numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", [info], [helper.make_empty_tensor_value_info("y")], stored)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13).SerializeToString())


@pytest.mark.parametrize("name", SMALL)
def test_transposes_move_elements_of_less_than_a_byte(name: str) -> None:
    kind, dtype = SMALL[name]
    data = narrow([helper.make_node("Transpose", ["x"], ["y"], perm=[2, 0, 1])], kind, 3)
    for _, session in sessions(data):
        for shape in ((2, 3, 5), (1, 1, 1), (4, 2, 2), (0, 3, 2), (3, 1, 7)):
            x = codes(dtype, *shape)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.transpose(2, 0, 1))


@pytest.mark.parametrize("name", SMALL)
def test_transposed_narrow_tensors_are_read_as_they_lie(name: str) -> None:
    """Through Reshape, Transpose and Cast, then as numbers."""
    kind, dtype = SMALL[name]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "flat"], ["r"]),
        helper.make_node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
    ]
    for _, session in sessions(narrow(nodes, kind, 2, {"flat": np.array([-1])})):
        for shape in ((3, 5), (5, 3), (1, 7), (0, 2)):
            x = codes(dtype, *shape)
            want = x.view(dtype).astype(np.float32).T.reshape(-1)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)


@pytest.mark.parametrize("name", SMALL)
def test_constants_of_narrow_shape(name: str) -> None:
    kind, dtype = SMALL[name]
    value = helper.make_tensor("v", kind, [1], codes(dtype, 4)[3:].tobytes(), raw=True)
    node = helper.make_node("ConstantOfShape", ["s"], ["c"], value=value)
    info = helper.make_tensor_value_info("s", TensorProto.INT64, [2])
    for cast in (False, True):
        nodes = [node, helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT)] if cast else [node]
        result = helper.make_empty_tensor_value_info("y" if cast else "c")
        graph = helper.make_graph(nodes, "g", [info], [result])
        data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13).SerializeToString()
        for _, session in sessions(data):
            for shape in ((3, 5), (1, 1), (0, 4), (2, 2)):
                want = np.full(shape, codes(dtype, 4)[3])
                got = session.run(None, {"s": np.array(shape)})[0]
                np.testing.assert_array_equal(got, want.view(dtype).astype(np.float32) if cast else want)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("name", ["uint4", "int4"])
def test_pads_of_narrow_elements(name: str, mode: str) -> None:
    kind, dtype = SMALL[name]
    data = narrow([helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)], kind, 2, {"p": np.array([1, 2, 0, 1])})
    for _, session in sessions(data):
        for shape in ((3, 5), (2, 4)):
            x = codes(dtype, *shape)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.pad(x, ((1, 0), (2, 1)), mode=mode))  # type: ignore[call-overload]


@pytest.mark.parametrize("target", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("precision", [0, 1, 10, 11, 16])
@pytest.mark.parametrize("scale", ["float32", "float16", "bfloat16"])
def test_quantisation_divides_in_its_precision(scale: str, precision: int, target: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, scale, scale))
    wide: Any = {0: kind, 1: np.float32, 10: np.float16, 11: np.float64, 16: ml_dtypes.bfloat16}[precision]
    s, z = np.float32([0.037, 0.51, 1.7]).astype(kind), np.array([3, 5, 7], target)
    info = np.iinfo(target)

    def quantised(feed: Feed) -> Sequence[Array]:
        q = (feed["x"].astype(wide) / s.astype(wide)).astype(np.float64)
        return [np.clip(np.rint(q) + z, info.min, info.max).astype(target)]

    feeds = [{"x": (normal(n, 3) * 9).astype(kind)} for n in (50, 1, 0)]
    attributes = {"precision": precision} if precision else {}
    check("QuantizeLinear", feeds, constants={"s": s, "z": z}, axis=1, opset=23, oracle=quantised, **attributes)


def test_quantisation_of_halves_before_opset_23() -> None:
    feeds = [{"x": (normal(n, 3) * 9).astype(np.float16)} for n in (50, 1)]
    constants = {"s": np.float16([0.037, 0.51, 1.7]), "z": np.array([3, 5, 7], np.uint8)}
    check("QuantizeLinear", feeds, constants=constants, axis=1, opset=21)


def test_precisions_that_do_not_exist_are_refused() -> None:
    feeds = [{"x": normal(4, 3)}]
    with pytest.raises(IRError, match="precision int32"):
        InferenceSession(model("QuantizeLinear", feeds, constants={"s": np.float32(1)}, opset=23, precision=6))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"])
def test_narrow_floats_are_chosen(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    given = [{"c": normal(n, 4) > 0, "x": normal(n, 4, seed=1).astype(kind), "b": normal(n, 4, seed=2).astype(kind)} for n in (3, 1, 0)]
    check("Where", given, oracle=lambda f: [np.where(f["c"], f["x"], f["b"])])


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float16", "uint8"])
def test_windows_of_any_type_fold_back(dtype: str) -> None:
    x = (np.arange(2 * 4 * 6) % 11).astype(dtype).reshape(2, 4, 6)

    def folded(feed: Feed) -> Sequence[Array]:
        columns, y = feed["x"].reshape(-1, 2, 2, 2, 3), np.zeros((len(feed["x"]), 1, 3, 4), dtype)
        for i, j in np.ndindex(2, 2):
            y[:, 0, i : i + 2, j : j + 3] += columns[:, i, j]
        return [y]

    check("Col2Im", [{"x": x}, {"x": x[:1]}], constants={"i": np.array([3, 4]), "b": np.array([2, 2])}, oracle=folded)


def test_kernel_shapes_say_what_weights_leave_open() -> None:
    feeds = [{"x": normal(1, 2, n, 5), "w": normal(m, 2, 3, 3)} for n, m in ((6, 4), (3, 1))]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "h", 5]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, ["m", 2, "a", "b"]),
    ]
    for op in ("Conv", "ConvTranspose"):
        node = helper.make_node(op, ["x", "w"], ["y"], kernel_shape=[3, 3])
        graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
        data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
        for _, session in sessions(data):
            for feed in feeds if op == "Conv" else [{"x": f["x"], "w": normal(2, 2, 3, 3)} for f in feeds]:
                same(session.run(None, feed)[0], outputs_of(data, feed, "onnxruntime")[0], 1e-4, 1e-4)
            with pytest.raises((ValueError, CoreError), match="W has shape"):
                session.run(None, {"x": feeds[0]["x"], "w": normal(2, 2, 2, 3)})
    with pytest.raises(IRError, match="W has shape"):
        InferenceSession(model("Conv", feeds[:1], kernel_shape=[2, 3]))


@pytest.mark.parametrize(("precision", "fits"), [(1, True), (11, True), (16, False), (10, False)])
def test_softmax_in_a_precision(precision: int, fits: bool) -> None:
    feeds = [{n: normal(1, 2, 5, 8, seed=k) for k, n in enumerate("qkv")}]
    if fits:
        return check("Attention", feeds, opset=23, oracle="reference", softmax_precision=precision)
    with pytest.raises(IRError, match="softmax_precision"):
        InferenceSession(model("Attention", feeds, opset=23, softmax_precision=precision))
    return None


def test_what_an_operator_lacks_is_named() -> None:
    with pytest.raises(IRError, match="attribute 'to' is missing"):
        InferenceSession(model("Cast", [{"x": normal(3)}]))


def test_zero_points_of_a_size_that_is_a_symbol_hold_for_all_or_for_each() -> None:
    """One element or one for each row and column, in one session; other sizes are refused."""
    rng = np.random.default_rng(0)

    def feed(m: int, n: int, a: int, b: int) -> Feed:
        arrays = {"a": (m, 5), "b": (5, n), "az": (a,), "bz": (b,)}
        return {name: rng.integers(0, 256, shape).astype(np.uint8) for name, shape in arrays.items()}

    def expected(f: Feed) -> list[Array]:
        a, b, az, bz = (f[k].astype(np.int32) for k in ("a", "b", "az", "bz"))
        return [(a - az[:, None]) @ (b - bz)]

    feeds = [feed(3, 4, 3, 4), feed(3, 4, 1, 1), feed(1, 1, 1, 1), feed(2, 7, 1, 7), feed(2, 7, 2, 1)]
    check("MatMulInteger", feeds, oracle=expected)
    session = InferenceSession(model("MatMulInteger", feeds))
    with pytest.raises(CoreError, match="one element per row"):
        session.run(None, feed(3, 4, 2, 4))
