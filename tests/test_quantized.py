"""Models of bytes: exact sums whatever the machine multiplies, and chains that become one kernel."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import pyonnx_wasm
from pyonnx_wasm import compiler

BACKENDS = ["cpu", "wasmtime"]
TYPES = ["uint8", "int8"]


def run(text: str, backend: str, feeds: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    [y] = pyonnx_wasm.InferenceSession(model.SerializeToString(), providers=[backend]).run(None, feeds)
    return y, ReferenceEvaluator(model).run(None, feeds)[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("ta", "tb"), list(itertools.product(TYPES, TYPES)))
def test_integer_products_of_extremes(backend: str, ta: str, tb: str) -> None:
    """Sums of two products pass int16 in every way that they can, beside weights for which they cannot."""
    rng = np.random.default_rng(5)
    for low_a, low_b in itertools.product((True, False), repeat=2):
        a = np.full((7, 130), np.iinfo(ta).min if low_a else np.iinfo(ta).max, ta)
        b = rng.integers(0, 60, (130, 29)).astype(tb)
        b[rng.random(b.shape) < 0.1] = np.iinfo(tb).min if low_b else np.iinfo(tb).max
        b[:8] = np.iinfo(tb).min if low_b else np.iinfo(tb).max
        text = f"m ({ta}[M, K] A, {tb}[K, N] B, {ta} za, {tb}[N] zb) => (int32[M, N] y) {{ y = MatMulInteger(A, B, za, zb) }}"
        zeros = {"za": np.array(np.iinfo(ta).max, ta), "zb": rng.integers(0, 100, 29).astype(tb)}
        y, want = run(text, backend, {"A": a, "B": b, **zeros})
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("most", [0, 2, 8, 30, 64, 127], ids=str)
def test_integer_products_by_weights_of_any_size(backend: str, most: int) -> None:
    """Small weights let many products add up in int16, large ones none; with tails, few rows and several blocks of them."""
    rng = np.random.default_rng(most)
    for rows, depth, columns, far in ((1, 20, 12, 0.0), (3, 301, 29, 0.01), (7, 130, 8, 0.0), (50, 64, 25, 0.3), (700, 516, 16, 0.002)):
        w = rng.integers(-most, most + 1, (depth, columns))
        w = np.where(rng.random(w.shape) < far, rng.choice([-128, 127], w.shape), w).astype(np.int8)
        a = rng.choice(np.array([0, 255, 255, 128], np.uint8), (rows, depth))
        a[rows // 2 :] = rng.integers(0, 256, a[rows // 2 :].shape)
        text = "m (uint8[M, K] A) => (int32[M, N] y) { y = MatMulInteger(A, B, za) }"
        model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
        model.graph.initializer.extend([numpy_helper.from_array(w, "B"), numpy_helper.from_array(np.array(7, np.uint8), "za")])
        [y] = pyonnx_wasm.InferenceSession(model.SerializeToString(), providers=[backend]).run(None, {"A": a})
        np.testing.assert_array_equal(y, (a.astype(np.int64) - 7) @ w)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ta", ["uint8", "int8"])
def test_integer_products_of_rows_along_columns(backend: str, ta: str) -> None:
    """Where a row less its zero point is a multiple of a column, sums are as large as the norms of both allow."""
    rng = np.random.default_rng(5)
    low, high = np.iinfo(ta).min, np.iinfo(ta).max
    text = f"m ({ta}[M, K] A, {ta} za) => (int32[M, N] y) {{ y = MatMulInteger(A, B, za) }}"
    for depth, most in ((40, 127), (96, 64), (333, 40), (700, 20), (1030, 6)):
        w = rng.integers(-most, most + 1, (depth, 24)).astype(np.int8)
        w[:, 5] = most
        w[::2, 7] = -w[::2, 7]
        model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
        model.graph.initializer.append(numpy_helper.from_array(w, "B"))
        session = pyonnx_wasm.InferenceSession(model.SerializeToString(), providers=[backend])
        for zero in (low, low + 40, low + 128, high):
            times = np.repeat(np.array([-8, -3, -1, -0.5, 0.5, 1, 1.5, 2, 3, 8, 127]), 24)
            rows = np.tile(w.T, (11, 1)) * times[:, None]
            a = np.clip(np.round(rows) + zero, low, high).astype(ta)
            [y] = session.run(None, {"A": a, "za": np.array(zero, ta)})
            np.testing.assert_array_equal(y, (a.astype(np.int64) - zero) @ w)


DYNAMIC = """
m (float[batch, length, 24] x, int8[24, 20] w, float[20] c) => (float[batch, length, 20] y)
<float ws = {0.02}, int8 wz = {0}> {
  q, s, z = DynamicQuantizeLinear(x)
  sums = MatMulInteger(q, w, z, wz)
  f = Cast<to = 1>(sums)
  both = Mul(s, ws)
  scaled = Mul(f, both)
  b = Add(scaled, c)
  y = Relu(b)
}"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_dynamic_quantisation(backend: str) -> None:
    rng = np.random.default_rng(6)
    for shape in ((1, 3, 24), (2, 5, 24), (1, 1, 24)):
        x, w = rng.standard_normal(shape).astype(np.float32), rng.integers(-127, 128, (24, 20)).astype(np.int8)
        c = rng.standard_normal(20).astype(np.float32)
        y, want = run(DYNAMIC, backend, {"x": x, "w": w, "c": c})
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


def kernels(text: str) -> list[str]:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    return [n.kernel.name for n in compiler.compile(model.SerializeToString()).main.nodes]


def test_scale_bias_and_activation_belong_to_the_product() -> None:
    found = kernels(DYNAMIC)
    assert found.count("qmatmul") == 1
    assert found[-1] == "qmatmul"


def test_sums_that_others_read_stay_integers() -> None:
    text = """m (uint8[M, 8] a, int8[8, 4] b, float s) => (float[M, 4] y, int32[M, 4] sums) {
      sums = MatMulInteger(a, b)  f = Cast<to = 1>(sums)  y = Mul(f, s) }"""
    assert kernels(text) == ["qmatmul", "map"]
    feeds = {"a": np.arange(24, dtype=np.uint8).reshape(3, 8), "b": np.arange(32, dtype=np.int8).reshape(8, 4), "s": np.float32(0.5)}
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    found, wanted = pyonnx_wasm.InferenceSession(model.SerializeToString()).run(None, feeds), ReferenceEvaluator(model).run(None, feeds)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "rest",
    [
        "g = Add(f, f)  y = Mul(g, s)",  # not a product of the sum
        "g = Mul(f, s)  h = Mul(f, f)  y = Add(g, h)",  # the sum is read twice
        "g = Mul(f, rows)  y = Add(g, g)",  # a factor per row
        "g = Mul(f, s)  h = Mul(g, s)  y = Mul(h, s)",  # three factors
        "g = Mul(s, f)  y = Add(g, columns)",
        "g = Mul(f, columns)  y = Sub(columns, g)",
        "y = Mul(f, f)",
    ],
)
def test_what_else_may_follow_a_sum(rest: str) -> None:
    text = f"""m (uint8[M, 8] a, int8[8, 4] b, float s, float[M, 1] rows, float[4] columns) => (float[M, 4] y) {{
      sums = MatMulInteger(a, b)  f = Cast<to = 1>(sums)  {rest} }}"""
    rng = np.random.default_rng(7)
    feeds = {
        "a": rng.integers(0, 256, (3, 8)).astype(np.uint8), "b": rng.integers(-128, 128, (8, 4)).astype(np.int8), "s": np.float32(0.25),
        "rows": rng.standard_normal((3, 1)).astype(np.float32), "columns": rng.standard_normal(4).astype(np.float32),
    }  # fmt: skip
    y, want = run(text, "cpu", feeds)
    np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-6)


def convolution(rest: str, out: str = "float", zero: int = 120, stride: int = 1) -> onnx.ModelProto:
    """Dequantised bytes through a convolution, with random weights; ``rest`` makes y of its result c."""
    rng = np.random.default_rng(10)
    weights: dict[str, Any] = {
        "sx": np.float32(0.05), "zx": np.uint8(110), "w": rng.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8),
        "sw": (rng.random(6) * 0.02 + 0.001).astype(np.float32), "zw": np.zeros(6, np.int8), "b": rng.standard_normal(6).astype(np.float32),
        "sy": np.float32(0.04), "zy": np.uint8(zero), "zs": np.int8(-3),
    }  # fmt: skip
    text = f"""
    m (float[n, 4, h, v] x) => ({out} y) {{
      q = QuantizeLinear(x, sx, zx)
      f = DequantizeLinear(q, sx, zx)
      wf = DequantizeLinear<axis = 0>(w, sw, zw)
      c = Conv<pads = [1, 1, 1, 1], strides = [{stride}, {stride}]>(f, wf, b)
      {rest}
    }}"""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items())
    return model


QUANTISED = "y = QuantizeLinear(c, sy, zy)"
CHAINS = [
    (QUANTISED, "uint8", ["map", "qconv_last", "copy"]),
    ("r = Relu(c)  y = QuantizeLinear(r, sy, zy)", "uint8", ["map", "qconv_last", "copy"]),
    ("y = QuantizeLinear(c, sy, zs)", "int8", ["map", "qconv_last", "copy"]),
    ("y = Relu(c)", "float", ["map", "qconv_last", "copy"]),
    ("e = QuantizeLinear(c, sy, zy)  y = DequantizeLinear(e, sy, zy)", "float", ["map", "qconv_last", "map"]),
    ("e = Add(c, c)  y = QuantizeLinear(e, sy, zy)", "uint8", None),
    ("e = QuantizeLinear(c, sy, zy)  g = DequantizeLinear(e, sy, zy)  y = Add(g, c)", "float", None),
    ("e = Sigmoid(c)  g = Sigmoid(e)  y = QuantizeLinear(g, sy, zy)", "uint8", None),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("rest", "out", "kernels"), CHAINS, ids=[c[0] for c in CHAINS])
def test_dequantised_convolutions(rest: str, out: str, kernels: list[str] | None, backend: str) -> None:
    rng = np.random.default_rng(11)
    for zero, stride in ((120, 1), (0, 2)):
        model = convolution(rest, out, zero, stride)
        if kernels is not None:
            assert [n.kernel.name for n in compiler.compile(model.SerializeToString()).main.nodes] == kernels
        session, reference = pyonnx_wasm.InferenceSession(model.SerializeToString(), providers=[backend]), ReferenceEvaluator(model)
        for shape in ((1, 4, 7, 9), (2, 4, 12, 5)):
            x = rng.standard_normal(shape).astype(np.float32) * 4
            [y], [want] = session.run(None, {"x": x}), reference.run(None, {"x": x})
            assert y.dtype == want.dtype
            quantum = 0.04 if out == "float" and "Quantize" in rest else 1e-4 if out == "float" else 1
            assert np.abs(y.astype(np.float64) - want.astype(np.float64)).max() <= quantum * 1.001
            assert (y != want).mean() < 0.01 or out == "float"


@pytest.mark.parametrize("start", [0, 1, 4])
def test_scales_may_lie_within_a_tensor(start: int) -> None:
    text = f"""m (uint8[M, 8] a, int8[8, 4] b, float[9] all) => (float[M, 4] y) <int64[1] s = {{{start}}}, int64[1] e = {{{start + 4}}}> {{
      sums = MatMulInteger(a, b)  f = Cast<to = 1>(sums)  part = Slice(all, s, e)  y = Mul(f, part) }}"""
    rng = np.random.default_rng(12)
    a, b = rng.integers(0, 256, (3, 8)).astype(np.uint8), rng.integers(-128, 128, (8, 4)).astype(np.int8)
    y, want = run(text, "cpu", {"a": a, "b": b, "all": rng.standard_normal(9).astype(np.float32)})
    np.testing.assert_allclose(y, want, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_weights_may_be_parts_of_one_constant(axis: int, turned: bool, backend: str) -> None:
    """Rows of it are a range without gaps, seen from their own beginning; columns are not, and lie within the whole."""
    shape = [10, 10]
    shape[axis] = 30
    rng = np.random.default_rng(3)
    w = numpy_helper.from_array(rng.integers(-128, 128, shape).astype(np.int8), "w")
    products = [f"{'t' if turned else 'p'}{i}" for i in range(3)]
    turns = " ".join(f"t{i} = Transpose<perm = [1, 0]>(p{i})" for i in range(3)) if turned else ""
    text = f"""m (uint8[M, 10] a) => (int32[M, 30] y) {{ p0, p1, p2 = Split<axis = {axis}, num_outputs = 3>(w) {turns}
      {" ".join(f"y{i} = MatMulInteger(a, {p})" for i, p in enumerate(products))} y = Concat<axis = 1>(y0, y1, y2) }}"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    model.graph.initializer.append(w)
    a = {"a": rng.integers(0, 256, (4, 10)).astype(np.uint8)}
    [y] = pyonnx_wasm.InferenceSession(model.SerializeToString(), providers=[backend]).run(None, a)
    np.testing.assert_array_equal(y, ReferenceEvaluator(model).run(None, a)[0])
