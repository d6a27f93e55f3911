"""Compiling takes time in proportion to the nodes, and gives the same bytes whenever it is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from onnx import TensorProto, helper

from pyonnx_wasm.bench import graphs
from pyonnx_wasm.compiler import compile
from pyonnx_wasm.testing import replay

ROOT = Path(__file__).parents[1]
MODELS = [*sorted((ROOT / "tests" / "data").glob("*.onnx")), ROOT / "js" / "pages" / "digits" / "digits.onnx"]


def model(op: str, inputs: Callable[[int], list[str]], nodes: int) -> bytes:
    made = [helper.make_node(op, inputs(i), [f"t{i + 1}"]) for i in range(nodes)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("t0", f"t{nodes}"))
    graph = helper.make_graph(made, op, [x], [y])
    found: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return found


def doubled(nodes: int) -> bytes:
    return model("Add", lambda i: [f"t{i}", f"t{i}"], nodes)


def outputs(nodes: int) -> bytes:
    """As many outputs as nodes."""
    made = [helper.make_node("Softmax", [f"t{i}"], [f"t{i + 1}"]) for i in range(nodes)]
    infos = [helper.make_tensor_value_info(f"t{i}", TensorProto.FLOAT, ["n"]) for i in range(nodes + 1)]
    graph = helper.make_graph(made, "outputs", infos[:1], infos[1:])
    found: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return found


def instructions(action: Callable[[], Any]) -> int:
    """How many instructions of the interpreter an action takes: a measure that does not depend on the machine."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "make", [graphs.chain, doubled, outputs, lambda n: graphs.decoder(layers=n // 32)], ids=["chain", "doubled", "outputs", "decoder"]
)
def test_work_is_in_proportion_to_the_nodes(make: Callable[[int], bytes]) -> None:
    counts = []
    for nodes in (64, 128, 256):
        source = make(nodes)
        compile(source, gpu=True)
        counts.append(instructions(lambda source=source: compile(source, gpu=True)))
    small, medium, large = counts
    assert large - medium <= 1.1 * 2 * (medium - small), counts


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_what_was_compiled_before_changes_nothing(path: Path) -> None:
    alone = dict(replay.digests([(path.stem, str(path))]))
    others = [(other.stem, str(other)) for other in reversed(MODELS) if other is not path]
    among = dict(replay.digests([*others, (path.stem, str(path))]))
    assert {name: among[name] for name in alone} == alone


def test_every_process_gives_the_same_bytes() -> None:
    """Sets and hashes have another order in each."""
    script = (
        "import json, sys; from pyonnx_wasm.testing import replay; "
        "print(json.dumps(dict(replay.digests([(path, path) for path in sys.argv[1:]]))))"
    )
    found = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", script, *map(str, MODELS)]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]


def test_importing_the_package_imports_no_compiler() -> None:
    script = "import sys, pyonnx_wasm; before = set(sys.modules); pyonnx_wasm.load; print(json.dumps([*before, '-', *sys.modules]))"
    done = subprocess.run([sys.executable, "-c", "import json; " + script], capture_output=True, text=True, check=True)
    names = json.loads(done.stdout)
    at = names.index("-")
    assert not [n for n in names[:at] if n.startswith(("pyonnx_wasm.session", "pyonnx_wasm.program", "numpy"))]
    assert not [n for n in names[at:] if n.startswith(("pyonnx_wasm.passes", "pyonnx_wasm.ops", "pyonnx_wasm.onnxfile", "pyonnx_wasm.gpu"))]
