import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import pyonnx_wasm
from pyonnx_wasm.runtimes import core

ROOT = Path(__file__).parents[1]


def test_one_version() -> None:
    package, lock = (json.loads((ROOT / name).read_text()) for name in ("package.json", "package-lock.json"))
    assert {package["version"], lock["version"], version("pyonnx-wasm")} == {pyonnx_wasm.__version__}
    assert f"## {pyonnx_wasm.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text()


def build(folder: Path, **environment: str) -> tuple[str, list[str], str]:
    """Builds a wheel; its tag, its files and its metadata."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYODIDE", "PYONNX_WASM_WHEEL")}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env=inherited | environment, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(n).decode() for n in names if n.endswith(".dist-info/METADATA"))
    return wheel.stem.partition("-py3-none-")[2], names, metadata


@pytest.mark.parametrize("environment", [{"PYONNX_WASM_WHEEL": "pure"}, {"PYODIDE": "1"}], ids=["asked", "pyodide-build"])
def test_pure_wheel_is_small_and_whole(tmp_path: Path, environment: dict[str, str]) -> None:
    tag, names, metadata = build(tmp_path, **environment)
    assert tag == "any"
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 << 20
    lib = "pyonnx_wasm/lib/"
    assert {f"{lib}player/{n}" for n in ("index.mjs", "core.wasm", "core-relaxed.wasm")} | {f"{lib}pyodide/glue.js"} <= set(names)
    assert not [n for n in names if n.endswith((".so", ".dll", ".dylib", ".map"))]
    assert {f"pyonnx_wasm/{p.relative_to(ROOT / 'pyonnx_wasm')}" for p in (ROOT / "pyonnx_wasm").rglob("*.py")} <= set(names)
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert [line for line in required if "sys_platform != 'emscripten'" not in line] == ["Requires-Dist: numpy>=1.26"]


def test_native_wheel_has_the_core_and_the_tag_of_its_platform(tmp_path: Path) -> None:
    tag, names, _ = build(tmp_path, PYONNX_WASM_WHEEL="native")
    assert tag != "any"
    assert {f"pyonnx_wasm/lib/core-{isa}.{core.SUFFIX}" for isa in core.available()} <= set(names)
    assert "pyonnx_wasm/lib/player/core.wasm" in names


def test_a_wheel_of_no_platform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        build(tmp_path, PYONNX_WASM_WHEEL="vax-vms")
    assert b"PYONNX_WASM_WHEEL=vax-vms: it must be pure, native or one of x86_64-linux" in refused.value.stderr
