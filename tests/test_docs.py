"""The sources of the documentation: what they name is there, and their code is code. `make docs` builds them and follows every link."""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from pyonnx_wasm import ops
from pyonnx_wasm.registry import OPERATORS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NAMES = [str(p.relative_to(DOCS)) for p in PAGES]


def blocks(language: str) -> list[tuple[str, str]]:
    found = [(p, code) for p in PAGES for code in re.findall(rf"```{language}\n(.*?)```", p.read_text(), re.S)]
    return [(f"{p.relative_to(DOCS)}", code) for p, code in found]


def test_the_navigation_has_every_page() -> None:
    named = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(named) == sorted(NAMES)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_between_pages(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        if link.startswith("/"):
            assert link.split("/")[1] in ("demo", "lite", "javascript"), link
        else:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_is_python(page: str, code: str) -> None:
    compile(code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_javascript_is_javascript(tmp_path: Path) -> None:
    scripts = []
    for i, (_, code) in enumerate(blocks("js")):
        scripts.append(tmp_path / f"{i}.mjs")
        scripts[-1].write_text(code)
    build = "const { transformSync } = require('esbuild'); const { readFileSync } = require('fs');"
    check = f"{build} for (const f of {json.dumps(list(map(str, scripts)))}) transformSync(readFileSync(f, 'utf8'), {{ sourcefile: f }});"
    done = subprocess.run(["node", "-e", check], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_the_python_reference_names_is_there() -> None:
    for name in re.findall(r"^::: ([\w.]+)$", (DOCS / "reference/python.md").read_text(), re.M):
        module, _, member = name.rpartition(".")
        assert hasattr(__import__(module, fromlist=[member]), member), name


def test_the_table_of_operators_has_all() -> None:
    ops.load_all()
    sections = re.split(r"^## ", (DOCS / "reference/operators.md").read_text(), flags=re.M)[1:]
    listed = {(text.split("\n", 1)[0], row) for text in sections for row in re.findall(r"^\| (\w+) \| \d", text, re.M)}
    there = {(domain or "ai.onnx", name) for (domain, name), versions in OPERATORS.items() if not all(v.custom for v in versions)}
    assert listed == there, "run `python docs/build.py --operators`"
