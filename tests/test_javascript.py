"""The compiler as JavaScript: the same file, byte for byte, and the same words where it refuses."""

import hashlib
import json
import subprocess
from pathlib import Path

import gguf_architectures as architectures
import onnx
import pytest
from gguf_models import Tiny
from onnx import TensorProto, helper

from pyonnx_wasm import compiler
from pyonnx_wasm.javascript.__main__ import sources
from pyonnx_wasm.program.file import save
from pyonnx_wasm.testing import suite

ROOT = Path(__file__).parents[1]
HALF = ROOT / "tests" / "packaging" / "transformers_js" / "hub" / "writer" / "onnx" / "model_fp16.onnx"
MODELS = [*sorted((ROOT / "tests" / "data").glob("*.onnx")), ROOT / "js" / "pages" / "digits" / "digits.onnx", HALF]
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"
STRIDE = 23  # of the suite's cases, beside one of each operator family
FAMILIES = ("ai_onnx_ml", "resize", "loop", "if_", "scan", "sequence", "optional", "string", "lstm", "attention", "dft", "unique", "range")
CASED = "casesensintive"  # its tables are those of the Unicode that each Python, and each browser, has


def refused() -> dict[str, bytes]:
    """What is no model that can be compiled."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")

    def model(*nodes: onnx.NodeProto) -> bytes:
        graph = helper.make_graph(nodes, "g", [x], [y])
        made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
        return made

    good = model(helper.make_node("Relu", ["x"], ["y"]))
    return {
        "cut": good[:-9],
        "text": b"<!doctype html><title>404</title>",
        "unknown": model(helper.make_node("Frobnicate", ["x"], ["y"], name="frob")),
        "attribute": model(helper.make_node("Relu", ["x"], ["y"], alpha=1.0)),
        "inputs": model(helper.make_node("Add", ["x"], ["y"])),
        "shape": model(helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])),
    }


def ggufs(folder: Path) -> dict[str, bytes]:
    """Every architecture, blocks of each form, and what is damaged."""
    found = {name: architectures.write(name, folder / name).read_bytes() for name in architectures.CHECKED}
    found |= {kind: Tiny(kind).write(folder / kind).read_bytes() for kind in ("BF16", "Q4_1", "Q8_0", "Q6_K", "IQ4_NL")}
    found |= {"cut short": found["llama"][:-64], "header": found["llama"][:200], "lacks": found["llama"].replace(b"ffn_up", b"ffn_xx")}
    return {f"{name}.gguf": data for name, data in found.items()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """By file name."""
    cases = suite.cases()
    found = {path.stem: path.read_bytes() for path in (*MODELS, LIGHT)}
    found |= {case.name: case.model for case in cases[::STRIDE] if CASED not in case.name}
    for family in FAMILIES:
        found |= {case.name: case.model for case in [c for c in cases if family in c.name and CASED not in c.name][::7][:4]}
    return {f"{name}.onnx": data for name, data in (found | refused()).items()} | ggufs(tmp_path_factory.mktemp("gguf"))


def test_the_same_file_from_both(models: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    want = {}
    for name, model in models.items():
        path = Path(name)
        path.write_bytes(model)
        try:
            save(compiler.compile(path, gpu=True), "made", thin=True)
            want[str(path)] = hashlib.sha256(Path("made").read_bytes()).hexdigest()
        except ValueError as error:
            want[str(path)] = str(error).removeprefix(f"{path}: ")
    subprocess.run(["node", ROOT / "tests" / "compile_models.mjs", tmp_path, ROOT / "js" / "dist"], check=True, timeout=300)
    found = json.loads(Path("found.json").read_text())
    assert {name: text for name, text in found.items() if text != want[name]} == {}
    assert len(found) == len(models) > 100
    assert all(len(want[f"{name}.onnx"]) != 64 for name in refused())


def test_every_module_of_the_compiler_is_there() -> None:
    import sys

    apart = (
        "pyonnx_wasm.elsewhere",
        "pyonnx_wasm.narrow",
        "pyonnx_wasm.runtimes",
        "pyonnx_wasm.inputs",
        "pyonnx_wasm.feeds",
    )
    script = "import sys, pyonnx_wasm.compiler, pyonnx_wasm.gpu.lower; print(*[m for m in sys.modules if m.startswith('pyonnx_wasm')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {m for m in loaded if not m.startswith(apart)} - {"pyonnx_wasm"} <= set(sources())
