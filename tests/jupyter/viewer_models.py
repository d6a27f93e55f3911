"""Models that the viewer's tests open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HOSTILE = '<img src=x onerror="window.hacked=1">\'&\\u0000'
KINDS = ("Relu", "Sigmoid", "Tanh")


def save(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], output: str, inputs: tuple[str, ...] = ("x",)) -> None:
    """A float model of inputs ``[n, 16]``."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 16]) for name in inputs]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    stored = [numpy_helper.from_array(w, name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, path.stem, infos, outputs, stored)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]), path)


def blocks(path: Path, layers: int, name: Callable[[int, int, str], str]) -> None:
    """``layers`` blocks of 50 nodes with residuals; ``name`` gives that of node k of a block."""
    nodes: list[onnx.NodeProto] = []
    last = "x"
    for layer in range(layers):

        def add(k: int, op: str, *inputs: str, layer: int = layer) -> str:
            nodes.append(helper.make_node(op, inputs, [f"v{layer}_{k}"], name=name(layer, k, op)))
            return f"v{layer}_{k}"

        start, heads = last, []
        for head in range(3):
            v = add(10 * head, "MatMul", start, "w")
            for k in range(1, 10):
                v = add(10 * head + k, KINDS[k % 3], v)
            heads.append(v)
        v = add(31, "Softmax", add(30, "Add", heads[0], heads[1]))
        middle = v = add(33, "Add", add(32, "Mul", v, heads[2]), start)
        for k in range(34, 49):
            v = add(k, KINDS[k % 3], v)
        last = add(49, "Add", v, middle)
    save(path, nodes, {"w": np.eye(16, dtype=np.float32)}, last)


def hostile(path: Path) -> None:
    """Names that would be markup, operators that nobody knows, weights with NaN."""
    nodes = [
        helper.make_node("MatMul", ["x", HOSTILE], [f"{HOSTILE}1"], name=f"{HOSTILE}/{HOSTILE}a"),
        helper.make_node("Add", [f"{HOSTILE}1", "odd"], [f"{HOSTILE}2"], name=f"{HOSTILE}/b"),
        helper.make_node("Unheard", [f"{HOSTILE}2"], ["u"], name="unheard", domain="own", text=HOSTILE),
        helper.make_node("Relu", ["u"], ["y"], name="after"),
    ]
    odd = np.array([np.nan, np.inf, *range(14)], np.float32)
    save(path, nodes, {HOSTILE: np.eye(16, dtype=np.float32), "odd": odd}, "y")


def decoder(path: Path, layers: int) -> None:
    """A decoder with a mask for all layers and a past and a present for each."""
    nodes, past, last = [], [f"past.{k}" for k in range(layers)], "x"
    for k in range(layers):

        def add(op: str, name: str, *inputs: str, output: str | None = None, layer: int = k) -> str:
            given = output or f"{name}{layer}"
            nodes.append(helper.make_node(op, inputs, [given], name=f"/transformer/h.{layer}/{name}"))
            return given

        attended = add("Add", "attn/Add", add("MatMul", "attn/MatMul", last, "w"), past[k], output=f"present.{k}")
        sum_ = add("Add", "Add", add("Softmax", "attn/Softmax", add("Mul", "attn/Mul", attended, "mask")), last)
        last = add("Add", "Add_1", add("Relu", "mlp/Relu", sum_), sum_)
    nodes.append(helper.make_node("Identity", [last], ["y"], name="/out"))
    save(path, nodes, {"w": np.eye(16, dtype=np.float32)}, "y", ("x", "mask", *past))
    model = onnx.load(path)
    model.graph.output.extend(helper.make_tensor_value_info(f"present.{k}", TensorProto.FLOAT, ["n", 16]) for k in range(layers))
    onnx.save(model, path)


def branches(path: Path) -> None:
    """An If whose branches have two nodes each."""
    value = helper.make_tensor_value_info

    def branch(name: str, op: str) -> onnx.GraphProto:
        first = helper.make_node(op, ["x"], [f"{name}1"], name=f"{name}_first")
        second = helper.make_node("Neg", [f"{name}1"], [name], name=f"{name}_second")
        return helper.make_graph([first, second], name, [], [value(name, TensorProto.FLOAT, ["n"])])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], name="sum", keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["condition"], name="positive"),
        helper.make_node("If", ["condition"], ["y"], name="choose", then_branch=branch("t", "Relu"), else_branch=branch("e", "Abs")),
    ]
    faces = [[value(name, TensorProto.FLOAT, ["n"])] for name in "xy"]
    graph = helper.make_graph(nodes, "branches of one", *faces, [numpy_helper.from_array(np.float32(0), "zero")], doc_string="two ways")
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]), path)


def varied(source: Path, path: Path) -> None:
    """The model with another pool, other contents of one weight, and one node more."""
    model = onnx.load(source)
    pool = next(n for n in model.graph.node if n.op_type == "MaxPool")
    pool.op_type = "AveragePool"
    for attribute in [a for a in pool.attribute if a.name in ("dilations", "storage_order")]:
        pool.attribute.remove(attribute)
    weight = next(w for w in model.graph.initializer if w.name == "model.head.weight")
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 2, weight.name))
    last = model.graph.node[-1]
    given = last.output[0]
    last.output[0] = "between"
    model.graph.node.append(helper.make_node("Identity", ["between"], [given], name="more"))
    onnx.save(model, path)
