"""PROGRAM.md says what another player needs: every kernel, enumeration, function of the core and shape operation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import wasmtime

from pyonnx_wasm import toolchain
from pyonnx_wasm.program import SHAPE_OPS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "pyonnx_wasm" / "program" / "PROGRAM.md").read_text()
SECTIONS = {m[1]: m[2] for m in re.finditer(r"^### (\w+)\n(.*?)(?=^### |^## |\Z)", TEXT, re.M | re.S)}
EPILOGUE = next(p for p in TEXT.split("\n\n") if p.startswith("**Epilogue**"))


def test_every_kernel_has_a_section_and_no_other() -> None:
    assert list(SECTIONS) == sorted(toolchain.declared()), "PROGRAM.md section 9: a section per kernel, in order"


@pytest.mark.parametrize("name", toolchain.declared())
def test_a_section_says_what_its_numbers_mean(name: str) -> None:
    kernel = toolchain.declared()[name]
    text = SECTIONS[name]
    assert len(text) > 40
    for enum in kernel.enums.values():
        where = EPILOGUE if enum.flag else text
        told = set(re.findall(r"\w+", where))
        if enum.name in ("Coordinates", "Nearest"):
            assert "ONNX Resize" in text
        elif enum.name not in ("Extreme", "Scan", "Interpolation"):
            assert not set(enum) - told, f"{name}: {enum.name} has members that its section does not name"


def test_every_function_of_the_core_is_told() -> None:
    texts = [f.read_text() for f in (ROOT / "kernels" / "cpp").rglob("*") if f.suffix in (".cpp", ".h")]
    exported = {name for text in texts for name in re.findall(r"EXPORT\((pwx_\w+)\)", text)}
    told = set(re.findall(r"^\| `.*?\b(pwx_\w+)\(", TEXT[TEXT.index("## 8.") :], re.M))
    assert told == exported


@pytest.mark.parametrize("name", ["core.wasm", "core-relaxed.wasm"])
def test_what_the_built_core_exports_is_told(name: str) -> None:
    """All that a host finds in the module: functions by section 8, and what threads need."""
    config = wasmtime.Config()
    config.wasm_threads = config.wasm_relaxed_simd = True
    module = wasmtime.Module.from_file(wasmtime.Engine(config), str(ROOT / "pyonnx_wasm" / "lib" / name))
    told = set(re.findall(r"`[^`]*?\b(_\w+|pwx_\w+)[^`]*`", TEXT[TEXT.index("## 8.") : TEXT.index("## 9.")]))
    assert {e.name for e in module.exports} == told
    assert [(i.module, i.name) for i in module.imports] == [("env", "memory")]


def test_every_shape_operation_is_told() -> None:
    table = TEXT[TEXT.index("**Shape code.**") : TEXT.index("**Storages.**")]
    assert not set(SHAPE_OPS) - set(re.findall(r"\w+", table))
