"""Values whose rank is data: what comes behind is compiled for each rank, against onnxruntime, on every backend that this machine has."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from pyonnx_wasm import InferenceSession
from pyonnx_wasm.runtimes.errors import CoreError
from pyonnx_wasm.trace import MOST_UNDECIDED
from tests.test_sequences import parsed, same, scalar
from tests.test_stages import BACKENDS, f32

# A name: the model, and feeds that take every way through it.
CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "If, and nodes that use it and others": (
        """g (float[N,3] x, bool c) => (float[3] y, float[N,3] z) {
            t = If (c) <then_branch = a () => (float[N,3] p) { p = Neg(x) },
                        else_branch = b () => (float[1,N,3] q) { k = Constant<value = int64[1] {0}>() q = Unsqueeze(x, k) }>
            z = Exp(x)
            u = Add(t, z)
            shape = Constant<value = int64[2] {-1, 3}>()
            v = Reshape(u, shape)
            axes = Constant<value = int64[1] {0}>()
            y = ReduceSum<keepdims = 0>(v, axes)
        }""",
        [{"x": f32(n, 3), "c": np.array(c)} for n, c in ((4, True), (4, False), (2, False), (1, True))],
    ),
    "two in a row, each with a use of its own and one of both": (
        """g (float[N] x, bool c, bool d) => (float y, float z, float w) {
            k = Constant<value = int64[1] {0}>()
            s = If (c) <then_branch = a () => (float[N] p) { p = Neg(x) },
                        else_branch = b () => (float[1,N] q) { q = Unsqueeze(x, k) }>
            t = If (d) <then_branch = e () => (float[N,1] r) { m = Constant<value = int64[1] {1}>() r = Unsqueeze(x, m) },
                        else_branch = f () => (float[N] o) { o = Abs(x) }>
            y = ReduceSum<keepdims = 0>(s)
            z = ReduceMax<keepdims = 0>(t)
            u = Mul(s, t)
            w = ReduceMax<keepdims = 0>(u)
        }""",
        [{"x": f32(n), "c": np.array(c), "d": np.array(d)} for n in (3, 1) for c in (True, False) for d in (True, False)],
    ),
    "an If in an If, whose branch alone settles nothing": (
        """g (float[N] x, bool c, bool d) => (float[M] y) {
            k = Constant<value = int64[1] {0}>()
            t = If (c) <then_branch = a () => (float[N] p) { p = Neg(x) },
                        else_branch = b () => (float[A] q) {
                            q = If (d) <then_branch = e () => (float[1,N] r) { r = Unsqueeze(x, k) },
                                        else_branch = f () => (float[N] o) { o = Exp(x) }> }>
            flat = Constant<value = int64[1] {-1}>()
            y = Reshape(t, flat)
        }""",
        [{"x": f32(n), "c": np.array(c), "d": np.array(d)} for n in (3, 1) for c in (True, False) for d in (True, False)],
    ),
    "a way that cannot be compiled": (
        """g (float[N,3] x, bool c) => (float[M,3] y) {
            k = Constant<value = int64[1] {0}>()
            t = If (c) <then_branch = a () => (float[N,3] p) { p = Neg(x) },
                        else_branch = b () => (float[N] q) { q = Squeeze(x, k) }>
            y = Concat<axis = 0>(t, x)
        }""",
        [{"x": f32(n, 3), "c": np.array(True)} for n in (4, 1)],
    ),
    "within a Loop": (
        """g (float[N] x, int64 n) => (float y) {
            zero = Constant<value = float {0.0}>()
            on = Constant<value = bool {1}>()
            k = Constant<value = int64[1] {0}>()
            two = Constant<value = int64 {2}>()
            none = Constant<value = int64 {0}>()
            y = Loop(n, on, zero) <body = b (int64 i, bool c, float s) => (bool d, float r) {
                d = Identity(c)
                rest = Mod(i, two)
                even = Equal(rest, none)
                t = If (even) <then_branch = e () => (float[N] p) { p = Neg(x) },
                               else_branch = f () => (float[1,N] q) { q = Unsqueeze(x, k) }>
                m = ReduceMax<keepdims = 0>(t)
                r = Add(s, m)
            }>
        }""",
        [{"x": f32(n), "n": scalar(trips)} for n, trips in ((3, 12), (2, 0), (5, 9))],
    ),
    "SequenceAt of three ranks": (
        """g (float[N] x, int64 p) => (float[M] y, float s) {
            k = Constant<value = int64[1] {0}>()
            a = Unsqueeze(x, k)
            b = Unsqueeze(a, k)
            q = SequenceConstruct(x, a, b, x)
            t = SequenceAt(q, p)
            flat = Constant<value = int64[1] {-1}>()
            u = Exp(t)
            y = Reshape(u, flat)
            s = ReduceSum<keepdims = 0>(t)
        }""",
        [{"x": f32(n), "p": scalar(p)} for n, p in ((3, 0), (3, 1), (2, 2), (2, -1), (1, -2))],
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[bytes, list[dict[str, Any]], list[list[Any]]]:
    text, feeds = CASES[request.param]
    data = parsed(text)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    oracle = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return data, feeds, [oracle.run(None, f) for f in feeds]


@pytest.mark.parametrize("backend", [*BACKENDS, "gpu"])
def test_each_way(case: tuple[bytes, list[dict[str, Any]], list[list[Any]]], backend: str) -> None:
    data, feeds, wanted = case
    session = InferenceSession(data, providers=[backend])
    for feed, want in zip(feeds, wanted, strict=True):
        same(session.run(None, feed), want)


def test_a_way_that_cannot_be_compiled_is_an_error_when_it_is_taken() -> None:
    text, feeds = CASES["a way that cannot be compiled"]
    session = InferenceSession(parsed(text))
    with pytest.raises(CoreError, match=r"node 'Concat_2' .* cannot concatenate"):
        session.run(None, feeds[-1] | {"c": np.array(False)})
    session.run(None, feeds[0])


def in_a_row(count: int) -> bytes:
    """Values of a rank that is data, one behind the other."""
    ifs = "\n".join(
        f"""t{i + 1} = If (c) <then_branch = a{i} () => (p{i}) {{ p{i} = Neg(t{i}) }},
            else_branch = b{i} () => (q{i}) {{ k{i} = Constant<value = int64[1] {{0}}>() q{i} = Unsqueeze(t{i}, k{i}) }}>"""
        for i in range(count)
    )
    return parsed(f"""g (float[N] x, bool c) => (float[M] y) {{
        t0 = Exp(x)
        {ifs}
        flat = Constant<value = int64[1] {{-1}}>()
        y = Reshape(t{count}, flat)
    }}""")


def test_ranks_that_are_data_in_a_row_are_bounded() -> None:
    """Each doubles what is compiled."""
    session, x = InferenceSession(in_a_row(MOST_UNDECIDED)), f32(3)
    for c in (True, False):
        np.testing.assert_allclose(session.run(None, {"x": x, "c": np.array(c)})[0], np.exp(x), rtol=1e-6)
    with pytest.raises(ValueError, match=rf"node 'If_{MOST_UNDECIDED + 1}' \(If\).* {MOST_UNDECIDED} values before it .* a single rank"):
        InferenceSession(in_a_row(MOST_UNDECIDED + 1))


REFUSED = {
    "an output of the model": (
        """g (float[N] x, bool c) => (float y) {
            k = Constant<value = int64[1] {0}>()
            y = If (c) <then_branch = a () => (float[N] p) { p = Neg(x) },
                        else_branch = b () => (float[1,N] q) { q = Unsqueeze(x, k) }>
        }""",
        "If.*the branches give.*dtype and rank must agree.*Reshape",
    ),
    "an output of the model, from a sequence": (
        """g (float[N] x, int64 p) => (float y) {
            k = Constant<value = int64[1] {0}>()
            a = Unsqueeze(x, k)
            q = SequenceConstruct(x, a)
            y = SequenceAt(q, p)
        }""",
        "SequenceAt.*rank.*Reshape",
    ),
    "no way that can be compiled": (
        """g (float[2,2,2] x, float[3,2] w, bool c) => (float[N,2] y) {
            k = Constant<value = int64[1] {0}>()
            t = If (c) <then_branch = a () => (float[N,3] p) { p = Neg(x) },
                        else_branch = b () => (float[N] q) { q = Unsqueeze(x, k) }>
            y = Concat<axis = 0>(t, w)
        }""",
        "node 'Concat_",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rank(name: str) -> None:
    text, told = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){told}"):
        InferenceSession(parsed(text))
