"""What runs a compiled file: this process, or the player in headless Chromium."""

from __future__ import annotations

import base64
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..dtypes import DType, to_numpy
from ..feeds import execute, packed, unpacked
from ..program import file as ponnx
from ..providers import available
from ..session import InferenceSession

T = TypeVar("T")
Arrays = dict[str, np.ndarray]
NAMES = ("cpu", "wasm", "wasmtime", "webgpu", "gpu")
PACKAGE = Path(__file__).resolve().parents[1]
PLAYER = (PACKAGE.parent / "js" / "dist", PACKAGE / "lib" / "player")
TIMEOUT_MS = 300_000
PAGE = """<!doctype html><link rel="icon" href="data:,"><title>parity</title><script type="module">
import { InferenceSession, Tensor, env } from "/player/index.mjs";
const held = new Map();
const text = (error) => String(error?.message ?? error);
window.configure = (wasm) => void Object.assign(env.wasm, wasm);
window.missing = async (provider) => {
  if (provider === "webgpu" && !(await navigator.gpu?.requestAdapter())) return "Chromium gives no WebGPU adapter";
  // Options are checked before the source is looked at.
  const error = await InferenceSession.create(new Uint8Array(), { executionProviders: [provider] }).catch(text);
  return error.startsWith("executionProviders") ? error : "";
};
const late = (ms) => new Promise((resolve) => setTimeout(resolve, ms, { error: `no answer within ${ms / 1000} seconds` }));
window.run = (job) => Promise.race([run(job), late(job.limit)]);
const run = async ({ model, provider, feeds }) => {
  let session;
  try {
    session = await InferenceSession.create(model, { executionProviders: [provider] });
    if (session.backend !== provider) throw new Error(`the player took ${session.backend} instead: ${session.fallback}`);
    const inputs = {};
    for (const { name, type, dims, url } of feeds) {
      const Elements = new Tensor(type, [], [0]).data.constructor;
      inputs[name] = new Tensor(type, new Elements(await (await fetch(url)).arrayBuffer()), dims);
    }
    const results = await session.run(inputs);
    return { outputs: session.outputNames.map((name) => {
      const { type, dims, data } = results[name];
      held.set(name, data);
      return { name, type, dims };
    }) };
  } catch (error) {
    return { error: text(error) };
  } finally {
    await session?.release();
  }
};
window.take = (name) => new Promise((resolve) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.readAsDataURL(new Blob([held.get(name)]));
  held.delete(name);
});
window.ready = true;
</script>"""


class Unavailable(ValueError):
    """A backend that cannot run here; the text says what is missing."""


class BackendError(RuntimeError):
    """A backend refused the model, or failed in the middle of a run."""


class Backend(ABC):
    """Runs compiled files. A context manager."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def run(self, model: Path, feed: Mapping[str, np.ndarray]) -> Arrays:
        """All outputs of a ``.ponnx`` file."""

    def close(self) -> None:  # noqa: B027
        """Ends what was started; most start nothing."""

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Native(Backend):
    """``InferenceSession`` with one provider: ``cpu``, ``wasmtime``, ``gpu``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        if name not in available():
            cure = f"; for {name}: pip install 'pyonnx-wasm[{name}]'" if name in ("gpu", "wasmtime") else ""
            raise Unavailable(f"backend {name!r} is not available: this installation has the providers {', '.join(available())}{cure}")

        if name == "gpu":
            from ..runtimes import wgpu

            try:
                wgpu.device()
            except wgpu.GpuError as error:
                raise Unavailable(f"backend {name!r}: {error}") from None

    def run(self, model: Path, feed: Mapping[str, np.ndarray]) -> Arrays:
        session = InferenceSession(model, providers=[self.name])
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(names, {i.name: feed[i.name] for i in session.get_inputs()}), strict=True))


class Library(Backend):
    """Another build of the native core: ``cpu:sse4``, ``cpu:build/guard/core-avx2.so``."""

    def __init__(self, name: str, which: str) -> None:
        from ..runtimes import library

        super().__init__(name)
        try:
            self.library = library.open_library(Path(which).resolve()) if Path(which).is_file() else library.load(which)
        except (ImportError, OSError) as error:
            raise Unavailable(f"backend {name!r}: {error}") from None

    def run(self, model: Path, feed: Mapping[str, np.ndarray]) -> Arrays:
        from ..runtimes.cpu import Executor

        compiled = ponnx.load(model)
        executor = Executor(compiled.main, compiled.init, compiled.weights, library=self.library)
        outputs = execute(executor, [feed[s.name] for s in compiled.inputs], compiled.inputs, compiled.outputs)
        executor.core.close()
        return {s.name: array for s, array in zip(compiled.outputs, outputs, strict=True)}


class Page(Backend):
    """The player in headless Chromium: ``wasm``, ``webgpu``; ``wasm:fixed`` keeps to the core without relaxed SIMD, ``wasm:FOLDER``
    takes the cores of a folder.

    Playwright's synchronous interface allows one session per thread and none where an event loop runs, so a thread is kept for it.
    """

    def __init__(self, name: str, provider: str, option: str = "") -> None:
        super().__init__(name)
        self.provider, self.option = provider, option
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=f"parity-{provider}")
        self.stack = ExitStack()
        try:
            self._call(self._start)
        except BaseException:
            self.close()
            raise

    def _call(self, fn: Callable[..., T], *args: Any) -> T:
        return self.thread.submit(fn, *args).result()

    def _start(self) -> None:
        from ..server import Server
        from ..testing.chromium import launch_options

        try:
            from playwright.sync_api import sync_playwright
        except ImportError:
            raise Unavailable(f"backend {self.name!r} needs Playwright: pip install 'pyonnx-wasm[browser]'") from None
        player = next((p for p in PLAYER if (p / "index.mjs").exists()), None)
        if player is None:
            raise Unavailable(f"backend {self.name!r}: the player is not built here: run `make build`, or install a wheel")
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="pyonnx-wasm-parity-")))
        (self.folder / "index.html").write_text(PAGE)
        mounts = {"/": self.folder, "/player/": player}
        wasm: dict[str, Any] = {}
        if self.option == "fixed":
            wasm["simd"] = "fixed"
        elif self.option:
            if not Path(self.option).is_dir():
                raise Unavailable(f"backend {self.name!r}: {self.option} is no folder with core.wasm and core-relaxed.wasm")
            mounts["/core/"] = Path(self.option)
            wasm["wasmPaths"] = "/core/"
        self.server = self.stack.enter_context(Server(mounts))
        playwright = self.stack.enter_context(sync_playwright())
        try:
            options = launch_options(webgpu=self.provider == "webgpu")
        except FileNotFoundError as error:
            raise Unavailable(f"backend {self.name!r}: {error}") from None
        browser = playwright.chromium.launch(**options)
        self.stack.callback(browser.close)
        self.page = browser.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.goto(self.server.url)
        self.page.wait_for_function("() => window.ready")
        self.page.evaluate("wasm => window.configure(wasm)", wasm)
        if missing := self.page.evaluate("provider => window.missing(provider)", self.provider):
            raise Unavailable(f"backend {self.name!r} is not available: {missing}")

    def run(self, model: Path, feed: Mapping[str, np.ndarray]) -> Arrays:
        return self._call(self._run, model, feed)

    def _run(self, model: Path, feed: Mapping[str, np.ndarray]) -> Arrays:
        signatures = ponnx.load(model).inputs
        self.server.mounts["/model/"] = model.parent.resolve()
        feeds = []
        for k, s in enumerate(signatures):
            (self.folder / f"{k}.bin").write_bytes(packed(np.ascontiguousarray(feed[s.name]), s.dtype).tobytes())
            feeds.append({"name": s.name, "type": s.dtype.name, "dims": list(feed[s.name].shape), "url": f"/{k}.bin"})
        address = f"{self.server.url}model/{model.name}"
        job = {"model": address, "provider": self.provider, "feeds": feeds, "limit": TIMEOUT_MS}
        answer = self.page.evaluate("job => window.run(job)", job)
        if "error" in answer:
            raise BackendError(answer["error"].replace(address, model.name))
        return {o["name"]: self._take(o) for o in answer["outputs"]}

    def _take(self, output: dict[str, Any]) -> np.ndarray:
        dtype = DType[output["type"]]
        data = base64.b64decode(self.page.evaluate("name => window.take(name)", output["name"]))
        return unpacked(np.frombuffer(data, to_numpy(dtype)), output["dims"], dtype).reshape(output["dims"])

    def close(self) -> None:
        self.thread.submit(self.stack.close).result()
        self.thread.shutdown()


def start(name: str) -> Backend:
    """Starts a backend by name: ``cpu``, ``wasm``, ``wasmtime``, ``webgpu``, ``gpu``, or one of these with what comes after a colon.

    Raises:
        Unavailable: it cannot run here; the text names what is missing.
        ValueError: there is no such backend.
    """
    kind, _, option = name.partition(":")
    if kind == "cpu" and option:
        return Library(name, option)
    if kind in ("wasm", "webgpu"):
        return Page(name, kind, option)
    if kind in NAMES and not option:
        return Native(name)
    raise ValueError(f"there is no backend {name!r}; the backends are {', '.join(NAMES)}, cpu:LIBRARY, wasm:fixed and wasm:FOLDER")
