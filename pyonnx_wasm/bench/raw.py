"""What a page pays that is given an ``.onnx`` file: until its first number, on a first and on a second visit, beside onnxruntime-web.

A first visit compiles the model, in the browser's worker; a second one, in the same browser, finds it compiled. Both sides fetch the
same file from the same server. Memory is the renderer's greatest, over that of an empty page.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import report
from .cases import Case
from .web import SIDES, Web

VISITS = ("first", "second")
ROUNDS = 3
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Raw(Web):
    """A browser whose pages are given models as they are."""

    def visits(self, case: Case, *, rounds: int = ROUNDS, tell: Callable[[str], None]) -> report.Row:
        """One row: milliseconds to the first results and processor time of the renderers, of both sides and visits; peaks of first ones."""
        compiled, _ = self._prepare(case)
        feed = case.feed(compiled.inputs)
        judged = self._by_parts(case, feed)
        rows = self._inputs(compiled, feed)
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        with self._serve(case.path.parent) as server:
            for i in range(rounds):
                for side in SIDES if i % 2 == 0 else SIDES[::-1]:
                    tell(f"{side}, round {i + 1}")
                    for visit, told in zip(VISITS, self._pair(server, side, case, rows), strict=True):
                        found.setdefault((side, visit), []).append(told)
            with self._page(server) as page:
                self._call(page, "feed", rows)
                for side in SIDES:
                    self._call(page, "open", *self._opening(side, case))
                judged = judged or self._call(page, "compare", SIDES)
        row: report.Row = {"case": case.name, "bytes": case.path.stat().st_size, **judged}
        for visit in VISITS:
            for key in ("ms", "cpu_ms"):
                middle = {side: statistics.median(told[key] for told in found[side, visit]) for side in SIDES}
                row.update({f"{side}_{visit}_{key}": round(middle[side], 1) for side in SIDES})
                row[f"{visit}_{key}_ratio"] = round(middle["theirs"] / middle["ours"], 3) if middle["ours"] else None
        for side in SIDES:
            peaks = [told["peak"] for told in found[side, "first"] if told["peak"]]
            row[f"{side}_peak_bytes"] = int(statistics.median(peaks)) if peaks else None
        return row

    def _pair(self, server: Any, side: str, case: Case, rows: list[dict[str, Any]]) -> list[dict[str, float]]:
        context = self._browser.new_context()
        told = []
        try:
            for _ in VISITS:
                page = context.new_page()
                page.goto(f"{server.url}bench/page.html")
                self._call(page, "feed", rows)
                before = self._renderers_ms()
                times = self._call(page, "open", *self._opening(side, case))
                after = self._renderers_ms()
                spent = sum(ms - before.get(process, 0.0) for process, ms in after.items())
                peak = max(0, (self._peak(page) or 0) - (self._empty_page or 0))
                told.append({"ms": sum(times.values()), "cpu_ms": spent, "peak": peak})
                self._call(page, "close")
                page.close()
        finally:
            context.close()
        return told

    def _renderers_ms(self) -> dict[str, float]:
        """Processor time of each renderer, all threads."""
        found = {}
        for renderer in self._renderers():
            with suppress(OSError):
                fields = (renderer / "stat").read_text().rpartition(")")[2].split()
                found[renderer.name] = (int(fields[11]) + int(fields[12])) * 1000 / TICKS
        return found

    def _opening(self, side: str, case: Case) -> list[Any]:
        _, told = super()._opening(side, case)
        return [side, {**told, "model": self._address(f"/models/{case.path.name}")}]


def cells(row: report.Row) -> dict[str, str]:
    """A row as a person reads it."""

    def pair(key: str, shown: Callable[[float], str]) -> str:
        values = [row[f"{side}_{key}"] for side in SIDES]
        return "" if None in values else " : ".join(map(shown, values))

    def ratio(key: str) -> str:
        return "" if row[key] is None else f"{row[key]:.2f}×"

    whole = "{:.0f}".format
    return {
        "case": row["case"],
        "first visit ms": pair("first_ms", whole),
        "ratio": ratio("first_ms_ratio"),
        "second ms": pair("second_ms", whole),
        "ratio ": ratio("second_ms_ratio"),
        "processor ms, first": pair("first_cpu_ms", whole),
        "ratio  ": ratio("first_cpu_ms_ratio"),
        "second": pair("second_cpu_ms", whole),
        "peak MB": pair("peak_bytes", lambda n: f"{n / 1e6:.0f}"),
        "file MB": f"{row['bytes'] / 1e6:.1f}",
        "agree": "yes" if row["agree"] else "WRONG",
    }
