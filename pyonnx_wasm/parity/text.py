"""A report as a terminal and as other programs read it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .compare import Difference
from .report import Findings, Output

NEAR = 3  # layers shown before and after the first that diverges


def verdict(report: Findings) -> str:
    """One sentence."""
    others = ", ".join(report.backends)
    if report.agrees:
        verb = "agree" if len(report.backends) > 1 else "agrees"
        exact = all(d.excess == 0 for o in report.outputs for d in o.differences.values())
        return f"{others} {verb} with {report.reference}{', bit by bit' if exact else ''}"
    told = []
    for backend in report.backends:
        bad = [o.name for o in report.outputs if not o.differences[backend].agrees]
        layer = report.first_divergence(backend)
        if not bad and layer is None:
            continue
        what = f" in {', '.join(map(repr, bad))}" if bad else " inside, not in the outputs"
        first = f"; first at {layer.node!r} ({layer.operator}), value {layer.value!r}" if layer else ""
        told.append(f"{backend} diverges from {report.reference}{what}{first}")
    return "; ".join(told)


def table(report: Findings) -> str:
    """Verdict, inputs, errors per output, and the layers around the first that diverges."""
    lines = [f"{report.model}: {verdict(report)}", ""]
    lines += [f"  input {i.name}: {i.dtype} {list(i.shape)}, {i.contents}" for i in report.inputs]
    lines += [f"  {name} did not run: {reason}" for name, reason in report.skipped.items()]
    lines += ["", *_grid([_cells("output", o.name, o, backend, d) for o in report.outputs for backend, d in o.differences.items()])]
    for backend in report.backends if report.layers is not None else ():
        lines += ["", *_layers(report, backend)]
    if report.narrowed:
        lines += ["", *(f"  {line}" for line in report.narrowed.table().splitlines())]
    return "\n".join(lines)


def _layers(report: Findings, backend: str) -> list[str]:
    layers = report.layers or []
    first = report.first_divergence(backend)
    if first is None:
        peak = max(layers, key=lambda x: x.differences[backend].excess, default=None)
        worst = f"; the furthest off is {peak.node!r} at {peak.differences[backend].excess:.2g} of the tolerance" if peak else ""
        return [f"  {backend}: all {len(layers)} intermediate values agree{worst}"]
    at = layers.index(first)
    near = layers[max(0, at - NEAR) : at + NEAR + 1]
    rows = [{"node": f"{x.node} ({x.operator})", **_cells("value", x.value, x, "", x.differences[backend])} for x in near]
    return [f"  {backend} first diverges at {first.node!r} ({first.operator}), layer {at + 1} of {len(layers)}:", *_grid(rows)]


def _cells(kind: str, name: str, row: Any, backend: str, d: Difference) -> dict[str, str]:
    cells = {kind: name, "backend": backend, "type": f"{row.dtype.name} {list(row.shape)}"}
    if d.failure:
        return {**cells, "": f"FAILED: {d.failure}"}
    at = "" if d.at is None else f"[{', '.join(map(str, d.at))}]: {d.got:.6g} for {d.expected:.6g}"
    return {
        **cells,
        "max abs": f"{d.max_abs:.2g}",
        "max rel": f"{d.max_rel:.2g}",
        "max ulp": "" if d.max_ulp is None else f"{d.max_ulp:,}",
        "of tolerance": "∞" if math.isinf(d.excess) else f"{d.excess:.2g}",
        "wrong": f"{d.wrong:,} of {d.count:,}" if d.wrong else "",
        "worst": at,
        "": "" if d.agrees else "DIVERGES",
    }


def _grid(rows: list[dict[str, str]]) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows for column in row if any(r.get(column) for r in rows)))
    columns.sort(key=lambda column: column == "")
    widths = [max(len(column), *(len(row.get(column, "")) for row in rows)) for column in columns]
    text = [dict(zip(columns, columns, strict=True)), *rows]
    return ["  " + "  ".join(row.get(c, "").ljust(w) for c, w in zip(columns, widths, strict=True)).rstrip() for row in text]


def document(report: Findings) -> dict[str, Any]:
    """Plain data; infinite errors are the text ``"inf"``."""

    def errors(row: Any) -> dict[str, Any]:
        return {backend: {**_plain(dataclasses.asdict(d)), "agrees": d.agrees} for backend, d in row.differences.items()}

    def output(o: Output) -> dict[str, Any]:
        return {"name": o.name, "dtype": o.dtype.name, "shape": list(o.shape), "backends": errors(o)}

    return {
        "model": report.model,
        "agrees": report.agrees,
        "verdict": verdict(report),
        "reference": report.reference,
        "backends": report.backends,
        "skipped": report.skipped,
        "seed": report.seed,
        "tolerance": dataclasses.asdict(report.tolerance),
        "inputs": [dataclasses.asdict(i) for i in report.inputs],
        "outputs": [output(o) for o in report.outputs],
        "layers": None
        if report.layers is None
        else [
            {"value": x.value, "node": x.node, "operator": x.operator, "dtype": x.dtype.name, "shape": list(x.shape), "backends": errors(x)}
            for x in report.layers
        ],
        "narrowed": report.narrowed.json() if report.narrowed else None,
        "first_divergence": {b: layer.value for b in report.backends if (layer := report.first_divergence(b))},
    }


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in data.items()}
