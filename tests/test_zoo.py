"""Whole models against onnxruntime: one compile each, several shapes, fused and plain.

Tolerance: rtol 1e-3, atol 1e-4 of the output's scale.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import pyonnx_wasm as ort

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MINILM = ROOT / "build" / "models" / "minilm.onnx"
DIGITS = ROOT / "js" / "pages" / "digits" / "digits.onnx"

FIXED: list[dict[str, int]] = [{}]
CASES: dict[str, tuple[Path, list[dict[str, int]]]] = {
    "digits": (DIGITS, [{"batch": 1}, {"batch": 7}, {"batch": 64}]),
    "squeezenet": (LIGHT / "light_squeezenet.onnx", FIXED),
    "resnet50": (LIGHT / "light_resnet50.onnx", FIXED),
    "mobilenet": (
        DATA / "mobilenet.onnx",
        [{"height": 32, "width": 32}, {"batch": 2, "height": 45, "width": 33}, {"batch": 3, "height": 17, "width": 64}],
    ),
    "detector": (
        DATA / "detector.onnx",
        [{"height": 32, "width": 32}, {"batch": 2, "height": 64, "width": 48}, {"height": 96, "width": 32}],
    ),
    "vit": (DATA / "vit.onnx", [{"batch": 1}, {"batch": 2}, {"batch": 5}]),
    "decoder": (
        DATA / "decoder.onnx",
        [{"seq": 9, "past": 0}, {"seq": 1, "past": 9}, {"seq": 1, "past": 10}, {"batch": 3, "seq": 4, "past": 2}, {"seq": 9, "past": 0}],
    ),
    "minilm": (MINILM, [{"seq": 1}, {"batch": 2, "seq": 16}, {"batch": 8, "seq": 11}, {"seq": 128}]),
}


def feed(session: onnxruntime.InferenceSession, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    found = {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else sizes.get(d, 1) for d in i.shape]
        if "int" not in i.type:
            found[i.name] = rng.standard_normal(shape).astype(np.float32)
        elif "mask" in i.name:
            found[i.name] = (np.arange(shape[1]) < np.array([[shape[1] - r % 3] for r in range(shape[0])])).astype(np.int64) | (
                np.arange(shape[1]) < 1
            )
        else:
            found[i.name] = rng.integers(0, 2 if "type" in i.name else 97, shape)
    return found


def agree(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * max(float(np.abs(want).max(initial=0)), 1e-9))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimise", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str, optimise: bool) -> None:
    path, sizes = CASES[name]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    peer = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ours = ort.InferenceSession(path, ort.SessionOptions(enable_optimisation=optimise))
    for size in sizes:
        inputs = feed(peer, size)
        for got, want in zip(ours.run(None, inputs), peer.run(None, inputs), strict=True):
            agree(got, want)


def test_decoding_step_by_step_gives_the_prefill() -> None:
    """A cache that grows by one at a time, from one compile, ends where one long run ends."""
    s = ort.InferenceSession(DATA / "decoder.onnx")
    ids = np.random.default_rng(1).integers(0, 97, (1, 12))
    empty = {i.name: np.zeros((1, 4, 0, 8), np.float32) for i in s.get_inputs()[1:]}
    together = s.run(None, {"ids": ids, **empty})
    past, last = empty, None
    for t in range(12):
        out = s.run(None, {"ids": ids[:, t : t + 1], **past})
        last, past = out[0], dict(zip(past, out[1:], strict=True))
    assert last is not None
    agree(last[:, 0], together[0][:, -1])
    for got, want in zip(past.values(), together[1:], strict=True):
        agree(got, want)
