"""Maps that a model takes: against onnxruntime where it takes them from Python (values of float32), else against what they mean."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from pyonnx_wasm import InferenceSession, SessionOptions, compiler
from pyonnx_wasm.program import file

S, F, D, I = TensorProto.STRING, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64  # noqa: E741
BACKENDS = ["cpu", "wasmtime"]


def model(op: str, key: int, value: int, result: int, **attributes: Any) -> bytes:
    node = helper.make_node(op, ["x"], ["y"], "the_node", domain="ai.onnx.ml", **attributes)
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", kind)], [helper.make_tensor_value_info("y", result, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def results(data: bytes, feeds: list[dict[Any, Any]]) -> list[np.ndarray]:
    """What every backend gives, optimised and not, for several maps in one session."""
    every = []
    for backend in BACKENDS:
        for optimise in (True, False):
            session = InferenceSession(data, SessionOptions(enable_optimisation=optimise), [backend])
            every.append([session.run(None, {"x": feed})[0] for feed in feeds])
    for other in every[1:]:
        for a, b in zip(every[0], other, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    return every[0]


def of_onnxruntime(data: bytes, feeds: list[dict[Any, Any]]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return [session.run(None, {"x": feed})[0] for feed in feeds]


WORDS = [{"a": 1.5, "é": 2}, {"zz": 3}, {"é": -1.0, "a": np.float32(4), "b": 1e30, "unknown": 7}, {"c": 1}]
PLACES = [{1: 1.5, 3: 2, -4: 5}, {9: 1}, {2**62: 4.5, 3: 7}, {0: 1}]


@pytest.mark.parametrize(
    ("key", "vocabulary", "feeds"),
    [(S, {"string_vocabulary": ["é", "b", "a", "", "a"]}, WORDS), (I, {"int64_vocabulary": [3, 1, -4, 2**62, 3]}, PLACES)],
)
def test_vectorizer_against_onnxruntime(key: int, vocabulary: Any, feeds: list[dict[Any, Any]]) -> None:
    data = model("DictVectorizer", key, F, F, **vocabulary)
    for got, want in zip(results(data, feeds), of_onnxruntime(data, feeds), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("form", "most"), [("DENSE", 1), ("SPARSE", 1), ("SPARSE", 4), ("SPARSE", 9)])
@pytest.mark.parametrize(("to", "result"), [("TO_FLOAT", F), ("TO_INT64", I)])
def test_cast_against_onnxruntime(to: str, result: int, form: str, most: int) -> None:
    data = model("CastMap", I, F, result, cast_to=to, map_form=form, max_map=most)
    feeds: list[dict[Any, Any]] = [{5: 1.5, 1: 2.75, 3: -1.0}, {0: 3}, {8: 1e6, 2: 0.5, 0: -0.25}, {2**60: 1}]
    for got, want in zip(results(data, feeds), of_onnxruntime(data, feeds), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("key", "value", "words", "feed", "row"),
    [
        (S, I, ["a", "b", "a"], {"b": 2**60, "a": -1}, [-1, 2**60, -1]),
        (S, D, ["a", "b"], {"b": 0.1, "c": 9}, [0, 0.1]),
        (I, D, [7, -7], {-7: 0.1}, [0, 0.1]),
        (I, S, [7, -7, 0], {-7: "é", 0: "日本"}, ["", "é", "日本"]),
        (S, F, ["a", "b"], {}, [0, 0]),
    ],
)
def test_values_of_every_type(key: int, value: int, words: list[Any], feed: dict[Any, Any], row: list[Any]) -> None:
    data = model("DictVectorizer", key, value, value, **{f"{'string' if key == S else 'int64'}_vocabulary": words})
    kind = {I: np.int64, D: np.float64, F: np.float32, S: object}[value]
    for got, want in zip(results(data, [feed, dict.fromkeys(feed, next(iter(feed.values()), 0))]), [row, None], strict=True):
        assert got.dtype == kind
        assert got.shape == (1, len(words))
        assert want is None or got.tolist() == [np.array(want, kind).tolist()]


@pytest.mark.parametrize(
    ("form", "to", "value", "feed", "row"),
    [
        ("DENSE", "TO_STRING", F, {2: 2.7, 1: -1, 0: 1e10}, ["1e+10", "-1", "2.7"]),
        ("SPARSE", "TO_STRING", F, {2: 2.7}, ["0", "0", "2.7"]),
        ("DENSE", "TO_FLOAT", S, {2: "2.7", -1: "-1e3"}, [-1000, np.float32(2.7)]),
        ("SPARSE", "TO_INT64", S, {2: "27", 0: "9223372036854775807"}, [2**63 - 1, 0, 27]),
        ("SPARSE", "TO_STRING", S, {1: "é"}, ["", "é", ""]),
        ("DENSE", "TO_FLOAT", F, {}, []),
        ("SPARSE", "TO_FLOAT", F, {}, [0, 0, 0]),
    ],
)
def test_cast_to_and_from_strings(form: str, to: str, value: int, feed: dict[int, Any], row: list[Any]) -> None:
    data = model("CastMap", I, value, {"TO_STRING": S, "TO_FLOAT": F, "TO_INT64": I}[to], cast_to=to, map_form=form, max_map=3)
    (got,) = results(data, [feed])
    assert got.tolist() == [row]


def test_faces(tmp_path: Path) -> None:
    """Types as onnxruntime spells them, of a compiled file, too."""
    data = model("DictVectorizer", S, F, F, string_vocabulary=["a", "b"])
    file.save(compiler.compile(data), tmp_path / "model.ponnx")
    want = [(i.name, i.type, i.shape) for i in onnxruntime.InferenceSession(data).get_inputs()]
    for session in (InferenceSession(data), InferenceSession(tmp_path / "model.ponnx")):
        assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == want
        assert session.run(None, {"x": {"b": 2}})[0].tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("feed", "told"),
    [
        ([("a", 1.0)], "input 'x' takes a dict, got list"),
        (np.ones(2), "input 'x' takes a dict, got ndarray"),
        (None, "input 'x' takes a dict, got NoneType"),
        ({1: 1.0}, "input 'x': a key is of int, it must be string"),
        ({"a": "1"}, "input 'x': a value is of str, it must be float32"),
        ({"a": True}, "input 'x': a value is of bool, it must be float32"),
        ({"a": 1 + 2j}, "input 'x': a value is of complex, it must be float32"),
    ],
)
def test_what_is_no_map_is_named(feed: Any, told: str) -> None:
    session = InferenceSession(model("DictVectorizer", S, F, F, string_vocabulary=["a"]))
    with pytest.raises(ValueError, match=told):
        session.run(None, {"x": feed})
    assert session.run(None, {"x": {"a": 2}})[0].tolist() == [[2]]


def test_numbers_beyond_their_type_are_named() -> None:
    session = InferenceSession(model("DictVectorizer", I, I, I, int64_vocabulary=[1]))
    for feed, told in (
        ({2**63: 1}, "a key is beyond int64"),
        ({1: -(2**63) - 1}, "a value is beyond int64"),
        ({1: 1.0}, "a value is of float"),
    ):
        with pytest.raises(ValueError, match=f"input 'x': {told}"):
            session.run(None, {"x": feed})


def test_a_negative_key_has_no_place() -> None:
    for backend in BACKENDS:
        session = InferenceSession(model("CastMap", I, F, F, map_form="SPARSE", max_map=3), providers=[backend])
        with pytest.raises(Exception, match="node 'the_node': a key is negative"):
            session.run(None, {"x": {-1: 2.0}})
        assert session.run(None, {"x": {1: 2.0}})[0].tolist() == [[0, 2, 0]]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (model("DictVectorizer", S, F, F, int64_vocabulary=[1]), "string_vocabulary is missing"),
        (model("CastMap", S, F, F), "the keys are strings, they must be int64"),
        (model("CastMap", I, F, F, cast_to="TO_DOUBLE"), "TO_DOUBLE"),
        (model("CastMap", I, F, F, map_form="SPARSE", max_map=0), "max_map is 0"),
        (model("DictVectorizer", F, F, F, string_vocabulary=["a"]), "input 'x': maps from float32 to float32 are not supported"),
    ],
)
def test_what_does_not_fit_is_told_when_the_model_is_compiled(data: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        InferenceSession(data)


def test_a_map_goes_to_its_operators_alone() -> None:
    for op in ("Neg", "Identity"):
        node = helper.make_node(op, ["x"], ["y"], "the_node")
        kind = helper.make_map_type_proto(S, helper.make_tensor_type_proto(F, []))
        graph = helper.make_graph([node], "g", [helper.make_value_info("x", kind)], [helper.make_empty_tensor_value_info("y")])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        with pytest.raises(ValueError, match=r"the_node.*a tensor is needed|maps do not pass|leave a model"):
            InferenceSession(made.SerializeToString())


SCRIPT = """
import * as ort from %(player)s;
import { readFileSync } from "node:fs";
const open = (name) => ort.InferenceSession.create(new Uint8Array(readFileSync(%(folder)s + name)));
const answers = [];
const words = await open("/words.ponnx");
answers.push(words.inputMetadata[0].type);
for (const x of [{ a: 1.5, b: 2 }, new Map([["b", 3]]), new Map(), {}, { b: 4n }])
  answers.push(Array.from((await words.run({ x })).y.data));
const ints = await open("/ints.ponnx");
for (const x of [{ 3: 7, "-4": 8n }, new Map([[3n, 5n], [-4, 6]])])
  answers.push(Array.from((await ints.run({ x })).y.data, Number));
for (const x of [[1], 5, null, undefined, { a: "x" }, new Map([[1, 1]]), new ort.Tensor("float32", [1], [1])])
  answers.push(await words.run({ x }).then(() => "none", (error) => error.message));
for (const x of [{ a: 1 }, { 1: 1.5 }, new Map([["", 1]])])
  answers.push(await ints.run({ x }).then(() => "none", (error) => error.message));
console.log(JSON.stringify(answers));
process.exit(0);
"""


def test_in_javascript(tmp_path: Path) -> None:
    """Maps and plain objects; integers as numbers, bigints, and the text that objects make of their keys."""
    file.save(compiler.compile(model("DictVectorizer", S, F, F, string_vocabulary=["a", "b"])), tmp_path / "words.ponnx")
    file.save(compiler.compile(model("DictVectorizer", I, I, I, int64_vocabulary=[3, -4])), tmp_path / "ints.ponnx")
    player = Path(__file__).parents[1] / "js" / "dist" / "index.mjs"
    (tmp_path / "run.mjs").write_text(SCRIPT % {"player": json.dumps(str(player)), "folder": json.dumps(str(tmp_path))})
    done = subprocess.run(["node", tmp_path / "run.mjs"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    kind, *found = json.loads(done.stdout)
    assert kind == "map(string,tensor(float32))"
    assert found[:7] == [[1.5, 2], [0, 3], [0, 0], [0, 0], [0, 4], [7, 8], [5, 6]]
    told = ["no Map", "no Map", "no Map", "is missing", "a value is no number", "a key is no string", "no Map"]
    told += ["a key is no integer", "a value is no integer", "a key is no integer"]
    for error, want in zip(found[7:], told, strict=True):
        assert error.startswith('input "x"')
        assert want in error
