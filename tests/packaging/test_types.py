"""The package's types: whole, valid on their own, and onnxruntime-web's."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from members import NOTES, PAGE, javascript_members, page

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
# Members of onnxruntime-common that this package has not, with the reason.
ABSENT: dict[str, str] = {}


@pytest.fixture(scope="module")
def project(installed: Callable[[str], Path], published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the package and what it depends on, beneath nothing else."""
    tools = installed("bundlers")
    root = tmp_path_factory.mktemp("types")
    (root / "node_modules").mkdir()
    (root / "node_modules/pyonnx-wasm").symlink_to(published)
    for name in ("onnxruntime-common", "@webgpu"):
        source = ROOT / "node_modules" if name == "onnxruntime-common" else tools / "node_modules"
        (root / "node_modules" / name).symlink_to(source / name)
    (root / "surface.ts").write_text((HERE / "types/surface.ts").read_text())
    return root


RESOLUTIONS = {"bundler": ("esnext", "bundler"), "nodenext": ("nodenext", "nodenext")}


@pytest.mark.parametrize("resolution", RESOLUTIONS)
@pytest.mark.parametrize(
    ("typescript", "webgpu"),
    # The newest declares WebGPU itself.
    [("typescript-5", False), ("typescript-5", True), ("typescript-newest", False)],
    ids=["5", "5 with @webgpu/types", "newest"],
)
def test_code_for_onnxruntime_compiles(
    installed: Callable[[str], Path], project: Path, typescript: str, resolution: str, webgpu: bool
) -> None:
    module, kind = RESOLUTIONS[resolution]
    options = {
        **{"strict": True, "skipLibCheck": False, "noEmit": True, "target": "es2022", "lib": ["es2022", "dom", "dom.iterable"]},
        **{"module": module, "moduleResolution": kind, "types": ["@webgpu/types"] if webgpu else [], "preserveSymlinks": True},
        "paths": {"onnxruntime-web": ["./node_modules/pyonnx-wasm/dist/index.d.ts"]},
    }
    config = project / f"tsconfig-{typescript}-{resolution}-{webgpu}.json"
    config.write_text(json.dumps({"compilerOptions": options, "files": ["surface.ts"]}))
    (project / "package.json").write_text('{ "type": "module" }')
    tsc = installed("bundlers") / "node_modules" / typescript / "bin" / "tsc"
    done = subprocess.run(["node", str(tsc), "-p", str(config)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_member_is_missing(installed: Callable[[str], Path], project: Path) -> None:
    """A table of onnxruntime-common's members, read from its declarations."""
    typescript = installed("bundlers") / "node_modules/typescript-5/lib/typescript.js"
    theirs = project / "node_modules/onnxruntime-common/dist/esm/index.d.ts"
    ours = project / "node_modules/pyonnx-wasm/dist/index.d.ts"
    members = javascript_members(typescript, theirs, ours)
    assert len(members) > 150
    assert {name for name, there in members.items() if not there} == set(ABSENT)
    assert page(members) == PAGE.read_text(), "run `python tests/members.py`"
    assert set(NOTES) <= set(members)


def test_checkers_of_packages(installed: Callable[[str], Path], project: Path) -> None:
    binaries = installed("bundlers") / "node_modules/.bin"
    done = subprocess.run([binaries / "publint", "--strict", "."], cwd=ROOT / "build/npm", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # A script for pages without modules has no types.
    command = [binaries / "attw", "--pack", ".", "--profile", "esm-only", "--exclude-entrypoints", "./pyonnx-wasm.js"]
    done = subprocess.run(command, cwd=ROOT / "build/npm", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((ROOT / "build/npm").glob("*.tgz")) == []
