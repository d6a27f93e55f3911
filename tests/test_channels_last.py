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
