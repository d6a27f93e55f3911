"""Sessions in the browser: JupyterLab, a kernel and Chromium, all real."""

import ast
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from lab import Lab, Notebook
from onnx import helper, numpy_helper
from playwright.sync_api import Browser, BrowserContext, Locator, expect
from waiting import until

import pyonnx_wasm as ort
from tests.test_cancel import CASES

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"
BIG_MB = 24
SETUP = f"""
import time
import numpy as np
import pyonnx_wasm as ort
session = ort.InferenceSession({str(DIGITS)!r}, providers=["browser"])
name = session.get_inputs()[0].name
def feed(k, n=2): return {{name: np.full([d if isinstance(d, int) else n for d in session.get_inputs()[0].shape], k / 10, np.float32)}}
def show(result): return np.round(result[0].astype(float).sum(), 3)
session.bridge
"""
FILES = """
from pyonnx_wasm.jupyter import feed
from pyonnx_wasm.jupyter.bridge import bridge
from pyonnx_wasm.jupyter.wait import wait
blobs = [feed.Blob(feed.Bytes(bytes([k]) * 3_000_000)) for k in range(4)]
blobs += [feed.Blob(feed.Bytes(bytes(size))) for size in (9_000_000, 11_000_000)]
names = {blob.sha256: k for k, blob in enumerate(blobs)}
def read(k):
    assert wait(bridge().rpc.call("fetch", blobs[k].ref)).json["bytes"] == blobs[k].nbytes
bridge().widget
"""
pytestmark = pytest.mark.browser


class Desk:
    """One JupyterLab and one user's browser for all tests; each begins with an empty cache and no tab."""

    def __init__(self, lab: Lab, context: BrowserContext, big: Path) -> None:
        self.lab, self.context, self.big = lab, context, big

    def open(self, *cells: str, setup: str = SETUP, script: str = "") -> Notebook:
        """A new notebook whose first cell makes a session and shows the badge; ``script`` runs in the page before anything else."""
        name = f"{secrets.token_hex(4)}.ipynb"
        self.lab.write(name, [setup, *cells])
        page = self.context.new_page()
        if script:
            page.add_init_script(script)
        notebook = self.lab.open(self.context, name, page)
        page.evaluate("caches.delete('pyonnx_wasm')")
        return notebook

    def tab(self, name: str) -> Notebook:
        """A notebook whose kernel has widgets, in one more tab."""
        notebook = self.lab.open(self.context, name)
        notebook.find_widgets()
        return notebook


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[tuple[Lab, BrowserContext]]:
    with Lab(tmp_path_factory.mktemp("lab") / "lab") as lab:
        context = browser.new_context(viewport={"width": 1100, "height": 800})
        yield lab, context
        context.close()


@pytest.fixture
def desk(user: tuple[Lab, BrowserContext], big: Path) -> Iterator[Desk]:
    lab, context = user
    yield Desk(lab, context, big)
    for page in context.pages:
        page.close()
    lab.end_kernels()


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes a while to travel, and to run with many rows."""
    home = tmp_path_factory.mktemp("big")
    weights = np.random.default_rng(0).random((1024, BIG_MB * 256), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("ReduceSum", ["h"], ["y"], keepdims=0)],
        "big",
        [helper.make_tensor_value_info("x", 1, ["n", 1024])],
        [helper.make_tensor_value_info("y", 1, [])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), home / "big.onnx")
    return home / "big.onnx"


@pytest.fixture(scope="module")
def expected() -> Callable[[int], str]:
    native = ort.InferenceSession(DIGITS)
    taken = native.get_inputs()[0]

    def expected(k: int) -> str:
        shape = [d if isinstance(d, int) else 2 for d in taken.shape]
        return str(np.round(native.run(None, {taken.name: np.full(shape, k / 10, np.float32)})[0].astype(float).sum(), 3))

    return expected


def badge(notebook: Notebook) -> Locator:
    return notebook.output(0).locator(".pyonnx-badge")


def test_run_all(desk: Desk, expected: Callable[[int], str]) -> None:
    """Cells that wait, one after the other, in one go."""
    notebook = desk.open(
        "print(show(await session.run_async(None, feed(1)))); print(session.providers)",
        "print(show(session.run(None, feed(2)))); print('after')",
        "print('nothing to wait for')",
        "print(*(show(r) for r in session.map(feed(k) for k in range(10))))",
        "print(*[show(r) async for r in session.map(feed(k) for k in range(10))])",
        "info = session.browser; print(info['isSecureContext'], info['crossOriginIsolated'], info['adapter'], info['noAdapter'])",
    )
    notebook.run_all()
    assert [notebook.text(k) for k in range(1, 7)] == [
        f"{expected(1)}\n['browser', 'wasm']",
        f"{expected(2)}\nafter",
        "nothing to wait for",
        " ".join(map(expected, range(10))),
        " ".join(map(expected, range(10))),
        "True False None the browser offers no GPU adapter",
    ]
    expect(badge(notebook)).to_have_attribute("data-phase", "ready")
    expect(badge(notebook)).to_contain_text(re.compile(r"digits\.onnx · wasm · [\d.]+ ms"))
    badge(notebook).locator("summary").press("Enter")
    expect(badge(notebook)).to_contain_text("one: the page is not cross-origin isolated")
    expect(badge(notebook)).to_contain_text("none: the browser offers no GPU adapter")


def test_sequences_and_optionals_travel(desk: Desk, tmp_path: Path) -> None:
    text = "g (seq(float[n]) s, optional(float[m]) o) => (seq(float[n]) t, optional(float[m]) p) { t = SequenceErase(s) p = Identity(o) }"
    path = tmp_path / "sequence.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}'), path)
    notebook = desk.open(
        f"session = ort.InferenceSession({str(path)!r}, providers=['browser'])",
        "print(session.run(None, {'s': [np.float32([1, 2]), np.float32([])], 'o': None}))",
        "print(session.run(['p'], {'s': [np.float32([1, 2])], 'o': np.float32([3])}))",
    )
    notebook.run_all()
    assert [notebook.text(k) for k in (2, 3)] == ["[[array([1., 2.], dtype=float32)], None]", "[array([3.], dtype=float32)]"]


def test_strings_travel(desk: Desk, tmp_path: Path) -> None:
    text = "g (string[n] x, string[1] z) => (string[n] y, bool[n] e) { y = StringConcat(x, z) e = Equal(x, z) }"
    path = tmp_path / "strings.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}'), path)
    notebook = desk.open(
        f"session = ort.InferenceSession({str(path)!r}, providers=['browser'])",
        "print([v.tolist() for v in session.run(None, {'x': ['a', '', 'é', '𝄞' * 9], 'z': ['é']})])",
        "print([v.tolist() for v in session.run(None, {'x': [], 'z': ['é']})])",
        "try: session.run(None, {'x': ['a', None], 'z': ['é']})\nexcept ValueError as error: print(error)",
    )
    notebook.run_all()
    assert [notebook.text(k) for k in (2, 3, 4)] == [
        "[['aé', 'é', 'éé', '𝄞𝄞𝄞𝄞𝄞𝄞𝄞𝄞𝄞é'], [False, False, True, False]]",
        "[[], []]",
        "input 'x' takes strings, element 1 is None (NoneType)",
    ]


CALLBACK = """
@ort.callback("Above", domain="my.ops", outputs=[(None, 1), ("int64", ())])
def above(x, *, least=0.0):
    if x.size > 3: raise ValueError("too many")
    return x[x > least], np.array(x.size)
model = ort.InferenceSession({path!r}, providers=[("browser", {{"backends": ["wasm"]}})])
def tell(*x):
    try: print([v.tolist() for v in model.run(None, {{"x": np.float32(x)}})])
    except Exception as error: print(type(error).__name__, error)
"""
IN_THE_PAGE = """
globalThis[Symbol.for("pyonnx_wasm.operators")].set("my.ops.Above", ([x], { least }) => [
  { type: "float32", dims: [1], data: Float32Array.of(-least) }, { type: "int64", dims: [], data: BigInt64Array.of(-1n) },
])
"""


def test_callbacks_run_where_they_are_registered(desk: Desk, tmp_path: Path) -> None:
    """In the kernel while its cell waits, or in the page; else who could is told."""
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Above", ["n"], ["y", "c"], domain="my.ops", least=1.0, name="here")],
        "callback",
        [helper.make_tensor_value_info("x", 1, ["n"])],
        [helper.make_empty_tensor_value_info("y"), helper.make_empty_tensor_value_info("c")],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my.ops", 1)]
    path = tmp_path / "callback.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    notebook = desk.open(
        CALLBACK.format(path=str(path)),
        "tell(-2, 5, -7); tell(); tell(-1, -2, -3, -4); tell(-3)",
        "ort.callbacks.FUNCTIONS.clear(); tell(-2)",
        "tell(-2)",
    )
    notebook.run(0)
    notebook.run(1)
    kernel, missing = notebook.run(2), notebook.run(3)
    notebook.page.evaluate(IN_THE_PAGE)
    page = notebook.run(4)
    lines = kernel.splitlines()
    assert [lines[k] for k in (0, 1, 3)] == ["[[2.0, 7.0], 3]", "[[], 0]", "[[3.0], 1]"]
    assert re.fullmatch(r"RemoteError .*too many.*", lines[2])
    assert "node 'here' (my.ops.Above): no function is registered here to run it" in missing
    assert page == "[[-1.0], -1]"


def test_a_reloaded_page_has_the_model_in_its_cache(desk: Desk, expected: Callable[[int], str]) -> None:
    count = "from pyonnx_wasm.jupyter import feed as served\nreads = []\nread = served._read\n"
    count += "served._read = lambda request: reads.append(request) or read(request)"
    notebook = desk.open("print(show(session.run(None, feed(1))), len(reads) > 0)", "reads.clear()", setup=f"{count}\n{SETUP}")
    notebook.run_all()
    assert notebook.text(1) == f"{expected(1)} True"
    notebook.save()
    notebook.reload()
    assert notebook.run(1) == f"{expected(1)} False"
    badge(notebook).locator("summary").click()
    expect(badge(notebook)).to_contain_text("from this browser's cache")


def test_two_tabs_and_a_closed_one(desk: Desk, expected: Callable[[int], str]) -> None:
    first = desk.open("print(show(session.run(None, feed(3))))", "print(show(await session.run_async(None, feed(4))))")
    first.run_all()
    first.save()
    second = desk.tab(first.name)
    assert second.run(1) == expected(3)
    expect(badge(second)).to_contain_text("stands by")  # the first tab ran it, and only it
    first.close()
    assert second.run(2) == expected(4)
    expect(badge(second)).to_contain_text("digits.onnx · wasm")


def test_reload_in_the_middle_of_an_upload(desk: Desk) -> None:
    slow = "from pyonnx_wasm.jupyter import feed as served\nread = served._read\n"
    slow += "served._read = lambda request: time.sleep(0.25) or read(request)"
    notebook = desk.open(
        f"big = ort.InferenceSession({str(desk.big)!r}, providers=['browser'])\n"
        "result = big.run(None, {'x': np.ones((1, 1024), np.float32)})",
        "print(result[0] > 0)",
        setup=f"{slow}\n{SETUP}",
    )
    notebook.run(0)
    notebook.save()
    notebook.run(1, wait=False)
    expect(badge(notebook)).to_have_attribute("data-phase", "loading")
    notebook.reload(widgets=False)
    notebook.idle()
    assert notebook.run(2) == "True"


LOOP = """
loop = ort.InferenceSession({path!r}, providers=["browser"])
def trips(n): return {{"n": np.array(n), "x": np.ones(3, np.float32)}}
loop.run(None, trips(1))
"""


@pytest.fixture
def loop(tmp_path: Path) -> str:
    """A cell with a model that takes as long as it is told: ``trips(1 << 50)`` take centuries."""
    path = tmp_path / "loop.onnx"
    path.write_bytes(CASES["loop"][0])
    return LOOP.format(path=str(path))


def test_an_interrupt_ends_what_the_page_computes(desk: Desk, expected: Callable[[int], str], loop: str) -> None:
    """What is run after it would wait for it otherwise."""
    notebook = desk.open(
        loop,
        "loop.run(None, trips(1 << 50))",
        "await loop.run_async(None, trips(1 << 50))",
        "print(loop.run(None, trips(4))[0].tolist())",
        "print(show(session.run(None, feed(1))))",
    )
    for cell in range(2):
        notebook.run(cell)
    for cell in (2, 3):
        notebook.run(cell, wait=False)
        expect(badge(notebook)).to_have_attribute("data-phase", "running")
        notebook.interrupt()
        notebook.finish()
        assert notebook.text(cell).startswith(("KeyboardInterrupt", "CancelledError"))
        assert notebook.run(4) == "[5.0, 5.0, 5.0]"
        expect(badge(notebook)).to_have_attribute("data-phase", "ready")
    assert notebook.run(5) == expected(1)


def test_runs_given_up_before_their_turn_are_not_begun(desk: Desk, loop: str) -> None:
    notebook = desk.open(
        loop,
        "import asyncio\n"
        "tasks = [asyncio.ensure_future(loop.run_async(None, trips(n))) for n in (1 << 50, 1, 1, 1, 1)]\n"
        "await asyncio.sleep(0)\n"
        "for task in reversed(tasks): task.cancel()\n"
        "print({type(e).__name__ for e in await asyncio.gather(*tasks, return_exceptions=True)})",
        "for result in loop.map([trips(n) for n in (1, 1 << 50, 1, 1, 1, 1, 1, 1)], in_flight=8): print('one')",
        "print(loop.run(None, trips(4))[0].tolist())",
    )
    for cell in range(2):
        notebook.run(cell)
    assert notebook.run(2) == "{'CancelledError'}"
    notebook.run(3, wait=False)
    until(lambda: notebook.text(3) == "one")
    notebook.interrupt()
    notebook.finish()
    assert notebook.run(4) == "[5.0, 5.0, 5.0]"
    badge(notebook).locator("summary").click()
    expect(badge(notebook).locator("dt:text-is('Runs') + dd")).to_have_text("3")


def test_the_kernel_restarts_in_the_middle_of_a_run(desk: Desk, expected: Callable[[int], str], loop: str) -> None:
    notebook = desk.open(loop, "loop.run(None, trips(1 << 50))", "print(show(session.run(None, feed(1))))")
    notebook.run(0)
    notebook.run(1)
    notebook.run(2, wait=False)
    expect(badge(notebook)).to_have_attribute("data-phase", "running")
    notebook.restart()
    expect(badge(notebook)).to_have_attribute("data-phase", "gone")
    expect(badge(notebook)).to_contain_text("the kernel was restarted or shut down; run the notebook again")
    notebook.run(0)
    assert notebook.run(3) == expected(1)
    expect(badge(notebook)).to_have_attribute("data-phase", "ready")


def test_restarts_from_the_menu_of_a_notebook_opened_again(desk: Desk, expected: Callable[[int], str]) -> None:
    """A saved notebook that shows the badge, opened on its idle kernel; after a restart, ten times, only the session's cell is run."""
    badge_apart = SETUP.removesuffix("session.bridge\n")
    notebook = desk.open("session.bridge", "print(show(session.run(None, feed(2))))", setup=badge_apart)
    notebook.run_all()
    notebook.save()
    notebook.close()
    notebook = desk.tab(notebook.name)
    notebook.idle()
    for _ in range(10):
        notebook.page.evaluate("void jupyterapp.commands.execute('notebook:restart-kernel')")
        notebook.page.locator(".jp-Dialog .jp-mod-warn").click()
        notebook.page.wait_for_function("() => !document.querySelector('.jp-Dialog')")
        notebook.idle()
        notebook.run(0)
        assert notebook.run(2) == expected(2)


FULL = """
globalThis.refusals = [];
const full = () => new DOMException('no room', 'QuotaExceededError');
Cache.prototype.put = () => new Promise((_, refuse) => globalThis.refusals.push(() => refuse(full())));
"""


def test_a_full_cache_only_means_that_the_model_travels_again(desk: Desk, loop: str) -> None:
    """It is told although the browser says so while the model runs."""
    notebook = desk.open(loop, "loop.run(None, trips(1 << 50))", "print(loop.run(None, trips(4))[0].tolist())", script=FULL)
    for cell in range(2):
        notebook.run(cell)
    notebook.run(2, wait=False)
    expect(badge(notebook)).to_have_attribute("data-phase", "running")
    notebook.page.wait_for_function("refusals.length > 1")  # of the core and of the model
    notebook.page.evaluate("refusals.forEach((refuse) => refuse())")
    notebook.interrupt()
    notebook.finish()
    badge(notebook).locator("summary").click()
    expect(badge(notebook)).to_contain_text("from the kernel; the browser's cache did not take it: no room")
    assert notebook.run(3) == "[5.0, 5.0, 5.0]"


PUTS = """
const { put } = Cache.prototype;
globalThis.puts = [];
Cache.prototype.put = function (...given) {
  globalThis.puts.push(String(given[0].url ?? given[0]));
  return put.apply(this, given);
};
"""


class Cache:
    """The browser's cache of a notebook's page. Files have the names of ``FILES``."""

    def __init__(self, desk: Desk, script: str = "") -> None:
        self.notebook = desk.open("print(names)", *(f"read({k})" for k in range(6)), setup=FILES, script=script)
        self.page = self.notebook.page
        self.notebook.run(0)
        self.names: dict[str, int] = ast.literal_eval(self.notebook.run(1))

    def read(self, k: int) -> None:
        self.notebook.run(2 + k)

    def files(self) -> set[int]:
        found = "caches.open('pyonnx_wasm').then((c) => c.keys()).then((keys) => keys.map(({ url }) => new URL(url).pathname.slice(1)))"
        return {self.names[sha256] for sha256 in self.page.evaluate(found)}

    def holds(self, *files: int) -> None:
        with suppress(AssertionError):
            until(lambda: self.files() == set(files))
        assert self.files() == set(files)


def test_the_least_recently_used_file_leaves_the_cache(desk: Desk) -> None:
    """Chromium never says that a site may use less than 10 GB, so the page is told that it may use 20 MB."""
    cache = Cache(desk, "navigator.storage.estimate = () => Promise.resolve({ quota: 20_000_000 }); " + PUTS)
    for k in range(3):
        cache.read(k)
        cache.holds(*range(k + 1))
    cache.read(0)
    cache.read(3)
    cache.holds(0, 2, 3)
    cache.read(5)  # is larger than all that is kept together
    cache.read(0)  # a way to the kernel and back later
    names = {k: sha256 for sha256, k in cache.names.items()}
    put = " ".join(cache.page.evaluate("puts"))
    assert [k for k in range(6) if names[k] in put] == [0, 1, 2, 3]
    cache.holds(0, 2, 3)
    cache.read(4)
    cache.holds(4)


def test_a_cache_without_room_drops_files_until_one_fits(desk: Desk) -> None:
    cache = Cache(desk)
    devtools = desk.context.new_cdp_session(cache.page)

    def room(megabytes: float) -> None:
        """What the site may use, beside what it uses for other things."""
        usage = devtools.send("Storage.getUsageAndQuota", {"origin": desk.lab.url})
        others = usage["usage"] - 3_000_000 * len(cache.files())
        devtools.send("Storage.overrideQuotaForOrigin", {"origin": desk.lab.url, "quotaSize": others + megabytes * 1e6})

    room(8)
    for k in range(2):
        cache.read(k)
        cache.holds(*range(k + 1))
    cache.read(2)
    cache.holds(1, 2)
    cache.read(4)  # finds no room although the others go
    cache.holds()
    cache.read(3)
    cache.holds(3)
    devtools.detach()


def test_no_page_is_an_error(desk: Desk) -> None:
    """The tab is closed while the kernel works on; what the cell says is in the file that another tab reads."""
    notebook = desk.open(
        "import os, threading",
        """
def late():
    while not os.path.exists('closed.txt'):
        time.sleep(0.01)
    try:
        session.run(None, feed(1))
    except Exception as error:
        open('outcome.txt', 'w').write(f"{type(error).__name__}: {error}")
threading.Thread(target=late).start()
""",
    )
    notebook.run_all()
    notebook.close()
    (desk.lab.folder / "closed.txt").touch()
    outcome = desk.lab.folder / "outcome.txt"
    until(lambda: outcome.exists() and outcome.read_text() != "")
    assert outcome.read_text().startswith("NoBrowser: the page that ran the model was closed")
