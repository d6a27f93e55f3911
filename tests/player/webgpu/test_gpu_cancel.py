"""Runs that are given up in a page, between their steps; the one that waits behind them begins at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from player_site import Run

import pyonnx_wasm
from tests.test_cancel import CASES

pytestmark = pytest.mark.browser

#: The sides of the straight model's matrices: minutes, and next to nothing.
LONG, SHORT = 512, 2
JS = f"""
const feeds = (long) => arg === "straight"
  ? {{ x0: new Tensor("float32", new Float32Array((long ? {LONG} : {SHORT}) ** 2), long ? [{LONG}, {LONG}] : [{SHORT}, {SHORT}]) }}
  : {{ n: new Tensor("int64", [long ? 2n ** 50n : 4n], []), x: new Tensor("float32", [1, 1, 1], [3]) }};
const given = (provider, worker) => create(`cancel_${{arg}}.ponnx`, {{ executionProviders: [provider], worker }});
"""


@pytest.fixture(scope="module", autouse=True)
def models(gpu_models: Path) -> None:
    for name, (data, *_) in CASES.items():
        pyonnx_wasm.save(pyonnx_wasm.compile(data, gpu=True), gpu_models / f"cancel_{name}.ponnx")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("worker", [True, False], ids=["worker", "page"])
@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_a_run_is_given_up_and_the_next_begins_at_once(run: Run, provider: str, worker: bool, case: str) -> None:
    told, backend, result, again = run(
        f"""{JS}
        const session = await given("{provider}", {str(worker).lower()});
        const options = {{ terminate: false }};
        const running = error(session.run(feeds(true), options));
        const next = session.run(feeds(false));
        await new Promise((resolve) => setTimeout(resolve));
        options.terminate = true;
        const told = await running;
        const values = async (results) => [...Object.values(await results)[0].data];
        return [told, session.backend, await values(next), await values(session.run(feeds(false)))];
        """,
        case,
    )
    assert told == "the run was terminated: its option terminate is set"
    assert backend == provider
    want = np.zeros(SHORT**2) if case == "straight" else CASES[case][3]
    np.testing.assert_array_equal(result, want)
    np.testing.assert_array_equal(again, want)


def test_one_of_several_runs_is_given_up(run: Run) -> None:
    """One that waits for its turn; those around it give their results."""
    told, results = run(
        f"""{JS}
        const session = await given("wasm", true);
        const some = [0, 1, 2].map((k) => session.run(feeds(false), k === 1 ? {{ get terminate() {{ return asked++ > 0; }} }} : {{}}));
        let asked = 0;
        const told = await error(some[1]);
        return [told, (await Promise.all([some[0], some[2]])).map(({{ y }}) => [...y.data])];
        """.replace("let asked = 0;", "").replace("const session", "let asked = 0; const session", 1),
        "loop",
    )
    assert told == "the run was terminated: its option terminate is set"
    assert results == [[5, 5, 5]] * 2


@pytest.mark.parametrize("case", ["straight", "loop"])
def test_a_small_run_waits_for_nothing_but_its_results(run: Run, case: str) -> None:
    """Also where its shaders take longer to compile than the time after which a long run waits. No other time passes."""
    waits, reads = run(
        f"""{JS}
        const counts = {{ waits: 0, reads: 0 }};
        const watch = (proto, name, before) => {{
          const own = proto[name];
          proto[name] = async function (...args) {{ await before(); return own.apply(this, args); }};
          return () => (proto[name] = own);
        }};
        let late = 0;
        performance.now = () => late;
        const restore = [
          watch(GPUDevice.prototype, "createComputePipelineAsync", () => (late += 150)),
          watch(GPUQueue.prototype, "onSubmittedWorkDone", () => counts.waits++),
          watch(GPUBuffer.prototype, "mapAsync", () => counts.reads++),
        ];
        try {{
          const session = await given("webgpu", false);
          await session.run(feeds(false));
          await session.run(feeds(false));
        }} finally {{
          restore.forEach((each) => each());
          delete performance.now;
        }}
        return [counts.waits, counts.reads];
        """,
        case,
    )
    assert waits == 0
    assert reads > 0
