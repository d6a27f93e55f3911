"""Operators that make views: what a size turns out to be is checked, and never read past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import parser
from operator_case import Array, Feed, check, model, normal, sessions, whole

from pyonnx_wasm import InferenceSession
from pyonnx_wasm.ir import IRError
from pyonnx_wasm.runtimes.core import CoreError


def rejects(op: str, good: Sequence[Feed], bad: Sequence[Feed], match: str, **given: Any) -> None:
    """Runs where the sizes fit, in the same session raises where they do not."""
    for _, session in sessions(model(op, [*good, *bad], **given)):
        for feed in good:
            session.run(None, feed)
        for feed in bad:
            with pytest.raises((ValueError, CoreError), match=match):
                session.run(None, feed)


@pytest.mark.parametrize("opset", [11, 21])
def test_squeeze_demands_sizes_of_one(opset: int) -> None:
    axes: dict[str, Any] = {"axes": [0, 2]} if opset < 13 else {"constants": {"a": np.array([0, 2])}}
    feeds = [{"x": normal(1, n, 1, 3)} for n in (4, 0, 1, 9)]
    check("Squeeze", feeds, opset=opset, **axes)
    bad = [{"x": normal(2, 4, 1, 3)}, {"x": normal(1, 4, 5, 3)}]
    rejects("Squeeze", feeds, bad, "cannot be squeezed", opset=opset, **axes)


@pytest.mark.parametrize("opset", [11, 21])
def test_squeeze_without_axes_keeps_its_rank(opset: int) -> None:
    """A symbolic axis that turns out to be 1 would change the rank: refused with the cure."""
    feeds = [{"x": normal(n, 1, 3, 1)} for n in (4, 0, 7)]
    check("Squeeze", feeds, opset=opset)
    rejects("Squeeze", feeds, [{"x": normal(1, 1, 3, 1)}], "give Squeeze its axes", opset=opset)


def test_broadcasts_in_one_direction_are_checked() -> None:
    width = {"constants": {"s": normal(6), "b": normal(6)}}
    good = [{"x": normal(n, 6)} for n in (3, 1, 0)]
    check("LayerNormalization", good, opset=17, **width)
    rejects("LayerNormalization", good, [{"x": normal(3, 4)}, {"x": normal(3, 7)}], "does not broadcast", opset=17, **width)


def test_masks_of_attention_are_checked() -> None:
    def feed(rows: int, keys: int, queries: int = 4) -> Feed:
        x = normal(1, 2, queries, 8)
        return {"q": x, "k": x, "v": x, "m": normal(rows, keys)}

    given: dict[str, Any] = {"opset": 23}
    good = [feed(4, 4), feed(9, 9, 9)]
    check("Attention", good, **given)
    check("Attention", [feed(1, 4), feed(1, 9, 9)], oracle="reference", **given)
    rejects("Attention", good, [feed(9, 9), feed(2, 4)], "broadcast|mask", **given)


@pytest.mark.parametrize("op", ["Add", "Where", "Pow", "PRelu"])
def test_both_directions(op: str) -> None:
    def feed(a: Sequence[int], b: Sequence[int]) -> dict[str, Array]:
        return ({"c": normal(*a) > 0} if op == "Where" else {}) | {"x": np.abs(normal(*a)), "b": normal(*b)}

    good = [feed((3, 5), (3, 5)), feed((3, 1), (3, 1)), feed((3, 5), (1, 5)), feed((0, 5), (1, 1))]
    check(op, good)
    rejects(op, good, [feed((3, 5), (2, 5)), feed((3, 5), (3, 4))], "broadcast")


def test_convolutions_check_channels() -> None:
    for group in (1, 2):
        given: dict[str, Any] = {"constants": {"w": normal(4, 4 // group, 3, 3)}, "group": group}
        good = [{"x": normal(n, 4, 5, 6)} for n in (1, 2)]
        check("Conv", good, atol=1e-4, **given)
        rejects("Conv", good, [{"x": normal(1, 3, 5, 6)}, {"x": normal(1, 8, 5, 6)}], "channels", **given)
    given = {"constants": {"w": normal(4, 2, 3, 3)}}
    good = [{"x": normal(n, 4, 5, 6)} for n in (1, 2)]
    check("ConvTranspose", good, atol=1e-4, **given)
    rejects("ConvTranspose", good, [{"x": normal(1, 3, 5, 6)}, {"x": normal(1, 8, 5, 6)}], "channels", **given)


def sliced(x: Array, start: int, end: int, step: int) -> Array:
    """As the standard says: also backwards a start before the first element is the first element, where Python's slices give nothing."""
    n, back = len(x), step < 0
    first, last = (v + n if v < 0 else v for v in (start, end))
    first, last = min(max(first, 0), n - back), min(max(last, -back), n - back)
    return x[[*range(first, last, step)]]


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, -3, 2**63 - 1, -(2**63), 2**31, -(2**31)])
def test_slices(step: int) -> None:
    starts = (0, 1, 3, 100, -1, -2, -100, 2**63 - 1, -(2**63))
    for start, end in [(s, e) for s in starts for e in starts]:
        constants = {"s": np.array([start]), "e": np.array([end]), "a": np.array([0]), "t": np.array([step])}
        feeds = [{"x": whole(-99, 99, n, 2)} for n in (5, 0, 1, 8)]
        data = model("Slice", feeds, constants=constants)
        for _, session in sessions(data):
            for feed in feeds:
                np.testing.assert_array_equal(
                    session.run(None, feed)[0], sliced(feed["x"], start, end, step), err_msg=f"{start}:{end}:{step}"
                )


def test_slices_whose_bounds_are_inputs() -> None:
    feeds = [
        {"x": whole(-99, 99, n, 2), "s": np.array([s]), "e": np.array([e])}
        for n, s, e in [
            (5, 1, 4),
            (5, -3, 99),
            (5, -9, -9),
            (0, 0, 1),
            (0, -1, 5),
            (1, 5, 2),
            (8, -99, -2),
            (3, 3, 3),
            (4, 2**62, -(2**62)),
        ]
    ]
    for step in (1, 2, -1, -3):
        constants = {"a": np.array([0]), "t": np.array([step])}

        def wanted(feed: Feed, step: int = step) -> list[Array]:
            return [sliced(feed["x"], int(feed["s"][0]), int(feed["e"][0]), step)]

        check("Slice", feeds, constants=constants, oracle=wanted)


@pytest.mark.parametrize("start", [2**63 - 1, -(2**63), 5])
@pytest.mark.parametrize("end", [2**63 - 1, -(2**63), 0])
def test_slices_of_axes_that_are_inputs(start: int, end: int) -> None:
    feeds = [{"x": whole(-99, 99, 4, 3), "a": np.array([a])} for a in (0, 1, -1)]

    def sliced(feed: Feed) -> list[Array]:
        at = slice(start, end)
        return [feed["x"][at] if feed["a"][0] == 0 else feed["x"][:, at]]

    constants = {"s": np.array([start]), "e": np.array([end])}
    check("Slice", feeds, constants=constants, inputs=["x", "s", "e", "a"], oracle=sliced)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 20])
def test_even_splits(count: int) -> None:
    """The last pieces are smaller, or empty."""
    outputs = [f"y{i}" for i in range(count)]

    def pieces(feed: Feed) -> list[Array]:
        each = -(-feed["x"].shape[1] // count)
        return [feed["x"][:, i * each : (i + 1) * each] for i in range(count)]

    for sizes in ((6, 4, 13, 1, 0), (5,), (3,)):
        check("Split", [{"x": normal(2, n, 3)} for n in sizes], outputs=outputs, num_outputs=count, axis=1, oracle=pieces)


def test_split_sizes_are_checked() -> None:
    good = [{"x": normal(n, 3), "s": np.array([1, n - 1])} for n in (4, 1, 7)]
    check("Split", good, outputs=["a", "b"])
    bad = [{"x": normal(4, 3), "s": np.array(s)} for s in ([1, 2], [-1, 5], [5, -1])]
    rejects("Split", good, bad, "split size", outputs=["a", "b"])


def test_gather_of_one_position() -> None:
    for position in (0, 2, -1, -3):
        given: dict[str, Any] = {"constants": {"i": np.array(position)}, "axis": 1}
        good = [{"x": normal(2, n, 3)} for n in (3, 5)]
        check("Gather", good, **given)
        rejects("Gather", good, [{"x": normal(2, 0, 3)}], "out of range", **given)


def test_reshapes_are_checked() -> None:
    constants = {"s": np.array([-1, 4])}
    good = [{"x": normal(n, 6)} for n in (2, 4, 0)]
    check("Reshape", good, constants=constants)
    rejects("Reshape", good, [{"x": normal(3, 6)}], "reshape", constants=constants)


def test_heads_must_divide_the_width() -> None:
    def feed(width: int, n: int) -> Feed:
        return {name: normal(1, n, width, seed=i) for i, name in enumerate("qkv")}

    given: dict[str, Any] = {"opset": 23, "q_num_heads": 3, "kv_num_heads": 3}
    with pytest.raises(IRError, match="reshape"):
        InferenceSession(model("Attention", [feed(10, 4)], **given))


def test_einsum_broadcasts_symbolic_sizes() -> None:
    def feed(a: Sequence[int], b: Sequence[int]) -> Feed:
        return {"a": normal(*a), "b": normal(*b, seed=1)}

    cases = {
        "b...,b...->...": [feed((3, 1, 4), (3, 2, 1)), feed((3, 2, 4), (3, 2, 4)), feed((2, 5, 1), (2, 1, 1))],
        "...ij,...jk->...ik": [feed((1, 2, 3), (4, 3, 2)), feed((4, 2, 3), (1, 3, 2)), feed((4, 2, 3), (4, 3, 2))],
        "...a,...a": [feed((2, 1, 3), (1, 4, 3)), feed((2, 4, 3), (2, 4, 3))],
    }
    for equation, feeds in cases.items():

        def summed(feed: Feed, equation: str = equation) -> list[Array]:
            return [np.asarray(np.einsum(equation, *feed.values()), np.float32)]

        check("Einsum", feeds, equation=equation, oracle=summed)
    rejects("Einsum", [feed((3, 2, 4), (3, 2, 4))], [feed((3, 3, 4), (3, 2, 4))], "broadcast", equation="b...,b...->...")
    rejects("Einsum", [{"a": normal(3, 3)}], [{"a": normal(3, 4)}], "differ", equation="ii->i")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_slice_of_as_many_axes_as_data_tell(dtype: Any) -> None:
    """How many starts there are differs from run to run: axes behind them stay whole; axes that are told settle it."""
    x = normal(4, 5, 6)
    pairs = [([1], [3]), ([1, -2], [9, 5]), ([0, 1, -3], [-1, 4, -1])]
    feeds = [{"x": x, "s": np.array(s, dtype), "e": np.array(e, dtype)} for s, e in pairs]
    check("Slice", feeds)
    one = [{"x": x, "s": np.array([s], dtype), "e": np.array([e], dtype)} for s, e in ((1, 3), (-2, 9), (2, 2))]
    check("Slice", one, constants={"a": np.array([1], dtype)})


def test_what_has_no_elements_needs_no_start() -> None:
    """The number of starts is data, and the end leaves nothing, wherever it starts."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (int32[a,2] x, int64[b] s) => (int32[c,2] y) {
      e = Constant<value = int64[1] {0}>() axis = Constant<value = int64[1] {0}>() y = Slice(x, s, e, axis) }"""
    for _, session in sessions(parser.parse_model(text).SerializeToString()):
        for start in (0, 1, -1):
            assert session.run(None, {"x": np.ones((3, 2), np.int32), "s": np.array([start])})[0].shape == (0, 2)
