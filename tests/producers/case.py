"""What a producer hands over: a model and inputs, as files. Needs numpy alone, as it runs in the producers' environments."""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One export.

    Attributes:
        make: gives the model's bytes; what it raises is the exporter's own failure, and told as such.
        feeds: inputs by name, at two shapes.
        tolerance: relative and absolute, for floats.
        group: the part of the producer that it is counted with, such as one of two exporters.
    """

    name: str
    make: Callable[[], bytes]
    feeds: list[dict[str, np.ndarray]]
    tolerance: tuple[float, float] = (1e-4, 1e-4)
    group: str = ""


def wanted(name: str) -> bool:
    """Whether an export of this name is asked for: the command's second word is a pattern that is found in it."""
    return bool(re.search(sys.argv[2] if len(sys.argv) > 2 else "", name))


def write(cases: Iterator[Case], folder: Path) -> None:
    """Exports the cases that are wanted into a folder, with an index of all that were."""
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "index.json"
    rows: dict[str, Any] = {row["name"]: row for row in json.loads(index.read_text())} if sys.argv[2:] > [""] and index.exists() else {}
    for case in cases:
        if not wanted(case.name):
            continue
        row: dict[str, Any] = {"name": case.name, "group": case.group, "tolerance": case.tolerance}
        try:
            (folder / f"{case.name}.onnx").write_bytes(case.make())
            for i, feed in enumerate(case.feeds):
                np.savez(folder / f"{case.name}.{i}.npz", **feed)
        except Exception as error:
            row["export"] = reason(error)
            traceback.print_exc(limit=-1)
        rows[case.name] = row
        index.write_text(json.dumps(list(rows.values())))


def reason(error: BaseException) -> str:
    """The first line of what was raised at first."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:200]


def main(models: Callable[[np.random.Generator], Iterator[Case]]) -> None:
    write(models(np.random.default_rng(0)), Path(sys.argv[1]))
