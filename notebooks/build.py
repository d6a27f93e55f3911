"""Builds the JupyterLite site: ``python notebooks/build.py WHEEL OUTPUT``.

The site is static and asks no other host for anything: Pyodide, numpy, IPython, widgets and the project's wheel lie in it, and the
wheel is in Pyodide's lock file, so that ``import pyonnx_wasm`` loads it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from email import message_from_bytes
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from pyonnx_wasm import compile, save
from pyonnx_wasm.testing import pyodide

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGES = ROOT / "js" / "pages"
BESIDE = (PAGES / "digits" / "digits.onnx", PAGES / "search" / "sentences.txt", PAGES / "write" / "write.gguf", HERE / "helper.py")
MINILM = ROOT / "build" / "models"
CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "package.json")
# What notebooks import, and what that needs.
CARRIED = ("contourpy", "cycler", "fonttools", "kiwisolver", "matplotlib", "micropip", "numpy", "packaging", "pillow", "pyparsing",
           "python-dateutil", "pytz", "six", "typing-extensions")  # fmt: skip
# What IPython and the widgets need, besides what the distribution carries; in the versions of its lock file, where that names them.
FETCHED = ("anywidget==0.11.0", "asttokens", "comm==0.2.3", "decorator", "executing", "ipython", "ipywidgets==8.1.9", "jedi",
           "jinja2", "matplotlib-inline", "parso", "prompt-toolkit", "psygnal==0.15.1", "pure-eval", "pygments", "stack-data", "traitlets",
           "wcwidth")  # fmt: skip
# The lock file names a wheel of it that the distribution lacks; where no compiler is found, its source becomes one in plain Python.
WITHOUT_C = "markupsafe"
WIDGETS = ["anywidget", "ipywidgets", "psygnal", "typing-extensions"]
STARTED = ("comm", "ipython", "jedi")
# With these JupyterLab draws widgets; they come from this environment.
DRAWING = ("@jupyter-widgets/jupyterlab-manager", "anywidget")
EXTENSION = "@jupyterlite/pyodide-kernel-extension:kernel"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        staging = Path(folder)
        contents = staging / "contents"
        shutil.copytree(HERE, contents, ignore=lambda _, names: [n for n in names if not n.endswith(".ipynb")])
        for path in (*BESIDE, MINILM / "tokenizer.json"):
            shutil.copy(path, contents)
        # A quarter of its size: notebooks' files travel to Python as text.
        save(compile(MINILM / "minilm.onnx", weights="int8"), contents / "minilm.ponnx")
        distribution(args.wheel, staging / "static" / "pyodide")
        settings = {
            "pyodideUrl": "./static/pyodide/pyodide.mjs",
            "disablePyPIFallback": True,
            "loadPyodideOptions": {"lockFileURL": "./static/pyodide/pyodide-lock.json", "packages": list(STARTED)},
        }
        config = {"jupyter-lite-schema-version": 0, "jupyter-config-data": {"litePluginSettings": {EXTENSION: settings}}}
        (staging / "jupyter-lite.json").write_text(json.dumps(config))
        shutil.rmtree(args.output, ignore_errors=True)
        command = [
            "jupyterlite_core.app",
            "build",
            "--lite-dir",
            folder,
            "--contents",
            str(contents),
            "--output-dir",
            str(args.output.resolve()),
            f"--LiteBuildConfig.federated_extensions={args.wheel.resolve()}",
        ]
        done = subprocess.run(
            [sys.executable, "-m", *command, "--apps", "lab", "--no-sourcemaps"], cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"jupyter lite build failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    if missing := [name for name in DRAWING if not (args.output / "extensions" / name).exists()]:
        sys.exit(f"no JupyterLab extension {missing[0]} here: pip install -e '.[dev]'")
    print(f"{args.output}: {sum(p.stat().st_size for p in args.output.rglob('*') if p.is_file()):,} bytes")


def distribution(wheel: Path, folder: Path) -> None:
    """A Pyodide with what the kernel and the wheel need."""
    source = pyodide.distribution()
    lock = json.loads((source / "pyodide-lock.json").read_text())
    known = lock["packages"]
    folder.mkdir(parents=True)
    for name in CORE:
        shutil.copy(source / name, folder)
    packages: dict[str, Any] = {name: known[name] for name in CARRIED}
    for name in CARRIED:
        shutil.copy(source / known[name]["file_name"], folder)
    pinned = [name if "==" in name else f"{name}=={known[name]['version']}" for name in FETCHED]
    # Pure wheels, which no Python version changes.
    fetch = ["download", "-q", "--no-deps", "--only-binary=:all:", "--python-version=3.13", "--platform=any", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *fetch, "-d", str(folder), *pinned], check=True)
    pinned.append(f"{WITHOUT_C}=={known[WITHOUT_C]['version']}")
    built = ["wheel", "-q", "--no-deps", f"--no-binary={WITHOUT_C}", "--disable-pip-version-check", "--no-cache-dir"]
    subprocess.run([sys.executable, "-m", "pip", *built, "-w", str(folder), pinned[-1]], check=True, env={**os.environ, "CC": "false"})
    for requirement in pinned:
        name = requirement.partition("==")[0]
        (file,) = folder.glob(f"{name.replace('-', '[-_]')}-*.whl")
        packages[name] = {**known.get(name, {}), **entry(file, name, known[name]["depends"] if name in known else [])}
    shutil.copy(wheel, folder)
    packages["pyonnx-wasm"] = entry(folder / wheel.name, "pyonnx-wasm", ["numpy", "jinja2", *WIDGETS])
    (folder / "pyodide-lock.json").write_text(json.dumps({**lock, "packages": packages}))


def entry(wheel: Path, name: str, depends: list[str]) -> dict[str, Any]:
    """A wheel as the lock file lists it."""
    with ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        told = message_from_bytes(archive.read(metadata))
        modules = {n.partition("/")[0].removesuffix(".py") for n in archive.namelist() if n.endswith(".py")}
    return {
        "name": name,
        "version": told["Version"],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": sorted(modules),
        "depends": depends,
        "unvendored_tests": False,
    }


if __name__ == "__main__":
    main()
