"""Sequences and optionals whose length, positions and shapes are data: one session, several contents, against onnxruntime, natively and
as WebAssembly."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from pyonnx_wasm import InferenceSession, SessionOptions, compiler
from pyonnx_wasm.feeds import execute
from pyonnx_wasm.program import file as ponnx
from pyonnx_wasm.runtimes.cpu import Executor
from tests.test_stages import BACKENDS, f32, i64

HEAD = '<ir_version: 10, opset_import: ["" : 18]>\n'
NUMBERS = [1, 4, 0, 2]
RAGGED = [f32(n, 3) for n in NUMBERS]


def parsed(text: str) -> bytes:
    return bytes(onnx.parser.parse_model(HEAD + text).SerializeToString())


def same(got: Any, want: Any) -> None:
    if want is None or got is None:
        assert got is want
    elif isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    else:
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def scalar(number: int) -> np.ndarray:
    return np.array(number, np.int64)


CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "At": (
        """g (seq(float[N,3]) s, int64 p) => (float[M,3] y, int64 n) {
            t = SequenceAt(s, p)
            y = Neg(t)
            n = SequenceLength(s)
        }""",
        [{"s": RAGGED[:n], "p": scalar(p)} for n, p in ((4, 1), (4, -1), (4, 2), (1, 0), (3, -3))],
    ),
    "Insert": (
        """g (seq(float[N,3]) s, float[M,3] x, int64 p) => (seq(float[K,3]) t, seq(float[K,3]) u, float[A,3] y) {
            t = SequenceInsert(s, x, p)
            u = SequenceInsert(t, x)
            y = ConcatFromSequence <axis: int = 0> (u)
        }""",
        [{"s": RAGGED[:n], "x": f32(m, 3), "p": scalar(p)} for n, m, p in ((4, 2, 1), (4, 1, -1), (4, 5, 4), (0, 2, 0), (1, 0, -1))],
    ),
    "Erase": (
        """g (seq(float[N,3]) s, int64 p) => (seq(float[K,3]) t, seq(float[K,3]) u) {
            t = SequenceErase(s, p)
            u = SequenceErase(s)
        }""",
        [{"s": RAGGED[:n], "p": scalar(p)} for n, p in ((4, 1), (4, -1), (4, 0), (1, 0))],
    ),
    "Split by sizes": (
        """g (float[A,B,C] x, int64[n] split) => (seq(float[D,E,F]) s, float[G,H,I] y) {
            s = SplitToSequence <axis: int = 1> (x, split)
            r = SequenceErase(s)
            y = ConcatFromSequence <axis: int = 1> (r)
        }""",
        [{"x": f32(2, 7, 3), "split": i64(*s)} for s in ((3, 4), (7, 0), (0, 2, 0, 5), (1,) * 7)],
    ),
    "Split evenly": (
        """g (float[A,B] x, int64 each) => (seq(float[D,E]) s, float[G,H] y, int64 n) {
            s = SplitToSequence <axis: int = -1> (x, each)
            y = ConcatFromSequence <axis: int = 1> (s)
            n = SequenceLength(s)
        }""",
        [{"x": f32(a, b), "each": scalar(n)} for a, b, n in ((3, 7, 3), (1, 8, 2), (4, 5, 9), (2, 6, 1))],
    ),
    "Rows": (
        """g (float[A,B] x, int64 p) => (seq(float[B]) s, float[B] row, float[C,D] y) {
            s = SplitToSequence <axis: int = 0, keepdims: int = 0> (x)
            row = SequenceAt(s, p)
            y = ConcatFromSequence <axis: int = 1, new_axis: int = 1> (s)
        }""",
        [{"x": f32(a, 3), "p": scalar(p)} for a, p in ((4, 1), (2, -1), (1, 0))],
    ),
    "Kept in a loop": (
        """g (int64 M, float[N] x) => (seq(float[K]) s, int64[L] sizes) {
            empty = SequenceEmpty()
            true = Constant <value: tensor = bool {1}> ()
            one = Constant <value: tensor = int64[1] {1}> ()
            s, sizes = Loop (M, true, empty) <body: graph = b (int64 i, bool c, seq(float[K]) before) =>
                    (bool c2, seq(float[K]) after, int64 n) {
                c2 = Identity(c)
                start = Constant <value: tensor = int64[1] {0}> ()
                j = Unsqueeze(i, start)
                end = Add(j, one)
                row = Slice(x, start, end)
                after = SequenceInsert(before, row)
                n = SequenceLength(before)
            }>
        }""",
        [{"M": scalar(m), "x": f32(n)} for m, n in ((20, 30), (0, 3), (1, 1), (9, 4))],
    ),
    "Summed by a loop": (
        """g (seq(float[N,3]) s) => (float[3] y) {
            true = Constant <value: tensor = bool {1}> ()
            zero = Constant <value: tensor = float[3] {0, 0, 0}> ()
            first = Constant <value: tensor = int64[1] {0}> ()
            n = SequenceLength(s)
            y = Loop (n, true, zero) <body: graph = b (int64 i, bool c, float[3] sum) => (bool c2, float[3] more) {
                c2 = Identity(c)
                x = SequenceAt(s, i)
                row = ReduceSum <keepdims: int = 0> (x, first)
                more = Add(sum, row)
            }>
        }""",
        [{"s": RAGGED[:n]} for n in (4, 0, 1)],
    ),
    "Of what a branch gives": (
        """g (bool c, seq(float[N,3]) s, float[M,3] x) => (seq(float[K,3]) t, int64 n) {
            t = If (c) <then_branch: graph = a () => (seq(float[K,3]) u) { u = SequenceInsert(s, x) },
                        else_branch: graph = b () => (seq(float[K,3]) v) { v = SequenceConstruct(x, x, x) }>
            n = SequenceLength(t)
        }""",
        [{"c": np.array(c), "s": RAGGED[:n], "x": f32(2, 3)} for c, n in ((True, 4), (False, 4), (True, 0))],
    ),
    "Map": (
        """g (seq(float[N,3]) s, seq(float[N,3]) t, float[3] x) => (seq(float[N,3]) u, seq(int64[2]) v) {
            u, v = SequenceMap (s, t, x) <body: graph = b (float[N,3] a, float[N,3] b, float[3] c) => (float[N,3] d, int64[2] e) {
                ab = Add(a, b)
                d = Mul(ab, c)
                e = Shape(d)
            }>
        }""",
        [{"s": RAGGED[:n], "t": RAGGED[:n], "x": f32(3)} for n in (4, 1, 3)],
    ),
    "Of known length at a place that is data": (
        """g (float[N] x, float[M] y, int64 p) => (float[K] z, seq(float[K]) t) {
            s = SequenceConstruct(x, y, x)
            z = SequenceAt(s, p)
            t = SequenceErase(s, p)
        }""",
        [{"x": f32(n), "y": f32(m), "p": scalar(p)} for n, m, p in ((2, 3, 0), (2, 3, 1), (5, 1, -1))],
    ),
    "Constants at a place that is data": (
        """g (int64 p) => (float[K] z) {
            x = Constant <value: tensor = float[2] {1, 2}> ()
            y = Constant <value: tensor = float[3] {3, 4, 5}> ()
            s = SequenceConstruct(x, y)
            z = SequenceAt(s, p)
        }""",
        [{"p": scalar(p)} for p in (0, 1, -1, -2)],
    ),
    "Of known length in a loop": (
        """g (float[N] x, float[M] y, int64 M1) => (float[K] z) {
            s = SequenceConstruct(x, y)
            true = Constant <value: tensor = bool {1}> ()
            two = Constant <value: tensor = int64 {2}> ()
            z = Loop (M1, true, x) <body: graph = b (int64 i, bool c, float[K] v) => (bool c2, float[K] w) {
                c2 = Identity(c)
                p = Mod(i, two)
                e = SequenceAt(s, p)
                w = Concat <axis: int = 0> (v, e)
            }>
        }""",
        [{"x": f32(n), "y": f32(m), "M1": scalar(p)} for n, m, p in ((2, 3, 12), (2, 3, 1), (5, 1, 0))],
    ),
    "Branches of one element that differ in rank": (
        """g (bool c, float[N] x) => (float[N] y, float[N] z) {
            s = If (c) <then_branch: graph = a () => (float u) { u = Constant <value: tensor = float {3}> () },
                        else_branch: graph = b () => (float[1] v) { v = Constant <value: tensor = float[1] {4}> () }>
            t = Neg(s)
            y = Mul(t, x)
            z = CastLike(x, s)
        }""",
        [{"c": np.array(c), "x": f32(n)} for c, n in ((True, 4), (False, 4), (True, 1))],
    ),
    "Optional": (
        """g (optional(float[N]) o) => (bool there, float[N] y) {
            there = OptionalHasElement(o)
            y = If (there) <then_branch: graph = a () => (float[N] u) { u = OptionalGetElement(o) },
                            else_branch: graph = b () => (float[N] v) { v = Constant <value: tensor = float[2] {5, 6}> () }>
        }""",
        [{"o": f32(3)}, {"o": None}, {"o": f32(0)}],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_against_onnxruntime(name: str) -> None:
    text, feeds = CASES[name]
    data = parsed(text)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    want = [reference.run(None, feed) for feed in feeds]
    for backend in BACKENDS:
        for optimise in (True, False):
            session = InferenceSession(data, SessionOptions(enable_optimisation=optimise), [backend])
            for feed, expected in [*zip(feeds, want, strict=True), (feeds[0], want[0])]:
                same(session.run(None, feed), expected)


def test_faces(tmp_path: Path) -> None:
    """Types as onnxruntime spells them; a compiled file and a pickled session have the same."""
    text = "g (seq(float[N,3]) s, optional(float[M]) o) => (seq(float[N,3]) t, optional(float[M]) p) { t = Identity(s) p = Identity(o) }"
    data = parsed(text)
    path = tmp_path / "model.ponnx"
    ponnx.save(compiler.compile(data), path)
    session = InferenceSession(data)
    for each in (session, InferenceSession(path), pickle.loads(pickle.dumps(session))):
        assert [(i.name, i.type, i.shape) for i in each.get_inputs()] == [
            ("s", "seq(tensor(float))", ["N", 3]),
            ("o", "optional(tensor(float))", ["M"]),
        ]
        assert [o.type for o in each.get_outputs()] == ["seq(tensor(float))", "optional(tensor(float))"]
        same(each.run(None, {"s": RAGGED, "o": None}), [RAGGED, None])
        same(each.run(["p"], {"s": [], "o": f32(4)}), [f32(4)])


@pytest.mark.parametrize(
    ("feed", "text"),
    [
        ({"s": f32(2, 3)}, "input 's' takes a list of arrays, got ndarray"),
        ({"s": None}, "input 's' takes a list of arrays, got NoneType"),
        ({"s": [f32(2, 3), i64(3)]}, "input 's', element 1, takes float32, got int64"),
        ({"s": [np.zeros((1,) * 9, np.float32)]}, "input 's', element 0, has rank 9; at most 8 are supported"),
        ({}, "input 's' is missing"),
    ],
)
def test_what_is_no_sequence_is_named(feed: dict[str, Any], text: str) -> None:
    session = InferenceSession(parsed("g (seq(float[N,3]) s) => (int64 n) { n = SequenceLength(s) }"))
    with pytest.raises(ValueError, match=text):
        session.run(None, feed)


FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a position beyond the end": (CASES["At"][0], {"s": RAGGED, "p": scalar(4)}, "SequenceAt.*out of range"),
    "a position before the first": (CASES["At"][0], {"s": RAGGED, "p": scalar(-5)}, "SequenceAt.*out of range"),
    "a place to insert beyond the end": (
        CASES["Insert"][0],
        {"s": RAGGED, "x": f32(1, 3), "p": scalar(5)},
        "SequenceInsert.*out of range",
    ),
    "erasing from nothing": (CASES["Erase"][0], {"s": [], "p": scalar(0)}, "SequenceErase.*out of range"),
    "pieces that do not add up": (CASES["Split by sizes"][0], {"x": f32(2, 7, 3), "split": i64(3, 3)}, "SplitToSequence.*do not add up"),
    "a negative piece": (CASES["Split by sizes"][0], {"x": f32(2, 7, 3), "split": i64(9, -2)}, "SplitToSequence.*negative"),
    "pieces of nothing": (CASES["Split evenly"][0], {"x": f32(3, 7), "each": scalar(0)}, "SplitToSequence.*too small"),
    "another rank than declared": (CASES["At"][0], {"s": [f32(3)], "p": scalar(0)}, "SequenceAt.*another rank"),
    "no value": (
        "g (optional(float[N]) o) => (float[N] y) { x = OptionalGetElement(o) y = Neg(x) }",
        {"o": None},
        "OptionalGetElement.*has no value",
    ),
    "tensors that do not fit together": (
        "g (seq(float[N,M]) s) => (float[K,L] y) { y = ConcatFromSequence <axis: int = 1> (s) }",
        {"s": [f32(2, 3), f32(3, 3)]},
        "ConcatFromSequence.*differ",
    ),
    "nothing to put together": (
        "g (seq(float[N,M]) s) => (float[K,L] y) { y = ConcatFromSequence <axis: int = 1> (s) }",
        {"s": []},
        "ConcatFromSequence.*empty",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_name_the_node_and_the_next_run_is_right(name: str) -> None:
    text, feed, told = FAULTS[name]
    messages = []
    for backend in BACKENDS:
        session = InferenceSession(parsed(text), providers=[backend])
        with pytest.raises(Exception, match=told) as caught:
            session.run(None, feed)
        messages.append(str(caught.value))
        fitting = next((feeds for other, feeds in CASES.values() if other == text), [])
        for each in fitting[:1]:
            session.run(None, each)
    assert len(set(messages)) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("g (float[N] x, int64[N] i) => (seq(float[N]) s) { s = SequenceConstruct(x, i) }", "SequenceConstruct.*one dtype"),
        ("g (seq(float[N]) s, int64[N] i) => (seq(float[N]) t) { t = SequenceInsert(s, i) }", "SequenceInsert.*float32 cannot take int64"),
        ("g (float[N] x, int64 p) => (float[N] y) { y = SequenceAt(x, p) }", "SequenceAt.*tensor stands where a sequence"),
        ("g (seq(float[N]) s) => (float[N] y) { y = Neg(s) }", "Neg.*where a tensor is needed"),
        (
            """g (bool c) => (float[N] t) {
                s = If (c) <then_branch: graph = a () => (float u) { u = Constant <value: tensor = float {3}> () },
                            else_branch: graph = b () => (float[1] v) { v = Constant <value: tensor = float[1] {4}> () }>
                t = Concat <axis: int = 0> (s, s)
            }""",
            "Concat.*cannot concatenate",
        ),
        ("g (float[N] x) => (float[N] y) { o = Optional <type: type_proto = float[N]> () y = OptionalGetElement(o) }", "no value"),
    ],
)
def test_wrong_types_are_refused_when_the_model_is_compiled(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        InferenceSession(parsed(text))


def test_tables_that_lie_are_refused() -> None:
    """A host may give any table of shapes: nothing outside the elements is read."""
    compiled = compiler.compile(parsed(CASES["At"][0]))
    runtime = Executor(compiled.main, compiled.init, compiled.weights, 1)
    for row in ([2, 3, 3], [2, -1, 3], [2, 1 << 40, 1 << 40], [2, 1 << 62, 2], [9, 1, 1], [-1, 1, 1]):
        table = np.ones((2, 9), np.int64)
        table[:, : len(row)] = row
        with pytest.raises(Exception, match=r"SequenceAt|bytes|range|size"):
            execute(runtime, [np.zeros(4, np.float32), table, scalar(1)], compiled.inputs, compiled.outputs)
