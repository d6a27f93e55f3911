"""``pyonnx-wasm bench --pyodide``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyonnx_wasm import cli

DIGITS = Path(__file__).parents[2] / "js/pages/digits/digits.onnx"


@pytest.mark.browser
def test_measures_a_model(apart: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert apart(cli.main, ["bench", str(DIGITS), "--pyodide", "--json", "--runs", "5", "--seconds", "0.1"]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["cases"]
    assert (document["mode"], row["case"]) == ("pyodide", "digits")
    assert all(row[key] >= 0 for key in ("import_ms", "compile_ms", "compile_again_ms", "create_ms", "first_run_ms", "run_ms"))
    assert 0 < row["core_bytes"] < 64 << 20
    assert int(document["versions"]["wheel_bytes"]) <= 3 << 20


def test_needs_the_built_player(apart: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(folder: Path) -> Path:
        raise RuntimeError("pyonnx_wasm/lib/player/index.mjs is not built: run `make build` first")

    monkeypatch.setattr("pyonnx_wasm.testing.pyodide.build_wheel", missing)
    assert apart(cli.main, ["bench", str(DIGITS), "--pyodide"]) != 0
    assert "run `make build` first" in capsys.readouterr().err
