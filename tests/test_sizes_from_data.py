"""Every operator whose sizes, places or structure may be data: one session, three contents, straight and in the body of a loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from pyonnx_wasm import InferenceSession, SessionOptions
from pyonnx_wasm.runtimes.core import CoreError
from tests.test_stages import f32, i64

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """An operator on inputs of three contents each.

    Attributes:
        feeds: per content the inputs in order, None for one that is left out; of equal dtypes and ranks.
    """

    op: str
    feeds: list[tuple[Array | None, ...]]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 18
    oracle: str = "onnxruntime"
    tolerance: float = 1e-5


def f(*values: float) -> Array:
    return np.array(values, np.float32)


def scalar(value: Any, dtype: Any = np.int64) -> Array:
    return np.array(value, dtype)


MASKS = [np.array(m) for m in ([True, False, True, True], [False] * 4, [True] * 4)]
BOXES = [np.sort(np.abs(f32(1, n, 2, 2)), 2).transpose(0, 1, 2, 3).reshape(1, n, 4) for n in (6, 1, 9)]
X = f32(2, 3, 4)
NCHW = f32(1, 2, 5, 6)


def lstm(name: str, gates: int, lengths: Array) -> tuple[Array | None, ...]:
    return f32(4, 3, 2), f32(1, gates * 3, 2) * 0.2, f32(1, gates * 3, 3) * 0.2, None, lengths.astype(np.int32)


CASES = {
    "NonZero": Case("NonZero", [(v,) for v in (f(1, 0, 2, 0), f(0, 0, 0, 0), f(1, 2, 3, 4))]),
    "NonZero of two axes": Case("NonZero", [(np.resize(m, (2, 3)),) for m in MASKS]),
    "Compress": Case("Compress", [(X, m[:3]) for m in MASKS], {"axis": 1}),
    "Compress, flat": Case("Compress", [(X, m) for m in MASKS]),
    "Unique": Case("Unique", [(v,) for v in (i64(3, 1, 3, 2), i64(5, 5, 5, 5), i64(1, 2, 3, 4))], outputs=4),
    "Unique rows": Case("Unique", [(np.resize(v, (4, 2)),) for v in (f(1, 2), f(1, 2, 3, 4), f(3, 1, 2))], {"axis": 0}, outputs=4),
    "NonMaxSuppression": Case(
        "NonMaxSuppression",
        [(b, np.abs(f32(1, 2, b.shape[1])), i64(k), f(t), f(0.5)) for b, k, t in zip(BOXES, (3, 0, 9), (0.5, 0.1, 0.9), strict=True)],
    ),
    "Range": Case("Range", [tuple(map(scalar, v)) for v in ((0, 7, 2), (5, 5, 1), (9, -3, -4))]),
    "Range, steps as long as numbers go": Case(
        "Range", [tuple(map(scalar, v)) for v in ((5, -5, -(2**63)), (0, 10, 2**63 - 1), (0, 3, 1))]
    ),
    "Range of floats": Case("Range", [tuple(scalar(a, np.float32) for a in v) for v in ((0, 1, 0.25), (1, 0, 1), (3, -3, -1.5))]),
    "Reshape": Case("Reshape", [(X, i64(*s)) for s in ((4, -1, 2), (0, 4, 3), (24, 1, 1))]),
    "Reshape, zeros are sizes": Case("Reshape", [(f32(0, 3), i64(*s)) for s in ((3, 0), (0, 9), (1, 0))], {"allowzero": 1}),
    "Expand": Case("Expand", [(f32(3, 1), i64(*s)) for s in ((2, 3, 4), (1, 1, 1), (1, 3, 0))]),
    "Tile": Case("Tile", [(f32(2, 3), i64(*s)) for s in ((2, 3), (1, 1), (0, 2))]),
    "ConstantOfShape": Case("ConstantOfShape", [(i64(*s),) for s in ((2, 3), (0, 5), (1, 1))]),
    "OneHot": Case("OneHot", [(i64(0, 2, -1), scalar(d), f(0, 1)) for d in (3, 5, 1)], {"axis": 0}),
    "Slice": Case(
        "Slice",
        [
            (X, i64(0, 1), i64(2, 99), i64(2, -2), i64(1, 1)),
            (X, i64(-1, 0), i64(-99, 2), i64(0, 1), i64(-1, 1)),
            (X, i64(1, 1), i64(1, 4), i64(1, -1), i64(1, 2)),
        ],
    ),
    "Slice, steps as long as numbers go": Case(
        "Slice", [(X, i64(5, -1), i64(-9, 0), i64(2, 1), i64(step, -1)) for step in (-(2**63), -(2**62), 1 - 2**63)]
    ),
    "Slice, no axes": Case("Slice", [(X, i64(a, b), i64(c, d)) for a, b, c, d in ((0, 0, 1, 2), (1, 1, 9, 9), (0, 2, 0, 3))]),
    "Split": Case("Split", [(f32(7, 2), i64(*s)) for s in ((3, 4), (0, 7), (6, 1))], outputs=2),
    "TopK": Case("TopK", [(X, i64(k)) for k in (2, 1, 4)], outputs=2),
    "TopK, none": Case("TopK", [(X, i64(k)) for k in (0, 3, 1)], {"axis": 1, "largest": 0}, outputs=2),
    "Pad": Case(
        "Pad", [(f32(2, 3), i64(*p), scalar(v, np.float32)) for p, v in (((1, 0, 2, 1), 5), ((0, 0, 0, 0), 1), ((-1, 1, 0, -2), 0))]
    ),
    "Pad, axes": Case("Pad", [(X, i64(*p), scalar(1, np.float32), i64(a)) for p, a in (((1, 2), 0), ((0, 1), 2), ((3, 0), -2))]),
    "Pad, reflected": Case("Pad", [(f32(4, 5), i64(*p)) for p in ((1, 2, 3, 1), (0, 0, 0, 0), (2, 1, 0, 4))], {"mode": "reflect"}),
    "Resize by sizes": Case("Resize", [(NCHW, None, None, i64(1, 2, *s)) for s in ((7, 3), (5, 6), (1, 11))], {"mode": "linear"}),
    "Resize by scales": Case("Resize", [(NCHW, None, f(1, 1, *s)) for s in ((1.5, 0.5), (1, 1), (2, 3))], {"mode": "nearest"}),
    "Resize by a region": Case(
        "Resize",
        [
            (NCHW, f(0, 0, *a, 1, 1, *b), None, i64(1, 2, *s))
            for a, b, s in (
                ((0.1, 0.2), (0.8, 0.9), (4, 4)),
                ((0, 0), (1, 1), (5, 6)),
                ((0.5, 0.5), (0.6, 1), (2, 7)),
            )
        ],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
    ),
    **{
        f"{op}, axes": Case(op, [(X, i64(*a)) for a in ((0, 2), (1, -1), (-3, 1))], {"keepdims": keep})
        for op, keep in (("ReduceSum", 1), ("ReduceMean", 0), ("ReduceMax", 1), ("ReduceProd", 0), ("ReduceL2", 1), ("ReduceLogSumExp", 0))
    },
    **{
        f"{op} of five axes": Case(op, [(f32(2, 1, 3, 2, 2), i64(*a)) for a in ((0, 3), (4, -2), (2, 1))], {"keepdims": keep})
        for op, keep in (("ReduceSumSquare", 0), ("ReduceLogSumExp", 1), ("ReduceLogSumExp", 0))
    },
    "Squeeze": Case("Squeeze", [(x, i64(*a)) for x, a in ((f32(1, 3, 1), (0, 2)), (f32(1, 1, 4), (0, 1)), (f32(2, 1, 1), (-1, -2)))]),
    "Unsqueeze": Case("Unsqueeze", [(f32(2, 3), i64(*a)) for a in ((0, 2), (3, 1), (-1, 0))]),
    "DFT's length": Case("DFT", [(f32(1, 6, 1), scalar(n)) for n in (6, 4, 9)], {"axis": 1}, tolerance=1e-4),
    "DFT's axis": Case("DFT", [(f32(1, 4, 6, 1), scalar(6), scalar(a)) for a in (1, 2, -2)], opset=20, oracle="reference", tolerance=1e-4),
    "STFT's step": Case("STFT", [(f32(1, 32, 1), scalar(s), f32(8), scalar(8)) for s in (4, 8, 3)], tolerance=1e-4),
    "GatherND": Case("GatherND", [(X, np.array(i, np.int64)) for i in ([[0, 1], [1, 2]], [[1, -1]], [[0, 0]] * 5)]),
    "ScatterND": Case(
        "ScatterND", [(X, np.array(i, np.int64), f32(len(i), 4)) for i in ([[0, 1], [1, 2]], [[1, -1]], [[0, 0], [1, 0], [1, 1]])]
    ),
    "CenterCropPad": Case("CenterCropPad", [(f32(5, 6), i64(*s)) for s in ((3, 9), (5, 6), (8, 1))]),
    "CenterCropPad, axes": Case("CenterCropPad", [(X, i64(s)) for s in (1, 9, 4)], {"axes": [-1]}),
    **{
        f"{op}'s lengths": Case(
            op, [lstm(op, gates, i64(*n)) for n in ((4, 2, 1), (4, 4, 4), (1, 3, 2))], {"hidden_size": 3}, 2, tolerance=1e-4
        )
        for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    },
    "Dropout's ratio": Case("Dropout", [(X, scalar(r, np.float32), scalar(t, bool)) for r, t in ((0.5, False), (0, True), (0.9, False))]),
    "CumSum's axis": Case("CumSum", [(X, scalar(a)) for a in (0, 2, -2)], {"reverse": 1}),
    "Trilu's diagonal": Case("Trilu", [(f32(4, 5), scalar(k)) for k in (0, -2, 3)]),
    "EyeLike": Case("EyeLike", [(f32(*s),) for s in ((3, 4), (1, 5), (4, 4))], {"k": 1}),
    "Shape of a part": Case("Shape", [(f32(*s),) for s in ((3, 4), (0, 5), (4, 4))], {"start": -1}),
    "GatherElements": Case("GatherElements", [(X, np.array(i, np.int64).reshape(1, 1, -1)) for i in ([0, 1], [-1], [1, 0, 1])]),
    "ReverseSequence": Case("ReverseSequence", [(f32(4, 3), i64(*n)) for n in ((4, 1, 2), (1, 1, 1), (3, 4, 2))]),
    "HammingWindow": Case("HammingWindow", [(scalar(n),) for n in (5, 1, 12)], opset=17),
    "MelWeightMatrix": Case(
        "MelWeightMatrix",
        [
            (scalar(b), scalar(n), scalar(8000), scalar(0, np.float32), scalar(h, np.float32))
            for b, n, h in ((4, 16, 4000), (1, 8, 3000), (6, 32, 2000))
        ],
        opset=17,
        tolerance=1e-4,
    ),
    "Col2Im": Case("Col2Im", [(f32(1, 4, (h - 1) * (w - 1)), i64(h, w), i64(2, 2)) for h, w in ((3, 4), (2, 5), (4, 4))]),
    "AffineGrid": Case("AffineGrid", [(f32(1, 2, 3), i64(1, 2, *s)) for s in ((3, 4), (1, 1), (5, 2))], opset=20),
    "MaxUnpool": Case(
        "MaxUnpool",
        [(f32(1, 1, 2, 2), i64(0, 2, 8, 10).reshape(1, 1, 2, 2), i64(1, 1, *s)) for s in ((4, 4), (5, 4), (7, 4))],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "Where": Case("Where", [(m, f(1, 2, 3, 4), scalar(0, np.float32)) for m in MASKS]),
}


def built(case: Case, loop: bool) -> tuple[bytes, list[dict[str, Array]]]:
    """The operator alone, or in the body of a loop that takes its inputs from around it, with results stacked over its steps."""
    names = [f"i{k}" if given is not None else "" for k, given in enumerate(case.feeds[0])]
    outputs = [f"o{k}" for k in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, "the_node", **case.attributes)
    infos = []
    for k, name in enumerate(names):
        if name:
            arrays = [feed[k] for feed in case.feeds]
            shape = [str(a) + name if len({v.shape[a] for v in arrays}) > 1 else arrays[0].shape[a] for a in range(arrays[0].ndim)]  # type: ignore[union-attr]
            infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(arrays[0].dtype), shape))  # type: ignore[union-attr]
    feeds = [{n: v for n, v in zip(names, feed, strict=True) if v is not None} for feed in case.feeds]
    nodes, results = [node], outputs
    if loop:
        step = [helper.make_tensor_value_info("step", 7, []), helper.make_tensor_value_info("go", 9, [])]
        on = helper.make_node("Identity", ["go"], ["on"])
        body = helper.make_graph([on, node], "body", step, [helper.make_empty_tensor_value_info(o) for o in ("on", *outputs)])
        results = [f"s{k}" for k in range(case.outputs)]
        nodes = [helper.make_node("Loop", ["trips", ""], results, "the_loop", body=body)]
        infos.append(helper.make_tensor_value_info("trips", 7, []))
        feeds = [{**feed, "trips": scalar(n)} for feed, n in zip(feeds, (1, 2, 12), strict=True)]
    outs = [helper.make_empty_tensor_value_info(r) for r in results]
    made = helper.make_model(helper.make_graph(nodes, "g", infos, outs), opset_imports=[helper.make_opsetid("", case.opset)], ir_version=8)
    return bytes(made.SerializeToString()), feeds


def expected(data: bytes, feeds: list[dict[str, Array]], oracle: str) -> list[list[Array]]:
    if oracle == "reference":
        return [ReferenceEvaluator(onnx.load_from_string(data)).run(None, feed) for feed in feeds]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


@pytest.mark.parametrize("loop", [False, True], ids=["straight", "loop"])
@pytest.mark.parametrize("name", CASES)
def test_three_contents(name: str, loop: bool) -> None:
    case = CASES[name]
    straight, feeds = built(case, False)
    want = expected(straight, feeds, case.oracle)
    data, feeds = built(case, loop)
    for optimise in (True, False):
        session = InferenceSession(data, SessionOptions(enable_optimisation=optimise))
        for k in (0, 1, 2, 0):
            for got, right in zip(session.run(None, feeds[k]), want[k], strict=True):
                right = np.stack([right] * int(feeds[k]["trips"])) if loop else right
                assert got.dtype == right.dtype
                assert got.shape == right.shape, (k, feeds[k])
                np.testing.assert_allclose(got, right, case.tolerance, case.tolerance, err_msg=str(k))


@pytest.mark.parametrize("ends", [(-(2**63), 2**63 - 1, 2**62), (2**63 - 1, -(2**63), -(2**63)), (0, 2**62, 2**60)])
def test_a_range_that_is_longer_than_numbers_go_is_an_error(ends: tuple[int, int, int]) -> None:
    case = Case("Range", [tuple(map(scalar, ends))])
    data, feeds = built(case, False)
    with pytest.raises(CoreError, match=r"goes beyond 2\^62"):
        InferenceSession(data).run(None, feeds[0])
