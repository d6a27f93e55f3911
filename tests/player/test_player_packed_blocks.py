"""Weights in blocks, packed for the processor that a page runs on: what it adds up four bytes at a time no other engine here does."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from player_site import DIST, HELPERS
from playwright.sync_api import Page
from test_packed_blocks import SIZES, is_product, model, product, weights

import pyonnx_wasm
from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser
KINDS = [(bits, zero, level) for bits in (4, 8) for zero in ("", "packed", "float") for level in (0, 4)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, list[Any]]]:
    root = tmp_path_factory.mktemp("blocks")
    (root / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>blocks</title>')
    made: list[Any] = []
    for bits, zero, level in KINDS:
        for k, n in SIZES:
            tensors, wanted = weights(k, n, bits, zero, half=len(made) % 2 == 0)
            compiled = pyonnx_wasm.compile(model([product("x", "y", k, n, bits, level, zero)], tensors, k, {"y": TensorProto.FLOAT}))
            pyonnx_wasm.save(compiled, root / f"{len(made)}.ponnx")
            made.append((k, n, level, wanted))
    with Server({"/": root, "/player": DIST}, isolated=True) as server:
        yield server, made


@pytest.mark.parametrize("threads", [1, 3])
def test_products(player_page: Page, site: tuple[Server, list[Any]], threads: int) -> None:
    server, made = site
    player_page.goto(f"{server.url}index.html")
    rng = np.random.default_rng(2)
    rows = (1, 2, 3, 4, 5, 17)
    for i, (k, n, level, wanted) in enumerate(made):
        xs = [rng.standard_normal((r, k)).astype(np.float32) for r in rows]
        endless = [x.copy() for x in xs]
        for x in endless:
            x[0, 1] = np.inf
        feeds = json.dumps([[v if np.isfinite(v) else None for v in x.ravel().tolist()] for x in xs + endless])
        found = player_page.evaluate(
            f"""async ([url, threads, k, feeds]) => {{ {HELPERS}
              env.wasm.numThreads = threads;
              const session = await InferenceSession.create(url);
              const out = [];
              for (const x of JSON.parse(feeds)) {{
                const {{ y }} = await session.run({{ x: new Tensor("float32", x.map((v) => v ?? Infinity), [x.length / k, k]) }});
                out.push([...y.data].map((v) => (Number.isFinite(v) ? v : null)));
              }}
              await session.release();
              return JSON.stringify(out);
            }}""",
            [f"{server.url}{i}.ponnx", threads, k, feeds],
        )
        told = json.loads(found)
        kind = KINDS[i // len(SIZES)]
        for x, y in zip(xs, told, strict=False):
            assert is_product(np.array(y, float).reshape(-1, n), x, wanted, level), (kind, k, n, len(x))
        for x, y in zip(endless, told[len(xs) :], strict=True):
            with np.errstate(invalid="ignore"):
                finite = np.isfinite(x.astype(float) @ wanted)
            assert (np.array([v is not None for v in y]).reshape(-1, n) == finite).all(), (kind, k, n, len(x))
