"""One-node models run at several shapes in one session, optimised and not, against an oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

import pyonnx_wasm
from pyonnx_wasm.testing.peer import exact

Array = np.ndarray[Any, Any]
Feed = Mapping[str, Array]
Oracle = str | Callable[[Feed], Sequence[Array]]  # "onnxruntime", "reference", or the outputs by numpy

DOMAINS = {"com.microsoft": 1, "ai.onnx.preview.training": 1}


def model(
    op: str,
    feeds: Sequence[Feed],
    outputs: Sequence[str] = ("y",),
    constants: Feed | None = None,
    domain: str = "",
    opset: int = 21,
    inputs: Sequence[str] | None = None,
    **attributes: Any,
) -> bytes:
    """One node; an axis that differs between the feeds is a symbol."""
    infos = []
    for name, first in feeds[0].items():
        shapes = [f[name].shape for f in feeds]
        dims = [first.shape[a] if len({s[a] for s in shapes}) == 1 else f"{name}_{a}" for a in range(first.ndim)]
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(first.dtype), dims))
    stored = [onnx.numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    node = helper.make_node(op, inputs or [*feeds[0], *(constants or {})], outputs, domain=domain, **attributes)
    results = [helper.make_empty_tensor_value_info(o) for o in outputs if o]
    graph = helper.make_graph([node], op, infos, results, stored)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in DOMAINS.items() if d == domain)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(made.SerializeToString())


def sessions(data: bytes) -> Iterator[tuple[bool, pyonnx_wasm.InferenceSession]]:
    """The model optimised and as it stands."""
    for optimise in (True, False):
        options = pyonnx_wasm.SessionOptions(intra_op_num_threads=1, enable_optimisation=optimise)
        yield optimise, pyonnx_wasm.InferenceSession(data, options)


def outputs_of(data: bytes, feed: Feed, oracle: Oracle) -> Sequence[Array]:
    if callable(oracle):
        return oracle(feed)
    if oracle == "reference":
        with np.errstate(all="ignore"):
            got: Sequence[Array] = ReferenceEvaluator(data).run(None, dict(feed))
        return got
    options = onnxruntime.SessionOptions()
    if not any(a.dtype == np.int8 for a in feed.values()):  # those it multiplies exactly as it is
        exact(options)
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    found: Sequence[Array] = session.run(None, dict(feed))
    return found


def same(got: Array, want: Array, rtol: float, atol: float, what: str = "") -> None:
    """Equal dtype, shape and values: integers exactly, NaN and infinity where they belong."""
    if want.dtype.isbuiltin == 2 and got.dtype in (np.uint8, np.uint16):  # types that numpy lacks come as their bits
        got = got.view(want.dtype)
    assert got.dtype == want.dtype, what
    assert got.shape == want.shape, what
    if want.dtype.kind in "iub" or want.dtype in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2):
        np.testing.assert_array_equal(got.astype(np.int64) if want.dtype.kind == "V" else got, want, err_msg=what)
        return
    if want.dtype.kind in "Vf" and want.dtype.itemsize < 4:
        got, want = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_allclose(got, want, rtol, atol, err_msg=what)


def check(
    op: str,
    feeds: Sequence[Feed],
    *,
    outputs: Sequence[str] = ("y",),
    constants: Feed | None = None,
    domain: str = "",
    opset: int = 21,
    inputs: Sequence[str] | None = None,
    oracle: Oracle = "onnxruntime",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    **attributes: Any,
) -> None:
    """Compares every output at every feed, all feeds in one session."""
    data = model(op, feeds, outputs, constants, domain, opset, inputs, **attributes)
    expected = [outputs_of(data, feed, oracle) for feed in feeds]
    for optimise, session in sessions(data):
        for feed, wanted in zip(feeds, expected, strict=True):
            what = f"{op} optimise={optimise} {[a.shape for a in feed.values()]}"
            for got, want in zip(session.run(None, feed), wanted, strict=True):
                same(got, np.asarray(want), rtol, atol, what)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, np.float32)


def whole(low: int, high: int, *shape: int, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(shape).integers(low, high, shape, dtype)


def shapes(name: str, *sizes: Sequence[int]) -> list[Feed]:
    return [{name: normal(*s)} for s in sizes]
