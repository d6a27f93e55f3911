"""Models of opsets 1 to 5, whose operators differ from those of opset 6."""

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import pyonnx_wasm as ort
from pyonnx_wasm.ir import IRError

X = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)


def run(op: str, opset: int, *inputs: np.ndarray, outputs: int = 1, stored: int = 0, **attributes: Any) -> list[np.ndarray]:
    """One operator of an opset; the last ``stored`` inputs are initializers."""
    names = [f"x{k}" for k in range(len(inputs))]
    fed = len(inputs) - stored
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs[:fed], strict=False)
    ]
    kept = [numpy_helper.from_array(x, n) for n, x in zip(names[fed:], inputs[fed:], strict=True)]
    results = [f"y{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attributes)], "old", given, [helper.make_empty_tensor_value_info(r) for r in results], kept
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    return ort.InferenceSession(model.SerializeToString()).run(None, dict(zip(names[:fed], inputs, strict=False)))


CASES: dict[str, tuple[Any, ...]] = {
    "Relu": ("Relu", 1, (X,), {"consumed_inputs": [0]}, np.maximum(X, 0)),
    "Add of one axis": ("Add", 1, (X, X[0, :, 0, 0]), {"broadcast": 1, "axis": 1}, X + X[0, :, 0, 0][:, None, None]),
    "Sum": ("Sum", 1, (X, X), {"consumed_inputs": [0, 0]}, 2 * X),
    "Clip": ("Clip", 1, (X,), {"min": -0.5, "max": 0.5}, np.clip(X, -0.5, 0.5)),
    "Cast": ("Cast", 1, (X,), {"to": "INT32"}, X.astype(np.int32)),
    "Selu": ("Selu", 1, (X,), {}, np.where(X > 0, 1.0507 * X, 1.0507 * 1.6732 * np.expm1(X))),
    "Reshape": ("Reshape", 1, (X,), {"shape": [0, -1]}, X.reshape(2, -1)),
    "Concat of the default axis": ("Concat", 1, (X, X), {}, np.concatenate([X, X], 1)),
    "Pad": ("Pad", 1, (X,), {"paddings": [0, 0, 1, 2, 0, 0, 0, 1]}, np.pad(X, ((0, 0), (0, 0), (1, 0), (2, 1)))),
    "Pad of opset 2": ("Pad", 2, (X,), {"pads": [0, 0, 1, 0, 0, 0, 0, 1]}, np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 1)])),
    "Upsample": ("Upsample", 1, (X,), {"height_scale": 2.0, "width_scale": 3.0}, X.repeat(2, 2).repeat(3, 3)),
    "Dropout": ("Dropout", 1, (X,), {"is_test": 1}, X),
    "GlobalLpPool": ("GlobalLpPool", 1, (X,), {"p": 3.0}, (np.abs(X) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)),
    "LpPool": ("LpPool", 1, (X,), {"kernel_shape": [4, 6], "p": 2.0}, np.sqrt((X**2).sum((2, 3), keepdims=True))),
    "Slice": ("Slice", 1, (X,), {"starts": [1], "ends": [3], "axes": [2]}, X[:, :, 1:3]),
    "Softmax": ("Softmax", 1, (X,), {"axis": 3}, np.exp(X) / np.exp(X).sum(-1, keepdims=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_operator(name: str) -> None:
    op, opset, inputs, attributes, want = CASES[name]
    (got,) = run(op, opset, *inputs, **attributes)
    assert got.dtype == np.asarray(want).dtype or op != "Cast"
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("stored", [0, 2])
def test_tile_of_one_axis(stored: int) -> None:
    for axis, times in ((0, 3), (2, 2)):
        (got,) = run("Tile", 1, X, np.array(times, np.int64), np.array(axis, np.int64), stored=stored)
        np.testing.assert_array_equal(got, np.concatenate([X] * times, axis))


def test_softmax_of_opset_1_is_over_all_axes_from_one_on() -> None:
    flat = np.exp(X.reshape(2, -1))
    np.testing.assert_allclose(run("Softmax", 1, X)[0], (flat / flat.sum(1, keepdims=True)).reshape(X.shape), rtol=1e-5)


def test_a_batch_norm_that_would_train_is_refused() -> None:
    row = np.ones(3, np.float32)
    attributes = {"consumed_inputs": [0, 0, 0, 1, 1]}
    (got,) = run("BatchNormalization", 1, X, row, 0 * row, 0 * row, row, is_test=1, epsilon=0.0, **attributes)
    np.testing.assert_allclose(got, X, rtol=1e-5)
    with pytest.raises(IRError, match="is_test=0"):
        run("BatchNormalization", 1, X, row, row, row, row, **attributes)
