"""The house rules that a reader may rely on."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyonnx_wasm import ops
from pyonnx_wasm.op import KERNELS, OPERATORS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pyonnx_wasm"
LAYERS = (
    {"dtypes", "onnxfile"},
    {"ir"},
    {"op"},
    {"tensor"},
    {"ops"},
    {"passes"},
    {"program", "gpu", "runtimes", "compiler", "fold", "trace", "shapes", "toolchain"},
    {"values"},
    {"options"},
    {"session"},
    {"environment", "shim"},
    {"__init__", "cli", "inspect", "bench", "demo", "server", "testing", "parity", "__main__", "jupyter", "lab"},
)
LIMIT = 600

ops.load_all()


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def top(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The package's modules that a module imports when it is loaded."""
    found = set()
    depth = len(path.relative_to(PACKAGE).parts)
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            inside = depth - node.level
            name = node.module.split(".")[0] if node.module else None
            if inside == 0 and name:
                found.add(name)
            elif inside == 0:
                found |= {a.name for a in node.names}
    return found - {"__version__"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path: Path, apart: Callable[..., Any]) -> None:
    rank = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    here = top(path)
    assert here in rank, f"{here} has no layer: give it one in LAYERS"
    for name in apart(imports, path):
        assert rank.get(name, 0) <= rank[here], f"{here} imports {name}, which lies above it"


def test_every_kernel_has_its_source_and_every_source_its_declaration() -> None:
    sources = {p.stem for p in (ROOT / "kernels" / "cpp").glob("*.cpp")}
    assert sources == set(KERNELS)


def test_every_shader_has_its_cases_and_its_kernel() -> None:
    sources = {p.stem for p in (ROOT / "kernels" / "wgsl").glob("*.wgsl")}
    cases = {p.stem for p in (PACKAGE / "gpu" / "kernels").glob("*.py")} - {"__init__"}
    assert sources == cases
    assert sources <= set(KERNELS)


def test_passes_and_player_name_no_operator(apart: Callable[..., Any]) -> None:
    """Passes reason about kernels and traits; the player about neither."""
    apart(_names_no_operator)  # CPython 3.11's parser loses count of its depth on the stack that Playwright's greenlets share


def _names_no_operator() -> None:
    names = {n for _, n in OPERATORS}
    for path in sorted((PACKAGE / "passes").glob("*.py")):
        strings = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        assert not strings & names, f"{path.name} names operators"
    for path in sorted((ROOT / "js" / "player").rglob("*.ts")):
        words = set(re.findall(r'"(\w+)"', path.read_text()))
        assert not (words & (names | set(KERNELS))) - {"Tensor", "Identity", "map", "copy"}, f"{path.name} names operators or kernels"


def test_one_module_reads_the_words_of_programs() -> None:
    counting = re.compile(r"\b(?:code|words|w)\[(?:\d+|(?:code|words|w)\[.*)\]")
    found = {str(p.relative_to(PACKAGE)) for p in modules() if counting.search(p.read_text())}
    assert found == set()


def test_files_are_short() -> None:
    known = {"dims.py"}  # arithmetic and bounds of symbolic sizes call each other
    tracked = [
        *PACKAGE.rglob("*.py"),
        *(ROOT / "kernels").rglob("*.cpp"),
        *(ROOT / "kernels").rglob("*.h"),
        *(ROOT / "js" / "player").rglob("*.ts"),
    ]
    long = {p.name: n for p in tracked if (n := len(p.read_text().splitlines())) > LIMIT and p.name not in known}
    assert not long
