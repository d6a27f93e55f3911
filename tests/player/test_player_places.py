"""The player where it is not at home: other origins, policies, service workers, threads that do not start."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import numpy as np
import pytest
from player_site import DIST, HELPERS, dense, ramp
from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.browser

ISOLATION = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
SHARED = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}


class Handler(SimpleHTTPRequestHandler):
    """Static files with headers of the test's choice."""

    protocol_version = "HTTP/1.1"
    extensions_map: ClassVar[dict[str, str]] = {
        ".mjs": "text/javascript",
        ".html": "text/html",
        ".wasm": "application/wasm",
        "": "application/octet-stream",
    }
    headers_sent: ClassVar[dict[str, str]] = {}

    def end_headers(self) -> None:
        for name, value in self.headers_sent.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *args: Any) -> None:
        pass


Serve = Callable[..., str]


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Serves a folder with headers; gives the address."""
    servers: list[ThreadingHTTPServer] = []

    def serve(folder: Path, headers: dict[str, str]) -> str:
        handler = type("Handler", (Handler,), {"headers_sent": headers})
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
        servers.append(server)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def home(player_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the player and a model beside it."""
    root = tmp_path_factory.mktemp("home")
    shutil.copytree(DIST, root / "player", ignore=shutil.ignore_patterns("*.map", "*.whl", "*.ts", "*.mts"))
    shutil.copy(player_models / "index.html", root)
    for name in ("dense.ponnx", "dense.onnx"):
        shutil.copy(player_models / name, root)
    return root


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    yield context
    context.close()


RUN = """
  env.wasm.numThreads = 2;
  const session = await create("/dense.ponnx", options);
  const { y } = await session.run({ x: x(3) });
  return { y: [...y.data], threads: session.threads, isolated: crossOriginIsolated };
"""


def run(page: Page, player: str = "/player", body: str = RUN, options: dict[str, Any] | None = None) -> Any:
    helpers = HELPERS.replace('"/player/index.mjs"', f'"{player}/index.mjs"')
    return page.evaluate(f"async (options) => {{ {helpers} {body} }}", options or {})


def check(got: dict[str, Any], threads: int) -> None:
    np.testing.assert_allclose(np.array(got["y"]).reshape(3, 31), dense(ramp(3)), rtol=1e-5, atol=1e-5)
    assert got["threads"] == threads


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("worker", [True, False])
def test_a_player_from_another_origin_is_as_at_home(
    context: BrowserContext, home: Path, serve: Serve, isolated: bool, worker: bool
) -> None:
    page = context.new_page()
    page.goto(serve(home, ISOLATION if isolated else {}))
    warned: list[str] = []
    page.on("console", lambda message: warned.append(message.text))
    got = run(page, serve(home, SHARED) + "player", options={"worker": worker})
    check(got, 2 if isolated else 1)
    assert got["isolated"] == isolated
    assert warned == []
    assert bool(page.workers) == (worker or isolated)


@pytest.mark.parametrize("isolated", [True, False])
def test_without_workers_the_page_runs_on_one_thread(context: BrowserContext, home: Path, serve: Serve, isolated: bool) -> None:
    policy = {"Content-Security-Policy": "script-src 'self' 'unsafe-eval' 'wasm-unsafe-eval'; worker-src 'none'"}
    page = context.new_page()
    page.goto(serve(home, policy | (ISOLATION if isolated else {})))
    for worker in (True, False):
        check(run(page, options={"worker": worker}), 1)
    assert page.workers == []


def test_a_policy_against_webassembly_is_named(context: BrowserContext, home: Path, serve: Serve) -> None:
    page = context.new_page()
    page.goto(serve(home, {"Content-Security-Policy": "script-src 'self'; worker-src 'self'"}))
    message = run(page, body='return error(create("/dense.ponnx"))')
    assert message.endswith("the page's content security policy needs script-src 'wasm-unsafe-eval'")


UNSENT = "throw new DOMException('no', 'DataCloneError')"
PAGE_FAULTS = {
    "memory that a page cannot send": f"""const post = Worker.prototype.postMessage;
        Worker.prototype.postMessage = function (...args) {{ if (args[0].op === 'thread') {UNSENT}; post.apply(this, args); }};""",
    "no workers beside the engine": """const Real = Worker;
        self.Worker = class extends Real {
          constructor(url, options) { if (options.name.endsWith('thread')) throw new Error('no'); super(url, options); }
        };""",
}
OF_THE_ENGINE = "memory that an engine cannot send"
SCRIPT_FAULTS = {
    OF_THE_ENGINE: f"""const post = self.postMessage;
        self.postMessage = (...args) => {{ if (args[0].thread) {UNSENT}; post(...args); }};""",
    "a script that throws": "if (self.name.endsWith('thread')) throw new Error('no');",
    "a script that never starts": "if (self.name.endsWith('thread')) await new Promise(() => {});",
}


@pytest.mark.parametrize("fault", [*PAGE_FAULTS, *SCRIPT_FAULTS])
@pytest.mark.parametrize("worker", [True, False])
def test_threads_that_do_not_start_are_not_counted(
    context: BrowserContext, home: Path, serve: Serve, tmp_path: Path, fault: str, worker: bool
) -> None:
    root = tmp_path / "home"
    shutil.copytree(home, root)
    page = context.new_page()
    if fault in SCRIPT_FAULTS:
        script = root / "player" / "worker.mjs"
        script.write_text(SCRIPT_FAULTS[fault] + script.read_text())
    page.goto(serve(root, ISOLATION))
    if fault in PAGE_FAULTS:
        page.evaluate(f"() => {{ {PAGE_FAULTS[fault]} }}")
    got = run(page, options={"worker": worker})
    check(got, 2 if fault == OF_THE_ENGINE and not worker else 1)  # in place no engine's worker has to send it


def test_a_thread_that_dies_ends_its_engine_with_a_word(context: BrowserContext, home: Path, serve: Serve, tmp_path: Path) -> None:
    """The engine waits for the thread for ever and hears nothing; the page does."""
    root = tmp_path / "home"
    shutil.copytree(home, root)
    script = root / "player" / "worker.mjs"
    dying = """if (self.name.endsWith('thread')) {
        const instantiate = WebAssembly.instantiate;
        WebAssembly.instantiate = async (...args) => {
            const { exports } = await instantiate(...args);
            return { exports: { ...exports, pwx_worker: () => { throw new WebAssembly.RuntimeError('unreachable'); } } };
        };
    }"""
    script.write_text(dying + script.read_text())
    page = context.new_page()
    page.goto(serve(root, ISOLATION))
    body = """
      env.wasm.numThreads = 2;
      const untilItFails = async () => {
        const session = await create("/dense.ponnx");
        while (true) await session.run({ x: x(3) });
      };
      return error(untilItFails());
    """
    message = run(page, body=body)
    assert "a thread of the core failed: RuntimeError: unreachable; create the session again" in message


def test_no_worker_starts_a_worker(context: BrowserContext, home: Path, serve: Serve, tmp_path: Path) -> None:
    """In Firefox the constructor of a worker within a worker may block for ever."""
    root = tmp_path / "home"
    shutil.copytree(home, root)
    script = root / "player" / "worker.mjs"
    script.write_text("self.Worker = class { constructor() { throw new Error('a worker starts a worker'); } };" + script.read_text())
    page = context.new_page()
    page.goto(serve(root, ISOLATION))
    check(run(page), 2)


def test_a_missing_worker_script_leaves_the_page(context: BrowserContext, home: Path, serve: Serve, tmp_path: Path) -> None:
    root = tmp_path / "home"
    shutil.copytree(home, root)
    (root / "player" / "worker.mjs").unlink()
    page = context.new_page()
    page.goto(serve(root, ISOLATION))
    warned: list[str] = []
    page.on("console", lambda message: warned.append(message.text))
    check(run(page), 1)
    assert any("running in place, which blocks this thread meanwhile" in text for text in warned)
    # Its folder may be named instead.
    (root / "scripts").mkdir()
    for name in ("worker.mjs", "gpu.mjs"):
        shutil.copy(home / "player" / name, root / "scripts")
    page.goto(page.url)
    check(run(page, body='env.wasm.wasmPaths = "/scripts";' + RUN), 2)


PATHS = {
    "onnxruntime's CDN": '"https://cdn.jsdelivr.net/npm/onnxruntime-web@1.30.0/dist/"',
    "onnxruntime's files": '{ wasm: "/ort-wasm-simd-threaded.wasm", mjs: "/ort-wasm-simd-threaded.mjs" }',
    "a folder of one's own": '"/ort/"',
}


@pytest.mark.parametrize("paths", PATHS.values(), ids=PATHS)
def test_settings_for_onnxruntime_do_no_harm(context: BrowserContext, home: Path, serve: Serve, paths: str) -> None:
    page = context.new_page()
    page.goto(serve(home, {}))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    check(run(page, body=f"env.wasm.wasmPaths = {paths};" + RUN), 1)
    assert not [url for url in asked if "onnxruntime" in url or "ort-wasm" in url]


SERVICE = """
import { InferenceSession, Tensor, env } from "/player/PLAYER.mjs";
COMPILER
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
const answer = async (model) => {
  try {
    const session = await InferenceSession.create(model);
    const x = Float32Array.from({ length: 3 * 67 }, (_, i) => ((i * 37) % 101) / 50 - 1);
    const { y } = await session.run({ x: new Tensor("float32", x, [3, 67]) });
    return Response.json({ y: [...y.data], threads: session.threads });
  } catch (error) {
    return Response.json({ error: error.message });
  }
};
addEventListener("fetch", (event) => {
  const { pathname, search } = new URL(event.request.url);
  if (pathname === "/run") event.respondWith(answer(search.slice(1)));
});
"""


@pytest.mark.parametrize(("player", "compiler"), [("all", True), ("all", False), ("index", False)])
def test_service_workers(context: BrowserContext, home: Path, serve: Serve, tmp_path: Path, player: str, compiler: bool) -> None:
    root = tmp_path / "home"
    shutil.copytree(home, root)
    imported = 'import "/player/compiler.mjs";' if compiler else ""
    (root / "service.mjs").write_text(SERVICE.replace("PLAYER", player).replace("COMPILER", imported))
    page = context.new_page()
    page.goto(serve(root, {}))
    compiled, raw = page.evaluate("""async () => {
      const controlled = new Promise((resolve) => (navigator.serviceWorker.oncontrollerchange = resolve));
      await navigator.serviceWorker.register("/service.mjs", { type: "module" });
      await controlled;
      return Promise.all(["/dense.ponnx", "/dense.onnx"].map(async (model) => (await fetch(`/run?${model}`)).json()));
    }""")
    if player == "all":
        check(compiled, 1)
    else:
        assert compiled == {"error": 'a service worker needs the player in one piece: import "pyonnx-wasm/all" (all.mjs)'}
    if compiler:
        check(raw, 1)
    elif player == "all":
        missing = 'a service worker imports the compiler beforehand: import "pyonnx-wasm/compiler.mjs"'
        assert raw == {"error": f"{page.url}dense.onnx: {missing}"}
