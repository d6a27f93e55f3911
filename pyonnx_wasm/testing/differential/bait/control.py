"""Loops, branches and recurrent networks with constant and with run-time operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.defs

from ..operators.sequential import recurrent as recurrent_operator
from ..sketch import BOOL, FLOAT, INT64, Sketch
from . import bait
from .products import given, tail


@bait
def recurrent(m: Sketch) -> None:
    """Layers of recurrent networks with what exporters put between them."""
    m.special = False
    if m.chance(0.4):
        recurrent_operator(m, onnx.defs.get_schema(m.choice(("RNN", "GRU", "LSTM")), m.opset))
        return
    length, batch, width, hidden = m.size(1, 4), m.choice((1, m.size(1, 3))), m.integer(1, 4), m.choice((m.integer(1, 3), m.integer(1, 36)))
    x = given(m, (batch, length, width), 0)
    x = m.node("Transpose", x, perm=[1, 0, 2])
    for _ in range(m.integer(1, 2)):
        name = m.choice(("RNN", "GRU", "LSTM"))
        gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[name]
        direction = m.choice(("forward", "reverse", "bidirectional"))
        d = 2 if direction == "bidirectional" else 1
        share = m.choice((0.0, 1.0, 1.0))
        inputs = [x, given(m, (d, gates * hidden, width), share), given(m, (d, gates * hidden, hidden), share)]
        if m.chance(0.7):
            inputs.append(given(m, (d, 2 * gates * hidden), share))
        made = m.add(name, inputs, 3 if name == "LSTM" else 2, hidden_size=hidden, direction=direction)
        m.result(*(made[1:] if m.chance(0.4) else []))
        if d == 1 and m.chance(0.5):
            x = m.node("Squeeze", made[0], m.const(np.asarray([1])))
        else:
            x = m.node("Reshape", m.node("Transpose", made[0], perm=[0, 2, 1, 3]), m.const(np.asarray([0, 0, -1])))
        width = d * hidden
    m.result(m.node("Transpose", x, perm=[1, 0, 2]))


def _step(m: Sketch, body: Sketch, value: str, others: list[str], dims: tuple[int, ...]) -> str:
    """A few operations of a body on one value of these dims."""
    for _ in range(m.integer(1, 3)):
        kind = m.choice(("binary", "unary", "const", "matmul", "tail"))
        if kind == "binary":
            value = body.node(m.choice(("Add", "Sub", "Max", "Mul")), value, m.choice(others))
        elif kind == "unary":
            value = body.node(m.choice(("Tanh", "Relu", "Sigmoid", "Neg")), value)
        elif kind == "const":
            value = body.node(m.choice(("Add", "Mul")), value, body.const(body.array(FLOAT, m.choice(((), dims[-1:])), "plain", True)))
        elif kind == "matmul" and len(dims) > 1:
            n = dims[-1]
            value = body.node("MatMul", value, body.const(body.array(FLOAT, (n, n), "plain", True) * np.float32(0.5)))
        else:
            value = tail(body, value, dims, (), 1)
    return value


@bait
def loop(m: Sketch) -> None:
    """Loops that carry several values, some of growing shape, with scan outputs and early ends."""
    m.special = False
    dims = tuple(m.size(1, 3, fixed=True) for _ in range(m.integer(1, 3)))
    x, y = given(m, dims, 0.2), given(m, dims, 0.2)
    outer = [x, y, m.node(m.choice(("Relu", "Neg")), y)]
    trips = m.integer(1, 5)
    body = m.body()
    at, on = body.fresh("i"), body.fresh("on")
    carried = [body.fresh("carried") for _ in range(m.integer(1, 3))]
    grows = m.chance(0.3)
    results = []
    for index, name in enumerate(carried):
        if grows and index == 0:
            results.append(body.node("Concat", name, m.choice(outer), axis=0))
        else:
            results.append(_step(m, body, name, [*outer, *(carried[1:] if grows else carried)], dims))
    if m.chance(0.2) and len(results) > 1 and not grows:
        results = results[::-1]
    going = on
    if m.chance(0.3):
        going = body.node("Less", at, body.const(np.asarray(m.integer(0, 4))))
    elif m.chance(0.2) and not grows:
        going = body.node("Less", body.node("ReduceSum", results[-1], keepdims=0), body.const(np.float32(3)))
    body.outputs = [body.node("Identity", going), *results]
    if m.chance(0.5):
        body.outputs.append(_step(m, body, m.choice(outer), outer, dims))
    if m.chance(0.3):
        body.outputs.append(body.node("Cast", at, to=1))
    shapes = [None if grows and i == 0 else dims for i in range(len(carried))]
    graph = body.subgraph([(at, INT64, ()), (on, BOOL, ()), *((c, FLOAT, s) for c, s in zip(carried, shapes, strict=True))])
    count = m.const(np.asarray(trips)) if m.chance(0.6) else m.input(np.asarray(trips))
    cond = m.const(np.asarray(True)) if m.chance(0.5) else ""
    made = m.add("Loop", [count, cond, *(m.choice((x, y)) for _ in carried)], len(body.outputs) - 1, body=graph)
    m.result(*made)
    if m.chance(0.4):
        m.result(m.node("Tanh", made[0]))


@bait
def branches(m: Sketch) -> None:
    """Nested If on constants, inputs and computed truths, with values of outer scopes."""
    dims = m.shape(m.integer(1, 3))
    x, y = given(m, dims, 0.1), given(m, dims, 0.2)
    outer = [x, y, m.node("Abs", x)]

    def truth(s: Sketch) -> str:
        kind = m.choice(("const", "input", "computed", "not"))
        if kind == "const":
            return s.const(np.asarray(bool(m.integer(0, 1))))
        if kind == "computed":
            return s.node("Greater", s.node("ReduceMax", outer[0], keepdims=0), s.const(np.float32(0.5)))
        given_ = m.input(m.array(BOOL, ()))
        return s.node("Not", given_) if kind == "not" else given_

    def branch(s: Sketch, depth: int) -> list[str]:
        value = _step(m, s, m.choice(outer), outer, ())
        if depth and m.chance(0.5):
            return nested(s, depth - 1)
        return [value, s.node("Neg", m.choice(outer))]

    def nested(s: Sketch, depth: int) -> list[str]:
        graphs = []
        for _ in range(2):
            body = s.body()
            body.outputs = branch(body, depth)
            if len(set(body.outputs)) < 2:
                body.outputs[1] = body.node("Identity", body.outputs[0])
            graphs.append(body.subgraph())
        return s.add("If", [truth(s)], 2, then_branch=graphs[0], else_branch=graphs[1])

    made = nested(m, m.integer(0, 2))
    m.result(*made)
    m.result(m.node("Relu", made[0]))


@bait
def scan(m: Sketch) -> None:
    """A cell written as a Scan: product of the state, sum, activation; forwards and backwards."""
    m.special = False
    length, batch, width, hidden = m.size(1, 5), m.integer(1, 3), m.integer(1, 3), m.integer(1, 3)
    x, state = given(m, (length, batch, width), 0), given(m, (batch, hidden), 0.4)
    outside = m.chance(0.5)
    w, r = np.asarray(m.array(FLOAT, (width, hidden), "plain", True)), np.asarray(m.array(FLOAT, (hidden, hidden), "plain", True))
    names = [m.const(w), m.const(r)] if outside else []
    body = m.body()
    carried, item = body.fresh("state"), body.fresh("item")
    first, second = names or [body.const(w), body.const(r)]
    total = body.node("Add", body.node("MatMul", item, first), body.node("MatMul", carried, second))
    total = body.node(m.choice(("Tanh", "Relu", "Sigmoid")), total)
    body.outputs = [total, body.node("Identity", total)]
    if m.chance(0.4):
        body.outputs.append(body.node("ReduceSum", total, keepdims=m.integer(0, 1)))
    graph = body.subgraph([(carried, FLOAT, (batch, hidden)), (item, FLOAT, (batch, width))])
    count = len(body.outputs) - 1
    directions: dict[str, Any] = {"scan_input_directions": [1]} if m.chance(0.4) else {}
    directions |= {"scan_output_directions": [m.integer(0, 1) for _ in range(count)]} if m.chance(0.4) else {}
    m.result(*m.add("Scan", [state, x], 1 + count, body=graph, num_scan_inputs=1, **directions))


@bait
def constants_only(m: Sketch) -> None:
    """Scalars that are folded, beside the same at run time."""
    values: list[Any] = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.0, 3.4e38, 1e-40, -2.5]
    a, b = (np.float32(m.choice(values)) for _ in range(2))
    shape = m.choice(((), (1,), (3,)))
    unary = m.choice(("Log", "Reciprocal", "Sqrt", "Sign", "Abs", "Neg", "Exp", "Floor", "Round", "Relu", "Sigmoid", "Tanh", "Erf", "Ceil"))
    binary = m.choice(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod"))

    def chain(x: str, y: str) -> str:
        z = m.node(binary, x, y, fmod=1 if binary == "Mod" else None)
        return m.node(unary, z)

    whole = [np.full(shape, v, np.float32) for v in (a, b)]
    m.result(chain(*map(m.const, whole)))
    m.result(chain(*map(m.input, whole)))
    m.result(m.node(m.choice(("Mul", "Add", "Div", "Sub")), m.input(np.asarray([1.0, -2.0, 0.0], np.float32)), m.const(whole[0])))


@bait
def again(m: Sketch) -> None:
    """The same calls of the same values several times, others that are almost so, and readers of each in the graph and in a branch."""
    m.special = m.empty = False
    rows, width = m.size(1, 4), m.integer(2, 5)
    x, at = given(m, (rows, width), 0), m.input(m.whole_numbers(-rows, rows - 1, (m.size(1, 3),)))
    square = m.const(m.array(FLOAT, (width, width), "plain", True))

    def call(kind: str, value: str) -> str:
        if kind == "softmax":
            return m.node("Softmax", value, axis=m.choice((0, 1)))
        if kind == "sum":
            return m.node("Add", value, m.node("ReduceSum", value, m.const(np.asarray([m.choice((0, 1))])), keepdims=1))
        if kind == "product":
            return m.node("MatMul", value, square)
        if kind == "scaled":
            return m.node("Mul", value, m.const(np.float32(m.choice((0.0, -0.0, 2.0)))))
        return m.node(kind, value)

    values = [x]
    for _ in range(m.integer(1, 3)):
        kind = m.choice(("softmax", "sum", "product", "scaled", "Tanh", "Exp"))
        values = [call(kind, m.choice(values)) for _ in range(m.integer(2, 4))]
    picked = [m.node("Gather", value, at, axis=0) for value in values for _ in range(m.integer(1, 2))]
    if m.chance(0.4):
        then, other = m.body(), m.body()
        then.result(then.node("Add", m.choice(picked), m.choice(picked)))
        other.result(other.node("Sub", m.choice(picked), m.choice(picked)))
        m.result(m.node("If", m.input(np.asarray(m.chance(0.5))), then_branch=then.subgraph(), else_branch=other.subgraph()))
    m.result(m.node("Max", *picked), *m.some(picked), *m.some(values))
