"""Mesa's llvmpipe leaves out the rounds of loops beyond 65,535 and says nothing: what would need more runs on the core, or is an error."""

from typing import Any

import numpy as np
import pytest
from gpu_model import Array, graph, node
from onnx import helper

import pyonnx_wasm as ort
from pyonnx_wasm.runtimes.wgpu_device import GpuError, adapter_name

LONG, SHORT = 70_001, 21_661
LANES = {"Softmax", "LogSoftmax", "CumSum", "ScatterElements", "ScatterND", "MatMulInteger"}  # go through all by themselves
rng = np.random.default_rng(0)

pytestmark = pytest.mark.filterwarnings("ignore:running on cpu. no step of it has a shader")


def numbers(*shape: int, dtype: str = "float32") -> Array:
    return rng.random(shape).astype(dtype) if dtype == "float32" else rng.integers(0, 9, shape).astype(dtype)


def rows(n: int) -> dict[str, tuple[Any, dict[str, Array]]]:
    """Models whose lanes go through loops of n rounds or more, and feeds."""
    x, one = numbers(1, n, 3), numbers(3, n)
    made: dict[str, tuple[Any, dict[str, Array]]] = {
        "Softmax": (lambda s: node("Softmax", {"x": x}, symbolic=s, axis=1), {"x": x}),
        "LogSoftmax": (lambda s: node("LogSoftmax", {"x": x}, symbolic=s, axis=1), {"x": x}),
    }
    sums = [helper.make_node("CumSum", ["x", "axis"], ["y0"])]
    made["CumSum"] = lambda s: graph(sums, {"x": x}, symbolic=s, weights={"axis": np.array(1)}), {"x": x}
    scatter = {"x": numbers(3), "indices": rng.integers(0, 3, n), "updates": numbers(n)}
    made["ScatterElements"] = lambda s: node("ScatterElements", scatter, symbolic=s, axis=0, reduction="add"), scatter
    nd = {"x": numbers(3, 2), "indices": rng.integers(0, 3, (n, 1)), "updates": numbers(n, 2)}
    made["ScatterND"] = lambda s: node("ScatterND", nd, symbolic=s, reduction="add"), nd
    integers = {"a": numbers(3, n, dtype="uint8"), "b": numbers(n, 2, dtype="uint8")}
    made["MatMulInteger"] = lambda s: node("MatMulInteger", integers, symbolic=s), integers
    return made | {"product": (lambda s: node("MatMul", {"a": one, "b": one.T.copy()}, symbolic=s), {"a": one, "b": one.T.copy()})}


def close(got: list[Array], want: list[Array]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6 * float(np.abs(b).max()))


@pytest.mark.parametrize("name", rows(1))
@pytest.mark.parametrize("n", [SHORT, LONG])
def test_long_loops(name: str, n: int) -> None:
    make, feeds = rows(n)[name]
    for symbolic in (False, True)[: 1 if name == "ScatterND" else 2]:  # whose rank hangs on a size
        model = make(symbolic)
        want = ort.InferenceSession(model).run(None, feeds)
        session = ort.InferenceSession(model, providers=["gpu"])
        if symbolic and n == LONG and name in LANES and "llvmpipe" in adapter_name():
            with pytest.raises(GpuError, match="run this shape on the cpu"):
                session.run(None, feeds)
        else:
            close(session.run(None, feeds), want)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "AveragePool", "MaxPool"])
def test_windows_of_many_taps(op: str) -> None:
    """Whose sizes a model has in it."""
    if op.endswith("Pool"):
        feeds = {"x": np.arange(262 * 262, dtype=np.float32).reshape(1, 1, 262, 262)}  # the last tap of a window decides
        model = node(op, feeds, kernel_shape=[260, 260])
    else:
        feeds = {"x": numbers(1, 2800, 5, 5)}
        w = numbers(2, 2800, 5, 5) if op == "Conv" else numbers(2800, 2, 5, 5)
        more = {"kernel_shape": [5, 5], "pads": [4 if op == "ConvTranspose" else 0] * 4}
        model = graph([helper.make_node(op, ["x", "w"], ["y0"], **more)], feeds, symbolic=False, weights={"w": w})
    want = ort.InferenceSession(model).run(None, feeds)
    close(ort.InferenceSession(model, providers=["gpu"]).run(None, feeds), want)
