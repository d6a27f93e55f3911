"""The house rules that a reader may rely on."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyonnx_wasm import ops
from pyonnx_wasm.registry import KERNELS, OPERATORS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pyonnx_wasm"
LAYERS = (
    {"dtypes", "onnxfile", "gguf", "source", "webassembly"},
    {"callbacks", "pictures"},
    {"ir"},
    {"registry"},
    {"tensor"},
    {"ops"},
    {"passes"},
    {"program", "gpu", "runtimes", "compiler", "fold", "trace", "shapes", "toolchain", "pending", "feeds", "inputs", "narrow"},
    {"values", "elsewhere", "custom"},
    {"interface"},
    {"variants"},
    {"options"},
    {"onward"},
    {"providers"},
    {"session"},
    {"generate"},
    {"environment", "shim", "batch"},
    {"__init__", "cli", "inspect", "javascript", "bench", "server", "endpoint", "testing", "parity", "__main__", "jupyter", "lab"},
)
LIMIT = 500

ops.load_all()


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def top(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def names(path: Path) -> str:
    """``ops.conv`` for ``ops/conv.py``, ``ops`` for ``ops/__init__.py``, "" for the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def imports(path: Path) -> set[str]:
    """The package's modules that a module imports, when it is loaded or within functions; not those it names in types alone."""
    every = set(map(names, modules()))
    here = names(path).split(".")
    package = here if path.name == "__init__.py" else here[:-1]
    found = set()
    tree = ast.parse(path.read_text())
    types = {n for branch in ast.walk(tree) if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test) for n in branch.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node not in types:
            base = [p for p in package if p][: len([p for p in package if p]) - node.level + 1]
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                inner = ".".join([*base, alias.name])
                found.add(inner if inner in every else ".".join(base))
    return found - {names(path)}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import one another (Tarjan's strongly connected components of more than one)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in order:
            visit(name)
    return [group for group in found if len(group) > 1]


def test_no_circle_of_modules(apart: Callable[..., Any]) -> None:
    graph = apart(lambda: {names(path): imports(path) for path in modules()})
    assert {"session", "jupyter.session"} <= graph.keys()
    assert "jupyter.session" in graph[""], "imports within functions count"
    assert circles(graph) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path: Path, apart: Callable[..., Any]) -> None:
    rank = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    here = top(path)
    assert here in rank, f"{here} has no layer: give it one in LAYERS"
    for name in {name.split(".")[0] for name in apart(imports, path)} - {""}:
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
    for path in sources(ROOT / "js" / "player"):
        words = set(re.findall(r'"(\w+)"', path.read_text()))
        assert not (words & (names | set(KERNELS))) - {"Tensor", "Identity", "map", "copy"}, f"{path.name} names operators or kernels"


def sources(folder: Path) -> list[Path]:
    """TypeScript, ``.mts`` included."""
    return sorted(p for p in folder.rglob("*ts") if p.suffix in (".ts", ".mts"))


def test_one_module_reads_the_words_of_programs() -> None:
    counting = re.compile(r"\b(?:code|words|w)\[(?:\d+|(?:code|words|w)\[.*)\]")
    found = {str(p.relative_to(PACKAGE)) for p in modules() if counting.search(p.read_text())}
    assert found == set()


@pytest.mark.parametrize("folder", sorted({p.parent for p in modules()}), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_folder_says_what_it_is(folder: Path, apart: Callable[..., Any]) -> None:
    """What lives there, what it may import, how one adds to it."""
    told = apart(lambda: ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))) or ""
    assert len(told.splitlines()) >= 3
    parent = apart(lambda: ast.get_docstring(ast.parse((folder.parent / "__init__.py").read_text()))) if folder != PACKAGE else ""
    assert "import" in told or "import" in (parent or "")
    assert re.search(r"\badded\b|\bnew\b|found by presence|\b[Aa]dding\b", told), "how does one add to it?"


def written_tests() -> list[Path]:
    return sorted(p for p in (ROOT / "tests").rglob("*.py") if "__pycache__" not in p.parts)


def test_files_are_short() -> None:
    tracked = [
        *PACKAGE.rglob("*.py"),
        *(ROOT / "kernels").rglob("*.cpp"),
        *(ROOT / "kernels").rglob("*.h"),
        *(p for p in sources(ROOT / "js") if "dist" not in p.parts),
        *written_tests(),
        *(ROOT / "tests").rglob("*.mjs"),
    ]
    long = {p.name: n for p in tracked if (n := len(p.read_text().splitlines())) > LIMIT}
    assert not long


def weak(tree: ast.AST) -> list[str]:
    """Lines of a test that wait for time to pass, where a condition or an event says when, and skips without a reason."""
    found = []
    polls = {id(n) for loop in ast.walk(tree) if isinstance(loop, ast.While) for n in ast.walk(loop)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"=> setTimeout\(\w+, \d{3,}\)", node.value):
            found.append(f"{node.lineno}: a page waits for time to pass")
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "time.sleep" and id(node) not in polls:
            found.append(f"{node.lineno}: sleeps outside of a loop that asks")
        if called == "asyncio.run" and not any(isinstance(n, ast.Lambda) and node is n.body for n in ast.walk(tree)):
            found.append(f"{node.lineno}: a loop inside of Playwright's; the fixture apart gives a thread")
        if called.endswith(".wait_for_timeout"):
            found.append(f"{node.lineno}: waits for time to pass")
        given = {k.arg for k in node.keywords}
        if called == "pytest.skip" and not node.args and "reason" not in given:
            found.append(f"{node.lineno}: skips without a reason")
        if re.fullmatch(r"pytest\.mark\.(skip|skipif|xfail)", called) and "reason" not in given:
            found.append(f"{node.lineno}: {called} without a reason")
    bare = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and re.fullmatch(r"pytest\.mark\.(skip|xfail)", ast.unparse(n)))
    calls = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return found + [f"{n.lineno}: {ast.unparse(n)} without a reason" for n in bare if id(n) not in calls]


def test_tests_wait_for_what_happens_and_skip_with_a_reason(apart: Callable[..., Any]) -> None:
    found = apart(lambda: {str(p.relative_to(ROOT)): lines for p in written_tests() if (lines := weak(ast.parse(p.read_text())))})
    assert not found
    sleeping = "while not done():\n    time.sleep(0.1)\ntime.sleep(1)\npage.wait_for_timeout(9)\nasyncio.run(f())\n"
    skipping = (
        "@pytest.mark.skip\n@pytest.mark.skipif(True)\ndef f(): pytest.skip()\n@pytest.mark.xfail(reason='a')\ndef g(): pytest.skip('b')\n"
    )
    assert [line.split(":")[0] for line in apart(lambda: weak(ast.parse(sleeping + skipping)))] == ["3", "4", "5", "7", "8", "6"]
