"""Convolutions of bytes by 3 x 3 windows of stride 1, on every build that runs here: exact, whatever the image and the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_call import BUILDS, run, use

from pyonnx_wasm.ops.quantized import packed_size

Array = np.ndarray[Any, Any]
MOST = 2**18 - 1  # absolute weights of an output channel, added up: more is added up tap by tap


def convolved(x: Array, w: Array, zero: int, pads: tuple[int, int, int, int]) -> Array:
    """int64 [n, oh, ow, m] of x [n, h, w, c] and w [3, 3, c, m]; `pads`: above, to the left, below, to the right."""
    x = np.pad(x.astype(np.int64) - zero, ((0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)))
    oh, ow = x.shape[1] - 2, x.shape[2] - 2
    made = np.zeros((x.shape[0], oh, ow, w.shape[3]), np.int64)
    for i in range(3):
        for j in range(3):
            made += x[:, i : i + oh, j : j + ow] @ w[i, j].astype(np.int64)
    return made


def check(
    x: Array,
    w: Array,
    zero: int,
    pads: tuple[int, int, int, int],
    threads: int = 1,
    bias: Array | None = None,
    room: bool = True,
    wzero: Array | None = None,
) -> None:
    n, height, width, c = x.shape
    m = w.shape[3]
    out = [1, height + pads[0] + pads[2] - 2, width + pads[1] + pads[3] - 2]
    sizes = packed_size(9 * c, m)
    if not room:  # as in Programs that were made before there was any for what is known of the weights
        sizes = sizes[0], -(-m // 16) * 16
    k = 9 * c
    panels, sums = run("qpack", [(w.dtype, (sizes[0],)), ("int32", (sizes[1],))], [w.reshape(k, m), None], threads, k=k, n=m, rs=m, cs=1)
    call = {"n": n, "c": c, "m": m, "group": 1, "in": [1, height, width], "kernel": [1, 3, 3], "stride": [1, 1, 1], "dilation": [1, 1, 1]}
    call["wzero_ms"] = int(wzero is not None and wzero.size > 1)
    ins = [x, panels, sums, np.array([zero], x.dtype), wzero, np.ones(1, np.float32), bias]
    y = run("qconv_last", [("float32", (n, *out[1:], m))], ins, threads, pad=[0, *pads[:2]], out=out, **call)
    want = convolved(x, w.astype(np.int64) - (0 if wzero is None else wzero.astype(np.int64)), zero, pads).astype(np.float32)
    np.testing.assert_array_equal(y, want if bias is None else want + bias)


@pytest.fixture(params=BUILDS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use(request.param, monkeypatch)
    return str(request.param)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("seed", range(12))
def test_sizes(isa: str, dtype: str, seed: int) -> None:
    """Images, channels and pads of any size: tiles that are cut off, panels of one to three vectors, chunks of many tiles."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    n, c, m = int(rng.integers(1, 4)), int(rng.choice([8, 12, 20, 32, 36, 64, 100])), int(rng.choice([1, 4, 7, 12, 13, 16, 31, 48, 50]))
    height, width = (int(v) for v in rng.integers(1, 18, 2))
    pads = tuple(int(rng.integers(max(0, 3 - size if late else 0), 4)) for late, size in ((0, 0), (0, 0), (1, height), (1, width)))
    if seed % 4 == 3:
        n, height, width, c = 1, 70, 41, 64
    x = rng.integers(info.min, info.max, (n, height, width, c), dtype, endpoint=True)
    w = rng.integers(-128, 128, (3, 3, c, m)).astype(np.int8)
    bias = rng.integers(-99, 99, m).astype(np.float32) * 2**20 if seed % 2 else None
    check(x, w, int(rng.integers(info.min, info.max + 1)), pads, 1 + seed % 3, bias)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("room", [True, False])
@pytest.mark.parametrize(("sign", "c"), [(-1, 228), (1, 232), (1, 264)])
def test_sums_as_large_as_can_be(isa: str, dtype: str, sign: int, c: int, room: bool) -> None:
    """Weights of one channel that add up to as much as is exact, and one more, with an image that makes the most of them; others beside."""
    rng, low = np.random.default_rng(c), np.iinfo(dtype).min
    for over in (0, 1):
        w = rng.integers(-5, 6, (9 * c, 14))
        left, taps = divmod(MOST + over, 9 * c)
        w[:, 5] = sign * (left + (rng.permutation(9 * c) < taps))
        assert np.abs(w[:, 5]).sum() == MOST + over
        for zero in (low, low + 128, low + 255):
            for fill in (low, low + 255):
                check(np.full((1, 9, 10, c), fill, dtype), w.astype(np.int8).reshape(3, 3, c, 14), zero, (1, 1, 1, 1), room=room)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("seed", range(6))
def test_zero_points_of_weights(isa: str, dtype: str, seed: int) -> None:
    """Of all channels or of each, anywhere in their range; of as many channels as are exact, and of too many."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    c, m = int(rng.choice([16, 32, 64, 112, 116, 256])), int(rng.choice([5, 13, 31]))
    for most in (30, 255):
        w = rng.integers(info.min, info.max, (3, 3, c, m), dtype, endpoint=True)
        w[..., 1], w[..., 2] = info.min, info.max
        middle = 128 + info.min
        wzero = rng.integers(max(middle - most, info.min), min(middle + most, info.max) + 1, m if seed % 2 else 1).astype(dtype)
        x = np.full((1, 9, 8, c), rng.choice([0, 255])) if seed % 3 else rng.integers(0, 256, (1, 9, 8, c))
        check(x.astype(np.uint8), w, int(rng.integers(0, 256)), (1, 1, 1, 1), 1 + seed % 2, None, seed < 4, wzero)


@pytest.mark.parametrize("over", [0, 1])
def test_sums_as_large_as_zero_points_leave(isa: str, over: int) -> None:
    c, zero = 120, 5
    w = np.zeros((9 * c, 14), np.int64)
    left, taps = divmod(MOST + over - 9 * c * zero, 9 * c)
    w[:, 3] = -left - (np.arange(9 * c) < taps)  # and zero points take as much away again
    for fill in (0, 255):
        check(
            np.full((1, 9, 10, c), fill, np.uint8),
            w.astype(np.int8).reshape(3, 3, c, 14),
            128,
            (1, 1, 1, 1),
            wzero=np.array([zero], np.int8),
        )


@pytest.mark.parametrize("c", [2048, 2052])
def test_more_channels_than_are_transformed(isa: str, c: int) -> None:
    rng = np.random.default_rng(c)
    x, w = rng.integers(0, 256, (1, 12, 9, c)).astype(np.uint8), rng.integers(-9, 10, (3, 3, c, 5)).astype(np.int8)
    check(x, w, 100, (1, 1, 1, 1))


def test_weights_of_either_end(isa: str) -> None:
    """The largest numbers that transforms can give, and the smallest."""
    rng, c, m = np.random.default_rng(5), 32, 13
    ends = np.array([-128, 127])
    for _ in range(20):
        w = (rng.choice(ends, (3, 3, 1, m)) if rng.integers(2) else rng.choice(ends, (3, 3, c, m))) + np.zeros((c, 1), int)
        tile = rng.choice([0, 255], (1, 6, 6, 1 if rng.integers(2) else c)) + np.zeros(c, int)
        check(tile.astype(np.uint8), w.astype(np.int8), int(rng.choice([0, 3, 128, 255])), (0, 0, 0, 0))
