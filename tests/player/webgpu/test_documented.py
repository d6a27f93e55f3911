"""What onnxruntime-web's documentation shows of WebGPU, with nothing changed but the import; sessions run in their worker, as a rule."""

import numpy as np
import pytest
from player_site import Run, dense, ramp

OPTIONS = pytest.mark.parametrize("worker", [None, False], ids=["by default", "in the page"])


@OPTIONS
def test_buffers_of_the_devices_own(run: Run, worker: bool | None) -> None:
    """Input and output are allocated beforehand, on the device that the library gives, and used again with other contents."""
    got = run(
        """
      const ort = { env, Tensor, InferenceSession };
      const session = await ort.InferenceSession.create("dense.ponnx", { executionProviders: ["webgpu"], worker: arg ?? undefined });
      const device = await ort.env.webgpu.device;
      const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST | GPUBufferUsage.STORAGE;
      const inputBuffer = device.createBuffer({ usage, size: Math.ceil((3 * 67 * 4) / 16) * 16 });
      const outputBuffer = device.createBuffer({ usage, size: Math.ceil((3 * 31 * 4) / 16) * 16 });
      const input = ort.Tensor.fromGpuBuffer(inputBuffer, { dataType: "float32", dims: [3, 67] });
      const output = ort.Tensor.fromGpuBuffer(outputBuffer, { dataType: "float32", dims: [3, 31] });
      const read = async (buffer, size) => {
        const copy = device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
        const encoder = device.createCommandEncoder();
        encoder.copyBufferToBuffer(buffer, 0, copy, 0, size);
        device.queue.submit([encoder.finish()]);
        await copy.mapAsync(GPUMapMode.READ);
        return [...new Float32Array(copy.getMappedRange().slice(0))];
      };
      const { data } = x(3);
      const runs = [];
      for (const scale of [1, -1]) {
        device.queue.writeBuffer(inputBuffer, 0, data.map((v) => scale * v));
        const results = await session.run({ x: input }, { y: output });
        runs.push([results.y === output, results.y.location, input.location, await read(outputBuffer, 3 * 31 * 4)]);
      }
      const fresh = await session.run({ x: input });
      const small = device.createBuffer({ usage, size: 16 });
      const wrong = await error(session.run({ x: input }, { y: ort.Tensor.fromGpuBuffer(small, { dataType: "float32", dims: [3, 31] }) }));
      const noCopy = device.createBuffer({ usage: GPUBufferUsage.UNIFORM, size: 3 * 67 * 4 });
      const blind = ort.Tensor.fromGpuBuffer(noCopy, { dataType: "float32", dims: [3, 67] });
      const unread = arg === false ? "" : await error(session.run({ x: blind }));
      return { runs, fresh: [...fresh.y.data], own: [...(await output.getData())], wrong, unread };
    """,
        worker,
    )
    for scale, (same, place, stays, y) in zip((1, -1), got["runs"], strict=True):
        assert (same, place, stays) == (True, "gpu-buffer", "gpu-buffer")
        np.testing.assert_allclose(np.array(y).reshape(3, 31), dense(scale * ramp(3)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.array(got["fresh"]).reshape(3, 31), dense(-ramp(3)), rtol=1e-4, atol=1e-4)
    assert got["own"] == got["runs"][1][3]
    assert "in a buffer of 16 bytes" in got["wrong"]
    assert worker is False or 'input "x"' in got["unread"]


@OPTIONS
def test_results_that_stay(run: Run, worker: bool | None) -> None:
    """Preferred locations of each output, read with getData, fed again, disposed."""
    got = run(
        """
      const session = await InferenceSession.create("pair.ponnx", {
        executionProviders: [{ name: "webgpu", preferredLayout: "NHWC" }, "wasm"],
        preferredOutputLocation: { p: "gpu-buffer", d: "cpu" },
        graphOptimizationLevel: "all", enableGraphCapture: true, freeDimensionOverrides: { n: 2, unknown: 7 },
        extra: { session: { disable_prepacking: "1", use_device_allocator_for_initializers: "1" } },
        worker: arg ?? undefined,
      });
      const feeds = { a: floats([1, 2, 3, 4], [2, 2]), b: floats([5, 6, 7, 8], [2, 2]) };
      const first = await session.run(feeds);
      const places = [first.p.location, first.d.location];
      const second = await session.run({ a: first.p, b: feeds.b });
      first.p.dispose();
      const p = [...(await second.p.getData(true))];
      second.p.dispose();
      const shapes = session.inputMetadata.map(({ name, type, shape }) => [name, type, shape]);
      await session.release();
      return { places, p, d: [...first.d.data], shapes, gone: first.p.location };
    """,
        worker,
    )
    assert got["places"] == ["gpu-buffer", "cpu"]
    assert got["p"] == [25, 72, 147, 256]
    assert got["d"] == [5, 6, 7, 8]
    assert got["shapes"] == [["a", "float32", [2, "m"]], ["b", "float32", [2, "m"]]]
    assert got["gone"] == "none"


def test_profiling_by_its_mode(run: Run) -> None:
    """`mode` alone begins it: each kernel of each run is told."""
    got = run("""
      const kernels = [];
      env.webgpu.profiling = { mode: "default", ondata: (data) => kernels.push(data) };
      const session = await gpu("pair.ponnx");
      const feeds = { a: floats([1, 2], [1, 2]), b: floats([3, 4], [1, 2]) };
      await session.run(feeds);
      await session.run(feeds);
      env.webgpu.profiling = { mode: "off" };
      await session.run(feeds);
      const told = kernels.map(({ version, kernelName, startTime, endTime }) => [version, kernelName, endTime >= startTime]);
      await session.release();
      return told;
    """)
    assert [name for _, name, _ in got].count("mul_0") == 2
    assert all(version == 1 and ordered for version, _, ordered in got)


def test_terminate_and_proxy(run: Run) -> None:
    """A run's options are looked at while it is under way; the proxy and its companions change nothing."""
    got = run("""
      env.wasm.proxy = true;
      env.wasm.numThreads = 1;
      env.wasm.initTimeout = 60000;
      env.logLevel = "error";
      const session = await InferenceSession.create("dense.ponnx", { executionProviders: ["wasm"], logSeverityLevel: 3 });
      const feeds = { x: x(3) };
      const before = feeds.x.data.slice();
      const options = { terminate: false, tag: "page", logSeverityLevel: 0 };
      const [done, again] = await Promise.all([session.run(feeds, options), session.run(feeds, ["y"], { tag: "other" })]);
      options.terminate = true;
      const ended = await error(session.run(feeds, options));
      options.terminate = false;
      const after = await session.run(feeds, { y: null }, options);
      env.wasm.proxy = false;
      env.logLevel = "warning";
      return { same: String(done.y.data) === String(again.y.data) && String(done.y.data) === String(after.y.data), ended,
        kept: String(before) === String(feeds.x.data), y: [...done.y.data] };
    """)
    assert got["same"]
    assert got["kept"]
    assert got["ended"].startswith("[page] the run was terminated")
    np.testing.assert_allclose(np.array(got["y"]).reshape(3, 31), dense(ramp(3)), rtol=1e-4, atol=1e-4)
