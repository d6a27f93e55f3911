"""Makes the environments, runs the recipes, tells: see the package."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import pyonnx_wasm

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "batch"
GUIDE = ROOT / "docs" / "guides" / "batch.md"
SECONDS = 400
ROWS, PARTS, COLUMNS, HIDDEN, LAYERS = 60_000, 30, 64, 2048, 5

# What turns a recipe of two workers into one of so many, on this machine.
WORKERS = {
    "dask": ("n_workers=2", "n_workers={n}"),
    "ray": ("size=2", "size={n}"),
    "spark": ("SparkSession.builder.", 'SparkSession.builder.master("local[{n},4]").config("spark.ui.enabled", False).'),
}
WRITE = """
import sys, numpy as np, pandas as pd, pathlib
rows, parts, columns = map(int, sys.argv[1:])
x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
folder = pathlib.Path("rows.parquet"); folder.mkdir()
for k, ids in enumerate(np.array_split(np.arange(rows), parts)):
    pd.DataFrame({"id": ids, "x": list(x[ids])}).to_parquet(folder / f"part.{k}.parquet")
"""
READ = """
import json, numpy as np, pandas as pd
found = pd.read_parquet("scored.parquet").sort_values("id")
json.dump({"id": found["id"].tolist(), "y": np.stack(found["y"]).reshape(-1).tolist()}, open("scored.json", "w"))
"""


def engines() -> list[str]:
    return sorted(path.stem for path in (HERE / "requirements").glob("*.txt"))


def environment(name: str) -> Path:
    """The Python of an engine, made where its requirements changed."""
    wanted = (HERE / "requirements" / f"{name}.txt").read_bytes()
    folder = BUILD / f"venv-{name}-{hashlib.sha256(wanted).hexdigest()[:12]}"
    if not (folder / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        requirements = HERE / "requirements" / f"{name}.txt"
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", "-r", requirements], check=True)
        (folder / "done").touch()
    return folder / "bin" / "python"


def recipe(name: str) -> str:
    """The code of the guide's section on an engine."""
    found = re.search(rf"^## {name}.*?```python\n(.*?)```", GUIDE.read_text(), re.S | re.M | re.I)
    if not found:
        raise ValueError(f"{GUIDE} has no section on {name}")
    return found[1]


@cache
def model() -> tuple[bytes, np.ndarray]:
    """A row of `COLUMNS` numbers in, one out, 34 million operations between; and what comes out of all rows."""
    rng = np.random.default_rng(1)
    sizes = [COLUMNS, *[HIDDEN] * LAYERS, 1]
    weights = [(rng.standard_normal(s) / 2 / np.sqrt(s[0])).astype(np.float32) for s in pairwise(sizes)]
    nodes, last = [], "x"
    for k in range(len(weights)):
        nodes += [helper.make_node("MatMul", [last, f"w{k}"], [f"p{k}"]), helper.make_node("Tanh", [f"p{k}"], [f"t{k}"])]
        last = f"t{k}"
    nodes.append(helper.make_node("Squeeze", [last, "last"], ["y"]))
    values = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)] + [numpy_helper.from_array(np.array([1]), "last")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", COLUMNS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "score", [x], [y], values)
    expected = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    for w in weights:
        expected = np.tanh(expected @ w)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString(), expected[:, 0]


def run(name: str, workers: int, kill: bool) -> dict[str, Any]:
    """Runs a recipe.

    Raises:
        ValueError: rows are lost, or wrong, or a process had more than one session.
    """
    python = environment(name)
    data, expected = model()
    with tempfile.TemporaryDirectory(prefix=f"batch-{name}-") as folder:
        work, notes = Path(folder), Path(folder, "notes")
        notes.mkdir()
        if kill:
            (notes / "kill").touch()
        (work / "model.onnx").write_bytes(data)
        pyonnx_wasm.save(pyonnx_wasm.compile(work / "model.onnx"), work / "model.ponnx")
        old, new = WORKERS[name]
        text = recipe(name).replace("from pyonnx_wasm.batch import", "from observed import")
        if old not in text:
            raise ValueError(f"the recipe for {name} has no {old!r}")
        body = text.replace(old, new.format(n=workers))
        lines = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
        (work / "recipe.py").write_text(f'if __name__ == "__main__":\n{lines}' if name == "dask" else body)
        paths = os.pathsep.join([str(ROOT), str(HERE)])
        env = os.environ | {
            "PYTHONPATH": paths,
            "BATCH_NOTES": str(notes),
            "RAY_raylet_start_wait_time_s": "120",
            "PYSPARK_PYTHON": str(python),
        }

        def python_runs(*command: str) -> None:
            done = subprocess.run([str(python), *command], cwd=work, env=env, capture_output=True, text=True, timeout=SECONDS)
            if done.returncode:
                raise ValueError(f"{name}: {done.stderr[-3000:]}")

        python_runs("-c", WRITE, str(ROWS), str(PARTS), str(COLUMNS))
        python_runs("recipe.py")
        python_runs("-c", READ)
        scored = json.loads((work / "scored.json").read_text())
        if kill and not (notes / "killed").exists():
            raise ValueError(f"{name}: no worker was killed")
        told = [[json.loads(line) for line in path.read_text().splitlines()] for path in notes.glob("*.jsonl")]
    if scored["id"] != list(range(ROWS)):
        raise ValueError(f"{name}: {len(scored['id'])} of {ROWS} rows came back, {len(set(scored['id']))} of them different")
    np.testing.assert_allclose(scored["y"], expected, rtol=1e-4, atol=1e-5)
    return {"engine": name, "workers": workers, "killed": kill, **observed(name, told)}


def observed(name: str, told: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """What the processes noted, of those that ran batches."""
    batches = [[note for note in notes if "rows" in note] for notes in told]
    ran = [notes for notes in batches if notes]
    if any(note["sessions"] != 1 for notes in ran for note in notes):
        raise ValueError(f"{name}: a process made more than one session")
    received = max(sum("received" in note for note in notes) for notes, own in zip(told, batches, strict=True) if own)
    begin, end = max(notes[0]["begin"] for notes in ran), min(notes[-1]["end"] for notes in ran)
    rows = 0.0  # while all processes ran; of a batch that began before or ended after, its part
    for note in itertools.chain(*ran):
        inside = min(note["end"], end) - max(note["begin"], begin)
        rows += note["rows"] * max(inside, 0) / (note["end"] - note["begin"])
    return {"processes": len(ran), "received": received, "rows_per_second": rows / (end - begin) if end > begin else None}


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description="The batch recipes on the engines themselves.")
    options.add_argument("engines", nargs="*", help="default: all")
    options.add_argument("--json", action="store_true", help="print JSON")
    given = options.parse_args(argv)
    failed = False
    for name in given.engines or engines():
        for workers, kill in ((1, False), (2, False), (2, True)):
            try:
                found = run(name, workers, kill)
            except (ValueError, AssertionError, subprocess.SubprocessError) as error:
                failed = True
                print(f"{name}, {workers} workers{', one killed' if kill else ''}: FAILED: {error}", flush=True)
                continue
            if given.json:
                print(json.dumps(found), flush=True)
                continue
            rate = found["rows_per_second"]
            print(
                f"{name}, {workers} worker{'s' if workers > 1 else ''}{', one killed' if kill else ''}: {ROWS:,} of {ROWS:,} rows, "
                f"{found['processes']} processes, one session each, the model received {found['received']} times at most"
                f"{f', {rate:,.0f} rows/s' if rate and not kill else ''}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
