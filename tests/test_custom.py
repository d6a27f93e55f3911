"""Operators of one's own: those that decompose, callbacks, and what packages bring."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper

import pyonnx_wasm as ort
from pyonnx_wasm import callbacks, tensor
from pyonnx_wasm.ir import IRError
from pyonnx_wasm.ir.text import print_graph
from pyonnx_wasm.onnxfile import reader
from pyonnx_wasm.registry import OPERATORS
from pyonnx_wasm.trace import trace

DOMAIN = "test.ops"
node = helper.make_node


@pytest.fixture(autouse=True)
def only_here() -> Iterator[None]:
    """What a test registers is gone behind it."""
    operators = {key: list(versions) for key, versions in OPERATORS.items()}
    functions = dict(callbacks.FUNCTIONS)
    yield
    OPERATORS.clear()
    OPERATORS.update(operators)
    callbacks.FUNCTIONS.clear()
    callbacks.FUNCTIONS.update(functions)


def model(nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], dtype: int = TensorProto.FLOAT) -> bytes:
    given = [helper.make_tensor_value_info(n, TensorProto.INT64 if n == "k" else dtype, shape) for n, shape in inputs.items()]
    graph = helper.make_graph(nodes, "custom", given, [helper.make_empty_tensor_value_info(o) for o in outputs])
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def median(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    return np.median(x, axis=axis).astype(x.dtype)


def register_median() -> None:
    ort.callback("Median", domain=DOMAIN, outputs=lambda x, *, axis: [(None, x.rank - 1)])(median)


X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
PROVIDERS = pytest.mark.parametrize("provider", ["cpu", "wasmtime"])


@PROVIDERS
def test_an_operator_that_decomposes(provider: str) -> None:
    @ort.op(domain=DOMAIN)
    def Swish(x: Any, *, beta: float = 1.0) -> Any:
        return tensor.map_("mul", x, ort.apply("Sigmoid", tensor.map_("mul", x, tensor.like(x, beta))))

    made = model([node("Swish", ["x"], ["y"], domain=DOMAIN, beta=2.0)], {"x": ["a", "b"]}, ["y"])
    session = ort.InferenceSession(made, providers=[provider])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X / (1 + np.exp(-2 * X)), rtol=1e-5)
    assert len(ort.compile(made).main.nodes) == 1, "one fused map"


def test_it_takes_the_place_of_a_built_in_one_and_of_itself() -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y"])
    for factor in (2.0, 3.0):

        @ort.op("Relu")
        def leak(x: Any, factor: float = factor) -> Any:
            return tensor.map_("mul", x, tensor.like(x, factor))

        np.testing.assert_allclose(ort.InferenceSession(made).run(None, {"x": X[0]})[0], factor * X[0], rtol=1e-6)
    del OPERATORS["", "Relu"][-1]
    np.testing.assert_array_equal(ort.InferenceSession(made).run(None, {"x": X[0]})[0], np.maximum(X[0], 0))


@PROVIDERS
def test_a_callback_between_steps(provider: str) -> None:
    register_median()
    nodes = [node("Exp", ["x"], ["e"]), node("Median", ["e"], ["m"], domain=DOMAIN, axis=0), node("Neg", ["m"], ["y"])]
    session = ort.InferenceSession(model(nodes, {"x": ["a", "b"]}, ["y"]), providers=[provider])
    for rows in (5, 1, 4, 5):
        np.testing.assert_allclose(session.run(None, {"x": X[:rows]})[0], -np.median(np.exp(X[:rows]), 0), rtol=1e-5)
    assert len(session.profile({"x": X})) >= 3


@PROVIDERS
def test_sizes_of_a_callback_are_data(provider: str) -> None:
    @ort.callback("Picked", domain=DOMAIN, outputs=[(None, 1), ("int64", 1)])
    def picked(x: np.ndarray, least: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        at = np.flatnonzero(x > (0 if least is None else least))
        return x[at], at

    nodes = [node("Picked", ["x"], ["v", "i"], domain=DOMAIN), node("ReduceSum", ["v"], ["s"], keepdims=0)]
    session = ort.InferenceSession(model(nodes, {"x": ["n"]}, ["v", "i", "s"]), providers=[provider])
    for x in (X[0], -np.abs(X[1]), np.abs(X[2]), X[3, :0]):
        v, i, s = session.run(None, {"x": x})
        np.testing.assert_array_equal(v, x[x > 0])
        np.testing.assert_array_equal(i, np.flatnonzero(x > 0))
        np.testing.assert_allclose(s, x[x > 0].sum(), rtol=1e-5)


def in_a_loop() -> bytes:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["on"]),
            node("Median", ["c"], ["m"], domain=DOMAIN, name="inner"),
            node("Unsqueeze", ["m", "axis"], ["column"]),
            node("Add", ["c", "column"], ["next"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("c", TensorProto.FLOAT, ["a", "b"])],
        [info("on", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, ["a", "b"]), info("m", TensorProto.FLOAT, ["a"])],
        [helper.make_tensor("axis", TensorProto.INT64, [1], [1])],
    )
    return model([node("Loop", ["k", "", "x"], ["y", "ms"], body=body)], {"x": ["a", "b"], "k": []}, ["y", "ms"])


@PROVIDERS
def test_a_callback_within_a_loop(provider: str) -> None:
    register_median()
    session = ort.InferenceSession(in_a_loop(), providers=[provider])
    for k, rows in ((20, 5), (1, 2), (30, 5), (0, 3)):
        y, medians = session.run(None, {"x": X[:rows], "k": np.array(k)})
        carried, want = X[:rows].copy(), []
        for _ in range(k):
            want.append(np.median(carried, -1).astype(np.float32))
            carried = carried + want[-1][:, None]
        np.testing.assert_allclose(y, carried, rtol=1e-4)
        if k:
            np.testing.assert_allclose(medians, want, rtol=1e-4)


@PROVIDERS
def test_a_run_that_failed_in_a_callback_leaves_nothing_behind(provider: str) -> None:
    calls = 0

    @ort.callback("Median", domain=DOMAIN, outputs=lambda x, *, axis: [(None, x.rank - 1)])
    def fails(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyError("third")
        return median(x, axis=axis)

    session = ort.InferenceSession(in_a_loop(), providers=[provider])
    with pytest.raises(KeyError, match="third") as caught:
        session.run(None, {"x": X, "k": np.array(9)})
    assert caught.value.__notes__ == ["raised for node 'inner' (test.ops.Median)"]
    y, medians = session.run(None, {"x": X, "k": np.array(2)})
    assert medians.shape == (2, 5)
    np.testing.assert_allclose(y, X + (3 * np.median(X, -1)[:, None]), rtol=1e-4)


def test_a_compiled_file_keeps_it(tmp_path: Path) -> None:
    register_median()
    nodes = [node("Median", ["x"], ["y"], domain=DOMAIN, axis=0, name="here")]
    ort.save(ort.compile(model(nodes, {"x": ["a", "b"]}, ["y"])), tmp_path / "m.ponnx")
    np.testing.assert_allclose(ort.InferenceSession(tmp_path / "m.ponnx").run(None, {"x": X})[0], np.median(X, 0), rtol=1e-6)
    callbacks.FUNCTIONS.clear()
    with pytest.raises(ort.CallbackError) as caught:
        ort.InferenceSession(tmp_path / "m.ponnx").run(None, {"x": X})
    assert str(caught.value) == (
        "node 'here' (test.ops.Median): no function is registered here to run it; register one before the model runs: "
        "@pyonnx_wasm.callback('Median', domain='test.ops')"
    )


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda x: x[0], "float32 of rank 1, not float32 of rank 2"),
        (lambda x: x.astype(np.float64), "float64 of rank 2, not float32 of rank 2"),
        (lambda x: (), "gave 0 outputs, 1 are needed"),
    ],
)
def test_what_a_callback_gives_is_checked(result: Any, text: str) -> None:
    ort.callback("Wrong", domain=DOMAIN)(lambda x: result(x))
    session = ort.InferenceSession(model([node("Wrong", ["x"], ["y"], domain=DOMAIN)], {"x": ["a", "b"]}, ["y"]))
    with pytest.raises(ort.CallbackError, match=text):
        session.run(None, {"x": X})


def test_what_cannot_be_asked_of_a_callback_is_said_when_compiling() -> None:
    @ort.callback("Given", domain=DOMAIN)
    def given(x: np.ndarray, *, body: Any = None) -> np.ndarray:
        return x

    body = helper.make_graph([node("Neg", ["x"], ["z"])], "body", [], [helper.make_empty_tensor_value_info("z")])
    with pytest.raises(IRError, match="attribute 'body' of a callback must be"):
        ort.compile(model([node("Given", ["x"], ["y"], domain=DOMAIN, body=body)], {"x": ["n"]}, ["y"]))
    with pytest.raises(IRError, match=r"test.ops.Nobody is not supported.*pyonnx_wasm.op"):
        ort.compile(model([node("Nobody", ["x"], ["y"], domain=DOMAIN)], {"x": ["n"]}, ["y"]))


def test_on_a_gpu_the_host_runs_it_between_steps_of_the_gpu(tmp_path: Path) -> None:
    """Within a loop as well; its inputs come here and what it gives goes there, whatever else runs where."""
    ort.callback("Middle", domain=DOMAIN, outputs=[(None, 1)])(lambda x: np.median(x, axis=-1).astype(x.dtype))
    text = """g (float[a,b] x, int64 n) => (float[a] y, float[a] z) {
        u = MatMul(x, x) e = Exp(u) m = test.ops.Middle(e) y = Neg(m)
        z = Loop(n, , m) <body = body (int64 i, bool go, float[a] v) => (bool go2, float[a] w) {
            go2 = Identity(go) p = Mul(v, x) q = test.ops.Middle(p) w = Add(q, v) }> }"""
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "{DOMAIN}": 1]> {text}')
    compiled = ort.compile(made.SerializeToString(), gpu=True)
    assert not compiled.on_core
    ort.save(compiled, tmp_path / "middle.ponnx")
    session, core = (ort.InferenceSession(tmp_path / "middle.ponnx", providers=[p]) for p in ("gpu", "cpu"))
    for n, trips in ((3, 0), (5, 4)):
        feeds = {"x": np.random.default_rng(n).standard_normal((n, n)).astype(np.float32), "n": np.array(trips)}
        for got, want in zip(session.run(None, feeds), core.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    steps = [(step.kernel, step.backend) for step in session.profile(feeds, runs=1)]
    assert steps.count(("host", "cpu")) == 1 + trips
    assert {backend for kernel, backend in steps if kernel not in ("host", "loop")} == {"gpu"}


def test_installed_packages_bring_operators(tmp_path: Path) -> None:
    """By an entry point, for the command line as for Python."""
    (tmp_path / "bringer.py").write_text(
        "import pyonnx_wasm\nfrom pyonnx_wasm.tensor import map_\n\n"
        f"@pyonnx_wasm.op(domain={DOMAIN!r})\ndef Twice(x):\n    return map_('add', x, x)\n"
    )
    (tmp_path / "broken.py").write_text("raise ImportError('needs what is not there')\n")
    info = tmp_path / "bringer-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bringer\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pyonnx_wasm.operators]\nbringer = bringer\nbroken = broken\n")
    (tmp_path / "m.onnx").write_bytes(model([node("Twice", ["x"], ["y"], domain=DOMAIN)], {"x": ["n"]}, ["y"]))
    command = [sys.executable, "-m", "pyonnx_wasm", "compile", "m.onnx"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "operators of 'broken' (bringer): ImportError: needs what is not there" in done.stderr
    found = ort.InferenceSession(tmp_path / "m.ponnx").run(None, {"x": X[0]})[0]
    np.testing.assert_array_equal(found, X[0] + X[0])


def test_the_text_of_a_graph_says_what_the_host_is_to_call() -> None:
    register_median()
    made = model([node("Median", ["x"], ["y"], domain=DOMAIN, axis=0, name="mid")], {"x": ["n", 7]}, ["y"])
    graph = trace(reader.read(made))
    [step] = [n for n in graph.nodes if n.kernel.name == "host"]
    write, read = step.kernel.notation["callback"]
    written = write(step.params["callback"], str)
    assert f"callback={written}" in print_graph(graph)
    assert read(written, str) == step.params["callback"]
    assert '"attributes": {"axis": 0}' in written
