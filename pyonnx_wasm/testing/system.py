"""System packages that tests need: installed where apt works and this user may, else named with the cure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from .. import toolchain


def apt(packages: tuple[str, ...], what: str) -> bool:
    """Installs Debian packages, saying one line; False where there is no apt, or no right to use it.

    Args:
        what: what they are, for the line that is printed.
    """
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    print(f"Installing {what}: {', '.join(packages)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with toolchain.alone("apt"):  # which fails where another one runs, and `make` installs several things at once
        _quietly(["apt-get", "update", "-qq"], environment)  # what is not up to date fails below
        return _quietly(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], environment)


def _quietly(command: list[str], environment: dict[str, str]) -> bool:
    """Runs a command; what it said is shown where it fails."""
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        print(f"{' '.join(command[:2])} failed:\n{done.stdout[-2000:]}", file=sys.stderr, flush=True)
    return done.returncode == 0
