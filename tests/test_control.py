"""Branches and loops that data steer: one session, several contents, against onnxruntime, natively and as WebAssembly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from pyonnx_wasm import InferenceSession
from tests.test_stages import BACKENDS, Feed, agrees, f32, i64, model


def body(nodes: Sequence[Any], inputs: Sequence[tuple[str, int, Any]], outputs: Sequence[tuple[str, int, Any]]) -> Any:
    infos = [[h.make_tensor_value_info(*v) for v in values] for values in (inputs, outputs)]
    return h.make_graph(nodes, "body", *infos)


STEER = [("i", T.INT64, []), ("go", T.BOOL, [])]
HALVE = body(
    [
        h.make_node("Mul", ["v", "half"], ["w"]),
        h.make_node("Add", ["w", "x"], ["v2"]),
        h.make_node("ReduceSum", ["v2"], ["s"], keepdims=0),
        h.make_node("Less", ["s", "most"], ["go2"]),
        h.make_node("Identity", ["v2"], ["row"]),
    ],
    [*STEER, ("v", T.FLOAT, ["N"])],
    [("go2", T.BOOL, []), ("v2", T.FLOAT, ["N"]), ("row", T.FLOAT, ["N"])],
)
GROW = body(
    [h.make_node("Concat", ["v", "x"], ["v2"], axis=0), h.make_node("Identity", ["go"], ["go2"])],
    [*STEER, ("v", T.FLOAT, ["M"])],
    [("go2", T.BOOL, []), ("v2", T.FLOAT, ["K"])],
)
COUNT = body(
    [
        h.make_node("Add", ["v", "one"], ["v2"]),
        h.make_node("Less", ["v2", "most"], ["go2"]),
    ],
    [*STEER, ("v", T.INT64, [])],
    [("go2", T.BOOL, []), ("v2", T.INT64, [])],
)
NEST = body(
    [
        h.make_node("Loop", ["i", "", "v"], ["w"], body=body(
            [h.make_node("Add", ["u", "i"], ["u1"]), h.make_node("Add", ["u1", "j"], ["u2"]),
             h.make_node("Identity", ["c"], ["c2"])],
            [("j", T.INT64, []), ("c", T.BOOL, []), ("u", T.INT64, ["N"])],
            [("c2", T.BOOL, []), ("u2", T.INT64, ["N"])],
        )),
        h.make_node("Identity", ["go"], ["go2"]),
        h.make_node("Slice", ["w", "zero", "end"], ["row"]),
    ],
    [*STEER, ("v", T.INT64, ["N"])],
    [("go2", T.BOOL, []), ("w", T.INT64, ["N"]), ("row", T.INT64, [1])],
)  # fmt: skip

CASES: dict[str, tuple[bytes, list[Feed]]] = {
    "If": (
        model(
            [
                h.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
                h.make_node("Greater", ["s", "zero"], ["c"]),
                h.make_node(
                    "If",
                    ["c"],
                    ["y"],
                    then_branch=body([h.make_node("Mul", ["x", "x"], ["a"])], [], [("a", T.FLOAT, ["N"])]),
                    else_branch=body([h.make_node("Concat", ["x", "x"], ["b"], axis=0)], [], [("b", T.FLOAT, ["M"])]),
                ),
                h.make_node("Neg", ["y"], ["z"]),
            ],
            {"x": (T.FLOAT, ["N"])},
            ["y", "z"],
            zero=np.float32(0),
        ),
        [{"x": np.array(x, np.float32)} for x in ([1, 2, 3], [-1, -5], [4], [])],
    ),
    "Loop until a sum is reached": (
        model(
            [h.make_node("Loop", ["M", "", "x"], ["y", "rows"], body=HALVE), h.make_node("Neg", ["rows"], ["z"])],
            {"M": (T.INT64, []), "x": (T.FLOAT, ["N"])},
            ["y", "z"],
            half=np.float32(0.5),
            most=np.float32(11),
        ),
        [{"M": np.array(m), "x": np.abs(f32(n))} for m, n in ((20, 3), (2, 3), (50, 2), (1, 7))],
    ),
    "Loop whose value grows": (
        model([h.make_node("Loop", ["M", "", "x"], ["y"], body=GROW)], {"M": (T.INT64, [1]), "x": (T.FLOAT, ["N"])}, ["y"]),
        [{"M": i64(m), "x": f32(n)} for m, n in ((3, 2), (0, 2), (12, 1), (1, 0))],
    ),
    "Loop that counts": (
        model(
            [h.make_node("Loop", ["", "c", "x"], ["y"], body=COUNT)],
            {"c": (T.BOOL, []), "x": (T.INT64, []), "most": (T.INT64, [])},
            ["y"],
            one=np.int64(1),
        ),
        [{"c": np.array(c), "x": np.array(x), "most": np.array(m)} for c, x, m in ((True, 0, 100), (False, 5, 9), (True, 9, 3))],
    ),
    "Scan": (
        model(
            [
                h.make_node(
                    "Scan",
                    ["s", "x", "w"],
                    ["t", "rows", "sums"],
                    body=body(
                        [
                            h.make_node("Add", ["a", "b"], ["c"]),
                            h.make_node("Mul", ["c", "d"], ["e"]),
                            h.make_node("ReduceSum", ["e"], ["f"], keepdims=0),
                        ],
                        [("a", T.FLOAT, ["N"]), ("b", T.FLOAT, ["N"]), ("d", T.FLOAT, ["N"])],
                        [("c", T.FLOAT, ["N"]), ("e", T.FLOAT, ["N"]), ("f", T.FLOAT, [])],
                    ),
                    num_scan_inputs=2,
                    scan_input_axes=[0, 1],
                    scan_input_directions=[0, 1],
                    scan_output_axes=[1, 0],
                    scan_output_directions=[1, 0],
                )
            ],
            {"s": (T.FLOAT, ["N"]), "x": (T.FLOAT, ["L", "N"]), "w": (T.FLOAT, ["N", "L"])},
            ["t", "rows", "sums"],
        ),
        [{"s": f32(n), "x": f32(m, n), "w": f32(n, m)} for m, n in ((12, 3), (1, 2), (30, 1))],
    ),
    "Loops in a Loop": (
        model(
            [h.make_node("Loop", ["M", "", "x"], ["y", "rows"], body=NEST)],
            {"M": (T.INT64, []), "x": (T.INT64, ["N"])},
            ["y", "rows"],
            zero=i64(0),
            end=i64(1),
        ),
        [{"M": np.array(m), "x": i64(*range(n))} for m, n in ((4, 3), (10, 1), (1, 5))],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_data_steer(name: str) -> None:
    data, feeds = CASES[name]
    agrees(data, feeds)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trip_costs_little(backend: str) -> None:
    """A million trips end."""
    data, _ = CASES["Loop that counts"]
    session = InferenceSession(data, providers=[backend])
    (y,) = session.run(None, {"c": np.array(True), "x": np.array(0), "most": np.array(1_000_000)})
    assert y == 1_000_000


@pytest.mark.parametrize("axis", [0, 1])
def test_what_loops_give_is_joined(axis: int) -> None:
    """Carried values of two loops, concatenated: a loop gives whole storages, whatever reads them."""
    row = body(
        [h.make_node("Add", ["v", "x"], ["v2"]), h.make_node("Identity", ["go"], ["go2"])],
        [*STEER, ("v", T.FLOAT, ["N"])],
        [("go2", T.BOOL, []), ("v2", T.FLOAT, ["N"])],
    )
    loops = [h.make_node("Loop", ["M", "", start], [end], body=row) for start, end in (("x", "a"), ("z", "b"))]
    rows = [h.make_node("Unsqueeze", [n, "lead"], [f"{n}1"]) for n in "ab"]
    joined = h.make_node("Concat", ["a1", "b1"], ["y"], axis=axis)
    data = model([*loops, *rows, joined], {"M": (T.INT64, []), "x": (T.FLOAT, ["N"]), "z": (T.FLOAT, ["N"])}, ["y"], lead=i64(0))
    agrees(data, [{"M": np.array(m), "x": f32(n), "z": f32(n) + 1} for m, n in ((20, 3), (0, 2), (1, 4))])
