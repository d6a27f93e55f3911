"""A short run of the fuzzer; the long one is ``python -m pyonnx_wasm.testing.fuzz``."""

from pathlib import Path

import numpy as np

import pyonnx_wasm as ort
from pyonnx_wasm.testing import fuzz
from tests import custom_models as custom

DATA = Path(__file__).parent / "data"


def compiled(folder: Path) -> list[Path]:
    paths = []
    for name in ("decoder", "detector", "mobilenet"):
        paths.append(folder / f"{name}.ponnx")
        ort.save(ort.compile(DATA / f"{name}.onnx"), paths[-1])
    return paths


def test_mutations_end_in_a_result_or_an_exception(tmp_path: Path) -> None:
    report = fuzz.fuzz(compiled(tmp_path), 300, seed=20260101, progress=False)
    assert not report.crashes
    assert sum(report.outcomes.values()) == 300
    assert report.outcomes["ran"] > 10, "most mutations should not all be refused"
    assert report.outcomes["core error 1"] > 10, "the verifier should see most of them"


def test_damaged_modules_end_in_a_result_or_an_exception(tmp_path: Path) -> None:
    """WebAssembly that a file brings along: changed, it is refused, fails, or computes something else in a memory of its own."""
    paths = [tmp_path / "affine.ponnx", tmp_path / "positive.ponnx"]
    with custom.registered():
        custom.register("wasm")
        for path, model in zip(paths, (custom.affine_model(), custom.positive_model()), strict=True):
            ort.save(ort.compile(model), path)
    report = fuzz.fuzz(paths, 300, seed=20260101, progress=False)
    assert not report.crashes
    assert not report.long
    assert report.outcomes["ran"] > 10
    assert report.outcomes["CallbackError"] > 30, "most changes of a module are refused, or trap"


def test_a_case_is_reproducible(tmp_path: Path) -> None:
    data = compiled(tmp_path)[0].read_bytes()
    once, again = (fuzz.mutate(data, np.random.default_rng((3, 14))) for _ in range(2))
    assert once == again
    assert once != data
