"""One model on several backends."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from broken_core import Broken

import pyonnx_wasm
from pyonnx_wasm import gpu, parity
from pyonnx_wasm.cli import main
from pyonnx_wasm.gpu import wgsl

DATA = Path(__file__).parents[1] / "data"


def test_a_healthy_model_agrees(classifier: Path) -> None:
    report = parity.run(classifier, backends=["cpu", "wasm", "wasm:fixed"], against="onnxruntime", layers=True, sizes={"batch": 5})
    assert report.agrees
    assert report.backends == ["cpu", "wasm", "wasm:fixed"]
    assert report.layers is not None
    assert [layer.node for layer in report.layers] == [
        *("encode/Gemm", "encode/Relu", "attend/MatMul", "attend/Softmax"),
        *("attend/Mul", "decode/MatMul", "decode/Add", "decode/ArgMax"),
    ]
    assert all(set(layer.differences) == set(report.backends) for layer in report.layers)
    assert report.first_divergence("wasm") is None
    y, label = report.outputs
    assert (y.shape, label.shape) == ((5, 33), (5,))
    assert label.differences["wasm"].max_ulp is None
    assert "agree with onnxruntime" in report.table()


def test_a_broken_kernel_is_found_and_its_layer_named(classifier: Path, broken: Broken) -> None:
    names = [f"cpu:{broken.library}", f"wasm:{broken.folder}"]
    report = parity.run(classifier, backends=["cpu", "wasm", *names], layers=True, sizes={"batch": 3})
    assert not report.agrees
    assert report.first_divergence("wasm") is None
    for name in names:
        layer = report.first_divergence(name)
        assert layer is not None
        assert (layer.node, layer.operator, layer.value) == ("attend/Softmax", "Softmax", "h3")
        assert layer.differences[name].max_rel == pytest.approx(0.01, rel=1e-3)
        assert not report.outputs[0].differences[name].agrees
        assert f"{name} diverges from cpu in 'y'" in report.table()
    assert "first at 'attend/Softmax' (Softmax), value 'h3'" in report.table()
    assert report.json()["first_divergence"] == dict.fromkeys(names, "h3")


@pytest.mark.parametrize("name", ["vit", "detector", "mobilenet", "decoder"])
def test_models_agree(name: str) -> None:
    report = parity.run(DATA / f"{name}.onnx", backends=["cpu", "wasm"], against="onnxruntime", layers=name in ("vit", "decoder"))
    assert report.agrees, report.table()


def test_inputs_are_made_up_the_same_each_time() -> None:
    tables = [parity.run(DATA / "decoder.onnx", backends=["cpu", "cpu:sse4"], sizes={"seq": 7}).table() for _ in range(2)]
    assert tables[0] == tables[1]
    assert "integers from 0 to" in tables[0]


def test_a_compiled_file_and_a_model_in_memory(classifier: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "classifier.ponnx"
    pyonnx_wasm.save(pyonnx_wasm.compile(classifier), compiled)
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 12)
    for model in (compiled, compiled.read_bytes(), onnx.load(classifier), classifier.read_bytes()):
        report = parity.run(model, {"x": x}, backends=["cpu", "cpu:sse4"])
        assert report.agrees
        assert report.inputs[0].contents == "given"
    with pytest.raises(ValueError, match=r"holds no ONNX graph: give the \.onnx model"):
        parity.run(compiled, layers=True)


def test_what_cannot_run_is_named(classifier: Path) -> None:
    with pytest.raises(ValueError, match="there is no backend 'tpu'; the backends are cpu, wasm, wasmtime, webgpu, gpu"):
        parity.run(classifier, backends=["cpu", "tpu"])
    with pytest.raises(parity.Unavailable, match="there is no native core for mmx"):
        parity.run(classifier, backends=["cpu", "cpu:mmx"])
    with pytest.raises(parity.Unavailable, match="no folder with"):
        parity.run(classifier, backends=["cpu", "wasm:nowhere"])
    with pytest.raises(ValueError, match="two sides are needed"):
        parity.run(classifier, backends=["cpu"])
    with pytest.raises(ValueError, match="no input is named 'z'; the model takes 'x'"):
        parity.run(classifier, {"z": np.zeros(1)}, backends=["cpu", "wasm"])
    with pytest.raises(ValueError, match="no dimension is named 'rows'; the model has batch"):
        parity.run(classifier, sizes={"rows": 1})


def test_a_backend_that_fails_is_a_divergence(classifier: Path, tmp_path: Path) -> None:
    for name in ("core.wasm", "core-relaxed.wasm"):
        (tmp_path / name).write_bytes(b"\0asm\1\0\0\0")
    report = parity.run(classifier, backends=["cpu", f"wasm:{tmp_path}"])
    assert not report.agrees
    assert "FAILED" in report.table()


def test_command_line(classifier: Path, broken: Broken, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 12), np.float32))
    page = tmp_path / "out" / "report.html"
    pair = f"cpu,cpu:{broken.library}"
    options = ["--backends", pair, "-i", f"x={tmp_path / 'x.npy'}", "--layers", "--html", str(page), "--json"]
    assert main(["parity", str(classifier), *options]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["agrees"] is False
    assert "the backends diverge" in told.err
    assert page.read_text().startswith("<!doctype html>")
    assert main(["parity", str(classifier), "--backends", "cpu,cpu:sse4", "-d", "batch=3"]) == 0
    assert "max ulp" in capsys.readouterr().out
    for bad, error in (
        (["-d", "batch"], "must look like SYMBOL=SIZE"),
        (["--range", "x=3:3"], "upper bound"),
        (["-i", "x"], "NAME=FILE.npy"),
    ):
        assert main(["parity", str(classifier), *bad]) == 1
        assert error in capsys.readouterr().err


def test_what_smaller_weights_cost_is_shown_and_backends_agree_on_them(classifier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = parity.run(classifier, backends=["cpu", "cpu:sse4"], weights="int8", sizes={"batch": 3})
    assert report.agrees
    told = report.json()["narrowed"]
    assert told["bytes_after"] < 0.7 * told["bytes_before"]
    assert 0 < told["errors"]["y"] < told["bound"]
    assert {row["form"] for row in told["layers"]} == {"int8"}
    assert main(["parity", str(classifier), "--backends", "cpu,cpu:sse4", "--weights", "int8", "-d", "batch=3"]) == 0
    shown = capsys.readouterr().out
    assert f"output y: relative error {told['errors']['y']:.2e}" in shown
    assert f"weights: {told['bytes_before']:,} bytes, now {told['bytes_after']:,}" in shown
    with pytest.raises(ValueError, match="without layers"):
        parity.run(classifier, backends=["cpu", "cpu:sse4"], weights="int8", layers=True)


def test_differences() -> None:
    from pyonnx_wasm.dtypes import DType
    from pyonnx_wasm.parity.compare import difference

    tolerance = parity.Tolerance()

    def of(got: list[float], expected: list[float], dtype: DType = DType.float32, numpy: type = np.float32) -> parity.Difference:
        return difference(np.array(got, numpy), np.array(expected, numpy), dtype, tolerance)

    nan, inf = np.nan, np.inf
    assert of([1, nan, inf, -0.0], [1, nan, inf, 0.0]) == parity.Difference(0.0, 0.0, 0.0, 0, 0, 4)
    assert of([1, nan], [1, 2]).excess == inf
    assert of([inf], [-inf]).at == (0,)
    assert of([1, 2], [nan, 2]).wrong == 1
    assert of([1 + 2**-23], [1]).max_ulp == 1
    assert of([-(2**-149)], [2**-149]).max_ulp == 2
    assert of([100.005], [100]).agrees
    assert not of([101], [100]).agrees
    assert of([1e-5, 1], [0, 1]).agrees, "small beside the tensor's largest element"
    assert not of([3], [2], DType.int32, np.int32).agrees
    one, next_one = np.array([0x3F80], np.uint16), np.array([0x3F81], np.uint16)
    assert difference(next_one, one, DType.bfloat16, tolerance).max_abs == 2**-7
    assert difference(next_one, one, DType.bfloat16, tolerance).agrees
    assert "shape [2], expected [1]" in of([1, 2], [1]).failure
    assert of([], []).agrees
    assert difference(np.float32(2), np.float32(1), DType.float32, tolerance).at == ()
    assert difference(np.array([1e308]), np.array([-1e308]), DType.float64, tolerance).wrong == 1


def test_the_plugin_is_light() -> None:
    """Every test session of its users loads it."""
    code = "import sys, pyonnx_wasm.parity.plugin; print([m for m in ('playwright', 'onnxruntime', 'onnx') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_all_backends_agree(classifier: Path) -> None:
    report = parity.run(classifier, against="onnxruntime")
    assert (report.backends, report.skipped) == (["cpu", "wasm", "wasmtime", "webgpu", "gpu"], {})
    assert report.agrees, report.table()


def test_a_broken_shader_is_found_and_its_layer_named(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = "let scale = 1.0 / total.x;", "let scale = 1.01 / total.x;"
    text = gpu.source("softmax")
    assert text is not None
    assert text.count(right) == 1
    monkeypatch.setattr(wgsl, "source", lambda name: text.replace(right, wrong) if name == "softmax" else gpu.source(name))
    for kept in (wgsl._text, wgsl._parts):
        kept.cache_clear()
    try:
        report = parity.run(classifier, backends=["cpu", "webgpu", "gpu"], layers=True, sizes={"batch": 3})
    finally:
        for kept in (wgsl._text, wgsl._parts):
            kept.cache_clear()
    for name in ("webgpu", "gpu"):
        layer = report.first_divergence(name)
        assert layer is not None, report.table()
        assert (layer.node, layer.value) == ("attend/Softmax", "h3")
        assert layer.differences[name].max_rel == pytest.approx(0.01, rel=1e-3)
