"""Tensors that stay on the GPU, the memory that is held for them, and devices of the page's own."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_site import LEDGER
from player_site import Run

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("worker", [True, False])
def test_outputs_stay_on_the_gpu(run: Run, worker: bool) -> None:
    got = run(
        """
          const session = await gpu("pair.ponnx", { worker: arg, preferredOutputLocation: "gpu-buffer" });
          const a = floats([1, 2, 3, 4, 5, 6], [2, 3]);
          const { p, d } = await session.run({ a, b: a });
          const seen = { locations: [p.location, d.location], early: await error(Promise.resolve().then(() => p.data)) };
          const again = await session.run({ a: p, b: p }, ["p"]);
          seen.twice = [...(await again.p.getData())];
          const turned = (await session.run({ a: p.reshape([3, 2]), b: d.reshape([3, 2]) })).p;
          seen.turned = [turned.dims, [...(await turned.getData())]];
          seen.misshapen = await error(Promise.resolve().then(() => p.reshape([7])));
          const queued = session.run({ a: p, b: d }, ["d"]);
          p.dispose();
          seen.queued = [...(await (await queued).d.getData(true))];
          seen.gone = [p.location, await error(session.run({ a: p, b: d }))];
          const named = await gpu("pair.ponnx", { worker: arg, preferredOutputLocation: { d: "gpu-buffer" } });
          const mixed = await named.run({ a, b: a });
          seen.mixed = [mixed.p.location, mixed.d.location];
          const other = await gpu("pair.ponnx", { worker: !arg });
          seen.elsewhere = await error(other.run({ a: mixed.d, b: a }));
          const wasm = await create("pair.ponnx", { worker: arg });
          seen.wasm = [...(await wasm.run({ a: mixed.d, b: a })).p.data];
          await session.release();
          seen.outlived = [...(await d.getData())];
          return seen;
        """,
        worker,
    )
    square = [n * n for n in range(1, 7)]
    assert got["locations"] == ["gpu-buffer", "gpu-buffer"]
    assert "await getData()" in got["early"]
    assert got["twice"] == [n * n for n in square]
    assert got["turned"] == [[3, 2], [n * s for n, s in zip(range(1, 7), square, strict=True)]]
    assert "cannot become" in got["misshapen"]
    assert got["queued"] == square
    assert got["gone"][0] == "none"
    assert "disposed" in got["gone"][1]
    assert got["mixed"] == ["cpu", "gpu-buffer"]
    assert "another engine" in got["elsewhere"]
    assert got["wasm"] == square
    assert got["outlived"] == [1, 2, 3, 4, 5, 6]


def test_a_past_stays_on_the_gpu_over_many_steps(run: Run) -> None:
    past = 120 * 64 * 4
    got = run(
        LEDGER
        + """
          const session = await gpu("decoder.ponnx", { worker: false, preferredOutputLocation: { present: "gpu-buffer" } });
          const token = (i) => floats(Array.from({ length: 64 }, (_, k) => (((i * 7 + k * 3) % 13) - 6) / 6), [1, 64]);
          let past = floats([], [0, 64]);
          const scores = [];
          const marks = [];
          for (let i = 0; i < 120; i++) {
            const { scores: s, present } = await session.run({ past, token: token(i) });
            past.dispose();
            past = present;
            scores.push([...s.data]);
            marks.push({ ...ledger });
          }
          const held = ledger.bytes;
          const all = [...(await past.getData(true))];
          const idle = ledger.bytes;
          await session.release();
          await until(() => ledger.bytes <= arg);  // the engine goes a second after its last session
          return { scores, all, marks, held, idle, end: ledger.bytes };
        """,
        past,
    )
    tokens = np.array([[(((i * 7 + k * 3) % 13) - 6) / 6 for k in range(64)] for i in range(120)], np.float32)
    np.testing.assert_array_equal(np.array(got["all"], np.float32).reshape(120, 64), tokens)
    for i, scores in enumerate(got["scores"]):
        np.testing.assert_allclose(scores, tokens[i] @ tokens[: i + 1].T, rtol=1e-4, atol=1e-4)
    assert got["held"] <= 6 * past + 2**17
    assert got["idle"] <= past + 2**13, "the buffer for results, and small ones"
    assert got["end"] <= past, "the device keeps its buffer for results, nothing else"
    late = got["marks"][-1]
    middle = got["marks"][89]
    assert late["buffers"] - middle["buffers"] <= 12
    assert late["groups"] - middle["groups"] <= 30


def test_a_decoder_of_fixed_sizes_makes_nothing_new(run: Run) -> None:
    made = run(
        LEDGER
        + """
          const session = await gpu("pair.ponnx", { worker: false, preferredOutputLocation: { d: "gpu-buffer" } });
          const b = floats([1, 2, 3, 4], [2, 2]);
          let a = b;
          const marks = [];
          for (let i = 0; i < 20; i++) {
            const { d } = await session.run({ a, b });
            if (a !== b) a.dispose();
            a = d;
            marks.push({ ...ledger });
          }
          return marks;
        """
    )
    assert made[-1] == made[5], "buffers and bind groups go around"


def test_the_pages_own_device(run: Run) -> None:
    """A device that the page made runs its sessions, in the page: buffers of either side go to the other."""
    got = run("""
      const adapter = await navigator.gpu.requestAdapter();
      const device = await adapter.requestDevice({ requiredLimits: { maxStorageBuffersPerShaderStage: 8 } });
      env.webgpu.device = device;
      const same = (await env.webgpu.device) === device;
      const options = { executionProviders: ["webgpu"], preferredOutputLocation: "gpu-buffer" };
      const session = await create("dense.ponnx", options);
      const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
      const buffer = device.createBuffer({ size: 3 * 67 * 4, usage });
      const { data } = x(3);
      device.queue.writeBuffer(buffer, 0, data);
      const feed = Tensor.fromGpuBuffer(buffer, { dataType: "float32", dims: [3, 67] });
      const { y } = await session.run({ x: feed });
      const own = [y.location, y.gpuBuffer instanceof GPUBuffer];
      const fromBuffer = [...(await y.getData(true))];
      const fromPage = [...(await (await session.run({ x: x(3) })).y.getData(true))];
      const provider = await create("dense.ponnx", { executionProviders: [{ name: "webgpu", device }] });
      return { same, own, fromBuffer, fromPage, backend: provider.backend };
    """)
    assert got["same"]
    assert got["own"] == ["gpu-buffer", True]
    assert got["fromBuffer"] == got["fromPage"]
    assert any(got["fromPage"])
    assert got["backend"] == "webgpu"
