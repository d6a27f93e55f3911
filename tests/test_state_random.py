"""Several pasts in one model are not taken for one another."""

from typing import Any

import numpy as np
import pytest
from growing import Growing

import pyonnx_wasm as pw
from pyonnx_wasm.runtimes import state


@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "gpu"])
def test_pasts_of_other_lengths_are_not_taken_for_one_another(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LEAST_ROWS", 4)
    for seed in range(40 if backend == "cpu" else 12):
        rng = np.random.default_rng(seed)
        model = Growing(rng)
        session = pw.InferenceSession(model.model.SerializeToString(), providers=[backend])
        pasts: list[Any] = [pw.OrtValue(model.rows(rng, k, int(rng.integers(0, 9)))) for k in range(model.count)]
        for step in range(8):
            more = [model.rows(rng, k, int(rng.integers(0, 4))) for k in range(model.count)]
            arrays = [past.numpy() for past in pasts]
            fed = [pw.OrtValue(array) if rng.random() < 0.3 else past for past, array in zip(pasts, arrays, strict=True)]
            feed = {f"past{k}": fed[k] for k in range(model.count)} | {f"x{k}": pw.OrtValue(more[k]) for k in range(model.count)}
            names = [f"present{k}" for k in range(model.count)]
            found = session.run_with_ort_values(names, feed)
            for k, (past, new, got) in enumerate(zip(arrays, more, found, strict=True)):
                want = np.concatenate([past, new], model.axis[k])
                np.testing.assert_array_equal(got.numpy(), want, f"seed {seed}, step {step}, present{k} of {model.text}")
            pasts = found
