"""What ``inspect`` shows of a model: of every kind of model that other tools write, straight and with control flow."""

import json
import re
from pathlib import Path

import onnx
import onnx.parser
import pytest

import pyonnx_wasm
from pyonnx_wasm import cli, inspect

DATA = Path(__file__).parent / "data"
NEEDS_SIZES = DATA / "produced" / "tf-band.onnx"
MODELS = sorted({*DATA.glob("**/*.onnx")} - {NEEDS_SIZES})


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_every_part_of_a_report(path: Path) -> None:
    report = inspect.report(path, passes=True)
    assert json.loads(json.dumps(report)) == report
    program = report["program"]
    kinds = {storage["kind"] for storage in program["storages"]}
    assert kinds <= {"arena", "weight", "input", "output", "slot"}
    for step in program["steps"]:
        assert all(place is None or place < len(program["storages"]) for place in step["storages"])
    assert ("slot" in kinds) == any(step["kernel"] in ("if", "loop") for step in program["steps"])
    assert report["passes"][0]["pass"] == "trace"
    text = inspect.render(report)
    assert str(path) in text
    assert report["ir"] in text
    assert text.count("\n  step") == len(program["steps"])


def test_what_a_model_needs_to_be_compiled_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(NEEDS_SIZES)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the branches give" in said
    (option,) = re.findall(r"--size (\w+)=SIZE$", said)
    assert cli.main(["inspect", str(NEEDS_SIZES), "--size", f"{option}=3"]) == 0
    assert cli.main(["inspect", str(NEEDS_SIZES), "--size", "batch"]) == 1
    assert "--size 'batch' must look like symbol=size" in capsys.readouterr().err


@pytest.fixture
def unranked(tmp_path: Path) -> Path:
    text = (
        """<ir_version: 8, opset_import: ["": 18]> g (float x, float[n] b) => (float y, int64[r, k] z) { y = Add(x, b)  z = NonZero(y) }"""
    )
    made = onnx.parser.parse_model(text)
    made.graph.input[0].type.tensor_type.ClearField("shape")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    path = tmp_path / "unranked.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_ranks_can_be_given_on_the_command_line(unranked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("compile", "run", "inspect"):
        assert cli.main([command, str(unranked)]) == 1
        assert capsys.readouterr().err.endswith("input 'x' has no declared shape; give one: --shape x=D,D,...\n")
    assert cli.main(["compile", str(unranked), "--shape", "x=m,n"]) == 0
    assert cli.main(["run", str(unranked), "--shape", "x=m,n", "-d", "m=5", "-d", "n=3"]) == 0
    assert "y: float32 [5, 3]" in capsys.readouterr().out
    assert cli.main(["run", str(unranked), "--shape", "x=4,n"]) == 0
    assert "y: float32 [4, 1]" in capsys.readouterr().out


def test_sizes_that_data_tell_have_names(unranked: Path, tmp_path: Path) -> None:
    """The model's own, unless it is that of another size, else the place; in a compiled file too."""
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[n, m] x, int64[2] s)
        => (int64[2, k] y, float[r] z, float[n] other, float[] w, float[a, b] q, float[r] also, float[] u) {
            y = NonZero(x)  t = Constant <value_ints = [-1]> ()  flat = Reshape(x, t)  f = Cast <to = 9> (flat)  z = Compress(flat, f)
            g = Not(f)  other = Compress(flat, g)  w = Reshape(x, t)  q = Reshape(x, s)  also = Neg(z)  u = Concat <axis = 0> (z, z) }"""
    data = onnx.parser.parse_model(text).SerializeToString()
    path = tmp_path / "named.ponnx"
    pyonnx_wasm.save(pyonnx_wasm.compile(data), path)
    want = {"y": [2, "k"], "z": ["r"], "other": ["other[0]"], "w": ["m*n"], "q": ["a", "b"], "also": ["r"], "u": ["u[0]"]}
    for source in (data, path):
        session = pyonnx_wasm.InferenceSession(source)
        assert {o.name: o.shape for o in session.get_outputs()} == want
    assert "%" not in inspect.render(inspect.report(path)).split("steps")[0]
    shapes = {o["name"]: o["shape"] for o in inspect.report(unranked, shapes={"x": ["n"]})["outputs"]}
    assert shapes == {"y": ["n"], "z": ["1", "k"]}
