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
from tests.test_core import ARENA, I64, INPUT, OUTPUT, Asm, start

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
