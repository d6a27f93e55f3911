"""Firefox and WebKitGTK run the player on `wasm`: digits, MiniLM and 300 cases of the ONNX suite, isolated and not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from pyonnx_wasm import InferenceSession
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import browser, conformance, webdriver

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"
MINILM = ROOT / "build" / "models" / "minilm.onnx"
CASES = 300
RUN = """async ([model, inputs]) => {
  const { InferenceSession, Tensor } = await import("/dist/index.mjs");
  const session = await InferenceSession.create(model);
  const feeds = {};
  for (const [name, type, dims, data] of inputs)
    feeds[name] = new Tensor(type, type === "int64" ? BigInt64Array.from(data, BigInt) : Float32Array.from(data), dims);
  const results = await session.run(feeds);
  const { backend, threads } = session;
  await session.release();
  const outputs = Object.values(results).map(({ dims, data }) => ({ dims, data: Array.from(data) }));
  return { outputs, backend, threads, isolated: crossOriginIsolated };
}"""


WITHIN = """async ([run, model, inputs]) => {
  const script = `const run = ${run};
    const begin = async (data) => {
      (await import("/dist/index.mjs")).env.wasm.numThreads = 2;
      return run(data);
    };
    onmessage = ({ data }) => begin(data).then((found) => postMessage({ found }), (error) => postMessage({ error: String(error) }));`;
  const placed = script.replaceAll('import("/', `import("${location.origin}/`);
  const worker = new Worker(URL.createObjectURL(new Blob([placed], { type: "text/javascript" })), { type: "module" });
  worker.postMessage([location.origin + model, inputs]);
  const { found, error } = await new Promise((said, failed) => {
    worker.onmessage = ({ data }) => said(data);
    worker.onerror = ({ message }) => failed(new Error(message));
  });
  worker.terminate();
  if (error) throw new Error(error);
  return found;
}"""


class Opened:
    """A browser at a page of the player's."""

    def __init__(self, page: webdriver.Page, isolated: bool) -> None:
        self.page, self.isolated = page, isolated

    def run(self, model: str, within: bool = False, **feeds: np.ndarray) -> list[np.ndarray]:
        """The outputs of a model of the site, of a player in the page or `within` a worker of the page."""
        inputs = [(name, str(a.dtype), a.shape, a.ravel().tolist()) for name, a in feeds.items()]
        found = self.page.evaluate(WITHIN, [RUN, model, inputs]) if within else self.page.evaluate(RUN, [model, inputs])
        assert (found["backend"], found["isolated"]) == ("wasm", self.isolated)
        # WebKitGTK has no SharedArrayBuffer in isolated pages either: the player stays on one thread there, and says so.
        # Firefox may stand still where a worker starts a worker: within one the player stays on one thread.
        assert found["threads"] == (2 if self.isolated and self.page.version.startswith("Firefox") and not within else 1)
        return [np.array(o["data"], np.float32).reshape(o["dims"]) for o in found["outputs"]]


@pytest.fixture(scope="module", params=webdriver.BROWSERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[True, False], ids=["isolated", "plain"])
def opened(request: pytest.FixtureRequest, name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text(browser.PAGE.replace("numThreads = 1;", "numThreads = 2;"))
    with (
        Server({"/": folder, "/dist/": browser.DIST, "/site/": SITE}, isolated=request.param) as server,
        webdriver.BROWSERS[name]() as page,
    ):
        page.goto(server.url)
        page.wait_for_function("() => window.runBatch")
        yield Opened(page, request.param)


@pytest.mark.parametrize("within", [False, True], ids=["page", "worker"])
def test_digits(opened: Opened, within: bool) -> None:
    images = np.random.default_rng(0).integers(0, 17, (50, 1, 8, 8)).astype(np.float32)
    (want,) = InferenceSession(DIGITS).run(None, {"ink": images})
    (got,) = opened.run("/site/digits/digits.ponnx", within, ink=images)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_minilm(opened: Opened) -> None:
    rng = np.random.default_rng(3)
    ids, mask = rng.integers(0, 30522, (2, 17)), np.ones((2, 17), np.int64)
    mask[1, 9:] = 0
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    want = onnxruntime.InferenceSession(str(MINILM)).run(None, feeds)
    for got, expected in zip(opened.run("/site/search/minilm.ponnx", **feeds), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_cases_of_the_onnx_suite(opened: Opened) -> None:
    unsupported = {name for name, (where, _) in conformance.read_list().items() if "wasm" in where}
    every = [c for c in conformance.cases() if c.name not in unsupported and c.kind != "real"]
    chosen = every[:: len(every) // CASES][:CASES]
    assert len(chosen) == CASES
    told: dict[str, Any] = {}
    browser.run_in(opened.page, chosen, True, lambda case, error: told.update({case.name: error}))
    assert len(told) == CASES
    assert {name: str(error) for name, error in told.items() if error is not None} == {}
