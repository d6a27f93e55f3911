"""Whole models on the GPU against the core: one compile each, several shapes, every step on the GPU.

Tolerance: rtol 1e-3, atol 1e-4 of the output's scale.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from gpu_model import Array, assert_same, both

import pyonnx_wasm as ort

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
CASES: dict[str, tuple[Path, list[dict[str, int]]]] = {
    "vit": (DATA / "vit.onnx", [{"batch": 1}, {"batch": 3}]),
    "decoder": (
        DATA / "decoder.onnx",
        [{"seq": 9, "past": 0}, {"seq": 1, "past": 9}, {"batch": 3, "seq": 4, "past": 2}, {"seq": 40, "past": 0}],
    ),
    "mobilenet": (DATA / "mobilenet.onnx", [{"height": 32, "width": 32}, {"batch": 2, "height": 45, "width": 33}]),
    "minilm": (ROOT / "build" / "models" / "minilm.onnx", [{"seq": 1}, {"batch": 2, "seq": 13}]),
}


def feed(session: ort.InferenceSession, sizes: Mapping[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    found: dict[str, Array] = {}
    for given in session.get_inputs():
        shape = [d if isinstance(d, int) else sizes.get(str(d), 1) for d in given.shape]
        if "int" not in given.type:
            found[given.name] = rng.standard_normal(shape).astype(np.float32)
        elif "mask" in given.name:
            found[given.name] = np.tri(*shape, shape[1] - shape[0], dtype=np.int64)  # every row is one token longer
        else:
            found[given.name] = rng.integers(0, 2 if "type" in given.name else 97, shape)
    return found


@pytest.mark.parametrize("name", CASES)
def test_model(name: str) -> None:
    path, shapes = CASES[name]
    model = path.read_bytes()
    session = ort.InferenceSession(model)
    for pairs in both(model, *(feed(session, sizes) for sizes in shapes)):
        assert_same(pairs, rtol=1e-3, atol=1e-4)
