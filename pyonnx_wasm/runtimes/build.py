"""Whether a core was built from the sources that lie here: what a Program means may have changed since, with no table to show it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "kernels" / "cpp" / "core"


@cache
def stamp() -> int:
    """A number for the sources of the core's executor, which ``pwx_build`` gives of a build; 0 where there are none, as in a wheel."""
    files = sorted(p for p in SOURCES.glob("*") if p.suffix in (".h", ".cpp")) if SOURCES.is_dir() else []
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return int.from_bytes(digest.digest()[:4], "little") & 0x7FFFFFFF if files else 0


def other_build(built: int) -> str:
    """What an error of a Program that the core does not understand says besides, where the core is of other sources; "" where it is not."""
    if not stamp() or built == stamp():
        return ""
    return "; the core was built from other sources than those that lie here: run `make build`"
