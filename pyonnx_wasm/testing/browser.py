"""Runs compiled cases in headless Chromium, through the player, many at a time."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .. import compiler
from ..dtypes import DType, from_numpy, to_numpy
from ..feeds import packed, unpacked
from ..program import Compiled, ProgramView
from ..program import file as ponnx
from ..program.view import CONTROL
from ..server import Server
from .chromium import launch_options
from .suite import Case, Notes, compare

DIST = Path(__file__).resolve().parents[2] / "js" / "dist"
BATCH_BYTES = 4 << 20  # of models and feeds that travel to the page at once
BATCH_CASES = 100
PAGE = """<!doctype html><title>conformance</title><script type="module">
import { InferenceSession, Tensor, env } from "/dist/index.mjs";
env.wasm.numThreads = 1;
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const text = (data) => {
  const raw = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  let out = "";
  for (let i = 0; i < raw.length; i += 8192) out += String.fromCharCode(...raw.subarray(i, i + 8192));
  return btoa(out);
};
const arrays = {};
const tensor = ({ type, dims, data }) => {
  if (type === "string") return new Tensor(type, data, dims);
  const like = (arrays[type] ??= new Tensor(type, [], [0]).data.constructor);
  return new Tensor(type, new like(bytes(data).buffer), dims);
};
const value = (given) => (given === null ? null : Array.isArray(given) ? given.map(value) : tensor(given));
const shown = (result) => {
  if (result === null) return null;
  if (Array.isArray(result)) return result.map(shown);
  const { type, dims, data } = result;
  return { type, dims, data: type === "string" ? data : text(data) };
};
const run = async (session, feeds) => {
  const results = await session.run(Object.fromEntries(feeds.map(([name, given]) => [name, value(given)])));
  return session.outputNames.map((n) => shown(results[n]));
};
const one = async ({ model, feeds, more, executionProviders, profiled, memory64 }) => {
  let session;
  try {
    env.wasm.memory64 = memory64;
    session = await InferenceSession.create(bytes(model), { executionProviders });
    const outputs = await run(session, feeds);
    const later = [];
    for (const each of more ?? []) later.push(await run(session, each));
    const steps = profiled ? await session.profile(Object.fromEntries(feeds.map(([name, given]) => [name, value(given)]))) : [];
    const onCore = [...new Set(steps.filter(({ backend }) => backend === "wasm").map(({ kernel }) => kernel))];
    return { outputs, later, backend: session.backend, fallback: session.fallback, onCore };
  } catch (error) {
    return { error: String(error?.message ?? error) };
  } finally {
    await session?.release();
  }
};
window.runBatch = async (batch) => {
  const results = [];
  for (const each of batch) results.push(await one(each));
  return results;
};
</script>"""


class PlayerError(RuntimeError):
    """The player refused a model or a run."""


@contextmanager
def player_page(webgpu: bool = False) -> Iterator[Any]:
    """A Playwright page that has the player loaded as ``runBatch``."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "index.html").write_text(PAGE)
        with Server({"/": folder, "/dist/": DIST}) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(**launch_options(webgpu=webgpu))
            try:
                page = browser.new_page()
                page.set_default_timeout(120_000)
                page.goto(server.url)
                page.wait_for_function("() => window.runBatch")
                yield page
            finally:
                browser.close()


def run_browser(
    chosen: Sequence[Case],
    optimise: bool,
    watch: Callable[[Case, Exception | None], None],
    providers: Sequence[str] = ("wasm",),
    notes: Notes | None = None,
    memory64: bool = False,
) -> None:
    """Compiles cases here, runs them in one page; tells ``watch`` each outcome, and ``notes`` the rest."""
    with player_page("webgpu" in providers) as page:
        run_in(page, chosen, optimise, watch, providers, notes, memory64)


def run_in(
    page: Any,
    chosen: Sequence[Case],
    optimise: bool,
    watch: Callable[[Case, Exception | None], None],
    providers: Sequence[str] = ("wasm",),
    notes: Notes | None = None,
    memory64: bool = False,
) -> None:
    """Like :func:`run_browser`, in a page that has :data:`PAGE` loaded, of whatever browser. ``memory64``: on 64-bit addresses."""
    gpu = "webgpu" in providers
    batch: list[tuple[Case, dict[str, Any]]] = []
    size = 0
    for case in chosen:
        try:
            one = job(case, optimise, gpu) | {
                "executionProviders": list(providers),
                # A second run, which tells the steps; of a whole network it takes a GPU of software half a minute.
                "profiled": gpu and notes is not None and case.kind != "real",
                "memory64": memory64 or None,
            }
        except Exception as error:
            watch(case, error)
            continue
        batch.append((case, one))
        size += len(one["model"]) + len(str(one["feeds"]))
        if size > BATCH_BYTES or len(batch) == BATCH_CASES:
            _run(page, batch, watch, notes)
            batch, size = [], 0
    _run(page, batch, watch, notes)


def job(case: Case, optimise: bool, gpu: bool = False, more: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """What the page takes for a case. ``more``: feeds of further runs of the same session."""
    compiled = compiler.compile(case.model, optimise=optimise, gpu=gpu)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.ponnx")
        ponnx.save(compiled, path)
        model = Path(path).read_bytes()
    runs = [_feeds(compiled, feeds) for feeds in (case.feeds, *more)]
    return {"model": _text(model), "feeds": runs[0], "more": runs[1:], "onCore": _kernels_on_core(compiled)}


def _kernels_on_core(compiled: Compiled) -> list[str]:
    """The kernels that the core runs where a GPU runs the rest."""
    if compiled.gpu is None:
        return sorted({row.name for row in ProgramView(compiled.main.code).kernels})
    return sorted(compiled.gpu.section.kernels_on_core(ProgramView(compiled.gpu.program.code)))


def _feeds(compiled: Compiled, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    names = [face.name for face in compiled.faces[0]] if compiled.faces else [s.name for s in compiled.inputs]
    return [(name, _told(given[name])) for name in names]


def _told(value: Any) -> Any:
    if value is None or isinstance(value, list):
        return value and [_told(item) for item in value]
    array = np.asarray(value)
    if array.dtype.kind in "USOT":
        return {"type": "string", "dims": list(array.shape), "data": array.reshape(-1).tolist()}
    dtype = from_numpy(array.dtype)
    data = packed(np.ascontiguousarray(array), dtype).tobytes()
    return {"type": dtype.name, "dims": list(array.shape), "data": _text(data)}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _run(
    page: Any, batch: Sequence[tuple[Case, dict[str, Any]]], watch: Callable[[Case, Exception | None], None], notes: Notes | None
) -> None:
    if not batch:
        return
    answers = page.evaluate("batch => window.runBatch(batch)", [one for _, one in batch])
    for (case, one), answer in zip(batch, answers, strict=True):
        try:
            if "error" in answer:
                raise PlayerError(answer["error"])
            backend = one["executionProviders"][0]
            off = compare(case, [(_type(o), output(o)) for o in answer["outputs"]], backend)
            if backend == "webgpu" and notes is not None:
                _agrees(one["onCore"], answer)
        except Exception as error:
            watch(case, error)
        else:
            watch(case, None)
            if notes is not None:
                notes.epsilons[case.name] = off
                if backend == "webgpu" and one["onCore"]:
                    notes.on_core[case.name] = tuple(one["onCore"])


def _agrees(planned: Sequence[str], answer: Mapping[str, Any]) -> None:
    """Refuses steps on the core that the plan has on the GPU."""
    unasked = set(answer["onCore"]) - set(planned) - {*CONTROL}
    if unasked or (answer["backend"] != "webgpu" and not planned):
        raise PlayerError(f"the core runs {', '.join(sorted(unasked)) or 'all of it'}: {answer.get('fallback')}")


def _type(given: Any) -> str:
    if isinstance(given, dict):
        return str(given["type"])
    return _type(given[0]) if given else ""


def output(given: Any) -> Any:
    """An output that the page gave: dtypes that numpy lacks as bit patterns."""
    if not isinstance(given, dict):
        return given and [output(item) for item in given]
    dtype = DType[given["type"]]
    if dtype is DType.string:
        found = np.empty(len(given["data"]), object)
        found[:] = given["data"]
        return found.reshape(given["dims"])
    return unpacked(np.frombuffer(base64.b64decode(given["data"]), to_numpy(dtype)), given["dims"], dtype).reshape(given["dims"])
