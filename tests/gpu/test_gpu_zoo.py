"""Whole models on the GPU, no step on the core, against onnxruntime: one compile each, the shapes of ``test_zoo``."""

import onnxruntime
import pytest
from test_zoo import CASES, agree, feed

import pyonnx_wasm as ort


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_runs_wholly_on_the_gpu_and_agrees_with_onnxruntime(name: str) -> None:
    path, shapes = CASES[name]
    if not path.exists():
        pytest.fail(f"{path} is not there: run `make models`", pytrace=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    oracle = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    session = ort.InferenceSession(path, providers=["gpu"])
    assert session.kernels_on_core() == ()
    for sizes in shapes:
        given = feed(oracle, sizes)
        for got, want in zip(session.run(None, given), oracle.run(None, given), strict=True):
            agree(got, want)
