"""One-node models on the core and on the GPU, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

import pyonnx_wasm as ort
from pyonnx_wasm import compiler
from pyonnx_wasm.program import GpuSection

Array = np.ndarray[Any, Any]


def node(op: str, feeds: Mapping[str, Array], outputs: int = 1, opset: int = 21, symbolic: bool = True, **attributes: Any) -> bytes:
    """A model of one node over inputs in this order; every dim is a symbol of its own unless told otherwise. ``""`` leaves one out."""
    return graph([helper.make_node(op, list(feeds), [f"y{i}" for i in range(outputs)], **attributes)], feeds, outputs, opset, symbolic)


def graph(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    outputs: int = 1,
    opset: int = 21,
    symbolic: bool = True,
    weights: Mapping[str, Array] | None = None,
) -> bytes:
    """A model over inputs of these dtypes and ranks; its outputs are ``y0``, ``y1``, ..."""
    ins = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{name}_{d}" if symbolic else n for d, n in enumerate(x.shape)]
        )
        for name, x in feeds.items()
        if name
    ]
    outs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    held = [onnx.numpy_helper.from_array(w, name) for name, w in (weights or {}).items()]
    made = helper.make_graph(list(nodes), "g", ins, outs, held)
    return bytes(helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString())


def section(model: bytes) -> GpuSection:
    compiled = compiler.compile(model, gpu=True)
    assert compiled.gpu is not None
    return compiled.gpu.section


def both(model: bytes, *feeds: Mapping[str, Array], wholly: bool = True) -> list[list[tuple[Array, Array]]]:
    """Runs the model on the core and on the GPU, one session each, for every set of feeds: pairs (core, GPU) per output.

    Args:
        wholly: demand that no step runs on the core.
    """
    if wholly:
        found = section(model)
        left = [k for k, cases in enumerate(found.steps) if cases is None]
        assert not left, f"steps {left} of {len(found.steps)} run on the core"
    core, gpu = ort.InferenceSession(model), ort.InferenceSession(model, providers=["gpu"])
    pairs = []
    for feed in feeds:
        given = {name: x for name, x in feed.items() if name}
        pairs.append(list(zip(core.run(None, given), gpu.run(None, given), strict=True)))
    return pairs


def assert_same(pairs: Sequence[tuple[Array, Array]], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Integers and bools exactly, floats to ``atol`` of the output's scale; NaN and infinity where the core has them."""
    for want, got in pairs:
        assert want.dtype == got.dtype
        assert want.shape == got.shape
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            continue
        finite = want[np.isfinite(want)]
        scale = float(np.abs(finite).max()) if finite.size else 1.0
        eps = max(1.0, float(np.finfo(want.dtype).eps / np.finfo(np.float32).eps) / 100)
        np.testing.assert_allclose(got, want, rtol=rtol * eps, atol=atol * eps * max(scale, 1e-30))
