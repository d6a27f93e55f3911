import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import pyonnx_wasm
from pyonnx_wasm.runtimes import library

ROOT = Path(__file__).parents[1]
USED_TESTING = ("__init__", "chromium", "lab", "peer", "pyodide", "system")  # by bench and parity


def test_one_version() -> None:
    package, lock = (json.loads((ROOT / name).read_text()) for name in ("package.json", "package-lock.json"))
    assert {package["version"], lock["version"], version("pyonnx-wasm")} == {pyonnx_wasm.__version__}
    assert f"## {pyonnx_wasm.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_bundles_have_what_their_builds_define() -> None:
    """A constant that a build forgot is an error only where a page comes by it."""
    sources = [p.read_text("utf-8") for p in (ROOT / "js").rglob("*.*ts") if "dist" not in p.parts]
    constants = {name for text in sources for name in re.findall(r"declare const ([A-Z_]+)", text)}
    assert {"CORE_BUILD", "VERSION"} <= constants
    built = [p for folder in ("player", "pyodide", "widget") for p in (ROOT / "pyonnx_wasm" / "lib" / folder).rglob("*.*js")]
    loose = re.compile(rf"(?<![\w.$\"'`-])({'|'.join(sorted(constants))})(?![\w$\"'`:-])")
    assert len(built) > 10
    assert not {p.name: found for p in built if (found := set(loose.findall(p.read_text("utf-8"))))}


def test_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text()


def hatchling(source: Path, kind: str, folder: Path, **environment: str) -> None:
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYODIDE", "PYONNX_WASM_WHEEL")}
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, env=inherited | environment, check=True, capture_output=True)


def build(folder: Path, source: Path = ROOT, **environment: str) -> tuple[str, list[str], str]:
    """Builds a wheel; its tag, its files and its metadata."""
    hatchling(source, "wheel", folder, **environment)
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
    modules = {f"pyonnx_wasm/{p.relative_to(ROOT / 'pyonnx_wasm')}" for p in (ROOT / "pyonnx_wasm").rglob("*.py")}
    of_tests = {m for m in modules if m.startswith("pyonnx_wasm/testing/") and m.split("/")[2].removesuffix(".py") not in USED_TESTING}
    assert len(of_tests) > 20
    assert {n for n in names if n.endswith(".py")} == modules - of_tests
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert [line for line in required if "sys_platform != 'emscripten'" not in line] == ["Requires-Dist: numpy>=1.26"]
    for path in ("lib/widget/licences.txt", "lib/pyodide/tokenizer.licences.txt"):
        assert f"pyonnx_wasm/{path}" in names
        assert "@huggingface/tokenizers" in (ROOT / "pyonnx_wasm" / path).read_text("utf-8")


def test_native_wheel_has_the_core_and_the_tag_of_its_platform(tmp_path: Path) -> None:
    tag, names, _ = build(tmp_path, PYONNX_WASM_WHEEL="native")
    assert tag != "any"
    assert {f"pyonnx_wasm/lib/core-{isa}.{library.SUFFIX}" for isa in library.available()} <= set(names)
    assert "pyonnx_wasm/lib/player/core.wasm" in names


def test_a_wheel_of_no_platform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        build(tmp_path, PYONNX_WASM_WHEEL="vax-vms")
    assert b"PYONNX_WASM_WHEEL=vax-vms: it must be pure, native or one of x86_64-linux" in refused.value.stderr


def test_an_sdist_compiles_its_core(tmp_path: Path) -> None:
    """With the objects that this checkout has made, by which they are known; what compiling takes is asked of pip."""
    hatchling(ROOT, "sdist", tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path, filter="data")
    (source,) = (p for p in tmp_path.iterdir() if p.is_dir())
    assert not list(source.glob("pyonnx_wasm/lib/core*"))
    (source / "build").mkdir()
    (source / "build" / "obj").symlink_to(ROOT / "build" / "obj")
    tag, names, _ = build(tmp_path, source)
    assert tag != "any"
    assert {f"pyonnx_wasm/lib/core-{isa}.{library.SUFFIX}" for isa in library.available()} <= set(names)
    asked = "import hatchling.build as b; print(b.get_requires_for_build_wheel())"
    for folder, needs in ((ROOT, False), (source, False)):
        said = subprocess.run([sys.executable, "-c", asked], cwd=folder, capture_output=True, text=True, check=True).stdout
        assert ("ziglang" in said) == needs
    shutil.rmtree(source / "pyonnx_wasm" / "lib")
    assert "ziglang" in subprocess.run([sys.executable, "-c", asked], cwd=source, capture_output=True, text=True, check=True).stdout


def test_the_command_tells_its_version() -> None:
    said = subprocess.run([sys.executable, "-m", "pyonnx_wasm", "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"pyonnx-wasm {pyonnx_wasm.__version__}\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("from pyonnx_wasm.cli import main; main(['run', MODEL, '--backend', 'gpu'])", "for gpu: pip install 'pyonnx-wasm[gpu]'"),
        ("import pyonnx_wasm; pyonnx_wasm.InferenceSession(MODEL, providers=['wasmtime'])", "pip install 'pyonnx-wasm[wasmtime]'"),
        ("from pyonnx_wasm.cli import main; main(['parity', MODEL, '--backends', 'gpu'])", "for gpu: pip install 'pyonnx-wasm[gpu]'"),
        ("from pyonnx_wasm.cli import main; main(['parity', MODEL, '--backends', 'wasm'])", "pip install 'pyonnx-wasm[browser]'"),
        ("from pyonnx_wasm.toolchain import main; main(['native'])", "pip install 'pyonnx-wasm[toolchain]'"),
        ("from pyonnx_wasm.cli import main; main(['bench', '--native'])", "pip install onnx"),
    ],
    ids=["run", "wasmtime", "parity gpu", "parity wasm", "toolchain", "bench"],
)
def test_what_an_extra_brings_is_named_where_it_is_missing(command: str, said: str) -> None:
    """In a Python that has numpy and tqdm alone."""
    program = f"""
import importlib.metadata as metadata, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {ABSENT}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Missing())
import importlib.util as util
found, version = util.find_spec, metadata.version
util.find_spec = lambda name, *rest: None if name in {ABSENT} else found(name, *rest)
def version_of(name):
    if name in {ABSENT}:
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = version_of
MODEL = {str(ROOT / "js/pages/digits/digits.onnx")!r}
{command}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said in (done.stdout + done.stderr)


ABSENT = ("wgpu", "wasmtime", "playwright", "ziglang", "onnx", "onnxruntime", "anywidget", "ipywidgets")
