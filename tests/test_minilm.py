from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyonnx_wasm

MODEL = Path(__file__).parents[1] / "build" / "models" / "minilm.onnx"


@pytest.fixture(scope="module")
def sessions() -> tuple[pyonnx_wasm.InferenceSession, onnxruntime.InferenceSession]:
    return pyonnx_wasm.InferenceSession(str(MODEL)), onnxruntime.InferenceSession(str(MODEL))


def feed(batch: int, seq: int) -> dict[str, NDArray[np.int64]]:
    rng = np.random.default_rng(batch * 1000 + seq)
    mask = np.ones((batch, seq), np.int64)
    mask[-1, seq // 2 + 1 :] = 0
    return {"input_ids": rng.integers(0, 30522, (batch, seq)), "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}


@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (1, 7), (3, 17), (8, 64), (2, 512), (5, 7)])
def test_agrees_with_onnxruntime(sessions: tuple[pyonnx_wasm.InferenceSession, onnxruntime.InferenceSession], batch: int, seq: int) -> None:
    ours, theirs = (session.run(None, feed(batch, seq)) for session in sessions)
    for got, want in zip(ours, theirs, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())
    np.testing.assert_allclose(np.linalg.norm(ours[1], axis=1), 1, atol=1e-5)
