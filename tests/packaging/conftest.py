"""The npm package as users get it: its tarball, other runtimes, bundlers. What is installed for this stays in build/packages."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyonnx_wasm import toolchain

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILD = ROOT / "build" / "packages"
INSTALL_SECONDS = 300


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder that is published, made once in a test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with toolchain.alone("packages"):
        made = BUILD / ".published"
        if not made.exists() or made.read_text() != run:
            subprocess.run(["node", "js/pack.mjs"], cwd=ROOT, check=True, env=os.environ | {"PYTHON": sys.executable})
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(run)
    return ROOT / "build" / "npm"


def install(name: str) -> Path:
    """Installs the packages that `tests/packaging/<name>/package.json` lists, once; gives the folder. RuntimeError where npm cannot."""
    folder = BUILD / name
    wanted = HERE / name / "package.json"
    done = folder / ".installed"
    with toolchain.alone("packages"):
        if done.exists() and done.read_text() == wanted.read_text():
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, folder)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
        try:
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise RuntimeError(f"npm did not install {wanted.relative_to(ROOT)} within {INSTALL_SECONDS} s") from late
        if result.returncode:
            why = (result.stderr.strip() or "no reason given").splitlines()[-1]
            raise RuntimeError(f"npm cannot install {wanted.relative_to(ROOT)}: {why}")
        done.write_text(wanted.read_text())
    return folder


@pytest.fixture(scope="session")
def installed() -> Callable[[str], Path]:
    """:func:`install`, which skips where npm cannot."""

    def installed(name: str) -> Path:
        try:
            return install(name)
        except RuntimeError as error:
            pytest.skip(str(error))

    return installed
