"""The surface that users of onnxruntime know, and what it says when something does not fit."""

import asyncio
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyonnx_wasm as ort

DIGITS = Path(__file__).parents[1] / "js" / "pages" / "digits" / "digits.onnx"


def small(**changes: object) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    nodes = [
        helper.make_node("Add", ["x", "z"], ["s"]),
        helper.make_node(str(changes.get("op", "MatMul")), ["s", "w"], ["y"], name="product"),
    ]
    graph = helper.make_graph(nodes, "g", [x, z], [y], [numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def feed(n: int = 2) -> dict[str, np.ndarray]:
    return {"x": np.ones((n, 3), np.float32), "z": np.ones((n, 3), np.float32)}


def test_signature_and_run() -> None:
    s = ort.InferenceSession(small())
    assert [(i.name, i.shape, i.type) for i in s.get_inputs()] == [("x", ["n", 3], "tensor(float)"), ("z", ["n", 3], "tensor(float)")]
    assert [(o.name, o.shape) for o in s.get_outputs()] == [("y", ["n", 2])]
    assert s.get_providers() == ["cpu"]
    for n in (1, 4, 0, 2):
        (y,) = s.run(["y"], feed(n))
        np.testing.assert_array_equal(y, np.full((n, 3), 2.0, np.float32) @ np.arange(6, dtype=np.float32).reshape(3, 2))


def test_inputs_of_any_layout() -> None:
    s = ort.InferenceSession(small())
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    strided = {"x": base[::2, ::2], "z": np.asfortranarray(base[:2, :3])}
    (a,) = s.run(None, strided)
    (b,) = s.run(None, {k: np.ascontiguousarray(v) for k, v in strided.items()})
    np.testing.assert_array_equal(a, b)
    (c,) = s.run(None, {k: v.astype(">f4") for k, v in strided.items()})
    np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": None}, "input 'x' is missing"),
        ({"q": np.zeros(1)}, "no input is named 'q'"),
        ({"x": np.ones((2, 3))}, "input 'x' takes float32, got float64"),
        ({"x": np.ones(3, np.float32)}, r"input 'x' takes rank 2"),
        ({"x": np.ones((2, 4), np.float32)}, r"input 'x': axis 1 must be 3"),
        ({"x": np.ones((5, 3), np.float32)}, r"do not broadcast"),
    ],
)
def test_feeds_that_do_not_fit(change: dict[str, np.ndarray], said: str) -> None:
    s = ort.InferenceSession(small())
    bad = {k: v for k, v in {**feed(), **change}.items() if v is not None}
    with pytest.raises((ValueError, RuntimeError), match=said):
        s.run(None, bad)
    assert s.run(None, feed())[0].shape == (2, 2)


def test_unknown_output_and_provider() -> None:
    with pytest.raises(ValueError, match="no output is named 'nope'"):
        ort.InferenceSession(small()).run(["nope"], feed())
    with pytest.raises(ValueError, match="available: cpu"):
        ort.InferenceSession(small(), providers=["tpu"])
    assert ort.InferenceSession(small(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"]).get_providers() == [
        "CPUExecutionProvider"
    ]


def test_unknown_operator_names_node_and_operator() -> None:
    with pytest.raises(ValueError, match=r"node 'product' \(Frobnicate\).*Frobnicate is not supported"):
        ort.InferenceSession(small(op="Frobnicate"))


def test_pickle_carries_path_and_options() -> None:
    s = ort.InferenceSession(str(DIGITS), ort.SessionOptions(intra_op_num_threads=1))
    data = pickle.dumps(s)
    assert len(data) < 2000
    ink = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    np.testing.assert_array_equal(pickle.loads(data).run(None, {"ink": ink})[0], s.run(None, {"ink": ink})[0])


def test_threads_share_a_session() -> None:
    s = ort.InferenceSession(str(DIGITS))
    inks = [np.random.default_rng(n).random((n % 5 + 1, 1, 8, 8), np.float32) for n in range(40)]
    want = [s.run(None, {"ink": ink})[0] for ink in inks]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda ink: s.run(None, {"ink": ink})[0], inks))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_compiled_file_gives_the_same(tmp_path: Path) -> None:
    target = tmp_path / "digits.ponnx"
    ort.save(ort.compile(DIGITS), target)
    ink = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    for source in (target, target.read_bytes()):
        np.testing.assert_array_equal(
            ort.InferenceSession(source).run(None, {"ink": ink})[0], ort.InferenceSession(DIGITS).run(None, {"ink": ink})[0]
        )


def test_thin_file_reads_weights_from_its_source(tmp_path: Path) -> None:
    source = tmp_path / "digits.onnx"
    source.write_bytes(DIGITS.read_bytes())
    target = tmp_path / "digits.ponnx"
    thin = ort.save(ort.compile(source), target, thin=True)
    assert thin < ort.save(ort.compile(source), tmp_path / "full.ponnx")
    ink = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    np.testing.assert_array_equal(
        ort.InferenceSession(target).run(None, {"ink": ink})[0], ort.InferenceSession(source).run(None, {"ink": ink})[0]
    )
    source.write_bytes(DIGITS.read_bytes()[:100])
    with pytest.raises(ValueError, match="lie outside the source file"):
        ort.load(target)
    source.unlink()
    with pytest.raises(ValueError, match=r"its weights are in 'digits\.onnx'"):
        ort.load(target)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: d[:5], "too short"),
        (lambda d: d[:4000], "lie outside the file|no JSON|not a compiled model"),
        (lambda d: d[:8] + b"{garbage" + d[16:], "no JSON"),
        (lambda d: d.replace(b'"version":"1"', b'"version":"9"', 1), "format version 9"),
        (lambda d: d.replace(b'"dtype":"float32"', b'"dtype":"float99"', 1), "unknown dtype"),
    ],
)
def test_damaged_compiled_files(tmp_path: Path, damage: object, said: str) -> None:
    target = tmp_path / "digits.ponnx"
    ort.save(ort.compile(DIGITS), target)
    target.write_bytes(damage(target.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ValueError, match=said):
        ort.load(target)


def test_structure_that_depends_on_contents() -> None:
    """Axes given at run time: compiled for each value, as onnxruntime would run it."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    axes = helper.make_tensor_value_info("axes", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], "g", [x, axes], [y])
    s = ort.InferenceSession(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for axis in (0, 1, -1):
        np.testing.assert_array_equal(s.run(None, {"x": data, "axes": np.array([axis])})[0], data.sum(axis))


def test_the_type_of_an_output_that_the_file_does_not_declare() -> None:
    """It is known once the contents are that the structure depends on."""
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [2, 3]), helper.make_tensor_value_info("axis", TensorProto.INT32, [])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString())
    x = np.arange(6).reshape(2, 3)
    for axis in (0, 1):
        (y,) = session.run(None, {"x": x, "axis": np.array(axis, np.int32)})
        assert y.dtype == np.int64
        np.testing.assert_array_equal(y, np.cumsum(x, axis))
    assert session.get_outputs()[0].type == "tensor(int64)"


def test_run_async(apart: Callable[..., Any]) -> None:
    s = ort.InferenceSession(small())

    async def several() -> list[list[np.ndarray]]:
        return await asyncio.gather(*(s.run_async(["y"], feed(n)) for n in (1, 2, 3)))

    for n, (y,) in zip((1, 2, 3), apart(asyncio.run, several()), strict=True):
        np.testing.assert_array_equal(y, s.run(None, feed(n))[0])
    with pytest.raises(ValueError, match="no output is named 'nope'"):
        apart(asyncio.run, s.run_async(["nope"], feed()))


def test_a_model_compiles_to_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ort.save(ort.compile(DIGITS), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_output_that_is_named_twice_comes_twice() -> None:
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", info[:1], info[1:])
    session = ort.InferenceSession(helper.make_model(graph, ir_version=10).SerializeToString())
    first, second = session.run(None, {"x": np.float32([1, 2])})
    assert np.array_equal(first, second)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "gpu"])
def test_memory_goes_with_the_last_name(backend: str) -> None:
    session = ort.InferenceSession(small(), providers=[backend])
    for _ in range(3):
        session.run(None, feed())
    executor = weakref.ref(session._variants[()])
    del session
    assert executor() is None
