"""Convolutions of bytes between quantisers, as the core lays them out: against int64 in numpy, rounded as QuantizeLinear does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

import pyonnx_wasm

Array = np.ndarray[Any, Any]
# channels in and out, kernel, stride, pads, dilation, group, image
SHAPES = [
    (1, 1, (1, 1), 1, 0, 1, 1, (1, 1)),
    (3, 17, (3, 3), 2, 1, 1, 1, (9, 8)),
    (16, 24, (1, 1), 1, 0, 1, 1, (5, 7)),
    (20, 50, (1, 1), 2, 0, 1, 1, (5, 6)),
    (7, 13, (2, 3), 1, 1, 2, 1, (8, 7)),
    (33, 130, (1, 1), 1, 0, 1, 1, (3, 3)),
    (64, 100, (3, 1), 1, 1, 1, 1, (4, 4)),
    (5, 5, (3, 3), 1, 1, 1, 5, (6, 5)),
    (16, 16, (3, 3), 2, 1, 1, 16, (9, 9)),
    (35, 35, (5, 5), 1, 2, 1, 35, (7, 6)),
    (48, 48, (3, 3), 1, 2, 2, 48, (7, 7)),
    (18, 18, (2, 2), 2, 0, 1, 18, (6, 6)),
    (8, 4, (3, 3), 1, 1, 1, 2, (5, 5)),
]


def convolved(x: Array, w: Array, stride: int, pad: int, dilation: int, group: int) -> Array:
    n = x.shape[0]
    m, cg, kh, kw = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    oh = (x.shape[2] - (kh - 1) * dilation - 1) // stride + 1
    ow = (x.shape[3] - (kw - 1) * dilation - 1) // stride + 1
    y = np.zeros((n, m, oh, ow), np.int64)
    for i, j in itertools.product(range(kh), range(kw)):
        part = x[:, :, i * dilation :, j * dilation :][:, :, : (oh - 1) * stride + 1 : stride, : (ow - 1) * stride + 1 : stride]
        for g in range(group):
            own = slice(g * m // group, (g + 1) * m // group)
            y[:, own] += np.einsum("nchw,mc->nmhw", part[:, g * cg : (g + 1) * cg], w[own, :, i, j])
    return y


def session(model: onnx.ModelProto, optimise: bool = True) -> pyonnx_wasm.InferenceSession:
    options = pyonnx_wasm.SessionOptions()
    options.enable_optimisation = optimise
    options.intra_op_num_threads = 2
    return pyonnx_wasm.InferenceSession(model.SerializeToString(), options)


class Build:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def const(self, array: Array) -> str:
        self.weights.append(nh.from_array(array, f"c{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, kind: str, *ins: str, **attributes: Any) -> str:
        self.nodes.append(h.make_node(kind, ins, [f"t{len(self.nodes)}"], **attributes))
        return str(self.nodes[-1].output[0])

    def model(self, shape: tuple[Any, ...], dtype: int, **outputs: int) -> onnx.ModelProto:
        outs = [h.make_tensor_value_info(name, t, None) for name, t in outputs.items()]
        graph = h.make_graph(self.nodes, "g", [h.make_tensor_value_info("x", dtype, shape)], outs, self.weights)
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("tx", "tw", "ty"), [("uint8", "int8", "uint8"), ("int8", "int8", "int8"), ("uint8", "uint8", "int8"), ("int8", "uint8", "float32")]
)
def test_a_convolution_is_its_integers(shape: Any, tx: str, tw: str, ty: str) -> None:
    c, m, kernel, stride, pad, dilation, group, image = shape
    b = Build(c * m)
    rng = b.rng
    low, low_w = np.iinfo(tx).min, np.iinfo(tw).min
    for per_channel, act in ((False, None), (True, "Relu"), (True, "Clip")):
        b.nodes, b.weights = [], []
        x = rng.integers(low, low + 256, (2, c, *image)).astype(tx)
        w = rng.integers(low_w, low_w + 256, (m, c // group, *kernel)).astype(tw)
        zx = np.array(rng.integers(low, low + 256), tx)
        zw = rng.integers(low_w, low_w + 256, m if per_channel else ()).astype(tw)
        sx, sw = np.float32(0.02), (rng.random(m) * 0.01 + 0.001).astype(np.float32) if per_channel else np.float32(0.004)
        bias = rng.standard_normal(m).astype(np.float32)
        wide = b.add("DequantizeLinear", "x", b.const(sx), b.const(zx))
        weights = b.add("DequantizeLinear", b.const(w), b.const(sw), b.const(zw), axis=0)
        ins = [wide, weights] + ([b.const(bias)] if per_channel else [])
        y = b.add("Conv", *ins, strides=[stride] * 2, pads=[pad] * 4, dilations=[dilation] * 2, group=group)
        if act == "Clip":
            y = b.add("Clip", y, b.const(np.float32(-0.5)), b.const(np.float32(3)))
        elif act:
            y = b.add(act, y)
        sums = convolved(
            x.astype(np.int64) - int(zx), w.astype(np.int64) - zw.astype(np.int64).reshape(-1, 1, 1, 1), stride, pad, dilation, group
        )
        want = sums.astype(np.float64) * np.float64(np.float32(sx) * sw).reshape(-1, 1, 1) if per_channel else sums * np.float64(sx * sw)
        if per_channel:
            want = want + bias.astype(np.float64).reshape(-1, 1, 1)
        want = np.clip(want, -0.5, 3) if act == "Clip" else np.maximum(want, 0) if act else want
        if ty == "float32":
            got = session(b.model(x.shape, h.np_dtype_to_tensor_dtype(x.dtype), **{y: T.FLOAT})).run(None, {"x": x})[0]
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())
            continue
        sy, zy = np.float32(max(np.abs(want).max() / 100, 1e-3)), np.array(np.iinfo(ty).min + 100, ty)
        y = b.add("QuantizeLinear", y, b.const(sy), b.const(zy))
        got = session(b.model(x.shape, h.np_dtype_to_tensor_dtype(x.dtype), **{y: h.np_dtype_to_tensor_dtype(np.dtype(ty))})).run(
            None, {"x": x}
        )[0]
        exact = want / np.float64(sy)
        near = np.abs(np.abs(exact - np.floor(exact)) - 0.5) < 1e-4
        codes = np.clip(np.round(exact) + int(zy), np.iinfo(ty).min, np.iinfo(ty).max).astype(np.int64)
        assert got.dtype == np.dtype(ty)
        assert np.abs(got.astype(np.int64) - codes).max(initial=0) <= 1
        np.testing.assert_array_equal(got[~near], codes[~near])


@pytest.mark.parametrize("kind", ["Add", "Mul"])
@pytest.mark.parametrize(("ta", "tb", "ty"), [("uint8", "uint8", "uint8"), ("int8", "uint8", "int8"), ("uint8", "int8", "uint8")])
def test_sums_and_products_of_codes_round_as_they_stand(kind: str, ta: str, tb: str, ty: str) -> None:
    """Every pair of codes, with every step in float32."""
    f = np.float32
    a, b = (np.arange(np.iinfo(t).min, np.iinfo(t).max + 1).astype(t) for t in (ta, tb))
    left, right = np.repeat(a, 256), np.tile(b, 256)
    for act, (sa, sb, sy) in itertools.product((None, "Relu", "Clip"), [(0.02, 0.5, 0.25), (0.0371, 0.0113, 0.0503)]):
        build = Build(1)
        za, zb, zy = np.array(3, ta), np.array(100, tb), np.array(17, ty)
        x = build.add("DequantizeLinear", "x", build.const(f(sa)), build.const(za))
        other = build.add("DequantizeLinear", build.add("Identity", "b"), build.const(f(sb)), build.const(zb))
        y = build.add(kind, x, other)
        if act:
            y = build.add(act, y, *([build.const(f(-1)), build.const(f(4))] if act == "Clip" else []))
        y = build.add("QuantizeLinear", y, build.const(f(sy)), build.const(zy))
        kind_a, kind_b, kind_y = (h.np_dtype_to_tensor_dtype(np.dtype(t)) for t in (ta, tb, ty))
        model = build.model(left.shape, kind_a, **{y: kind_y})
        model.graph.input.append(h.make_tensor_value_info("b", kind_b, right.shape))
        got = session(model).run(None, {"x": left, "b": right})[0]
        va = (left.astype(np.int32) - np.int32(za)).astype(f) * f(sa)
        vb = (right.astype(np.int32) - np.int32(zb)).astype(f) * f(sb)
        wide = va + vb if kind == "Add" else va * vb
        wide = np.maximum(wide, f(0)) if act == "Relu" else np.clip(wide, f(-1), f(4)) if act else wide
        want = np.clip(np.rint(wide / f(sy)) + f(zy), np.iinfo(ty).min, np.iinfo(ty).max).astype(ty)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(got, session(model, False).run(None, {"x": left, "b": right})[0])
        assert [n.kernel.name for n in pyonnx_wasm.compiler.compile(model.SerializeToString()).main.nodes] == ["qbinary"]


def test_a_block_with_a_residual_stays_in_bytes() -> None:
    """Convolutions, a sum, a concatenation and pools, with what the graph gives along the way: as without optimisation, to a quantum."""
    b = Build(5)
    rng = b.rng

    def conv(x: str, c: int, m: int, k: int, group: int = 1) -> str:
        w = b.add("DequantizeLinear", b.const(rng.integers(-127, 128, (m, c // group, k, k)).astype(np.int8)), b.const(np.float32(0.01)))
        y = b.add("Conv", x, w, b.const(rng.standard_normal(m).astype(np.float32)), pads=[k // 2] * 4, group=group)
        return again(b.add("Relu", y))

    def again(y: str, scale: float = 0.05) -> str:
        s, z = b.const(np.float32(scale)), b.const(np.uint8(9))
        return b.add("DequantizeLinear", b.add("QuantizeLinear", y, s, z), s, z)

    x = again("x", 0.02)
    first = conv(x, 3, 20, 3)
    deep = conv(conv(first, 20, 20, 3, 20), 20, 20, 1)
    joined = again(b.add("Add", first, deep), 0.1)
    wide = b.add("Concat", joined, conv(joined, 20, 12, 1), axis=1)
    pooled = b.add("MaxPool", again(wide), kernel_shape=[2, 2], strides=[2, 2])
    last = conv(pooled, 32, 8, 1)
    flat = b.add("Flatten", last)
    mean = b.add("GlobalAveragePool", last)
    b.nodes.append(h.make_node("Identity", [joined], ["middle"]))
    for name in (last, flat, mean):
        b.nodes.append(h.make_node("Identity", [name], [f"out_{name}"]))
    outs = {"middle": T.FLOAT} | {f"out_{name}": T.FLOAT for name in (last, flat, mean)}
    model = b.model(("n", 3, 9, 8), T.FLOAT, **outs)
    for n in (1, 3):
        given = rng.standard_normal((n, 3, 9, 8)).astype(np.float32)
        got, want = (session(model, on).run(None, {"x": given}) for on in (True, False))
        for one, other in zip(got, want, strict=True):
            assert one.shape == other.shape
            assert np.abs(one - other).max() <= 0.1001
            assert (np.abs(one - other) > 1e-6).mean() < 0.02


def test_weights_may_be_a_part_of_a_constant() -> None:
    b = Build(3)
    w = b.rng.integers(-128, 128, (2, 3, 8, 20)).astype(np.int8)
    x = b.rng.integers(0, 256, (5, 8)).astype(np.uint8)
    part = b.add("Gather", b.add("Gather", b.const(w), b.const(np.int64(1)), axis=0), b.const(np.int64(2)), axis=0)
    y = b.add("MatMulInteger", "x", part)
    sliced = b.add("Slice", part, b.const(np.array([3])), b.const(np.array([17])), b.const(np.array([1])))
    z = b.add("MatMulInteger", "x", sliced)
    got = session(b.model(x.shape, T.UINT8, **{y: T.INT32, z: T.INT32})).run(None, {"x": x})
    np.testing.assert_array_equal(got[0], x.astype(np.int32) @ w[1, 2].astype(np.int32))
    np.testing.assert_array_equal(got[1], x.astype(np.int32) @ w[1, 2][:, 3:17].astype(np.int32))


@pytest.mark.parametrize(("tx", "ty"), [("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8")])
@pytest.mark.parametrize("n", [1024, 1031, "n"])
def test_functions_of_a_byte_are_looked_up(tx: str, ty: str, n: int | str) -> None:
    """A sigmoid times its operand, quantised between: one table of all codes, as without optimisation."""
    build = Build(2)
    scale = [build.const(np.float32(s)) for s in (0.05, 0.004, 0.03)]
    x = build.add("DequantizeLinear", "x", scale[0], build.const(np.array(40, tx)))
    gate = build.add("QuantizeLinear", build.add("Sigmoid", x), scale[1], build.const(np.array(3, ty)))
    gate = build.add("DequantizeLinear", gate, scale[1], build.const(np.array(3, ty)))
    build.add("QuantizeLinear", build.add("Mul", x, gate), scale[2], build.const(np.array(9, ty)))
    kinds = [h.np_dtype_to_tensor_dtype(np.dtype(t)) for t in (tx, ty)]
    model = build.model((n, 3), kinds[0], **{build.nodes[-1].output[0]: kinds[1]})
    rows = 1031 if isinstance(n, str) else n
    codes = np.resize(np.arange(256).astype(tx), (rows, 3))
    got = session(model).run(None, {"x": codes})[0]
    np.testing.assert_array_equal(got, session(model, False).run(None, {"x": codes})[0])
    assert len(np.unique(got)) > 30
    assert [node.kernel.name for node in pyonnx_wasm.compiler.compile(model.SerializeToString()).main.nodes] == ["qlookup"]


@pytest.mark.parametrize("per_channel", [False, True])
def test_qlinear_convolutions_are_one_call(per_channel: bool) -> None:
    """QLinearConv with an int32 bias, one after another: to a quantum of what it is without optimisation."""
    build = Build(7)
    rng = build.rng

    def conv(x: str, c: int, m: int) -> str:
        size = (m,) if per_channel else ()
        w = rng.integers(-127, 128, (m, c, 3, 3)).astype(np.int8)
        by = rng.uniform(0.002, 0.004, size).astype(np.float32)
        bias = rng.integers(-3000, 3000, m).astype(np.int32)
        given = [np.float32(0.02), np.uint8(7), w, by, np.zeros(size, np.int8), np.float32(0.06), np.uint8(120), bias]
        return build.add("QLinearConv", x, *(build.const(np.asarray(v)) for v in given), pads=[1] * 4)

    last = conv(conv("x", 5, 20), 20, 33)
    model = build.model(("n", 5, 9, 8), T.UINT8, **{last: T.UINT8})
    x = rng.integers(0, 256, (2, 5, 9, 8)).astype(np.uint8)
    got, plain = (session(model, optimise).run(None, {"x": x})[0].astype(int) for optimise in (True, False))
    assert np.abs(got - plain).max() <= 1
    assert len(np.unique(plain)) > 100
    names = [node.kernel.name for node in pyonnx_wasm.compiler.compile(model.SerializeToString()).main.nodes]
    assert [name for name in names if name != "copy"] == ["qconv_last", "qconv_last"]
