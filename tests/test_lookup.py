"""Bytes by a table, on every build that runs here, and on Arm: all codes, and all sizes around a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from kernel_call import BUILDS, run, sample, use

from pyonnx_wasm import InferenceSession
from pyonnx_wasm.testing import emulated

SIZES = [*range(200), 1000, 70_001]


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize(("first", "second"), [("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8")])
def test_codes(isa: str, first: str, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(isa, monkeypatch)
    rng = np.random.default_rng(1)
    for n in SIZES:
        x, table = sample(rng, first, (n,)), sample(rng, second, (256,))
        y = run("qlookup", [(second, (n,))], [x, table], 1 + n % 3, n=n)
        np.testing.assert_array_equal(y, table[x.view(np.uint8)])


def sigmoids(n: int) -> bytes:
    text = f"""<ir_version: 9, opset_import: ["" : 19]> g (uint8[{n}] x) => (uint8[{n}] y)
      <float s = {{0.0625}}, uint8 z = {{100}}, float t = {{0.00390625}}, uint8 none = {{0}}> {{
        a = DequantizeLinear(x, s, z)
        b = Sigmoid(a)
        y = QuantizeLinear(b, t, none)
      }}"""
    data: bytes = onnx.parser.parse_model(text).SerializeToString()
    return data


def check_sigmoids(n: int, providers: list[str]) -> None:
    x: np.ndarray[Any, Any] = np.resize(np.arange(256, dtype=np.uint8), n)
    [got] = InferenceSession(sigmoids(n), providers=providers).run(None, {"x": x})
    want = 256 / (1 + np.exp(-0.0625 * (x.astype(np.float64) - 100)))
    assert np.abs(got - np.minimum(want, 255)).max() <= 0.5001


@pytest.mark.parametrize("n", [1024, 4099])
def test_codes_in_webassembly(n: int) -> None:
    check_sigmoids(n, ["wasmtime"])


@pytest.mark.skipif(emulated.qemu() is None, reason="needs an emulator of Arm: `make build/.qemu`")
@pytest.mark.parametrize("n", [1024, 4099])
def test_codes_on_arm(n: int) -> None:
    with emulated.arm("cortex-a53"):
        check_sigmoids(n, ["wasmtime"])
