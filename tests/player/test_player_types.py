"""The player's declarations, as programs see them."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_values_of_all_kinds_are_typed() -> None:
    """Sequences, optionals, strings and maps as feeds and results; tensors alone where nothing is said, as in onnxruntime-web."""
    tsc = ROOT / "node_modules" / "typescript" / "bin" / "tsc"
    options = ["--ignoreConfig", "--noEmit", "--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext"]
    command = ["node", str(tsc), *options, "--lib", "es2022,dom", "--types", "", str(Path(__file__).with_name("values.ts"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
