"""What the viewer is told of weights' elements and of what people wrote: planes, .npy files, digests, documentation."""

import base64
import io
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyonnx_wasm import compile, save
from pyonnx_wasm.lab import contents, describe, texts
from pyonnx_wasm.lab.worker import answer

RNG = np.random.default_rng(0)
WEIGHTS = {
    "cube": RNG.standard_normal((3, 5, 7)).astype(np.float32),
    "long": np.arange(1000, dtype=np.int64),
    "scalar": np.float64(3),
    "none": np.zeros((0, 4), np.float32),
    "wide": RNG.standard_normal((300, 2)).astype(np.float16),
    "flags": np.array([[True, False, True]]),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    value = helper.make_tensor_value_info
    narrow = [
        helper.make_tensor("four", TensorProto.INT4, [3, 3], [-8, 7, 1, 2, 3, 4, 5, 6, -1]),
        helper.make_tensor("brain", TensorProto.BFLOAT16, [2, 2], [1, 2, 3, 4]),
        helper.make_tensor("words", TensorProto.STRING, [2], ["a", "b"]),
    ]
    nodes = [helper.make_node("Relu", ["x"], ["h"], doc_string="where it begins <b>"), helper.make_node("Neg", ["h"], ["y"])]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in WEIGHTS.items()]
    faces = [[value(name, TensorProto.FLOAT, ["n"])] for name in "xy"]
    graph = helper.make_graph(nodes, "main graph", *faces, stored + narrow, doc_string="about the graph")
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)], doc_string="about the model")
    made.domain, made.model_version = "org.example", 7
    onnx.save(made, path)
    return str(path)


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_tensor_as_a_file(model: str, name: str) -> None:
    got = np.load(io.BytesIO(contents.npy(model, name)))
    assert got.dtype == WEIGHTS[name].dtype
    assert np.array_equal(got, WEIGHTS[name])
    assert base64.b64decode(contents.npy_text(model, name)) == contents.npy(model, name)


def test_types_that_numpy_lacks_become_float32(model: str) -> None:
    four = np.load(io.BytesIO(contents.npy(model, "four")))
    assert four.dtype == np.float32
    assert four.tolist() == [[-8, 7, 1], [2, 3, 4], [5, 6, -1]]
    assert np.load(io.BytesIO(contents.npy(model, "brain"))).tolist() == [[1, 2], [3, 4]]


def plane(path: str, name: str, index: int = 0) -> np.ndarray:
    told = contents.plane(path, name, index)
    return np.frombuffer(base64.b64decode(told["values"]), "<f4").reshape(told["height"], told["width"])


def test_planes(model: str) -> None:
    for k in range(3):
        assert np.array_equal(plane(model, "cube", k), WEIGHTS["cube"][k])
    assert contents.plane(model, "cube")["planes"] == 3
    assert plane(model, "scalar").tolist() == [[3]]
    assert plane(model, "none").shape == (0, 4)
    assert plane(model, "flags").tolist() == [[1, 0, 1]]
    assert plane(model, "four").tolist() == [[-8, 7, 1], [2, 3, 4], [5, 6, -1]]
    long = plane(model, "long")
    assert (long.shape, long[0, 0], long[0, -1]) == ((1, contents.SIDE), 0, 999)
    wide = contents.plane(model, "wide")
    assert (wide["rows"], wide["columns"], wide["height"], wide["width"]) == (300, 2, contents.SIDE, 2)
    with pytest.raises(ValueError, match="has 3 planes; there is none of index 3"):
        contents.plane(model, "cube", 3)
    with pytest.raises(ValueError, match="holds strings"):
        contents.plane(model, "words")
    assert answer("plane", {"path": model, "name": "absent"}) == {"error": "there is no 'absent'"}


def test_planes_of_packed_elements_that_begin_inside_a_byte(tmp_path: Path) -> None:
    values = list(range(-8, 7))
    weight = helper.make_tensor("w", TensorProto.INT4, [5, 1, 3], values)
    face = helper.make_tensor_value_info("w", TensorProto.INT4, [5, 1, 3])
    made = helper.make_model(helper.make_graph([], "g", [], [face], [weight]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(made, tmp_path / "m.onnx")
    for k in range(5):
        assert plane(str(tmp_path / "m.onnx"), "w", k).tolist() == [values[3 * k : 3 * k + 3]]


def test_digests_tell_contents_apart(model: str, tmp_path: Path) -> None:
    found = contents.digests(model)
    assert set(found) == {*WEIGHTS, "four", "brain"}
    assert found["cube"] == f"{zlib.crc32(WEIGHTS['cube'].tobytes()):08x}"


def test_compiled_models(tmp_path: Path) -> None:
    digits = Path(__file__).parents[2] / "js" / "pages" / "digits" / "digits.onnx"
    save(compile(digits), tmp_path / "digits.ponnx")
    path = str(tmp_path / "digits.ponnx")
    name = next(iter(contents.digests(path)))
    assert np.load(io.BytesIO(contents.npy(path, name))).size == plane(path, name).size * contents.plane(path, name)["planes"]


def test_what_people_wrote(model: str) -> None:
    told = describe.graph(model)
    about = dict(told["about"])
    assert about["graph"] == "main graph"
    assert (about["description"], about["domain"], about["version"]) == ("about the model", "org.example", "7")
    assert about["about the graph"] == "about the graph"
    assert told["documentation"] == {"h": "where it begins <b>"}
    assert told["opsets"] == {"": 21}


def test_documentation_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    told = texts.operator("", "Conv", 11)
    assert told["since"] == 11
    assert "convolution" in told["doc"]
    assert [name for name, _, _ in told["inputs"]] == ["X", "W", "B"]
    attributes = {name: (default, text) for name, default, text in told["attributes"]}
    assert attributes["auto_pad"][0] == "NOTSET"
    assert attributes["group"][0] == "1"
    assert "groups" in attributes["group"][1]
    assert told["more"].endswith("onnx__Conv.html")
    assert texts.operator("com.microsoft", "FusedMatMul", 1)["supported"]
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    alone = texts.operator("", "Conv", 11)
    assert [name for name, _, _ in alone["inputs"]] == ["X", "W", "B"]
    assert ["group", "1", ""] in alone["attributes"]
    with pytest.raises(ValueError, match=r"nothing is known of the operator own\.Unheard"):
        texts.operator("own", "Unheard", 1)
