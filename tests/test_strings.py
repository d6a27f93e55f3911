"""Strings as inputs, outputs, constants and in between, on the native core and in wasmtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pyonnx_wasm as ort

Array = np.ndarray[Any, Any]
HOSTILE = ["", "a", "\0", "a\0b", "é", "日本語", "𝄞", "\ufeffx", "a" * 70_000, " ", "ab", "\U0010ffff", "b", "e\u0301"]


def objects(items: Any) -> Array:
    return np.array(items, object)


def model(
    nodes: Sequence[Any], inputs: Mapping[str, Sequence[int | str]], outputs: Sequence[str], constants: Sequence[Any] = (), opset: int = 21
) -> bytes:
    """Inputs are strings but those whose name begins with ``i``, int64, or with ``b``, bool."""
    kinds = {"i": TensorProto.INT64, "b": TensorProto.BOOL}
    infos = [helper.make_tensor_value_info(n, kinds.get(n[0], TensorProto.STRING), s) for n, s in inputs.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info(o) for o in outputs], list(constants))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 4)], ir_version=10)
    return bytes(made.SerializeToString())


def strings(name: str, items: Array) -> Any:
    made = TensorProto(name=name, data_type=TensorProto.STRING, dims=items.shape)
    made.string_data.extend(s.encode() for s in items.reshape(-1))  # helper.make_tensor takes trailing NULs away
    return made


def sessions(data: bytes) -> list[ort.InferenceSession]:
    options = [ort.SessionOptions(enable_optimisation=on, intra_op_num_threads=1) for on in (True, False)]
    return [ort.InferenceSession(data, o, providers=[p]) for p in ("cpu", "wasmtime") for o in options]


def same(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tolist() == want.tolist()


def sample(*shape: int, seed: int = 0) -> Array:
    return objects(HOSTILE)[np.random.default_rng((seed, *shape)).integers(0, len(HOSTILE), shape)]


SHAPES: list[tuple[int, ...]] = [(3, 4), (1, 1), (0, 4), (5, 0), (2, 17), (7, 3)]


def test_what_goes_in_comes_out() -> None:
    """Every way to say strings: objects, numpy's own dtypes, bytes, lists, a scalar, values, other shapes in the same session."""
    data = model([helper.make_node("Identity", ["x"], ["y"])], {"x": ["n", "m"]}, ["y"])
    for session in sessions(data):
        assert [session.get_inputs()[0].type, session.get_outputs()[0].type] == ["tensor(string)"] * 2
        for shape in SHAPES:
            same(session.run(None, {"x": sample(*shape)})[0], sample(*shape))
        for given in ([["a", "é"]], np.array([["a", "é"]]), np.char.encode([["a", "é"]], "utf-8"), objects([[b"a", "é".encode()]])):
            same(session.run(None, {"x": given})[0], objects([["a", "é"]]))
        same(session.run(None, {"x": [["a\0", "\0"]]})[0], objects([["a\0", "\0"]]))
    scalar = model([helper.make_node("Identity", ["x"], ["y"])], {"x": []}, ["y"])
    same(ort.InferenceSession(scalar).run(None, {"x": objects("q")})[0], objects("q"))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([["a", None]], "input 'x' takes strings, element 1 is None"),
        ([["a", 3]], "input 'x' takes strings, element 1 is 3"),
        ([["\ud800", "a"]], "input 'x': element 0 holds a lone surrogate at character 0"),
        ([["a", b"b\xff"]], "input 'x': element 1 is no UTF-8: invalid start byte at byte 1"),
        (np.ones((1, 2)), "input 'x' takes string, got float64"),
    ],
)
def test_what_is_no_string_is_named(bad: Any, said: str) -> None:
    for session in sessions(model([helper.make_node("Identity", ["x"], ["y"])], {"x": ["n", "m"]}, ["y"])):
        with pytest.raises(ValueError, match=said):
            session.run(None, {"x": bad})


def test_strings_where_numbers_belong() -> None:
    plain = ort.InferenceSession(model([helper.make_node("Neg", ["i"], ["y"])], {"i": ["n"]}, ["y"]))
    with pytest.raises(ValueError, match="input 'i' takes int64, got"):
        plain.run(None, {"i": objects(["a"])})
    for node, said in (
        (helper.make_node("Neg", ["x"], ["y"], name="n"), r"node 'n' \(Neg\): input 'X': strings are not supported here"),
        (helper.make_node("Equal", ["x", "i"], ["y"], name="n"), r"node 'n' \(Equal\): input 'B' takes strings, it is .*i64\[n\]"),
        (helper.make_node("Where", ["b", "x", "i"], ["y"], name="n"), r"node 'n' \(Where\): input 'Y' is .*i64\[n\], others are strings"),
        (helper.make_node("Gather", ["i", "x"], ["y"], name="n"), r"node 'n' \(Gather\): input 'indices': strings are not supported here"),
        (helper.make_node("ScatterElements", ["x", "i", "x"], ["y"], name="n", reduction="add"), "reduction 'add' of strings"),
    ):
        with pytest.raises(ValueError, match=said):
            ort.InferenceSession(model([node], {"x": ["n"], "i": ["n"], "b": ["n"]}, ["y"]))


def test_equal_and_concat_over_broadcasts() -> None:
    nodes = [helper.make_node("Equal", ["x", "z"], ["e"]), helper.make_node("StringConcat", ["x", "z"], ["y"])]
    for session in sessions(model(nodes, {"x": ["n", "m"], "z": ["k"]}, ["e", "y"])):
        for shape in SHAPES:
            for size in {1, shape[1]}:
                x, z = sample(*shape), sample(size, seed=1)
                equal, joined = session.run(None, {"x": x, "z": z})
                same(equal, np.asarray(x == z, bool))
                same(joined, np.asarray(x + z, object))


MOVES: dict[str, tuple[Any, Any]] = {
    "Transpose": (helper.make_node("Transpose", ["x"], ["y"]), lambda x: x.T),
    "Reshape": (helper.make_node("Reshape", ["x", "minus"], ["y"]), lambda x: x.reshape(-1)),
    "Flatten": (helper.make_node("Flatten", ["x"], ["y"], axis=0), lambda x: x.reshape(1, -1)),
    "Unsqueeze": (helper.make_node("Unsqueeze", ["x", "one"], ["y"]), lambda x: x[:, None]),
    "Slice": (helper.make_node("Slice", ["x", "minus", "least", "one", "minus"], ["y"]), lambda x: x[:, ::-1]),
    "Concat": (helper.make_node("Concat", ["x", "x", "table"], ["y"], axis=0), lambda x: np.concatenate([x, x, TABLE[:, : x.shape[1]]])),
    "Tile": (helper.make_node("Tile", ["x", "two"], ["y"]), lambda x: np.tile(x, (2, 2))),
    "Pad": (helper.make_node("Pad", ["x", "pads", "word"], ["y"]), lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values="日本")),
    "Pad without": (helper.make_node("Pad", ["x", "pads"], ["y"]), lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values="")),
    "Trilu": (helper.make_node("Trilu", ["x"], ["y"]), lambda x: np.where(np.triu(np.ones(x.shape, bool)), x, "")),
    "Expand": (helper.make_node("Expand", ["x", "three"], ["y"]), lambda x: np.broadcast_to(x, (2, *x.shape))),
    "GatherElements": (helper.make_node("GatherElements", ["x", "zeros"], ["y"]), lambda x: x[:1, :1]),
    "Split": (helper.make_node("Split", ["x"], ["y", "rest"], axis=1, num_outputs=2), lambda x: x[:, : -(-x.shape[1] // 2)]),
    "ScatterND": (helper.make_node("ScatterND", ["x", "zeros", "word2"], ["y"]), lambda x: _scattered(x)),
    "OneHot": (helper.make_node("OneHot", ["zeros", "depth", "onoff"], ["y"]), lambda x: objects([[["yes", "no"]]])),
    "Where": (helper.make_node("Where", ["mask", "x", "word"], ["y"]), lambda x: np.where([[True]], x, "日本")),
}
TABLE = objects([["t", "日本", "", "u" * 300] * 5])


def _scattered(x: Array) -> Array:
    y = x.copy()
    y[0, 0] = "日本"
    return y


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    node, want = MOVES[name]
    whole = {"minus": [-1], "one": [1], "least": [-(1 << 62)], "two": [2, 2], "pads": [1, 0, 0, 2], "three": [2, 1, 1], "depth": [2]}
    width = 4
    constants = [helper.make_tensor(k, TensorProto.INT64, [len(v)], v) for k, v in whole.items()]
    constants += [
        helper.make_tensor("zeros", TensorProto.INT64, [1, 1] if name != "ScatterND" else [1, 2], [0] if name != "ScatterND" else [0, 0])
    ]
    constants += [strings("table", TABLE[:, :width]), strings("word", objects("日本")), strings("word2", objects(["日本"]))]
    constants += [strings("onoff", objects(["no", "yes"])), helper.make_tensor("mask", TensorProto.BOOL, [1, 1], [True])]
    for session in sessions(model([node], {"x": ["n", width]}, ["y"], constants)):
        for rows in (3, 1, 7):
            x = sample(rows, width)
            same(session.run(None, {"x": x})[0], objects(want(x)))


def test_pools_come_together_once() -> None:
    """A table and an input, gathered, compressed, joined and split again: what comes out is right and holds its own bytes alone."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["picked"]),
        helper.make_node("Concat", ["picked", "x"], ["both"], axis=0),
        helper.make_node("Compress", ["both", "b"], ["kept"], axis=0),
        helper.make_node("StringConcat", ["kept", "kept"], ["twice"]),
        helper.make_node("Where", ["same", "twice", "kept"], ["y"]),
        helper.make_node("Equal", ["kept", "x0"], ["same"]),
        helper.make_node("Shape", ["y"], ["shape"]),
    ]
    nodes[4], nodes[5] = nodes[5], nodes[4]
    table = objects(HOSTILE)
    data = model(nodes, {"i": ["k"], "x": ["n"], "b": ["all"], "x0": []}, ["y", "shape", "picked"], [strings("table", table)])
    for session in sessions(data):
        for k, n in ((3, 2), (0, 5), (5, 0), (14, 14)):
            rng = np.random.default_rng((k, n))
            at, x, keep = rng.integers(0, len(HOSTILE), k), sample(n, seed=2), rng.integers(0, 2, k + n).astype(bool)
            kept = np.concatenate([table[at], x])[keep]
            y, shape, picked = session.run(None, {"i": at, "x": x, "b": keep, "x0": objects("")})
            same(y, objects([s + s if s == "" else s for s in kept]).reshape(-1))
            assert shape.tolist() == [len(kept)]
            same(picked, table[at])


def test_constants_by_attribute() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value_strings=["ä", ""]),
        helper.make_node("Constant", [], ["d"], value_string="z"),
        helper.make_node("Constant", [], ["t"], value=strings("t", objects([["q", "r"]]))),
        helper.make_node("StringConcat", ["c", "d"], ["cd"]),
        helper.make_node("StringConcat", ["cd", "t"], ["y"]),
    ]
    for session in sessions(model(nodes, {}, ["y"])):
        same(session.run(None, {})[0], objects([["äzq", "zr"]]))


def test_initializers_are_named_where_they_are_no_utf8() -> None:
    bad = helper.make_tensor("t", TensorProto.STRING, [1], [b"\xff"])
    with pytest.raises(ValueError, match="constant 't': element 0 holds a lone surrogate"):
        ort.InferenceSession(model([helper.make_node("Identity", ["t"], ["y"])], {}, ["y"], [bad]))


def test_a_compiled_file_holds_them(tmp_path: Any) -> None:
    from pyonnx_wasm.compiler import compile
    from pyonnx_wasm.program import file

    nodes = [helper.make_node("StringConcat", ["x", "t"], ["y"]), helper.make_node("Equal", ["x", "t"], ["e"])]
    compiled = compile(model(nodes, {"x": ["n"]}, ["y", "e"], [strings("t", objects("ß"))]), gpu=True)
    assert "strings" in compiled.on_core
    file.save(compiled, tmp_path / "m.ponnx")
    for provider in ("cpu", "wasmtime"):
        session = ort.InferenceSession(tmp_path / "m.ponnx", providers=[provider])
        same(session.run(["y"], {"x": ["a", "ß"]})[0], objects(["aß", "ßß"]))
        assert session.run(["e"], {"x": ["a", "ß"]})[0].tolist() == [False, True]


def branch(name: str, nodes: Sequence[Any], output: str) -> Any:
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(output)])


def test_branches_give_and_capture_strings() -> None:
    then = branch("then", [helper.make_node("StringConcat", ["x", "t"], ["a"])], "a")
    other = branch("other", [helper.make_node("Gather", ["t2", "i"], ["b"])], "b")
    node = helper.make_node("If", ["b"], ["y"], then_branch=then, else_branch=other)
    data = model([node], {"b": [], "x": ["n"], "i": ["m"]}, ["y"], [strings("t", objects("é")), strings("t2", objects(HOSTILE))])
    for session in sessions(data):
        for _ in range(2):
            same(session.run(None, {"b": np.array(True), "x": ["a", ""], "i": np.array([1])})[0], objects(["aé", "é"]))
            same(session.run(None, {"b": np.array(False), "x": ["a"], "i": np.array([8, 2, 0])})[0], objects(HOSTILE)[[8, 2, 0]])


def loop(trips: str, nodes: Sequence[Any], carried: Sequence[str], given: Sequence[str]) -> Any:
    inputs = [helper.make_tensor_value_info("k", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, [])]
    inputs += [helper.make_tensor_value_info(f"{c}_in", TensorProto.STRING, None) for c in carried]
    nodes = [*nodes, helper.make_node("Identity", ["go"], ["on"])]
    outputs = [helper.make_empty_tensor_value_info(n) for n in ["on", *[f"{c}_out" for c in carried], *given]]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    return helper.make_node(
        "Loop", [trips, "", *carried], [*[f"{c}_last" for c in carried], *[f"{g}_all" for g in given]], body=body, name="l"
    )


def test_loops_carry_strings() -> None:
    """Strings that grow, of as many more elements as steps, whose number is data; what is dropped does not stay."""
    nodes = [
        helper.make_node("StringConcat", ["x_in", "t"], ["longer"]),
        helper.make_node("Concat", ["longer", "y"], ["x_out"], axis=0),
    ]
    data = model([loop("i", nodes, ["x"], [])], {"i": [1], "x": ["n"], "y": ["m"]}, ["x_last"], [strings("t", objects("é"))])
    for session in sessions(data):
        for trips in (0, 1, 3, 40):
            want, y = ["a", ""], ["q", "\0"]
            for _ in range(trips):
                want = [w + "é" for w in want] + y
            same(session.run(None, {"i": np.array([trips]), "x": ["a", ""], "y": y})[0], objects(want))


def test_loops_stack_strings() -> None:
    nodes = [helper.make_node("StringConcat", ["x_in", "x_in"], ["x_out"]), helper.make_node("Identity", ["x_in"], ["s"])]
    three = helper.make_tensor("three", TensorProto.INT64, [], [3])
    for session in sessions(model([loop("three", nodes, ["x"], ["s"])], {"x": ["n"]}, ["x_last", "s_all"], [three])):
        last, every = session.run(None, {"x": ["a", ""]})
        same(last, objects(["a" * 8, ""]))
        same(every, objects([["a", ""], ["aa", ""], ["aaaa", ""]]))
    for session in sessions(model([loop("i", nodes, ["x"], ["s"])], {"i": [1], "x": ["n"]}, ["x_last", "s_all"])):
        for trips in (3, 0, 1, 11):
            last, every = session.run(None, {"i": np.array([trips]), "x": ["a", "", "é"]})
            same(last, objects(["a" * 2**trips, "", "é" * 2**trips]))
            same(every, objects([["a" * 2**k, "", "é" * 2**k] for k in range(trips)]).reshape(trips, 3))


def test_values_and_bindings_hold_strings() -> None:
    session = ort.InferenceSession(model([helper.make_node("StringConcat", ["x", "x"], ["y"])], {"x": ["n"]}, ["y"]))
    value = ort.OrtValue.ortvalue_from_numpy(np.array(["a", "é"]))
    assert (value.data_type(), value.element_type(), value.shape()) == ("tensor(string)", TensorProto.STRING, [2])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    same(binding.copy_outputs_to_cpu()[0], objects(["aa", "éé"]))
    same(session.run_with_ort_values(["y"], {"x": value})[0].numpy(), objects(["aa", "éé"]))
    assert ort.OrtValue.ortvalue_from_shape_and_type([2], TensorProto.STRING).numpy().tolist() == ["", ""]
