"""What narrower weights do in a page: a model of them beside the same model with its own, both ours.

Of a decoder a token is measured: its cache stays in the core, and each run takes what the one before left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import compiler, narrow
from ..program import Compiled
from ..program import file as ponnx
from ..program.view import ProgramView
from . import report
from .cases import Case
from .web import SIDES, Web


@dataclass(frozen=True)
class Narrowed(Case):
    """A case with weights of a form of :data:`narrow.LADDER`."""

    form: str = "int8"


class Narrow(Web):
    """A browser in which ``ours`` has narrower weights, ``theirs`` float32."""

    def measure(self, case: Case, *, limits: report.Limits, steps: int, tell: Callable[[str], None]) -> report.Row:
        """One row: milliseconds of a run, or of a token, bytes of the files, and what outputs lose."""
        assert isinstance(case, Narrowed)
        wide, _ = self._prepare(case)
        (self._work / "model.ponnx").rename(self._work / "wide.ponnx")
        self._compiled = None
        tell(f"narrowing to {case.form}")
        wish = narrow.Wish(case.form, sizes=case.dims, each=False)
        small = compiler.compile(case.path, weights=wish, gpu=self.backend == "webgpu")
        ponnx.save(small, self._work / "model.ponnx")
        feed = case.feed(wide.inputs)
        kept = caches(wide)
        with self._serve(case.path.parent) as server, self._page(server) as page:
            self._call(page, "feed", self._inputs(wide, feed))
            for side in SIDES:
                name, how = self._opening(side, case)
                how["options"]["preferredOutputLocation"] = {present: "cpu-pinned" for _, present in kept}
                self._call(page, "open", name, how)
            tell("run")
            sides = [partial(self._call, page, "tokens", side, kept) if kept else partial(self._block, page, side) for side in SIDES]
            row: report.Row = {"case": case.name, "quantised": True}
            row.update(report.paired(*report.pairs(sides, limits)))
            if steps:
                timed = self._call(page, "steps", "ours", 5)
                row["steps"] = report.slowest([(s["kernel"], s["name"], s["ms"]) for s in timed], steps)
        told = small.narrowed
        errors = told.errors if told else {}
        row["error"] = max(errors.values(), default=0.0)
        row["agree"] = told is not None and row["error"] <= told.bound
        row["ours_bytes"], row["theirs_bytes"] = ((self._work / name).stat().st_size for name in ("model.ponnx", "wide.ponnx"))
        return row

    def _opening(self, side: str, case: Case) -> list[Any]:
        model = self._address(f"/work/{'model' if side == 'ours' else 'wide'}.ponnx")
        _, told = super()._opening("ours", case)
        return [side, {**told, "model": model}]


def split(chosen: Sequence[Case], forms: Sequence[str]) -> list[Case]:
    """The cases with every form."""
    return [Narrowed(**{**vars(case), "name": f"{case.name}, {form}"}, form=form) for case in chosen for form in forms]


def caches(compiled: Compiled) -> list[tuple[str, str]]:
    """Inputs and outputs that hold what a decoder has read, by name: what an output gives, the next run's input takes."""
    states = ProgramView(compiled.main.code).states
    return [(compiled.inputs[s.past].name, compiled.outputs[s.output].name) for s in states]


def cells(row: report.Row) -> dict[str, str]:
    """A row as a person reads it."""
    return {
        "case": row["case"],
        "ms": report.milliseconds(row["ours_ms"]),
        "float32 ms": report.milliseconds(row["theirs_ms"]),
        "ratio": f"{row['ratio']:.2f}×",
        "file MB": f"{row['ours_bytes'] / 1e6:.1f} : {row['theirs_bytes'] / 1e6:.1f}",
        "error": ("" if row["agree"] else "WRONG ") + f"{row['error']:.0e}",
    }
