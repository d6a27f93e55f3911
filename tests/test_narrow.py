"""Weights narrowed on request: sizes as predicted, results those of the same weights widened by numpy, forms chosen within a bound."""

import json
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyonnx_wasm
from pyonnx_wasm import cli, compiler, narrow
from pyonnx_wasm.narrow.encode import FORMS, decode, encode
from pyonnx_wasm.program import Compiled
from pyonnx_wasm.runtimes import cpu

ROOT = Path(__file__).parents[1]
Array = np.ndarray[Any, Any]
VOCABULARY, WIDTH, INNER = 117, 64, 100  # INNER fills no whole number of blocks
BYTES = {"q4": 0.6, "int8": 1.0625, "f16": 2, "bf16": 2}  # per weight, scales included, where rows are whole blocks
node = helper.make_node


def model(nodes: list[Any], tensors: dict[str, Array], inputs: dict[str, list[Any]], output: str = "y", rank: int = 2) -> bytes:
    """Inputs named ``ids`` are integers."""
    infos = [helper.make_tensor_value_info(n, TensorProto.INT64 if n == "ids" else TensorProto.FLOAT, s) for n, s in inputs.items()]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, [f"d{i}" for i in range(rank)])]
    graph = helper.make_graph(nodes, "g", infos, outputs, [numpy_helper.from_array(a, name) for name, a in tensors.items()])
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])
    return made.SerializeToString()


def product(w: Array) -> bytes:
    return model([node("MatMul", ["x", "w"], ["y"], name="product")], {"w": w}, {"x": ["m", len(w)]})


def tied(seed: int = 0) -> tuple[bytes, dict[str, Array]]:
    """A table whose rows are picked, two products with bias, activation and residual, and the table again through Transpose."""
    rng = np.random.default_rng(seed)
    shapes = {"table": (VOCABULARY, WIDTH), "up": (WIDTH, INNER), "down": (WIDTH, INNER), "bias": (INNER,)}
    w = {name: (rng.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        node("Gather", ["table", "ids"], ["x"], name="embed"),
        node("MatMul", ["x", "up"], ["u"], name="up"),
        node("Add", ["u", "bias"], ["v"]),
        node("Relu", ["v"], ["r"]),
        node("Transpose", ["down"], ["turned"], perm=[1, 0]),
        node("MatMul", ["r", "turned"], ["d"], name="down"),
        node("Add", ["d", "x"], ["h"]),
        node("Transpose", ["table"], ["head"], perm=[1, 0]),
        node("MatMul", ["h", "head"], ["y"], name="head"),
    ]
    return model(nodes, w, {"ids": ["b", "s"]}, rank=3), w


def decoded(values: Array, form: str) -> Array:
    small = encode(values, form)
    assert small is not None
    return decode(small, values.shape[1]).astype(np.float64)


def saved(compiled: Compiled, path: Path) -> Path:
    pyonnx_wasm.save(compiled, path)
    return path


def results(compiled: Compiled, feed: dict[str, Array]) -> list[Array]:
    with tempfile.TemporaryDirectory() as folder:
        return list(pyonnx_wasm.InferenceSession(saved(compiled, Path(folder) / "m.ponnx")).run(None, feed))


def kernels(compiled: Compiled) -> list[str]:
    return [n.kernel.name for n in compiled.main.nodes]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(1, 32), (7, 96), (64, 100), (3, 17)])
def test_forms_are_as_small_and_as_close_as_they_should_be(form: str, shape: tuple[int, int]) -> None:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    small = encode(values, form)
    assert small is not None
    whole = shape[0] * -(-shape[1] // 32) * 32 if form in ("q4", "int8") else values.size
    assert small.nbytes <= BYTES[form] * whole
    off = np.sqrt(np.square(decode(small, shape[1]) - values).mean() / np.square(values).mean())
    assert off < {"q4": 0.1, "int8": 0.008, "f16": 2.0**-11, "bf16": 2.0**-8}[form]


def test_four_bits_search_for_the_least_error() -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal((50, 320)).astype(np.float32)
    blocks = values.reshape(50, 10, 32)
    plain = np.abs(blocks).max(-1, keepdims=True) / 7
    simple = np.square(np.clip(np.rint(blocks / plain), -8, 7) * plain - blocks).sum()
    best = encode(values, "q4")
    assert best is not None
    assert best.shift is None
    assert np.square(decode(best, 320) - values).sum() < 0.8 * simple
    shifted = encode(np.abs(values), "q4")
    assert shifted is not None
    assert shifted.shift is not None, "what has one sign alone has a zero point"
    assert np.square(decode(shifted, 320) - np.abs(values)).sum() < 0.4 * np.square(decode(best, 320) - values).sum()


@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "gpu"])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_narrowed_is_the_same_model_with_widened_weights(form: str, backend: str, tmp_path: Path) -> None:
    data, w = tied()
    compiled = compiler.compile(data, weights=narrow.Wish(form, bound=1, each=False), gpu=True)
    assert compiled.narrowed is not None
    assert {row.form for row in compiled.narrowed.rows} == {form}
    session = pyonnx_wasm.InferenceSession(saved(compiled, tmp_path / "m.ponnx"), providers=[backend])
    table, up, down = decoded(w["table"], form), decoded(w["up"].T, form), decoded(w["down"], form)
    for shape in [(1, 1), (1, 3), (2, 5), (3, 20)]:
        ids = np.random.default_rng(2).integers(0, VOCABULARY, shape)
        x = table[ids]
        h = np.maximum(x @ up.T + w["bias"], 0) @ down.T
        want = (h + x) @ table.T
        [y] = session.run(None, {"ids": ids})
        assert np.abs(y - want).max() < 1e-4 * np.abs(want).max(), shape


def test_a_tied_table_is_stored_once() -> None:
    data, w = tied()
    compiled = compiler.compile(data, weights="q4")
    padded = VOCABULARY * WIDTH + INNER * WIDTH + WIDTH * 128  # `down` has rows of 100, four blocks
    assert sum(weight.nbytes for weight in compiled.weights if weight.source is not None) <= 0.6 * padded + w["bias"].nbytes + 64
    assert kernels(compiled).count("matmul_nbits") == 3
    assert "matmul" not in kernels(compiled)
    twice = w | {"copy": w["table"].T}
    nodes = [node("Gather", ["table", "ids"], ["x"]), node("MatMul", ["x", "copy"], ["y"])]
    names = ("table", "copy")
    compiled = compiler.compile(model(nodes, {n: twice[n] for n in names}, {"ids": ["b", "s"]}, rank=3), weights="int8")
    assert sum(weight.nbytes for weight in compiled.weights if weight.source is not None) < 1.1 * VOCABULARY * WIDTH


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", ["nan", "inf", "zeros", "outlier", "tiny", "huge", "mixed"])
def test_hostile_weights(form: str, what: str) -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((70, 33)).astype(np.float32)
    w = {
        "zeros": w * 0,
        "tiny": w * np.float32(1e-30),
        "huge": w * np.float32(1e30),
        "mixed": w * 10.0 ** rng.integers(-12, 4, w.shape),
    }.get(what, w)
    w = w.astype(np.float32)
    if what in ("nan", "inf", "outlier"):
        w[5, 7] = {"nan": np.nan, "inf": np.inf, "outlier": 1e6}[what]
    compiled = compiler.compile(product(w), weights=narrow.Wish(form, bound=1))
    assert compiled.narrowed is not None
    [row] = compiled.narrowed.rows
    runtime = pyonnx_wasm.InferenceSession(product(w)) if row.form == "float32" else None
    wide = w.astype(np.float64) if row.form == "float32" else decoded(w.T, row.form).T
    assert row.form == ("float32" if what in ("nan", "inf") or (form == "f16" and what in ("huge", "outlier")) else form)
    for m in (1, 6):
        x = rng.standard_normal((m, 70)).astype(np.float32)
        [y] = results(compiled, {"x": x})
        if runtime is not None:
            assert np.array_equal(y, runtime.run(None, {"x": x})[0], equal_nan=True)
            continue
        size = np.abs(x).max(initial=0) * np.abs(wide).sum(0) + 1e-37
        assert np.isfinite(y).all()
        assert (np.abs(y - x.astype(np.float64) @ wide) <= 4e-5 * size).all()


def test_numbers_that_are_not_finite_pass_through_rounded_rows() -> None:
    rng = np.random.default_rng(4)
    compiled = compiler.compile(product(rng.standard_normal((64, 9)).astype(np.float32)), weights="q4")
    for value in (np.nan, np.inf, 1e-38):
        x = rng.standard_normal((2, 64)).astype(np.float32)
        x[1, 5] = value
        [y] = results(compiled, {"x": x})
        assert np.isfinite(y[0]).all(), "the other row"
        assert np.isfinite(y[1]).all() == (value == 1e-38)
        if np.isnan(value):
            assert np.isnan(y[1]).all()


def test_what_is_kept_stays(tmp_path: Path) -> None:
    data, w = tied()
    for keep, stays in ((["up"], ["up"]), (["down", "u?"], ["down", "up"]), (["head"], ["table"]), (["*"], ["table", "up", "down"])):
        compiled = compiler.compile(data, weights="q4", keep=keep)
        assert compiled.narrowed is not None
        forms = {row.name: row.form for row in compiled.narrowed.rows}
        assert forms == {name: "float32" if name in stays else "q4" for name in ("table", "up", "down")}
        for name in stays:
            assert any(weight.name == name and weight.nbytes == w[name].nbytes for weight in compiled.weights)
    for wrong, told in (
        ({"weights": "q4", "keep": ["nothing"]}, "'nothing'"),
        ({"keep": ["up"]}, "goes with weights"),
        ({"weights": "q5"}, "q5"),
    ):
        with pytest.raises(ValueError, match=told):
            compiler.compile(data, **wrong)  # type: ignore[arg-type]


def test_a_bound_chooses_wider_forms() -> None:
    data, _ = tied()
    before: dict[float, int] = {}
    for bound in (1, 0.1, 0.02, 0.001, 1e-9):
        report = compiler.compile(data, weights=narrow.Wish("q4", bound=bound)).narrowed
        assert report is not None
        assert max(report.errors.values()) <= bound
        before[bound] = report.after
    sizes = list(before.values())
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] == report.before
    assert all(row.form == "float32" for row in report.rows)


def test_nothing_to_narrow() -> None:
    plain = model([node("Relu", ["x"], ["y"])], {}, {"x": ["m", 8]})
    report = compiler.compile(plain, weights="q4").narrowed
    assert report is not None
    assert report.rows == []
    assert report.before == report.after
    rng = np.random.default_rng(5)
    blocks = {"b": rng.integers(0, 256, (24, 2, 16)).astype(np.uint8), "s": rng.random(48).astype(np.float32)}
    four = node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=64, N=24, bits=4, block_size=32)
    eight = [node("DequantizeLinear", ["b", "s", "z"], ["w"], axis=1), node("MatMul", ["x", "w"], ["y"])]
    bytes_ = {"b": rng.integers(-128, 128, (64, 24)).astype(np.int8), "s": rng.random(24).astype(np.float32), "z": np.zeros(24, np.int8)}
    for nodes, tensors in (([four], blocks), (eight, bytes_)):
        data = model(nodes, tensors, {"x": ["m", 64]})
        narrowed, plainly = compiler.compile(data, weights="q4"), compiler.compile(data)
        assert narrowed.main.code.tobytes() == plainly.main.code.tobytes()
        assert [w.nbytes for w in narrowed.weights] == [w.nbytes for w in plainly.weights]


def test_halves_and_bodies_of_loops() -> None:
    rng = np.random.default_rng(6)
    w = (rng.standard_normal((64, 64)) / 8).astype(np.float16)
    halves = [node("Cast", ["x"], ["h"], to=10), node("MatMul", ["h", "w"], ["p"]), node("Cast", ["p"], ["y"], to=1)]
    report = compiler.compile(model(halves, {"w": w}, {"x": ["m", 64]}), weights="int8").narrowed
    assert report is not None
    assert [(row.form, row.before) for row in report.rows] == [("int8", w.nbytes)]
    info = helper.make_tensor_value_info
    step = helper.make_graph(
        [node("MatMul", ["v", "w"], ["n"], name="inner"), node("Identity", ["c"], ["on"])],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", 1, ["m", 64])],
        [info("on", TensorProto.BOOL, []), info("n", 1, ["m", 64])],
    )
    wide = w.astype(np.float32)
    graph = helper.make_graph(
        [node("Loop", ["trips", "", "x"], ["y"], body=step)], "g", [info("trips", TensorProto.INT64, []), info("x", 1, ["m", 64])],
        [info("y", 1, ["m", 64])], [numpy_helper.from_array(wide, "w")],
    )  # fmt: skip
    data = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()
    x = rng.standard_normal((2, 64)).astype(np.float32)
    wish = narrow.Wish("int8", inputs={"trips": np.array(3), "x": x})
    compiled = compiler.compile(data, weights=wish)
    assert compiled.narrowed is not None
    assert [row.form for row in compiled.narrowed.rows] == ["int8"]
    assert 0 < compiled.narrowed.errors["y"] < 0.05
    held = decoded(wide.T, "int8").T
    want = x.astype(np.float64) @ held @ held @ held
    [y] = results(compiled, {"trips": np.array(3), "x": x})
    assert np.abs(y - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.parametrize(
    "file", ["js/pages/digits/digits.onnx", "tests/data/decoder.onnx", "tests/data/vit.onnx", "tests/data/mobilenet.onnx"]
)
def test_models(file: str) -> None:
    for form in ("q4", "int8"):
        compiled = compiler.compile(ROOT / file, weights=narrow.Wish(form, each=False))
        report = compiled.narrowed
        assert report is not None
        assert all(error <= narrow.BOUNDS[form] for error in report.errors.values())
        rows = [row for row in report.rows if row.form == form]
        assert all(row.after <= BYTES[form] * row.shape[0] * -(-row.shape[1] // 32) * 32 for row in rows)
        assert report.after <= report.before - sum(row.before - row.after for row in rows) + 256


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, w = tied()
    source, target = tmp_path / "m.onnx", tmp_path / "m.ponnx"
    source.write_bytes(data)
    np.savez(tmp_path / "feed.npz", ids=np.arange(12).reshape(2, 6))
    command = ["compile", str(source), "-o", str(target), "--weights", "q4", "--keep", "up", "--inputs", str(tmp_path / "feed.npz")]
    assert cli.main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["narrowed"]
    assert told["weights"] == "q4"
    assert set(told["errors"]) == {"y"}
    assert 0 < told["errors"]["y"] < 0.25
    assert {row["name"]: row["form"] for row in told["layers"]} == {"table": "q4", "up": "float32", "down": "q4"}
    assert told["bytes_before"] == sum(a.nbytes for a in w.values())
    assert told["bytes_after"] < told["bytes_before"] / 2
    assert cli.main(command) == 0
    shown = capsys.readouterr().out
    assert "error alone" in shown
    assert "output y: relative error" in shown
    assert shown.index("table") < shown.index("up ")
    for wrong, text in ((["--weights", "q4"], "compiled one"), (["--keep", "up"], "goes with --weights")):
        assert cli.main(["compile", str(target if wrong[0] == "--weights" else source), "-o", str(tmp_path / "x.ponnx"), *wrong]) == 1
        assert text in capsys.readouterr().err
    assert onnx.load(source).graph.initializer[0].name == "table"


@pytest.mark.usefixtures("no_collection")
def test_weights_of_tries_are_given_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try packs all weights anew: what waited for a collection took 24 GB for gpt2."""
    made: list[weakref.ref[Any]] = []
    before = cpu.Executor.__init__

    def counted(self: Any, *given: Any, **named: Any) -> None:
        before(self, *given, **named)
        made.append(weakref.ref(self.core))

    monkeypatch.setattr(cpu.Executor, "__init__", counted)
    compiler.compile(tied()[0], weights="q4")
    assert len(made) > 1
    assert [one() for one in made] == [None] * len(made)
