"""The package in Node.js 20 and 24, Deno and Bun: real processes, which end by themselves."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import pyonnx_wasm
from pyonnx_wasm.testing import pyodide
from tests.player.player_site import spread

ROOT = Path(__file__).parents[2]
DIST = ROOT / "js" / "dist"
SCRIPT = Path(__file__).with_name("runtime.mjs")
RUNTIMES = {
    "node": ["node"],
    "node 24": ["node_modules/.bin/node"],
    "deno": ["node_modules/.bin/deno", "run", "-A"],
    "bun": ["node_modules/.bin/bun"],
}
SECONDS = 300  # of a machine with much else to do
NO_GPU_PART = "has no part for GPUs"
RNG = np.random.default_rng(7)
W = RNG.standard_normal((67, 31), dtype=np.float32)
X = (((np.arange(3 * 67) * 37) % 101) / np.float64(50) - 1).astype(np.float32).reshape(3, 67)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name is no address, with a model compiled, thin, and as it was."""
    root = tmp_path_factory.mktemp("models of 100% #1")
    infos = [helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 67), ("y", 31))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [numpy_helper.from_array(W, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), root / "dense.onnx")
    halves = [numpy_helper.from_array(w, name) for name, w in zip("ab", np.split(W, [40]), strict=True)]
    nodes = [helper.make_node("Concat", ["a", "b"], ["w"], axis=0), *nodes]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], halves)
    apart = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    spread(apart, root / "apart.onnx", ["apart 1.bin", "apart 2.bin"])
    compiled = pyonnx_wasm.compile(root / "dense.onnx")
    pyonnx_wasm.save(compiled, root / "dense.ponnx")
    pyonnx_wasm.save(compiled, root / "thin.ponnx", thin=True)
    return root


Runs = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module", params=list(RUNTIMES))
def runs(request: pytest.FixtureRequest, installed: Callable[[str], Path], models: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs a model in a runtime, from the models' folder."""
    environment = os.environ | {"NO_COLOR": "1", "XDG_RUNTIME_DIR": str(tmp_path_factory.mktemp("runtime"))}
    first, *rest = RUNTIMES[request.param]
    command = [shutil.which(first) or first if first == "node" else str(installed("hosts") / first), *rest]

    def runs(model: str = "dense.ponnx", kind: str = "path", player: Path = DIST / "index.mjs", **options: Any) -> dict[str, Any]:
        path = model if kind == "path" else str(models / model)
        asked = [*command, str(SCRIPT), player.as_uri(), path, kind, json.dumps(options)]
        done = subprocess.run(asked, cwd=models, capture_output=True, text=True, timeout=SECONDS, env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        got: dict[str, Any] = json.loads(done.stdout)
        return got

    return runs


def check(got: dict[str, Any], threads: int) -> None:
    assert "error" not in got, got["error"]
    assert got["threads"] == threads
    for y in got["y"]:
        np.testing.assert_allclose(np.array(y).reshape(3, 31), np.maximum(X @ W, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["path", "url", "url as text", "bytes", "stream"])
def test_sources(runs: Runs, kind: str) -> None:
    check(runs(kind=kind, threads=1), 1)


@pytest.mark.parametrize("worker", [True, False])
def test_threads(runs: Runs, worker: bool) -> None:
    check(runs(worker=worker, threads=2), 2)


@pytest.mark.parametrize("worker", [True, False])
def test_a_process_ends_although_its_session_is_not_released(runs: Runs, worker: bool) -> None:
    check(runs(worker=worker, threads=2, release=False), 2)


def test_by_default_half_the_processors_work(runs: Runs) -> None:
    check(runs(), min(4, -(-len(os.sched_getaffinity(0)) // 2)))


def test_the_player_in_one_piece(runs: Runs) -> None:
    check(runs(player=DIST / "all.mjs", threads=2), 2)


def test_weights_beside_the_model(runs: Runs) -> None:
    check(runs("thin.ponnx", threads=1), 1)


@pytest.mark.parametrize("worker", [True, False])
def test_weights_in_several_files(runs: Runs, worker: bool) -> None:
    check(runs("apart.onnx", externalData=["apart 2.bin", "apart 1.bin"], worker=worker, threads=1), 1)


def test_what_is_not_there_is_named(runs: Runs, models: Path) -> None:
    message = runs("no such file.ponnx")["error"]
    assert message.startswith((models / "no such file.ponnx").as_uri())
    assert "cannot be read" in message
    assert "ENOENT" in message or "No such file" in message


def test_onnx_models_are_compiled_without_pyodide(runs: Runs, models: Path) -> None:
    check(runs("dense.onnx", pyodide=str(models / "nowhere"), threads=1), 1)


def test_where_webgpu_is_missing_it_is_said(runs: Runs) -> None:
    """Deno may have it; the model then lacks its part for GPUs."""
    message = runs(executionProviders=["webgpu"], threads=1)["error"]
    assert "this runtime has no WebGPU" in message or "no adapter" in message or NO_GPU_PART in message


def test_what_the_translation_lacks_pyodide_compiles(models: Path, tmp_path: Path) -> None:
    """With a Pyodide from a folder, else an error says what is missing; the same in all runtimes, so in one of them."""
    player = tmp_path / "player"
    shutil.copytree(DIST, player)
    for wheel in player.glob("*.whl"):
        wheel.unlink()
    pyodide.build_wheel(player)
    (player / "compiler.mjs").unlink()

    def run(folder: Path) -> dict[str, Any]:
        options = {"pyodide": str(folder), "threads": 1}
        command = ["node", str(SCRIPT), (player / "index.mjs").as_uri(), "dense.onnx", "path", json.dumps(options)]
        done = subprocess.run(command, cwd=models, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        got: dict[str, Any] = json.loads(done.stdout)
        return got

    check(run(pyodide.distribution()), 1)
    message = run(models / "nowhere")["error"]
    assert "this is an ONNX model, and Pyodide, which would compile it, does not load from" in message
    cure = "env.pyodide.indexURL says where it is (outside of pages: the path of a folder of it, with numpy)"
    assert message.endswith(f"{cure}; or compile the model beforehand: pyonnx-wasm compile model.onnx")


def test_this_is_the_oldest_node() -> None:
    """The tests' own Node.js is one that package.json names as supported."""
    engines = json.loads((ROOT / "package.json").read_text())["engines"]["node"]
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    at_least = [int(part) for part in engines.removeprefix(">=").split(".")]
    assert [int(part) for part in version.strip().removeprefix("v").split(".")] >= at_least
