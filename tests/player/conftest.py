"""Fixtures of the player's tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from player_site import CSP, DIST, HELPERS, SHIFT, TYPES, WEIGHT_MB, B, Run, W, make_thin, write, write_text
from playwright.sync_api import Browser, Page

import pyonnx_wasm
from pyonnx_wasm.server import Server


@pytest.fixture(scope="session")
def player_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small compiled models and empty pages."""
    assert (DIST / "index.mjs").exists(), "the player is not built: make build"
    root = tmp_path_factory.mktemp("player")
    (root / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>player</title>')
    (root / "csp.html").write_text(f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{CSP}"><title>player</title>')
    node = helper.make_node
    write(
        root / "dense.ponnx",
        [
            node("Add", ["b", "shift"], ["c"], name="fold"),
            node("MatMul", ["x", "w"], ["t"], name="dense_0"),
            node("Add", ["t", "c"], ["u"], name="bias_0"),
            node("Relu", ["u"], ["y"], name="relu_0"),
        ],
        {"x": ("float32", ["n", 67])},
        {"y": ("float32", ["n", 31])},
        w=W,
        b=B,
        shift=SHIFT,
    )
    write(
        root / "types.ponnx",
        [node("Identity", [t], [f"{t}_out"]) for t in TYPES],
        {t: (t, ["n"]) for t in TYPES},
        {f"{t}_out": (t, ["n"]) for t in TYPES},
    )
    matrix = ("float32", ["n", "m"])
    write(
        root / "pair.ponnx",
        [node("Mul", ["a", "b"], ["p"], name="mul_0"), node("Sub", ["a", "b"], ["d"], name="sub_0")],
        {"a": matrix, "b": matrix},
        {"p": matrix, "d": matrix},
    )
    write(
        root / "pick.ponnx",
        [node("Gather", ["x", "i"], ["y"], name="pick_0")],
        {"x": ("float32", [5]), "i": ("int64", ["k"])},
        {"y": ("float32", ["k"])},
    )
    block = ("float32", ["batch", 4, "past", 8])
    write(root / "block.ponnx", [node("Neg", ["x"], ["y"], name="neg_0")], {"x": block}, {"y": block})
    write(root / "random.ponnx", [node("RandomUniform", [], ["y"], shape=[999])], {}, {"y": ("float32", [999])})
    write_text(
        root / "sequence.ponnx",
        """g (seq(float[n,2]) s, optional(float[m]) o, int64 p) => (seq(float[k,2]) t, optional(float[m]) q, float[j,2] y) {
            t = SequenceErase(s, p) q = Identity(o) y = SequenceAt(s, p) }""",
    )
    write_text(
        root / "strings.ponnx",
        """g (string[n,m] x, string[m] z) => (string[n,m] y, bool[n,m] e, string[m,k] p) {
            y = StringConcat(x, z) e = Equal(x, z) p = StringSplit<delimiter="-">(z) }""",
    )
    columns = WEIGHT_MB << 8
    write(
        root / "big.ponnx",
        [node("MatMul", ["x", "w"], ["y"], name="big_0")],
        {"x": ("float32", ["n", 1024])},
        {"y": ("float32", ["n", columns])},
        w=np.full((1024, columns), 0.5, np.float32),
    )
    make_thin(root)
    pyonnx_wasm.save(pyonnx_wasm.compile(Path(__file__).parents[1] / "data" / "decoder.onnx"), root / "cache.ponnx")
    return root


@pytest.fixture(scope="session")
def player_servers(player_models: Path) -> Iterator[dict[bool, Server]]:
    """By whether its pages are cross-origin isolated."""
    mounts = {"/": player_models, "/player": DIST}
    with Server(mounts, isolated=True) as isolated, Server(mounts, isolated=False) as plain:
        yield {True: isolated, False: plain}


@pytest.fixture(scope="module")
def player_page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture
def routed(player_page: Page) -> Iterator[Page]:
    """The page for a test that changes what it is sent: no test behind it is."""
    yield player_page
    player_page.unroute_all()


@pytest.fixture(scope="module")
def open_page(player_page: Page, player_servers: dict[bool, Server]) -> Callable[..., Run]:
    """Opens a fresh page and returns what runs JavaScript in it: `run(body, arg)` gives what the body returns."""

    def open_page(isolated: bool = False, path: str = "index.html") -> Run:
        player_page.goto(player_servers[isolated].url + path)

        def run(body: str, arg: Any = None) -> Any:
            return player_page.evaluate(f"async (arg) => {{ {HELPERS} {body} }}", arg)

        return run

    return open_page


@pytest.fixture
def run(open_page: Callable[..., Run]) -> Run:
    return open_page()


@pytest.fixture
def watched(player_page: Page, player_models: Path) -> Iterator[Callable[..., tuple[Run, Server]]]:
    """Like `open_page`, and a server that only this page asks, so that what it was asked for is this test's."""
    with ExitStack() as servers:

        def watched(isolated: bool = False) -> tuple[Run, Server]:
            server = servers.enter_context(Server({"/": player_models, "/player": DIST}, isolated=isolated))
            player_page.goto(f"{server.url}index.html")
            return lambda body, arg=None: player_page.evaluate(f"async (arg) => {{ {HELPERS} {body} }}", arg), server

        yield watched
