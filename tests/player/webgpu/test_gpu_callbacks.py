"""Operators that the page runs, between steps of the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from player_site import Run

import pyonnx_wasm as ort
from pyonnx_wasm import callbacks
from pyonnx_wasm.registry import OPERATORS

pytestmark = pytest.mark.browser

DOMAIN = "test.page"
TEXT = """g (float[n,n] x, int64 k) => (float[m] y, float[n] z) {
    u = MatMul(x, x) r = ReduceMax<axes = [1], keepdims = 0>(u) p = test.page.Positive(r) y = Neg(p)
    z = Loop(k, , r) <body = body (int64 i, bool go, float[n] v) => (bool go2, float[n] w) {
        go2 = Identity(go) q = test.page.Twice(v) w = Sub(q, r) }> }"""


@pytest.fixture
def between(gpu_models: Path) -> Iterator[ort.InferenceSession]:
    ort.callback("Positive", domain=DOMAIN, outputs=[(None, 1)])(lambda x: x[x > 0])
    ort.callback("Twice", domain=DOMAIN, outputs=lambda x: [(None, x.shape)])(lambda x: x + x)
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "{DOMAIN}": 1]> {TEXT}')
    compiled = ort.compile(made.SerializeToString(), gpu=True)
    ort.save(compiled, gpu_models / "between.ponnx")
    yield ort.InferenceSession(made.SerializeToString(), providers=["cpu"])
    for name in ("Positive", "Twice"):
        del OPERATORS[DOMAIN, name], callbacks.FUNCTIONS[DOMAIN, name]


@pytest.mark.parametrize("worker", [True, False])
def test_the_page_runs_them_between_steps_of_the_gpu(run: Run, between: ort.InferenceSession, worker: bool) -> None:
    x = np.random.default_rng(5).standard_normal((6, 6)).astype(np.float32)
    backend, results, steps = run(
        f"""
        const {{ registerOperator }} = await import("/player/index.mjs");
        const floats1 = (data) => new Tensor("float32", Float32Array.from(data), [data.length]);
        registerOperator("Positive", ([x]) => floats1([...x.data].filter((v) => v > 0)), {{ domain: "{DOMAIN}" }});
        registerOperator("Twice", ([x]) => floats1([...x.data].map((v) => v + v)), {{ domain: "{DOMAIN}" }});
        const session = await gpu("between.ponnx", {{ worker: {str(worker).lower()} }});
        const feeds = {{ x: floats(arg, [6, 6]), k: new Tensor("int64", [3n], []) }};
        const results = plain(await session.run(feeds));
        return [session.backend, results, (await session.profile(feeds)).map(({{ kernel, backend }}) => [kernel, backend])];
        """,
        x.reshape(-1).tolist(),
    )
    assert backend == "webgpu"
    for output, want in zip(between.get_outputs(), between.run(None, {"x": x, "k": np.array(3)}), strict=True):
        np.testing.assert_allclose(results[output.name]["data"], want, rtol=1e-4, atol=1e-4)
    assert sum(kernel == "host" for kernel, _ in steps) == 4
    assert {kernel for kernel, backend in steps if backend == "webgpu"} >= {"matmul", "map"}
