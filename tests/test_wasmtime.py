"""The backend wasmtime: the numbers and the errors of cpu, within the memory that it is given."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pyonnx_wasm as ort
from pyonnx_wasm import providers
from pyonnx_wasm.runtimes import wasmtime
from pyonnx_wasm.runtimes.errors import NO_MEMORY, CoreError

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"
DATA = ROOT / "tests" / "data"


def gather() -> bytes:
    """Rows of a stored table by index; the sum of two inputs whose symbolic sizes must be equal."""
    table = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "table")
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["picked"], name="pick"),
        helper.make_node("Add", ["picked", "x"], ["y"], name="sum"),
    ]
    inputs = [
        helper.make_tensor_value_info("rows", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", 3]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k", 3])], [table])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def rows(*indices: int, m: int | None = None) -> dict[str, np.ndarray]:
    return {"rows": np.array(indices, np.int64), "x": np.ones((len(indices) if m is None else m, 3), np.float32)}


def feed(session: ort.InferenceSession, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    made = {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else size for d in i.shape]
        random = np.random.default_rng(seed)
        made[i.name] = random.integers(0, 5, shape) if "int64" in i.type else random.random(shape, np.float32)
    return made


@pytest.mark.parametrize("model", [DIGITS, DATA / "decoder.onnx", DATA / "vit.onnx", DATA / "mobilenet.onnx"], ids=lambda p: p.stem)
def test_the_numbers_of_cpu(model: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "model.ponnx"
    ort.save(ort.compile(model), compiled)
    native = ort.InferenceSession(model)
    for source in (model, compiled):
        session = ort.InferenceSession(source, providers=["wasmtime"])
        assert session.get_providers() == ["wasmtime"]
        for size in (3, 1, 7, 3):
            given = feed(native, size)
            for want, got in zip(native.run(None, given), session.run(None, given), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_steps_are_measured() -> None:
    session = ort.InferenceSession(DIGITS, providers=["wasmtime"])
    profile = session.profile(feed(session, 2))
    native = ort.InferenceSession(DIGITS).profile(feed(session, 2))
    assert [(s.name, s.kernel, s.bytes) for s in profile] == [(s.name, s.kernel, s.bytes) for s in native]
    assert {s.backend for s in profile} == {"wasmtime"}


def refused(session: ort.InferenceSession, given: dict[str, np.ndarray]) -> tuple[Any, ...]:
    with pytest.raises(CoreError) as error:
        session.run(None, given)
    return error.value.code, error.value.step, error.value.origin, str(error.value)


@pytest.mark.parametrize("given", [rows(1, 9), rows(1, -5), rows(1, 2, 3, m=2)], ids=["index too large", "too small", "other sizes"])
def test_the_errors_of_cpu(given: dict[str, np.ndarray]) -> None:
    session = ort.InferenceSession(gather(), providers=["wasmtime"])
    assert refused(session, given) == refused(ort.InferenceSession(gather()), given)
    np.testing.assert_array_equal(session.run(None, rows(3, 0))[0], [[10, 11, 12], [1, 2, 3]])


def test_a_model_stays_within_the_memory_that_it_is_given() -> None:
    most = 6 << 20
    session = ort.InferenceSession(DIGITS, providers=[("wasmtime", {"max_memory": most})])
    small = feed(session, 2)
    want = session.run(None, small)[0]
    code, _, _, text = refused(session, feed(session, 1000))
    assert code == NO_MEMORY
    assert "no memory for" in text
    np.testing.assert_array_equal(session.run(None, small)[0], want)
    (executor,) = session._variants.values()
    assert isinstance(executor, wasmtime.Executor)
    assert executor.core.module.memory.data_len() <= most


def test_inputs_that_do_not_fit_are_named() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=[helper.make_opsetid("", 17)])
    session = ort.InferenceSession(model.SerializeToString(), providers=[("wasmtime", {"max_memory": 6 << 20})])
    for _ in range(2):
        with pytest.raises(MemoryError, match=r"out of memory: input 0 needs 40000000 bytes; the core has \d+ of at most 6291456"):
            session.run(None, {"x": np.ones(10_000_000, np.float32)})
        np.testing.assert_array_equal(session.run(None, {"x": np.array([-1, 2], np.float32)})[0], [0, 2])


def test_weights_that_do_not_fit_are_named() -> None:
    big = onnx.numpy_helper.from_array(np.ones((1 << 20, 3), np.float32), "table")
    model = onnx.load_from_string(gather())
    model.graph.initializer[0].CopyFrom(big)
    with pytest.raises(MemoryError, match=r'out of memory: weight "table" needs 12582912 bytes'):
        ort.InferenceSession(model.SerializeToString(), providers=[("wasmtime", {"max_memory": 8 << 20})])


def test_addresses_beyond_two_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = wasmtime.Module

    def high(**options: Any) -> wasmtime.Module:
        module = made(**options)
        module.alloc(2_200_000_000, "ballast")  # untouched, so it costs no memory
        return module

    monkeypatch.setattr(wasmtime, "Module", high)
    session = ort.InferenceSession(gather(), providers=["wasmtime"])
    np.testing.assert_array_equal(session.run(None, rows(3, 0))[0], [[10, 11, 12], [1, 2, 3]])
    assert refused(session, rows(7)) == refused(ort.InferenceSession(gather()), rows(7))
    (executor,) = session._variants.values()
    assert isinstance(executor, wasmtime.Executor)
    assert executor.core._inputs[0].at >= 1 << 31


def test_a_trap_needs_no_signal_handler() -> None:
    """faulthandler puts back the handlers that were there before it, and takes away those that came after."""
    script = """
import faulthandler
faulthandler.enable()
from pyonnx_wasm.runtimes.wasmtime import CoreLost, Module
module = Module()
faulthandler.disable()
try:
    module.call("pwx_step_count", -64)
except CoreLost:
    print("an error")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "an error\n"), done.stderr


def test_after_a_trap_nothing_is_called_any_more() -> None:
    session = ort.InferenceSession(gather(), providers=["wasmtime"])
    (executor,) = session._variants.values()
    assert isinstance(executor, wasmtime.Executor)
    with pytest.raises(wasmtime.CoreLost, match=r"the core stopped by an internal error: .*create the session again"):
        executor.core.module.call("pwx_step_count", -64)
    with pytest.raises(wasmtime.CoreLost, match="create the session again"):
        session.run(None, rows(1))
    assert ort.InferenceSession(gather(), providers=["wasmtime"]).run(None, rows(0))[0].tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"maxMemory": 1}, "the backend wasmtime has no option 'maxMemory'; it has max_memory"),
        ({"max_memory": 1 << 20}, "max_memory must be at least 4194304 bytes, not 1048576"),
    ],
)
def test_options_are_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ort.InferenceSession(gather(), providers=[("wasmtime", options)])


def test_the_memory_bound_survives_pickling() -> None:
    session = pickle.loads(pickle.dumps(ort.InferenceSession(DIGITS, providers=[("wasmtime", {"max_memory": 6 << 20})])))
    assert refused(session, feed(session, 1000))[0] == NO_MEMORY


def test_without_the_package_it_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "find_spec", lambda name: None)
    assert "wasmtime" not in ort.get_available_providers()
    assert ort.InferenceSession(gather(), providers=["wasmtime", "cpu"]).get_providers() == ["cpu"]
    with pytest.raises(ValueError, match=r"no backend of \['wasmtime'\] is available here; .*pip install 'pyonnx-wasm\[wasmtime\]'"):
        ort.InferenceSession(gather(), providers=["wasmtime"])


@pytest.mark.parametrize("provider", ["cpu", "wasmtime"])
@pytest.mark.parametrize(("m", "bits", "block"), [(1, 4, 32), (3, 4, 64), (2, 4, 16), (1, 8, 32), (4, 8, 128), (3, 2, 64)])
def test_numbers_that_may_not_be_rounded_are_not(provider: str, m: int, bits: int, block: int) -> None:
    """MatMulNBits at accuracy level 0, of numbers six orders of magnitude apart: as near as sums of float32 are."""
    rng = np.random.default_rng(m * bits)
    k, n = 3 * block - 5, 9
    codes = rng.integers(0, 1 << bits, (n, 3 * block))
    scale = rng.random((n, 3), np.float32) + np.float32(0.5)
    zero = 1 << (bits - 1)
    weights = ((codes - zero).reshape(n, 3, block) * scale[:, :, None].astype(np.float64)).reshape(n, -1)[:, :k]
    packed = (codes.reshape(n, 3, -1, 8 // bits) << (np.arange(8 // bits) * bits)).sum(-1).astype(np.uint8)
    x = (rng.standard_normal((m, k)) * 10.0 ** rng.integers(-3, 4, (m, k))).astype(np.float32)
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    stored = [onnx.numpy_helper.from_array(packed, "b"), onnx.numpy_helper.from_array(scale.reshape(-1), "s")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [m, size]) for name, size in (("x", k), ("y", n))]
    graph = helper.make_graph([node], "g", values[:1], values[1:], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    session = ort.InferenceSession(helper.make_model(graph, opset_imports=opsets).SerializeToString(), providers=[provider])
    [got] = session.run(None, {"x": x})
    wide = x.astype(np.float64)
    assert (np.abs(got - wide @ weights.T) <= 2.0**-22 * (np.abs(wide) @ np.abs(weights.T))).all()
