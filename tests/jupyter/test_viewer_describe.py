"""What the viewer is told of a model: graph, shapes, statistics, runs."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from viewer_models import HOSTILE, blocks, hostile

from pyonnx_wasm import compile, save, shapes
from pyonnx_wasm.dtypes import DType
from pyonnx_wasm.lab import describe, execute, statistics
from pyonnx_wasm.lab.worker import JobError, Worker
from pyonnx_wasm.onnxfile import reader
from pyonnx_wasm.onnxfile.tensor import Tensor
from pyonnx_wasm.program import file as ponnx

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"


def test_layout_in_node() -> None:
    """The tree and the layout, tested in JavaScript."""
    files = map(str, sorted((ROOT / "tests" / "jupyter" / "viewer").glob("*.test.mjs")))
    done = subprocess.run(["node", "--test", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_graph_names_everything_and_carries_no_weights() -> None:
    told = describe.graph(str(DIGITS))
    assert (told["kind"], told["name"], told["bytes"]) == ("onnx", "digits.onnx", DIGITS.stat().st_size)
    assert told["inputs"] == [{"name": "ink", "dtype": "float32", "shape": ["batch", 1, 8, 8]}]
    first = next(n for n in told["nodes"] if n["op"] == "Conv")
    assert first["family"] == "conv"
    assert ["kernel_shape", "[3, 3]"] in first["attrs"]
    assert told["weights"]["model.head.weight"] == {"dtype": "float32", "shape": [10, 640], "bytes": 25600}
    assert len(json.dumps(told)) < 10_000


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "data").glob("*.onnx")), ids=lambda p: p.stem)
def test_shapes_are_inferred_for_every_value(path: Path) -> None:
    with reader.read(path) as model:
        found = shapes.infer(model)
        assert not found.failures
        assert {name for n in model.graph.nodes for name in n.outputs if name} <= set(found.values)
    reference = onnx.shape_inference.infer_shapes(onnx.load(path))
    known = {v.name: v.type.tensor_type.shape.dim for v in reference.graph.value_info}
    for name, dims in known.items():
        assert len(dims) == len(found.values[name].dims)
        for theirs, ours in zip(dims, found.values[name].dims, strict=True):
            assert not theirs.HasField("dim_value") or ours == theirs.dim_value


def test_inference_goes_on_behind_a_node_that_fails(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Unheard", ["x"], ["a"], name="known", domain="own"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Unheard", ["x"], ["c"], name="unknown", domain="own"),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Neg", ["x"], ["y"]),
    ]
    declared = [info("a", TensorProto.FLOAT, ["n", 3])]
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, ["n", 2])], [info(v, TensorProto.FLOAT, None) for v in "bdy"], value_info=declared
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)])
    with reader.read(model.SerializeToString()) as read:
        found = shapes.infer(read)
    assert found.values["b"].dims == ("n", 3)
    assert found.values["y"].dims == ("n", 2)
    assert "d" not in found.values
    assert set(found.failures) == {"known", "unknown"}


def test_contents_of_shape_arithmetic_are_told() -> None:
    told = describe.inferred(str(ROOT / "tests" / "data" / "vit.onnx"))["values"]
    contents = [row[2] for row in told.values() if len(row) == 3]
    assert any("batch" in content for content in contents)


def test_a_compiled_model_shows_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "digits.ponnx"
    save(compile(DIGITS), path)
    told = describe.graph(str(path))
    compiled = ponnx.load(path)
    assert told["kind"] == "ponnx"
    assert told["outputs"] == [{"name": "probabilities", "dtype": "float32", "shape": ["batch", 10]}]
    assert told["nodes"][-1]["outputs"] == ["probabilities"]
    names = {i["name"] for i in told["inputs"]} | set(told["weights"])
    for node in told["nodes"]:
        assert {n for n in node["inputs"] if n} <= names
        names |= set(node["outputs"])
    weight = next(w for w in compiled.weights if w.source is not None)
    assert describe.weight(str(path), weight.name)["count"] == math.prod(weight.shape)


def read_in_javascript(path: Path) -> dict[str, Any]:
    script = ROOT / "tests/jupyter/viewer/describe.mjs"
    done = subprocess.run(["node", str(script), str(path)], capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("path", [DIGITS, *sorted((ROOT / "tests" / "data").glob("*.onnx"))], ids=lambda p: p.stem)
def test_the_browser_reads_the_same_graph(path: Path) -> None:
    ours, theirs = describe.graph(str(path)), read_in_javascript(path)
    for side in ("inputs", "outputs"):
        assert theirs[side] == ours[side]
    keys = ("name", "op", "domain", "inputs", "outputs")
    assert [[n[k] for k in keys] for n in theirs["nodes"]] == [[n[k] for k in keys] for n in ours["nodes"]]
    for theirs_node, ours_node in zip(theirs["nodes"], ours["nodes"], strict=True):
        assert [a[0] for a in theirs_node["attrs"]] == [a[0] for a in ours_node["attrs"]]
    assert {n: (w["dtype"], w["shape"], w["bytes"]) for n, w in theirs["weights"].items()} == {
        n: (w["dtype"], w["shape"], w["bytes"]) for n, w in ours["weights"].items()
    }


def test_the_browser_reads_the_same_steps(tmp_path: Path) -> None:
    path = tmp_path / "vit.ponnx"
    save(compile(ROOT / "tests" / "data" / "vit.onnx"), path)
    ours, theirs = describe.graph(str(path)), read_in_javascript(path)
    assert theirs["outputs"] == ours["outputs"]
    assert [(n["name"], n["op"]) for n in theirs["nodes"]] == [(n["name"], n["op"]) for n in ours["nodes"]]
    assert theirs["weights"] == ours["weights"]
    for a, b in zip(theirs["nodes"], ours["nodes"], strict=True):
        assert {v for v in a["inputs"] if v} == {v for v in b["inputs"] if v} - set(a["outputs"])


@pytest.mark.parametrize("chunk", [8, 1 << 20])
def test_statistics_agree_with_numpy(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "CHUNK", chunk)
    rng = np.random.default_rng(0)
    for array in (rng.standard_normal(37), rng.standard_normal((5, 7)).astype(np.float32), rng.integers(-9, 9, 23), np.zeros(9, np.int8)):
        tensor = Tensor.of(array)
        told = statistics.of_bytes(tensor.dtype, np.frombuffer(tensor.raw(), np.uint8), array.size)
        assert told["count"] == array.size
        assert sum(told["histogram"]) == array.size
        for name in ("min", "max", "mean", "std"):
            assert told[name] == pytest.approx(float(getattr(array.astype(np.float64), name)()), abs=1e-12)
        assert told["zero"] == np.count_nonzero(array == 0)
        assert told["head"][0] == pytest.approx(float(array.flat[0]))


def test_statistics_of_odd_numbers() -> None:
    told = statistics.of_array(np.array([np.nan, np.inf, -np.inf, 1, 3], np.float32))
    assert (told["nan"], told["inf"], told["min"], told["max"], told["mean"]) == (1, 2, 1, 3, 2)
    assert told["head"][:3] == ["nan", "inf", "-inf"]
    assert statistics.of_array(np.empty(0))["histogram"] == []
    assert statistics.of_array(np.array([np.nan]))["mean"] is None
    json.dumps(statistics.of_array(np.array([1e308, -1e308, 1e308])), allow_nan=False)
    with pytest.raises(ValueError, match="string has no statistics"):
        statistics.of_bytes(DType.string, np.empty(0, np.uint8), 0)


ML_DTYPES = {
    DType.bfloat16: "bfloat16", DType.float8e4m3fn: "float8_e4m3fn", DType.float8e4m3fnuz: "float8_e4m3fnuz",
    DType.float8e5m2: "float8_e5m2", DType.float8e5m2fnuz: "float8_e5m2fnuz", DType.float8e8m0: "float8_e8m0fnu",
    DType.float4e2m1: "float4_e2m1fn", DType.int4: "int4", DType.uint4: "uint4", DType.int2: "int2", DType.uint2: "uint2",
}  # fmt: skip


@pytest.mark.parametrize("dtype", ML_DTYPES, ids=lambda d: d.name)
def test_every_code_of_a_narrow_type(dtype: DType) -> None:
    import ml_dtypes

    codes = np.arange(1 << min(dtype.bits, 16), dtype=np.uint16 if dtype.bits == 16 else np.uint8)
    with np.errstate(invalid="ignore"):
        expected = codes.view(getattr(ml_dtypes, ML_DTYPES[dtype])).astype(np.float64)
    tensor = Tensor.of(codes.view(getattr(ml_dtypes, ML_DTYPES[dtype])))
    np.testing.assert_array_equal(statistics.decode(dtype, np.frombuffer(tensor.raw(), np.uint8), codes.size), expected)


@pytest.mark.parametrize(
    ("dtype", "greatest", "least"), [(DType.float6e2m3, 7.5, 0.125), (DType.float6e3m2, 28.0, 0.0625)], ids=["e2m3", "e3m2"]
)
def test_six_bit_floats(dtype: DType, greatest: float, least: float) -> None:
    from pyonnx_wasm.onnxfile.tensor import pack

    values = statistics.decode(dtype, pack(np.arange(64, dtype=np.uint8), 6), 64)
    assert values.max() == greatest == -values.min()
    assert values[values > 0].min() == least


def test_a_run_tells_outputs_and_the_time_of_each_step(tmp_path: Path) -> None:
    ink = tmp_path / "ink.npy"
    np.save(ink, np.zeros((3, 1, 8, 8), np.float32))
    told = execute.run(str(DIGITS), {}, {"ink": {"file": str(ink)}}, 1)
    assert told["outputs"][0]["shape"] == [3, 10]
    assert told["outputs"][0]["statistics"]["mean"] == pytest.approx(0.1)
    assert len(told["steps"]) == len(compile(DIGITS).main.nodes)
    assert all(ms >= 0 for _, ms in told["steps"])
    assert execute.run(str(DIGITS), {"batch": 5}, {"ink": {"fill": "range"}}, 1)["outputs"][0]["shape"] == [5, 10]
    path = tmp_path / "digits.ponnx"
    save(compile(DIGITS), path)
    assert execute.run(str(path), {"batch": 2}, {}, 1)["outputs"][0]["shape"] == [2, 10]


@pytest.mark.parametrize(
    ("given", "sizes", "text"),
    [
        ({"fill": "noise"}, {}, "fill 'noise' is none of"),
        ({"fill": "ones"}, {"batch": 1 << 40}, "at most"),
        ({"fill": "ones"}, {"batch": -1}, "shape"),
        ({"file": str(DIGITS)}, {}, "is no .npy array"),
        ({"file": "long.npy"}, {}, "takes shape"),
        ({"file": "whole.npy"}, {}, "takes float32, the file holds int64"),
        ({"file": "objects.npy"}, {}, "is no .npy array"),
    ],
)
def test_bad_inputs_are_named(given: dict[str, str], sizes: dict[str, int], text: str, tmp_path: Path) -> None:
    np.save(tmp_path / "long.npy", np.zeros((1, 9), np.float32))
    np.save(tmp_path / "whole.npy", np.zeros((1, 1, 8, 8), np.int64))
    np.save(tmp_path / "objects.npy", np.array([{}], object))
    named = {k: str(tmp_path / v) if k == "file" else v for k, v in given.items()}
    with pytest.raises(ValueError, match=text) as caught:
        execute.run(str(DIGITS), sizes, {"ink": named}, 1)
    assert "'ink'" in str(caught.value)


def test_a_worker_survives_bad_files_and_ends_what_takes_long(tmp_path: Path, apart: Callable[..., Any]) -> None:
    path = tmp_path / "h.onnx"
    hostile(path)
    big = tmp_path / "big.onnx"
    blocks(big, 100, lambda layer, k, op: "")

    async def jobs() -> None:
        worker = Worker()
        try:
            told = await worker.call("graph", 30, path=str(path))
            assert told["nodes"][2]["family"] is None
            assert told["nodes"][0]["name"] == f"{HOSTILE}/{HOSTILE}a"
            for file, message in ((ROOT / "README.md", "README.md: this is a text file"), (tmp_path / "absent.onnx", "No such file")):
                with pytest.raises(JobError, match=message) as caught:
                    await worker.call("graph", 30, path=str(file))
                assert str(ROOT) not in str(caught.value)
            with pytest.raises(JobError, match="there is no 'absent'"):
                await worker.call("weight", 30, path=str(path), name="absent")
            odd = await worker.call("weight", 30, path=str(path), name="odd")
            assert (odd["nan"], odd["inf"]) == (1, 1)
            with pytest.raises(JobError, match=r"operator own\.Unheard is not supported"):
                await worker.call("run", 30, path=str(path), sizes={}, inputs={}, threads=1)
            with pytest.raises(JobError, match=r"more than 0\.001 seconds"):
                await worker.call("shapes", 0.001, path=str(big))
            stopped = asyncio.ensure_future(worker.call("shapes", 30, path=str(big)))
            await asyncio.sleep(0.05)
            stopped.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopped
            again: dict[str, Any] = await worker.call("graph", 30, path=str(DIGITS))
            assert again["name"] == "digits.onnx"
        finally:
            worker.close()

    apart(asyncio.run, jobs())
