"""Sequences and strings that loops make: against onnxruntime natively and as WebAssembly, and what a step costs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnxruntime
import pytest

from pyonnx_wasm import InferenceSession, SessionOptions, compiler
from pyonnx_wasm.program.view import ProgramView
from tests.test_sequences import parsed, scalar
from tests.test_stages import BACKENDS, f32, i64


def texts(*items: Any) -> np.ndarray:
    return np.array(items, object)


def same(got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    elif want is None or got is None:
        assert got is want
    else:
        assert got.shape == want.shape
        if want.dtype.kind in "OUS":
            assert got.tolist() == want.tolist()
        else:
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, 1e-5, 1e-6)


HEAD = """true = Constant <value: tensor = bool {1}> ()
            one = Constant <value: tensor = int64[1] {1}> ()
            first = Constant <value: tensor = int64[1] {0}> ()
            """
ROW = """c2 = Identity(c)
                j = Unsqueeze(i, first)
                end = Add(j, one)
                row = Slice(x, j, end)
                """
GIVEN = [{"M": scalar(m), "x": f32(n)} for m, n in ((20, 30), (0, 3), (1, 1), (9, 4))]
LINES = texts("a b", "", "é 日本 x", "one", "two  three", "z")

NESTED = f"""g (int64 M, float[N] x) => (seq(float[A]) s, int64 n) {{
    {HEAD}
    begun = SequenceConstruct(x)
    s = Loop (M, true, begun) <body: graph = b (int64 i, bool c, seq(float[K]) s0) => (bool c2, seq(float[K]) s1) {{
        c2 = Identity(c)
        two = Constant <value: tensor = int64 {{2}}> ()
        three = Constant <value: tensor = int64 {{3}}> ()
        rest = Mod(i, two)
        odd = Cast <to: int = 9> (rest)
        third = Mod(i, three)
        other = Cast <to: int = 9> (third)
        s2 = If (odd) <then_branch: graph = a () => (seq(float[K]) u) {{
                           v = SequenceInsert(s0, x)
                           u = If (other) <then_branch: graph = p () => (seq(float[K]) w) {{ w = SequenceInsert(v, x) }},
                                           else_branch: graph = q () => (seq(float[K]) z) {{ z = Identity(v) }}> }},
                       else_branch: graph = d () => (seq(float[K]) v) {{ v = Identity(s0) }}>
        s1 = SequenceInsert(s2, x)
    }}>
    n = SequenceLength(s)
}}"""

CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "Two at a step, and the length": (
        f"""g (int64 M, float[N] x, float[K] y) => (seq(float[A]) s, int64[L] sizes, int64 n) {{
            {HEAD}
            begun = SequenceConstruct(y, x)
            s, sizes = Loop (M, true, begun) <body: graph = b (int64 i, bool c, seq(float[K]) before) =>
                    (bool c2, seq(float[K]) after, int64 n) {{
                {ROW}
                some = SequenceInsert(before, row)
                n = SequenceLength(some)
                after = SequenceInsert(some, y)
            }}>
            n = SequenceLength(s)
        }}""",
        [{**feed, "y": f32(k)} for feed, k in zip(GIVEN, (2, 0, 5, 1), strict=True)],
    ),
    "The last one is read": (
        f"""g (int64 M, float[N] x) => (seq(float[A]) s) {{
            {HEAD}
            begun = SequenceConstruct(x)
            last = Constant <value: tensor = int64 {{-1}}> ()
            s = Loop (M, true, begun) <body: graph = b (int64 i, bool c, seq(float[K]) before) => (bool c2, seq(float[K]) after) {{
                c2 = Identity(c)
                e = SequenceAt(before, last)
                f = Add(e, one_f)
                after = SequenceInsert(before, f)
                one_f = Cast <to: int = 1> (one)
            }}>
        }}""".replace("one_f = Cast <to: int = 1> (one)\n", "").replace("f = Add(e, one_f)", "f = Neg(e)"),
        GIVEN,
    ),
    "Two sequences, one whose steps also erase, until a condition": (
        f"""g (int64 M, float[N] x) => (seq(float[A]) s, seq(float[B]) t) {{
            {HEAD}
            empty = SequenceEmpty()
            some = SequenceConstruct(x)
            s, t = Loop (M, true, empty, some) <body: graph = b (int64 i, bool c, seq(float[A]) s0, seq(float[B]) t0) =>
                    (bool c2, seq(float[A]) s1, seq(float[B]) t1) {{
                three = Constant <value: tensor = int64 {{3}}> ()
                c2 = Less(i, three)
                s1 = SequenceInsert(s0, x)
                t2 = SequenceInsert(t0, x)
                at = Constant <value: tensor = int64 {{0}}> ()
                t1 = SequenceErase(t2, at)
            }}>
        }}""",
        GIVEN,
    ),
    "Within a loop within a loop": (
        f"""g (int64 M, float[N] x) => (seq(float[A]) s) {{
            {HEAD}
            empty = SequenceEmpty()
            s = Loop (M, true, empty) <body: graph = b (int64 i, bool c, seq(float[A]) s0) => (bool c2, seq(float[A]) s1) {{
                c2 = Identity(c)
                s2 = Loop (M, true, s0) <body: graph = d (int64 k, bool e, seq(float[A]) u0) => (bool e2, seq(float[A]) u1) {{
                    e2 = Identity(e)
                    u1 = SequenceInsert(u0, x)
                }}>
                s1 = SequenceInsert(s2, x)
            }}>
        }}""",
        [{"M": scalar(m), "x": f32(n)} for m, n in ((12, 3), (0, 3), (1, 1), (9, 0))],
    ),
    "In a branch": (
        f"""g (int64 M, float[N] x) => (seq(float[A]) s) {{
            {HEAD}
            empty = SequenceEmpty()
            s = Loop (M, true, empty) <body: graph = b (int64 i, bool c, seq(float[A]) s0) => (bool c2, seq(float[A]) s1) {{
                c2 = Identity(c)
                two = Constant <value: tensor = int64 {{2}}> ()
                rest = Mod(i, two)
                odd = Cast <to: int = 9> (rest)
                s1 = If (odd) <then_branch: graph = a () => (seq(float[A]) u) {{ u = SequenceInsert(s0, x) }},
                               else_branch: graph = d () => (seq(float[A]) v) {{ v = Identity(s0) }}>
            }}>
        }}""",
        GIVEN,
    ),
    "In a branch, two, one or none, of a branch, and read behind the loop": (
        NESTED,
        GIVEN,
    ),
    "In a branch, two, one or none, of a branch, and read behind the loop, strings": (
        NESTED.replace("float[", "string["),
        [{"M": scalar(m), "x": LINES[:n]} for m, n in ((7, 6), (0, 3), (1, 1), (12, 2))],
    ),
    "In a branch that asks for its length": (
        f"""g (int64 M, float[N] x) => (seq(float[A]) s) {{
            {HEAD}
            empty = SequenceEmpty()
            s = Loop (M, true, empty) <body: graph = b (int64 i, bool c, seq(float[K]) s0) => (bool c2, seq(float[K]) s1) {{
                c2 = Identity(c)
                n = SequenceLength(s0)
                three = Constant <value: tensor = int64 {{3}}> ()
                few = Less(n, three)
                s1 = If (few) <then_branch: graph = a () => (seq(float[A]) u) {{ u = SequenceInsert(s0, x) }},
                               else_branch: graph = d () => (seq(float[A]) v) {{ v = Identity(s0) }}>
            }}>
        }}""",
        GIVEN,
    ),
    "Strings put behind": (
        f"""g (int64 M, string[N] x) => (seq(string[A]) s, string[B] y, int64 n) {{
            {HEAD}
            begun = SequenceConstruct(x, x)
            s = Loop (M, true, begun) <body: graph = b (int64 i, bool c, seq(string[K]) before) => (bool c2, seq(string[K]) after) {{
                {ROW}
                after = SequenceInsert(before, row)
            }}>
            y = ConcatFromSequence <axis: int = 0> (s)
            n = SequenceLength(s)
        }}""",
        [{"M": scalar(m), "x": LINES[:n]} for m, n in ((5, 6), (0, 3), (1, 1), (20, 2))],
    ),
    "Strings stacked": (
        f"""g (int64 M, string[N] x, string[K] p) => (string[A,B] y, string[A] z) {{
            {HEAD}
            start = Constant <value: tensor = string {{"s"}}> ()
            z, y = Loop (M, true, start) <body: graph = b (int64 i, bool c, string z0) => (bool c2, string z1, string[K] w) {{
                c2 = Identity(c)
                row = Gather(x, i)
                z1 = StringConcat(z0, row)
                w = StringConcat(p, row)
            }}>
        }}""".replace("string[A] z)", "string z)"),
        [{"M": scalar(m), "x": LINES, "p": LINES[:k]} for m, k in ((6, 2), (1, 1), (3, 0), (0, 0))],
    ),
    "Strings scanned": (
        """g (string[N,M] x, string[M] s, float[N] f) => (string[M] t, string[M,N] y, float[N] h) {
            t, y, h = Scan <num_scan_inputs: int = 2, scan_output_axes: ints = [1, 0], scan_output_directions: ints = [1, 0],
                            body: graph = b (string[M] s0, string[M] r, float q) => (string[M] s1, string[M] w, float v) {
                s1 = Identity(r)
                w = StringConcat(s0, r)
                v = Neg(q)
            }> (s, x, f)
        }""",
        [{"x": LINES[: n * m].reshape(n, m), "s": LINES[:m], "f": f32(n)} for n, m in ((3, 2), (2, 3), (1, 1), (6, 1))],
    ),
    "Scanned from the end, many": (
        """g (string[N,M] x, string[M] s) => (string[M] t, string[N,M] y) {
            t, y = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [1], scan_input_directions: ints = [1],
                            body: graph = b (string[M] s0, string[M] r) => (string[M] s1, string[M] w) {
                s1 = Identity(r)
                w = StringConcat(r, s0)
            }> (s, x)
        }""",
        [{"x": np.resize(LINES, (m, n)), "s": LINES[:m]} for n, m in ((30, 2), (2, 3), (11, 1))],
    ),
}
STRINGS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "At, insert, erase": (
        """g (seq(string[N]) s, string[M] x, int64 p) => (string[K] y, seq(string[N]) t, seq(string[N]) u, int64 n) {
            y = SequenceAt(s, p)
            t = SequenceInsert(s, x, p)
            u = SequenceErase(t, p)
            n = SequenceLength(t)
        }""",
        [
            {"s": [LINES[:k] for k in sizes], "x": LINES[::-1][:m], "p": scalar(p)}
            for sizes, m, p in (((1, 3, 0), 2, 1), ((6,), 0, 0), ((2, 2), 6, -1))
        ],
    ),
    "Split and joined": (
        """g (string[A,B] x, int64[n] split) => (seq(string[A,C]) s, string[A,D] y, seq(string[A]) r) {
            s = SplitToSequence <axis: int = 1> (x, split)
            y = ConcatFromSequence <axis: int = 1> (s)
            r = SplitToSequence <axis: int = 1, keepdims: int = 0> (x)
        }""",
        [{"x": np.resize(LINES, (2, 7)), "split": i64(*s)} for s in ((3, 4), (7, 0), (0, 2, 0, 5), (1,) * 7)],
    ),
    "Of known length": (
        """g (string[N] x, string[M] y, int64 p) => (string[K] z, seq(string[K]) t, string[A] w) {
            s = SequenceConstruct(x, y, x)
            z = SequenceAt(s, p)
            t = SequenceErase(s, p)
            w = ConcatFromSequence <axis: int = 0> (s)
        }""",
        [{"x": LINES[:n], "y": LINES[3 : 3 + m], "p": scalar(p)} for n, m, p in ((2, 3, 0), (2, 3, 1), (5, 1, -1))],
    ),
    "Empty, of a branch": (
        """g (bool c, seq(string[N]) s, string[M] x) => (seq(string[K]) t) {
            t = If (c) <then_branch: graph = a () => (seq(string[K]) u) { u = SequenceInsert(s, x) },
                        else_branch: graph = b () => (seq(string[K]) v) { v = SequenceEmpty <dtype: int = 8> () }>
        }""",
        [{"c": np.array(c), "s": [LINES[:2]] * n, "x": LINES[2:4]} for c, n in ((True, 4), (False, 4), (True, 0))],
    ),
    "Map": (
        """g (seq(string[N]) s, string[M] x) => (seq(string[N]) u, seq(int64[1]) v) {
            u, v = SequenceMap (s, x) <body: graph = b (string[N] a, string[M] q) => (string[N] d, int64[1] e) {
                d = StringConcat(a, q)
                e = Shape(d)
            }>
        }""",
        [{"s": [LINES[:k] for k in sizes], "x": LINES[1:2]} for sizes in ((1, 3, 6, 2), (2,), ())],
    ),
}


@pytest.mark.parametrize("name", [*CASES, *STRINGS])
def test_against_onnxruntime(name: str) -> None:
    text, feeds = (CASES | STRINGS)[name]
    data = newer(text) if "StringConcat" in text else parsed(text)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    want = [reference.run(None, feed) for feed in feeds]
    for backend in BACKENDS:
        for optimise in (True, False):
            session = InferenceSession(data, SessionOptions(enable_optimisation=optimise), [backend])
            for feed, expected in [*zip(feeds, want, strict=True), (feeds[0], want[0])]:
                same(session.run(None, feed), expected)


def newer(text: str) -> bytes:
    import onnx.parser

    return bytes(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}').SerializeToString())


@pytest.mark.parametrize("kind", ["float", "string"])
def test_putting_behind_takes_time_in_proportion(kind: str) -> None:
    """What a step puts behind a sequence is appended: nothing of the sequence is carried, so no step copies it."""
    text = f"""g (int64 M, {kind}[N] x) => (seq({kind}[K]) s) {{
        true = Constant <value: tensor = bool {{1}}> ()
        empty = SequenceEmpty <dtype: int = {1 if kind == "float" else 8}> ()
        s = Loop (M, true, empty) <body: graph = b (int64 i, bool c, seq({kind}[K]) before) => (bool c2, seq({kind}[K]) after) {{
            c2 = Identity(c)
            after = SequenceInsert(before, x)
        }}>
    }}"""
    compiled = compiler.compile(parsed(text))
    view = ProgramView(compiled.main.code)
    (loop,) = [s for s in view.steps if s.kernel == "loop"]
    assert view.registers[loop.params[3]].a == 0, "carried values"
    session = InferenceSession(parsed(text))
    x = f32(64) if kind == "float" else texts(*["word"] * 64)
    (found,) = session.run(None, {"M": scalar(3), "x": x})
    same(found, [x] * 3)
    began = time.process_time()
    (found,) = session.run(None, {"M": scalar(20_000), "x": x})
    assert len(found) == 20_000
    assert time.process_time() - began < 30  # 51 GB would be copied


@pytest.mark.parametrize("kind", ["float", "string"])
def test_putting_behind_in_a_branch_takes_operations_in_proportion(kind: str) -> None:
    """As the core counts them, copies included: a step's share does not grow with the number of steps, as no step carries the sequence."""
    text = f"""g (int64 M, {kind}[N] x) => (seq({kind}[K]) s) {{
        true = Constant <value: tensor = bool {{1}}> ()
        two = Constant <value: tensor = int64 {{2}}> ()
        empty = SequenceEmpty <dtype: int = {1 if kind == "float" else 8}> ()
        s = Loop (M, true, empty) <body: graph = b (int64 i, bool c, seq({kind}[K]) before) => (bool c2, seq({kind}[K]) after) {{
            c2 = Identity(c)
            rest = Mod(i, two)
            odd = Cast <to: int = 9> (rest)
            after = If (odd) <then_branch: graph = p () => (seq({kind}[K]) u) {{ u = SequenceInsert(before, x) }},
                              else_branch: graph = q () => (seq({kind}[K]) v) {{ v = Identity(before) }}>
        }}>
    }}"""
    view = ProgramView(compiler.compile(parsed(text)).main.code)
    (loop,) = [s for s in view.steps if s.kernel == "loop"]
    assert view.registers[loop.params[3]].a == 0, "carried values"
    x = f32(64) if kind == "float" else texts(*["word"] * 64)
    for steps in (7, 200, 3200):  # of which the last would copy 50,000 elements on average
        session = InferenceSession(parsed(text), SessionOptions(max_operations=4000 * steps))
        same(session.run(None, {"M": scalar(steps), "x": x})[0], [x] * (steps // 2))


def test_split_of_the_first_opset_takes_sizes_as_an_input() -> None:
    import onnx
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Split", ["x", "s"], ["a", "b"], axis=1)]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 7]), helper.make_tensor_value_info("s", TensorProto.FLOAT, [2])]
    outs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in "ab"]
    made = helper.make_model(helper.make_graph(nodes, "g", infos, outs), opset_imports=[onnx.helper.make_opsetid("", 1)], ir_version=3)
    session = InferenceSession(made.SerializeToString())
    x = f32(2, 7)
    for sizes in ((3, 4), (7, 0), (1, 6)):
        a, b = session.run(None, {"x": x, "s": np.array(sizes, np.float32)})
        np.testing.assert_array_equal(a, x[:, : sizes[0]])
        np.testing.assert_array_equal(b, x[:, sizes[0] :])
    with pytest.raises(Exception, match="split"):
        session.run(None, {"x": x, "s": np.array([3, 3], np.float32)})
