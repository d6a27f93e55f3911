"""Products of bytes in a page, where a processor's sums of two products leave int16: of none, some and all steps of the weights."""

import json
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from player_site import DIST, HELPERS
from playwright.sync_api import Page

import pyonnx_wasm
from pyonnx_wasm.passes import pack
from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser
SHARES = (0.0, 0.02, 0.3, 0.6, 1.0)  # of the steps that have large weights
SIZES = ((4, 1), (36, 20), (129, 8), (576, 16), (1153, 43))
ROWS = (1, 2, 3, 4, 29, 200)


def weights(k: int, n: int, share: float) -> np.ndarray:
    rng = np.random.default_rng(k)
    w = rng.integers(-50, 51, (k, n))
    large = np.repeat(rng.random((k + 3) // 4) < share, 4)[:k]
    w[large] = rng.choice([-128, 127, -127, 90], (int(large.sum()), n))
    return w.astype(np.int8)


def multiply(page: Page, folder: Path, type_: str, threads: int, cases: list[tuple[np.ndarray, list[np.ndarray]]]) -> None:
    """Of each case's weights [k, n] and rows [m, k] less 131: the products in a page are exact."""
    (folder / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>bytes</title>')
    zero = np.array(np.iinfo(type_).min + 131, type_)
    for i, (w, _) in enumerate(cases):
        k, n = w.shape
        text = f'<ir_version: 9, opset_import: ["" : 17]> g ({type_}[M, {k}] x) => (int32[M, {n}] y) {{ y = MatMulInteger(x, w, z) }}'
        made = onnx.parser.parse_model(text)
        made.graph.initializer.extend([numpy_helper.from_array(w, "w"), numpy_helper.from_array(zero, "z")])
        pyonnx_wasm.save(pyonnx_wasm.compile(made.SerializeToString()), folder / f"{i}.ponnx")
    with Server({"/": folder, "/player": DIST}, isolated=True) as server:
        page.goto(f"{server.url}index.html")
        for i, (w, xs) in enumerate(cases):
            k, n = w.shape
            found = page.evaluate(
                f"""async ([url, threads, type, k, feeds]) => {{ {HELPERS}
                  env.wasm.numThreads = threads;
                  const session = await InferenceSession.create(url);
                  const array = type === "uint8" ? Uint8Array : Int8Array;
                  const run = (x) => session.run({{ x: new Tensor(type, array.from(x), [x.length / k, k]) }});
                  const out = [];
                  for (const x of JSON.parse(feeds)) out.push([...(await run(x)).y.data]);
                  await session.release();
                  return JSON.stringify(out);
                }}""",
                [f"{server.url}{i}.ponnx", threads, type_, k, json.dumps([x.ravel().tolist() for x in xs])],
            )
            for x, y in zip(xs, json.loads(found), strict=True):
                want = (x.astype(np.int64) - int(zero)) @ w.astype(np.int64)
                np.testing.assert_array_equal(np.array(y).reshape(-1, n), want, f"case {i}: {k} x {n}, {len(x)} rows")


@pytest.mark.parametrize("type_", ["uint8", "int8"])
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_are_exact(player_page: Page, tmp_path: Path, type_: str, threads: int) -> None:
    rng, low = np.random.default_rng(1), np.iinfo(type_).min
    cases = []
    for k, n in SIZES:
        for share in SHARES:
            xs = [rng.integers(low, low + 256, (rows, k)).astype(type_) for rows in ROWS]
            xs[-1][5:9] = low + 255
            cases.append((weights(k, n, share), xs))
    multiply(player_page, tmp_path, type_, threads, cases)


@pytest.mark.parametrize("type_", ["uint8", "int8"])
def test_sums_as_large_as_can_be(player_page: Page, tmp_path: Path, type_: str) -> None:
    """Rows that are as the columns are, of either sign: no sums of numbers of their norms are larger.

    Sums in int16 are of 32, 16 and 8 products: just inside and just outside of these, and of parts of the depth that are apart.
    """
    rng, k, n, rows = np.random.default_rng(2), 332, 43, 13
    zero = np.iinfo(type_).min + 131
    sides = [rng.choice([-1, 1], size) for size in (k, n, rows)]
    cases = []
    for few, many in ((31, 33), (32, 32), (16, 64), (11, 93), (23, 89), (32, 64), (20, 103), (63, 65), (64, 64), (40, 103), (64, 120)):
        for part in (None, 16, 32, 64):
            of = np.ones(k, int) if part is None else rng.choice([0, 1, 1], (k + part - 1) // part).repeat(part)[:k]
            x = zero + many * np.outer(sides[2], sides[0] * of)
            cases.append((few * np.outer(sides[0], sides[1]).astype(np.int8), [x.astype(type_)]))
    multiply(player_page, tmp_path, type_, 1, cases)


def test_programs_without_room_for_measures(player_page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that were made before there was any: panels are measured in every run."""
    monkeypatch.setattr(pack, "packed_size", lambda k, n, taps: (-(-k // 4) * 4 * -(-n // 16) * 16, -(-n // 16) * 16))
    rng = np.random.default_rng(3)
    cases = [(weights(576, 43, share), [rng.integers(0, 256, (29, 576)).astype(np.uint8)]) for share in SHARES]
    multiply(player_page, tmp_path, "uint8", 1, cases)
