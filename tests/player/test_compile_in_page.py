"""ONNX models given to a page as they are: compiled there, kept, and run; a real Pyodide stands behind."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from player_site import DIST, HELPERS, Run, dense, ramp, spread
from playwright.sync_api import Browser, BrowserContext, Route
from waiting import until

from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import pyodide

pytestmark = pytest.mark.browser

LARGE_RNG = np.random.default_rng(3)
SETTINGS = """
env.pyodide.indexURL = "/pyodide/";
const phases = [];
const entries = async () => {
  const keys = await (await caches.open("pyonnx_wasm")).keys();
  return keys.filter(({ url }) => url.includes("/compiled/") && !url.includes("?"));
};
const onProgress = ({ phase }) => phases.at(-1) === phase || phases.push(phase);
const once = async (source, options = {}) => {
  const session = await create(source, { onProgress, ...options });
  const { y } = await session.run({ x: x(3) });
  await session.release();
  return [...y.data];
};
"""
ANEW = ["source", "compiler", "compile", "model", "init", "ready"]
KEPT = ["source", "model", "init", "ready"]


STREAMED = LARGE_RNG.standard_normal((1200, 1000), dtype=np.float32)


def make_streamed(site: Path) -> None:
    """Models of 5 MB, which go to the engine before they are compiled: one also for unknown ranks, refused and with its weight apart."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
      g (int64[n] rows) => (float[n, 1000] y, float[n, 1000] z) { y = Gather(w, rows) s = Mul(y, c) r = Reshape(s, i) z = Add(r, c) }""")
    c = np.arange(1000, dtype=np.float32)
    model.graph.initializer.extend(
        [numpy_helper.from_array(a, name) for a, name in ((STREAMED, "w"), (c, "c"), (np.array([0, 1000]), "i"))]
    )
    onnx.save(model, site / "streamed.onnx")
    onnx.save(model, site / "streamed_apart.onnx", save_as_external_data=True, location="streamed.bin", size_threshold=0)
    spread(onnx.load(site / "streamed.onnx"), site / "streamed_spread.onnx", ["streamed 1.bin", "streamed 2.bin"])
    model = onnx.load(site / "streamed.onnx")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    onnx.save(model, site / "streamed_unranked.onnx")
    model = onnx.load(site / "streamed.onnx")
    model.graph.node[0].op_type = "Frobnicate"
    onnx.save(model, site / "streamed_unknown.onnx")


@pytest.fixture(scope="module")
def compile_server(player_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The models, the player with its wheel beside it, and Pyodide."""
    root = tmp_path_factory.mktemp("compile")
    player = root / "player"
    shutil.copytree(DIST, player)
    pyodide.build_wheel(player)
    site = root / "site"
    site.mkdir()
    shutil.copy(player_models / "index.html", site)
    shutil.copy(player_models / "dense.onnx", site)
    shutil.copy(site / "dense.onnx", site / "dense.bin")
    model = onnx.load(site / "dense.onnx")
    onnx.save(model, site / "apart.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    spread(onnx.load(site / "dense.onnx"), site / "spread.onnx", ["spread 1.bin", "spread 2.bin"])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="frob_0")
    unknown = helper.make_graph([node], "g", infos[:1], infos[1:], [numpy_helper.from_array(np.zeros(1, np.float32), "w")])
    onnx.save(helper.make_model(unknown, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), site / "unknown.onnx")
    (site / "cut.onnx").write_bytes((site / "dense.onnx").read_bytes()[:-500])
    large = helper.make_node("MatMul", ["x", "w"], ["y"])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 512]) for name in "xy"]
    weight = numpy_helper.from_array(LARGE_RNG.standard_normal((512, 512), dtype=np.float32), "w")
    graph = helper.make_graph([large], "g", infos[:1], infos[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), site / "large.onnx")
    make_streamed(site)
    shutil.copy(Path(__file__).parents[2] / "js" / "pages" / "write" / "write.gguf", site)
    with Server({"/": site, "/player": player, "/pyodide": pyodide.distribution()}) as server:
        yield server


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    yield context
    context.close()


@pytest.fixture(autouse=True)
def routes(context: BrowserContext) -> Iterator[None]:
    """What a test lets come from elsewhere, no test behind it does."""
    yield
    context.unroute_all()


@pytest.fixture(scope="module")
def anew(context: BrowserContext, compile_server: Server) -> Callable[[], Run]:
    """Opens the page again; the cache stays, as a user's would."""
    page = context.new_page()

    def anew() -> Run:
        page.goto(compile_server.url)
        compile_server.forget()
        return lambda body, arg=None: page.evaluate(f"async (arg) => {{ {HELPERS} {SETTINGS} {body} }}", arg)

    return anew


@pytest.fixture(scope="module")
def run(anew: Callable[[], Run]) -> Run:
    """The same page for several tests, so that one Pyodide serves them."""
    return anew()


def close(got: list[float]) -> None:
    np.testing.assert_allclose(np.array(got).reshape(3, 31), dense(ramp(3)), rtol=1e-5, atol=1e-5)


def fetched(server: Server) -> set[str]:
    return {transfer.path for transfer in server.transfers}


def test_an_onnx_model_just_works_without_python(anew: Callable[[], Run], compile_server: Server) -> None:
    run = anew()
    got = run('return { y: await once("dense.onnx"), phases }')
    close(got["y"])
    assert got["phases"] == ANEW
    assert {"/player/compiler.mjs", "/player/compile.mjs"} <= fetched(compile_server)
    assert not [path for path in fetched(compile_server) if "pyodide" in path or path.endswith(".whl")]
    run = anew()
    got = run('return { y: await once("dense.onnx"), phases, kept: (await entries()).length }')
    close(got["y"])
    assert got["phases"] == KEPT
    assert got["kept"] == 1
    assert not [path for path in fetched(compile_server) if "pyodide" in path or path.endswith(".whl")]


def test_what_the_translation_lacks_python_does_once(context: BrowserContext, anew: Callable[[], Run], compile_server: Server) -> None:
    context.route("**/player/compiler.mjs", lambda route: route.abort())
    run = anew()
    new = 'const given = await bytes("dense.onnx"); given[given.length - 1] ^= 2; await once(given); return phases'
    assert run(new) == ["source", "compiler", "pyodide", "compile", "model", "init", "ready"]
    assert "/pyodide/pyodide.mjs" in fetched(compile_server)


SOURCES: dict[str, str] = {
    "address without a telling name": '"dense.bin"',
    "URL": 'new URL("dense.onnx", location.href)',
    "bytes": 'await bytes("dense.onnx")',
    "Blob": 'await (await fetch("dense.onnx")).blob()',
    "Response": 'await fetch("dense.onnx")',
    "stream": '(await fetch("dense.onnx")).body',
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_sources(run: Run, source: str) -> None:
    got = run(f"return {{ y: await once({source}), inPlace: await once({source}, {{ worker: false }}), phases }}")
    close(got["y"])
    close(got["inPlace"])


@pytest.mark.parametrize("source", ["large.onnx", "write.gguf"])
def test_the_compiler_is_not_sent_the_weights(run: Run, source: str) -> None:
    """Of addresses, Blobs and bytes alike."""
    got = run(
        """
      let sent = 0;
      const bytesOf = (x) =>
        ArrayBuffer.isView(x) ? x.byteLength : x && typeof x === "object" ? Object.values(x).reduce((n, y) => n + bytesOf(y), 0) : 0;
      const { prototype } = Worker;
      const post = prototype.postMessage;
      prototype.postMessage = function (message, transfer) {
        if (message.files) sent += bytesOf(message);
        return post.call(this, message, transfer);
      };
      const made = [];
      try {
        for (const source of [arg, await (await fetch(arg)).blob(), await bytes(arg)]) {
          await caches.delete("pyonnx_wasm");
          const session = await create(source);
          made.push(session.outputNames[0]);
          await session.release();
        }
      } finally {
        prototype.postMessage = post;
      }
      return { sent, made, size: (await bytes(arg)).length };
    """,
        source,
    )
    assert got["made"] == ["y" if source == "large.onnx" else "logits"] * 3
    # A GGUF file of less than 4 MB is all beginning.
    assert got["sent"] < (3 << 12 if source == "large.onnx" else 3 * got["size"] + 1)


ROWS = (0, 1199, 7)
GATHERED = """
const gathered = async (source, options = {}) => {
  const session = await create(source, options);
  const { y, z } = await session.run({ rows: new Tensor("int64", BigInt64Array.from(ROWS.map(BigInt)), [ROWS.length]) });
  await session.release();
  return [[...y.data], [...z.data]];
};
""".replace("ROWS", str(list(ROWS)))


def is_gathered(got: list[list[float]]) -> None:
    y = STREAMED[list(ROWS)]
    c = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(np.array(got[0], np.float32).reshape(y.shape), y)
    np.testing.assert_allclose(np.array(got[1]).reshape(y.shape), y * c + c, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("where", ["worker", "in place"])
def test_tensors_go_to_the_engine_while_they_arrive(run: Run, where: str) -> None:
    """The page never holds more than what is on its way; the file's tensors become the model's, and what fails is given back."""
    got = run(
        GATHERED
        + """
      const held = { now: 0, most: 0 };
      const { read } = ReadableStreamDefaultReader.prototype;
      ReadableStreamDefaultReader.prototype.read = async function () {
        const chunk = await read.call(this);
        held.most = Math.max(held.most, (held.now += chunk.value?.length ?? 0));
        return chunk;
      };
      const { postMessage } = MessagePort.prototype;
      MessagePort.prototype.postMessage = function (message, transfer) {
        held.now -= message?.chunk?.length ?? 0;
        return postMessage.call(this, message, transfer);
      };
      const options = { worker: arg === "worker" };
      const other = await create("dense.onnx", options);
      try {
        await caches.delete("pyonnx_wasm");
        held.now = held.most = 0;
        const anew = await gathered("streamed.onnx", options);
        const most = held.most;
        const kept = await gathered("streamed.onnx", options);
        const memory = await other.memoryBytes();
        const response = await gathered(await fetch("streamed.onnx"), options);
        const unranked = await gathered("streamed_unranked.onnx", options);
        const errors = [];
        for (let i = 0; i < 4; i++) errors.push(await error(create("streamed_unknown.onnx", options)));
        return { anew, kept, response, unranked, errors, most, grown: (await other.memoryBytes()) - memory };
      } finally {
        ReadableStreamDefaultReader.prototype.read = read;
        MessagePort.prototype.postMessage = postMessage;
        await other.release();
      }
    """,
        where,
    )
    for way in ("anew", "kept", "response", "unranked"):
        is_gathered(got[way])
    assert all("Frobnicate" in error for error in got["errors"])
    assert got["grown"] < 3 * STREAMED.nbytes, "of the variant, its file and the one that was refused"
    if where == "worker":
        assert got["most"] < STREAMED.nbytes


def test_external_data_is_read_where_it_lies(anew: Callable[[], Run], compile_server: Server) -> None:
    """Only its size is asked for before the model is compiled, then the engine fetches it."""
    run = anew()
    is_gathered(run(GATHERED + 'return gathered("streamed_apart.onnx", { externalData: ["streamed.bin"] })'))
    asked, *read = [transfer.sent for transfer in compile_server.transfers if transfer.path == "/streamed.bin"]
    assert asked == 0
    assert 16 in read, "the sizes, by range"
    assert STREAMED.nbytes <= sum(read) < 1.1 * STREAMED.nbytes
    others = run(
        GATHERED
        + """
      const { fetch } = globalThis;
      const found = [];
      const ways = {
        "no HEAD": (url, options) => (options?.method === "HEAD" ? Promise.reject(new Error()) : fetch(url, options)),
        "no Range": (url, options) => (options?.headers?.Range ? Promise.reject(new Error()) : fetch(url, options)),
        "Range passed over": (url, options) => fetch(url, options?.headers?.Range ? {} : options),
      };
      try {
        for (const way of Object.values(ways)) {
          await caches.delete("pyonnx_wasm");
          globalThis.fetch = way;
          found.push(await gathered("streamed_apart.onnx", { externalData: ["streamed.bin"] }));
        }
      } finally {
        globalThis.fetch = fetch;
      }
      return found;
    """
    )
    for found in others:
        is_gathered(found)


def test_two_pages_compile_a_model_once(context: BrowserContext, compile_server: Server) -> None:
    held: list[Route] = []
    context.route("**/player/compiler.mjs", lambda route: held.append(route))
    pages = [context.new_page() for _ in range(2)]
    for page in pages:
        page.goto(compile_server.url)
        page.evaluate(f"""async () => {{
          {HELPERS} {SETTINGS}
          const given = await bytes("dense.onnx");
          given[given.length - 1] ^= 16;
          Object.assign(globalThis, {{ phases, made: once(given) }});
        }}""")
        page.wait_for_function("phases.includes('compiler') || phases.includes('other')")
    assert pages[1].evaluate("phases") == ["source", "other"]
    until(lambda: pages[0].evaluate("true") and bool(held))  # the phase is told before the file is asked for
    for route in held:
        route.continue_()
    context.unroute_all()
    first, second = (page.evaluate("made.then((y) => ({ y, phases }))") for page in pages)
    assert first["phases"] == ANEW
    assert second["phases"] == ["source", "other", *KEPT[1:]]
    for got in (first, second):
        assert np.isfinite(got["y"]).all()
    for page in pages:
        page.close()


def test_what_another_compiler_made_is_not_taken() -> None:
    """What is kept is kept under the hash of the compiler, and of the core on which it computes constants."""
    made = hashlib.sha256((DIST / "compiler.mjs").read_bytes() + (DIST / "core.wasm").read_bytes()).hexdigest()[:16]
    assert made in (DIST / "compile.mjs").read_text()


def test_a_callers_bytes_stay_as_they_are(run: Run) -> None:
    assert run("""
      const given = await bytes("dense.onnx");
      given[given.length - 1] ^= 1;  // a model that was not seen before
      const before = given.slice();
      await error(create(given));
      return given.length === before.length && given.every((byte, i) => byte === before[i]);
    """)


def test_external_data(run: Run) -> None:
    got = run("""
      const y = await once("apart.onnx", { externalData: ["weights.bin"] });
      const again = await once("apart.onnx", { externalData: [{ path: "weights.bin", data: await bytes("weights.bin") }] });
      return { y, again, phases, missing: await error(create("apart.onnx")) };
    """)
    close(got["y"])
    close(got["again"])
    assert [phase for phase in got["phases"] if phase != "pyodide"] == ["source", "compiler", "compile", *KEPT[1:], *KEPT]
    assert "apart.onnx" in got["missing"]
    assert "weights.bin" in got["missing"]


def test_external_data_in_several_files(run: Run, anew: Callable[[], Run]) -> None:
    """Named, in any order, or given; a file that is not named is asked for beside the model; of a large one only what weights are."""
    got = run("""
      const files = ["spread 1.bin", "spread 2.bin"];
      const given = await Promise.all(files.map(async (path) => ({ path, data: await bytes(path) })));
      const found = [];
      for (const externalData of [files, files.toReversed(), given, [files[0], given[1]]])
        found.push(await once("spread.onnx", { externalData }));
      const whole = await once(await bytes("spread.onnx"), { externalData: given });
      const missing = await error(create(await bytes("spread.onnx"), { externalData: given.slice(0, 1) }));
      return { found: [...found, whole], missing };
    """)
    for y in got["found"]:
        close(y)
    assert "spread 2.bin" in got["missing"]
    is_gathered(anew()(GATHERED + 'return gathered("streamed_spread.onnx", { externalData: ["streamed 1.bin", "streamed 2.bin"] })'))


UNRANKED = """<ir_version: 10, opset_import: ["" : 18]>
g (float[] x, int64[] shape) => (float[] y, float[] z) { y = Reshape(x, shape) z = Add(x, x) }"""


def test_models_without_declared_ranks_are_compiled_for_what_is_fed(run: Run, anew: Callable[[], Run]) -> None:
    """Once for each: the second page takes all from what was kept."""
    model = onnx.parser.parse_model(UNRANKED)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    body = """
      const session = await create(Uint8Array.from(arg), { onProgress });
      const told = [session.inputMetadata.map(({ name, type }) => [name, type]), session.threads];
      const feed = (dims, shape) => ({
        x: new Tensor("float32", Float32Array.from({ length: dims.reduce((a, b) => a * b, 1) }, (_, i) => i), dims),
        shape: new Tensor("int64", BigInt64Array.from(shape.map(BigInt)), [shape.length]),
      });
      const runs = [];
      for (const [dims, shape] of [[[2, 3], [3, 2]], [[4, 3], [2, 6]], [[2, 3], [6]], [[4], [2, 1, 2]], [[2, 3], [3, 2]]])
        runs.push(session.run(feed(dims, shape)).then(({ y, z }) => [y.dims, z.dims, [...y.data], [...z.data]]));
      const got = await Promise.all(runs);
      const wrong = await error(session.run({ x: feed([1], []).shape, shape: feed([1], [1]).shape }));
      const { threads, backend } = session;
      await session.release();
      return { told, got, wrong, threads, backend, phases };
    """
    data = list(model.SerializeToString())
    got = run(body, data)
    assert got["told"] == [[["x", "float32"], ["shape", "int64"]], 0]
    for (dims, shape), (y, z, flat, double) in zip(
        [([2, 3], [3, 2]), ([4, 3], [2, 6]), ([2, 3], [6]), ([4], [2, 1, 2]), ([2, 3], [3, 2])], got["got"], strict=True
    ):
        size = int(np.prod(dims))
        assert (y, z, flat, double) == (shape, dims, list(range(size)), [2 * i for i in range(size)])
    assert got["wrong"] == 'input "x": the feed is int64; it takes float32 of any shape'
    assert (got["threads"] >= 1, got["backend"]) == (True, "wasm")
    again = anew()(body, data)
    assert again["got"] == got["got"]
    assert not {"pyodide", "compiler", "compile"} & set(again["phases"])


def test_what_the_compiler_says_reaches_the_caller(run: Run, compile_server: Server) -> None:
    got = run("""
      const unknown = await error(create("unknown.onnx"));
      const cut = await error(create("cut.onnx"));
      return { unknown, cut, y: await once("dense.onnx"), missing: await error(create("nowhere.onnx")) };
    """)
    assert got["unknown"].startswith(f"{compile_server.url}unknown.onnx: node 'frob_0' (Frobnicate): ")
    assert got["cut"].startswith(f"{compile_server.url}cut.onnx: ")
    assert "truncated" in got["cut"]
    assert got["missing"] == f"{compile_server.url}nowhere.onnx: HTTP 404 Not Found"
    close(got["y"])


def test_a_damaged_cache_is_mended(run: Run) -> None:
    got = run("""
      await once("dense.onnx");
      const cache = await caches.open("pyonnx_wasm");
      for (const key of await entries()) {
        const { headers } = await cache.match(key);
        await cache.put(key, new Response(new Uint8Array(100), { headers }));
      }
      phases.length = 0;
      const y = await once("dense.onnx");
      const mended = [...phases];
      phases.length = 0;
      return { y, again: await once("dense.onnx"), mended, phases };
    """)
    close(got["y"])
    close(got["again"])
    assert "compile" in got["mended"]
    assert got["phases"] == KEPT


def test_what_is_missing_is_named(context: BrowserContext, compile_server: Server, run: Run) -> None:
    run('await once("dense.onnx")')
    context.route("**/player/compiler.mjs", lambda route: route.abort())
    new = 'const given = await bytes("dense.onnx"); given[given.length - 2] ^= arg; return error(create(given));'
    cure = "or compile the model beforehand: pyonnx-wasm compile model.onnx"
    nowhere = run('env.pyodide.indexURL = "/nowhere"; ' + new, 1)
    assert f"does not load from {compile_server.url}nowhere/: " in nowhere
    assert nowhere.endswith(f"env.pyodide.indexURL says where it is; {cure}")
    wheel = run('env.pyodide.wheelURL = "/no.whl"; ' + new, 2)
    assert wheel == f"model: the compiler {compile_server.url}no.whl: HTTP 404 Not Found; env.pyodide.wheelURL says where it is; {cure}"
    kept = "env.pyodide.wheelURL = undefined; return { fault: await error(create('dense.onnx', { onProgress })), phases };"
    assert run(kept) == {"fault": None, "phases": KEPT}, "compiled before"
    context.route("https://cdn.jsdelivr.net/**", lambda route: route.abort("internetdisconnected"))
    offline = run("env.pyodide.indexURL = env.pyodide.wheelURL = undefined; " + new, 4)
    assert "does not load from https://cdn.jsdelivr.net/pyodide/" in offline


def test_the_player_stays_small() -> None:
    import gzip

    assert "loadPyodide" not in (DIST / "index.mjs").read_text()
    size = {path.name: len(gzip.compress(path.read_bytes())) for path in DIST.iterdir() if path.suffix in (".mjs", ".wasm")}
    # Both sides of the compiler's worker, the store, and where the core is.
    assert size["compile.mjs"] < 10_400
    assert size["compiler.mjs"] < 395 << 10
    visit = ("index.mjs", "common.mjs", "compile.mjs", "worker.mjs", "compiler.mjs", "engine.mjs", "gpu.mjs", "core-relaxed.wasm")
    assert sum(size[name] for name in visit) < 1 << 20, "all that a first visit with an .onnx file fetches beside it"
