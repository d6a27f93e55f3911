"""The functions of doubles that WebAssembly's core has of its own, against numpy's longest float."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pyonnx_wasm as ort

Array = np.ndarray[Any, Any]

UNARY: dict[str, tuple[Callable[[Array], Array], float]] = {
    "Exp": (np.exp, 1.0),
    "Sin": (np.sin, 1.0),
    "Cos": (np.cos, 1.0),
    "Tan": (np.tan, 2.5),
    "Sinh": (np.sinh, 2.5),
    "Cosh": (np.cosh, 2.5),
    "Tanh": (np.tanh, 2.5),
    "HardSwish": (lambda x: x * np.clip((x + 3) / 6, 0, 1), 2.5),  # x / 6 + 0.5 would lose its digits near -3
    "Elu": (lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x), 1.5),
}
SMALL = [0.0, 5e-324, 1e-310, 0.5, 1, 2, 2.5, 3]
LARGE = [np.inf, 2.0**52 + 1, 2.0**53, 2.0**53 + 2, 1e308, 709.7, 709.79, 708.4, 745.1, 745.2, 710.4, 710.5, 1023, 1024, 1074, 1075]
SPECIAL = [np.nan, *(sign * x for x in SMALL + LARGE for sign in (1, -1))]
RNG = np.random.default_rng(11)
BITS = RNG.integers(0, 1 << 64, 20000, np.uint64).view(np.float64)
NEAR = -3 + RNG.uniform(0, 1, 5000) * 10.0 ** RNG.uniform(-15, 0, 5000)
RANGES = [BITS, NEAR, *(RNG.uniform(-r, r, 5000) for r in (0.5, 2, 30, 745, 2e6)), np.pi / 2 * RNG.integers(-(10**6), 10**6, 5000)]


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    info = helper.make_tensor_value_info
    nodes = [helper.make_node(op, ["x"], [op]) for op in UNARY] + [helper.make_node("Pow", ["x", "y"], ["Pow"])]
    outputs = [info(n.output[0], TensorProto.DOUBLE, ["n"]) for n in nodes]
    graph = helper.make_graph(nodes, "g", [info(n, TensorProto.DOUBLE, ["n"]) for n in "xy"], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["wasmtime"])


def agree(got: Array, exact: Array, ulps: float) -> None:
    """Within so many units of the last place of what is exact; infinities, NaN and the signs of zeros as they are."""
    want = exact.astype(np.float64)
    plain = np.isfinite(want) & np.isfinite(got)
    np.testing.assert_array_equal(got[~plain], want[~plain])
    assert np.array_equal(np.signbit(got[plain]), np.signbit(want[plain]))
    unit = np.spacing(np.maximum(np.abs(want[plain]), np.finfo(np.float64).tiny)).astype(np.longdouble)
    off = np.abs(got[plain].astype(np.longdouble) - exact[plain]) / unit
    assert off.max(initial=0) <= ulps, (off.max(), want[plain][off.argmax()])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_one_double(session: ort.InferenceSession) -> None:
    x = np.concatenate([SPECIAL, *RANGES])
    got = session.run(list(UNARY), {"x": x, "y": x})
    for (op, (fn, ulps)), y in zip(UNARY.items(), got, strict=True):
        print(op)
        agree(y, fn(x.astype(np.longdouble)), ulps)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers(session: ort.InferenceSession) -> None:
    a, b = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
    near = 1 + RNG.uniform(-1e-3, 1e-3, 5000)
    pairs = [
        (a, b),
        (np.exp(RNG.uniform(-20, 20, 5000)), RNG.uniform(-30, 30, 5000)),
        (near, RNG.uniform(-7e5, 7e5, 5000)),
        (BITS, BITS[::-1]),
        (BITS, RNG.uniform(-3, 3, BITS.size)),
        *((RNG.integers(-20, 20, 5000) / k, RNG.integers(-20, 20, 5000) / 1.0) for k in (1, 4)),
    ]
    x, y = (np.concatenate(side) for side in zip(*pairs, strict=True))
    agree(session.run(["Pow"], {"x": x, "y": y})[0], np.power(x.astype(np.longdouble), y.astype(np.longdouble)), 1.0)
