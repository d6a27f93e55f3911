"""``python -m pyonnx_wasm.bench.tables README.md bench.json...``: writes what ``bench --json`` measured into a file's tables.

A table stands between ``<!-- bench: KIND -->`` and ``<!-- /bench -->``, where the kind is ``web wasm``, ``web webgpu``, ``dawn webgpu``,
``native`` or, of single operators, that with ``kernels`` behind it. What a document does not measure stays as it is.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .cases import titles
from .report import Row

_TABLE = re.compile(r"(<!-- bench: ([a-z0-9 ]+) -->\n)(.*?)(<!-- /bench -->)", re.S)


def write(text: str, documents: Sequence[Mapping[str, Any]]) -> str:
    """The text with the tables that the documents fill.

    Raises:
        ValueError: a document has no table there, or holds cases that failed.
    """
    tables: dict[str, str] = {}
    for document in documents:
        if bad := [row["case"] for row in document["cases"] if not row.get("agree")]:
            raise ValueError(f"{', '.join(bad)}: failed, which no table shows")
        for kernels in (False, True):
            rows = [row for row in document["cases"] if ("ours_gflops" in row) == kernels]
            if rows:
                tables[kind(document) + (" kernels" if kernels else "")] = (_kernels if kernels else _models)(rows, document)
    found = {match[2] for match in _TABLE.finditer(text)}
    if missing := sorted(tables.keys() - found):
        raise ValueError(f"there is no table '<!-- bench: {missing[0]} -->'; there are {', '.join(sorted(found)) or 'none'}")
    return _TABLE.sub(lambda match: match[1] + tables[match[2]] + match[4] if match[2] in tables else match[0], text)


def kind(document: Mapping[str, Any]) -> str:
    """What its markers call a document."""
    return "native" if document["mode"] == "native" else f"{document['mode']} {document['backend']}"


def _models(rows: Sequence[Row], document: Mapping[str, Any]) -> str:
    started = all("start_ratio" in row for row in rows)
    names = titles()
    lines = [_line(["model", "ours ms", f"{document['against']} ms", "speed", *(["start"] if started else [])])]
    lines.append(_rule(len(lines[0].split("|")) - 2))

    def cells(row: Row) -> list[str]:
        start = [f"{row['start_ratio']:.1f} ×"] if started else []
        return [names.get(row["case"]) or str(row["case"]), _ms(row["ours_ms"]), _ms(row["theirs_ms"]), f"{row['ratio']:.2f} ×", *start]

    wide, quantised = ([row for row in rows if row["quantised"] == wanted] for wanted in (False, True))
    lines += [_line(cells(row)) for row in wide]
    if len(wide) > 1:
        start = [f"**{_mean(wide, 'start_ratio'):.1f} ×**"] if started else []
        lines.append(_line(["geometric mean", "", "", f"**{_mean(wide, 'ratio'):.2f} ×**", *start]))
    lines += [_line(cells(row)) for row in quantised]
    return "\n".join(lines) + "\n"


def _kernels(rows: Sequence[Row], document: Mapping[str, Any]) -> str:
    names = titles()
    lines = [_line(["operator (`pyonnx-wasm bench --kernels`)", "ours GFLOPS", str(document["against"]), "speed"]), _rule(4)]
    for row in rows:
        name = names.get(row["case"]) or str(row["case"])
        lines.append(_line([name, f"{row['ours_gflops']:.1f}", f"{row['theirs_gflops']:.1f}", f"{row['ratio']:.2f} ×"]))
    return "\n".join(lines) + "\n"


def _mean(rows: Sequence[Row], key: str) -> float:
    return math.exp(statistics.fmean([math.log(row[key]) for row in rows]))


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _rule(columns: int) -> str:
    return "|" + "---|" * columns


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyonnx_wasm.bench.tables", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("document", type=Path, nargs="+", help="what `bench --json` printed")
    args = parser.parse_args(argv)
    try:
        text = write(args.file.read_text(encoding="utf-8"), [json.loads(path.read_text(encoding="utf-8")) for path in args.document])
    except ValueError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    args.file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
