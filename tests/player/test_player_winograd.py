"""Convolutions of bytes in a page, of 3 x 3 windows, with and without relaxed SIMD: sums as large as are exact, and one larger."""

import json
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from player_site import DIST, HELPERS
from playwright.sync_api import Page

import pyonnx_wasm
from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser
MOST = 2**18 - 1  # absolute weights of an output channel, added up
HEIGHT, WIDTH, MADE = 13, 10, 14
STEP = 2.0**18  # of the results' codes


def weights(rng: np.random.Generator, c: int, sign: int, total: int) -> np.ndarray:
    w = rng.integers(-128, 128, (MADE, 9 * c))
    w[2:] //= 2  # well below what is exact
    left, taps = divmod(total, 9 * c)
    w[:2] = sign * (left + (rng.permutation(9 * c) < taps))
    return w.astype(np.int8).reshape(MADE, c, 3, 3)


def codes(x: np.ndarray, w: np.ndarray, zero: int) -> np.ndarray:
    padded = np.pad(x.astype(np.int64) - zero, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = np.zeros((1, MADE, HEIGHT, WIDTH), np.int64)
    for i in range(3):
        for j in range(3):
            sums += np.einsum("nchw,mc->nmhw", padded[:, :, i : i + HEIGHT, j : j + WIDTH], w[:, :, i, j].astype(np.int64))
    return np.clip(np.rint(sums.astype(np.float32) / np.float32(STEP)) + 128, 0, 255).astype(np.uint8)


@pytest.mark.parametrize(("simd", "threads"), [("relaxed", 1), ("relaxed", 2), ("fixed", 1)])
def test_sums_as_large_as_can_be(player_page: Page, tmp_path: Path, simd: str, threads: int) -> None:
    (tmp_path / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>windows</title>')
    rng, cases = np.random.default_rng(1), []
    for c, sign, total in (
        (228, -1, MOST),
        (228, -1, MOST + 1),
        (232, 1, MOST),
        (232, 1, MOST + 1),
        (64, 1, 127 * 576),
        (12, -1, 128 * 108),
    ):
        for zero in (0, 128, 255):
            w = weights(rng, c, sign, total)
            sides = f"(uint8[1, {c}, {HEIGHT}, {WIDTH}] x) => (uint8[1, {MADE}, {HEIGHT}, {WIDTH}] y)"
            text = f'<ir_version: 9, opset_import: ["" : 17]> g {sides}'
            made = onnx.parser.parse_model(f"{text} {{ y = QLinearConv <pads = [1, 1, 1, 1]> (x, one, zero, w, one, none, step, middle) }}")
            constants = {
                "one": np.float32(1),
                "zero": np.uint8(zero),
                "none": np.int8(0),
                "step": np.float32(STEP),
                "middle": np.uint8(128),
                "w": w,
            }
            made.graph.initializer.extend([numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
            pyonnx_wasm.save(pyonnx_wasm.compile(made.SerializeToString()), tmp_path / f"{len(cases)}.ponnx")
            fills = [np.full((1, c, HEIGHT, WIDTH), fill, np.uint8) for fill in (0, 255)]
            cases.append((w, zero, [*fills, rng.integers(0, 256, fills[0].shape).astype(np.uint8)]))
    with Server({"/": tmp_path, "/player": DIST}, isolated=True) as server:
        page = player_page
        page.goto(f"{server.url}index.html")
        for i, (w, zero, xs) in enumerate(cases):
            found = page.evaluate(
                f"""async ([url, simd, threads, dims, feeds]) => {{ {HELPERS}
                  env.wasm.numThreads = threads;
                  env.wasm.simd = simd;
                  const session = await InferenceSession.create(url);
                  const out = [];
                  const run = (x) => session.run({{ x: new Tensor("uint8", Uint8Array.from(x), dims) }});
                  for (const x of JSON.parse(feeds)) out.push([...(await run(x)).y.data]);
                  await session.release();
                  return JSON.stringify(out);
                }}""",
                [f"{server.url}{i}.ponnx", simd, threads, list(xs[0].shape), json.dumps([x.ravel().tolist() for x in xs])],
            )
            for x, y in zip(xs, json.loads(found), strict=True):
                np.testing.assert_array_equal(np.array(y).reshape(1, MADE, HEIGHT, WIDTH), codes(x, w, zero), f"case {i}")
    name = "core.wasm" if simd == "fixed" else "core-relaxed.wasm"
    assert [t.path for t in server.transfers if t.path.endswith(".wasm")][:1] == [f"/player/{name}"]
