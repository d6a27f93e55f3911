"""The player on WebGPU in a real Chromium: results, sizes, dtypes, steps on the core, profiles."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from gpu_site import BIG
from player_site import TYPES, Run, dense, ramp

import pyonnx_wasm
from pyonnx_wasm.runtimes.profile import Profile, StepTime

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("worker", [True, False])
def test_same_results_as_wasm_while_sizes_change(run: Run, worker: bool) -> None:
    rows = [1, 200, 0, 3, 17, 1, 64, 65, 200, 2, 0, 3]
    got = run(
        """
          const [a, b] = [await gpu("dense.ponnx", { worker: arg.worker }), await create("dense.ponnx", { worker: arg.worker })];
          const results = [];
          for (const rows of arg.rows) {
            const [y, z] = [(await a.run({ x: x(rows) })).y, (await b.run({ x: x(rows) })).y];
            results.push([y.dims, [...y.data], [...z.data]]);
          }
          const { backend, fallback } = a;
          await Promise.all([a.release(), b.release()]);
          return { backend, fallback, other: b.backend, results };
        """,
        {"worker": worker, "rows": rows},
    )
    assert (got["backend"], got.get("fallback"), got["other"]) == ("webgpu", None, "wasm")
    for n, (dims, gpu, wasm) in zip(rows, got["results"], strict=True):
        assert dims == [n, 31]
        np.testing.assert_allclose(np.array(gpu).reshape(n, 31), dense(ramp(n)), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(gpu, wasm, rtol=1e-4, atol=1e-4)


def test_every_type_goes_through(run: Run) -> None:
    got = run(
        """
          const session = await gpu("types.ponnx");
          const data = (type, n) => {
            const probe = new Tensor(type, [], [0]).data;
            const of = probe instanceof BigInt64Array || probe instanceof BigUint64Array ? BigInt : Number;
            return new Tensor(type, probe.constructor.from(Array.from({ length: n }, (_, i) => of(i % 2))), [n]);
          };
          const seen = [];
          for (const n of [5, 0, 1, 7]) {
            const results = await session.run(Object.fromEntries(arg.map((type) => [type, data(type, n)])));
            seen.push(arg.map((type) => [...results[`${type}_out`].data].map(Number)));
          }
          return seen;
        """,
        TYPES,
    )
    for n, all_types in zip([5, 0, 1, 7], got, strict=True):
        for data in all_types:
            assert data == [i % 2 for i in range(n)]


def test_nan_and_infinity(run: Run) -> None:
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e38, -1e38, 1.0]
    a, b = np.array([v for v in values for _ in values], np.float32), np.array(values * len(values), np.float32)
    with np.errstate(all="ignore"):
        want = {"p": a * b, "d": np.maximum(a, b)}
    got = run(
        """
          const session = await gpu("pair.ponnx");
          const of = (list) => floats(list.map(Number), [arg.n, arg.n]);
          const { p, d } = await session.run({ a: of(arg.a), b: of(arg.b) });
          return { p: [...p.data].map(String), d: [...d.data].map(String) };
        """,
        {"a": [_js(v) for v in a], "b": [_js(v) for v in b], "n": len(values)},
    )
    for name, data in got.items():
        np.testing.assert_allclose(np.array([float(v.replace("Infinity", "inf")) for v in data], np.float32), want[name], rtol=1e-6)


def _js(value: float) -> str:
    return str(float(value)).replace("inf", "Infinity").replace("nan", "NaN")


def test_runs_queue_and_release_waits_for_them(run: Run) -> None:
    sums = run("""
      const session = await gpu("dense.ponnx");
      const runs = [1, 40, 2, 40, 3, 7, 9, 40].map((rows) => session.run({ x: x(rows) }));
      const released = session.release();
      const results = await Promise.all(runs);
      await released;
      return results.map(({ y }) => [y.dims[0], y.data.reduce((a, b) => a + b, 0)]);
    """)
    for n, total in sums:
        np.testing.assert_allclose(total, dense(ramp(n)).sum(dtype=np.float64), rtol=1e-4)


def test_no_memory_is_sent_for_outputs(run: Run) -> None:
    """They are mapped; a core's are copied, into memory that is made ahead."""
    assert run("""
      const spares = [];
      const { postMessage } = Worker.prototype;
      Worker.prototype.postMessage = function (message, transfer) {
        if (message.op === "run") spares.push(message.spares.length);
        return postMessage.call(this, message, transfer);
      };
      for (const made of [await gpu("soft.ponnx"), await create("soft.ponnx")]) {
        for (let i = 0; i < 5; i++) await made.run({ x: x(512) });
        await made.release();
      }
      return spares;
    """) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]  # fmt: skip


def test_weights_go_past_the_core(run: Run) -> None:
    got = run(
        """
          const session = await gpu("big.ponnx");
          const { y } = await session.run({ x: floats(new Float32Array(1024).fill(1), [1, 1024]) });
          return { memory: await session.memoryBytes(), y: [y.data[0], y.data[8191]] };
        """
    )
    assert got["y"] == [512, 512]
    assert got["memory"] < BIG[0] * BIG[1] * 4 / 2


def test_steps_without_a_shader_run_on_the_core(run: Run) -> None:
    got = run(
        """
          const session = await gpu("partition.ponnx");
          const kept = await gpu("partition.ponnx", { preferredOutputLocation: "gpu-buffer" });
          const feeds = (n) => ({ x: floats(Array.from({ length: 8 * n }, (_, i) => (i % 7) / 7), [n, 8]) });
          const y = [];
          for (const n of [1, 5, 0, 2]) y.push([...(await session.run(feeds(n))).y.data]);
          const { e } = await kept.run(feeds(1));
          return { y, e: [e.location, [...(await e.getData())]], steps: await session.profile(feeds(5)) };
        """
    )
    for n, y in zip([1, 5, 0, 2], got["y"], strict=True):
        x = (np.arange(8 * n) % 7 / 7).astype(np.float32)
        np.testing.assert_allclose(y, 2 * np.exp(2.0 * x), rtol=1e-5)
    location, e = got["e"]
    assert location == "gpu-buffer"
    np.testing.assert_allclose(e, np.exp(2.0 * (np.arange(8) % 7 / 7).astype(np.float32)), rtol=1e-6)
    steps = got["steps"]
    assert {s["backend"] for s in steps} == {"webgpu", "wasm", "copy"}
    assert {s["name"] for s in steps if s["backend"] == "copy"} == {"upload", "download"}
    assert any("exp_64" in s["name"] for s in steps if s["backend"] == "wasm")
    assert [s["bytes"] for s in steps if s["name"] == "download"] == [5 * 8 * 4]
    starts = [s["start"] for s in steps]
    assert starts == sorted(starts)


def test_profiles_become_the_traces_that_python_makes(run: Run) -> None:
    got = run("""
      const { traceEvents } = await import("/player/index.mjs");
      const session = await gpu("dense.ponnx");
      const steps = await session.profile({ x: x(50) });
      return { steps, trace: traceEvents(steps, "dense"), features: session.adapter.features };
    """)
    assert "timestamp-query" in got["features"]
    assert all(s["backend"] == "webgpu" and s["ms"] >= 0 and s["bytes"] > 0 for s in got["steps"])
    assert any("dense_0" in s["name"] for s in got["steps"])
    steps = [StepTime(s["name"], s["kernel"], s["backend"], s["start"], s["ms"], s["bytes"]) for s in got["steps"]]
    want = Profile(steps, "dense").trace()
    for ours, python in zip(got["trace"].pop("traceEvents"), want.pop("traceEvents"), strict=True):
        assert list(ours) == list(python)
        for key in ours.keys() & {"ts", "dur"}:
            assert ours.pop(key) == pytest.approx(python.pop(key), abs=1e-3)
        assert ours == python
    assert got["trace"] == want


def test_random_numbers_are_those_of_the_native_core(run: Run, gpu_models: Path) -> None:
    got = run("""
      const session = await gpu("random.ponnx", { seed: 11 });
      return [session.backend, [...(await session.run({})).y.data], [...(await session.run({})).y.data]];
    """)
    pyonnx_wasm.set_seed(11)
    native = pyonnx_wasm.InferenceSession(gpu_models / "random.ponnx")
    assert got[0] == "webgpu"
    np.testing.assert_array_equal(got[1:], [native.run(None, {})[0], native.run(None, {})[0]])
