"""Models of halves: how far their numbers are from those of the same weights in float32, beside onnxruntime's."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyonnx_wasm as ort

HUB = Path(__file__).parent / "packaging" / "transformers_js" / "hub"
SIZES = {"batch_size": 1, "text_batch_size": 3, "image_batch_size": 1, "num_channels": 3, "sequence_length": 11, "past_sequence_length": 0}
PICTURES = {"objects": (32, 48)}
Feed = dict[str, np.ndarray]


def widened(model: onnx.ModelProto) -> bytes:
    """The model in float32, with the weights that it has."""

    def tensor(t: TensorProto) -> None:
        if t.data_type == TensorProto.FLOAT16:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float32), t.name))

    for t in model.graph.initializer:
        tensor(t)
    for node in model.graph.node:
        for a in node.attribute:
            tensor(a.t)
            if node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT16:
                a.i = TensorProto.FLOAT
            if a.name == "accuracy_level":  # of which 4 rounds what it multiplies to bytes
                a.i = 0
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())


def session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def feed(model: onnx.ModelProto, picture: tuple[int, int], seed: int) -> Feed:
    rng = np.random.default_rng(seed)
    sizes = SIZES | dict(zip(("height", "width"), picture, strict=True))
    made = {}
    for info in model.graph.input:
        shape = [d.dim_value or sizes.get(d.dim_param, 11) for d in info.type.tensor_type.shape.dim]
        if info.type.tensor_type.elem_type != TensorProto.INT64:
            made[info.name] = rng.standard_normal(shape).astype(np.float32)
        elif "mask" in info.name:
            made[info.name] = np.ones(shape, np.int64)
        elif "position" in info.name:
            made[info.name] = np.arange(shape[-1])[None]
        else:
            made[info.name] = np.zeros(shape, np.int64) if "type" in info.name else rng.integers(0, 25, shape)
    return made


MODELS = sorted(path.relative_to(HUB).as_posix() for path in HUB.glob("*/onnx/*16.onnx"))


@pytest.mark.parametrize("name", MODELS)
def test_no_further_from_float32_than_onnxruntime(name: str) -> None:
    """By the largest error of five runs, relative to the output's largest; of pictures' numbers both sides round the same."""
    path = HUB / name
    model = onnx.load(path)
    given = [feed(model, PICTURES.get(path.parents[1].name, (32, 32)), seed) for seed in range(5)]
    theirs, ours = session(path.read_bytes()), ort.InferenceSession(str(path), providers=["cpu"])
    exact = session(widened(onnx.load(path)))
    errors = {}
    for who, run in (("ours", ours.run), ("theirs", theirs.run)):
        errors[who] = max(_error(run, exact, each) for each in given)
    assert errors["ours"] < max(errors["theirs"], 2**-9)


def _error(run: Callable[..., list[np.ndarray]], exact: onnxruntime.InferenceSession, given: Feed) -> float:
    (found, *_), (wanted, *_) = run(None, given), exact.run(None, given)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
@pytest.mark.parametrize("optimise", [False, True])
def test_what_a_cast_rounds_is_rounded(dtype: int, optimise: bool) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=dtype),
        helper.make_node("Cast", ["half"], ["back"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["x", "back"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)])
    given = np.array([1 + 2**-10 + 2**-14, 1 + 2**-9, 3.14159, -70000.0, 1e-9], np.float32)
    half = np.dtype(np.float16) if dtype == TensorProto.FLOAT16 else helper.tensor_dtype_to_np_dtype(dtype)
    options = ort.SessionOptions()
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (found,) = ort.InferenceSession(model.SerializeToString(), options).run(None, {"x": given})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, given - given.astype(half).astype(np.float32))


def test_a_comparison_sees_the_numbers_that_others_see() -> None:
    """A sum of halves is compared with an element picked from it: equal, whatever is kept in float32."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Mul", ["twice", "third"], ["y"]),
        helper.make_node("Gather", ["y", "all"], ["same"], axis=0),
        helper.make_node("Equal", ["y", "same"], ["equal"]),
        helper.make_node("Sigmoid", ["y"], ["z"]),
    ]
    values = [numpy_helper.from_array(np.float16([1 / 3]), "third"), numpy_helper.from_array(np.arange(64), "all")]
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, [64]) for name in "xz")
    equal = helper.make_tensor_value_info("equal", TensorProto.BOOL, [64])
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [equal, z], values), opset_imports=[helper.make_opsetid("", 21)])
    given = np.random.default_rng(0).standard_normal(64).astype(np.float16)
    (found, _) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": given})
    assert found.all()
