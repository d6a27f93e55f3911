"""Random small graphs of what passes look for: optimised against not, and both against onnxruntime; NaN and infinities among the inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyonnx_wasm as ort

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Identity", "Softsign", "HardSwish", "Elu", "LeakyRelu", "Exp")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 6.0, 1e-5, np.inf, -np.inf)


class Builder:
    """Nodes over values of known shape; the same value is often taken twice, the same operation often done twice."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.shapes: dict[str, Shape] = {}
        self.inputs: dict[str, Shape] = {}

    def pick(self, items: Any) -> Any:
        items = list(items)
        return items[int(self.rng.integers(len(items)))]

    def input(self, shape: Shape) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.shapes[name] = shape
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def floats(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape).astype(np.float32))

    def node(self, op: str, ins: list[str], shape: Shape, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, ins, [name], **attributes))
        self.shapes[name] = shape
        return name

    def value(self, shape: Shape | None = None) -> str:
        """One of the latest values, of a shape if one is given."""
        fitting = [n for n, s in self.shapes.items() if shape is None or s == shape]
        return str(self.pick(fitting[-4:])) if fitting else self.input(shape or (2, 3))

    def unary(self) -> None:
        x, op = self.value(), self.pick(UNARY)
        for _ in range(self.pick((1, 1, 2))):
            x = self.node(op, [x], self.shapes[x])

    def binary(self) -> None:
        x, op = self.value(), self.pick(BINARY)
        shape = self.shapes[x]
        row, channel = shape[-1:], (*shape[1:2], *[1] * (len(shape) - 2))
        kinds: list[Callable[[], str]] = [
            lambda: x,
            lambda: self.value(shape),
            lambda: self.floats(*row),
            lambda: self.floats(*channel),
            lambda: self.constant(np.full([1] * self.pick((0, 0, 1, 2)), self.pick(NUMBERS), np.float32)),
        ]
        other = self.pick(kinds)()
        for _ in range(self.pick((1, 1, 2))):
            if np.broadcast_shapes(self.shapes.get(other, self.constants.get(other, np.zeros(())).shape), shape) != shape:
                return
            x = self.node(op, self.pick(([x, other], [other, x])), shape)

    def clip(self) -> None:
        x = self.value()
        self.node("Clip", [x, self.constant(np.float32(self.pick((0, -1)))), self.constant(np.float32(self.pick((1, 6))))], self.shapes[x])

    def silu(self) -> None:
        x = self.value()
        self.node("Mul", [x, self.node("Sigmoid", [x], self.shapes[x])], self.shapes[x])

    def product(self) -> None:
        x = self.value()
        shape = self.shapes[x]
        if len(shape) == 4 and self.rng.random() < 0.7:
            m = int(self.pick((shape[1], 3)))
            self.node("Conv", [x, self.floats(m, shape[1], 1, 1)], (shape[0], m, *shape[2:]))
        elif len(shape) > 1:
            n = int(self.pick((shape[-1], 3)))
            self.node("MatMul", [x, self.floats(shape[-1], n)], (*shape[:-1], n))

    def constant_product(self) -> None:
        x = self.value()
        if len(shape := self.shapes[x]) == 2:
            self.node("Add", [self.node("MatMul", [self.floats(shape[0], 3), self.floats(3, shape[1])], shape), x], shape)

    def concat(self) -> None:
        x = self.value()
        shape, axis = self.shapes[x], int(self.rng.integers(len(self.shapes[x])))
        others = [x, *(self.value(shape) for _ in range(self.pick((1, 2))))]
        if shape[axis] < 8:
            self.node("Concat", others, (*shape[:axis], shape[axis] * len(others), *shape[axis + 1 :]), axis=axis)

    def norm(self) -> None:
        x = self.value()
        shape = self.shapes[x]
        kept = (*shape[:-1], 1)
        d = x
        if self.rng.random() < 0.7:
            d = self.node("Sub", [x, self.node("ReduceMean", [x], kept, axes=[-1])], shape)
        square = self.node("Mul", [d, d], shape) if self.rng.random() < 0.5 else self.node("Pow", [d, self.constant(np.float32(2))], shape)
        spread = self.node("Sqrt", [self.node("Add", [self.node("ReduceMean", [square], kept, axes=[-1]), self.eps()], kept)], kept)
        y = self.node("Div", [d, spread], shape)
        if self.rng.random() < 0.5:
            y = self.node("Add", [self.node("Mul", [y, self.floats(shape[-1])], shape), self.floats(shape[-1])], shape)

    def eps(self) -> str:
        """Large, so that a row of equal elements does not blow rounding up."""
        return self.constant(np.float32(1e-2))

    def attention(self) -> None:
        x = self.value()
        shape = self.shapes[x]
        if len(shape) < 3:
            return
        perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        square = (*shape[:-1], shape[-2])
        y = self.node("Transpose", [x], (*shape[:-2], shape[-1], shape[-2]), perm=perm)
        y = self.node("MatMul", [x, y], square)
        if self.rng.random() < 0.6:
            y = self.node("Mul", [y, self.constant(np.float32(0.5))], square)
        if self.rng.random() < 0.5:
            y = self.node("Add", [y, self.input((shape[-2], shape[-2]))], square)
        y = self.node("MatMul", [self.node("Softmax", [y], square, axis=-1), x], shape)
        if len(shape) == 4 and self.rng.random() < 0.5:
            self.node("Transpose", [y], (shape[0], shape[2], shape[1], shape[3]), perm=[0, 2, 1, 3])

    def moved(self) -> None:
        x = self.value()
        shape = self.shapes[x]
        if self.rng.random() < 0.5:
            perm = [int(p) for p in self.rng.permutation(len(shape))]
            self.node("Transpose", [x], tuple(shape[p] for p in perm), perm=perm)
        else:
            to = (shape[0] * shape[1], *shape[2:]) if len(shape) > 2 else (1, *shape)
            self.node("Reshape", [x, self.constant(np.array(to))], to)

    def build(self) -> bytes:
        self.input(self.pick([(6,), (1, 5), (3, 4), (1, 3, 4), (2, 3, 4), (1, 2, 3, 4), (2, 3, 2, 4)]))
        steps = [self.unary, self.binary, self.binary, self.clip, self.silu, self.product, self.product, self.constant_product, self.concat]
        steps += [self.norm, self.attention, self.moved]
        for _ in range(int(self.rng.integers(2, 11))):
            self.pick(steps)()
        self.unary()
        read = {i for n in self.nodes for i in n.input}
        ends = [n for n in self.shapes if n not in read and n not in self.inputs]
        more = [n for n in self.shapes if n in read and n not in self.inputs and self.rng.random() < 0.05]
        used = {n: s for n, s in self.inputs.items() if n in read}
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in used.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ends + more],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items() if n in read],
        )
        self.inputs = used
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()

    def feed(self, hostile: bool) -> dict[str, Array]:
        found = {}
        for name, shape in self.inputs.items():
            x = self.rng.standard_normal(shape).astype(np.float32)
            if hostile:
                x[self.rng.random(shape) < 0.2] = self.pick((np.nan, np.inf, -np.inf, 0.0, -0.0))
            found[name] = x
        return found


def differences(got: Array, want: Array, nearby: list[Array], slack: float = 1.0) -> Array:
    """Where two results differ by more than rounding, judged by how far results ``nearby`` are from ``want``."""
    with np.errstate(all="ignore"):
        scale = np.max(np.abs(want), where=np.isfinite(want), initial=0.1)
        noise = np.max([np.abs(n - want) for n in nearby], axis=0)
        settled = np.all([np.isfinite(n) == np.isfinite(want) for n in nearby], axis=0) & ~(noise > 1e-2 * np.abs(want) + 1e-3)
        close = np.abs(got - want) <= slack * (1e-5 * scale + 1e-4 * np.abs(want) + 20 * noise)
        special = (got == want) | (np.isnan(got) & np.isnan(want))
    return settled & ~(close | special)


def check(seed: int) -> None:
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    quiet.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    builder = Builder(seed)
    data = builder.build()
    plain, fused = (ort.InferenceSession(data, ort.SessionOptions(enable_optimisation=o)) for o in (False, True))
    oracle = onnxruntime.InferenceSession(data, quiet, providers=["CPUExecutionProvider"])
    for kind in ("plain", "hostile"):
        feed = builder.feed(kind == "hostile")
        other = [{n: x * (1 + builder.rng.uniform(-3e-7, 3e-7, x.shape)).astype(np.float32) for n, x in feed.items()} for _ in range(3)]
        nearby = [plain.run(None, f) for f in other]
        given = [plain.run(None, feed), fused.run(None, feed), oracle.run(None, feed)]
        for i, name in enumerate(o.name for o in oracle.get_outputs()):
            want, got, theirs = (g[i] for g in given)
            around = [n[i] for n in nearby]
            near = [*around, theirs] if kind == "plain" else around
            assert not differences(got, want, near).any(), f"seed {seed}, {kind}, {name}: with optimisation {got}, without {want}"
            if kind == "plain":
                far = differences(theirs, want, around, 20) & ~(np.abs(want) > 100)  # their sigmoid is 0 no sooner than at -18
                assert not far.any(), f"seed {seed}, {name}: without optimisation {want}, theirs {theirs}"


@pytest.mark.parametrize("block", range(10))
def test_random_graphs(block: int) -> None:
    for seed in range(40 * block, 40 * block + 40):
        check(seed)
