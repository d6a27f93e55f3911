"""The player on WebGPU in a real Chromium: results, sizes, tensors that stay on the GPU, partition, profiles, fallbacks and losses."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from player_site import CSP, DIST, HELPERS, SHIFT, TYPES, B, Run, W, dense, ramp, write
from playwright.sync_api import BrowserType, Page

import pyonnx_wasm
from pyonnx_wasm.runtimes.profile import Profile, StepTime
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium

pytestmark = pytest.mark.browser

NAME = "models.test"  # not localhost: pages from it are no secure context
BIG = (1024, 8192)  # a weight of 32 MB
GPU = """
const gpu = (url, options = {}) => create(url, { executionProviders: ["webgpu"], ...options });
const floats = (data, dims) => new Tensor("float32", Float32Array.from(data), dims);
"""
# Counts the GPU memory that is held in this page.
LEDGER = """
const ledger = { bytes: 0, buffers: 0, groups: 0 };
const { createBuffer, createBindGroup } = GPUDevice.prototype;
const { destroy } = GPUBuffer.prototype;
const alive = new Set();
GPUDevice.prototype.createBuffer = function (descriptor) {
  const buffer = createBuffer.call(this, descriptor);
  alive.add(buffer);
  ledger.bytes += buffer.size;
  ledger.buffers++;
  return buffer;
};
GPUBuffer.prototype.destroy = function () {
  if (alive.delete(this)) ledger.bytes -= this.size;
  destroy.call(this);
};
GPUDevice.prototype.createBindGroup = function (descriptor) {
  ledger.groups++;
  return createBindGroup.call(this, descriptor);
};
"""


@pytest.fixture(scope="module")
def gpu_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("webgpu")
    (root / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>player</title>')
    (root / "csp.html").write_text(f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{CSP}"><title>player</title>')
    node = helper.make_node
    layers = [
        node("Add", ["b", "shift"], ["c"], name="fold"),
        node("MatMul", ["x", "w"], ["t"], name="dense_0"),
        node("Add", ["t", "c"], ["u"], name="bias_0"),
        node("Relu", ["u"], ["y"], name="relu_0"),
    ]
    row = ({"x": ("float32", ["n", 67])}, {"y": ("float32", ["n", 31])})
    for name in ("dense", "core_only"):
        write(root / f"{name}.ponnx", layers, *row, gpu=name == "dense", w=W, b=B, shift=SHIFT)
    write(root / "random.ponnx", [node("RandomUniform", [], ["y"], shape=[999])], {}, {"y": ("float32", [999])}, gpu=True)
    write(root / "soft.ponnx", [node("Softplus", ["x"], ["y"])], {"x": ("float32", ["n", 67])}, {"y": ("float32", ["n", 67])}, gpu=True)
    matrix = ("float32", ["n", "m"])
    write(
        root / "pair.ponnx",
        [node("Mul", ["a", "b"], ["p"], name="mul_0"), node("Max", ["a", "b"], ["d"], name="max_0")],
        {"a": matrix, "b": matrix},
        {"p": matrix, "d": matrix},
        gpu=True,
    )
    write(
        root / "types.ponnx",
        [node("Identity", [t], [f"{t}_out"]) for t in TYPES],
        {t: (t, ["n"]) for t in TYPES},
        {f"{t}_out": (t, ["n"]) for t in TYPES},
        gpu=True,
    )
    write(
        root / "decoder.ponnx",
        [
            node("Concat", ["past", "token"], ["present"], axis=0, name="grow"),
            node("Transpose", ["present"], ["keys"], name="turn"),
            node("MatMul", ["token", "keys"], ["scores"], name="score"),
        ],
        {"past": ("float32", ["p", 64]), "token": ("float32", [1, 64])},
        {"scores": ("float32", [1, "q"]), "present": ("float32", ["q", 64])},
        gpu=True,
    )
    write(
        root / "partition.ponnx",
        [
            node("MatMul", ["x", "v"], ["t"], name="before"),
            node("Cast", ["t"], ["wide"], to=11, name="widen"),
            node("Exp", ["wide"], ["e"], name="exp_64"),
            node("Cast", ["e"], ["narrow"], to=1, name="narrow"),
            node("MatMul", ["narrow", "v"], ["y"], name="after"),
        ],
        {"x": ("float32", ["n", 8])},
        {"y": ("float32", ["n", 8]), "e": ("float64", ["n", 8])},
        gpu=True,
        v=(np.eye(8) * 2).astype(np.float32),
    )
    write(
        root / "big.ponnx",
        [node("MatMul", ["x", "w"], ["y"], name="big_0")],
        {"x": ("float32", ["n", BIG[0]])},
        {"y": ("float32", ["n", BIG[1]])},
        gpu=True,
        w=np.full(BIG, 0.5, np.float32),
    )
    return root


@pytest.fixture(scope="module")
def gpu_server(gpu_models: Path) -> Iterator[Server]:
    with Server({"/": gpu_models, "/player": DIST}, isolated=False) as server:
        yield server


@pytest.fixture(scope="module")
def gpu_page(browser_type: BrowserType) -> Iterator[Page]:
    options = chromium.launch_options(webgpu=True)
    browser = browser_type.launch(**options | {"args": [*options["args"], f"--host-resolver-rules=MAP {NAME} 127.0.0.1"]})
    page = browser.new_page()
    yield page
    browser.close()


def runner(page: Page, url: str) -> Run:
    """Opens a page and returns what runs JavaScript in it."""
    page.goto(url)
    return lambda body, arg=None: page.evaluate(f"async (arg) => {{ {HELPERS} {GPU} {body} }}", arg)


@pytest.fixture
def run(gpu_page: Page, gpu_server: Server) -> Run:
    return runner(gpu_page, f"{gpu_server.url}index.html")


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
          await new Promise((resolve) => setTimeout(resolve, 1500));
          return { scores, all, marks, held, idle, end: ledger.bytes };
        """
    )
    tokens = np.array([[(((i * 7 + k * 3) % 13) - 6) / 6 for k in range(64)] for i in range(120)], np.float32)
    np.testing.assert_array_equal(np.array(got["all"], np.float32).reshape(120, 64), tokens)
    for i, scores in enumerate(got["scores"]):
        np.testing.assert_allclose(scores, tokens[i] @ tokens[: i + 1].T, rtol=1e-4, atol=1e-4)
    past = 120 * 64 * 4
    assert got["held"] <= 6 * past + 2**17
    assert got["idle"] <= got["held"] - past
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


def test_strict_content_security_policy(gpu_page: Page, gpu_server: Server) -> None:
    run = runner(gpu_page, f"{gpu_server.url}csp.html")
    assert run('const s = await gpu("soft.ponnx"); return [(await s.run({ x: x(2) })).y.dims, s.backend]') == [[2, 67], "webgpu"]


def test_wasm_does_not_fetch_what_it_does_not_need(run: Run, gpu_server: Server) -> None:
    def fetched() -> bool:
        return any(t.path.endswith("gpu.mjs") for t in gpu_server.transfers)

    gpu_server.transfers.clear()
    assert run('return (await create("soft.ponnx")).backend') == "wasm"
    assert not fetched()
    assert run('return (await gpu("soft.ponnx")).backend') == "webgpu"
    assert fetched()


FALLBACK = """
  const warnings = [];
  const warn = console.warn;
  console.warn = (text) => warnings.push(text);
  %s
  const session = await create("%s", { executionProviders: ["webgpu", "wasm"], worker: false });
  const { y } = await session.run({ x: x(2) });
  console.warn = warn;
  const alone = await error(gpu("%s", { worker: false }));
  return { backend: session.backend, fallback: session.fallback, warnings, alone, dims: y.dims };
"""


def fallen_back(run: Run, before: str = "", model: str = "dense.ponnx") -> str:
    got = run(FALLBACK % (before, model, model))
    assert (got["backend"], got["dims"]) == ("wasm", [2, 31])
    assert got["fallback"] in got["alone"]
    assert got["warnings"] == [f"pyonnx-wasm: running on wasm: {got['fallback']}"]
    return str(got["fallback"])


def test_fallback_without_an_adapter(run: Run) -> None:
    assert "no adapter" in fallen_back(run, "navigator.gpu.requestAdapter = async () => null;")


def test_fallback_without_a_part_for_gpus(run: Run) -> None:
    assert "compile it again, with --gpu" in fallen_back(run, model="core_only.ponnx")


def test_fallback_in_an_insecure_context(gpu_page: Page, gpu_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_server, "host", NAME)
    run = runner(gpu_page, gpu_server.url.replace("127.0.0.1", NAME) + "index.html")
    assert run("return isSecureContext") is False
    assert "https" in fallen_back(run)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (
            {"maxStorageBufferBindingSize": 4096, "maxBufferSize": 8192},
            'weight "w" needs 8320 bytes in one buffer, this GPU binds at most ',
        ),
        ({"maxStorageBuffersPerShaderStage": 2}, "buffers, this GPU binds at most 2 in one shader"),
    ],
)
def test_fallback_where_limits_are_too_small(run: Run, limits: dict[str, int], text: str) -> None:
    assert text in fallen_back(run, f"env.webgpu.limits = {json.dumps(limits)};")


def test_a_shader_that_does_not_compile_names_the_kernel(run: Run, gpu_models: Path) -> None:
    for model in ("dense", "soft"):
        whole = (gpu_models / f"{model}.ponnx").read_bytes()
        (gpu_models / f"broken_{model}.ponnx").write_bytes(whole.replace(b"fn main(", b"fn moin("))
    got = run("""
      // Which shader a product of open sizes takes is known when it runs.
      const open = await error(gpu("broken_dense.ponnx").then((session) => session.run({ x: x(3) })));
      return [await error(gpu("broken_soft.ponnx")), open, (await gpu("soft.ponnx")).backend];
    """)
    assert re.search("broken_soft.ponnx: kernel \\w+: the shader does not compile: .*main", got[0])
    assert "kernel matmul: the shader does not compile" in got[1]
    assert got[2] == "webgpu"


def test_sizes_that_do_not_fit_leave_the_session_usable(run: Run) -> None:
    got = run("""
      env.webgpu.limits = { maxStorageBufferBindingSize: 1 << 20, maxBufferSize: 1 << 20 };
      const session = await gpu("pair.ponnx");
      const square = (n) => floats(new Float32Array(n * n).fill(2), [n, n]);
      const [small, large] = [square(8), square(600)];
      const seen = [(await session.run({ a: small, b: small })).p.data[63]];
      seen.push(await error(session.run({ a: large, b: large })));
      seen.push((await session.run({ a: small, b: small })).p.data[63]);
      seen.push((await session.run({ a: square(500), b: square(500) })).d.data.length);
      return seen;
    """)
    assert got[0] == 4
    assert "input 0 needs 1440000 bytes in one buffer, this GPU binds at most 1048576" in got[1]
    assert got[2:] == [4, 250000]


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_lost_device_ends_the_session_and_a_new_one_works(run: Run, when: str) -> None:
    got = run(
        """
          const session = await gpu("soft.ponnx", { worker: false });
          const device = await env.webgpu.device;
          const first = (await session.run({ x: x(3) })).y.dims;
          if (arg === "before") device.destroy();
          const runs = [session.run({ x: x(3) }), session.run({ x: x(4) })];
          if (arg === "during") setTimeout(() => device.destroy(), 0);
          const settled = await Promise.allSettled(runs.concat(arg === "during" ? [] : [session.run({ x: x(1) })]));
          const late = await session.run({ x: x(1) }).then(() => null, (e) => [e.name, e.message]);
          const again = await gpu("soft.ponnx", { worker: false });
          const { y } = await again.run({ x: x(2) });
          await Promise.all([session.release(), again.release()]);
          const reasons = settled.filter(({ status }) => status === "rejected").map(({ reason }) => [reason.name, reason.message]);
          const kept = settled.map(({ value }) => value?.y.dims[0] ?? null);
          return { first, reasons, kept, late, dims: y.dims, fresh: (await env.webgpu.device) !== device };
        """,
        when,
    )
    assert got["first"] == [3, 67]
    for name, message in [*got["reasons"], got["late"]]:
        assert name == "GpuError"
        assert "the GPU was lost" in message
        assert message.endswith("create the session again")
    # What was asked for before the loss may have been done; then it is what was asked for.
    assert len(got["reasons"]) + sum(rows is not None for rows in got["kept"]) == len(got["kept"])
    possible = [{None}, {None}, {None}] if when == "before" else [{None, 3}, {None, 4}]
    assert len(got["kept"]) == len(possible)
    assert all(rows in allowed for rows, allowed in zip(got["kept"], possible, strict=True))
    assert got["dims"] == [2, 67]
    assert got["fresh"]


def test_errors_of_the_worker_keep_their_class(run: Run) -> None:
    got = run("""
      env.webgpu.limits = { maxStorageBufferBindingSize: 4096 };
      return await gpu("dense.ponnx").then(() => null, (e) => [e.name, e instanceof Error]);
    """)
    assert got == ["GpuError", True]


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


def test_random_numbers_are_those_of_the_native_core(run: Run, gpu_models: Path) -> None:
    got = run("""
      const session = await gpu("random.ponnx", { seed: 11 });
      return [session.backend, [...(await session.run({})).y.data], [...(await session.run({})).y.data]];
    """)
    pyonnx_wasm.set_seed(11)
    native = pyonnx_wasm.InferenceSession(gpu_models / "random.ponnx")
    assert got[0] == "webgpu"
    np.testing.assert_array_equal(got[1:], [native.run(None, {})[0], native.run(None, {})[0]])
