"""What ``inspect`` shows of a model: of every kind of model that other tools write, straight and with control flow."""

import json
from pathlib import Path

import pytest

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
    assert "sizes={" in said
