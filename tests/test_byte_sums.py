"""Sums and products of dequantised bytes, quantised again, on every build that runs here: all pairs of codes, steps rounded one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from kernel_call import BUILDS, refused, run, use
from onnx import numpy_helper

from pyonnx_wasm import InferenceSession, compiler
from pyonnx_wasm.ops.quantized import BYTE_OPERATIONS

Array = np.ndarray[Any, Any]


def stepwise(a: Array, b: Array, w: dict[str, Any], dtype: str) -> Array:
    info = np.iinfo(dtype)
    left = (a.astype(np.float32) - np.float32(w["azero"])) * np.float32(w["ascale"])
    right = (b.astype(np.float32) - np.float32(w["bzero"])) * np.float32(w["bscale"])
    made = left + right if w["op"] == BYTE_OPERATIONS.index("add") else left * right
    made = np.minimum(np.maximum(made, np.float32(w["low"])), np.float32(w["high"]))
    return np.clip(np.rint(made / np.float32(w["yscale"])) + w["yzero"], info.min, info.max).astype(dtype)


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("op", ["add", "mul"])
@pytest.mark.parametrize(
    ("first", "second", "result"), [("uint8", "uint8", "uint8"), ("int8", "uint8", "int8"), ("uint8", "int8", "uint8")]
)
def test_all_pairs(isa: str, op: str, first: str, second: str, result: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(isa, monkeypatch)
    rng = np.random.default_rng(len(first) + len(op))
    a, b = (grid.reshape(-1).view(t) for grid, t in zip(np.meshgrid(*[np.arange(256, dtype=np.uint8)] * 2), (first, second), strict=True))
    for seed in range(24):
        scales = np.exp2(rng.uniform(-9, 3, 3)).astype(np.float32)
        if seed % 3 == 0:
            scales[:] = np.exp2(np.round(np.log2(scales)))  # powers of two: many ties
        elif seed % 3 == 1:
            scales[1:] = scales[0] * rng.uniform(0.7, 1.5, 2)
        if seed == 5:
            scales[:2] *= np.float32(1e-30)
        zeros = [int(rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1)) for t in (first, second, result)]
        w = {f"{n}zero": z for n, z in zip("aby", zeros, strict=True)} | {f"{n}scale": float(s) for n, s in zip("aby", scales, strict=True)}
        w |= {"low": (-np.inf, 0.0, 1.3)[seed % 3], "high": (np.inf, 6.0)[seed % 2], "op": BYTE_OPERATIONS.index(op)}
        n = a.size - seed
        y = run("qbinary", [(result, (n,))], [a[:n], b[:n]], 1 + seed % 2, n=n, inner=n, repeats=1, **w)
        np.testing.assert_array_equal(y, stepwise(a[:n], b[:n], w, result), f"{w}")


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("inner", [1, 3, 15, 16, 17, 24, 96, 1000])
def test_rows_are_repeated(inner: int, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(isa, monkeypatch)
    rng = np.random.default_rng(inner)
    w = {"azero": 3, "bzero": 120, "yzero": 7, "ascale": 0.02, "bscale": 0.005, "yscale": 0.011, "low": -np.inf, "high": np.inf}
    for outer, repeats, op in ((1, 1, "add"), (3, 2, "mul"), (2, 49, "add"), (1, 700, "mul"), (5, 16, "mul"), (0, 9, "add"), (2, 0, "add")):
        a, b = (rng.integers(0, 256, (outer, n, inner), np.uint8) for n in (repeats, 1))
        w["op"] = BYTE_OPERATIONS.index(op)
        y = run("qbinary", [("uint8", (a.size,))], [a.reshape(-1), b.reshape(-1)], 2, n=a.size, inner=inner, repeats=repeats, **w)
        want = stepwise(a.reshape(-1), np.broadcast_to(b, a.shape).reshape(-1), w, "uint8")
        np.testing.assert_array_equal(y, want)
    good = {"n": 6 * inner, "inner": inner, "repeats": 3}
    x, row = np.zeros(6 * inner, np.uint8), np.zeros(2 * inner, np.uint8)
    run("qbinary", [("uint8", x.shape)], [x, row], **good, **w)
    for wrong in (
        {"n": 7 * inner}, {"n": 6 * inner - 1}, {"repeats": 0}, {"repeats": -1}, {"repeats": 2}, {"repeats": 4}, {"inner": -1},
        {"inner": 1 << 40, "repeats": 1 << 40}, {"inner": 0},
    ):  # fmt: skip
        refused("qbinary", [("uint8", x.shape)], [x, row], **good | wrong, **w)


@pytest.mark.parametrize(
    ("shape", "gate"), [((2, 24, 7, 9), (2, 24, 1, 1)), ((1, 3, 5, 5), (3, 1, 1)), ((4, 6, 16), (16,)), ((4, 6, 16), (4, 1, 16))]
)
@pytest.mark.parametrize("gate_first", [False, True])
def test_gates_are_bytes(shape: tuple[int, ...], gate: tuple[int, ...], gate_first: bool) -> None:
    """What is the same for each pixel of a channel, or each row: one step of bytes, equal to onnxruntime's steps."""
    rng = np.random.default_rng(len(shape))
    a, b = ("d", "c") if gate_first else ("c", "d")
    text = f"""<ir_version: 9, opset_import: ["" : 19]> g (uint8{list(shape)} a, uint8{list(gate)} b) => (uint8{list(shape)} y) {{
        c = DequantizeLinear(a, s0, z0)
        d = DequantizeLinear(b, s1, z1)
        e = Mul({a}, {b})
        y = QuantizeLinear(e, s2, z2)
      }}"""
    made = onnx.parser.parse_model(text)
    for i, (scale, zero) in enumerate(((0.05, 100), (0.004, 0), (0.03, 90))):
        made.graph.initializer.append(numpy_helper.from_array(np.float32(scale), f"s{i}"))
        made.graph.initializer.append(numpy_helper.from_array(np.uint8(zero), f"z{i}"))
    assert [n.kernel.name for n in compiler.compile(made.SerializeToString()).main.nodes] == ["qbinary"]
    feed = {"a": rng.integers(0, 256, shape, np.uint8), "b": rng.integers(0, 256, gate, np.uint8)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feed)
    np.testing.assert_array_equal(InferenceSession(made.SerializeToString()).run(None, feed)[0], want[0])


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_all_pairs_in_webassembly(op: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(*[np.arange(256, dtype=np.uint8)] * 2))
    for _ in range(4):
        scales, zeros = np.exp2(rng.uniform(-3, 1, 3)).astype(np.float32), rng.integers(0, 256, 3)
        text = f"""<ir_version: 9, opset_import: ["" : 19]> g (uint8[65536] a, uint8[65536] b) => (uint8[65536] y) {{
            c = DequantizeLinear(a, s0, z0)
            d = DequantizeLinear(b, s1, z1)
            e = {op}(c, d)
            y = QuantizeLinear(e, s2, z2)
          }}"""
        made = onnx.parser.parse_model(text)
        made.graph.initializer.extend(numpy_helper.from_array(scales[i], f"s{i}") for i in range(3))
        made.graph.initializer.extend(numpy_helper.from_array(np.uint8(zeros[i]), f"z{i}") for i in range(3))
        [y] = InferenceSession(made.SerializeToString(), providers=["wasmtime"]).run(None, {"a": a, "b": b})
        w = {f"{n}zero": int(z) for n, z in zip("aby", zeros, strict=True)} | {f"{n}scale": s for n, s in zip("aby", scales, strict=True)}
        w |= {"low": -np.inf, "high": np.inf, "op": BYTE_OPERATIONS.index(op.lower())}
        np.testing.assert_array_equal(y, stepwise(a, b, w, "uint8"))
