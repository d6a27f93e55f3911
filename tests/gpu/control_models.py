"""Models whose sizes are data, and models with branches and loops: for every player that walks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gpu_model import Array, graph
from onnx import TensorProto, ValueInfoProto, helper

Feeds = Sequence[Mapping[str, Array]]
Model = tuple[bytes, Feeds]
X = np.linspace(-3, 3, 35, dtype=np.float32).reshape(5, 7)
node = helper.make_node


def info(name: str, dtype: int = TensorProto.FLOAT, shape: Sequence[int] | None = None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def count(n: int) -> Array:
    return np.array(n, np.int64)


def loop_body(nodes: Sequence[Any], outputs: Sequence[ValueInfoProto], carried: Sequence[str] = ("v",), go: str = "go", **held: Any) -> Any:
    """A loop's body over the trip ``i``, the condition ``go`` and carried values; the condition it gives is ``go1``."""
    inputs = [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), *(info(name) for name in carried)]
    keep = [] if go == "go1" else [node("Identity", [go], ["go1"])]
    tensors = [helper.make_tensor(name, *what) for name, what in held.items()]
    return helper.make_graph([*nodes, *keep], "body", inputs, [info("go1", TensorProto.BOOL, []), *outputs], tensors)


def positions() -> Model:
    """The counting kernel runs on the core, what comes before and after on the GPU."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["nz"]),
        node("Transpose", ["nz"], ["t"]),
        node("GatherND", ["r", "t"], ["g"]),
        node("Exp", ["g"], ["y0"]),
    ]
    return graph(nodes, {"x": X}), [{"x": x} for x in (X, X[:2], -np.abs(X), X[:1, :3], X)]


def computed_shape() -> Model:
    """A shape that the GPU computes."""
    x, shape = X[:4, :6].copy(), np.array([6, 1], np.int64)
    nodes = [node("Mul", ["s", "two"], ["s2"]), node("Reshape", ["x", "s2"], ["r"]), node("Exp", ["r"], ["y0"])]
    model = graph(nodes, {"x": x, "s": shape}, weights={"two": np.array([2, 2], np.int64)})
    return model, [{"x": x, "s": np.array(s, np.int64)} for s in ([6, 1], [1, 6], [2, 3], [6, 1])]


def two_stages() -> Model:
    """A stage that depends on a stage, and a tensor that lives across both."""
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("ReduceMax", ["a"], ["m"], keepdims=0),
        node("Cast", ["m"], ["n"], to=TensorProto.INT64),
        node("Reshape", ["n", "one"], ["n1"]),
        node("Expand", ["h", "n1"], ["e"]),
        node("ReduceSum", ["e"], ["s"], keepdims=0),
        node("Cast", ["s"], ["k"], to=TensorProto.INT64),
        node("Reshape", ["k", "one"], ["k1"]),
        node("Expand", ["q", "k1"], ["f"]),
        node("ReduceSum", ["f"], ["z"], keepdims=0),
        node("Add", ["a", "z"], ["y0"]),
        node("Exp", ["f"], ["y1"]),
    ]
    weights = {"one": np.array([1], np.int64), "h": np.array([1.75], np.float32), "q": np.array([0.25], np.float32)}
    return graph(nodes, {"x": X}, 2, weights=weights), [{"x": X * k} for k in (1, 2, 1, 3, 0.1)]


def branches() -> Model:
    """A condition that the GPU computes; branches of different lengths that capture."""
    then = helper.make_graph([node("Exp", ["x"], ["t"]), node("Add", ["t", "x"], ["o1"])], "then", [], [info("o1")])
    other = helper.make_graph([node("Slice", ["x", "zero", "two"], ["o2"])], "other", [], [info("o2")])
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "least"], ["c"]),
        node("If", ["c"], ["o"], then_branch=then, else_branch=other),
        node("Mul", ["o", "o"], ["y0"]),
    ]
    weights = {"least": np.float32(0), "zero": np.array([0], np.int64), "two": np.array([2], np.int64)}
    return graph(nodes, {"x": X}, weights=weights), [{"x": x} for x in (X + 1, X - 1, X[:3] - 1, X + 1)]


def branch_on_a_part() -> Model:
    """What a branch captures begins within its storage."""
    then = helper.make_graph([node("Neg", ["part"], ["o1"])], "then", [], [info("o1")])
    other = helper.make_graph([node("Exp", ["part"], ["o2"])], "other", [], [info("o2")])
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("Slice", ["t", "one", "three"], ["part"]),
        node("If", ["c"], ["o"], then_branch=then, else_branch=other),
        node("Add", ["o", "part"], ["y0"]),
    ]
    weights = {"one": np.array([1], np.int64), "three": np.array([3], np.int64)}
    flags = {"x": X, "c": np.array(True)}
    return graph(nodes, flags, weights=weights), [{"x": X, "c": np.array(c)} for c in (True, False)]


def counted() -> Model:
    """Trips from an input, none too; a value carried and one stacked; the loop never looks at its condition."""
    nodes = [node("Mul", ["v", "half"], ["v1"]), node("Add", ["v1", "x"], ["v2"]), node("ReduceMax", ["v2"], ["s"], keepdims=1)]
    body = loop_body(nodes, [info("v2"), info("s")], half=(TensorProto.FLOAT, [], [0.5]))
    loop = node("Loop", ["n", "", "x"], ["o", "all"], body=body)
    model = graph([loop, node("Exp", ["o"], ["y0"]), node("Neg", ["all"], ["y1"])], {"x": X, "n": count(5)}, 2)
    return model, [{"x": x, "n": count(n)} for x, n in ((X, 5), (X, 0), (X[:2], 17), (X, 5))]


def growing() -> Model:
    """A carried value that grows, a condition that the GPU computes, the trip as a number, stacked bools."""
    nodes = [
        node("Concat", ["v", "x"], ["v2"], axis=0),
        node("ReduceSum", ["v2"], ["s"], keepdims=0),
        node("Less", ["s", "most"], ["go1"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Add", ["f", "s"], ["fs"]),
        node("Greater", ["v", "zero"], ["b0"]),
        node("Slice", ["b0", "from", "to"], ["b"]),
    ]
    held = {
        "most": (TensorProto.FLOAT, [], [300.0]),
        "zero": (TensorProto.FLOAT, [], [1.0]),
        "from": (TensorProto.INT64, [1], [0]),
        "to": (TensorProto.INT64, [1], [1]),
    }
    body = loop_body(nodes, [info("v2"), info("fs"), info("b", TensorProto.BOOL)], go="go1", **held)
    after = [node("Exp", ["o"], ["y0"]), node("Neg", ["sums"], ["y1"]), node("Not", ["flags"], ["y2"])]
    loop = node("Loop", ["n", "", "x"], ["o", "sums", "flags"], body=body)
    model = graph([loop, *after], {"x": np.abs(X), "n": count(5)}, 3)
    return model, [{"x": np.abs(X), "n": count(n)} for n in (5, 0, 30, 1)]


def nested() -> Model:
    """A loop in a branch in a loop, with a size that is data inside."""
    inner = helper.make_graph(
        [node("Identity", ["go_"], ["go3"]), node("Mul", ["w", "w"], ["w1"]), node("Tanh", ["w1"], ["w2"])],
        "inner",
        [info("j", TensorProto.INT64, []), info("go_", TensorProto.BOOL, []), info("w")],
        [info("go3", TensorProto.BOOL, []), info("w2")],
    )
    then = helper.make_graph([node("Loop", ["n", "", "v"], ["o1"], body=inner)], "then", [], [info("o1")])
    other = helper.make_graph(
        [
            node("NonZero", ["v"], ["nz"]),
            node("Cast", ["nz"], ["f"], to=TensorProto.FLOAT),
            node("ReduceSum", ["f"], ["fs"], keepdims=0),
            node("Mul", ["v", "fs"], ["o2"]),
        ],
        "other",
        [],
        [info("o2")],
    )
    nodes = [
        node("ReduceSum", ["v"], ["s"], keepdims=0),
        node("Less", ["s", "most"], ["c"]),
        node("If", ["c"], ["v1"], then_branch=then, else_branch=other),
        node("Add", ["v1", "x"], ["v2"]),
    ]
    body = loop_body(nodes, [info("v2")], most=(TensorProto.FLOAT, [], [10.0]))
    x = np.abs(X[:2, :3]).copy()
    model = graph([node("Loop", ["n", "", "x"], ["o"], body=body), node("Neg", ["o"], ["y0"])], {"x": x, "n": count(3)})
    return model, [{"x": v, "n": count(n)} for v, n in ((x, 3), (x[:1] / 9, 2), (x * 4, 1), (x, 0), (x, 3))]


def on_the_core() -> Model:
    """Steps without a shader inside a loop: what is carried goes to and fro."""
    nodes = [
        node("Cast", ["v"], ["d"], to=TensorProto.DOUBLE),
        node("Sqrt", ["d"], ["r"]),
        node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        node("Add", ["f", "x"], ["v2"]),
    ]
    body = loop_body(nodes, [info("v2"), info("r", TensorProto.DOUBLE)])
    loop = node("Loop", ["n", "", "x"], ["o", "all"], body=body)
    nodes = [loop, node("Exp", ["o"], ["y0"]), node("Neg", ["all"], ["y1"])]
    x = np.abs(X)
    return graph(nodes, {"x": x, "n": count(3)}, 2), [{"x": x[:k], "n": count(n)} for k, n in ((5, 3), (2, 6), (5, 0))]


def no_trips() -> Model:
    """What a loop of no trips passes on is used when later stages have laid larger tensors where it lay."""
    nodes = [
        node("Softmax", ["x"], ["h"], axis=1),
        node("Loop", ["n", "", "h"], ["o"], body=loop_body([node("Neg", ["v"], ["v2"])], [info("v2")])),
        node("Concat", ["o", "o", "o"], ["c"], axis=0),
        node("Softmax", ["c"], ["s"], axis=0),
        node("Softmax", ["s"], ["t"], axis=1),
        node("Concat", ["t", "o"], ["y0"], axis=0),
    ]
    return graph(nodes, {"x": X, "n": count(0)}), [{"x": X[:k], "n": count(n)} for k, n in ((5, 0), (2, 0), (3, 1), (5, 0))]


def small_values() -> Model:
    """Stacked values of one byte, two bytes and none."""
    nodes = [
        node("Greater", ["v", "v_"], ["b"]),
        node("Cast", ["b"], ["h"], to=TensorProto.FLOAT16),
        node("Slice", ["h", "zero", "zero"], ["e"]),
        node("Identity", ["v_"], ["v1"]),
        node("Neg", ["v"], ["v2"]),
    ]
    held = {"zero": (TensorProto.INT64, [1], [0])}
    outputs = [info("v1"), info("v2"), info("b", TensorProto.BOOL), info("h", TensorProto.FLOAT16), info("e", TensorProto.FLOAT16)]
    body = loop_body(nodes, outputs, ("v", "v_"), **held)
    loop = node("Loop", ["n", "", "x", "z"], ["o", "p", "y0", "y1", "y2"], body=body)
    x = X[0, :3].copy()
    return graph([loop], {"x": x, "z": x[::-1].copy(), "n": count(3)}, 3), [
        {"x": x[:k], "z": x[::-1][:k].copy(), "n": count(n)} for k, n in ((3, 3), (1, 70), (2, 0), (3, 4))
    ]


def constant_table() -> Model:
    """Sizes from a table of shapes that is a constant and that no step on the GPU touches."""
    nodes = [
        node("SequenceConstruct", ["x", "x2"], ["s"]),
        node("SequenceAt", ["s", "at"], ["t"]),
        node("Neg", ["t"], ["y0"]),
    ]
    fixed = {"x": X[:2, :3].copy(), "x2": X[:1, :2].copy()}
    feeds = [fixed | {"at": np.array(i, np.int64)} for i in (0, 1, -1, -2)]
    return graph(nodes, feeds[0], symbolic=False), feeds


MODELS: list[Callable[[], Model]] = [
    positions,
    computed_shape,
    two_stages,
    branches,
    branch_on_a_part,
    counted,
    growing,
    nested,
    on_the_core,
    no_trips,
    small_values,
    constant_table,
]
