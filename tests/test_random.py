"""Random operators: the generator word by word, the distributions, and what a seed fixes."""

import itertools
from typing import Any

import numpy as np
import pytest
from kernel_call import refused, run
from onnx import TensorProto, helper

import pyonnx_wasm as ort


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32-20 as the paper has it."""
    mask = 0xFFFFFFFF
    keys = (*key, 0x1BD11BDA ^ key[0] ^ key[1])
    a, b = (c + k & mask for c, k in zip(counter, keys, strict=False))
    rotations = itertools.cycle((13, 15, 26, 6, 17, 29, 16, 24))
    for r, by in zip(range(20), rotations, strict=False):
        a = a + b & mask
        b = (b << by | b >> 32 - by) & mask ^ a
        if r % 4 == 3:
            group = r // 4 + 1
            a, b = a + keys[group % 3] & mask, b + keys[(group + 1) % 3] + group & mask
    return a, b


def session(nodes: Any, inputs: Any = (), outputs: Any = ("y",), seed: int | None = None, provider: str = "cpu") -> ort.InferenceSession:
    given = [helper.make_tensor_value_info(n, t, shape) for n, t, shape in inputs]
    made = [helper.make_empty_tensor_value_info(n) for n in outputs]
    graph = helper.make_graph(nodes, "random", given, made)
    if seed is not None:
        ort.set_seed(seed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    return ort.InferenceSession(model.SerializeToString(), providers=[provider])


def uniform(**attributes: Any) -> Any:
    return helper.make_node("RandomUniform", [], ["y"], **{"shape": [1000], **attributes})


def test_the_reference_gives_what_the_paper_lists() -> None:
    assert threefry((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
    assert threefry((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF)) == (0x1CB996FC, 0xBB002BE7)
    assert threefry((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)) == (0xC4923A9C, 0x483DF7A0)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100_001])
@pytest.mark.parametrize("threads", [1, 3])
def test_words(n: int, threads: int) -> None:
    seed = 0x0370734413198A2E
    y = run("random", [("uint32", (n,))], [], threads, n=n, seeded=1, seed=seed)
    for i in {0, 1, n // 2, n - 2, n - 1} & set(range(n)):
        assert y[i] == threefry((seed & 0xFFFFFFFF, seed >> 32), (i // 2, 0))[i % 2]


def test_refuses_what_does_not_fit() -> None:
    for wrong in ({"n": 5}, {"n": -1}, {"n": 1 << 62}):
        refused("random", [("uint32", (4,))], [], **{"n": 4, "seeded": 0, "seed": 0, **wrong})
    refused("random", [("float32", (4,))], [], n=4, seeded=0, seed=0)


@pytest.mark.parametrize("provider", ["cpu", "wasmtime"])
def test_a_seed_fixes_the_numbers_of_all_runs(provider: str) -> None:
    first, again = session([uniform()], seed=7), session([uniform()], seed=7, provider=provider)
    runs = [first.run(None, {})[0] for _ in range(3)]
    words = [np.array([threefry((7, 0), (i // 2, stream))[i % 2] for i in range(4)], np.uint32) for stream in range(3)]
    for y, word, other in zip(runs, words, (again.run(None, {})[0] for _ in range(3)), strict=True):
        np.testing.assert_array_equal(y[:4], (word >> 8).astype(np.float32) / 2**24)
        np.testing.assert_array_equal(y, other)
    assert len({y.tobytes() for y in runs}) == 3
    following = session([uniform()]).run(None, {})[0]
    np.testing.assert_array_equal(following, session([uniform()], seed=8).run(None, {})[0])


def test_without_a_seed_nobody_knows_them() -> None:
    from pyonnx_wasm.runtimes import chance

    chance._next = None
    a, b = (session([uniform()]).run(None, {})[0] for _ in range(2))
    assert not np.array_equal(a, b)


def test_the_attribute_gives_the_same_in_each_run() -> None:
    made = session([uniform(seed=3.0)])
    np.testing.assert_array_equal(made.run(None, {})[0], made.run(None, {})[0])
    assert not np.array_equal(made.run(None, {})[0], session([uniform(seed=4.0)]).run(None, {})[0])


def test_every_step_of_a_loop_draws() -> None:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("RandomUniform", [], ["u"], shape=[4])],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, [])],
        [info("on", TensorProto.BOOL, []), info("u", TensorProto.FLOAT, [4])],
    )
    loop = helper.make_node("Loop", ["n", ""], ["y"], body=body)
    made = session([loop], [("n", TensorProto.INT64, [])], seed=1)
    y = made.run(None, {"n": np.array(50)})[0]
    assert y.shape == (50, 4)
    alone = session([uniform(shape=[4])], seed=1)
    np.testing.assert_array_equal(y, [alone.run(None, {})[0] for _ in range(50)])


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_distributions(dtype: int) -> None:
    n = 200_000
    flat = session([uniform(shape=[n], dtype=dtype, low=-2.0, high=4.0)], seed=5).run(None, {})[0].astype(np.float64)
    assert flat.min() >= -2
    assert flat.max() <= 4
    counts = np.histogram(flat, 30, (-2, 4))[0]
    assert ((counts - n / 30) ** 2 / (n / 30)).sum() < 70  # chi squared of 29 degrees: 1 in 30,000
    node = helper.make_node("RandomNormal", [], ["y"], shape=[n], dtype=dtype, mean=1.0, scale=3.0)
    z = (session([node], seed=6).run(None, {})[0].astype(np.float64) - 1) / 3
    assert np.isfinite(z).all()
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 5 * np.sqrt(spread / n) + 2e-3


def test_like_bernoulli_and_multinomial() -> None:
    like = session([helper.make_node("RandomNormalLike", ["x"], ["y"])], [("x", TensorProto.FLOAT16, ["n", 3])])
    assert like.run(None, {"x": np.zeros((5, 3), np.float16)})[0].dtype == np.float16
    p = np.repeat(np.array([0, 0.25, 1], np.float32), 40_000)
    drawn = session([helper.make_node("Bernoulli", ["x"], ["y"], dtype=TensorProto.INT32)], [("x", TensorProto.FLOAT, ["n"])], seed=2)
    shares = drawn.run(None, {"x": p})[0].reshape(3, -1).mean(1)
    np.testing.assert_allclose(shares, [0, 0.25, 1], atol=0.01)
    assert {shares[0], shares[2]} == {0, 1}
    with np.errstate(divide="ignore"):
        logits = np.log(np.array([[1, 2, 5, 0], [1, 0, 0, 0]], np.float32))
    many = session([helper.make_node("Multinomial", ["x"], ["y"], sample_size=40_000)], [("x", TensorProto.FLOAT, ["b", "c"])], seed=3)
    y = many.run(None, {"x": logits})[0]
    assert y.dtype == np.int32
    assert y.shape == (2, 40_000)
    np.testing.assert_allclose(np.bincount(y[0], minlength=4) / 40_000, [0.125, 0.25, 0.625, 0], atol=0.015)
    assert (y[1] == 0).all()


def test_dropout_of_data_and_of_constants() -> None:
    inputs = [("x", TensorProto.FLOAT, ["n"]), ("r", TensorProto.FLOAT, []), ("t", TensorProto.BOOL, [])]
    drop = session([helper.make_node("Dropout", ["x", "r", "t"], ["y", "m"])], inputs, ("y", "m"), seed=9)
    x = np.arange(1, 10_001, dtype=np.float32)
    for ratio in (0.0, 0.25, 0.9):
        y, mask = drop.run(None, {"x": x, "r": np.float32(ratio), "t": np.array(True)})
        np.testing.assert_allclose(y, np.where(mask, x / np.float32(1 - np.float32(ratio)), 0), rtol=1e-6)
        assert abs(mask.mean() - (1 - ratio)) < 0.02
        y, mask = drop.run(None, {"x": x, "r": np.float32(ratio), "t": np.array(False)})
        np.testing.assert_array_equal(y, x)
        assert mask.all()
