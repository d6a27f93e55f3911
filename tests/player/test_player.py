"""The player in a real Chromium: what it loads, runs and gives back."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from player_site import DIST, TYPES, WEIGHT_MB, Run, dense, ramp

from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("isolated", [True, False])
def test_results_are_the_same_everywhere(open_page: Callable[..., Run], isolated: bool) -> None:
    body = """
      env.wasm.numThreads = arg.threads;
      const session = await create("dense.ponnx", { worker: arg.worker });
      const results = [];
      for (const rows of arg.rows) results.push((await session.run({ x: x(rows) })).y);
      await session.release();
      const [dims, data] = [results.map((y) => y.dims), results.map((y) => [...y.data])];
      return { isolated: crossOriginIsolated, threads: session.threads, dims, data };
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


def test_core_is_fetched_once_and_by_capability(watched: Callable[..., tuple[Run, Server]]) -> None:
    run, server = watched()
    threads = run("""
      const sessions = await Promise.all([create("dense.ponnx"), create("pair.ponnx"), create("dense.ponnx", { worker: false })]);
      await Promise.all(sessions.map((s) => s.release()));
      return sessions.map((s) => s.threads);
    """)
    assert threads == [1, 1, 1]
    assert [t.path for t in server.transfers if t.path.endswith(".wasm")] == ["/player/core-relaxed.wasm"]
    server.forget()
    run('env.wasm.simd = false; await (await create("dense.ponnx")).release()')
    assert [t.path for t in server.transfers if t.path.endswith(".wasm")] == ["/player/core.wasm"]


def test_strict_content_security_policy(open_page: Callable[..., Run]) -> None:
    run = open_page(path="csp.html")
    assert run('const s = await create("dense.ponnx"); return (await s.run({ x: x(2) })).y.dims') == [2, 31]


def test_metadata(run: Run) -> None:
    got = run("""
      const options = { executionProviders: ["webgpu", "wasm"], graphOptimizationLevel: "all", logSeverityLevel: 2, extra: {} };
      const s = await create("dense.ponnx", options);
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
    "stream of crumbs": """new ReadableStream({
      start(c) { for (let i = 0; i < data.length; i += 7) c.enqueue(data.slice(i, i + 7)); c.close(); },
    })""",
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
    """) == [2, 31]  # fmt: skip


@pytest.mark.parametrize("worker", [True, False])
def test_thin_files(run: Run, worker: bool) -> None:
    options = json.dumps({"worker": worker})
    got = run(f"""
      const externalData = [{{ path: "source model.onnx", data: await bytes("dense.onnx") }}];
      const sessions = [
        create("thin/dense.ponnx", {options}),
        create("thin/odd.ponnx", {options}),
        create(await bytes("thin/dense.ponnx"), {{ ...{options}, externalData }}),
      ];
      const results = sessions.map(async (s) => (await s).run({{ x: x(3) }}));
      return (await Promise.all(results)).map(({{ y }}) => [...y.data]);
    """)
    for y in got:
        np.testing.assert_allclose(np.array(y).reshape(3, 31), dense(ramp(3)), rtol=1e-5, atol=1e-5)
    errors = run(f"""
      const short = [{{ path: "source model.onnx", data: new Uint8Array(100) }}];
      return Promise.all([
        error(create(await bytes("thin/dense.ponnx"), {options})),
        error(create("thin/dense.ponnx", {{ ...{options}, externalData: short }})),
        ...["up", "absolute", "elsewhere"].map((name) => error(create(`thin/${{name}}.ponnx`, {options}))),
      ]);
    """)
    assert 'the weights are in the file "source model.onnx": pass it in externalData' in errors[0]
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


def test_tasks_have_their_turn_while_what_has_come_is_read(run: Run) -> None:
    turns = run("""
      const data = await bytes("big.ponnx");
      let at = 0, turns = 0;
      const pull = (to) => { if (at < data.length) to.enqueue(data.slice(at, at += 2 ** 18)); else to.close(); };
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => { turns++; port2.postMessage(0); };
      await create("big.ponnx", { worker: false });
      port2.postMessage(0);
      const headers = { "Content-Length": data.length };
      await create(new Response(new ReadableStream({ pull }), { headers }), { worker: false });
      port1.close();
      return turns;
    """)
    assert turns >= WEIGHT_MB


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


@pytest.mark.parametrize("worker", ["true", "false"])
def test_large_feeds_share_memory_with_nothing(run: Run, worker: str) -> None:
    """Their copies' memory returns and is used again, by runs that wait for each other too, and is given up after a second."""
    first, together, after, kept = run(f"""
      env.worker = {worker};
      const due = [];
      const {{ setTimeout }} = globalThis;
      globalThis.setTimeout = (call, ms, ...args) => (ms === 1000 ? due.push(call) : setTimeout(call, ms, ...args));
      const s = await create("big.ponnx");
      const feed = (v, rows = 24) => new Tensor("float32", new Float32Array(rows * 1024).fill(v), [rows, 1024]);
      const told = async (v, rows) => [...(await s.run({{ x: feed(v, rows) }})).y.data.slice(0, 3)];
      const values = [1, -2, 3, 0.5];
      const first = [];
      for (const v of values) first.push(await told(v));
      const rounds = () => Promise.all(values.map((v) => told(v)));
      const together = [await rounds(), await rounds()];
      const given = feed(1);
      const runs = values.map((v) => {{
        given.data.fill(v);
        return s.run({{ x: given }}).then(({{ y }}) => [...y.data.slice(0, 3)]);
      }});
      given.data.fill(9);
      together.push(await Promise.all(runs));
      while (due.length) due.shift()();
      await told(4, 40);
      return [first, together, await rounds(), given.data.every((v) => v === 9) && due.length > 0];
    """)
    assert len({tuple(y) for y in first}) == 4
    assert together == [first] * 3
    assert after == first
    assert kept


def test_page_does_not_block(run: Run) -> None:
    assert run("""
      const s = await create("big.ponnx");
      const feeds = { x: new Tensor("float32", new Float32Array(1024 * 24), [24, 1024]) };
      // A run may be over before a busy machine comes to a timer: one of many is not.
      let ticks = 0;
      for (let i = 0; i < 200 && !ticks; i++) {
        const timer = setInterval(() => ticks++, 1);
        await s.run(feeds).finally(() => clearInterval(timer));
      }
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
        list: plain(await s.run(feeds, ["d"])), empty: await error(s.run(feeds, [])), nulls: Object.keys(await s.run(feeds, { p: null })),
        options: Object.keys(await s.run(feeds, { tag: "x" })), filled: [filled.d === d, d.dims, [...d.data]],
        unknown: await error(s.run(feeds, ["q"])), small: await error(s.run(feeds, { d: new Tensor("float32", [1]) })),
        typed: await error(s.run(feeds, { d: new Tensor("int32", [1, 2, 3, 4]) })),
      };
    """)
    assert got["list"] == {"d": {"type": "float32", "dims": [2, 2], "data": [-4] * 4}}
    assert got["empty"] == "fetches must not be empty: leave them out for all outputs"
    assert got["nulls"] == ["p"]
    assert got["options"] == ["p", "d"]
    assert got["filled"] == [True, [2, 2], [-4] * 4]
    assert got["unknown"] == 'there is no output "q"; the outputs are "p", "d"'
    assert 'output "d": the tensor given is float32 [1], the result is float32 [2,2]' in got["small"]
    assert "the tensor given is int32 [4]" in got["typed"]


def test_reactive_proxies(run: Run) -> None:
    """Frameworks like Vue hand out objects, and the objects in them, behind proxies."""
    assert run("""
      const wrap = (value) => {
        const tag = Object.prototype.toString.call(value);
        if (tag !== "[object Object]" && tag !== "[object Array]") return value;
        return new Proxy(value, { get: (target, key, receiver) => wrap(Reflect.get(target, key, receiver)) });
      };
      const s = wrap(await create("pair.ponnx"));
      const a = wrap(new Tensor("float32", [1, 2], [1, 2]));
      const { p } = await s.run({ a, b: a.reshape([1, 2]) });
      await s.release();
      return [wrap(p).dims, [...wrap(p).data]];
    """) == [[1, 2], [1, 4]]  # fmt: skip


def test_profile_names_nodes(run: Run) -> None:
    steps = run('const s = await create("dense.ponnx"); return s.profile({ x: x(5) })')
    assert "dense_0" in " ".join(s["name"] for s in steps)
    assert all(s["kernel"] and s["ms"] >= 0 for s in steps)


def test_core_given_as_bytes(run: Run) -> None:
    assert run("""
      env.wasm.wasmBinary = await bytes("/player/core.wasm");
      env.wasm.wasmPaths = "/elsewhere/";
      return (await (await create("dense.ponnx")).run({ x: x(2) })).y.dims;
    """) == [2, 31]  # fmt: skip


def test_bytes_of_another_core_are_passed_over(run: Run) -> None:
    """transformers.js hands onnxruntime's over where `wasmPaths` names its files; here it is never empty, so that it fetches none."""
    module = [0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 2, 7, 1, 1, 97, 1, 98, 0, 0]  # (import "a" "b" (func))
    got = run(
        """
      const paths = env.wasm.wasmPaths;
      env.wasm.wasmBinary = Uint8Array.from(arg);
      return [paths, (await (await create("dense.ponnx")).run({ x: x(2) })).y.dims];
    """,
        module,
    )
    assert got[0].endswith("/player/")
    assert got[1] == [2, 31]


def test_weights_exist_once_and_memory_is_reused(run: Run) -> None:
    """Two sessions that load at once may lie in either order, one of which needs a page of 64 KiB more; what is lost adds up."""
    got = run("""
      const keeper = await create("pair.ponnx");
      const before = await keeper.memoryBytes();
      const s = await create("big.ponnx");
      const loaded = await s.memoryBytes();
      await s.release();
      const sizes = [];
      for (let i = 0; i < 16; i++) {
        const [a, b] = await Promise.all([create("big.ponnx"), create("dense.ponnx")]);
        await a.run({ x: new Tensor("float32", new Float32Array(1024), [1, 1024]) });
        await Promise.all([a.release(), b.release(), b.release()]);
        await error(create((await bytes("big.ponnx")).subarray(0, -1000)));
        sizes.push(await keeper.memoryBytes());
      }
      return { before, loaded, sizes };
    """)
    assert got["loaded"] - got["before"] < (WEIGHT_MB + 1) << 20
    assert got["sizes"][-1] <= got["sizes"][0] + (64 << 10) < (WEIGHT_MB + 8) << 20


def test_engine_without_sessions_gives_its_memory_back(run: Run) -> None:
    first, later = run("""
      const { terminate } = Worker.prototype;
      const ended = new Promise((resolve) => {
        Worker.prototype.terminate = function () {
          terminate.call(this);
          resolve();
        };
      });
      const s = await create("big.ponnx");
      const first = await s.memoryBytes();
      await s.release();
      await ended;
      return [first, await (await create("pair.ponnx")).memoryBytes()];
    """)
    assert later < first - (WEIGHT_MB << 19)


def test_tensor(run: Run) -> None:
    got = run("""
      const t = new Tensor("float32", [1, 2, 3, 4, 5, 6], [2, 3]);
      const reshaped = t.reshape([3, 2]);
      t.dims = [6];
      const data = new Float32Array(4);
      const views = [new Int8Array(1), new Uint8ClampedArray(1), new BigUint64Array(1), new Float64Array(1)];
      const wide = new Tensor("int64", [1, -2n, 3]);
      const bools = new Tensor([true, false, true]);
      const gone = new Tensor("uint8", [1]);
      const released = await gone.getData(true);
      return {
        t: [t.type, t.dims, t.size, t.location, t.data.length],
        reshaped: [reshaped.dims, reshaped.data === t.data],
        kept: new Tensor(data, [2, 2]).data === data,
        inferred: views.map((a) => new Tensor(a).type),
        wide: [...wide.data].map(Number),
        bools: [bools.type, [...bools.data], bools.dims],
        halves: new Tensor("float16", new Uint16Array([0x3c00, 0xc000])).size,
        scalar: new Tensor("float32", [1], []).size,
        nibbles: new Tensor("int4", new Uint8Array(2), [3]).size,
        gone: [gone.location, released.length],
      };
    """)
    assert got == {
        "t": ["float32", [6], 6, "cpu", 6],
        "reshaped": [[3, 2], True],
        "kept": True,
        "inferred": ["int8", "uint8", "uint64", "float64"],
        "wide": [1, -2, 3],
        "bools": ["bool", [1, 0, 1], [3]],
        "halves": 2,
        "scalar": 1,
        "nibbles": 3,
        "gone": ["cpu", 1],
    }


def test_own_worker_of_the_page(run: Run, player_models: Path) -> None:
    """A page may also call the player from a worker of its own, in place or through a nested worker."""
    (player_models / "own.mjs").write_text("""
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
    scripts = sum(len(gzip.compress((DIST / name).read_bytes())) for name in ("index.mjs", "worker.mjs"))
    assert scripts <= 42 << 10
    assert len(gzip.compress((DIST / "gpu.mjs").read_bytes())) <= 15_600
    for core in ("core.wasm", "core-relaxed.wasm"):
        assert len(gzip.compress((DIST / core).read_bytes())) <= 260_500
