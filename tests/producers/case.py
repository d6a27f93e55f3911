"""What a producer hands over: a model and inputs, as files. Needs numpy alone, as it runs in the producers' environments."""

from __future__ import annotations

import json
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
    """

    name: str
    make: Callable[[], bytes]
    feeds: list[dict[str, np.ndarray]]
    tolerance: tuple[float, float] = (1e-4, 1e-4)


def write(cases: Iterator[Case], folder: Path) -> None:
    """Exports all cases into a folder, with an index of them."""
    folder.mkdir(parents=True, exist_ok=True)
    index: list[dict[str, Any]] = []
    for case in cases:
        row: dict[str, Any] = {"name": case.name, "tolerance": case.tolerance}
        try:
            (folder / f"{case.name}.onnx").write_bytes(case.make())
            for i, feed in enumerate(case.feeds):
                np.savez(folder / f"{case.name}.{i}.npz", **feed)
        except Exception as error:
            row["export"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
            traceback.print_exc(limit=-1)
        index.append(row)
    (folder / "index.json").write_text(json.dumps(index))


def main(models: Callable[[np.random.Generator], Iterator[Case]]) -> None:
    write(models(np.random.default_rng(0)), Path(sys.argv[1]))
