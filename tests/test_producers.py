"""The producers' command: what it tells, and a pipeline as skl2onnx writes it; ``python -m tests.producers`` runs real exports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pyonnx_wasm
from pyonnx_wasm.program import file
from tests.producers import __main__ as producers


def pipeline(zipmap: bool) -> bytes:
    """A column of names and two of numbers with gaps, a linear model of two classes with names."""
    ml = {"domain": "ai.onnx.ml"}
    nodes = [
        helper.make_node("OneHotEncoder", ["c"], ["c1"], cats_strings=["red", "grün"], zeros=1, **ml),
        helper.make_node("Reshape", ["c1", "two"], ["c2"]),
        helper.make_node("Concat", ["a", "b"], ["n"], axis=1),
        helper.make_node("Imputer", ["n"], ["n1"], imputed_value_floats=[0.5, -0.5], replaced_value_float=float("nan"), **ml),
        helper.make_node("Scaler", ["n1"], ["n2"], offset=[0.1, 0.2], scale=[2.0, 3.0], **ml),
        helper.make_node("FeatureVectorizer", ["n2", "c2"], ["x"], inputdimensions=[2, 2], **ml),
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "p"], coefficients=[-1.0, 0.5, -2.0, 0.3, 1.0, -0.5, 2.0, -0.3], intercepts=[-0.1, 0.1],
            classlabels_strings=["no", "yes"], post_transform="LOGISTIC", multi_class=1, **ml,
        ),
        helper.make_node("Normalizer", ["p"], ["q" if zipmap else "probabilities"], norm="L1", **ml),
    ]  # fmt: skip
    out = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 2])
    if zipmap:
        nodes.append(helper.make_node("ZipMap", ["q"], ["probabilities"], classlabels_strings=["no", "yes"], **ml))
        inner = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        out = helper.make_value_info("probabilities", helper.make_sequence_type_proto(inner))
    kinds = {"a": TensorProto.FLOAT, "b": TensorProto.FLOAT, "c": TensorProto.STRING}
    inputs = [helper.make_tensor_value_info(n, t, [None, 1]) for n, t in kinds.items()]
    label = helper.make_tensor_value_info("label", TensorProto.STRING, [None])
    two = helper.make_tensor("two", TensorProto.INT64, [2], [-1, 2])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    made = helper.make_model(helper.make_graph(nodes, "g", inputs, [label, out], [two]), opset_imports=opsets, ir_version=9)
    return bytes(made.SerializeToString())


def feed(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    a, b = rng.normal(size=(2, rows, 1)).astype(np.float32)
    a[::3] = np.nan
    return {"a": a, "b": b, "c": rng.choice(["red", "grün", "blau", ""], (rows, 1)).astype(object)}


@pytest.mark.parametrize("backend", ["cpu", "wasmtime"])
@pytest.mark.parametrize("zipmap", [False, True])
def test_a_pipeline(zipmap: bool, backend: str) -> None:
    assert producers.judged(pipeline(zipmap), [feed(4), feed(31)], backend, 1e-5, 1e-5) == ("passes", "")


PRODUCED = Path(__file__).parent / "data" / "produced"  # copies from build/producers/models


@pytest.mark.parametrize("backend", ["cpu", "wasmtime"])
@pytest.mark.parametrize("name", [row["name"] for row in json.loads((PRODUCED / "index.json").read_text())])
def test_an_export_as_its_tool_wrote_it(name: str, backend: str) -> None:
    """Of those that no test here can make without its tool: control flow, sizes from data, detection, recurrence."""
    [outcome] = producers.outcomes(PRODUCED, backend, f"^{name}$")
    assert outcome[2:] == ("passes", "")


PAGE = """
import * as ort from %(player)s;
import { readFileSync } from "node:fs";
const session = await ort.InferenceSession.create(new Uint8Array(readFileSync(%(model)s)));
const column = (values) => new ort.Tensor("float32", Float32Array.from(values), [values.length, 1]);
const { label, probabilities } = await session.run({
  a: column(%(a)s), b: column(%(b)s), c: new ort.Tensor("string", %(c)s, [%(rows)d, 1]),
});
console.log(JSON.stringify([label.data, probabilities.map((map) => Object.fromEntries(map)), session.outputMetadata[1].type]));
process.exit(0);
"""


def test_a_pipeline_in_javascript(tmp_path: Path) -> None:
    """Labels are strings, rows of scores an array of Maps."""
    file.save(pyonnx_wasm.compile(pipeline(True)), tmp_path / "model.ponnx")
    given = feed(5)
    given["a"] = np.nan_to_num(given["a"], nan=0.5)
    names: dict[str, Any] = {k: json.dumps(v[:, 0].tolist()) for k, v in given.items()}
    player = Path(__file__).parents[1] / "js" / "dist" / "index.mjs"
    script = PAGE % {**names, "rows": 5, "player": json.dumps(str(player)), "model": json.dumps(str(tmp_path / "model.ponnx"))}
    (tmp_path / "run.mjs").write_text(script)
    done = subprocess.run(["node", tmp_path / "run.mjs"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    labels, maps, kind = json.loads(done.stdout)
    want = pyonnx_wasm.InferenceSession(pipeline(True)).run(None, given)
    assert labels == want[0].tolist()
    assert [list(m) for m in maps] == [["no", "yes"]] * 5
    np.testing.assert_allclose([list(m.values()) for m in maps], [list(m.values()) for m in want[1]], rtol=1e-5)
    assert kind.startswith("seq(map(string,")


def test_an_export_that_failed_and_one_that_nobody_runs_are_told(tmp_path: Path) -> None:
    node = helper.make_node("NoSuchOperator", ["a"], ["y"])
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 1]) for n in "ay"]
    unknown = helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:]), opset_imports=[helper.make_opsetid("", 18)])
    rows = [{"name": "failed", "export": "ValueError: no"}, *({"name": n, "tolerance": [1e-5, 1e-5]} for n in ("good", "unknown"))]
    (tmp_path / "index.json").write_text(json.dumps(rows))
    for name, data in (("good", pipeline(True)), ("unknown", unknown.SerializeToString())):
        (tmp_path / f"{name}.onnx").write_bytes(data)
        for i in range(2):
            np.savez(tmp_path / f"{name}.{i}.npz", **feed(3 + i))
    told = {name: verdict for _, name, verdict, _ in producers.outcomes(tmp_path, "cpu")}
    assert told == {"failed": "not exported", "good": "passes", "unknown": "no oracle"}


def test_differences_are_told() -> None:
    want = np.array([1.0, 2.0, np.nan], np.float32)
    assert producers.difference(want.copy(), want, 1e-5, 1e-5) == ""
    assert "1 of 3 numbers" in producers.difference(want + np.array([0, 1, 0], np.float32), want, 1e-5, 1e-5)
    assert "onnxruntime gives" in producers.difference(want[:2], want, 1e-5, 1e-5)
    assert producers.difference(np.array([1, 2]), np.array([1, 3]), 1, 1) == "1 of 2 labels"
    assert producers.difference([{"a": 1.0}], [{"b": 1.0}], 1e-5, 1e-5) == "other keys"
    assert "1 of 1 numbers" in producers.difference([{"a": 1.0}], [{"a": 2.0}], 1e-5, 1e-5)
    assert producers.difference([want, want[:1]], [want, want[:1]], 1e-5, 1e-5) == ""
    assert "onnxruntime gives" in producers.difference([want, want], [want, want[:1]], 1e-5, 1e-5)
    assert producers.difference([want], [want, want], 1e-5, 1e-5) == "1 tensors, onnxruntime gives 2"
