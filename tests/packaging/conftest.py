"""The npm package as users get it: its tarball, other runtimes, bundlers. What is installed for this stays in build/packages."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILD = ROOT / "build" / "packages"
INSTALL_SECONDS = 300


@contextmanager
def alone() -> Iterator[None]:
    """One process of a test run at a time."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder that is published, made once in a test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with alone():
        made = BUILD / ".published"
        if not made.exists() or made.read_text() != run:
            subprocess.run(["node", "js/pack.mjs"], cwd=ROOT, check=True, env=os.environ | {"PYTHON": sys.executable})
            made.write_text(run)
    return ROOT / "build" / "npm"


def install(name: str) -> Path:
    """Installs the packages that `tests/packaging/<name>/package.json` lists, once; gives the folder. RuntimeError where npm cannot."""
    folder = BUILD / name
    wanted = HERE / name / "package.json"
    done = folder / ".installed"
    with alone():
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
