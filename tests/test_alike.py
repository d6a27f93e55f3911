"""Runs that are like the ones before them take a short way: they give what the whole way gives, and leave it where they are not alike."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import pyonnx_wasm as ort
from pyonnx_wasm import onward
from pyonnx_wasm.runtimes import core as native
from pyonnx_wasm.runtimes.core import CoreError

TEXT = """<ir_version: 9, opset_import: ["": 21]>
g (float[n,3] x, float[n,m] z, int64 i) => (float[n,k] y, float[n,m] s, float[p] last) {
    w = Constant <value = float[3,2] {1, 2, 3, 4, 5, 6}> ()
    a = Mul(x, x)
    y = MatMul(a, w)
    s = Sigmoid(z)
    last = Gather <axis = 0> (z, i)
}"""


def built(text: str = TEXT) -> bytes:
    return bytes(parser.parse_model(text).SerializeToString())


def session(text: str = TEXT, **options: Any) -> ort.InferenceSession:
    return ort.InferenceSession(built(text), ort.SessionOptions(intra_op_num_threads=1, **options))


def feed(rng: np.random.Generator, n: int = 4, m: int = 5, i: int = 0) -> dict[str, np.ndarray]:
    x, z = rng.standard_normal((n, 3), np.float32), rng.standard_normal((n, m), np.float32)
    return {"x": x, "z": z, "i": np.array(i)}


def wanted(f: dict[str, np.ndarray]) -> list[np.ndarray]:
    x, z = f["x"].astype(np.float64), f["z"].astype(np.float64)
    return [x * x @ np.array([[1, 2], [3, 4], [5, 6]]), 1 / (1 + np.exp(-z)), z[f["i"]]]


def right(found: list[np.ndarray], f: dict[str, np.ndarray]) -> None:
    for a, b in zip(found, wanted(f), strict=True):
        assert a.shape == b.shape
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each run that tried the short way, whether it could be gone."""
    gone: list[bool] = []
    run = onward.Alike.run

    def counted(self: onward.Alike, *args: Any) -> Any:
        found = run(self, *args)
        gone.append(found is not None)
        return found

    monkeypatch.setattr(onward.Alike, "run", counted)
    return gone


def test_alike_runs_go_the_short_way_with_new_numbers_and_new_arrays(short: list[bool]) -> None:
    rng, s, kept = np.random.default_rng(0), session(), []
    for _ in range(6):
        f = feed(rng, i=int(rng.integers(-4, 4)))
        kept.append((s.run(None, f), f))
    assert short == [True] * 5
    for found, f in kept:  # none was written over by a later run
        right(found, f)


def test_shapes_that_come_and_go(short: list[bool]) -> None:
    rng, s = np.random.default_rng(1), session()
    for n, m in [(4, 5), (4, 5), (4, 5), (2, 5), (4, 5), (4, 1), (4, 1), (4, 1), (0, 3), (0, 3), (4, 0), (4, 0), (4, 0), (7, 700), (4, 5)]:
        f = feed(rng, n, m)
        if n == 0:
            with pytest.raises(CoreError, match="out of range"):
                s.run(None, f)
        else:
            right(s.run(None, f), f)
    assert True in short
    assert False in short


def test_what_does_not_fit_goes_the_whole_way(short: list[bool]) -> None:
    rng, s = np.random.default_rng(2), session()
    f = feed(rng)
    for _ in range(3):
        right(s.run(None, f), f)
    assert short == [True, True]
    odd: list[dict[str, Any]] = [
        {**f, "x": f["x"].astype(">f4")},
        {**f, "x": np.asfortranarray(f["x"])},
        {**f, "z": np.repeat(f["z"], 2, 1)[:, ::2]},
        {**f, "i": 0},
        {**f, "i": np.int64(0)},
        {**f, "x": f["x"].view(np.ma.MaskedArray)},
    ]
    for each in odd:
        right(s.run(None, each), f)
    readonly = f["x"].copy()
    readonly.flags.writeable = False
    right(s.run(None, {**f, "x": readonly}), f)
    right(s.run(None, {**f, "x": ort.OrtValue.ortvalue_from_numpy(f["x"])}), f)
    assert short == [True, True, *[False] * len(odd), True, True]
    for wrong, text in [
        ({"x": f["x"], "z": f["z"]}, "input 'i' is missing"),
        ({**f, "q": f["x"]}, "no input is named 'q'"),
        ({"x": f["x"], "z": f["z"], "q": f["i"]}, "input 'i' is missing"),
        ({**f, "x": f["x"].astype(np.float64)}, "input 'x'"),
        ({**f, "x": f["x"][0]}, "input 'x' takes rank 2"),
        ({**f, "x": f["x"][:, :2]}, "axis 1 must be 3"),
    ]:
        with pytest.raises((ValueError, CoreError), match=text):
            s.run(None, wrong)
    right(s.run(None, f), f)


def test_other_outputs_are_asked_for(short: list[bool]) -> None:
    rng, s = np.random.default_rng(3), session()
    f = feed(rng)
    for _ in range(3):
        right(s.run([], f), f)
    names = ["y", "s", "last"]
    for some in (["s"], ["last", "y"], ["last", "s", "y"], names, tuple(names)):
        for _ in range(3):
            for name, found in zip(some, s.run(some, f), strict=True):
                np.testing.assert_allclose(found, wanted(f)[names.index(name)], 1e-5, 1e-6)
    with pytest.raises(ValueError, match="no output is named 'q'"):
        s.run(["y", "q", "s"], f)
    assert short.count(True) == 2 + 3 + 3


def test_runs_that_fail_are_as_good_as_none(short: list[bool]) -> None:
    rng, s = np.random.default_rng(4), session()
    texts = []
    for i in (0, 0, 0, 9, 0, -5, 9, 1):
        f = feed(rng, i=i)
        if -4 <= i < 4:
            right(s.run(None, f), f)
            continue
        with pytest.raises(CoreError) as caught:
            s.run(None, f)
        texts.append(str(caught.value))
    assert len(texts) == 3
    assert texts[0] == texts[2]
    assert "out of range" in texts[0]
    with pytest.raises(CoreError) as caught:
        session().run(None, feed(rng, i=9))
    assert str(caught.value) == texts[0]
    assert short == [True] * 4


def test_other_uses_of_the_session_in_between(short: list[bool]) -> None:
    rng, s = np.random.default_rng(5), session()
    f, other = feed(rng), feed(rng, 9, 2)
    for between in (
        lambda: s.profile(other, runs=1),
        lambda: s.run_with_ort_values(None, {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in other.items()}),
        lambda: s._variants[()].bind([v.shape for v in other.values()], []),  # type: ignore[attr-defined]
        lambda: s._variants[()].core.limit(),  # type: ignore[attr-defined]
    ):
        for _ in range(3):
            right(s.run(None, f), f)
        between()
        right(s.run(None, f), f)
    assert short.count(True) >= 8


def test_a_run_that_was_ended_does_not_end_the_next(short: list[bool]) -> None:
    rng, s = np.random.default_rng(6), session()
    f = feed(rng)
    for _ in range(3):
        s.run(None, f)
    core = s._variants[()].core  # type: ignore[attr-defined]
    core.cancel()
    with pytest.raises(CoreError) as caught:
        s.run(None, f)
    assert caught.value.code == native.CANCELLED
    right(s.run(None, f), f)
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(RuntimeError, match="terminated"):
        s.run(None, f, options)
    right(s.run(None, f), f)
    core.close()
    with pytest.raises(ValueError, match="closed"):
        s.run(None, f)


def test_long_runs_can_be_interrupted_again(short: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    rng, s = np.random.default_rng(7), session()
    f = feed(rng)
    for _ in range(3):
        s.run(None, f)
    monkeypatch.setattr(native, "BRIEF", 0.0)  # each took longer than that
    for _ in range(4):
        right(s.run(None, f), f)
    assert short == [True, True, True]
    assert not s._variants[()].core.brief


def test_threads_of_a_host_take_turns() -> None:
    s = session()

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            f = feed(rng, *((4, 5) if seed % 2 else (int(rng.integers(1, 6)), 5)))
            right(s.run(None, f), f)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert threading.active_count() < 40


def test_random_numbers_go_on(short: list[bool]) -> None:
    text = """<ir_version: 9, opset_import: ["": 21]>
    g (float[n] x) => (float[n] y) { r = RandomUniformLike(x) y = Add(x, r) }"""
    zero = np.zeros(8, np.float32)
    found = {session_.run(None, {"x": zero})[0].tobytes() for session_ in [session(text)] for _ in range(9)}
    assert len(found) == 9
    assert short == [True] * 8


@pytest.mark.parametrize(
    "text",
    [
        # sizes by an input's contents
        """g (float[n] x, int64[1] k) => (float[m] y) { y = Expand(x, k) }""",
        # sizes by computed data
        """g (float[n] x, int64[1] k) => (int64[one,m] y) { s = Expand(x, k) y = NonZero(s) }""",
    ],
)
def test_sizes_from_data_never_do(text: str, short: list[bool]) -> None:
    s = session('<ir_version: 9, opset_import: ["": 21]>' + text)
    for k in (3, 3, 3, 5, 5, 3, 1):
        (y,) = s.run(None, {"x": np.ones(1, np.float32), "k": np.array([k])})
        assert y.shape[-1] == k
    assert not short


def test_profiles_know_of_each_run(short: list[bool], tmp_path: Any) -> None:
    s = session(enable_profiling=True, profile_file_prefix=str(tmp_path / "trace"))
    f = feed(np.random.default_rng(8))
    for _ in range(5):
        right(s.run(None, f), f)
    assert len(s._traces) == 5
    assert not short


def test_narrow_numbers_strings_and_sequences() -> None:
    for kind, of in [("float16", np.float16), ("int8", np.int8), ("bool", np.bool_), ("uint64", np.uint64)]:
        s = session(f'<ir_version: 9, opset_import: ["": 21]> g ({kind}[n] x) => ({kind}[n] y) {{ y = Identity(x) }}')
        for values in ([1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0]):
            np.testing.assert_array_equal(s.run(None, {"x": np.array(values, of)})[0], np.array(values, of))
    s = session('<ir_version: 9, opset_import: ["": 21]> g (string[n] x) => (string[n] y) { y = Identity(x) }')
    for word in "abcd":
        assert s.run(None, {"x": np.array([word, "é"], object)})[0].tolist() == [word, "é"]
    s = session('<ir_version: 9, opset_import: ["": 21]> g (seq(float[n]) x) => (int64 y) { y = SequenceLength(x) }')
    for n in (2, 2, 2, 3):
        assert s.run(None, {"x": [np.zeros(2, np.float32)] * n})[0] == n


def test_four_bits_never_do(short: list[bool]) -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT4, ["n"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Cast", ["x"], ["y"], to=1)], "g", [x], [y])
    data = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    s = ort.InferenceSession(data)
    import ml_dtypes

    for values in ([1, -8, 7], [1, 2, 3], [1, 2, 3], [7, 7, 7]):
        np.testing.assert_array_equal(s.run(None, {"x": np.array(values, ml_dtypes.int4)})[0], np.array(values, np.float32))
    assert not short


def test_there_is_no_chain_without_states() -> None:
    s = session()
    f = feed(np.random.default_rng(9))
    for _ in range(2):
        s.run_with_ort_values(None, {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in f.items()})
        assert s.chain({}) is None


def test_values_and_bindings_go_the_short_way_too(short: list[bool]) -> None:
    rng, s = np.random.default_rng(10), session()
    names = ["y", "s", "last"]
    for _ in range(4):
        f = feed(rng)
        values = {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in f.items()}
        right([v.numpy() for v in s.run_with_ort_values(None, values)], f)
    assert short == [True] * 3
    binding, place = s.io_binding(), ort.OrtValue.ortvalue_from_shape_and_type((4, 2))
    binding.bind_ortvalue_output("y", place)
    for name in names[1:]:
        binding.bind_output(name)
    f = feed(rng)
    for name, array in f.items():
        binding.bind_cpu_input(name, array)
    kept = []
    for _ in range(3):
        f["x"][...] = rng.standard_normal((4, 3), np.float32)  # read anew by each run
        s.run_with_iobinding(binding)
        right([v.numpy() for v in binding.get_outputs()], f)
        np.testing.assert_array_equal(place.numpy(), binding.get_outputs()[0].numpy())
        kept.append(binding.get_outputs()[1].numpy())
    assert short == [True] * 6
    assert len({id(array) for array in kept}) == 3


def test_a_value_of_another_type_over_the_same_bits_is_refused(short: list[bool]) -> None:
    s = session('<ir_version: 9, opset_import: ["": 21]> g (uint16[n] x) => (uint16[n] y) { y = Identity(x) }')
    bits = np.arange(4, dtype=np.uint16)
    for _ in range(2):
        np.testing.assert_array_equal(s.run(None, {"x": bits})[0], bits)
    with pytest.raises(ValueError, match="input 'x' takes uint16, got bfloat16"):
        s.run(None, {"x": ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)})
    assert short == [True, False]


def test_no_more_shapes_are_remembered_than_allowed(short: list[bool]) -> None:
    rng, s = np.random.default_rng(11), session()
    for n in [*range(1, 2 * onward.MOST_SHAPES), *range(1, 9), *range(1, 9), *range(1, 9)]:
        f = feed(rng, n)
        right(s.run(None, f), f)
    assert s._onward._alike is not None
    assert len(s._onward._alike._seen) <= onward.MOST_SHAPES
    assert short[-8:] == [True] * 8
