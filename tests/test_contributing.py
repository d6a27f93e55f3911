"""What CONTRIBUTING.md tells a newcomer to type works as it stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyonnx_wasm import passes, registry, toolchain
from pyonnx_wasm.ir.text import parse_graph, print_graph
from pyonnx_wasm.registry import KERNELS, OPERATORS

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.M | re.S)
PYTHON = [code for kind, code in BLOCKS if kind == "python"]


@pytest.fixture
def registries() -> Iterator[None]:
    before = {**KERNELS}, {k: [*v] for k, v in OPERATORS.items()}
    yield
    for now, then in zip((registry.KERNELS, registry.OPERATORS), before, strict=True):
        now.clear()  # type: ignore[attr-defined]
        now.update(then)  # type: ignore[attr-defined]


def executed(code: str, package: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__package__": package, "__name__": f"{package}.example"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    return names


@pytest.mark.usefixtures("registries")
def test_the_operator() -> None:
    executed(PYTHON[0], "pyonnx_wasm.ops")
    executed(PYTHON[1], "tests")["test_bent_identity"]()


@pytest.mark.usefixtures("registries")
def test_the_pass() -> None:
    run = executed(PYTHON[2], "pyonnx_wasm.passes")["share_calls"]
    texts = next(code for kind, code in BLOCKS if not kind and code.startswith("### "))
    cases = re.findall(r"### [^\n]*\n(graph.*?\n})\n---\n(graph.*?\n}|the same)", texts, re.S)
    assert len(cases) == 2
    for before, after in cases:
        graph = parse_graph(before, KERNELS)
        passes.run(graph, [run])
        assert print_graph(graph) == (before if after == "the same" else after)


@pytest.mark.usefixtures("registries")
def test_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "BUILD", tmp_path)
    monkeypatch.setattr(toolchain, "unmatched", lambda kernels: ([], []))
    kernel = executed(PYTHON[3], "pyonnx_wasm.ops")["DIFFERENCE"]
    source = tmp_path / "difference.cpp"
    source.write_text(next(code for kind, code in BLOCKS if kind == "cpp"))
    builder = toolchain.Builder({"difference": kernel, "copy": KERNELS["copy"]}, lambda line: None, replaced={"difference": source})
    target = toolchain.native_targets(toolchain.host(), tmp_path)[0]
    builder.compile(target, source)
    assert builder.object_path(target, source).exists()
    assert "def test_difference" in PYTHON[4]
