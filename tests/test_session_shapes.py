"""Sessions whose inputs say less, or more, of their shapes than a run keeps to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from pyonnx_wasm import InferenceSession, compiler
from pyonnx_wasm.ir import NeedsShape, NeedsSizes
from pyonnx_wasm.runtimes.core import CoreError


def model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[str], held: dict[str, Any] | None = None) -> bytes:
    infos = [i if isinstance(i, onnx.ValueInfoProto) else helper.make_tensor_value_info(*i) for i in inputs]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    stored = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (held or {}).items()]
    graph = helper.make_graph(nodes, "g", infos, results, stored)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString())


def agree(data: bytes, feed: dict[str, Any], session: InferenceSession) -> None:
    want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)
    for g, w in zip(session.run(None, feed), want, strict=True):
        np.testing.assert_allclose(g, w, 1e-5, 1e-6)


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


F, B = TensorProto.FLOAT, TensorProto.BOOL


def test_axes_of_one_name_that_differ() -> None:
    """Nothing ties the two together: any sizes run, and equal ones as before."""
    data = model(
        [helper.make_node("Relu", ["a"], ["x"]), helper.make_node("Neg", ["b"], ["y"])],
        [("a", F, ["n", 3]), ("b", F, ["n", 4])],
        ["x", "y"],
    )
    session = InferenceSession(data)
    for n, m in ((2, 2), (2, 5), (5, 5), (0, 3), (7, 2)):
        agree(data, {"a": ones(n, 3), "b": ones(m, 4)}, session)


def test_axes_of_one_name_that_broadcast() -> None:
    data = model([helper.make_node("Add", ["a", "b"], ["x"])], [("a", F, ["n", "m"]), ("b", F, ["n", "m"])], ["x"])
    session = InferenceSession(data)
    for a, b in (((3, 4), (3, 4)), ((3, 1), (3, 4)), ((1, 4), (5, 4)), ((5, 1), (1, 6))):
        agree(data, {"a": ones(*a), "b": ones(*b)}, session)
    with pytest.raises((ValueError, CoreError), match="broadcast"):
        session.run(None, {"a": ones(3, 4), "b": ones(2, 4)})


def test_equal_names_still_prove_what_they_prove() -> None:
    graph = compiler.compile(model([helper.make_node("Add", ["a", "b"], ["x"])], [("a", F, ["n", "m"]), ("b", F, ["n", "m"])], ["x"])).graph
    assert graph is not None
    assert not graph.checks


def merged(halves: bool = False) -> bytes:
    """As decoders with a cache are exported: one branch makes the cache, the other reads the one that is given, or what it is cast to."""
    cache = "cast" if halves else "cache"
    held = [helper.make_node("Identity", [cache], ["k1"]), helper.make_node("MatMul", ["mask", cache], ["o1"])]
    fresh = [helper.make_node("MatMul", ["hidden", "w"], ["k2"]), helper.make_node("MatMul", ["mask", "k2"], ["o2"])]

    def branch(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> onnx.GraphProto:
        return helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info(o, F, None) for o in outputs])

    node = helper.make_node("If", ["use"], ["out", "key"], then_branch=branch(held, ["o1", "k1"]), else_branch=branch(fresh, ["o2", "k2"]))
    inputs = [
        ("use", B, [1]),
        ("mask", F, ["batch", 1, "length"]),
        ("hidden", F, ["batch", "length", 3]),
        ("cache", F, ["batch", "length", 5]),
    ]
    used = [helper.make_node("Identity", ["mask"], ["echo"]), helper.make_node("Neg", ["hidden"], ["same"])]
    cast = [
        helper.make_node("Cast", ["cache"], ["half"], to=TensorProto.FLOAT16, name="half"),
        helper.make_node("Cast", ["half"], ["cast"], to=F),
    ]
    return model([*(cast if halves else []), node, *used], inputs, ["out", "key", "echo", "same"], {"w": ones(3, 5)})


@pytest.mark.parametrize("halves", [False, True])
def test_an_empty_cache_beside_full_inputs(halves: bool) -> None:
    data = merged(halves)
    session = InferenceSession(data)
    for batch, n in ((2, 4), (1, 7)):
        feed = {"mask": ones(batch, 1, n), "hidden": ones(batch, n, 3)}
        agree(data, feed | {"use": np.array([False]), "cache": ones(batch, 0, 5)}, session)
        agree(data, feed | {"use": np.array([True]), "cache": ones(batch, n, 5)}, session)
        with pytest.raises((ValueError, CoreError), match="axis 1 must be length"):
            session.run(None, feed | {"use": np.array([True]), "cache": ones(batch, n + 1, 5)})
    assert len(session._variants) == 1


@pytest.mark.parametrize("halves", [False, True])
def test_sizes_are_demanded_where_they_are_used(halves: bool) -> None:
    """The branch that reads an input demands what its names say; the other branch does not."""
    for use in (False, True):
        graph = compiler.compile(merged(halves), constants={"use": np.array([use])}).graph
        assert graph is not None
        assert any("cache" in text for _, text in graph.checks) == use


def test_inputs_without_a_shape() -> None:
    """The rank comes with the first run; each rank is compiled once."""
    unknown = [helper.make_tensor_value_info(n, F, None) for n in "ab"]
    data = model([helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Softmax", ["s"], ["x"])], unknown, ["x"])
    session = InferenceSession(data)
    assert [i.shape for i in session.get_inputs()] == [[], []]
    for a, b in (((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 3, 4), (1, 4)), ((5, 2), (5, 2)), ((1,), (6,)), ((0, 3), (3,))):
        agree(data, {"a": ones(*a), "b": ones(*b)}, session)
    assert len(session._variants) == 4  # ranks (2, 2), (2, 1), (3, 2), (1, 1)


def test_some_inputs_without_a_shape_and_unnamed_axes() -> None:
    inputs = [("a", F, ["n", None]), helper.make_tensor_value_info("b", TensorProto.INT64, None)]
    data = model([helper.make_node("Reshape", ["a", "b"], ["x"]), helper.make_node("Cast", ["b"], ["y"], to=F)], inputs, ["x", "y"])
    session = InferenceSession(data)
    for shape in ([-1], [2, -1], [4, 3], [2, 3, 2]):
        agree(data, {"a": ones(4, 3), "b": np.array(shape)}, session)
    with pytest.raises(NeedsShape, match="give one: shapes="):
        compiler.compile(data)
    assert compiler.compile(data, shapes={"b": [2]}).inputs[1].shape == (2,)


def test_one_program_runs_both_branches() -> None:
    """Without another compile: the branch that reads the cache has the demand, in a Program of its own."""
    session = InferenceSession(merged())
    feed = {"mask": ones(2, 1, 4), "hidden": ones(2, 4, 3)}
    session.run(None, feed | {"use": np.array([False]), "cache": ones(2, 0, 5)})
    session.run(None, feed | {"use": np.array([True]), "cache": ones(2, 4, 5)})
    assert list(session._variants) == [()]


def squeezed(x: str, axis: int, y: str, held: dict[str, Any]) -> list[onnx.NodeProto]:
    """``squeeze`` of an axis that may have more than one element, as PyTorch's TorchScript exporter writes it."""
    held |= {"one": np.array([1]), f"{y}.axis": np.array([axis]), f"{y}.next": np.array([axis + 1])}
    branches = [
        helper.make_graph(
            [helper.make_node(kind, [x, *more], [f"{y}.{kind}"])], kind, [], [helper.make_empty_tensor_value_info(f"{y}.{kind}")]
        )
        for kind, *more in (("Squeeze", f"{y}.axis"), ("Identity",))
    ]
    return [
        helper.make_node("Shape", [x], [f"{y}.shape"]),
        helper.make_node("Slice", [f"{y}.shape", f"{y}.axis", f"{y}.next"], [f"{y}.size"]),
        helper.make_node("ReduceMax", ["one"], [f"{y}.one"], keepdims=1),
        helper.make_node("Equal", [f"{y}.size", f"{y}.one"], [f"{y}.is"]),
        helper.make_node("If", [f"{y}.is"], [y], then_branch=branches[0], else_branch=branches[1]),
    ]


@pytest.mark.parametrize("name", ["n", None])
@pytest.mark.parametrize("computed", [False, True])
def test_ranks_that_hang_on_sizes(name: str | None, computed: bool) -> None:
    """Each size is compiled for; who compiles without a session is told which size to give."""
    held: dict[str, Any] = {}
    nodes = [*squeezed("x", 0, "y", held), helper.make_node("Neg", ["y"], ["z"])]
    if not computed:
        nodes[3].input[1] = "one"
    data = model(nodes, [("x", F, [name, "m"])], ["z"], held)
    session = InferenceSession(data)
    for shape in ((1, 4), (3, 4), (1, 7), (2, 2), (1, 1)):
        agree(data, {"x": ones(*shape)}, session)
    symbol = name or "x[0]"
    with pytest.raises(NeedsSizes, match=r"node 'If_4' \(If\): the branches give .* give the size") as told:
        compiler.compile(data)
    assert told.value.symbols == (symbol,)
    assert len(compiler.compile(data, sizes={symbol: 1}).outputs[0].shape) == 1
    assert len(compiler.compile(data, sizes={symbol: 5}).outputs[0].shape) == 2


def test_ranks_that_hang_on_sizes_of_several_inputs() -> None:
    held: dict[str, Any] = {}
    nodes = [*squeezed("a", 1, "x", held), *squeezed("b", 0, "y", held), helper.make_node("Mul", ["x", "y"], ["z"])]
    data = model(nodes, [("a", F, ["m", "n"]), ("b", F, ["k", "m"])], ["z"], held)
    session = InferenceSession(data)
    for a, b in (((4, 1), (1, 4)), ((4, 4), (4, 4)), ((4, 4), (1, 4)), ((4, 1), (4, 4))):
        agree(data, {"a": ones(*a), "b": ones(*b)}, session)


def test_ranks_that_hang_on_contents_are_refused() -> None:
    held: dict[str, Any] = {}
    nodes = squeezed("x", 0, "y", held)
    nodes[-1].input[0] = "c"
    data = model(nodes, [("x", F, ["n", "m"]), ("c", B, [1])], ["y"], held)
    with pytest.raises(ValueError, match="rank must agree where the condition is data"):
        InferenceSession(data)
