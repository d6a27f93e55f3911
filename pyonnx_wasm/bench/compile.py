"""How long compiling takes, of models that are made for it and of those named; each in a process of its own, where nothing is warm."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import graphs, report

AGAIN = 3
MINILM = Path("build/models/minilm.onnx")
_ALONE = """
import json, sys, time

def timed(action):
    start = time.process_time()
    action()
    return round((time.process_time() - start) * 1e3, 1)

def load():
    global compile, read
    from pyonnx_wasm.compiler import compile
    from pyonnx_wasm.onnxfile.reader import read

path, times = sys.argv[1], range(int(sys.argv[2]))
found = {"import_ms": timed(load), "first_ms": timed(lambda: compile(path, gpu=True)), "nodes": len(read(path).graph.nodes)}
found["gpu_ms"] = min(timed(lambda: compile(path, gpu=True)) for _ in times)
found["core_ms"] = min(timed(lambda: compile(path)) for _ in times)
print(json.dumps(found))
"""


def measure(name: str, path: Path) -> dict[str, Any]:
    """A row: processor time in milliseconds of importing the compiler, of the first compile with the GPU part, of the best of later ones,
    and of those without the GPU part."""
    done = subprocess.run([sys.executable, "-c", _ALONE, str(path), str(AGAIN)], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    row: dict[str, Any] = {"case": name, **json.loads(done.stdout)}
    row["us_per_node"] = round(row["gpu_ms"] * 1e3 / max(row["nodes"], 1), 1)
    return row


def _models(folder: Path, named: Sequence[Path], nodes: Sequence[int]) -> Iterator[tuple[str, Path]]:
    if named:
        yield from ((path.stem, path) for path in named)
        return
    made = {f"chain of {n:,}": graphs.chain(n) for n in nodes} | {"decoder of 12 layers": graphs.decoder()}
    for k, (name, model) in enumerate(made.items()):
        path = folder / f"{k}.onnx"
        path.write_bytes(model)
        yield name, path
    if MINILM.exists():
        yield "MiniLM", MINILM


def run(named: Sequence[Path], nodes: Sequence[int] = (1000, 10000), as_json: bool = False) -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory(prefix="pyonnx-wasm-bench-") as folder:
        rows = [measure(name, path) for name, path in _models(Path(folder), named, nodes)]
    if as_json:
        print(json.dumps({"mode": "compile", "machine": report.machine(), "cases": rows}))
        return
    cells = [
        {
            "case": row["case"],
            "nodes": f"{row['nodes']:,}",
            "import ms": f"{row['import_ms']:.0f}",
            "first ms": f"{row['first_ms']:.0f}",
            "again ms": f"{row['gpu_ms']:.0f}",
            "core alone ms": f"{row['core_ms']:.0f}",
            "µs per node": f"{row['us_per_node']:.0f}",
        }
        for row in rows
    ]
    print(report.table(cells))
