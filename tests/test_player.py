"""The player in a real Chromium: what it loads, runs, refuses and gives back."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser, Page

import pyonnx_wasm
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing.chromium import launch_options

pytestmark = pytest.mark.browser

DIST = Path(__file__).parents[1] / "js" / "dist"
CSP = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'"
WEIGHT_MB = 24
TYPES = ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
Run = Callable[..., Any]


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    return launch_options()


def write(path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], **weights: np.ndarray) -> None:
    """Compiles a graph into `path`; inputs and outputs are {name: (dtype, dims)}."""
    values = [[helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(t)), dims) for name, (t, dims) in side.items()]
              for side in (inputs, outputs)]  # fmt: skip
    graph = helper.make_graph(nodes, "g", *values, [numpy_helper.from_array(w, name) for name, w in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.with_suffix(".onnx").write_bytes(model.SerializeToString())
    pyonnx_wasm.save(pyonnx_wasm.compile(model.SerializeToString()), path)


DENSE_RNG = np.random.default_rng(7)
W, B, SHIFT = (DENSE_RNG.standard_normal(s, dtype=np.float32) for s in ((67, 31), (31,), (31,)))


def dense(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ W + (B + SHIFT), 0)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert (DIST / "index.mjs").exists(), "the player is not built: make build"
    root = tmp_path_factory.mktemp("site")
    (root / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>player</title>')
    (root / "csp.html").write_text(f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{CSP}"><title>player</title>')
    node = helper.make_node
    dims = ["n", 67], ["n", 31]
    write(root / "dense.ponnx",
          [node("Add", ["b", "shift"], ["c"], name="fold"), node("MatMul", ["x", "w"], ["t"], name="dense_0"), node("Add", ["t", "c"], ["u"], name="bias_0"),
           node("Relu", ["u"], ["y"], name="relu_0")],
          {"x": ("float32", dims[0])}, {"y": ("float32", dims[1])}, w=W, b=B, shift=SHIFT)  # fmt: skip
    write(root / "types.ponnx", [node("Identity", [t], [f"{t}_out"]) for t in TYPES],
          {t: (t, ["n"]) for t in TYPES}, {f"{t}_out": (t, ["n"]) for t in TYPES})  # fmt: skip
    write(root / "pair.ponnx", [node("Mul", ["a", "b"], ["p"], name="mul_0"), node("Sub", ["a", "b"], ["d"], name="sub_0")],
          {"a": ("float32", ["n", "m"]), "b": ("float32", ["n", "m"])}, {"p": ("float32", ["n", "m"]), "d": ("float32", ["n", "m"])})  # fmt: skip
    write(root / "pick.ponnx", [node("Gather", ["x", "i"], ["y"], name="pick_0")],
          {"x": ("float32", [5]), "i": ("int64", ["k"])}, {"y": ("float32", ["k"])})  # fmt: skip
    big = np.full((1024, WEIGHT_MB << 8), 0.5, np.float32)
    write(root / "big.ponnx", [node("MatMul", ["x", "w"], ["y"], name="big_0")],
          {"x": ("float32", ["n", 1024])}, {"y": ("float32", ["n", WEIGHT_MB << 8])}, w=big)  # fmt: skip
    make_thin(root)
    return root


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(header: dict[str, Any] | str, body: bytes) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-(len(text) + 8) % 256)
    return len(text).to_bytes(8, "little") + text + body


def make_thin(root: Path) -> None:
    """`thin/dense.ponnx`: weights stay in a file beside it, at odd offsets."""
    header, body = split((root / "dense.ponnx").read_bytes())
    (root / "thin").mkdir()
    shift = 13
    for weight in header["weights"]:
        if "at" in weight:
            weight["from"] = [0, weight.pop("at") + shift]
    header["files"] = ["source data.bin"]
    (root / "thin/dense.ponnx").write_bytes(join(header, body))
    (root / "thin/source data.bin").write_bytes(b"?" * shift + body)
    for name, file in {"up": "../dense.bin", "absolute": "/dense.bin", "elsewhere": "https://example.com/dense.bin"}.items():
        header["files"] = [file]
        (root / f"thin/{name}.ponnx").write_bytes(join(header, body))


@pytest.fixture(scope="module")
def servers(site: Path) -> Iterator[dict[bool, Server]]:
    with Server({"/": site, "/player": DIST}, isolated=True) as isolated, Server({"/": site, "/player": DIST}, isolated=False) as plain:
        yield {True: isolated, False: plain}


HELPERS = """
const ort = await import("/player/index.mjs");
const { InferenceSession, Tensor, env } = ort;
const create = (source, options) => InferenceSession.create(source, options);
const bytes = async (url) => new Uint8Array(await (await fetch(url)).arrayBuffer());
const error = (promise) => promise.then(() => null, (e) => e.message);
const tensors = (feeds) => Object.fromEntries(Object.entries(feeds).map(([k, [type, data, dims]]) => [k, new Tensor(type, data, dims)]));
const plain = (results) => Object.fromEntries(Object.entries(results).map(([k, t]) => [k, { type: t.type, dims: t.dims, data: [...t.data].map(Number) }]));
const x = (rows) => new Tensor("float32", Float32Array.from({ length: rows * 67 }, (_, i) => ((i * 37) % 101) / 50 - 1), [rows, 67]);
"""


def ramp(rows: int) -> np.ndarray:
    return (((np.arange(rows * 67) * 37) % 101) / np.float64(50) - 1).astype(np.float32).reshape(rows, 67)


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture
def open_page(page: Page, servers: dict[bool, Server]) -> Callable[..., Run]:
    def open_page(isolated: bool = False, path: str = "index.html") -> Run:
        page.goto(servers[isolated].url + path)

        def run(body: str, arg: Any = None) -> Any:
            return page.evaluate(f"async (arg) => {{ {HELPERS} {body} }}", arg)

        return run

    return open_page


@pytest.fixture
def run(open_page: Callable[..., Run]) -> Run:
    return open_page()


@pytest.mark.parametrize("isolated", [True, False])
def test_results_are_the_same_everywhere(open_page: Callable[..., Run], isolated: bool) -> None:
    body = """
      env.wasm.numThreads = arg.threads;
      const session = await create("dense.ponnx", { worker: arg.worker });
      const results = [];
      for (const rows of arg.rows) results.push((await session.run({ x: x(rows) })).y);
      await session.release();
      return { isolated: crossOriginIsolated, threads: session.threads, dims: results.map((y) => y.dims), data: results.map((y) => [...y.data]) };
    """
    rows = [1, 200, 0, 3, 17, 1]
    seen = []
    run = open_page(isolated)
    for worker in (True, False):
        for threads in (1, 2, 3):
            got = run(body, {"worker": worker, "threads": threads, "rows": rows})
            assert got["isolated"] == isolated
            assert got["threads"] == (threads if isolated else 1)
            assert got["dims"] == [[n, 31] for n in rows]
            for n, data in zip(rows, got["data"], strict=True):
                np.testing.assert_allclose(np.array(data).reshape(n, 31), dense(ramp(n)), rtol=1e-5, atol=1e-5)
            seen.append(got["data"])
    assert all(data == seen[0] for data in seen)


def test_core_is_fetched_once_and_by_capability(open_page: Callable[..., Run], servers: dict[bool, Server]) -> None:
    run = open_page()
    served = servers[False].transfers
    served.clear()
    threads = run("""
      const sessions = await Promise.all([create("dense.ponnx"), create("pair.ponnx"), create("dense.ponnx", { worker: false })]);
      await Promise.all(sessions.map((s) => s.release()));
      return sessions.map((s) => s.threads);
    """)
    assert threads == [1, 1, 1]
    assert [t.path for t in served if t.path.endswith(".wasm")] == ["/player/core-relaxed.wasm"]
    served.clear()
    run('env.wasm.simd = false; await (await create("dense.ponnx")).release()')
    assert [t.path for t in served if t.path.endswith(".wasm")] == ["/player/core.wasm"]


def test_strict_content_security_policy(open_page: Callable[..., Run]) -> None:
    run = open_page(path="csp.html")
    assert run('const s = await create("dense.ponnx"); return (await s.run({ x: x(2) })).y.dims') == [2, 31]


def test_metadata(run: Run) -> None:
    got = run("""
      const s = await create("dense.ponnx", { executionProviders: ["webgpu", "wasm"], graphOptimizationLevel: "all", logSeverityLevel: 2, extra: {} });
      s.config = { mine: true };
      return [s.inputNames, s.outputNames, s.inputMetadata, s.outputMetadata, s.backend, s.config.mine, s instanceof InferenceSession];
    """)
    meta = {"isTensor": True, "type": "float32"}
    assert got == [
        ["x"],
        ["y"],
        [{"name": "x", **meta, "shape": ["n", 67]}],
        [{"name": "y", **meta, "shape": ["n", 31]}],
        "wasm",
        True,
        True,
    ]


SOURCES = {
    "address": '"dense.ponnx"',
    "URL": 'new URL("dense.ponnx", location.href)',
    "blob address": "URL.createObjectURL(new Blob([data]))",
    "Response": 'await fetch("dense.ponnx")',
    "Blob": "new Blob([data])",
    "ArrayBuffer": "data.buffer",
    "Uint8Array": "padded.subarray(5, 5 + data.length)",
    "DataView": "new DataView(padded.buffer, 5, data.length)",
    "stream of crumbs": "new ReadableStream({ start(c) { for (let i = 0; i < data.length; i += 7) c.enqueue(data.slice(i, i + 7)); c.close(); } })",
    "stream of one chunk": "new ReadableStream({ start(c) { c.enqueue(data.slice()); c.close(); } })",
}


@pytest.mark.parametrize("worker", [True, False])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_sources(run: Run, source: str, worker: bool) -> None:
    got = run(f"""
      const data = await bytes("dense.ponnx");
      const padded = new Uint8Array(data.length + 9);
      padded.set(data, 5);
      const session = await create({source}, {{ worker: {json.dumps(worker)} }});
      const {{ y }} = await session.run({{ x: x(4) }});
      await session.release();
      return {{ y: [...y.data], kept: [data.length, padded.length] }};
    """)
    np.testing.assert_allclose(np.array(got["y"]).reshape(4, 31), dense(ramp(4)), rtol=1e-5, atol=1e-5)
    assert got["kept"][1] == got["kept"][0] + 9 > 9


def test_buffer_with_offset_as_in_onnxruntime(run: Run) -> None:
    assert run("""
      const data = await bytes("dense.ponnx");
      const padded = new Uint8Array(data.length + 9);
      padded.set(data, 5);
      const s = await create(padded.buffer, 5, data.length);
      return (await s.run({ x: x(2) })).y.dims;
    """.replace("create(padded", "InferenceSession.create(padded")) == [2, 31]  # fmt: skip


@pytest.mark.parametrize("worker", [True, False])
def test_thin_files(run: Run, worker: bool) -> None:
    options = json.dumps({"worker": worker})
    got = run(f"""
      const data = await bytes("thin/source%20data.bin");
      const near = await create("thin/dense.ponnx", {options});
      const given = await create(await bytes("thin/dense.ponnx"), {{ ...{options}, externalData: [{{ path: "source data.bin", data }}] }});
      const ys = await Promise.all([near, given].map((s) => s.run({{ x: x(3) }})));
      return ys.map(({{ y }}) => [...y.data]);
    """)
    for y in got:
        np.testing.assert_allclose(np.array(y).reshape(3, 31), dense(ramp(3)), rtol=1e-5, atol=1e-5)
    errors = run(f"""
      const short = [{{ path: "source data.bin", data: new Uint8Array(100) }}];
      return Promise.all([
        error(create(await bytes("thin/dense.ponnx"), {options})),
        error(create("thin/dense.ponnx", {{ ...{options}, externalData: short }})),
        ...["up", "absolute", "elsewhere"].map((name) => error(create(`thin/${{name}}.ponnx`, {options}))),
      ]);
    """)
    assert 'the weights are in the file "source data.bin": pass it in externalData' in errors[0]
    assert "the file is truncated: it ends after 100 of" in errors[1]
    for message in errors[2:]:
        assert "leaves the model's folder" in message


@pytest.mark.parametrize("worker", [True, False])
def test_progress(run: Run, worker: bool) -> None:
    steps = run('const seen = []; await create("big.ponnx", { worker: arg, onProgress: (p) => seen.push(p) }); return seen', worker)
    assert len(steps) > 8
    assert [s["phase"] for s in steps[-2:]] == ["init", "ready"]
    loaded = [s["loaded"] for s in steps]
    assert loaded == sorted(loaded)
    assert loaded[-1] == steps[0]["total"] == steps[-1]["total"] > WEIGHT_MB << 20


def test_failing_progress_callback_does_not_end_the_load(run: Run) -> None:
    assert run("""
      const reported = new Promise((resolve) => addEventListener("error", (e) => { e.preventDefault(); resolve(e.message); }));
      const s = await create("dense.ponnx", { onProgress() { throw new Error("mine"); } });
      return [s.inputNames, (await reported).includes("mine")];
    """) == [["x"], True]


def test_concurrent_runs_are_served_in_order(run: Run) -> None:
    got = run("""
      const s = await create("dense.ponnx");
      const order = [];
      const calls = Array.from({ length: 40 }, (_, i) => s.run({ x: x(i % 7) }).then((r) => { order.push(i); return r.y.dims[0]; }));
      const bad = error(s.run({ x: new Tensor("float32", [1], [1, 1]) }));
      const last = s.run({ x: x(9) }).then(({ y }) => y.dims[0]);
      const released = s.release();
      const late = error(s.run({ x: x(1) }));
      return { rows: await Promise.all(calls), order, bad: await bad, last: await last, late: await late, released: await released };
    """)
    assert got["rows"] == [i % 7 for i in range(40)]
    assert got["order"] == list(range(40))
    assert got["bad"].startswith('input "x": dim 1 is 1, expected 67')
    assert got["last"] == 9
    assert got["late"] == "the session was released"


def test_feeds_may_be_reused_at_once(run: Run) -> None:
    first, again, kept = run("""
      const s = await create("dense.ponnx");
      const feed = x(2);
      const call = s.run({ x: feed });
      const before = [...feed.data];
      feed.data.fill(7);
      const y = [...(await call).y.data];
      feed.data.set(before);
      return [y, [...(await s.run({ x: feed })).y.data], feed.data.length];
    """)
    assert first == again
    assert kept == 2 * 67


def test_page_does_not_block(run: Run) -> None:
    assert run("""
      const s = await create("big.ponnx");
      let ticks = 0;
      const timer = setInterval(() => ticks++, 1);
      await s.run({ x: new Tensor("float32", new Float32Array(1024 * 24), [24, 1024]) });
      clearInterval(timer);
      return ticks;
    """) > 0  # fmt: skip


def test_every_type(run: Run) -> None:
    rng = np.random.default_rng(1)
    for n in (0, 1, 3, 64):
        feeds = {t: (rng.integers(0, 2 if t == "bool" else 100, n)).tolist() for t in TYPES}
        got = run("""
          const s = (globalThis.types ??= await create("types.ponnx"));
          const feeds = Object.fromEntries(Object.entries(arg).map(([type, data]) => [type, new Tensor(type, data)]));
          return plain(await s.run(feeds));
        """, feeds)  # fmt: skip
        assert got == {f"{t}_out": {"type": t, "dims": [n], "data": data} for t, data in feeds.items()}


def test_special_values_survive(run: Run) -> None:
    assert run("""
      const s = await create("pair.ponnx");
      const a = new Tensor("float32", [NaN, Infinity, -Infinity, -0, 1e-45], [1, 5]);
      const { p } = await s.run({ a, b: new Tensor("float32", [1, 1, 1, 1, 1], [1, 5]) });
      return [...p.data].map((v, i) => Object.is(v, a.data[i]));
    """) == [True] * 5  # fmt: skip


def test_fetches(run: Run) -> None:
    got = run("""
      const s = await create("pair.ponnx");
      const feeds = { a: new Tensor("float32", [1, 2, 3, 4], [2, 2]), b: new Tensor("float32", [5, 6, 7, 8], [2, 2]) };
      const d = new Tensor("float32", new Float32Array(4), [4]);
      const filled = await s.run(feeds, { d });
      return {
        list: plain(await s.run(feeds, ["d"])), empty: plain(await s.run(feeds, [])), nulls: Object.keys(await s.run(feeds, { p: null })),
        options: Object.keys(await s.run(feeds, { tag: "x" })), filled: [filled.d === d, d.dims, [...d.data]],
        unknown: await error(s.run(feeds, ["q"])), small: await error(s.run(feeds, { d: new Tensor("float32", [1]) })),
        typed: await error(s.run(feeds, { d: new Tensor("int32", [1, 2, 3, 4]) })),
      };
    """)
    assert got["list"] == {"d": {"type": "float32", "dims": [2, 2], "data": [-4] * 4}}
    assert got["empty"] == {}
    assert got["nulls"] == ["p"]
    assert got["options"] == ["p", "d"]
    assert got["filled"] == [True, [2, 2], [-4] * 4]
    assert got["unknown"] == 'there is no output "q"; the outputs are "p", "d"'
    assert 'output "d": the tensor given is float32 [1], the result is float32 [2,2]' in got["small"]
    assert "the tensor given is int32 [4]" in got["typed"]


def test_profile_names_nodes(run: Run) -> None:
    steps = run('const s = await create("dense.ponnx"); return s.profile({ x: x(5) })')
    assert "dense_0" in " ".join(s["name"] for s in steps)
    assert all(s["kernel"] and s["ms"] >= 0 for s in steps)


BAD_FEEDS = {
    "none": ("undefined", "feeds must be an object of tensors"),
    "array": ("[]", "feeds must be an object of tensors"),
    "missing": ("{ a }", 'input "b" is missing; it takes float32 [n, m]'),
    "unknown": ("{ a, b: a, c: a }", 'there is no input "c"; the inputs are "a", "b"'),
    "not a tensor": ("{ a, b: [1, 2] }", 'input "b": the feed is not a Tensor; it takes float32 [n, m]'),
    "null": ("{ a, b: null }", 'input "b": the feed is not a Tensor'),
    "type": ('{ a, b: new Tensor("float64", [1, 2], [1, 2]) }', 'input "b": the feed is float64; it takes float32'),
    "rank": ('{ a, b: new Tensor("float32", [1, 2]) }', 'input "b": the feed has rank 1 ([2]); it takes float32 [n, m]'),
    "symbol": ("{ a, b: a.reshape([2, 1]) }", 'input "b": dim 0 ("n") is 2, but input "a" has n = 1'),
    "disposed": ("{ a, b: (() => { const t = a.reshape([1, 2]); t.dispose(); return t; })() }", "the tensor was disposed"),
    "dims changed in place": (
        '{ a, b: { type: "float32", data: new Float32Array(2), dims: [1, 2e9] } }',
        "dims [1,2000000000] do not suit its data",
    ),
    "dims of nonsense": ('{ a, b: { type: "float32", data: new Float32Array(2), dims: [-1, -2] } }', "the feed is not a Tensor"),
}


@pytest.mark.parametrize(("feeds", "message"), BAD_FEEDS.values(), ids=BAD_FEEDS)
def test_bad_feeds(run: Run, feeds: str, message: str) -> None:
    got, after = run(f"""
      const s = await create("pair.ponnx");
      const a = new Tensor("float32", [1, 2], [1, 2]);
      return [await error((async () => s.run({feeds}))()), plain(await s.run({{ a, b: a }})).p.data];
    """)
    assert message in got
    assert after == [1, 4]


def test_errors_of_a_run_name_the_node_and_the_session_lives_on(run: Run) -> None:
    got = run("""
      const s = await create("pick.ponnx");
      const feeds = (i) => ({ x: new Tensor("float32", [1, 2, 3, 4, 5]), i: new Tensor("int64", i) });
      return [await error(s.run(feeds([0, 5]))), await error(s.run(feeds([-6n]))), plain(await s.run(feeds([4, -5]))).y.data];
    """)
    assert all(message.startswith("node pick_0: ") for message in got[:2])
    assert got[2] == [5, 1]


OPTIONS = {
    "webgpu only": ('{ executionProviders: ["webgpu"] }', 'executionProviders ["webgpu"]: only "wasm" is available; add it to the list'),
    "webnn object": ('{ executionProviders: [{ name: "webnn" }] }', 'only "wasm" is available'),
    "gpu output": ('{ preferredOutputLocation: { y: "gpu-buffer" } }', 'preferredOutputLocation "gpu-buffer"'),
    "unknown dim": ("{ freeDimensionOverrides: { m: 3 } }", 'freeDimensionOverrides: the model has no dim "m"; its symbolic dims are "n"'),
    "negative dim": ("{ freeDimensionOverrides: { n: -3 } }", 'freeDimensionOverrides: "n" must be an integer >= 0'),
    "null": ("null", "the session's options must be an object"),
}


@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS)
def test_bad_options(run: Run, options: str, message: str) -> None:
    assert message in run(f'return error(create("dense.ponnx", {options}))')


def test_overrides_bind_sizes(run: Run) -> None:
    shape, bad, good = run("""
      const s = await create("dense.ponnx", { freeDimensionOverrides: { n: 3 } });
      return [s.inputMetadata[0].shape, await error(s.run({ x: x(2) })), (await s.run({ x: x(3) })).y.dims];
    """)
    assert (shape, good) == ([3, 67], [3, 31])
    assert bad == 'input "x": dim 0 is 2, expected 3; it takes float32 [3, 67]'


def bad_files() -> dict[str, tuple[Callable[[bytes], bytes], str]]:
    def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
        def apply(data: bytes) -> bytes:
            header, body = split(data)
            change(header)
            return join(header, body)

        return apply

    def weight(**keys: Any) -> Callable[[bytes], bytes]:
        return edit(lambda h: h["weights"][0].update(keys))

    def words(change: Callable[[np.ndarray], None]) -> Callable[[bytes], bytes]:
        def apply(data: bytes) -> bytes:
            header, body = split(data)
            at, size = header["programs"][0]["code"]
            code = np.frombuffer(body[at : at + size], np.int32).copy()
            change(code)
            return join(header, body[:at] + code.tobytes() + body[at + size :])

        return apply

    def set_word(index: int, value: int) -> Callable[[bytes], bytes]:
        return words(lambda code: code.__setitem__(index, value))

    return {
        "empty": (lambda d: b"", "the file is empty"),
        "three bytes": (lambda d: d[:3], "the file is truncated: it has only 3 bytes"),
        "cut header": (lambda d: d[:100], "the file is truncated: it ends after 100 of"),
        "cut data": (lambda d: d[:-4000], "the file is truncated: it ends after"),
        "zeros": (lambda d: bytes(1000), "this is not a compiled model"),
        "text": (lambda d: b"hello world, this is text", "this is not a compiled model"),
        "html": (lambda d: b"\n<!DOCTYPE html><html></html>", "the server sent an HTML page, not a model"),
        "zip": (lambda d: b"PK\x03\x04" + bytes(100), "this is a zip archive"),
        "gzip": (lambda d: b"\x1f\x8b\x08" + bytes(100), "this is a gzip file"),
        "lfs": (lambda d: b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "this is a Git LFS pointer"),
        "ort": (lambda d: b"\x20\0\0\0ORTM" + bytes(100), "this is an .ort file"),
        "json": (lambda d: b'{"a": 1}' + bytes(100), "this is not a compiled model"),
        "safetensors": (lambda d: join({"__metadata__": {"format": "pt"}}, b""), "a safetensors file has no program"),
        "absurd header length": (lambda d: (2**62).to_bytes(8, "little") + d[8:], "this is not a compiled model"),
        "no json": (lambda d: join("{nonsense", b""), "the header is damaged"),
        "no utf-8": (lambda d: d[:9] + b"\xff" + d[10:], "the header is damaged"),
        "list": (lambda d: d[:8] + b"{]" + d[10:], "the header is damaged"),
        "version": (
            edit(lambda h: h["__metadata__"].update(version="2")),
            "format version 2; this player reads version 1: compile it again",
        ),
        "no inputs": (edit(lambda h: h.pop("inputs")), 'the header is damaged: "inputs" must be a list'),
        "input type": (
            edit(lambda h: h["inputs"][0].update(dtype="complex64")),
            '"x" has type complex64, which this player does not support',
        ),
        "input rank": (edit(lambda h: h["inputs"][0].update(shape=["n"])), None),
        "target": (edit(lambda h: h["programs"][0].update(target="tpu")), 'target "tpu"'),
        "code outside": (edit(lambda h: h["programs"][0].update(code=[1 << 30, 64])), "the file is truncated"),
        "code of half words": (edit(lambda h: h["programs"][0].update(code=[0, 6])), "6 bytes are no list of words"),
        "negative offset": (weight(at=-256), "at must be an integer >= 0, not -256"),
        "fraction": (weight(at=0.5), "at must be an integer >= 0, not 0.5"),
        "shape and bytes": (weight(bytes=12), "is not 12 bytes"),
        "weight outside": (weight(at=1 << 40), "the file is truncated"),
        "absurd weight": (weight(shape=[1 << 45], bytes=1 << 47), "out of memory: weight"),
        "big weight": (weight(shape=[1 << 29], bytes=1 << 31), "the file is truncated"),
        "weight over itself": (edit(lambda h: (h["weights"][0].pop("at"), h["weights"][0].update(over=0))), "cannot lie over weight 0"),
        "no file": (edit(lambda h: (h["weights"][0].pop("at"), h["weights"][0].update({"from": [0, 0]}))), "there is no file 0"),
        "unknown step": (edit(lambda h: h["script"].append({"loop": 1})), 'this player knows only "run" steps, not "loop"'),
        "unknown program": (edit(lambda h: h["script"][0].update(run=9)), "there is no program 9"),
        "unknown slot": (edit(lambda h: h["script"][0].update({"in": [5]})), "slot 5 is not computed before"),
        "too few inputs": (edit(lambda h: h["script"][0].update({"in": []})), "its use has 0 and 1"),
        "results": (edit(lambda h: h.update(results=[])), "0 slots for 1 outputs"),
        "magic": (set_word(0, 1), "not a program"),
        "program version": (set_word(1, 2), "program version 2"),
        "word count": (set_word(2, 5), "the program says it has 5 words"),
        "tables outside": (set_word(16, 1 << 30), "the step table leaves the program"),
        "weight count": (set_word(17, 99), "weights"),
    }


BAD_FILES = bad_files()


@pytest.fixture(scope="module")
def refusals(servers: dict[bool, Server], page: Page, site: Path) -> dict[str, list[str | None]]:
    """What the player says to each of BAD_FILES, in a worker and in place."""
    (site / "bad").mkdir()
    good = (site / "dense.ponnx").read_bytes()
    for name, (damage, _) in BAD_FILES.items():
        (site / "bad" / name).write_bytes(damage(good))
    page.goto(servers[False].url)
    body = """
      const attempt = async (name, worker) => {
        const s = await create("bad/" + name, { worker });
        await s.run({ x: new Tensor("float32", [1], [1]) });
      };
      const said = {};
      for (const name of arg) said[name] = [await error(attempt(name, true)), await error(attempt(name, false))];
      return said;
    """
    return dict(page.evaluate(f"async (arg) => {{ {HELPERS} {body} }}", list(BAD_FILES)))


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(refusals: dict[str, list[str | None]], name: str) -> None:
    for said in refusals[name]:
        assert said is not None
        assert (BAD_FILES[name][1] or "") in said


def test_other_kernel_abi_is_named(run: Run, site: Path) -> None:
    header, body = split((site / "dense.ponnx").read_bytes())
    at, size = header["programs"][0]["code"]
    code = np.frombuffer(body[at : at + size], np.int32).copy()
    name = bytes(code[code[4] + 2 :])[: code[code[4] + 1]].decode()
    code[code[4]] ^= 1
    data = join(header, body[:at] + code.tobytes() + body[at + size :])
    assert re.search(rf"\b{name}\b", run("return error(create(Uint8Array.from(arg)))", list(data)))


def test_onnx_file_says_compile_first(run: Run) -> None:
    message = run('return error(create("dense.onnx"))')
    assert message.endswith("dense.onnx: this is an ONNX file; compile it first: pyonnx-wasm compile model.onnx")


def test_bad_addresses(run: Run) -> None:
    got = run("""
      const broken = new ReadableStream({ async pull(c) { c.enqueue((await bytes("dense.ponnx")).slice(0, 500)); c.error(new Error("cable cut")); } });
      const used = await fetch("dense.ponnx");
      await used.text();
      const strings = new ReadableStream({ start(c) { c.enqueue("text"); c.close(); } });
      const locked = new ReadableStream();
      locked.getReader();
      const sources = ["nothing.ponnx", "index.html", "http://127.0.0.1:1/x.ponnx", "http://", broken, used, strings, locked, 42, null, undefined, {}];
      return Promise.all(sources.map((s) => error(create(s))));
    """)
    wanted = ["nothing.ponnx: HTTP 404", "an HTML page", "cannot be fetched", "is not an address", "cable cut", "was read before", "Uint8Array chunks",
              "locked", "a model is an address", "a model is an address", "a model is an address", "a model is an address"]  # fmt: skip
    assert all(part in (message or "") for part, message in zip(wanted, got, strict=True)), got


def test_missing_core_says_where_to_put_it(run: Run) -> None:
    message, after = run("""
      env.wasm.wasmPaths = "/elsewhere/";
      const message = await error(create("dense.ponnx"));
      env.wasm.wasmPaths = undefined;
      return [message, (await create("dense.ponnx")).inputNames];
    """)
    assert "/elsewhere/core-relaxed.wasm: HTTP 404; env.wasm.wasmPaths says where" in message
    assert after == ["x"]


def test_core_given_as_bytes(run: Run) -> None:
    assert run("""
      env.wasm.wasmBinary = await bytes("/player/core.wasm");
      env.wasm.wasmPaths = "/elsewhere/";
      return (await (await create("dense.ponnx")).run({ x: x(2) })).y.dims;
    """) == [2, 31]  # fmt: skip


def test_weights_exist_once_and_memory_is_reused(run: Run) -> None:
    got = run("""
      const keeper = await create("pair.ponnx");
      const before = await keeper.memoryBytes();
      const s = await create("big.ponnx");
      const loaded = await s.memoryBytes();
      await s.release();
      const sizes = [];
      for (let i = 0; i < 6; i++) {
        const [a, b] = await Promise.all([create("big.ponnx"), create("dense.ponnx")]);
        await a.run({ x: new Tensor("float32", new Float32Array(1024), [1, 1024]) });
        await Promise.all([a.release(), b.release(), b.release()]);
        await error(create((await bytes("big.ponnx")).subarray(0, -1000)));
        sizes.push(await keeper.memoryBytes());
      }
      return { before, loaded, sizes };
    """)
    assert got["loaded"] - got["before"] < (WEIGHT_MB + 1) << 20
    assert got["sizes"][-1] == got["sizes"][0] < (WEIGHT_MB + 8) << 20


def test_engine_without_sessions_gives_its_memory_back(run: Run) -> None:
    first, later = run("""
      const s = await create("big.ponnx");
      const first = await s.memoryBytes();
      await s.release();
      await new Promise((resolve) => setTimeout(resolve, 1500));
      return [first, await (await create("pair.ponnx")).memoryBytes()];
    """)
    assert later < first - (WEIGHT_MB << 19)


def test_damaged_files_never_hang_or_crash(run: Run, site: Path) -> None:
    seed = 20
    rng = np.random.default_rng(seed)
    data = (site / "dense.ponnx").read_bytes()
    header_end = 8 + int.from_bytes(data[:8], "little")
    code_end = header_end + split(data)[0]["programs"][0]["code"][1]
    cases = []
    for _ in range(300):
        start, end = [(0, header_end), (header_end, code_end), (0, 64)][rng.integers(3)]
        at = rng.integers(start, end, rng.integers(1, 4))
        cases.append([[int(i), int(rng.integers(256))] for i in at])
    outcomes = run("""
      const data = await bytes("dense.ponnx");
      const outcomes = [];
      for (const edits of arg) {
        const damaged = data.slice();
        for (const [at, value] of edits) damaged[at] = value;
        try {
          const s = await create(damaged);
          await s.run({ x: x(3) }).finally(() => s.release());
          outcomes.push("ran");
        } catch (e) { outcomes.push(e.name + ": " + e.message); }
      }
      return outcomes;
    """, cases)  # fmt: skip
    assert len(outcomes) == len(cases)
    assert not [o for o in outcomes if "CoreLost" in o], f"seed {seed}"
    assert {"ran"} < set(outcomes)


def test_tensor(run: Run) -> None:
    got = run("""
      const t = new Tensor("float32", [1, 2, 3, 4, 5, 6], [2, 3]);
      const data = new Float32Array(4);
      const kept = new Tensor(data, [2, 2]);
      const inferred = [new Int8Array(1), new Uint8ClampedArray(1), new BigUint64Array(1), new Float64Array(1)].map((a) => new Tensor(a).type);
      const halves = new Tensor("float16", new Uint16Array([0x3c00, 0xc000]));
      const wide = new Tensor("int64", [1, -2n, 3]);
      const bools = new Tensor([true, false, true]);
      const reshaped = t.reshape([3, 2]);
      t.dims = [6];
      const gone = new Tensor("uint8", [1]);
      const released = await gone.getData(true);
      const attempts = [
        () => new Tensor("float32", [1, 2], [3]), () => new Tensor("float32", [1], [-1]), () => new Tensor("float32", [1], [0.5]),
        () => new Tensor("float32", new Float64Array(1)), () => new Tensor("string", ["a"]), () => new Tensor(["a"]), () => new Tensor([1, 2]),
        () => new Tensor("f32", [1]), () => new Tensor("float32", "abc"), () => gone.data, () => { t.dims = [7]; }, () => new Tensor(),
      ];
      return {
        t: [t.type, t.dims, t.size, t.location, t.data.length], kept: kept.data === data, inferred, halves: halves.size,
        wide: [...wide.data].map(Number), bools: [bools.type, [...bools.data], bools.dims], reshaped: [reshaped.dims, reshaped.data === t.data],
        scalar: new Tensor("float32", [1], []).size, nibbles: new Tensor("int4", new Uint8Array(2), [3]).size, gone: [gone.location, released.length],
        errors: attempts.map((f) => { try { f(); return null; } catch (e) { return e.message; } }),
      };
    """)
    assert got["t"] == ["float32", [6], 6, "cpu", 6]
    assert got["kept"]
    assert got["inferred"] == ["int8", "uint8", "uint64", "float64"]
    assert got["halves"] == 2
    assert got["wide"] == [1, -2, 3]
    assert got["bools"] == ["bool", [1, 0, 1], [3]]
    assert got["reshaped"] == [[3, 2], True]
    assert (got["scalar"], got["nibbles"], got["gone"]) == (1, 3, ["none", 1])
    wanted = ["need 3 elements, data has 2", "[-1]", "[0.5]", "must be a Float32Array, got Float64Array", "string tensors are not supported",
              "string tensors are not supported", "need a type", 'unknown type "f32"', "must be a Float32Array or an array", "was disposed",
              "need 7 elements, data has 6", "must be a typed array"]  # fmt: skip
    assert all(part in (message or "") for part, message in zip(wanted, got["errors"], strict=True)), got["errors"]


def test_own_worker_of_the_page(run: Run, site: Path) -> None:
    """A page may also call the player from a worker of its own, in place or through a nested worker."""
    (site / "own.mjs").write_text("""
      import { InferenceSession, Tensor } from "/player/index.mjs";
      onmessage = async ({ data: worker }) => {
        const s = await InferenceSession.create("dense.ponnx", { worker });
        postMessage((await s.run({ x: new Tensor("float32", new Float32Array(67), [1, 67]) })).y.dims);
      };
    """)
    for worker in (True, False):
        assert run("""
          const own = new Worker("own.mjs", { type: "module" });
          const answer = new Promise((resolve) => (own.onmessage = (e) => resolve(e.data)));
          own.postMessage(arg);
          return answer;
        """, worker) == [1, 31]  # fmt: skip


def test_sizes_of_the_build() -> None:
    import gzip

    scripts = sum(len(gzip.compress((DIST / name).read_bytes())) for name in ("index.mjs", "worker.mjs", "thread.mjs"))
    assert scripts <= 30 << 10
    for core in ("core.wasm", "core-relaxed.wasm"):
        assert len(gzip.compress((DIST / core).read_bytes())) <= 200 << 10
