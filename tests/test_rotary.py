"""Rotary positions are one step: the kernel against numpy, and what operators make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from kernel_call import Array, refused, run
from onnx import TensorProto as T
from onnx import helper as h

import pyonnx_wasm
from pyonnx_wasm import compiler


def turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """In float64; the angles [.., .., .., pairs] broadcast."""
    y, pairs = x.astype(float), cos.shape[-1]
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(0, pairs), slice(pairs, 2 * pairs))
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first], y[..., second] = cos * a - sin * b, sin * a + cos * b
    return y


def strides(x: Array) -> list[int]:
    return [s // x.itemsize for s in x.strides]


@pytest.mark.parametrize("pairs", [0, 1, 3, 4, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("rest", [0, 1, 5])
@pytest.mark.parametrize("interleaved", [False, True])
def test_kernel(pairs: int, rest: int, interleaved: bool) -> None:
    rng = np.random.default_rng(pairs)
    size = 2 * pairs + rest
    for threads, lead in ((1, (2, 3, 4)), (3, (1, 70, 3)), (2, (0, 3, 4))):
        wide = rng.standard_normal((*lead[::-1], size + 3)).astype(np.float32)
        cos, sin = (rng.standard_normal((lead[1], pairs)).astype(np.float32) for _ in range(2))
        for view in (wide[..., 2 : 2 + size].transpose(2, 1, 0, 3), wide[..., :size].transpose(2, 1, 0, 3)[..., ::-1]):
            offset = (view.__array_interface__["data"][0] - wide.__array_interface__["data"][0]) // 4 if view.size else 0
            got = run(
                "rotary", [("float32", view.shape)], [wide, cos, sin], threads, shape=view.shape, pairs=pairs, interleaved=interleaved,
                x_stride=strides(view), cos_stride=[0, pairs, 0, 1], sin_stride=[0, pairs, 0, 1],
                y_stride=strides(np.empty(view.shape, np.float32)), xoff=offset,
            )  # fmt: skip
            want = turned(view, cos[None, :, None], sin[None, :, None], interleaved)
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


def test_kernel_refuses() -> None:
    x, angles = np.zeros((1, 2, 3, 8), np.float32), np.zeros((1, 2, 3, 4), np.float32)
    good: dict[str, Any] = {
        "shape": [1, 2, 3, 8], "pairs": 4, "x_stride": [48, 24, 8, 1], "y_stride": [48, 24, 8, 1], "cos_stride": [24, 12, 4, 1],
        "sin_stride": [24, 12, 4, 1],
    }  # fmt: skip
    run("rotary", [("float32", x.shape)], [x, angles, angles], **good)
    for wrong in (
        {"pairs": 5}, {"pairs": -1}, {"shape": [1, 2, 3, -8]}, {"shape": [1, 2, 4, 8]}, {"shape": [1 << 40, 1 << 40, 1, 8]}, {"xoff": 1},
        {"yoff": 1}, {"cos_off": 1}, {"sin_off": -1}, {"cos_stride": [24, 12, 4, 2]}, {"sin_stride": [1 << 62, 1 << 62, 4, 1]},
    ):  # fmt: skip
        refused("rotary", [("float32", x.shape)], [x, angles, angles], **good | wrong)
    refused("rotary", [("float64", x.shape)], [x, angles, angles], **good)


def model(interleaved: int, heads: int, size: int, twice: bool, pairs: int = 0) -> bytes:
    pairs = pairs or size // 2

    def turn(x: str, y: str) -> onnx.NodeProto:
        return h.make_node(
            "RotaryEmbedding", [x, "at", "cos", "sin"], [y], y, domain="com.microsoft", interleaved=interleaved, num_heads=heads
        )

    made = h.make_graph(
        [turn("x", "t"), turn("t", "y")] if twice else [turn("x", "y")],
        "rotary",
        [h.make_tensor_value_info("x", T.FLOAT, ["b", "n", heads * size]), h.make_tensor_value_info("at", T.INT64, ["b", "n"]),
         h.make_tensor_value_info("cos", T.FLOAT, [16, pairs]), h.make_tensor_value_info("sin", T.FLOAT, [16, pairs])],
        [h.make_tensor_value_info("y", T.FLOAT, ["b", "n", heads * size])],
    )  # fmt: skip
    imports = [h.make_opsetid("", 20), h.make_opsetid("com.microsoft", 1)]
    return h.make_model(made, opset_imports=imports, ir_version=10).SerializeToString()  # type: ignore[no-any-return]


@pytest.mark.parametrize("interleaved", [0, 1])
def test_a_step_each_without_copies(interleaved: int) -> None:
    heads, size = 3, 12
    made = model(interleaved, heads, size, True)
    assert [n.kernel.name for n in compiler.compile(made).main.nodes] == ["gather", "gather", "rotary", "rotary"]
    rng = np.random.default_rng(0)
    session = pyonnx_wasm.InferenceSession(made)
    angle = rng.standard_normal((16, size // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    for batch, n in ((2, 5), (1, 1), (3, 0)):
        x, at = rng.standard_normal((batch, n, heads * size)).astype(np.float32), rng.integers(0, 16, (batch, n))
        (got,) = session.run(None, {"x": x, "at": at, "cos": cos, "sin": sin})
        want = x.reshape(batch, n, heads, size)
        for _ in range(2):
            want = turned(want, cos[at][:, :, None], sin[at][:, :, None], bool(interleaved))
        np.testing.assert_allclose(got, want.reshape(x.shape), rtol=1e-5, atol=1e-5)


def test_more_angles_than_features() -> None:
    with pytest.raises(ValueError, match=r"node 'y' \(RotaryEmbedding\): 9 angles turn 18 features, a head has 12"):
        pyonnx_wasm.InferenceSession(model(0, 3, 12, False, 9))


def test_angles_of_another_rank() -> None:
    made = h.make_graph(
        [h.make_node("RotaryEmbedding", ["x", "cos", "sin"], ["y"], "y")],
        "rotary",
        [h.make_tensor_value_info("x", T.FLOAT, ["b", 2, 3, 6]), *(h.make_tensor_value_info(t, T.FLOAT, [3, 3]) for t in ("cos", "sin"))],
        [h.make_tensor_value_info("y", T.FLOAT, ["b", 2, 3, 6])],
    )
    with pytest.raises(ValueError, match=r"node 'y' .RotaryEmbedding.: cosines and sines must be .*, they are \[3, 3\]"):
        compiler.compile(h.make_model(made, opset_imports=[h.make_opsetid("", 23)], ir_version=10).SerializeToString())
