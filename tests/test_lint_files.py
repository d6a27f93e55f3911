"""The hooks and editor settings say what `make lint` checks."""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_hooks_run_the_commands_of_make_lint() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    commands = [line.strip().lstrip("@").replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()[1:]]
    hooks = re.findall(r"entry: ([^,}]+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert [h.replace(" -q", "").strip() for h in hooks] == [c.replace(" -q", "") for c in commands]


def test_editors_know_the_widths() -> None:
    sections = dict(re.findall(r"^\[(.+)\]\n((?:\w.*\n)+)", (ROOT / ".editorconfig").read_text(), re.M))
    width = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["line-length"]
    assert f"max_line_length = {width}\n" in sections["*.py"]
    prettier = json.loads((ROOT / "package.json").read_text())["prettier"]["printWidth"]
    assert f"max_line_length = {prettier}\n" in sections["*.{ts,mts,mjs,json,css,html}"]
