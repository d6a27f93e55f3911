import json
from importlib.metadata import version
from pathlib import Path

import pyonnx_wasm

ROOT = Path(__file__).parents[1]


def test_one_version() -> None:
    package, lock = (json.loads((ROOT / name).read_text()) for name in ("package.json", "package-lock.json"))
    assert {package["version"], lock["version"], version("pyonnx-wasm")} == {pyonnx_wasm.__version__}
    assert f"## {pyonnx_wasm.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text()
