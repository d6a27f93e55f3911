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
