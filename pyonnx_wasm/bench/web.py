"""Ours against onnxruntime-web in one Chromium."""

from __future__ import annotations

import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .. import compiler
from ..dtypes import to_numpy
from ..program import Compiled
from ..program import file as ponnx
from ..runtimes import call, library
from ..runtimes.cpu import Executor
from ..server import Server
from ..testing.chromium import launch_options
from . import native, parts, report
from .cases import Case

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLAYERS = (ROOT / "js" / "dist", HERE.parent / "lib" / "player")
ONNXRUNTIME_WEB = ROOT / "node_modules" / "onnxruntime-web"
SIDES = ("ours", "theirs")
STARTS, STARTS_SECONDS = 3, 20.0
# What a browser still does when a page has loaded: it ends the page before, and prepares the process of the next.
SETTLING_SECONDS = 1.0
CPU_BLOCK_MS = 200.0
ADAPTER = "async () => { const { info } = await navigator.gpu.requestAdapter(); return `${info.vendor} ${info.architecture}`; }"
CALL = 'async ([name, args]) => (await import("/bench/page.mjs"))[name](...args)'


class Web(AbstractContextManager["Web"]):
    """A browser with both libraries served to it.

    Args:
        onnxruntime_web: the npm package's folder.
        in_page: run ours in the page itself, not in a worker.
        cpu_time: count the processor time of the page's threads, which other programs do not lengthen.
        backend: ``"wasm"`` or ``"webgpu"``, of both sides.
        real_gpu: WebGPU on the machine's GPU, not on the processor.
        rate: bytes per second that a page is sent of each file; 0: as fast as they go.
    Raises:
        ValueError: player, onnxruntime-web or Playwright is missing; the text says how to get it.
    """

    def __init__(
        self,
        threads: int,
        onnxruntime_web: Path | None = None,
        in_page: bool = False,
        cpu_time: bool = False,
        backend: str = "wasm",
        real_gpu: bool = False,
        rate: float = 0,
    ) -> None:
        self.rate = rate
        self.threads, self.in_page, self.cpu_time, self.backend, self.real_gpu = threads, in_page, cpu_time, backend, real_gpu
        bundle = f"ort.{backend}.bundle.min.mjs"
        package = onnxruntime_web or ONNXRUNTIME_WEB
        player = next((p for p in PLAYERS if (p / "index.mjs").exists()), None)
        if player is None:
            raise ValueError("the player is not built: run `make build`")
        if not (package / "dist" / bundle).exists():
            raise ValueError(f"{package} holds no onnxruntime-web: run `npm ci`, or name its folder with --onnxruntime-web")
        self.versions = {"onnxruntime-web": json.loads((package / "package.json").read_text())["version"]}
        self._stack = ExitStack()
        self._work = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="pyonnx-wasm-bench-")))
        self._libraries = {"ours": "/ours/index.mjs", "theirs": f"/theirs/{bundle}"}
        self._mounts = {"/bench/": HERE, "/ours/": player, "/theirs/": package / "dist", "/work/": self._work}
        self._compiled: tuple[Path, Compiled, float] | None = None

    def __enter__(self) -> Web:
        try:
            from playwright.sync_api import sync_playwright
        except ImportError as error:
            self._stack.close()
            raise ValueError("a browser is driven with Playwright: pip install pyonnx-wasm[browser]") from error
        try:
            self._browser = self._stack.enter_context(sync_playwright()).chromium.launch(
                **launch_options(self.backend == "webgpu", self.real_gpu)
            )
            self._stack.callback(self._browser.close)
            self.versions["chromium"] = self._browser.version
            with self._serve(self._work) as server:
                self._empty_page = middle([self._empty(server) for _ in range(STARTS)])
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _serve(self, models: Path) -> AbstractContextManager[Any]:
        return Server({**self._mounts, "/models/": models}, rate=self.rate)

    @contextmanager
    def _page(self, server: Any) -> Iterator[Any]:
        """A page with a cold cache in a process of its own."""
        context = self._browser.new_context()
        try:
            page = context.new_page()
            page.goto(f"{server.url}bench/page.html")
            yield page
        finally:
            context.close()

    def _empty(self, server: Any) -> int | None:
        """The peak of a page without a model."""
        with self._page(server) as page:
            page.wait_for_load_state()
            if self.backend == "webgpu":
                self.versions["adapter"] = page.evaluate(ADAPTER)
            return self._peak(page)

    def _call(self, page: Any, name: str, *args: Any) -> Any:
        """Calls one of the functions of page.mjs."""
        return page.evaluate(CALL, [name, args])

    def _address(self, path: str) -> str:
        """What a page fetches for a path below the mounts."""
        return path

    def _renderers(self) -> list[Path]:
        return renderers(self._browser)

    def _peak(self, page: Any) -> int | None:
        """Greatest resident bytes of the largest renderer; None where the system does not tell."""
        return peak_of(self._browser)

    def _pairs(self, page: Any, limits: report.Limits) -> list[list[float]]:
        if not self.cpu_time:
            return report.pairs([partial(self._block, page, side) for side in SIDES], limits)
        # Entering the page costs processor time of its own.
        entry = statistics.median(self._cpu_block(page, SIDES[0], 0) for _ in range(9))

        def side(name: str) -> Callable[[int], float]:
            return lambda repeat: max(0.0, self._cpu_block(page, name, repeat) - entry) / repeat

        return report.pairs([side(name) for name in SIDES], limits, CPU_BLOCK_MS)

    def _block(self, page: Any, side: str, repeat: int) -> float:
        """Milliseconds per run."""
        ms: float = self._call(page, "block", side, repeat)
        return ms

    def _cpu_block(self, page: Any, side: str, repeat: int) -> float:
        """Milliseconds of processor time of all the runs."""
        before = self._cpu_ns()
        self._block(page, side, repeat)
        return sum(now - before.get(thread, 0) for thread, now in self._cpu_ns().items()) / 1e6

    def _cpu_ns(self) -> dict[Path, int]:
        """Processor time of each of the renderers' main threads and workers; not of those that compile or collect garbage."""
        spent = {}
        for renderer in self._renderers():
            for thread in (renderer / "task").glob("*"):
                with suppress(OSError):
                    if thread.name == renderer.name or (thread / "comm").read_text().startswith("DedicatedWorker"):
                        spent[thread] = int((thread / "schedstat").read_text().split()[0])
        return spent

    def _prepare(self, case: Case) -> tuple[Compiled, float]:
        """Compiles the model unless it is the one that was compiled last; seconds that took."""
        if self._compiled is None or self._compiled[0] != case.path:
            start = time.perf_counter()
            compiled = compiler.compile(case.path, gpu=self.backend == "webgpu")
            self._compiled = case.path, compiled, time.perf_counter() - start
            ponnx.save(compiled, self._work / "model.ponnx")
        return self._compiled[1:]

    def measure(self, case: Case, *, limits: report.Limits, steps: int, tell: Callable[[str], None]) -> report.Row:
        """One row: times of both sides, of starting in a fresh page, memory, and how far the outputs differ."""
        tell("compile")
        compiled, compile_seconds = self._prepare(case)
        feed = case.feed(compiled.inputs)
        judged = self._by_parts(case, feed)
        compiled, _ = self._prepare(case)
        rows = self._inputs(compiled, feed)
        row: report.Row = {"case": case.name, "quantised": case.quantised, "compile_ms": round(compile_seconds * 1e3, 1)}
        row["model_bytes"] = {"ours": (self._work / "model.ponnx").stat().st_size, "theirs": case.path.stat().st_size}
        with self._serve(case.path.parent) as server:
            if not case.flops:
                row.update(self._starts(server, case, rows, tell))
            tell("run")
            with self._page(server) as page:
                self._call(page, "feed", rows)
                for side in SIDES:
                    self._call(page, "open", *self._opening(side, case))
                row.update(judged or self._call(page, "compare", SIDES))
                row.update(report.paired(*self._pairs(page, limits)))
                for side in SIDES:
                    row[f"{side}_wasm_bytes"] = self._call(page, "memory", side)
                row.update(self._downloads(server))
                if steps:
                    timed = self._call(page, "steps", "ours", 5)
                    row["steps"] = report.slowest([(s["kernel"], s["name"], s["ms"]) for s in timed], steps)
        row["needed_bytes"] = needed(compiled, feed)
        if case.flops:
            row["ours_gflops"], row["theirs_gflops"] = (round(case.flops / row[f"{k}_ms"] / 1e6, 4) for k in SIDES)
        return row

    def _inputs(self, compiled: Compiled, feed: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        """Writes what a page feeds, and where it finds it."""
        rows = []
        for i, s in enumerate(compiled.inputs):
            (self._work / f"input{i}.bin").write_bytes(feed[s.name].tobytes())
            url = self._address(f"/work/input{i}.bin")
            rows.append({"name": s.name, "dtype": s.dtype.name, "dims": list(feed[s.name].shape), "url": url})
        return rows

    def _by_parts(self, case: Case, feed: dict[str, np.ndarray]) -> report.Row | None:
        """How far the outputs of the parts differ, of a model that quantises what it computes."""
        if (found := parts.cut(case, feed, self._work)) is None:
            return None
        each, given, count = found
        compiled, _ = self._prepare(each)
        rows = self._inputs(compiled, given)
        with self._serve(self._work) as server, self._page(server) as page:
            self._call(page, "feed", rows)
            for side in SIDES:
                self._call(page, "open", *self._opening(side, each))
            return {**self._call(page, "compare", SIDES), "parts": count}

    def _opening(self, side: str, case: Case) -> list[Any]:
        ours: dict[str, Any] = {"worker": not self.in_page, "executionProviders": [self.backend]}
        theirs: dict[str, Any] = {"executionProviders": [self.backend], "graphOptimizationLevel": "all"}
        files = self._compiled[1].files[1:] if self._compiled else []
        if files:
            names = [Path(f).resolve().relative_to(case.path.parent.resolve()).as_posix() for f in files]
            theirs["externalData"] = [{"path": name, "data": self._address(f"/models/{name}")} for name in names]
        return [
            side,
            {
                "library": self._address(self._libraries[side]),
                "model": self._address("/work/model.ponnx" if side == "ours" else f"/models/{case.path.name}"),
                "threads": self.threads,
                "options": ours if side == "ours" else theirs,
            },
        ]

    def _starts(self, server: Any, case: Case, rows: list[dict[str, Any]], tell: Callable[[str], None]) -> dict[str, Any]:
        """Import, create and first run, in ms, and the renderer's peak, each time in a fresh page."""
        times: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        peaks: dict[str, list[int | None]] = {side: [] for side in SIDES}
        begin = time.perf_counter()
        for i in range(STARTS):
            if i and time.perf_counter() - begin > STARTS_SECONDS:
                break
            for side in SIDES if i % 2 == 0 else SIDES[::-1]:
                tell(f"start {i + 1}")
                with self._page(server) as page:
                    self._call(page, "feed", rows)
                    time.sleep(SETTLING_SECONDS)
                    times[side].append(self._call(page, "open", *self._opening(side, case)))
                    peaks[side].append(self._peak(page))
        found: dict[str, Any] = {}
        for side in SIDES:
            each = {key: round(statistics.median(t[key] for t in times[side]), 2) for key in ("import", "create", "first")}
            found[f"{side}_start_ms"] = {**each, "all": round(statistics.median(sum(t.values()) for t in times[side]), 2)}
            # What a body's reader leaves behind is there until the browser collects: 0 to 40 MB.
            peak = middle(peaks[side])
            found[f"{side}_peak_bytes"] = None if peak is None or self._empty_page is None else max(0, peak - self._empty_page)
        found["start_ratio"] = round(found["theirs_start_ms"]["all"] / found["ours_start_ms"]["all"], 3)
        return found

    def _downloads(self, server: Any) -> dict[str, Any]:
        """Bytes that a page fetches before the model, as sent and compressed."""
        found = {}
        for side in SIDES:
            paths = {t.path for t in server.transfers if t.path.startswith(f"/{side}/")}
            files = [file for path in paths if (file := server.locate(path))]
            found[side] = {"bytes": sum(f.stat().st_size for f in files), "gzip": sum(compressed(f) for f in files)}
        return {"downloads": found}


@cache
def compressed(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 9))


def resident_peak(process: Path) -> int | None:
    """Greatest resident bytes of a process of /proc; None where the system does not tell."""
    with suppress(OSError):
        for line in (process / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def renderers(browser: Any) -> list[Path]:
    """The processes of the pages, in /proc: not that of the browser's own window, which is larger than that of an empty page."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    found = []
    for process in (Path("/proc") / str(p["id"]) for p in processes if p["type"] == "renderer"):
        with suppress(OSError):
            if b"--top-chrome-webui" in (process / "cmdline").read_bytes():
                continue
        found.append(process)
    return found


def peak_of(browser: Any) -> int | None:
    """Greatest resident bytes of the largest page; None where the system does not tell."""
    return max((peak for renderer in renderers(browser) if (peak := resident_peak(renderer)) is not None), default=None)


def middle(bytes_of_each: list[int | None]) -> int | None:
    """The median; None where one is unknown."""
    known = [each for each in bytes_of_each if each is not None]
    return int(statistics.median(known)) if len(known) == len(bytes_of_each) else None


def needed(compiled: Compiled, feed: dict[str, np.ndarray]) -> int | None:
    """Bytes of weights and activations, as the native core plans them; None where there is none."""
    if not library.available():
        return None
    executor = Executor(compiled.main, compiled.init, compiled.weights)
    arrays = [feed[s.name] for s in compiled.inputs]
    outputs = call(executor, [a.shape for a in arrays], arrays, lambda i, shape: np.empty(shape, to_numpy(compiled.outputs[i].dtype)))
    total = native.needed(executor, compiled, arrays, sum(o.nbytes for o in outputs))
    executor.core.close()
    return total
