"""Sizes that are data: one session, several contents, against onnxruntime, natively and as WebAssembly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from pyonnx_wasm import InferenceSession, SessionOptions
from pyonnx_wasm.runtimes.core import CoreError
from tests.assembler import ARENA, I64, INPUT, OUTPUT, Asm, start

Feed = dict[str, np.ndarray]
BACKENDS = ("cpu", "wasmtime")


def model(nodes: Sequence[Any], inputs: dict[str, tuple[int, Any]], outputs: Sequence[str], opset: int = 18, **constants: Any) -> bytes:
    """A model of nodes; inputs by name, with dtype and shape."""
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info(n, d, s) for n, (d, s) in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [onnx.numpy_helper.from_array(np.asarray(c), n) for n, c in constants.items()],
    )
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10)
    for info, inferred in zip(made.graph.output, onnx.shape_inference.infer_shapes(made).graph.output, strict=True):
        info.CopyFrom(inferred)
    return bytes(made.SerializeToString())


def agrees(data: bytes, feeds: Sequence[Feed], backends: Sequence[str] = BACKENDS) -> None:
    """One session per backend gives what onnxruntime gives, for one content after the other, and for the first again."""
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    want = [reference.run(None, feed) for feed in feeds]
    for backend in backends:
        for optimise in (True, False):
            session = InferenceSession(data, SessionOptions(enable_optimisation=optimise), [backend])
            for feed, expected in [*zip(feeds, want, strict=True), (feeds[0], want[0])]:
                for got, right in zip(session.run(None, feed), expected, strict=True):
                    assert got.dtype == right.dtype
                    np.testing.assert_allclose(got, right, 1e-5, 1e-6)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f32(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 4).astype(np.float32)


@pytest.mark.parametrize("n", [1, 7])
def test_computed_sizes(n: int) -> None:
    """A size that is computed from floats, used by steps that run after it was read."""
    data = model(
        [
            h.make_node("Mul", ["s", "s"], ["t"]),
            h.make_node("Cast", ["t"], ["i"], to=T.INT64),
            h.make_node("Expand", ["x", "i"], ["e"]),
            h.make_node("Relu", ["e"], ["y"]),
            h.make_node("ReduceSum", ["y"], ["z"], keepdims=0),
        ],
        {"x": (T.FLOAT, ["N", 1]), "s": (T.FLOAT, [2])},
        ["y", "z"],
    )
    feeds = [{"x": f32(n, 1), "s": np.array(s, np.float32)} for s in ((1, 3), (1, 2), (1, 9))]
    agrees(data, feeds)


def test_a_wrong_size_is_an_error_and_the_next_run_is_right() -> None:
    data = model(
        [h.make_node("Abs", ["s"], ["t"]), h.make_node("Reshape", ["x", "t"], ["y"])], {"x": (T.FLOAT, [12]), "s": (T.INT64, [2])}, ["y"]
    )
    for backend in BACKENDS:
        session = InferenceSession(data, providers=[backend])
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, {"x": f32(12), "s": i64(3, -4)})[0], f32(12).reshape(3, 4))
            with pytest.raises(CoreError, match="reshape"):
                session.run(None, {"x": f32(12), "s": i64(5, 5)})


def counted(stages: int = 1) -> Asm:
    """input [n] int64; per stage the size of a copy is read from what the stage before wrote: its first element."""
    a = Asm()
    a.input(I64, 1)
    n = a.emit("dim", 0, 0)
    here = a.buffer(a.storage(INPUT, a.emit("mul", n, a.reg(8))), I64)
    a.inputs[0][2] = here
    count = n
    for k in range(stages):
        there = a.buffer(a.storage(ARENA, a.emit("mul", count, a.reg(8)), 0, k, k + 1), I64)
        a.copy(there, here, count)
        here = there
        a.stage()
        count = a.emit("read", here, 0)
    there = a.buffer(a.storage(OUTPUT, a.emit("mul", count, a.reg(8))), I64)
    a.copy(there, here, count)
    a.output([count], there, I64)
    return a


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_hand_made_stages(stages: int) -> None:
    c = start(counted(stages))
    for x in (i64(2, 1, 1), i64(3, 7, 8, 9), i64(1), i64(2, 1, 1)):
        for _ in range(2):
            assert c.bind([x.size], [x]) == [None]
            outs: list[Any] = [None]
            c.run([x], outs, lambda i, shape: np.empty(shape, np.int64))
            np.testing.assert_array_equal(outs[0], x[: x[0]])
    for text, x in (("-8 bytes|absurd", i64(-1, 1)), ("there are|leaves|check|view", i64(3, 1)), ("no element 0", i64())):
        c.bind([x.size], [x])
        with pytest.raises(CoreError, match=text):
            c.run([x], [None], lambda i, shape: np.empty(shape, np.int64))


def test_what_an_earlier_stage_wrote_in_pieces_is_kept() -> None:
    """Writes with strides prove no range, so their storage is cleared: before them, although a later stage is the first that reads it."""
    a = Asm()
    a.input(I64, 1)
    n = a.emit("dim", 0, 0)
    size = a.emit("mul", n, a.reg(8))
    here = a.buffer(a.storage(INPUT, size), I64)
    a.inputs[0][2] = here
    pairs, first = a.buffer(a.storage(ARENA, size, 0, 0, 3), I64), a.buffer(a.storage(ARENA, 8, 0, 2, 2), I64)
    half = a.emit("floordiv", n, a.reg(2))
    for k in range(2):
        a.copy(pairs, here, half, xoff=k, yoff=k, xstride=2, ystride=2)
    a.copy(first, here, 1)
    a.stage()
    count = a.emit("read", first, 0)
    there = a.buffer(a.storage(OUTPUT, a.emit("mul", count, a.reg(8))), I64)
    a.copy(there, pairs, count)
    a.output([count], there, I64)
    c = start(a)
    for x in (i64(4, 1, 2, 3), i64(2, 7), i64(1, 5, 6, 7), i64(4, 1, 2, 3)):
        c.bind([x.size], [x])
        outs: list[Any] = [None]
        c.run([x], outs, lambda i, shape: np.empty(shape, np.int64))
        np.testing.assert_array_equal(outs[0], x[: x[0]])


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_a_host_walks_the_stages_itself(stages: int) -> None:
    """Registers stage by stage, steps one by one over the host's memory."""
    c = start(counted(stages))
    n, rows = c.view.count("registers"), c.view.storages
    for x in (i64(2, 1, 1), i64(3, 7, 8, 9), i64(1), i64(3, 7, 8, 9)):
        memory: list[np.ndarray | None] = [x.view(np.uint8), *[None] * (len(rows) - 1)]
        registers = c.evaluate([x.size], [x], n)
        for s in range(stages + 1):
            if s:
                registers = c.evaluate_stage(s, [int(x[0])], [], n)
            memory[s + 1] = here = np.zeros(int(registers[rows[s + 1].size]), np.uint8)
            c.run_step(s, memory)
            with pytest.raises(CoreError, match="does not belong"):
                c.run_step(s + 1, memory)
        np.testing.assert_array_equal(here.view(np.int64), x[: x[0]])
        with pytest.raises(CoreError, match="does not follow"):
            c.evaluate_stage(stages + 1, [1], [], n)
    c.evaluate([0], [i64()], n)
    with pytest.raises(CoreError, match="no element 0"):
        c.evaluate_stage(1, [0], [], n)
    c.bind([2], [i64(1, 2)])
    with pytest.raises(CoreError, match="before a successful evaluation"):
        c.run_step(0, [None] * len(rows))


EDITS: list[tuple[str, Callable[[Asm], Any]]] = [
    ("shape instruction", lambda a: a.code.__setitem__(4, [16, 1, 0, 0])),  # in its own stage's past
    ("shape instruction", lambda a: a.storages[1].__setitem__(4, 0) or a.storages[1].__setitem__(3, 1)),
    ("shape instruction", lambda a: a.buffers[1].__setitem__(3, 8)),
    ("do not hold", lambda a: a.stages.__setitem__(0, (0, 0)) or a.code.append([0, 0, 0, 0]) or a.stages.append((1, 5))),
    ("stage 0 is wrong", lambda a: a.stages.__setitem__(0, (1 << 20, 0))),
    ("before its size is known", lambda a: a.storages[1].__setitem__(2, a.storages[2][2])),
    ("before", lambda a: a.steps[0].__setitem__(6 + 3, a.steps[1][6 + 3])),
]


@pytest.mark.parametrize(("text", "edit"), EDITS, ids=range(len(EDITS)))
def test_malformed_stages(text: str, edit: Callable[[Asm], Any]) -> None:
    a = counted()
    edit(a)
    with pytest.raises(CoreError):
        start(a)


def test_memory_of_dead_stages_serves_later_ones() -> None:
    """A chain of stages takes the memory of two of them, not of all."""
    c = start(counted(20))
    x = np.full(1 << 16, 1 << 16, np.int64)
    c.bind([x.size], [x])
    c.run([x], [None], lambda i, shape: np.empty(shape, np.int64))
    assert c.arena_bytes <= 3 * x.nbytes


N = ["N"]
CASES: dict[str, tuple[bytes, list[Feed]]] = {
    "NonZero, Gather and a sum": (
        model(
            [
                h.make_node("NonZero", ["x"], ["at"]),
                h.make_node("Transpose", ["at"], ["t"]),
                h.make_node("GatherND", ["x", "t"], ["v"]),
                h.make_node("ReduceSum", ["v"], ["s"]),
            ],
            {"x": (T.FLOAT, ["a", "b"])},
            ["at", "v", "s"],
        ),
        [{"x": np.maximum(f32(3, 4), 0)}, {"x": np.zeros((2, 5), np.float32)}, {"x": f32(1, 9)}],
    ),
    "Compress along an axis": (
        model([h.make_node("Compress", ["x", "c"], ["y"], axis=1)], {"x": (T.FLOAT, ["a", "b"]), "c": (T.BOOL, ["m"])}, ["y"]),
        [{"x": f32(2, 5), "c": np.array(c)} for c in ([True, False, True], [False] * 5, [False, False, False, False, True])],
    ),
    "Compress of the flat tensor": (
        model([h.make_node("Compress", ["x", "c"], ["y"])], {"x": (T.INT64, ["a", "b"]), "c": (T.BOOL, ["m"])}, ["y"]),
        [{"x": i64(*range(6)).reshape(2, 3), "c": np.array(c)} for c in ([True, False, True, True], [True])],
    ),
    "Unique": (
        model([h.make_node("Unique", ["x"], ["y", "i", "j", "n"])], {"x": (T.INT64, N)}, ["y", "i", "j", "n"]),
        [{"x": i64(*x)} for x in ([2, 1, 1, 3, 4, 3], [7], [5, 5, 5], [3, 2, 1])],
    ),
    "Unique, not sorted, rows": (
        model([h.make_node("Unique", ["x"], ["y", "i", "j", "n"], axis=0, sorted=0)], {"x": (T.FLOAT, ["a", "b"])}, ["y", "i", "j", "n"]),
        [{"x": np.array(x, np.float32)} for x in ([[2, 1], [1, 2], [2, 1]], [[0, 0, 0]], [[3, 1], [3, 0], [3, 1], [3, 0], [2, 9]])],
    ),
    "NonMaxSuppression": (
        model(
            [h.make_node("NonMaxSuppression", ["b", "s", "m", "i", "t"], ["y"])],
            {"b": (T.FLOAT, ["n", "k", 4]), "s": (T.FLOAT, ["n", "c", "k"]), "m": (T.INT64, [1]), "i": (T.FLOAT, [1]), "t": (T.FLOAT, [1])},
            ["y"],
        ),
        [
            {
                "b": np.random.default_rng(k).random((2, 30, 4), np.float32),
                "s": np.random.default_rng(k + 9).random((2, 3, 30), np.float32),
                "m": i64(m),
                "i": np.array([iou], np.float32),
                "t": np.array([least], np.float32),
            }
            for k, (m, iou, least) in enumerate([(4, 0.3, 0.2), (0, 0.3, 0.2), (100, 0.9, 0.0), (5, 0.1, 2.0)])
        ],
    ),
    "Range of floats": (
        model([h.make_node("Range", ["a", "b", "c"], ["y"])], {n: (T.FLOAT, []) for n in "abc"}, ["y"]),
        [{n: np.array(v, np.float32) for n, v in zip("abc", r, strict=True)} for r in ((0, 5, 1), (1, 0, 0.25), (2, 9, -1), (10, 0, -2.5))],
    ),
    "Range of integers": (
        model([h.make_node("Abs", ["b"], ["c"]), h.make_node("Range", ["a", "c", "d"], ["y"])], {n: (T.INT64, []) for n in "abd"}, ["y"]),
        [{n: np.array(v) for n, v in zip("abd", r, strict=True)} for r in ((0, -5, 1), (9, 0, -2), (3, 3, 1))],
    ),
    "a reduction's axes": (
        model([h.make_node("ReduceMean", ["x", "a"], ["y"])], {"x": (T.FLOAT, ["p", "q", 3]), "a": (T.INT64, [2])}, ["y"]),
        [{"x": f32(2, 4, 3), "a": i64(*a)} for a in ((0, 1), (-1, 0), (1, 2))],
    ),
    "a reduction's axes, dropped": (
        model([h.make_node("ReduceLogSumExp", ["x", "a"], ["y"], keepdims=0)], {"x": (T.FLOAT, ["p", "q", 3]), "a": (T.INT64, [1])}, ["y"]),
        [{"x": f32(2, 4, 3), "a": i64(a)} for a in (0, -1, 1)],
    ),
    "axes of Squeeze and Unsqueeze": (
        model(
            [h.make_node("Unsqueeze", ["x", "a"], ["u"]), h.make_node("Squeeze", ["u", "a"], ["y"])],
            {"x": (T.FLOAT, ["p", "q"]), "a": (T.INT64, [2])},
            ["u", "y"],
        ),
        [{"x": f32(2, 4), "a": i64(*a)} for a in ((0, 1), (-1, 0), (1, 3))],
    ),
    "everything of a Slice": (
        model(
            [h.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
            {"x": (T.FLOAT, ["p", "q", 5]), **{n: (T.INT64, [2]) for n in "seat"}},
            ["y"],
        ),
        [
            {"x": f32(4, 6, 5), "s": i64(*s), "e": i64(*e), "a": i64(*a), "t": i64(*t)}
            for s, e, a, t in (
                ((0, 1), (3, 5), (0, 1), (1, 2)),
                ((5, -1), (-100, 0), (1, 2), (-2, -1)),
                ((100, 0), (2**62, 0), (0, -1), (1, 1)),
            )
        ],
    ),
    "the axis of CumSum": (
        model([h.make_node("CumSum", ["x", "a"], ["y"], reverse=1)], {"x": (T.FLOAT, ["p", "q"]), "a": (T.INT64, [])}, ["y"]),
        [{"x": f32(3, 4), "a": np.array(a)} for a in (0, 1, -1)],
    ),
    "OneHot's depth": (
        model([h.make_node("OneHot", ["i", "d", "v"], ["y"])], {"i": (T.INT64, N), "d": (T.INT64, [1]), "v": (T.FLOAT, [2])}, ["y"]),
        [{"i": i64(1, 0, 2), "d": i64(d), "v": np.array([0, 5], np.float32)} for d in (3, 4, 1)],
    ),
    "TopK's k after NonZero": (
        model(
            [
                h.make_node("NonZero", ["x"], ["at"]),
                h.make_node("Shape", ["at"], ["s"], start=1),
                h.make_node("TopK", ["x", "s"], ["v", "i"]),
            ],
            {"x": (T.FLOAT, N)},
            ["v", "i"],
        ),
        [{"x": np.array(x, np.float32)} for x in ([1, 0, 3, 0], [0, 0], [4, 2, 6])],
    ),
    "Pad's axes": (
        model(
            [h.make_node("Pad", ["x", "p", "", "a"], ["y"])], {"x": (T.FLOAT, ["p", "q"]), "p": (T.INT64, [2]), "a": (T.INT64, [1])}, ["y"]
        ),
        [{"x": f32(2, 3), "p": i64(*p), "a": i64(a)} for p, a in (((1, 2), 0), ((0, 3), 1), ((2, -1), -1))],
    ),
    "Resize by scales": (
        model(
            [h.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")], {"x": (T.FLOAT, [1, 1, "p", "q"]), "s": (T.FLOAT, [4])}, ["y"]
        ),
        [{"x": f32(1, 1, 4, 6), "s": np.array((1, 1, *s), np.float32)} for s in ((2, 2), (0.5, 1.5), (1, 3))],
    ),
    "Tile and Split": (
        model(
            [h.make_node("Tile", ["x", "t"], ["u"]), h.make_node("Split", ["u", "s"], ["a", "b"], axis=0)],
            {"x": (T.FLOAT, ["p", "q"]), "t": (T.INT64, [2]), "s": (T.INT64, [2])},
            ["a", "b"],
        ),
        [{"x": f32(2, 3), "t": i64(*t), "s": i64(*s)} for t, s in (((1, 2), (1, 1)), ((3, 1), (0, 6)), ((2, 2), (3, 1)))],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_contents_decide(name: str) -> None:
    data, feeds = CASES[name]
    agrees(data, feeds)
