"""Models that need more than 4 GB run on a core with 64-bit addresses, which nothing else fetches."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_site import CACHE
from player_site import DIST, Run, dense, join, ramp, split

from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import browser, conformance

pytestmark = pytest.mark.browser
EVERY = 20  # of the conformance cases; the core is the same source for both widths
GB = 1 << 30


@pytest.fixture(scope="module")
def huge(player_models: Path) -> Path:
    """A model whose weights take 5 GB, as its header says; nobody gets as far as reading them."""
    header, body = split((player_models / "thin/odd.ponnx").read_bytes())
    weight = next(w for w in header["weights"] if "from" in w)
    weight["shape"], weight["bytes"] = [5 * GB // 4], 5 * GB
    path = player_models / "huge.ponnx"
    path.write_bytes(join(header, body))
    return path


def test_conformance_cases_on_64_bit_addresses(apart: Callable[..., Any]) -> None:
    listed = {name for name, (where, _) in conformance.read_list().items() if "wasm" in where}
    chosen = [case for case in conformance.cases()[::EVERY] if case.name not in listed]
    failed: dict[str, str] = {}

    def watch(case: conformance.Case, error: Exception | None) -> None:
        if error:
            failed[case.name] = str(error)

    apart(browser.run_browser, chosen, True, watch, memory64=True)
    assert len(chosen) >= 100
    assert failed == {}


@pytest.mark.parametrize("worker", [True, False])
def test_a_model_that_asks_for_it_runs_on_64_bit_addresses(watched: Callable[..., tuple[Run, Server]], worker: bool) -> None:
    """Beside one that does not, on threads of its own; weights from a file beside the model too."""
    run, server = watched(isolated=True)
    got = run(
        """
          env.wasm.numThreads = 2;
          const narrow = await create("dense.ponnx", { worker: arg });
          const before = await narrow.memoryBytes();
          env.wasm.memory64 = true;
          const wide = await create("thin/odd.ponnx", { worker: arg });
          const again = await create("big.ponnx", { worker: arg });
          const rows = [1, 40, 3];
          const y = [];
          for (const n of rows) for (const s of [narrow, wide]) y.push([...(await s.run({ x: x(n) })).y.data]);
          const ones = new Tensor("float32", new Float32Array(1024).fill(1), [1, 1024]);
          const { y: sums } = await again.run({ x: ones });
          const grown = (await again.memoryBytes()) - before;
          return { y, sum: sums.data[0], grown, threads: [narrow.threads, wide.threads] };
        """,
        worker,
    )
    for i, n in enumerate((1, 40, 3)):
        for found in got["y"][2 * i : 2 * i + 2]:
            np.testing.assert_allclose(np.array(found).reshape(n, 31), dense(ramp(n)), rtol=1e-5, atol=1e-5)
    assert got["sum"] == 512
    assert got["threads"] == [2, 2]
    assert got["grown"] > 24 << 20
    cores = [t.path for t in server.transfers if t.path.endswith(".wasm")]
    assert cores == ["/player/core-relaxed.wasm", "/player/core64-relaxed.wasm"]


def test_what_one_core_holds_is_copied_to_the_other(run: Run) -> None:
    """A decoder's cache, from a session on 32-bit addresses into one on 64."""
    got = run(
        CACHE
        + """
          const options = { worker: false, preferredOutputLocation: staying("wasm") };
          const narrow = await create("cache.ponnx", options);
          env.wasm.memory64 = true;
          const wide = await create("cache.ponnx", options);
          const tokens = [token(1, 2), token(1, 3), token(1, 2)];
          const found = [];
          for (const order of [[narrow, narrow, narrow], [narrow, wide, narrow], [wide, wide, narrow]]) {
            let past = empty(1);
            for (const [i, session] of order.entries()) ({ past } = await step(session, tokens[i], past));
            found.push(await Promise.all(past.map(async (tensor) => [...(await tensor.getData())])));
          }
          return found;
        """
    )
    for other in got[1:]:
        for mine, first in zip(other, got[0], strict=True):
            np.testing.assert_allclose(mine, first, rtol=1e-5, atol=1e-6)


def test_a_model_that_does_not_fit_is_told_with_its_size_and_a_cure(run: Run, huge: Path) -> None:
    told = run("env.wasm.memory64 = false; return error(create(arg))", huge.name)
    assert "the model's weights take 5.0 GB of WebAssembly's 4.0 GB, and env.wasm.memory64 is false" in told
    assert 'executionProviders: ["webgpu"]' in told


def test_without_memory64_as_well(player_models: Path, huge: Path) -> None:
    """Node.js has it from 24 on; a module that does not validate stands for an older one."""
    script = f"""
      WebAssembly.validate = () => false;
      const {{ InferenceSession }} = await import({json.dumps((DIST / "index.mjs").as_uri())});
      await InferenceSession.create({json.dumps(str(huge))}, {{ worker: false }}).catch((error) => console.log(error.message));
    """
    done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60)
    assert "the model's weights take 5.0 GB of WebAssembly's 4.0 GB, and there is no memory64 here" in done.stdout, done.stderr
    assert "Node.js from 24" in done.stdout
