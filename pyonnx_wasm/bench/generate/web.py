"""Ours beside transformers.js and wllama, in one Chromium."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from ...server import Server
from .. import report
from ..web import HERE as PAGES
from ..web import PLAYERS, peak_of
from .models import LETTERS, Size

HERE = Path(__file__).parent
CALL = 'async ([name, args]) => (await import("/generate/page.mjs"))[name](...args)'
INSTALL = "npm install --ignore-scripts @huggingface/transformers@4.3.1 @wllama/wllama@3.8.1"
PEERS = {"transformers": "@huggingface/transformers", "wllama": "@wllama/wllama"}
TITLES = {"transformers": "transformers.js", "wllama": "wllama"}
COPIED, COPIES = 1 << 28, 8
FIRST = 2  # the token of "a"


class Pages(AbstractContextManager["Pages"]):
    """A Chromium that is served the libraries.

    Args:
        peers: the folder in whose ``node_modules`` the others lie.
        models: what the pages fetch models from.
    Raises:
        ValueError: the player, a peer or Playwright is missing; the text says how to get it.
    """

    def __init__(self, peers: Path, models: Path, in_page: bool = False) -> None:
        self.modules, self.in_page, self._stack = peers / "node_modules", in_page, ExitStack()
        player = next((p for p in PLAYERS if (p / "generate.mjs").exists()), None)
        if player is None:
            raise ValueError("the player is not built: run `make build`")
        for package in PEERS.values():
            if not (self.modules / package / "package.json").exists():
                raise ValueError(f"{self.modules} holds no {package}: run `{INSTALL}` in a folder and name it with --peers")
        self.versions = {TITLES[side]: self._version(package) for side, package in PEERS.items()}
        self.versions["onnxruntime-web"] = self._version("onnxruntime-web")
        self._mounts = {"/bench/": PAGES, "/generate/": HERE, "/ours/": player, "/peers/": self.modules, "/models/": models}

    def _version(self, package: str) -> str:
        return str(json.loads((self.modules / package / "package.json").read_text())["version"])

    def __enter__(self) -> Pages:
        try:
            from playwright.sync_api import sync_playwright
        except ImportError as error:
            raise ValueError("a browser is driven with Playwright: pip install pyonnx-wasm[browser]") from error
        from ...testing.chromium import launch_options

        try:
            self._browser = self._stack.enter_context(sync_playwright()).chromium.launch(**launch_options())
            self._stack.callback(self._browser.close)
            self.server = self._stack.enter_context(Server(self._mounts))
            self.versions["chromium"] = self._browser.version
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @contextmanager
    def page(self, context: Any = None) -> Iterator[Any]:
        """A page in a process of its own; with a cold cache, or that of a context."""
        own = context or self._browser.new_context()
        try:
            page = own.new_page()
            page.set_default_timeout(0)
            page.goto(f"{self.server.url}bench/page.html")
            yield page
            page.close()
        finally:
            if context is None:
                own.close()

    def context(self) -> Any:
        return self._browser.new_context()

    def call(self, page: Any, name: str, *args: Any) -> Any:
        return page.evaluate(CALL, [name, args])

    def peak(self) -> int | None:
        """Greatest resident bytes of the largest renderer."""
        return peak_of(self._browser)

    def opening(self, side: str, model: str, threads: int) -> dict[str, Any]:
        """What page.mjs's ``open`` is told."""
        peers = f"{self.server.url}peers/"
        if side == "ours":
            return {"library": "/ours/", "model": f"{self.server.url}models/{model}", "threads": threads, "worker": not self.in_page}
        if side == "transformers":
            return {
                "library": f"{peers}@huggingface/transformers/dist/transformers.min.js", "ort": f"{peers}onnxruntime-web/dist/",
                "folder": "/models/", "model": model.partition("/")[0], "threads": threads,
            }  # fmt: skip
        wllama = f"{peers}@wllama/wllama/esm/"
        return {"library": f"{wllama}index.js", "wasm": f"{wllama}wasm/wllama.wasm", "model": f"/models/{model}", "threads": threads}


def prompt(length: int, turn: int) -> list[int]:
    """Letters; another first one in each turn, so that no cache knows it."""
    return [FIRST + (turn + (i * i + 7 * turn * i) % len(LETTERS)) % len(LETTERS) for i in range(length)]


def compared(
    pages: Pages, size: Size, file: str, side: str, threads: int, length: int, count: int, rounds: int, tell: Callable[[str], None]
) -> report.Row:
    """One row: prefill and decode of ours and a peer, by turns in one page."""
    sides = ("ours", side)
    first: dict[str, list[float]] = {s: [] for s in sides}
    each: dict[str, list[float]] = {s: [] for s in sides}
    made: dict[str, list[int]] = {}
    with pages.page() as page:
        for s in sides:
            tell(f"open {s}")
            pages.call(page, "open", s, pages.opening(s, file, threads))
        for turn in range(-1, rounds):  # the first to warm up
            for s in sides if turn % 2 else sides[::-1]:
                tell(f"{turn + 1} {s}")
                told = pages.call(page, "write", s, prompt(length, turn + 1), count)
                if told["tokens"] < count // 2:
                    raise RuntimeError(f"{s} wrote {told['tokens']} of {count} tokens")
                made[s] = told["ids"]
                if turn >= 0:
                    first[s].append(told["first"])
                    each[s].append(statistics.median(told["gaps"]))
        rate = pages.call(page, "bandwidth", COPIED, COPIES)
        pages.call(page, "close")
    times = [[found[s] for s in sides] for found in (first, each)]
    return row(size, TITLES[side], threads, length, rate, *times) | {"same": alike(*made.values())}


def alike(a: Sequence[int], b: Sequence[int]) -> str:
    """How many of the first tokens are the same."""
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"{n} of {min(len(a), len(b))}"


def row(
    size: Size, against: str, threads: int, length: int, rate: float, first: Sequence[list[float]], each: Sequence[list[float]]
) -> report.Row:
    """Medians, and medians of the ratios pair by pair.

    Args:
        rate: bytes per millisecond that a copy reads and writes.
        first: milliseconds to the first token, ours and theirs.
        each: for each further one.
    """
    ratios = [statistics.median(b / a for a, b in zip(*times, strict=True)) for times in (first, each)]
    ours, theirs = (statistics.median(times) for times in each)
    return {
        "case": size.title, "against": against, "threads": threads, "prompt": length, "rounds": len(each[0]),
        "prefill": [round(1000 * length / statistics.median(times), 2) for times in first], "prefill_ratio": round(ratios[0], 3),
        "decode": [round(1000 / ours, 2), round(1000 / theirs, 2)], "decode_ratio": round(ratios[1], 3),
        "copy_gbs": round(rate / 1e6, 2),
        "of_bandwidth": [size.read_bytes / min(times) / rate for times in each],
    }  # fmt: skip


def memory(pages: Pages, file: str, length: int = 16, count: int = 4) -> dict[str, Any]:
    """Peak of a page's process that opens a model and writes, over that of an empty page."""
    with pages.page():
        empty = pages.peak() or 0
    with pages.page() as page:
        create = pages.call(page, "open", "ours", pages.opening("ours", file, 1))
        told = pages.call(page, "write", "ours", prompt(length, 0), count)
        peak = pages.peak()
        pages.call(page, "close")
    return {"create_ms": round(create), "first_ms": round(told["first"]), "peak_bytes": None if peak is None else peak - empty}


def first_token(pages: Pages, file: str, visits: int = 4, length: int = 12) -> dict[str, float]:
    """Milliseconds of ``create`` and then to the first token, in a page of a context that had the model before."""
    context = pages.context()
    found = []
    try:
        for _ in range(visits + 1):
            with pages.page(context) as page:
                create = pages.call(page, "open", "ours", pages.opening("ours", file, 1))
                told = pages.call(page, "write", "ours", prompt(length, 0), 2)
                found.append((create, told["first"]))
    finally:
        context.close()
    return {
        "create_ms": round(statistics.median(c for c, _ in found[1:]), 1),
        "first_ms": round(statistics.median(f for _, f in found[1:]), 1),
    }
