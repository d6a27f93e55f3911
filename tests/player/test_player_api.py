"""onnxruntime-web's surface: what its options, tensors and environment mean here."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from player_site import Run
from playwright.sync_api import ConsoleMessage, Page

import pyonnx_wasm as ort
from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser

FEEDS = "const feeds = { a: new Tensor('float32', [1, 2, 3, 4], [2, 2]), b: new Tensor('float32', [5, 6, 7, 8], [2, 2]) };"


@pytest.fixture
def said(player_page: Page) -> Iterator[list[str]]:
    """What the console says."""
    heard: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        heard.append(message.text)

    player_page.on("console", hear)
    yield heard
    player_page.remove_listener("console", hear)


MOOT: dict[str, str] = {
    "enableGraphCapture: true": "enableGraphCapture is passed over",
    "executionMode: 'parallel'": "executionMode is passed over",
    "interOpNumThreads: 2": "interOpNumThreads is passed over",
    "enableCpuMemArena: true": "enableCpuMemArena is passed over",
    "enableMemPattern: true": "enableMemPattern is passed over",
    "optimizedModelFilePath: 'a'": "optimizedModelFilePath is passed over",
    "profileFilePrefix: 'a'": "profileFilePrefix is passed over",
    "logVerbosityLevel: 1": "logVerbosityLevel is passed over",
    "graphOptimizationLevel: 'disabled'": "graphOptimizationLevel is passed over: the model was compiled before",
    "extra: { session: { set_denormal_as_zero: '1' } }": "extra.session.set_denormal_as_zero is passed over",
    "executionProviders: [{ name: 'wasm', useArena: true }]": "useArena of the provider wasm is passed over",
    "executionProviders: [{ name: 'webgpu', preferredLayout: 'NHWC' }, 'wasm']": "preferredLayout of the provider webgpu is passed over",
    "misspelt: 1": "misspelt is passed over: there is none of this name",
}


@pytest.mark.parametrize(("option", "text"), MOOT.items(), ids=MOOT)
def test_options_without_a_meaning_are_named_once(run: Run, said: list[str], option: str, text: str) -> None:
    run(f"for (let i = 0; i < 2; i++) await (await create('pair.ponnx', {{ {option} }})).release();")
    assert len([line for line in said if text in line]) == 1


def test_severity_decides_what_is_said(run: Run, said: list[str]) -> None:
    run("await create('pair.ponnx', { misspelt: 1, logSeverityLevel: 3, logId: 'mine' })")
    assert said == []
    run("env.logLevel = 'error'; await create('pair.ponnx', { misspelt: 2 })")
    assert said == []
    run("env.logLevel = 'info'; await create('pair.ponnx', { logId: 'mine' })")
    assert said == ["pyonnx-wasm (mine): session on wasm, threads: 1"]
    assert "env.logLevel is one of" in run("return error((async () => { env.logLevel = 'loud'; })())")


def test_options_with_a_meaning(open_page: Callable[..., Run]) -> None:
    run = open_page(isolated=True)
    assert run("return (await create('pair.ponnx', { intraOpNumThreads: 3 })).threads") == 3
    assert "intraOpNumThreads must be" in run("return error(create('pair.ponnx', { intraOpNumThreads: -1 }))")
    assert run("""
      const session = await create("pair.ponnx", { freeDimensionOverrides: { n: 2, no_such_dim: 7 } });
      return session.inputMetadata[0].shape;
    """) == [2, "m"]  # fmt: skip
    assert "within env.wasm.initTimeout" in run("env.wasm.numThreads = 4; env.wasm.initTimeout = 0.001; return error(create('pair.ponnx'))")


def test_proxy_is_no_switch_but_worker_is(run: Run, player_page: Page) -> None:
    run("env.wasm.proxy = false; globalThis.session = await create('pair.ponnx')")
    assert len(player_page.workers) == 1
    [worker] = player_page.workers
    with worker.expect_event("close"):
        run("await session.release(); env.worker = false; globalThis.session = await create('pair.ponnx')")
    assert player_page.workers == []


def test_a_seed_gives_the_numbers_of_the_native_core(run: Run, player_models: Path) -> None:
    body = """
      const session = await create("random.ponnx", { seed: arg ?? undefined });
      return [[...(await session.run({})).y.data], [...(await session.run({})).y.data]];
    """
    ort.set_seed(11)
    native = ort.InferenceSession(player_models / "random.ponnx")
    np.testing.assert_array_equal(run(body, 11), [native.run(None, {})[0], native.run(None, {})[0]])
    assert run(body) != run(body)
    assert "seed must be an integer" in run("return error(create('random.ponnx', { seed: 0.5 }))")


def test_memory_and_work_are_bounded(run: Run) -> None:
    body = """
      const tensor = new Tensor("float32", new Float32Array(2000), [40, 50]);
      const session = await create("pair.ponnx", arg);
      return error(session.run({ a: tensor, b: tensor }));
    """
    assert run(body, {"maxOperations": 1 << 20, "maxMemory": 1 << 20}) is None
    found = run(body, {"maxOperations": 100})
    assert re.fullmatch(r"node (mul|sub)_0: step \d \(map\): \d+ of \d+ operations; the limit is 100 \(maxOperations\)", found)
    found = run(body, {"maxMemory": 100})
    assert re.fullmatch(r"node (mul|sub)_0: step \d \(map\): .* bytes, most of them here; the limit is 100 \(maxMemory\)", found)
    assert "maxMemory must be an integer from 0" in run("return error(create('pair.ponnx', { maxMemory: -1 }))")


def test_sequences_and_optionals(run: Run) -> None:
    """Arrays of tensors and null, as inputs and outputs, all or some of them."""
    got = run("""
      const session = await create("sequence.ponnx");
      const tensor = ({ type, dims, data }) => ({ type, dims, data: [...data].map(Number) });
      const told = (v) => (v === null ? null : Array.isArray(v) ? v.map(told) : tensor(v));
      const all = (results) => Object.fromEntries(Object.entries(results).map(([k, v]) => [k, told(v)]));
      const s = [new Tensor("float32", [1, 2], [1, 2]), new Tensor("float32", [], [0, 2]), new Tensor("float32", [3, 4, 5, 6], [2, 2])];
      const p = (n) => new Tensor("int64", [BigInt(n)], []);
      const o = new Tensor("float32", [7], [1]);
      return {
        names: [session.inputNames, session.outputNames],
        types: session.inputMetadata.map(({ type, isTensor }) => [type, isTensor]),
        first: all(await session.run({ s, o: null, p: p(-1) })),
        second: all(await session.run({ s: s.slice(0, 1), o, p: p(0) }, ["q", "t"])),
        errors: [
          await error(session.run({ s, o, p: p(3) })),
          await error(session.run({ s: o, o, p: p(0) })),
          await error(session.run({ s: [o, p(0)], o, p: p(0) })),
          await error(session.run({ s: null, o, p: p(0) })),
          await error(session.run({ o, p: p(0) })),
          await error(session.run({ s, o, p: p(0) }, ["t/shapes"])),
        ],
      };
    """)  # fmt: skip
    assert got["names"] == [["s", "o", "p"], ["t", "q", "y"]]
    assert got["types"] == [["seq(tensor(float32))", False], ["optional(tensor(float32))", False], ["int64", True]]
    one = {"type": "float32", "dims": [1, 2], "data": [1, 2]}
    nothing = {"type": "float32", "dims": [0, 2], "data": []}
    assert got["first"] == {"t": [one, nothing], "q": None, "y": {"type": "float32", "dims": [2, 2], "data": [3, 4, 5, 6]}}
    assert got["second"] == {"t": [], "q": {"type": "float32", "dims": [1], "data": [7]}}
    beyond, no_array, no_float, no_null, missing, part = got["errors"]
    assert "out of range for the sequence" in beyond
    assert no_array == 'input "s": the feed is no array of tensors; it takes seq(tensor(float32))'
    assert no_float.startswith('input "s": element 1 is int64')
    assert no_null.startswith('input "s": the feed is no array of tensors')
    assert missing == 'input "s" is missing; it takes seq(tensor(float32))'
    assert part.startswith('there is no output "t/shapes"')


def test_strings(run: Run) -> None:
    """Arrays of strings, as onnxruntime-web has them: what goes in, comes out, is filled in; what has no UTF-8."""
    got = run("""
      const session = await create("strings.ponnx");
      const told = ({ type, dims, data }) => ({ type, dims, data: [...data] });
      const given = new Tensor("string", ["a", "", "é\\0", "𝄞", "\\ufeffb", "long".repeat(9999)], [2, 3]);
      const z = new Tensor(["1-2", "", "日本"]);
      const { y, e, p } = await session.run({ x: given, z });
      const into = new Tensor("string", Array(6).fill("?"), [2, 3]);
      const filled = await session.run({ x: given, z }, { y: into });
      const none = await session.run({ x: new Tensor("string", [], [0, 3]), z });
      const bad = (data) => error(session.run({ x: { type: "string", dims: [1, 3], data }, z }));
      return {
        types: [...session.inputMetadata, ...session.outputMetadata].map(({ type }) => type),
        y: told(y), e: told(e), p: told(p), same: filled.y === into && into.data.join() === y.data.join(), none: told(none.y),
        errors: [
          await bad(["a", "\\ud800", "b"]),
          await bad(["a", null, "b"]),
          await bad(["a"]),
          await bad(new Uint8Array(3)),
          await error(session.run({ x: new Tensor("int64", [1n], [1, 1]), z })),
          await error(session.run({ x: given, z }, { y: new Tensor("string", ["?"], [1]) })),
        ],
      };
    """)  # fmt: skip
    assert got["types"] == ["string", "string", "string", "bool", "string"]
    x, z = ["a", "", "é\0", "𝄞", "\ufeffb", "long" * 9999], ["1-2", "", "日本"]
    assert got["y"] == {"type": "string", "dims": [2, 3], "data": [a + b for a, b in zip(x, z * 2, strict=True)]}
    assert got["e"] == {"type": "bool", "dims": [2, 3], "data": [0, 1, 0, 0, 0, 0]}
    assert got["p"]["data"] == ["1", "2", "", "", "日本", ""]
    assert got["same"]
    assert got["none"] == {"type": "string", "dims": [0, 3], "data": []}
    surrogate, null, short, bytes_, number, small = got["errors"]
    assert surrogate == 'input "x": element 1 holds a lone surrogate'
    assert null == 'input "x": element 1 is null, not a string'
    assert short == 'input "x": the feed\'s dims [1,3] do not suit its data; it takes string [n, m]'
    assert bytes_ == 'input "x": the feed\'s data is not an array of strings; it takes string [n, m]'
    assert number == 'input "x": the feed is int64; it takes string [n, m]'
    assert small == 'output "y": the tensor given is string [1], the result is string [2,3]'


def test_run_options(run: Run) -> None:
    got = run(FEEDS + """
      const session = await create("pair.ponnx");
      return {
        ended: await error(session.run(feeds, { terminate: true, tag: "t1" })),
        tagged: await error(session.run({}, ["d"], { tag: "t2" })),
        fetches: Object.keys(await session.run(feeds, ["d"], { tag: "t3" })),
        wrong: await error(session.run(feeds, 3)),
      };
    """)  # fmt: skip
    assert got["ended"] == "[t1] the run was terminated: its option terminate is set"
    assert got["tagged"].startswith('[t2] input "a" is missing')
    assert got["fetches"] == ["d"]
    assert got["wrong"].startswith("fetches must be names of outputs")


def test_profiles(run: Run) -> None:
    got = run(FEEDS + """
      const session = await create("pair.ponnx");
      session.startProfiling();
      await session.run(feeds);
      await session.run(feeds);
      const { traceEvents } = session.endProfiling();
      await session.run(feeds);
      const early = await create("pair.ponnx", { enableProfiling: true });
      await early.run(feeds);
      const steps = ({ traceEvents }) => traceEvents.filter(({ ph }) => ph === "X");
      return { steps: steps({ traceEvents }), after: steps(session.endProfiling()).length, early: steps(early.endProfiling()).length };
    """)  # fmt: skip
    starts = [step["ts"] for step in got["steps"]]
    assert len(starts) == 4
    assert starts == sorted(starts)
    assert {"mul_0", "sub_0"} <= {node for step in got["steps"] for node in step["args"]["nodes"].split(", ")}
    assert (got["after"], got["early"]) == (0, 2)


def test_tensors_elsewhere(run: Run) -> None:
    """Resources that others hold come here once they are asked for, by the caller or by a run."""
    got = run("""
      const log = [];
      const made = (data) => ({
        dims: [2, 2], dataType: "float32", dispose: () => log.push("dispose"),
        download: async () => (log.push("download"), Float32Array.from(data)),
      });
      const buffer = { size: 16, mapState: "unmapped" };
      const a = Tensor.fromGpuBuffer(buffer, made([1, 2, 3, 4]));
      const seen = [a.location, a.type, a.dims, a.size, a.gpuBuffer === buffer];
      const early = await error((async () => a.data)());
      a.dims = [4];
      const b = Tensor.fromMLTensor({ destroy() {} }, { ...made([5, 6, 7, 8]), dims: [4] });
      const session = await create("pair.ponnx");
      const { d } = await session.run({ a: a.reshape([2, 2]), b: b.reshape([2, 2]) });
      const twice = await Promise.all([a.getData(), a.getData()]);
      const after = [a.location, twice[0] === twice[1]];
      await b.getData(true);
      a.dispose();
      const texture = Tensor.fromTexture({}, { width: 3, height: 2 });
      const lost = await error(texture.getData());
      return { seen, early, d: [...d.data], after, log, gone: a.location, texture: [texture.location, texture.dims], lost,
        undisposed: await error((async () => a.gpuBuffer)()) };
    """)
    assert got["seen"] == ["gpu-buffer", "float32", [2, 2], 4, True]
    assert "await getData()" in got["early"]
    assert got["d"] == [-4] * 4
    assert got["after"] == ["cpu", True]
    assert got["log"] == ["download", "download", "download", "download", "dispose", "dispose"]
    assert got["gone"] == "none"
    assert got["texture"] == ["texture", [1, 2, 3, 4]]
    assert "without a way to download" in got["lost"]
    assert "was disposed" in got["undisposed"]


def test_tensors_of_strings_and_pinned_buffers(run: Run) -> None:
    assert run("""
      const words = new Tensor(["a", "b", "c", "d"], [2, 2]);
      words.dims = [4];
      const pinned = Tensor.fromPinnedBuffer("int32", Int32Array.of(1, 2), [2, 1]);
      const located = new Tensor({ location: "cpu-pinned", type: "uint8", data: new Uint8Array(3), dims: [3] });
      return [
        words.type, words.dims, await words.getData(), words.reshape([1, 4]).dims, words instanceof Tensor,
        pinned.location, [...pinned.data], pinned.dims, located.location,
        await error((async () => (words.dims = [5]))()),
      ];
    """) == [
        *["string", [4], ["a", "b", "c", "d"], [1, 4], True],
        *["cpu-pinned", [1, 2], [2, 1], "cpu-pinned", "Tensor: dims [5] of string need 5 elements, data has 4"],
    ]  # fmt: skip


PICTURES = [
    "{ format: 'RGB' }",
    "{ format: 'RGB', norm: { mean: 2, bias: 1 } }",
    "{ format: 'RGB', norm: { mean: [1, 2, 3], bias: [3, 2, 1] } }",
    "{ format: 'RGBA' }",
]


@pytest.mark.parametrize("options", PICTURES)
def test_pictures_are_onnxruntimes(run: Run, options: str) -> None:
    """To the byte, there and back."""
    got = run(f"""
      const {{ Tensor: Theirs }} = await import("/player/common.mjs");
      const options = {options};
      const channels = options.format === "RGBA" ? 4 : 3;
      const data = Float32Array.from({{ length: channels * 6 }}, (_, i) => (i * 7 % 23) / 23);
      const picture = new ImageData(Uint8ClampedArray.from({{ length: 24 }}, (_, i) => i * 9), 3, 2);
      const both = [];
      for (const kind of [Tensor, Theirs]) {{
        const tensor = new kind("float32", data, [1, channels, 2, 3]);
        const image = tensor.toImageData(options);
        const from = await kind.fromImage(picture, {{ tensorFormat: "RGB", ...options }});
        const url = await kind.fromImage(new kind("float32", data, [1, channels, 2, 3]).toDataURL(options), {{ tensorFormat: "RGB" }});
        both.push([image.width, image.height, [...image.data], from.type, from.dims, [...from.data], url.dims]);
      }}
      return both;
    """)
    assert got[0] == got[1]


def test_environment(run: Run) -> None:
    got = run("""
      env.trace = true;
      const marks = [];
      console.timeStamp = (label) => marks.push(label);
      const { TRACE, TRACE_FUNC_BEGIN, TRACE_EVENT_BEGIN, TRACE_EVENT_END } = await import("/player/index.mjs");
      TRACE("WEBGPU", "mine");
      TRACE_FUNC_BEGIN("there");
      TRACE_EVENT_BEGIN("event");
      TRACE_EVENT_END("event");
      env.trace = false;
      TRACE("CPU", "silent");
      return { marks, versions: Object.keys(env.versions), common: env.versions.common, webgl: typeof env.webgl };
    """)
    assert got == {
        "marks": ["WEBGPU::ORT::mine", "CPU::ORT::FUNC_BEGIN::there"],
        "versions": ["common", "web", "pyonnx-wasm"],
        "common": "1.30.0",
        "webgl": "object",
    }


def test_backends_of_ones_own(run: Run) -> None:
    got: Any = run("""
      const { registerBackend } = await import("/player/index.mjs");
      const log = [];
      const handler = {
        inputNames: ["x"], outputNames: ["y"], inputMetadata: [], outputMetadata: [],
        run: async (feeds) => ({ y: feeds.x }), dispose: async () => log.push("disposed"), startProfiling() {}, endProfiling() {},
      };
      const createInferenceSessionHandler = async (source) => (log.push(source), handler);
      const backend = { init: async (name) => log.push(name), createInferenceSessionHandler };
      registerBackend("mine", backend, 1);
      const session = await create("anything", { executionProviders: ["mine"] });
      const { Tensor: Theirs } = await import("/player/common.mjs");
      const { y } = await session.run({ x: new Theirs("float32", [3], [1]) });
      await session.release();
      return { log, y: [...y.data], wrong: await error((async () => registerBackend("x", {}, 1))()) };
    """)
    assert got["log"] == ["mine", "anything", "disposed"]
    assert got["y"] == [3]
    assert "a backend has the methods" in got["wrong"]


def test_core_in_shared_memory(open_page: Callable[..., Run], player_servers: dict[bool, Server]) -> None:
    assert open_page(isolated=True)("""
      const core = await bytes("/player/core.wasm");
      const shared = new Uint8Array(new SharedArrayBuffer(core.length));
      shared.set(core);
      env.wasm.wasmBinary = shared.buffer;
      return (await (await create("dense.ponnx")).run({ x: x(2) })).y.dims;
    """) == [2, 31]  # fmt: skip
