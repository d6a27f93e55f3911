"""The native core for Arm, emulated: dot products of bytes where a processor has them, and where it has none."""

import platform
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyonnx_wasm import InferenceSession, compiler, narrow
from pyonnx_wasm.program import file as ponnx
from pyonnx_wasm.testing import conformance, emulated
from pyonnx_wasm.testing.differential import run

pytestmark = [
    pytest.mark.skipif(platform.machine().lower() in ("arm64", "aarch64"), reason="all other tests run on Arm here"),
    pytest.mark.skipif(emulated.qemu() is None, reason="needs an emulator of Arm: `make build/.qemu`"),
]

OLD = "cortex-a53"
SDOT, SMMLA = 0x4E809400, 0x4E80A400  # of vectors
BY_PROCESSOR = re.compile("attention|conv|gemm|lstm|matmul|quant")  # cases of the suite whose kernels differ among processors
SEED, COUNT = 20261128, 40


@contextmanager
def logged(cpu: str) -> Iterator[list[int]]:
    """The instructions that are met, without their registers."""
    met: list[int] = []
    with tempfile.TemporaryDirectory() as folder, emulated.arm(cpu, "-d", "in_asm", "-D", f"{folder}/log"):
        yield met
        words = re.findall(r"^0x\w+:  (\w{8})\b", Path(folder, "log").read_text(errors="replace"), re.M)
        met += [int(word, 16) & 0xFFE0FC00 for word in words]


def product(bits: int, rows: int, level: int) -> tuple[bytes, dict[str, np.ndarray]]:
    """A product with weights in blocks, and what to feed it."""
    rng = np.random.default_rng(bits + rows)
    k, n = 96, 37
    codes = rng.integers(0, 256, (n, k // 32, 4 * bits), np.uint8)
    weights = [
        helper.make_tensor("codes", TensorProto.UINT8, codes.shape, codes.tobytes(), raw=True),
        helper.make_tensor("scales", TensorProto.FLOAT, [n * (k // 32)], rng.uniform(0.5, 1, n * (k // 32))),
    ]
    how: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": 32, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "codes", "scales"], ["y"], domain="com.microsoft", **how)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size]) for name, size in (("x", k), ("y", n)))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], weights), opset_imports=opsets, ir_version=10)
    return model.SerializeToString(), {"x": rng.standard_normal((rows, k)).astype(np.float32)}


@pytest.mark.parametrize(("cpu", "has"), [("max", True), (OLD, False)])
def test_dot_products_are_taken_where_there_are_any(cpu: str, has: bool) -> None:
    model, feeds = product(4, 1, 4)
    with logged(cpu) as met:
        InferenceSession(model, providers=["wasmtime"]).run(None, feeds)
    assert len(met) > 10_000
    assert (SDOT in met) == has


@pytest.mark.parametrize(("cpu", "has"), [("max", {SDOT, SMMLA}), ("neoverse-n1", {SDOT}), (OLD, set())])
def test_integers_are_multiplied_by_what_there_is(cpu: str, has: set[int]) -> None:
    """Rows and columns for whole tiles and parts of them, and a depth of an odd number of steps."""
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 256, (15, 69), np.uint8), rng.integers(-128, 128, (69, 31), np.int8)
    values = [
        helper.make_tensor_value_info(n, t, s) for n, t, s in (("a", TensorProto.UINT8, [15, 69]), ("y", TensorProto.INT32, [15, 31]))
    ]
    weights = [numpy_helper.from_array(b, "b"), numpy_helper.from_array(np.uint8(131), "zero")]
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b", "zero"], ["y"])], "g", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    with logged(cpu) as met:
        [got] = InferenceSession(model, providers=["wasmtime"]).run(None, {"a": a})
    np.testing.assert_array_equal(got, (a.astype(np.int32) - 131) @ b.astype(np.int32))
    assert {SDOT, SMMLA} & set(met) == has


@pytest.mark.parametrize("cpu", ["max", OLD])
def test_windows_of_bytes(cpu: str) -> None:
    """Which an old processor transforms before it multiplies, as pairs of int16."""
    rng = np.random.default_rng(4)
    x, w = rng.choice([0, 255], (1, 16, 10, 9)).astype(np.uint8), rng.choice([-128, 127, 3], (13, 16, 3, 3)).astype(np.int8)
    values = [helper.make_tensor_value_info(n, TensorProto.UINT8, [1, c, 10, 9]) for n, c in (("x", 16), ("y", 13))]
    constants = {"one": np.float32(1), "zero": np.uint8(200), "w": w, "none": np.int8(0), "step": np.float32(8192), "middle": np.uint8(128)}
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    node = helper.make_node("QLinearConv", ["x", "one", "zero", "w", "one", "none", "step", "middle"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "g", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    with emulated.arm(cpu):
        [got] = InferenceSession(model, providers=["wasmtime"]).run(None, {"x": x})
    padded = np.pad(x.astype(np.int64) - 200, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    sums = np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.int64))
    np.testing.assert_array_equal(got, np.clip(np.rint(sums / 8192) + 128, 0, 255))


@pytest.mark.parametrize("cpu", ["max", OLD])
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("bits", [4, 8])
def test_products_with_blocks_are_those_of_this_machine(bits: int, rows: int, level: int, cpu: str) -> None:
    model, feeds = product(bits, rows, level)
    [want] = InferenceSession(model, providers=["cpu"]).run(None, feeds)
    with emulated.arm(cpu):
        [got] = InferenceSession(model, providers=["wasmtime"]).run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-4 * np.abs(want).max())


@pytest.mark.parametrize("form", ["q4", "int8"])
def test_many_rows_with_narrowed_weights_are_those_of_this_machine(form: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    k, n, rows = 224, 45, 11
    weights = helper.make_tensor("w", TensorProto.FLOAT, [k, n], rng.standard_normal(k * n))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size]) for name, size in (("x", k), ("y", n)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    ponnx.save(compiler.compile(model.SerializeToString(), weights=narrow.Wish(form)), tmp_path / "narrow.ponnx")
    feeds = {"x": rng.standard_normal((rows, k)).astype(np.float32)}
    [want] = InferenceSession(tmp_path / "narrow.ponnx", providers=["cpu"]).run(None, feeds)
    with logged("max") as met:
        [got] = InferenceSession(tmp_path / "narrow.ponnx", providers=["wasmtime"]).run(None, feeds)
    assert SDOT in met
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-4 * np.abs(want).max())


@pytest.mark.parametrize("cpu", ["max", OLD])
def test_the_suite_passes_where_kernels_differ_among_processors(cpu: str) -> None:
    chosen = [c for c in conformance.cases() if c.kind == "node" and BY_PROCESSOR.search(c.name) and "_expanded" not in c.name]
    assert len(chosen) > 200
    with emulated.arm(cpu):
        failed = conformance.run("wasmtime", chosen)
    assert conformance.against_list("wasmtime", failed, [c.name for c in chosen]) == []


def test_the_fuzzer_finds_nothing() -> None:
    report = run.run(SEED, range(COUNT), "arm", "Quant|NBits|Integer|QLinear|^Conv|^MatMul|^Gemm")
    assert report.findings == {}, report.table()
    assert report.total == COUNT
