"""The npm package as users get it: its tarball, other runtimes, bundlers. What is installed for this stays in build/packages."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILD = ROOT / "build" / "packages"
INSTALL_SECONDS = 300


@pytest.fixture(scope="session")
def installed() -> Callable[[str], Path]:
    """Installs the packages that `tests/packaging/<name>/package.json` lists, once; gives the folder. Skips where npm cannot."""

    def installed(name: str) -> Path:
        folder = BUILD / name
        wanted = HERE / name / "package.json"
        done = folder / ".installed"
        if done.exists() and done.read_text() == wanted.read_text():
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, folder)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
        try:
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install {wanted.relative_to(ROOT)} within {INSTALL_SECONDS} s")
        if result.returncode:
            pytest.skip(f"npm cannot install {wanted.relative_to(ROOT)}: {(result.stderr.strip() or 'no reason given').splitlines()[-1]}")
        done.write_text(wanted.read_text())
        return folder

    return installed
