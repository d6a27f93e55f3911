"""Numbers that WebGPU computes in a real Chromium: what WGSL leaves to its implementations, and what only a browser's parser refuses."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

import pyonnx_wasm
from pyonnx_wasm.testing.differential import backends, cases, judge, run
from pyonnx_wasm.testing.differential.sketch import Case

pytestmark = pytest.mark.browser
Apart = Callable[..., Any]


def answered(found: Sequence[Case]) -> list[Any]:
    """What WebGPU makes of each; on a thread without Playwright, as it opens a browser of its own."""
    with backends.opened("webgpu") as answers:
        return [answers(case) for case in found]


def test_functions_of_special_values(apart: Apart) -> None:
    """NaN, infinities and the largest numbers through every function: what WGSL leaves to the browser's adapter is said in the shaders."""
    names = [
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu",
        "HardSigmoid", "HardSwish", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh",
        "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
    ]  # fmt: skip
    numbers = [0, 1e-3, 0.3, 1, 5, 12, 40, 100, 1e10, 3e38, np.inf]
    x = np.array([np.nan, *numbers, *(-v for v in numbers)], np.float32)
    nodes = [helper.make_node(name, ["x"], [name]) for name in names]
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, x.shape)], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    case = Case("functions", model, ({"x": x},))
    want = pyonnx_wasm.InferenceSession(case.data).run(None, {"x": x})
    (made,) = apart(answered, [case])[0]
    assert made.runs is not None, made.error
    for name, got, right in zip(names, made.runs[0], want, strict=True):
        near = 2e-4 if name in ("Cosh", "Sinh", "Mish", "Exp") else 1e-5
        np.testing.assert_allclose(got, right, near, 1e-30 if name == "Softplus" else 2e-7, err_msg=name)


def test_products_of_few_bits_compile(apart: Apart) -> None:
    """The browser parses what other parsers of WGSL let pass or not; every way of the kernel, for one row, few and many. onnxruntime's
    products of rows in 8 bits may differ from its others, which is disputed."""
    found = [cases.case(1, i, "blocks_of_bits") for i in range(12)]
    verdicts = [judge.judge(case, answers, "webgpu") for case, answers in zip(found, apart(answered, found), strict=True)]
    assert not [v for v in verdicts if v.finding or v.status not in ("agrees", "unstable", "disputed")]
    assert sum(v.status == "agrees" for v in verdicts) >= 8


def test_steps_of_the_core_share_memory_that_grows(apart: Apart) -> None:
    """float64 runs on the core: an output that takes the place of a smaller one leaves the addresses of both right."""
    feed = {"a": np.ones((3, 1)), "b": np.ones((1, 3))}
    nodes = [
        helper.make_node("Erf", ["a"], ["c"]),
        helper.make_node("MatMul", ["c", "b"], ["d"]),
        helper.make_node("Sin", ["d"], ["e"]),
        helper.make_node("Split", ["e"], ["y", "z"]),
    ]
    infos = [helper.make_tensor_value_info(n, 11, x.shape) for n, x in feed.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info("y")])
    case = Case("growing", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10), (feed,))
    verdict = judge.judge(case, apart(answered, [case])[0], "webgpu")
    assert verdict.status == "agrees", verdict


def test_a_short_differential_run_is_clean(apart: Apart) -> None:
    report = apart(run.run_here, 20260302, range(24), "webgpu", "^(graph|bait)")
    assert not report.findings, report.table()
