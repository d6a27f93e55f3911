"""Quantisation over the range of the data is one step of the core: the kernel against numpy, and what operators make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from kernel_call import Array, refused, run

import pyonnx_wasm
from pyonnx_wasm import compiler

BACKENDS = ["cpu", "wasmtime"]


def quantised(x: Array) -> list[Array]:
    """Codes, scale and zero point as the standard defines them, step by step in float32; a NaN as a code is 0."""
    with np.errstate(all="ignore"):
        low, high = np.minimum(x.min(initial=0), np.float32(0)), np.maximum(x.max(initial=0), np.float32(0))
        span = (high - low) / np.float32(255)
        scale = np.float32(1) if span == 0 else span
        zero = np.clip(np.round(-low / scale), 0, 255)
        y = np.clip(np.round(x / scale) + zero, 0, 255)
        return [np.nan_to_num(y).astype(np.uint8), np.float32(scale), np.nan_to_num(zero).astype(np.uint8)]


SPECIAL = (
    [], [0], [-0.0, -0.0], [np.nan, 1, 2], [1] * 40 + [np.nan], [np.inf, 1, -1], [-np.inf, 3], [np.inf, -np.inf], [3e38, -3e38], [5], [-5],
    [1e-45, 3e-45], [4e-43, -4e-43], [2e-38, -1e-38, 1e-40], [0.5, 127.5, 255, 1.5, 2.5, 3.5], [-255, -0.5, -1.5, -2.5],
    [-1, 254, 0.5, 1.5],
)  # fmt: skip


def samples() -> list[Array]:
    rng = np.random.default_rng(0)
    sizes = (1, 3, 4, 15, 16, 17, 63, 257, 8191, 8193, 40003)
    drawn = [rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4) + off for n in sizes for off in (0, 2, -2)]
    return [np.array(x, np.float32) for x in (*SPECIAL, *drawn)]


@pytest.mark.parametrize("threads", [1, 3])
def test_kernel(threads: int) -> None:
    for x in samples():
        outs = [("uint8", x.shape), ("float32", ()), ("uint8", ())]
        for got, want in zip(run("dynamic_quantize", outs, [x], threads, n=x.size), quantised(x), strict=True):
            np.testing.assert_array_equal(got, want, str(x[:8]))


def test_kernel_without_codes() -> None:
    x = np.array([-3, 1, 7], np.float32)
    got = run("dynamic_quantize", [None, ("float32", ()), ("uint8", ())], [x], n=3)
    np.testing.assert_array_equal(got[-2:], quantised(x)[1:])


def test_kernel_refuses() -> None:
    x = np.zeros(4, np.float32)
    good: list[Any] = [("uint8", (4,)), ("float32", ()), ("uint8", ())]
    for n in (-1, 5, 1 << 62):
        refused("dynamic_quantize", good, [x], n=n)
    bad = ((0, "uint8", (3,)), (0, "int8", (4,)), (1, "float64", ()), (1, "float32", (0,)), (2, "int8", ()), (2, "uint8", (0,)))
    for place, *wrong in bad:
        refused("dynamic_quantize", [wrong if i == place else out for i, out in enumerate(good)], [x], n=4)
    refused("dynamic_quantize", good, [x.astype(np.float64)], n=4)


MODEL = """
<ir_version: 8, opset_import: ["": 17]>
m (float[n] x) => (uint8[n] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends(backend: str) -> None:
    session = pyonnx_wasm.InferenceSession(onnx.parser.parse_model(MODEL).SerializeToString(), providers=[backend])
    for x in samples():
        for got, want in zip(session.run(None, {"x": x}), quantised(x), strict=True):
            np.testing.assert_array_equal(got, want, str(x[:8]))


def test_one_step() -> None:
    made = compiler.compile(onnx.parser.parse_model(MODEL).SerializeToString())
    assert [n.kernel.name for n in made.main.nodes] == ["dynamic_quantize"]
