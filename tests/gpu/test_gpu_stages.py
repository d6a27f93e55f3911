"""Sizes that are data, branches and loops on the backend gpu."""

from collections.abc import Callable

import numpy as np
import pytest
from control_models import MODELS, Model, branches, count, counted, growing, info, loop_body, node, positions
from gpu_model import assert_same, both, graph

import pyonnx_wasm as ort
from pyonnx_wasm.runtimes.errors import CoreError


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_every_run_of_a_session_gives_what_the_core_gives(make: Callable[[], Model]) -> None:
    model, feeds = make()
    for pairs in both(model, *feeds, wholly=False):
        assert_same(pairs)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_the_same_unoptimised(make: Callable[[], Model]) -> None:
    model, feeds = make()
    options = ort.SessionOptions(enable_optimisation=False)
    core, gpu = (ort.InferenceSession(model, options, providers=[name]) for name in ("cpu", "gpu"))
    for feed in feeds[:2]:
        assert_same(list(zip(core.run(None, feed), gpu.run(None, feed), strict=True)))


def test_a_profile_says_where_each_step_ran() -> None:
    model, feeds = positions()
    profile = ort.InferenceSession(model, providers=["gpu"]).profile(feeds[0])
    assert {s.kernel for s in profile if s.backend == "cpu"} == {"nonzero"}
    assert {s.backend for s in profile if s.kernel in ("map", "gather_nd", "reduce")} == {"gpu"}
    model, feeds = counted()
    profile = ort.InferenceSession(model, providers=["gpu"]).profile(feeds[0])
    assert [s.kernel for s in profile].count("loop") == 1
    assert [s.kernel for s in profile if s.backend == "gpu"].count("reduce") == 5


def test_only_the_elements_that_a_stage_asks_for_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyonnx_wasm.runtimes.wgpu_device import Gpu

    model, feeds = branches()
    session = ort.InferenceSession(model, providers=["gpu"])
    sizes: list[list[int]] = []
    read = Gpu.read

    def watched(self: Gpu, wanted: list[tuple[object, int, int]]) -> list[np.ndarray]:
        sizes.append([size for _, _, size in wanted])
        return read(self, wanted)

    monkeypatch.setattr(Gpu, "read", watched)
    session.run(None, feeds[0])
    assert sizes == [[1], [feeds[0]["x"].nbytes]]


def test_a_loop_that_always_goes_on_reads_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyonnx_wasm.runtimes.wgpu_device import Gpu

    reads: list[int] = []
    read = Gpu.read
    monkeypatch.setattr(Gpu, "read", lambda self, wanted: reads.append(len(wanted)) or read(self, wanted))
    for make, times in ((counted, 1), (growing, 7)):
        model, feeds = make()
        session = ort.InferenceSession(model, providers=["gpu"])
        reads.clear()
        session.run(None, feeds[0])
        assert len(reads) == times, make.__name__


def test_a_loop_without_end_ends_at_the_limit() -> None:
    body = loop_body([node("Neg", ["v"], ["v2"])], [info("v2")])
    x = np.ones(3, np.float32)
    model = graph([node("Loop", ["n", "", "x"], ["o"], body=body), node("Neg", ["o"], ["y0"])], {"x": x, "n": count(3)})
    session = ort.InferenceSession(model, ort.SessionOptions(max_operations=1000), providers=["gpu"])
    with pytest.raises(CoreError, match=r"Loop_0.* operations, the limit"):
        session.run(None, {"x": x, "n": count(1 << 40)})
    np.testing.assert_array_equal(session.run(None, {"x": x, "n": count(3)})[0], x)


def test_what_is_stacked_may_not_change_its_shape() -> None:
    nodes = [node("Concat", ["v", "v"], ["v2"], axis=0)]
    body = loop_body([*nodes, node("Neg", ["v2"], ["s"])], [info("v2"), info("s")])
    x = np.ones(2, np.float32)
    model = graph([node("Loop", ["n", "", "x"], ["o", "y0"], body=body)], {"x": x, "n": count(3)})
    for provider in ("cpu", "gpu"):
        session = ort.InferenceSession(model, providers=[provider])
        with pytest.raises(CoreError, match=r"Loop_0.*changes its shape"):
            session.run(None, {"x": x, "n": count(3)})
        assert session.run(None, {"x": x, "n": count(1)})[0].shape == (1, 4)


def test_sizes_of_a_later_stage_that_do_not_fit_are_the_cores_error() -> None:
    x = np.ones((2, 3), np.float32)
    nodes = [node("Mul", ["s", "one"], ["q"]), node("Reshape", ["x", "q"], ["r"]), node("Exp", ["r"], ["y0"])]
    model = graph(nodes, {"x": x, "s": np.array([3, 2], np.int64)}, weights={"one": np.array([1, 1], np.int64)})
    said = []
    for provider in ("cpu", "gpu"):
        session = ort.InferenceSession(model, providers=[provider])
        with pytest.raises(CoreError) as error:
            session.run(None, {"x": x, "s": np.array([2, 4], np.int64)})
        said.append(str(error.value))
        assert session.run(None, {"x": x, "s": np.array([3, 2], np.int64)})[0].shape == (3, 2)
    assert said[0] == said[1]


def test_a_model_without_any_shader_runs_on_the_core_and_says_so_once() -> None:
    x = np.ones(3, np.float64)
    model = graph([node("Exp", ["x"], ["y0"])], {"x": x})
    with pytest.warns(RuntimeWarning, match="running on cpu: no step of it has a shader"):
        session = ort.InferenceSession(model, providers=["gpu"])
    assert session.fallback == "no step of it has a shader"
    assert session.get_providers() == ["cpu"]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x))
