"""Recurrent layers are one step: the kernel against numpy on every build, and what operators make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from kernel_call import BUILDS, Array, refused, run, use
from onnx import TensorProto as T
from onnx import helper as h

import pyonnx_wasm
from pyonnx_wasm import compiler
from pyonnx_wasm.ops.recurrent import CELLS, GATES

F4 = np.float32


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def layer(cell: str, x: Array, r: Array, bias: Array, state: Array, second: Array, lengths: Array, reverse: bool) -> tuple[Array, ...]:
    """One direction in float64; x [steps, batch, gates * size], r [gates * size, size]."""
    steps, batch, size = *x.shape[:2], r.shape[1]
    y, last, memory = np.zeros((steps, batch, size)), state.astype(float), second.astype(float)
    for row in range(batch):
        times = range(lengths[row])
        for t in reversed(times) if reverse else times:
            s, g = last[row], x[t, row].astype(float)
            u = r.astype(float) @ s
            if cell in ("tanh", "relu"):
                last[row] = np.tanh(g + u) if cell == "tanh" else np.maximum(g + u, 0)
            elif cell == "lstm":
                i, o, f = (sigmoid((g + u)[k * size : (k + 1) * size]) for k in range(3))
                memory[row] = f * memory[row] + i * np.tanh((g + u)[3 * size :])
                last[row] = o * np.tanh(memory[row])
            else:
                z, reset = (sigmoid((g + u)[k * size : (k + 1) * size]) for k in range(2))
                inner = reset * (u[2 * size :] + bias) if cell == "linear_gru" else r.astype(float)[2 * size :] @ (reset * s)
                last[row] = (1 - z) * np.tanh(g[2 * size :] + inner) + z * s
            y[t, row] = last[row]
    return y, last, memory


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("cell", CELLS.members)
@pytest.mark.parametrize("size", [1, 3, 8, 17, 64, 100, 301])  # of 301 threads share a step's products
def test_kernel(cell: str, size: int, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(isa, monkeypatch)
    rng, gates = np.random.default_rng(size), GATES[cell]
    for threads, ways, batch, steps, given in (
        (1, 1, 1, 5, ""), (1, 2, 1, 4, "h"), (3, 1, 1, 3, "reverse h"), (2, 2, 3, 4, "h lengths"), (4, 2, 1, 3, ""),
        (2, 1, 9, 2, "h lengths"), (1, 1, 2, 0, "h"), (1, 2, 40, 2, ""),
    ):  # fmt: skip
        x = rng.standard_normal((steps, batch, ways, gates * size)).astype(F4)
        r = (rng.standard_normal((ways, gates * size, size)) / np.sqrt(size)).astype(F4)
        bias = rng.standard_normal((ways, size)).astype(F4)
        started = rng.standard_normal((2, ways, batch, size)).astype(F4) if "h" in given.split() else np.zeros((2, ways, batch, size), F4)
        lengths = rng.integers(-2, steps + 3, batch).astype(np.int32) if "lengths" in given else np.full(batch, steps, np.int32)
        packing: dict[str, Any] = {"k": size, "n": gates * size, "band": size, "transposed": 1}
        packed = [run("pack", [("float32", (w.size,))], [w.ravel()], threads, **packing) for w in r]
        state = ("float32", (ways, batch, size))
        outs = [("float32", (steps, ways, batch, size)), state, state if cell == "lstm" else None]
        start = [started[0], started[1] if cell == "lstm" else None] if "h" in given.split() else [None, None]
        ins = [x, packed[0], packed[1] if ways == 2 else None, bias if cell == "linear_gru" else None, *start]
        y, last, *second = run(
            "recurrent", outs, [*ins, lengths if "lengths" in given else None], threads,
            cell=CELLS.index(cell), steps=steps, batch=batch, size=size, ways=ways, reverse="reverse" in given,
        )  # fmt: skip
        for way in range(ways):
            backwards = "reverse" in given if ways == 1 else way == 1
            want = layer(cell, x[:, :, way], r[way], bias[way], started[0, way], started[1, way], np.clip(lengths, 0, steps), backwards)
            for got, expected in zip((y[:, way], last[way], *[s[way] for s in second]), want, strict=False):
                np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


def test_kernel_refuses() -> None:
    x, r, state = np.zeros((2, 3, 1, 16), F4), np.zeros(64, F4), np.zeros((1, 3, 4), F4)
    good: dict[str, Any] = {"cell": CELLS.index("lstm"), "steps": 2, "batch": 3, "size": 4, "ways": 1}
    outs, ins = [("float32", (2, 1, 3, 4)), ("float32", state.shape), ("float32", state.shape)], [x, r, None, None, state, state]
    run("recurrent", outs, ins, **good)
    for wrong in (
        {"cell": -1}, {"cell": 9}, {"steps": 3}, {"steps": -1}, {"batch": 4}, {"batch": -1}, {"size": 5}, {"size": 0}, {"size": 1 << 40},
        {"ways": 0}, {"ways": 2}, {"ways": 3}, {"cell": CELLS.index("gru")}, {"batch": 1 << 40, "steps": 0},
    ):  # fmt: skip
        refused("recurrent", outs, ins, **good | wrong)
    for place, value in (
        (0, x.astype(float)), (1, r[:-1]), (3, state), (4, state[:, :2]), (5, state.astype(np.float64)), (2, r),
    ):  # fmt: skip
        refused("recurrent", outs, [*ins[:place], value, *ins[place + 1 :]], **good)
    for lengths in (np.zeros(3, np.int64), np.zeros(2, np.int32)):
        refused("recurrent", outs, [*ins, lengths], **good)


OPERATORS = [
    ("RNN", 1, {}), ("RNN", 1, {"activations": ["Relu"]}), ("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1}), ("LSTM", 4, {}),
]  # fmt: skip


def model(
    name: str, gates: int, attributes: dict[str, Any], direction: str, size: int, constant: bool, lengths: bool, steps: int | str
) -> bytes:
    ways, rng = 2 if direction == "bidirectional" else 1, np.random.default_rng(size)
    shapes = {"W": (ways, gates * size, 6), "R": (ways, gates * size, size), "B": (ways, 2 * gates * size)}
    activations = {"activations": attributes["activations"] * ways} if "activations" in attributes else {}
    node = h.make_node(
        name, ["x", *shapes, "lengths" if lengths else "", "h"], ["y", "last", *["c"][: name == "LSTM"]], hidden_size=size,
        direction=direction, **attributes | activations,
    )  # fmt: skip
    weights = {n: rng.standard_normal(s).astype(F4) / np.sqrt(size) for n, s in shapes.items()}
    inputs = [h.make_tensor_value_info("x", T.FLOAT, [steps, "batch", 6]), h.make_tensor_value_info("h", T.FLOAT, [ways, "batch", size])]
    if lengths:
        inputs.append(h.make_tensor_value_info("lengths", T.INT32, ["batch"]))
    if not constant:
        inputs += [h.make_tensor_value_info(n, T.FLOAT, s) for n, s in shapes.items()]
    outputs = [h.make_tensor_value_info(n, T.FLOAT, None) for n in node.output]
    initial = [onnx.numpy_helper.from_array(w.astype(F4), n) for n, w in weights.items()] if constant else []
    graph = h.make_graph([node], "g", inputs, outputs, initial)
    made: bytes = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10).SerializeToString()
    return made


@pytest.mark.parametrize(("name", "gates", "attributes"), OPERATORS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("constant", "lengths"), [(True, False), (True, True), (False, True)])
def test_operators(name: str, gates: int, attributes: dict[str, Any], direction: str, constant: bool, lengths: bool) -> None:
    """One compilation for all lengths and batches, which onnxruntime gives the same numbers for."""
    size, rng, ways = 13, np.random.default_rng(3), 2 if direction == "bidirectional" else 1
    made = model(name, gates, attributes, direction, size, constant, lengths, "steps")
    ours, theirs = pyonnx_wasm.InferenceSession(made), onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    for steps, batch in ((1, 1), (7, 1), (5, 4), (3, 11)):
        feed = {"x": rng.standard_normal((steps, batch, 6)).astype(F4), "h": rng.standard_normal((ways, batch, size)).astype(F4)}
        if lengths:
            feed["lengths"] = rng.integers(1, steps + 1, batch).astype(np.int32)
        if not constant:
            shapes = {"W": (ways, gates * size, 6), "R": (ways, gates * size, size), "B": (ways, 2 * gates * size)}
            feed |= {n: (rng.standard_normal(s) / np.sqrt(size)).astype(F4) for n, s in shapes.items()}
        for got, want in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "gates", "attributes"), OPERATORS)
@pytest.mark.parametrize("steps", ["steps", 900])
def test_a_layer_is_one_step(name: str, gates: int, attributes: dict[str, Any], steps: int | str) -> None:
    compiled = compiler.compile(model(name, gates, attributes, "bidirectional", 16, True, False, steps))
    assert [n.kernel.name for n in compiled.main.nodes] == ["matmul", "recurrent"]


@pytest.mark.parametrize("attributes", [{"clip": 0.5}, {"activations": ["Sigmoid", "Tanh", "Relu"]}, {"input_forget": 1}])
def test_what_the_kernel_does_not_know_is_made_of_others(attributes: dict[str, Any]) -> None:
    compiled = compiler.compile(model("LSTM", 4, attributes, "forward", 16, True, False, 3))
    assert "recurrent" not in {n.kernel.name for n in compiled.main.nodes}
